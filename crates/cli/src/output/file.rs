//! The file of `--output`.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use kelpie_session::WholeFile;

/// The results of a program, in a file that appears whole or not at all.
pub struct ResultFile {
    whole: WholeFile,
    /// Where the last result begins.
    start: u64,
}

impl ResultFile {
    pub fn create(path: &Path) -> Result<ResultFile> {
        let whole = WholeFile::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(ResultFile { whole, start: 0 })
    }

    /// A handle to write the next result with.
    pub fn begin(&mut self) -> Result<File> {
        if !self.whole.is_direct() {
            self.start = self.whole.file().stream_position().with_context(|| self.failed())?;
        }
        self.whole.file().try_clone().with_context(|| self.failed())
    }

    /// Forgets the result that was begun last.
    pub fn take_back(&mut self) -> Result<()> {
        if self.whole.is_direct() {
            return Ok(());
        }
        let mut file = self.whole.file();
        let cut = file.set_len(self.start).and_then(|()| file.seek(SeekFrom::Start(self.start)));
        cut.map(|_| ()).with_context(|| self.failed())
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
