//! Tables, columns, functions and options that are not there.

use datafusion::common::{Column, SchemaError};
use datafusion::execution::session_state::SessionState;

use super::place::Tokens;
use super::{Worded, nearest};

/// Names that are listed where none is near, at most.
const LISTED: usize = 12;

/// Functions that other systems have under a name of their own.
const SYNONYMS: [(&str, &str); 11] = [
    ("charindex", "strpos(text, part)"),
    ("dateadd", "date + interval '1 day'"),
    ("getdate", "now()"),
    ("iif", "CASE WHEN … THEN … ELSE … END"),
    ("instr", "strpos(text, part)"),
    ("isnull", "coalesce(a, b)"),
    ("nvl2", "CASE WHEN … IS NOT NULL THEN … ELSE … END"),
    ("rand", "random()"),
    ("sysdate", "now()"),
    ("to_number", "cast(text as double)"),
    ("toint", "cast(text as bigint)"),
];

/// A column that is not there, or that several tables have.
pub(super) fn column(error: &SchemaError, tokens: &Tokens<'_>) -> Option<Worded> {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => Some(missing(field, valid_fields, tokens)),
        SchemaError::AmbiguousReference { field } if field.relation.is_none() => {
            let place = tokens.name(&[&field.name], false);
            let text = format!(
                "the column `{}` is ambiguous, as several tables have it: write the table before it, as in `t.{}`",
                field.name, field.name
            );
            Some(Worded::at(text, place))
        }
        SchemaError::DuplicateQualifiedField { qualifier, .. } => {
            let table = qualifier.table();
            let text = format!(
                "the table `{table}` stands twice in FROM: give one of them a name of its own, as in `{table} b`"
            );
            Some(Worded::at(text, tokens.name(&[table], false)))
        }
        _ => None,
    }
}

fn missing(field: &Column, valid: &[Column], tokens: &Tokens<'_>) -> Worded {
    let name = field.name.as_str();
    let relation = field.relation.as_ref().map(ToString::to_string);
    let table = field.relation.as_ref().map(|relation| relation.table().to_string());
    let place = match &table {
        Some(table) => tokens.name(&[table, name], false).or_else(|| tokens.name(&[name], false)),
        None => tokens.name(&[name], false),
    };
    let tables = distinct(
        valid.iter().filter_map(|column| column.relation.as_ref()).map(|table| table.table().to_string()),
    );
    if let Some(table) = table.filter(|table| !tables.contains(table)) {
        let near = nearest(&table, tables.iter());
        let known = match near {
            Some(near) => format!("; did you mean `{near}`?"),
            None if tables.is_empty() => String::new(),
            None => format!("; there are {}", listed(&tables)),
        };
        return Worded::at(
            format!("the statement has no table `{table}` for the column `{name}`{known}"),
            place,
        );
    }
    let of_table = valid.iter().filter(|column| relation.is_none() || column.relation == field.relation);
    let columns = distinct(of_table.map(|column| column.name.clone()));
    let within = match (&relation, tables.as_slice()) {
        (Some(relation), _) => format!(" in `{relation}`"),
        (None, [one]) => format!(" in `{one}`"),
        _ => String::new(),
    };
    let hint = if valid.is_empty() {
        ": the statement has no FROM".to_string()
    } else if let Some(near) = nearest(name, columns.iter()) {
        format!("; did you mean `{near}`?")
    } else if tokens.is_given(name) {
        "; SELECT gives that name, which is not known in WHERE and beside it: repeat what it stands for"
            .to_string()
    } else if tokens.is_in_double_quotes(name) {
        format!("; a text stands in single quotes: '{}'", name.replace('\'', "''"))
    } else if let [whole] = columns.as_slice()
        && whole.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part.eq_ignore_ascii_case(name))
    {
        format!(
            ": its only column is `{whole}`. If another sign stands between the values of the file, it is an option of: \
             CREATE EXTERNAL TABLE name STORED AS CSV LOCATION '…' OPTIONS ('format.delimiter' ' ')"
        )
    } else {
        format!("; there are {}", listed(&columns))
    };
    Worded::at(format!("there is no column `{name}`{within}{hint}"), place)
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len() > LISTED {
        true => format!("{shown} and {} others", names.len() - LISTED),
        false => shown,
    }
}

