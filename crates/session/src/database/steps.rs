//! The steps of a change, at each of which a test may end the process as a crash would.

/// What has been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A file of rows is begun.
    RowsBegun,
    /// It is whole, and on the disk.
    RowsWritten,
    /// The new catalogue is on the disk, beside the old one.
    CatalogueWritten,
    /// It is in the old one's place.
    CatalogueInPlace,
    /// The files that no table has any more are about to be removed.
    Changed,
}

/// Ends the process here, where a test wants that.
#[cfg(feature = "testing")]
pub(super) fn reached(step: Step) {
    if std::env::var(crate::testing::STOP_VARIABLE).is_ok_and(|wanted| wanted == format!("{step:?}")) {
        std::process::abort();
    }
}

#[cfg(not(feature = "testing"))]
pub(super) fn reached(_: Step) {}
