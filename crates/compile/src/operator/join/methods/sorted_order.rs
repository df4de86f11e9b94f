//! A search in the order of the build side's rows: the rows of a key, or of a range behind it, lie one after the other between two
//! places that binary searches find. So joins by inequalities look at their matches alone, where nested loops look at every pair; and rows
//! of the probe side that come in order look at memory that those before them have looked at (M-BSP relational algebra, section 4.3: a
//! join of sorted relations by binary search).
//!
//! The keys, and behind them what the range is of, are words whose order as unsigned numbers is theirs (`operator/sort/words`).

use std::borrow::Cow;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, CompareOp, Scalar, Type};

use crate::context::{Argument, Context, Lowered, Repr, Unsupported};
use crate::expr::{Expr, ExprKind, substitute};
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::join::JoinOperator;
use crate::operator::join::build::StoreBuildSide;
use crate::operator::join::facts::JoinFacts;
use crate::operator::join::key_codes::KeyEncoding;
use crate::operator::join::method::{AccessPath, BuildSide, JoinMethod, Keys};
use crate::operator::join::search_range::{Bound, OrderedColumns, SearchRange, and};
use crate::operator::join::sorted_rows::place_info;
use crate::operator::roles::Sink;
use crate::operator::sort::words::{WordKey, Words};
use crate::operator::sort::{SortOperator, SortSize};
use crate::plan::Join;
use crate::program::{Fill, Growth, SortForm, States};
use crate::table::array;
use crate::table::joined::Joined;
use crate::table::key_rows::{KeyRows, Positions};
use crate::table::max_tree::MaxTree;
use crate::types::{DataType, Range};

/// Rows of a build side up to which each of them is tried: a search takes about as long.
const FEW_ROWS: u64 = 32;

/// Bits of the number of rows of which one is a sample: those between two samples lie in a few lines of a cache, and the samples of ten
/// million rows in a third of a megabyte.
const SAMPLE_BITS: u32 = 8;

/// Rows of a key from which on a range of them is searched for, and not each of them tried.
const ROWS_OF_KEY: u64 = 64;
/// The same on a CPU of keys whose rows lie far from each other: each that is tried is another line of memory.
const SCATTERED_ROWS_OF_KEY: u64 = 16;

/// The method.
pub(in crate::operator::join) struct Sorted;

/// The rows in order.
#[derive(Debug)]
pub(crate) struct SortedOrder {
    /// The sort of the rows that searches may be for.
    pub sort: Arc<SortOperator>,
    /// The columns of the rows that are sorted: the place, those of a second order, the keys, and what the range is of.
    pub columns: Vec<ColumnInfo>,
    /// The store's columns of what the range is of.
    pub ordered_columns: Option<OrderedColumns>,
    range: Option<SearchRange>,
    words: Words,
    second: Option<SecondWords>,
    /// Bits of the words that are the keys'.
    key_bits: u32,
    /// State of one `u32` a row, in order: its place in the store.
    pub entries: usize,
    /// States of one `u64` a row, in order: its words.
    ordered: Vec<usize>,
    /// The same of the first of every 2⁸ rows, and the class of these states.
    samples: Vec<usize>,
    pub sample_class: usize,
    /// Conditions on the keys that equal words do not decide.
    texts: Option<Expr>,
}

/// The second order of a range.
#[derive(Debug)]
struct SecondWords {
    words: Words,
    tree: MaxTree,
}

/// The keys whose words are no more than the first bytes of texts.
fn text_keys<'a>(facts: &'a JoinFacts<'_>) -> impl Iterator<Item = usize> + 'a {
    let is_text = |key: &usize| {
        facts.encodings.get(*key) == Some(&KeyEncoding::Value)
            && facts.keys.get(*key).is_some_and(|info| info.data_type == DataType::Utf8)
    };
    (0..facts.keys.len()).filter(is_text)
}

