//! A failing query, its parts and its tables' rows left out as long as it still fails.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::Result;
use kelpie_engine::Engine;

use super::super::compare::{Outcome, compare, unless_panicking};
use super::super::ordering_sessions;
use super::generator::Query;

use super::tables::Table;
use crate::Stage;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Tables with more rows in all are not printed.
const ROWS_SHOWN: usize = 40;

/// A table's name and rows.
type Rows = (String, RecordBatch);

struct Shrinker<'a> {
    settings: &'a [(&'a str, &'a str)],
    engine: &'a Arc<Engine>,
    start: Instant,
    /// The kind of the difference that must stay.
    kind: String,
}

/// A smaller query that differs, its tables, and how it differs.
pub(super) async fn shrink(
    (query, how): (Query, &str),
    tables: &[Table],
    settings: &[(&str, &str)],
    engine: &Arc<Engine>,
) -> Result<String> {
    let shrinker = Shrinker { settings, engine, start: Instant::now(), kind: kind_of(how) };
    let whole = |table: &Table| -> Result<Rows> {
        Ok((table.name.clone(), concat_batches(&table.batches[0].schema(), &table.batches)?))
    };
    let mut tables = tables.iter().map(whole).collect::<Result<Vec<_>>>()?;
    let query = shrinker.query(query, &tables).await?;
    let sql = query.generated().sql;
    tables.retain(|(name, _)| sql.contains(&format!("{name} ")));
    shrinker.rows(&query, &mut tables).await?;
    let how = shrinker.differs(&query, &tables).await?;
    let mut text = format!("  smaller: {sql}\n  {}\n", how.unwrap_or_else(|| "not every time".into()));
    let plan = unless_panicking(shrinker.plan(&sql, &tables)).await;
    let plan = plan.unwrap_or_else(Ok)?;
    plan.lines().for_each(|line| text.push_str(&format!("  | {line}\n")));
    for (name, batch) in &tables {
        text.push_str(&shown(name, batch)?);
    }
    Ok(text)
}

impl Shrinker<'_> {
    /// How the answers differ, if they do.
    async fn differs(&self, query: &Query, tables: &[Rows]) -> Result<Option<String>> {
        let named = tables.iter().map(|(name, batch)| (name.as_str(), std::slice::from_ref(batch)));
        let (plain, kelpie) = ordering_sessions(named, self.settings, self.engine)?;
        match compare(&plain, &kelpie, &query.generated()).await {
            Outcome::Different(how) if kind_of(&how) == self.kind => Ok(Some(how)),
            _ => Ok(None),
        }
    }

    /// How Kelpie plans the query.
    async fn plan(&self, sql: &str, tables: &[Rows]) -> Result<String> {
        let named = tables.iter().map(|(name, batch)| (name.as_str(), std::slice::from_ref(batch)));
        let (_, kelpie) = ordering_sessions(named, self.settings, self.engine)?;
        kelpie.explain(sql, Stage::Plan).await
    }

    async fn query(&self, mut query: Query, tables: &[Rows]) -> Result<Query> {
        'smaller: while self.start.elapsed() < LIMIT / 2 {
            for smaller in query.smaller() {
                if self.start.elapsed() > LIMIT / 2 {
                    break;
                }
                if self.differs(&smaller, tables).await?.is_some() {
                    query = smaller;
                    continue 'smaller;
                }
            }
            break;
        }
        Ok(query)
    }

    /// Leaves out rows: halves, quarters and so on of each table.
    async fn rows(&self, query: &Query, tables: &mut [Rows]) -> Result<()> {
        for table in 0..tables.len() {
            let mut chunk = tables[table].1.num_rows().div_ceil(2);
            while chunk > 0 && self.start.elapsed() < LIMIT {
                let mut first = 0;
                while first < tables[table].1.num_rows() && self.start.elapsed() < LIMIT {
                    let whole = tables[table].1.clone();
                    tables[table].1 = without(&whole, first, chunk)?;
                    if self.differs(query, tables).await?.is_none() {
                        tables[table].1 = whole;
                        first += chunk;
                    }
                }
                chunk /= 2;
            }
        }
        Ok(())
    }
}

/// Of a failure its text without numbers and types, of other differences nothing.
fn kind_of(how: &str) -> String {
    let failure = how.starts_with("only Kelpie fails") || how.starts_with("Kelpie panics");
    let words = how.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| failure && !word.contains(|c: char| c.is_ascii_digit()));
    words.take(14).collect::<Vec<_>>().join(" ")
}

fn without(batch: &RecordBatch, first: usize, count: usize) -> Result<RecordBatch> {
    let end = (first + count).min(batch.num_rows());
    let parts = [batch.slice(0, first), batch.slice(end, batch.num_rows() - end)];
    Ok(concat_batches(&batch.schema(), &parts)?)
}

fn shown(name: &str, batch: &RecordBatch) -> Result<String> {
    let schema = batch.schema();
    let columns: Vec<String> = schema
        .fields()
        .iter()
        .map(|f| format!("{} {}{}", f.name(), f.data_type(), if f.is_nullable() { "" } else { " NOT NULL" }))
        .collect();
    let mut text = format!("  {name} ({}), {} rows\n", columns.join(", "), batch.num_rows());
    for row in 0..batch.num_rows().min(ROWS_SHOWN) {
        let value = |column| -> Result<String> {
            let column = batch.column(column);
            Ok(if column.is_null(row) { "NULL".into() } else { array_value_to_string(column, row)? })
        };
        let values = (0..batch.num_columns()).map(value).collect::<Result<Vec<_>>>()?;
        // Writing to a String does not fail.
        let _ = writeln!(text, "    ({})", values.join(", "));
    }
    Ok(text)
}
