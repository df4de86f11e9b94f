//! Three-valued logic, comparisons, CASE and its relatives, IN.

use kelpie_compile::context::Status::DivideByZero;
use kelpie_compile::expr::ArithmeticOp::Divide;
use kelpie_compile::expr::CompareOp::*;
use kelpie_compile::expr::{Expr, ExprKind, Function};
use kelpie_compile::types::{DataType, Literal};

use crate::build::*;
use crate::harness::{NULL, Value, check, check_one, check_over};

const TRUTHS: [Option<bool>; 3] = [Some(true), Some(false), None];

fn pairs(result: impl Fn(Option<bool>, Option<bool>) -> Option<bool>) -> Vec<(Vec<Value>, Value)> {
    let all = TRUTHS.iter().flat_map(|&a| TRUTHS.iter().map(move |&b| (a, b)));
    all.map(|(a, b)| (vec![a.into(), b.into()], result(a, b).into())).collect()
}

fn kleene_and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn kleene_or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    kleene_and(a.map(|a| !a), b.map(|b| !b)).map(|result| !result)
}

/// 10 / x > 0: fails where x is 0, NULL where x is NULL.
fn risky(column: usize) -> Expr {
    let quotient = arithmetic(Divide, int(10, Int64), col(column, Int64), Int64);
    compare(Gt, quotient, int(0, Int64))
}

#[test]
fn connectives_are_kleene() {
    let (a, b) = (|| col(0, Boolean), || col(1, Boolean));
    check(&and(a(), b()), &pairs(kleene_and));
    check(&or(a(), b()), &pairs(kleene_or));
    let not = make(ExprKind::Not(Box::new(a())), Boolean);
    check_one(&not, vec![(true.into(), false.into()), (false.into(), true.into()), (NULL, NULL)]);
    let is_null = make(ExprKind::IsNull(Box::new(a())), Boolean);
    check_one(&is_null, vec![(true.into(), false.into()), (NULL, true.into())]);
    let is_not_null = make(ExprKind::IsNotNull(Box::new(a())), Boolean);
    check_one(&is_not_null, vec![(true.into(), true.into()), (NULL, false.into())]);
    let literal = |value| Expr::literal(Literal::Boolean(value), Boolean);
    check_one(
        &and(literal(true), a()),
        vec![(true.into(), true.into()), (false.into(), false.into()), (NULL, NULL)],
    );
    check_one(&or(a(), literal(false)), vec![(true.into(), true.into()), (NULL, NULL)]);
    let with_null = and(a(), null(Boolean));
    check_one(&with_null, vec![(true.into(), NULL), (false.into(), false.into()), (NULL, NULL)]);
}

/// 1 where the condition is TRUE, else 0.
fn whether(condition: Expr) -> Expr {
    let branches = vec![(condition, int(1, Int64))];
    make(ExprKind::Case { branches, otherwise: Some(Box::new(int(0, Int64))) }, Int64)
}

#[test]
fn conditions_are_true_or_not() {
    let number = |result: Option<bool>| Value::from(i64::from(result == Some(true)));
    let rows = |result: fn(Option<bool>, Option<bool>) -> Option<bool>| {
        let all = TRUTHS.iter().flat_map(|&a| TRUTHS.iter().map(move |&b| (a, b)));
        all.map(|(a, b)| (vec![a.into(), b.into()], number(result(a, b)))).collect::<Vec<_>>()
    };
    check(&whether(and(col(0, Boolean), col(1, Boolean))), &rows(kleene_and));
    check(&whether(or(col(0, Boolean), col(1, Boolean))), &rows(kleene_or));
    let guarded = and(compare(Ne, col(0, Int64), int(0, Int64)), risky(0));
    check_one(&whether(guarded), vec![(0.into(), 0.into()), (5.into(), 1.into()), (NULL, 0.into())]);
    let guarded = or(compare(Eq, col(0, Int64), int(0, Int64)), risky(0));
    check_one(&whether(guarded), vec![(0.into(), 1.into()), ((-5).into(), 0.into()), (NULL, 0.into())]);
    // NULL AND (fails) is not TRUE whatever the right side: it is not evaluated.
    let guarded = and(compare(Ne, col(0, Int64), int(0, Int64)), risky(1));
    check(&whether(guarded), &[(vec![NULL, 0.into()], 0.into()), (vec![1.into(), 2.into()], 1.into())]);
}

