//! Which files a name stands for: a file, all of a folder, or those that match a pattern.

use std::collections::HashSet;
use std::fs::{self, DirEntry, Metadata};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::execution::cache::TableScopedPath;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::object_store::path::Path as Address;
use kelpie_datafusion::file_version;

use super::chosen::Chosen;
use super::error::at;
use super::format::{Format, KNOWN, Kind, not_read};
use super::patterns::{is_pattern, matches};
use super::pipe::{Pipe, is_pipe};
use crate::constraints::rules::Rules;
use crate::database::KeptTable;

/// Why what is neither a file nor a folder is no data.
pub(super) const NO_FILE: &str =
    "a pipe, socket or device, and only files and folders are read: write its bytes to a file first";

/// What a path on the command line or in a query names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// One file.
    File(PathBuf),
    /// What came out of a pipe.
    Pipe(Arc<Pipe>),
    /// The data files of a folder and of those in it.
    Folder(PathBuf),
    /// The data files that match a pattern.
    Pattern(String),
    /// The files that a call of a function names.
    Chosen(Box<Chosen>),
    /// Those that a database has of a table, in the order in which their rows were added.
    Kept(KeptTable),
}

/// A data file as it is now: another size or time, and it is another file.
#[derive(Debug, Clone)]
pub(crate) struct DataFile {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) bytes: u64,
    pub(super) modified: Option<SystemTime>,
    /// What tells it from another file of the same size and time.
    pub(super) version: String,
}

/// Every query compares all files of its tables. Their paths come from the same source, so they are the same where their
/// bytes are; part by part, as paths are compared otherwise, takes longer than to ask the system for the files.
impl PartialEq for DataFile {
    fn eq(&self, other: &DataFile) -> bool {
        self.bytes == other.bytes
            && self.version == other.version
            && self.modified == other.modified
            && self.format == other.format
            && self.path.as_os_str() == other.path.as_os_str()
    }
}

impl DataFile {
    pub(super) fn new(path: PathBuf, format: Format, metadata: &Metadata) -> DataFile {
        let version = file_version(metadata);
        DataFile { path, format, bytes: metadata.len(), modified: metadata.modified().ok(), version }
    }
}

impl Source {
    /// What a path names. A name with `*`, `?`, `[` or `{` is a pattern, unless there is such a file.
    pub fn of(path: &Path) -> Result<Source> {
        match fs::metadata(path) {
            _ if is_pipe(path) => Ok(Source::Pipe(Pipe::read(path)?)),
            Ok(found) if found.is_dir() => Ok(Source::Folder(absolute(path)?)),
            Ok(found) if found.is_file() => Ok(Source::File(absolute(path)?)),
            Ok(_) => Err(at(path, NO_FILE)),
            Err(_) if is_pattern(path) => {
                let path = std::path::absolute(path).map_err(|error| at(path, error))?;
                let pattern = path.to_str().ok_or_else(|| at(&path, "a pattern must be Unicode"))?;
                Ok(Source::Pattern(pattern.to_string()))
            }
            Err(error) => Err(at(path, error)),
        }
    }

    /// Its files as they are now, in order of their names; of one format and at least one.
    pub fn files(&self) -> Result<Vec<DataFile>> {
        let mut files = Vec::new();
        match self {
            Source::Chosen(chosen) => return chosen.files(),
            Source::Kept(table) => {
                for path in table.database.files_of(&table.name)? {
                    files.extend(data_file(&path)?);
                }
            }
            Source::File(path) => files.push(data_file(path)?.ok_or_else(|| not_read(path))?),
            Source::Pipe(pipe) => files.push(data_file(&pipe.file)?.ok_or_else(|| not_read(&pipe.file))?),
            Source::Folder(path) => collect(path, &mut HashSet::from([path.clone()]), &mut files)?,
            Source::Pattern(pattern) => {
                for path in matches(pattern)? {
                    let found = fs::metadata(&path).map_err(|error| at(&path, error))?;
                    if found.is_file() {
                        files.extend(data_file(&path)?);
                    }
                }
            }
        }
        match self {
            Source::Pattern(_) => files.sort_by(|a, b| a.path.cmp(&b.path)),
            // Its files come in order. Text for people is no data where there is other data.
            _ if files.iter().any(|file| file.format.kind != Kind::Txt) => {
                files.retain(|file| {
                    file.format.kind != Kind::Txt || matches!(self, Source::File(_) | Source::Pipe(_))
                });
            }
            _ => {}
        }
        let Some(first) = files.first() else {
            return Err(at(self.path(), format!("no {KNOWN} here")));
        };
        match files.iter().find(|file| file.format.kind != first.format.kind) {
            Some(other) => Err(at(
                self.path(),
                format!(
                    "files of more than one format: {} and {}",
                    self.short(&first.path),
                    self.short(&other.path)
                ),
            )),
            None => Ok(files),
        }
    }

