//! Short constructors of expressions.

use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function};
use kelpie_compile::types::{DataType, Literal, TimeUnit};

pub use DataType::*;

pub fn decimal(precision: u8, scale: i8) -> DataType {
    Decimal128 { precision, scale }
}

pub fn timestamp(unit: TimeUnit) -> DataType {
    Timestamp { unit, timezone: None }
}

pub fn make(kind: ExprKind, data_type: DataType) -> Expr {
    Expr { kind, data_type, nullable: true }
}

pub fn col(index: usize, data_type: DataType) -> Expr {
    Expr::column(index, data_type, true)
}

pub fn int(value: i128, data_type: DataType) -> Expr {
    Expr::literal(Literal::Int(value), data_type)
}

pub fn number(value: f64) -> Expr {
    Expr::literal(Literal::Float(value), Float64)
}

pub fn string(value: &str) -> Expr {
    Expr::literal(Literal::Utf8(value.into()), Utf8)
}

pub fn null(data_type: DataType) -> Expr {
    Expr::literal(Literal::Null, data_type)
}

pub fn arithmetic(op: ArithmeticOp, a: Expr, b: Expr, data_type: DataType) -> Expr {
    make(ExprKind::Arithmetic(op, Box::new(a), Box::new(b)), data_type)
}

pub fn compare(op: CompareOp, a: Expr, b: Expr) -> Expr {
    make(ExprKind::Compare(op, Box::new(a), Box::new(b)), Boolean)
}

pub fn and(a: Expr, b: Expr) -> Expr {
    make(ExprKind::And(Box::new(a), Box::new(b)), Boolean)
}

pub fn or(a: Expr, b: Expr) -> Expr {
    make(ExprKind::Or(Box::new(a), Box::new(b)), Boolean)
}

pub fn call(function: Function, arguments: Vec<Expr>, data_type: DataType) -> Expr {
    make(ExprKind::Function(function, arguments), data_type)
}

pub fn cast(input: Expr, data_type: DataType) -> Expr {
    make(ExprKind::Cast { input: Box::new(input), safe: false }, data_type)
}

pub fn try_cast(input: Expr, data_type: DataType) -> Expr {
    make(ExprKind::Cast { input: Box::new(input), safe: true }, data_type)
}
