//! What is made behind the queries, such as the best code of kernels that run already: by threads of low priority.
#![expect(unsafe_code, reason = "the end of a process and the priority of a thread are the C library's")]

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::CancelToken;

/// What is done behind the queries; it is given up where it is cancelled.
pub type Job = Box<dyn FnOnce(&CancelToken) + Send>;

/// Threads that compile, of the machine's: one in four.
const SHARE: usize = 4;

/// Jobs, and the threads that do them. When it is dropped, or the process ends, those that have not begun are left, and those that have
/// are given up and waited for: code of a compiler that still runs when its library is taken down crashes the process.
pub struct Behind {
    state: Arc<State>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Default for Behind {
    fn default() -> Behind {
        let state = Arc::new(State::default());
        end_with_process(&state);
        Behind { state, threads: Mutex::default() }
    }
}

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    ends: CancelToken,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Threads that take jobs.
    busy: usize,
}

impl Behind {
    /// Does a job some time.
    pub fn begin(&self, job: Job) {
        let mut queue = self.state.queue.lock();
        queue.jobs.push_back(job);
        let most = (thread::available_parallelism().map_or(1, usize::from) / SHARE).max(1);
        if queue.busy >= most || self.state.ends.is_cancelled() {
            return;
        }
        let state = Arc::clone(&self.state);
        // Where there is no thread for it, queries go on with what they have.
        match thread::Builder::new().name("kelpie-behind".into()).spawn(move || state.work()) {
            Ok(handle) => {
                queue.busy += 1;
                let mut threads = self.threads.lock();
                threads.retain(|handle| !handle.is_finished());
                threads.push(handle);
            }
            Err(_) if queue.busy == 0 => queue.jobs.clear(),
            Err(_) => {}
        }
    }

    /// Waits until nothing is left to do.
    pub fn wait(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|handle| drop(handle.join()));
    }
}

impl State {
    fn work(&self) {
        lower_priority();
        loop {
            let mut queue = self.queue.lock();
            let job = queue.jobs.pop_front().filter(|_| !self.ends.is_cancelled());
            let Some(job) = job else {
                queue.busy -= 1;
                return;
            };
            drop(queue);
            job(&self.ends);
        }
    }
}

impl std::fmt::Debug for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queue = self.state.queue.lock();
        write!(f, "Behind {{ waiting: {}, busy: {} }}", queue.jobs.len(), queue.busy)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.state.ends.cancel();
        self.wait();
    }
}

/// Those whose jobs are given up when the process ends, whoever holds them then.
static ALL: Mutex<Vec<Weak<State>>> = Mutex::new(Vec::new());
/// At most so long the end of the process waits for a compiler.
const PATIENCE: Duration = Duration::from_secs(5);

/// Gives the jobs up when the process ends.
fn end_with_process(state: &Arc<State>) {
    let mut all = ALL.lock();
    all.retain(|state| state.strong_count() > 0);
    all.push(Arc::downgrade(state));
    drop(all);
    end_before_libraries();
}

/// Lets jobs end before the libraries are taken down that are loaded by now: what runs at the end of a process does so in the reverse of the
/// order in which it was registered. To do nothing a second time costs nothing.
pub(crate) fn end_before_libraries() {
    // SAFETY: the function is of this program, takes nothing, and does not unwind. Where it cannot be registered, a process that ends
    // while a compiler runs may crash.
    let _ = unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    let since = Instant::now();
    // A lock that is held by a thread that will never run again is not waited for.
    let Some(all) = ALL.try_lock_for(PATIENCE) else { return };
    for state in all.iter().filter_map(Weak::upgrade) {
        state.ends.cancel();
        // The lock is not held while this waits: threads need it to end.
        let is_idle = || state.queue.try_lock().is_some_and(|queue| queue.busy == 0);
        while since.elapsed() < PATIENCE && !is_idle() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Lets every thread of queries go before this one.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        const LOWEST: i32 = 19;
        // SAFETY: sets the priority of this thread alone, which on Linux is what 0 means; where it may not, nothing changes.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_jobs_are_done() {
        let (behind, done) = (Behind::default(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            behind.begin(Box::new(move |_| {
                done.fetch_add(1, Ordering::Relaxed);
            }));
        }
        behind.wait();
        assert_eq!(done.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn what_has_begun_is_given_up_at_the_end() {
        let behind = Behind::default();
        let begun = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&begun);
        behind.begin(Box::new(move |ends| {
            mark.store(true, Ordering::Relaxed);
            while !ends.is_cancelled() {
                thread::yield_now();
            }
        }));
        while !begun.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        drop(behind);
    }
}