    /// What it says of its rows, where it is a table of a database.
    pub fn rules(&self) -> Rules {
        match self {
            Source::Kept(table) => table.database.rules_of(&table.name),
            _ => Rules::default(),
        }
    }

    /// Its path, for people.
    pub fn path(&self) -> &Path {
        match self {
            Source::File(path) | Source::Folder(path) => path,
            Source::Pipe(pipe) => &pipe.name,
            Source::Pattern(pattern) => Path::new(pattern),
            Source::Chosen(chosen) => chosen.path(),
            Source::Kept(table) => table.database.folder(),
        }
    }

    /// A file's name within it.
    fn short(&self, file: &Path) -> String {
        file.strip_prefix(self.path()).unwrap_or(file).display().to_string()
    }

    /// The folder below which names of folders are columns: of a pattern, the one before its first part that is open.
    fn base(&self) -> Option<PathBuf> {
        match self {
            Source::File(_) | Source::Pipe(_) | Source::Chosen(_) | Source::Kept(_) => None,
            Source::Folder(folder) => Some(folder.clone()),
            Source::Pattern(pattern) => {
                let parts = Path::new(pattern).components();
                Some(parts.take_while(|part| !is_pattern(Path::new(part))).collect())
            }
        }
    }

    /// What the folders of a file say of a column: nothing where they do not name it, and no value where it is NULL.
    pub fn value(&self, file: &DataFile, column: &str) -> Option<Option<String>> {
        if let Source::Chosen(chosen) = self {
            return chosen.value(file, column);
        }
        let pairs = pairs(&self.base()?, &file.path);
        pairs.into_iter().find(|(name, _)| name == column).map(|(_, value)| value)
    }

    /// The columns that the folders between it and its files name, as `year=2024` does, and their types.
    pub fn partitions(&self, files: &[DataFile]) -> Vec<FieldRef> {
        if let Source::Chosen(chosen) = self {
            return chosen.columns(files);
        }
        let Some(folder) = self.base() else { return Vec::new() };
        columns_of_folders(files.iter().map(|file| pairs(&folder, &file.path)))
    }
}

/// The columns that the folders of all files name, and their types.
pub(super) fn columns_of_folders(files: impl Iterator<Item = Pairs>) -> Vec<FieldRef> {
    let mut columns: Option<Vec<(String, Vec<Option<String>>)>> = None;
    for pairs in files {
        match &mut columns {
            None => columns = Some(pairs.into_iter().map(|(key, value)| (key, vec![value])).collect()),
            Some(columns) => {
                let common = columns.iter().zip(&pairs).take_while(|(a, b)| a.0 == b.0).count();
                columns.truncate(common);
                columns.iter_mut().zip(pairs).for_each(|(column, pair)| column.1.push(pair.1));
            }
        }
    }
    let columns = columns.unwrap_or_default().into_iter();
    let column = |(name, values): (String, Vec<Option<String>>)| {
        let nullable = values.contains(&None);
        let values: Vec<String> = values.into_iter().flatten().collect();
        Arc::new(Field::new(name, type_of(&values), nullable))
    };
    columns.map(column).collect()
}

/// Columns that folders name, and what they say of them.
type Pairs = Vec<(String, Option<String>)>;

