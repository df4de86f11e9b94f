//! Persistent worker threads that run the blocks of launches.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::memory::Block;
use crate::{CancelToken, DeviceError};

/// How often a waiting launcher looks at its cancel token.
const CANCEL_POLL: Duration = Duration::from_millis(3);

/// What a worker runs for one block of a launch: block number and the worker's shared memory.
pub(super) type BlockTask = Box<dyn Fn(u32, *mut u8) + Send + Sync>;

/// One launch. Who runs a block lets go of the task before the block counts as finished: the task holds the buffers of the
/// launch, and their memory is to be free again once the launch is over.
#[derive(Clone)]
struct Job {
    task: Arc<BlockTask>,
    state: Arc<JobState>,
}

/// How far a launch is.
struct JobState {
    blocks: u32,
    shared_bytes: usize,
    status: Arc<AtomicU32>,
    progress: Mutex<Progress>,
    done: Condvar,
}

#[derive(Default)]
struct Progress {
    finished: u32,
    started: Option<Instant>,
    run_time: Duration,
    /// Why a block did not run to its end.
    failure: Option<String>,
}

/// Launches in order of arrival, each with its next block. Workers take from the first, so a launch never waits for
/// one that came later, and two launches overlap only where the first leaves workers idle.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Job, u32)>,
    shut_down: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

/// The worker threads of a CPU device; they end when it is dropped.
pub(super) struct WorkerPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerPool {
    pub(super) fn new(workers: u32) -> std::io::Result<WorkerPool> {
        let mut pool = WorkerPool { shared: Arc::default(), threads: Vec::new() };
        for index in 0..workers {
            let shared = pool.shared.clone();
            let builder = std::thread::Builder::new().name(format!("kelpie-worker-{index}"));
            // Where one cannot be spawned, dropping `pool` ends those that were.
            pool.threads.push(builder.spawn(move || work(&shared))?);
        }
        Ok(pool)
    }

    /// Runs `task` once a block and waits for all; the time from the first block's start to the last one's end.
    /// Cancelling sets `status` to 1, which kernels poll, and skips the blocks that have not started.
    pub(super) fn run(
        &self,
        blocks: u32,
        shared_bytes: usize,
        status: &Arc<AtomicU32>,
        cancel: &CancelToken,
        task: BlockTask,
    ) -> Result<Duration, String> {
        let state = Arc::new(JobState {
            blocks,
            shared_bytes,
            status: status.clone(),
            progress: Mutex::default(),
            done: Condvar::new(),
        });
        let note_cancellation = || {
            if cancel.is_cancelled() {
                let _ = status.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            }
        };
        // The blocks may be done before the first look below.
        note_cancellation();
        let job = Job { task: Arc::new(task), state: state.clone() };
        self.shared.queue.lock().jobs.push_back((job, 0));
        match blocks {
            1 => _ = self.shared.work.notify_one(),
            _ => _ = self.shared.work.notify_all(),
        }
        let mut progress = state.progress.lock();
        while progress.finished < blocks {
            state.done.wait_for(&mut progress, CANCEL_POLL);
            note_cancellation();
        }
        match progress.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(progress.run_time),
        }
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerPool({} threads)", self.threads.len())
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.shared.queue.lock().shut_down = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A worker catches panics; there is nothing to report.
            let _ = thread.join();
        }
    }
}

/// The life of a worker.
fn work(shared: &Shared) {
    let mut memory: Option<Block> = None;
    while let Some((Job { task, state }, block)) = next_block(shared) {
        let outcome = state.try_block(&task, block, &mut memory);
        drop(task);
        state.finish_block(outcome);
    }
}

fn next_block(shared: &Shared) -> Option<(Job, u32)> {
    let mut queue = shared.queue.lock();
    loop {
        if let Some((job, next)) = queue.jobs.front_mut() {
            let (job, block) = (job.clone(), *next);
            *next += 1;
            if *next == job.state.blocks {
                queue.jobs.pop_front();
            }
            return Some((job, block));
        }
        if queue.shut_down {
            return None;
        }
        shared.work.wait(&mut queue);
    }
}

