//! What earlier runs have taught an engine: one owner of all of it, in one [`Store`].
//!
//! A record has a [`Kind`] and is found by a [`Fingerprint`] of what it is about. There are two stores. [`MemoryStore`] ends with its
//! engine. [`DiskStore`] is the same with a file, by which a process begins with what others have learned; engines have it that use
//! what was measured of devices and kept ([`Engine::calibrated`](crate::query::Engine::calibrated)), others begin with nothing.
//!
//! | kind | what it is | by | what a wrong one costs | on disk |
//! |---|---|---|---|---|
//! | [`Duplicates`](Kind::Duplicates) | joins whose build side has a key twice | a plan without constants, and what is known of its columns | a join that is named though its keys are unique takes the index for keys that are not; one that is not named breaks its promise, and the stage runs again | yes |
//! | [`Capacities`](Kind::Capacities) | sizes of tables and stores that fit | a program without constants, and the device's memory | too small a table grows and the launch runs again; too large a one takes memory, and what could not be a size of its class, or has more bytes than the device, is not taken | yes |
//! | [`MemoryFallback`](Kind::MemoryFallback) | what a stage took where memory was short | a plan without constants, the device and its memory | a stage that would fit by now streams all the same, and nothing ever tells: no retry ends it, so it ends with the engine | no |
//! | [`Rates`](Kind::Rates) | what a device's memory and link can do | the device's name | numbers for people; other load on the machine makes them others | no |
//! | [`Tuned`](Kind::Tuned) | what was measured of a stage's variants, and what it runs by | a program without constants, and the device's memory | a variant that is slower than the rules' choice, until runs side by side tell | yes |
//! | [`Data`](Kind::Data) | what a stage runs over | the stage | nothing learned, but a fingerprint that takes a walk of the plan to find | no |
//!
//! What is known of columns, their number of rows, ranges and distances among it, is part of the first two's fingerprints, so that other
//! data are other work. Data that change and keep all of that meet a record of what they were: it costs what stands above, and no answer.
//!
//! Nothing here waits for a disk but the first question, which reads the file. All of it is bounded: of each kind the records used last.

mod disk;
mod fingerprint;
mod memory;

use std::collections::BTreeSet;
use std::fmt;

use kelpie_device::disk_cache::DiskCache;
use serde::{Deserialize, Serialize};

use self::disk::DiskStore;
pub(crate) use self::fingerprint::Fingerprint;
use self::memory::MemoryStore;
use crate::bandwidth::Rates;
use crate::memory_fallback::MemoryFallback;
use crate::tuning::TunedStage;

/// What a record tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The joins of a stage whose build side has a key twice.
    Duplicates,
    /// The capacities of a program's classes of states that fit.
    Capacities,
    /// What a stage that memory was too small for took in the end.
    MemoryFallback,
    /// What was measured of a device for metered queries.
    Rates,
    /// What a stage runs over.
    Data,
    /// What was measured of the variants of a stage.
    Tuned,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Duplicates, Kind::Capacities, Kind::MemoryFallback, Kind::Rates, Kind::Data, Kind::Tuned];

    /// Whether records of the kind may outlive their engine.
    fn is_lasting(self) -> bool {
        matches!(self, Kind::Duplicates | Kind::Capacities | Kind::Tuned)
    }
}

/// Something that was learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Record {
    /// [`Kind::Duplicates`]: the numbers by which the compiler asks for them.
    Duplicates(BTreeSet<usize>),
    /// [`Kind::Capacities`], in the order of the classes.
    Capacities(Vec<u64>),
    /// [`Kind::MemoryFallback`].
    #[serde(skip)]
    MemoryFallback(MemoryFallback),
    /// [`Kind::Rates`].
    #[serde(skip)]
    Rates(Rates),
    /// [`Kind::Data`].
    #[serde(skip)]
    Data(Fingerprint),
    /// [`Kind::Tuned`].
    Tuned(Box<TunedStage>),
}

impl Record {
    fn kind(&self) -> Kind {
        match self {
            Record::Duplicates(_) => Kind::Duplicates,
            Record::Capacities(_) => Kind::Capacities,
            Record::MemoryFallback(_) => Kind::MemoryFallback,
            Record::Rates(_) => Kind::Rates,
            Record::Data(_) => Kind::Data,
            Record::Tuned(_) => Kind::Tuned,
        }
    }
}

