//! Expressions, aggregates and operators of plans.

use super::*;

/// A column of a plan's rows.
pub fn column(plan: &Plan, index: usize) -> Expr {
    let field = &plan.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

/// A constant whose values are integers inside.
pub fn literal(value: impl Into<i128>, data_type: DataType) -> Expr {
    Expr::literal(Literal::Int(value.into()), data_type)
}

/// An integer of 64 bits.
pub fn int(value: impl Into<i128>) -> Expr {
    literal(value, DataType::Int64)
}

pub fn text_literal(text: &str) -> Expr {
    Expr::literal(Literal::Utf8(text.into()), DataType::Utf8)
}

pub fn boolean(kind: ExprKind, nullable: bool) -> Expr {
    Expr { kind, data_type: DataType::Boolean, nullable }
}

pub fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    boolean(ExprKind::Compare(op, Box::new(left), Box::new(right)), nullable)
}

/// A comparison with a constant of the same type.
pub fn compare_with(op: CompareOp, expr: Expr, value: impl Into<i128>) -> Expr {
    let literal = literal(value, expr.data_type.clone());
    compare(op, expr, literal)
}

pub fn and(left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    boolean(ExprKind::And(Box::new(left), Box::new(right)), nullable)
}

pub fn all(conditions: impl IntoIterator<Item = Expr>) -> Expr {
    conditions.into_iter().reduce(and).expect("conditions")
}

pub fn not(input: Expr) -> Expr {
    boolean(ExprKind::Not(Box::new(input)), true)
}

/// Arithmetic on two values of the left one's type.
pub fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let (data_type, nullable) = (left.data_type.clone(), left.nullable || right.nullable);
    Expr { kind: ExprKind::Arithmetic(op, Box::new(left), Box::new(right)), data_type, nullable }
}

pub fn cast(input: Expr, data_type: DataType) -> Expr {
    let nullable = input.nullable;
    Expr { kind: ExprKind::Cast { input: Box::new(input), safe: false }, data_type, nullable }
}

pub fn call(function: Function, arguments: Vec<Expr>, data_type: DataType) -> Expr {
    let nullable = arguments.iter().any(|argument| argument.nullable);
    Expr { kind: ExprKind::Function(function, arguments), data_type, nullable }
}

/// `CASE WHEN condition THEN value END`: the argument of an aggregate with a FILTER.
pub fn value_where(condition: Expr, value: Expr) -> Expr {
    let data_type = value.data_type.clone();
    let kind = ExprKind::Case { branches: vec![(condition, value)], otherwise: None };
    Expr { kind, data_type, nullable: true }
}

/// An aggregate without DISTINCT.
pub fn of(function: AggregateFunction, argument: Option<Expr>, data_type: DataType) -> Aggregate {
    let field = Field { name: format!("{function:?}"), data_type, nullable: true };
    Aggregate { function, argument, distinct: false, field }
}

/// An aggregate of integers.
pub fn of_longs(function: AggregateFunction, argument: Option<Expr>) -> Aggregate {
    of(function, argument, DataType::Int64)
}

pub fn distinct(aggregate: Aggregate) -> Aggregate {
    Aggregate { distinct: true, ..aggregate }
}

pub fn groups_of(input: Plan, keys: Vec<Expr>, aggregates: Vec<Aggregate>) -> Plan {
    let names = (0..keys.len()).map(|key| format!("k{key}")).collect();
    Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
}

/// The rows for which a condition holds.
pub fn keep(input: Plan, predicate: Expr) -> Plan {
    Plan::Filter { input: Box::new(input), predicate }
}

/// Values that are computed of rows.
pub fn values_of(input: Plan, exprs: Vec<Expr>) -> Plan {
    let names = (0..exprs.len()).map(|index| format!("c{index}")).collect();
    Plan::Project { input: Box::new(input), exprs, names }
}

pub fn sort_key(expr: Expr, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { expr, descending, nulls_first }
}

pub fn sorted(input: Plan, keys: Vec<SortKey>, fetch: Option<usize>) -> Plan {
    Plan::Sort { input: Box::new(input), keys, fetch }
}

pub fn limit(input: Plan, skip: usize, fetch: Option<usize>) -> Plan {
    Plan::Limit { input: Box::new(input), skip, fetch }
}

/// A join by pairs of keys alone.
pub fn join_of(kind: JoinKind, build: Plan, probe: Plan, keys: Vec<(Expr, Expr)>) -> Join {
    Join { build, probe, kind, keys, residual: None, null_equal: false, null_aware: false }
}