impl JobState {
    fn finish_block(&self, outcome: Result<(), String>) {
        let mut progress = self.progress.lock();
        if let Err(failure) = outcome {
            // The other blocks need not go on.
            let _ = self.status.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            progress.failure.get_or_insert(failure);
        }
        progress.finished += 1;
        if progress.finished == self.blocks {
            progress.run_time = progress.started.map_or(Duration::ZERO, |started| started.elapsed());
            self.done.notify_all();
        }
    }

    fn try_block(&self, task: &BlockTask, block: u32, memory: &mut Option<Block>) -> Result<(), String> {
        self.progress.lock().started.get_or_insert_with(Instant::now);
        // Cancelled, or another block failed. What a kernel reports itself does not stop the others.
        if self.status.load(Ordering::Relaxed) == 1 {
            return Ok(());
        }
        if memory.as_ref().is_none_or(|memory| memory.bytes() < self.shared_bytes) {
            *memory = None;
            *memory = Block::new(self.shared_bytes);
        }
        let Some(memory) = memory else {
            return Err(format!("no memory for a worker's {} bytes", self.shared_bytes));
        };
        catch_unwind(AssertUnwindSafe(|| task(block, memory.as_ptr()))).map_err(|panic| {
            let message = panic.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("a worker panicked: {}", message.unwrap_or("no message"))
        })
    }
}

/// The failure of a launch.
pub(super) fn launch_failed(device: &str, kernel: &str, message: impl Into<String>) -> DeviceError {
    DeviceError::Failed {
        device: device.into(),
        operation: format!("launch of kernel {kernel}"),
        message: message.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_runs_once_also_with_more_blocks_than_workers() {
        let pool = WorkerPool::new(3).unwrap();
        for blocks in [1, 2, 3, 100] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let (inner, status) = (seen.clone(), Arc::default());
            let task: BlockTask = Box::new(move |block, shared| {
                assert_eq!(shared as usize % 64, 0);
                inner.lock().push(block);
            });
            pool.run(blocks, 1000, &status, &CancelToken::default(), task).unwrap();
            let mut seen = seen.lock().clone();
            seen.sort_unstable();
            assert_eq!(seen, (0..blocks).collect::<Vec<_>>());
        }
    }

    /// Whoever counts the memory in use after a launch does not count what only a worker that is slow to go on still holds.
    #[test]
    fn nothing_holds_a_task_after_its_launch() {
        let pool = WorkerPool::new(16).unwrap();
        for _ in 0..500 {
            let held = Arc::new(());
            let task: BlockTask = Box::new({
                let held = held.clone();
                move |_, _| _ = &held
            });
            pool.run(16, 0, &Arc::default(), &CancelToken::default(), task).unwrap();
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let pool = WorkerPool::new(2).unwrap();
        let status = Arc::default();
        let failing: BlockTask = Box::new(|block, _| assert_ne!(block, 1, "block one"));
        let error = pool.run(4, 0, &status, &CancelToken::default(), failing).unwrap_err();
        assert!(error.contains("block one"), "{error}");
        let status = Arc::default();
        pool.run(4, 0, &status, &CancelToken::default(), Box::new(|_, _| ())).unwrap();
    }

    #[test]
    fn cancelling_sets_the_status_word() {
        let pool = WorkerPool::new(1).unwrap();
        let (status, cancel) = (Arc::<AtomicU32>::default(), CancelToken::default());
        let (polled, token) = (status.clone(), cancel.clone());
        let task: BlockTask = Box::new(move |_, _| {
            token.cancel();
            while polled.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
        });
        pool.run(5, 0, &status, &cancel, task).unwrap();
        assert_eq!(status.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn launches_from_several_threads_share_the_workers() {
        let pool = WorkerPool::new(2).unwrap();
        let total = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (total, status) = (total.clone(), Arc::default());
                        let task: BlockTask = Box::new(move |_, _| _ = total.fetch_add(1, Ordering::Relaxed));
                        pool.run(3, 0, &status, &CancelToken::default(), task).unwrap();
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 8 * 50 * 3);
    }
}
