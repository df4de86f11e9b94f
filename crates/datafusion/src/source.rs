//! Tables that the engine reads through DataFusion's readers.

use std::fmt::{self, Write};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use kelpie_engine::source::{BatchConsumer, ColumnKey, Expected, Lease};
use kelpie_engine::{CancelToken, EngineError, TableSource};
use tokio::runtime::Handle;

use crate::cores::{cores, on_all_cores};
use crate::corrections::nan::{any_floats, canonical_batch};
use crate::decimals::check_decimals;
use crate::derived::Derived;
use crate::derived::reading::Reading;
use crate::derived::sharing::Sharing;
use crate::exec::panic_text;
use crate::expected;
use crate::file_version::version_of;
use crate::memory_identity::{self, MemoryIdentity};
use crate::options::KelpieOptions;
use crate::parquet_reader::ParquetRows;
use crate::parts::{Parts, PartsData};
use crate::plain_source::{plain_source, pruned_source};
use crate::whole_files::{name_of, whole_files};

/// A table of a plan: every column and every row, whatever the plan's scan leaves out.
#[derive(Debug)]
pub struct ScanTable {
    name: String,
    /// The columns of the data; the derived ones follow them.
    schema: SchemaRef,
    derived: Vec<Derived>,
    /// What holds for the rows that it is narrowed to.
    conditions: Vec<Derived>,
    data: Data,
    identity: Option<String>,
    /// Of batches in memory.
    memory: Option<Arc<MemoryIdentity>>,
    exact_rows: Option<u64>,
    /// What statistics tell of its data's columns; empty where there are none.
    expected: Vec<Option<Expected>>,
}

enum Data {
    /// A scan without projection, filter and limit, in file order.
    Files(Box<FileScanConfig>),
    /// Partitions of batches.
    Memory(Vec<Vec<RecordBatch>>),
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Files(config) => write!(f, "Files({:?})", config.file_groups),
            Data::Memory(partitions) => write!(f, "Memory({} partitions)", partitions.len()),
        }
    }
}

impl ScanTable {
    /// The table that a scan of batches reads.
    pub(crate) fn of_memory(memory: &MemorySourceConfig) -> ScanTable {
        let identity = memory_identity::identify(memory.partitions().iter().flatten());
        let table = ScanTable::of_constants(memory);
        ScanTable { identity: identity.as_ref().map(|identity| identity.text()), memory: identity, ..table }
    }

    /// The table that a scan of batches reads which no other query has: it is not cached.
    pub(crate) fn of_constants(memory: &MemorySourceConfig) -> ScanTable {
        let partitions = memory.partitions().to_vec();
        let rows = partitions.iter().flatten().map(|batch| batch.num_rows() as u64).sum();
        ScanTable {
            name: "memory".into(),
            schema: memory.original_schema(),
            derived: Vec::new(),
            conditions: Vec::new(),
            data: Data::Memory(partitions),
            identity: None,
            memory: None,
            exact_rows: Some(rows),
            expected: Vec::new(),
        }
    }

    /// The table that a scan of files reads, or why Kelpie cannot.
    pub(crate) fn of_files(config: &FileScanConfig) -> Result<ScanTable, String> {
        memory_identity::forget_dropped();
        let (source, format) = plain_source(config.file_source())?;
        // DataFusion reads a column whose least and greatest values are equal as that value: NaN hides behind them.
        let unbelieving = |file: PartitionedFile| PartitionedFile { statistics: None, ..file };
        let files: Vec<_> = whole_files(&config.file_groups).into_iter().map(unbelieving).collect();
        let mut identity = format!("{format}|{:?}|", config.file_compression_type);
        let _ = write!(identity, "{:?}", source.table_schema().table_schema());
        for file in &files {
            let meta = &file.object_meta;
            let _ = write!(
                identity,
                "|{}{}:{}:{}:{}:{:?}:{:?}",
                config.object_store_url.as_str(),
                meta.location,
                meta.size,
                meta.last_modified.timestamp_nanos_opt().unwrap_or_default(),
                version_of(config, meta).unwrap_or_default(),
                file.range,
                file.partition_values,
            );
        }
        let name = name_of(&files);
        let schema = Arc::clone(source.table_schema().table_schema());
        // `preserve_order` keeps each file in its partition: columns that are read at different times must match.
        let config = FileScanConfigBuilder::from(config.clone())
            .with_source(source)
            .with_file_groups(vec![FileGroup::new(files)])
            .with_limit(None)
            .with_output_ordering(vec![])
            .with_output_partitioning(None)
            .with_preserve_order(true)
            .build();
        let statistics = config.statistics();
        let exact_rows = match statistics.num_rows {
            Precision::Exact(rows) => Some(rows as u64),
            _ => None,
        };
        let expected = expected::of_statistics(&statistics);
        let data = Data::Files(Box::new(config));
        let (derived, conditions, identity) = (Vec::new(), Vec::new(), Some(identity));
        Ok(ScanTable {
            name,
            schema,
            derived,
            conditions,
            data,
            identity,
            memory: None,
            exact_rows,
            expected,
        })
    }

