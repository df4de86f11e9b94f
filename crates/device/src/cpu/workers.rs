//! The worker threads of a process, which run the blocks of launches in the order that [`Schedule`] says.
//!
//! A block runs as a coroutine, on a stack of its own, so that a worker can lay it aside in the middle of its work and take it up again
//! after others. It stays on its worker.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use kelpie_backend::cpu::LaunchStatus;
use parking_lot::{Condvar, Mutex};

use super::schedule::{Asking, BlockOf, Moment, Next, Schedule, Withdrawn};
use crate::memory::Block;
use crate::{CancelToken, DeviceError};

/// How often a waiting launcher looks at its cancel token, and whether others have had enough to give way.
const POLL: Duration = Duration::from_millis(3);
/// Threads for each core, and at least: who asks for more workers than that has their blocks run one after another.
const MOST_THREADS: (usize, usize) = (4, 16);
/// Bytes of a block's stack, as threads have.
const STACK_BYTES: usize = 2 << 20;
/// Stacks and memory that a worker keeps for blocks to come.
const KEPT: usize = 2;

/// What a worker runs for one block of a launch.
pub(super) type BlockTask = Box<dyn Fn(&BlockRun<'_>) + Send + Sync>;

/// One block on its worker.
pub(super) struct BlockRun<'a> {
    /// Its number.
    pub block: u32,
    /// The worker's shared memory.
    pub shared: *mut u8,
    worker: usize,
    workers: &'a Shared,
    state: &'a JobState,
    yielder: &'a Yielder<(), ()>,
}

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
    status: Arc<LaunchStatus>,
    /// Its query's.
    token: CancelToken,
    progress: Mutex<Progress>,
    done: Condvar,
}

#[derive(Default)]
struct Progress {
    finished: u32,
    started: Option<Instant>,
    /// The longest time that one of the blocks has waited while others had its worker.
    aside: Duration,
    run_time: Duration,
    /// Why a block did not run to its end.
    failure: Option<String>,
}

/// A launch that waits for its blocks.
pub(super) struct Blocks<'a> {
    pub blocks: u32,
    /// Bytes that a worker has for a block.
    pub shared_bytes: usize,
    pub status: &'a Arc<LaunchStatus>,
    pub cancel: &'a CancelToken,
}

struct Queue {
    schedule: Schedule<Job>,
    threads: Vec<JoinHandle<()>>,
    shut_down: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    began: Instant,
}

/// Worker threads; they end when it is dropped.
pub(super) struct WorkerPool {
    shared: Arc<Shared>,
}

/// The most threads that a process has for its launches.
fn most_threads(cores: u32) -> usize {
    (cores as usize).saturating_mul(MOST_THREADS.0).max(MOST_THREADS.1)
}

impl WorkerPool {
    /// The workers of this process: as many as there are cores, or as were asked for at most, within bounds.
    pub(super) fn of_process(asked: u32) -> std::io::Result<Arc<WorkerPool>> {
        static POOL: OnceLock<Arc<WorkerPool>> = OnceLock::new();
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let pool = POOL.get_or_init(|| Arc::new(WorkerPool::of_cores(cores)));
        pool.grow((cores.max(asked) as usize).min(most_threads(cores)))?;
        Ok(Arc::clone(pool))
    }

    /// No threads yet, for a machine of so many cores.
    fn of_cores(cores: u32) -> WorkerPool {
        let queue = Queue { schedule: Schedule::new(cores), threads: Vec::new(), shut_down: false };
        let shared = Shared { queue: Mutex::new(queue), work: Condvar::new(), began: Instant::now() };
        WorkerPool { shared: Arc::new(shared) }
    }

