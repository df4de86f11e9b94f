//! What was measured, in files: JSON, one a device, with a version. A file that cannot be used is as good as none, and it is told why.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelpie_device::disk_cache::{file_name, read_file, write_whole};
use serde::{Deserialize, Serialize};

use super::{Calibrated, Measured, Point};

/// The form of the files, and what is measured: another one is not read.
const VERSION: u64 = 1;

/// Bytes of a file at most: it has some KB.
const MOST_BYTES: u64 = 1 << 20;

/// A file.
#[derive(Serialize, Deserialize)]
struct Content<'a, T> {
    version: u64,
    device: std::borrow::Cow<'a, str>,
    measured: T,
}

/// The file of a device with such an identity.
fn path(folder: &Path, identity: &str) -> PathBuf {
    folder.join(format!("{}.json", file_name(identity)))
}

/// What is known of the device with such an identity.
pub(super) fn read(folder: &Path, identity: &str) -> Calibrated {
    let path = path(folder, identity);
    let text = match read_file(&path, MOST_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Calibrated::Assumed,
        Err(error) => return Calibrated::Ignored(format!("{} cannot be read: {error}", path.display())),
    };
    match parse(&text, identity) {
        Ok(measured) => Calibrated::Measured(Arc::new(measured)),
        Err(reason) => Calibrated::Ignored(format!("{} is not used: {reason}", path.display())),
    }
}

/// Writes the file of a device as a whole: where it is, or why there is none.
pub(super) fn write(folder: &Path, identity: &str, measured: &Measured) -> Result<PathBuf, String> {
    let path = path(folder, identity);
    let content = Content { version: VERSION, device: identity.into(), measured };
    let text = serde_json::to_vec_pretty(&content).map_err(|error| error.to_string())?;
    let failed = |error| format!("{} cannot be written: {error}", path.display());
    write_whole(&path, &[&text, b"\n"]).map_err(failed)?;
    Ok(path)
}

/// What a file says of the device with such an identity, or what is wrong with it.
fn parse(text: &[u8], identity: &str) -> Result<Measured, String> {
    let content: Content<'_, serde_json::Value> =
        serde_json::from_slice(text).map_err(|error| format!("it is damaged: {error}"))?;
    if content.version != VERSION {
        return Err(format!("it has version {}, not {VERSION}", content.version));
    }
    if content.device != identity {
        return Err(format!("it is of another device, {}", content.device));
    }
    let measured: Measured =
        serde_json::from_value(content.measured).map_err(|error| format!("it is damaged: {error}"))?;
    let sizes = [measured.core_cache, measured.last_cache, measured.tlb_reach];
    // What no device has was not measured: a few KB to a few TB.
    match sizes.into_iter().flatten().find(|size| !(1 << 12..1 << 42).contains(size)) {
        Some(size) => Err(format!("it has a cache of {size} bytes")),
        None if !are_rates(&measured) => Err("it has rates that are none".into()),
        None => Ok(measured),
    }
}

/// Whether all rates are above zero.
fn are_rates(measured: &Measured) -> bool {
    let Measured { reads, page_reads, atomics, memory, link, .. } = measured;
    let points = reads.iter().chain(page_reads).chain(atomics);
    points.map(|Point { per_second, .. }| per_second).chain([memory, link]).all(|rate| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn measured() -> Measured {
        let points =
            vec![Point { bytes: 1 << 14, per_second: 1.5e9 }, Point { bytes: 1 << 15, per_second: 1e9 }];
        Measured {
            memory: 20.0,
            link: 10.5,
            reads: points.clone(),
            page_reads: Vec::new(),
            atomics: points,
            core_cache: Some(2 << 20),
            last_cache: None,
            tlb_reach: Some(8 << 20),
            took_ms: 1700,
        }
    }

    fn ignored(folder: &Path, identity: &str) -> String {
        match read(folder, identity) {
            Calibrated::Ignored(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read_back_for_the_same_device_alone() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        assert!(matches!(read(&folder, "a"), Calibrated::Assumed));
        let path = write(&folder, "a", &measured()).unwrap();
        match read(&folder, "a") {
            Calibrated::Measured(read) => assert_eq!(*read, measured()),
            other => panic!("{other:?}"),
        }
        assert!(matches!(read(&folder, "b"), Calibrated::Assumed));
        // A file under another's name.
        fs::copy(&path, super::path(&folder, "b")).unwrap();
        assert!(ignored(&folder, "b").contains("of another device, a"));
        // Nothing else is left.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn what_is_damaged_or_of_another_version_is_ignored_with_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "a", &measured()).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        for (from, to, reason) in [
            ("\"version\": 1", "\"version\": 2", "it has version 2, not 1"),
            ("\"version\": 1,", "", "it is damaged: missing field `version`"),
            ("\"core_cache\": 2097152", "\"core_cache\": -3", "it is damaged"),
            ("\"core_cache\": 2097152", "\"core_cache\": 7", "it has a cache of 7 bytes"),
            ("\"core_cache\"", "\"cache\"", "it is damaged: unknown field `cache`"),
            ("10.5", "0.0", "it has rates that are none"),
            ("10.5", "\"fast\"", "it is damaged"),
        ] {
            assert!(whole.contains(from), "{from}: {whole}");
            fs::write(&path, whole.replace(from, to)).unwrap();
            let found = ignored(folder.path(), "a");
            assert!(found.contains(reason) && found.contains("is not used"), "{found}");
        }
        for length in 0..whole.trim_end().len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(ignored(folder.path(), "a").contains("damaged"), "{length} bytes");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(ignored(folder.path(), "a").contains("cannot be read"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(write(&file, "a", &measured()).is_err_and(|reason| reason.contains("cannot be written")));
    }
}
