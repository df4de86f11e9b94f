//! The look-ups of a join that a CPU's worker does for a batch of rows, before the rows go on one by one (group prefetching: Chen et al.,
//! "Improving hash join performance through prefetching", 2004): a loop of a few instructions a row has the loads of many rows in flight,
//! where all that happens to a row, one row after the other, has those of two or three.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::index::{Index, Search};
use super::{JoinOperator, makes_pairs};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::operator::roles::{BatchLookUps, BegunSearch, Next};
use crate::table::key_rows::KeyRows;
use crate::table::probing::Begun;

impl BatchLookUps for JoinOperator {
    fn why_not(&self) -> Option<&'static str> {
        match self.index.rows {
            KeyRows::All => Some("every row of a build side is tried"),
            KeyRows::Sorted(_) => Some("a search gives a range of rows"),
            KeyRows::One | KeyRows::Chained(_) | KeyRows::Buckets(_) => None,
        }
    }

    /// Rows whose keys are slots go on after one look, and come in the order of their keys as often as not. Those that come in parts find a
    /// cache's part of the table.
    fn far_bytes(&self) -> u64 {
        let is_far = self.index.path.hash().is_some_and(|hash| !hash.table.has_parts());
        match self.build_rows.expected.filter(|_| is_far) {
            Some(rows) => self.bytes_searched(rows),
            None => 0,
        }
    }

    fn has_begun_searches(&self) -> bool {
        self.index.path.hash().is_some()
    }

    fn keys(&self) -> &[Expr] {
        &self.probe_keys
    }

    fn begin(&self, cx: &mut Context<'_>) -> Result<BegunSearch, Unsupported> {
        let keys = self.keys_of_probe(cx, &[])?;
        let (begun, seen) = self.index.begin_search(cx, &keys)?;
        Ok(BegunSearch { begun, seen, keys })
    }

    fn find(
        &self,
        cx: &mut Context<'_>,
        begun: Option<(Begun, Vec<(usize, Lowered)>)>,
    ) -> Result<V, Unsupported> {
        let search = match begun {
            Some((begun, known)) => {
                let keys = self.keys_of_probe(cx, &known)?;
                self.index.end_search(cx, &keys, begun)?
            }
            None => {
                let keys = self.keys_of_probe(cx, &[])?;
                self.index.search(cx, &keys)?
            }
        };
        Ok(cx.builder.read(search.cursor))
    }

    fn look_at(&self, cx: &mut Context<'_>, number: V, columns: &BTreeSet<usize>) -> Vec<V> {
        // A search for existence gives no place.
        if !makes_pairs(self.kind) {
            return Vec::new();
        }
        let wanted: BTreeSet<usize> =
            columns.iter().filter_map(|column| self.places.get(*column).copied()).collect();
        // Keys that were compared were looked at.
        let keys = if self.has_begun_searches() { self.probe_keys.len() } else { 0 };
        let mut seen = Vec::new();
        let mut place = None;
        for (_, column) in self
            .index
            .matches()
            .columns()
            .iter()
            .enumerate()
            .filter(|(index, _)| *index >= keys && wanted.contains(index))
        {
            let place = *place.get_or_insert_with(|| self.index.first_place(cx, number));
            seen.extend(column.look_at(cx, place));
        }
        seen
    }

    fn go_on_with(&self, cx: &mut Context<'_>, number: V, next: &mut Next<'_>) -> Result<(), Unsupported> {
        let search = Search::at(cx.builder.var_of("cursor", number));
        self.matches_of(cx, search, next)
    }
}

impl Index {
    /// Begins the search for keys; and what is in the first slot (`u32`), which is 0 where a NULL finds nothing.
    fn begin_search(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<(Begun, V), Unsupported> {
        let table = self.hash()?.table;
        let zero = cx.builder.u32(0);
        let Some(valid) = self.no_nulls(cx, keys) else { return Ok(table.begin(cx, keys, &self.wide)) };
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
    fn end_search(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        begun: Begun,
    ) -> Result<Search, Unsupported> {
        let table = self.hash()?.table;
        let zero = cx.builder.u32(0);
        let cursor = cx.builder.var_of("cursor", zero);
        self.if_possible(cx, keys, |cx, keys| {
            let place = |cx: &mut Context<'_>, number| self.rows.place(cx, number);
            table.find_from(cx, self.matches(), (keys.values, begun), cursor, place)
        })?;
        Ok(Search::at(cursor))
    }

    /// The place (`i64`) of the first row that a search has found; 0, where a store always has a place, where it has found none.
    fn first_place(&self, cx: &mut Context<'_>, number: V) -> V {
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let found = b.ne(number, zero);
        let number = b.select(found, number, one);
        let place = self.rows.place(cx, number);
        // Where there are no rows, what a bucket has is no place.
        let none = cx.builder.i64(0);
        cx.builder.select(found, place, none)
    }
}
