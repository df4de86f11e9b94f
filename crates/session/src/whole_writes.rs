//! COPY and INSERT into local files: what they write appears whole, or not at all.
//!
//! DataFusion's sinks finish their files as soon as their input ends, also where it ends with an error, and so put a valid but
//! empty file in place of what stood there. Here they write beside the place that was asked for, and only a statement that
//! succeeds renames. Into a device or a pipe they write directly, as there is nothing to replace.

mod file;
mod rows;
mod settings;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::exec_err;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::path::Path;
use datafusion::object_store::{
    self, CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::FutureExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

pub use file::WholeFile;

/// Makes COPY and INSERT into local files replace nothing before all is written.
#[derive(Debug)]
pub(crate) struct WholeWrites;

impl PhysicalOptimizerRule for WholeWrites {
    fn name(&self) -> &str {
        "kelpie_whole_writes"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let transformed = plan.transform_down(|node| {
            let Some(exec) = node.downcast_ref::<DataSinkExec>() else { return Ok(Transformed::no(node)) };
            if exec.sink().is::<WholeSink>() {
                return Ok(Transformed::no(node));
            }
            settings::check(exec.sink())?;
            let sink = Arc::new(WholeSink { exec: exec.clone() });
            let exec = DataSinkExec::new(Arc::clone(exec.input()), sink, exec.sort_order().clone());
            Ok(Transformed::yes(Arc::new(exec)))
        });
        Ok(transformed?.data)
    }
}

/// A COPY that names a device or a pipe writes into it: DataFusion takes a name without an extension for a folder's.
pub(crate) fn copy_to_device(plan: &LogicalPlan) -> Option<LogicalPlan> {
    let LogicalPlan::Copy(copy) = plan else { return None };
    let to = copy.output_url.strip_prefix("file://").unwrap_or(&copy.output_url);
    let chosen = copy.options.contains_key(SINGLE_FILE) || !copy.partition_by.is_empty();
    (!chosen && WholeFile::is_direct_at(FilePath::new(to))).then(|| {
        let mut copy = copy.clone();
        copy.options.insert(SINGLE_FILE.into(), "true".into());
        LogicalPlan::Copy(copy)
    })
}

/// The option of COPY by which one file is written, whatever it is called.
const SINGLE_FILE: &str = "single_file_output";

/// What a statement runs in whose files take the place of all that its folder has.
#[derive(Debug)]
pub(crate) struct Overwrites;

/// A sink whose files take their names when all of them are written.
#[derive(Debug)]
struct WholeSink {
    /// The node of the sink that writes: it does not give its sink away.
    exec: DataSinkExec,
}

impl DisplayAs for WholeSink {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exec.sink().fmt_as(format, f)
    }
}

#[async_trait]
impl DataSink for WholeSink {
    fn metrics(&self) -> Option<MetricsSet> {
        self.exec.sink().metrics()
    }

    fn schema(&self) -> &SchemaRef {
        self.exec.sink().schema()
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        let of_texts = rows::sink_of_texts(self.exec.sink());
        let sink = of_texts.as_ref().map_or(self.exec.sink(), |sink| sink as &dyn DataSink);
        let data = rows::as_written(sink, data);
        let replaced = match context.session_config().get_extension::<Overwrites>() {
            Some(_) => rows::files_there(sink)?,
            None => vec![],
        };
        let staging = StagingGuard(Arc::default());
        let mut runtime = RuntimeEnv::clone(&context.runtime_env());
        let stores = Arc::clone(&runtime.object_store_registry);
        runtime.object_store_registry = Arc::new(StagingStores { stores, staging: Arc::clone(&staging.0) });
        let context = TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone(),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            Arc::new(runtime),
        );
        let written = sink.write_all(data, &Arc::new(context)).await;
        // DataFusion's writers do not pass on what a file said.
        let error = staging.0.state.lock().error.take();
        match (written, error) {
            (Ok(rows), _) => staging.0.complete(replaced).map(|()| rows),
            (Err(_), Some(error)) => exec_err!("{error}"),
            (Err(error), None) => Err(error),
        }
    }
}

/// The files of one statement that are written and have not their names yet.
#[derive(Debug, Default)]
struct Staging {
    state: Mutex<StagingState>,
}

#[derive(Debug, Default)]
struct StagingState {
    files: Vec<WholeFile>,
    /// Folders that were made for them.
    folders: Vec<PathBuf>,
    /// Why a file could not be written.
    error: Option<String>,
    /// The statement is over: a task of it that still runs must write nothing more.
    over: bool,
}

/// Removes what a statement wrote, unless it completed.
struct StagingGuard(Arc<Staging>);

impl Drop for StagingGuard {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.over = true;
        state.files.clear();
        for folder in state.folders.drain(..).rev() {
            // Where it cannot be removed, nothing better is left to do.
            let _ = fs::remove_dir(folder);
        }
    }
}

impl Staging {
    /// Opens a file to be written in place of `path`.
    fn open(&self, path: &FilePath) -> io::Result<Parts> {
        // A pipe may wait for its reader long: nobody else must wait with it, for the lock.
        if WholeFile::is_direct_at(path) {
            return Parts::new(&WholeFile::create(path)?);
        }
        let mut state = self.state.lock();
        if state.over {
            return Err(io::Error::other("the statement is over"));
        }
        if let Some(folder) = path.parent() {
            make_folder(folder, &mut state.folders)?;
        }
        let file = WholeFile::create(path)?;
        let parts = Parts::new(&file)?;
        state.files.push(file);
        Ok(parts)
    }

