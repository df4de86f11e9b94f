//! A cache of compiled code on disk. Never a reason to fail: what cannot be read or written is not cached.
//!
//! One file an entry, named by a hash of its key. A file is: the magic, the length of the key, the length of the data,
//! a checksum of both, the key, the data. Files are written under another name and renamed, so that no reader sees half
//! of one; a damaged file reads as absent and is replaced by the next write, and so is what is no file at all (a pipe, a device).
//!
//! The checksum is one of accidents: who may write the folder may put code there that then runs. So a folder that other users may
//! write, or that is theirs, is not used ([`DiskCache::problem`]).

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The environment variable that names the folder of all of Kelpie's caches.
pub const CACHE_VARIABLE: &str = "KELPIE_CACHE_DIR";

/// The environment variable that limits the folder of compiled kernels, in megabytes.
pub const CACHE_LIMIT_VARIABLE: &str = "KELPIE_CACHE_MB";
/// Megabytes of a folder where nothing else is said.
const CACHE_MB: u64 = 2000;
/// Writes of a process between two looks at the size of the folder.
const WRITES_PER_LOOK: u64 = 64;
/// An entry that is read tells so by its time, once in this time.
const USED_EVERY: Duration = Duration::from_secs(24 * 3600);
/// What a process that has died left half written, is removed after this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Bytes of an entry at most: code of a kernel has a few hundred KB.
const MOST_BYTES: u64 = 1 << 28;
const MAGIC: &[u8; 8] = b"KELPIE01";
const HEADER_BYTES: usize = 8 + 8 + 8 + 16;

/// A file of the folder.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// A folder of entries, or no cache where there is no folder.
#[derive(Debug, Clone)]
pub struct DiskCache {
    folder: Option<PathBuf>,
}

impl DiskCache {
    /// The cache called `kind` of this user: in `KELPIE_CACHE_DIR`, or in `kelpie` in the system's folder for caches.
    pub fn of_user(kind: &str) -> DiskCache {
        let root = match std::env::var_os(CACHE_VARIABLE).filter(|given| !given.is_empty()) {
            Some(given) => Some(PathBuf::from(given)),
            None => dirs::cache_dir().map(|cache| cache.join("kelpie")),
        };
        DiskCache { folder: root.map(|root| root.join(kind)) }
    }

    /// A cache in a folder, which is made by the first write.
    pub fn at(folder: &Path) -> DiskCache {
        DiskCache { folder: Some(folder.to_path_buf()) }
    }

    /// Where the entries are.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Why the folder is not used, if others may write it: its owner and root alone may, and the same holds of what it lies in but that
    /// there others may add what is theirs.
    pub fn problem(&self) -> Option<String> {
        let folder = self.folder.as_deref()?;
        trouble(folder, false).or_else(|| trouble(folder.parent()?, true))
    }

    /// The file of a key.
    fn path(&self, key: &str) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(file_name(key)))
    }

    /// The data stored for `key`; `None` where there is none or it is damaged.
    pub fn read(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key)?;
        let mut file = self.problem().is_none().then(|| read_file(&path, MOST_BYTES).ok())??;
        let data_at = HEADER_BYTES.checked_add(key.len())?;
        let expected = header(key, file.get(data_at..)?);
        if file.get(..HEADER_BYTES)? != expected || file.get(HEADER_BYTES..data_at)? != key.as_bytes() {
            return None;
        }
        file.drain(..data_at);
        self.mark_used(&path);
        Some(file)
    }

    /// Entries that were not used for long go first: the time of a file says when it was.
    fn mark_used(&self, path: &Path) {
        let used = fs::metadata(path).and_then(|metadata| metadata.modified());
        let is_long_ago = used.is_ok_and(|used| used.elapsed().is_ok_and(|since| since > USED_EVERY));
        if is_long_ago {
            // Who may read entries but not write them leaves their times.
            let _ = fs::File::options()
                .write(true)
                .open(path)
                .and_then(|file| file.set_modified(SystemTime::now()));
        }
    }

    /// Bytes that the folder may have.
    pub fn limit(&self) -> u64 {
        let given = std::env::var(CACHE_LIMIT_VARIABLE).ok().and_then(|text| text.trim().parse::<u64>().ok());
        given.unwrap_or(CACHE_MB).saturating_mul(1_000_000)
    }

    /// How many entries there are, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let files = self.files();
        (files.len(), files.iter().map(|file| file.bytes).sum())
    }

    fn files(&self) -> Vec<Entry> {
        let Some(folder) = self.folder.as_deref().filter(|_| self.problem().is_none()) else {
            return Vec::new();
        };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some(Entry { path: entry.path(), bytes: metadata.len(), used: metadata.modified().ok()? })
        };
        entries.filter_map(file).collect()
    }

    /// Removes what was not used for longest where the folder has more than `limit` bytes, down to three quarters of that; and
    /// what processes that have died left. Other processes may do the same, and may read: an entry that is gone is made again.
    fn prune(&self, limit: u64) {
        let mut files = self.files();
        files.retain(|file| {
            let is_half = file.path.extension().is_some_and(|extension| extension == "tmp");
            if is_half && file.used.elapsed().is_ok_and(|since| since > ABANDONED_AFTER) {
                let _ = fs::remove_file(&file.path);
            }
            !is_half
        });
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        if bytes <= limit {
            return;
        }
        files.sort_by_key(|file| file.used);
        for file in files {
            if bytes <= limit / 4 * 3 {
                break;
            }
            let _ = fs::remove_file(&file.path);
            bytes -= file.bytes;
        }
    }

    /// Stores `data` for `key`; whether that worked.
    pub fn write(&self, key: &str, data: &[u8]) -> bool {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        if WRITES.fetch_add(1, Ordering::Relaxed).is_multiple_of(WRITES_PER_LOOK) {
            self.prune(self.limit());
        }
        let header = header(key, data);
        let path = self.path(key).filter(|_| self.problem().is_none());
        path.is_some_and(|path| write_whole(&path, &[&header, key.as_bytes(), data]).is_ok())
    }
}