impl JoinMethod for Sorted {
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String> {
        let is_ordered = |info: &ColumnInfo| !matches!(info.data_type, DataType::Interval | DataType::Null);
        match () {
            () if facts.keys.is_empty() && facts.range.is_none() => {
                Some("there are no keys, and no inequality between the sides".into())
            }
            () if !facts.keys.iter().all(is_ordered) => Some("keys have no order".into()),
            () if facts.input.join.null_aware => Some("NULL keys of the build side count".into()),
            () if facts.input.join.null_equal && text_keys(facts).next().is_some() => {
                Some("texts, whose NULLs are keys, would have to be compared again".into())
            }
            () => None,
        }
    }

    fn why(&self, facts: &JoinFacts<'_>) -> Option<Cow<'static, str>> {
        let build = facts.input.build.rows;
        let rows = build.expected.unwrap_or(build.bound);
        match facts.range {
            None => None,
            Some(_) if facts.is_unique() || rows <= FEW_ROWS => None,
            Some(_) if facts.keys.is_empty() => {
                Some("rows between two bounds lie one after the other in an order".into())
            }
            Some(_) => {
                let values =
                    facts.keys.iter().try_fold(1u64, |all, key| Some(all.saturating_mul(key.values()?)));
                let mut keys = facts.stored.iter().take(facts.keys.len());
                let are_far = facts.input.shape.is_serial() && keys.any(|key| key.scattered.is_some());
                let least = if are_far { SCATTERED_ROWS_OF_KEY } else { ROWS_OF_KEY };
                values
                    .is_some_and(|values| rows / values.max(1) >= least)
                    .then(|| "a key has many rows, of which a range is searched for".into())
            }
        }
    }

    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported> {
        let input = facts.input;
        // One row is looked at where keys are unique: no range need be searched for it.
        let range = facts.range.filter(|_| !facts.is_unique());
        let sides = (input.build.columns, input.probe.columns);
        let second = range.and_then(|(range, _)| range.second.as_ref()).map(|second| second.info(sides));
        let mut columns: Vec<ColumnInfo> = [place_info()].into_iter().chain(second.clone()).collect();
        let carried = columns.len();
        columns.extend((0..facts.keys.len()).map(|key| key_info(facts, key)));
        columns.extend(range.map(|(range, _)| range.info(sides)));
        let key = |column| WordKey { column, descending: false, nulls_first: false, is_group: true };
        let keys: Vec<WordKey> = (carried..columns.len()).map(key).collect();
        let key_bits = Words::plan(keys.get(..facts.keys.len()).unwrap_or_default(), &columns)?.bits();
        let words = Words::plan(&keys, &columns)?.by_words_alone();
        let size = SortSize { rows: input.build.rows.bound, branches: 1, shape: Some(input.shape) };
        let form = SortForm::choose(input.site, input.shape)?;
        let store = facts.store(states)?;
        let is_single = words.count() == 1;
        let sort = SortOperator::plan_ranked(words.clone(), is_single, &columns[..carried], size, states)?;
        let sort = sort.with_form(form);
        let entries = sort.numbers("sorted_rows", states);
        let ordered = sort.words_in_order(states);
        let size = Growth::Sized(sort.delivered(), Fill { taken: 1 << SAMPLE_BITS, of: 1 });
        let sample_class = states.class(1, size);
        let samples = (0..words.count()).map(|_| states.state("sampled_words", 8, sample_class)).collect();
        let rows = if facts.is_unique() { KeyRows::One } else { KeyRows::Sorted(entries) };
        let second = second.map(|_| -> Result<SecondWords, Unsupported> {
            let words = Words::plan(&[key(1)], &columns)?;
            let tree = MaxTree::plan(input.build.rows.bound, (sort.class(), sort.delivered()), states);
            Ok(SecondWords { words, tree })
        });
        let texts = text_keys(facts).filter_map(|key| key_condition(facts, key)).reduce(and);
        let path = SortedOrder {
            sort: Arc::new(sort),
            columns,
            ordered_columns: range.map(|(_, columns)| columns),
            range: range.map(|(range, _)| range.clone()),
            words,
            second: second.transpose()?,
            key_bits,
            entries,
            ordered,
            samples,
            sample_class,
            texts,
        };
        Ok(BuildSide { store, path: Box::new(path), rows })
    }
}

/// What is known of a key on both sides, as it is sorted.
fn key_info(facts: &JoinFacts<'_>, key: usize) -> ColumnInfo {
    let (build, probe) = (&facts.keys[key], &facts.probe_keys[key]);
    let range = match facts.encodings.get(key) {
        Some(KeyEncoding::Value) => build.range.zip(probe.range).map(|(a, b)| a.union(b)),
        // A text that is in no dictionary has a number of its own.
        _ => Some(Range::new(i32::MIN, i32::MAX)),
    };
    ColumnInfo::new(
        build.data_type.clone(),
        facts.input.join.null_equal && (build.nullable || probe.nullable),
        range,
    )
}

/// That a pair's values of a key are equal.
fn key_condition(facts: &JoinFacts<'_>, key: usize) -> Option<Expr> {
    let (build, probe) = facts.input.join.keys.get(key)?;
    let width = facts.input.build.columns.len();
    let moved = |part: &Expr| match part.kind {
        ExprKind::Column(column) => Some(Expr { kind: ExprKind::Column(width + column), ..part.clone() }),
        _ => None,
    };
    let sides = (Box::new(build.clone()), Box::new(substitute(probe, &moved)));
    let nullable = build.nullable || probe.nullable;
    let kind = ExprKind::Compare(CompareOp::Eq, sides.0, sides.1);
    Some(Expr { kind, data_type: DataType::Boolean, nullable })
}

/// A bound's value for a row of the probe side.
struct BoundValue {
    value: Lowered,
    is_included: bool,
}

/// The values of several bounds, and whether none is NULL (`bool`); `None`: none can be.
struct BoundValues {
    values: Vec<BoundValue>,
    valid: Option<V>,
}

/// One end of a range of places: the first row that is not before words, or with `is_behind` the first one behind them.
struct End {
    words: Vec<V>,
    is_behind: bool,
}

impl SortedOrder {
    /// Notes the words of the row with a number (`i64`) in the order.
    pub fn note_words(&self, cx: &mut Context<'_>, row: V) {
        let values: Vec<V> = (0..self.ordered.len()).map(|word| self.sort.word_at(cx, word, row)).collect();
        let put = |cx: &mut Context<'_>, state: usize, place: V, value: V| {
            let words = cx.argument("ordered_words", Type::global(Scalar::U64), Argument::State(state));
            let place = cx.builder.offset(words, place);
            cx.builder.store(place, value);
        };
        for (state, value) in self.ordered.iter().zip(&values) {
            if !self.sort.has_ordered(*state) {
                put(cx, *state, row, *value);
            }
        }
        let b = &mut *cx.builder;
        let (mask, zero) = (b.i64((1 << SAMPLE_BITS) - 1), b.i64(0));
        let within = b.and(row, mask);
        let is_sample = b.eq(within, zero);
        cx.begin_if(is_sample);
        let shift = cx.builder.i64(SAMPLE_BITS.into());
        let sample = cx.builder.binary(BinaryOp::Shr, row, shift);
        for (state, value) in self.samples.iter().zip(&values) {
            put(cx, *state, sample, *value);
        }
        cx.end();
    }

