//! Ranges of CSV files begin and end where rows do.
//!
//! DataFusion deals large files out to its partitions as ranges of bytes, and takes every line feed for the end of a row. Where one
//! stands within quotes, it loses rows and makes others of what is left.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::options::KelpieOptions;
use crate::recursion_guard::with_room;
use crate::whole_rows::of_whole_rows;

/// Makes ranges of local CSV files begin and end with rows.
#[derive(Debug, Default)]
pub struct CsvRanges;

impl PhysicalOptimizerRule for CsvRanges {
    fn name(&self) -> &str {
        "kelpie_csv_ranges"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !KelpieOptions::of(config).corrections {
            return Ok(plan);
        }
        let whole = |node: Arc<dyn ExecutionPlan>| {
            let scan =
                node.downcast_ref::<DataSourceExec>().and_then(|scan| scan.data_source().downcast_ref());
            Ok(match scan.and_then(of_whole_rows) {
                Some(scan) => Transformed::yes(DataSourceExec::from_data_source(scan) as _),
                None => Transformed::no(node),
            })
        };
        with_room(&plan, || Ok(Arc::clone(&plan).transform_down(whole)?.data))
    }
}
