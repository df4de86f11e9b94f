//! The table of some files.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::error::Result;
use datafusion::execution::cache::cache_manager::FileStatisticsCache;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use kelpie_datafusion::clock::{PlanClock, timed_future};
use kelpie_engine::Phase;

use super::at;
use super::format::Kind;
use super::hive::Wanted;
use super::source::{DataFile, Source};
use crate::checked_files::{caught, check_arrow, check_parquet};
use crate::install::PlanFuture;

/// A table of files. What it reads are the files that are there when it is read, by the columns that it was made with.
#[derive(Debug)]
pub(super) struct LocalTable {
    pub source: Source,
    /// The files that it was made of.
    pub made_of: Vec<DataFile>,
    /// When these were last seen to be its files.
    pub looked: AtomicU64,
    pub reader: Arc<dyn FileFormat>,
    /// The columns that names of folders give.
    pub partitions: Vec<(String, DataType)>,
    /// The columns that stand in the files.
    pub file_schema: SchemaRef,
    /// Both.
    schema: SchemaRef,
    statistics: Option<Arc<FileStatisticsCache>>,
    /// The files when the table was made.
    listing: ListingTable,
    /// All of its files, as they were when it was scanned last.
    scanned: Mutex<Option<Arc<Scanned>>>,
}

/// A scan of all files of a table: their statistics are read and summed once, however often they are scanned.
#[derive(Debug)]
struct Scanned {
    files: Vec<DataFile>,
    /// Those of the session that scanned.
    options: Arc<ConfigOptions>,
    /// Without projection, filter and limit.
    scan: FileScanConfig,
}

impl LocalTable {
    /// The table of these files of a source, with the columns that they have. Types of text files come from so many rows of
    /// each, or all.
    pub async fn of(
        state: &SessionState,
        source: &Source,
        files: &[DataFile],
        infer_rows: Option<usize>,
    ) -> Result<LocalTable> {
        let Some(first) = files.first() else { return Err(at(source.path(), "there is no file")) };
        let paths = files.iter().map(|file| file.path.as_path());
        match first.format.kind {
            Kind::Parquet => check_parquet(paths)?,
            Kind::Arrow => check_arrow(paths)?,
            Kind::Csv | Kind::Tsv | Kind::Json => {}
        }
        let reader = first.format.reader(&first.path, infer_rows)?;
        let mut partitions = source.partitions(files);
        let schema = match caught(infer(state, &reader, files)).await {
            Ok(schema) => schema,
            // DataFusion's readers do not all name the file.
            Err(error) => {
                let mut of_one = None;
                for file in files.iter().filter(|_| files.len() > 1) {
                    let alone = infer(state, &reader, std::slice::from_ref(file));
                    if let Err(error) = caught(alone).await {
                        of_one = Some(at(&file.path, error.strip_backtrace()));
                        break;
                    }
                }
                return Err(of_one.unwrap_or_else(|| at(source.path(), error.strip_backtrace())));
            }
        };
        if matches!(source, Source::Pattern(_)) && first.format.is_text_by_place() {
            partitions.retain(|(name, _)| schema.column_with_name(name).is_none());
        }
        let file_schema = without(&schema, &partitions, first)?;
        let fields = partitions.iter().map(|(name, data_type)| Field::new(name, data_type.clone(), false));
        let table_schema = TableSchemaBuilder::from(&file_schema)
            .with_table_partition_cols(fields.map(Arc::new).collect::<Vec<_>>())
            .build();
        let schema = Arc::clone(table_schema.table_schema());
        let statistics = state.runtime_env().cache_manager.get_file_statistic_cache();
        let listing = listing(source, &reader, &partitions, &file_schema, &statistics, files)?;
        Ok(LocalTable {
            source: source.clone(),
            made_of: files.to_vec(),
            looked: AtomicU64::new(0),
            reader,
            partitions,
            file_schema,
            schema,
            statistics,
            listing,
            scanned: Mutex::default(),
        })
    }

    /// Whether the files that it was made of were seen to be its files since a moment.
    pub fn was_looked_at(&self, moment: u64) -> bool {
        self.looked.load(Ordering::SeqCst) >= moment
    }

