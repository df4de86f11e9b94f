//! A join in pipelines: the build side into a store, the store into an index, and the probe side.

use std::sync::Arc;

use super::Cut;
use super::build_side::{Changed, changed, may_fail};
use super::dependence::{Dependences, Side};
use super::join_parts::{Downstream, SideParts};
use super::key_extremes::asks_build_side;
use super::open::{Open, OpenRows};
use super::properties::RowProperties;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::operator::join::{
    Entries, IndexedKeys, IndexedRows, JoinInput, JoinOperator, JoinSide, KeptRows, MapEntries, MarkMatches,
    NoteOrder, PartsOfSide, Probe, SideRows, Sides, StoredRows, UniqueAssumption,
};
use crate::operator::project::Project;
use crate::operator::sort::{SortRows, SortedRows};
use crate::plan::{Join, JoinKind};
use crate::program::Purpose;
use crate::types::Literal;
use crate::variant::Site;
use crate::variant::axes::BuiltSide;

/// A join where it is planned.
#[derive(Clone, Copy)]
pub(super) struct JoinSite<'a> {
    pub(super) join: &'a Join,
    /// Its number among all joins.
    pub(super) ordinal: usize,
    /// The number by which it is known whether build keys are unique.
    pub(super) assumption: usize,
    pub(super) site: Site<'a>,
    /// What the probe side's rows come to further on.
    pub(super) downstream: Downstream,
}

struct PlannedJoin {
    operator: Arc<JoinOperator>,
    parts: SideParts,
    /// The build side leaves out rows at the probe side's scans.
    prunes: bool,
}

/// What is known of a side of a join.
fn side_of(rows: &OpenRows) -> JoinSide<'_> {
    let OpenRows { branches, columns, .. } = rows;
    let rows = SideRows {
        bound: rows.bound(),
        is_exact: branches.len() == 1 && branches.iter().all(Open::has_every_row),
        expected: branches.iter().all(Open::is_table).then(|| rows.expected()),
    };
    JoinSide { columns, rows }
}

