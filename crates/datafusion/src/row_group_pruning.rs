//! Which row groups of a table's Parquet files a query's filters may find rows in, by the bounds that footers have.
//!
//! The engine reads whole columns, so that later queries find them in memory. Where a filter asks for a small part of a table whose rows
//! are clustered (a day of a log), reading that part alone takes a fraction of the time. Which of both is read, the engine decides.

use std::collections::HashSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Column as Named, ScalarValue};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileSource, ParquetSource};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::utils::{collect_columns, conjunction_opt, split_conjunction};
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};

use crate::byte_ranges::has_row_group;
use crate::parts::{footer_of, is_narrowed};

/// The row groups of a table's files that filters may find rows in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeptRowGroups {
    /// Of each file in order, ascending.
    files: Vec<Vec<usize>>,
    /// Rows of all of them.
    pub(crate) rows: u64,
}

impl KeptRowGroups {
    /// Those of a file, by its place among all.
    pub(crate) fn of_file(&self, file: usize) -> &[usize] {
        self.files.get(file).map_or(&[], Vec::as_slice)
    }
}

/// The row groups by their numbers, as ranges: what tells one part of a table from others.
impl fmt::Display for KeptRowGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for groups in &self.files {
            f.write_char(';')?;
            for range in groups.chunk_by(|a, b| a + 1 == *b) {
                if let (Some(first), Some(last)) = (range.first(), range.last()) {
                    write!(f, "{first}-{last},")?;
                }
            }
        }
        Ok(())
    }
}

/// What a filter over a table lets its reader leave out row groups by; `None` where it says nothing, or bounds are not to be believed.
pub(crate) fn bounds_filter(
    source: &Arc<dyn FileSource>,
    filter: &Arc<dyn PhysicalExpr>,
) -> Option<Arc<dyn PhysicalExpr>> {
    let parquet = source.downcast_ref::<ParquetSource>()?;
    let can_be_believed = parquet.table_parquet_options().global.pruning;
    conditions_on_bounds([filter], parquet.table_schema().table_schema()).filter(|_| can_be_believed)
}

/// Those of some conditions by which bounds can leave out rows. NaN hides behind the bounds of floats, and what is known only once
/// other parts of a query have run is not known when a table is read.
pub(crate) fn conditions_on_bounds<'a>(
    conditions: impl IntoIterator<Item = &'a Arc<dyn PhysicalExpr>>,
    schema: &SchemaRef,
) -> Option<Arc<dyn PhysicalExpr>> {
    let is_float = |column: &Column| {
        schema.fields().get(column.index()).is_none_or(|field| field.data_type().is_floating())
    };
    let comes_later = |conjunct: &Arc<dyn PhysicalExpr>| {
        let found = conjunct
            .exists(|expr| Ok(expr.is::<DynamicFilterPhysicalExpr>() || expr.is::<ScalarSubqueryExpr>()));
        found.unwrap_or(true)
    };
    let conjuncts = conditions.into_iter().flat_map(split_conjunction);
    let safe = conjuncts.filter(|conjunct| !collect_columns(conjunct).iter().any(is_float));
    conjunction_opt(safe.filter(|conjunct| !comes_later(conjunct)).cloned())
}

/// Some footer is not at hand now.
pub(crate) struct FooterMissing;

/// The row groups of a scan's files that a filter may find rows in; `None` where these are all, as far as is known.
pub(crate) fn kept_row_groups(
    config: &FileScanConfig,
    filter: &Arc<dyn PhysicalExpr>,
    footers: &FileMetadataCache,
) -> Result<Option<KeptRowGroups>, FooterMissing> {
    let schema = config.file_source().table_schema();
    let predicate = PruningPredicateBuilder::new()
        .with_file_schema(Arc::clone(schema.table_schema()))
        .try_build(Arc::clone(filter));
    let Some(predicate) = predicate.ok().filter(|predicate| !predicate.always_true()) else {
        return Ok(None);
    };
    let (mut kept, mut leaves_out) = (KeptRowGroups { files: Vec::new(), rows: 0 }, false);
    for file in config.file_groups.iter().flat_map(FileGroup::iter) {
        if is_narrowed(file) {
            return Ok(None);
        }
        let footer = footer_of(file, footers).ok_or(FooterMissing)?;
        let is_of_file = |group: &usize| {
            let group = footer.row_groups().get(*group);
            group.is_some_and(|group| has_row_group(file, group))
        };
        let mut groups = of_file(&footer, schema.file_schema(), &predicate);
        groups.retain(is_of_file);
        leaves_out |= groups.len() < (0..footer.num_row_groups()).filter(is_of_file).count();
        let kept_rows = groups.iter().filter_map(|group| footer.row_groups().get(*group));
        kept.rows += kept_rows.map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum::<u64>();
        kept.files.push(groups);
    }
    Ok(leaves_out.then_some(kept))
}

fn of_file(footer: &ParquetMetaData, table: &Schema, predicate: &PruningPredicate) -> Vec<usize> {
    let parquet = footer.file_metadata().schema_descr();
    let own = parquet_to_arrow_schema(parquet, footer.file_metadata().key_value_metadata());
    // Bounds of another type than the table's (other units of time) are no bounds of its values.
    let alike = own.iter().flat_map(|own| own.fields().iter()).filter(|field| {
        let wanted = table.field_with_name(field.name()).map(Field::data_type);
        wanted.is_ok_and(|wanted| {
            wanted.equals_datatype(field.data_type()) || wanted.is_string() && field.data_type().is_string()
        })
    });
    let schema = Schema::new(alike.cloned().collect::<Vec<_>>());
    let bounds = Bounds { footer, schema };
    match predicate.prune(&bounds) {
        Ok(kept) => kept.iter().enumerate().filter(|(_, kept)| **kept).map(|(group, _)| group).collect(),
        Err(_) => (0..footer.num_row_groups()).collect(),
    }
}

/// What a footer tells of the columns that are as the table has them.
struct Bounds<'a> {
    footer: &'a ParquetMetaData,
    schema: Schema,
}

impl Bounds<'_> {
    fn converter(&self, column: &Named) -> Option<StatisticsConverter<'_>> {
        let parquet = self.footer.file_metadata().schema_descr();
        let converter = StatisticsConverter::try_new(&column.name, &self.schema, parquet);
        Some(converter.ok()?.with_missing_null_counts_as_zero(false))
    }
}

impl PruningStatistics for Bounds<'_> {
    fn min_values(&self, column: &Named) -> Option<ArrayRef> {
        self.converter(column)?.row_group_mins(self.footer.row_groups()).ok()
    }

    fn max_values(&self, column: &Named) -> Option<ArrayRef> {
        self.converter(column)?.row_group_maxes(self.footer.row_groups()).ok()
    }

    fn num_containers(&self) -> usize {
        self.footer.num_row_groups()
    }

    fn null_counts(&self, column: &Named) -> Option<ArrayRef> {
        Some(Arc::new(self.converter(column)?.row_group_null_counts(self.footer.row_groups()).ok()?))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = self.footer.row_groups().iter().map(|group| u64::try_from(group.num_rows()).ok());
        Some(Arc::new(rows.collect::<UInt64Array>()))
    }

    fn contained(&self, _: &Named, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