    /// Its files now: as the statement that is being planned has found them, where it has looked for them.
    fn files_now(&self) -> Result<Cow<'_, [DataFile]>> {
        match PlanClock::since() {
            // A view or a prepared statement may be older than the files.
            Some(since) if self.was_looked_at(since) => Ok(Cow::Borrowed(&self.made_of)),
            _ => self.source.files().map(Cow::Owned),
        }
    }

    /// What [`TableProvider::scan`] gives. That the future may go to another thread is proven here, as in `LocalFiles::found`.
    fn scan_now<'a>(&'a self, session: &'a dyn Session, wanted: Wanted<'a>) -> PlanFuture<'a> {
        let scan = async move {
            let files = self.files_now()?;
            if matches!(self.source, Source::Pattern(_)) && !self.partitions.is_empty() {
                return self.scan_with_values(session, &self.listing_of(&files)?, &files, wanted).await;
            }
            let Wanted { projection, filters, limit } = wanted;
            // Values of folders leave out files, and a limit those that are not needed for it.
            if self.partitions.is_empty()
                && limit.is_none()
                && let Some(all) = self.scan_of_all(session, &files).await?
            {
                // A new source: one that is shared would add up what several queries did.
                let source = self.reader.file_source(all.scan.file_source().table_schema().clone());
                let scan = FileScanConfigBuilder::from(all.scan.clone())
                    .with_source(source)
                    .with_projection_indices(projection.cloned())?
                    .build();
                return self.reader.create_physical_plan(session, scan).await;
            }
            self.listing_of(&files)?.scan(session, projection, filters, limit).await
        };
        Box::pin(timed_future(Phase::Statistics, scan))
    }

    /// A scan of files, all of them, for a session; nothing where it is not one of files.
    async fn scan_of_all(&self, session: &dyn Session, files: &[DataFile]) -> Result<Option<Arc<Scanned>>> {
        let options = session.config().options();
        let known = self.scanned.lock().clone();
        let is_same = |known: &Arc<Scanned>| known.files == files && Arc::ptr_eq(&known.options, options);
        if let Some(known) = known.filter(is_same) {
            return Ok(Some(known));
        }
        let scan = self.listing_of(files)?.scan(session, None, &[], None).await?;
        let Some(scan) = scan.downcast_ref::<DataSourceExec>() else { return Ok(None) };
        let Some(scan) = scan.data_source().downcast_ref::<FileScanConfig>() else { return Ok(None) };
        let (files, options) = (files.to_vec(), Arc::clone(options));
        let scanned = Arc::new(Scanned { files, options, scan: scan.clone() });
        *self.scanned.lock() = Some(Arc::clone(&scanned));
        Ok(Some(scanned))
    }

    fn listing_of(&self, files: &[DataFile]) -> Result<ListingTable> {
        let LocalTable { source, reader, partitions, file_schema, statistics, .. } = self;
        listing(source, reader, partitions, file_schema, statistics, files)
    }
}

/// The columns of some files.
async fn infer(state: &SessionState, reader: &Arc<dyn FileFormat>, files: &[DataFile]) -> Result<SchemaRef> {
    let options = ListingOptions::new(Arc::clone(reader)).with_file_extension("");
    let urls = files.iter().map(|file| address(&file.path)).collect::<Result<Vec<_>>>()?;
    let mut schemas = Vec::with_capacity(urls.len());
    match urls.as_slice() {
        [url] => schemas.push(options.infer_schema(state, url).await?.as_ref().clone()),
        urls => {
            for url in urls {
                schemas.push(options.infer_schema(state, url).await?.as_ref().clone());
            }
        }
    }
    Ok(Arc::new(Schema::try_merge(schemas)?))
}

/// A column that a folder's name gives is that, also where the files have it as well.
fn without(schema: &SchemaRef, partitions: &[(String, DataType)], file: &DataFile) -> Result<SchemaRef> {
    let of_folder = |name: &String| partitions.iter().any(|(partition, _)| partition == name);
    let Some(twice) = schema.fields().iter().find(|field| of_folder(field.name())) else {
        return Ok(Arc::clone(schema));
    };
    if file.format.is_text_by_place() {
        return Err(at(
            &file.path,
            format!("the column {} is in the file and in its folder's name", twice.name()),
        ));
    }
    let fields = schema.fields().iter().filter(|field| !of_folder(field.name())).cloned();
    Ok(Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone())))
}

/// A file's address; characters that patterns use stand for themselves.
fn address(path: &Path) -> Result<ListingTableUrl> {
    match url::Url::from_file_path(path) {
        Ok(url) => ListingTableUrl::try_new(url, None),
        Err(()) => Err(at(path, "the path is not absolute")),
    }
}

fn listing(
    source: &Source,
    reader: &Arc<dyn FileFormat>,
    partitions: &[(String, DataType)],
    file_schema: &SchemaRef,
    statistics: &Option<Arc<FileStatisticsCache>>,
    files: &[DataFile],
) -> Result<ListingTable> {
    // The values of partitions are read from what comes after the address of the table; hidden files are left out here too. A
    // pattern has no such address: see `hive`.
    let partitions = if matches!(source, Source::Folder(_)) { partitions } else { &[] };
    let (urls, extension) = match (source, files.first().and_then(|file| file.path.extension())) {
        (Source::Folder(folder), Some(extension)) if !partitions.is_empty() => {
            let url =
                url::Url::from_directory_path(folder).map_err(|()| at(folder, "the path is not absolute"))?;
            let shown = glob::Pattern::new("[!._]*").map_err(|error| at(folder, error))?;
            (vec![ListingTableUrl::try_new(url, Some(shown))?], format!(".{}", extension.to_string_lossy()))
        }
        _ => (files.iter().map(|file| address(&file.path)).collect::<Result<_>>()?, String::new()),
    };
    let options = ListingOptions::new(Arc::clone(reader)).with_file_extension(extension);
    let options = options.with_table_partition_cols(partitions.to_vec());
    let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
    let config = config.with_schema(Arc::clone(file_schema));
    Ok(ListingTable::try_new(config)?.with_cache(statistics.clone()))
}

impl TableProvider for LocalTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        self.listing.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        self.listing.supports_filters_pushdown(filters)
    }

    fn scan<'a, 'b, 'c, 'd, 'e>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> PlanFuture<'e>
    where
        'a: 'e,
        'b: 'e,
        'c: 'e,
        'd: 'e,
        Self: 'e,
    {
        self.scan_now(session, Wanted { projection, filters, limit })
    }

    fn insert_into<'a, 'b, 'c>(
        &'a self,
        session: &'b dyn Session,
        rows: Arc<dyn ExecutionPlan>,
        mode: InsertOp,
    ) -> PlanFuture<'c>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(self.insert(session, rows, mode))
    }
}
