//! Pipes as tables: `/dev/stdin`, named pipes, and what a shell makes of `<(zcat x.csv.gz)`. Their bytes come once and cannot be read
//! from anywhere, so all of them go to a file first, which is then read as any other. It is gone with the table.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use datafusion::error::Result;
use parking_lot::Mutex;

use super::error::at;
use super::format::Format;

/// Names of the standard input.
const STANDARD_INPUT: [&str; 4] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/thread-self/fd/0"];

/// What came out of a pipe.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Pipe {
    /// The pipe's path.
    pub name: PathBuf,
    /// Where its bytes are.
    pub file: PathBuf,
    /// The folder that has them alone.
    folder: PathBuf,
}

/// Folders of pipes that are in use. Who removes one has the lock until it is gone.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Drop for Pipe {
    fn drop(&mut self) {
        let mut folders = FOLDERS.lock();
        remove(&self.folder);
        folders.retain(|folder| *folder != self.folder);
    }
}

/// Removes what came out of pipes, whoever has it still: threads that a program does not wait for when it ends may have tables of
/// theirs then. Nothing may be read any more.
pub fn remove_pipes() {
    FOLDERS.lock().drain(..).for_each(|folder| remove(&folder));
}

fn remove(folder: &Path) {
    // What is left of it takes room, and is no error of a statement.
    let _ = fs::remove_dir_all(folder);
}

/// Whether a path is that of a pipe, or of the standard input where that is no terminal.
pub(super) fn is_pipe(path: &Path) -> bool {
    match is_standard_input(path) {
        // Of a file that is redirected there, a part may be read already.
        true => !io::stdin().is_terminal() && fs::metadata(path).is_ok_and(|found| !found.is_dir()),
        false => is_named_pipe(path),
    }
}

#[cfg(unix)]
fn is_named_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_named_pipe(_: &Path) -> bool {
    false
}

fn is_standard_input(path: &Path) -> bool {
    STANDARD_INPUT.iter().any(|name| path == Path::new(name))
}

/// The name of the table of a pipe; nothing where the path is of something else.
pub(super) fn table_name(path: &Path) -> Option<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_pipe(path))?;
    Some(match stem {
        _ if is_standard_input(path) => "stdin".into(),
        // The number of one that a shell has made.
        stem if stem.bytes().all(|byte| byte.is_ascii_digit()) => format!("pipe_{stem}"),
        stem => stem.to_string(),
    })
}

impl Pipe {
    /// All that comes out of a pipe. While a table has it, it is that for whoever asks again.
    pub fn read(path: &Path) -> Result<Arc<Pipe>> {
        static READ: Mutex<Option<HashMap<PathBuf, Weak<Pipe>>>> = Mutex::new(None);
        let name = std::path::absolute(path).map_err(|error| at(path, error))?;
        // Whoever asks for the same pipe meanwhile gets what is read here.
        let mut read = READ.lock();
        let read = read.get_or_insert_with(HashMap::new);
        read.retain(|_, pipe| pipe.strong_count() > 0);
        if let Some(known) = read.get(&name).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let pipe = match is_standard_input(path) {
            true => Pipe::copied(&name, io::stdin().lock()),
            false => File::open(path).and_then(|input| Pipe::copied(&name, input)),
        };
        let pipe = Arc::new(pipe.map_err(|error| at(path, error))?);
        read.insert(name, Arc::downgrade(&pipe));
        Ok(pipe)
    }

    /// Copies the bytes of a pipe to a file whose name says what they are.
    fn copied(name: &Path, mut input: impl Read) -> io::Result<Pipe> {
        let mut start = Vec::new();
        input.by_ref().take(START_BYTES).read_to_end(&mut start)?;
        let stem = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let named = match Format::of(name) {
            Some(_) => stem,
            None => format!("{stem}.{}", ending_of(&start)),
        };
        let folder = new_folder()?;
        let pipe = Pipe { name: name.to_path_buf(), file: folder.join(named), folder };
        let mut file = File::create(&pipe.file)?;
        io::copy(&mut start.as_slice().chain(input), &mut file)?;
        Ok(pipe)
    }
}

/// Bytes that show what a pipe has.
const START_BYTES: u64 = 4096;

/// The ending of a file that begins so.
fn ending_of(start: &[u8]) -> &'static str {
    const MAGIC: [(&[u8], &str); 6] = [
        (b"PAR1", "parquet"),
        (b"ARROW1", "arrow"),
        (b"\x1f\x8b", "csv.gz"),
        (b"BZh", "csv.bz2"),
        (b"\xfd7zXZ\0", "csv.xz"),
        (b"\x28\xb5\x2f\xfd", "csv.zst"),
    ];
    if let Some((_, ending)) = MAGIC.iter().find(|(magic, _)| start.starts_with(magic)) {
        return ending;
    }
    match start.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => "json",
        _ => "csv",
    }
}

/// A folder that nobody else has.
fn new_folder() -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("kelpie-pipe-{}-{number}", std::process::id()));
        match create_private(&folder) {
            // One that an earlier process has left.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => {
                made?;
                FOLDERS.lock().push(folder.clone());
                return Ok(folder);
            }
        }
    }
}

#[cfg(unix)]
fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)
}
