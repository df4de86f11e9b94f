//! A row on its way: bound to its source, through the steps, into the sink.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::body::Body;
use super::{Sink, Source, Step};
use crate::context::{Context, Unsupported};
use crate::operator::join::JoinOperator;
use crate::operator::places::{self, Dense};
use crate::operator::{Flow, filter};
use crate::types::DataType;
use crate::{MicroModel, Resolution};

/// Which steps a pass over a row carries out.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    /// All.
    Whole,
    /// Those up to the last filter.
    Filters,
    /// The projections; the row has passed the filters.
    Projections,
}

impl Body<'_, '_> {
    /// As a row of the source: its columns, and for a table of groups whether the slot holds one.
    pub(super) fn bind_and_filter(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        flow: Flow,
    ) -> Result<Flow, Unsupported> {
        let flow = self.enter(cx, row, flow)?;
        self.steps(cx, flow, Pass::Filters)
    }

    pub(super) fn enter(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<Flow, Unsupported> {
        let live = match self.source {
            Source::Groups(operator) => operator.present(cx, row),
            Source::Store(join) => join.store().is_taken(cx, row),
            Source::BuildRows(join) => join.delivers(cx, row),
            Source::Rows(rows) => rows.store().is_taken(cx, row),
            Source::Scan { .. } | Source::Sorted(_) => None,
        };
        let flow = match (live, flow) {
            (None, flow) => flow,
            (Some(live), Flow::Branch { depth }) => {
                cx.begin_if(live);
                Flow::Branch { depth: depth + 1 }
            }
            (Some(live), Flow::Flag { active: Some(active) }) => {
                Flow::Flag { active: Some(cx.builder.and(active, live)) }
            }
            (Some(live), Flow::Flag { active: None }) => Flow::Flag { active: Some(live) },
        };
        self.bind(cx, row)?;
        Ok(flow)
    }

    pub(super) fn bind(&mut self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        match self.source {
            Source::Scan { scan, node } => {
                let info = self.environment.scans.get(*scan);
                let info = info.ok_or_else(|| Unsupported::internal("a scan that is not described"))?;
                let layouts = info.layouts.clone();
                let types: Vec<DataType> = node.fields.iter().map(|field| field.data_type.clone()).collect();
                cx.begin_scan(*scan, layouts, types, row);
            }
            Source::Groups(operator) => {
                let columns = operator.deliver(cx, row)?;
                cx.begin_values(columns);
            }
            Source::Store(join) => join.bind_store(cx, row),
            Source::BuildRows(join) => join.bind_build(cx, row),
            Source::Rows(rows) => rows.bind(cx, row),
            Source::Sorted(sort) => sort.bind(cx, row),
        }
        Ok(())
    }

    pub(super) fn steps(
        &mut self,
        cx: &mut Context<'_>,
        flow: Flow,
        pass: Pass,
    ) -> Result<Flow, Unsupported> {
        let mut flow = flow;
        let last_filter = self.steps.iter().rposition(|step| matches!(step, Step::Filter(_)));
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Filter(_) if pass == Pass::Projections => {}
                Step::Filter(predicate) => {
                    let speculative = self.is_speculative(index, predicate);
                    flow = filter::consume(cx, predicate, speculative, flow)?;
                }
                Step::Project(_) if pass == Pass::Filters && last_filter.is_none_or(|last| index > last) => {}
                Step::Project(exprs) => cx.push_projection(exprs),
                Step::Join(join) => flow = join.consume(cx, flow)?,
                Step::Prefilter(join, column) => flow = prefilter(cx, join, *column, flow)?,
            }
        }
        Ok(flow)
    }

    /// One row through all steps into the sink.
    pub(super) fn row(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        flow: Flow,
        sink: &mut Sink,
    ) -> Result<(), Unsupported> {
        if let Some(counted) = &mut self.counted {
            counted.begin_row(cx);
        }
        let flow = self.enter(cx, row, flow)?;
        let flow = self.steps(cx, flow, Pass::Whole)?;
        self.sink(cx, row, flow, sink)?;
        close(cx, flow);
        if let (Sink::Count { .. }, Some(counted)) = (sink, &self.counted) {
            counted.end_row(cx, row);
        }
        Ok(())
    }

    fn sink(&mut self, cx: &mut Context<'_>, row: V, flow: Flow, sink: &mut Sink) -> Result<(), Unsupported> {
        match sink {
            Sink::Aggregate(operator) => operator.consume(cx, flow),
            Sink::Index(join) => join.index().insert(cx, join.store(), row, self.bounds),
            Sink::Fill(join) => join.index().fill(cx, row),
            Sink::Mark(join) => join.consume_last(cx),
            // Has no rows.
            Sink::Reduce(_) => Ok(()),
            Sink::Count { .. } => {
                if let Some(counted) = &self.counted {
                    counted.count(cx);
                }
                Ok(())
            }
            Sink::Output(output) if output.is_ordered() => {
                let place = cx.builder.bitcast(row, Scalar::U64);
                output.write_row(cx, place)
            }
            // Where the flow is a flag, or places are counted, the sink itself does not choose.
            Sink::Sort(sort) if self.counted.is_none() && matches!(flow, Flow::Branch { .. }) => {
                sort.consume(cx, row, self.environment.used)
            }
            Sink::Sort(sort) => self.dense(cx, row, flow, sort.as_ref()),
            Sink::Output(output) => {
                // Lanes leave the loop with their warp once there are enough rows: a block is not together.
                let resolution = match output.limit() {
                    Some(_) => Resolution::Simd,
                    None => self.environment.resolution,
                };
                self.dense_by(cx, row, flow, output.as_ref(), resolution)
            }
            Sink::Build(join) => {
                join.project_stored(cx);
                self.dense(cx, row, flow, join.store())
            }
            Sink::Rows(rows) => self.dense(cx, row, flow, rows.store()),
        }
    }

    fn dense(&self, cx: &mut Context<'_>, row: V, flow: Flow, sink: &dyn Dense) -> Result<(), Unsupported> {
        self.dense_by(cx, row, flow, sink, self.environment.resolution)
    }

    /// The current row, if it is live, into its place: A1 where places are counted, A3 where all threads of a group are
    /// here, else A2.
    fn dense_by(
        &self,
        cx: &mut Context<'_>,
        row: V,
        flow: Flow,
        sink: &dyn Dense,
        resolution: Resolution,
    ) -> Result<(), Unsupported> {
        let used = self.environment.used;
        match (&self.counted, flow) {
            (Some(counted), _) => {
                let place = counted.place(cx, row)?;
                sink.write(cx, place, used)
            }
            (None, Flow::Branch { .. }) => {
                let place = sink.place(cx, self.chunk);
                sink.write(cx, place, used)
            }
            (None, Flow::Flag { active }) => {
                let active = active.unwrap_or_else(|| cx.builder.bool(true));
                let place = places::local(cx, resolution, active, sink);
                cx.begin_if(active);
                sink.write(cx, place, used)?;
                cx.end();
                Ok(())
            }
        }
    }

    /// Whether rows flow with a flag: where the sink needs uniform control flow, or where that saves a branch that a
    /// processor would predict badly.
    pub(super) fn uses_flags(&self, sink: &Sink) -> bool {
        let resolves = self.environment.micro_model == MicroModel::Resolution && self.is_simt();
        match sink {
            _ if self.has_joins() || self.counted.is_some() => false,
            Sink::Index(_) | Sink::Fill(_) | Sink::Mark(_) | Sink::Count { .. } | Sink::Reduce(_) => false,
            Sink::Output(output) if output.is_ordered() => false,
            Sink::Sort(sort) => resolves && !sort.is_positional(),
            Sink::Output(_) | Sink::Build(_) | Sink::Rows(_) => resolves,
            Sink::Aggregate(operator) => {
                operator.takes_flags()
                    && self.source_is_dense()
                    && self.filters_are_speculative()
                    && operator.expressions().iter().all(|expr| self.is_speculative(self.steps.len(), expr))
            }
        }
    }
}

