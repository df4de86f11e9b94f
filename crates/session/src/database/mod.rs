//! A database: a folder whose tables, views and settings outlast the process.
//!
//! `kelpie.catalog` says what there is, and `data` has the rows as Parquet files, which are never changed: a change writes new files,
//! then replaces the catalogue, and then removes what nobody names any more. So a crash at any moment leaves what was before the change
//! or what is after it; files of a change that was not finished are removed when the database is opened again. One process has a database
//! open at a time, which a lock on `kelpie.lock` sees to.

mod catalogue;
mod persist;
mod rows;
mod statements;
mod steps;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{Hash, Hasher};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use datafusion::common::exec_err;
use datafusion::error::Result;
use parking_lot::Mutex;

use crate::constraints::checked_rows::Writing;
use crate::constraints::rules::Rules;
use crate::files::error::at;
use crate::kept_types::{KeepsTypes, NamedTypes};
use crate::sequences::{KeepsSequences, Sequence};
use catalogue::{Catalogue, View};
pub(crate) use persist::Persist;
pub(crate) use rows::insert;
pub(crate) use statements::{Change, columns_of, rules_of};
use steps::{Step, reached};

const LOCK: &str = "kelpie.lock";
const DATA: &str = "data";
/// How often a lock that somebody has is tried again, and after how long.
const LOCK_TRIES: usize = 25;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A database that is open. Sessions of one process may share it; it is closed when the last of them is gone.
pub struct Database {
    folder: PathBuf,
    catalogue: Mutex<Catalogue>,
    /// How often it was changed.
    changes: AtomicU64,
    /// Who of its sessions writes rows that are compared with others.
    writing: Arc<Writing>,
    /// Held as long as it is open.
    _lock: File,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database of a folder, which is made where there is none. A folder of something else is an error, as is a catalogue that
    /// is damaged, and a database that another process has open; all of them change nothing.
    pub fn open(folder: &Path) -> Result<Arc<Database>> {
        if let Ok(found) = fs::metadata(folder)
            && !found.is_dir()
        {
            return Err(at(folder, "a database is a folder, and this is none"));
        }
        if !folder.join(catalogue::FILE).exists() {
            refuse_files(folder)?;
        }
        fs::create_dir_all(folder).map_err(|error| at(folder, error))?;
        let folder = folder.canonicalize().map_err(|error| at(folder, error))?;
        let lock = locked(&folder)?;
        let found = Catalogue::read(&folder)?;
        let data = folder.join(DATA);
        fs::create_dir_all(&data).map_err(|error| at(&data, error))?;
        let catalogue = match found {
            Some(catalogue) => catalogue,
            None => {
                let new = Catalogue::default();
                new.write(&folder)?;
                new
            }
        };
        let (catalogue, changes) = (Mutex::new(catalogue), AtomicU64::new(1));
        let writing = Arc::new(Writing::default());
        let database = Database { folder, catalogue, changes, writing, _lock: lock };
        for (table, rules) in &database.catalogue.lock().rules {
            database.writing.remember(table, rules);
        }
        database.sweep();
        Ok(Arc::new(database))
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How often it was changed since it was opened.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What its sessions share that write rows.
    pub(crate) fn writing(&self) -> Arc<Writing> {
        Arc::clone(&self.writing)
    }

    /// What a table says of its rows.
    pub(crate) fn rules_of(&self, table: &str) -> Rules {
        self.catalogue.lock().rules.get(table).cloned().unwrap_or_default()
    }

    /// Lets a table say something else of its rows.
    pub(crate) fn put_rules(&self, table: &str, rules: Rules) -> Result<()> {
        self.change(|catalogue| catalogue.set_rules(table, rules))
    }

    /// The names of its tables.
    pub(crate) fn tables(&self) -> Vec<String> {
        self.catalogue.lock().tables.keys().cloned().collect()
    }

    /// The statements that make its views, in order, with their names.
    pub(crate) fn views(&self) -> Vec<(String, String)> {
        let catalogue = self.catalogue.lock();
        catalogue.views.iter().map(|view| (view.name.clone(), view.statement.clone())).collect()
    }

    /// The options that sessions begin with.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        self.catalogue.lock().settings.clone().into_iter().collect()
    }

