//! A table in a query: what the engine reads.

use std::fmt::{self, Write};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use kelpie_engine::source::{BatchConsumer, ChunkConsumer, ColumnKey, Expected, Lease};
use kelpie_engine::{CancelToken, EngineError, TableSource};
use tokio::runtime::Handle;

use crate::cores::{cores, on_all_cores};
use crate::corrections::nan::canonical_batch;
use crate::decimals::check_decimals;
use crate::derived::reading::Reading;
use crate::derived::sharing::Sharing;
use crate::exec::panic_text;
use crate::expected;
use crate::memory_identity::MemoryIdentity;
use crate::parquet_reader::{EncodedFiles, ParquetRows};
use crate::parts::{Parts, PartsData, footer_of};
use crate::plain_source::{plain_source, pruned_source};
use crate::row_group_pruning::KeptRowGroups;
use crate::source::{Data, ScanTable};

/// What becomes of columns that are read.
#[derive(Clone, Copy)]
enum Use<'a> {
    /// The engine stores them, from whatever form of Arrow's they come in.
    Stored,
    /// Others are computed of them by their types, also by threads that have nothing left to read.
    Computed(Option<&'a Sharing<'a>>),
    /// The same where nothing is computed but of texts, which may come in any form.
    ComputedOfTexts(&'a Sharing<'a>),
}

impl<'a> Use<'a> {
    fn sharing(self) -> Option<&'a Sharing<'a>> {
        match self {
            Use::Stored => None,
            Use::Computed(sharing) => sharing,
            Use::ComputedOfTexts(sharing) => Some(sharing),
        }
    }
}

/// A table in a query.
pub(crate) struct BoundTable {
    pub(crate) table: Arc<ScanTable>,
    /// The data's columns and the derived ones.
    pub(crate) schema: SchemaRef,
    /// Whether NaN of its floats is one value (`nan`); `None` where it has none.
    pub(crate) one_nan: Option<bool>,
    /// Where it is not all of the table: the row groups that it has.
    pub(crate) kept_row_groups: Option<Arc<KeptRowGroups>>,
    /// Where its rows were selected: how many the whole table has.
    pub(crate) all_rows: Option<u64>,
    /// Made when it is read.
    pub(crate) parts: OnceLock<Parts>,
    pub(crate) context: Arc<TaskContext>,
    pub(crate) runtime: Handle,
    /// Set where it must not be read, and somebody wants to.
    pub(crate) refused: Option<Arc<AtomicBool>>,
}

impl fmt::Debug for BoundTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BoundTable").field(&self.table).finish()
    }
}

