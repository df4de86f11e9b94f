//! Programs of variants that are compiled while queries run by others: no query waits for one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use kelpie_device::Tier;
use parking_lot::Mutex;

use crate::learned::Fingerprint;
use crate::stack::with_room;
use crate::stage::{Blueprint, Prepared};

/// A program that is asked for.
#[derive(Debug, Clone)]
pub(crate) enum Slot {
    /// A thread makes it.
    Compiling,
    /// It can run.
    Ready(Arc<Prepared>),
    /// It does not compile.
    Failed(String),
}

/// A place for a program.
pub(crate) type Place = Arc<Mutex<Slot>>;

/// Compiles one program at a time. Its thread has ended when this is dropped: compilers of drivers do not outlive a process well.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    busy: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Behind {
    /// Whether a program is being compiled, which takes time of whatever runs beside.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Waits until no program is being compiled.
    pub fn wait(&self) {
        let _ = self.thread.lock().take().map(JoinHandle::join);
    }

    /// Begins to compile a program; `None` where another is being compiled, or there is no thread for it. `waits`: it is done in this
    /// thread, and ready then.
    pub fn begin(&self, blueprint: Blueprint<'static>, stage: Fingerprint, waits: bool) -> Option<Place> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return None;
        }
        let (place, busy) = (Arc::new(Mutex::new(Slot::Compiling)), Busy(Arc::clone(&self.busy)));
        let filled = Arc::clone(&place);
        let job = move || {
            let _busy = busy;
            // What is measured is what will run.
            let compiled = with_room(&blueprint.plan, || blueprint.compile(stage, Tier::Best));
            let slot = match compiled {
                Ok(prepared) => Slot::Ready(Arc::new(prepared)),
                Err(error) => Slot::Failed(error.to_string()),
            };
            *filled.lock() = slot;
        };
        if waits {
            job();
            return Some(place);
        }
        // The thread before this one has ended, or is about to.
        let thread = thread::Builder::new().name("kelpie-variants".into()).spawn(job).ok()?;
        *self.thread.lock() = Some(thread);
        Some(place)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.wait();
    }
}

/// Held while a program is compiled, whatever becomes of it.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
