//! Times of the device's sort by itself: keys of some bits beside the numbers of their rows, as sorts of queries have them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kelpie_compile::pipeline::SortForm;
use kelpie_compile::primitives::sweep;
use kelpie_compile::shape::LaunchShape;
use kelpie_compile::variant::axes::SortPasses;
use kelpie_device::{Buffer, CancelToken, Device, Tier};
use kelpie_kir::named;

use crate::error::EngineError;
use crate::primitives::Primitives;
use crate::query::Engine;
use crate::sorting::check_rows;

named! {
    /// Keys that come in some order.
    pub enum Arrival {
        /// In none.
        Random = "random",
        /// From the least to the greatest.
        Rising = "rising",
        /// From the greatest to the least.
        Falling = "falling",
        /// Rising, but for one of a thousand, which is random.
        Nearly = "nearly rising",
    }
}

/// What is sorted.
#[derive(Debug, Clone, Copy)]
pub struct SortSample {
    /// Rows: less than 2³².
    pub rows: u64,
    /// Bits in which keys differ, 1 to 64.
    pub bits: u32,
    /// How they come.
    pub arrival: Arrival,
}

impl SortSample {
    /// The key of a row: a number of so many bits.
    fn key(&self, row: u64) -> u64 {
        let bits = self.bits.clamp(1, u64::BITS);
        let random = || scrambled(row) >> (u64::BITS - bits);
        let most = u64::MAX >> (u64::BITS - bits);
        let rising = |row: u64| (u128::from(most) * u128::from(row) / u128::from(self.rows.max(1))) as u64;
        match self.arrival {
            Arrival::Random => random(),
            Arrival::Rising => rising(row),
            Arrival::Falling => rising(self.rows - 1 - row),
            Arrival::Nearly if row.is_multiple_of(1000) => random(),
            Arrival::Nearly => rising(row),
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn scrambled(row: u64) -> u64 {
    let z = row.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How long a sort took.
#[derive(Debug, Clone, Copy)]
pub struct SortTime {
    /// Its kernels.
    pub kernels: Duration,
    /// From when the keys were in the device's memory until their order was.
    pub whole: Duration,
}

impl Engine {
    /// Sorts keys that lie in a device's memory so many times, after a time that is not counted, whose order is checked.
    pub fn time_sort(
        &self,
        device: &Arc<dyn Device>,
        sample: SortSample,
        runs: usize,
    ) -> Result<Vec<SortTime>, EngineError> {
        check_rows(sample.rows)?;
        let stream = Arc::clone(device).begin_query()?;
        stream.set_tier(Tier::Best);
        let cancel = CancelToken::default();
        let shape = LaunchShape::of(device.target());
        let passes = match sweep::tile_rows(&shape) {
            _ if shape.is_serial() => SortPasses::Leading,
            0 => SortPasses::Tiles,
            _ => SortPasses::Sweep,
        };
        let primitives = Primitives::new(stream.as_ref(), &self.columns, &cancel);
        let mut primitives = primitives.sorting_by(SortForm { passes });
        let keys: Vec<u64> = (0..sample.rows).map(|row| sample.key(row)).collect();
        let word = primitives.allocate(sample.rows.saturating_mul(8))?;
        let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
        stream.upload(&word, 0, &bytes)?;
        drop(bytes);
        let mut times = Vec::new();
        for run in 0..=runs {
            let (start, before) = (Instant::now(), primitives.time_ns);
            let sorted = primitives.sort(&[Arc::clone(&word)], sample.rows)?;
            // Whoever reads a word waits for all that was submitted.
            let mut last = [0; 4];
            if let Some(place) = sample.rows.checked_sub(1) {
                stream.download(&sorted.order, place as usize * 4, &mut last)?;
            }
            let whole = start.elapsed();
            match run {
                0 => check(&keys, &order_of(&primitives, &sorted.order, sample.rows)?)?,
                _ => {
                    times.push(SortTime { kernels: Duration::from_nanos(primitives.time_ns - before), whole })
                }
            }
        }
        Ok(times)
    }
}

fn order_of(primitives: &Primitives<'_>, order: &Buffer, rows: u64) -> Result<Vec<u32>, EngineError> {
    let mut bytes = vec![0; rows as usize * 4];
    primitives.stream().download(order, 0, &mut bytes)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|place| u32::from_le_bytes(*place)).collect())
}

/// Whether keys are in an order, and equal ones in that in which they came.
fn check(keys: &[u64], order: &[u32]) -> Result<(), EngineError> {
    let key = |place: &u32| keys.get(*place as usize).map(|key| (*key, *place));
    let is_sorted = order.iter().map(key).is_sorted_by(|a, b| matches!((a, b), (Some(a), Some(b)) if a < b));
    match is_sorted && order.len() == keys.len() {
        true => Ok(()),
        false => Err(EngineError::Internal("a sort whose order is wrong".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrival_is_sorted_on_the_cpu_and_the_interpreter() {
        let engine = Engine::new();
        for (_, device) in engine.devices() {
            let Ok(device) = device else { continue };
            for arrival in Arrival::ALL {
                for (rows, bits) in [(0, 64), (1, 1), (3_000, 64), (5_000, 12)] {
                    let sample = SortSample { rows, bits, arrival };
                    let times = engine.time_sort(&device, sample, 1).unwrap();
                    assert_eq!(times.len(), 1, "{sample:?}");
                }
            }
        }
    }

    #[test]
    fn an_order_that_is_wrong_is_found() {
        assert!(check(&[3, 1, 3], &[1, 0, 2]).is_ok());
        for wrong in [&[0, 1, 2][..], &[1, 2, 0], &[1, 0], &[1, 0, 7]] {
            assert!(check(&[3, 1, 3], wrong).is_err(), "{wrong:?}");
        }
    }
}
