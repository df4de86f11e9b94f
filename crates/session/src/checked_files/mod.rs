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
mod thrift;
mod unreadable;

use std::path::Path;

use datafusion::error::{DataFusionError, Result};

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

/// What the files say of themselves, as far as that can be. An error names the first Parquet file whose metadata cannot be right.
pub(crate) fn check_parquet<'a>(paths: impl Iterator<Item = &'a Path> + Clone) -> Result<CheckedParquet> {
    let sizes = paths.clone().map(|path| path.metadata().map_or(0, |file| file.len()));
    let bytes = sizes.fold(0, u64::saturating_add);
    let with_pages = bytes <= SMALL_BYTES;
    let mut seen = CheckedParquet { sound_bounds: bytes >= LARGE_BYTES, odd_columns: false };
    check_each(paths, |path| {
        let of_file = parquet::check(path, with_pages)?;
        seen.sound_bounds &= of_file.sound_bounds;
        seen.odd_columns |= of_file.odd_columns;
        Ok(())
    })?;
    Ok(seen)
}

/// An error names the first Arrow file whose metadata cannot be right.
pub(crate) fn check_arrow<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<()> {
    check_each(paths, arrow::check)
}

fn check_each<'a>(
    mut paths: impl Iterator<Item = &'a Path>,
    mut check: impl FnMut(&Path) -> Result<(), String>,
) -> Result<()> {
    let at = |path: &Path, what| DataFusionError::Execution(format!("{}: {what}", path.display()));
    paths.try_for_each(|path| check(path).map_err(|what| at(path, what)))
}
