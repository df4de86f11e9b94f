//! Where the time of planning goes.
//!
//! A session lends its clock to the task that plans; what stands deep inside of DataFusion's planning charges its own time to
//! that. Planning is one task, so no two of these run at once, and what they took can be subtracted from the whole. Where nobody
//! has lent a clock, nothing is measured.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use kelpie_engine::trace::{self, Track};
use kelpie_engine::{Phase, Split};
use parking_lot::Mutex;

/// Counts the moments from which on somebody wants to know of files.
static MOMENTS: AtomicU64 = AtomicU64::new(0);

/// From now on: what was looked at since then need not be looked at again.
pub fn moment() -> u64 {
    MOMENTS.fetch_add(1, Ordering::SeqCst) + 1
}

/// The latest moment that there was.
pub fn last_moment() -> u64 {
    MOMENTS.load(Ordering::SeqCst)
}

/// What planning has taken so far, and from which moment on: files that were looked at since then need not be looked at again.
#[derive(Debug, Clone)]
pub struct PlanClock {
    taken: Arc<Mutex<Split>>,
    since: u64,
}

impl Default for PlanClock {
    fn default() -> PlanClock {
        PlanClock { taken: Arc::default(), since: moment() }
    }
}

tokio::task_local! {
    static CLOCK: PlanClock;
}

impl PlanClock {
    /// Lends the clock to a future.
    pub async fn lend<T>(&self, planning: impl Future<Output = T>) -> T {
        CLOCK.scope(self.clone(), planning).await
    }

    /// The clock that this task was lent.
    pub fn lent() -> Option<PlanClock> {
        CLOCK.try_with(PlanClock::clone).ok()
    }

    /// The moment at which the planning of this task began.
    pub fn since() -> Option<u64> {
        CLOCK.try_with(|clock| clock.since).ok()
    }

    /// Ends planning, which took so long; what was charged to no phase belongs to one of them.
    pub fn finish(&self, all: Duration, left: Phase) -> Split {
        let mut split = self.taken.lock();
        let rest = (all.as_nanos() as u64).saturating_sub(split.total());
        split.add(left, rest);
        *split
    }

    /// The latest moment that there was.
    pub fn last_moment() -> u64 {
        MOMENTS.load(Ordering::SeqCst)
    }

    /// What planning has taken so far.
    pub fn split(&self) -> Split {
        *self.taken.lock()
    }

    /// Charges time to a phase.
    pub fn charge(&self, phase: Phase, time: Duration) {
        self.taken.lock().add(phase, time.as_nanos() as u64);
    }

    /// As [`timed`], on this clock.
    pub fn timed<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let before = self.taken.lock().total();
        let start = Instant::now();
        let done = work();
        let end = Instant::now();
        let all = (end - start).as_nanos() as u64;
        trace::record(Track::Planning, (start, end), || phase.name().into());
        let mut split = self.taken.lock();
        // What was charged within it is not charged twice.
        let within = split.total() - before;
        split.add(phase, all.saturating_sub(within));
        done
    }
}

/// Does something, and charges it to a phase.
pub fn timed<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    match PlanClock::lent() {
        Some(clock) => clock.timed(phase, work),
        None => work(),
    }
}

/// A future whose work is charged to a phase; what it waits for is not.
pub fn timed_future<F: Future>(phase: Phase, future: F) -> Timed<F> {
    Timed { phase, future: Box::pin(future) }
}

/// See [`timed_future`].
pub struct Timed<F> {
    phase: Phase,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Timed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let phase = self.phase;
        timed(phase, || self.future.as_mut().poll(context))
    }
}
