//! What is cut where a stage is made in parts: an operator of its plan, by a hash of its keys. All that is above this operator is run for
//! each part, and the rows of all parts are the plan's, or become them.

use std::convert::Infallible;

use kelpie_compile::expr::{ArithmeticOp, Expr, ExprKind, Function};
use kelpie_compile::plan::{Aggregate, AggregateFunction, JoinKind, Plan};
use kelpie_compile::types::{DataType, Field, Literal};

/// A plan, and the operator in it whose inputs are cut into parts.
#[derive(Debug, Clone)]
pub(super) struct Parted<'p> {
    plan: &'p Plan,
    /// The way from the plan to the operator: of each plan on it the number of the input.
    path: Vec<usize>,
    /// Of each input of the operator.
    keys: Vec<Vec<Expr>>,
}

impl<'p> Parted<'p> {
    /// Every operator of a plan that can be cut, the plan itself first and what is nearer to it before what is below.
    pub(super) fn all(plan: &'p Plan) -> Vec<Parted<'p>> {
        let mut found = Vec::new();
        search(plan, plan, &mut Vec::new(), &mut found);
        // What is above an operator's parts may be aggregated or sorted as long as its own parts can be brought together.
        let below = plan.inputs().into_iter().filter(|_| merges(plan));
        below.for_each(|input| search(plan, input, &mut vec![0], &mut found));
        found
    }

    /// Whether it is the plan itself that is cut.
    pub(super) fn is_itself(&self) -> bool {
        self.path.is_empty()
    }

    /// Whether there is nothing but filters and projections between the top of the plan and the operator: then the parts of its inputs are
    /// all that a part of the plan reads.
    pub(super) fn reads_parts_alone(&self) -> bool {
        let mut plan = self.plan;
        self.path.iter().all(|number| {
            let inputs = plan.inputs();
            let is_only = inputs.len() == 1;
            plan = inputs.get(*number).copied().unwrap_or(plan);
            is_only
        })
    }

    /// The operator that is cut.
    pub(super) fn operator(&self) -> &'p Plan {
        self.path.iter().fold(self.plan, |plan, number| plan.inputs().get(*number).copied().unwrap_or(plan))
    }

    /// The keys by which each of the operator's inputs is cut.
    pub(super) fn keys(&self) -> &[Vec<Expr>] {
        &self.keys
    }

    /// What is run of a part, where the operator has these inputs.
    pub(super) fn over(&self, inputs: Vec<Plan>) -> Plan {
        let plan = with_inputs_at(self.plan, &self.path, &mut inputs.into_iter());
        match (&plan, self.is_itself()) {
            (Plan::Aggregate { input, keys, aggregates, .. }, false) => {
                part_of_groups(input, keys, aggregates)
            }
            _ => plan,
        }
    }

    /// The plan over the rows of all parts; `None` where they are the plan's rows.
    pub(super) fn over_all(&self, rows: Plan) -> Option<Plan> {
        match self.plan {
            _ if self.is_itself() => None,
            Plan::Aggregate { keys, aggregates, .. } => {
                let names = self.plan.fields().into_iter().map(|field| field.name).collect();
                Some(all_groups(rows, (keys.len(), aggregates), names))
            }
            Plan::Sort { keys, fetch, .. } => {
                Some(Plan::Sort { input: Box::new(rows), keys: keys.clone(), fetch: *fetch })
            }
            _ => None,
        }
    }
}

/// Finds the operators in a plan that can be cut, and whose parts are cut by it too: it does to a row what it does whatever other rows there are.
fn search<'p>(whole: &'p Plan, plan: &'p Plan, path: &mut Vec<usize>, found: &mut Vec<Parted<'p>>) {
    if let Some(keys) = part_keys(plan) {
        found.push(Parted { plan: whole, path: path.clone(), keys });
    }
    for (number, input) in plan.inputs().into_iter().enumerate() {
        if takes_rows_alone(plan, number) {
            path.push(number);
            search(whole, input, path, found);
            path.pop();
        }
    }
}

/// The keys by which a plan's inputs can be cut, so that its rows are those of all parts.
fn part_keys(plan: &Plan) -> Option<Vec<Vec<Expr>>> {
    match plan {
        Plan::Aggregate { keys, .. } if !keys.is_empty() => Some(vec![keys.clone()]),
        Plan::Ranked(ranked) if !ranked.keys.is_empty() => Some(vec![ranked.keys.clone()]),
        Plan::Window(window) => Some(vec![window.common_keys()]).filter(|keys| !keys[0].is_empty()),
        Plan::Join(join) if !join.keys.is_empty() && !join.null_aware => {
            let (build, probe) = join.keys.iter().cloned().unzip();
            Some(vec![build, probe])
        }
        _ => None,
    }
}

/// Whether what becomes of a row of an input does not depend on the input's other rows.
fn takes_rows_alone(plan: &Plan, input: usize) -> bool {
    use JoinKind::*;
    match plan {
        Plan::Filter { .. } | Plan::Project { .. } => true,
        Plan::Join(join) if input == 0 => {
            matches!(join.kind, Inner | BuildOuter | BuildSemi | BuildAnti | BuildMark)
        }
        Plan::Join(join) => matches!(join.kind, Inner | ProbeOuter | ProbeSemi | ProbeAnti | ProbeMark),
        _ => false,
    }
}

