//! Waiting for the engine without Python's lock.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kelpie_session::Engine;
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::errors::{Kind, raised};

/// How long the end of the interpreter waits for Python code that threads of the engine run.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a waiting thread looks for signals.
const TICK: Duration = Duration::from_millis(50);
/// Queries shorter than this show no progress.
const DELAY: Duration = Duration::from_secs(1);

/// What all sessions of a process share.
pub struct Shared {
    pub runtime: Runtime,
    pub engine: Arc<Engine>,
    /// Threads do not survive a fork.
    process: u32,
}

/// What all sessions share, made at the first call.
pub fn shared(py: Python<'_>) -> PyResult<&'static Shared> {
    static SHARED: OnceLock<std::io::Result<Shared>> = OnceLock::new();
    let shared = py.detach(|| SHARED.get_or_init(made));
    match shared {
        Ok(shared) if shared.process == std::process::id() => Ok(shared),
        Ok(_) => Err(raised(
            py,
            Kind::Interface,
            "Kelpie was used before this process was forked, and its threads are not in the fork: start processes by \"spawn\" \
             (multiprocessing.set_start_method), or use Kelpie first in the fork",
        )),
        Err(error) => Err(raised(py, Kind::Operational, &format!("cannot start threads: {error}"))),
    }
}

fn made() -> std::io::Result<Shared> {
    let runtime = tokio::runtime::Builder::new_multi_thread().thread_name("kelpie").enable_all().build()?;
    Ok(Shared { runtime, engine: Arc::new(Engine::calibrated()), process: std::process::id() })
}

/// Waits for a future without Python's lock. A signal whose handler raises, such as Ctrl-C, drops the future, which cancels what
/// it waits for, and is the error. A function that shows progress is called with the seconds so far, and with `None` at the end.
pub fn wait<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    future: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let shared = shared(py)?;
    if tokio::runtime::Handle::try_current().is_ok() {
        return Err(raised(py, Kind::Interface, "a function that a query calls cannot run a query"));
    }
    py.detach(|| {
        shared.runtime.block_on(async {
            let mut future = std::pin::pin!(future);
            let (start, mut shown) = (Instant::now(), false);
            let result = loop {
                tokio::select! {
                    biased;
                    result = &mut future => break Ok(result),
                    () = tokio::time::sleep(TICK) => {
                        let due = progress.filter(|_| start.elapsed() >= DELAY);
                        shown |= due.is_some();
                        if let Err(error) = tick(due, start) {
                            break Err(error);
                        }
                    }
                }
            };
            if let (true, Some(progress)) = (shown, progress) {
                Python::attach(|py| progress.call1(py, (py.None(),)))?;
            }
            result
        })
    })
}

fn tick(progress: Option<&Py<PyAny>>, start: Instant) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        if let Some(progress) = progress {
            progress.call1(py, (start.elapsed().as_secs_f64(),))?;
        }
        Ok(())
    })
}

/// Whether the interpreter is ending.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Threads of the engine, or of other packages, in Python code.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

/// Runs Python code on a thread that may not be Python's; nothing when the interpreter is ending, where such a thread would be killed in
/// the middle of it.
pub fn attached<T>(code: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let _inside = Inside;
    if ENDING.load(Ordering::SeqCst) {
        return None;
    }
    Python::try_attach(code)
}

/// Called when the interpreter ends: from now on no thread of the engine runs Python code.
#[pyfunction]
pub fn end(py: Python<'_>) {
    ENDING.store(true, Ordering::SeqCst);
    let start = Instant::now();
    py.detach(|| {
        while INSIDE.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
