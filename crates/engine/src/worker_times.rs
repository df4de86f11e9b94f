//! What queries took of a CPU's workers, for the order in which these take them (`kelpie-device`'s `cpu/schedule`): the next run of a
//! query of the same form, which is its plan but for its constants over the same data, will take about as long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kelpie_device::{CancelToken, DeviceKind};
use parking_lot::Mutex;

use crate::learned::Fingerprint;
use crate::options::Query;

/// Queries that are remembered; then all are forgotten.
const MOST_QUERIES: usize = 4096;

/// The queries that run, and what those before them took.
#[derive(Debug, Default)]
pub(crate) struct WorkerTimes {
    running: AtomicUsize,
    times: Mutex<HashMap<Fingerprint, Duration>>,
}

/// A query that runs.
pub(crate) struct TimedQuery<'a> {
    times: &'a WorkerTimes,
    cancel: &'a CancelToken,
    /// What it is known by, and what it had of the workers before; `None` where nobody asks.
    form: Option<(Fingerprint, Duration)>,
}

impl WorkerTimes {
    /// Notes that a query begins. Where it is the only one, or has no workers of a CPU, nobody asks how long it will take.
    pub fn begin<'a>(&'a self, query: &Query, device: DeviceKind, cancel: &'a CancelToken) -> TimedQuery<'a> {
        let is_alone = self.running.fetch_add(1, Ordering::Relaxed) == 0;
        let form = if is_alone || device != DeviceKind::Cpu { None } else { form(query) };
        if let Some(time) = form.and_then(|form| self.times.lock().get(&form).copied()) {
            cancel.expect_worker_time(time);
        }
        TimedQuery { times: self, cancel, form: form.map(|form| (form, cancel.worker_time())) }
    }
}

impl TimedQuery<'_> {
    /// The query has ended without an error.
    pub fn ended(self) {
        let Some((form, before)) = self.form else { return };
        let mut times = self.times.times.lock();
        if times.len() >= MOST_QUERIES && !times.contains_key(&form) {
            times.clear();
        }
        times.insert(form, self.cancel.worker_time().saturating_sub(before));
    }
}

impl Drop for TimedQuery<'_> {
    fn drop(&mut self) {
        self.times.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What has the same code on a device: a plan but for its constants, over the same data.
pub(crate) fn form(query: &Query) -> Option<Fingerprint> {
    let identities = query.sources.iter().map(|source| source.identity());
    let identities = identities.collect::<Option<Vec<String>>>()?;
    Some(Fingerprint::of(&(query.plan.without_constants(), identities)))
}
