//! DataFusion's own operators as a peer, in this process.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

/// DataFusion with its default options.
pub struct DataFusionPeer {
    context: SessionContext,
    threads: usize,
    in_memory: bool,
}

impl DataFusionPeer {
    /// Opens Parquet tables (`<table>.parquet` or a folder `<table>`), and loads them where they shall be in memory.
    pub async fn start(
        data: &Path,
        tables: &[&str],
        threads: usize,
        in_memory: bool,
    ) -> Result<DataFusionPeer> {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(threads));
        for table in tables {
            let path = super::table_path(data, table);
            let path = path.to_str().context("the path of the data is not UTF-8")?;
            let options = ParquetReadOptions::default();
            if in_memory {
                let frame = context.read_parquet(path, options).await?;
                let schema = Arc::new(frame.schema().as_arrow().clone());
                let partitions = frame.collect_partitioned().await?;
                let loaded = MemTable::try_new(schema, partitions)?;
                context.register_table(*table, Arc::new(loaded))?;
            } else {
                context.register_parquet(*table, path, options).await?;
            }
        }
        Ok(DataFusionPeer { context, threads, in_memory })
    }

    /// Runs a query: its time from the text to the last batch in nanoseconds, and its answer.
    pub async fn run(&self, sql: &str) -> Result<(u64, Vec<RecordBatch>)> {
        let start = Instant::now();
        let batches = self.context.sql(sql).await?.collect().await?;
        Ok((start.elapsed().as_nanos() as u64, batches))
    }

    /// What is measured, for people.
    pub fn description(&self) -> String {
        let place = if self.in_memory { "tables in memory" } else { "Parquet files" };
        format!("DataFusion {}, {} partitions, {place}", datafusion::DATAFUSION_VERSION, self.threads)
    }
}
