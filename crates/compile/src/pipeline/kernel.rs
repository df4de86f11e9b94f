//! From a pipeline to its kernel: one compound kernel that does everything, or, where a dense write is resolved by kernels
//! of their own (HorseQC, Table 4, A1), one that counts and one that writes.

use std::collections::BTreeSet;

use kelpie_kir::{Builder, Target};

use super::actions::{Counting, HostAction, Task, When};
use super::body::Body;
use super::program::{CompiledKernel, CompiledPipeline, Rows, ScanInfo, States};
use super::{Pipeline, Sink, Source, Step};
use crate::context::{Argument, Context, Unsupported};
use crate::{MicroModel, Resolution};

/// What code generation needs beside the pipeline.
pub(crate) struct Environment<'a> {
    pub scans: &'a [ScanInfo],
    pub target: &'a Target,
    pub micro_model: MicroModel,
    pub resolution: Resolution,
    /// States that later pipelines read.
    pub used: &'a BTreeSet<usize>,
}

/// Generates a pipeline's kernels.
pub(crate) fn generate(
    name: &str,
    pipeline: Pipeline,
    environment: &Environment<'_>,
    states: &mut States,
) -> Result<CompiledPipeline, Unsupported> {
    let label = pipeline.to_string();
    let Pipeline { source, steps, mut sink, group, zeroed, prunes, skips, continues, counts, bound, sorted } =
        pipeline;
    let rows = match &source {
        Source::Scan { scan, .. } => Rows::Scan(*scan),
        Source::Groups(operator) => operator.rows(),
        Source::Store(join) | Source::BuildRows(join) => join.store().rows(),
        Source::Rows(rows) => rows.rows(),
        Source::Sorted(sort) => sort.rows(),
    };
    let rows = if let Sink::Reduce(operator) = &sink { operator.partial_rows() } else { rows };
    let dense = counts.zip(target_of(&sink));
    let counting = dense.map(|(counts, target)| {
        // Each row becomes one: there is nothing to count.
        let counts = (!is_one_to_one(&source, &steps)).then_some(counts);
        Counting {
            kernel: None,
            counts,
            rows: None,
            total: target.total,
            class: target.class,
            limit: target.limit,
        }
    });
    let pruned = !prunes.is_empty();
    let mut generator = Generator { source: &source, steps: &steps, pruned, environment, states };
    let (kernel, morsels) = generator.kernel(name, &mut sink, counting.as_ref())?;
    let mut restarted: Vec<usize> = morsels.into_iter().collect();
    let counting = match counting {
        Some(counting) => Some(generator.counting(name, counting, bound, &mut restarted)?),
        None => None,
    };
    let one = |when, task| HostAction { when, task };
    let mut around: Vec<HostAction> =
        sorted.into_iter().map(|sorting| one(When::BeforeGroup, Task::Sort(sorting))).collect();
    around.extend(HostAction::each(When::BeforeRun, zeroed, Task::Clear));
    around.extend(HostAction::each(When::BeforeChain, skips, Task::SkipIfEmpty));
    around.extend(HostAction::each(When::BeforeLaunch, restarted, Task::Clear));
    if let Some(counting) = counting {
        let total = counting.total;
        around.push(one(When::BeforeLaunch, Task::Count(Box::new(counting))));
        around.push(one(When::AfterLaunch, Task::Advance(total)));
    }
    let needs = needs_of(&sink);
    around.extend(needs.around);
    let sums = match &source {
        Source::Groups(operator) => operator.names_of_sums(),
        _ => Vec::new(),
    };
    let mut compiled = CompiledPipeline {
        name: label,
        kernel,
        rows,
        group,
        continues,
        prunes,
        produced: needs.produced,
        keeps_text: !matches!(sink, Sink::Output(_)),
        sums,
        around,
    };
    let makes_text = compiled.all_arguments().any(|argument| matches!(argument, Argument::Heap(_)));
    if makes_text {
        compiled.around.push(one(When::OnGrow, Task::GrowHeap));
    }
    compiled.around.sort_by_key(|action| action.when);
    Ok(compiled)
}

struct Generator<'a, 'b> {
    source: &'a Source,
    steps: &'a [Step],
    /// The kernel does not start at the first row.
    pruned: bool,
    environment: &'a Environment<'b>,
    states: &'a mut States,
}

