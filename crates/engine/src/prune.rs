//! Rows of a scan that cannot match a finished build side: found from the bounds of its keys and of the scan's zones.

use std::ops::Range as Rows;

use kelpie_compile::types::Range;

use crate::columns::Zone;

/// The bounds that an index notes (`kelpie_compile::pipeline::Prune`), `None` where it has no row.
pub fn bounds(words: [u8; 16]) -> Option<Range> {
    let word = |from: usize| words[from..from + 8].try_into().map_or(0, u64::from_le_bytes);
    let (greatest, complement) = (word(0), word(8));
    let value = |order: u64| (order ^ (1 << 63)) as i64;
    ((greatest, complement) != (0, 0)).then(|| Range::new(value(!complement), value(greatest)))
}

/// The rows from the first to the last zone that has values within bounds.
pub fn hull(zones: &[Zone], bounds: Option<Range>) -> Rows<u64> {
    let Some(bounds) = bounds else { return 0..0 };
    let mut hull = 0..0;
    let mut row = 0;
    for zone in zones {
        let meets = zone.range.is_some_and(|range| range.min <= bounds.max && bounds.min <= range.max);
        if meets {
            hull.start = if hull.end == 0 { row } else { hull.start };
            hull.end = row + zone.rows;
        }
        row += zone.rows;
    }
    hull
}

/// Whether some zone of these rows has values within bounds.
pub fn meets(zones: &[Zone], bounds: Option<Range>, rows: &Rows<u64>) -> bool {
    let Some(bounds) = bounds else { return false };
    let mut row = 0;
    zones.iter().any(|zone| {
        let start = row;
        row += zone.rows;
        start < rows.end
            && rows.start < row
            && zone.range.is_some_and(|range| range.min <= bounds.max && bounds.min <= range.max)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(ranges: &[Option<(i64, i64)>]) -> Vec<Zone> {
        let range = |range: &Option<(i64, i64)>| range.map(|(min, max)| Range::new(min, max));
        ranges.iter().map(|r| Zone { rows: 10, range: range(r) }).collect()
    }

    #[test]
    fn rows_between_zones_that_meet() {
        let zones = zones(&[Some((0, 9)), None, Some((10, 19)), Some((-5, 40)), Some((30, 39))]);
        for (bounds, rows) in [
            (Some((12, 13)), 20..40),
            (Some((0, 100)), 0..50),
            (Some((-9, -6)), 0..0),
            (Some((41, 50)), 0..0),
            (Some((-5, -5)), 30..40),
            (Some((35, 35)), 30..50),
            (None, 0..0),
        ] {
            let range = bounds.map(|(min, max)| Range::new(min, max));
            assert_eq!(hull(&zones, range), rows, "{bounds:?}");
            assert!(rows.is_empty() || meets(&zones, range, &rows), "{bounds:?}");
            assert!(!meets(&zones, range, &(rows.end..50)) || rows.end == 50, "{bounds:?}");
            assert!(!meets(&zones, range, &(10..20)), "{bounds:?}: NULLs only");
        }
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
