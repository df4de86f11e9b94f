//! What tells a file from another one of the same size and time.

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::object_store::ObjectMeta;
use datafusion::object_store::local::LocalFileSystem;

/// What tells a file from another one that was put in its place with the same size and time: its version, where whoever listed it
/// says so, and for local files what the file system says.
pub(crate) fn version_of(config: &FileScanConfig, meta: &ObjectMeta) -> Option<String> {
    if meta.version.is_some() || config.object_store_url.as_str() != "file:///" {
        return meta.version.clone().or_else(|| meta.e_tag.clone());
    }
    let path = LocalFileSystem::new().path_to_filesystem(&meta.location).ok()?;
    Some(file_version(&std::fs::metadata(path).ok()?))
}

/// What of a file's metadata changes when another file takes its place, or when somebody sets its time back.
#[cfg(unix)]
pub fn file_version(metadata: &std::fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    let (changed, nanos) = (metadata.ctime(), metadata.ctime_nsec());
    format!("{:x}-{:x}-{changed}.{nanos}", metadata.dev(), metadata.ino())
}

/// Nothing is known of it here.
#[cfg(not(unix))]
pub fn file_version(_: &std::fs::Metadata) -> String {
    String::new()
}
