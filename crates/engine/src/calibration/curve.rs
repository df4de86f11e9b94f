//! What curves of rates over the sizes of working sets show: a rate stays while a set fits a cache, falls where it outgrows that, and
//! stays again once most accesses go to the next one.

use std::ops::RangeInclusive;

use kelpie_device::DeviceKind;

use super::Point;
use super::measure::{LINE_BYTES, PAGE_BYTES};

/// A rate has fallen when it is below this share of the rate of half the size: from a first level to the second, which takes little longer,
/// rates fall slowly.
const STEEP: f64 = 0.7;
/// Or below this share of what it was.
const FALLEN: f64 = 0.4;
/// And settled again, when it is no further below the rate of half the size.
const SETTLED: f64 = 0.75;

/// Reads of pages are slow when they are below this share of those of as many lines side by side: other levels of translation cost less.
const SLOW: f64 = 0.5;

/// The points with the median of each rate and its two neighbours: what one launch lost, or another got, is no edge, and a curve that only
/// falls stays as it is.
fn smooth(points: &[Point]) -> Vec<Point> {
    let mut smoothed = points.to_vec();
    for (around, point) in points.windows(3).zip(smoothed.iter_mut().skip(1)) {
        let mut rates: Vec<f64> = around.iter().map(|point| point.per_second).collect();
        rates.sort_by(f64::total_cmp);
        point.per_second = rates.get(1).copied().unwrap_or(point.per_second);
    }
    smoothed
}

/// The greatest sizes of working sets before rates fall, one a cache, in ascending order.
pub(super) fn edges(points: &[Point]) -> Vec<u64> {
    let points = smooth(points);
    let mut edges = Vec::new();
    let (mut plateau, mut is_falling) = (0.0f64, false);
    for (index, point) in points.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| points.get(before)).copied().unwrap_or(*point);
        match is_falling {
            true if point.per_second >= SETTLED * before.per_second => {
                is_falling = false;
                plateau = point.per_second;
            }
            true => {}
            false if point.per_second < (STEEP * before.per_second).max(FALLEN * plateau) => {
                edges.push(before.bytes);
                is_falling = true;
            }
            false => plateau = plateau.max(point.per_second),
        }
    }
    edges
}

/// The greatest working set that is read at least twice as fast as memory, where the greatest of all are read at one rate: caches whose
/// rates fall into each other, as other machines use the last one too, have no edges of their own.
pub(super) fn before_memory(points: &[Point]) -> Option<u64> {
    let points = smooth(points);
    let [.., before, last] = points.as_slice() else { return None };
    let is_memory = last.per_second >= SETTLED * before.per_second;
    let fast = points.iter().rfind(|point| point.per_second >= 2.0 * last.per_second)?;
    is_memory.then_some(fast.bytes)
}

/// The sizes that a cache of one core (its second level) or multiprocessor (its first) may have.
pub(super) fn core_sizes(kind: DeviceKind) -> RangeInclusive<u64> {
    match kind {
        // First levels have 128 KB at most.
        DeviceKind::Cpu => (129 << 10)..=(16 << 20),
        DeviceKind::Cuda | DeviceKind::Simt => (16 << 10)..=(1 << 20),
    }
}

/// Bytes of pages that are translated without a search: up to there reads of lines that have a page each are about as fast as those of
/// lines side by side. `None` where they are as fast everywhere.
pub(super) fn tlb_reach(reads: &[Point], page_reads: &[Point]) -> Option<u64> {
    let (reads, page_reads) = (smooth(reads), smooth(page_reads));
    let share = |point: &Point| {
        let dense = reads.iter().find(|dense| dense.bytes == point.bytes)?;
        Some(point.per_second / dense.per_second.max(1.0))
    };
    // One point alone may be a neighbour's.
    let is_slow = |pair: &[Point]| pair.iter().all(|point| share(point).is_some_and(|share| share < SLOW));
    let first = page_reads.windows(2).position(is_slow)?;
    // The smallest set may be too large already.
    let reached = page_reads.get(first.saturating_sub(1))?;
    Some(reached.bytes / LINE_BYTES * PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rates: &[f64]) -> Vec<Point> {
        let point = |(index, rate): (usize, &f64)| Point { bytes: 16 << (10 + index), per_second: *rate };
        rates.iter().enumerate().map(point).collect()
    }

    #[test]
    fn an_edge_is_where_a_rate_falls_and_the_next_is_behind_where_it_settles() {
        // First level 32 KiB, second 1 MiB, third 16 MiB.
        let curve = [9.0, 8.9, 6.0, 5.5, 5.4, 5.3, 5.2, 3.0, 2.2, 2.0, 1.9, 0.9, 0.6, 0.55, 0.5];
        assert_eq!(edges(&points(&curve)), [32 << 10, 1 << 20, 16 << 20]);
        assert_eq!(edges(&points(&[5.0, 5.2, 4.9, 5.1])), [0u64; 0]);
        assert_eq!(edges(&[]), [0u64; 0]);
        // What one launch lost or another got is no edge.
        assert_eq!(edges(&points(&[5.0, 5.0, 2.0, 5.0, 5.0, 9.0, 5.0, 1.0, 1.0, 1.0])), [1 << 20]);
        // What is slow once is no plateau.
        assert_eq!(edges(&points(&[5.0, 5.0, 1.0, 0.2, 0.1, 0.1])), [32 << 10]);
    }

    #[test]
    fn what_is_far_faster_than_memory_is_in_a_cache() {
        // A machine beside others: below 2 MiB is its own.
        let curve = [9.6, 9.6, 8.2, 6.7, 6.2, 5.4, 4.8, 2.6, 1.5, 1.1, 0.7, 0.3, 0.25, 0.24, 0.22, 0.2];
        assert_eq!(edges(&points(&curve)), [1 << 20]);
        assert_eq!(before_memory(&points(&curve)), Some(16 << 20));
        assert_eq!(before_memory(&points(&curve[..12])), None);
        assert_eq!(before_memory(&points(&[5.0, 5.0, 5.0])), None);
        assert_eq!(before_memory(&[]), None);
    }

    #[test]
    fn the_reach_of_translation_is_where_pages_make_reads_slow() {
        let dense = points(&[8.0, 8.0, 8.0, 8.0, 8.0, 8.0]);
        let pages = points(&[7.5, 3.0, 7.2, 7.0, 2.0, 1.0]);
        assert_eq!(tlb_reach(&dense, &pages), Some((128 << 10) / LINE_BYTES * PAGE_BYTES));
        assert_eq!(tlb_reach(&dense, &points(&[8.0, 7.0, 8.0])), None);
        assert_eq!(tlb_reach(&dense, &[]), None);
        assert_eq!(tlb_reach(&dense, &points(&[1.0, 1.0, 1.0])), Some(256 * PAGE_BYTES));
    }
}
