//! The tables of a session: those of files, which follow what becomes of the files, and all others.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::TableType;
use parking_lot::{Mutex, RwLock};

use super::error::{at, plain};
use super::source::Source;
use super::{LocalEntry, SessionSlot, TableFuture};
use crate::database::{Database, KeptTable};

/// A schema whose tables of files are looked at whenever a query names them. A name that no table has stands for the only one
/// that differs from it in case.
#[derive(Debug)]
pub(crate) struct LocalTables {
    pub session: SessionSlot,
    files: RwLock<BTreeMap<String, Arc<Named>>>,
    /// Whose tables it has too, and at which of its changes they were looked at.
    database: OnceLock<Arc<Database>>,
    seen: AtomicU64,
    others: Arc<dyn SchemaProvider>,
    /// What somebody may not expect of how files were taken, and was not told yet.
    notes: Mutex<Vec<String>>,
}

/// Notes that are kept for whoever tells them; further ones are left out, since nobody may.
const MOST_NOTES: usize = 20;

/// What becomes of a table that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It is not added.
    Refused,
    /// It is there all the same: a query that names it gets the error, and may find it mended. No file is looked at before, as most
    /// queries name few of the tables that a folder has.
    Kept,
}

type TypeFuture<'a> = Pin<Box<dyn Future<Output = Result<Option<TableType>>> + Send + 'a>>;

/// What a name stands for.
#[derive(Debug)]
struct Named {
    what: What,
    /// Whether it could be read the last time, or was not read yet.
    usable: AtomicBool,
    /// Whether it was looked at.
    is_known: AtomicBool,
}

#[derive(Debug)]
enum What {
    Files(LocalEntry),
    /// Nothing, for this reason.
    Problem(String),
}

impl Named {
    fn new(what: What, usable: bool) -> Named {
        let is_known = AtomicBool::new(!matches!(what, What::Files(_)));
        Named { what, usable: AtomicBool::new(usable), is_known }
    }

    /// Whether it is a table of a database.
    fn is_kept(&self) -> bool {
        matches!(&self.what, What::Files(entry) if matches!(entry.source, Source::Kept(_)))
    }
}

impl LocalTables {
    /// A schema with the tables of another one, and no files yet.
    pub fn over(others: Arc<dyn SchemaProvider>) -> LocalTables {
        LocalTables {
            session: SessionSlot::default(),
            files: RwLock::default(),
            database: OnceLock::new(),
            seen: AtomicU64::new(0),
            others,
            notes: Mutex::default(),
        }
    }

    /// Keeps what somebody may not expect of how a file was taken.
    pub fn note(&self, note: &str) {
        let mut notes = self.notes.lock();
        if notes.len() < MOST_NOTES && !notes.iter().any(|known| known == note) {
            notes.push(note.to_string());
        }
    }