/// Writes a file of these parts, one after the other, and its folder where that is not there: under another name, which becomes the
/// file's when all is written. So no reader sees half of it, and what stood there stays where the write fails.
pub fn write_whole(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    if let Some(folder) = path.parent() {
        create_folder(folder)?;
    }
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| parts.iter().try_for_each(|part| file.write_all(part)))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Reads a file of at most so many bytes. What is no file, and may never end, is an error: a pipe, a device, a folder.
pub fn read_file(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let other = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let mut options = fs::File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a pipe would wait for whoever writes it.
        options.custom_flags(libc::O_NONBLOCK);
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(other("it is no file but a pipe, a device or a folder".into()));
    }
    if metadata.len() > most_bytes {
        return Err(other(format!("it has {} bytes, more than {most_bytes}", metadata.len())));
    }
    let mut content = Vec::new();
    file.take(most_bytes).read_to_end(&mut content)?;
    Ok(content)
}

/// Makes a folder, and those that it lies in, for this user alone.
fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Why other users may change what is in a folder, if they may. Of one that is there for all, what is somebody's is theirs alone.
#[cfg(unix)]
fn trouble(folder: &Path, may_be_for_all: bool) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const WRITTEN_BY_GROUP: u32 = 0o020;
    const WRITTEN_BY_ALL: u32 = 0o002;
    const FOR_ALL: u32 = 0o1000;
    let metadata = fs::metadata(folder).ok().filter(fs::Metadata::is_dir)?;
    // What `/proc/self` is, is this process's; where there is none, nothing is known of owners.
    let own = fs::metadata("/proc/self").map(|process| process.uid());
    if own.is_ok_and(|own| metadata.uid() != own && metadata.uid() != 0) {
        return Some(format!("{} is another user's, and is not used for caches", folder.display()));
    }
    let mode = metadata.mode();
    let by_group =
        || mode & WRITTEN_BY_GROUP != 0 && !Accounts::of_system().is_private(metadata.gid(), metadata.uid());
    let is_open = (mode & WRITTEN_BY_ALL != 0 || by_group()) && !(may_be_for_all && mode & FOR_ALL != 0);
    is_open.then(|| {
        let folder = folder.display();
        format!("other users may write {folder}, which is not used for caches then; `chmod go-w {folder}` changes that")
    })
}

/// Who there is on a machine, as `/etc/passwd` and `/etc/group` have it.
#[cfg(unix)]
struct Accounts {
    users: String,
    groups: String,
}