impl TableSource for BoundTable {
    fn name(&self) -> String {
        self.table.name().to_string()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn identity(&self) -> Option<String> {
        let mut identity = self.table.identity()?.to_string();
        if self.one_nan == Some(false) {
            // Other columns than those of sessions with the one NaN.
            identity.push_str("|every NaN");
        }
        if let Some(kept) = &self.kept_row_groups {
            let _ = write!(identity, "|row groups {kept}");
        }
        Some(identity)
    }

    fn narrower(&self, columns: &[usize]) -> Option<Arc<dyn TableSource>> {
        if self.kept_row_groups.is_some() || !self.table.conditions().is_empty() {
            return None;
        }
        if let Some(selected) = self.selected(columns) {
            return Some(Arc::new(selected));
        }
        let kept = self.table.kept_row_groups(&self.context)?;
        let narrower = BoundTable { kept_row_groups: Some(kept), ..self.over(Arc::clone(&self.table)) };
        // A footer that is not at hand any more does not tell where the row groups begin.
        narrower.parts().rows.is_some().then(|| Arc::new(narrower) as _)
    }

    fn rows_to_read(&self, columns: &[usize]) -> Option<u64> {
        match (self.all_rows, self.table.selection()) {
            (Some(rows), Some(selection)) => selection.rows_to_read(columns, rows),
            _ => self.exact_rows(),
        }
    }

    fn column_key(&self, column: usize) -> Option<ColumnKey> {
        match column.checked_sub(self.table.stored().fields().len()) {
            None => Some(ColumnKey::Stored(column)),
            Some(derived) => self.table.derived().get(derived)?.key().map(ColumnKey::Computed),
        }
    }

    fn lease(&self) -> Option<Lease> {
        self.table.memory().map(MemoryIdentity::lease)
    }

    fn expected(&self, column: usize) -> Option<Expected> {
        let table = self.table.as_ref();
        match column.checked_sub(table.stored().fields().len()) {
            None => *table.expected().get(column)?,
            Some(place) => {
                expected::of_derived(table.derived().get(place)?, table.stored(), table.expected())
            }
        }
    }

    fn exact_rows(&self) -> Option<u64> {
        self.kept_row_groups.as_ref().map_or(self.table.exact_rows(), |kept| Some(kept.rows))
    }

    fn partitions(&self) -> usize {
        self.parts().count()
    }

    fn partition_rows(&self) -> Option<Vec<u64>> {
        // Of a narrowed table it is not known how many rows are left, and of lists how many elements they have.
        let are_all = self.table.conditions().is_empty() && self.table.unnested().is_none();
        self.parts().rows.clone().filter(|_| are_all)
    }

    fn are_encoded(&self, columns: &[usize]) -> Vec<bool> {
        let files = self.encoded_files();
        let field = |column: &usize| self.table.stored().fields().get(*column).cloned();
        let is_encoded =
            |column| files.as_ref().zip(field(column)).is_some_and(|(files, field)| files.has(&field));
        columns.iter().map(is_encoded).collect()
    }

    fn read_encoded(
        &self,
        columns: &[usize],
        consumer: &ChunkConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        if !self.may_wait() {
            return Err(EngineError::Cancelled);
        }
        let fields = columns.iter().map(|column| self.table.stored().fields().get(*column).cloned());
        match (self.encoded_files(), fields.collect::<Option<Vec<_>>>()) {
            (Some(files), Some(fields)) => files.read(&fields, consumer, cancel),
            _ => Ok(()),
        }
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
        let width = table.stored().fields().len();
        if table.conditions().is_empty() && columns.iter().all(|column| *column < width) {
            return self.read_stored(columns, consumer, Use::Stored, cancel);
        }
        let reading = Reading::new(table, &self.schema, columns)?;
        if !table.conditions().is_empty() {
            // Few rows are left of every batch: more threads than read would cost more than they do.
            let making = |partition, batch| consumer(partition, reading.made_of(batch)?);
            return self.read_stored(reading.stored(), &making, Use::Computed(None), cancel);
        }
        let making = |batch| reading.made_of(batch);
        let sharing = Sharing::new(self.partitions(), &making, consumer, cancel);
        let take = |partition, batch| sharing.take(partition, batch);
        let purpose = match reading.takes_any_form() {
            true => Use::ComputedOfTexts(&sharing),
            false => Use::Computed(Some(&sharing)),
        };
        self.read_stored(reading.stored(), &take, purpose, cancel)
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
    /// Another table in the same query.
    fn over(&self, table: Arc<ScanTable>) -> BoundTable {
        BoundTable {
            table,
            schema: Arc::clone(&self.schema),
            one_nan: self.one_nan,
            kept_row_groups: None,
            all_rows: None,
            parts: OnceLock::new(),
            context: Arc::clone(&self.context),
            runtime: self.runtime.clone(),
            refused: self.refused.clone(),
        }
    }

    /// The table without the rows that the query's filters leave out, where these leave few and enough other columns are asked for.
    fn selected(&self, columns: &[usize]) -> Option<BoundTable> {
        let (rows, width) = (self.exact_rows()?, self.table.stored().fields().len());
        let are_stored = columns.iter().all(|column| *column < width);
        let selection = self.table.selection().filter(|_| are_stored)?;
        selection.rows_to_read(columns, rows)?;
        if !selection.leaves_few(self.table.stored(), rows, || self.footers()) {
            return None;
        }
        Some(BoundTable { all_rows: Some(rows), ..self.over(Arc::clone(self.table.selected()?)) })
    }

    /// Those of all files, where they are at hand.
    fn footers(&self) -> Option<Vec<Arc<ParquetMetaData>>> {
        let Data::Files(config) = self.table.data() else { return None };
        let footers = self.context.runtime_env().cache_manager.get_file_metadata_cache();
        let files = config.file_groups.iter().flat_map(FileGroup::iter);
        files.map(|file| footer_of(file, footers.as_ref())).collect()
    }

    /// Its files, where columns can be handed on as pages: all of its rows are those of local files of Parquet, or of their row groups.
    fn encoded_files(&self) -> Option<EncodedFiles> {
        let Data::Files(config) = self.table.data() else { return None };
        let are_all = self.table.conditions().is_empty() && self.table.unnested().is_none();
        let source = plain_source(config.file_source()).ok()?.0;
        if !are_all || !source.is::<ParquetSource>() || self.parts().rows.is_none() || !self.are_local(config)
        {
            return None;
        }
        let footers = self.context.runtime_env().cache_manager.get_file_metadata_cache();
        EncodedFiles::new(
            config,
            footers.as_ref(),
            self.kept_row_groups.as_deref(),
            self.one_nan == Some(true),
        )
    }

    fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| {
            let threads = cores();
            match self.table.data() {
                Data::Memory(partitions) => Parts::of_batches(partitions, threads),
                Data::Received(received) => Parts::of_batches(received.partitions().unwrap_or(&[]), threads),
                Data::Files(config) => {
                    let footers = self.context.runtime_env().cache_manager.get_file_metadata_cache();
                    // A narrowed table leaves out row groups and pages by itself.
                    let footers = Some(footers.as_ref()).filter(|_| self.table.conditions().is_empty());
                    Parts::of_files(config, footers, self.kept_row_groups.as_deref(), threads)
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
        if let Some(unnested) = self.table.unnested() {
            let read = unnested.read_for(columns);
            let elements = |partition, batch: RecordBatch| {
                unnested.unnest(&batch, (&read, columns), &|rows| consumer(partition, rows))
            };
            // Lists are computed, or decoded by Arrow.
            return self.read_data(&read, &elements, Use::Computed(purpose.sharing()), cancel);
        }
        self.read_data(columns, consumer, purpose, cancel)
    }

    /// Reads columns of the data.
    fn read_data(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        purpose: Use<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        match (self.table.data(), &self.parts().data) {
            (Data::Files(config), PartsData::Files(groups)) => {
                self.read_files(config, groups, columns, consumer, (purpose, cancel))
            }
            (Data::Received(received), _) if received.partitions().is_none() => {
                Err(EngineError::Internal("rows of another stage are read before they are here".into()))
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
            (Data::Memory(_) | Data::Received(_), PartsData::Files(_)) => Err(EngineError::Internal(
                format!("files are read of {}, which is in memory", self.table.name()),
            )),
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
        let source = pruned_source(&plain, &self.table);
        let own = match (source.downcast_ref::<ParquetSource>(), purpose) {
            (Some(parquet), Use::Stored | Use::ComputedOfTexts(_)) if self.parts().rows.is_some() => {
                let footers = self.context.runtime_env().cache_manager.get_file_metadata_cache();
                let are_local = self.are_local(config);
                ParquetRows::new(parquet, groups, columns, (footers.as_ref(), are_local))
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

    /// Whether a scan's files are on this machine, and no store of an embedder's stands for them.
    fn are_local(&self, config: &FileScanConfig) -> bool {
        let url = &config.object_store_url;
        let store = (url.as_str() == "file:///").then(|| self.context.runtime_env().object_store(url));
        store
            .and_then(Result::ok)
            .is_some_and(|store| store.to_string() == LocalFileSystem::new().to_string())
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
        EngineError::Source { table: self.table.name().to_string(), message: format!("{shown}{error}") }
    }
}
