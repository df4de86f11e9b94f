//! Folders of generated data that are made once and used again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{GenerateOptions, Progress, Workload};

impl Workload {
    /// The folder of this benchmark's data at a scale factor, in another folder: `tpch-sf0.1`.
    pub fn folder(self, parent: &Path, scale: f64) -> PathBuf {
        parent.join(format!("{}-sf{scale}", self.name()))
    }

    /// Makes [`Workload::folder`] where it is missing. It is complete or not there: it gets its name last.
    pub fn generate_once(
        self,
        parent: &Path,
        scale: f64,
        threads: usize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<PathBuf> {
        let folder = self.folder(parent, scale);
        if folder.is_dir() {
            return Ok(folder);
        }
        let temporary = parent.join(format!(".{}-sf{scale}-{}", self.name(), std::process::id()));
        let options =
            GenerateOptions { scale, output: &temporary, tables: &[], threads, replace: true, progress };
        let made = self.generate(&options).and_then(|_| {
            std::fs::rename(&temporary, &folder).with_context(|| format!("cannot make {}", folder.display()))
        });
        if made.is_err() {
            // The error is the news.
            let _ = std::fs::remove_dir_all(&temporary);
            // Unless another process was faster.
            if folder.is_dir() {
                return Ok(folder);
            }
        }
        made.map(|()| folder)
    }
}
