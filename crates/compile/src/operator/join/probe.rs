//! The probe side of a join: a step of its pipeline.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Scope, Type};

use super::index::Search;
use super::{JoinOperator, boolean, makes_pairs};
use crate::context::{Argument, Context, Leaving, Lowered, Unsupported};
use crate::expr::columns_read;
use crate::layout::ColumnInfo;
use crate::lower::{lower, lower_condition};
use crate::operator::Flow;
use crate::operator::key_texts::KeySearch;
use crate::operator::roles::{BatchLookUps, Expansion, Next, Step};
use crate::plan::JoinKind;
use crate::table::joined::Joined;
use crate::table::set_bits;
use crate::table::shared_keys::Found;

/// The probe side of a join, as a step.
#[derive(Debug)]
pub(crate) struct Probe(pub Arc<JoinOperator>);

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "join {}", self.0)
    }
}

impl Step for Probe {
    /// A live row becomes no, one or several rows.
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        _speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let join = &self.0;
        let Flow::Branch = flow else {
            return Err(Unsupported::internal("a join under a flag"));
        };
        let keys = join.keys_of_probe(cx, &[])?;
        let search = join.index.search(cx, &keys)?;
        join.matches_of(cx, search, next)
    }

    fn shared_texts(&self) -> Option<Vec<usize>> {
        self.0.shared_key_texts()
    }

    fn key_search(&self) -> Option<&dyn KeySearch> {
        Some(&*self.0)
    }

    fn consume_found(
        &self,
        cx: &mut Context<'_>,
        found: Found,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        self.0.matches_of(cx, Search::at(found.hit), next)
    }

    fn columns(&self, _below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        Some(self.0.columns.clone())
    }

    fn below(&self, column: usize) -> Option<usize> {
        self.0.probe_column(column)
    }

    fn keeps_unmatched(&self) -> bool {
        matches!(self.0.kind, JoinKind::BuildOuter | JoinKind::FullOuter)
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let join = &self.0;
        let mut below: BTreeSet<usize> =
            columns.iter().filter_map(|column| join.probe_column(*column)).collect();
        if makes_pairs(join.kind) {
            join.read_build(columns, states);
        }
        below.extend(join.read_keys(states));
        below
    }

    fn diverges(&self) -> bool {
        true
    }

    fn batch_look_ups(&self) -> Option<&dyn BatchLookUps> {
        Some(&*self.0)
    }

    fn drops(&self) -> bool {
        use JoinKind::*;
        matches!(self.0.kind, Inner | BuildOuter | ProbeSemi | ProbeAnti)
    }

    fn expands(&self) -> bool {
        self.0.expands()
    }

    fn expansion(&self) -> Result<&dyn Expansion, String> {
        self.0.can_share_matches()?;
        Ok(&*self.0)
    }
}

impl JoinOperator {
    /// The row becomes what a search for its keys finds.
    pub(super) fn matches_of(
        &self,
        cx: &mut Context<'_>,
        search: Search,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        use JoinKind::*;
        match self.kind {
            ProbeSemi | ProbeAnti | ProbeMark => {
                let (found, _) = self.first_match(cx, search)?;
                self.go_on_if(cx, found, next)
            }
            Inner | BuildOuter | ProbeOuter | FullOuter if self.index.unique => {
                self.only_match(cx, search, next)
            }
            Inner | BuildOuter => self.every_match(cx, search, next),
            ProbeOuter | FullOuter => self.every_match_or_none(cx, search, next),
            BuildSemi | BuildAnti | BuildMark => {
                Err(Unsupported::internal("the build side's rows inside a pipeline"))
            }
        }
    }

    /// What a search reads: adds the states; the columns of the probe side.
    pub(super) fn read_keys(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let values = self.index.path.values_read();
        let mut below: BTreeSet<usize> =
            self.probe_keys.iter().chain(values).flat_map(columns_read).collect();
        if self.index.path.hash().is_some() {
            self.index.matches().read(&(0..self.probe_keys.len()).collect(), states);
        }
        let residual: BTreeSet<usize> = self.residual.iter().flat_map(columns_read).collect();
        self.read_build(&residual, states);
        below.extend(residual.iter().filter_map(|column| column.checked_sub(self.places.len())));
        below
    }