/// A table that is not there.
pub(super) fn table(message: &str, tokens: &Tokens<'_>, state: &SessionState) -> Option<Worded> {
    let full = message.strip_prefix("table '")?.strip_suffix("' not found")?;
    let options = &state.config_options().catalog;
    let usual = format!("{}.", options.default_catalog);
    let name = full.strip_prefix(&usual).unwrap_or(full);
    let name = name.strip_prefix(&format!("{}.", options.default_schema)).unwrap_or(name);
    let schema = state.catalog_list().catalog(&options.default_catalog);
    let schema = schema.and_then(|catalog| catalog.schema(&options.default_schema));
    let tables = schema.map(|schema| schema.table_names()).unwrap_or_default();
    let parts: Vec<&str> = name.split('.').collect();
    let as_path = tokens.name(&[name], false).filter(|_| name.contains(['.', '/']));
    let (is_path, place) = (as_path.is_some(), as_path.or_else(|| tokens.name(&parts, false)));
    let hint = match nearest(name, tables.iter()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if is_path => "; there is no such file either".to_string(),
        None if tables.is_empty() => "; there are no tables: from 'file.parquet' reads a file".to_string(),
        None if tables.len() <= LISTED => format!("; there are {}", listed(&sorted(tables))),
        None => String::new(),
    };
    Some(Worded::at(format!("the table `{name}` was not found{hint}"), place))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// A function that is not there, or a table before `.*`.
pub(super) fn function(message: &str, tokens: &Tokens<'_>, state: &SessionState) -> Option<Worded> {
    if let Some(name) =
        message.strip_prefix("table function '").and_then(|rest| rest.strip_suffix("' not found"))
    {
        let mut names: Vec<&String> = state.table_functions().keys().collect();
        names.sort();
        let near = nearest(name, names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        return Some(Worded::at(
            format!("there is no table function `{name}`{near}"),
            tokens.name(&[name], true),
        ));
    }
    if let Some(name) = message.strip_prefix("Invalid qualifier ") {
        return Some(Worded::at(format!("the statement has no table `{name}`"), None));
    }
    let name = message.strip_prefix("Invalid function '")?.split('\'').next()?;
    let place = tokens.name(&[name], true);
    let lower = name.to_lowercase();
    if state.window_functions().contains_key(&lower) {
        let text = format!("{lower} is a window function: OVER (…) stands behind it");
        return Some(Worded::at(text, place));
    }
    let functions = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
    let mut functions: Vec<&String> = functions.chain(state.window_functions().keys()).collect();
    functions.sort();
    let hint = match SYNONYMS.iter().find(|(known, _)| *known == lower) {
        Some((_, other)) => format!("; use {other}"),
        None => nearest(name, functions).map_or(String::new(), |near| format!("; did you mean `{near}`?")),
    };
    Some(Worded::at(format!("there is no function `{name}`{hint}"), place))
}

/// An option that is not there.
pub(super) fn option(message: &str, state: &SessionState) -> Option<Worded> {
    let found =
        message.split_once("Config value \"").and_then(|(_, rest)| rest.split_once("\" not found on "));
    let ours = || message.strip_prefix("unknown option ")?.split_once("; ");
    let namespace = || message.split_once("could not find config namespace for key \"")?.1.split_once('"');
    let name = found.or_else(ours).or_else(namespace)?.0;
    let keys: Vec<String> = state.config_options().entries().into_iter().map(|entry| entry.key).collect();
    let end = |key: &str| key.rsplit('.').next().unwrap_or_default().to_string();
    let by_end = || keys.iter().find(|key| end(key) == end(name)).cloned();
    let by_near_end = || {
        let ends: Vec<String> = keys.iter().map(|key| end(key)).collect();
        let near = nearest(&end(name), ends.iter())?;
        keys.iter().find(|key| end(key) == near).cloned()
    };
    let near = by_end().or_else(|| nearest(name, keys.iter())).or_else(by_near_end);
    match near {
        Some(near) => Some(Worded::at(format!("there is no option `{name}`; did you mean `{near}`?"), None)),
        // Ours are listed.
        None if ours().is_some() => None,
        None => Some(Worded::at(format!("there is no option `{name}`; SHOW ALL lists the options"), None)),
    }
}

/// A value that an option cannot have.
pub(super) fn setting(message: &str) -> Option<Worded> {
    let (key, rest) = message.strip_prefix("Error setting config ")?.split_once(": Error parsing '")?;
    let (value, wanted) = rest.split_once("' as ")?;
    let wanted = match wanted.split(':').next().unwrap_or_default() {
        "bool" => "neither true nor false",
        "f64" => "no number",
        _ => "no whole number",
    };
    Some(Worded::at(format!("{key}: '{value}' is {wanted}"), None))
}
