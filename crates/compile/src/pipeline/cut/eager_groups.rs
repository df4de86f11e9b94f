//! Groups below a join (eager aggregation: Yan and Larson 1995, “Eager aggregation and lazy aggregation”).
//!
//! Where rows are grouped by columns of a dimension, and only columns of the facts are aggregated, facts are first brought to groups by
//! the key that they are joined by. Each of these is joined once, and brought to the groups that are wanted. So texts of a dimension are
//! hashed and compared once a row of the dimension, where the facts find their groups at the places of small integers. A dimension in which
//! a key comes several times, or not at all, gives the same: a group of facts is joined as its facts would be.

use std::borrow::Cow;

use crate::MicroModel;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, Function, children, columns_read, substitute};
use crate::layout::{ColumnFacts, Storage};
use crate::lower::{can_fail, infer_range};
use crate::plan::{Aggregate, AggregateFunction, GroupingSets, Join, JoinKind, Plan};
use crate::program::ScanInfo;
use crate::types::{DataType, Field, Literal, Range};
use crate::variant::Chooser;
use crate::variant::axes::GroupsBelow;

/// Values of the key by which facts are joined, at most: their groups lie near.
const MOST_KEYS: u64 = 1 << 18;
/// Parts of the keys and arguments together, at most.
const MOST_PARTS: usize = 1000;
/// Facts for each of them, at least.
const ROWS_A_KEY: u64 = 16;
/// Values that all keys have together from which on rows do not find their groups near by.
const MANY_VALUES: u64 = 1 << 14;

/// The plan with groups below joins where that is chosen. Scans and joins keep their numbers.
pub(super) fn with_groups_below<'p>(
    plan: &'p Plan,
    scans: &[ScanInfo],
    (chooser, micro_model): (&Chooser<'_>, MicroModel),
) -> Result<Cow<'p, Plan>, Unsupported> {
    let mut search = Search { scans, chooser, micro_model, next_scan: 0, next_groups: 0, found: false };
    let changed = search.walk(plan)?;
    Ok(if search.found { Cow::Owned(changed) } else { Cow::Borrowed(plan) })
}

struct Search<'a> {
    scans: &'a [ScanInfo],
    chooser: &'a Chooser<'a>,
    micro_model: MicroModel,
    next_scan: usize,
    /// Operators that make groups and were come to, inputs first.
    next_groups: usize,
    found: bool,
}

/// Groups over a join, through projections.
struct OverJoin<'p> {
    join: &'p Join,
    /// Over the join's columns.
    keys: Vec<Expr>,
    aggregates: Vec<Aggregate>,
    /// The first scan of the join.
    first_scan: usize,
}

impl Search<'_> {
    fn walk(&mut self, plan: &Plan) -> Result<Plan, Unsupported> {
        let first_scan = self.next_scan;
        if let Plan::Scan(_) = plan {
            self.next_scan += 1;
            return Ok(plan.clone());
        }
        let plan = plan.map_inputs(&mut |input| self.walk(input))?;
        let (input, keys, aggregates) = match &plan {
            Plan::Aggregate { input, keys, aggregates, .. } => (input.as_ref(), keys, aggregates),
            Plan::GroupingSets(sets) => (&sets.input, &sets.keys, &sets.aggregates),
            Plan::Ranked(_) | Plan::Window(_) => {
                self.next_groups += 1;
                return Ok(plan);
            }
            _ => return Ok(plan),
        };
        let site = format!("aggregate{}", self.next_groups);
        self.next_groups += 1;
        let Some(over) = OverJoin::of(input, (keys, aggregates), first_scan) else { return Ok(plan) };
        let lacks = over.lacks(self.scans);
        let rule = match (self.micro_model, lacks) {
            (_, Some(lacks)) => (GroupsBelow::Rows, lacks),
            (MicroModel::Resolution, None) => over.rule(self.scans),
            _ => (GroupsBelow::Rows, "the micro model brings rows to their groups"),
        };
        let chosen = self.chooser.choose(&site, rule, |value| match (value, lacks) {
            (GroupsBelow::Join, Some(lacks)) => Err(lacks.into()),
            _ => Ok(()),
        })?;
        if chosen != GroupsBelow::Join {
            return Ok(plan);
        }
        self.found = true;
        // The groups below come first.
        self.next_groups += 1;
        Ok(over.changed(&plan))
    }
}