    /// Adds the states of those of the `columns` that are the build side's.
    pub(super) fn read_build(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let stored = columns.iter().filter_map(|column| self.places.get(*column).copied());
        self.index.matches().read(&stored.collect(), states);
    }

    /// Where the rows with a key are marked all or none, opens `if` there are any that nobody marks yet: who finds the first one
    /// unmarked goes on to the last.
    pub(super) fn begin_if_unmarked(&self, cx: &mut Context<'_>, search: Search) -> usize {
        let (Some(state), None) = (self.matched, &self.residual) else { return 0 };
        let Some(place) = self.index.begin_if_several(cx, search) else { return 0 };
        let flags = cx.argument("matched", Type::global(Scalar::U32), Argument::State(state));
        let pointer = cx.builder.offset(flags, place);
        let flag = cx.builder.atomic_load(pointer, Scope::Device);
        let zero = cx.builder.u32(0);
        let unmarked = cx.builder.eq(flag, zero);
        cx.begin_if(unmarked);
        2
    }

    /// The keys of the current row, of which some are known by their numbers.
    pub(super) fn keys_of_probe(
        &self,
        cx: &mut Context<'_>,
        known: &[(usize, Lowered)],
    ) -> Result<Vec<Lowered>, Unsupported> {
        let lower_key = |(number, key)| {
            if let Some((_, value)) = known.iter().find(|(of, _)| *of == number) {
                return Ok(value.clone());
            }
            if let Some(code) = self.code_of_probe(cx, (number, key))? {
                return Ok(code);
            }
            let value = lower(cx, key)?;
            // What is computed here is looked at before it indexes anything.
            let range = value.range.filter(|_| cx.is_stored(key));
            Ok(Lowered { range, ..value })
        };
        self.probe_keys.iter().enumerate().map(lower_key).collect()
    }

    /// Semi, anti, mark: the row itself, given whether it has a match (`bool`).
    pub(super) fn go_on_if(
        &self,
        cx: &mut Context<'_>,
        found: V,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let passes = match self.kind {
            JoinKind::ProbeSemi => found,
            JoinKind::ProbeAnti => {
                let unmatched = cx.builder.not(found);
                let keys = if self.nulls.is_some() { self.keys_of_probe(cx, &[])? } else { Vec::new() };
                let valid: Vec<V> = keys.iter().filter_map(|key| key.valid).collect();
                self.passes_not_in(cx, &valid, unmatched)
            }
            _ => {
                let below = (0..self.probe_width).map(Joined::Below);
                cx.push_joined(below.chain([Joined::Value(boolean(found))]).collect());
                return next(cx, Flow::Branch);
            }
        };
        cx.begin_if(passes);
        next(cx, Flow::Branch)?;
        cx.end();
        Ok(())
    }

    /// At most one match: no loop around what follows.
    fn only_match(
        &self,
        cx: &mut Context<'_>,
        search: Search,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let (found, place) = self.first_match(cx, search)?;
        if let JoinKind::ProbeOuter | JoinKind::FullOuter = self.kind {
            self.mark_if(cx, found, place);
            cx.push_joined(self.pair(place, Some(found)));
            return next(cx, Flow::Branch);
        }
        cx.begin_if(found);
        self.mark(cx, place);
        cx.push_joined(self.pair(place, None));
        next(cx, Flow::Branch)?;
        cx.end();
        Ok(())
    }

    /// The first match: whether there is one (`bool`), and its place (`i64`, 0 where there is none).
    fn first_match(&self, cx: &mut Context<'_>, search: Search) -> Result<(V, V), Unsupported> {
        if self.residual.is_none()
            && let Some(only) = self.index.only(cx, search)
        {
            return Ok(only);
        }
        self.next_match(cx, search)
    }