#[test]
fn what_fails_is_evaluated_only_where_needed() {
    let guarded = and(compare(Ne, col(0, Int64), int(0, Int64)), risky(0));
    let rows = vec![
        (0.into(), false.into()),
        (5.into(), true.into()),
        ((-5).into(), false.into()),
        (20.into(), false.into()),
        (NULL, NULL),
    ];
    check_one(&guarded, rows);
    let guarded = or(compare(Eq, col(0, Int64), int(0, Int64)), risky(0));
    check_one(&guarded, vec![(0.into(), true.into()), (5.into(), true.into()), ((-5).into(), false.into())]);
    // A condition that is NULL decides nothing.
    let guarded = and(compare(Ne, col(0, Int64), int(0, Int64)), risky(1));
    check(
        &guarded,
        &[
            (vec![NULL, 0.into()], DivideByZero.into()),
            (vec![NULL, 5.into()], NULL),
            (vec![NULL, (-5).into()], false.into()),
            (vec![0.into(), 0.into()], false.into()),
            (vec![1.into(), 0.into()], DivideByZero.into()),
        ],
    );
}

#[test]
fn projections_that_fail_are_evaluated_only_where_needed() {
    let quotient = arithmetic(Divide, int(10, Int64), col(0, Int64), Int64);
    let projection = [col(0, Int64), quotient];
    let guarded = and(compare(Ne, col(0, Int64), int(0, Int64)), compare(Gt, col(1, Int64), int(1, Int64)));
    let row = |x: i64, expected: Value| (vec![x.into()], expected);
    check_over(
        Some(&projection),
        &guarded,
        &[row(0, false.into()), row(5, true.into()), row(10, false.into())],
    );
    let unguarded = compare(Gt, col(1, Int64), int(1, Int64));
    check_over(Some(&projection), &unguarded, &[row(0, DivideByZero.into()), row(5, true.into())]);
    // Once computed, a column is not computed again.
    let twice = and(compare(Gt, col(1, Int64), int(1, Int64)), compare(Lt, col(1, Int64), int(4, Int64)));
    check_over(
        Some(&projection),
        &twice,
        &[row(5, true.into()), row(2, false.into()), row(10, false.into())],
    );
}

#[test]
fn integers_compare_across_registers() {
    let less = |ty: DataType, literal| compare(Lt, col(0, ty.clone()), int(literal, ty));
    check_one(
        &less(Int64, 1 << 40),
        vec![((1i64 << 40).into(), false.into()), (0.into(), true.into()), (NULL, NULL)],
    );
    check_one(
        &less(UInt64, 1 << 63),
        vec![(Value::Int(1 << 63), false.into()), (Value::Int((1 << 63) - 1), true.into())],
    );
    check_one(&less(Int8, -100), vec![((-128).into(), true.into()), (127.into(), false.into())]);
    check_one(
        &less(decimal(38, 0), 10i128.pow(37)),
        vec![(Value::Int(10i128.pow(38) - 1), false.into()), (5.into(), true.into())],
    );
    let flipped = compare(Ge, int(5, Date32), col(0, Date32));
    check_one(&flipped, vec![(5.into(), true.into()), (6.into(), false.into()), ((-7).into(), true.into())]);
    let both = compare(Le, col(0, Int64), col(1, Int64));
    check(&both, &[(vec![i64::MIN.into(), 1.into()], true.into()), (vec![1.into(), NULL], NULL)]);
    let booleans = compare(Lt, col(0, Boolean), col(1, Boolean));
    check(&booleans, &pairs(|a, b| Some(!a? & b?)));
}

#[test]
fn floats_compare_in_total_order_with_equal_zeros() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let order = [-nan, -inf, -1.5, -0.0, f64::MIN_POSITIVE, 2.0, inf, nan];
    for (op, test) in [
        (Lt, (|a, b| a < b) as fn(usize, usize) -> bool),
        (Le, |a, b| a <= b),
        (Eq, |a, b| a == b),
        (Ne, |a, b| a != b),
        (Gt, |a, b| a > b),
        (Ge, |a, b| a >= b),
    ] {
        let mut rows = Vec::new();
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                rows.push((vec![(*a).into(), (*b).into()], test(i, j).into()));
            }
            rows.push((vec![(*a).into(), NULL], NULL));
        }
        rows.push((vec![0.0.into(), (-0.0).into()], test(0, 0).into()));
        check(&compare(op, col(0, Float64), col(1, Float64)), &rows);
        check(&compare(op, col(0, Float32), col(1, Float32)), &rows[rows.len() - 1..]);
    }
}

#[test]
fn distinct() {
    let distinct = |negated| {
        make(ExprKind::Distinct(negated, Box::new(col(0, Int32)), Box::new(col(1, Int32))), Boolean)
    };
    let rows = |same: bool| {
        vec![
            (vec![1.into(), 1.into()], same.into()),
            (vec![1.into(), 2.into()], (!same).into()),
            (vec![1.into(), NULL], (!same).into()),
            (vec![NULL, NULL], same.into()),
        ]
    };
    check(&distinct(true), &rows(true));
    check(&distinct(false), &rows(false));
    let from_null = make(ExprKind::Distinct(false, Box::new(col(0, Int32)), Box::new(null(Int32))), Boolean);
    check_one(&from_null, vec![(1.into(), true.into()), (NULL, false.into())]);
}