    /// The tree of a second order, where there is one.
    pub fn tree(&self) -> Option<&MaxTree> {
        self.second.as_ref().map(|second| &second.tree)
    }

    /// Notes what a second order has of the row with a number (`i64`) in the order, which is the current one.
    pub fn note_second(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let Some(SecondWords { words, tree }) = &self.second else { return Ok(()) };
        let word = words.word(cx, 0)?;
        tree.put(cx, row, word);
        Ok(())
    }

    /// The words of keys and of a value of what the range is of; where there is none, those whose bits behind the keys' are all the same.
    fn words_of(
        &self,
        cx: &mut Context<'_>,
        (keys, value): (&[Lowered], Option<&Lowered>),
        is_filled: bool,
    ) -> Result<Vec<V>, Unsupported> {
        let zero = cx.builder.i64(0);
        let place = Lowered { repr: Repr::Scalar(zero), valid: None, range: None };
        let second = self.second.as_ref().map(|_| &place);
        let columns = [&place].into_iter().chain(second).chain(keys).chain(value).cloned();
        cx.push_joined(columns.map(Joined::Value).collect());
        let words = match value.is_some() || self.range.is_none() {
            true => {
                (0..self.words.count()).map(|word| self.words.word(cx, word)).collect::<Result<Vec<_>, _>>()
            }
            false => self.words.before_column(cx, self.columns.len() - 1),
        };
        cx.pop_layer();
        let mut words = words?;
        if value.is_none() && is_filled {
            for (number, word) in words.iter_mut().enumerate() {
                let before = self.key_bits.saturating_sub(number as u32 * 64);
                let mask = if before >= 64 { 0 } else { u64::MAX >> before };
                let mask = cx.builder.u64(mask);
                *word = cx.builder.binary(BinaryOp::Or, *word, mask);
            }
        }
        Ok(words)
    }

