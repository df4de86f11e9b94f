//! What is known of what a program comes to, by which its launches are deferred ([`deferral`](super::deferral)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kelpie_compile::shape::LaunchShape;
use kelpie_device::DeviceKind;
use parking_lot::Mutex;

use super::setting::Setting;

/// Time of a stage's kernels up to which they are deferred, in nanoseconds: a cancelled query waits for what was launched, and
/// those that take longer do not notice the host.
const MOST_NS: u64 = 20_000_000;
/// How often a stage may come to something else than was foreseen until nothing more is foreseen.
const MISSES: u32 = 3;

/// What is known of what a program comes to.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// The page when it last ended, where its kernels took little time.
    page: Mutex<Option<Arc<Vec<u8>>>>,
    /// How often it came to something else, since it last came to what was foreseen.
    missed: AtomicU32,
}

impl Foresight {
    /// What the page will hold in the end, where launches may be deferred.
    pub fn of(&self, setting: &Setting<'_>) -> Option<Arc<Vec<u8>>> {
        let movement = &setting.movement;
        let is_plain = !movement.kernel_at_a_time && movement.initial_bytes.is_none();
        let mut columns = setting.loaded.iter().flat_map(|data| &data.columns);
        let may = is_plain
            && self.missed.load(Ordering::Relaxed) < MISSES
            && !LaunchShape::of(setting.stream.device().target()).is_serial()
            && columns.all(|column| !column.on_host);
        if may { self.page.lock().clone() } else { None }
    }

    /// The stage came to what was foreseen.
    pub fn came(&self) {
        self.missed.store(0, Ordering::Relaxed);
    }

    /// It came to something else.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        *self.page.lock() = None;
    }

    /// Keeps what a run has come to: the page's content, where its kernels took little time.
    pub fn learn(&self, content: Vec<u8>, (kernel_ns, kind): (u64, DeviceKind)) {
        let mut page = self.page.lock();
        // The interpreter looks at every launch by itself, and is slow.
        if kernel_ns > MOST_NS && kind != DeviceKind::Simt {
            *page = None;
        } else if page.as_ref().is_none_or(|page| **page != content) {
            *page = Some(Arc::new(content));
        }
    }
}
