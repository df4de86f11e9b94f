//! Functions of texts and numbers that DataFusion has not: digits of other bases, how alike texts are, paths, regular expressions.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::registry::FunctionRegistry;
use regex::Regex;
use sha1::{Digest, Sha1};

use super::ages::{age, whole_months};
use super::by_row::{Body, ByRow, Definition, Kind, texts, texts_type};
use super::hash_function::HashFunction;
use super::{globs, replacements, subscripts, uuids};

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    for definition in
        numbers().into_iter().chain(likeness()).chain(paths()).chain(patterns()).chain(of_syntax())
    {
        if !state.scalar_functions().contains_key(definition.name) {
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(ByRow::from(definition))))?;
        }
    }
    if !state.scalar_functions().contains_key("hash") {
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(HashFunction::new())))?;
    }
    Ok(())
}

/// What operators and subscripts are written as.
fn of_syntax() -> [Definition; 5] {
    let [uuid, tried] = uuids::casts();
    [subscripts::text_slice(), globs::matches(), replacements::function(), uuid, tried]
}

const TEXT: &[Kind] = &[Kind::Text];
const TEXTS: &[Kind] = &[Kind::Text, Kind::Text];
const INTEGER: &[Kind] = &[Kind::Integer];

fn text(written: impl Into<String>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(Some(written.into())))
}

fn definition(name: &'static str, parameters: &'static [Kind], result: DataType, body: Body) -> Definition {
    Definition { name, aliases: &[], parameters, least: parameters.len(), result, body }
}

fn numbers() -> Vec<Definition> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    vec![
        Definition {
            aliases: &["to_binary"],
            ..definition("bin", INTEGER, DataType::Utf8, |row| {
                text(format!("{:b}", row.integer(0).unwrap_or(0)))
            })
        },
        Definition {
            aliases: &["from_hex"],
            ..definition("unhex", TEXT, DataType::Binary, |row| {
                Ok(ScalarValue::Binary(Some(bytes_of_hex(row.text(0))?)))
            })
        },
        definition("sha1", TEXT, DataType::Utf8, |row| {
            let digest = Sha1::digest(row.text(0).as_bytes());
            text(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }),
        definition("bit_count", INTEGER, DataType::Int8, |row| {
            let ones = row.integer(0).map_or(0, i64::count_ones);
            Ok(ScalarValue::Int8(i8::try_from(ones).ok()))
        }),
        Definition {
            least: 2,
            ..definition("to_base", &[Kind::Integer; 3], DataType::Utf8, |row| {
                text(digits(
                    row.integer(0).unwrap_or(0),
                    row.integer(1).unwrap_or(0),
                    row.integer(2).unwrap_or(0),
                )?)
            })
        },
        Definition {
            aliases: &["formatreadablesize", "pg_size_pretty"],
            ..definition("format_bytes", INTEGER, DataType::Utf8, |row| {
                text(size(row.integer(0).unwrap_or(0), 1024.0, &["KiB", "MiB", "GiB", "TiB", "PiB"]))
            })
        },
        definition("formatreadabledecimalsize", INTEGER, DataType::Utf8, |row| {
            text(size(row.integer(0).unwrap_or(0), 1000.0, &["kB", "MB", "GB", "TB", "PB"]))
        }),
        definition("kelpie_whole_months", &[Kind::Time, Kind::Time], DataType::Int64, |row| {
            let between = row.integer(0).zip(row.integer(1));
            match between.and_then(|(from, to)| whole_months(from, to)) {
                Some(months) => Ok(ScalarValue::from(months)),
                None => exec_err!("date_sub: a time lies outside of what a calendar has"),
            }
        }),
        definition("age", &[Kind::Time, Kind::Time], interval, |row| {
            let ages = row.integer(0).zip(row.integer(1)).and_then(|(later, earlier)| age(later, earlier));
            match ages {
                Some(age) => Ok(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(
                    age.months, age.days, age.nanoseconds,
                )))),
                None => exec_err!("age: a time lies outside of what a calendar has"),
            }
        }),
    ]
}

