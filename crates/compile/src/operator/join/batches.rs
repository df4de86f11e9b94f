//! The look-ups of a join that a CPU's worker does for a batch of rows, before the rows go on one by one (group prefetching: Chen et al.,
//! "Improving hash join performance through prefetching", 2004): a loop of a few instructions a row has the loads of many rows in flight,
//! where all that happens to a row, one row after the other, has those of two or three.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::operator::roles::{BatchLookUps, BegunSearch, Next};
use crate::plan::JoinKind;
use crate::table::index::{Begun, Search};

impl BatchLookUps for JoinOperator {
    fn why_not(&self) -> Option<&'static str> {
        self.index.lacks_batches()
    }

    /// Rows whose keys are slots go on after one look, and come in the order of their keys as often as not. Those that come in parts find a
    /// cache's part of the table.
    fn far_bytes(&self) -> u64 {
        match self.build_rows.filter(|_| self.index.is_hashed() && !self.index.is_in_parts()) {
            Some(rows) => self.bytes_searched(rows),
            None => 0,
        }
    }

    fn has_begun_searches(&self) -> bool {
        self.index.has_begun_searches()
    }

    fn keys(&self) -> &[Expr] {
        &self.probe_keys
    }

    fn begin(&self, cx: &mut Context<'_>) -> Result<BegunSearch, Unsupported> {
        let keys = self.keys_of_probe(cx)?;
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
                let keys = self.keys_beside(cx, &known)?;
                self.index.end_search(cx, self.matches(), (&keys, begun))?
            }
            None => {
                let keys = self.keys_of_probe(cx)?;
                self.index.search(cx, self.matches(), &keys)?
            }
        };
        Ok(cx.builder.read(search.cursor))
    }

    fn look_at(&self, cx: &mut Context<'_>, number: V, columns: &BTreeSet<usize>) -> Vec<V> {
        use JoinKind::*;
        // A search for existence gives no place.
        if !matches!(self.kind, Inner | BuildOuter | ProbeOuter | FullOuter) {
            return Vec::new();
        }
        let wanted: BTreeSet<usize> =
            columns.iter().filter_map(|column| self.places.get(*column).copied()).collect();
        // Keys that were compared were looked at.
        let keys = if self.index.reads_keys() { self.probe_keys.len() } else { 0 };
        let mut seen = Vec::new();
        let mut place = None;
        for (_, column) in self
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
        let search = Search { cursor: cx.builder.var_of("cursor", number) };
        self.matches_of(cx, search, next)
    }
}
