//! Scans of files that a pattern found in folders whose names are columns, such as `year=2024`. DataFusion reads the values of
//! such columns from what comes after the address of a table, and a pattern has none: here each file has its own.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DFSchema, ScalarValue, Statistics, internal_err, project_schema};
use datafusion::datasource::listing::helpers::{expr_applicable_for_cols, filter_partitioned_file};
use datafusion::datasource::listing::{ListingTable, PartitionedFile};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Expr;
use datafusion::object_store::path::Path as Address;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;

use super::source::DataFile;
use super::table::LocalTable;

/// What of a table a query reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub projection: Option<&'a Vec<usize>>,
    pub filters: &'a [Expr],
    pub limit: Option<usize>,
}

impl LocalTable {
    /// Reads files, which a listing without columns of folders names, with these columns.
    pub(super) async fn scan_with_values(
        &self,
        session: &dyn Session,
        listing: &ListingTable,
        files: &[DataFile],
        wanted: Wanted<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fields =
            self.partitions.iter().map(|(name, data_type)| Field::new(name, data_type.clone(), false));
        let fields: Vec<Arc<Field>> = fields.map(Arc::new).collect();
        let names: Vec<&str> = self.partitions.iter().map(|(name, _)| name.as_str()).collect();
        let decides = |filter: &&Expr| expr_applicable_for_cols(&names, filter);
        let filters: Vec<Expr> = wanted.filters.iter().filter(decides).cloned().collect();
        let columns = DFSchema::try_from(Schema::new(fields.clone()))?;
        let found = listing.list_files_for_scan(session, &[], None).await?;
        let addresses = files.iter().map(|file| Ok((Address::from_absolute_path(&file.path)?, file)));
        let addresses = addresses.collect::<Result<HashMap<_, _>>>()?;
        let mut kept = Vec::new();
        for file in found.file_groups.into_iter().flat_map(FileGroup::into_inner) {
            let known = addresses.get(&file.object_meta.location);
            let file = self.with_values(file, known.copied())?;
            kept.extend(filter_partitioned_file(file, &filters, &columns)?);
        }
        if kept.is_empty() {
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema(), wanted.projection)?)));
        }
        let unknown = Statistics::new_unknown(&self.schema());
        let statistics = kept.iter().map(|file| file.statistics.as_deref().unwrap_or(&unknown));
        let statistics = Statistics::try_merge_iter(statistics, &self.schema())?;
        let table = TableSchemaBuilder::from(&self.file_schema).with_table_partition_cols(fields).build();
        let groups = FileGroup::new(kept).split_files(session.config().target_partitions());
        let config =
            FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), self.reader.file_source(table))
                .with_file_groups(groups)
                .with_statistics(statistics)
                .with_projection_indices(wanted.projection.cloned())?
                .with_limit(wanted.limit)
                .build();
        self.reader.create_physical_plan(session, config).await
    }

    /// A file with the values that the names of its folders give it.
    fn with_values(&self, mut file: PartitionedFile, known: Option<&DataFile>) -> Result<PartitionedFile> {
        let values = self.partitions.iter().map(|(name, data_type)| {
            match known.and_then(|known| self.source.value(known, name)) {
                Some(value) => ScalarValue::try_from_string(value, data_type),
                None => internal_err!("{}: its folders do not name {name}", file.object_meta.location),
            }
        });
        file.partition_values = values.collect::<Result<_>>()?;
        // What is known of the file is known of its values too, now that they are there.
        match file.statistics.take() {
            Some(statistics) => Ok(file.with_statistics(statistics)),
            None => Ok(file),
        }
    }
}