fn bytes_of_hex(written: &str) -> Result<Vec<u8>> {
    let digit = |digit: char| match digit.to_digit(16) {
        Some(digit) => Ok(digit as u8),
        None => exec_err!("unhex: '{digit}' is no digit of base 16"),
    };
    let mut digits = Vec::with_capacity(written.len() + 1);
    if written.len() % 2 == 1 {
        digits.push(0);
    }
    for letter in written.chars() {
        digits.push(digit(letter)?);
    }
    let byte = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | digit);
    Ok(digits.chunks(2).map(byte).collect())
}

/// The digits of a number in a base, with zeros before them.
fn digits(number: i64, base: i64, width: i64) -> Result<String> {
    let Some(base) = u32::try_from(base).ok().filter(|base| (2..=36).contains(base)) else {
        return exec_err!("to_base: {base} is no base between 2 and 36");
    };
    if number < 0 {
        return exec_err!("to_base: {number} is less than 0");
    }
    if !(0..=64).contains(&width) {
        return exec_err!("to_base: {width} is no number of digits between 0 and 64");
    }
    let mut rest = number.unsigned_abs();
    let mut digits = Vec::new();
    while rest > 0 || digits.is_empty() {
        let digit = char::from_digit((rest % u64::from(base)) as u32, base).unwrap_or('0');
        digits.push(digit.to_ascii_uppercase());
        rest /= u64::from(base);
    }
    let zeros = usize::try_from(width).unwrap_or(0).saturating_sub(digits.len());
    Ok(std::iter::repeat_n('0', zeros).chain(digits.into_iter().rev()).collect())
}

/// A number of bytes in the greatest unit of which it has one.
fn size(bytes: i64, base: f64, units: &[&str]) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    let mut number = bytes.unsigned_abs() as f64;
    let mut unit = "bytes";
    for larger in units {
        if number < base {
            break;
        }
        number /= base;
        unit = larger;
    }
    match unit {
        "bytes" => format!("{sign}{number} bytes"),
        // What is left is cut.
        unit => format!("{sign}{:.1} {unit}", (number * 10.0).floor() / 10.0),
    }
}

/// How far texts are apart, in characters.
fn likeness() -> Vec<Definition> {
    vec![
        definition("damerau_levenshtein", TEXTS, DataType::Int64, |row| {
            let distance = strsim::damerau_levenshtein(row.text(0), row.text(1));
            Ok(ScalarValue::Int64(i64::try_from(distance).ok()))
        }),
        Definition {
            aliases: &["mismatches"],
            ..definition("hamming", TEXTS, DataType::Int64, |row| {
                match strsim::hamming(row.text(0), row.text(1)) {
                    Ok(distance) => Ok(ScalarValue::Int64(i64::try_from(distance).ok())),
                    Err(_) => {
                        exec_err!("hamming: '{}' and '{}' are not of one length", row.text(0), row.text(1))
                    }
                }
            })
        },
        definition("jaccard", TEXTS, DataType::Float64, |row| {
            let letters = |text: &str| text.chars().collect::<std::collections::HashSet<char>>();
            let (first, second) = (letters(row.text(0)), letters(row.text(1)));
            if first.is_empty() || second.is_empty() {
                return exec_err!("jaccard: a text has no letters");
            }
            let both = first.intersection(&second).count() as f64;
            Ok(ScalarValue::from(both / first.union(&second).count() as f64))
        }),
        definition("jaro_similarity", TEXTS, DataType::Float64, |row| {
            Ok(ScalarValue::from(strsim::jaro(row.text(0), row.text(1))))
        }),
        definition("jaro_winkler_similarity", TEXTS, DataType::Float64, |row| {
            let (first, second) = (row.text(0), row.text(1));
            let likeness = strsim::jaro(first, second);
            let same =
                first.chars().zip(second.chars()).take(4).take_while(|(first, second)| first == second);
            let bonus = if likeness > 0.7 { 0.1 * same.count() as f64 * (1.0 - likeness) } else { 0.0 };
            Ok(ScalarValue::from(likeness + bonus))
        }),
    ]
}

