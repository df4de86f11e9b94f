//! Scans of a table's files. DataFusion's listing finds them with what is known of them; the values of columns that names of
//! folders give (`year=2024`) are added here, and files that a query's filters on them leave out are left out.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::arrow::datatypes::Schema;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DFSchema, ScalarValue, Statistics, internal_err, project_schema};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::listing::helpers::{expr_applicable_for_cols, filter_partitioned_file};
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::path::Path as Address;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use futures::future::BoxFuture;
use kelpie_datafusion::KelpieOptions;
use kelpie_datafusion::clock::{PlanClock, timed_future};
use kelpie_engine::Phase;

use super::by_name::ByName;
use super::format::Kind;
use super::local_format::LocalFormat;
use super::odd_columns;
use super::source::{DataFile, forget};
use super::table::LocalTable;
use crate::checked_files::{check_arrow, check_parquet};
use crate::file_facts::SoundBounds;

/// What of a table a query reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub projection: Option<&'a Vec<usize>>,
    pub filters: &'a [Expr],
    pub limit: Option<usize>,
}

/// A scan of all files of a table: their statistics are read and summed once, however often they are scanned.
#[derive(Debug)]
pub(super) struct Scanned {
    files: Vec<DataFile>,
    /// Those of the session that scanned.
    options: Arc<ConfigOptions>,
    /// Without projection, filter and limit.
    scan: FileScanConfig,
}

/// So many rows are read by one thread, from the first one on.
const FIRST_ROWS: usize = 100_000;

/// Files that are opened side by side.
pub(super) const OPEN_AT_ONCE: usize = 32;

