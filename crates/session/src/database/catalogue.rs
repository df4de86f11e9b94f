//! The file of a database that says what it holds. It is replaced as a whole, so that a crash leaves the old one or the new one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use datafusion::common::exec_err;
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

use super::steps::{Step, reached};
use crate::constraints::rules::Rules;
use crate::files::error::at;
use crate::sequences::Sequence;
use crate::whole_writes::WholeFile;

/// The name of the file in the database's folder.
pub(super) const FILE: &str = "kelpie.catalog";
/// What the file begins with, before its version and the checksum of what follows.
const MARK: &str = "kelpie database";
/// The form of what follows.
const VERSION: u32 = 1;
/// That of a database that has what programs of the first form would not see to.
const VERSION_OF_RULES: u32 = 2;

/// What a database holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Catalogue {
    /// The number of the next file of rows.
    pub next_file: u64,
    /// Of each table the names of its files, in the order in which their rows were added.
    pub tables: BTreeMap<String, Vec<String>>,
    /// What tables say of their rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rules: BTreeMap<String, Rules>,
    /// Types with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub types: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sequences: BTreeMap<String, Sequence>,
    /// In the order in which they were made: a view may name those before it.
    pub views: Vec<View>,
    /// Options that every session begins with.
    pub settings: BTreeMap<String, String>,
}

/// A view, as the statement that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct View {
    pub name: String,
    pub statement: String,
}

impl Catalogue {
    /// Sets what a table says of its rows.
    pub fn set_rules(&mut self, table: &str, rules: Rules) {
        self.rules.remove(table);
        if !rules.is_empty() {
            self.rules.insert(table.to_string(), rules);
        }
    }

    /// Of a folder; nothing where there is no such file.
    pub fn read(folder: &Path) -> Result<Option<Catalogue>> {
        let path = folder.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path, error)),
        };
        let damaged = |why: &str| at(&path, format!("the catalogue of the database is damaged: {why}"));
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged("it is no text"))?;
        let (head, rest) = text.split_once('\n').ok_or_else(|| damaged("it has one line only"))?;
        let head = head.strip_prefix(MARK).ok_or_else(|| damaged("it does not begin as one"))?;
        let (version, checksum) = head.trim().split_once(' ').ok_or_else(|| damaged("it has no checksum"))?;
        match version.parse::<u32>() {
            Ok(VERSION | VERSION_OF_RULES) => {}
            Ok(version) if version > VERSION_OF_RULES => {
                return exec_err!(
                    "{}: a later version of Kelpie has written this database: its form is {version}, and {VERSION_OF_RULES} is known here",
                    path.display()
                );
            }
            _ => return Err(damaged("its version is none")),
        }
        if checksum != checksum_of(rest) {
            return Err(damaged("its checksum is another one"));
        }
        let found: Catalogue = serde_json::from_str(rest).map_err(|error| damaged(&error.to_string()))?;
        match version.parse() == Ok(found.version()) {
            true => Ok(Some(found)),
            false => Err(damaged("its version is another one than its form's")),
        }
    }

    /// The form that it is written in: the first one, where programs of that see to all that it has.
    fn version(&self) -> u32 {
        match self.rules.is_empty() && self.sequences.is_empty() && self.types.is_empty() {
            true => VERSION,
            false => VERSION_OF_RULES,
        }
    }

    /// Puts it in place of the one that a folder has. An error leaves the old one.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(|error| at(&path, error))?;
        let written = || -> io::Result<()> {
            let file = WholeFile::create(&path)?;
            let version = self.version();
            write!(file.file(), "{MARK} {version} {}\n{text}", checksum_of(&text))?;
            file.file().sync_all()?;
            reached(Step::CatalogueWritten);
            file.complete()?;
            reached(Step::CatalogueInPlace);
            sync_folder(folder)
        };
        written().map_err(|error| at(&path, error))
    }
}

fn checksum_of(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

/// Lets the names of a folder's files outlive the machine's power.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    match cfg!(unix) {
        true => File::open(folder)?.sync_all(),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        Catalogue {
            next_file: 3,
            tables: [("ü \"t\"".to_string(), vec!["0.parquet".to_string()])].into(),
            views: vec![View { name: "v".into(), statement: "create view v as\nselect 1".into() }],
            settings: [("a.b".to_string(), "'x'".to_string())].into(),
            ..Catalogue::default()
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Catalogue::read(folder.path()).unwrap(), None);
        catalogue().write(folder.path()).unwrap();
        assert_eq!(Catalogue::read(folder.path()).unwrap(), Some(catalogue()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_damaged_byte_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        catalogue().write(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let error = Catalogue::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(FILE), "{place}: {error}");
            fs::write(&path, &whole[..place]).unwrap();
            let error = Catalogue::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains("is damaged"), "{place}: {error}");
        }
        let later = String::from_utf8(whole).unwrap().replace("database 1 ", "database 3 ");
        fs::write(&path, later).unwrap();
        let error = Catalogue::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a later version"), "{error}");
    }
}
