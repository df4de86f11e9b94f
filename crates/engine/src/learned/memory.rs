//! Records in memory: a bounded number of each kind, those used last.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::{Fingerprint, Kind, Record, Store};

/// Records of a kind at most. A program has a record of each kind, and of programs no more than a few dozen stay compiled.
pub(super) const LIMIT: usize = 1024;
/// The share of them that is dropped together, so that dropping is rare: one in so many.
const DROPPED: usize = 4;

/// Records that end with the process.
#[derive(Debug, Default)]
pub(super) struct MemoryStore(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    /// By kind.
    known: [HashMap<Fingerprint, Entry>; Kind::ALL.len()],
    /// Uses so far.
    uses: u64,
    /// How many of them only told what a file has.
    told: u64,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    /// The number of its last use.
    used: u64,
}

/// A record that outlives its process.
#[derive(Debug, PartialEq)]
pub(super) struct Lasting {
    pub about: Fingerprint,
    pub record: Record,
    /// Whether anyone has asked for it or put it here, and not only a file told it.
    pub was_used: bool,
}

impl MemoryStore {
    /// Puts a record; whether it is another one than there was.
    pub fn keep(&self, about: Fingerprint, record: Record) -> bool {
        let mut records = self.0.lock();
        records.uses += 1;
        let used = records.uses;
        let known = records.known_mut(record.kind());
        let is_new = known.get(&about).is_none_or(|entry| entry.record != record);
        known.insert(about, Entry { record, used });
        if known.len() > LIMIT {
            drop_oldest(known);
        }
        is_new
    }

    /// Takes what a file tells, the record used last at the end, where nobody has learned otherwise yet.
    pub fn tell(&self, all: Vec<(Fingerprint, Record)>) {
        let mut records = self.0.lock();
        for (about, record) in all {
            records.uses += 1;
            let used = records.uses;
            records.known_mut(record.kind()).entry(about).or_insert(Entry { record, used });
        }
        records.told = records.uses;
    }

    /// The records that outlive the process, the one used last at the end.
    pub fn lasting(&self) -> Vec<Lasting> {
        let records = self.0.lock();
        let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_lasting());
        let mut all: Vec<_> = kinds.flat_map(|kind| &records.known[kind as usize]).collect();
        all.sort_unstable_by_key(|(_, entry)| entry.used);
        let lasting = |(about, entry): (&Fingerprint, &Entry)| Lasting {
            about: *about,
            record: entry.record.clone(),
            was_used: entry.used > records.told,
        };
        all.into_iter().map(lasting).collect()
    }
}

impl Store for MemoryStore {
    fn get(&self, kind: Kind, about: Fingerprint) -> Option<Record> {
        let mut records = self.0.lock();
        records.uses += 1;
        let used = records.uses;
        let entry = records.known_mut(kind).get_mut(&about)?;
        entry.used = used;
        Some(entry.record.clone())
    }

    fn put(&self, about: Fingerprint, record: Record) {
        self.keep(about, record);
    }

    fn is_empty(&self, kind: Kind) -> bool {
        self.0.lock().known_mut(kind).is_empty()
    }

    fn all(&self, kind: Kind) -> Vec<(Fingerprint, Record)> {
        let mut records = self.0.lock();
        let all = records.known_mut(kind).iter();
        all.map(|(about, entry)| (*about, entry.record.clone())).collect()
    }
}

impl Records {
    fn known_mut(&mut self, kind: Kind) -> &mut HashMap<Fingerprint, Entry> {
        &mut self.known[kind as usize]
    }
}

/// Drops those that were used longest ago.
fn drop_oldest(known: &mut HashMap<Fingerprint, Entry>) {
    let mut uses: Vec<u64> = known.values().map(|entry| entry.used).collect();
    let dropped = uses.len() / DROPPED;
    let (_, first_kept, _) = uses.select_nth_unstable(dropped);
    let first_kept = *first_kept;
    known.retain(|_, entry| entry.used >= first_kept);
}
