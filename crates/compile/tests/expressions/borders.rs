//! Text of lengths around those of words, of ASCII and with other characters at the borders of words: what is done with eight bytes at
//! once gives what Rust gives.

use kelpie_compile::expr::CompareOp::*;
use kelpie_compile::expr::{ExprKind, Function, Side};
use kelpie_compile::types::DataType;

use crate::build::*;
use crate::harness::{NULL, Value, check, check_one};

/// Texts of some lengths in bytes; of each also those that begin, end, or go over the border of a word with a character of several bytes.
fn texts() -> Vec<String> {
    let mut texts = Vec::new();
    for length in [0usize, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65] {
        let plain: String = ('A'..='z').cycle().skip(length).take(length).collect();
        for place in [0, 6, 7, length.saturating_sub(2)] {
            if place + 2 <= length {
                texts.push(format!("{}\u{e9}{}", &plain[..place], &plain[place + 2..]));
            }
        }
        texts.push(plain);
    }
    texts
}

fn check_texts(function: Function, more: &[(DataType, Value)], expected: impl Fn(&str) -> String) {
    let mut arguments = vec![col(0, Utf8)];
    arguments.extend(more.iter().enumerate().map(|(index, (ty, _))| col(index + 1, ty.clone())));
    let row = |text: Value, expected: Value| {
        let mut row = vec![text];
        row.extend(more.iter().map(|(_, value)| value.clone()));
        (row, expected)
    };
    let mut rows: Vec<_> =
        texts().iter().map(|text| row(text.as_str().into(), expected(text).as_str().into())).collect();
    rows.push(row(NULL, NULL));
    check(&call(function, arguments, Utf8), &rows);
}

fn take(text: &str, from: usize, count: usize) -> String {
    text.chars().skip(from).take(count).collect()
}

#[test]
fn made_texts() {
    check_texts(Function::Reverse, &[], |text| text.chars().rev().collect());
    check_texts(Function::ConcatOperator, &[(Utf8, "-\u{e9}+".into())], |text| format!("{text}-\u{e9}+"));
    check_texts(Function::ConcatOperator, &[(Utf8, "".into()), (Utf8, "12345678".into())], |text| {
        format!("{text}12345678")
    });
    check_texts(Function::Replace, &[(Utf8, "E".into()), (Utf8, "<>".into())], |text| {
        text.replace('E', "<>")
    });
    for count in [0usize, 1, 3] {
        check_texts(Function::Repeat, &[(Int64, (count as i64).into())], |text| text.repeat(count));
    }
    for count in [0usize, 5, 8, 17, 66, 80] {
        for fill in ["*", "ab", "x\u{e9}", "0123456789"] {
            let more = [(Int64, (count as i64).into()), (Utf8, fill.into())];
            let padding = |text: &str| {
                let missing = count.saturating_sub(text.chars().count());
                fill.chars().cycle().take(missing).collect::<String>()
            };
            check_texts(Function::Pad(Side::Left), &more, |text| padding(text) + &take(text, 0, count));
            check_texts(Function::Pad(Side::Right), &more, |text| take(text, 0, count) + &padding(text));
        }
    }
}

#[test]
fn parts_and_lengths() {
    for count in [0usize, 1, 7, 8, 9, 64, 100] {
        let more = [(Int64, Value::from(count as i64))];
        check_texts(Function::Left, &more, |text| take(text, 0, count));
        check_texts(Function::Right, &more, |text| {
            let all = text.chars().count();
            take(text, all.saturating_sub(count), count)
        });
        for start in [1usize, 2, 8, 9] {
            let more = [(Int64, Value::from(start as i64)), (Int64, Value::from(count as i64))];
            check_texts(Function::Substr, &more, |text| take(text, start - 1, count));
        }
    }
    let mut rows: Vec<(Value, Value)> =
        (texts().iter()).map(|text| (text.as_str().into(), (text.chars().count() as i32).into())).collect();
    rows.push((NULL, NULL));
    check_one(&call(Function::CharacterLength, vec![col(0, Utf8)], Int32), rows);
}

#[test]
fn cases_and_comparisons() {
    check_texts(Function::Upper, &[], str::to_uppercase);
    check_texts(Function::Lower, &[], str::to_lowercase);
    let texts = texts();
    let (mut equal, mut less, mut folded) = (Vec::new(), Vec::new(), Vec::new());
    for (index, a) in texts.iter().enumerate() {
        let near = texts.iter().skip(index).take(4);
        for b in near.chain([&a.to_uppercase(), &format!("{a}a"), &String::new()]) {
            let row = || vec![a.as_str().into(), b.as_str().into()];
            equal.push((row(), (a == b).into()));
            less.push((row(), (a < b).into()));
            folded.push((row(), (a.to_lowercase() == b.to_lowercase()).into()));
        }
    }
    let columns = || (col(0, Utf8), col(1, Utf8));
    let (a, b) = columns();
    check(&compare(Eq, a, b), &equal);
    let (a, b) = columns();
    check(&compare(Lt, a, b), &less);
    let lower = |column| call(Function::Lower, vec![col(column, Utf8)], Utf8);
    check(&compare(Eq, lower(0), lower(1)), &folded);
    let like = |pattern: &str| {
        let (input, pattern) = (Box::new(col(0, Utf8)), Box::new(string(pattern)));
        make(ExprKind::Like { input, pattern, negated: false, case_insensitive: false }, Boolean)
    };
    for place in [0usize, 1, 7, 8, 9] {
        let pattern = format!("{}%", "_".repeat(place));
        let rows = texts.iter().map(|text| (text.as_str().into(), (text.chars().count() >= place).into()));
        check_one(&like(&pattern), rows.collect());
    }
}

#[test]
fn numbers_as_text() {
    let mut numbers: Vec<i128> = vec![i64::MIN.into(), i64::MAX.into()];
    for power in 0..19 {
        let power = 10i128.pow(power);
        numbers.extend(
            [power - 1, power, power + 1, -power, 1 - power, 5 * power]
                .map(|n| n.clamp(i64::MIN.into(), i64::MAX.into())),
        );
    }
    numbers.extend([12_345_678, 123_456_789, 1_234_567_890_123_456, 12_345_678_901_234_567]);
    let within = |limit: i128| {
        let numbers = numbers.iter().filter(move |number| number.abs() < limit);
        numbers.map(|number| (Value::Int(*number), Value::from(number.to_string().as_str())))
    };
    for limit in [10, 100_000_000, 10_000_000_000_000_000, i128::MAX] {
        check_one(&cast(col(0, Int64), Utf8), within(limit).chain([(NULL, NULL)]).collect());
    }
    check_one(&cast(col(0, Int32), Utf8), within(1 << 31).collect());
    for scale in [1i8, 2, 7, 8, 9, 18] {
        let unit = 10i128.pow(scale as u32);
        let rows = numbers.iter().filter(|number| number.abs() < 10i128.pow(18)).map(|number| {
            let sign = if *number < 0 { "-" } else { "" };
            let (whole, fraction) = (number.abs() / unit, number.abs() % unit);
            let text = format!("{sign}{whole}.{fraction:0width$}", width = scale as usize);
            (Value::Int(*number), Value::from(text.as_str()))
        });
        check_one(&cast(col(0, decimal(18, scale)), Utf8), rows.collect());
    }
}
