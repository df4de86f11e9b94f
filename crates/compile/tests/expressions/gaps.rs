//! Bit operators, GREATEST and LEAST, TRUNC, IN lists that are tables, letters beyond ASCII, and floats from text.

use kelpie_compile::context::Status::Fallback;
use kelpie_compile::expr::{BitOp, Expr, ExprKind, Function};
use kelpie_compile::types::{DataType, Literal};

use crate::build::*;
use crate::harness::{NULL, Value, check, check_one};

fn bits(op: BitOp, data_type: DataType) -> Expr {
    let operands = vec![col(0, data_type.clone()), col(1, data_type.clone())];
    call(Function::Bits(op), operands, data_type)
}

/// Rows of two operands and a result, and with a NULL on either side.
fn pairs(rows: &[(i128, i128, i128)]) -> Vec<(Vec<Value>, Value)> {
    let mut all = vec![(vec![NULL, 1.into()], NULL), (vec![1.into(), NULL], NULL)];
    all.extend(rows.iter().map(|(a, b, result)| (vec![(*a).into(), (*b).into()], (*result).into())));
    all
}

#[test]
fn bit_operators() {
    let most = i128::from(i64::MAX);
    let least = i128::from(i64::MIN);
    check(&bits(BitOp::And, Int64), &pairs(&[(6, 3, 2), (-1, 5, 5), (-4, -2, -4), (least, -1, least)]));
    check(&bits(BitOp::Or, Int64), &pairs(&[(6, 3, 7), (-4, 1, -3), (most, least, -1)]));
    check(&bits(BitOp::Xor, Int64), &pairs(&[(6, 3, 5), (-1, 5, -6), (most, -1, least)]));
    check(&bits(BitOp::And, UInt8), &pairs(&[(255, 129, 129), (0, 255, 0)]));
    let all = i128::from(u64::MAX);
    check(&bits(BitOp::Or, UInt64), &pairs(&[(all, 1, all), (1 << 63, 1, (1 << 63) + 1)]));
    check(&bits(BitOp::Xor, UInt64), &pairs(&[(all, all, 0), (all, 0, all)]));
    check(&bits(BitOp::Xor, Int16), &pairs(&[(-32768, 32767, -1)]));
}

#[test]
fn shifts_take_their_amount_modulo_the_width() {
    let least = i128::from(i64::MIN);
    check(
        &bits(BitOp::ShiftLeft, Int64),
        &pairs(&[(1, 3, 8), (1, 63, least), (1, 64, 1), (1, 65, 2), (1, -1, least), (-1, 1, -2)]),
    );
    check(&bits(BitOp::ShiftLeft, Int8), &pairs(&[(1, 7, -128), (1, 8, 1), (127, 1, -2), (3, -1, -128)]));
    check(&bits(BitOp::ShiftLeft, UInt16), &pairs(&[(65535, 1, 65534), (1, 17, 2)]));
    let all = i128::from(u64::MAX);
    check(&bits(BitOp::ShiftLeft, UInt64), &pairs(&[(1, 63, 1 << 63), (all, 1, all - 1), (1, all, 1 << 63)]));
    check(&bits(BitOp::ShiftRight, Int64), &pairs(&[(-8, 1, -4), (-1, 63, -1), (8, 2, 2), (8, 66, 2)]));
    check(&bits(BitOp::ShiftRight, Int32), &pairs(&[(-8, 33, -4), (i128::from(i32::MIN), 31, -1)]));
    check(&bits(BitOp::ShiftRight, UInt64), &pairs(&[(all, 63, 1), (all, 0, all)]));
    check(&bits(BitOp::ShiftRight, UInt8), &pairs(&[(255, 7, 1), (255, 8, 255)]));
    // As with grouping identifiers.
    let bit = call(
        Function::Bits(BitOp::And),
        vec![
            call(Function::Bits(BitOp::ShiftRight), vec![col(0, UInt8), int(1, UInt8)], UInt8),
            int(1, UInt8),
        ],
        UInt8,
    );
    check_one(
        &bit,
        vec![(0.into(), 0.into()), (2.into(), 1.into()), (3.into(), 1.into()), (5.into(), 0.into())],
    );
}

