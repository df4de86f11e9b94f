//! Waiting for what another query reads.

use std::sync::Arc;

use kelpie_device::CancelToken;
use parking_lot::{Condvar, Mutex};

/// Counts loads that ended, well or not, and wakes those that wait for one.
#[derive(Debug, Default)]
pub(super) struct Settled {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Settled {
    pub(super) fn count(&self) -> u64 {
        *self.count.lock()
    }

    pub(super) fn wake(&self) {
        *self.count.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until there are more than `seen`, or the query is cancelled.
    pub(super) fn wait(self: &Arc<Self>, seen: u64, cancel: &CancelToken) {
        let this = Arc::clone(self);
        cancel.while_watched(Arc::new(move || this.wake()), || {
            let mut count = self.count.lock();
            self.changed.wait_while(&mut count, |count| *count == seen);
        });
    }
}
