//! The table of some files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::DFSchema;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::table_schema::TableSchemaBuilder;
use datafusion::error::Result;
use datafusion::execution::cache::cache_manager::FileStatisticsCache;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;

use super::error::{at, in_metadata, plain};
use super::format::Kind;
use super::local_format::LocalFormat;
use super::odd_columns;
use super::options::ReadOptions;
use super::reader::{Layout, LocalReader, state as state_of};
use super::scan::{OPEN_AT_ONCE, Scanned, Wanted};
use super::schema::LocalTables;
use super::source::{DataFile, Source, forget};
use super::unite::{United, Values, unite};
use crate::checked_files::{caught, check_arrow, check_parquet, is_panic};
use crate::constraints::rules::{RULES, Rules};

/// A table of files. What it reads are the files that are there when it is read, by the columns that it was made with.
#[derive(Debug)]
pub(super) struct LocalTable {
    pub source: Source,
    /// The files that it was made of.
    pub made_of: Vec<DataFile>,
    /// When these were last seen to be its files.
    pub looked: AtomicU64,
    pub format: Arc<dyn FileFormat>,
    /// The columns that names of folders give.
    pub partitions: Vec<FieldRef>,
    /// The columns that stand in the files.
    pub file_schema: SchemaRef,
    /// Whether files have other types than the table, or names that differ in case.
    pub differ: bool,
    /// Whether filters may leave out row groups by their bounds.
    pub sound_bounds: bool,
    /// Whether readers of Parquet get other metadata than the files'.
    pub odd_columns: bool,
    /// All columns.
    schema: SchemaRef,
    /// What it says of its rows, and the values of columns where nothing is said.
    pub rules: Rules,
    defaults: HashMap<String, Expr>,
    statistics: Option<Arc<FileStatisticsCache>>,
    /// All of its files, as they were when it was scanned last.
    pub scanned: Mutex<Option<Arc<Scanned>>>,
}

/// How a table's files are read, and the columns that they have.
struct Known {
    format: Arc<dyn FileFormat>,
    united: United,
    sound_bounds: bool,
    odd_columns: bool,
}

impl LocalTable {
    /// The table of these files of a source, with the columns that they have.
    pub async fn of(
        state: &SessionState,
        source: &Source,
        files: &[DataFile],
        options: &ReadOptions,
    ) -> Result<LocalTable> {
        let Some(first) = files.first() else { return Err(at(source.path(), "there is no file")) };
        forget(state.runtime_env(), files);
        let Known { format, united, sound_bounds, odd_columns } = match first.format.kind {
            Kind::Parquet => parquet(state, files, options).await?,
            _ => text(state, files, options).await?,
        };
        let mut partitions = source.partitions(files);
        if matches!(source, Source::Pattern(_) | Source::Chosen(_)) && first.format.is_text_by_place() {
            partitions.retain(|field| united.schema.column_with_name(field.name()).is_none());
        }
        let file_schema = without(&united.schema, &partitions, first)?;
        let rules = source.rules();
        let defaults = defaults_of(&rules, state)?;
        let table_schema =
            TableSchemaBuilder::from(&file_schema).with_table_partition_cols(partitions.clone()).build();
        Ok(LocalTable {
            source: source.clone(),
            made_of: files.to_vec(),
            looked: AtomicU64::new(0),
            format,
            partitions,
            file_schema,
            differ: united.differ,
            sound_bounds: sound_bounds && !united.differ,
            odd_columns,
            schema: Arc::clone(table_schema.table_schema()),
            rules,
            defaults,
            statistics: state.runtime_env().cache_manager.get_file_statistic_cache(),
            scanned: Mutex::default(),
        })
    }

    /// Whether the files that it was made of were seen to be its files since a moment.
    pub fn was_looked_at(&self, moment: u64) -> bool {
        self.looked.load(Ordering::SeqCst) >= moment
    }

    /// DataFusion's listing of files.
    pub fn listing_of(&self, files: &[DataFile]) -> Result<ListingTable> {
        let urls = files.iter().map(|file| address(&file.path)).collect::<Result<_>>()?;
        let options = ListingOptions::new(Arc::clone(&self.format)).with_file_extension("");
        let config = ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options);
        let config = config.with_schema(Arc::clone(&self.file_schema));
        Ok(ListingTable::try_new(config)?.with_cache(self.statistics.clone()))
    }
}

/// The defaults of the columns of a table, with what it says of its rows among them.
fn defaults_of(rules: &Rules, state: &SessionState) -> Result<HashMap<String, Expr>> {
    let nothing = DFSchema::empty();
    let defaults = rules.defaults.iter();
    let defaults = defaults.map(|(name, sql)| Ok((name.clone(), state.create_logical_expr(sql, &nothing)?)));
    let own = (!rules.is_empty()).then(|| Ok((RULES.to_string(), rules.as_default()?)));
    defaults.chain(own).collect()
}