impl Cut<'_> {
    /// Ends the build side in the pipelines that the join's method needs.
    fn close_build_side(&mut self, build: OpenRows, operator: &Arc<JoinOperator>) {
        let bound = build.bound();
        let stored = || Open::new(StoredRows(Arc::clone(operator)), bound);
        let mut passes = operator.build_passes().into_iter();
        if let Some(first) = passes.next() {
            self.close(build.branches, first);
        }
        if let Some(second) = passes.next() {
            self.close(vec![stored()], second);
        }
        if let Some(sort) = operator.build_sort() {
            let mut rows = Open::new(IndexedRows(Arc::clone(operator)), bound);
            rows.steps.push(Arc::new(IndexedKeys(Arc::clone(operator))));
            self.close(vec![rows], Arc::new(SortRows(Arc::clone(sort))));
            let ordered = Open::new(SortedRows(Arc::clone(sort)), bound);
            let ordered = Open { sorted: Some(sort.sorting(None)), ..ordered };
            self.close(vec![ordered], Arc::new(NoteOrder(Arc::clone(operator))));
        }
        let group = self.next_group.saturating_sub(1);
        passes.for_each(|pass| self.end(stored(), pass, (group, false), Vec::new()));
    }

    /// Maps the codes of the probe side's texts to those of the build side's, where keys are told by codes.
    fn map_codes(&mut self, operator: &JoinOperator) {
        for map in operator.code_maps() {
            let mut open = Open::new(Entries(map.clone()), map.count());
            if operator.needs_build_rows() {
                open.skip_if_empty(operator.row_count());
            }
            self.close(vec![open], Arc::new(MapEntries(map.clone())));
        }
    }

    fn plan_join(
        &mut self,
        at: &JoinSite<'_>,
        build: &OpenRows,
        probe: &OpenRows,
    ) -> Result<PlannedJoin, Unsupported> {
        let is_made = JoinOperator::wants_unique(at.join) && !self.duplicates.contains(&at.assumption);
        let input = JoinInput {
            join: at.join,
            assumption: UniqueAssumption { number: at.assumption, is_made },
            build: side_of(build),
            probe: side_of(probe),
            layout: self.layout(),
            shape: self.shape,
            choices: self.choices,
            site: at.site,
        };
        let operator = JoinOperator::plan(&input, self.states.of(Purpose::Table))?;
        // Most rows that a filtered build side has no match for are left out before.
        let (filtered, share) = build.narrowed();
        let left = if filtered { share } else { 1.0 };
        let sides = Sides {
            probe_rows: (probe.expected() as f64 * left) as u64,
            build_rows: input.build.rows.expected,
            are_scattered: operator.looks_up_scattered(&probe.columns),
        };
        let parts = self.join_parts(at, &operator, (build, probe), &sides)?;
        let operator = if parts.probe > 1 { operator.in_parts() } else { operator };
        let (operator, prunes) = self.filter_keys(operator, at.site, build, probe)?;
        Ok(PlannedJoin { operator: Arc::new(operator), parts, prunes })
    }

    pub(super) fn join(&mut self, join: &Join) -> Result<OpenRows, Unsupported> {
        let ordinal = self.next_join;
        self.next_join += 1;
        let downstream = self.downstream;
        let first = self.done.len();
        let name = format!("join{ordinal}");
        let site = Site { chooser: self.chooser, name: &name };
        let at = JoinSite { join, ordinal, assumption: ordinal, site, downstream };
        let mut extremes = None;
        let mut build = self.open_before(&join.build, Downstream::default())?;
        if asks_build_side(join.kind) {
            (extremes, build) = self.by_extremes(&at, build, None)?;
        }
        let before_probe = self.done.len();
        let mut probe = self.open_before(&join.probe, downstream.and(join.kind, build.expected()))?;
        let mut side = None;
        if !asks_build_side(join.kind) {
            (extremes, probe) = self.by_extremes(&at, probe, Some(build.expected()))?;
            let turns = extremes.is_some() && self.why_not_other(&at, &build, &probe).is_none();
            side = turns.then_some(BuiltSide::Other);
        }
        let join = extremes.as_ref().unwrap_or(join);
        let at = JoinSite { join, ..at };
        let is_safe = is_safe(join, &build, &probe);
        let side = side.map_or_else(|| self.built_side(&at, &build, &probe), Ok)?;
        let mut rows = match side {
            BuiltSide::Written => self.joined(&at, build, probe, before_probe)?,
            BuiltSide::Other => {
                let Changed { join: changed, places } =
                    changed(join, build.columns.len(), probe.columns.len());
                let of_probe = self.done.len() - before_probe;
                self.done[first..].rotate_right(of_probe);
                // The other side's keys may be there twice though this side's are not.
                let assumption = self.uses.len() + ordinal;
                let at = JoinSite { join: &changed, assumption, ..at };
                let mut rows = self.joined(&at, probe, build, first + of_probe)?;
                let of = |place: usize| rows.columns.get(place).map(|info| (place, info));
                let columns = places.into_iter().filter_map(of);
                let columns =
                    columns.map(|(place, info)| Expr::column(place, info.data_type.clone(), info.nullable));
                rows.project(columns.collect());
                rows
            }
        };
        rows.properties.is_safe = is_safe;
        Ok(rows)
    }

    /// Joins rows. The pipelines before those of the probe side are finished; `before_probe`: the first of the probe side's.
    pub(super) fn joined(
        &mut self,
        at: &JoinSite<'_>,
        mut build: OpenRows,
        mut probe: OpenRows,
        before_probe: usize,
    ) -> Result<OpenRows, Unsupported> {
        let (join, after_probe) = (at.join, self.done.len());
        let build_bound = build.bound();
        let PlannedJoin { operator, parts, prunes } = self.plan_join(at, &build, &probe)?;
        let build_fields = build.columns.len();
        let properties = properties_of((join, &operator), &build, &probe);
        let narrowed = build.narrowed();
        let by = Arc::new(PartsOfSide { join: Arc::clone(&operator), is_build: true });
        self.come_in_parts(&mut build, &operator, parts.build, by)?;
        self.close_build_side(build, &operator);
        // The build side goes first: where it is empty, nothing of the probe side may run.
        self.done[before_probe..].rotate_left(after_probe - before_probe);
        if operator.needs_build_rows() {
            let rows = operator.row_count();
            let built = self.done.len() - after_probe;
            let inside = self.done[before_probe + built..].iter_mut().map(|pipeline| &mut pipeline.skips);
            inside.for_each(|skips| skips.push(rows));
            probe.branches.iter_mut().for_each(|open| open.skip_if_empty(rows));
        }
        self.map_codes(&operator);
        let kept = Open::new(KeptRows(Arc::clone(&operator)), build_bound);
        if prunes {
            let in_parts = parts.probe > 1;
            probe.branches.iter_mut().for_each(|open| open.filter_early(&operator, narrowed, in_parts));
        }
        let by = Arc::new(PartsOfSide { join: Arc::clone(&operator), is_build: false });
        self.come_in_parts(&mut probe, &operator, parts.probe, by)?;
        if let JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark = join.kind {
            self.close(probe.branches, Arc::new(MarkMatches(Arc::clone(&operator))));
            let rows = OpenRows::new(vec![kept], operator.columns.clone());
            return Ok(OpenRows { properties, ..rows });
        }
        let expansion = operator.most_matches();
        for open in &mut probe.branches {
            open.steps.push(Arc::new(Probe(Arc::clone(&operator))));
            open.bound = open.bound.saturating_mul(expansion);
            // What a thread sees is no longer a share of a table's rows.
            open.shared_out = open.shared_out.filter(|_| expansion == 1);
        }
        let rows = OpenRows::new(probe.branches, operator.columns.clone());
        let mut rows = self.end_operator(OpenRows { properties, ..rows })?;
        if let JoinKind::BuildOuter | JoinKind::FullOuter = join.kind {
            let nulls = join.probe.fields().into_iter().map(|field| Expr {
                kind: ExprKind::Literal(Literal::Null),
                data_type: field.data_type,
                nullable: true,
            });
            let own = operator.columns[..build_fields].iter().enumerate();
            let own = own.map(|(index, info)| Expr::column(index, info.data_type.clone(), info.nullable));
            let exprs = own.chain(nulls).collect();
            rows.branches.push(Open { steps: vec![Arc::new(Project(exprs))], ..kept });
        }
        Ok(rows)
    }
}

