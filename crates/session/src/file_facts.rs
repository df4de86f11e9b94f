//! What the metadata of files say is no fact: nothing is answered, left out or taken as sorted by it.
//!
//! Writers leave statistics out, cut texts short, leave NaN out of bounds, or are wrong. DataFusion takes the statistics of Parquet
//! files that it reads as exact: it answers aggregates by them, reads a column whose bounds are equal as that value, skips files, row
//! groups and pages, and takes rows as sorted where `sorting_columns` say so. Then an aggregate of all rows and the same over groups
//! may contradict each other. Here a scan keeps them as estimates only, by which plans are chosen; filters of large files leave out row
//! groups by bounds that can be believed, which no answer is made of. The number of rows stays exact: it
//! is checked before a file becomes a table, and when its columns are read.

use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use kelpie_datafusion::KelpieOptions;
use kelpie_datafusion::recursion_guard::with_room;

use crate::checked_files::with_checked_pages;

/// Is with a file whose row groups filters may leave out by their bounds (`checked_files/bounds.rs`).
#[derive(Debug)]
pub(crate) struct SoundBounds;

/// The rule that goes over plans before all others.
#[derive(Debug)]
pub(crate) struct FileFacts;

impl PhysicalOptimizerRule for FileFacts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match KelpieOptions::of(config).corrections {
            true => with_room(&plan, || Arc::clone(&plan).transform_up(with_facts_only).data()),
            false => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "kelpie_file_facts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The plan of another process, whose readers of files look at the headers of pages as those of plans that are made here do.
pub fn with_checked_readers(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let checked = |node: Arc<dyn ExecutionPlan>| {
        let config = node.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
        let config = config.and_then(|source| source.downcast_ref::<FileScanConfig>());
        let parquet = config.and_then(|config| config.file_source().downcast_ref::<ParquetSource>());
        Ok(match (config, parquet) {
            (Some(config), Some(parquet)) => {
                let source = Arc::new(with_checked_pages(parquet.clone(), &config.object_store_url));
                let scan = FileScanConfigBuilder::from(config.clone()).with_source(source).build();
                Transformed::yes(DataSourceExec::from_data_source(scan) as Arc<dyn ExecutionPlan>)
            }
            _ => Transformed::no(node),
        })
    };
    with_room(&plan, || Arc::clone(&plan).transform_up(checked).data())
}

fn with_facts_only(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let believing = node
        .downcast_ref::<DataSourceExec>()
        .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>())
        .and_then(|config| Some((config, config.file_source().downcast_ref::<ParquetSource>()?)));
    Ok(match believing {
        Some((config, parquet)) => {
            Transformed::yes(DataSourceExec::from_data_source(unbelieving(config, parquet)))
        }
        None => Transformed::no(node),
    })
}

/// A scan that reads what is in its files.
fn unbelieving(config: &FileScanConfig, parquet: &ParquetSource) -> FileScanConfig {
    let mut options = parquet.table_parquet_options().clone();
    let mut files = config.file_groups.iter().flat_map(FileGroup::iter);
    options.global.pruning &= files.all(|file| file.extensions.get::<SoundBounds>().is_some());
    options.global.bloom_filter_on_read = false;
    options.global.enable_page_index = false;
    let source: Arc<dyn FileSource> = Arc::new(with_checked_pages(
        parquet.clone().with_table_parquet_options(options),
        &config.object_store_url,
    ));
    // Orders that somebody declared of a table are that person's to answer for.
    let declared = |order: &&LexOrdering| !is_of_files(order, &config.file_groups);
    let orders: Vec<_> = config.output_ordering.iter().filter(declared).cloned().collect();
    let groups = config.file_groups.iter().map(|group| {
        let files = group.iter().cloned().map(without_facts).collect::<Vec<_>>();
        match group.file_statistics(None) {
            Some(statistics) => FileGroup::new(files).with_statistics(Arc::new(estimates(statistics))),
            None => FileGroup::new(files),
        }
    });
    FileScanConfigBuilder::from(config.clone())
        .with_source(source)
        .with_file_groups(groups.collect())
        .with_statistics(estimates(&config.statistics()))
        .with_output_ordering(orders)
        .build()
}

fn without_facts(mut file: PartitionedFile) -> PartitionedFile {
    file.ordering = None;
    file.statistics = file.statistics.map(|statistics| Arc::new(estimates(&statistics)));
    file
}

/// Whether all files say of themselves that they are in an order.
fn is_of_files(order: &LexOrdering, groups: &[FileGroup]) -> bool {
    let begins = |file: &PartitionedFile| {
        let claimed = file.ordering.as_ref();
        claimed.is_some_and(|claimed| order.iter().zip(claimed.iter()).all(|(a, b)| a == b))
    };
    groups.iter().flat_map(FileGroup::iter).all(begins)
}

/// The same statistics, none of them a fact but the number of rows.
fn estimates(statistics: &Statistics) -> Statistics {
    let rows = statistics.num_rows;
    Statistics { num_rows: rows, ..statistics.clone().to_inexact() }
}
