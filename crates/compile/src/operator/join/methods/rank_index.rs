//! Ranks of keys: perfect hashing of the values that there are, by a bitmap of a range of values (Jacobson, “Space-efficient Static Trees
//! and Graphs”, 1989).
//!
//! The rank of a key is how many values before it there are: those of the words before, which are noted word by word, and the bits
//! before its own in its word. It is the key's place among as many as there are keys, so that what leads from a key to its rows takes four
//! bytes a row, and not four a value of the range. Where few values of a large range have rows, the bits and the counts, two bits
//! a value, lie in a cache in which a slot a value has no room.
//!
//! It is made in passes: the rows set their bits; the engine makes the exclusive prefix sum of the bits of words, counted as they are read
//! (`primitives/chained_scan`); the rows put themselves at their ranks. Where a key may have several rows, its rank leads to a chain of
//! them, or to their bucket.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar, UnaryOp};

use super::Direct;
use crate::context::{Context, Unsupported};
use crate::operator::Flow;
use crate::operator::join::JoinOperator;
use crate::operator::join::facts::JoinFacts;
use crate::operator::join::method::{
    AccessPath, BuildSide, DenseKey, JoinMethod, Keys, NUMBER_BYTES, stored_and_indexed,
};
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::program::{Fill, Growth, HostAction, States, Task, When, WordRanks};
use crate::table::array;
use crate::table::bitmap::Bitmap;
use crate::table::buckets::Buckets;
use crate::table::key_range::KeyRange;
use crate::table::key_rows::{KeyRows, Positions, put_first};
use crate::table::probing::{number_of, report_not_unique};
use crate::variant::axes::IndexRows;

/// Values of a range that have two bits each, the bitmap's and the count's, in a byte.
const VALUES_PER_BYTE: u64 = 4;
/// Values of the range for each row from which on the rule has ranks where the slots have no room in a cache.
const VALUES_PER_ROW: u64 = 8;

pub(in crate::operator::join) struct Ranked;

/// The bits and what stands at the ranks.
#[derive(Debug, Clone, Copy)]
struct RankIndex {
    range: KeyRange,
    taken: Bitmap,
    /// State of one `u32` a word: the bits of all words before it.
    ranks: usize,
    at_ranks: AtRanks,
}

/// What stands at a rank.
#[derive(Debug, Clone, Copy)]
enum AtRanks {
    /// The number of the key's only row: state of one `u32` a row.
    Row(usize),
    /// The same of the first row of a chain.
    Chain(usize),
    /// Where the bucket begins: its class has an element a rank and one more.
    Bucket { class: usize },
}

impl JoinMethod for Ranked {
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String> {
        match &facts.slots {
            Err(why_not) => Some(why_not.clone()),
            Ok(_) if facts.first_only => Some("bits alone say whether there is a row".into()),
            Ok(range) if !facts.has_room(range.slots() / VALUES_PER_BYTE) => {
                Some(format!("memory for {} bits", range.slots()))
            }
            Ok(_) => None,
        }
    }

