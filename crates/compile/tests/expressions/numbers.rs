//! Arithmetic and rounding.

use kelpie_compile::context::Status::{DivideByZero, Overflow};
use kelpie_compile::expr::ArithmeticOp::*;
use kelpie_compile::expr::{ExprKind, Function};
use kelpie_compile::types::DataType;

use crate::build::*;
use crate::harness::{NULL, Value, check, check_one};

fn row(values: &[Value], expected: impl Into<Value>) -> (Vec<Value>, Value) {
    (values.to_vec(), expected.into())
}

#[test]
fn integers_wrap_at_their_width() {
    let sum = |ty: DataType| arithmetic(Add, col(0, ty.clone()), col(1, ty.clone()), ty);
    let pair = |a: i128, b: i128, sum: i128| (vec![a.into(), b.into()], Value::Int(sum));
    check(&sum(Int8), &[pair(127, 1, -128), pair(-128, -1, 127), pair(1, 2, 3)]);
    check(&sum(Int16), &[pair(32767, 1, -32768), pair(5, -6, -1)]);
    check(&sum(Int32), &[pair(i32::MAX.into(), 1, i32::MIN.into()), pair(-1, 1, 0)]);
    check(&sum(Int64), &[pair(i64::MAX.into(), 1, i64::MIN.into()), pair(40, 2, 42)]);
    check(&sum(UInt8), &[pair(255, 1, 0), pair(1, 1, 2)]);
    check(&sum(UInt32), &[pair(u32::MAX.into(), 2, 1)]);
    check(&sum(UInt64), &[pair(u64::MAX.into(), 2, 1), pair(i64::MAX.into(), 1, 1 << 63)]);
    let product = |ty: DataType| arithmetic(Multiply, col(0, ty.clone()), col(1, ty.clone()), ty);
    check(&product(Int64), &[pair(i64::MIN.into(), -1, i64::MIN.into()), pair(1 << 40, 1 << 40, 0)]);
    check(&product(UInt64), &[pair(u64::MAX.into(), u64::MAX.into(), 1)]);
    check(&product(Int16), &[pair(300, 300, 24464)]);
    let difference = |ty: DataType| arithmetic(Subtract, col(0, ty.clone()), col(1, ty.clone()), ty);
    check(&difference(UInt16), &[pair(0, 1, 65535)]);
    check(&difference(UInt64), &[pair(0, 1, u64::MAX.into())]);
}

#[test]
fn division() {
    let quotient = arithmetic(Divide, col(0, Int64), col(1, Int64), Int64);
    let rest = arithmetic(Remainder, col(0, Int64), col(1, Int64), Int64);
    let lowest = Value::from(i64::MIN);
    check(
        &quotient,
        &[
            row(&[7.into(), 2.into()], 3),
            row(&[(-7).into(), 2.into()], -3),
            row(&[7.into(), 0.into()], DivideByZero),
            row(&[NULL, 0.into()], NULL),
            row(&[7.into(), NULL], NULL),
            row(&[lowest.clone(), (-1).into()], Overflow),
        ],
    );
    check(
        &rest,
        &[
            row(&[7.into(), (-2).into()], 1),
            row(&[(-7).into(), 2.into()], -1),
            row(&[7.into(), 0.into()], DivideByZero),
            row(&[lowest, (-1).into()], 0),
        ],
    );
    let unsigned = arithmetic(Divide, col(0, UInt64), col(1, UInt64), UInt64);
    check(
        &unsigned,
        &[
            row(&[Value::Int(u64::MAX.into()), 2.into()], i128::from(u64::MAX / 2)),
            row(&[1.into(), Value::Int(u64::MAX.into())], 0),
            row(&[1.into(), 0.into()], DivideByZero),
        ],
    );
    let floats = arithmetic(Divide, col(0, Float64), col(1, Float64), Float64);
    check(
        &floats,
        &[
            row(&[1.0.into(), 0.0.into()], f64::INFINITY),
            row(&[0.0.into(), 0.0.into()], f64::NAN),
            row(&[1.0.into(), (-0.0).into()], f64::NEG_INFINITY),
            row(&[1.0.into(), 4.0.into()], 0.25),
        ],
    );
    let modulo = arithmetic(Remainder, col(0, Float64), number(3.0), Float64);
    check_one(&modulo, vec![((-7.5).into(), (-1.5).into()), (7.5.into(), 1.5.into())]);
}