/// Where records are. Threads may ask and put at the same time.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// The record of a kind about something.
    fn get(&self, kind: Kind, about: Fingerprint) -> Option<Record>;

    /// Puts a record in the place of the one of its kind that there may be.
    fn put(&self, about: Fingerprint, record: Record);

    /// Whether there is no record of a kind.
    fn is_empty(&self, kind: Kind) -> bool;

    /// All records of a kind.
    fn all(&self, kind: Kind) -> Vec<(Fingerprint, Record)>;
}

/// What an engine has learned, and how it asks for it.
#[derive(Debug)]
pub(crate) struct Learned(Box<dyn Store>);

impl Default for Learned {
    fn default() -> Learned {
        Learned(Box::new(MemoryStore::default()))
    }
}

impl Learned {
    /// Begins with what is in a folder, and keeps there what outlives an engine.
    pub fn on_disk(folder: DiskCache) -> Learned {
        Learned(Box::new(DiskStore::new(folder)))
    }

    /// Writes what engines of this process have learned and that is not on disk yet.
    pub fn write_all() {
        disk::write_all();
    }

    /// The joins of a stage over such data whose build side has a key twice, as far as they are known.
    pub fn duplicates(&self, data: Fingerprint) -> BTreeSet<usize> {
        match self.0.get(Kind::Duplicates, data) {
            Some(Record::Duplicates(joins)) => joins,
            _ => BTreeSet::new(),
        }
    }

    /// Adds joins to those.
    pub fn add_duplicates(&self, data: Fingerprint, joins: &BTreeSet<usize>) {
        let all = joins.union(&self.duplicates(data)).copied().collect();
        self.0.put(data, Record::Duplicates(all));
    }

    /// The capacities that fit programs like this one.
    pub fn capacities(&self, program: Fingerprint) -> Option<Vec<u64>> {
        match self.0.get(Kind::Capacities, program) {
            Some(Record::Capacities(capacities)) => Some(capacities),
            _ => None,
        }
    }

    /// Keeps those.
    pub fn keep_capacities(&self, program: Fingerprint, capacities: Vec<u64>) {
        self.0.put(program, Record::Capacities(capacities));
    }

    /// What a stage took for want of memory. Mostly nothing is known, and no plan is to be hashed for that.
    pub fn memory_fallback(&self, stage: impl FnOnce() -> Fingerprint) -> Option<MemoryFallback> {
        if self.0.is_empty(Kind::MemoryFallback) {
            return None;
        }
        match self.0.get(Kind::MemoryFallback, stage()) {
            Some(Record::MemoryFallback(memory_fallback)) => Some(memory_fallback),
            _ => None,
        }
    }

    /// Keeps that.
    pub fn keep_memory_fallback(&self, stage: Fingerprint, memory_fallback: MemoryFallback) {
        self.0.put(stage, Record::MemoryFallback(memory_fallback));
    }

    /// What a device's memory and link can do, if it was measured.
    pub fn rates(&self, device: &str) -> Option<Rates> {
        match self.0.get(Kind::Rates, Fingerprint::of(&device)) {
            Some(Record::Rates(rates)) => Some(rates),
            _ => None,
        }
    }

    /// Keeps that.
    pub fn keep_rates(&self, device: &str, rates: Rates) {
        self.0.put(Fingerprint::of(&device), Record::Rates(rates));
    }

    /// What was measured of the variants of a stage.
    pub fn tuned(&self, program: Fingerprint) -> Option<TunedStage> {
        match self.0.get(Kind::Tuned, program) {
            Some(Record::Tuned(stage)) => Some(*stage),
            _ => None,
        }
    }

    /// Keeps that.
    pub fn keep_tuned(&self, program: Fingerprint, stage: TunedStage) {
        self.0.put(program, Record::Tuned(Box::new(stage)));
    }

    /// All of that.
    pub fn all_tuned(&self) -> Vec<(Fingerprint, TunedStage)> {
        let all = self.0.all(Kind::Tuned).into_iter();
        let tuned = all.filter_map(|(key, record)| match record {
            Record::Tuned(stage) => Some((key, *stage)),
            _ => None,
        });
        tuned.collect()
    }

    /// What a stage runs over, which `find` finds where it is not known.
    pub fn data(&self, stage: Fingerprint, find: impl FnOnce() -> Fingerprint) -> Fingerprint {
        if let Some(Record::Data(data)) = self.0.get(Kind::Data, stage) {
            return data;
        }
        let data = find();
        self.0.put(stage, Record::Data(data));
        data
    }
}

#[cfg(test)]
mod tests;
