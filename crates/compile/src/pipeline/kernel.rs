//! One compound kernel a pipeline: the row loop, and in it the pipeline's operators one inside the other.
//!
//! On a SIMT device the grid strides over the rows, one row a thread. On a CPU each worker takes morsels from an atomic
//! counter; where the sink writes densely under `resolution`, the morsel is worked on in batches in two passes, the
//! first of which makes a selection vector.

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Builtin, Pointee, Scalar, Scope, Target, Type};

use super::columns::{self, ColumnInfo};
use super::program::{CompiledPipeline, Rows, ScanInfo, States};
use super::{Pipeline, Sink, Source, Step};
use crate::MicroModel;
use crate::context::{Argument, Context, Unsupported};
use crate::expr::{self, Expr, ExprKind, can_fail, is_cheap};
use crate::operator::aggregate::{AggregateOperator, ROWS_PER_THREAD};
use crate::operator::join::JoinOperator;
use crate::operator::output::OutputOperator;
use crate::operator::{Flow, filter};
use crate::table::index::Bounds;
use crate::table::rows::Chunk;
use crate::types::DataType;

/// Rows that a CPU worker takes at a time.
const MORSEL_ROWS: i64 = 1 << 16;
/// Rows of a batch of a CPU worker: its selection vector stays in the first-level cache.
const BATCH_ROWS: u32 = 1024;

/// What code generation needs beside the pipeline.
pub(crate) struct Environment<'a> {
    pub scans: &'a [ScanInfo],
    pub target: &'a Target,
    pub micro_model: MicroModel,
    /// States that later pipelines read.
    pub used: &'a BTreeSet<usize>,
}

/// Generates a pipeline's kernel.
pub(crate) fn generate(
    name: &str,
    pipeline: Pipeline,
    environment: &Environment<'_>,
    states: &mut States,
) -> Result<CompiledPipeline, Unsupported> {
    let label = pipeline.to_string();
    let Pipeline { source, steps, mut sink, group, is_first, prunes, skips } = pipeline;
    let rows = match &source {
        Source::Scan { scan, .. } => Rows::Scan(*scan),
        Source::Groups(operator) => operator.rows(),
        Source::Store(join) | Source::BuildRows(join) => join.store().rows(),
        Source::Sorted(sort) => sort.rows(),
    };
    let mut builder = Builder::new();
    builder.begin_kernel(name);
    let mut cx = Context::new(&mut builder, environment.target);
    let mut body = Body {
        source: &source,
        steps: &steps,
        environment,
        states,
        chunk: None,
        bounds: None,
        pruned: !prunes.is_empty(),
    };
    let morsels = body.generate(&mut cx, &mut sink)?;
    let arguments = cx.into_arguments();
    builder.end_kernel();
    let module = builder.finish().map_err(|error| Unsupported(format!("internal: {error}")))?;
    let needs = needs_of(&sink);
    Ok(CompiledPipeline {
        name: label,
        module,
        kernel: name.into(),
        arguments,
        rows,
        zeroed: if is_first { needs.zeroed } else { Vec::new() },
        grows: needs.grows,
        produced: needs.produced,
        group,
        restarted: morsels.into_iter().collect(),
        sizes: needs.sizes,
        prefix_sums: needs.prefix_sums,
        prunes,
        skipped_if_empty: skips,
        join: needs.join,
        continues: false,
        keeps_text: !matches!(sink, Sink::Output(_)),
        stores: Vec::new(),
    })
}

/// What the engine has to do for a sink.
#[derive(Default)]
struct Needs {
    zeroed: Vec<usize>,
    grows: Vec<usize>,
    produced: Option<usize>,
    sizes: Vec<usize>,
    prefix_sums: Vec<usize>,
    join: Option<usize>,
}

fn needs_of(sink: &Sink) -> Needs {
    match sink {
        Sink::Aggregate(operator) => {
            let (grows, produced) = operator.growth();
            Needs { zeroed: operator.zeroed(), grows, produced, ..Needs::default() }
        }
        Sink::Output(operator) => {
            let (zeroed, grows) = operator.needs();
            Needs { zeroed, grows, produced: Some(operator.count()), ..Needs::default() }
        }
        Sink::Build(join) => {
            let store = join.store();
            let (grows, produced) = (vec![store.class], Some(store.row_count()));
            Needs { zeroed: join.zeroed_by_build(), grows, produced, ..Needs::default() }
        }
        Sink::Index(join) => Needs {
            zeroed: join.index().zeroed(),
            sizes: join.index().sized().into_iter().collect(),
            produced: Some(join.store().row_count()),
            join: Some(join.ordinal),
            ..Needs::default()
        },
        Sink::Sort(sort) => Needs {
            zeroed: vec![sort.count()],
            grows: vec![sort.class()],
            produced: Some(sort.count()),
            ..Needs::default()
        },
        Sink::Fill(join) => Needs {
            prefix_sums: join.index().prefix_sum().into_iter().collect(),
            produced: Some(join.store().row_count()),
            ..Needs::default()
        },
        Sink::Mark(_) => Needs::default(),
    }
}