    /// Name, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns of its data; the derived ones are not among them.
    pub(crate) fn stored(&self) -> &SchemaRef {
        &self.schema
    }

    /// What makes its data the same data in a later query.
    pub(crate) fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// The columns that are computed from others as it is read.
    pub(crate) fn derived(&self) -> &[Derived] {
        &self.derived
    }

    /// What holds for the rows that it is narrowed to: none where it has all of its data's.
    pub(crate) fn conditions(&self) -> &[Derived] {
        &self.conditions
    }

    /// Leaves only the rows that a condition holds for, which a plan's filters leave anyway. What is read of them is the
    /// query's own: it has no identity, so that nobody takes it for columns of the data.
    pub(crate) fn narrow(&mut self, condition: Derived) {
        if self.conditions.iter().all(|known| known.expr() != condition.expr()) {
            self.conditions.push(condition);
        }
        (self.identity, self.memory, self.exact_rows) = (None, None, None);
    }

    /// Adds a derived column; its position.
    pub(crate) fn derive(&mut self, derived: Derived) -> usize {
        let known = self.derived.iter().position(|known| known.expr() == derived.expr());
        let place = known.unwrap_or_else(|| {
            self.derived.push(derived);
            self.derived.len() - 1
        });
        self.schema.fields().len() + place
    }

    /// The table as the engine reads it, in a query's task context and on a runtime.
    ///
    /// Where whoever runs the engine must not wait for files, it is not read, and asking for that is noted.
    pub(crate) fn bind(
        self: &Arc<Self>,
        context: Arc<TaskContext>,
        runtime: Handle,
        refused: Option<Arc<AtomicBool>>,
    ) -> Arc<dyn TableSource> {
        let derived = self.derived.iter().map(|derived| Arc::clone(derived.field()));
        let fields: Vec<_> = self.schema.fields().iter().cloned().chain(derived).collect();
        let (config, has_floats) = (context.session_config().options(), any_floats(&self.schema));
        let one_nan = has_floats.then(|| KelpieOptions::of(config).corrections);
        let schema = Arc::new(Schema::new(fields));
        Arc::new(BoundTable {
            table: Arc::clone(self),
            schema,
            one_nan,
            parts: OnceLock::new(),
            context,
            runtime,
            refused,
        })
    }
}

/// What becomes of columns that are read.
#[derive(Clone, Copy)]
enum Use<'a> {
    /// The engine stores them, from whatever form of Arrow's they come in.
    Stored,
    /// Others are computed of them by their types, also by threads that have nothing left to read.
    Computed(Option<&'a Sharing<'a>>),
}

impl<'a> Use<'a> {
    fn sharing(self) -> Option<&'a Sharing<'a>> {
        match self {
            Use::Stored => None,
            Use::Computed(sharing) => sharing,
        }
    }
}

/// A table in a query.
struct BoundTable {
    table: Arc<ScanTable>,
    /// The data's columns and the derived ones.
    schema: SchemaRef,
    /// Whether NaN of its floats is one value (`nan`); `None` where it has none.
    one_nan: Option<bool>,
    /// Made when it is read.
    parts: OnceLock<Parts>,
    context: Arc<TaskContext>,
    runtime: Handle,
    /// Set where it must not be read, and somebody wants to.
    refused: Option<Arc<AtomicBool>>,
}