#[test]
fn greatest_and_least_skip_nulls() {
    let of = |function, data_type: DataType| {
        call(function, vec![col(0, data_type.clone()), col(1, data_type.clone())], data_type)
    };
    let nulls = |value: Value| {
        vec![
            (vec![NULL, NULL], NULL),
            (vec![NULL, value.clone()], value.clone()),
            (vec![value.clone(), NULL], value.clone()),
        ]
    };
    let (greatest, least) = (Function::Greatest, Function::Least);
    let mut rows = nulls((-7).into());
    rows.push((vec![3.into(), i64::MIN.into()], 3.into()));
    check(&of(greatest, Int64), &rows);
    rows.pop();
    rows.push((vec![3.into(), i64::MIN.into()], i64::MIN.into()));
    check(&of(least, Int64), &rows);
    let floats = |function, rows: &[(f64, f64, f64)]| {
        let mut all = nulls(1.5.into());
        all.extend(rows.iter().map(|(a, b, c)| (vec![(*a).into(), (*b).into()], (*c).into())));
        check(&of(function, Float64), &all);
    };
    // IEEE's total order.
    floats(greatest, &[(-0.0, 0.0, 0.0), (f64::NAN, f64::INFINITY, f64::NAN), (-1.0, -2.0, -1.0)]);
    floats(least, &[(-0.0, 0.0, -0.0), (0.0, -0.0, -0.0), (f64::NAN, f64::INFINITY, f64::INFINITY)]);
    let mut rows = nulls("b".into());
    rows.push((vec!["ab".into(), "b".into()], "b".into()));
    rows.push((vec!["\u{e9}".into(), "z".into()], "\u{e9}".into()));
    check(&of(greatest, Utf8), &rows);
    let mut rows = nulls(true.into());
    rows.push((vec![true.into(), false.into()], false.into()));
    check(&of(least, Boolean), &rows);
    let three = call(least, vec![col(0, Int32), int(5, Int32), null(Int32)], Int32);
    check_one(&three, vec![(7.into(), 5.into()), (2.into(), 2.into()), (NULL, 5.into())]);
}

#[test]
fn trunc_goes_towards_zero() {
    let whole = call(Function::Trunc, vec![col(0, Float64)], Float64);
    let rows = |rows: &[(f64, f64)]| -> Vec<(Value, Value)> {
        rows.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
    };
    check_one(&whole, rows(&[(2.7, 2.0), (-2.7, -2.0), (-0.0, 0.0), (-0.5, -0.0), (1e300, 1e300)]));
    check_one(&whole, vec![(f64::NAN.into(), f64::NAN.into()), (NULL, NULL)]);
    let digits = |digits| call(Function::Trunc, vec![col(0, Float64), int(digits, Int64)], Float64);
    check_one(&digits(2), rows(&[(1.239, 1.23), (-1.239, -1.23), (-0.0, -0.0), (f64::MAX, f64::INFINITY)]));
    check_one(&digits(-2), rows(&[(1299.0, 1200.0), (-99.0, -0.0)]));
    let fixed = |digits: Option<i128>| {
        let mut arguments = vec![col(0, decimal(10, 3))];
        arguments.extend(digits.map(|digits| int(digits, Int64)));
        call(Function::Trunc, arguments, decimal(10, 3))
    };
    check_one(&fixed(None), vec![(1999.into(), 1000.into()), ((-1999).into(), (-1000).into()), (NULL, NULL)]);
    check_one(&fixed(Some(1)), vec![(1999.into(), 1900.into()), ((-1999).into(), (-1900).into())]);
    check_one(&fixed(Some(5)), vec![(1999.into(), 1999.into())]);
    check_one(&fixed(Some(-1)), vec![(123_456.into(), 120_000.into())]);
    check_one(&fixed(Some(-900)), vec![(123_456.into(), 0.into())]);
}

