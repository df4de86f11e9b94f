//! How the values of a column are spread over its rows, by a sample: whether there are many, and equal ones far from each other. Then
//! an aggregation by them meets groups in an order that no cache helps with.

use kelpie_compile::layout::Scattered;
use kelpie_compile::types::Range;

/// Some consecutive rows of a column.
#[derive(Debug, Clone, Copy)]
pub struct Zone {
    /// How many.
    pub rows: u64,
    /// Bounds of the values that are not NULL; `None` where all are.
    pub range: Option<Range>,
}

/// Values of a chunk that are looked at, at most.
const OF_CHUNK: usize = 32;
/// Values of a column that are looked at, at most.
const OF_COLUMN: usize = 1 << 16;
/// Texts of a column that are looked at, at most.
const OF_TEXTS: usize = 1 << 13;
/// Bytes of a text on average, at most: who brings texts into parts copies them.
const MOST_TEXT_BYTES: u32 = 64;
/// Rows of a column from which on it is of interest.
pub(super) const LEAST_ROWS: u64 = 1 << 18;
/// Values of it from which on it is: a block of a GPU has room for fewer groups.
const LEAST: u64 = 1 << 13;
/// The share of the range that neighbours in the sample are apart at least, on average, where values are scattered. It would be
/// a third for values in no order at all.
const APART: f64 = 1.0 / 16.0;
/// The share of the rows from which on a value is frequent: more of them would not find places in their part
/// (docs/experiments.md, "Sums, counts and maxima").
const FREQUENT: usize = 1024;
/// So many values may be frequent: a block keeps copies of their groups, which take the rows that find no place in their part.
const MOST_FREQUENT: usize = 8;
/// One in so many rows has a frequent value where these are worth a place near: a GPU then adds to the places of frequent groups for
/// about as long as to all others, since additions to one place wait for each other.
const OF_FREQUENT: u64 = 64;
/// Values in the sample that are equal by chance.
const BY_CHANCE: usize = 8;

/// Places of a sample of so many values, in order: one at any place of each of at most `most` stretches of equal length. They are the
/// same wherever the number of values is. At steps of one length, values that repeat with a period (of six sensors in turn, say) would
/// be met at few of its places.
pub(super) fn places(values: usize, most: usize) -> impl Iterator<Item = usize> {
    let step = values.div_ceil(most.max(1)).max(1);
    let any = move |number: usize| (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let place =
        move |(number, first): (usize, usize)| first + any(number) as usize % step.min(values - first);
    (0..values).step_by(step).enumerate().map(place)
}

/// A sample of at most `most` of them.
pub(super) fn thinned<T: Copy>(values: &[T], most: usize) -> Vec<T> {
    places(values.len(), most).filter_map(|place| values.get(place).copied()).collect()
}

/// Places of a chunk's sample.
pub(super) fn places_of_chunk(values: usize) -> impl Iterator<Item = usize> {
    places(values, OF_CHUNK)
}

/// A sample of a chunk's values: some of them in order, by their lower 64 bits.
pub(super) fn sample<T: Copy>(values: &[T], low: impl Fn(T) -> i64) -> Vec<i64> {
    places_of_chunk(values.len()).filter_map(|place| values.get(place)).map(|value| low(*value)).collect()
}

/// How the values of a column are spread over its rows, by a sample. Nothing is said of few rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Spread {
    /// About how many values there are, where these are many, scattered, and few of them have many rows, not more than half of all.
    /// Rounded to a power of two: data that is read again should not be taken for another because of the sample.
    pub scattered: Option<Scattered>,
    /// Frequent values have a good share of the rows.
    pub has_frequent: bool,
}

