//! Local files and folders as tables.

mod by_name;
mod call;
mod chosen;
mod dialect;
pub(crate) mod error;
mod external;
mod external_table;
mod footers;
mod format;
mod forms;
mod given;
mod insert;
mod local_format;
mod misfit;
mod misfits;
mod odd_columns;
mod options;
mod patterns;
mod pipe;
mod reader;
mod scan;
mod schema;
mod source;
mod table;
mod unite;
mod whole_files;

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use datafusion::catalog::{TableProvider, UrlTableFactory};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionState;
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;

use crate::access::Access;
use kelpie_datafusion::clock::{PlanClock, last_moment, timed_future};
use kelpie_engine::Phase;

pub(crate) use call::FileCall;
use error::at;
pub(crate) use error::plain;
pub(crate) use external::infer_from_whole_rows;
pub(crate) use external_table::read_external_tables;
use format::{Format, KNOWN, Kind, not_read};
use given::Given;
pub(crate) use misfits::find as find_misfit;
use options::ReadOptions;
pub(crate) use options::check_setting;
use patterns::{is_pattern, matches};
use pipe::is_pipe;
pub use pipe::remove_pipes;
pub(crate) use schema::{Broken, LocalTables};
pub(crate) use source::{DataFile, FOLDER_OF_NULL};
use source::{NO_FILE, Source, entries};
use table::LocalTable;
pub(crate) use whole_files::add as add_whole_files;

/// Files named in queries whose columns are remembered.
const REMEMBERED_FILES: usize = 1000;

/// What sessions run in: folders are listed anew for every query, so that it sees the files that are there.
pub(crate) fn runtime() -> Result<Arc<RuntimeEnv>> {
    RuntimeEnvBuilder::new().with_object_list_cache_limit(0).build_arc()
}

/// Shows a session's state to whoever asks, while the session lives.
type Show = Box<dyn Fn(&mut dyn FnMut(&SessionState)) + Send + Sync>;

/// The session of tables that are made when a query names them. Set once the session stands.
#[derive(Default)]
pub(crate) struct SessionSlot(OnceLock<Show>);

impl SessionSlot {
    pub fn set(&self, context: &SessionContext) {
        let weak = context.state_weak_ref();
        let show = move |ask: &mut dyn FnMut(&SessionState)| {
            if let Some(state) = weak.upgrade() {
                ask(&state.read());
            }
        };
        // Never set before: a slot belongs to one session.
        let _ = self.0.set(Box::new(show));
    }

    /// What the session answers.
    fn ask<T>(&self, question: impl Fn(&SessionState) -> T) -> Result<T> {
        let mut answer = None;
        if let Some(show) = self.0.get() {
            show(&mut |state| answer = Some(question(state)));
        }
        match answer {
            Some(answer) => Ok(answer),
            None => exec_err!("the session of this table is closed"),
        }
    }
}

impl std::fmt::Debug for SessionSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionSlot")
    }
}

/// The files of a table, where it is one of local files and was looked at since a moment: asking the system once more would take as
/// long as all else that finds a plan.
pub(crate) fn looked_since(table: &dyn TableProvider, moment: u64) -> Option<&[DataFile]> {
    let table: &dyn Any = table;
    let table = table.downcast_ref::<LocalTable>()?;
    table.was_looked_at(moment).then_some(table.made_of.as_slice())
}

/// The files that a table would read now, where it is one of local files.
pub(crate) fn listed_now(table: &dyn TableProvider) -> Option<Result<Vec<DataFile>>> {
    let table: &dyn Any = table;
    table.downcast_ref::<LocalTable>().map(|table| table.source.files())
}

/// Looks at all tables of files that a session has and nobody asked for yet.
pub(crate) async fn look_at_all(state: &SessionState) {
    if let Some(tables) = state.config().get_extension::<LocalTables>() {
        // Whoever asks for one that cannot be read gets the error.
        let _ = tables.look_at_all().await;
    }
}

/// A table of files, made anew where these have changed.
#[derive(Debug)]
struct LocalEntry {
    source: Source,
    given: Arc<Given>,
    made: tokio::sync::Mutex<Option<Made>>,
}

/// A table, and how it was made.
#[derive(Debug)]
struct Made {
    options: ReadOptions,
    table: Arc<LocalTable>,
}

impl LocalEntry {
    fn new(source: Source, given: Arc<Given>) -> LocalEntry {
        LocalEntry { source, given, made: tokio::sync::Mutex::default() }
    }