fn in_list(input: Expr, list: Vec<Expr>, negated: bool) -> Expr {
    make(ExprKind::InList { input: Box::new(input), list, negated }, Boolean)
}

#[test]
fn long_lists_are_searched() {
    let threes =
        |data_type: &DataType| (0..1000).map(|i| int(3 * i - 900, data_type.clone())).collect::<Vec<_>>();
    let rows = |yes: Value, no: Value| -> Vec<(Value, Value)> {
        let mut rows = vec![(NULL, NULL)];
        rows.extend([-900, 0, 3, 2097].map(|found| (found.into(), yes.clone())));
        rows.extend([-901, -899, 1, 2098, 30_000].map(|missing| (missing.into(), no.clone())));
        rows
    };
    for data_type in [Int16, Int32, Int64, decimal(38, 0)] {
        let list = threes(&data_type);
        check_one(&in_list(col(0, data_type.clone()), list.clone(), false), rows(true.into(), false.into()));
        check_one(&in_list(col(0, data_type), list, true), rows(false.into(), true.into()));
    }
    // A NULL in the list: what is not found is not known.
    let mut list = threes(&Int64);
    list.push(null(Int64));
    check_one(&in_list(col(0, Int64), list.clone(), false), rows(true.into(), NULL));
    // And what is no constant is compared beside.
    list.pop();
    list.push(arithmetic(kelpie_compile::expr::ArithmeticOp::Add, col(1, Int64), int(1, Int64), Int64));
    check(
        &in_list(col(0, Int64), list, false),
        &[
            (vec![1.into(), 0.into()], true.into()),
            (vec![1.into(), 1.into()], false.into()),
            (vec![3.into(), NULL], true.into()),
            (vec![1.into(), NULL], NULL),
        ],
    );
    let far: Vec<Expr> = (0..40).map(|i| int(i64::MIN as i128 + i, Int64)).collect();
    check_one(
        &in_list(col(0, Int64), far, false),
        vec![
            (i64::MIN.into(), true.into()),
            (i64::MAX.into(), false.into()),
            ((i64::MIN + 40).into(), false.into()),
        ],
    );
}

#[test]
fn long_lists_of_texts_and_floats() {
    let mut words: Vec<Expr> = (0..300).map(|i| string(&format!("word {i}"))).collect();
    words.extend([string(""), string("\u{e9}t\u{e9}")]);
    let rows = vec![
        ("word 7".into(), true.into()),
        ("word 299".into(), true.into()),
        ("".into(), true.into()),
        ("\u{e9}t\u{e9}".into(), true.into()),
        ("word".into(), false.into()),
        ("word 300".into(), false.into()),
        ("\u{e9}".into(), false.into()),
        (NULL, NULL),
    ];
    check_one(&in_list(col(0, Utf8), words.clone(), false), rows);
    let lowered = call(Function::Lower, vec![col(0, Utf8)], Utf8);
    check_one(
        &in_list(lowered, words, false),
        vec![("WORD 7".into(), true.into()), ("x".into(), false.into())],
    );
    // By their bits: the zeros differ, and so do NaNs of different signs.
    let mut numbers: Vec<Expr> = (1..100).map(|i| number(f64::from(i) / 4.0)).collect();
    numbers.extend([number(f64::NAN), number(0.0)]);
    check_one(
        &in_list(col(0, Float64), numbers, false),
        vec![
            (0.25.into(), true.into()),
            (24.75.into(), true.into()),
            (25.0.into(), false.into()),
            (f64::NAN.into(), true.into()),
            ((-f64::NAN).into(), false.into()),
            (0.0.into(), true.into()),
            ((-0.0).into(), false.into()),
        ],
    );
}