/// Which steps a pass over a row carries out.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// All.
    Whole,
    /// Those up to the last filter.
    Filters,
    /// The projections; the row has passed the filters.
    Projections,
}

struct Body<'a, 'b> {
    source: &'a Source,
    steps: &'a [Step],
    environment: &'a Environment<'b>,
    states: &'a mut States,
    /// Where a sink that is a store writes on a CPU.
    chunk: Option<Chunk>,
    /// Of the keys that a sink indexes.
    bounds: Option<Bounds>,
    /// The kernel does not start at the first row.
    pruned: bool,
}

impl Body<'_, '_> {
    /// Emits the kernel's body; the state of the morsel counter, if there is one.
    fn generate(&mut self, cx: &mut Context<'_>, sink: &mut Sink) -> Result<Option<usize>, Unsupported> {
        let rows = cx.argument("rows", Scalar::I64, Argument::RowCount);
        if let Sink::Aggregate(operator) = sink {
            operator.begin(cx);
        }
        if let Sink::Build(join) = sink {
            self.chunk = join.store().begin(cx);
        }
        if let Sink::Index(join) = sink {
            self.bounds = join.index().begin(cx);
        }
        if let Sink::Sort(sort) = sink {
            let all = matches!(self.source, Source::Scan { .. })
                && !self.pruned
                && self.steps.iter().all(|step| matches!(step, Step::Project(_)));
            sort.begin(cx, all.then_some(rows));
        }
        let morsels = if cx.target.lanes > 1 || cx.target.block_threads > 1 {
            self.grid_stride(cx, rows, sink)?;
            None
        } else {
            let counter = self.states.counter("morsels");
            self.morsels(cx, rows, counter, sink)?;
            Some(counter)
        };
        if let Sink::Aggregate(operator) = sink {
            operator.end(cx);
        }
        if let Sink::Build(join) = sink {
            join.store().end(cx, self.chunk);
        }
        if let Sink::Index(join) = sink {
            join.index().end(cx, self.bounds);
        }
        Ok(morsels)
    }

