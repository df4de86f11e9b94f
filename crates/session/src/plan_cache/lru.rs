//! A few entries, of which those that were asked for lately stay.

/// Entries with the time they were asked for last; few enough that looking at all of them costs nothing.
#[derive(Debug)]
pub(super) struct Lru<T> {
    entries: Vec<(T, u64)>,
    clock: u64,
}

impl<T> Default for Lru<T> {
    fn default() -> Self {
        Lru { entries: Vec::new(), clock: 0 }
    }
}

impl<T> Lru<T> {
    /// The first entry that fits.
    pub fn find(&mut self, fits: impl Fn(&T) -> bool) -> Option<&T> {
        self.clock += 1;
        let (entry, used) = self.entries.iter_mut().find(|(entry, _)| fits(entry))?;
        *used = self.clock;
        Some(entry)
    }

    /// Adds an entry; the one that nobody has asked for the longest goes where there are as many as there may be.
    pub fn add(&mut self, entry: T, most: usize) {
        while self.entries.len() >= most.max(1) {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, (_, used))| *used);
            match oldest.map(|(place, _)| place) {
                Some(place) => drop(self.entries.swap_remove(place)),
                None => break,
            }
        }
        if most > 0 {
            self.clock += 1;
            self.entries.push((entry, self.clock));
        }
    }

    /// Drops the entries that do not fit.
    pub fn retain(&mut self, mut fits: impl FnMut(&T) -> bool) {
        self.entries.retain(|(entry, _)| fits(entry));
    }

    /// All of them, in no order.
    #[cfg(feature = "testing")]
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(entry, _)| entry)
    }

    /// How many there are.
    #[cfg(any(test, feature = "testing"))]
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_goes() {
        let mut lru = Lru::default();
        (0..3).for_each(|i| lru.add(i, 3));
        assert_eq!(lru.find(|i| *i == 0), Some(&0));
        lru.add(3, 3);
        assert_eq!((lru.len(), lru.find(|i| *i == 1)), (3, None));
        assert_eq!(lru.find(|i| *i == 0), Some(&0));
        assert_eq!(lru.find(|i| *i == 2), Some(&2));
        lru.add(4, 1);
        assert_eq!((lru.len(), lru.find(|i| *i == 4)), (1, Some(&4)));
        lru.add(5, 0);
        assert_eq!(lru.len(), 0);
    }
}
