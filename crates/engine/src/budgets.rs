//! What the queries that run ask of each device's memory, and who waits until others have let go of theirs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kelpie_device::{CancelToken, Device, DeviceKind};
use parking_lot::{Condvar, Mutex};

/// How often a query that waits looks whether anybody goes on whom it waits for.
const POLL: Duration = Duration::from_millis(10);
/// How long a query waits for memory: then it goes on in less.
const PATIENCE: Duration = Duration::from_secs(10);

/// Queries of a device share its memory, and so its budget: it is the largest that any of them asks for, so that none loses what it
/// was promised to another that begins beside it. On the CPU those with the same limit have a device of their own, which is told its
/// limit when it is made (`devices`), and share no memory with others.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    of_devices: Mutex<HashMap<usize, OfDevice>>,
    /// A query has ended, and one that waits may go on.
    ended: Condvar,
    /// Queries that wait for whoever takes their rows, on all devices.
    handing_out: AtomicUsize,
}

#[derive(Debug, Default)]
struct OfDevice {
    /// What each query asks for.
    limits: Vec<Option<u64>>,
    /// Queries that wait for memory, and how many of them may go on.
    waiting: usize,
    called: usize,
}

/// A query's claim to a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Budget {
    all: Arc<Budgets>,
    device: Arc<dyn Device>,
    limit: Option<u64>,
}

/// A query that waits for whoever takes its rows, while it lives.
pub(crate) struct HandingOut<'a>(&'a Budgets);

impl Budgets {
    pub(crate) fn ask(this: &Arc<Budgets>, device: &Arc<dyn Device>, limit: Option<u64>) -> Budget {
        let mut all = this.of_devices.lock();
        let of_device = all.entry(device.memory_id()).or_default();
        of_device.limits.push(limit);
        set_largest(device, &of_device.limits);
        Budget { all: Arc::clone(this), device: Arc::clone(device), limit }
    }

    /// Notes that a query hands out rows: it may not go on before another query has, whose rows are wanted first.
    pub(crate) fn hand_out(&self) -> HandingOut<'_> {
        self.handing_out.fetch_add(1, Ordering::Relaxed);
        HandingOut(self)
    }
}

impl Drop for HandingOut<'_> {
    fn drop(&mut self) {
        self.0.handing_out.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OfDevice {
    /// Whether some query goes on by itself beside those that wait.
    fn anybody_runs(&self, handing_out: usize) -> bool {
        self.limits.len() > self.waiting + handing_out
    }
}

impl Budget {
    /// Whether no other query claims the device's memory.
    pub(crate) fn is_alone(&self) -> bool {
        self.all.of_devices.lock().get(&self.device.memory_id()).is_none_or(|own| own.limits.len() <= 1)
    }

    /// Waits until another query of the device has ended, for one that found no memory and holds none; whether it is worth trying
    /// again. Each that ends lets one go on, so that no more run at once than fit.
    ///
    /// It is not where nobody runs who does not wait in turn, for memory or for whoever takes his rows: then the query has to do
    /// with the memory that there is.
    pub(crate) fn wait_for_memory(&self, cancel: &CancelToken) -> bool {
        let (start, key) = (Instant::now(), self.device.memory_id());
        let handing_out = || self.all.handing_out.load(Ordering::Relaxed);
        let mut all = self.all.of_devices.lock();
        match all.get_mut(&key) {
            // This query runs itself.
            Some(own) if own.anybody_runs(handing_out() + 1) => own.waiting += 1,
            _ => return false,
        }
        loop {
            self.all.ended.wait_for(&mut all, POLL);
            let Some(own) = all.get_mut(&key) else { return false };
            let is_called = own.called > 0;
            if is_called
                || cancel.is_cancelled()
                || start.elapsed() > PATIENCE
                || !own.anybody_runs(handing_out())
            {
                own.called -= usize::from(is_called);
                own.waiting -= 1;
                own.called = own.called.min(own.waiting);
                return is_called;
            }
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let mut all = self.all.of_devices.lock();
        let key = self.device.memory_id();
        let Some(own) = all.get_mut(&key) else { return };
        if let Some(place) = own.limits.iter().position(|limit| *limit == self.limit) {
            own.limits.swap_remove(place);
        }
        if own.limits.is_empty() {
            // Its last budget is left to it, by which it may be looked at, until another query begins.
            all.remove(&key);
            return;
        }
        set_largest(&self.device, &own.limits);
        if own.waiting > own.called {
            own.called += 1;
            self.all.ended.notify_all();
        }
    }
}

/// Gives a device the largest of some budgets. Its own default is the largest.
fn set_largest(device: &Arc<dyn Device>, limits: &[Option<u64>]) {
    if device.kind() == DeviceKind::Cpu {
        return;
    }
    let own = limits.iter().any(Option::is_none);
    device.set_memory_limit(limits.iter().flatten().max().copied().filter(|_| !own));
}

#[cfg(test)]
mod tests {
    use std::thread;

    use kelpie_device::cpu::CpuDevice;

    use super::*;

    fn claims(queries: usize) -> (Arc<Budgets>, Vec<Budget>) {
        let all = Arc::<Budgets>::default();
        let device: Arc<dyn Device> = CpuDevice::new(Some(1)).unwrap();
        let claims = (0..queries).map(|_| Budgets::ask(&all, &device, None)).collect();
        (all, claims)
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let (all, mut claims) = claims(2);
        let cancel = CancelToken::default();
        assert!(!claims[0].is_alone());
        // The other waits for whoever takes its rows.
        let handing_out = all.hand_out();
        assert!(!claims[0].wait_for_memory(&cancel));
        drop(handing_out);
        claims.pop();
        assert!(claims[0].is_alone() && !claims[0].wait_for_memory(&cancel));
    }

    #[test]
    fn each_that_ends_lets_one_go_on() {
        let (all, mut claims) = claims(5);
        let runs = claims.pop().unwrap();
        let waiting = |all: &Budgets| all.of_devices.lock().values().map(|own| own.waiting).sum::<usize>();
        let threads: Vec<_> = claims
            .into_iter()
            .map(|claim| thread::spawn(move || claim.wait_for_memory(&CancelToken::default())))
            .collect();
        while waiting(&all) < 4 {
            thread::yield_now();
        }
        // The last one that runs may not wait for the others.
        assert!(!runs.wait_for_memory(&CancelToken::default()));
        drop(runs);
        // Each that went on has ended with its thread, and called the next.
        assert_eq!(threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count(), 4);
        assert_eq!(waiting(&all), 0);
    }

    #[test]
    fn who_is_cancelled_or_left_by_all_others_waits_no_longer() {
        let (all, claims) = claims(2);
        let [first, second] = <[Budget; 2]>::try_from(claims).unwrap();
        let cancel = CancelToken::default();
        cancel.cancel();
        assert!(!first.wait_for_memory(&cancel));
        let waits = thread::spawn(move || first.wait_for_memory(&CancelToken::default()));
        let handing_out = all.hand_out();
        assert!(!waits.join().unwrap());
        drop((handing_out, second));
    }
}