    /// Whether the row, or sample, with a number (`i64`) in arrays of words is before an end.
    fn is_before(&self, cx: &mut Context<'_>, arrays: &[usize], number: V, end: &End) -> V {
        let mut is_before = cx.builder.bool(end.is_behind);
        for (state, word) in arrays.iter().zip(&end.words).rev() {
            let array = cx.argument("ordered_words", Type::global(Scalar::U64), Argument::State(*state));
            let b = &mut *cx.builder;
            let own = b.element(array, number);
            let (less, equal) = (b.lt(own, *word), b.eq(own, *word));
            let decided = b.and(equal, is_before);
            is_before = b.or(less, decided);
        }
        is_before
    }

    /// The first (`i64`) of `from..to` in arrays of words that is not before an end, else `to`.
    fn bisected(&self, cx: &mut Context<'_>, arrays: &[usize], (from, to): (V, V), end: &End) -> V {
        let (low, high) = (cx.builder.var_of("low", from), cx.builder.var_of("high", to));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (first, last) = (b.read(low), b.read(high));
        let done = b.ge(first, last);
        b.break_if(done);
        let (sum, one) = (b.add(first, last), b.i64(1));
        let middle = b.binary(BinaryOp::Shr, sum, one);
        let is_before = self.is_before(cx, arrays, middle, end);
        let b = &mut *cx.builder;
        let next = b.add(middle, one);
        let first = b.select(is_before, next, first);
        let last = b.select(is_before, last, middle);
        b.assign(low, first);
        b.assign(high, last);
        cx.end();
        cx.builder.read(low)
    }

    /// The number (`i64`) of the first of so many rows that is not before an end. The samples lie in caches where all rows do not: they
    /// tell which rows between two of them are left to be searched.
    fn among_all(&self, cx: &mut Context<'_>, rows: V, end: &End) -> V {
        let b = &mut *cx.builder;
        let (zero, one) = (b.i64(0), b.i64(1));
        let (shift, most) = (b.i64(SAMPLE_BITS.into()), b.i64((1 << SAMPLE_BITS) - 1));
        let padded = b.add(rows, most);
        let samples = b.binary(BinaryOp::Shr, padded, shift);
        let sample = self.bisected(cx, &self.samples, (zero, samples), end);
        let b = &mut *cx.builder;
        let before = b.sub(sample, one);
        let before = b.binary(BinaryOp::Max, before, zero);
        let from = b.binary(BinaryOp::Shl, before, shift);
        let to = b.binary(BinaryOp::Shl, sample, shift);
        let to = b.binary(BinaryOp::Min, to, rows);
        self.bisected(cx, &self.ordered, (from, to), end)
    }

