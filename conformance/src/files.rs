//! The files that the crate ships, and the folders in which they run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use datafusion_sqllogictest::{TestFile, read_dir_recursive};
use serde::Deserialize;

use crate::stand_in;

/// The crate that ships the files.
const CRATE: &str = "datafusion-sqllogictest";

/// Where the crate keeps them, and what they write.
const FOLDER: &str = "test_files";
const SCRATCH: &str = "scratch";

/// Files that need what is not there: data that a generator makes first, a feature, a container.
const LEFT_OUT: [&str; 3] = ["tpch", "sqlite", "encrypted_parquet.slt"];

/// The sources of the crate.
pub struct Shipped {
    folder: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

impl Shipped {
    /// Asks cargo where the sources are, as they may be vendored. Only this platform's crates are asked about: those of others
    /// were never fetched, and cargo would fetch them all.
    pub fn find() -> Result<Shipped> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--offline"])
            .args(["--filter-platform", "host-tuple", "--manifest-path"])
            .arg(&manifest)
            .output()
            .context("cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
        let package = metadata.packages.into_iter().find(|package| package.name == CRATE);
        let manifest = package.with_context(|| format!("{CRATE} is no dependency"))?.manifest_path;
        let folder = manifest.parent().context("a manifest in no folder")?.to_path_buf();
        ensure!(folder.join(FOLDER).is_dir(), "{} has no folder {FOLDER}", folder.display());
        Ok(Shipped { folder })
    }

    /// The files whose paths contain one of the filters, those that take longest first; their paths are relative to the folder of
    /// test files.
    pub fn files(&self, filters: &[String]) -> Result<Vec<PathBuf>> {
        let root = self.folder.join(FOLDER);
        let prefix = format!("{}/", root.display());
        let all = read_dir_recursive(&root)?.into_iter();
        let mut files: Vec<TestFile> = all
            .map(|path| TestFile::new(path, &[&prefix]))
            .filter(|file| {
                file.is_slt_file() && !LEFT_OUT.iter().any(|out| file.relative_path_starts_with(out))
            })
            .filter(|file| {
                let path = file.relative_path.to_string_lossy();
                filters.is_empty() || filters.iter().any(|filter| path.contains(filter.as_str()))
            })
            .collect();
        if files.is_empty() {
            bail!("no file of {} is asked for", root.display());
        }
        // The crate's own order: files that are known to take long come first.
        files.sort_unstable();
        Ok(files.into_iter().map(|file| file.relative_path).collect())
    }

    /// Lays out a folder as the files expect the one they run in: `datafusion/sqllogictest` of a repository, with the data of a
    /// checkout beside, or with what stands in for it. The sources of the crate are only linked to, as files write below `test_files/scratch`.
    pub fn lay_out(&self, root: &Path, checkout: Option<&Path>) -> Result<PathBuf> {
        let folder = root.join("datafusion").join("sqllogictest");
        fs::create_dir_all(folder.join(FOLDER).join(SCRATCH))?;
        link_entries(&self.folder, &folder, FOLDER)?;
        link_entries(&self.folder.join(FOLDER), &folder.join(FOLDER), SCRATCH)?;
        if let Some(checkout) = checkout {
            let checkout = checkout.canonicalize().with_context(|| checkout.display().to_string())?;
            link_entries(&checkout, root, "datafusion")?;
            link_entries(&checkout.join("datafusion"), &root.join("datafusion"), "sqllogictest")?;
        } else {
            stand_in::write_all(root)?;
        }
        Ok(folder)
    }
}

/// Links to every entry of a folder but one.
fn link_entries(from: &Path, to: &Path, except: &str) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Where a test file is, from the folder it runs in.
pub fn in_folder(file: &Path) -> PathBuf {
    Path::new(FOLDER).join(file)
}
