//! Values for the parameters of prepared statements.

use std::collections::HashMap;

use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use futures::{Stream, TryStreamExt};
use kelpie_session::Parameter;
use tonic::Status;

use crate::errors::of_input;

/// Sets of values that may come at once, and their bytes in all.
const MOST_ROWS: usize = 100_000;
const MOST_BYTES: usize = 64 << 20;

/// The sets of values that a client sends, a row each.
pub(crate) async fn received(
    messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
    parameters: &[Parameter],
) -> Result<Vec<ParamValues>, Status> {
    let messages = messages.map_err(|status| FlightError::Tonic(Box::new(status)));
    let mut batches = FlightRecordBatchStream::new_from_flight_data(messages);
    let (mut all, mut bytes) = (Vec::new(), 0);
    while let Some(batch) = batches.try_next().await.map_err(wrong)? {
        bytes += batch.get_array_memory_size();
        if all.len() + batch.num_rows() > MOST_ROWS || bytes > MOST_BYTES {
            return Err(Status::resource_exhausted(format!(
                "{MOST_ROWS} sets of values, and 64 MB of them, are the most for a statement"
            )));
        }
        for row in 0..batch.num_rows() {
            all.push(values(&batch, row, parameters)?);
        }
    }
    Ok(all)
}

fn wrong(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => of_input(other),
    }
}

/// The values of a row: by the places of the columns where the parameters are numbered, else by their names, or by the order of the
/// names where the columns have none of these.
fn values(batch: &RecordBatch, row: usize, parameters: &[Parameter]) -> Result<ParamValues, Status> {
    let columns = batch.columns().iter();
    let scalars = columns.map(|column| ScalarValue::try_from_array(column, row).map(ScalarAndMetadata::from));
    let scalars: Vec<ScalarAndMetadata> = scalars.collect::<Result<_, _>>().map_err(of_input)?;
    if parameters.iter().all(|parameter| parameter.place().is_some()) {
        return Ok(ParamValues::List(scalars));
    }
    let schema = batch.schema();
    let bare = |name: &str| name.trim_start_matches('$').to_string();
    let is_named = parameters
        .iter()
        .any(|parameter| schema.fields().iter().any(|field| bare(field.name()) == bare(&parameter.name)));
    let names: Vec<String> = match is_named {
        true => schema.fields().iter().map(|field| bare(field.name())).collect(),
        false => parameters.iter().map(|parameter| bare(&parameter.name)).collect(),
    };
    if names.len() != scalars.len() {
        return Err(Status::invalid_argument(format!(
            "the statement has {} parameters and {} values",
            names.len(),
            scalars.len()
        )));
    }
    Ok(ParamValues::Map(names.into_iter().zip(scalars).collect::<HashMap<_, _>>()))
}
