//! Threads that queries run on: the engine's own, since a query waits for its readers, and these for the threads of whoever
//! embeds the engine. On threads of a pool that the readers need too, as many queries as it has threads would wait for ever.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Queries that run at once are four for each core, but at least and at most so many; the others wait for their turn.
const PLACES: (usize, usize) = (16, 128);
/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(10);

/// What runs on a thread, with its place among those that run at once.
type Job = Box<dyn FnOnce(&mut Place) + Send>;

/// Threads for queries. Those that run at once have places, of which there are few; a query that waits for whoever takes its
/// rows leaves its place to the next, so that answers nobody takes keep no other query from its turn.
pub struct QueryThreads(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Some thread is to go on.
    woken: Condvar,
    places: usize,
}

#[derive(Default)]
struct State {
    /// Jobs that wait for a place, in their order.
    waiting: VecDeque<Job>,
    /// Places that are taken.
    taken: usize,
    /// Threads that wait for work and were not woken, and those that were woken and do not run yet.
    idle: usize,
    woken: usize,
    /// All threads.
    threads: usize,
    /// Nobody gives them work any more.
    is_ending: bool,
}

/// A place among the queries that run at once.
pub struct Place {
    shared: Arc<Shared>,
    is_held: bool,
}

impl fmt::Debug for QueryThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryThreads").field("places", &self.0.places).finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("is_held", &self.is_held).finish_non_exhaustive()
    }
}

impl Default for QueryThreads {
    fn default() -> QueryThreads {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        QueryThreads::with_places(cores.saturating_mul(4).clamp(PLACES.0, PLACES.1))
    }
}

impl QueryThreads {
    fn with_places(places: usize) -> QueryThreads {
        QueryThreads(Arc::new(Shared { state: Mutex::default(), woken: Condvar::new(), places }))
    }

    /// Runs a job on a thread, once there is a place. An error where no thread can be started, and none runs that would take it
    /// later.
    pub fn run(&self, job: impl FnOnce(&mut Place) + Send + 'static) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.waiting.push_back(Box::new(job));
        let started = self.0.start_waiting(&mut state);
        if started.is_err() && state.threads == 0 {
            // It is the only one: whoever waited before it would have a thread that takes it.
            state.waiting.pop_back();
            return started;
        }
        Ok(())
    }
}

impl Drop for QueryThreads {
    fn drop(&mut self) {
        self.0.state.lock().is_ending = true;
        self.0.woken.notify_all();
    }
}

impl Shared {
    /// Finds a thread for the first of those that wait, if there is a place.
    fn start_waiting(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        // A thread that was woken takes one of them.
        if state.taken >= self.places || state.waiting.len() <= state.woken {
            return Ok(());
        }
        if state.idle > 0 {
            (state.idle, state.woken, state.taken) = (state.idle - 1, state.woken + 1, state.taken + 1);
            self.woken.notify_one();
            return Ok(());
        }
        let Some(job) = state.waiting.pop_front() else { return Ok(()) };
        let (given, shared) = (Arc::new(Mutex::new(Some(job))), Arc::clone(self));
        let taken = Arc::clone(&given);
        let work = move || {
            let job = taken.lock().take();
            work(&shared, job);
        };
        match thread::Builder::new().name("kelpie-query".into()).spawn(work) {
            Ok(_) => {
                (state.threads, state.taken) = (state.threads + 1, state.taken + 1);
                Ok(())
            }
            Err(error) => {
                let job = given.lock().take();
                job.into_iter().for_each(|job| state.waiting.push_front(job));
                Err(error)
            }
        }
    }

    /// The next job of a thread whose place is taken already, or which finds one; none once there was nothing to do for long.
    fn next(&self, mut has_place: bool) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if !has_place && state.taken < self.places && state.waiting.len() > state.woken {
                (state.taken, has_place) = (state.taken + 1, true);
            }
            if has_place {
                if let Some(job) = state.waiting.pop_front() {
                    return Some(job);
                }
                state.taken -= 1;
            }
            has_place = self.wait(&mut state)?;
        }
    }

    /// Waits for a place; none where nothing comes.
    fn wait(&self, state: &mut MutexGuard<'_, State>) -> Option<bool> {
        state.idle += 1;
        while state.woken == 0 {
            if state.is_ending || self.woken.wait_for(state, IDLE).timed_out() && state.woken == 0 {
                (state.idle, state.threads) = (state.idle - 1, state.threads - 1);
                return None;
            }
        }
        state.woken -= 1;
        Some(true)
    }
}

/// What a thread does: one job after the other. The place of the first is taken.
fn work(shared: &Arc<Shared>, first: Option<Job>) {
    /// A thread that ends by a panic is counted no more.
    struct Counted<'a>(&'a Shared);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.state.lock().threads -= 1;
        }
    }
    let counted = Counted(shared);
    let mut next = first;
    while let Some(job) = next {
        let mut place = Place { shared: Arc::clone(shared), is_held: true };
        job(&mut place);
        next = shared.next(place.keep());
    }
    // `next` has counted it when it found nothing to do.
    std::mem::forget(counted);
}

impl Place {
    /// Leaves the place to the next: what is left of this query waits for somebody else, for as long as they like. It goes on
    /// without a place afterwards.
    pub fn leave(&mut self) {
        if std::mem::take(&mut self.is_held) {
            let mut state = self.shared.state.lock();
            state.taken -= 1;
            // Without a thread for it, the next one begins when one of those that run has ended.
            let _ = self.shared.start_waiting(&mut state);
        }
    }

    /// Keeps the place for the next job of this thread; whether it was still held.
    fn keep(mut self) -> bool {
        std::mem::take(&mut self.is_held)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn no_more_run_at_once_than_there_are_places() {
        let threads = QueryThreads::with_places(3);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, ends) = mpsc::channel();
        for _ in 0..100 {
            let (running, most, done) = (Arc::clone(&running), Arc::clone(&most), done.clone());
            let job = move |_: &mut Place| {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, Ordering::SeqCst);
                let _ = done.send(());
            };
            threads.run(job).expect("a thread");
        }
        (0..100).for_each(|_| ends.recv_timeout(SOON).expect("all end"));
        assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
        assert!(threads.0.state.lock().threads <= 3);
    }

    #[test]
    fn who_leaves_its_place_holds_up_nobody() {
        let threads = QueryThreads::with_places(2);
        let (done, ends) = mpsc::channel();
        // Each waits for all that come after it.
        let mut before: Option<mpsc::Sender<()>> = None;
        for _ in 0..50 {
            let (go_on, told) = mpsc::channel();
            let (done, wakes) = (done.clone(), before.replace(go_on));
            let job = move |place: &mut Place| {
                place.leave();
                if told.recv_timeout(SOON).is_ok() {
                    let _ = done.send(());
                }
                let _ = wakes.map(|wakes| wakes.send(()));
            };
            threads.run(job).expect("a thread");
        }
        before.expect("the last").send(()).expect("it waits");
        (0..50).for_each(|_| ends.recv_timeout(SOON).expect("all end"));
    }

    #[test]
    fn a_job_that_panics_gives_its_place_back() {
        let threads = QueryThreads::with_places(1);
        let (done, ends) = mpsc::channel();
        for number in 0..6 {
            let done = done.clone();
            let job = move |_: &mut Place| {
                assert!(number % 2 == 1, "a panic of a test");
                let _ = done.send(());
            };
            threads.run(job).expect("a thread");
        }
        (0..3).for_each(|_| ends.recv_timeout(SOON).expect("the others run"));
    }
}
