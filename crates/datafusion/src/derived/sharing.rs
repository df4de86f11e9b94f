//! Cores that have nothing left to read help those that read: they make derived columns of the batches that others have read.
//!
//! Files are read in parts of whole row groups, of which there are seldom as many as cores, or a multiple; while the last ones
//! are read, most cores would wait, though the expressions may take far longer than reading does. The batches of a partition
//! are handed on in its order, whoever made them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use kelpie_engine::source::BatchConsumer;
use kelpie_engine::{CancelToken, EngineError};
use parking_lot::{Condvar, Mutex};

/// Batches that wait for each helper: so many that it need not wait while a reader makes one by itself.
const WAITING: usize = 2;
/// How often a helper without work looks at its cancel token.
const CANCEL_POLL: Duration = Duration::from_millis(5);

/// What is made of a batch.
pub(crate) type Making<'a> = dyn Fn(RecordBatch) -> Result<RecordBatch, EngineError> + Sync + 'a;

/// The work of one read.
pub(crate) struct Sharing<'a> {
    making: &'a Making<'a>,
    consumer: &'a BatchConsumer<'a>,
    cancel: &'a CancelToken,
    /// The order of each partition.
    orders: Vec<Mutex<Order>>,
    state: Mutex<State>,
    /// There is work, or there will be none.
    changed: Condvar,
    /// A batch failed, which whoever made it says: what is left is not made any more.
    failed: AtomicBool,
}

#[derive(Default)]
struct Order {
    /// Batches that were read.
    read: u64,
    /// Batches that were handed on.
    delivered: u64,
    /// Those that were made before their turn.
    early: BTreeMap<u64, RecordBatch>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Threads that still read.
    readers: usize,
    /// Threads that no longer do.
    helpers: usize,
}

/// A batch to make something of, with its number in its partition.
struct Job {
    partition: usize,
    number: u64,
    batch: RecordBatch,
}

/// A thread that reads: from when it is announced until it is dropped.
pub(crate) struct ReaderGuard<'a>(&'a Sharing<'a>);

impl Drop for ReaderGuard<'_> {
    fn drop(&mut self) {
        self.0.state.lock().readers -= 1;
        self.0.changed.notify_all();
    }
}

impl<'a> Sharing<'a> {
    pub(crate) fn new(
        partitions: usize,
        making: &'a Making<'a>,
        consumer: &'a BatchConsumer<'a>,
        cancel: &'a CancelToken,
    ) -> Sharing<'a> {
        let orders = (0..partitions).map(|_| Mutex::default()).collect();
        let (state, changed, failed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        Sharing { making, consumer, cancel, orders, state, changed, failed }
    }

