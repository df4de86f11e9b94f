//! Hashing: any keys, by open addressing over the rows of the store (`table/probing`).

use std::borrow::Cow;

use kelpie_kir::builder::{V, Var};

use super::Direct;
use crate::context::{Context, Unsupported};
use crate::lower::hashing::HASH_RULE;
use crate::operator::join::facts::JoinFacts;
use crate::operator::join::index::Index;
use crate::operator::join::method::{AccessPath, BuildSide, JoinMethod, Keys, NUMBER_BYTES};
use crate::program::{Fill, States};
use crate::table::buckets::Buckets;
use crate::table::key_rows::{KeyRows, Positions};
use crate::table::probing::{Known, OpenTable};
use crate::table::shared_keys::{self, Found};
use crate::variant::axes::{HashFunction, IndexRows, KeyTextLanes, SlotFill};

/// The method, which is for whatever no other one is.
pub(in crate::operator::join) struct Hash;

/// The table, in whose slots rows stand.
#[derive(Debug)]
pub(in crate::operator::join) struct HashIndex {
    pub table: OpenTable,
}

impl JoinMethod for Hash {
    fn why_not(&self, facts: &JoinFacts<'_>) -> Option<String> {
        facts.keys.is_empty().then(|| "there are no keys".into())
    }

    fn why(&self, facts: &JoinFacts<'_>) -> Option<Cow<'static, str>> {
        Some(match Direct.why_not(facts) {
            None => facts.slot_limit().reason("a sparse range of keys"),
            Some(_) => "keys have no range".into(),
        })
    }

    fn plan(&self, facts: &JoinFacts<'_>, states: &mut States) -> Result<BuildSide, Unsupported> {
        let (order, store) = (facts.order()?, facts.store(states)?);
        let site = facts.input.site;
        let fill = site.choose(fill(facts), |value| match value {
            SlotFill::CACHE => Err("a table of the cache's size is one of groups".into()),
            _ => Ok(()),
        })?;
        let fill = Fill::of(fill);
        let function = site.choose((HashFunction::Murmur3, HASH_RULE), |_| Ok(()))?;
        let keys = store.columns().get(..facts.keys.len()).unwrap_or_default();
        let texts = match facts.input.shape.is_serial() {
            true => KeyTextLanes::Lane,
            false => shared_keys::choose(keys, site)?,
        };
        let table = OpenTable::plan(&store, (fill, function, texts), states);
        let rows = match order {
            None => KeyRows::One,
            Some(IndexRows::Chains) => KeyRows::Chained(states.state("next", 4, store.class)),
            Some(IndexRows::Buckets) => KeyRows::Buckets(Buckets::plan(table.class, &store, true, states)),
        };
        Ok(BuildSide { store, path: Box::new(HashIndex { table }), rows })
    }
}

/// How many slots of the table may be taken. On an H200, with all joins of TPC-H and SSB by hash tables, a quarter takes 0.89 and 0.83 of the
/// time of a half, but 1.05 where a table is then larger than the cache (TPC-H 9).
fn fill(facts: &JoinFacts<'_>) -> (SlotFill, &'static str) {
    let bytes = facts.input.build.rows.bound.saturating_mul(NUMBER_BYTES).saturating_mul(4);
    match !facts.input.shape.is_serial() && bytes <= facts.cache().value / 2 {
        true => (SlotFill(25), "most searches end at their first slot, and the table stays in the cache"),
        false => (SlotFill(50), "short searches, in twice the slots"),
    }
}

impl HashIndex {
    /// What becomes of a row whose keys another has put in.
    pub(in crate::operator::join) fn known(index: &Index) -> Known {
        match (index.rows, index.not_unique) {
            (KeyRows::Chained(next), _) => Known::Chain(next),
            (KeyRows::One, Some(state)) => Known::Report(state),
            (KeyRows::One | KeyRows::Buckets(_) | KeyRows::All | KeyRows::Sorted(_), _) => Known::LeaveOut,
        }
    }
}

impl AccessPath for HashIndex {
    fn name(&self, rows: &str) -> String {
        format!("hash{rows}")
    }

    fn zeroed(&self) -> Vec<usize> {
        let bloom = self.table.bloom().map(|bloom| bloom.words);
        [self.table.words()].into_iter().chain(bloom).collect()
    }

    fn sized(&self) -> Vec<usize> {
        let bloom = self.table.bloom().map(|bloom| bloom.class);
        [self.table.class].into_iter().chain(bloom).collect()
    }

    fn hash(&self) -> Option<&HashIndex> {
        Some(self)
    }

    fn hash_mut(&mut self) -> Option<&mut HashIndex> {
        Some(self)
    }

    fn insert(&self, cx: &mut Context<'_>, keys: Keys<'_>, place: V) -> Result<(), Unsupported> {
        let slot =
            self.table.claim(cx, &keys.index.store, keys.pair(), place, HashIndex::known(keys.index))?;
        if let KeyRows::Buckets(buckets) = keys.index.rows {
            let slot = cx.builder.read(slot);
            buckets.count(cx, slot, place);
        }
        Ok(())
    }

    fn search(&self, cx: &mut Context<'_>, keys: Keys<'_>, cursor: Var) -> Result<(), Unsupported> {
        let place = |cx: &mut Context<'_>, number| keys.index.rows.place(cx, number);
        self.table.find(cx, keys.index.matches(), keys.pair(), cursor, place)?;
        Ok(())
    }

    fn positions(&self, cx: &mut Context<'_>, keys: Keys<'_>, to: Positions) -> Result<(), Unsupported> {
        let zero = cx.builder.u32(0);
        let hit = cx.builder.var_of("cursor", zero);
        let place = |cx: &mut Context<'_>, number| keys.index.rows.place(cx, number);
        let slot = self.table.find(cx, keys.index.matches(), keys.pair(), hit, place)?;
        keys.index.positions_of(cx, Found { slot, hit }, to)
    }

    fn bytes_searched(&self, rows: u64, key_bytes: u64) -> u64 {
        let slots = rows.saturating_mul(2).checked_next_power_of_two().unwrap_or(u64::MAX);
        slots.saturating_mul(NUMBER_BYTES).saturating_add(rows.saturating_mul(key_bytes))
    }
}