    /// `for base in (block * threads ..).step_by(grid * threads)`: the loop is uniform in the block, the row is not.
    fn grid_stride(&mut self, cx: &mut Context<'_>, rows: V, sink: &mut Sink) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let mut wide = |builtin| {
            let value = b.builtin(builtin);
            b.convert(value, Scalar::I64)
        };
        let (thread, block) = (wide(Builtin::ThreadId), wide(Builtin::BlockId));
        let (threads, blocks) = (wide(Builtin::BlockDim), wide(Builtin::GridDim));
        let prepares = matches!(sink, Sink::Aggregate(_)) && self.uses_flags(sink);
        let rows_per_thread = if prepares { ROWS_PER_THREAD } else { 1 };
        let b = &mut *cx.builder;
        let count = b.i64(rows_per_thread);
        let block_rows = b.mul(threads, count);
        let stride = b.mul(block_rows, blocks);
        let first = b.mul(block, block_rows);
        let first = Self::from_first(cx, first);
        let base = cx.builder.var_of("base", first);
        cx.begin_loop();
        let current = cx.builder.read(base);
        let done = cx.builder.ge(current, rows);
        cx.builder.break_if(done);
        Self::break_if_enough(cx, sink);
        let row = cx.builder.add(current, thread);
        match sink {
            Sink::Aggregate(operator) if prepares => self.prepare_rows(cx, row, rows, threads, operator)?,
            Sink::Aggregate(operator) => {
                operator.open_row(cx);
                self.guarded_row(cx, row, rows, sink)?;
                if let Sink::Aggregate(operator) = sink {
                    operator.close_row(cx);
                }
            }
            sink => self.guarded_row(cx, row, rows, sink)?,
        }
        let next = cx.builder.add(current, stride);
        cx.builder.assign(base, next);
        cx.end();
        Ok(())
    }

    /// A row counted from the first that is worked on, counted from the first that there is.
    fn from_first(cx: &mut Context<'_>, row: V) -> V {
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        cx.builder.add(row, first)
    }

    /// Leaves the row loop where the result has as many rows as are wanted.
    fn break_if_enough(cx: &mut Context<'_>, sink: &Sink) {
        if let Sink::Output(output) = sink
            && let Some(done) = output.is_done(cx)
        {
            cx.builder.break_if(done);
        }
    }

    /// Several rows of a thread, `threads` apart: all are prepared, then all are applied.
    fn prepare_rows(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        rows: V,
        threads: V,
        operator: &AggregateOperator,
    ) -> Result<(), Unsupported> {
        let mut row = row;
        let mut prepared = Vec::new();
        for index in 0..ROWS_PER_THREAD {
            if index > 0 {
                row = cx.builder.add(row, threads);
            }
            cx.begin_repetition(index == 0);
            let (clamped, flow) = clamp(cx, row, rows);
            let flow = self.enter(cx, clamped, flow)?;
            let flow = self.steps(cx, flow, Pass::Whole)?;
            prepared.push(operator.prepare(cx, flow)?);
            cx.end_row();
        }
        cx.end_repetition();
        for row in &prepared {
            operator.apply(cx, row);
        }
        Ok(())
    }

    /// One row of a thread, which may be beyond the end.
    fn guarded_row(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        rows: V,
        sink: &mut Sink,
    ) -> Result<(), Unsupported> {
        if self.uses_flags(sink) {
            let (row, flow) = clamp(cx, row, rows);
            return self.row(cx, row, flow, sink);
        }
        let in_range = cx.builder.lt(row, rows);
        cx.begin_if(in_range);
        self.row(cx, row, Flow::Branch { depth: 0 }, sink)?;
        cx.end();
        Ok(())
    }

    /// A worker takes morsels until there are none or the launch has failed.
    fn morsels(
        &mut self,
        cx: &mut Context<'_>,
        rows: V,
        counter: usize,
        sink: &mut Sink,
    ) -> Result<(), Unsupported> {
        let counter = cx.argument("morsels", Type::global(Scalar::U64), Argument::State(counter));
        let staged = matches!(sink, Sink::Output(output) if !output.is_ordered())
            && self.environment.micro_model == MicroModel::Resolution
            && !self.has_joins();
        let selection =
            staged.then(|| cx.builder.shared("selection", Pointee::Scalar(Scalar::U32), BATCH_ROWS));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let status = b.builtin(Builtin::Status);
        let zero = b.u32(0);
        let failed = b.ne(status, zero);
        b.break_if(failed);
        Self::break_if_enough(cx, sink);
        let b = &mut *cx.builder;
        let size = b.u64(MORSEL_ROWS as u64);
        let start = b.atomic(AtomicOp::Add, counter, size, Scope::Device);
        let start = b.bitcast(start, Scalar::I64);
        let start = Self::from_first(cx, start);
        let b = &mut *cx.builder;
        let done = b.ge(start, rows);
        b.break_if(done);
        let size = b.i64(MORSEL_ROWS);
        let end = b.add(start, size);
        let end = b.binary(BinaryOp::Min, end, rows);
        match (selection, sink) {
            (Some(selection), Sink::Output(output)) => self.batches(cx, start, end, selection, output)?,
            (_, sink) => {
                let flow = match self.uses_flags(sink) {
                    true => Flow::Flag { active: None },
                    false => Flow::Branch { depth: 0 },
                };
                for_range(cx, "row", start, end, |cx, row| self.row(cx, row, flow, sink))?;
            }
        }
        cx.end();
        Ok(())
    }

    /// Two passes a batch: the filters make the selection vector, then the selected rows are written to their places.
    fn batches(
        &mut self,
        cx: &mut Context<'_>,
        start: V,
        end: V,
        selection: V,
        output: &mut OutputOperator,
    ) -> Result<(), Unsupported> {
        let batch = cx.builder.var_of("batch", start);
        cx.begin_loop();
        let from = cx.builder.read(batch);
        let done = cx.builder.ge(from, end);
        cx.builder.break_if(done);
        let size = cx.builder.i64(i64::from(BATCH_ROWS));
        let to = cx.builder.add(from, size);
        let to = cx.builder.binary(BinaryOp::Min, to, end);
        let none = cx.builder.i64(0);
        let selected = cx.builder.var_of("selected", none);
        let speculative = self.filters_are_speculative();
        for_range(cx, "row", from, to, |cx, row| {
            self.select(cx, row, from, selection, selected, speculative)
        })?;
        let count = cx.builder.read(selected);
        let places = cx.builder.bitcast(count, Scalar::U64);
        let first = output.reserve(cx, places);
        let zero = cx.builder.i64(0);
        for_range(cx, "place", zero, count, |cx, place| {
            let offset = cx.builder.offset(selection, place);
            let offset = cx.builder.load(offset);
            let offset = cx.builder.convert(offset, Scalar::I64);
            let row = cx.builder.add(from, offset);
            self.bind(cx, row)?;
            self.steps(cx, Flow::Branch { depth: 0 }, Pass::Projections)?;
            let place = cx.builder.bitcast(place, Scalar::U64);
            let position = cx.builder.add(first, place);
            output.write(cx, position)?;
            cx.end_row();
            Ok(())
        })?;
        cx.builder.assign(batch, to);
        cx.end();
        Ok(())
    }

    /// Appends the row to the selection vector if it passes the filters: without a branch where that is possible.
    fn select(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        from: V,
        selection: V,
        selected: Var,
        speculative: bool,
    ) -> Result<(), Unsupported> {
        let flow = if speculative { Flow::Flag { active: None } } else { Flow::Branch { depth: 0 } };
        let flow = self.bind_and_filter(cx, row, flow)?;
        let count = cx.builder.read(selected);
        let pointer = cx.builder.offset(selection, count);
        let offset = cx.builder.sub(row, from);
        let offset = cx.builder.convert(offset, Scalar::U32);
        cx.builder.store(pointer, offset);
        let step = match flow.active() {
            Some(active) => cx.builder.convert(active, Scalar::I64),
            None => cx.builder.i64(1),
        };
        let count = cx.builder.add(count, step);
        cx.builder.assign(selected, count);
        close(cx, flow);
        Ok(())
    }

    /// As a row of the source: its columns, and for a table of groups whether the slot holds one.
    fn bind_and_filter(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<Flow, Unsupported> {
        let flow = self.enter(cx, row, flow)?;
        self.steps(cx, flow, Pass::Filters)
    }

    fn enter(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<Flow, Unsupported> {
        let live = match self.source {
            Source::Groups(operator) => operator.present(cx, row),
            Source::Store(join) => join.store().is_taken(cx, row),
            Source::BuildRows(join) => join.delivers(cx, row),
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

    fn bind(&mut self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        match self.source {
            Source::Scan { scan, node } => {
                let layouts =
                    self.environment.scans.get(*scan).map(|info| info.layouts.clone()).unwrap_or_default();
                let types: Vec<DataType> = node.fields.iter().map(|field| field.data_type.clone()).collect();
                cx.begin_scan(*scan, layouts, types, row);
            }
            Source::Groups(operator) => {
                let columns = operator.deliver(cx, row)?;
                cx.begin_values(columns);
            }
            Source::Store(join) => join.bind_store(cx, row),
            Source::BuildRows(join) => join.bind_build(cx, row),
            Source::Sorted(sort) => sort.bind(cx, row),
        }
        Ok(())
    }

    fn steps(&mut self, cx: &mut Context<'_>, flow: Flow, pass: Pass) -> Result<Flow, Unsupported> {
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
    fn row(&mut self, cx: &mut Context<'_>, row: V, flow: Flow, sink: &mut Sink) -> Result<(), Unsupported> {
        let flow = self.enter(cx, row, flow)?;
        let flow = self.steps(cx, flow, Pass::Whole)?;
        match sink {
            Sink::Aggregate(operator) => operator.consume(cx, flow)?,
            Sink::Sort(sort) => sort.consume(cx, row, self.environment.used)?,
            Sink::Output(output) if output.is_ordered() => {
                let place = cx.builder.bitcast(row, Scalar::U64);
                output.write(cx, place)?;
            }
            Sink::Output(output) => match flow {
                Flow::Flag { .. } => output.consume_warp(cx, flow)?,
                Flow::Branch { .. } => output.consume_atomic(cx)?,
            },
            Sink::Build(join) => {
                join.project_stored(cx);
                let place = join.store().place(cx, self.chunk);
                join.store().write(cx, place, self.environment.used)?;
            }
            Sink::Index(join) => join.index().insert(cx, join.store(), row, self.bounds)?,
            Sink::Fill(join) => join.index().fill(cx, row)?,
            Sink::Mark(join) => join.consume_last(cx)?,
        }
        close(cx, flow);
        Ok(())
    }

    /// Whether rows flow with a flag: where the sink needs uniform control flow, or where that saves a branch that a
    /// processor would predict badly.
    fn uses_flags(&self, sink: &Sink) -> bool {
        match sink {
            _ if self.has_joins() => false,
            Sink::Build(_) | Sink::Index(_) | Sink::Fill(_) | Sink::Mark(_) | Sink::Sort(_) => false,
            Sink::Output(output) if output.is_ordered() => false,
            Sink::Output(_) => self.environment.micro_model == MicroModel::Resolution && self.is_simt(),
            Sink::Aggregate(operator) => {
                operator.takes_flags()
                    && matches!(self.source, Source::Scan { .. })
                    && self.filters_are_speculative()
                    && operator.expressions().iter().all(|expr| self.is_speculative(self.steps.len(), expr))
            }
        }
    }

    /// Joins branch and loop: what follows them stands at divergent control flow.
    fn has_joins(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Join(_) | Step::Prefilter(..)))
    }

    fn is_simt(&self) -> bool {
        self.environment.target.lanes > 1 || self.environment.target.block_threads > 1
    }

    fn filters_are_speculative(&self) -> bool {
        matches!(self.source, Source::Scan { .. })
            && self.steps.iter().enumerate().all(|(index, step)| match step {
                Step::Filter(predicate) => self.is_speculative(index, predicate),
                Step::Project(_) => true,
                Step::Join(_) | Step::Prefilter(..) => false,
            })
    }

    /// Whether an expression over the columns before step `index` may be computed for rows that are dead: it cannot
    /// fail, and costs little, also through the projections that it stands on.
    fn is_speculative(&self, index: usize, expr: &Expr) -> bool {
        let layers = self.layers(index);
        speculative_over(expr, &layers)
    }

    /// The projections before step `index`, outermost last, each with what is known of the columns under it.
    fn layers(&self, index: usize) -> Vec<(Option<&[Expr]>, Vec<ColumnInfo>)> {
        let first = match self.source {
            Source::Scan { scan, node } => match self.environment.scans.get(*scan) {
                Some(info) => columns::of_scan(*scan, node, info),
                None => Vec::new(),
            },
            Source::Groups(operator) => operator.columns(),
            Source::Store(join) => join.store().infos(),
            Source::BuildRows(join) => join.columns().to_vec(),
            Source::Sorted(sort) => sort.infos(),
        };
        let mut layers: Vec<(Option<&[Expr]>, Vec<ColumnInfo>)> = vec![(None, first)];
        for step in &self.steps[..index] {
            match step {
                Step::Filter(_) | Step::Prefilter(..) => {}
                Step::Project(exprs) => {
                    let below = layers.last().map(|(_, columns)| columns.clone()).unwrap_or_default();
                    layers.push((Some(exprs), columns::of_projection(exprs, &below)));
                }
                Step::Join(join) => layers.push((None, join.columns().to_vec())),
            }
        }
        layers
    }
}

fn speculative_over(expr: &Expr, layers: &[(Option<&[Expr]>, Vec<ColumnInfo>)]) -> bool {
    let Some(((exprs, columns), below)) = layers.split_last() else { return false };
    let range_of = |index: usize| columns.get(index).and_then(|column: &ColumnInfo| column.range);
    if can_fail(expr, &range_of) || !is_cheap(expr, &range_of) {
        return false;
    }
    match exprs {
        None => true,
        Some(exprs) => columns_read(expr)
            .into_iter()
            .all(|column| exprs.get(column).is_some_and(|e| speculative_over(e, below))),
    }
}

/// The columns that an expression reads.
fn columns_read(expr: &Expr) -> Vec<usize> {
    match expr.kind {
        ExprKind::Column(index) => vec![index],
        _ => expr::children(expr).into_iter().flat_map(columns_read).collect(),
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
        return Err(Unsupported("internal: a runtime filter under a flag".into()));
    };
    let key = cx.column(column)?;
    let opened = join.index().begin_if_taken(cx, &key)?.unwrap_or(0);
    Ok(Flow::Branch { depth: depth + opened })
}

/// A lane beyond the end reads the last row, and takes no part.
fn clamp(cx: &mut Context<'_>, row: V, rows: V) -> (V, Flow) {
    let in_range = cx.builder.lt(row, rows);
    let one = cx.builder.i64(1);
    let last = cx.builder.sub(rows, one);
    let row = cx.builder.binary(BinaryOp::Min, row, last);
    (row, Flow::Flag { active: Some(in_range) })
}

/// Closes what the row has opened.
fn close(cx: &mut Context<'_>, flow: Flow) {
    if let Flow::Branch { depth } = flow {
        for _ in 0..depth {
            cx.end();
        }
    }
    cx.end_row();
}

/// `for index in from..to` over `i64`.
fn for_range(
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
