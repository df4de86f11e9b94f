//! The files that a call of a function names, in its order, whatever their names end in.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;

use super::error::at;
use super::format::{Format, KNOWN, Kind};
use super::patterns::matches;
use super::source::{DataFile, NO_FILE, Source, columns_of_folders, pairs};

/// Files of one format that somebody has chosen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Chosen {
    pub parts: Vec<Source>,
    pub kind: Kind,
    /// Whether names of folders such as `year=2024` are columns.
    pub folders: bool,
    /// The column of their names, where one is wanted.
    pub filename: Option<String>,
    /// Whether they were named from the current folder on.
    pub is_relative: bool,
}

impl Chosen {
    /// They as they are now; at least one.
    pub fn files(&self) -> Result<Vec<DataFile>> {
        let mut files = Vec::new();
        for part in &self.parts {
            match part {
                Source::File(path) => files.push(self.file(path)?),
                Source::Pipe(pipe) => files.push(self.file(&pipe.file)?),
                Source::Pattern(pattern) => {
                    let paths = matches(pattern)?;
                    let is_file = |path: &&PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
                    let found = paths.iter().filter(is_file).map(|path| self.file(path));
                    let mut found = found.collect::<Result<Vec<_>>>()?;
                    if found.is_empty() {
                        return Err(at(Path::new(pattern), "no file matches"));
                    }
                    found.sort_by(|a, b| a.path.cmp(&b.path));
                    files.extend(found);
                }
                folder => {
                    let all = folder.files()?.into_iter();
                    let of_kind =
                        all.filter(|file| Format::read_as(&file.path, self.kind) == Some(file.format));
                    files.extend(of_kind);
                }
            }
        }
        match files.is_empty() {
            true => Err(at(self.path(), format!("no {KNOWN} here"))),
            false => Ok(files),
        }
    }

    fn file(&self, path: &Path) -> Result<DataFile> {
        let found = fs::metadata(path).map_err(|error| at(path, error))?;
        let format = Format::read_as(path, self.kind);
        match format.filter(|_| found.is_file()) {
            Some(format) => Ok(DataFile::new(path.to_path_buf(), format, &found)),
            None => Err(at(path, NO_FILE)),
        }
    }

    /// The first of them, for people.
    pub fn path(&self) -> &Path {
        self.parts.first().map_or(Path::new(""), Source::path)
    }

    /// What the folders of a file, or its name, say of a column.
    pub fn value(&self, file: &DataFile, column: &str) -> Option<Option<String>> {
        if self.filename.as_deref() == Some(column) {
            return Some(Some(self.name_of(file)));
        }
        pairs(&base(&file.path), &file.path)
            .into_iter()
            .find(|(name, _)| name == column)
            .map(|(_, value)| value)
    }

    /// A file as it was named.
    pub fn name_of(&self, file: &DataFile) -> String {
        let current = std::env::current_dir().ok().filter(|_| self.is_relative);
        let shown = current.and_then(|current| file.path.strip_prefix(current).ok());
        shown.unwrap_or(&file.path).display().to_string()
    }

    /// The columns that are in no file.
    pub fn columns(&self, files: &[DataFile]) -> Vec<FieldRef> {
        let mut columns = match self.folders {
            true => columns_of_folders(files.iter().map(|file| pairs(&base(&file.path), &file.path))),
            false => Vec::new(),
        };
        if let Some(filename) = &self.filename {
            columns.push(Arc::new(Field::new(filename, DataType::Utf8, false)));
        }
        columns
    }
}

/// The folder above those that have the form `key=value`.
fn base(file: &Path) -> PathBuf {
    let has_form = |folder: &&Path| {
        folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains('='))
    };
    let mut base = file.parent().unwrap_or(Path::new(""));
    while has_form(&base) {
        base = base.parent().unwrap_or(Path::new(""));
    }
    base.to_path_buf()
}