impl LocalTable {
    /// Its files now: as the statement that is being planned has found them, where it has looked for them.
    fn files_now(&self) -> Result<Cow<'_, [DataFile]>> {
        match PlanClock::since() {
            // A view or a prepared statement may be older than the files.
            Some(since) if self.was_looked_at(since) => Ok(Cow::Borrowed(&self.made_of)),
            _ => self.source.files().map(Cow::Owned),
        }
    }

    /// What [`TableProvider::scan`] gives. That the future may go to another thread is proven here, as in `LocalFiles::found`.
    pub(super) fn scan_now<'a>(
        &'a self,
        session: &'a dyn Session,
        wanted: Wanted<'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn ExecutionPlan>>> {
        let scan = async move {
            let files = self.files_now()?;
            let all = self.scan_of_all(session, &files).await?;
            let Some(scan) = self.narrowed(session, &all.scan, wanted.filters)? else {
                return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema(), wanted.projection)?)) as _);
            };
            // A new source: one that is shared would add up what several queries did.
            let source = self.format.file_source(all.scan.file_source().table_schema().clone());
            let mut scan = FileScanConfigBuilder::from(scan)
                .with_source(source)
                .with_projection_indices(wanted.projection.cloned())?
                .with_limit(wanted.limit)
                .build();
            if KelpieOptions::of(session.config_options()).without_bounds {
                let rows = all.scan.statistics().num_rows;
                let unknown = Statistics::new_unknown(&self.schema()).with_num_rows(rows);
                scan = FileScanConfigBuilder::from(scan).with_statistics(unknown).build();
            }
            if wanted.filters.is_empty() && wanted.limit.is_some_and(|limit| limit <= FIRST_ROWS) {
                in_order(&mut scan);
            }
            let plan = self.format.create_physical_plan(session, scan).await?;
            Ok(if self.odd_columns { odd_columns::with_readers(plan) } else { plan })
        };
        Box::pin(timed_future(Phase::Statistics, scan))
    }

    /// Which filters leave out files, so that nothing is left of them.
    pub(super) fn pushed_down(&self, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
        let decides = |filter: &&Expr| match self.decides(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Inexact,
        };
        filters.iter().map(decides).collect()
    }

    /// Whether the values of folders alone say what a filter gives.
    fn decides(&self, filter: &Expr) -> bool {
        let names: Vec<&str> = self.partitions.iter().map(|field| field.name().as_str()).collect();
        !filter.column_refs().is_empty() && expr_applicable_for_cols(&names, filter)
    }

    /// A scan of the files that filters leave; nothing where they leave none.
    fn narrowed(
        &self,
        session: &dyn Session,
        all: &FileScanConfig,
        filters: &[Expr],
    ) -> Result<Option<FileScanConfig>> {
        let filters: Vec<Expr> = filters.iter().filter(|filter| self.decides(filter)).cloned().collect();
        if filters.is_empty() {
            return Ok(Some(all.clone()));
        }
        let columns = DFSchema::try_from(Schema::new(self.partitions.clone()))?;
        let mut kept = Vec::new();
        for file in all.file_groups.iter().flat_map(FileGroup::iter) {
            kept.extend(filter_partitioned_file(file.clone(), &filters, &columns)?);
        }
        if kept.is_empty() {
            return Ok(None);
        }
        let statistics = self.statistics_of(&kept)?;
        let groups = FileGroup::new(kept).split_files(session.config().target_partitions());
        let scan =
            FileScanConfigBuilder::from(all.clone()).with_file_groups(groups).with_statistics(statistics);
        Ok(Some(scan.build()))
    }

    /// A scan of files, all of them, for a session.
    async fn scan_of_all(&self, session: &dyn Session, files: &[DataFile]) -> Result<Arc<Scanned>> {
        let options = session.config().options();
        let known = self.scanned.lock().clone();
        let is_same = |known: &Arc<Scanned>| known.files == files && Arc::ptr_eq(&known.options, options);
        if let Some(known) = known.filter(is_same) {
            return Ok(known);
        }
        self.forget_replaced(session, files);
        self.check_new(files)?;
        // Statistics are found by names and types that other readers know.
        let found = match self.format.is::<LocalFormat>() || self.odd_columns {
            true => files.iter().map(unread).collect::<Result<Vec<_>>>()?,
            false => self.found(session, files).await?,
        };
        let scan = self.scan_of(session, found, files)?;
        let (files, options) = (files.to_vec(), Arc::clone(options));
        let scanned = Arc::new(Scanned { files, options, scan });
        *self.scanned.lock() = Some(Arc::clone(&scanned));
        Ok(scanned)
    }

    /// Files with what their footers say. DataFusion opens all that it is asked for at once, and few may be open.
    async fn found(&self, session: &dyn Session, files: &[DataFile]) -> Result<Vec<PartitionedFile>> {
        let mut found = Vec::with_capacity(files.len());
        for some in files.chunks(OPEN_AT_ONCE) {
            let groups = self.listing_of(some)?.list_files_for_scan(session, &[], None).await?.file_groups;
            found.extend(groups.into_iter().flat_map(FileGroup::into_inner));
        }
        found.sort_by(|a, b| a.object_meta.location.cmp(&b.object_meta.location));
        Ok(found)
    }

    /// Files that were others when the table was made, or not there, are held against what they say of themselves too.
    fn check_new(&self, files: &[DataFile]) -> Result<()> {
        let is_new = |file: &&DataFile| !self.made_of.contains(*file);
        let new: Vec<&DataFile> = match self.made_of == files {
            true => Vec::new(),
            false => files.iter().filter(is_new).collect(),
        };
        let paths = new.iter().map(|file| file.path.as_path());
        match new.first().map(|file| file.format.kind) {
            Some(Kind::Parquet) => check_parquet(paths).map(drop),
            Some(Kind::Arrow) => check_arrow(paths),
            _ => Ok(()),
        }
    }

    /// What DataFusion keeps of files that were others when the table was made. It knows them by size and time only.
    fn forget_replaced(&self, session: &dyn Session, files: &[DataFile]) {
        if self.made_of != files {
            forget(session.runtime_env(), files);
        }
    }

    /// A scan of files that have what the file system and the names of their folders say of them.
    fn scan_of(
        &self,
        session: &dyn Session,
        found: Vec<PartitionedFile>,
        files: &[DataFile],
    ) -> Result<FileScanConfig> {
        let addresses = files.iter().map(|file| Ok((Address::from_absolute_path(&file.path)?, file)));
        let addresses = addresses.collect::<Result<HashMap<_, _>>>()?;
        let with_values = |file: PartitionedFile| {
            let known = addresses.get(&file.object_meta.location).copied();
            self.file_with_values(file, known)
        };
        let mut found = found.into_iter().map(with_values).collect::<Result<Vec<_>>>()?;
        if self.sound_bounds && self.made_of == files {
            found.iter_mut().for_each(|file| drop(file.extensions.insert(SoundBounds)));
        }
        let table =
            TableSchemaBuilder::from(&self.file_schema).with_table_partition_cols(self.partitions.clone());
        let source = self.format.file_source(table.build());
        let ordering = common_ordering(&found);
        let statistics = self.statistics_of(&found)?;
        let mut builder = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), source)
            .with_statistics(statistics)
            .with_output_ordering(ordering)
            .with_file_groups(self.groups(session, found)?);
        if self.differ {
            builder = builder.with_expr_adapter(Some(Arc::new(ByName)));
        }
        Ok(builder.build())
    }

    /// Files dealt out to a session's partitions.
    fn groups(&self, session: &dyn Session, files: Vec<PartitionedFile>) -> Result<Vec<FileGroup>> {
        let groups = FileGroup::new(files).split_files(session.config().target_partitions());
        let with_statistics = |group: FileGroup| {
            let statistics = self.statistics_of(group.files())?;
            Ok(group.with_statistics(Arc::new(statistics)))
        };
        groups.into_iter().map(with_statistics).collect()
    }

    fn statistics_of(&self, files: &[PartitionedFile]) -> Result<Statistics> {
        let unknown = Statistics::new_unknown(&self.schema());
        let statistics = files.iter().map(|file| file.statistics.as_deref().unwrap_or(&unknown));
        Statistics::try_merge_iter(statistics, &self.schema())
    }

    fn file_with_values(
        &self,
        mut file: PartitionedFile,
        known: Option<&DataFile>,
    ) -> Result<PartitionedFile> {
        let values = self.partitions.iter().map(|field| {
            match known.and_then(|known| self.source.value(known, field.name())) {
                Some(Some(value)) => ScalarValue::try_from_string(value, field.data_type()),
                Some(None) => ScalarValue::try_from(field.data_type()),
                None => {
                    internal_err!("{}: its folders do not name {}", file.object_meta.location, field.name())
                }
            }
        });
        file.partition_values = values.collect::<Result<_>>()?;
        file.object_meta.version = known.map(|known| known.version.clone());
        // What is known of the file is known of its values too, now that they are there.
        match file.statistics.take() {
            // What the footer says of other types and names holds for those.
            Some(statistics) if self.differ => {
                let rows = statistics.num_rows;
                let unknown = Statistics::new_unknown(&self.file_schema).with_num_rows(rows);
                Ok(file.with_statistics(Arc::new(unknown)))
            }
            Some(statistics) => Ok(file.with_statistics(statistics)),
            None => Ok(file),
        }
    }
}

