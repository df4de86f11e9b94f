//! From a plan to pipelines: each has one source, steps, and one sink, and becomes one kernel (HorseQC, section 4).

mod columns;
mod kernel;
mod program;

pub use columns::ColumnInfo;
pub(crate) use columns::of_expr as column_of;
pub(crate) mod states_of {
    //! The state declarations, for operators.
    pub(crate) use super::program::States;
}

pub use program::{
    CapacityClass, CompiledPipeline, Growth, OutputColumn, OutputLayout, OutputStorage, Program, Rows,
    ScanInfo, State,
};

use std::fmt;

use kelpie_kir::Target;

use crate::MicroModel;
use crate::context::Unsupported;
use crate::expr::Expr;
use crate::operator::aggregate::{AggregateOperator, rows_of_thread};
use crate::plan::{Plan, Scan};
use program::States;

/// Where the rows of a pipeline come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A table.
    Scan {
        /// Number of the scan in the query.
        scan: usize,
        /// What it reads.
        node: Scan,
    },
    /// The groups that an earlier pipeline made.
    Groups(AggregateOperator),
}

/// An operator that passes rows on.
#[derive(Debug)]
pub(crate) enum Step {
    /// Keeps the rows where the predicate is true.
    Filter(Expr),
    /// Replaces the columns.
    Project(Vec<Expr>),
}

/// Where the rows of a pipeline go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Into the groups of an aggregation.
    Aggregate(AggregateOperator),
    /// Into the result.
    Output,
}

/// A pipeline before code generation.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub source: Source,
    pub steps: Vec<Step>,
    pub sink: Sink,
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Scan { node, .. } => write!(f, "scan {}", node.table)?,
            Source::Groups(_) => write!(f, "groups")?,
        }
        for step in &self.steps {
            match step {
                Step::Filter(_) => write!(f, " → filter")?,
                Step::Project(_) => write!(f, " → project")?,
            }
        }
        match &self.sink {
            Sink::Aggregate(operator) => write!(f, " → {operator}"),
            Sink::Output => write!(f, " → result"),
        }
    }
}

/// Compiles a plan of scans, filters, projections and aggregations. `scans` describes the plan's scans, in the order
/// of a depth-first walk. Sort and Limit are the engine's.
pub fn compile(
    plan: &Plan,
    scans: &[ScanInfo],
    target: &Target,
    micro_model: MicroModel,
) -> Result<Program, Unsupported> {
    let mut cut =
        Cut { scans, target, micro_model, states: States::default(), done: Vec::new(), next_scan: 0 };
    let (open, _) = cut.open(plan)?;
    let fields = plan.fields();
    cut.done.push(Pipeline { source: open.source, steps: open.steps, sink: Sink::Output });
    let Cut { mut states, done, .. } = cut;
    let mut pipelines = Vec::new();
    let mut output = None;
    for (index, pipeline) in done.into_iter().enumerate() {
        let name = format!("p{index}");
        let environment = kernel::Environment { scans, target, micro_model, fields: &fields };
        let (compiled, layout) = kernel::generate(&name, pipeline, &environment, &mut states)?;
        pipelines.push(compiled);
        output = layout.or(output);
    }
    let output = output.ok_or_else(|| Unsupported("the plan has no result".into()))?;
    Ok(Program { pipelines, states: states.states, classes: states.classes, output })
}

struct Open {
    source: Source,
    steps: Vec<Step>,
}

struct Cut<'a> {
    scans: &'a [ScanInfo],
    target: &'a Target,
    micro_model: MicroModel,
    states: States,
    /// Finished pipelines.
    done: Vec<Pipeline>,
    next_scan: usize,
}

impl Cut<'_> {
    /// The open pipeline that delivers `plan`'s rows, and what is known of its columns.
    fn open(&mut self, plan: &Plan) -> Result<(Open, Vec<ColumnInfo>), Unsupported> {
        match plan {
            Plan::Scan(node) => {
                let scan = self.next_scan;
                self.next_scan += 1;
                let info = self
                    .scans
                    .get(scan)
                    .ok_or_else(|| Unsupported(format!("scan {scan} is not described")))?;
                let columns = columns::of_scan(scan, node, info);
                Ok((Open { source: Source::Scan { scan, node: node.clone() }, steps: Vec::new() }, columns))
            }
            Plan::Filter { input, predicate } => {
                let (mut open, columns) = self.open(input)?;
                open.steps.push(Step::Filter(predicate.clone()));
                Ok((open, columns))
            }
            Plan::Project { input, exprs, .. } => {
                let (mut open, columns) = self.open(input)?;
                open.steps.push(Step::Project(exprs.clone()));
                let columns = columns::of_projection(exprs, &columns);
                Ok((open, columns))
            }
            Plan::Aggregate { input, keys, aggregates, .. } => {
                let (open, columns) = self.open(input)?;
                let rows = self.row_bound(&open.source);
                // Groups lie anywhere in their table: all of them may be one thread's.
                let thread_rows = match &open.source {
                    Source::Scan { .. } => rows_of_thread(rows, self.target),
                    Source::Groups(_) => rows,
                };
                let operator = AggregateOperator::plan(
                    keys,
                    aggregates,
                    &columns,
                    (rows, thread_rows),
                    self.target,
                    self.micro_model,
                    &mut self.states,
                )?;
                let result = operator.columns();
                let sink = Sink::Aggregate(operator.clone());
                self.done.push(Pipeline { source: open.source, steps: open.steps, sink });
                Ok((Open { source: Source::Groups(operator), steps: Vec::new() }, result))
            }
            Plan::Join(join) => Err(Unsupported(format!("a join ({:?})", join.kind))),
            Plan::Union { .. } => Err(Unsupported("UNION".into())),
            Plan::Scalars { .. } => Err(Unsupported("a scalar subquery without its value".into())),
            Plan::Sort { .. } | Plan::Limit { .. } => {
                Err(Unsupported("sort and limit are carried out on the host, between compiled stages".into()))
            }
        }
    }

    /// An upper bound of the rows that a source delivers.
    fn row_bound(&self, source: &Source) -> u64 {
        match source {
            Source::Scan { scan, .. } => self.scans.get(*scan).map_or(u64::MAX, |info| info.rows),
            Source::Groups(operator) => operator.row_bound(),
        }
    }
}
