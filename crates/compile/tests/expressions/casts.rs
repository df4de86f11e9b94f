//! Casts between numbers.

use kelpie_compile::context::Status::{CastOutOfRange, CastParse, Fallback};
use kelpie_compile::types::DataType;

use crate::build::*;
use crate::harness::{NULL, Value, check_one};

/// Checks CAST; TRY_CAST gives NULL instead of an error.
fn check_cast(from: DataType, to: DataType, rows: Vec<(Value, Value)>) {
    check_one(&cast(col(0, from.clone()), to.clone()), rows.clone());
    let safe = rows.into_iter().map(|(input, expected)| match expected {
        Value::Error(_) => (input, NULL),
        expected => (input, expected),
    });
    check_one(&try_cast(col(0, from), to), safe.collect());
}

const BAD: Value = Value::Error(CastOutOfRange);

#[test]
fn integers() {
    check_cast(
        Int64,
        Int8,
        vec![(127.into(), 127.into()), (128.into(), BAD), ((-129).into(), BAD), (NULL, NULL)],
    );
    check_cast(Int64, UInt64, vec![((-1).into(), BAD), (i64::MAX.into(), i64::MAX.into())]);
    check_cast(UInt64, Int64, vec![(Value::Int(u64::MAX.into()), BAD), (5.into(), 5.into())]);
    check_cast(UInt64, Int32, vec![(Value::Int(1 << 31), BAD), (Value::Int((1 << 31) - 1), i32::MAX.into())]);
    check_cast(Int8, Int64, vec![((-128).into(), (-128).into())]);
    check_cast(Boolean, Int32, vec![(true.into(), 1.into()), (false.into(), 0.into()), (NULL, NULL)]);
    check_cast(Int32, Boolean, vec![(0.into(), false.into()), ((-7).into(), true.into()), (NULL, NULL)]);
    check_cast(Float64, Boolean, vec![((-0.0).into(), false.into()), (f64::NAN.into(), true.into())]);
    check_cast(Boolean, Float64, vec![(true.into(), 1.0.into())]);
}

#[test]
fn floats() {
    check_cast(
        Float64,
        Int8,
        vec![
            (127.9.into(), 127.into()),
            (128.0.into(), BAD),
            ((-128.9).into(), (-128).into()),
            ((-129.0).into(), BAD),
            (f64::NAN.into(), BAD),
            (f64::INFINITY.into(), BAD),
            ((-0.5).into(), 0.into()),
            (NULL, NULL),
        ],
    );
    check_cast(
        Float64,
        UInt8,
        vec![((-0.9).into(), 0.into()), ((-1.0).into(), BAD), (255.9.into(), 255.into())],
    );
    check_cast(
        Float64,
        Int64,
        vec![
            (9_223_372_036_854_774_784.0.into(), 9_223_372_036_854_774_784i64.into()),
            (9_223_372_036_854_775_808.0.into(), BAD),
            ((-9_223_372_036_854_775_808.0).into(), i64::MIN.into()),
        ],
    );
    check_cast(Float64, UInt64, vec![(1e19.into(), Value::Int(10i128.pow(19))), (2e19.into(), BAD)]);
    check_cast(
        Float32,
        Int32,
        vec![(2_147_483_648.0.into(), BAD), (2_147_483_520.0.into(), 2_147_483_520.into())],
    );
    check_cast(
        Float64,
        Float32,
        vec![(0.1.into(), f64::from(0.1f32).into()), (1e300.into(), f64::INFINITY.into())],
    );
    check_cast(Float32, Float64, vec![(0.5.into(), 0.5.into())]);
    check_cast(
        Int64,
        Float64,
        vec![(i64::MAX.into(), (i64::MAX as f64).into()), ((-3).into(), (-3.0).into())],
    );
    check_cast(UInt64, Float64, vec![(Value::Int(u64::MAX.into()), (u64::MAX as f64).into())]);
    check_cast(Int64, Float32, vec![(16_777_217.into(), 16_777_216.0.into())]);
}

#[test]
fn decimals() {
    check_cast(
        Int32,
        decimal(5, 2),
        vec![(999.into(), 99_900.into()), (1000.into(), BAD), ((-1000).into(), BAD), (NULL, NULL)],
    );
    check_cast(
        Int64,
        decimal(38, 30),
        vec![((1i64 << 30).into(), BAD), (5.into(), Value::Int(5 * 10i128.pow(30)))],
    );
    check_cast(UInt64, decimal(20, 0), vec![(Value::Int(u64::MAX.into()), Value::Int(u64::MAX.into()))]);
    check_cast(decimal(10, 2), Int32, vec![(199.into(), 1.into()), ((-199).into(), (-1).into())]);
    check_cast(decimal(20, 0), Int32, vec![(Value::Int(1 << 31), BAD), (7.into(), 7.into())]);
    check_cast(decimal(10, 2), Float64, vec![(12_345.into(), 123.45.into()), ((-1).into(), (-0.01).into())]);
    check_cast(decimal(5, 1), decimal(7, 3), vec![(15.into(), 1500.into()), ((-15).into(), (-1500).into())]);
    check_cast(decimal(5, 1), decimal(6, 3), vec![(9_999.into(), 999_900.into()), (99_999.into(), BAD)]);
    check_cast(
        decimal(7, 3),
        decimal(5, 1),
        vec![
            (1_250.into(), 13.into()),
            ((-1_250).into(), (-13).into()),
            (1_249.into(), 12.into()),
            ((-1_249).into(), (-12).into()),
            (9_999_999.into(), BAD),
        ],
    );
    check_cast(decimal(5, 2), decimal(4, 2), vec![(9_999.into(), 9_999.into()), (10_000.into(), BAD)]);
    check_cast(
        Float64,
        decimal(5, 2),
        vec![
            (1.255.into(), 125.into()),
            (1.125.into(), 113.into()),
            ((-1.125).into(), (-113).into()),
            (999.994.into(), 99_999.into()),
            (1000.0.into(), BAD),
            (f64::NAN.into(), BAD),
            (1e300.into(), BAD),
            (NULL, NULL),
        ],
    );
}