impl fmt::Debug for BoundTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoundTable").field(&self.table).finish()
    }
}

impl TableSource for BoundTable {
    fn name(&self) -> String {
        self.table.name.clone()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn identity(&self) -> Option<String> {
        let identity = self.table.identity.as_ref()?;
        Some(match self.one_nan {
            // Other columns than those of sessions with the one NaN.
            Some(false) => format!("{identity}|every NaN"),
            _ => identity.clone(),
        })
    }

    fn column_key(&self, column: usize) -> Option<ColumnKey> {
        match column.checked_sub(self.table.schema.fields().len()) {
            None => Some(ColumnKey::Stored(column)),
            Some(derived) => self.table.derived.get(derived)?.key().map(ColumnKey::Computed),
        }
    }

    fn lease(&self) -> Option<Lease> {
        self.table.memory.as_ref().map(MemoryIdentity::lease)
    }

    fn expected(&self, column: usize) -> Option<Expected> {
        let ScanTable { schema, derived, expected, .. } = self.table.as_ref();
        match column.checked_sub(schema.fields().len()) {
            None => *expected.get(column)?,
            Some(place) => expected::of_derived(derived.get(place)?, schema, expected),
        }
    }

    fn exact_rows(&self) -> Option<u64> {
        self.table.exact_rows
    }

    fn partitions(&self) -> usize {
        self.parts().count()
    }

    fn partition_rows(&self) -> Option<Vec<u64>> {
        // Of a narrowed table it is not known how many rows are left.
        self.parts().rows.clone().filter(|_| self.table.conditions.is_empty())
    }

    fn may_wait(&self) -> bool {
        if let Some(refused) = &self.refused {
            refused.store(true, Ordering::Relaxed);
        }
        self.refused.is_none()
    }

    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        if !self.may_wait() {
            return Err(EngineError::Cancelled);
        }
        let table = self.table.as_ref();
        let width = table.schema.fields().len();
        if table.conditions.is_empty() && columns.iter().all(|column| *column < width) {
            return self.read_stored(columns, consumer, Use::Stored, cancel);
        }
        let reading = Reading::new(table, &self.schema, columns)?;
        if !table.conditions.is_empty() {
            // Few rows are left of every batch: more threads than read would cost more than they do.
            let making = |partition, batch| consumer(partition, reading.made_of(batch)?);
            return self.read_stored(reading.stored(), &making, Use::Computed(None), cancel);
        }
        let making = |batch| reading.made_of(batch);
        let sharing = Sharing::new(self.partitions(), &making, consumer, cancel);
        let take = |partition, batch| sharing.take(partition, batch);
        self.read_stored(reading.stored(), &take, Use::Computed(Some(&sharing)), cancel)
    }
}

/// The next rows of a reader. Where the reader panics, as some do over a damaged file, that is an error.
fn next_batch(
    batches: &mut dyn Iterator<Item = Result<RecordBatch, String>>,
) -> Result<Option<RecordBatch>, String> {
    match catch_unwind(AssertUnwindSafe(|| batches.next())) {
        Ok(batch) => batch.transpose(),
        Err(panic) => Err(format!("the reader panicked: {}", panic_text(panic.as_ref()))),
    }
}

fn check(cancel: &CancelToken) -> Result<(), EngineError> {
    match cancel.is_cancelled() {
        true => Err(EngineError::Cancelled),
        false => Ok(()),
    }
}