    /// Where several rows may have a key, all slots are cleared and, for buckets, summed up: on an H200 TPC-H 4, 12 and 21 take 0.58, 0.63 and
    /// 0.57 of the time with ranks. Slots of unique keys are not even cleared, and are one look-up less (5 and 7: 0.93 and 0.88 with slots);
    /// what a CPU makes of ranks was not measured.
    fn why(&self, facts: &JoinFacts<'_>) -> Option<Cow<'static, str>> {
        let (slots, cache) = (facts.slots.as_ref().ok()?.slots(), facts.cache());
        let build = &facts.input.build.rows;
        let rows = build.expected.unwrap_or(build.bound);
        let pays = !facts.is_unique()
            && !facts.input.shape.is_serial()
            && Direct.why_not(facts).is_none()
            && slots <= facts.slot_limit().value
            && spares_misses(slots, rows, cache.value);
        pays.then(|| cache.reason("a cache has room for bits and counts, and not for slots"))
    }

    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported> {
        let range = facts.slots.clone().map_err(Unsupported)?;
        let store = facts.store(states)?;
        let words = states.class(range.slots().div_ceil(32), Growth::Fixed);
        let (taken, ranks) = (Bitmap::plan(range.slots(), states), states.state("ranks", 4, words));
        let (at_ranks, rows) = match facts.order()? {
            None => (AtRanks::Row(states.state("ranked_rows", 4, store.class)), KeyRows::One),
            Some(IndexRows::Chains) => {
                let heads = states.state("ranked_rows", 4, store.class);
                (AtRanks::Chain(heads), KeyRows::Chained(states.state("next", 4, store.class)))
            }
            Some(IndexRows::Buckets) => {
                // There are no more ranks than rows, and one more element ends the last bucket.
                let all = Growth::Sized(store.place_count(), Fill { taken: 1, of: 1 });
                let class = states.class(1, all);
                let buckets = Buckets::plan(class, &store, true, states);
                (AtRanks::Bucket { class }, KeyRows::Buckets(buckets))
            }
        };
        Ok(BuildSide { path: Box::new(RankIndex { range, taken, ranks, at_ranks }), store, rows })
    }
}

/// Whether there are many values of a range for each row, and a cache has room for the bits, the counts and the rows' numbers, but not for a
/// slot a value.
fn spares_misses(slots: u64, rows: u64, cache: u64) -> bool {
    let bytes = (slots / VALUES_PER_BYTE).saturating_add(rows.saturating_mul(NUMBER_BYTES));
    slots / rows.max(1) >= VALUES_PER_ROW && slots.saturating_mul(NUMBER_BYTES) > cache && bytes <= cache
}

/// A slot in the bitmap: the number of its word, the word, and the number of its bit there, `u32` each.
#[derive(Debug, Clone, Copy)]
struct Bit {
    word: V,
    bits: V,
    within: V,
}

impl RankIndex {
    /// The bit of a slot, of any integer type.
    fn bit(&self, cx: &mut Context<'_>, slot: V) -> Bit {
        let words = array(cx, "taken", self.taken.0);
        let b = &mut *cx.builder;
        // There are no more slots than 32 bits hold.
        let slot = b.convert(slot, Scalar::U32);
        let (five, mask) = (b.u32(5), b.u32(31));
        let word = b.binary(BinaryOp::Shr, slot, five);
        let (bits, within) = (b.element(words, word), b.and(slot, mask));
        Bit { word, bits, within }
    }

    /// The rank (`u32`) of a slot that is taken.
    fn rank(&self, cx: &mut Context<'_>, bit: Bit) -> V {
        let ranks = array(cx, "ranks", self.ranks);
        let b = &mut *cx.builder;
        let (before, one) = (b.element(ranks, bit.word), b.u32(1));
        let own = b.binary(BinaryOp::Shl, one, bit.within);
        let below = b.sub(own, one);
        let below = b.and(bit.bits, below);
        let below = b.unary(UnaryOp::Popcount, below);
        b.add(before, below)
    }

    /// Opens `if` the slot of a key is taken: its rank (`u32`).
    fn begin_if_taken(&self, cx: &mut Context<'_>, keys: Keys<'_>) -> Result<V, Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        let bit = self.bit(cx, slot);
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let shifted = b.binary(BinaryOp::Shr, bit.bits, bit.within);
        let is_set = b.and(shifted, one);
        let is_set = b.ne(is_set, zero);
        cx.begin_if(is_set);
        Ok(self.rank(cx, bit))
    }

    /// The element of a rank (`u32`) that says which row is the first, as a `ptr<global, u32>`.
    fn head(&self, cx: &mut Context<'_>, rank: V) -> Result<V, Unsupported> {
        let (AtRanks::Row(heads) | AtRanks::Chain(heads)) = self.at_ranks else {
            return Err(Unsupported::internal("a bucket has no first row"));
        };
        let heads = array(cx, "ranked_rows", heads);
        Ok(cx.builder.offset(heads, rank))
    }

    /// Puts the row at `place` (`i64`) at the rank of its key, once all ranks are known; or counts it into its bucket.
    fn number(&self, cx: &mut Context<'_>, keys: Keys<'_>, place: V) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        let bit = self.bit(cx, slot);
        let rank = self.rank(cx, bit);
        match keys.index.rows {
            KeyRows::Buckets(buckets) => {
                let rank = cx.builder.convert(rank, Scalar::I64);
                buckets.count(cx, rank, place);
            }
            KeyRows::Chained(next) => {
                let head = self.head(cx, rank)?;
                put_first(cx, head, next, place);
            }
            KeyRows::One | KeyRows::All | KeyRows::Sorted(_) => {
                let head = self.head(cx, rank)?;
                let number = number_of(cx, place);
                cx.builder.store(head, number);
            }
        }
        Ok(())
    }
}