#[test]
fn text() {
    let bad = || Value::Error(CastParse);
    check_cast(
        Utf8,
        Int64,
        vec![
            ("42".into(), 42.into()),
            ("-42".into(), (-42).into()),
            ("+007".into(), 7.into()),
            (" \t5\n".into(), 5.into()),
            ("9223372036854775807".into(), i64::MAX.into()),
            ("-9223372036854775808".into(), i64::MIN.into()),
            ("9223372036854775808".into(), bad()),
            ("99999999999999999999999999999999999999999999999999".into(), bad()),
            ("".into(), bad()),
            ("   ".into(), bad()),
            ("-".into(), bad()),
            ("1.5".into(), bad()),
            ("1 2".into(), bad()),
            ("\u{660}".into(), bad()),
            (NULL, NULL),
        ],
    );
    check_cast(
        Utf8,
        UInt8,
        vec![
            ("255".into(), 255.into()),
            ("256".into(), bad()),
            ("-1".into(), bad()),
            ("-0".into(), 0.into()),
        ],
    );
    check_cast(
        Utf8,
        Boolean,
        vec![
            ("TRUE".into(), true.into()),
            (" y ".into(), true.into()),
            ("off".into(), false.into()),
            ("0".into(), false.into()),
            ("".into(), bad()),
            ("truest".into(), bad()),
            ("\u{df}".into(), bad()),
            ("t\u{65e5}".into(), bad()),
            (NULL, NULL),
        ],
    );
    let spaces = ["\u{b}t", "t\u{a0}", "\u{2003}t", "t\u{3000}"];
    let rows = spaces.iter().map(|text| ((*text).into(), Fallback.into()));
    check_one(&cast(col(0, Utf8), Boolean), rows.collect());
    let dates = vec![
        ("1970-01-01".into(), 0.into()),
        ("1969-12-31".into(), (-1).into()),
        ("2000-2-29".into(), 11_016.into()),
        ("20000301".into(), 11_017.into()),
        ("0000-01-01".into(), (-719_528).into()),
        ("9999-12-31".into(), 2_932_896.into()),
        (NULL, NULL),
    ];
    check_cast(Utf8, Date32, dates);
    let wrong = [
        "1900-02-29", "2000-13-01", "0000-00-00", "20000230", "", "x", "2000-01", "200-01-011", "12:34:56",
        "\u{660}",
    ];
    check_cast(Utf8, Date32, wrong.iter().map(|text| ((*text).into(), bad())).collect());
    // What Arrow may take for a date is left to it.
    let unusual = ["2000-01-01T00:00:00", "-2000-1-1", "+12345-01-01", "2000-1-1xx", "2000-01-0x"];
    let rows = unusual.iter().map(|text| ((*text).into(), Fallback.into()));
    check_one(&cast(col(0, Utf8), Date32), rows.collect());
}

#[test]
fn to_text() {
    check_cast(
        Int64,
        Utf8,
        vec![
            (0.into(), "0".into()),
            (7.into(), "7".into()),
            ((-120).into(), "-120".into()),
            (i64::MAX.into(), "9223372036854775807".into()),
            (i64::MIN.into(), "-9223372036854775808".into()),
            (NULL, NULL),
        ],
    );
    check_cast(UInt64, Utf8, vec![(Value::Int(u64::MAX.into()), "18446744073709551615".into())]);
    check_cast(Int8, Utf8, vec![((-128).into(), "-128".into()), (5.into(), "5".into())]);
    let decimal = |precision, scale| DataType::Decimal128 { precision, scale };
    check_cast(
        decimal(15, 2),
        Utf8,
        vec![
            (0.into(), "0.00".into()),
            (5.into(), "0.05".into()),
            ((-5).into(), "-0.05".into()),
            ((-123_456).into(), "-1234.56".into()),
            (NULL, NULL),
        ],
    );
    check_cast(decimal(9, 0), Utf8, vec![((-12).into(), "-12".into())]);
    check_cast(
        decimal(38, 10),
        Utf8,
        vec![
            (Value::Int(10i128.pow(38) - 1), "9999999999999999999999999999.9999999999".into()),
            (Value::Int(1 - 10i128.pow(38)), "-9999999999999999999999999999.9999999999".into()),
        ],
    );
    check_cast(
        Boolean,
        Utf8,
        vec![(true.into(), "true".into()), (false.into(), "false".into()), (NULL, NULL)],
    );
    check_one(
        &cast(col(0, Date32), Utf8),
        vec![
            (0.into(), "1970-01-01".into()),
            ((-1).into(), "1969-12-31".into()),
            (11_016.into(), "2000-02-29".into()),
            ((-719_528).into(), "0000-01-01".into()),
            (2_932_896.into(), "9999-12-31".into()),
            (2_932_897.into(), Value::Error(Fallback)),
            (NULL, NULL),
        ],
    );
}