/// Whether nothing that a join's rows are computed by may be an error.
fn is_safe(join: &Join, build: &OpenRows, probe: &OpenRows) -> bool {
    let fails = |expr: &Expr, rows: &OpenRows| may_fail(expr, &rows.columns);
    let may_condition_fail = |condition: &Expr| {
        let columns: Vec<_> = build.columns.iter().chain(&probe.columns).cloned().collect();
        may_fail(condition, &columns)
    };
    build.properties.is_safe
        && probe.properties.is_safe
        && !join.keys.iter().any(|(own, other)| fails(own, build) || fails(other, probe))
        && !join.residual.as_ref().is_some_and(may_condition_fail)
}

/// What holds of a join's rows as a whole.
fn properties_of(
    (join, operator): (&Join, &JoinOperator),
    build: &OpenRows,
    probe: &OpenRows,
) -> RowProperties {
    fn side(rows: &OpenRows) -> Side<'_> {
        Side { known: &rows.properties.dependences, columns: &rows.columns }
    }
    let is_unique = operator.index().is_unique();
    let dependences = Dependences::of_join(join, side(build), side(probe), is_unique);
    let form = (build.columns.len(), is_unique);
    let properties = RowProperties::of_join(join, &build.properties, &probe.properties, form);
    RowProperties { dependences, ..properties }
}