    /// Whether there is a table of this name.
    fn has_table(&self, name: &str) -> bool {
        self.catalogue.lock().tables.contains_key(name)
    }

    /// The paths of a table's files.
    pub(crate) fn files_of(&self, table: &str) -> Result<Vec<PathBuf>> {
        let catalogue = self.catalogue.lock();
        match catalogue.tables.get(table) {
            Some(files) => Ok(files.iter().map(|file| self.folder.join(DATA).join(file)).collect()),
            None => exec_err!("{}: there is no table {table} any more", self.folder.display()),
        }
    }

    /// The path of a new file of rows, which belongs to no table yet.
    fn new_file(&self) -> PathBuf {
        let mut catalogue = self.catalogue.lock();
        let number = catalogue.next_file;
        catalogue.next_file += 1;
        self.folder.join(DATA).join(format!("{number}.parquet"))
    }

    /// Changes what there is, at once or, where that fails, not at all.
    fn change(&self, change: impl FnOnce(&mut Catalogue)) -> Result<()> {
        let mut catalogue = self.catalogue.lock();
        let mut changed = catalogue.clone();
        change(&mut changed);
        if changed == *catalogue {
            return Ok(());
        }
        changed.write(&self.folder)?;
        let named = |catalogue: &Catalogue| catalogue.tables.values().flatten().cloned().collect::<Vec<_>>();
        let (before, after) = (named(&catalogue), named(&changed));
        *catalogue = changed;
        drop(catalogue);
        self.changes.fetch_add(1, Ordering::AcqRel);
        reached(Step::Changed);
        for file in before.iter().filter(|file| !after.contains(file)) {
            // Where it cannot be removed now, it is when the database is opened again.
            let _ = fs::remove_file(self.folder.join(DATA).join(file));
        }
        Ok(())
    }

    /// Makes a table of a file of rows, which says something of them, or gives one other rows.
    fn put_table(&self, name: &str, file: String, rules: Option<&Rules>) -> Result<()> {
        self.change(|catalogue| {
            catalogue.tables.insert(name.to_string(), vec![file]);
            if let Some(rules) = rules {
                catalogue.set_rules(name, rules.clone());
            }
        })
    }

    /// Adds a file of rows to a table.
    fn add_rows(&self, name: &str, file: String) -> Result<()> {
        let mut is_there = false;
        self.change(|catalogue| {
            if let Some(files) = catalogue.tables.get_mut(name) {
                files.push(file);
                is_there = true;
            }
        })?;
        match is_there {
            true => Ok(()),
            false => exec_err!("{}: there is no table {name} any more", self.folder.display()),
        }
    }

    /// Gives a table another name.
    pub(crate) fn rename_table(&self, name: &str, to: &str) -> Result<()> {
        self.change(|catalogue| {
            if let Some(files) = catalogue.tables.remove(name) {
                catalogue.tables.insert(to.to_string(), files);
                let rules = catalogue.rules.remove(name).unwrap_or_default();
                catalogue.set_rules(to, rules);
            }
        })
    }

    fn drop_table(&self, name: &str) -> Result<()> {
        self.change(|catalogue| {
            catalogue.tables.remove(name);
            catalogue.rules.remove(name);
        })
    }

    /// Keeps a view, as the last one: it may name all others.
    fn put_view(&self, name: &str, statement: &str) -> Result<()> {
        self.change(|catalogue| {
            catalogue.views.retain(|view| view.name != name);
            catalogue.views.push(View { name: name.into(), statement: statement.into() });
        })
    }

    fn drop_view(&self, name: &str) -> Result<()> {
        self.change(|catalogue| catalogue.views.retain(|view| view.name != name))
    }

    fn has_view(&self, name: &str) -> bool {
        self.catalogue.lock().views.iter().any(|view| view.name == name)
    }

