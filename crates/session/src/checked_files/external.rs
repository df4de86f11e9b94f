//! The files of tables that statements create.

use std::fs;
use std::path::{Path, PathBuf};

use datafusion::error::Result;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};

use super::{check_arrow, check_parquet};

/// Folders are gone through so many levels deep.
const MOST_LEVELS: usize = 32;

/// An error names the first file that CREATE EXTERNAL TABLE names, or has in its folder, and whose metadata cannot be right. Patterns
/// and addresses that are not local are left to the reader.
pub(crate) fn check_external(plan: &LogicalPlan) -> Result<()> {
    let LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table)) = plan else { return Ok(()) };
    let format = table.file_type.to_ascii_lowercase();
    if !["parquet", "arrow"].contains(&format.as_str()) {
        return Ok(());
    }
    let mut paths = Vec::new();
    for location in &table.locations {
        let path = location.strip_prefix("file://").unwrap_or(location);
        add_files(Path::new(path), &format, MOST_LEVELS, &mut paths);
    }
    let paths = paths.iter().map(PathBuf::as_path);
    if format == "parquet" { check_parquet(paths).map(drop) } else { check_arrow(paths) }
}

fn add_files(path: &Path, format: &str, levels: usize, paths: &mut Vec<PathBuf>) {
    if path.is_file() {
        paths.push(path.to_path_buf());
    } else if let (Ok(entries), Some(levels)) = (fs::read_dir(path), levels.checked_sub(1)) {
        for entry in entries.flatten().map(|entry| entry.path()) {
            let is_of_format = entry.extension().is_some_and(|extension| extension == format);
            if entry.is_dir() || is_of_format {
                add_files(&entry, format, levels, paths);
            }
        }
    }
}
