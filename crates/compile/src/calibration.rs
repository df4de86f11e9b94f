//! What was measured of a device, for the rules whose numbers stand for the size of a cache (Karnagel et al. 2015, sections 4 and 5).
//!
//! Each number that a rule takes from here is a function of what was measured, and has a default, which is the number that the rules
//! were written with: where nothing was measured every decision is the one that it would be without this module. Which constants
//! decided, the reasons of choices say: they end in `(measured)`.

use std::borrow::Cow;

/// Bytes of a core's second-level cache, where nothing is measured.
const ASSUMED_CORE: u64 = 512 << 10;
/// Bytes of a multiprocessor's first-level cache, where nothing is measured.
const ASSUMED_MULTIPROCESSOR: u64 = 128 << 10;
/// Bytes of the last cache before memory that cores of a CPU, or all multiprocessors of a GPU, share, where nothing is measured.
const ASSUMED_SHARED: u64 = 32 << 20;
const ASSUMED_DEVICE: u64 = 50 << 20;
/// Bytes of a slot of a direct-addressed index.
const SLOT_BYTES: u64 = 4;
/// Share of a multiprocessor's cache that the bitmap of an index may have: the columns' rows and other indexes go through it too.
const BITMAP_SHARE: u64 = 16;
/// Slots of a direct-addressed index whatever the rows, at most: their bits are cleared in each run.
const MOST_SLOTS: u64 = 1 << 20;
/// Slots of a direct-addressed table of groups at most, however large the cache is: each is cleared and looked at in each run.
const MOST_GROUP_SLOTS: u64 = 1 << 24;
/// Part of the rows that bringing them into parts may be worth by measured rates, at least: below, the launches themselves count.
const MOST_GAIN: u64 = 4;

/// Bytes of a page, columns of rows that come into parts, and parts that there may be however few pages are translated at once.
const PAGE_BYTES: u64 = 4 << 10;
const COLUMNS_OF_PARTS: u64 = 2;
const LEAST_PARTS: u64 = 16;
/// Bytes of a cache line, and parts that there may be however few lines a cache has.
const LINE_BYTES: u64 = 64;
const LEAST_CACHED_PARTS: u64 = 64;

/// What was measured of a device. The default is that nothing was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Calibration {
    /// Bytes of the cache that a CPU's core (its second level) or a GPU's multiprocessor (its first) has for itself.
    pub core_cache: Option<u64>,
    /// Bytes of the last cache before memory.
    pub last_cache: Option<u64>,
    /// Bytes whose pages are translated without a search, where that is less than the memory that there is.
    pub tlb_reach: Option<u64>,
    /// Atomic additions to addresses all over a table, of all threads together.
    pub atomics: Option<AtomicRates>,
}

/// Atomic additions a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AtomicRates {
    /// In a table that lies in the last cache.
    pub cached: u64,
    /// In one that is far larger.
    pub beyond: u64,
}

/// A number that a rule compares with, and where it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The number.
    pub value: u64,
    /// Whether it follows from what was measured.
    pub is_measured: bool,
}

impl Limit {
    /// A number that nothing measured has to do with.
    pub fn fixed(value: u64) -> Limit {
        Limit { value, is_measured: false }
    }

    /// What `measure` makes of what was measured, or else of what is assumed.
    fn of(measured: Option<u64>, assumed: u64, measure: impl Fn(u64) -> u64) -> Limit {
        Limit { value: measure(measured.unwrap_or(assumed)), is_measured: measured.is_some() }
    }

    /// No more than there is room for.
    pub fn min(self, most: u64) -> Limit {
        Limit { value: self.value.min(most), ..self }
    }

    /// A reason that rests on this number, with the word `(measured)` where it is.
    pub fn reason<'r>(&self, reason: &'r str) -> Cow<'r, str> {
        if self.is_measured { format!("{reason} (measured)").into() } else { reason.into() }
    }
}