    /// The same of the rows `from..rows`, where it is thought to be near the first of them: steps of growing length lead beyond it
    /// (exponential search; Bentley and Yao 1976).
    fn near(&self, cx: &mut Context<'_>, (from, rows): (V, V), end: &End) -> V {
        let one = cx.builder.i64(1);
        let (low, high) = (cx.builder.var_of("low", from), cx.builder.var_of("high", from));
        let step = cx.builder.var_of("step", one);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let current = b.read(high);
        let is_beyond = b.ge(current, rows);
        b.break_if(is_beyond);
        let is_before = self.is_before(cx, &self.ordered, current, end);
        let b = &mut *cx.builder;
        let is_found = b.not(is_before);
        b.break_if(is_found);
        let (next, length) = (b.add(current, one), b.read(step));
        let far = b.add(current, length);
        let longer = b.add(length, length);
        b.assign(low, next);
        b.assign(high, far);
        b.assign(step, longer);
        cx.end();
        let b = &mut *cx.builder;
        let (from, to) = (b.read(low), b.read(high));
        let to = b.binary(BinaryOp::Min, to, rows);
        self.bisected(cx, &self.ordered, (from, to), end)
    }

    /// The first row of `begin..rows` (`i64`) that a second order lets be a match.
    fn second_begin(&self, cx: &mut Context<'_>, (begin, rows): (V, V)) -> Result<V, Unsupported> {
        let second = self.range.as_ref().and_then(|range| range.second.as_ref());
        let (Some(own), Some(second)) = (&self.second, second) else { return Ok(begin) };
        let value = lower(cx, &second.least)?;
        let zero = cx.builder.i64(0);
        let place = Lowered { repr: Repr::Scalar(zero), valid: None, range: None };
        cx.push_joined(vec![Joined::Value(place), Joined::Value(value)]);
        let word = own.words.word(cx, 0);
        cx.pop_layer();
        Ok(own.tree.first_from(cx, rows, word?))
    }

    /// Where the range of so many rows (`i64`) begins: behind all lower bounds.
    fn begin(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        bounds: &[BoundValue],
        rows: V,
    ) -> Result<V, Unsupported> {
        let mut begin = cx.builder.i64(0);
        if bounds.is_empty() && !keys.is_empty() {
            let words = self.words_of(cx, (keys, None), false)?;
            return Ok(self.among_all(cx, rows, &End { words, is_behind: false }));
        }
        for BoundValue { value, is_included } in bounds {
            let words = self.words_of(cx, (keys, Some(value)), false)?;
            let found = self.among_all(cx, rows, &End { words, is_behind: !is_included });
            begin = cx.builder.binary(BinaryOp::Max, begin, found);
        }
        Ok(begin)
    }

    /// Where it ends: before all upper bounds. Ranges that begin at a bound, or at a key, are thought to be short.
    fn end(
        &self,
        cx: &mut Context<'_>,
        (keys, lower): (&[Lowered], &[BoundValue]),
        bounds: &[BoundValue],
        (begin, rows): (V, V),
    ) -> Result<V, Unsupported> {
        let is_near = !keys.is_empty() || !lower.is_empty();
        let search = |cx: &mut Context<'_>, end: End| match is_near {
            true => self.near(cx, (begin, rows), &end),
            false => self.among_all(cx, rows, &end),
        };
        if bounds.is_empty() && !keys.is_empty() {
            let words = self.words_of(cx, (keys, None), true)?;
            return Ok(search(cx, End { words, is_behind: true }));
        }
        let mut end = rows;
        for BoundValue { value, is_included } in bounds {
            let words = self.words_of(cx, (keys, Some(value)), false)?;
            let found = search(cx, End { words, is_behind: *is_included });
            end = cx.builder.binary(BinaryOp::Min, end, found);
        }
        // No row is both behind one bound and before another where they contradict each other.
        Ok(cx.builder.binary(BinaryOp::Max, end, begin))
    }

    /// The values of bounds for the current row.
    fn bounds_of(&self, cx: &mut Context<'_>, bounds: &[Bound]) -> Result<BoundValues, Unsupported> {
        let mut valid: Option<V> = None;
        let mut values = Vec::new();
        for bound in bounds {
            let value = lower(cx, &bound.value)?;
            if let Some(own) = value.valid {
                valid = Some(valid.map_or(own, |valid| cx.builder.and(valid, own)));
            }
            let value = Lowered { valid: None, ..value };
            values.push(BoundValue { value, is_included: bound.is_included });
        }
        Ok(BoundValues { values, valid })
    }
}

