//! A device's own constants: measured by `kelpie devices --calibrate`, kept on disk, and used by the compiler's rules.
//!
//! Karnagel et al. (2015, sections 4 and 5) derive rules for tables of groups from a device's caches and its reach of address translation.
//! What a device has is measured here, by kernels that read, and add to, random places of working sets of growing size (`measure`); the
//! sizes from which on rates fall are those of caches (`curve`). It is kept in a file a device (`file`), and what of it rules look at
//! is a [`Calibration`]. An engine reads a file once a device, when that is first used.

mod curve;
mod file;
mod measure;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelpie_compile::calibration::{AtomicRates, Calibration};
use kelpie_device::disk_cache::DiskCache;
use kelpie_device::{Attributes, Device, DeviceKind};
use parking_lot::Mutex;

pub(crate) use self::measure::measure;
use crate::error::EngineError;
use crate::learned::Learned;
use crate::query::Engine;

/// The folder of the files, beside that of compiled kernels.
const FOLDER: &str = "calibration";
/// That of what was learned.
const LEARNED: &str = "learned";
/// The folder of compiled kernels in it.
const KERNELS: &str = "cubin";

/// Accesses to random places of a working set.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Point {
    /// Bytes of the set: of a GPU its sectors, of a CPU its cache lines, each of which is accessed alike often.
    pub bytes: u64,
    /// Accesses a second, of all threads together.
    pub per_second: f64,
}

/// What was measured of a device.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Reading the device's memory from one end to the other, in bytes a nanosecond (GB a second).
    pub memory: f64,
    /// The same from pinned host memory to the device; where the device's memory is the host's, `memory`.
    pub link: f64,
    /// Reads of 4 bytes.
    pub reads: Vec<Point>,
    /// The same, each in a page of its own: `bytes` are those of the cache lines, a set of as many as in `reads`.
    pub page_reads: Vec<Point>,
    /// Additions to 8 bytes by atomics. The first points are of one address, and of few.
    pub atomics: Vec<Point>,
    /// Bytes of the cache that a CPU's core, or a GPU's multiprocessor, has for itself; `None` where the reads do not show it.
    pub core_cache: Option<u64>,
    /// Bytes of the last cache before memory, as far as one table can use it; likewise.
    pub last_cache: Option<u64>,
    /// Bytes whose pages the device translates without a search; `None` where it is more than was measured.
    pub tlb_reach: Option<u64>,
    /// Time that the measurement took, in milliseconds.
    pub took_ms: u64,
}

impl Measured {
    /// What rules look at.
    pub fn constants(&self) -> Calibration {
        Calibration {
            core_cache: self.core_cache,
            last_cache: self.last_cache,
            tlb_reach: self.tlb_reach,
            atomics: self.last_cache.and_then(|cache| atomic_rates(&self.atomics, cache)),
        }
    }

    /// Derives the sizes of caches from the points.
    fn derive(&mut self, kind: DeviceKind, told: Attributes) {
        let edges = curve::edges(&self.reads);
        let is_core = |edge: &u64| curve::core_sizes(kind).contains(edge);
        self.core_cache = edges.iter().copied().find(is_core);
        let beyond = |edge: &u64| *edge > self.core_cache.unwrap_or(*curve::core_sizes(kind).end());
        let last =
            edges.iter().copied().rfind(beyond).or_else(|| curve::before_memory(&self.reads).filter(beyond));
        // A cache of several parts has copies in each of them: what is measured may be less than there is, and never more.
        self.last_cache = match (last, told.last_cache) {
            (Some(last), Some(told)) => Some(last.min(told)),
            (last, told) => last.or(told),
        };
        self.tlb_reach = curve::tlb_reach(&self.reads, &self.page_reads);
    }
}

/// The rates of additions within the last cache, and far beyond it.
fn atomic_rates(points: &[Point], cache: u64) -> Option<AtomicRates> {
    let (few, many) = (measure::FEW_ADDRESSES * measure::LINE_BYTES, cache.saturating_mul(4));
    let cached = points.iter().rfind(|point| (few + 1..=cache / 2).contains(&point.bytes))?;
    let beyond = points.iter().rfind(|point| point.bytes >= many)?;
    Some(AtomicRates { cached: cached.per_second as u64, beyond: beyond.per_second as u64 })
}

/// What an engine knows of a device.
#[derive(Debug, Clone, Default)]
pub enum Calibrated {
    /// Nothing: rules assume what they were written with.
    #[default]
    Assumed,
    /// There is a file which is not used, and this is why.
    Ignored(String),
    /// It was measured.
    Measured(Arc<Measured>),
}