    /// A thread will read. All of them are announced before any helps.
    pub(crate) fn reader(&'a self) -> ReaderGuard<'a> {
        self.state.lock().readers += 1;
        ReaderGuard(self)
    }

    /// Takes the next batch of a partition, from the thread that reads it.
    pub(crate) fn take(&self, partition: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let mut order = self.order(partition)?.lock();
        let number = order.read;
        order.read += 1;
        drop(order);
        let job = Job { partition, number, batch };
        let mut state = self.state.lock();
        if state.jobs.len() < WAITING * state.helpers {
            state.jobs.push_back(job);
            drop(state);
            self.changed.notify_one();
            return Ok(());
        }
        drop(state);
        self.make(job)
    }

    /// Makes batches that others have read, until there are no more.
    pub(crate) fn help(&self) -> Result<(), EngineError> {
        let mut state = self.state.lock();
        state.helpers += 1;
        loop {
            if self.cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            match state.jobs.pop_front() {
                Some(job) => {
                    drop(state);
                    self.make(job)?;
                    state = self.state.lock();
                }
                None if state.readers == 0 => return Ok(()),
                None => {
                    self.changed.wait_for(&mut state, CANCEL_POLL);
                }
            }
        }
    }

    fn make(&self, job: Job) -> Result<(), EngineError> {
        if self.failed.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.try_make(job).inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    fn try_make(&self, job: Job) -> Result<(), EngineError> {
        let Job { partition, number, batch } = job;
        let made = (self.making)(batch)?;
        let mut order = self.order(partition)?.lock();
        order.early.insert(number, made);
        loop {
            let next = order.delivered;
            let Some(batch) = order.early.remove(&next) else { return Ok(()) };
            // The lock keeps the partition's order.
            (self.consumer)(partition, batch)?;
            order.delivered += 1;
        }
    }

    fn order(&self, partition: usize) -> Result<&Mutex<Order>, EngineError> {
        self.orders.get(partition).ok_or_else(|| {
            EngineError::Internal(format!("partition {partition} of {} is read", self.orders.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use datafusion::arrow::array::{AsArray, Int64Array};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    const BATCHES: i64 = 200;
    /// The name of threads that read.
    const READER: &str = "reader";

    /// What was made so far: batches that helpers began, and the latest that is done.
    #[derive(Default)]
    struct Counts {
        by_helpers: usize,
        latest: i64,
    }

    /// Lets threads wait for what others make: readers for helpers, and the first batches for later ones.
    #[derive(Default)]
    struct Made {
        counts: Mutex<Counts>,
        changed: Condvar,
    }

    impl Made {
        fn note(&self, note: impl FnOnce(&mut Counts)) {
            note(&mut self.counts.lock());
            self.changed.notify_all();
        }

        fn wait_for(&self, what: &str, is_there: impl Fn(&Counts) -> bool) {
            let (mut counts, minute) = (self.counts.lock(), Duration::from_secs(60));
            let waited = self.changed.wait_while_for(&mut counts, |counts| !is_there(counts), minute);
            assert!(!waited.timed_out(), "waited a minute for {what}");
        }
    }

    fn batch(value: i64) -> RecordBatch {
        let values = Arc::new(Int64Array::from(vec![value]));
        RecordBatch::try_from_iter([("v", values as _)]).expect("a batch")
    }

    fn value(batch: &RecordBatch) -> i64 {
        batch.column(0).as_primitive::<Int64Type>().value(0)
    }

    /// Reads two partitions, one of them much shorter, with two helpers beside; the values that came, by partition.
    fn run(making: &Making<'_>, cancel: &CancelToken) -> (Vec<Vec<i64>>, Vec<Result<(), EngineError>>) {
        let came = Mutex::new(vec![Vec::new(), Vec::new()]);
        let consumer = |partition: usize, batch: RecordBatch| {
            came.lock()[partition].push(value(&batch));
            Ok(())
        };
        let sharing = &Sharing::new(2, making, &consumer, cancel);
        let readers = [sharing.reader(), sharing.reader()];
        let outcomes = thread::scope(|scope| {
            let mut threads: Vec<_> = (0..2).map(|_| scope.spawn(|| sharing.help())).collect();
            while sharing.state.lock().helpers < 2 {
                thread::yield_now();
            }
            for (partition, reader) in readers.into_iter().enumerate() {
                let read = move || {
                    let last = if partition == 0 { BATCHES } else { 3 };
                    let read = (0..last).try_for_each(|number| sharing.take(partition, batch(number)));
                    drop(reader);
                    read.and(sharing.help())
                };
                let named = thread::Builder::new().name(READER.into());
                threads.push(named.spawn_scoped(scope, read).expect("a thread"));
            }
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        (came.into_inner(), outcomes)
    }

    #[test]
    fn batches_come_in_order_whoever_made_them() {
        let made = Made::default();
        let making = |read: RecordBatch| {
            match thread::current().name() {
                Some(READER) => made.wait_for("a helper", |counts| counts.by_helpers > 0),
                _ => made.note(|counts| counts.by_helpers += 1),
            }
            if value(&read) == 0 {
                made.wait_for("a later batch", |counts| counts.latest >= 3);
            }
            made.note(|counts| counts.latest = counts.latest.max(value(&read)));
            Ok(batch(value(&read) * 10))
        };
        let (came, outcomes) = run(&making, &CancelToken::default());
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(came[0], (0..BATCHES).map(|number| number * 10).collect::<Vec<_>>());
        assert_eq!(came[1], [0, 10, 20]);
    }

    #[test]
    fn after_a_batch_that_fails_nothing_is_made_and_nothing_waits() {
        let making = |read: RecordBatch| match value(&read) {
            150 => Err(EngineError::Internal("150".into())),
            _ => Ok(read),
        };
        let (came, outcomes) = run(&making, &CancelToken::default());
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_err()).count(), 1);
        assert!(came[0].len() <= 150 && came[0].iter().copied().eq(0..came[0].len() as i64), "{came:?}");
        let cancel = CancelToken::default();
        cancel.cancel();
        let (_, outcomes) = run(&|read| Ok(read), &cancel);
        assert!(
            outcomes.iter().any(|outcome| matches!(outcome, Err(EngineError::Cancelled))),
            "{outcomes:?}"
        );
    }
}
