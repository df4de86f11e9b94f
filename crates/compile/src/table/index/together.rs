//! Searches of the lanes of a warp that look at texts of keys together.

use kelpie_kir::builder::V;

use super::search::Search;
use super::{Index, KeyEncoding, Kind, SlotRows};
use crate::context::{Context, Lowered, Unsupported};
use crate::table::rows::RowStore;
use crate::table::together::{Found, SharedKeys, Together};
use crate::variant::axes::KeyTextLanes;

impl Index {
    /// Who looks at the texts of keys that are searched for.
    pub(crate) fn text_lanes(&self) -> KeyTextLanes {
        match self.kind {
            Kind::Hashed { table, .. } => table.text_lanes(),
            Kind::All | Kind::Direct { .. } => KeyTextLanes::Lane,
        }
    }

    /// Whether a key is encoded by its value.
    pub(crate) fn is_told_by_value(&self, key: usize) -> bool {
        self.encodings.get(key) == Some(&KeyEncoding::Value)
    }

    /// As [`Index::search`], for each lane that is `live` (`bool`) at uniform control flow of the warp.
    pub(crate) fn find_together(
        &self,
        cx: &mut Context<'_>,
        (store, keys): (&RowStore, &[Lowered]),
        live: V,
        together: &dyn Together,
    ) -> Result<Found, Unsupported> {
        let Kind::Hashed { table, rows } = self.kind else {
            return Err(Unsupported::internal("texts that are slots"));
        };
        let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
        let live = valid.map_or(live, |valid| cx.builder.and(live, valid));
        let columns = store.columns().get(..keys.len()).unwrap_or_default();
        let place = |cx: &mut Context<'_>, number| rows.first_place(cx, number);
        table.find_together(cx, (SharedKeys { columns, keys }, &self.wide), live, place, together)
    }

    /// As [`Index::insert`] for the row at a place (`i64`) of each lane that is `live` (`bool`), at uniform control flow of the warp. Rows are
    /// counted into buckets by [`Index::count`].
    pub(crate) fn insert_together(
        &self,
        cx: &mut Context<'_>,
        (store, keys): (&RowStore, &[Lowered]),
        (live, place): (V, V),
        together: &dyn Together,
    ) -> Result<Found, Unsupported> {
        let Kind::Hashed { table, rows } = self.kind else {
            return Err(Unsupported::internal("texts that are slots"));
        };
        let may_be_found = self.may_be_found(cx, keys)?;
        let live = may_be_found.map_or(live, |found| cx.builder.and(live, found));
        let columns = store.columns().get(..keys.len()).unwrap_or_default();
        let row = (place, self.known(rows));
        table.claim_together(cx, (SharedKeys { columns, keys }, &self.wide), (live, row), together)
    }

    /// Counts the row at `place` (`i64`) into its bucket, where there are buckets and it has been put in.
    pub(crate) fn count(&self, cx: &mut Context<'_>, place: V, found: Found) {
        let Kind::Hashed { rows: SlotRows::Buckets(buckets), .. } = self.kind else { return };
        let is_in = cx.builder.read(found.hit);
        cx.begin_if(is_in);
        let slot = cx.builder.read(found.slot);
        buckets.count(cx, slot, place);
        cx.end();
    }

    /// The search that has found a row's first match.
    pub(crate) fn search_of(&self, found: Found) -> Search {
        Search { cursor: found.hit }
    }
}