    /// What was kept since they were taken last.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.notes.lock())
    }

    /// From now on it has the tables of a database too, as they are whenever they are asked for.
    pub fn take_from(&self, database: &Arc<Database>) {
        // Set once: a session is in one database.
        let _ = self.database.set(Arc::clone(database));
        self.follow();
    }

    /// Sees which tables the database has now. Names that other tables have stay theirs.
    fn follow(&self) {
        let Some(database) = self.database.get() else { return };
        let changes = database.changes();
        if self.seen.load(Ordering::Acquire) == changes {
            return;
        }
        let names = database.tables();
        let mut files = self.files.write();
        files.retain(|name, named| !named.is_kept() || names.contains(name));
        for name in names {
            if !files.contains_key(&name) && !self.others.table_exist(&name) {
                let table = KeptTable { database: Arc::clone(database), name: name.clone() };
                let what = What::Files(LocalEntry::new(Source::Kept(table), Arc::default()));
                files.insert(name, Arc::new(Named::new(what, true)));
            }
        }
        drop(files);
        self.seen.store(changes, Ordering::Release);
    }

    /// Adds the table of a path.
    pub async fn add(&self, name: &str, path: &Path, broken: Broken) -> Result<()> {
        let what = match (Source::of(path), broken) {
            (Ok(source), _) => What::Files(LocalEntry::new(source, Arc::default())),
            (Err(error), Broken::Refused) => return Err(error),
            (Err(error), Broken::Kept) => What::Problem(plain(&error)),
        };
        let waits = broken == Broken::Kept && matches!(&what, What::Files(_));
        let named = Arc::new(Named::new(what, waits));
        self.insert(name, Arc::clone(&named)).map_err(|error| at(path, plain(&error)))?;
        if waits {
            return Ok(());
        }
        let looked = self.look(&named).await;
        if looked.is_err() && broken == Broken::Refused {
            self.files.write().remove(name);
        }
        looked.map(|_| ())
    }

    /// Adds a name that stands for nothing.
    pub fn add_problem(&self, name: &str, problem: &str) -> Result<()> {
        let what = What::Problem(problem.to_string());
        self.insert(name, Arc::new(Named::new(what, false)))
    }

    /// Looks at all tables that nobody has asked for yet: what lists columns has them all, and leaves out those that cannot be read.
    /// Gives why these cannot.
    pub async fn look_at_all(&self) -> Vec<String> {
        self.look_at(|named| !named.is_known.load(Ordering::Relaxed)).await
    }

    /// Looks at the tables whose files say themselves which columns they have, where nobody has asked for them yet. Gives why some cannot
    /// be read.
    pub async fn look_at_described(&self) -> Vec<String> {
        let is_described = |named: &Named| matches!(&named.what, What::Files(entry) if !entry.takes_long());
        self.look_at(|named| !named.is_known.load(Ordering::Relaxed) && is_described(named)).await
    }

    async fn look_at(&self, is_wanted: impl Fn(&Named) -> bool) -> Vec<String> {
        let wanted: Vec<_> = self.files.read().values().filter(|named| is_wanted(named)).cloned().collect();
        let mut problems = Vec::new();
        for named in wanted {
            problems.extend(self.look(&named).await.err().map(|error| plain(&error)));
        }
        problems
    }

    fn insert(&self, name: &str, named: Arc<Named>) -> Result<()> {
        let mut files = self.files.write();
        if files.contains_key(name) || self.others.table_exist(name) {
            return plan_err!("a table named {name} exists already");
        }
        files.insert(name.to_string(), named);
        Ok(())
    }

    async fn look(&self, named: &Named) -> Result<Arc<dyn TableProvider>> {
        match &named.what {
            What::Problem(problem) => exec_err!("{problem}"),
            What::Files(entry) => {
                let table = entry.table(&self.session).await;
                named.is_known.store(true, Ordering::Relaxed);
                named.usable.store(table.is_ok(), Ordering::Relaxed);
                table
            }
        }
    }

    /// The name that is meant: this one, or the only one that differs in case.
    fn meant(&self, name: &str) -> Result<Option<String>> {
        self.follow();
        let files = self.files.read();
        if files.contains_key(name) || self.others.table_exist(name) {
            return Ok(Some(name.to_string()));
        }
        let lower = name.to_lowercase();
        let all = files.keys().cloned().chain(self.others.table_names());
        let mut like: Vec<String> = all.filter(|known| known.to_lowercase() == lower).collect();
        like.sort();
        match like.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            several => {
                let quoted: Vec<String> = several.iter().map(|name| format!("\"{name}\"")).collect();
                plan_err!("{name} may be {}: write the quotes too", quoted.join(" or "))
            }
        }
    }

    /// What [`SchemaProvider::table`] gives.
    fn find<'a>(&'a self, name: &'a str) -> TableFuture<'a> {
        Box::pin(async move {
            let Some(name) = self.meant(name)? else { return Ok(None) };
            let named = self.files.read().get(&name).cloned();
            match named {
                Some(named) => self.look(&named).await.map(Some),
                None => self.others.table(&name).await,
            }
        })
    }

    /// What [`SchemaProvider::table_type`] gives.
    fn find_type<'a>(&'a self, name: &'a str) -> TypeFuture<'a> {
        Box::pin(async move {
            let of_files = self.files.read().contains_key(name);
            match of_files {
                true => Ok(Some(TableType::Base)),
                false => self.others.table_type(name).await,
            }
        })
    }
}

impl SchemaProvider for LocalTables {
    fn owner_name(&self) -> Option<&str> {
        self.others.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        self.follow();
        let files = self.files.read();
        let usable = files.iter().filter(|(_, named)| named.usable.load(Ordering::Relaxed));
        usable.map(|(name, _)| name.clone()).chain(self.others.table_names()).collect()
    }

    // `async_trait` writes this method and the next so, with bodies that would be proven to be `Send` here (`LocalFiles::found`).
    fn table<'a, 'b, 'c>(&'a self, name: &'b str) -> TableFuture<'c>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.find(name)
    }

    fn table_type<'a, 'b, 'c>(&'a self, name: &'b str) -> TypeFuture<'c>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.find_type(name)
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        if self.files.read().contains_key(&name) {
            return plan_err!("a table named {name} exists already");
        }
        self.others.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some(name) = self.meant(name)? else { return Ok(None) };
        match self.files.write().remove(&name) {
            // What was removed is only asked whether it was there.
            Some(_) => Ok(Some(Arc::new(datafusion::datasource::empty::EmptyTable::new(Arc::new(
                datafusion::arrow::datatypes::Schema::empty(),
            ))))),
            None => self.others.deregister_table(&name),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        matches!(self.meant(name), Ok(Some(_)))
    }
}