/// Rows that are asked for without a condition, and are few, are the first of the files: as whoever wants to see what is there expects it.
fn in_order(scan: &mut FileScanConfig) {
    let files = std::mem::take(&mut scan.file_groups).into_iter().flat_map(FileGroup::into_inner);
    scan.file_groups = vec![FileGroup::new(files.collect())];
    // What is partitioned already is not cut into ranges.
    scan.output_partitioning = Some(Partitioning::UnknownPartitioning(1));
}

/// A file of which nothing is known but what the file system says.
fn unread(file: &DataFile) -> Result<PartitionedFile> {
    Ok(PartitionedFile::new_from_meta(ObjectMeta {
        location: Address::from_absolute_path(&file.path)?,
        last_modified: file.modified.unwrap_or(SystemTime::UNIX_EPOCH).into(),
        size: file.bytes,
        e_tag: None,
        version: None,
    }))
}

/// The order that all files say that their rows have.
fn common_ordering(files: &[PartitionedFile]) -> Vec<LexOrdering> {
    let mut orderings = files.iter().map(|file| file.ordering.as_ref());
    let Some(Some(first)) = orderings.next() else { return Vec::new() };
    if orderings.all(|ordering| ordering == Some(first)) { vec![first.clone()] } else { Vec::new() }
}
