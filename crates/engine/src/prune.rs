//! Rows of a scan that cannot match a finished build side: found from the bounds of its keys and of the scan's zones.

use std::ops::Range as Rows;

use kelpie_compile::types::Range;

use crate::columns::Zone;

/// The zones of a column, and what its values are bounded by; no bounds: nothing may match.
pub type Bounded<'a> = (&'a [Zone], Option<Range>);

/// The bounds that an index notes (`kelpie_compile::pipeline::Prune`), `None` where it has no row.
pub fn bounds(words: [u8; 16]) -> Option<Range> {
    let word = |from: usize| words[from..from + 8].try_into().map_or(0, u64::from_le_bytes);
    let (greatest, complement) = (word(0), word(8));
    let value = |order: u64| (order ^ (1 << 63)) as i64;
    ((greatest, complement) != (0, 0)).then(|| Range::new(value(!complement), value(greatest)))
}

/// Ranges of rows that are worked on one after the other where they lie on the device, at most.
pub const MOST_RANGES: usize = 8;
/// Rows between two ranges that are worked on all the same: fewer cost less than another launch.
const LEAST_GAP: u64 = 64 << 10;

/// The rows (of so many) in whose zones every column has values within its bounds, and a few between them: in so many
/// ranges at most.
pub fn ranges(columns: &[Bounded<'_>], rows: u64, most: usize) -> Vec<Rows<u64>> {
    let mut kept: Vec<Rows<u64>> = Some(0..rows).filter(|rows| !rows.is_empty()).into_iter().collect();
    for (zones, bounds) in columns {
        kept = intersection(&kept, &meeting(zones, *bounds));
    }
    let gap = |a: &Rows<u64>, b: &Rows<u64>| b.start.saturating_sub(a.end);
    let mut gaps: Vec<u64> = kept.windows(2).map(|pair| gap(&pair[0], &pair[1])).collect();
    gaps.sort_unstable_by_key(|gap| std::cmp::Reverse(*gap));
    // As many of the widest gaps as there may be.
    let least = gaps.get(most.saturating_sub(1)).map_or(LEAST_GAP, |gap| LEAST_GAP.max(*gap));
    let mut merged: Vec<Rows<u64>> = Vec::new();
    for range in kept {
        match merged.last_mut() {
            Some(last) if gap(last, &range) <= least => last.end = range.end,
            _ => merged.push(range),
        }
    }
    merged
}

/// The rows of the zones that have values within bounds. There are thousands of zones, and mostly all of them have: those that lie
/// side by side are one range, so that no more is made of them than is left out.
fn meeting(zones: &[Zone], bounds: Option<Range>) -> Vec<Rows<u64>> {
    let Some(bounds) = bounds else { return Vec::new() };
    let mut row = 0;
    let mut meeting: Vec<Rows<u64>> = Vec::new();
    for zone in zones {
        let start = row;
        row += zone.rows;
        if zone.range.is_some_and(|range| range.min <= bounds.max && bounds.min <= range.max) {
            match meeting.last_mut() {
                Some(last) if last.end == start => last.end = row,
                _ => meeting.push(start..row),
            }
        }
    }
    meeting
}

/// What is in both of two lists of ranges, each in order.
fn intersection(a: &[Rows<u64>], b: &[Rows<u64>]) -> Vec<Rows<u64>> {
    let (mut i, mut j) = (0, 0);
    let mut both = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let range = x.start.max(y.start)..x.end.min(y.end);
        if !range.is_empty() {
            both.push(range);
        }
        match x.end <= y.end {
            true => i += 1,
            false => j += 1,
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zones of 100,000 rows.
    fn zones(ranges: &[Option<(i64, i64)>]) -> Vec<Zone> {
        let range = |range: &Option<(i64, i64)>| range.map(|(min, max)| Range::new(min, max));
        ranges.iter().map(|r| Zone { rows: 100_000, range: range(r) }).collect()
    }

    type Bounds = Option<(i64, i64)>;

    /// In units of 100,000 rows.
    fn found(columns: &[(&[Zone], Bounds)], rows: u64) -> Vec<(u64, u64)> {
        let bounds = |bounds: &Bounds| bounds.map(|(min, max)| Range::new(min, max));
        let columns: Vec<_> = columns.iter().map(|(zones, range)| (*zones, bounds(range))).collect();
        ranges(&columns, rows, MOST_RANGES)
            .iter()
            .map(|range| (range.start / 100_000, range.end / 100_000))
            .collect()
    }

    #[test]
    fn rows_of_zones_that_meet() {
        let zones = zones(&[Some((0, 9)), None, Some((10, 19)), Some((-5, 40)), Some((30, 39))]);
        for (bounds, rows) in [
            (Some((12, 13)), vec![(2, 4)]),
            (Some((0, 100)), vec![(0, 1), (2, 5)]),
            (Some((-9, -6)), vec![]),
            (Some((41, 50)), vec![]),
            (Some((-5, -5)), vec![(3, 4)]),
            (Some((5, 5)), vec![(0, 1), (3, 4)]),
            (Some((35, 35)), vec![(3, 5)]),
            (None, vec![]),
        ] {
            assert_eq!(found(&[(&zones, bounds)], 500_000), rows, "{bounds:?}");
        }
        assert_eq!(found(&[], 500_000), [(0, 5)]);
        assert_eq!(found(&[], 0), []);
    }

    #[test]
    fn rows_that_meet_in_every_column() {
        let a = zones(&[Some((0, 9)), Some((5, 9)), Some((10, 19)), Some((0, 9)), Some((0, 9))]);
        let mut b = zones(&[Some((1, 1)), Some((2, 2)), Some((1, 1))]);
        // Zones of two columns need not agree.
        b[1].rows = 300_000;
        assert_eq!(found(&[(&a, Some((0, 7))), (&b, Some((2, 3)))], 500_000), [(1, 2), (3, 4)]);
        assert_eq!(found(&[(&a, Some((0, 7))), (&b, None)], 500_000), []);
    }

    #[test]
    fn small_gaps_do_not_pay() {
        let mut narrow = zones(&[Some((1, 1)), Some((2, 2)), Some((1, 1))]);
        narrow[1].rows = LEAST_GAP;
        assert_eq!(ranges(&[(&narrow, Some(Range::new(1, 1)))], 200_000 + LEAST_GAP, 8).len(), 1);
        narrow[1].rows += 1;
        assert_eq!(ranges(&[(&narrow, Some(Range::new(1, 1)))], 200_001 + LEAST_GAP, 8).len(), 2);
        // Every other zone: the widest gaps stay.
        let mut every_other = Vec::new();
        for index in 0..20 {
            every_other.extend(zones(&[Some((1, 1)), Some((2, 2))]));
            every_other[2 * index + 1].rows += index as u64;
        }
        let odd = [(every_other.as_slice(), Some(Range::new(1, 1)))];
        assert_eq!(ranges(&odd, 4_000_190, usize::MAX).len(), 20);
        let all = ranges(&odd, 4_000_190, MOST_RANGES);
        assert_eq!(all.len(), MOST_RANGES);
        assert_eq!(all[0], 0..(13 * 200_000 - 100_000 + (0..12).sum::<u64>()));
    }

    #[test]
    fn bounds_of_order_keys() {
        for (min, max) in [(0, 0), (-3, 7), (i64::MIN, i64::MIN), (i64::MAX, i64::MAX), (i64::MIN, i64::MAX)]
        {
            let order = |value: i64| (value as u64) ^ (1 << 63);
            let mut words = [0; 16];
            words[..8].copy_from_slice(&order(max).to_le_bytes());
            words[8..].copy_from_slice(&(!order(min)).to_le_bytes());
            assert_eq!(bounds(words), Some(Range::new(min, max)));
        }
        assert_eq!(bounds([0; 16]), None);
    }
}
