//! The decimals of a small Parquet file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use datafusion::arrow::error::ArrowError;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use kelpie_datafusion::check_decimals;

/// An error names the column of decimals with more digits than it is declared to have.
pub(super) fn check(path: &Path) -> Result<(), String> {
    // What cannot be read is found when somebody wants it.
    catch_unwind(AssertUnwindSafe(|| read(path))).unwrap_or(Ok(Ok(()))).unwrap_or(Ok(()))
}

fn read(path: &Path) -> Result<Result<(), String>, ArrowError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    let fields = builder.schema().fields().iter().enumerate();
    let decimals: Vec<usize> =
        fields.filter(|(_, field)| field.data_type().is_decimal()).map(|(place, _)| place).collect();
    if decimals.is_empty() {
        return Ok(Ok(()));
    }
    let columns = ProjectionMask::roots(builder.parquet_schema(), decimals);
    for batch in builder.with_projection(columns).build()? {
        if let Err(what) = check_decimals(&batch?) {
            return Ok(Err(what));
        }
    }
    Ok(Ok(()))
}