/// Constants have reciprocals where a column's range is known and without its type's least value.
#[test]
fn division_by_constants() {
    for (ty, most, least) in [
        (Int64, i128::from(i64::MAX), i128::from(i64::MIN)),
        (Int32, i32::MAX.into(), i32::MIN.into()),
        (DataType::Decimal128 { precision: 38, scale: 0 }, i64::MAX.into(), i64::MIN.into()),
    ] {
        let is_decimal = matches!(ty, DataType::Decimal128 { .. });
        for divisor in [1, 2, 3, 7, 10, 1000, 7919, 131_072, 1_000_003, i32::MAX.into(), most - 1, most, -3] {
            if divisor > most {
                continue;
            }
            let by = |op| arithmetic(op, col(0, ty.clone()), int(divisor, ty.clone()), ty.clone());
            let near = [1, 2, most / divisor.abs()].map(|n| n * divisor.abs());
            let near = near.into_iter().flat_map(|a| [a - 1, a, a + 1]).filter(|a| *a <= most);
            for end in [vec![most, -most], vec![most, least], vec![]] {
                let values: Vec<i128> = near.clone().flat_map(|a| [a, -a]).chain(end.clone()).collect();
                // Without an end, none is below zero, as of most columns.
                let values = values.into_iter().filter(|a| !end.is_empty() || *a >= 0);
                let rows = |of: fn(i128, i128) -> i128| -> Vec<_> {
                    values.clone().map(|a| (Value::Int(a), Value::Int(of(a, divisor)))).collect()
                };
                check_one(&by(Remainder), rows(|a, b| a % b));
                // Quotients of decimals have four digits more.
                if !is_decimal {
                    check_one(&by(Divide), rows(|a, b| a / b));
                }
            }
        }
    }
}

#[test]
fn decimals() {
    let a = || col(0, decimal(15, 2));
    let b = || col(1, decimal(10, 4));
    let pair = |a: i128, b: i128, result: i128| (vec![a.into(), b.into()], Value::Int(result));
    check(&arithmetic(Add, a(), b(), decimal(18, 4)), &[pair(150, 25, 15025), pair(-1, 1, -99)]);
    check(&arithmetic(Subtract, a(), b(), decimal(18, 4)), &[pair(150, 25, 14975)]);
    check(&arithmetic(Multiply, a(), b(), decimal(26, 6)), &[pair(150, 25, 3750), pair(-150, 25, -3750)]);
    // 1.50 / 0.0025 = 600, scale 6.
    let quotient = arithmetic(Divide, a(), b(), decimal(23, 6));
    check(
        &quotient,
        &[
            pair(150, 25, 600_000_000),
            pair(1, 30_000, 3_333),
            pair(-1, 30_000, -3_333),
            (vec![150.into(), 0.into()], DivideByZero.into()),
            (vec![NULL, 0.into()], NULL),
        ],
    );
    check(
        &arithmetic(Remainder, a(), b(), decimal(12, 4)),
        &[pair(150, 40_000, 15_000), pair(-150, 7_000, -1_000)],
    );
    let wide = |op, ty| arithmetic(op, col(0, decimal(38, 0)), col(1, decimal(38, 0)), ty);
    let most = 10i128.pow(38) - 1;
    check(
        &wide(Multiply, decimal(38, 0)),
        &[
            (vec![most.into(), most.into()], Overflow.into()),
            (vec![most.into(), NULL], NULL),
            pair(most, -1, -most),
            pair(1 << 62, 1 << 62, 1 << 124),
        ],
    );
    // Beyond the precision is no error, beyond 128 bits is.
    check(
        &wide(Add, decimal(38, 0)),
        &[pair(most, 1, most + 1), (vec![most.into(), most.into()], Overflow.into())],
    );
}

#[test]
fn negation_and_absolute_value() {
    let negate = |ty: DataType| make(ExprKind::Negate(Box::new(col(0, ty.clone()))), ty);
    check_one(&negate(Int8), vec![((-128).into(), (-128).into()), (5.into(), (-5).into()), (NULL, NULL)]);
    check_one(&negate(Int64), vec![(i64::MIN.into(), i64::MIN.into()), (7.into(), (-7).into())]);
    check_one(&negate(Float64), vec![(0.0.into(), (-0.0).into()), (1.5.into(), (-1.5).into())]);
    check_one(&negate(decimal(5, 2)), vec![(123.into(), (-123).into())]);
    let absolute = |ty: DataType| call(Function::Abs, vec![col(0, ty.clone())], ty);
    check_one(&absolute(Int8), vec![((-128).into(), Overflow.into()), ((-5).into(), 5.into()), (NULL, NULL)]);
    check_one(&absolute(Int64), vec![(i64::MIN.into(), Overflow.into()), ((-5).into(), 5.into())]);
    check_one(&absolute(Int32), vec![((-3).into(), 3.into()), (4.into(), 4.into())]);
    check_one(&absolute(UInt8), vec![(200.into(), 200.into())]);
    check_one(&absolute(Float64), vec![((-0.0).into(), 0.0.into()), ((-2.5).into(), 2.5.into())]);
    check_one(&absolute(decimal(38, 2)), vec![((-250).into(), 250.into())]);
}

