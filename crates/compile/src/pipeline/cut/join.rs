//! A join in pipelines: the build side into a store, the store into an index, and the probe side.

use std::sync::Arc;

use super::Cut;
use super::build_side::{changed, may_fail};
use super::dependence::{Dependences, Side};
use super::open::{Open, OpenRows};
use super::partition::{Behind, SideParts};
use super::properties::RowProperties;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::operator::join::{
    FillBuckets, IndexRows, JoinOperator, KeptRows, MapEntries, MarkMatches, NumberRows, PlaceBuildSide,
    Probe, Sides, StoreBuildSide, StoredRows,
};
use crate::operator::project::Project;
use crate::plan::{Join, JoinKind};
use crate::program::Purpose;
use crate::table::index::BuildSide;
use crate::types::Literal;
use crate::variant::Site;
use crate::variant::axes::BuiltSide;

impl Cut<'_> {
    /// Ends the build side in its store and index.
    fn close_build_side(&mut self, build: OpenRows, operator: &Arc<JoinOperator>) {
        let bound = build.bound();
        if operator.index().is_placed() {
            return self.close(build.branches, Arc::new(PlaceBuildSide(Arc::clone(operator))));
        }
        self.close(build.branches, Arc::new(StoreBuildSide(Arc::clone(operator))));
        let stored = || Open::new(StoredRows(Arc::clone(operator)), bound);
        if operator.index().is_built() {
            self.close(vec![stored()], Arc::new(IndexRows(Arc::clone(operator))));
        }
        // Rows come to ranks, and into buckets, in the group in which bits are set and rows are counted.
        let group = self.next_group.saturating_sub(1);
        if operator.index().word_ranks().is_some() {
            self.end(stored(), Arc::new(NumberRows(Arc::clone(operator))), (group, false), Vec::new());
        }
        if operator.index().prefix_sum().is_some() {
            self.end(stored(), Arc::new(FillBuckets(Arc::clone(operator))), (group, false), Vec::new());
        }
    }

    /// Maps the codes of the probe side's texts to those of the build side's, where keys are told by codes.
    fn map_codes(&mut self, operator: &JoinOperator) {
        for map in operator.code_maps() {
            let entries = map.entries();
            let count = entries.count();
            let mut open = Open::new(entries, count);
            if operator.needs_build_rows() {
                open.skip_if_empty(operator.store().row_count());
            }
            self.close(vec![open], Arc::new(MapEntries(map.clone())));
        }
    }

    /// Plans a join of these rows, into how many parts those of the build side and of the probe side are brought, and whether the build
    /// side leaves out rows at the probe side's scans. `promise`: the number by which it is known whether build keys are unique; `behind`:
    /// what the probe side's rows come to further on.
    fn plan_join(
        &mut self,
        (join, promise, site): (&Join, usize, &Site<'_>),
        (build, probe): (&OpenRows, &OpenRows),
        behind: Behind,
    ) -> Result<(Arc<JoinOperator>, SideParts, bool), Unsupported> {
        let unique = JoinOperator::wants_unique(join) && !self.duplicates.contains(&promise);
        let rows = BuildSide {
            bound: build.bound(),
            is_exact: build.branches.len() == 1 && build.branches.iter().all(Open::has_every_row),
            expected: build.branches.iter().all(Open::is_table).then(|| build.expected()),
        };
        let layout = self.layout();
        let operator = JoinOperator::plan(
            (join, promise, *site),
            (&build.columns, &rows),
            (&probe.columns, probe.bound()),
            (unique, self.shape.is_serial(), self.choices),
            (layout, self.states.of(Purpose::Table)),
        )?;
        // Most rows that a filtered build side has no match for are left out before.
        let (filtered, share) = build.narrowed();
        let left = if filtered { share } else { 1.0 };
        let sides = Sides {
            probe_rows: (probe.expected() as f64 * left) as u64,
            build_rows: rows.expected,
            are_scattered: operator.looks_up_scattered(&probe.columns),
        };
        let parts = self.join_parts((&operator, site), (build, probe), (&sides, behind))?;
        let operator = if parts.probe > 1 { operator.in_parts() } else { operator };
        let (operator, prunes) = self.filter_keys((operator, site), (build, probe))?;
        Ok((Arc::new(operator), parts, prunes))
    }

    pub(super) fn join(&mut self, join: &Join) -> Result<OpenRows, Unsupported> {
        let ordinal = self.next_join;
        self.next_join += 1;
        let behind = self.behind;
        let first = self.done.len();
        let build = self.open_before(&join.build, Behind::default())?;
        let before_probe = self.done.len();
        let probe = self.open_before(&join.probe, behind.and(join.kind, build.expected()))?;
        let site = format!("join{ordinal}");
        let site = Site { chooser: self.chooser, name: &site };
        let is_safe = is_safe(join, &build, &probe);
        let mut rows = match self.built_side((join, ordinal, &site), (&build, &probe), behind)? {
            BuiltSide::Written => {
                self.joined((join, ordinal, &site), (build, probe), before_probe, behind)?
            }
            BuiltSide::Other => {
                let (changed, columns) = changed(join, (&build.columns, &probe.columns));
                let of_probe = self.done.len() - before_probe;
                self.done[first..].rotate_right(of_probe);
                // The other side's keys may be there twice though this side's are not.
                let promise = self.uses.len() + ordinal;
                let changed = (&changed, promise, &site);
                let mut rows = self.joined(changed, (probe, build), first + of_probe, behind)?;
                rows.project(columns);
                rows
            }
        };
        rows.properties.is_safe = is_safe;
        Ok(rows)
    }

    /// Joins rows. The pipelines before those of the probe side are finished; `before_probe`: the first of the probe side's.
    fn joined(
        &mut self,
        (join, promise, site): (&Join, usize, &Site<'_>),
        (mut build, mut probe): (OpenRows, OpenRows),
        before_probe: usize,
        behind: Behind,
    ) -> Result<OpenRows, Unsupported> {
        let after_probe = self.done.len();
        let build_bound = build.bound();
        let (operator, parts, prunes) = self.plan_join((join, promise, site), (&build, &probe), behind)?;
        let build_fields = build.columns.len();
        let properties = properties_of((join, &operator), &build, &probe);
        let narrowed = build.narrowed();
        self.build_in_parts(&mut build, &operator, parts)?;
        self.close_build_side(build, &operator);
        // The build side goes first: where it is empty, nothing of the probe side may run.
        self.done[before_probe..].rotate_left(after_probe - before_probe);
        if operator.needs_build_rows() {
            let rows = operator.store().row_count();
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
        self.probe_in_parts(&mut probe, &operator, parts)?;
        if let JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark = join.kind {
            self.close(probe.branches, Arc::new(MarkMatches(Arc::clone(&operator))));
            let rows = OpenRows::new(vec![kept], operator.columns().to_vec());
            return Ok(OpenRows { properties, ..rows });
        }
        let expansion = operator.expansion(build_bound);
        for open in &mut probe.branches {
            open.steps.push(Arc::new(Probe(Arc::clone(&operator))));
            open.bound = open.bound.saturating_mul(expansion);
            // What a thread sees is no longer a share of a table's rows.
            open.shared_out = open.shared_out.filter(|_| expansion == 1);
        }
        let rows = OpenRows::new(probe.branches, operator.columns().to_vec());
        let mut rows = self.end_operator(OpenRows { properties, ..rows })?;
        if let JoinKind::BuildOuter | JoinKind::FullOuter = join.kind {
            let nulls = join.probe.fields().into_iter().map(|field| Expr {
                kind: ExprKind::Literal(Literal::Null),
                data_type: field.data_type,
                nullable: true,
            });
            let own = operator.columns()[..build_fields].iter().enumerate();
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
    let is_unique = operator.index().unique;
    let dependences = Dependences::of_join(join, side(build), side(probe), is_unique);
    let form = (build.columns.len(), is_unique);
    let properties = RowProperties::of_join(join, &build.properties, &probe.properties, form);
    RowProperties { dependences, ..properties }
}
