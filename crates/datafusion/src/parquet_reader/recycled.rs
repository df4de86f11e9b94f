//! Memory of pages that were read, for those that come next. Memory that is new to a process is cleared page by page as it is first
//! written, which takes longer than to write it.

use std::sync::Arc;

use bytes::Bytes;
use kelpie_engine::prefer_huge_pages;
use parking_lot::Mutex;

/// Pieces of memory that nobody uses.
#[derive(Debug, Clone, Default)]
pub(super) struct Recycled(Arc<Mutex<Vec<Vec<u8>>>>);

/// The size of a piece is a multiple of this, so that the next page, which is a little longer, fits too.
const STEP_BYTES: usize = 64 << 10;

/// A piece that is in use.
struct Lent {
    memory: Vec<u8>,
    length: usize,
    home: Recycled,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.memory.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.0.lock().push(std::mem::take(&mut self.memory));
    }
}

impl Recycled {
    /// So many bytes, as `fill` writes them over what was there.
    pub(super) fn bytes<E>(
        &self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let mut lent = Lent { memory: self.take(length), length, home: self.clone() };
        fill(lent.memory.get_mut(..length).unwrap_or_default())?;
        Ok(Bytes::from_owner(lent))
    }

    /// The smallest piece of at least so many bytes, or a new one in place of the largest: there are never more than were in use at once.
    fn take(&self, length: usize) -> Vec<u8> {
        let mut free = self.0.lock();
        let large = free.iter().enumerate().filter(|(_, memory)| memory.len() >= length);
        match large.min_by_key(|(_, memory)| memory.len()) {
            Some((place, _)) => free.swap_remove(place),
            None => {
                let all = free.iter().enumerate();
                if let Some((largest, _)) = all.max_by_key(|(_, memory)| memory.len()) {
                    free.swap_remove(largest);
                }
                let length = length.next_multiple_of(STEP_BYTES);
                let mut memory = Vec::with_capacity(length);
                prefer_huge_pages(&mut memory);
                memory.resize(length, 0);
                memory
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_as_soon_as_nobody_has_it() {
        let recycled = Recycled::default();
        let of = |length: usize, byte: u8| {
            let fill = |out: &mut [u8]| {
                out.fill(byte);
                Ok::<(), ()>(())
            };
            recycled.bytes(length, fill).unwrap()
        };
        let (first, second) = (of(10, 1), of(STEP_BYTES + 1, 2));
        let slice = second.slice(5..);
        assert_eq!((first.len(), second.len(), slice[0]), (10, STEP_BYTES + 1, 2));
        let place = second.as_ptr();
        drop(second);
        // A part of it is still in use.
        assert_ne!(of(STEP_BYTES + 1, 3).as_ptr(), place);
        drop(slice);
        let small = of(20, 4);
        assert!(small.iter().all(|byte| *byte == 4) && small.as_ptr() != first.as_ptr());
        assert_eq!(of(0, 0).len(), 0);
        assert_eq!(recycled.bytes(1, |_| Err("no")), Err("no"));
        // Pages that grow leave no pieces behind them.
        let before = recycled.0.lock().len();
        (1..20).for_each(|step| drop(of(step * 2 * STEP_BYTES, 5)));
        assert!(recycled.0.lock().len() <= before);
    }
}