impl Generator<'_, '_> {
    /// A kernel, and the state of its morsel counter, if there is one.
    fn kernel(
        &mut self,
        name: &str,
        sink: &mut Sink,
        counting: Option<&Counting>,
    ) -> Result<(CompiledKernel, Option<usize>), Unsupported> {
        let mut builder = Builder::new();
        builder.begin_kernel(name);
        let mut cx = Context::new(&mut builder, self.environment.target);
        let mut body = Body::new(self.source, self.steps, self.environment, self.states, self.pruned);
        let morsels = body.generate(&mut cx, sink, counting)?;
        cx.check_possible()?;
        let arguments = cx.into_arguments();
        builder.end_kernel();
        let module = builder.finish().map_err(Unsupported::internal)?;
        Ok((CompiledKernel { module, name: name.into(), arguments }, morsels))
    }

    /// Adds the kernel that counts, where there is something to count. `bound`: an upper bound of the rows.
    fn counting(
        &mut self,
        name: &str,
        counting: Counting,
        bound: u64,
        restarted: &mut Vec<usize>,
    ) -> Result<Counting, Unsupported> {
        let Some(counts) = counting.counts else { return Ok(counting) };
        let rows = (bound >= u64::from(u32::MAX)).then(|| self.states.counter("launch_rows"));
        let name = format!("{name}_count");
        let (kernel, morsels) = self.kernel(&name, &mut Sink::Count { counts, rows }, None)?;
        restarted.extend(morsels.into_iter().chain(rows));
        Ok(Counting { kernel: Some(kernel), rows, ..counting })
    }
}

/// Whether each row of the source becomes exactly one.
fn is_one_to_one(source: &Source, steps: &[Step]) -> bool {
    let all = match source {
        Source::Scan { .. } | Source::Sorted(_) => true,
        Source::Rows(rows) => rows.is_dense(),
        Source::Groups(_) | Source::Store(_) | Source::BuildRows(_) => false,
    };
    all && steps.iter().all(|step| matches!(step, Step::Project(_)))
}

/// An array of rows that a sink writes densely.
struct DenseTarget {
    /// State that counts its rows, one `u64`.
    total: usize,
    /// Class of its capacity.
    class: usize,
    /// More rows than this are not wanted.
    limit: Option<u64>,
}

fn target_of(sink: &Sink) -> Option<DenseTarget> {
    let (total, class, limit) = match sink {
        Sink::Output(output) if !output.is_ordered() => (output.count(), output.class(), output.limit()),
        Sink::Build(join) => (join.store().place_count(), join.store().class, None),
        Sink::Rows(rows) => (rows.store().place_count(), rows.store().class, None),
        Sink::Sort(sort) => (sort.count(), sort.class(), None),
        _ => return None,
    };
    Some(DenseTarget { total, class, limit })
}

/// What the engine has to do for a sink.
#[derive(Default)]
pub(super) struct Needs {
    /// States to clear before each run of its group: once for all pipelines that end in it.
    pub zeroed: Vec<usize>,
    /// State that counts what it has made.
    produced: Option<usize>,
    /// Everything else.
    around: Vec<HostAction>,
}

pub(super) fn needs_of(sink: &Sink) -> Needs {
    let grow = |classes| HostAction::each(When::OnGrow, classes, Task::Grow);
    let each = |when, number: Option<usize>, task| HostAction::each(when, Vec::from_iter(number), task);
    match sink {
        Sink::Aggregate(operator) => {
            let (grows, produced) = operator.growth();
            Needs { zeroed: operator.zeroed(), produced, around: grow(grows) }
        }
        Sink::Output(operator) => {
            let (zeroed, grows) = operator.needs();
            Needs { zeroed, produced: Some(operator.count()), around: grow(grows) }
        }
        Sink::Build(join) => {
            let store = join.store();
            let (zeroed, produced) = (join.zeroed_by_build(), Some(store.row_count()));
            Needs { zeroed, produced, around: grow(vec![store.class]) }
        }
        Sink::Rows(rows) => {
            let store = rows.store();
            let mut around = HostAction::each(When::BeforeBlock, store.zeroed(), Task::Clear);
            around.extend(grow(vec![store.class]));
            Needs { zeroed: Vec::new(), produced: Some(store.row_count()), around }
        }
        Sink::Index(join) => {
            let mut around = each(When::BeforeGroup, join.index().sized(), Task::Size);
            around.extend(each(When::OnDuplicate, Some(join.ordinal), Task::BreakPromise));
            Needs { zeroed: join.index().zeroed(), produced: Some(join.store().row_count()), around }
        }
        Sink::Sort(sort) => {
            let count = sort.count();
            Needs { zeroed: vec![count], produced: Some(count), around: grow(vec![sort.class()]) }
        }
        Sink::Fill(join) => {
            let around = each(When::BeforeChain, join.index().prefix_sum(), Task::PrefixSum);
            Needs { zeroed: Vec::new(), produced: Some(join.store().row_count()), around }
        }
        Sink::Mark(_) | Sink::Count { .. } | Sink::Reduce(_) => Needs::default(),
    }
}