/// A runtime filter: the rows whose column may have a match in a join further on.
fn prefilter(
    cx: &mut Context<'_>,
    join: &JoinOperator,
    column: usize,
    flow: Flow,
) -> Result<Flow, Unsupported> {
    let Flow::Branch { depth } = flow else {
        return Err(Unsupported::internal("a runtime filter under a flag"));
    };
    let key = cx.column(column)?;
    let opened = join.index().begin_if_taken(cx, &key)?.unwrap_or(0);
    Ok(Flow::Branch { depth: depth + opened })
}

/// A lane beyond the end reads the last row, and takes no part.
pub(super) fn clamp(cx: &mut Context<'_>, row: V, rows: V) -> (V, Flow) {
    let in_range = cx.builder.lt(row, rows);
    let one = cx.builder.i64(1);
    let last = cx.builder.sub(rows, one);
    let row = cx.builder.binary(BinaryOp::Min, row, last);
    (row, Flow::Flag { active: Some(in_range) })
}

/// Closes what the row has opened.
pub(super) fn close(cx: &mut Context<'_>, flow: Flow) {
    if let Flow::Branch { depth } = flow {
        for _ in 0..depth {
            cx.end();
        }
    }
    cx.end_row();
}

/// `for index in from..to` over `i64`.
pub(super) fn for_range(
    cx: &mut Context<'_>,
    name: &str,
    from: V,
    to: V,
    body: impl FnOnce(&mut Context<'_>, V) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    let index = cx.builder.var_of(name, from);
    cx.begin_loop();
    let current = cx.builder.read(index);
    let done = cx.builder.ge(current, to);
    cx.builder.break_if(done);
    body(cx, current)?;
    let one = cx.builder.i64(1);
    let next = cx.builder.add(current, one);
    cx.builder.assign(index, next);
    cx.end();
    Ok(())
}
