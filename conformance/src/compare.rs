//! Whether two results of a statement are the same.

use std::cmp::Ordering;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast;

use crate::answer::Answer;

/// Floats may differ by this, relatively: sums of another order round differently.
const TOLERANCE: f64 = 1e-9;

/// The settings that Kelpie adds to a session; whoever lists all settings sees them.
const OWN_SETTINGS: &str = "kelpie.";

/// Rows of a difference that are shown.
const ROWS_SHOWN: usize = 5;

/// What of a statement decides how its results are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Rows in the order of its ORDER BY.
    Ordered,
    /// Rows in any order.
    Unordered,
    /// A plan, which is another one with Kelpie: only whether there is one.
    Explain,
}

impl Form {
    /// Of a statement's text.
    pub fn of(sql: &str) -> Form {
        let parsed = DFParser::parse_sql(sql).ok().and_then(|mut statements| statements.pop_back());
        match parsed {
            Some(Statement::Explain(_)) => Form::Explain,
            Some(Statement::Statement(statement)) => match *statement {
                ast::Statement::Query(query) if query.order_by.is_some() => Form::Ordered,
                _ => Form::Unordered,
            },
            Some(_) => Form::Unordered,
            // Another dialect: its words must do.
            None => {
                let upper = sql.trim_start().to_uppercase();
                match (upper.starts_with("EXPLAIN"), upper.contains("ORDER BY")) {
                    (true, _) => Form::Explain,
                    (_, true) => Form::Ordered,
                    _ => Form::Unordered,
                }
            }
        }
    }
}

/// How the result of a statement with Kelpie differs from plain DataFusion's, which counts. `passed` says whether Kelpie's is
/// what the file expects.
pub fn difference(sql: &str, plain: &Answer, kelpie: &Answer, passed: bool) -> Option<String> {
    match (plain, kelpie) {
        (Answer::Rows { .. } | Answer::Failed(_), Answer::Panicked(message)) => {
            Some(format!("panics: {message}"))
        }
        (Answer::Rows { .. }, Answer::Failed(error)) => Some(format!("fails: {error}")),
        (Answer::Rows { schema, rows }, Answer::Rows { schema: other, rows: others }) => {
            match Form::of(sql) {
                Form::Explain => None,
                form => types(schema, other).or_else(|| values(schema, rows, others, form)),
            }
        }
        (Answer::Failed(error), Answer::Failed(other)) => {
            (!passed && error != other).then(|| format!("fails as\n  {other}\nnot as\n  {error}"))
        }
        (Answer::Failed(error), Answer::Rows { rows, .. }) => {
            Some(format!("gives {} rows, where plain DataFusion fails: {error}", rows.len()))
        }
        // What plain DataFusion dies of says nothing.
        (Answer::Panicked(_), _) => None,
    }
}

fn types(plain: &SchemaRef, kelpie: &SchemaRef) -> Option<String> {
    let columns = |schema: &SchemaRef| {
        let column = |field: &datafusion::arrow::datatypes::FieldRef| {
            format!("{}: {}", field.name(), field.data_type())
        };
        schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
    };
    let (plain, kelpie) = (columns(plain), columns(kelpie));
    (plain != kelpie).then(|| format!("has columns\n  {kelpie}\nnot\n  {plain}"))
}

type Row = Vec<String>;

fn values(schema: &SchemaRef, plain: &[Row], kelpie: &[Row], form: Form) -> Option<String> {
    let is_float: Vec<bool> = schema.fields().iter().map(|field| floating(field.data_type())).collect();
    let own = |row: &&Row| row.first().is_some_and(|first| first.starts_with(OWN_SETTINGS));
    let mut plain: Vec<&Row> = plain.iter().collect();
    let mut kelpie: Vec<&Row> = kelpie.iter().filter(|row| !own(row)).collect();
    if plain.len() != kelpie.len() {
        return Some(format!("has {} rows, not {}", kelpie.len(), plain.len()));
    }
    let same = |plain: &[&Row], kelpie: &[&Row]| {
        plain.iter().zip(kelpie).all(|(plain, kelpie)| same_row(plain, kelpie, &is_float))
    };
    if same(&plain, &kelpie) {
        return None;
    }
    let in_order = (form == Form::Ordered).then(|| shown(&plain, &kelpie, &is_float));
    plain.sort_by(|a, b| order(a, b, &is_float));
    kelpie.sort_by(|a, b| order(a, b, &is_float));
    match (same(&plain, &kelpie), in_order) {
        (true, None) => None,
        (true, Some(shown)) => Some(format!("has the rows in another order\n{shown}")),
        (false, _) => Some(format!("has other values\n{}", shown(&plain, &kelpie, &is_float))),
    }
}

fn floating(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => floating(values),
        _ => data_type.is_floating(),
    }
}

fn same_row(plain: &[String], kelpie: &[String], is_float: &[bool]) -> bool {
    // A row of EXPLAIN's text is cut into several of one column.
    let cells = plain.iter().zip(kelpie).enumerate();
    plain.len() == kelpie.len()
        && cells.into_iter().all(|(column, (plain, kelpie))| {
            plain == kelpie || is_float.get(column).is_some_and(|&float| float) && close(plain, kelpie)
        })
}

fn close(plain: &str, kelpie: &str) -> bool {
    match (plain.parse::<f64>(), kelpie.parse::<f64>()) {
        (Ok(plain), Ok(kelpie)) => (plain - kelpie).abs() <= TOLERANCE * plain.abs().max(kelpie.abs()),
        _ => false,
    }
}