#[test]
fn every_nan_becomes_the_one() {
    let one = call(Function::OneNan, vec![col(0, Float64)], Float64);
    let others =
        [-f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001), f64::from_bits(0xffff_ffff_ffff_ffff), f64::NAN];
    check_one(&one, others.map(|value| (value.into(), f64::NAN.into())).to_vec());
    let same = [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, -5e-324, f64::MAX];
    check_one(&one, same.map(|value| (value.into(), value.into())).to_vec());
    check_one(&one, vec![(NULL, NULL)]);
}

#[test]
fn rounding() {
    let round = |ty: DataType, digits: i128, result: DataType| {
        call(Function::Round, vec![col(0, ty), int(digits, Int32)], result)
    };
    check_one(
        &round(Float64, 0, Float64),
        vec![
            (0.5.into(), 1.0.into()),
            ((-0.5).into(), (-1.0).into()),
            (0.499_999_999_999_999_94.into(), 0.0.into()),
            ((-0.2).into(), (-0.0).into()),
            (2.5.into(), 3.0.into()),
            (f64::NAN.into(), f64::NAN.into()),
            (f64::INFINITY.into(), f64::INFINITY.into()),
            (4_503_599_627_370_497.0.into(), 4_503_599_627_370_497.0.into()),
        ],
    );
    check_one(
        &round(Float64, 2, Float64),
        vec![(1.255.into(), 1.25.into()), (1.265.into(), ((1.265f64 * 100.0).round() / 100.0).into())],
    );
    check_one(
        &round(Float64, -1, Float64),
        vec![(15.0.into(), ((15.0f64 * 10f64.powi(-1)).round() / 10f64.powi(-1)).into())],
    );
    check_one(
        &round(decimal(7, 3), 1, decimal(7, 1)),
        vec![(1250.into(), 13.into()), ((-1250).into(), (-13).into()), (1249.into(), 12.into())],
    );
    check_one(&round(decimal(7, 3), 5, decimal(7, 3)), vec![(1250.into(), 1250.into())]);
    check_one(
        &round(decimal(7, 3), -1, decimal(7, 0)),
        vec![(15_000.into(), 20.into()), (14_999.into(), 10.into())],
    );
    check_one(&round(decimal(7, 3), -5, decimal(7, 0)), vec![(9_999_999.into(), 0.into())]);
    check_one(
        &round(Int64, -2, Int64),
        vec![
            (150.into(), 200.into()),
            ((-150).into(), (-200).into()),
            (i64::MAX.into(), 9_223_372_036_854_775_800i64.into()),
        ],
    );
    check_one(&round(Int64, -1, Int64), vec![(i64::MAX.into(), Overflow.into()), (4.into(), 0.into())]);
    check_one(
        &round(Int8, -1, Int8),
        vec![(125.into(), Overflow.into()), (124.into(), 120.into()), (NULL, NULL)],
    );
    check_one(&round(Int8, -3, Int8), vec![(125.into(), 0.into())]);
    let step = |function, ty: DataType| call(function, vec![col(0, ty.clone())], ty);
    check_one(
        &step(Function::Floor, Float64),
        vec![((-1.5).into(), (-2.0).into()), (1.5.into(), 1.0.into())],
    );
    check_one(
        &step(Function::Ceil, Float64),
        vec![((-1.5).into(), (-1.0).into()), ((-0.5).into(), (-0.0).into())],
    );
    check_one(
        &step(Function::Floor, decimal(5, 2)),
        vec![
            ((-150).into(), (-200).into()),
            (150.into(), 100.into()),
            (200.into(), 200.into()),
            ((-99_999).into(), Overflow.into()),
        ],
    );
    check_one(
        &step(Function::Ceil, decimal(5, 2)),
        vec![
            ((-150).into(), (-100).into()),
            (150.into(), 200.into()),
            ((-200).into(), (-200).into()),
            (99_999.into(), Overflow.into()),
        ],
    );
}
