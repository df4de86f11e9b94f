//! DataFusion and Kelpie as sqllogictest sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_engine::Engine;
use kelpie_session::{KelpieSession, SessionOptions};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};

/// An error of a statement.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Failure {
        Failure(error.strip_backtrace())
    }
}

/// How many queries ran, how many of them compiled as a whole, and why not.
#[derive(Debug, Default)]
pub struct Statistics {
    queries: AtomicUsize,
    compiled: AtomicUsize,
    reasons: Mutex<BTreeMap<String, usize>>,
}

impl Statistics {
    /// Of all queries, how many are compiled as a whole.
    pub fn compiled_percent(&self) -> f64 {
        let queries = self.queries.load(Ordering::Relaxed).max(1);
        100.0 * self.compiled.load(Ordering::Relaxed) as f64 / queries as f64
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queries, compiled) =
            (self.queries.load(Ordering::Relaxed), self.compiled.load(Ordering::Relaxed));
        writeln!(f, "{queries} queries, {compiled} compiled as a whole")?;
        for (reason, count) in self.reasons.lock().unwrap().iter() {
            writeln!(f, "  not compiled, {count} times: {reason}")?;
        }
        Ok(())
    }
}

/// A statement's answer: types and rows of text.
pub struct Answer {
    pub types: Vec<DefaultColumnType>,
    pub rows: Vec<Vec<String>>,
}

enum Session {
    Plain(SessionContext),
    Kelpie(Box<KelpieSession>, Arc<Statistics>),
}

/// A session without tables.
pub struct Database(Session);

impl Database {
    /// DataFusion as it is.
    pub fn plain() -> Database {
        let config = SessionConfig::new().with_target_partitions(1);
        Database(Session::Plain(SessionContext::new_with_config(config)))
    }

    /// Kelpie with some settings.
    pub fn kelpie(settings: &[(&str, &str)], engine: Arc<Engine>, statistics: Arc<Statistics>) -> Database {
        let mut options = SessionOptions::default().with_engine(engine);
        for (name, value) in settings {
            options = options.with(*name, *value);
        }
        Database(Session::Kelpie(Box::new(KelpieSession::new(options).unwrap()), statistics))
    }

    /// Runs a statement.
    pub async fn answer(&mut self, sql: &str) -> Result<Answer, Failure> {
        let (schema, batches) = match &self.0 {
            Session::Plain(context) => {
                let plan = context.sql(sql).await?.create_physical_plan().await?;
                // The logical plan's types are those before coercion.
                (plan.schema(), collect(plan, context.task_ctx()).await?)
            }
            Session::Kelpie(session, statistics) => {
                let result = session.sql(sql).await?;
                if sql.starts_with("SELECT") || sql.starts_with("WITH") {
                    statistics.queries.fetch_add(1, Ordering::Relaxed);
                    statistics.compiled.fetch_add(usize::from(result.timing.compiled), Ordering::Relaxed);
                    for reason in result.timing.reasons {
                        // What fails in Kelpie alone must not hide behind DataFusion's answer.
                        if reason.starts_with("failed in Kelpie") {
                            return Err(Failure(reason));
                        }
                        *statistics.reasons.lock().unwrap().entry(reason).or_default() += 1;
                    }
                }
                (result.schema, result.batches)
            }
        };
        let types = schema.fields().iter().map(|field| column_type(field.data_type())).collect();
        let mut rows = Vec::new();
        for batch in &batches {
            push_rows(batch, &mut rows)?;
        }
        Ok(Answer { types, rows })
    }
}

fn column_type(data_type: &DataType) -> DefaultColumnType {
    match data_type {
        t if t.is_integer() => DefaultColumnType::Integer,
        t if t.is_floating() || t.is_decimal() => DefaultColumnType::FloatingPoint,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DefaultColumnType::Text,
        DataType::Dictionary(_, values) => column_type(values),
        _ => DefaultColumnType::Any,
    }
}

fn push_rows(batch: &RecordBatch, rows: &mut Vec<Vec<String>>) -> Result<(), Failure> {
    for row in 0..batch.num_rows() {
        let values = batch.columns().iter().map(|column| value(column, row));
        rows.push(values.collect::<Result<_, _>>()?);
    }
    Ok(())
}

/// Floats have twelve digits: sums may differ in the last ones.
fn value(column: &ArrayRef, row: usize) -> Result<String, Failure> {
    if column.is_null(row) {
        return Ok("NULL".into());
    }
    let float = |v: f64| match v.is_finite() {
        true => format!("{:?}", format!("{v:.11e}").parse::<f64>().unwrap()),
        false => v.to_string(),
    };
    let text = match column.data_type() {
        DataType::Float32 => float(column.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => float(column.as_primitive::<Float64Type>().value(row)),
        _ => array_value_to_string(column, row).map_err(DataFusionError::from)?,
    };
    Ok(if text.is_empty() { "(empty)".into() } else { text })
}

/// What an asynchronous method of a trait gives.
type Boxed<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

impl AsyncDB for Database {
    type Error = Failure;
    type ColumnType = DefaultColumnType;

    fn run<'s, 't, 'f>(&'s mut self, sql: &'t str) -> Boxed<'f, Result<DBOutput<DefaultColumnType>, Failure>>
    where
        's: 'f,
        't: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let answer = self.answer(sql).await?;
            Ok(match answer.types.is_empty() {
                true => DBOutput::StatementComplete(0),
                false => DBOutput::Rows { types: answer.types, rows: answer.rows },
            })
        })
    }

    fn shutdown<'s, 'f>(&'s mut self) -> Boxed<'f, ()>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async {})
    }

    fn engine_name(&self) -> &str {
        "kelpie"
    }
}
