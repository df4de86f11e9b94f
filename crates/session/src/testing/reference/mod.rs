//! Queries whose answers are SQL's, by an evaluator of their own instead of DataFusion's: faults that Kelpie shares with DataFusion are
//! seen. Each seed makes three small tables and [`QUERIES_A_SEED`] queries over them: three-valued logic, bags, joins, groups and
//! subqueries of every kind.

mod evaluate;
mod generate;
mod tree;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use fastrand::Rng;
use kelpie_engine::Engine;

use self::evaluate::{COLUMNS, Evaluator, Table, Value, shown};
use self::generate::{Generator, TABLES, WORDS};
use super::compare::Outcome;
use super::report::FuzzReport;
use super::{Conditions, Observer, QUERIES_A_SEED, Seeded};
use crate::{KelpieSession, QueryResult, SessionOptions};

/// Rows of a table, at most.
const ROWS: usize = 9;

/// Runs generated queries of a seed: those of the given numbers, below `QUERIES_A_SEED`.
pub(super) async fn fuzz_reference(
    Seeded { seed, numbers }: Seeded,
    conditions: Conditions<'_>,
    engine: &Arc<Engine>,
    observer: &Observer<'_>,
) -> Result<FuzzReport> {
    let tables = tables(seed);
    let mut options = SessionOptions::default().with_engine(Arc::clone(engine));
    for (name, value) in conditions.settings {
        options = options.with(*name, *value);
    }
    let kelpie = KelpieSession::new(options)?;
    for table in &tables {
        let batch = batch(table)?;
        let provider = MemTable::try_new(batch.schema(), vec![vec![batch]])?;
        kelpie.context().register_table(table.name, Arc::new(provider))?;
    }
    let mut report = FuzzReport::default();
    for number in numbers.start..numbers.end.min(QUERIES_A_SEED) {
        let mixed =
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let query = Generator::new(mixed).query();
        let sql = query.to_string();
        let place = format!("seed {seed} query {number}");
        observer(&place, number, &sql);
        let mut expected: Vec<Vec<String>> =
            Evaluator::new(&tables).query(&query).iter().map(|row| row.iter().map(shown).collect()).collect();
        expected.sort();
        let outcome = match kelpie.sql(&sql).await {
            Ok(result) => compared(&expected, &result),
            Err(error) => Outcome::Different(format!("fails: {}", error.strip_backtrace())),
        };
        let outcome = match outcome {
            Outcome::Different(how) => Outcome::Different(format!("{how}\n{}", told(&tables))),
            outcome => outcome,
        };
        report.add(&place, sql, outcome);
    }
    Ok(report)
}

fn compared(expected: &[Vec<String>], result: &QueryResult) -> Outcome {
    let mut found = Vec::new();
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| match column.is_null(row) {
                true => "NULL".to_string(),
                false => array_value_to_string(column, row).unwrap_or_else(|error| error.to_string()),
            };
            found.push(batch.columns().iter().map(value).collect::<Vec<_>>());
        }
    }
    found.sort();
    match found == expected {
        true => {
            let timing = &result.timing;
            Outcome::Equal { compiled: timing.compiled, reasons: timing.reasons.clone() }
        }
        false => Outcome::Different(format!("expected {expected:?}\n   found {found:?}")),
    }
}

/// Tables with few values, many of them equal and some NULL.
fn tables(seed: u64) -> Vec<Table> {
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let table = |name| {
        let rows = if rng.u8(0..8) == 0 { 0 } else { rng.usize(1..=ROWS) };
        let int = |rng: &mut Rng| if rng.u8(0..5) == 0 { Value::Null } else { Value::Int(rng.i64(-1..4)) };
        let row = |_| {
            let (a, b) = (int(&mut rng), int(&mut rng));
            let s = if rng.u8(0..5) == 0 {
                Value::Null
            } else {
                Value::Text(WORDS[rng.usize(0..WORDS.len())].into())
            };
            vec![a, b, s]
        };
        Table { name, rows: (0..rows).map(row).collect() }
    };
    TABLES.into_iter().map(table).collect()
}

fn batch(table: &Table) -> Result<RecordBatch> {
    let ints = |place: usize| -> ArrayRef {
        let values = table.rows.iter().map(|row| match row.get(place) {
            Some(Value::Int(number)) => Some(*number),
            _ => None,
        });
        Arc::new(values.collect::<Int64Array>())
    };
    let texts = table.rows.iter().map(|row| match row.get(2) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let columns = COLUMNS.into_iter().zip([ints(0), ints(1), texts]);
    Ok(RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))?)
}

/// The tables as statements, to try a query by hand.
fn told(tables: &[Table]) -> String {
    let quoted = |value: &Value| match value {
        Value::Text(text) => format!("'{text}'"),
        value => shown(value),
    };
    let told = tables.iter().map(|table| {
        let rows = table.rows.iter().map(|row| {
            let values: Vec<String> = row.iter().map(quoted).collect();
            format!("({})", values.join(", "))
        });
        let rows: Vec<String> = rows.collect();
        format!(
            "create table {} (a bigint, b bigint, s varchar); insert into {} values {};",
            table.name,
            table.name,
            rows.join(", ")
        )
    });
    told.collect::<Vec<_>>().join("\n")
}
