//! What makes the batches of a table in memory the same data in a later query: the addresses of their arrays, which never
//! change. An address belongs to one array as long as a weak reference to it is held, and so an identity is never that of
//! other data. INSERT adds arrays, so that the table's data becomes other data.

use std::any::Any;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use kelpie_engine::source::Lease;
use parking_lot::Mutex;

/// Tables that are remembered.
const KNOWN_TABLES: usize = 128;

/// The identity of some batches. What is cached under it is dropped after it.
#[derive(Debug)]
pub struct MemoryIdentity(u64);

impl MemoryIdentity {
    /// Its number, which no other data gets.
    pub fn number(&self) -> u64 {
        self.0
    }

    /// As the engine takes it.
    pub(crate) fn text(&self) -> String {
        format!("memory {}", self.0)
    }

    /// Lives until the data is gone or forgotten.
    pub(crate) fn lease(self: &Arc<Self>) -> Lease {
        let whole: Arc<dyn Any + Send + Sync> = Arc::clone(self) as _;
        Arc::downgrade(&whole)
    }
}

struct Known {
    addresses: Vec<usize>,
    /// Keep the addresses from being used again.
    arrays: Vec<Weak<dyn Array>>,
    columns: usize,
    identity: Arc<MemoryIdentity>,
}

impl Known {
    /// Whether the table still is: its arrays go together.
    fn is_alive(&self) -> bool {
        let ends = [self.arrays.first(), self.arrays.last()];
        ends.into_iter().flatten().all(|array| array.strong_count() > 0)
    }
}

/// Most recently used last.
static KNOWN: LazyLock<Mutex<VecDeque<Known>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The identity of batches, in their order; `None` where they have no column.
pub fn identify<'a>(batches: impl Iterator<Item = &'a RecordBatch> + Clone) -> Option<Arc<MemoryIdentity>> {
    let columns = batches.clone().next()?.num_columns();
    let arrays = batches.flat_map(RecordBatch::columns);
    let addresses: Vec<usize> = arrays.clone().map(address).collect();
    if addresses.is_empty() {
        return None;
    }
    let mut known = KNOWN.lock();
    known.retain(Known::is_alive);
    let same = known.iter().position(|known| known.columns == columns && known.addresses == addresses);
    if let Some(entry) = same.and_then(|place| known.remove(place)) {
        let identity = Arc::clone(&entry.identity);
        known.push_back(entry);
        return Some(identity);
    }
    // What the table was before rows were added to it is not asked for again.
    let present: HashSet<usize> = addresses.iter().copied().collect();
    known.retain(|known| {
        known.columns != columns || !known.addresses.iter().all(|address| present.contains(address))
    });
    if known.len() >= KNOWN_TABLES {
        known.pop_front();
    }
    let identity = Arc::new(MemoryIdentity(NEXT.fetch_add(1, Ordering::Relaxed)));
    let arrays = arrays.map(Arc::downgrade).collect();
    known.push_back(Known { addresses, arrays, columns, identity: Arc::clone(&identity) });
    Some(identity)
}

/// Forgets the tables that are gone, so that the engine drops their columns.
pub(crate) fn forget_dropped() {
    KNOWN.lock().retain(Known::is_alive);
}

fn address(array: &ArrayRef) -> usize {
    Arc::as_ptr(array).cast::<()>().addr()
}
