//! Facts about expressions: ranges, errors, cost.

use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind};
use kelpie_compile::lower::{can_fail, check, facts};
use kelpie_compile::types::{DataType, Literal, Range};

fn decimal(precision: u8, scale: i8) -> DataType {
    DataType::Decimal128 { precision, scale }
}

fn arithmetic(op: ArithmeticOp, a: Expr, b: Expr, data_type: DataType) -> Expr {
    Expr { kind: ExprKind::Arithmetic(op, Box::new(a), Box::new(b)), data_type, nullable: true }
}

/// `l_extendedprice * (1 - l_discount)` of TPC-H.
fn discounted_price() -> Expr {
    let price = Expr::column(0, decimal(15, 2), false);
    let discount = Expr::column(1, decimal(15, 2), false);
    let one = Expr::literal(Literal::Int(1), decimal(20, 0));
    let rest = arithmetic(ArithmeticOp::Subtract, one, discount, decimal(23, 2));
    arithmetic(ArithmeticOp::Multiply, price, rest, decimal(38, 4))
}

#[test]
fn ranges_prove_decimals_safe() {
    let ranges = |column: usize| Some([Range::new(90_100, 10_494_950), Range::new(0, 10)][column]);
    let found = facts(&discounted_price(), &ranges).expect("compiles");
    assert!(!found.can_fail && found.cheap, "{found:?}");
    let range = found.range.expect("a range");
    assert!(range.within(Range::new(i64::MIN, i64::MAX)), "{range:?}");
    // By type alone the product needs 128 bits, but it still cannot overflow.
    assert!(!can_fail(&discounted_price(), &|_| None));
}

#[test]
fn division_can_fail_unless_the_divisor_is_proven() {
    let x = || Expr::column(0, DataType::Int64, true);
    let by = |divisor| arithmetic(ArithmeticOp::Divide, x(), divisor, DataType::Int64);
    let literal = |value| Expr::literal(Literal::Int(value), DataType::Int64);
    assert!(can_fail(&by(x()), &|_| None));
    assert!(can_fail(&by(literal(0)), &|_| None));
    assert!(!can_fail(&by(literal(7)), &|_| None));
    assert!(can_fail(&by(literal(-1)), &|_| None), "MIN / -1");
    assert!(!can_fail(&by(literal(-1)), &|_| Some(Range::new(-5, 5))));
}

#[test]
fn similar_literals_have_one_class() {
    let sum = |value| {
        let literal = Expr::literal(Literal::Int(value), DataType::Int64);
        arithmetic(ArithmeticOp::Add, Expr::column(0, DataType::Int64, false), literal, DataType::Int64)
    };
    let range = |value| facts(&sum(value), &|_| Some(Range::new(0, 9))).expect("compiles").range;
    assert_eq!(range(3), range(100));
    assert_eq!(range(10_000), range(300));
    assert_ne!(range(3), range(300));
}

#[test]
fn every_reason_is_given() {
    let interval = || Expr::column(0, DataType::Interval, true);
    let compare = Expr {
        kind: ExprKind::Compare(CompareOp::Eq, Box::new(interval()), Box::new(interval())),
        data_type: DataType::Boolean,
        nullable: true,
    };
    let sum = arithmetic(
        ArithmeticOp::Add,
        Expr::column(0, DataType::Utf8, true),
        Expr::column(0, DataType::Utf8, true),
        DataType::Utf8,
    );
    let both = Expr {
        kind: ExprKind::And(Box::new(compare), Box::new(sum)),
        data_type: DataType::Boolean,
        nullable: true,
    };
    let mut reasons = Vec::new();
    check(&both, &mut reasons);
    assert!(reasons.iter().any(|reason| reason.contains("intervals")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("Utf8 + Utf8")), "{reasons:?}");
    let mut deep = Expr::column(0, DataType::Boolean, true);
    for _ in 0..200 {
        deep = Expr { kind: ExprKind::Not(Box::new(deep)), data_type: DataType::Boolean, nullable: true };
    }
    reasons.clear();
    check(&deep, &mut reasons);
    assert_eq!(reasons, ["expression is nested deeper than 128"]);
    // A long chain is no deep nesting.
    let column = || Expr::column(0, DataType::Boolean, true);
    let mut long = column();
    for _ in 0..2000 {
        long = Expr {
            kind: ExprKind::Or(Box::new(long), Box::new(column())),
            data_type: DataType::Boolean,
            nullable: true,
        };
    }
    reasons.clear();
    check(&long, &mut reasons);
    assert!(reasons.is_empty(), "{reasons:?}");
    assert!(!can_fail(&long, &|_| None));
}

/// What is yet to become a column of a table has a number beyond all columns.
#[test]
fn a_column_of_any_number_is_checked() {
    let mut reasons = Vec::new();
    let column = Expr::column(usize::MAX - 1, DataType::Int64, true);
    check(&column, &mut reasons);
    check(&arithmetic(ArithmeticOp::Add, column.clone(), column, DataType::Int64), &mut reasons);
    assert!(reasons.is_empty(), "{reasons:?}");
}
