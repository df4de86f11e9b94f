//! The tables of a plan that is kept, and whether they still are what they were when it was made.

use std::any::Any;
use std::collections::HashMap;
use std::ptr;
use std::sync::{Arc, Weak};

use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::{MemTable, TableType};
use datafusion::object_store::ObjectMeta;
use futures::TryStreamExt;
use kelpie_datafusion::clock::PlanClock;
use kelpie_datafusion::identify;

use crate::files::{DataFile, listed_now, looked_since};

/// A table, which may be dropped while its plan is kept, and its data when the plan was made.
#[derive(Debug, Clone)]
pub(super) struct KnownTable {
    provider: Weak<dyn TableProvider>,
    version: Version,
}

/// What a table's data is: as long as this is the same, so are statistics, files and rows.
#[derive(Debug, Clone, PartialEq)]
enum Version {
    /// A table that has no rows.
    Empty,
    /// The number of the batches in memory; none where there is no batch.
    Memory(Option<u64>),
    /// Local files.
    Files(Vec<DataFile>),
    /// What an object store lists.
    Listed(Vec<ObjectMeta>),
}

impl KnownTable {
    /// Each table of a plan as it is now; `None` where it is not known how to tell one of them from what it will be.
    pub async fn all(tables: &[Arc<dyn TableProvider>], session: &dyn Session) -> Option<Vec<KnownTable>> {
        let mut known: Vec<KnownTable> = Vec::with_capacity(tables.len());
        for provider in tables {
            let table = match known.iter().find(|table| table.is(provider)) {
                // A table that is scanned twice is looked at once.
                Some(table) => table.clone(),
                None => {
                    let since = PlanClock::since().unwrap_or(u64::MAX);
                    let version = match looked_since(provider.as_ref(), since) {
                        Some(files) => Version::Files(files.to_vec()),
                        None => Version::of(provider.as_ref(), Some(session)).await?,
                    };
                    KnownTable { provider: Arc::downgrade(provider), version }
                }
            };
            known.push(table);
        }
        Some(known)
    }

    /// Whether it is this table.
    pub fn is(&self, provider: &Arc<dyn TableProvider>) -> bool {
        ptr::addr_eq(self.provider.as_ptr(), Arc::as_ptr(provider))
    }

    /// Whether both are the same table with the same data.
    pub fn is_same(&self, other: &KnownTable) -> bool {
        ptr::addr_eq(self.provider.as_ptr(), other.provider.as_ptr()) && self.version == other.version
    }

    /// Whether it is there, with the same data. The session is needed for one that is listed.
    ///
    /// Files that were looked at since a moment are not looked at again.
    pub async fn is_unchanged(&self, session: Option<&dyn Session>, since: u64) -> bool {
        let Some(provider) = self.provider.upgrade() else { return false };
        match (looked_since(provider.as_ref(), since), &self.version) {
            (Some(now), Version::Files(files)) => now == files,
            _ => Version::of(provider.as_ref(), session).await.as_ref() == Some(&self.version),
        }
    }

    /// Whether an object store must be asked for it.
    pub fn is_listed(&self) -> bool {
        matches!(self.version, Version::Listed(_))
    }

    /// Whether a plan of it would keep data in memory that nobody else has any more.
    pub fn is_gone(&self, seen: &mut Seen) -> bool {
        let Some(provider) = self.provider.upgrade() else { return true };
        let Version::Memory(version) = self.version else { return false };
        let now = *seen.0.entry(Arc::as_ptr(&provider).cast::<()>().addr()).or_insert_with(|| {
            let any: &dyn Any = provider.as_ref();
            any.downcast_ref::<MemTable>().and_then(memory_version)
        });
        // While rows are being added nothing is known.
        now.is_some_and(|now| now != version)
    }
}

/// Data of tables in memory, each looked at once.
#[derive(Default)]
pub(super) struct Seen(HashMap<usize, Option<Option<u64>>>);

impl Version {
    async fn of(provider: &dyn TableProvider, session: Option<&dyn Session>) -> Option<Version> {
        let any: &dyn Any = provider;
        if let Some(files) = listed_now(provider) {
            return files.ok().map(Version::Files);
        }
        if let Some(table) = any.downcast_ref::<MemTable>() {
            return memory_version(table).map(Version::Memory);
        }
        if let Some(table) = any.downcast_ref::<ListingTable>() {
            return listed(table, session?).await.map(Version::Listed);
        }
        (any.is::<EmptyTable>() && provider.table_type() == TableType::Base).then_some(Version::Empty)
    }
}

/// The identity of a table's batches; `None` while it is written, or where it has rows without columns.
fn memory_version(table: &MemTable) -> Option<Option<u64>> {
    let partitions = table.batches.iter().map(|partition| partition.try_read().ok());
    let partitions = partitions.collect::<Option<Vec<_>>>()?;
    let batches = || partitions.iter().flat_map(|partition| partition.iter());
    match batches().next() {
        None => Some(None),
        Some(_) => Some(Some(identify(batches())?.number())),
    }
}

/// The files of a table as DataFusion would list them.
async fn listed(table: &ListingTable, session: &dyn Session) -> Option<Vec<ObjectMeta>> {
    let mut all = Vec::new();
    for path in table.table_paths() {
        let store = session.runtime_env().object_store(path).ok()?;
        let files =
            path.list_all_files(session, store.as_ref(), &table.options().file_extension).await.ok()?;
        let mut files: Vec<ObjectMeta> = files.try_collect().await.ok()?;
        files.sort_by(|a, b| a.location.cmp(&b.location));
        all.extend(files);
    }
    Some(all)
}