impl Spread {
    /// Of a column of `rows` rows, by samples of its chunks in order.
    pub fn of<'s>(samples: impl Iterator<Item = &'s [i64]>, rows: u64) -> Spread {
        if rows < LEAST_ROWS {
            return Spread::default();
        }
        let all: Vec<i64> = samples.flatten().copied().collect();
        let mut sample = thinned(&all, OF_COLUMN);
        let are_apart = are_apart(&sample);
        sample.sort_unstable();
        let frequency = Frequency::of(&sample);
        Spread {
            scattered: are_apart.then(|| frequency.scattered(rows)).flatten(),
            has_frequent: frequency.has_frequent(),
        }
    }

    /// The same of texts: their places in the order of the sample stand for them. Long ones are not called scattered.
    pub fn of_texts(sample: &[&[u8]], rows: u64) -> Spread {
        if rows < LEAST_ROWS || sample.is_empty() {
            return Spread::default();
        }
        let all: usize = sample.iter().map(|text| text.len()).sum();
        let bytes = all.div_ceil(sample.len()).next_multiple_of(8);
        let sample = thinned(sample, OF_TEXTS);
        let mut order = sample.clone();
        order.sort_unstable();
        order.dedup();
        let place = |text: &&[u8]| order.binary_search(text).map_or(0, |place| place as i64);
        let places: Vec<i64> = sample.iter().map(place).collect();
        let spread = Spread::of(std::iter::once(places.as_slice()), rows);
        let text_bytes = u32::try_from(bytes).ok().filter(|bytes| *bytes <= MOST_TEXT_BYTES);
        let scattered = spread.scattered.zip(text_bytes);
        let scattered = scattered.map(|(own, text_bytes)| Scattered { text_bytes, ..own });
        Spread { scattered, ..spread }
    }

    /// No more than so many values.
    pub fn min(self, values: u64) -> Spread {
        Spread { scattered: self.scattered.map(|own| own.min(values)), ..self }
    }
}

/// Whether neighbours in a sample are as far apart as where values are in no order.
fn are_apart(sample: &[i64]) -> bool {
    let (Some(least), Some(greatest)) = (sample.iter().min(), sample.iter().max()) else { return false };
    let range = greatest.abs_diff(*least) as f64;
    let distances: f64 = sample.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum();
    distances >= range * APART * sample.len() as f64
}

/// How often the values of a sample are there.
struct Frequency {
    /// Values of the sample.
    looked_at: u64,
    /// Different values that are frequent.
    frequent: usize,
    /// Values of the sample that are not.
    rare: u64,
    /// Different ones among these.
    rare_values: u64,
}

impl Frequency {
    /// Of a sample in order.
    fn of(sample: &[i64]) -> Frequency {
        let many = BY_CHANCE.max(sample.len() / FREQUENT);
        let mut own = Frequency { looked_at: sample.len() as u64, frequent: 0, rare: 0, rare_values: 0 };
        for equal in sample.chunk_by(|a, b| a == b) {
            match equal.len() > many {
                true => own.frequent += 1,
                false => (own.rare, own.rare_values) = (own.rare + equal.len() as u64, own.rare_values + 1),
            }
        }
        own
    }

    /// As [`Spread::scattered`], of values that are known not to be in order.
    fn scattered(&self, rows: u64) -> Option<Scattered> {
        if self.frequent > MOST_FREQUENT || self.rare * 2 < self.looked_at {
            return None;
        }
        let values = distinct(self.rare, self.rare_values, rows);
        (values >= LEAST).then(|| Scattered {
            values: values.next_power_of_two(),
            are_even: self.frequent == 0,
            text_bytes: 0,
        })
    }

    /// As [`Spread::has_frequent`].
    fn has_frequent(&self) -> bool {
        (self.looked_at - self.rare) * OF_FREQUENT >= self.looked_at.max(1)
    }
}

/// About how many values there are by a sample, where not more than half of the rows have frequent ones.
pub(super) fn without_frequent(mut sample: Vec<i64>, rows: u64) -> Option<Scattered> {
    sample.sort_unstable();
    Frequency::of(&sample).scattered(rows)
}

/// About how many values there are where `seen` different ones are among `looked_at`, each as often as any other: of so many,
/// `values * (1 - e^(-looked_at / values))` are expected to be seen.
pub(crate) fn distinct(looked_at: u64, seen: u64, rows: u64) -> u64 {
    let expected = |values: f64| values * -(-(looked_at as f64) / values).exp_m1();
    let (mut low, mut high) = (seen as f64, rows as f64);
    if high <= low || expected(high) <= seen as f64 {
        return rows;
    }
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if expected(middle) < seen as f64 { low = middle } else { high = middle }
    }
    high as u64
}