#[cfg(unix)]
impl Accounts {
    fn of_system() -> Accounts {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        Accounts { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    /// Whether a group is a user's private one: it has the user's name, and nobody else is in it. Systems with such groups let their
    /// members write whatever a user makes (umask 002).
    fn is_private(&self, group: u32, user: u32) -> bool {
        let fields = |line: &'_ str| line.split(':').map(str::to_string).collect::<Vec<_>>();
        let number = |field: Option<&String>| field.and_then(|field| field.parse::<u32>().ok());
        let users: Vec<Vec<String>> = self.users.lines().map(fields).collect();
        let mut named = users.iter().filter(|of| number(of.get(2)) == Some(user)).filter_map(|of| of.first());
        let (Some(name), None) = (named.next(), named.next()) else { return false };
        let others =
            users.iter().any(|of| number(of.get(3)) == Some(group) && number(of.get(2)) != Some(user));
        let mut groups = self.groups.lines().map(fields).filter(|of| number(of.get(2)) == Some(group));
        let (Some(found), None) = (groups.next(), groups.next()) else { return false };
        let members = found.get(3).map_or("", String::as_str).split(',').map(str::trim);
        let only_own = members.filter(|member| !member.is_empty()).all(|member| member == name);
        !others && only_own && found.first() == Some(name)
    }
}

#[cfg(not(unix))]
fn trouble(_: &Path, _: bool) -> Option<String> {
    None
}

fn header(key: &str, data: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0u8; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&(key.len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&(data.len() as u64).to_le_bytes());
    header[24..].copy_from_slice(&fingerprint(&[key.as_bytes(), data]).to_le_bytes());
    header
}

/// A name for a file that is kept under a key.
pub fn file_name(key: &str) -> String {
    format!("{:032x}", fingerprint(&[key.as_bytes()]))
}

/// FNV-1a of 128 bits: the same on every machine and in every version, unlike the standard library's hashers.
fn fingerprint(parts: &[&[u8]]) -> u128 {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in parts.iter().copied().flatten() {
        hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_file(folder: &Path) -> PathBuf {
        let mut files: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files.remove(0)
    }

    #[test]
    fn an_entry_is_read_back_by_its_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(&folder.path().join("new"));
        assert_eq!(cache.read("key"), None);
        for data in [&b"code"[..], b"", b"other code"] {
            assert!(cache.write("key", data));
            assert_eq!(cache.read("key").as_deref(), Some(data));
        }
        assert_eq!(cache.read("kez"), None);
        assert_eq!(cache.read(""), None);
        only_file(&folder.path().join("new"));
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        let hours_ago = |hours: u64| SystemTime::now() - Duration::from_secs(3600 * hours);
        for number in 0..10u64 {
            let key = format!("key {number}");
            assert!(cache.write(&key, &[0; 1000]));
            let file = fs::File::options().write(true).open(cache.path(&key).unwrap()).unwrap();
            file.set_modified(hours_ago(100 - number)).unwrap();
        }
        let half = folder.path().join("left.1-1.tmp");
        fs::write(&half, "half").unwrap();
        let (_, bytes) = cache.size();
        cache.prune(bytes);
        assert_eq!(cache.size().0, 11, "nothing is too much, and a file that is being written stays");
        // Reading says that an entry is in use.
        assert!(cache.read("key 0").is_some());
        fs::File::options().write(true).open(&half).unwrap().set_modified(hours_ago(2)).unwrap();
        cache.prune(bytes / 2);
        let left: Vec<u64> =
            (0..10).filter(|number| cache.read(&format!("key {number}")).is_some()).collect();
        assert_eq!(left, [0, 8, 9], "three eighths of ten, and no half file");
        assert_eq!(cache.size().0, 3);
    }

    #[test]
    fn every_damaged_byte_and_every_truncation_reads_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        assert!(cache.write("the key", b"the code"));
        let path = only_file(folder.path());
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.read("the key"), None, "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.read("the key"), None, "{at} bytes");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(cache.read("the key"), None);
        assert!(cache.write("the key", b"the code"));
        assert_eq!(cache.read("the key").as_deref(), Some(&b"the code"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "not a folder").unwrap();
        for cache in [DiskCache::at(&file), DiskCache::at(&file.join("below")), DiskCache { folder: None }] {
            assert!(!cache.write("key", b"code"));
            assert_eq!(cache.read("key"), None);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_may_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("cache");
        let cache = DiskCache::at(&folder);
        assert!(cache.problem().is_none() && cache.write("key", b"code"));
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for mode in [0o777, 0o772, 0o707, 0o1777] {
            set(&folder, mode);
            let problem = cache.problem().unwrap();
            assert!(problem.contains("cache") && problem.contains("chmod go-w"), "{problem}");
            assert_eq!(cache.read("key"), None);
            assert!(!cache.write("key", b"code"));
        }
        set(&folder, 0o755);
        assert_eq!(cache.read("key").as_deref(), Some(&b"code"[..]));
        // Who may write what it lies in may put another in its place, but where nobody moves what is others'.
        set(outer.path(), 0o777);
        assert!(cache.problem().is_some());
        set(outer.path(), 0o1777);
        assert_eq!(cache.problem(), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_group_of_one_user_is_private() {
        let accounts = |members: &str, other: &str| Accounts {
            users: format!("root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n{other}"),
            groups: format!("root:x:0:\nana:x:1000:{members}\nstaff:x:50:ana\n"),
        };
        assert!(accounts("", "").is_private(1000, 1000));
        assert!(accounts("ana", "ben:x:1001:1001::/:/bin/sh").is_private(1000, 1000));
        assert!(!accounts("ben", "").is_private(1000, 1000));
        assert!(!accounts("", "ben:x:1001:1000::/:/bin/sh").is_private(1000, 1000));
        // Another's group, one of another name, and one that nobody knows.
        assert!(!accounts("", "").is_private(0, 1000));
        assert!(!accounts("", "").is_private(50, 1000));
        assert!(!accounts("", "").is_private(77, 1000));
        assert!(!Accounts { users: String::new(), groups: String::new() }.is_private(1000, 1000));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        let path = folder.path().join(file_name("key"));
        let make = |program: &str, arguments: &[&std::ffi::OsStr]| {
            std::process::Command::new(program).args(arguments).status().unwrap().success()
        };
        assert!(make("mkfifo", &[path.as_os_str()]));
        assert!(read_file(&path, 100).unwrap_err().to_string().contains("a pipe"));
        assert_eq!(cache.read("key"), None);
        // A write puts an entry in its place.
        assert!(cache.write("key", b"code"));
        assert_eq!(cache.read("key").as_deref(), Some(&b"code"[..]));
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(read_file(&path, 100).unwrap_err().to_string().contains("a device"));
        assert_eq!(cache.read("key"), None);
        fs::remove_file(&path).unwrap();
        fs::write(&path, [0; 101]).unwrap();
        assert!(read_file(&path, 100).unwrap_err().to_string().contains("101 bytes"));
    }

    #[test]
    fn writers_at_the_same_time_leave_one_whole_entry() {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::at(folder.path());
        std::thread::scope(|scope| {
            for writer in 0..8u8 {
                let cache = &cache;
                scope.spawn(move || {
                    for _ in 0..20 {
                        assert!(cache.write("key", &vec![writer; 5000]));
                        assert_eq!(cache.read("key").map(|data| data.len()), Some(5000));
                    }
                });
            }
        });
        only_file(folder.path());
    }

    /// Set in the process that `a_full_disk_keeps_nothing` starts: the cache's folder.
    #[cfg(unix)]
    const FULL: &str = "KELPIE_TEST_FULL_CACHE";

    /// Runs this test again where `sh` can write little: files of a limited size, or a small file system that `prepare`
    /// makes of the folder `$0`. `None` where that cannot be prepared.
    #[cfg(unix)]
    fn run_where(shell: &[&str], prepare: &str, folder: &Path) -> Option<std::process::Output> {
        const CANNOT: i32 = 77;
        let script = format!("{prepare} || exit {CANNOT}; exec \"$@\"");
        let output = std::process::Command::new(shell[0])
            .args(&shell[1..])
            .args(["sh", "-c", &script])
            .arg(folder)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "disk_cache::tests::a_full_disk_keeps_nothing"])
            .env(FULL, folder)
            .output();
        output.ok().filter(|output| output.status.success() || output.status.code() == Some(101))
    }

    #[cfg(unix)]
    #[test]
    fn a_full_disk_keeps_nothing() {
        let (small, large) = (vec![7; 100], vec![9; 100_000]);
        if let Some(folder) = std::env::var_os(FULL) {
            let cache = DiskCache::at(Path::new(&folder));
            assert!(cache.write("small", &small), "there is room for this");
            assert!(!cache.write("large", &large), "and none for this");
            assert!(!cache.write("small", &large), "what is there stays");
            assert_eq!((cache.read("small"), cache.read("large")), (Some(small), None));
            only_file(Path::new(&folder));
            return;
        }
        // SIGXFSZ would end the process; ignored, the write fails.
        let limited = (&["env"][..], "trap '' XFSZ && ulimit -f 16");
        let mounted = (
            &["unshare", "--user", "--map-root-user", "--mount"][..],
            "mount -t tmpfs -o size=16k,mode=700 none \"$0\" 2>/dev/null",
        );
        for (shell, prepare) in [limited, mounted] {
            let folder = tempfile::tempdir().unwrap();
            match run_where(shell, prepare, folder.path()) {
                Some(output) => {
                    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
                    assert!(output.status.success() && ran, "{prepare}: {output:?}");
                }
                None => eprintln!("skipped: {prepare}"),
            }
        }
        // A later process trusts nothing of it, and keeps what it makes.
        let folder = tempfile::tempdir().unwrap();
        if run_where(limited.0, limited.1, folder.path()).is_some() {
            let cache = DiskCache::at(folder.path());
            assert_eq!((cache.read("small"), cache.read("large")), (Some(small), None));
            assert!(cache.write("large", &large));
            assert_eq!(cache.read("large"), Some(large));
        }
    }
}