/// Whether a plan's rows can be made of what it gives for parts of its input.
fn merges(plan: &Plan) -> bool {
    match plan {
        Plan::Aggregate { aggregates, .. } => aggregates.iter().all(|one| parts_of(one).is_some()),
        Plan::Sort { fetch, .. } => fetch.is_some(),
        _ => false,
    }
}

/// A plan with other inputs of the operator at the end of a path.
fn with_inputs_at(plan: &Plan, path: &[usize], inputs: &mut dyn Iterator<Item = Plan>) -> Plan {
    let mut number = 0..;
    let Ok(changed) = plan.map_inputs::<Infallible>(&mut |input| {
        let number = number.next();
        Ok(match path.split_first() {
            None => inputs.next().unwrap_or_else(|| input.clone()),
            Some((next, path)) if number == Some(*next) => with_inputs_at(input, path, inputs),
            Some(_) => input.clone(),
        })
    });
    changed
}

/// The aggregates of a part that an aggregate is made of; `None` where that is not possible.
fn parts_of(aggregate: &Aggregate) -> Option<Vec<Aggregate>> {
    if aggregate.distinct {
        return None;
    }
    if aggregate.function != AggregateFunction::Avg {
        return aggregate.function.of_parts().map(|_| vec![aggregate.clone()]);
    }
    let is_float = |data_type: &DataType| *data_type == DataType::Float64;
    let argument = aggregate.argument.as_ref().filter(|argument| is_float(&argument.data_type))?;
    let of = |function, name: &str, data_type, nullable| Aggregate {
        function,
        argument: Some(argument.clone()),
        distinct: false,
        field: Field { name: format!("{name} of {}", aggregate.field.name), data_type, nullable },
    };
    let (sum, count) = (AggregateFunction::Sum, AggregateFunction::Count);
    let parts = || vec![of(sum, "sum", DataType::Float64, true), of(count, "count", DataType::Int64, false)];
    is_float(&aggregate.field.data_type).then(parts)
}

/// The groups of a part.
fn part_of_groups(input: &Plan, keys: &[Expr], aggregates: &[Aggregate]) -> Plan {
    let aggregates: Vec<Aggregate> = aggregates.iter().filter_map(parts_of).flatten().collect();
    let names = (0..keys.len()).map(|number| format!("key_{number}")).collect();
    Plan::Aggregate { input: Box::new(input.clone()), keys: keys.to_vec(), aggregates, names }
}

/// Groups, of those of all parts: so many keys, and these aggregates.
fn all_groups(rows: Plan, (keys, aggregates): (usize, &[Aggregate]), names: Vec<String>) -> Plan {
    let column = |index: usize, field: &Field| Expr::column(index, field.data_type.clone(), field.nullable);
    let fields = rows.fields();
    let parts: Vec<Vec<Aggregate>> = aggregates.iter().filter_map(parts_of).collect();
    let of_parts = |(index, field): (usize, &Field), part: &Aggregate| Aggregate {
        function: part.function.of_parts().unwrap_or(part.function),
        argument: Some(column(index, field)),
        distinct: false,
        // Where there is no part, there is no count.
        field: Field { nullable: true, ..part.field.clone() },
    };
    let columns = fields.iter().enumerate();
    let merged = columns.clone().skip(keys).zip(parts.iter().flatten());
    let merged: Vec<Aggregate> = merged.map(|(field, part)| of_parts(field, part)).collect();
    let groups = Plan::Aggregate {
        keys: columns.take(keys).map(|(index, field)| column(index, field)).collect(),
        aggregates: merged,
        names: fields.iter().take(keys).map(|field| field.name.clone()).collect(),
        input: Box::new(rows),
    };
    let fields = groups.fields();
    let mut exprs: Vec<Expr> =
        fields.iter().enumerate().take(keys).map(|(index, field)| column(index, field)).collect();
    let mut first = keys;
    for (aggregate, parts) in aggregates.iter().zip(&parts) {
        let of_all: Vec<Expr> =
            fields.iter().enumerate().skip(first).take(parts.len()).map(|(i, f)| column(i, f)).collect();
        exprs.push(whole(aggregate, of_all));
        first += parts.len();
    }
    Plan::Project { input: Box::new(groups), exprs, names }
}

/// An aggregate, made of what its parts add up to.
fn whole(aggregate: &Aggregate, mut of_all: Vec<Expr>) -> Expr {
    let (data_type, nullable) = (aggregate.field.data_type.clone(), aggregate.field.nullable);
    let kind = match (aggregate.function, of_all.pop(), of_all.pop()) {
        (AggregateFunction::Count, Some(count), _) => {
            let none = Expr::literal(Literal::Int(0), data_type.clone());
            ExprKind::Function(Function::Coalesce, vec![count, none])
        }
        (AggregateFunction::Avg, Some(count), Some(sum)) => {
            let kind = ExprKind::Cast { input: Box::new(count), safe: false };
            let count = Expr { kind, data_type: data_type.clone(), nullable: true };
            ExprKind::Arithmetic(ArithmeticOp::Divide, Box::new(sum), Box::new(count))
        }
        (_, Some(value), _) => value.kind,
        (_, None, _) => ExprKind::Literal(Literal::Null),
    };
    Expr { kind, data_type, nullable }
}