#[test]
fn plans_that_differ_in_the_sign_of_a_nan_print_differently() {
    let (a, b) = (Literal::Float(f64::NAN), Literal::Float(-f64::NAN));
    assert_ne!(format!("{a:?}"), format!("{b:?}"));
    assert_ne!(a, b);
    assert_eq!(a, a.clone());
    assert_ne!(Literal::Float(0.0), Literal::Float(-0.0));
}

#[test]
fn the_lowest_integer_is_negated_as_datafusion_does() {
    // In a column it wraps; of a constant only DataFusion knows what becomes of it.
    let negated = |input: Expr| make(ExprKind::Negate(Box::new(input)), Int64);
    check_one(&negated(col(0, Int64)), vec![(i64::MIN.into(), i64::MIN.into()), (5.into(), (-5).into())]);
    let constant = make(
        ExprKind::And(
            Box::new(compare(kelpie_compile::expr::CompareOp::Eq, col(0, Int64), col(0, Int64))),
            Box::new(compare(
                kelpie_compile::expr::CompareOp::Lt,
                negated(int(i64::MIN.into(), Int64)),
                int(0, Int64),
            )),
        ),
        Boolean,
    );
    check_one(&constant, vec![(1.into(), Fallback.into())]);
}

/// Texts whose case is mapped to others of the same and of another length.
const TEXTS: [&str; 22] = [
    "",
    "a",
    "hi THOMAS, 2nd",
    "\u{e9}t\u{e9}",
    "\u{c9}T\u{c9}",
    "stra\u{df}e",
    "\u{130}stanbul \u{131}",
    "\u{fb03}x \u{1c4}\u{1c5}\u{1c6}",
    "\u{39f}\u{394}\u{39f}\u{3a3}",
    "\u{3a3}",
    "\u{3a3}\u{3a3} \u{3a3}a a\u{3a3}",
    "a\u{3a3}.b a\u{3a3}. b \u{301}\u{3a3} a\u{301}\u{3a3}\u{301}",
    "x\u{3a3}'\u{ad}y x\u{3a3}'\u{ad}!",
    "\u{1f600}\u{1d400}a\u{10400}\u{10428}",
    "\u{4e2d}\u{6587}abc\u{5b57}x",
    "\u{212a}elvin \u{2126}",
    "\u{1e9e}\u{149}\u{390}",
    "na\u{ef}ve CAF\u{c9}-bar_baz",
    "\u{1c5}ungla \u{1f88}",
    "\u{661}a\u{661} b",
    "\u{ab70}\u{13a0}\u{10d0}\u{1c90}",
    "a\u{0}\u{e9}",
];

#[test]
fn letters_beyond_ascii_have_rusts_mappings() {
    let rows = |map: fn(&str) -> String| -> Vec<(Value, Value)> {
        let texts = TEXTS.iter().map(|text| ((*text).into(), map(text).as_str().into()));
        texts.chain([(NULL, NULL)]).collect()
    };
    let of = |function| call(function, vec![col(0, Utf8)], Utf8);
    check_one(&of(Function::Upper), rows(|text| text.to_uppercase()));
    check_one(&of(Function::Lower), rows(|text| text.to_lowercase()));
    let both = call(Function::Lower, vec![of(Function::Upper)], Utf8);
    check_one(&both, rows(|text| text.to_uppercase().to_lowercase()));
    let reversed = call(Function::Reverse, vec![of(Function::Upper)], Utf8);
    check_one(&reversed, rows(|text| text.to_uppercase().chars().rev().collect()));
    let initials = |text: &str| {
        let mut inside = false;
        let mut result = String::new();
        for c in text.chars() {
            match inside {
                true => result.extend(c.to_lowercase()),
                false => result.extend(c.to_uppercase()),
            }
            inside = c.is_alphanumeric();
        }
        result
    };
    check_one(&of(Function::InitialCapitals), rows(initials));
    check_one(
        &compare(kelpie_compile::expr::CompareOp::Eq, of(Function::Upper), string("\u{c9}T\u{c9}")),
        vec![
            ("\u{e9}t\u{e9}".into(), true.into()),
            ("\u{c9}t\u{e9}".into(), true.into()),
            ("ete".into(), false.into()),
        ],
    );
}

