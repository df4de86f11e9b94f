//! Texts of skewed lengths in memory, and what lanes do with them: match, compare, look up, group (sections 3.4, 4 and 5.3). The paper
//! has no figure of it.
//!
//! Of each position there is a column whose texts are short, but one of 64 has the position's length: about every third warp has such a
//! text among its rows.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{ArrayRef, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;

use super::ALL_ROWS;
use crate::experiments::memory::{self, below, random};
use crate::experiments::model::{Case, Model};

/// Names of the tables: rows whose texts are looked at, and their different texts.
pub const TABLES: [&str; 2] = ["texts", "keys"];
/// Bytes of the longest texts of a column.
const LENGTHS: [u64; 5] = [16, 64, 256, 1024, 4096];
/// Bytes of the others, at least and at most.
const SHORT: (u64, u64) = (8, 16);
/// One of so many texts is long.
const LONG_EVERY: u64 = 64;
/// Rows of a text, about.
const ROWS_OF_A_TEXT: u64 = 16;
/// One of so many pairs of texts differs, in its last byte.
const DIFFERS_EVERY: u64 = 4;
/// Rows at scale 1.
const ROWS: f64 = (1 << 22) as f64;
/// Letters with which a text says its number: 26^6 are more texts than there are.
const DIGITS: usize = 6;

/// Rows at a scale.
pub fn rows(scale: f64) -> u64 {
    ((ROWS * scale).min(f64::from(i32::MAX)) as u64).max(ROWS_OF_A_TEXT)
}

/// The tables of so many rows, with their names.
pub fn tables(rows: u64, threads: usize) -> Result<Vec<(&'static str, Arc<dyn TableProvider>)>> {
    let keys = rows / ROWS_OF_A_TEXT;
    let number = |row: u64| below(keys, random(1, row));
    let facts = memory::table(&schema(&["t", "u"]), rows, threads, &|part| {
        let of = |longest: u64| {
            let texts = column(&part, |row| text(number(row), longest));
            [texts, column(&part, |row| pair(text(number(row), longest), row))]
        };
        LENGTHS.into_iter().flat_map(of).collect()
    })?;
    let keys = memory::table(&schema(&["k"]), keys, threads, &|part| {
        LENGTHS.map(|longest| column(&part, |key| text(key, longest))).to_vec()
    })?;
    Ok(TABLES.into_iter().zip([facts, keys]).collect())
}

/// A column of texts for each length and each of the names that precede it.
fn schema(names: &[&str]) -> SchemaRef {
    let of = |longest: u64| {
        names.iter().map(move |name| Field::new(format!("{name}{longest}"), DataType::Utf8, false))
    };
    Arc::new(Schema::new(LENGTHS.into_iter().flat_map(of).collect::<Vec<_>>()))
}

fn column(part: &Range<u64>, text: impl Fn(u64) -> String) -> ArrayRef {
    let mut texts = StringBuilder::new();
    part.clone().for_each(|row| texts.append_value(text(row)));
    let texts: StringArray = texts.finish();
    Arc::new(texts)
}

/// The text of a number: letters, of which the first tell the number.
fn text(number: u64, longest: u64) -> String {
    let (least, most) = SHORT;
    let is_long = random(2, number).is_multiple_of(LONG_EVERY);
    let length = if is_long { longest } else { least + below(most - least + 1, random(3, number)) };
    let letter = |bits: u64| char::from(b'a' + (bits % 26) as u8);
    let mut text = String::with_capacity(length as usize);
    let mut rest = number;
    for _ in 0..DIGITS {
        text.push(letter(rest));
        rest /= 26;
    }
    while (text.len() as u64) < length {
        // Eight letters of one random number.
        let bits = random(4, number << 16 | text.len() as u64);
        let letters = (0..8).map(|byte| letter(bits >> (8 * byte) & 0xff));
        text.extend(letters.take((length - text.len() as u64) as usize));
    }
    text
}

/// What a row's text is compared with: itself, or itself but for the last letter.
fn pair(mut text: String, row: u64) -> String {
    if random(5, row).is_multiple_of(DIFFERS_EVERY) {
        text.pop();
        text.push('-');
    }
    text
}

/// Lets the tables of groups and joins be hash tables in the device's memory, in which every row is looked up by its text.
const BY_HASH: &[(&str, &str)] = &[
    ("group_table", "hash"),
    ("group_parts", "1"),
    ("local_preaggregation", "0"),
    ("key_filter", "off"),
    ("join_parts", "1"),
];

/// A model for each of the values of an axis.
fn levels(axis: &str, values: &[&str]) -> Vec<Model> {
    let model = |value: &&str| Model::variants(value, &[ALL_ROWS, BY_HASH, &[(axis, *value)]].concat());
    values.iter().map(model).collect()
}

/// What lanes do with the texts of each length.
pub fn cases() -> Vec<Case> {
    LENGTHS.into_iter().flat_map(of_length).collect()
}

fn of_length(longest: u64) -> Vec<Case> {
    let (t, u, k) = (format!("t{longest}"), format!("u{longest}"), format!("k{longest}"));
    let matched = ["lane", "run", "refill"];
    let shared = ["lane", "warp"];
    let of = |series: &str, (axis, values): (&str, &[&str]), pipeline, sql: String| {
        let case = super::as_written(Case::new(longest, Some(longest as f64), sql), pipeline);
        let settings =
            case.settings.into_iter().chain([("kelpie.dictionaries".into(), "off".into())]).collect();
        Case { series: Some(series.into()), settings, models: levels(axis, values), ..case }
    };
    let counted = |condition: String| format!("select count(*)\nfrom texts\nwhere {condition}");
    vec![
        of("like", ("text_lanes", &matched), "scan", counted(format!("{t} like '%zebra%'"))),
        of("like, two", ("text_lanes", &matched), "scan", counted(format!("{t} like '%th%zebra%'"))),
        of("regex", ("text_lanes", &["lane", "refill"]), "scan", counted(format!("{t} ~ 'z[a-m]*bra'"))),
        of("equal", ("text_lanes", &shared), "scan", counted(format!("{t} = {u}"))),
        of(
            "join",
            ("key_text_lanes", &shared),
            " join ",
            format!("select count(*)\nfrom keys join texts on {k} = {t}"),
        ),
        of(
            "group",
            ("key_text_lanes", &shared),
            "scan",
            format!("select count(*), max(c)\nfrom (select {t}, count(*) as c from texts group by {t})"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_few_texts_are_long_and_no_two_are_alike() {
        let texts: Vec<String> = (0..10_000).map(|number| text(number, 1024)).collect();
        let long = texts.iter().filter(|text| text.len() == 1024).count();
        assert!((100..220).contains(&long), "{long}");
        assert!(texts.iter().all(|text| text.len() == 1024 || (8..=16).contains(&text.len())));
        assert_eq!(texts.iter().collect::<HashSet<_>>().len(), texts.len());
        let differ = (0..1000).filter(|row| pair("abc".into(), *row) != "abc").count();
        assert!((200..300).contains(&differ), "{differ}");
        assert_eq!(rows(1.0), 4_194_304);
        assert_eq!(rows(1e-9), 16);
    }
}
