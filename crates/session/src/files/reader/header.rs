//! Whether the first line of a CSV file is a header, and the names that it gives.

use std::collections::{HashMap, HashSet};

use datafusion::arrow::datatypes::{DataType, Field, Schema};

use super::csv_types::Kinds;
use crate::files::dialect::Dialect;
use crate::files::given::Given;

/// What the first line of a file looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstLine {
    /// Values of other kinds than those below.
    Header,
    /// A row as those below.
    Row,
    /// All is text.
    Unclear,
}

/// What the first file of a table is like: others are as it is where they do not say.
#[derive(Debug)]
pub(super) struct FirstFile {
    has_header: bool,
    names: Vec<String>,
}

impl FirstFile {
    pub fn of(dialect: &Dialect, schema: &Schema) -> FirstFile {
        let names = schema.fields().iter().map(|field| field.name().clone()).collect();
        FirstFile { has_header: dialect.has_header, names }
    }
}

/// What a first line looks like above rows whose values are of such kinds. Where there are none, a line that is not all text is a row.
pub(super) fn first_line(first: &csv::ByteRecord, rows: Option<&[Kinds]>, dialect: &Dialect) -> FirstLine {
    let mut alone = vec![Kinds::default(); first.len()];
    let mut is_empty = true;
    for (kinds, value) in alone.iter_mut().zip(first) {
        let Ok(value) = std::str::from_utf8(value) else { return FirstLine::Unclear };
        is_empty &= dialect.is_null(value);
        add(kinds, value, dialect);
    }
    let typed: Vec<(usize, Kinds)> = match rows {
        Some(rows) => rows.iter().copied().enumerate().filter(|(_, kinds)| kinds.are_typed()).collect(),
        None => alone.iter().copied().enumerate().filter(|(_, kinds)| kinds.are_typed()).collect(),
    };
    if typed.is_empty() {
        return FirstLine::Unclear;
    }
    let fits = |(column, kinds): &(usize, Kinds)| {
        let value = first.get(*column).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
        dialect.is_null(value) || dialect.forms.plain(value).is_some_and(|plain| kinds.is_alike(&plain))
    };
    match !is_empty && typed.iter().all(fits) {
        true => FirstLine::Row,
        false => FirstLine::Header,
    }
}

/// Adds a value to the kinds of its column.
pub(super) fn add(kinds: &mut Kinds, value: &str, dialect: &Dialect) {
    if dialect.is_null(value) {
        return;
    }
    match dialect.forms.plain(value) {
        Some(plain) => kinds.add(&plain),
        None => kinds.add_text(),
    }
}

/// The names of a file's columns, and whether they are those of its first line.
#[derive(Debug)]
pub(super) struct Named {
    pub has_header: bool,
    pub names: Vec<String>,
    /// Whether the first line is taken for a row though nobody said so, and its columns have no names.
    pub has_made_names: bool,
}

/// Names columns by the first line, or without it: by what is said of it, by what it looks like, and by the table's first file.
pub(super) fn named(
    first: &csv::ByteRecord,
    said: Option<bool>,
    looks: FirstLine,
    of_table: Option<&FirstFile>,
) -> Named {
    let has_header = match (said, looks) {
        (Some(said), _) => said,
        (None, FirstLine::Header) => true,
        (None, FirstLine::Row) => false,
        (None, FirstLine::Unclear) => of_table.is_none_or(|of_table| of_table.has_header),
    };
    if has_header {
        return Named { has_header, names: names_of(first), has_made_names: false };
    }
    // A file that was cut into parts has a header in the first one alone.
    let continued = of_table.filter(|table| table.has_header && table.names.len() == first.len());
    match continued.filter(|_| said.is_none()) {
        Some(table) => Named { has_header, names: table.names.clone(), has_made_names: false },
        None => {
            let names = (0..first.len()).map(|place| made_name(place, first.len())).collect();
            Named { has_header, names, has_made_names: said.is_none() }
        }
    }
}

