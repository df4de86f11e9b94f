//! Sub-plans that a query has several times: each is run once, and its rows are scanned as often.
//!
//! Views, WITH and scalar subqueries are written out in a plan as often as they are used. Two sub-plans are the same where one has the
//! columns of both ([`unify`]). What is run once is what leaves few rows of many or takes long to order them: groups, windows, limits. Its
//! rows are an intermediate, as those of an inner sort are. A filter that is pushed into one use and not into another makes them two; to
//! run each by itself is then as good.

use std::collections::BTreeMap;
use std::sync::Arc;

use kelpie_compile::plan::unify::{SameColumns, unify};
use kelpie_compile::plan::{Plan, Scan};

use crate::delivery::RowReceiver;
use crate::error::EngineError;
use crate::execution::Execution;
use crate::intermediate::Input;
use crate::source::TableSource;
use crate::stage;

/// A plan in parts of which each scans the rows of others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SharedPlans {
    /// The plan, which scans the rows of sub-plan `i` as source `first + i`.
    pub plan: Plan,
    /// What is run once, and how often it is used.
    pub shared: Vec<(Plan, usize)>,
    /// The number of the first one's rows.
    pub first: usize,
}

/// Sources of a query.
struct Sources<'a> {
    tables: Vec<Option<&'a Arc<dyn TableSource>>>,
    /// What makes the data of each the same data.
    identities: Vec<Option<String>>,
}

impl<'a> Sources<'a> {
    fn new(tables: Vec<Option<&'a Arc<dyn TableSource>>>) -> Sources<'a> {
        let identities = tables.iter().map(|table| table.as_ref()?.identity()).collect();
        Sources { tables, identities }
    }

    fn table(&self, source: usize) -> Option<&'a Arc<dyn TableSource>> {
        self.tables.get(source).copied().flatten()
    }
}

impl SameColumns for Sources<'_> {
    fn column(&self, of: usize, other: usize, column: usize) -> Option<usize> {
        if of == other {
            return Some(column);
        }
        let (own, table) = (self.table(of)?, self.table(other)?);
        if Arc::ptr_eq(own, table) {
            return Some(column);
        }
        let identity = self.identities.get(of)?.as_ref()?;
        let is_same = self.identities.get(other)?.as_ref()? == identity;
        let key = table.column_key(column).filter(|_| is_same)?;
        // Columns that are computed may have other numbers there.
        let mut columns = [column].into_iter().chain(0..own.schema().fields().len());
        columns.find(|own_column| own.column_key(*own_column) == Some(key))
    }
}

impl SharedPlans {
    /// The sub-plans that a plan over some sources has several times; `None` where there are none.
    pub(crate) fn find(plan: &Plan, tables: Vec<Option<&Arc<dyn TableSource>>>) -> Option<SharedPlans> {
        let mut candidates = Vec::new();
        candidates_of(plan, &mut candidates);
        let mut shapes: Vec<_> = candidates.iter().map(|plan| shape_of(plan)).collect();
        shapes.sort_unstable();
        // Most plans end here.
        if !shapes.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        let first = tables.len();
        let sources = Sources::new(tables);
        let mut bodies = vec![plan.clone()];
        let mut uses = Vec::new();
        while let Some(found) = largest(&bodies, &sources) {
            let source = first + bodies.len() - 1;
            let mut replaced = 0;
            for body in &mut bodies {
                *body = found.replaced(body, source, &mut replaced);
            }
            uses.push(replaced);
            bodies.push(found.plan);
        }
        let mut bodies = bodies.into_iter();
        let plan = bodies.next()?;
        let shared: Vec<(Plan, usize)> = bodies.zip(uses).collect();
        (!shared.is_empty()).then_some(SharedPlans { plan, shared, first })
    }
}

impl SharedPlans {
    /// What has to be there before anything else, for people.
    pub(crate) fn text(&self) -> String {
        let texts = self.shared.iter().map(|(plan, uses)| format!("{}, used {uses} times,", described(plan)));
        format!("the rows of {} are there", texts.collect::<Vec<_>>().join(" and "))
    }
}

/// A sub-plan that is there several times.
struct Repeated {
    plan: Plan,
    /// What it stands for, and which of its columns theirs are.
    uses: Vec<(Plan, Vec<usize>)>,
}

impl Repeated {
    /// A plan that scans the rows, source `source`, in place of each use; counts these.
    fn replaced(&self, plan: &Plan, source: usize, count: &mut usize) -> Plan {
        if let Some((_, columns)) = self.uses.iter().find(|(own, _)| own == plan) {
            *count += 1;
            let scan =
                Scan { source, table: "shared rows".into(), columns: columns.clone(), fields: plan.fields() };
            return Plan::Scan(scan);
        }
        let mapped =
            plan.map_inputs::<std::convert::Infallible>(&mut |input| Ok(self.replaced(input, source, count)));
        mapped.unwrap_or_else(|never| match never {})
    }
}

/// The largest sub-plan that is there several times, in any of several plans.
fn largest(bodies: &[Plan], sources: &Sources<'_>) -> Option<Repeated> {
    let mut candidates = Vec::new();
    bodies.iter().for_each(|body| candidates_of(body, &mut candidates));
    let mut alike: BTreeMap<Vec<u8>, Vec<&Plan>> = BTreeMap::new();
    candidates.into_iter().for_each(|plan| alike.entry(shape_of(plan)).or_default().push(plan));
    let mut groups: Vec<_> = alike.into_iter().filter(|(_, plans)| plans.len() > 1).collect();
    groups.sort_by_key(|(shape, _)| std::cmp::Reverse(shape.len()));
    groups.into_iter().find_map(|(_, plans)| repeated(&plans, sources))
}