    /// Keeps an option's value for later sessions, or forgets it.
    fn put_setting(&self, name: &str, value: Option<&str>) -> Result<()> {
        self.change(|catalogue| {
            catalogue.settings.remove(name);
            if let Some(value) = value {
                catalogue.settings.insert(name.into(), value.into());
            }
        })
    }

    /// Removes files of rows that no table has, and catalogues that never took their place: changes that were not finished have left
    /// them.
    fn sweep(&self) {
        let catalogue = self.catalogue.lock();
        let named: Vec<&String> = catalogue.tables.values().flatten().collect();
        for entry in fs::read_dir(self.folder.join(DATA)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_of_rows(&name) && !named.contains(&&name) {
                // Nothing reads it; where it cannot be removed, it takes room only.
                let _ = fs::remove_file(entry.path());
            }
        }
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if is_of_catalogue(&entry.file_name().to_string_lossy()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl KeepsSequences for Database {
    fn with_sequences(&self, change: &mut dyn FnMut(&mut BTreeMap<String, Sequence>)) -> Result<()> {
        self.change(|catalogue| change(&mut catalogue.sequences))
    }
}

impl KeepsTypes for Database {
    fn with_types(&self, change: &mut dyn FnMut(&mut NamedTypes)) -> Result<()> {
        self.change(|catalogue| change(&mut catalogue.types))
    }
}

/// Whether a file's name is that of a catalogue on its way to its place.
fn is_of_catalogue(name: &str) -> bool {
    name.starts_with(&format!(".{}.", catalogue::FILE)) && name.ends_with(".tmp")
}

/// Whether a file's name is one that a database gives to its rows.
fn is_of_rows(name: &str) -> bool {
    name.strip_suffix(".parquet").is_some_and(|number| number.parse::<u64>().is_ok())
}

/// A folder without a catalogue becomes a database only where there is nothing in it but what a database has that was never finished.
fn refuse_files(folder: &Path) -> Result<()> {
    for name in names_in(folder)? {
        let is_own = name == LOCK || name == DATA || is_of_catalogue(&name);
        if !is_own {
            return Err(at(
                folder,
                format!("this folder is no database, and has files of something else: {name}"),
            ));
        }
    }
    match names_in(&folder.join(DATA))?.is_empty() {
        true => Ok(()),
        false => {
            Err(at(folder, format!("there are rows of a database and no catalogue: {}", catalogue::FILE)))
        }
    }
}

/// The names of what is in a folder; none where it is not there.
fn names_in(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(folder, error)),
    };
    let name = |entry: std::io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
    entries.map(name).collect::<std::io::Result<_>>().map_err(|error| at(folder, error))
}

/// The lock of a folder; an error names the process that has it.
fn locked(folder: &Path) -> Result<File> {
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(|error| at(&path, error))?;
    let mut tried = file.try_lock();
    for _ in 0..LOCK_TRIES {
        if !matches!(tried, Err(TryLockError::WouldBlock)) {
            break;
        }
        // A session that ends lets go of its queries elsewhere, and a child that is being started has what its parent had until it
        // runs.
        std::thread::sleep(LOCK_PAUSE);
        tried = file.try_lock();
    }
    match tried {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = holder.trim();
            let who = match holder.parse::<u32>() {
                Ok(process) if process == std::process::id() => "this process".to_string(),
                Ok(process) => format!("process {process}"),
                Err(_) => "another process".to_string(),
            };
            return Err(at(folder, format!("the database is open in {who}, and one has it at a time")));
        }
        Err(TryLockError::Error(error)) => return Err(at(&path, error)),
    }
    let noted =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| write!(file, "{}", std::process::id()));
    noted.map_err(|error| at(&path, error))?;
    Ok(file)
}

/// A table of a database, as what stands behind a name.
#[derive(Debug, Clone)]
pub(crate) struct KeptTable {
    pub database: Arc<Database>,
    pub name: String,
}

impl PartialEq for KeptTable {
    fn eq(&self, other: &KeptTable) -> bool {
        Arc::ptr_eq(&self.database, &other.database) && self.name == other.name
    }
}

impl Eq for KeptTable {}

impl Hash for KeptTable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