/// The name of a column without one, as DuckDB gives it: all of a table's have as many digits.
fn made_name(place: usize, columns: usize) -> String {
    let digits = columns.saturating_sub(1).to_string().len();
    format!("column{place:0digits$}")
}

/// The names of a header without blanks around them: those that are empty, or there before, get numbers.
fn names_of(record: &csv::ByteRecord) -> Vec<String> {
    let given = record.iter().enumerate().map(|(place, name)| match name.trim_ascii() {
        [] => made_name(place, record.len()),
        name => String::from_utf8_lossy(name).into_owned(),
    });
    told_apart(&given.collect::<Vec<_>>())
}

/// Names of which those that are there before get numbers, other ones than stand in names anyway.
pub(super) fn told_apart(given: &[String]) -> Vec<String> {
    let all: HashSet<&str> = given.iter().map(String::as_str).collect();
    let (mut names, mut taken) = (Vec::with_capacity(given.len()), HashSet::with_capacity(given.len()));
    // A file may have thousands of one name: numbers go on where the last one was.
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for name in given {
        let number = numbers.entry(name).or_default();
        let mut unique = name.clone();
        while taken.contains(&unique) || (*number > 0 && all.contains(unique.as_str())) {
            *number += 1;
            unique = format!("{name}_{number}");
        }
        taken.insert(unique.clone());
        names.push(unique);
    }
    names
}

/// The names that a statement gives columns, the first ones or all.
pub(super) fn given_names(mut names: Vec<String>, given: &Given) -> Result<Vec<String>, String> {
    let all: Vec<&String> = given.columns.iter().map(|(name, _)| name).collect();
    let wanted = if all.is_empty() { given.names.iter().collect() } else { all };
    if wanted.len() > names.len() || !given.columns.is_empty() && wanted.len() != names.len() {
        return Err(format!(
            "{} columns are given, and the first line has {} values",
            wanted.len(),
            names.len()
        ));
    }
    for (name, wanted) in names.iter_mut().zip(wanted) {
        name.clone_from(wanted);
    }
    match names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
        Some((_, twice)) => Err(format!("two columns are named {twice}")),
        None => Ok(names),
    }
}

/// Columns in the types that a statement gives them.
pub(super) fn given_types(mut fields: Vec<Field>, given: &Given) -> Result<Vec<Field>, String> {
    if given.all_text {
        fields.iter_mut().for_each(|field| field.set_data_type(DataType::Utf8));
    }
    let columns = given.columns.iter().map(|(_, data_type)| data_type);
    for (field, data_type) in fields.iter_mut().zip(columns) {
        field.set_data_type(data_type.clone());
    }
    for (place, (name, data_type)) in given.types.iter().enumerate() {
        let found = match name {
            None => fields.get_mut(place),
            Some(name) => fields.iter_mut().find(|field| field.name().eq_ignore_ascii_case(name)),
        };
        match found {
            Some(field) => field.set_data_type(data_type.clone()),
            None => {
                let shown = name.clone().unwrap_or_else(|| format!("number {}", place + 1));
                return Err(format!("there is no column {shown}, which a type is given for"));
            }
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::told_apart;

    #[test]
    fn names_that_come_twice_get_numbers() {
        for (given, expected) in [
            (&["a", "b"][..], &["a", "b"][..]),
            (&["a", "a", "a"], &["a", "a_1", "a_2"]),
            (&["a", "a_1", "a"], &["a", "a_1", "a_2"]),
            (&["a", "a", "a_1"], &["a", "a_2", "a_1"]),
            (&["a", "a_1", "a_1", "a"], &["a", "a_1", "a_1_1", "a_2"]),
        ] {
            let given: Vec<String> = given.iter().map(ToString::to_string).collect();
            assert_eq!(told_apart(&given), expected, "{given:?}");
        }
        // Not by comparing each with all others, which took minutes.
        let many = vec!["a".to_string(); 100_000];
        assert_eq!(told_apart(&many).last().map(String::as_str), Some("a_99999"));
    }
}