impl<'p> OverJoin<'p> {
    /// Where groups can be made below a join.
    fn of(
        input: &'p Plan,
        (keys, aggregates): (&[Expr], &[Aggregate]),
        first_scan: usize,
    ) -> Option<OverJoin<'p>> {
        if !is_over_join(input) {
            return None;
        }
        let mut keys = keys.to_vec();
        let mut aggregates = aggregates.to_vec();
        let mut input = input;
        while let Plan::Project { input: below, exprs, .. } = input {
            let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
            // What is written once in each of many projections is written many times in the end.
            let parts = keys.iter().chain(arguments).map(|expr| parts_over(expr, exprs));
            if parts.fold(0, usize::saturating_add) > MOST_PARTS {
                return None;
            }
            let below_it = |expr: &Expr| {
                substitute(expr, &|part| match part.kind {
                    ExprKind::Column(column) => exprs.get(column).cloned(),
                    _ => None,
                })
            };
            keys.iter_mut().for_each(|key| *key = below_it(key));
            let arguments = aggregates.iter_mut().filter_map(|aggregate| aggregate.argument.as_mut());
            arguments.for_each(|argument| *argument = below_it(argument));
            input = below;
        }
        let Plan::Join(join) = input else { return None };
        let width = join.build.fields().len();
        let is_plain = join.kind == JoinKind::Inner && join.residual.is_none() && !join.null_equal;
        let [(own, key)] = join.keys.as_slice() else { return None };
        let is_of_build = |expr: &Expr| columns_read(expr).into_iter().all(|column| column < width);
        let is_of_probe = |aggregate: &Aggregate| {
            let read = aggregate.argument.as_ref().map(columns_read).unwrap_or_default();
            read.into_iter().all(|column| column >= width)
        };
        let fits = is_plain
            && !own.data_type.is_float()
            && matches!(key.kind, ExprKind::Column(_))
            && is_whole(&join.build)
            && !keys.is_empty()
            && keys.iter().all(is_of_build)
            && keys.iter().any(|key| !columns_read(key).is_empty())
            && aggregates.iter().all(is_of_probe)
            && aggregates
                .iter()
                .all(|aggregate| !aggregate.distinct && aggregate.function.of_parts().is_some());
        fits.then_some(OverJoin { join, keys, aggregates, first_scan })
    }

    /// Why groups cannot be made below the join, by what is known of its columns.
    fn lacks(&self, scans: &[ScanInfo]) -> Option<&'static str> {
        let width = self.join.build.fields().len();
        let of_probe = self.first_scan + count_scans(&self.join.build);
        let range = |column: usize| -> Option<Range> {
            facts(&self.join.probe, column.checked_sub(width)?, of_probe, scans)?.0.layout.range
        };
        let fails = |aggregate: &Aggregate| {
            aggregate.argument.as_ref().is_some_and(|argument| can_fail(argument, &range))
        };
        if self.aggregates.iter().any(fails) {
            return Some("what is aggregated may fail for rows that have no match");
        }
        let scanned = scans.iter().skip(of_probe).take(count_scans(&self.join.probe));
        let rows = scanned.map(|scan| i128::from(scan.rows)).fold(1, i128::saturating_mul);
        let overflows = self.aggregates.iter().any(|sum| part_may_overflow(sum, &range, rows));
        overflows.then_some("the sum of a part may be too large where that of all is not")
    }

    /// What the rule takes.
    fn rule(&self, scans: &[ScanInfo]) -> (GroupsBelow, &'static str) {
        let rows = |message| (GroupsBelow::Rows, message);
        let of_probe = self.first_scan + count_scans(&self.join.build);
        let known = |plan, column, first| facts(plan, column, first, scans);
        let Some((_, ExprKind::Column(key))) = self.join.keys.first().map(|(own, key)| (own, &key.kind))
        else {
            return rows("the key is computed");
        };
        let Some((key, facts_rows)) = known(&self.join.probe, *key, of_probe) else {
            return rows("nothing is known of the key");
        };
        let Some(values) = value_count(key).filter(|values| *values <= MOST_KEYS) else {
            return rows("the key is not known to have few values");
        };
        if values.saturating_mul(ROWS_A_KEY) > facts_rows {
            return rows("few facts have the same key");
        }
        let own = |expr: &Expr| match expr.kind {
            ExprKind::Column(column) => value_count(known(&self.join.build, column, self.first_scan)?.0),
            ExprKind::Literal(_) => Some(1),
            _ => None,
        };
        let all = self.keys.iter().map(own).try_fold(1_u64, |all, values| Some(all.saturating_mul(values?)));
        if all.is_some_and(|all| all <= MANY_VALUES) {
            return rows("the groups lie near anyway");
        }
        (
            GroupsBelow::Join,
            "facts find groups by the key near by, and keys of the dimension are looked at once a group",
        )
    }

    /// The plan of the groups, made of groups below the join.
    fn changed(&self, plan: &Plan) -> Plan {
        let width = self.join.build.fields().len();
        let below = |expr: &Expr| {
            substitute(expr, &|part| match part.kind {
                ExprKind::Column(column) => {
                    Some(Expr { kind: ExprKind::Column(column.saturating_sub(width)), ..part.clone() })
                }
                _ => None,
            })
        };
        let own: Vec<Aggregate> = self
            .aggregates
            .iter()
            .map(|aggregate| Aggregate {
                argument: aggregate.argument.as_ref().map(below),
                ..aggregate.clone()
            })
            .collect();
        let keys: Vec<Expr> = self.join.keys.iter().map(|(_, key)| key.clone()).collect();
        let names = (0..keys.len()).map(|number| format!("key_{number}"));
        let names = names.chain(own.iter().map(|aggregate| aggregate.field.name.clone())).collect();
        let input = Box::new(self.join.probe.clone());
        let groups = Plan::Aggregate { input, keys: keys.clone(), aggregates: own, names };
        let first = width + keys.len();
        let merged = self.aggregates.iter().enumerate().map(|(number, aggregate)| {
            let Field { data_type, nullable, .. } = aggregate.field.clone();
            Aggregate {
                function: aggregate.function.of_parts().unwrap_or(aggregate.function),
                argument: Some(Expr::column(first + number, data_type, nullable)),
                ..aggregate.clone()
            }
        });
        let aggregates = merged.collect();
        let pairs = self.join.keys.iter().enumerate().map(|(number, (own, key))| {
            (own.clone(), Expr::column(number, key.data_type.clone(), key.nullable))
        });
        let join = Join {
            build: self.join.build.clone(),
            probe: groups,
            keys: pairs.collect(),
            ..(*self.join).clone()
        };
        let (input, keys) = (Plan::Join(Box::new(join)), self.keys.clone());
        match plan {
            Plan::GroupingSets(sets) => {
                let changed = GroupingSets { input, keys, aggregates, ..sets.as_ref().clone() };
                self.counted(Plan::GroupingSets(Box::new(changed)))
            }
            other => {
                let Plan::Aggregate { names, .. } = other else { return other.clone() };
                Plan::Aggregate { input: Box::new(input), keys, aggregates, names: names.clone() }
            }
        }
    }

    /// Counts are sums now, which are NULL where a set without keys has no rows.
    fn counted(&self, plan: Plan) -> Plan {
        let fields = plan.fields();
        let first = fields.len().saturating_sub(self.aggregates.len());
        let counts = |index: usize| {
            let aggregate = index.checked_sub(first).and_then(|number| self.aggregates.get(number));
            aggregate.is_some_and(|aggregate| aggregate.function == AggregateFunction::Count)
        };
        if !(0..fields.len()).any(counts) {
            return plan;
        }
        let names = fields.iter().map(|field| field.name.clone()).collect();
        let exprs = fields.into_iter().enumerate().map(|(index, field)| {
            let column = Expr::column(index, field.data_type.clone(), true);
            match counts(index) {
                true => {
                    let none = Expr::literal(Literal::Int(0), field.data_type.clone());
                    let kind = ExprKind::Function(Function::Coalesce, vec![column, none]);
                    Expr { kind, data_type: field.data_type, nullable: false }
                }
                false => Expr { nullable: field.nullable, ..column },
            }
        });
        Plan::Project { exprs: exprs.collect(), input: Box::new(plan), names }
    }
}

