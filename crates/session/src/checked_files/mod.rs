//! Files that lie: what a file says of places, sizes and counts is held against the file before a reader believes it.
//!
//! Readers allocate by what a file says, and an allocation that no memory has ends the process. So the metadata of a file is gone
//! through before it becomes a table. What is wrong beneath that, a reader finds, or panics over: then the files of the query are read
//! column by column to find which one it is ([`find_unreadable`]).

mod arrow;
mod arrow_schema;
mod bounds;
mod external;
mod footer;
mod guard;
mod pages;
mod parquet;
mod reading;
mod unreadable;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use datafusion::error::{DataFusionError, Result};
use parking_lot::Mutex;

pub(crate) use external::check_external;
pub(crate) use guard::{caught, is_panic};
pub(crate) use reading::with_checked_pages;
pub(crate) use unreadable::{find as find_unreadable, of_arrow as unreadable_of_arrow};

/// Of smaller tables the headers of all pages are looked at: these are read by DataFusion's operators, which do not count rows. Of
/// others the sizes that headers say are looked at as the columns are read.
const SMALL_BYTES: u64 = 16 << 20;

/// Of smaller tables nothing is gained by leaving row groups out.
const LARGE_BYTES: u64 = 4 << 20;

/// What was seen of the metadata of Parquet files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckedParquet {
    /// Whether the files are worth asking which row groups a filter needs, and their bounds can be believed.
    pub sound_bounds: bool,
    /// Whether columns are among them that readers do not take as they are meant: several of one name, UUIDs, intervals, enumerations.
    pub odd_columns: bool,
}

/// Files that a thread looks at, at least: to start one takes as long as to look at a few.
const FILES_OF_THREAD: usize = 4;

/// What the files say of themselves, as far as that can be. An error names the first Parquet file whose metadata cannot be right.
pub(crate) fn check_parquet<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<CheckedParquet> {
    let paths: Vec<&Path> = paths.collect();
    let sizes = paths.iter().map(|path| path.metadata().map_or(0, |file| file.len()));
    let bytes = sizes.fold(0, u64::saturating_add);
    let with_pages = bytes <= SMALL_BYTES;
    let checked = check_each(&paths, |path| parquet::check(path, with_pages))?;
    Ok(CheckedParquet {
        sound_bounds: bytes >= LARGE_BYTES && checked.iter().all(|file| file.sound_bounds),
        odd_columns: checked.iter().any(|file| file.odd_columns),
    })
}

/// An error names the first Arrow file whose metadata cannot be right.
pub(crate) fn check_arrow<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    check_each(&paths.collect::<Vec<_>>(), arrow::check).map(drop)
}

/// What is seen of each file, many of which are looked at side by side; an error names the first that has one.
fn check_each<T: Send>(paths: &[&Path], check: impl Fn(&Path) -> Result<T, String> + Sync) -> Result<Vec<T>> {
    let (next, seen) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(paths.len())));
    let look = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(number) else { return };
            let what = check(path);
            seen.lock().push((number, what));
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..cores.min(paths.len().div_ceil(FILES_OF_THREAD)) {
            // Fewer threads look as well.
            let _ = thread::Builder::new().spawn_scoped(scope, look);
        }
        look();
    });
    let mut seen = seen.into_inner();
    seen.sort_by_key(|(number, _)| *number);
    let at = |path: &Path, what| DataFusionError::Execution(format!("{}: {what}", path.display()));
    paths.iter().zip(seen).map(|(path, (_, what))| what.map_err(|what| at(path, what))).collect()
}
