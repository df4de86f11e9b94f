//! Statements of any depth.
//!
//! The text of a query decides how deep the trees are that parser, planner and operators walk by recursion, and the
//! embedder how large the stack of a thread is. DataFusion protects most of its walks by stacks that grow
//! (`recursive_protection`), but not those of `Drop`, `Clone`, `Hash` and the like, nor evaluation. So
//! - a statement is measured from its tokens before anything recurses (`statement`); one that is too deep for any stack or
//!   any patience is an error,
//! - its planning runs on a stack that is large enough for it ([`Room::run`]), a deep one on a thread of its own, which
//!   whoever waits for it may leave,
//! - long chains of AND and OR become balanced trees, which are not deep ([`balance`]),
//! - a physical plan is measured too (`shape`), and its deep parts are executed and dropped on stacks of their own
//!   ([`protect`]).

mod balance;
mod guard;
mod shape;
mod statement;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use kelpie_engine::with_stack;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use balance::balance;
pub use guard::{is_shallow, protect};
pub use shape::with_room;
pub(crate) use shape::{Shape, expr_depth, operands};
pub use statement::{Depth, LIMIT as MOST_LEVELS};

/// What planning takes that is not deep.
const BASE_BYTES: usize = 1 << 20;
/// What a level takes in parser and planner: most where functions are inlined into each other, as sqlparser's that find the place of
/// a query in a text are (a subquery in FROM is several levels and takes 52 KB).
const LEVEL_BYTES: usize = 24 << 10;
/// No stack is larger: it is reserved, not used, but the reservation may be limited.
const MOST_BYTES: usize = 1 << 30;
/// From so many levels, or queries inside each other, on, planning may take long and gets a thread of its own.
const LONG_LEVELS: usize = 1000;
const LONG_QUERIES: usize = 8;

/// How much stack the planning of a statement gets.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    levels: usize,
    /// Whether planning may take long.
    is_long: bool,
}

impl Room {
    /// For a statement, and plans of so many levels that it may refer to.
    pub fn of(depth: Depth, kept: usize) -> Room {
        let levels = depth.parsed.saturating_add(kept);
        Room { levels, is_long: depth.parsed >= LONG_LEVELS || depth.queries >= LONG_QUERIES }
    }

    fn bytes(self) -> usize {
        (BASE_BYTES + self.levels.saturating_mul(LEVEL_BYTES)).min(MOST_BYTES)
    }

    /// Awaits a future on a stack of this size. Dropping what is returned drops the future at its next await.
    pub async fn run<T, F>(self, future: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let future = OnStack { future: Some(Box::pin(future)), bytes: self.bytes() };
        match Handle::try_current() {
            Ok(handle) if self.is_long => on_thread(handle, future).await,
            _ => future.await,
        }
    }
}

/// Awaits a future on a thread of its own: whoever waits for it may leave at any time, also while it does not yield.
async fn on_thread<T: Send + 'static>(
    handle: Handle,
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (mut sender, receiver) = oneshot::channel();
    let work = move || {
        handle.block_on(async move {
            tokio::select! {
                biased;
                () = sender.closed() => {}
                result = future => {
                    // Nobody waits for it any more.
                    let _ = sender.send(result);
                }
            }
        });
    };
    let thread = std::thread::Builder::new().name("kelpie-planner".into());
    thread
        .spawn(work)
        .map_err(|error| DataFusionError::IoError(error).context("starting a thread to plan on"))?;
    match receiver.await {
        Ok(result) => result,
        Err(_) => exec_err!("the planning of a deeply nested statement broke down"),
    }
}

/// What may hold plans of so many levels, and is dropped with as much stack as that takes.
pub struct Held<T> {
    /// Absent only while it is dropped.
    value: Option<T>,
    levels: Arc<AtomicUsize>,
}

impl<T> Held<T> {
    /// Holds something whose plans have as many levels as `levels` says when it is dropped.
    pub fn new(value: T, levels: Arc<AtomicUsize>) -> Held<T> {
        Held { value: Some(value), levels }
    }
}

impl<T> std::ops::Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("it is used while it is dropped"),
        }
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        let value = self.value.take();
        let room = Room { levels: self.levels.load(Ordering::Relaxed), is_long: false };
        with_stack(room.bytes(), || drop(value));
    }
}

/// A future that is polled and dropped with so many bytes of stack.
struct OnStack<F: Future> {
    future: Option<Pin<Box<F>>>,
    bytes: usize,
}

impl<F: Future> Future for OnStack<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        with_stack(this.bytes, || {
            let Some(future) = &mut this.future else { return Poll::Pending };
            let polled = future.as_mut().poll(cx);
            if polled.is_ready() {
                this.future = None;
            }
            polled
        })
    }
}

impl<F: Future> Drop for OnStack<F> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            with_stack(self.bytes, || drop(future));
        }
    }
}
