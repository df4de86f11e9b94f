//! The aggregations that calls over sorted rows become: one for each order, and one for each mode, joined by the keys.

use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{
    Aggregate, AggregateFunction, Join, JoinKind, Plan, Rank, Ranked, RankedValue, SortKey,
};
use kelpie_compile::types::{DataType, Field, Literal};

use crate::translate::project_columns;

/// A call, translated.
pub(super) enum Call {
    /// It needs no order.
    Plain(Aggregate),
    Ranked(Vec<SortKey>, Box<RankedValue>),
    Mode(Mode),
}

/// The most frequent value of an argument.
pub(super) struct Mode {
    pub(super) argument: Expr,
    pub(super) field: Field,
}

/// Most orders of an aggregation: each reads the input again.
pub(super) const PASS_LIMIT: usize = 8;

/// One aggregation by the keys.
pub(super) enum Pass {
    /// Calls whose orders agree; the first such has those that need none too.
    Ordered(OrderedPass),
    Mode(Mode),
}

#[derive(Default)]
pub(super) struct OrderedPass {
    order: Vec<SortKey>,
    aggregates: Vec<Aggregate>,
    values: Vec<RankedValue>,
}

impl Pass {
    fn ordered(&mut self) -> Option<&mut OrderedPass> {
        match self {
            Pass::Ordered(pass) => Some(pass),
            Pass::Mode(_) => None,
        }
    }

    /// Columns before those of the values.
    fn aggregates(&self) -> usize {
        match self {
            Pass::Ordered(pass) => pass.aggregates.len(),
            Pass::Mode(_) => 0,
        }
    }

    fn plan(&self, input: &Plan, keys: &[Expr], names: &[String]) -> Plan {
        let names: Vec<String> = names.iter().take(keys.len()).cloned().collect();
        let (input, keys) = (input.clone(), keys.to_vec());
        match self {
            Pass::Ordered(OrderedPass { order, aggregates, values }) => Plan::Ranked(Box::new(Ranked {
                input,
                keys,
                order: order.clone(),
                aggregates: aggregates.clone(),
                values: values.clone(),
                names,
            })),
            Pass::Mode(mode) => mode.plan(input, keys, names),
        }
    }
}

impl Mode {
    /// Of the groups of its values and the keys, for each of the keys that which has most rows. NULLs have none that are counted.
    fn plan(&self, input: Plan, mut keys: Vec<Expr>, names: Vec<String>) -> Plan {
        let width = keys.len();
        keys.push(self.argument.clone());
        let value = Expr::column(width, self.argument.data_type.clone(), self.argument.nullable);
        let field = Field { name: String::new(), data_type: DataType::Int64, nullable: false };
        let counted = Aggregate {
            function: AggregateFunction::Count,
            argument: Some(self.argument.clone()),
            distinct: false,
            field,
        };
        let groups = Plan::Aggregate {
            input: Box::new(input),
            names: vec![String::new(); width + 2],
            keys: keys.clone(),
            aggregates: vec![counted],
        };
        let rows = Expr::column(width + 1, DataType::Int64, false);
        let order = vec![
            SortKey { expr: rows, descending: true, nulls_first: false },
            SortKey { expr: value.clone(), descending: false, nulls_first: false },
        ];
        let keys = keys.iter().take(width).enumerate().map(|(place, key)| column(place, key)).collect();
        let rank = Rank::FromFirst(integer(0));
        let first = RankedValue { rank, argument: value, counted: None, field: self.field.clone() };
        Plan::Ranked(Box::new(Ranked {
            input: groups,
            keys,
            order,
            aggregates: Vec::new(),
            values: vec![first],
            names,
        }))
    }
}

/// Where a call's result is: the pass, and its number among the pass's aggregates or values.
pub(super) enum CallPlace {
    Plain(usize),
    Ranked(usize, usize),
}

/// The calls by their orders.
pub(super) fn passes(calls: Vec<Call>) -> (Vec<Pass>, Vec<CallPlace>) {
    let mut passes: Vec<Pass> = Vec::new();
    let mut plain = Vec::new();
    let mut places = Vec::new();
    for call in calls {
        match call {
            Call::Plain(aggregate) => {
                places.push(CallPlace::Plain(plain.len()));
                plain.push(aggregate);
            }
            Call::Mode(mode) => {
                places.push(CallPlace::Ranked(passes.len(), 0));
                passes.push(Pass::Mode(mode));
            }
            Call::Ranked(own, value) => {
                let pass = pass_of(&own, &mut passes);
                let Some(found) = passes.get_mut(pass).and_then(Pass::ordered) else { continue };
                places.push(CallPlace::Ranked(pass, found.values.len()));
                found.values.push(*value);
                if own.len() > found.order.len() {
                    found.order = own;
                }
            }
        }
    }
    if !plain.is_empty() {
        let first = passes.iter_mut().find_map(Pass::ordered);
        match first {
            Some(first) => first.aggregates = plain,
            None => passes.push(Pass::Ordered(OrderedPass { aggregates: plain, ..OrderedPass::default() })),
        }
    }
    (passes, places)
}

/// The pass that has an order, or will do for it: a new one where there is none.
fn pass_of(own: &[SortKey], passes: &mut Vec<Pass>) -> usize {
    // Rows that an order does not tell apart may be in any: the longer of two will do for both.
    let agree = |pass: &mut Pass| {
        pass.ordered().is_some_and(|pass| {
            let same = own.starts_with(&pass.order) || pass.order.starts_with(own);
            // No order is that of the input.
            same && own.is_empty() == pass.order.is_empty()
        })
    };
    passes.iter_mut().position(agree).unwrap_or_else(|| {
        passes.push(Pass::Ordered(OrderedPass::default()));
        passes.len() - 1
    })
}

/// An aggregation by keys: its passes side by side.
pub(super) fn joined(
    input: &Plan,
    keys: Vec<Expr>,
    names: Vec<String>,
    (passes, places): (&[Pass], &[CallPlace]),
) -> Option<Plan> {
    let width = keys.len();
    let mut all: Option<Plan> = None;
    // Where the columns of each pass begin.
    let mut starts = Vec::new();
    for pass in passes {
        let pass = pass.plan(input, &keys, &names);
        starts.push(all.as_ref().map_or(0, |before| before.fields().len()));
        all = Some(match all {
            None => pass,
            Some(build) => Plan::Join(Box::new(Join {
                build,
                probe: pass,
                kind: JoinKind::Inner,
                keys: keys
                    .iter()
                    .enumerate()
                    .map(|(place, key)| (column(place, key), column(place, key)))
                    .collect(),
                residual: None,
                null_equal: true,
                null_aware: false,
            })),
        });
    }
    let place = |place: &CallPlace| match place {
        CallPlace::Plain(number) => {
            let pass = passes.iter().position(|pass| pass.aggregates() > 0)?;
            Some(starts.get(pass)? + width + number)
        }
        CallPlace::Ranked(pass, number) => {
            Some(starts.get(*pass)? + width + passes.get(*pass)?.aggregates() + number)
        }
    };
    let columns = (0..width).map(Some).chain(places.iter().map(place)).collect::<Option<Vec<usize>>>()?;
    match project_columns(all?, &columns)? {
        Plan::Project { input, exprs, .. } => Some(Plan::Project { input, exprs, names }),
        plan => Some(plan),
    }
}

fn column(place: usize, key: &Expr) -> Expr {
    Expr::column(place, key.data_type.clone(), key.nullable)
}

pub(super) fn integer(value: i128) -> Expr {
    Expr::literal(Literal::Int(value), DataType::Int64)
}