    /// Whether its columns are found by reading its values.
    fn takes_long(&self) -> bool {
        let files = self.source.files();
        files.is_ok_and(|files| {
            files.first().is_some_and(|file| !matches!(file.format.kind, Kind::Parquet | Kind::Arrow))
        })
    }

    async fn table(&self, session: &SessionSlot) -> Result<Arc<dyn TableProvider>> {
        timed_future(Phase::Statistics, self.current(session)).await
    }

    async fn current(&self, session: &SessionSlot) -> Result<Arc<dyn TableProvider>> {
        let mut made = self.made.lock().await;
        let since = PlanClock::since().unwrap_or(u64::MAX);
        let known = made.as_ref().map(|made| &made.options);
        let same_options = session.ask(|state| known.is_some_and(|options| options.are_those_of(state)))?;
        let made_so = made.as_ref().filter(|_| same_options);
        if let Some(made) = made_so.filter(|made| made.table.was_looked_at(since)) {
            return Ok(Arc::clone(&made.table) as _);
        }
        let moment = last_moment();
        let files = self.source.files()?;
        let is_same = |made: &&Made| made.table.made_of == files && made.table.rules == self.source.rules();
        if let Some(made) = made_so.filter(is_same) {
            made.table.looked.fetch_max(moment, Ordering::SeqCst);
            return Ok(Arc::clone(&made.table) as _);
        }
        let state = session.ask(SessionState::clone)?;
        let options = ReadOptions::of(&state).with(&self.given);
        let table = Arc::new(LocalTable::of(&state, &self.source, &files, &options).await?);
        table.looked.fetch_max(moment, Ordering::SeqCst);
        *made = Some(Made { options, table: Arc::clone(&table) });
        Ok(table)
    }
}

/// What a path on the command line is: the names and paths of its tables, and what is wrong with the other ones.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub tables: Vec<(String, PathBuf)>,
    /// Names that a query may still ask for, and why they are none.
    pub problems: Vec<(String, String)>,
}

/// The tables of a path: of a file by its stem; of a folder, every data file by its stem and every sub-folder with data by its
/// name; of a pattern, all that match it.
pub(crate) fn tables_of(path: &Path) -> Result<Found> {
    // What is in a pipe is read when it becomes a table.
    if let Some(name) = pipe::table_name(path) {
        return Ok(Found { tables: vec![(name, path.to_path_buf())], problems: Vec::new() });
    }
    let paths = match Source::of(path)? {
        Source::Folder(folder) => {
            let mut paths = entries(path)?;
            // A link to the folder itself, or one above it, brings nothing new.
            let leads_up = |path: &Path| path.canonicalize().is_ok_and(|path| folder.starts_with(path));
            paths.retain(|path| if path.is_dir() { !leads_up(path) } else { is_data(path) });
            paths
        }
        Source::File(_) if Format::of(path).is_none() => return Err(not_read(path)),
        Source::File(_) | Source::Pipe(_) | Source::Chosen(_) | Source::Kept(_) => vec![path.to_path_buf()],
        Source::Pattern(pattern) => matches(&pattern)?,
    };
    let mut found = Found::default();
    let mut named: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for path in paths {
        let Some(name) = table_name(&path) else {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.problems.push((name, format!("{}: a table cannot be named after it", path.display())));
            continue;
        };
        match named.iter_mut().find(|(known, _)| *known == name) {
            Some((_, paths)) => paths.push(path),
            None => named.push((name, vec![path])),
        }
    }
    for (name, paths) in named {
        match paths.as_slice() {
            [path] if path.is_dir() && has_no_data(path) => {}
            // One that nobody named may have nobody who writes, and would be waited for.
            [path] if is_pipe(path) => found.problems.push((name, plain(&at(path, NO_FILE)))),
            [path] => found.tables.push((name, path.clone())),
            paths => {
                let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                found.problems.push((name.clone(), format!("{}: all are named {name}", paths.join(", "))));
            }
        }
    }
    match found.tables.is_empty() && found.problems.is_empty() {
        true => Err(at(path, format!("no {KNOWN} here"))),
        false => Ok(found),
    }
}

/// Whether a file of a folder is data. Text without a format of its own is mostly for people, and has to be named.
fn is_data(path: &Path) -> bool {
    Format::of(path).is_some_and(|format| format.kind != Kind::Txt)
}

/// Whether a folder is one of something else. One that cannot be read may have data.
fn has_no_data(folder: &Path) -> bool {
    let Ok(paths) = entries(folder) else { return false };
    // A link to a folder above is not followed: whatever is there, is there once.
    paths.iter().all(|path| match path.is_dir() {
        true => path.is_symlink() || has_no_data(path),
        false => !is_data(path),
    })
}

