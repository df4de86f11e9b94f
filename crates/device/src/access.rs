//! Who may touch a block of host memory: any number of readers, or any number of writers of different bytes.

use std::ops::Range;

use parking_lot::{Condvar, Mutex};

/// Held by readers together, and by writers of bytes that do not overlap; never by both.
#[derive(Debug, Default)]
pub(crate) struct Access {
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    readers: usize,
    /// The bytes of each writer.
    written: Vec<Range<usize>>,
}

/// Nobody writes while this lives.
#[derive(Debug)]
pub(crate) struct Reading<'a>(&'a Access);

/// Nobody reads, and nobody else writes these bytes, while this lives.
#[derive(Debug)]
pub(crate) struct Writing<'a>(&'a Access, Range<usize>);

impl Access {
    /// Waits until nobody writes.
    pub(crate) fn read(&self) -> Reading<'_> {
        let mut held = self.held.lock();
        while !held.written.is_empty() {
            self.changed.wait(&mut held);
        }
        held.readers += 1;
        Reading(self)
    }

    /// Those who read at the moment.
    #[cfg(test)]
    pub(crate) fn readers(&self) -> usize {
        self.held.lock().readers
    }

    /// Waits until nobody reads, and nobody writes any of these bytes.
    pub(crate) fn write(&self, bytes: Range<usize>) -> Writing<'_> {
        let overlaps = |other: &Range<usize>| other.start < bytes.end && bytes.start < other.end;
        let mut held = self.held.lock();
        while held.readers > 0 || held.written.iter().any(overlaps) {
            self.changed.wait(&mut held);
        }
        held.written.push(bytes.clone());
        Writing(self, bytes)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock();
        held.readers -= 1;
        let last = held.readers == 0;
        drop(held);
        if last {
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut held = self.0.held.lock();
        if let Some(at) = held.written.iter().position(|bytes| *bytes == self.1) {
            held.written.swap_remove(at);
        }
        drop(held);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Whether `taking` does not return while `held` lives, and does after. A thread that does not wait has a moment to show it:
    /// one that waits shows nothing however long that is.
    fn waits<H>(held: H, taking: impl FnOnce() + Send) -> bool {
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                taking();
                let _ = sender.send(());
            });
            let waited = receiver.recv_timeout(Duration::from_millis(30)).is_err();
            drop(held);
            waited && receiver.recv().is_ok()
        })
    }

    #[test]
    fn writers_of_other_bytes_and_readers_share() {
        let access = Access::default();
        let (first, second) = (access.write(0..8), access.write(8..16));
        drop(access.write(20..20));
        drop((first, second));
        let (first, second) = (access.read(), access.read());
        drop((first, second));
        drop(access.write(0..16));
    }

    #[test]
    fn readers_and_writers_of_the_same_bytes_wait() {
        let access = Access::default();
        assert!(waits(access.write(0..8), || drop(access.write(7..9))));
        assert!(waits(access.write(0..8), || drop(access.read())));
        assert!(waits(access.read(), || drop(access.write(0..8))));
        // Nobody is left in it.
        drop(access.write(0..8));
    }
}