    /// Goes on with a search up to the next match: whether there is one (`bool`), and its place (`i64`, else 0).
    fn next_match(&self, cx: &mut Context<'_>, search: Search) -> Result<(V, V), Unsupported> {
        let (no, none) = (cx.builder.bool(false), cx.builder.i64(0));
        let (found, first) = (cx.builder.var_of("found", no), cx.builder.var_of("match", none));
        cx.begin_loop();
        cx.break_if_cancelled(Leaving::Thread);
        let place = self.index.advance(cx, search);
        let opened = self.begin_match(cx, place)?;
        let yes = cx.builder.bool(true);
        cx.builder.assign(found, yes);
        cx.builder.assign(first, place);
        cx.builder.break_loop();
        self.end_match(cx, opened);
        cx.end();
        Ok((cx.builder.read(found), cx.builder.read(first)))
    }

    /// `for` every match: what follows stands in the loop.
    pub(super) fn every_match(
        &self,
        cx: &mut Context<'_>,
        search: Search,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        cx.begin_loop();
        cx.break_if_cancelled(Leaving::Thread);
        let place = self.index.advance(cx, search);
        let opened = self.begin_match(cx, place)?;
        self.mark(cx, place);
        next(cx, Flow::Branch)?;
        for _ in 0..=opened {
            cx.end();
        }
        Ok(())
    }

    /// `for` every match, or once without where there is none.
    fn every_match_or_none(
        &self,
        cx: &mut Context<'_>,
        search: Search,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let no = cx.builder.bool(false);
        let (last, any) = (cx.builder.var_of("last", no), cx.builder.var_of("any", no));
        cx.begin_loop();
        let done = cx.builder.read(last);
        cx.builder.break_if(done);
        let (hit, place) = self.next_match(cx, search)?;
        let miss = cx.builder.not(hit);
        let before = cx.builder.read(any);
        let exhausted = cx.builder.and(miss, before);
        cx.builder.break_if(exhausted);
        cx.builder.assign(last, miss);
        let yes = cx.builder.bool(true);
        cx.builder.assign(any, yes);
        self.mark_if(cx, hit, place);
        cx.push_joined(self.pair(place, Some(hit)));
        next(cx, Flow::Branch)?;
        cx.end();
        Ok(())
    }

    /// Opens the blocks in which the candidate at `place` is a match; the pair is the current row in them.
    pub(super) fn begin_match(&self, cx: &mut Context<'_>, place: V) -> Result<usize, Unsupported> {
        let mut opened = 0;
        if self.index.tries_all()
            && let Some(taken) = self.index.store.is_taken(cx, place)
        {
            cx.begin_if(taken);
            opened += 1;
        }
        cx.push_joined(self.pair(place, None));
        if let Some(residual) = &self.residual {
            let holds = lower_condition(cx, residual)?;
            cx.begin_if(holds);
            opened += 1;
        }
        Ok(opened)
    }

    /// Closes what [`JoinOperator::begin_match`] has opened, and forgets the pair.
    pub(super) fn end_match(&self, cx: &mut Context<'_>, opened: usize) {
        for _ in 0..opened {
            cx.end();
        }
        cx.pop_layer();
    }

    /// The columns of a pair: the build side's at `place`, then the probe side's.
    pub(super) fn pair(&self, place: V, present: Option<V>) -> Vec<Joined> {
        let mut columns = self.build_columns(place, present);
        columns.extend((0..self.probe_width).map(Joined::Below));
        columns
    }

    /// `NOT IN`: notes that the other side has a row, and whether its key is NULL.
    pub(super) fn note_nulls(&self, cx: &mut Context<'_>, keys: &[Lowered]) {
        let Some(state) = self.nulls else { return };
        let (row, null) = (cx.builder.u32(1), cx.builder.u32(3));
        let mut bits = row;
        for valid in keys.iter().filter_map(|key| key.valid) {
            bits = cx.builder.select(valid, bits, null);
        }
        let pointer = cx.argument("other_nulls", Type::global(Scalar::U32), Argument::State(state));
        set_bits(cx, pointer, bits);
    }
}
