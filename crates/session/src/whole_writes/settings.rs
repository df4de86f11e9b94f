//! Settings by which no file can be written: its writer would panic, or never end.

use datafusion::common::plan_err;
use datafusion::config::ParquetOptions;
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result;

/// Refuses them.
pub(super) fn check(sink: &dyn DataSink) -> Result<()> {
    match sink.downcast_ref::<ParquetSink>() {
        Some(sink) => check_parquet(&sink.parquet_options().global),
        None => Ok(()),
    }
}

fn check_parquet(options: &ParquetOptions) -> Result<()> {
    let sizes = [
        ("max_row_group_size (ROW_GROUP_SIZE)", Some(options.max_row_group_size)),
        ("write_batch_size", Some(options.write_batch_size)),
        ("statistics_truncate_length", options.statistics_truncate_length),
        ("column_index_truncate_length", options.column_index_truncate_length),
        ("maximum_parallel_row_group_writers", Some(options.maximum_parallel_row_group_writers)),
        (
            "maximum_buffered_record_batches_per_stream",
            Some(options.maximum_buffered_record_batches_per_stream),
        ),
    ];
    if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == Some(0)) {
        return plan_err!("{name} of a Parquet file is 0, and must be at least 1");
    }
    match options.bloom_filter_fpp {
        Some(share) if !(share > 0.0 && share < 1.0) => {
            plan_err!("bloom_filter_fpp of a Parquet file is {share}, and must be between 0 and 1")
        }
        _ => Ok(()),
    }
}
