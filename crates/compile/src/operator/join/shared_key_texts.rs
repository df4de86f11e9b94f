//! Searches and insertions of a join's keys, where the lanes of a warp look at the texts of keys together.

use kelpie_kir::builder::V;

use super::JoinOperator;
use super::index::Index;
use super::key_codes::KeyEncoding;
use super::methods::HashIndex;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::ExprKind;
use crate::operator::key_texts::{KeySearch, KeyTexts};
use crate::table::key_rows::KeyRows;
use crate::table::shared_keys::{Found, SharedKeys, Together};
use crate::types::DataType;
use crate::variant::axes::KeyTextLanes;

impl JoinOperator {
    /// The columns of the probe side whose texts are looked at as keys, where lanes are to do it together. Texts that are computed are not
    /// shared: they are in a thread's own memory.
    pub(super) fn shared_key_texts(&self) -> Option<Vec<usize>> {
        if self.index.text_lanes() == KeyTextLanes::Lane {
            return None;
        }
        let keys = self.probe_keys.iter().enumerate();
        let texts = keys.filter(|(number, key)| {
            key.data_type == DataType::Utf8 && self.index.encodings.get(*number) == Some(&KeyEncoding::Value)
        });
        texts
            .map(|(_, key)| match key.kind {
                ExprKind::Column(index) => Some(index),
                _ => None,
            })
            .collect()
    }
}

impl KeySearch for JoinOperator {
    fn keys(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        self.keys_of_probe(cx, &[])
    }

    fn find(
        &self,
        cx: &mut Context<'_>,
        (keys, live): (&[Lowered], V),
        (_, mark): (V, u32),
    ) -> Result<Found, Unsupported> {
        let texts = KeyTexts { mark };
        self.index.find_together(cx, keys, live, &texts)
    }
}

impl Index {
    /// Who looks at the texts of keys that are searched for.
    pub(super) fn text_lanes(&self) -> KeyTextLanes {
        self.path.hash().map_or(KeyTextLanes::Lane, |hash| hash.table.text_lanes())
    }

    /// As [`Index::search`], for each lane that is `live` (`bool`) at uniform control flow of the warp.
    fn find_together(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        live: V,
        together: &dyn Together,
    ) -> Result<Found, Unsupported> {
        let table = self.hash()?.table;
        let live = self.no_nulls(cx, keys).map_or(live, |valid| cx.builder.and(live, valid));
        let columns = self.matches().columns().get(..keys.len()).unwrap_or_default();
        let place = |cx: &mut Context<'_>, number| self.rows.place(cx, number);
        table.find_together(cx, (SharedKeys { columns, keys }, &self.wide), live, place, together)
    }

    /// Puts in the row at a place (`i64`) of each lane that is `live` (`bool`), at uniform control flow of the warp. Rows are counted into
    /// buckets by [`Index::count`].
    pub(super) fn insert_together(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        (live, place): (V, V),
        together: &dyn Together,
    ) -> Result<Found, Unsupported> {
        let hash = self.hash()?;
        let is_indexed = self.is_indexed(cx, keys)?;
        let live = is_indexed.map_or(live, |is_indexed| cx.builder.and(live, is_indexed));
        let columns = self.store.columns().get(..keys.len()).unwrap_or_default();
        let row = (place, HashIndex::known(self));
        hash.table.claim_together(cx, (SharedKeys { columns, keys }, &self.wide), (live, row), together)
    }

    /// Counts the row at `place` (`i64`) into its bucket, where there are buckets and it has been put in.
    pub(super) fn count(&self, cx: &mut Context<'_>, place: V, found: Found) {
        let KeyRows::Buckets(buckets) = self.rows else { return };
        let is_in = cx.builder.read(found.hit);
        cx.begin_if(is_in);
        let slot = cx.builder.read(found.slot);
        buckets.count(cx, slot, place);
        cx.end();
    }
}