/// Whether a sum over at most so many rows may leave its type, which is an error then: those of other parts, or that it is not asked for,
/// would have kept it within.
fn part_may_overflow(sum: &Aggregate, range: &dyn Fn(usize) -> Option<Range>, rows: i128) -> bool {
    let is_sum = matches!(sum.function, AggregateFunction::Sum | AggregateFunction::SumExact);
    let data_type = &sum.field.data_type;
    let is_checked = matches!(data_type, DataType::Decimal128 { .. })
        || sum.function == AggregateFunction::SumExact && data_type.is_integer();
    if !is_sum || !is_checked {
        return false;
    }
    let limits = data_type.full_range();
    let values = sum.argument.as_ref().and_then(|argument| infer_range(argument, range));
    let (Some(limits), Some(values)) = (limits, values) else { return true };
    let least = values.min.min(0).checked_mul(rows);
    let greatest = values.max.max(0).checked_mul(rows);
    let total = least.zip(greatest).map(|(min, max)| Range { min, max });
    !total.is_some_and(|total| total.within(limits))
}

/// Whether below projections there is a join.
fn is_over_join(plan: &Plan) -> bool {
    match plan {
        Plan::Project { input, .. } => is_over_join(input),
        other => matches!(other, Plan::Join(_)),
    }
}

