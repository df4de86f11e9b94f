//! Look-ups of batches of rows: what a search finds, and what of it is far away, is loaded for all rows of a batch before the first goes
//! on.

use kelpie_kir::builder::V;

use super::Begun;
use super::search::Search;
use super::{Index, Kind};
use crate::context::{Context, Lowered, Unsupported};
use crate::table::probing::place_of;
use crate::table::rows::RowStore;

impl Index {
    /// What it lacks for rows to be looked up in batches.
    pub(crate) fn lacks_batches(&self) -> Option<&'static str> {
        match self.kind {
            Kind::All => Some("every row of a build side is tried"),
            Kind::Direct { .. } | Kind::Hashed { .. } => None,
        }
    }

    /// Whether rows come to the slots in parts.
    pub(crate) fn is_in_parts(&self) -> bool {
        matches!(self.kind, Kind::Hashed { table, .. } if table.has_parts())
    }

    /// Whether a search looks at a slot before it knows where the keys are that it compares.
    pub(crate) fn has_begun_searches(&self) -> bool {
        matches!(self.kind, Kind::Hashed { .. })
    }

    /// Begins the search for keys; and what is in the first slot (`u32`), which is 0 where a NULL finds nothing.
    pub(crate) fn begin_search(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
    ) -> Result<(Begun, V), Unsupported> {
        let Kind::Hashed { table, .. } = self.kind else {
            return Err(Unsupported::internal("a search that begins where it ends"));
        };
        let zero = cx.builder.u32(0);
        let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
        let Some(valid) = valid else { return Ok(table.begin(cx, keys, &self.wide)) };
        let vars = ["first_slot", "tag", "word"].map(|name| cx.builder.var_of(name, zero));
        cx.begin_if(valid);
        let (begun, word) = table.begin(cx, keys, &self.wide);
        vars.iter()
            .zip([begun.slot, begun.tag, word])
            .for_each(|(var, value)| cx.builder.assign(*var, value));
        cx.end();
        let [slot, tag, word] = vars.map(|var| cx.builder.read(var));
        Ok((Begun { slot, tag }, word))
    }

    /// As [`Index::search`], from where it has begun.
    pub(crate) fn end_search(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, begun): (&[Lowered], Begun),
    ) -> Result<Search, Unsupported> {
        let Kind::Hashed { table, rows } = self.kind else {
            return Err(Unsupported::internal("a search that begins where it ends"));
        };
        let zero = cx.builder.u32(0);
        let cursor = cx.builder.var_of("cursor", zero);
        let valid = if self.null_equal { None } else { self.all_valid(cx, keys) };
        if let Some(valid) = valid {
            cx.begin_if(valid);
        }
        table.find_from(cx, store, (keys, begun), cursor, |cx, number| rows.first_place(cx, number))?;
        if valid.is_some() {
            cx.end();
        }
        Ok(Search { cursor })
    }

    /// The place (`i64`) of the first row that a search has found; 0, where a store always has a place, where it has found none.
    pub(crate) fn first_place(&self, cx: &mut Context<'_>, number: V) -> V {
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let found = b.ne(number, zero);
        let number = b.select(found, number, one);
        let place = match self.buckets() {
            Some(buckets) => buckets.place_at(cx, number),
            None => place_of(cx, number),
        };
        // Where there are no rows, what a bucket has is no place.
        let none = cx.builder.i64(0);
        cx.builder.select(found, place, none)
    }
}
