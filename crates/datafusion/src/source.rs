//! Tables of plans, which the engine reads through DataFusion's readers.

use std::fmt::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::stats::Precision;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::conjunction;
use kelpie_engine::TableSource;
use kelpie_engine::source::Expected;
use tokio::runtime::Handle;

use crate::bound_table::BoundTable;
use crate::corrections::nan::are_mended;
use crate::derived::Derived;
use crate::expected;
use crate::file_version::version_of;
use crate::memory_identity::{self, MemoryIdentity};
use crate::options::KelpieOptions;
use crate::plain_source::plain_source;
use crate::received::Received;
use crate::row_group_pruning::{KeptRowGroups, bounds_filter, kept_row_groups};
use crate::selection::Selection;
use crate::unnested::Unnested;
use crate::whole_files::{name_of, whole_files};

/// A table of a plan: every column and every row, whatever the plan's scan leaves out.
#[derive(Debug)]
pub struct ScanTable {
    name: String,
    /// The columns of the data; the derived ones follow them.
    schema: SchemaRef,
    derived: Vec<Derived>,
    /// What of it becomes rows: the elements are its last columns.
    unnested: Option<Arc<Unnested>>,
    /// What holds for the rows that it is narrowed to.
    conditions: Vec<Derived>,
    data: Data,
    identity: Option<String>,
    /// Of batches in memory.
    memory: Option<Arc<MemoryIdentity>>,
    exact_rows: Option<u64>,
    /// What statistics tell of its data's columns; empty where there are none.
    expected: Vec<Option<Expected>>,
    /// The plan's filters, as far as they are known.
    filter: Option<Arc<dyn PhysicalExpr>>,
    /// What of them leaves out row groups, by bounds that can be believed.
    bounds_filter: Option<Arc<dyn PhysicalExpr>>,
    /// The row groups that it leaves; looked for when they are first asked for.
    kept_row_groups: OnceLock<Option<Arc<KeptRowGroups>>>,
    /// The plan's filters, where they leave few rows; and the table that is narrowed to these, made when it is first asked for.
    selection: Option<Arc<Selection>>,
    selected: OnceLock<Arc<ScanTable>>,
}