impl AccessPath for SortedOrder {
    fn name(&self, rows: &str) -> String {
        match &self.range {
            Some(_) if self.second.is_some() => "sorted, a range of two orders".into(),
            Some(_) if self.key_bits == 0 => "sorted, a range".into(),
            Some(_) => "sorted, a range behind the keys".into(),
            None => format!("sorted{rows}"),
        }
    }

    fn passes(&self, join: &Arc<JoinOperator>) -> Vec<Arc<dyn Sink>> {
        vec![Arc::new(StoreBuildSide(Arc::clone(join)))]
    }

    fn sorted(&self) -> Option<&SortedOrder> {
        Some(self)
    }

    fn left_to_check(&self, join: &Join) -> Option<Expr> {
        let rest = match &self.range {
            Some(range) => range.rest.clone(),
            None => join.residual.clone(),
        };
        self.texts.clone().into_iter().chain(rest).reduce(and)
    }

    fn values_read(&self) -> Vec<&Expr> {
        self.range.iter().flat_map(SearchRange::values_read).collect()
    }

    /// The one row of a key, where it is unique.
    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let zero = cx.builder.u32(0);
        let to =
            Positions { begin: cx.builder.var_of("first", zero), count: cx.builder.var_of("count", zero) };
        self.positions(cx, keys, to)?;
        let (count, begin) = (cx.builder.read(to.count), cx.builder.read(to.begin));
        let found = cx.builder.ne(count, zero);
        cx.begin_if(found);
        let entries = array(cx, "sorted_rows", self.entries);
        let begin = cx.builder.convert(begin, Scalar::I64);
        let place = cx.builder.element(entries, begin);
        let one = cx.builder.u32(1);
        let number = cx.builder.add(place, one);
        cx.builder.assign(cursor, number);
        cx.end();
        Ok(())
    }

    fn positions(&self, cx: &mut Context<'_>, keys: Keys<'_>, to: Positions) -> Result<(), Unsupported> {
        let (lower, upper): (&[Bound], &[Bound]) = match &self.range {
            Some(range) => (&range.lower, &range.upper),
            None => (&[], &[]),
        };
        let (lower, upper) = (self.bounds_of(cx, lower)?, self.bounds_of(cx, upper)?);
        let mut opened = 0;
        for valid in [lower.valid, upper.valid].into_iter().flatten() {
            cx.begin_if(valid);
            opened += 1;
        }
        let count =
            cx.argument("ordered_rows", Type::global(Scalar::U64), Argument::State(self.sort.delivered()));
        let count = cx.builder.load(count);
        let rows = cx.builder.bitcast(count, Scalar::I64);
        let begin = self.begin(cx, keys.values, &lower.values, rows)?;
        let begin = self.second_begin(cx, (begin, rows))?;
        let end = self.end(cx, (keys.values, &lower.values), &upper.values, (begin, rows))?;
        let count = cx.builder.sub(end, begin);
        let (begin, count) = (cx.builder.convert(begin, Scalar::U32), cx.builder.convert(count, Scalar::U32));
        cx.builder.assign(to.begin, begin);
        cx.builder.assign(to.count, count);
        for _ in 0..opened {
            cx.end();
        }
        Ok(())
    }
}