impl Calibration {
    /// Bytes that a table of a CPU's worker may have whatever its rows are: half of a core's cache, through which the columns go too.
    pub(crate) fn worker_table(&self) -> Limit {
        Limit::of(self.core_cache, ASSUMED_CORE, |cache| cache / 2)
    }

    /// Bytes of a CPU's worker's memory for copies of groups, of which it has `room`: three quarters of what stays in its cache.
    pub(crate) fn worker_copies(&self, room: u64) -> Limit {
        let most = Limit::fixed(room / 4 * 3);
        match self.core_cache.filter(|cache| *cache < room) {
            Some(cache) => Limit { value: cache / 4 * 3, is_measured: true },
            None => most,
        }
    }

    /// Slots that a direct-addressed index may have whatever the rows are. On a CPU half of a core's cache has room for them, on a GPU
    /// a small part of a multiprocessor's for their bitmap.
    pub(crate) fn index_slots(&self, is_serial: bool) -> Limit {
        let slots = match is_serial {
            true => Limit::of(self.core_cache, ASSUMED_CORE, |cache| cache / 2 / SLOT_BYTES),
            false => Limit::of(self.core_cache, ASSUMED_MULTIPROCESSOR, |cache| cache / BITMAP_SHARE * 8),
        };
        Limit { value: slots.value.min(MOST_SLOTS), ..slots }
    }

    /// Bytes of the last cache before memory, which a table that rows come to anywhere may have for itself at best. A table beyond the pages
    /// that are translated at once is not to be had at the cache's rate either (Karnagel et al., section 4: regions IV and V).
    pub(crate) fn index_cache(&self, is_serial: bool) -> Limit {
        let assumed = if is_serial { ASSUMED_SHARED } else { ASSUMED_DEVICE };
        let cache = Limit::of(self.last_cache, assumed, |cache| cache);
        match self.tlb_reach.filter(|reach| *reach < cache.value) {
            Some(reach) => Limit { value: reach, is_measured: true },
            None => cache,
        }
    }

    /// Parts that a CPU's worker writes to in turn, of which there should be `most`: of each it has so many `lines` in its cache, which
    /// are a quarter of that together. Others are what it reads, and the lines that it has just filled. (The number of places that a
    /// pass of a radix partition may have: Manegold et al. 2002.)
    pub(crate) fn worker_parts(&self, most: u64, lines: u64) -> Limit {
        let of_lines = |cache: u64| (cache / 4 / LINE_BYTES / lines.max(1)).max(LEAST_CACHED_PARTS);
        let cached = Limit::of(self.core_cache, ASSUMED_CORE, of_lines);
        let pages = self.worker_pages(most);
        if cached.value < pages.value { cached } else { pages }
    }

    /// The same by the pages alone: each part has one of its own in each of some columns.
    pub(crate) fn worker_pages(&self, most: u64) -> Limit {
        match self.tlb_reach.map(|reach| (reach / PAGE_BYTES / COLUMNS_OF_PARTS).max(LEAST_PARTS)) {
            Some(pages) if pages < most => Limit { value: pages, is_measured: true },
            _ => Limit::fixed(most),
        }
    }

    /// Bytes of a cache that holds a Bloom filter where it does not hold the hash table: a CPU's core's, or the last one of a GPU.
    pub(crate) fn filter_cache(&self, is_serial: bool) -> Limit {
        match is_serial {
            true => Limit::of(self.core_cache, ASSUMED_CORE, |cache| cache),
            false => self.index_cache(false),
        }
    }

    /// Slots of so many bytes that a direct-addressed table of groups may have: those that half of the last cache has room for,
    /// and never fewer than `least`, which it may have anywhere.
    pub(crate) fn group_slots(&self, slot_bytes: u64, least: u64) -> Limit {
        let slots = self.last_cache.map(|cache| (cache / 2 / slot_bytes.max(1)).min(MOST_GROUP_SLOTS));
        match slots.filter(|slots| *slots > least) {
            Some(slots) => Limit { value: slots, is_measured: true },
            None => Limit::fixed(least),
        }
    }