#[derive(Clone)]
pub(crate) enum Data {
    /// A scan without projection, filter and limit, in file order.
    Files(Box<FileScanConfig>),
    /// Partitions of batches.
    Memory(Vec<Vec<RecordBatch>>),
    /// Rows that are here before the engine begins.
    Received(Arc<Received>),
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Files(config) => write!(f, "Files({:?})", config.file_groups),
            Data::Memory(partitions) => write!(f, "Memory({} partitions)", partitions.len()),
            Data::Received(received) => received.fmt(f),
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
        let table = ScanTable::uncached("memory", memory.original_schema(), Data::Memory(partitions));
        ScanTable { exact_rows: Some(rows), ..table }
    }

    /// The table of rows that come from elsewhere, once.
    pub(crate) fn of_received(received: &Arc<Received>) -> ScanTable {
        ScanTable::uncached("received", received.schema(), Data::Received(Arc::clone(received)))
    }

    fn uncached(name: &str, schema: SchemaRef, data: Data) -> ScanTable {
        ScanTable {
            name: name.into(),
            schema,
            derived: Vec::new(),
            unnested: None,
            conditions: Vec::new(),
            data,
            identity: None,
            memory: None,
            exact_rows: None,
            expected: Vec::new(),
            filter: None,
            bounds_filter: None,
            kept_row_groups: OnceLock::new(),
            selection: None,
            selected: OnceLock::new(),
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
        let filter = config.file_source().filter();
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
        let mut table = ScanTable {
            name,
            schema,
            derived,
            unnested: None,
            conditions,
            data,
            identity,
            memory: None,
            exact_rows,
            expected,
            filter: None,
            bounds_filter: None,
            kept_row_groups: OnceLock::new(),
            selection: None,
            selected: OnceLock::new(),
        };
        if let Some(filter) = filter {
            table.filter_by(filter);
        }
        Ok(table)
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

    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// The batches that it stands for, where it has any.
    pub(crate) fn memory(&self) -> Option<&Arc<MemoryIdentity>> {
        self.memory.as_ref()
    }

    /// How many rows it has, where that is known: of rows from elsewhere once they are here.
    pub(crate) fn exact_rows(&self) -> Option<u64> {
        if self.unnested.is_some() {
            return None;
        }
        match &self.data {
            Data::Received(received) => {
                let batches = received.partitions()?.iter().flatten();
                Some(batches.map(|batch| batch.num_rows() as u64).sum())
            }
            Data::Files(_) | Data::Memory(_) => self.exact_rows,
        }
    }

    /// The rows from elsewhere that it stands for, where it has any.
    pub(crate) fn received(&self) -> Option<&Arc<Received>> {
        match &self.data {
            Data::Received(received) => Some(received),
            Data::Files(_) | Data::Memory(_) => None,
        }
    }

    /// What statistics tell of its data's columns; empty where there are none.
    pub(crate) fn expected(&self) -> &[Option<Expected>] {
        &self.expected
    }

    /// What its rows were selected by, or might be.
    pub(crate) fn selection(&self) -> Option<&Arc<Selection>> {
        self.selection.as_ref()
    }

    /// The plan's filters, as far as they are known.
    pub(crate) fn filter(&self) -> Option<&Arc<dyn PhysicalExpr>> {
        self.filter.as_ref()
    }

    /// Notes what a filter of the plan leaves of its rows, so that others need not be read.
    pub(crate) fn filter_by(&mut self, condition: Arc<dyn PhysicalExpr>) {
        let filter = match self.filter.take() {
            Some(known) if known.eq(&condition) => known,
            known => conjunction(known.into_iter().chain([condition])),
        };
        if let (Data::Files(config), None) = (&self.data, &self.unnested) {
            self.bounds_filter = bounds_filter(config.file_source(), &filter);
            self.selection = Selection::of(config.file_source(), &filter, &self.expected).map(Arc::new);
        }
        self.filter = Some(filter);
    }

    /// Makes rows of the elements of lists, which become its last columns. What its filters leave out is told by its own columns no more.
    pub(crate) fn unnest(&mut self, unnested: Unnested) {
        let fields = self.schema.fields().iter().cloned().chain(unnested.fields());
        self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let key = unnested.key();
        self.identity = self.identity.take().zip(key).map(|(identity, key)| format!("{identity}|{key}"));
        (self.exact_rows, self.selection, self.bounds_filter) = (None, None, None);
        self.unnested = Some(Arc::new(unnested));
    }

    /// What of it becomes rows.
    pub(crate) fn unnested(&self) -> Option<&Unnested> {
        self.unnested.as_deref()
    }

    /// Leaves only the rows that a condition holds for, which a plan's filters leave anyway. What is read of them is other data than the
    /// table's: whoever asks again for rows of the same conditions finds it.
    pub(crate) fn narrow(&mut self, condition: Derived) {
        (self.exact_rows, self.selection) = (None, None);
        if self.conditions.iter().any(|known| known.expr() == condition.expr()) {
            return;
        }
        let identity = self.identity.take().zip(condition.key());
        self.identity = identity.map(|(identity, key)| format!("{identity}|rows of {key}"));
        self.conditions.push(condition);
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
        let (config, are_mended) = (context.session_config().options(), are_mended(&self.schema));
        let one_nan = are_mended.then(|| KelpieOptions::of(config).corrections);
        let schema = Arc::new(Schema::new(fields));
        Arc::new(BoundTable {
            table: Arc::clone(self),
            schema,
            one_nan,
            kept_row_groups: None,
            all_rows: None,
            parts: OnceLock::new(),
            context,
            runtime,
            refused,
        })
    }

    /// The table without the rows that its selection leaves out.
    pub(crate) fn selected(&self) -> Option<&Arc<ScanTable>> {
        let (selection, identity) = (self.selection.as_ref()?, self.identity.as_ref()?);
        Some(self.selected.get_or_init(|| {
            Arc::new(ScanTable {
                conditions: selection.conditions.clone(),
                identity: Some(format!("{identity}|where {}", selection.text(&self.schema))),
                memory: None,
                exact_rows: None,
                ..self.selecting(Some(Arc::clone(selection)))
            })
        }))
    }

    /// The same table, of which a plan filters the rows by one more condition.
    pub(crate) fn filtered(&self, condition: Arc<dyn PhysicalExpr>) -> ScanTable {
        let mut table = ScanTable { filter: self.filter.clone(), ..self.selecting(None) };
        table.filter_by(condition);
        table
    }

    /// The same table, of which only these rows are asked for, or nothing is known yet.
    pub(crate) fn selecting(&self, selection: Option<Arc<Selection>>) -> ScanTable {
        ScanTable {
            name: self.name.clone(),
            schema: Arc::clone(&self.schema),
            derived: self.derived.clone(),
            unnested: self.unnested.clone(),
            conditions: self.conditions.clone(),
            data: self.data.clone(),
            identity: self.identity.clone(),
            memory: self.memory.clone(),
            exact_rows: self.exact_rows,
            expected: self.expected.clone(),
            filter: None,
            bounds_filter: None,
            kept_row_groups: OnceLock::new(),
            selection,
            selected: OnceLock::new(),
        }
    }

    /// The row groups that the plan's filters may find rows in; `None` where these are all, as far as is known.
    pub(crate) fn kept_row_groups(&self, context: &TaskContext) -> Option<Arc<KeptRowGroups>> {
        let (Data::Files(config), Some(filter)) = (&self.data, &self.bounds_filter) else { return None };
        // A table that is narrowed row by row leaves out row groups as its rows are read.
        if !self.conditions.is_empty() {
            return None;
        }
        if let Some(known) = self.kept_row_groups.get() {
            return known.clone();
        }
        let footers = context.runtime_env().cache_manager.get_file_metadata_cache();
        let found = kept_row_groups(config, filter, footers.as_ref()).ok()?.map(Arc::new);
        self.kept_row_groups.get_or_init(|| found).clone()
    }
}
