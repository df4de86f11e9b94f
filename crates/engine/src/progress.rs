//! How far the queries of a process have come, for a program that runs one at a time and shows it.

use std::sync::atomic::{AtomicU64, Ordering};

static ROWS: Counter = Counter::new();
static PIPELINES: Counter = Counter::new();

/// So much of so much.
#[derive(Debug)]
struct Counter {
    done: AtomicU64,
    all: AtomicU64,
}

impl Counter {
    const fn new() -> Counter {
        Counter { done: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    fn reset(&self) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(0, Ordering::Relaxed);
    }

    fn part(&self) -> Part {
        let all = self.all.load(Ordering::Relaxed);
        Part { done: self.done.load(Ordering::Relaxed).min(all), all }
    }
}

/// So much of so much.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// What is done.
    pub done: u64,
    /// What is known to be done in the end. More may come.
    pub all: u64,
}

/// What has been done since the last [`begin`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that were read of those of all tables that are being read, or were.
    pub rows: Part,
    /// Pipelines that have ended, of those of all stages that have begun.
    pub pipelines: Part,
}

/// From now on a new query is shown.
pub fn begin() {
    ROWS.reset();
    PIPELINES.reset();
}

/// How far it has come.
pub fn now() -> Progress {
    Progress { rows: ROWS.part(), pipelines: PIPELINES.part() }
}

/// A table of so many rows is read.
pub(crate) fn will_read(rows: u64) {
    ROWS.all.fetch_add(rows, Ordering::Relaxed);
}

/// Rows of it have come.
pub(crate) fn has_read(rows: u64) {
    ROWS.done.fetch_add(rows, Ordering::Relaxed);
}

/// A stage of so many pipelines begins.
pub(crate) fn will_run(pipelines: usize) {
    PIPELINES.all.fetch_add(pipelines as u64, Ordering::Relaxed);
}

/// Some of them have ended.
pub(crate) fn has_run(pipelines: usize) {
    PIPELINES.done.fetch_add(pipelines as u64, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_done_than_there_is() {
        let counter = Counter::new();
        counter.done.store(5, Ordering::Relaxed);
        assert_eq!(counter.part(), Part { done: 0, all: 0 });
        counter.all.store(8, Ordering::Relaxed);
        assert_eq!(counter.part(), Part { done: 5, all: 8 });
        counter.reset();
        assert_eq!(counter.part(), Part::default());
    }
}