impl AccessPath for RankIndex {
    fn name(&self, rows: &str) -> String {
        format!("ranks{rows}")
    }

    fn passes(&self, join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        let mut sinks = stored_and_indexed(join);
        sinks.insert(2, Arc::new(NumberRows { join: Arc::clone(join), ranks: *self }));
        sinks
    }

    fn zeroed(&self) -> Vec<usize> {
        match self.at_ranks {
            AtRanks::Row(_) | AtRanks::Bucket { .. } => vec![self.taken.0],
            AtRanks::Chain(heads) => vec![self.taken.0, heads],
        }
    }

    fn sized(&self) -> Vec<usize> {
        match self.at_ranks {
            AtRanks::Row(_) | AtRanks::Chain(_) => Vec::new(),
            AtRanks::Bucket { class } => vec![class],
        }
    }

    fn dense(&self) -> Option<DenseKey> {
        Some(DenseKey { range: self.range, taken: Some(self.taken) })
    }

    fn insert(&self, cx: &mut Context<'_>, keys: Keys<'_>, _place: V) -> Result<(), Unsupported> {
        let slot = keys.slot(cx, self.range)?;
        let was_free = self.taken.take(cx, slot);
        if let Some(state) = keys.index.not_unique {
            let is_second = cx.builder.not(was_free);
            cx.begin_if(is_second);
            report_not_unique(cx, state);
            cx.end();
        }
        Ok(())
    }

    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let rank = self.begin_if_taken(cx, keys)?;
        match keys.index.rows {
            KeyRows::Buckets(buckets) => {
                let rank = cx.builder.convert(rank, Scalar::I64);
                buckets.open(cx, rank, cursor);
            }
            KeyRows::One | KeyRows::Chained(_) | KeyRows::All | KeyRows::Sorted(_) => {
                let head = self.head(cx, rank)?;
                let number = cx.builder.load(head);
                cx.builder.assign(cursor, number);
            }
        }
        cx.end();
        Ok(())
    }

    fn positions(&self, cx: &mut Context<'_>, keys: Keys<'_>, to: Positions) -> Result<(), Unsupported> {
        let buckets = keys.index.buckets()?;
        let rank = self.begin_if_taken(cx, keys)?;
        let rank = cx.builder.convert(rank, Scalar::I64);
        to.set(cx, buckets, rank);
        cx.end();
        Ok(())
    }

    /// The bits and the counts of words, and the rows' numbers.
    fn bytes_searched(&self, rows: u64, _key_bytes: u64) -> u64 {
        (self.range.slots() / 8 * 2).saturating_add(rows.saturating_mul(NUMBER_BYTES))
    }
}

/// Puts the rows of the store at the ranks of their keys, or counts them into the buckets there. Before, the engine gives each word of the
/// bitmap its rank.
#[derive(Debug)]
struct NumberRows {
    join: Arc<JoinOperator>,
    ranks: RankIndex,
}

impl fmt::Display for NumberRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranks")
    }
}

impl Sink for NumberRows {
    fn needs(&self) -> Needs {
        let words = WordRanks { bits: self.ranks.taken.0, ranks: self.ranks.ranks };
        let around = vec![HostAction { when: When::BeforeChain, task: Task::Rank(words) }];
        Needs { zeroed: Vec::new(), produced: Some(self.join.index.store.row_count()), around }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::from([0])
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(NumberEmitter(self)))
    }
}

struct NumberEmitter<'s>(&'s NumberRows);

impl Emitter for NumberEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let NumberRows { join, ranks } = self.0;
        join.index.if_indexed(cx, |cx, keys| ranks.number(cx, keys, row))
    }
}

#[cfg(test)]
mod tests {
    use super::spares_misses;

    /// Slots of 240 MB, of which bits and counts are 15, beside a cache of 50.
    #[test]
    fn ranks_spare_misses_where_bits_alone_fit_a_cache() {
        let cache = 50 << 20;
        for (slots, rows, spares) in [
            (60_000_000, 1_000_000, true),
            (60_000_000, 0, true),
            // Many rows, whose numbers fit no cache, or are too many for the range.
            (60_000_000, 10_000_000, false),
            (120_000_000, 14_000_000, false),
            // Slots that fit themselves, and bits that do not.
            (12_000_000, 1_000, false),
            (400_000_000, 1_000, false),
        ] {
            assert_eq!(spares_misses(slots, rows, cache), spares, "{slots} {rows}");
        }
    }
}