/// The name of a folder whose column is NULL in all rows below it, as Hive and Spark write it.
pub(crate) const FOLDER_OF_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// `key=value` of the folders between a folder and a file, up to the first that is not of this form. Both may be written with
/// `%2F` and the like for what cannot stand in a name.
pub(super) fn pairs(folder: &Path, file: &Path) -> Pairs {
    let between = file.parent().and_then(|parent| parent.strip_prefix(folder).ok());
    let names = between.into_iter().flat_map(Path::iter);
    let pairs = names.map_while(|name| name.to_str()?.split_once('='));
    pairs.map(|(key, value)| (decoded(key), (value != FOLDER_OF_NULL).then(|| decoded(value)))).collect()
}

/// A name with the bytes that `%` and two digits stand for; as it is where that gives no text.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let coded =
            after.get(..2).filter(|_| *byte == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match coded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(coded) => {
                bytes.push(coded);
                rest = &after[2..];
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| name.to_string())
}

/// The narrowest type that holds all values as they are written.
fn type_of(values: &[String]) -> DataType {
    let is_integer = |value: &String| value.parse::<i64>().is_ok_and(|number| number.to_string() == *value);
    let is_date = |value: &String| {
        let bytes = value.as_bytes();
        let digits = |range: std::ops::Range<usize>| bytes[range].iter().all(u8::is_ascii_digit);
        bytes.len() == 10
            && bytes[4] == b'-'
            && bytes[7] == b'-'
            && digits(0..4)
            && digits(5..7)
            && digits(8..10)
    };
    match () {
        () if values.is_empty() => DataType::Utf8,
        () if values.iter().all(is_integer) => DataType::Int64,
        () if values.iter().all(is_date) => DataType::Date32,
        () => DataType::Utf8,
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| at(path, error))
}

/// A data file, or nothing where the name is not that of one.
fn data_file(path: &Path) -> Result<Option<DataFile>> {
    match Format::of(path) {
        Some(_) => data_file_of(path, &fs::metadata(path).map_err(|error| at(path, error))?),
        None => Ok(None),
    }
}

/// As [`data_file`], of a path that was looked at.
fn data_file_of(path: &Path, metadata: &Metadata) -> Result<Option<DataFile>> {
    let Some(format) = Format::of(path) else { return Ok(None) };
    match metadata.is_file() {
        true => Ok(Some(DataFile::new(path.to_path_buf(), format, metadata))),
        // A pipe, for one, would be waited for.
        false => Err(at(path, NO_FILE)),
    }
}

/// Data files of a folder and of its sub-folders, hidden ones left out, each folder once. Every query looks at its files, so the
/// system is asked for each of them once.
fn collect(folder: &Path, seen: &mut HashSet<PathBuf>, files: &mut Vec<DataFile>) -> Result<()> {
    for (path, entry) in shown(folder)? {
        let is_plain = entry.file_type().is_ok_and(|kind| kind.is_file());
        match if is_plain { entry.metadata() } else { fs::metadata(&path) } {
            Ok(found) if found.is_dir() => {
                if seen.insert(absolute(&path)?) {
                    collect(&path, seen, files)?;
                }
            }
            Ok(found) => files.extend(data_file_of(&path, &found)?),
            // A broken link is only missed where its name is that of data.
            Err(error) if Format::of(&path).is_some() => return Err(at(&path, error)),
            Err(_) => {}
        }
    }
    Ok(())
}

/// What is in a folder, hidden entries left out, in order.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(shown(folder)?.into_iter().map(|(path, _)| path).collect())
}

fn shown(folder: &Path) -> Result<Vec<(PathBuf, DirEntry)>> {
    let mut shown = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| at(folder, error))? {
        let entry = entry.map_err(|error| at(folder, error))?;
        let name = entry.file_name();
        if !matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_')) {
            shown.push((name, entry));
        }
    }
    shown.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(shown.into_iter().map(|(name, entry)| (folder.join(name), entry)).collect())
}

/// Forgets what DataFusion keeps of files: it takes one of the same size and time for the same file.
pub(super) fn forget(runtime: &RuntimeEnv, files: &[DataFile]) {
    let footers = runtime.cache_manager.get_file_metadata_cache();
    let statistics = runtime.cache_manager.get_file_statistic_cache();
    for file in files {
        let Ok(address) = Address::from_absolute_path(&file.path) else { continue };
        if let Some(statistics) = &statistics {
            let key = TableScopedPath { table: None, path: address.clone() };
            statistics.remove(&key);
        }
        footers.remove(&address);
    }
}
