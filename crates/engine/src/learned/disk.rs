//! Records with a file, by which later processes begin with what this one has learned.
//!
//! There is one file a folder and version: what depends on a device has the device in its fingerprint. It is an entry of a
//! [`DiskCache`]: a header with a checksum, and JSON. It is read when first asked for anything, and written as a whole, under another
//! name that becomes its own. So no process sees half of one, and a damaged or foreign file is as good as none and replaced by the next
//! write. A file of another version is another file.
//!
//! Nobody waits for a write: a thread writes some time after something was learned, with all that was learned meanwhile, and what is
//! left is written when the engine ends. Each write reads the file once more and keeps what other processes have put there; of two
//! that write at the same moment one may lose what it has learned, and nothing else.

use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kelpie_device::disk_cache::DiskCache;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::memory::{LIMIT, MemoryStore};
use super::{Fingerprint, Kind, Record, Store};

/// The form of the file and of fingerprints, and what numbers in records mean: another one is not read.
const VERSION: u32 = 5;

/// How long what was learned waits for more to be written with it.
const PAUSE: Duration = Duration::from_secs(1);

/// What is shared with the threads that write, of all stores of the process.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Writes what is due in any store: a process that ends does not wait for threads that have an engine still.
pub(super) fn write_all() {
    let open: Vec<Weak<Shared>> = OPEN.lock().clone();
    open.iter().filter_map(Weak::upgrade).for_each(|shared| shared.write());
}

/// Records in memory, and a file.
#[derive(Debug)]
pub(super) struct DiskStore {
    shared: Arc<Shared>,
    /// The last thread that was to write.
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread that writes has too.
#[derive(Debug)]
struct Shared {
    folder: DiskCache,
    memory: MemoryStore,
    was_read: OnceLock<()>,
    state: Mutex<State>,
    ends: Condvar,
    /// Held by who writes: the end of a process waits for it.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Something was learned that is not written yet.
    is_due: bool,
    /// The engine ends.
    is_ending: bool,
}

impl DiskStore {
    /// Records in a folder, which is made by the first write.
    pub fn new(folder: DiskCache) -> DiskStore {
        let (memory, was_read) = (MemoryStore::default(), OnceLock::new());
        let (state, ends) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { folder, memory, was_read, state, ends, writing: Mutex::default() });
        let mut open = OPEN.lock();
        open.retain(|known| known.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        DiskStore { shared, writer: Mutex::new(None) }
    }

    /// Lets a thread write some time from now, unless one is waiting to. Where there is no thread, the end of the engine writes.
    fn write_later(&self) {
        let mut writer = self.writer.lock();
        if std::mem::replace(&mut self.shared.state.lock().is_due, true) {
            return;
        }
        let (shared, before) = (Arc::clone(&self.shared), writer.take());
        let write = move || {
            // What is written later is never overtaken.
            let _ = before.map(JoinHandle::join);
            shared.wait();
            shared.write();
        };
        *writer = thread::Builder::new().name("kelpie-learned".into()).spawn(write).ok();
    }
}

impl Store for DiskStore {
    fn get(&self, kind: Kind, about: Fingerprint) -> Option<Record> {
        self.shared.read_once();
        self.shared.memory.get(kind, about)
    }

    fn put(&self, about: Fingerprint, record: Record) {
        self.shared.read_once();
        let is_lasting = record.kind().is_lasting();
        if self.shared.memory.keep(about, record) && is_lasting {
            self.write_later();
        }
    }

    fn is_empty(&self, kind: Kind) -> bool {
        self.shared.read_once();
        self.shared.memory.is_empty(kind)
    }

    fn all(&self, kind: Kind) -> Vec<(Fingerprint, Record)> {
        self.shared.read_once();
        self.shared.memory.all(kind)
    }
}

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.ends.notify_all();
        let _ = self.writer.lock().take().map(JoinHandle::join);
        self.shared.write();
    }
}

impl Shared {
    fn read_once(&self) {
        self.was_read.get_or_init(|| self.memory.tell(read(&self.folder)));
    }

    /// Waits for more that may be learned, or for the end of the engine.
    fn wait(&self) {
        let until = Instant::now() + PAUSE;
        let mut state = self.state.lock();
        while !state.is_ending && !self.ends.wait_until(&mut state, until).timed_out() {}
    }

    /// Writes what is due.
    fn write(&self) {
        let _writing = self.writing.lock();
        if !std::mem::take(&mut self.state.lock().is_due) {
            return;
        }
        let mut all = read(&self.folder);
        // What was asked for or learned here goes behind what only others have used.
        let own = self.memory.lasting().into_iter().filter(|own| own.was_used);
        let own: Vec<(Fingerprint, Record)> = own.map(|own| (own.about, own.record)).collect();
        all.retain(|(about, record)| {
            own.iter().all(|(other, own)| other != about || own.kind() != record.kind())
        });
        all.extend(own);
        let _ = write(&self.folder, &bounded(all));
    }
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    records: Vec<Kept>,
}

/// A record in the file; the one used last is the last.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    about: String,
    record: Record,
}

/// What the file is kept under.
pub(super) fn key() -> String {
    format!("learned, version {VERSION}")
}

/// What the file has; nothing where it cannot be used.
fn read(folder: &DiskCache) -> Vec<(Fingerprint, Record)> {
    let Some(text) = folder.read(&key()) else { return Vec::new() };
    let Ok(content) = serde_json::from_slice::<Content>(&text) else { return Vec::new() };
    let parsed = content.records.into_iter().map(|kept| Some((kept.about.parse().ok()?, kept.record)));
    bounded(parsed.collect::<Option<Vec<_>>>().unwrap_or_default())
}

/// Writes the file; whether that worked.
fn write(folder: &DiskCache, all: &[(Fingerprint, Record)]) -> bool {
    let kept = all.iter().map(|(about, record)| Kept { about: about.to_string(), record: record.clone() });
    let text = serde_json::to_vec(&Content { records: kept.collect() });
    text.is_ok_and(|text| folder.write(&key(), &text))
}

/// Of each kind no more than are allowed, those used last.
fn bounded(all: Vec<(Fingerprint, Record)>) -> Vec<(Fingerprint, Record)> {
    let mut left = [LIMIT; Kind::ALL.len()];
    let mut has_room = |(_, record): &(Fingerprint, Record)| {
        let left = &mut left[record.kind() as usize];
        let has_room = *left > 0;
        *left = left.saturating_sub(1);
        has_room
    };
    let mut last: Vec<_> = all.into_iter().rev().filter(|known| has_room(known)).collect();
    last.reverse();
    last
}
