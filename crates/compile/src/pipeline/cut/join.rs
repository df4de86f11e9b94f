//! A join in pipelines: the build side into a store, the store into an index, and the probe side.

use std::sync::Arc;

use super::Cut;
use super::dependence::{Dependences, Side};
use super::open::{Open, OpenRows};
use super::partition::{Behind, SideParts};
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
    /// side leaves out rows at the probe side's scans. `behind`: what the probe side's rows come to further on.
    fn plan_join(
        &mut self,
        (join, ordinal, site): (&Join, usize, &Site<'_>),
        (build, probe): (&OpenRows, &OpenRows),
        behind: Behind,
    ) -> Result<(Arc<JoinOperator>, SideParts, bool), Unsupported> {
        let unique = JoinOperator::wants_unique(join) && !self.duplicates.contains(&ordinal);
        let rows = BuildSide {
            bound: build.bound(),
            is_exact: build.branches.len() == 1 && build.branches.iter().all(Open::has_every_row),
            expected: build.branches.iter().all(Open::is_table).then(|| build.expected()),
        };
        let layout = self.layout();
        let operator = JoinOperator::plan(
            (join, ordinal, *site),
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
        if let Some(rows) = self.set_operation(join, ordinal)? {
            return Ok(rows);
        }
        let behind = self.behind;
        let mut build = self.open_before(&join.build, Behind::default())?;
        let before_probe = self.done.len();
        let mut probe = self.open_before(&join.probe, behind.and(join.kind, build.expected()))?;
        let after_probe = self.done.len();
        let build_bound = build.bound();
        let site = format!("join{ordinal}");
        let site = Site { chooser: self.chooser, name: &site };
        let (operator, parts, prunes) = self.plan_join((join, ordinal, &site), (&build, &probe), behind)?;
        let build_fields = build.columns.len();
        let dependences = dependences_of((join, &operator), &build, &probe);
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
            return Ok(OpenRows { dependences, ..rows });
        }
        let expansion = operator.expansion(build_bound);
        for open in &mut probe.branches {
            open.steps.push(Arc::new(Probe(Arc::clone(&operator))));
            open.bound = open.bound.saturating_mul(expansion);
            // What a thread sees is no longer a share of a table's rows.
            open.shared_out = open.shared_out.filter(|_| expansion == 1);
        }
        let rows = OpenRows::new(probe.branches, operator.columns().to_vec());
        let mut rows = self.end_operator(OpenRows { dependences, ..rows })?;
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

/// Which columns of a join's rows follow from which others.
fn dependences_of(
    (join, operator): (&Join, &JoinOperator),
    build: &OpenRows,
    probe: &OpenRows,
) -> Dependences {
    fn side(rows: &OpenRows) -> Side<'_> {
        Side { known: &rows.dependences, columns: &rows.columns }
    }
    Dependences::of_join(join, side(build), side(probe), operator.index().unique)
}
