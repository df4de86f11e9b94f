//! The file of `--output`.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use kelpie_session::WholeFile;

/// The results of a program, in a file that appears whole or not at all.
pub struct ResultFile {
    whole: WholeFile,
    /// Where the result that is being written begins; nothing between results.
    start: Option<u64>,
}

impl ResultFile {
    pub fn create(path: &Path) -> Result<ResultFile> {
        let whole = WholeFile::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(ResultFile { whole, start: None })
    }

    /// A handle to write the next result with.
    pub fn begin(&mut self) -> Result<File> {
        if !self.whole.is_direct() {
            self.start = Some(self.whole.file().stream_position().with_context(|| self.failed())?);
        }
        self.whole.file().try_clone().with_context(|| self.failed())
    }

    /// The result that was begun is whole.
    pub fn keep(&mut self) {
        self.start = None;
    }

    /// Forgets the result that was begun, and is not whole; whether there is one.
    pub fn take_back(&mut self) -> Result<bool> {
        let Some(start) = self.start.take() else { return Ok(false) };
        let mut file = self.whole.file();
        let cut = file.set_len(start).and_then(|()| file.seek(SeekFrom::Start(start)));
        cut.map(|_| true).with_context(|| self.failed())
    }

    /// Gives it its name.
    pub fn complete(self) -> Result<()> {
        let failed = self.failed();
        self.whole.complete().context(failed)
    }

    fn failed(&self) -> String {
        format!("cannot write {}", self.whole.path().display())
    }
}