#[test]
fn characters_are_translated() {
    let translate = |from: Expr, to: Expr| call(Function::Translate, vec![col(0, Utf8), from, to], Utf8);
    check_one(
        &translate(string("143"), string("ax")),
        vec![
            ("12345".into(), "a2x5".into()),
            ("".into(), "".into()),
            (NULL, NULL),
            ("333".into(), "".into()),
        ],
    );
    check_one(
        &translate(string("aba-"), string("xyz_!")),
        vec![
            ("a-b-a".into(), "x_y_x".into()),
            ("\u{e9}a\u{1f600}b".into(), "\u{e9}x\u{1f600}y".into()),
            ("".into(), "".into()),
            (NULL, NULL),
        ],
    );
    // The first of equal characters counts, and what `to` has too much is not used.
    check_one(
        &translate(string("aab\u{e9}"), string("xy\u{1f600}ef")),
        vec![
            ("abc\u{e9}a".into(), "x\u{1f600}cex".into()),
            ("\u{c9}".into(), "\u{c9}".into()),
            ("y".into(), "y".into()),
        ],
    );
    check(
        &translate(col(1, Utf8), col(2, Utf8)),
        &[
            (vec!["abc".into(), "b".into(), "\u{e9}".into()], "a\u{e9}c".into()),
            (vec!["abc".into(), "".into(), "x".into()], "abc".into()),
            (vec!["abc".into(), NULL, "x".into()], NULL),
            (vec!["abc".into(), "a".into(), NULL], NULL),
            (vec![NULL, "a".into(), "b".into()], NULL),
        ],
    );
}

#[test]
fn floats_are_read_from_text() {
    use kelpie_compile::context::Status::CastParse;
    let values = [
        ("0", 0.0),
        ("-0", -0.0),
        ("1.5", 1.5),
        (" -12.25\t", -12.25),
        ("+.5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("1.25E-2", 0.0125),
        ("0.1", 0.1),
        ("123456.789", 123_456.789),
        ("9007199254740992", 9_007_199_254_740_992.0),
        ("1e22", 1e22),
        ("3e-22", 3e-22),
        ("000000000000000000000000000012.5", 12.5),
        ("0e999", 0.0),
        ("inf", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("+INF", f64::INFINITY),
        ("NaN", f64::NAN),
    ];
    let mut rows: Vec<(Value, Value)> =
        values.iter().map(|(text, value)| ((*text).into(), (*value).into())).collect();
    let unknown =
        ["1e23", "1e-400", "9007199254740993", "0.1000000000000000055511151231257827", "-nan", "1e1000000"];
    rows.extend(unknown.map(|text| (text.into(), Fallback.into())));
    rows.push((NULL, NULL));
    let invalid = [
        "", " ", ".", "-", "e5", "1e", "1e+", "1x", "1 2", "1.2.3", "infinit", "nano", "--1", "0x10", "1_0",
        "\u{e9}",
    ];
    let mut checked = rows.clone();
    checked.extend(invalid.map(|text| (text.into(), CastParse.into())));
    check_one(&cast(col(0, Utf8), Float64), checked);
    rows.extend(invalid.map(|text| (text.into(), NULL)));
    check_one(&try_cast(col(0, Utf8), Float64), rows);
    let singles = [
        ("0.1", f64::from(0.1f32)),
        ("123456.789", f64::from(123_456.79f32)),
        ("-1e-5", f64::from(-1e-5f32)),
    ];
    let mut rows: Vec<(Value, Value)> =
        singles.iter().map(|(text, value)| ((*text).into(), (*value).into())).collect();
    // In the middle of two floats.
    rows.push(("16777217".into(), Fallback.into()));
    rows.push(("x".into(), CastParse.into()));
    check_one(&cast(col(0, Utf8), Float32), rows);
}
