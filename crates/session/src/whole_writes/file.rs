//! A file that appears whole, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file that is written beside its place and takes it at the end: until then, and where writing fails, the old file stays.
/// What is no file (a device, a pipe) cannot be replaced and is written directly. Dropped before it is complete, it leaves
/// nothing.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    /// Where it is until it is complete; nowhere else where it is written directly.
    beside: Option<PathBuf>,
    file: File,
}

impl WholeFile {
    /// A file to be written in place of `path`. A link stays one: its target is replaced. An old file that must not be
    /// written is not replaced either, and one that may be leaves its permissions to the new one. Opening a pipe waits for its
    /// reader.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        if let Some(stream) = standard_stream(path) {
            return Ok(WholeFile { path: path.to_path_buf(), beside: None, file: stream? });
        }
        let path = if path.exists() { path.canonicalize()? } else { path.to_path_buf() };
        let old = fs::metadata(&path).ok();
        if let Some(old) = &old {
            let file = OpenOptions::new().write(true).open(&path)?;
            if !old.is_file() {
                return Ok(WholeFile { path, beside: None, file });
            }
        }
        let name = path.file_name().ok_or_else(|| io::Error::other("this is no name of a file"))?;
        remove_abandoned(path.parent().unwrap_or(Path::new("")));
        for attempt in 0.. {
            let hidden = format!(".{}.{}-{attempt}.tmp", name.to_string_lossy(), std::process::id());
            let beside = path.with_file_name(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&beside) {
                Ok(file) => {
                    if let Some(old) = &old {
                        // The new file may be read by whom the old one could; where the system forbids that, it is as any new one.
                        let _ = file.set_permissions(old.permissions());
                    }
                    return Ok(WholeFile { path, beside: Some(beside), file });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no free name beside it"))
    }

    /// Whether what is at a path takes bytes as they come: it is there, and neither a file nor a folder.
    pub fn is_direct_at(path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) || is_standard_stream(path)
    }

    /// Whether it is written directly, and so not taken back.
    pub fn is_direct(&self) -> bool {
        self.beside.is_none()
    }

    /// Where its bytes go.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes its place.
    pub fn complete(mut self) -> io::Result<()> {
        if let Some(beside) = &self.beside {
            fs::rename(beside, &self.path)?;
            self.beside = None;
        }
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

/// A file beside its place that nobody has written to for so long has lost its writer, unless that is still there.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Removes what writers have left in a folder that were ended from outside, before they could.
fn remove_abandoned(folder: &Path) {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(writer) = name.to_str().and_then(writer_of) else { continue };
        let modified = entry.metadata().and_then(|found| found.modified());
        let is_old = modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED_AFTER));
        if is_old && !is_running(writer) {
            // Whoever may not remove it has no harm of it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The process that wrote a file `.name.process-attempt.tmp`.
fn writer_of(name: &str) -> Option<u32> {
    let (_, writer) = name.strip_prefix('.')?.strip_suffix(".tmp")?.rsplit_once('.')?;
    let (process, attempt) = writer.split_once('-')?;
    attempt.parse::<u32>().ok()?;
    process.parse().ok()
}

/// Whether a process runs, as far as the system shows that in files.
fn is_running(process: u32) -> bool {
    process == std::process::id() || Path::new("/proc").join(process.to_string()).exists()
}

fn is_standard_stream(path: &Path) -> bool {
    cfg!(unix) && [Path::new("/dev/stdout"), Path::new("/dev/stderr")].contains(&path)
}

/// The process's own stream, where a path stands for it. Opened by its name, it may be a file that the shell has redirected it
/// to, and would be replaced under the shell's hand.
#[cfg(unix)]
fn standard_stream(path: &Path) -> Option<io::Result<File>> {
    use std::os::fd::AsFd;
    let is = |name: &str| path == Path::new(name);
    let handle = match () {
        () if is("/dev/stdout") => io::stdout().as_fd().try_clone_to_owned(),
        () if is("/dev/stderr") => io::stderr().as_fd().try_clone_to_owned(),
        () => return None,
    };
    Some(handle.map(File::from))
}

#[cfg(not(unix))]
fn standard_stream(_: &Path) -> Option<io::Result<File>> {
    None
}