    /// Starts threads until there are so many; an error where there is none.
    fn grow(&self, threads: usize) -> std::io::Result<()> {
        let mut queue = self.shared.queue.lock();
        while queue.threads.len() < threads {
            let (shared, worker) = (Arc::clone(&self.shared), queue.threads.len());
            let builder = std::thread::Builder::new().name(format!("kelpie-worker-{worker}"));
            match builder.spawn(move || work(&shared, worker)) {
                Ok(thread) => queue.threads.push(thread),
                // Fewer do the work as well.
                Err(_) if worker > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Runs `task` once a block and waits for all; the time from the first block's start to the last one's end.
    /// Cancelling sets the status to 1, which kernels poll, and the blocks that have not started never do.
    pub(super) fn run(&self, launch: Blocks<'_>, task: BlockTask) -> Result<Duration, String> {
        let Blocks { blocks, shared_bytes, status, cancel } = launch;
        let state = Arc::new(JobState {
            blocks,
            shared_bytes,
            status: status.clone(),
            token: cancel.clone(),
            progress: Mutex::default(),
            done: Condvar::new(),
        });
        // The blocks may be done before the first look below.
        state.note_cancellation();
        let job = Job { task: Arc::new(task), state: state.clone() };
        let number = self.shared.add(job);
        match blocks {
            1 => _ = self.shared.work.notify_one(),
            _ => _ = self.shared.work.notify_all(),
        }
        let mut progress = state.progress.lock();
        while progress.finished < blocks {
            if state.done.wait_for(&mut progress, POLL).timed_out() {
                drop(progress);
                let withdrawn = self.shared.look_after(number, &state);
                progress = state.progress.lock();
                progress.finished += withdrawn;
            }
        }
        match progress.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(progress.run_time),
        }
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkerPool({} threads)", self.shared.queue.lock().threads.len())
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.shut_down = true;
        let threads = std::mem::take(&mut queue.threads);
        drop(queue);
        self.shared.work.notify_all();
        for thread in threads {
            // A worker catches panics; there is nothing to report.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Adds a launch, and asks those to give way whom it passes; its number.
    fn add(&self, job: Job) -> u64 {
        let (blocks, token) = (job.state.blocks, &job.state.token);
        let (had, needs) = (token.worker_time(), token.expected_worker_time());
        let mut queue = self.queue.lock();
        let now = self.now();
        let asking = Asking { arrival: token.arrival(now), had, needs };
        let number = queue.schedule.add(job, blocks, asking, now);
        ask(&queue.schedule, now);
        number
    }

    /// What is to be done while a launch waits: somebody may have had enough by now to give way to it, or it may be cancelled. The
    /// number of its blocks that never start.
    fn look_after(&self, number: u64, state: &JobState) -> u32 {
        state.note_cancellation();
        let mut queue = self.queue.lock();
        let withdrawn = match state.token.is_cancelled() {
            true => queue.schedule.withdraw(number),
            false => None,
        };
        ask(&queue.schedule, self.now());
        drop(queue);
        let Some(Withdrawn { blocks, job }) = withdrawn else { return 0 };
        // As where a block has ended.
        drop(job);
        blocks
    }

    /// What a worker is to do; waits for it. None at the end.
    fn next(&self, worker: usize) -> Option<Next<Job>> {
        let mut queue = self.queue.lock();
        loop {
            let next = queue.schedule.next(worker, self.now(), |job| job.state.token.worker_time());
            if next.is_some() {
                return next;
            }
            if queue.shut_down {
                return None;
            }
            self.work.wait(&mut queue);
        }
    }

    fn ended(&self, worker: usize) {
        let job = self.queue.lock().schedule.ended(worker);
        // Its buffers may be freed with it: outside the lock.
        drop(job);
    }
}

/// Asks the blocks to give way that somebody passes. How many of a launch are asked changes only while the queue is locked.
fn ask(schedule: &Schedule<Job>, now: Moment) {
    let passed = schedule.passed(now);
    passed.iter().for_each(|job| job.state.status.give_way.store(0, Ordering::Relaxed));
    passed.iter().for_each(|job| _ = job.state.status.give_way.fetch_add(1, Ordering::Relaxed));
}

impl BlockRun<'_> {
    /// Lets others have the worker if somebody's turn has come: for a block whose launch is asked to give way.
    pub(super) fn give_way(&self) {
        let mut queue = self.workers.queue.lock();
        let asked = self.state.status.give_way.load(Ordering::Relaxed);
        self.state.status.give_way.store(asked.saturating_sub(1), Ordering::Relaxed);
        let gives_way = queue.schedule.gives_way(self.worker, self.workers.now());
        drop(queue);
        if gives_way {
            self.yielder.suspend(());
        }
    }
}

/// A block that has begun, on a stack of its own.
struct Begun {
    block: BlockOf,
    /// Since when others have its worker, and for how long they had it before.
    aside_since: Option<Instant>,
    aside: Duration,
    state: Arc<JobState>,
    memory: Option<Block>,
    code: Coroutine<(), (), Result<(), String>>,
}

/// What a worker has: blocks that have given way, and what it keeps for others.
#[derive(Default)]
struct Desk {
    paused: Vec<Begun>,
    stacks: Vec<DefaultStack>,
    memory: Vec<Block>,
}

/// The life of a worker.
fn work(shared: &Arc<Shared>, worker: usize) {
    let mut desk = Desk::default();
    while let Some(next) = shared.next(worker) {
        let begun = match next {
            Next::GoOn(block) => desk.take_up(block),
            Next::Start(block, job) => desk.begin(shared, worker, block, job),
        };
        let Some(mut begun) = begun else {
            shared.ended(worker);
            continue;
        };
        let started = Instant::now();
        begun.aside += begun.aside_since.take().map_or(Duration::ZERO, |since| started - since);
        let outcome = begun.code.resume(());
        begun.state.token.add_worker_time(started.elapsed());
        match outcome {
            CoroutineResult::Yield(()) => {
                begun.aside_since = Some(Instant::now());
                desk.paused.push(begun);
            }
            CoroutineResult::Return(outcome) => {
                let aside = begun.aside;
                let state = desk.clear(begun);
                shared.ended(worker);
                state.finish_block(outcome, aside);
            }
        }
    }
}

impl Desk {
    fn take_up(&mut self, block: BlockOf) -> Option<Begun> {
        let index = self.paused.iter().position(|begun| begun.block == block)?;
        Some(self.paused.swap_remove(index))
    }

    /// A block that has not run yet; none where it never will, which its launch is told.
    fn begin(&mut self, shared: &Arc<Shared>, worker: usize, block: BlockOf, job: Job) -> Option<Begun> {
        let Job { task, state } = job;
        let (Some(memory), Some(stack)) = (self.memory(state.shared_bytes), self.stack()) else {
            drop(task);
            let message = format!("no memory for a worker's {} bytes", state.shared_bytes + STACK_BYTES);
            shared.ended(worker);
            state.finish_block(Err(message), Duration::ZERO);
            return None;
        };
        let (own, workers, address) = (Arc::clone(&state), Arc::clone(shared), memory.as_ptr());
        let run = move |yielder: &Yielder<(), ()>, ()| {
            let (state, workers) = (own.as_ref(), workers.as_ref());
            let run = BlockRun { block: block.block, shared: address, worker, workers, state, yielder };
            state.try_block(&task, &run)
        };
        let code = Coroutine::with_stack(stack, run);
        let (aside_since, aside) = (None, Duration::ZERO);
        Some(Begun { block, aside_since, aside, state, memory: Some(memory), code })
    }

    /// Keeps what the next blocks can use of one that has ended.
    fn clear(&mut self, begun: Begun) -> Arc<JobState> {
        let Begun { state, memory, code, .. } = begun;
        if self.stacks.len() < KEPT {
            self.stacks.push(code.into_stack());
        }
        if self.memory.len() < KEPT {
            self.memory.extend(memory);
        }
        state
    }

    fn stack(&mut self) -> Option<DefaultStack> {
        self.stacks.pop().or_else(|| DefaultStack::new(STACK_BYTES).ok())
    }

    fn memory(&mut self, bytes: usize) -> Option<Block> {
        let known = self.memory.pop().filter(|memory| memory.bytes() >= bytes);
        known.or_else(|| Block::new(bytes))
    }
}

impl JobState {
    fn note_cancellation(&self) {
        if self.token.is_cancelled() {
            let _ = self.status.code.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Notes that a block has ended; others had its worker meanwhile for the time `aside`.
    fn finish_block(&self, outcome: Result<(), String>, aside: Duration) {
        let mut progress = self.progress.lock();
        progress.aside = progress.aside.max(aside);
        if let Err(failure) = outcome {
            // The other blocks need not go on.
            let _ = self.status.code.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            progress.failure.get_or_insert(failure);
        }
        progress.finished += 1;
        if progress.finished == self.blocks {
            let time = progress.started.map_or(Duration::ZERO, |started| started.elapsed());
            // What others had of it says nothing of the kernel.
            progress.run_time = time.saturating_sub(progress.aside);
            self.done.notify_all();
        }
    }

    fn try_block(&self, task: &BlockTask, run: &BlockRun<'_>) -> Result<(), String> {
        self.progress.lock().started.get_or_insert_with(Instant::now);
        // Cancelled, or another block failed. What a kernel reports itself does not stop the others.
        if self.status.code.load(Ordering::Relaxed) == 1 {
            return Ok(());
        }
        catch_unwind(AssertUnwindSafe(|| task(run))).map_err(|panic| {
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
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn pool(threads: usize) -> WorkerPool {
        let pool = WorkerPool::of_cores(threads as u32);
        pool.grow(threads).unwrap();
        pool
    }

    fn run(pool: &WorkerPool, blocks: u32, task: BlockTask) -> Result<Duration, String> {
        let (status, cancel) = (Arc::default(), CancelToken::default());
        pool.run(Blocks { blocks, shared_bytes: 1000, status: &status, cancel: &cancel }, task)
    }

    #[test]
    fn every_block_runs_once_also_with_more_blocks_than_workers() {
        let pool = pool(3);
        for blocks in [1, 2, 3, 100] {
            let seen = Arc::new(Mutex::new(Vec::new()));
            let inner = seen.clone();
            let task: BlockTask = Box::new(move |block| {
                assert_eq!(block.shared as usize % 64, 0);
                inner.lock().push(block.block);
            });
            run(&pool, blocks, task).unwrap();
            let mut seen = seen.lock().clone();
            seen.sort_unstable();
            assert_eq!(seen, (0..blocks).collect::<Vec<_>>());
        }
    }

    /// Whoever counts the memory in use after a launch does not count what only a worker that is slow to go on still holds.
    #[test]
    fn nothing_holds_a_task_after_its_launch() {
        let pool = pool(16);
        for _ in 0..500 {
            let held = Arc::new(());
            let task: BlockTask = Box::new({
                let held = held.clone();
                move |_| _ = &held
            });
            run(&pool, 16, task).unwrap();
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let pool = pool(2);
        let error = run(&pool, 4, Box::new(|block| assert_ne!(block.block, 1, "block one"))).unwrap_err();
        assert!(error.contains("block one"), "{error}");
        run(&pool, 4, Box::new(|_| ())).unwrap();
    }

    #[test]
    fn cancelling_sets_the_status_word() {
        let pool = pool(1);
        let (status, cancel) = (Arc::<LaunchStatus>::default(), CancelToken::default());
        let (polled, token) = (status.clone(), cancel.clone());
        let task: BlockTask = Box::new(move |_| {
            token.cancel();
            while polled.code.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
        });
        let launch = Blocks { blocks: 5, shared_bytes: 0, status: &status, cancel: &cancel };
        pool.run(launch, task).unwrap();
        assert_eq!(status.code.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn launches_from_several_threads_share_the_workers() {
        let pool = pool(2);
        let total = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let total = total.clone();
                        run(&pool, 3, Box::new(move |_| _ = total.fetch_add(1, Ordering::Relaxed))).unwrap();
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::Relaxed), 8 * 50 * 3);
    }

    /// Blocks that would never end by themselves let short launches pass, and end once these are done; so do several of them
    /// beside each other.
    #[test]
    fn endless_blocks_give_way_and_are_cancelled() {
        let pool = pool(2);
        let cancel = CancelToken::default();
        let endless = || {
            let status = Arc::<LaunchStatus>::default();
            let polled = status.clone();
            let task: BlockTask = Box::new(move |block| {
                let before = block.shared.addr();
                while polled.code.load(Ordering::Relaxed) == 0 {
                    if polled.give_way.load(Ordering::Relaxed) > 0 {
                        block.give_way();
                    }
                    assert_eq!(block.shared.addr(), before);
                }
            });
            pool.run(Blocks { blocks: 2, shared_bytes: 64, status: &status, cancel: &cancel }, task)
        };
        std::thread::scope(|scope| {
            let endless = [scope.spawn(endless), scope.spawn(endless), scope.spawn(endless)];
            let begun = Instant::now();
            for _ in 0..50 {
                run(&pool, 3, Box::new(|_| std::thread::sleep(Duration::from_micros(100)))).unwrap();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
            assert!(cancel.worker_time() > Duration::ZERO);
            cancel.cancel();
            for endless in endless {
                endless.join().unwrap().unwrap();
            }
        });
        assert_eq!(pool.shared.queue.lock().threads.len(), 2);
    }
}
