//! What is known of a join's sides before its method is chosen.

use super::key_codes::KeyEncoding;
use super::search_range::{OrderedColumns, SearchRange};
use super::{JoinInput, keeps_build};
use crate::calibration::Limit;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::plan::JoinKind;
use crate::program::States;
use crate::table::key_range::KeyRange;
use crate::table::rows::RowStore;
use crate::variant::axes::IndexRows;

/// Slots a row that the rule gives a direct-addressed index, at most.
const DIRECT_SLOTS_PER_ROW: u64 = 8;

/// What the methods of a join are asked by.
pub(super) struct JoinFacts<'a> {
    pub input: &'a JoinInput<'a>,
    /// What the store has of the build side: the keys first.
    pub stored: Vec<ColumnInfo>,
    /// The keys as searches are for them.
    pub keys: Vec<ColumnInfo>,
    pub probe_keys: Vec<ColumnInfo>,
    pub encodings: Vec<KeyEncoding>,
    /// NULLs of both sides equal each other.
    pub has_null_pairs: bool,
    /// Only whether there is a row with the keys is asked.
    pub first_only: bool,
    /// The range of the only key, whose values may be slots; or why they are none.
    pub slots: Result<KeyRange, String>,
    /// The range of an order of the build side's rows in which matches are, and the stored columns of its orders.
    pub range: Option<(&'a SearchRange, OrderedColumns)>,
}

impl<'a> JoinFacts<'a> {
    /// Those of a join. `stored`: as the index will have it; `encodings`: how each key is encoded.
    pub fn of(
        input: &'a JoinInput<'a>,
        stored: Vec<ColumnInfo>,
        probe_keys: Vec<ColumnInfo>,
        encodings: Vec<KeyEncoding>,
    ) -> JoinFacts<'a> {
        let join = input.join;
        let keys: Vec<ColumnInfo> =
            stored.iter().zip(&encodings).map(|(key, encoding)| encoding.numbers(key)).collect();
        let both_nullable = |(a, b): (&ColumnInfo, &ColumnInfo)| a.nullable && b.nullable;
        let has_null_pairs = join.null_equal && keys.iter().zip(&probe_keys).any(both_nullable);
        let first_only = join.residual.is_none()
            && matches!(join.kind, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark);
        let slots = match keys.as_slice() {
            [key] if has_null_pairs => Err(format!("NULLs of {} are keys", key.data_type)),
            [key] => KeyRange::of(key),
            _ => Err("several keys".into()),
        };
        JoinFacts {
            input,
            stored,
            keys,
            probe_keys,
            encodings,
            has_null_pairs,
            first_only,
            slots,
            range: None,
        }
    }

    /// Whether no two build rows are assumed to have equal keys.
    pub fn is_unique(&self) -> bool {
        self.input.assumption.is_made
    }

    /// Slots that the rule gives a direct-addressed index at most: many rows decide by themselves. Where there are few, slots stay in a CPU's
    /// second-level cache and their bitmap in a GPU's first-level cache, and a look-up is one load.
    pub fn slot_limit(&self) -> Limit {
        let least = self.input.choices.calibration.index_slots(self.input.shape.is_serial());
        let most = self.slots_of_rows();
        if most >= least.value { Limit::fixed(most) } else { least }
    }

    /// The same by the rows alone.
    pub fn slots_of_rows(&self) -> u64 {
        self.input.build.rows.bound.saturating_mul(DIRECT_SLOTS_PER_ROW)
    }

    /// Bytes of the last cache, beyond which slots are looked at in memory.
    pub fn cache(&self) -> Limit {
        self.input.choices.calibration.index_cache(self.input.shape.is_serial())
    }

    /// Whether so many bytes may be addressed directly.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.input.choices.direct_bytes.is_none_or(|most| bytes <= most)
    }

    /// Why rows may not lie at the slots of their keys, where that is so: rows with a NULL key have none.
    pub fn why_not_placed(&self) -> Option<&'static str> {
        match () {
            () if keeps_build(self.input.join.kind) => Some("build rows are delivered too"),
            () if self.input.join.null_aware => Some("NULL keys of the build side count"),
            () => None,
        }
    }

    /// Chooses how the rows of a key hang together; `None` where there is one at most, or one is enough. On a CPU chains are faster wherever
    /// it was measured (TPC-H, SF 1, 2 cores): the second pass and the prefix sum over all slots make an index take 1.4 times (2.7 million
    /// rows) to 4 times as long (Q9: 0.3 million rows over 6 million slots), and a probe gains less than a tenth.
    pub fn order(&self) -> Result<Option<IndexRows>, Unsupported> {
        if self.is_unique() || self.first_only {
            return Ok(None);
        }
        let rule = match self.input.shape.is_serial() {
            true => (IndexRows::Chains, "a CPU's caches hold chains as well as buckets"),
            false => (IndexRows::Buckets, "each step of a chain is a transaction"),
        };
        self.input.site.choose(rule, |_| Ok(())).map(Some)
    }

    /// Declares a store of the build side's rows in the order in which they come.
    pub fn store(&self, states: &mut States) -> Result<RowStore, Unsupported> {
        RowStore::plan(&self.stored, self.input.build.rows.bound, self.input.layout, states)
    }
}