/// The first of some plans that is there again among them.
fn repeated(plans: &[&Plan], sources: &Sources<'_>) -> Option<Repeated> {
    for (number, plan) in plans.iter().enumerate() {
        let mut found = Repeated { plan: (*plan).clone(), uses: Vec::new() };
        let own: Vec<usize> = (0..plan.fields().len()).collect();
        found.uses.push(((*plan).clone(), own));
        let mut times = 1;
        for other in &plans[number + 1..] {
            let Some(unified) = unify(&found.plan, other, sources) else { continue };
            for (_, columns) in &mut found.uses {
                columns
                    .iter_mut()
                    .for_each(|column| *column = unified.first.get(*column).copied().unwrap_or(*column));
            }
            times += 1;
            found.plan = unified.plan;
            if !found.uses.iter().any(|(known, _)| known == *other) {
                found.uses.push(((*other).clone(), unified.second));
            }
        }
        if times > 1 {
            return Some(found);
        }
    }
    None
}

/// The sub-plans of a plan that are worth to be run once.
fn candidates_of<'p>(plan: &'p Plan, found: &mut Vec<&'p Plan>) {
    let is_worth = match plan {
        Plan::Aggregate { .. }
        | Plan::GroupingSets(_)
        | Plan::Ranked(_)
        | Plan::Window(_)
        | Plan::Limit { .. } => true,
        Plan::Sort { fetch, .. } => fetch.is_some(),
        _ => false,
    };
    if is_worth {
        found.push(plan);
    }
    let first = found.len();
    plan.inputs().into_iter().for_each(|input| candidates_of(input, found));
    if let Plan::Scalars { input, .. } = plan {
        // What reads a value of these is no plan of its own.
        let mut inside = Vec::new();
        candidates_of(input, &mut inside);
        inside.retain(|plan| plan.waits_for_values());
        let is_open = |plan: &&Plan| inside.iter().any(|open| std::ptr::eq(*open, *plan));
        let own: Vec<&Plan> = found.split_off(first);
        found.extend(own.into_iter().filter(|plan| !is_open(plan)));
    }
}

/// What plans that are the same have in common in any case: their operators but projections, in order.
fn shape_of(plan: &Plan) -> Vec<u8> {
    let mut shape = Vec::new();
    add_shape(plan, &mut shape);
    shape
}

fn add_shape(plan: &Plan, shape: &mut Vec<u8>) {
    let letter = match plan {
        Plan::Project { .. } => None,
        Plan::Scan(_) => Some(b's'),
        Plan::Filter { .. } => Some(b'f'),
        Plan::Aggregate { .. } => Some(b'a'),
        Plan::GroupingSets(_) => Some(b'g'),
        Plan::Ranked(_) => Some(b'r'),
        Plan::Join(_) => Some(b'j'),
        Plan::Union { .. } => Some(b'u'),
        Plan::Scalars { .. } => Some(b'v'),
        Plan::Sort { .. } => Some(b'o'),
        Plan::Limit { .. } => Some(b'l'),
        Plan::Window(_) => Some(b'w'),
    };
    shape.extend(letter);
    plan.inputs().into_iter().for_each(|input| add_shape(input, shape));
}

impl Execution<'_> {
    /// Hands the rows of a whole plan to `out`, after what it has several times has been run once.
    pub(crate) fn run_whole(&mut self, plan: &Plan, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        let shares = self.options.shared_plans;
        let found =
            shares.then(|| SharedPlans::find(plan, self.inputs.iter().map(table_of).collect())).flatten();
        let Some(found) = found else { return self.run(plan, out) };
        let (before, steps) = (self.metrics.pipelines.len(), self.metrics.steps.len());
        match self.run_shared(&found) {
            Ok(()) => self.run(&found.plan, out),
            Err(error @ (EngineError::Cancelled | EngineError::Internal(_))) => Err(error),
            // It may be that nobody would have come to what fails.
            Err(_) => {
                self.inputs.truncate(found.first);
                self.kept.clear();
                self.metrics.pipelines.truncate(before);
                self.metrics.steps.truncate(steps);
                self.run(plan, out)
            }
        }
    }

    /// Runs what is shared, each after what it uses itself.
    fn run_shared(&mut self, found: &SharedPlans) -> Result<(), EngineError> {
        self.inputs.extend(found.shared.iter().map(|_| Input::Used));
        self.kept.extend(found.first..found.first + found.shared.len());
        let mut open: Vec<usize> = (0..found.shared.len()).collect();
        while !open.is_empty() {
            let is_ready = |number: &usize| {
                let scans = stage::scans(&found.shared[*number].0);
                !scans.iter().any(|scan| open.iter().any(|other| scan.source == found.first + other))
            };
            let Some(at) = open.iter().position(is_ready) else {
                return Err(EngineError::Internal("shared sub-plans use each other".into()));
            };
            let number = open.remove(at);
            let (plan, uses) = &found.shared[number];
            let input = self.rows_of(plan)?;
            self.inputs[found.first + number] = input;
            self.metrics.steps.push(format!("the rows of {} are used {uses} times", described(plan)));
        }
        Ok(())
    }
}

fn table_of(input: &Input) -> Option<&Arc<dyn TableSource>> {
    match input {
        Input::Table(table) => Some(table),
        Input::Intermediate(..) | Input::Used => None,
    }
}

/// What a sub-plan is, for people.
fn described(plan: &Plan) -> String {
    let tables = stage::scans(plan).into_iter().map(|scan| scan.table.clone()).collect::<Vec<_>>();
    let what = match plan {
        Plan::Window(_) => "windows",
        Plan::Limit { .. } | Plan::Sort { .. } => "first rows",
        _ => "groups",
    };
    format!("{what} over {}", tables.join(", "))
}