/// How many parts an expression has with others in the places of its columns.
fn parts_over(expr: &Expr, exprs: &[Expr]) -> usize {
    let of = |expr: &Expr| parts_over(expr, exprs);
    match expr.kind {
        ExprKind::Column(column) => exprs.get(column).map_or(1, |below| parts_over(below, &[])),
        _ => children(expr).into_iter().map(of).fold(1, usize::saturating_add),
    }
}

/// Whether a plan has every row of a table.
fn is_whole(plan: &Plan) -> bool {
    match plan {
        Plan::Scan(_) => true,
        Plan::Project { input, .. } => is_whole(input),
        _ => false,
    }
}

fn count_scans(plan: &Plan) -> usize {
    match plan {
        Plan::Scan(_) => 1,
        other => other.inputs().into_iter().map(count_scans).sum(),
    }
}

/// What is known of the column of a scan that a column of a plan is, and how many rows the scan has. `first`: the plan's first scan.
fn facts<'s>(
    plan: &Plan,
    column: usize,
    first: usize,
    scans: &'s [ScanInfo],
) -> Option<(&'s ColumnFacts, u64)> {
    match plan {
        Plan::Scan(_) => {
            let info = scans.get(first)?;
            Some((info.columns.get(column)?, info.rows))
        }
        Plan::Filter { input, .. } => facts(input, column, first, scans),
        Plan::Project { input, exprs, .. } => match &exprs.get(column)?.kind {
            ExprKind::Column(column) => facts(input, *column, first, scans),
            // An integer that is made wider is the same.
            ExprKind::Cast { input: narrow, .. } if is_widened(narrow, exprs.get(column)?) => {
                match narrow.kind {
                    ExprKind::Column(column) => facts(input, column, first, scans),
                    _ => None,
                }
            }
            _ => None,
        },
        Plan::Join(join) => {
            use JoinKind::*;
            let width = join.build.fields().len();
            let of_probe = first + count_scans(&join.build);
            match join.kind {
                Inner if column >= width => facts(&join.probe, column - width, of_probe, scans),
                ProbeSemi | ProbeAnti => facts(&join.probe, column, of_probe, scans),
                _ => None,
            }
        }
        _ => None,
    }
}

fn is_widened(narrow: &Expr, wide: &Expr) -> bool {
    let ranges = narrow.data_type.full_range().zip(wide.data_type.full_range());
    let are_integers = narrow.data_type.is_integer() && wide.data_type.is_integer();
    are_integers && ranges.is_some_and(|(from, to)| from.within(to))
}

/// How many values a key has, at most, where they are near each other.
fn value_count(facts: &ColumnFacts) -> Option<u64> {
    let width = |range: Range| u64::try_from(range.max.checked_sub(range.min)?.checked_add(2)?).ok();
    match facts.layout.storage {
        Storage::Dictionary { entries, .. } => Some(u64::from(entries) + 1),
        Storage::Fixed { .. } => facts.layout.range.and_then(width),
        Storage::Text { .. } => None,
    }
}