/// A name that no table has and no data file: that of another file is told so.
fn why_no_data(path: &Path, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
    let is_path = name.contains(['/', '.']);
    match std::fs::metadata(path) {
        Ok(found) if is_path && found.is_file() => Err(not_read(path)),
        Ok(found) if is_path && !found.is_dir() => Err(at(path, NO_FILE)),
        _ => Ok(None),
    }
}

/// Whether a name in a query is a folder's. A plain name may be meant for a table that is not there.
fn is_folder_of_data(path: &Path, name: &str) -> bool {
    path.is_dir() && (name.contains('/') || !has_no_data(path))
}

/// The name of the table of a file or folder: without the extensions that say how it is read.
fn table_name(path: &Path) -> Option<String> {
    let compressed = Format::of(path).is_some_and(|format| format.compression.is_compressed());
    let name = match path.is_dir() {
        true => match path.file_name() {
            Some(name) => Some(name.to_os_string()),
            // `..` and `.` have a name all the same.
            None => path.canonicalize().ok().and_then(|path| path.file_name().map(Into::into)),
        },
        false if compressed => path.file_stem().and_then(|name| Path::new(name).file_stem()).map(Into::into),
        false => path.file_stem().map(Into::into),
    };
    name?.to_str().map(Into::into)
}

tokio::task_local! {
    /// The table that a statement makes. It is looked for as one that the statement names, and a folder of its name need be no data.
    static MADE: String;
}

/// Plans a statement that makes a table of some name.
pub(crate) async fn making<F: Future>(table: Option<String>, planned: F) -> F::Output {
    match table {
        Some(table) => MADE.scope(table, planned).await,
        None => planned.await,
    }
}

/// Makes `SELECT … FROM 'file.parquet'` work on local files.
#[derive(Debug, Default)]
pub(crate) struct LocalFiles {
    pub session: SessionSlot,
    known: Mutex<HashMap<Wanted, Arc<LocalEntry>>>,
}

/// Files, and how they are read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    source: Source,
    given: Arc<Given>,
}

type TableFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<Arc<dyn TableProvider>>>> + Send + 'a>>;

impl LocalFiles {
    /// What [`UrlTableFactory::try_new`] gives. Here the compiler proves once and for all that the future may go to another
    /// thread. Under that method's bounds of lifetimes it would go through all types of DataFusion's plans again, for seconds.
    fn found<'a>(&'a self, name: &'a str) -> TableFuture<'a> {
        Box::pin(async move {
            match self.named(name).await {
                Err(_) if MADE.try_with(|made| made == name).unwrap_or(false) => Ok(None),
                found => found,
            }
        })
    }

    fn named<'a>(&'a self, name: &'a str) -> TableFuture<'a> {
        Box::pin(async move {
            let access = self.session.ask(Access::of)?;
            if let Some(call) = FileCall::of_name(name) {
                call.local_paths().try_for_each(|path| access.check_file(path))?;
                let (source, given) = call.source()?;
                if let Some(shown) = call.of_footers() {
                    return footers::table(&source, shown).map(Some);
                }
                return self.entry(source, given).table(&self.session).await.map(Some);
            }
            let path = Path::new(name.strip_prefix("file://").unwrap_or(name));
            if name.contains("://") && !name.starts_with("file://") {
                return plan_err!("{name}: only local files can be tables");
            }
            // Not even the names of folders are for everyone to know.
            if access.files.is_some() && !name.contains('/') && Format::of(path).is_none() {
                return Ok(None);
            }
            access.check_file(path)?;
            // An unknown name that does not look like a file is an unknown table.
            let looks_like_files = Format::of(path).is_some()
                || is_folder_of_data(path, name)
                || is_pipe(path)
                || (name.contains('/') && is_pattern(path));
            if !looks_like_files {
                return why_no_data(path, name);
            }
            self.entry(Source::of(path)?, Given::default()).table(&self.session).await.map(Some)
        })
    }

    fn entry(&self, source: Source, given: Given) -> Arc<LocalEntry> {
        let wanted = Wanted { source, given: Arc::new(given) };
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED_FILES {
            known.clear();
        }
        let made = || Arc::new(LocalEntry::new(wanted.source.clone(), Arc::clone(&wanted.given)));
        Arc::clone(known.entry(wanted.clone()).or_insert_with(made))
    }
}

impl UrlTableFactory for LocalFiles {
    fn try_new<'a, 'b, 'c>(&'a self, name: &'b str) -> TableFuture<'c>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.found(name)
    }
}