impl BoundTable {
    fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| {
            let threads = cores();
            match &self.table.data {
                Data::Memory(partitions) => Parts::of_batches(partitions, threads),
                Data::Files(config) => {
                    let footers = self.context.runtime_env().cache_manager.get_file_metadata_cache();
                    // A narrowed table leaves out row groups and pages by itself.
                    let footers = Some(footers.as_ref()).filter(|_| self.table.conditions.is_empty());
                    Parts::of_files(config, footers, threads)
                }
            }
        })
    }

    fn read_stored(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        purpose: Use<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        let with_one_nan = |partition, batch| consumer(partition, canonical_batch(batch)?);
        let consumer: &BatchConsumer<'_> = if self.one_nan == Some(true) { &with_one_nan } else { consumer };
        match (&self.table.data, &self.parts().data) {
            (Data::Files(config), PartsData::Files(groups)) => {
                self.read_files(config, groups, columns, consumer, (purpose, cancel))
            }
            (_, PartsData::Batches(pieces)) => {
                let read = |partition: usize| {
                    for batch in pieces.get(partition).into_iter().flatten() {
                        check(cancel)?;
                        consumer(partition, batch.project(columns)?)?;
                    }
                    Ok(())
                };
                match pieces.len() {
                    1 => read(0),
                    partitions => on_all_cores(partitions, &read, purpose.sharing()),
                }
            }
            (Data::Memory(_), PartsData::Files(_)) => Err(EngineError::Internal(format!(
                "files are read of {}, which is in memory",
                self.table.name
            ))),
        }
    }

    fn read_files(
        &self,
        config: &FileScanConfig,
        groups: &[FileGroup],
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        (purpose, cancel): (Use<'_>, &CancelToken),
    ) -> Result<(), EngineError> {
        // A plan that is kept reads again and again: each time it counts anew what it does.
        let plain = plain_source(config.file_source()).map_err(EngineError::Internal)?.0;
        let source = pruned_source(&plain, &self.table.conditions, &self.table.schema);
        let own = match (source.downcast_ref::<ParquetSource>(), purpose) {
            (Some(parquet), Use::Stored) if self.parts().rows.is_some() => {
                let footers = self.context.runtime_env().cache_manager.get_file_metadata_cache();
                ParquetRows::new(parquet, groups, columns, footers.as_ref())
            }
            _ => None,
        };
        if let Some(rows) = own {
            let read = |partition: usize| {
                let Some(files) = groups.get(partition) else { return Ok(()) };
                let batches = &mut rows.read(partition, files, &self.runtime);
                self.read_partition(batches, partition, consumer, cancel)
            };
            return on_all_cores(groups.len(), &read, purpose.sharing());
        }
        let config = FileScanConfigBuilder::from(config.clone())
            .with_source(source)
            .with_file_groups(groups.to_vec())
            .with_projection_indices(Some(columns.to_vec()))
            .map_err(|error| self.error(None, &error.strip_backtrace()))?
            .build();
        let scan = DataSourceExec::from_data_source(config);
        let read = |partition| {
            let _guard = self.runtime.enter();
            let mut stream = scan
                .execute(partition, Arc::clone(&self.context))
                .map_err(|error| self.error(Some(partition), &error.strip_backtrace()))?;
            let next = || self.runtime.block_on(stream.next());
            let mut batches = iter::from_fn(next).map(|batch| batch.map_err(|error| error.strip_backtrace()));
            self.read_partition(&mut batches, partition, consumer, cancel)
        };
        on_all_cores(groups.len(), &read, purpose.sharing())
    }

    fn read_partition(
        &self,
        batches: &mut dyn Iterator<Item = Result<RecordBatch, String>>,
        partition: usize,
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        let mut rows = 0;
        while let Some(batch) = next_batch(batches).map_err(|what| self.error(Some(partition), &what))? {
            check(cancel)?;
            rows += batch.num_rows() as u64;
            check_decimals(&batch).map_err(|what| self.error(Some(partition), &what))?;
            consumer(partition, batch)?;
        }
        check(cancel)?;
        let promised = self.partition_rows().and_then(|promised| promised.get(partition).copied());
        match promised.filter(|promised| *promised != rows) {
            Some(promised) => Err(self.error(
                Some(partition),
                &format!("a damaged file: it says that there are {promised} rows, and {rows} were read"),
            )),
            None => Ok(()),
        }
    }

    /// An error that names the files that were being read.
    fn error(&self, partition: Option<usize>, error: &str) -> EngineError {
        let files = partition.map_or(&[] as &[_], |partition| self.parts().files(partition));
        let files: Vec<String> = files.iter().map(|file| format!("/{}", file.object_meta.location)).collect();
        let shown = match files.len() {
            0 => String::new(),
            1..=3 => format!("{}: ", files.join(", ")),
            n => format!("{} … {} ({n} files): ", files[0], files[n - 1]),
        };
        EngineError::Source { table: self.table.name.clone(), message: format!("{shown}{error}") }
    }
}