impl Calibrated {
    /// What rules look at.
    pub fn constants(&self) -> Calibration {
        match self {
            Calibrated::Measured(measured) => measured.constants(),
            Calibrated::Assumed | Calibrated::Ignored(_) => Calibration::default(),
        }
    }
}

/// What is known of devices, and where it is kept.
#[derive(Debug, Default)]
pub(crate) struct Calibrations {
    /// `None`: nowhere.
    folder: Option<PathBuf>,
    /// By the device's name, under which it has one identity in this process.
    known: Mutex<HashMap<String, Calibrated>>,
}

impl Calibrations {
    /// In the user's cache folder.
    fn of_user() -> Calibrations {
        let folder = DiskCache::of_user(FOLDER).folder().map(Path::to_path_buf);
        Calibrations { folder, ..Calibrations::default() }
    }

    /// What is known of a device.
    fn of(&self, device: &Arc<dyn Device>) -> Calibrated {
        let mut known = self.known.lock();
        if known.is_empty() && self.folder.is_none() {
            return Calibrated::Assumed;
        }
        let read = || match &self.folder {
            Some(folder) => match DiskCache::at(folder).problem() {
                Some(problem) => Calibrated::Ignored(problem),
                None => file::read(folder, &device.identity()),
            },
            None => Calibrated::Assumed,
        };
        known.entry(device.name()).or_insert_with(read).clone()
    }

    /// Keeps what was measured of a device, here and in its file; which that is, or why there is none.
    fn keep(&self, device: &Arc<dyn Device>, measured: Measured) -> (Arc<Measured>, Result<PathBuf, String>) {
        let kept = match &self.folder {
            Some(folder) => match DiskCache::at(folder).problem() {
                Some(problem) => Err(problem),
                None => file::write(folder, &device.identity(), &measured),
            },
            None => Err("there is no folder for caches".into()),
        };
        let measured = Arc::new(measured);
        self.known.lock().insert(device.name(), Calibrated::Measured(Arc::clone(&measured)));
        (measured, kept)
    }
}

impl Engine {
    /// An engine whose rules use what [`Engine::calibrate`] has measured of devices and kept in the user's cache folder, in this
    /// process or before: `kelpie devices --calibrate`. It begins too with what such engines have learned of queries, and keeps there
    /// what it learns. Other engines decide everywhere alike.
    pub fn calibrated() -> Engine {
        Engine::with(Calibrations::of_user(), Learned::on_disk(DiskCache::of_user(LEARNED)))
    }

    /// As [`Engine::calibrated`], from another folder.
    pub fn calibrated_from(folder: &Path) -> Engine {
        let calibrations = Calibrations { folder: Some(folder.to_path_buf()), ..Calibrations::default() };
        Engine::with(calibrations, Learned::on_disk(DiskCache::at(folder)))
    }

    /// Why the user's cache folder is not used, by engines of [`Engine::calibrated`] and by devices, if it is not: others may write it.
    pub fn cache_problem() -> Option<String> {
        [FOLDER, LEARNED, KERNELS].into_iter().find_map(|kind| DiskCache::of_user(kind).problem())
    }

    /// Writes what engines of this process have learned and not written yet. An engine does so when it is dropped; a process that ends
    /// while threads still have one asks for it here.
    pub fn write_learned() {
        Learned::write_all();
    }

    /// The user's compiled kernels of GPUs.
    pub fn kernel_cache() -> DiskCache {
        DiskCache::of_user(KERNELS)
    }

    /// What was measured of a device, if it was. A file is read when it is first asked for.
    pub fn calibration(&self, device: &Arc<dyn Device>) -> Calibrated {
        self.calibrations.of(device)
    }

    /// Measures a device's caches, memory and atomics, keeps them for later processes where this engine has a folder for that, and uses
    /// them from now on. Takes some seconds. What was measured, and in which file it is kept, or why in none.
    pub fn calibrate(
        &self,
        device: &Arc<dyn Device>,
    ) -> Result<(Arc<Measured>, Result<PathBuf, String>), EngineError> {
        let measured = measure(device)?;
        Ok(self.calibrations.keep(device, measured))
    }

    /// What rules may take as known of a device.
    pub(crate) fn constants(&self, device: &Arc<dyn Device>) -> Calibration {
        self.calibration(device).constants()
    }
}

#[cfg(test)]
mod tests;