#[test]
fn case() {
    let branch = |value, result: i128| (compare(Eq, col(0, Int64), int(value, Int64)), int(result, Int64));
    let plain =
        make(ExprKind::Case { branches: vec![branch(1, 10), branch(2, 1 << 40)], otherwise: None }, Int64);
    check_one(
        &plain,
        vec![(1.into(), 10.into()), (2.into(), (1i64 << 40).into()), (3.into(), NULL), (NULL, NULL)],
    );
    let quotient = arithmetic(Divide, int(10, Int64), col(0, Int64), Int64);
    let zero = compare(Eq, col(0, Int64), int(0, Int64));
    let guarded = make(
        ExprKind::Case {
            branches: vec![(zero, int(-1, Int64))],
            otherwise: Some(Box::new(quotient.clone())),
        },
        Int64,
    );
    check_one(&guarded, vec![(0.into(), (-1).into()), (5.into(), 2.into()), (NULL, NULL)]);
    let texts = make(
        ExprKind::Case {
            branches: vec![
                (compare(Eq, col(0, Utf8), string("a")), string("first")),
                (risky(1), col(0, Utf8)),
            ],
            otherwise: None,
        },
        Utf8,
    );
    check(
        &texts,
        &[
            (vec!["a".into(), 0.into()], "first".into()),
            (vec!["bcd".into(), 1.into()], "bcd".into()),
            (vec!["bcd".into(), (-1).into()], NULL),
            (vec!["bcd".into(), 0.into()], DivideByZero.into()),
            (vec![NULL, 1.into()], NULL),
        ],
    );
    let floats = make(
        ExprKind::Case {
            branches: vec![(col(0, Boolean), number(1.5))],
            otherwise: Some(Box::new(null(Float64))),
        },
        Float64,
    );
    check_one(&floats, vec![(true.into(), 1.5.into()), (false.into(), NULL), (NULL, NULL)]);
}

#[test]
fn coalesce_and_null_if() {
    let coalesce = call(Function::Coalesce, vec![col(0, Int64), col(1, Int64), int(7, Int64)], Int64);
    check(
        &coalesce,
        &[
            (vec![1.into(), 2.into()], 1.into()),
            (vec![NULL, 2.into()], 2.into()),
            (vec![NULL, NULL], 7.into()),
            (vec![i64::MIN.into(), NULL], i64::MIN.into()),
        ],
    );
    let quotient = arithmetic(Divide, int(10, Int64), col(1, Int64), Int64);
    let lazy = call(Function::Coalesce, vec![col(0, Int64), quotient], Int64);
    check(
        &lazy,
        &[
            (vec![1.into(), 0.into()], 1.into()),
            (vec![NULL, 0.into()], DivideByZero.into()),
            (vec![NULL, 2.into()], 5.into()),
            (vec![NULL, NULL], NULL),
        ],
    );
    let texts = call(Function::Coalesce, vec![col(0, Utf8), string("none")], Utf8);
    check_one(&texts, vec![("x".into(), "x".into()), (NULL, "none".into())]);
    let null_if = call(Function::NullIf, vec![col(0, Int32), col(1, Int32)], Int32);
    check(
        &null_if,
        &[
            (vec![1.into(), 1.into()], NULL),
            (vec![1.into(), 2.into()], 1.into()),
            (vec![1.into(), NULL], 1.into()),
            (vec![NULL, NULL], NULL),
        ],
    );
}

#[test]
fn in_lists() {
    let within = |list: Vec<Expr>, negated| {
        let input = Box::new(col(0, list[0].data_type.clone()));
        make(ExprKind::InList { input, list, negated }, Boolean)
    };
    let plain = vec![int(1, Int64), int(5, Int64), int(1 << 40, Int64)];
    check_one(
        &within(plain.clone(), false),
        vec![
            (5.into(), true.into()),
            (6.into(), false.into()),
            ((1i64 << 40).into(), true.into()),
            (NULL, NULL),
        ],
    );
    check_one(&within(plain, true), vec![(5.into(), false.into()), (6.into(), true.into()), (NULL, NULL)]);
    let nulls = vec![int(1, Int64), null(Int64)];
    check_one(&within(nulls.clone(), false), vec![(1.into(), true.into()), (2.into(), NULL), (NULL, NULL)]);
    check_one(&within(nulls, true), vec![(1.into(), false.into()), (2.into(), NULL)]);
    let texts = vec![string("a"), string("bc"), string("")];
    check_one(
        &within(texts, false),
        vec![("bc".into(), true.into()), ("".into(), true.into()), ("b".into(), false.into()), (NULL, NULL)],
    );
    // By bits, as DataFusion: a zero is not a negative zero here.
    let floats = vec![number(0.0), number(f64::NAN)];
    check_one(
        &within(floats, false),
        vec![
            (0.0.into(), true.into()),
            ((-0.0).into(), false.into()),
            (f64::NAN.into(), true.into()),
            (1.0.into(), false.into()),
        ],
    );
}
