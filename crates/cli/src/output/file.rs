//! A file that appears whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Written beside its final place and renamed at the end: until then, and where writing fails, the old file stays. What is no
/// file (a device, a pipe) is written directly.
pub struct WholeFile {
    path: PathBuf,
    /// Where it is until it is complete.
    beside: Option<PathBuf>,
    file: File,
    /// Where the last result begins.
    start: u64,
}

impl WholeFile {
    pub fn create(path: &Path) -> Result<WholeFile> {
        create(path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A handle to write the next result with.
    pub fn begin(&mut self) -> Result<File> {
        let name = || format!("cannot write {}", self.path.display());
        if self.beside.is_some() {
            self.start = self.file.stream_position().with_context(name)?;
        }
        self.file.try_clone().with_context(name)
    }

    /// Forgets the result that was begun last.
    pub fn take_back(&mut self) -> Result<()> {
        if self.beside.is_none() {
            return Ok(());
        }
        self.file
            .set_len(self.start)
            .and_then(|()| self.file.seek(SeekFrom::Start(self.start)))
            .map(|_| ())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Gives it its name.
    pub fn complete(mut self) -> Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        fs::rename(beside, &self.path).with_context(|| format!("cannot write {}", self.path.display()))?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // Where it cannot be removed, nothing better is left to do.
            let _ = fs::remove_file(beside);
        }
    }
}

fn create(path: &Path) -> io::Result<WholeFile> {
    // A link stays one: its target is replaced.
    let path = if path.exists() { path.canonicalize()? } else { path.to_path_buf() };
    let old = fs::metadata(&path).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        let file = OpenOptions::new().write(true).open(&path)?;
        return Ok(WholeFile { path, beside: None, file, start: 0 });
    }
    if old.is_some() {
        // A file that must not be written is not replaced either.
        OpenOptions::new().write(true).open(&path)?;
    }
    let name = path.file_name().ok_or_else(|| io::Error::other("this is no name of a file"))?;
    for attempt in 0.. {
        let hidden = format!(".{}.{}-{attempt}.tmp", name.to_string_lossy(), std::process::id());
        let beside = path.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => {
                if let Some(old) = &old {
                    // The new file may be read by whom the old one could; where the system forbids that, it is as any new one.
                    let _ = file.set_permissions(old.permissions());
                }
                return Ok(WholeFile { path, beside: Some(beside), file, start: 0 });
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("no free name beside it"))
}