    /// Milliseconds that so many atomic additions take in a table of so many bytes, where it was measured.
    pub(crate) fn atomics_ms(&self, atomics: u64, table_bytes: u64) -> Option<f64> {
        let (cache, AtomicRates { cached, beyond }) = (self.last_cache?, self.atomics?);
        let rate = if table_bytes <= cache { cached } else { beyond };
        (rate > 0).then(|| atomics as f64 / rate as f64 * 1e3)
    }

    /// Rows from which on it pays to bring them into parts before they come to a table of so many bytes, where `rows` pay for a table
    /// that lies in the last cache: beyond it each atomic takes longer, and so fewer rows make up for what parts cost.
    pub(crate) fn rows_in_parts(&self, table_bytes: u64, rows: u64) -> Limit {
        let (Some(cache), Some(AtomicRates { cached, beyond })) = (self.last_cache, self.atomics) else {
            return Limit::fixed(rows);
        };
        if table_bytes <= cache || beyond >= cached {
            return Limit::fixed(rows);
        }
        let fewer = u128::from(rows) * u128::from(beyond) / u128::from(cached.max(1));
        let fewer = u64::try_from(fewer).unwrap_or(rows).max(rows / MOST_GAIN);
        Limit { value: fewer, is_measured: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Calibration =
        Calibration { core_cache: None, last_cache: None, tlb_reach: None, atomics: None };

    #[test]
    fn where_nothing_is_measured_the_rules_have_the_numbers_that_they_were_written_with() {
        assert_eq!(NOTHING, Calibration::default());
        assert_eq!(NOTHING.worker_table(), Limit::fixed(256 << 10));
        assert_eq!(NOTHING.worker_copies(1 << 20), Limit::fixed(768 << 10));
        assert_eq!(NOTHING.index_slots(true), Limit::fixed(1 << 16));
        assert_eq!(NOTHING.index_slots(false), Limit::fixed(1 << 16));
        assert_eq!(NOTHING.index_cache(true), Limit::fixed(32 << 20));
        assert_eq!(NOTHING.index_cache(false), Limit::fixed(50 << 20));
        assert_eq!(NOTHING.filter_cache(true), Limit::fixed(512 << 10));
        assert_eq!(NOTHING.filter_cache(false), Limit::fixed(50 << 20));
        assert_eq!(NOTHING.group_slots(24, 1 << 20), Limit::fixed(1 << 20));
        assert_eq!(NOTHING.rows_in_parts(u64::MAX, 4 << 20), Limit::fixed(4 << 20));
    }

    #[test]
    fn numbers_follow_what_was_measured() {
        let measured = |value| Limit { value, is_measured: true };
        let atomics = Some(AtomicRates { cached: 100, beyond: 50 });
        let large =
            Calibration { core_cache: Some(2 << 20), last_cache: Some(256 << 20), tlb_reach: None, atomics };
        assert_eq!(large.worker_table(), measured(1 << 20));
        // What a worker has room for is the limit then, not its cache.
        assert_eq!(large.worker_copies(1 << 20), Limit::fixed(768 << 10));
        assert_eq!(large.index_slots(true), measured(1 << 18));
        assert_eq!(large.index_cache(true), measured(256 << 20));
        assert_eq!(large.filter_cache(true), measured(2 << 20));
        assert_eq!(large.filter_cache(false), measured(256 << 20));
        assert_eq!(large.group_slots(16, 1 << 20), measured(1 << 23));
        assert_eq!(large.rows_in_parts(1 << 30, 4 << 20), measured(2 << 20));
        assert_eq!(large.rows_in_parts(1 << 20, 4 << 20), Limit::fixed(4 << 20));
        let small = Calibration {
            core_cache: Some(256 << 10),
            last_cache: Some(4 << 20),
            tlb_reach: None,
            atomics: None,
        };
        assert_eq!(small.worker_table(), measured(128 << 10));
        assert_eq!(small.worker_copies(1 << 20), measured(192 << 10));
        assert_eq!(small.index_slots(true), measured(1 << 15));
        assert_eq!(small.index_slots(false), measured(1 << 17));
        assert_eq!(small.group_slots(16, 1 << 20), Limit::fixed(1 << 20));
    }

    #[test]
    fn numbers_stay_within_bounds_whatever_is_said_to_be_measured() {
        for value in [0, 1, u64::MAX] {
            let atomics = Some(AtomicRates { cached: value, beyond: value / 2 });
            let all =
                Calibration { core_cache: Some(value), last_cache: Some(value), tlb_reach: None, atomics };
            assert!(all.index_slots(true).value <= MOST_SLOTS && all.index_slots(false).value <= MOST_SLOTS);
            assert!((1 << 20..=MOST_GROUP_SLOTS).contains(&all.group_slots(0, 1 << 20).value));
            assert!(all.rows_in_parts(u64::MAX, 4 << 20).value >= 1 << 20);
            assert!(all.worker_copies(1 << 20).value <= 768 << 10);
        }
    }

    #[test]
    fn the_time_of_atomics_is_that_of_the_memory_where_they_are() {
        let atomics = Some(AtomicRates { cached: 1_000_000_000, beyond: 500_000_000 });
        let measured = Calibration { core_cache: None, last_cache: Some(1 << 20), tlb_reach: None, atomics };
        assert_eq!(measured.atomics_ms(3_000_000, 1 << 20), Some(3.0));
        assert_eq!(measured.atomics_ms(3_000_000, 2 << 20), Some(6.0));
        assert_eq!(NOTHING.atomics_ms(3_000_000, 1), None);
    }

    #[test]
    fn translation_bounds_tables_and_parts_where_it_reaches_less_far_than_the_cache() {
        let measured = |value| Limit { value, is_measured: true };
        let reach = |reach| Calibration { tlb_reach: Some(reach), last_cache: Some(64 << 20), ..NOTHING };
        assert_eq!(reach(8 << 20).index_cache(true), measured(8 << 20));
        assert_eq!(reach(8 << 20).index_cache(false), measured(8 << 20));
        assert_eq!(reach(1 << 30).index_cache(true), measured(64 << 20));
        assert_eq!(Calibration { tlb_reach: Some(8 << 20), ..NOTHING }.index_cache(true), measured(8 << 20));
        assert_eq!(NOTHING.worker_pages(1024), Limit::fixed(1024));
        assert_eq!(reach(6 << 20).worker_pages(1024), measured(768));
        assert_eq!(reach(1 << 30).worker_pages(1024), Limit::fixed(1024));
        assert_eq!(reach(0).worker_pages(1024), measured(16));
    }

    #[test]
    fn a_worker_writes_to_as_many_parts_as_its_cache_has_lines_of() {
        let measured = |value| Limit { value, is_measured: true };
        assert_eq!(NOTHING.worker_parts(1024, 2), Limit::fixed(1024));
        assert_eq!(NOTHING.worker_parts(1024, 5), Limit::fixed(409));
        assert_eq!(NOTHING.worker_parts(1024, 1000), Limit::fixed(64));
        let large = Calibration { core_cache: Some(1 << 20), ..NOTHING };
        assert_eq!(large.worker_parts(1024, 5), measured(819));
        assert_eq!(large.worker_parts(1024, 2), Limit::fixed(1024));
        let few_pages = Calibration { tlb_reach: Some(2 << 20), ..large };
        assert_eq!(few_pages.worker_parts(1024, 5), measured(256));
    }

    #[test]
    fn reasons_say_what_was_measured() {
        let limit = Calibration { core_cache: Some(1 << 20), ..NOTHING }.worker_table();
        assert_eq!(limit.reason("it fits"), "it fits (measured)");
        assert_eq!(limit.min(1 << 10), Limit { value: 1 << 10, is_measured: true });
        assert_eq!(NOTHING.worker_table().reason("it fits"), "it fits");
    }
}