fn paths() -> Vec<Definition> {
    const PARSED: &[Kind] = &[Kind::Text, Kind::Flag];
    vec![
        Definition {
            least: 1,
            ..definition("parse_filename", PARSED, DataType::Utf8, |row| {
                let name = parts(row.text(0)).pop().unwrap_or_default();
                let name = match (row.flag(1), name.rsplit_once('.')) {
                    (Some(true), Some((name, _))) => name,
                    _ => name,
                };
                text(name)
            })
        },
        definition("parse_dirname", TEXT, DataType::Utf8, |row| {
            text(match parts(row.text(0)).as_slice() {
                ["", _, ..] => "/",
                [first, _, ..] => first,
                _ => "",
            })
        }),
        definition("parse_dirpath", TEXT, DataType::Utf8, |row| {
            let path = row.text(0);
            text(path.rfind(['/', '\\']).map_or("", |end| &path[..end]))
        }),
        definition("parse_path", TEXT, texts_type(), |row| {
            let path = row.text(0);
            let root = path.get(..1).filter(|root| ["/", "\\"].contains(root));
            Ok(texts(root.into_iter().chain(parts(path).into_iter().filter(|part| !part.is_empty()))))
        }),
        definition("url_encode", TEXT, DataType::Utf8, |row| {
            let mut written = String::new();
            for byte in row.text(0).bytes() {
                match byte {
                    b'-' | b'_' | b'.' | b'~' => written.push(char::from(byte)),
                    byte if byte.is_ascii_alphanumeric() => written.push(char::from(byte)),
                    byte => written.push_str(&format!("%{byte:02X}")),
                }
            }
            text(written)
        }),
        definition("url_decode", TEXT, DataType::Utf8, |row| {
            let written = row.text(0).as_bytes();
            let mut bytes = Vec::with_capacity(written.len());
            let mut at = 0;
            while let Some(byte) = written.get(at) {
                let digits = written.get(at + 1..at + 3).filter(|_| *byte == b'%');
                let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.push(*byte),
                }
                at += if digits.is_some_and(|digits| u8::from_str_radix(digits, 16).is_ok()) { 3 } else { 1 };
            }
            match String::from_utf8(bytes) {
                Ok(letters) => text(letters),
                Err(_) => exec_err!("url_decode: '{}' is no text of UTF-8", row.text(0)),
            }
        }),
    ]
}

fn parts(path: &str) -> Vec<&str> {
    path.split(['/', '\\']).collect()
}

fn patterns() -> Vec<Definition> {
    const SPLIT: &[Kind] = &[Kind::Text, Kind::Text, Kind::Text];
    const ALL: &[Kind] = &[Kind::Text, Kind::Text, Kind::Integer, Kind::Text];
    vec![
        definition("regexp_escape", TEXT, DataType::Utf8, |row| {
            let escaped =
                |letter: char| match letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii() {
                    true => letter.to_string(),
                    false => format!("\\{letter}"),
                };
            text(row.text(0).chars().map(escaped).collect::<String>())
        }),
        Definition {
            aliases: &["str_split_regex", "regexp_split_to_array", "split_regex"],
            least: 2,
            ..definition("string_split_regex", SPLIT, texts_type(), |row| {
                let split = row.text(0);
                let is_empty = row.text(1).is_empty();
                let parts: Vec<&str> = row.pattern(1, 2)?.split(split).collect();
                // Between any two letters there is nothing, and so there is before the first and behind the last.
                let is_between = |place: usize| !is_empty || (place > 0 && place + 1 < parts.len());
                Ok(texts(
                    parts.iter().enumerate().filter(|(place, _)| is_between(*place)).map(|(_, part)| *part),
                ))
            })
        },
        Definition {
            least: 2,
            ..definition("regexp_extract_all", ALL, texts_type(), |row| {
                let (searched, group) = (row.text(0), row.integer(2).unwrap_or(0));
                let pattern = row.pattern(1, 3)?;
                let group = usize::try_from(group).ok().filter(|group| *group < pattern.captures_len());
                let Some(group) = group else {
                    return exec_err!("regexp_extract_all: the pattern '{pattern}' has no such group");
                };
                Ok(texts(found(pattern, searched, group)))
            })
        },
    ]
}

/// What a group has matched, each time that its pattern has.
fn found<'a>(pattern: &Regex, searched: &'a str, group: usize) -> Vec<&'a str> {
    let of_group = |found: regex::Captures<'a>| found.get(group).map_or("", |part| part.as_str());
    pattern.captures_iter(searched).map(of_group).collect()
}
