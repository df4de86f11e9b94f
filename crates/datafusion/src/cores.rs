//! Work on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use kelpie_engine::EngineError;

use crate::derived::sharing::Sharing;

/// Cores that this process may use. Asked of the system once: it answers from several files, which takes longer than a small query.
pub(crate) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, |n| n.get()))
}

/// One thread a core takes partition after partition; the first error stops all. Threads that find none left, where there is
/// something to share all cores, help those that read.
pub(crate) fn on_all_cores(
    partitions: usize,
    read: &(dyn Fn(usize) -> Result<(), EngineError> + Sync),
    sharing: Option<&Sharing<'_>>,
) -> Result<(), EngineError> {
    let cores = cores();
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    let fail = |error| {
        next.store(partitions, Ordering::Relaxed);
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let threads = if sharing.is_some() { cores } else { cores.min(partitions) };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| sharing.map(Sharing::reader)).collect();
        for reader in readers {
            scope.spawn(|| {
                let reader = reader;
                loop {
                    let partition = next.fetch_add(1, Ordering::Relaxed);
                    if partition >= partitions {
                        break;
                    }
                    if let Err(error) = read(partition) {
                        return fail(error);
                    }
                }
                drop(reader);
                if let Some(Err(error)) = sharing.map(Sharing::help) {
                    fail(error);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