    /// Gives all files their names, and removes those that they take the place of.
    fn complete(&self, mut replaced: Vec<PathBuf>) -> Result<()> {
        let mut state = self.state.lock();
        state.over = true;
        let at = |path: &FilePath, error: io::Error| {
            DataFusionError::Execution(format!("{}: {error}", path.display()))
        };
        for file in std::mem::take(&mut state.files) {
            let path = file.path().to_path_buf();
            file.complete().map_err(|error| at(&path, error))?;
            replaced.retain(|old| *old != path);
        }
        for path in replaced {
            fs::remove_file(&path).map_err(|error| at(&path, error))?;
            // A folder that has other files stays.
            let _ = path.parent().map(fs::remove_dir);
        }
        state.folders.clear();
        Ok(())
    }
}

/// Where the parts of a file go, which come in any order.
#[derive(Debug)]
struct Parts {
    file: File,
    /// Of a device or a pipe, which take bytes one after the other only.
    queue: Option<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Where the next part begins.
    next: u64,
    /// Those that came too early, by where they begin: no more than are written at once.
    early: BTreeMap<u64, PutPayload>,
}

impl Parts {
    fn new(file: &WholeFile) -> io::Result<Parts> {
        Ok(Parts { file: file.file().try_clone()?, queue: file.is_direct().then(Queue::default) })
    }

    fn write(&mut self, offset: u64, part: PutPayload) -> io::Result<()> {
        let Some(queue) = &mut self.queue else {
            self.file.seek(SeekFrom::Start(offset))?;
            return part.iter().try_for_each(|bytes| self.file.write_all(bytes));
        };
        queue.early.insert(offset, part);
        while let Some(part) = queue.early.remove(&queue.next) {
            queue.next += part.content_length() as u64;
            part.iter().try_for_each(|bytes| self.file.write_all(bytes))?;
        }
        Ok(())
    }
}

/// Makes a folder and those above it, and notes which are new.
fn make_folder(folder: &FilePath, made: &mut Vec<PathBuf>) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above, made)?;
    }
    match fs::create_dir(folder) {
        Ok(()) => made.push(folder.to_path_buf()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// A session's stores, of which the one of the local file system writes to a staging.
#[derive(Debug)]
struct StagingStores {
    stores: Arc<dyn ObjectStoreRegistry>,
    staging: Arc<Staging>,
}

/// An address, as the registry of stores takes it.
type Address = url::Url;

impl ObjectStoreRegistry for StagingStores {
    fn register_store(&self, url: &Address, store: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        self.stores.register_store(url, store)
    }

    fn deregister_store(&self, url: &Address) -> Result<Arc<dyn ObjectStore>> {
        self.stores.deregister_store(url)
    }

    fn get_store(&self, url: &Address) -> Result<Arc<dyn ObjectStore>> {
        let store = self.stores.get_store(url)?;
        let files = LocalFileSystem::new();
        // A store of the embedder's own under `file://` keeps its ways.
        if store.to_string() != files.to_string() {
            return Ok(store);
        }
        Ok(Arc::new(StagingStore { store, files, staging: Arc::clone(&self.staging) }))
    }
}

/// The local file system, its new files in a staging.
#[derive(Debug)]
struct StagingStore {
    store: Arc<dyn ObjectStore>,
    files: LocalFileSystem,
    staging: Arc<Staging>,
}

impl fmt::Display for StagingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.store, f)
    }
}

impl StagingStore {
    async fn open(&self, location: &Path) -> object_store::Result<StagedUpload> {
        let path = self.files.path_to_filesystem(location)?;
        let staging = Arc::clone(&self.staging);
        let name = path.clone();
        let file = blocking(&self.staging, &path, move || staging.open(&name)).await?;
        let staging = Arc::clone(&self.staging);
        Ok(StagedUpload { staging, parts: Arc::new(Mutex::new(file)), path, offset: 0 })
    }
}

/// Runs what may block where blocking is allowed; an error names the file.
async fn blocking<T: Send + 'static>(
    staging: &Staging,
    path: &FilePath,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> object_store::Result<T> {
    let done = tokio::task::spawn_blocking(work).await.map_err(io::Error::other).flatten();
    done.map_err(|error| {
        let text = format!("cannot write {}: {error}", path.display());
        staging.state.lock().error.get_or_insert_with(|| text.clone());
        object_store::Error::Generic { store: "file", source: Box::new(io::Error::new(error.kind(), text)) }
    })
}

#[async_trait]
impl ObjectStore for StagingStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        if options.mode != PutMode::Overwrite {
            return self.store.put_opts(location, payload, options).await;
        }
        let mut upload = self.open(location).await?;
        upload.put_part(payload).await?;
        upload.complete().await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(self.open(location).await?))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// A file on its way into a staging, which also removes it.
#[derive(Debug)]
struct StagedUpload {
    staging: Arc<Staging>,
    parts: Arc<Mutex<Parts>>,
    path: PathBuf,
    /// Where the next part begins.
    offset: u64,
}

#[async_trait]
impl MultipartUpload for StagedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let offset = self.offset;
        self.offset += data.content_length() as u64;
        let (staging, parts, path) = (Arc::clone(&self.staging), Arc::clone(&self.parts), self.path.clone());
        async move { blocking(&staging, &path, move || parts.lock().write(offset, data)).await }.boxed()
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        Ok(())
    }
}