/// Parquet files, which DataFusion reads.
async fn parquet(state: &SessionState, files: &[DataFile], options: &ReadOptions) -> Result<Known> {
    let checked = check_parquet(files.iter().map(|file| file.path.as_path()))?;
    let Some(first) = files.first() else { return datafusion::common::internal_err!("no file") };
    let format = first.format.writer(None, options);
    let listing = ListingOptions::new(Arc::clone(&format)).with_file_extension("");
    let mut schemas = Vec::with_capacity(files.len());
    for file in files.iter().filter(|_| checked.odd_columns) {
        let schema = odd_columns::schema(&file.path, &options.parquet.global)?;
        schemas.push((file.path.as_path(), with_computed_types(schema)));
    }
    for some in files.chunks(OPEN_AT_ONCE).filter(|_| !checked.odd_columns) {
        let opened = some.iter().map(|file| schema_of(&listing, state, &file.path));
        schemas.extend(try_join_all(opened).await?);
    }
    let mut united = unite(&schemas, Values::Typed)?;
    // What the files say of such columns is not said of the table's.
    united.differ |= checked.odd_columns;
    Ok(Known { format, united, sound_bounds: checked.sound_bounds, odd_columns: checked.odd_columns })
}

/// A file with its columns.
async fn schema_of<'a>(
    listing: &ListingOptions,
    state: &SessionState,
    path: &'a Path,
) -> Result<(&'a Path, SchemaRef)> {
    let address = address(path)?;
    let schema = caught(listing.infer_schema(state, &address)).await;
    // DataFusion's readers do not all name the file.
    let schema = schema.map_err(|error| in_metadata(path, plain(&error)))?;
    Ok((path, with_computed_types(schema)))
}

/// The columns in types that DataFusion computes with: sums of decimals of 32 and 64 bits wrap around there, and times of day of unlike units
/// are not compared.
fn with_computed_types(schema: SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| {
        let data_type = match field.data_type() {
            DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
                DataType::Decimal128(*precision, *scale)
            }
            DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Nanosecond),
            _ => return Arc::clone(field),
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    });
    let fields: Vec<FieldRef> = fields.collect();
    match fields.iter().eq(schema.fields()) {
        true => schema,
        false => Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())),
    }
}

/// Files that Kelpie reads.
async fn text(state: &SessionState, files: &[DataFile], options: &ReadOptions) -> Result<Known> {
    let Some(first) = files.first() else { return datafusion::common::internal_err!("no file") };
    let tables = state.config().get_extension::<LocalTables>();
    if first.format.kind == Kind::Arrow {
        check_arrow(files.iter().map(|file| file.path.as_path()))?;
    }
    let reader = Arc::new(LocalReader::new(first.format, options.clone()));
    let mut schemas = Vec::with_capacity(files.len());
    let mut dialect = None;
    for file in files {
        let version = state_of(file.bytes, Some(&file.version));
        let shape = caught(async { reader.shape(&file.path, &version) }).await;
        let shape = shape
            .map_err(|error| if is_panic(&error) { in_metadata(&file.path, plain(&error)) } else { error })?;
        if let (None, Layout::Csv(of_first)) = (&dialect, &shape.layout) {
            dialect = Some(of_first.clone());
        }
        if let (Some(tables), Some(note)) = (&tables, &shape.note) {
            tables.note(note);
        }
        schemas.push((file.path.as_path(), Arc::clone(&shape.schema)));
    }
    let values = if first.format.kind == Kind::Arrow { Values::Typed } else { Values::Text };
    let mut united = unite(&schemas, values)?;
    // Its statistics say nothing of columns, and it finds them by itself.
    united.differ = false;
    let writer = first.format.writer(dialect.as_ref(), options);
    let format = Arc::new(LocalFormat { reader, writer });
    Ok(Known { format, united, sound_bounds: false, odd_columns: false })
}

/// A column that a folder's name gives is that, also where the files have it as well.
fn without(schema: &SchemaRef, partitions: &[FieldRef], file: &DataFile) -> Result<SchemaRef> {
    let of_folder = |name: &String| partitions.iter().any(|partition| partition.name() == name);
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

impl TableProvider for LocalTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.get(column)
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(self.pushed_down(filters))
    }

    fn scan<'a, 'b, 'c, 'd, 'e>(
        &'a self,
        session: &'b dyn Session,
        projection: Option<&'c Vec<usize>>,
        filters: &'d [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'e, Result<Arc<dyn ExecutionPlan>>>
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
    ) -> BoxFuture<'c, Result<Arc<dyn ExecutionPlan>>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(self.insert(session, rows, mode))
    }
}