/// Rows by their columns that are no floats, and only then by these, as they may differ a little.
fn order(a: &[String], b: &[String], is_float: &[bool]) -> Ordering {
    let exact = |row: &[String]| {
        let cells = row.iter().enumerate().filter(|(column, _)| !is_float.get(*column).is_some_and(|&f| f));
        cells.map(|(_, cell)| cell.clone()).collect::<Vec<_>>()
    };
    let floats = |row: &[String]| {
        let cells = row.iter().enumerate().filter(|(column, _)| is_float.get(*column).is_some_and(|&f| f));
        cells.map(|(_, cell)| cell.parse::<f64>().unwrap_or(f64::NAN)).collect::<Vec<_>>()
    };
    exact(a).cmp(&exact(b)).then_with(|| {
        let pairs = floats(a).into_iter().zip(floats(b));
        pairs.map(|(a, b)| a.total_cmp(&b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })
}

/// The first rows that differ.
fn shown(plain: &[&Row], kelpie: &[&Row], is_float: &[bool]) -> String {
    let pairs = plain.iter().zip(kelpie).enumerate();
    let differing = pairs.filter(|(_, (plain, kelpie))| !same_row(plain, kelpie, is_float));
    let line = |(row, (plain, kelpie)): (usize, (&&Row, &&Row))| {
        format!("  row {row}: {}\n  not    : {}", kelpie.join(" | "), plain.join(" | "))
    };
    differing.take(ROWS_SHOWN).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::{Field, Schema};

    use super::*;

    fn answer(columns: &[(&str, DataType)], rows: &[&[&str]]) -> Answer {
        let fields = columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        let row = |row: &&[&str]| row.iter().map(|cell| cell.to_string()).collect();
        Answer::Rows {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            rows: rows.iter().map(row).collect(),
        }
    }

    fn text(rows: &[&[&str]]) -> Answer {
        answer(&[("a", DataType::Utf8), ("b", DataType::Utf8)], rows)
    }

    #[test]
    fn forms_are_read_from_the_statement() {
        assert_eq!(Form::of("SELECT a FROM t ORDER BY a"), Form::Ordered);
        assert_eq!(Form::of("SELECT * FROM (SELECT a FROM t ORDER BY a)"), Form::Unordered);
        assert_eq!(Form::of("SELECT sum(a) OVER (ORDER BY b) FROM t"), Form::Unordered);
        assert_eq!(Form::of("-- why\nEXPLAIN SELECT a FROM t ORDER BY a"), Form::Explain);
        assert_eq!(Form::of("explain analyze select 1"), Form::Explain);
        assert_eq!(Form::of("SELECT a FROM t WHERE <- nonsense ORDER BY a"), Form::Ordered);
    }

    #[test]
    fn order_counts_where_the_statement_asks_for_one() {
        let (plain, kelpie) = (text(&[&["1", "x"], &["2", "y"]]), text(&[&["2", "y"], &["1", "x"]]));
        assert_eq!(difference("SELECT a, b FROM t", &plain, &kelpie, false), None);
        let how = difference("SELECT a, b FROM t ORDER BY a", &plain, &kelpie, true);
        assert!(how.is_some_and(|how| how.contains("another order")));
    }

    #[test]
    fn rows_types_and_names_count() {
        let plain = text(&[&["1", "x"]]);
        let sql = "SELECT a, b FROM t";
        for kelpie in [
            text(&[&["1", "z"]]),
            text(&[]),
            answer(&[("a", DataType::Utf8), ("c", DataType::Utf8)], &[&["1", "x"]]),
            answer(&[("a", DataType::Utf8View), ("b", DataType::Utf8)], &[&["1", "x"]]),
            Answer::Failed("no".into()),
            Answer::Panicked("no".into()),
        ] {
            assert!(difference(sql, &plain, &kelpie, true).is_some(), "{kelpie:?}");
        }
        assert_eq!(difference(sql, &plain, &plain, false), None);
        assert_eq!(difference("EXPLAIN SELECT 1", &plain, &text(&[]), false), None);
        assert!(difference("EXPLAIN SELECT 1", &plain, &Answer::Failed("no".into()), false).is_some());
    }

    #[test]
    fn floats_may_round_differently_and_nothing_else_may() {
        let of = |data_type: &DataType, value: &str| {
            answer(&[("k", DataType::Utf8), ("v", data_type.clone())], &[&["k", value], &["k", "0.1"]])
        };
        let sql = "SELECT k, v FROM t";
        let plain = of(&DataType::Float64, "0.3");
        assert_eq!(difference(sql, &plain, &of(&DataType::Float64, "0.30000000000000004"), true), None);
        assert!(difference(sql, &plain, &of(&DataType::Float64, "0.3001"), true).is_some());
        let decimal = DataType::Decimal128(20, 17);
        let plain = of(&decimal, "0.30000000000000000");
        assert!(difference(sql, &plain, &of(&decimal, "0.30000000000000004"), true).is_some());
    }

    #[test]
    fn errors_are_the_same_or_what_the_file_expects() {
        let (plain, kelpie) = (Answer::Failed("a: b".into()), Answer::Failed("a: c".into()));
        assert_eq!(difference("SELECT 1", &plain, &kelpie, true), None);
        assert_eq!(difference("SELECT 1", &plain, &plain, false), None);
        assert!(difference("SELECT 1", &plain, &kelpie, false).is_some());
        assert!(difference("SELECT 1", &plain, &text(&[]), true).is_some());
        assert_eq!(difference("SELECT 1", &Answer::Panicked("x".into()), &kelpie, false), None);
    }

    #[test]
    fn the_settings_that_kelpie_adds_are_no_difference() {
        let plain = text(&[&["datafusion.x", "1"]]);
        let kelpie = text(&[&["datafusion.x", "1"], &["kelpie.device", "cpu"]]);
        assert_eq!(difference("SHOW ALL", &plain, &kelpie, false), None);
    }
}
