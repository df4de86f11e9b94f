//! What sessions answer, as texts.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::util::display::array_value_to_string;
use kelpie_session::{KelpieSession, SessionOptions};

/// Devices, and DataFusion's operators.
pub(crate) const EVERYWHERE: [&[(&str, &str)]; 3] =
    [&[("kelpie.device", "cpu")], &[("kelpie.device", "simt")], &[("kelpie.enabled", "false")]];

/// A session with settings.
pub(crate) fn session_with(settings: &[(&str, &str)]) -> KelpieSession {
    let with = |options: SessionOptions, (name, value): &(&str, &str)| options.with(*name, *value);
    KelpieSession::new(settings.iter().fold(SessionOptions::default(), with)).unwrap()
}

/// The rows of a statement, with their values side by side, or its error.
pub(crate) async fn answer(session: &KelpieSession, sql: &str) -> Vec<String> {
    let result = match session.sql(sql).await {
        Ok(result) => result,
        Err(error) => return vec![error.strip_backtrace()],
    };
    let value = |column: &ArrayRef, row| match column.is_null(row) {
        true => "NULL".to_string(),
        false => array_value_to_string(column, row).unwrap(),
    };
    let mut rows = Vec::new();
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let values: Vec<String> = batch.columns().iter().map(|column| value(column, row)).collect();
            rows.push(values.join(" "));
        }
    }
    rows
}