/// The share of a column's range that its zones have at most, on average, where it is clustered. A sorted column has that from some
/// zones on; one in no order never has.
const ZONE_SHARE: u128 = 16;

/// Whether a column of so many rows with these zones is clustered: sorted, or nearly so, as what is recorded as it happens.
pub(super) fn are_clustered(zones: &[Zone], rows: u64) -> bool {
    let ranges = || zones.iter().filter_map(|zone| zone.range);
    let Some(whole) = ranges().reduce(Range::union).filter(|_| rows >= LEAST_ROWS) else { return false };
    let width = |range: Range| range.max.abs_diff(range.min);
    // Of a range of 128 bits nothing is said.
    let all = ranges().try_fold(0u128, |all, range| all.checked_add(width(range)));
    let most = width(whole).checked_mul(ranges().count() as u128);
    matches!((all, most), (Some(all), Some(most)) if all <= most / ZONE_SHARE)
}

/// Whether no value of a column is there twice, by its chunks: whether each by itself is known to have none twice, and its bounds. Chunks may
/// come in any order, if only they are apart.
pub(super) fn are_unique(chunks: impl Iterator<Item = (bool, Option<Range>)>) -> bool {
    let mut ranges = Vec::new();
    for (is_strict, range) in chunks {
        if !is_strict {
            return false;
        }
        ranges.extend(range);
    }
    ranges.sort_unstable_by_key(|range| range.min);
    ranges.is_sorted_by(|a, b| a.max < b.min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_unique_where_each_chunk_is_and_chunks_are_apart() {
        let chunk = |min: i128, max: i128| (true, Some(Range { min, max }));
        let unique = |chunks: &[(bool, Option<Range>)]| are_unique(chunks.iter().copied());
        assert!(unique(&[]) && unique(&[chunk(1, 9)]) && unique(&[chunk(1, 9), chunk(10, 12)]));
        assert!(unique(&[chunk(10, 12), (true, None), chunk(1, 9), chunk(13, 13)]));
        assert!(!unique(&[chunk(1, 9), chunk(9, 12)]));
        assert!(!unique(&[chunk(1, 20), chunk(30, 31), chunk(5, 6)]));
        assert!(!unique(&[chunk(1, 9), (false, Some(Range { min: 10, max: 12 }))]));
        assert!(!unique(&[chunk(1, 9), (false, None)]));
    }

    #[test]
    fn columns_in_about_their_order_are_clustered() {
        let zone =
            |first: i128, last: i128| Zone { rows: 1 << 13, range: Some(Range { min: first, max: last }) };
        let rows = 100 << 13;
        let zones = |value: fn(i128) -> (i128, i128)| -> Vec<Zone> {
            (0..100)
                .map(|number| {
                    let (first, last) = value(number);
                    zone(first, last)
                })
                .collect()
        };
        assert!(are_clustered(&zones(|number| (number * 1000, number * 1000 + 999)), rows));
        // Downwards, with some disorder, and of one value.
        assert!(are_clustered(&zones(|number| (-number * 1000, -number * 1000 + 1400)), rows));
        assert!(are_clustered(&zones(|_| (7, 7)), rows));
        assert!(!are_clustered(&zones(|_| (0, 100_000)), rows));
        assert!(!are_clustered(&zones(|number| (number * 1000, number * 1000 + 10_000)), rows));
        // Of some rows at other places it is not.
        assert!(!are_clustered(&zones(|number| (number * 1000, 100_000)), rows));
        assert!(!are_clustered(&zones(|number| (number * 1000, number * 1000 + 999)), LEAST_ROWS - 1));
        assert!(!are_clustered(&[Zone { rows, range: None }], rows));
        assert!(!are_clustered(&[zone(i128::MIN, i128::MAX), zone(i128::MIN, i128::MAX)], rows));
    }

    /// Scattered values of which none is frequent.
    fn even(values: u64) -> Option<Scattered> {
        Some(Scattered { values, are_even: true, text_bytes: 0 })
    }

    /// The estimate for `rows` values by number, in chunks of 8192.
    fn estimate(rows: u64, value: impl Fn(u64) -> i64) -> Option<Scattered> {
        spread(rows, value).scattered
    }

    /// How such values are spread.
    fn spread(rows: u64, value: impl Fn(u64) -> i64) -> Spread {
        let values: Vec<i64> = (0..rows).map(value).collect();
        let samples: Vec<Vec<i64>> = values.chunks(8192).map(|chunk| sample(chunk, |value| value)).collect();
        Spread::of(samples.iter().map(Vec::as_slice), rows)
    }

    /// Numbers without a pattern.
    fn mixed(number: u64) -> u64 {
        let mixed = (number ^ (number >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8
    }

    #[test]
    fn many_scattered_values_are_counted() {
        assert_eq!(estimate(2_000_000, |row| (mixed(row) % 700_000) as i64 * 7919), even(1 << 20));
        assert_eq!(estimate(2_000_000, |row| mixed(row) as i64), even(1 << 21));
        assert_eq!(estimate(2_000_000, |row| (mixed(row) % 15_000) as i64 * 7919), even(1 << 14));
    }

    #[test]
    fn a_frequent_value_among_them_does_not_matter() {
        let heavy = |row| if mixed(row).is_multiple_of(4) { 7 } else { (mixed(row) % 700_000) as i64 * 7919 };
        let values = estimate(2_000_000, heavy).expect("many values");
        assert!((1 << 18..=1 << 20).contains(&values.values), "{values:?}");
        assert!(!values.are_even);
    }

    #[test]
    fn values_that_repeat_with_a_period_are_scattered_too() {
        let other = |row: u64| (row.wrapping_mul(104_729) + row / 350_003) % 350_003;
        for period in [3, 5, 6, 7, 8] {
            let heavy = |row: u64| if row.is_multiple_of(period) { 77 } else { other(row) as i64 };
            let values = estimate(20_000_000, heavy).expect("many values");
            assert!((1 << 18..=1 << 20).contains(&values.values), "{period}: {values:?}");
            assert!(!values.are_even, "{period}");
        }
        assert_eq!(places(0, 32).count(), 0);
        assert_eq!(places(5, 32).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let places: Vec<usize> = places(8190, 32).collect();
        assert!(places.len() == 32 && places.is_sorted() && places[31] < 8190, "{places:?}");
    }

    #[test]
    fn few_values_and_values_in_order_are_not() {
        assert_eq!(estimate(2_000_000, |row| (mixed(row) % 5_000) as i64 * 7919), None);
        assert_eq!(estimate(2_000_000, |row| (row / 4) as i64), None);
        assert_eq!(estimate(1_000, |row| mixed(row) as i64), None);
        // By Zipf's law there are many frequent values.
        let zipf = |row| 1_000_000_f64.powf((mixed(row) % 1_000_000) as f64 / 1e6) as i64 * 7919 % 1_000_003;
        assert_eq!(estimate(2_000_000, zipf), None);
        assert_eq!(estimate(2_000_000, |_| 7), None);
        assert_eq!(Spread::of([].into_iter(), 2_000_000), Spread::default());
    }
    #[test]
    fn frequent_values_are_seen_where_they_have_a_good_share_of_the_rows() {
        let has_frequent = |value: &dyn Fn(u64) -> i64| spread(2_000_000, value).has_frequent;
        assert!(has_frequent(&|row| if mixed(row).is_multiple_of(32) { 7 } else { mixed(row) as i64 }));
        assert!(has_frequent(
            &|row| 1_000_000_f64.powf((mixed(row) % 1_000_000) as f64 / 1e6) as i64 * 7919 % 1_000_003
        ));
        // Also in order, where a block meets one after the other.
        assert!(has_frequent(&|row| (row / 100_000) as i64));
        assert!(!has_frequent(&|row| mixed(row) as i64));
        assert!(!has_frequent(&|row| if mixed(row).is_multiple_of(500) {
            7
        } else {
            (mixed(row) % 700_000) as i64
        }));
        // Some of four thousand are met more often by chance.
        assert!(!has_frequent(&|row| (mixed(row) % 4_000) as i64));
        assert!(!spread(1_000, |_| 7).has_frequent);
    }
}
