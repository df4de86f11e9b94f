//! The matches of a row as a range of the index's positions, which the lanes of a warp share (DogQC, section 3.2).

use std::collections::BTreeSet;

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::JoinOperator;
use super::index::Index;
use crate::context::{Context, Unsupported};
use crate::expr::columns_read;
use crate::operator::Flow;
use crate::operator::roles::{Expansion, Next};
use crate::plan::JoinKind;
use crate::table::key_rows::{KeyRows, Positions, entry_at};
use crate::table::shared_keys::Found;

/// The position that stands for no row at all: buckets have less than 2³¹.
const NONE: u32 = u32::MAX;

impl Index {
    /// Whether the rows of a key stand at positions one after the other; or why not.
    fn has_positions(&self) -> Result<(), String> {
        match self.rows {
            KeyRows::Buckets(_) | KeyRows::Sorted(_) => Ok(()),
            KeyRows::All if self.store.is_dense() => Ok(()),
            KeyRows::All => Err("rows are stored with holes".into()),
            KeyRows::One | KeyRows::Chained(_) => Err("the rows of a key stand in no bucket".into()),
        }
    }

    /// As [`AccessPath::positions`](super::method::AccessPath::positions), of a search in the hash table that has ended.
    pub(super) fn positions_of(
        &self,
        cx: &mut Context<'_>,
        found: Found,
        positions: Positions,
    ) -> Result<(), Unsupported> {
        let buckets = self.buckets()?;
        let (number, zero) = (cx.builder.read(found.hit), cx.builder.u32(0));
        let is_found = cx.builder.ne(number, zero);
        cx.begin_if(is_found);
        let slot = cx.builder.read(found.slot);
        positions.set(cx, buckets, slot);
        cx.end();
        Ok(())
    }

    /// The place (`i64`) of the row at a position (`u32`).
    fn place_at_position(&self, cx: &mut Context<'_>, position: V) -> V {
        match self.rows {
            KeyRows::Buckets(buckets) => buckets.place_of_position(cx, position),
            KeyRows::Sorted(entries) => entry_at(cx, entries, position),
            KeyRows::All | KeyRows::One | KeyRows::Chained(_) => cx.builder.convert(position, Scalar::I64),
        }
    }
}

impl JoinOperator {
    /// Whether other lanes can take its pairs; or why not.
    pub(super) fn can_share_matches(&self) -> Result<(), String> {
        use JoinKind::*;
        match self.kind {
            Inner | BuildOuter => {}
            ProbeOuter | FullOuter if self.residual.is_none() => {}
            ProbeOuter | FullOuter => {
                return Err("which rows have no match is known after all candidates".into());
            }
            ProbeSemi | ProbeAnti | ProbeMark if self.residual.is_some() => {}
            _ => return Err("the first candidate is a match".into()),
        }
        self.index.has_positions()
    }

    /// Whether a row without a match goes on.
    fn keeps_unmatched(&self) -> bool {
        matches!(self.kind, JoinKind::ProbeOuter | JoinKind::FullOuter)
    }

    /// Of a row that goes on without a match: a range of one position, that of no row.
    fn range_without_match(&self, cx: &mut Context<'_>, range: Positions) {
        if self.keeps_unmatched() {
            let b = &mut *cx.builder;
            let (zero, one, none) = (b.u32(0), b.u32(1), b.u32(NONE));
            let count = b.read(range.count);
            let is_alone = b.eq(count, zero);
            cx.begin_if(is_alone);
            cx.builder.assign(range.begin, none);
            cx.builder.assign(range.count, one);
            cx.end();
        }
    }
}

impl Expansion for JoinOperator {
    fn range(&self, cx: &mut Context<'_>, range: Positions) -> Result<(), Unsupported> {
        let keys = self.keys_of_probe(cx, &[])?;
        self.index.if_possible(cx, &keys, |cx, keys| self.index.path.positions(cx, keys, range))?;
        self.range_without_match(cx, range);
        Ok(())
    }

    fn range_of(&self, cx: &mut Context<'_>, found: Found, range: Positions) -> Result<(), Unsupported> {
        self.index.positions_of(cx, found, range)?;
        self.range_without_match(cx, range);
        Ok(())
    }

    fn most(&self) -> u64 {
        self.build_rows.bound
    }

    fn is_even(&self) -> bool {
        self.index.tries_all()
    }

    fn needed(&self, behind: &BTreeSet<usize>) -> BTreeSet<usize> {
        let residual: BTreeSet<usize> = self.residual.iter().flat_map(columns_read).collect();
        let none = BTreeSet::new();
        let behind = if self.only_decides() { &none } else { behind };
        behind.union(&residual).filter_map(|column| column.checked_sub(self.places.len())).collect()
    }

    fn item(&self, cx: &mut Context<'_>, number: V, next: &mut Next<'_>) -> Result<(), Unsupported> {
        if self.keeps_unmatched() {
            let (none, first) = (cx.builder.u32(NONE), cx.builder.i64(0));
            let found = cx.builder.ne(number, none);
            let place = cx.builder.var_of("match", first);
            cx.begin_if(found);
            let own = self.index.place_at_position(cx, number);
            cx.builder.assign(place, own);
            self.mark(cx, own);
            cx.end();
            let place = cx.builder.read(place);
            cx.push_joined(self.pair(place, Some(found)));
            next(cx, Flow::Branch)?;
            cx.pop_layer();
            return Ok(());
        }
        let place = self.index.place_at_position(cx, number);
        let opened = self.begin_match(cx, place)?;
        self.mark(cx, place);
        next(cx, Flow::Branch)?;
        self.end_match(cx, opened);
        Ok(())
    }

    fn only_decides(&self) -> bool {
        matches!(self.kind, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark)
    }

    fn kept(&self, behind: &BTreeSet<usize>) -> BTreeSet<usize> {
        behind.iter().filter_map(|column| self.probe_column(*column)).collect()
    }

    fn decided(
        &self,
        cx: &mut Context<'_>,
        (_range, found): (Positions, V),
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        self.go_on_if(cx, found, next)
    }
}
