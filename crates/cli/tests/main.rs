//! The tests of the program and of the repository: one program, so that those of every file run side by side.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod program;

mod benchmarks;
mod book;
mod caches;
mod circles;
mod cli;
mod deep;
mod experiments;
mod explain;
mod full_disk;
#[cfg(target_os = "linux")]
mod interrupts;
mod messages;
#[cfg(unix)]
mod open_files;
mod output;
mod plans;
mod repository;
mod shell;
#[cfg(feature = "distributed")]
mod workers;
