//! The offsets of a time zone, at moments and at local times, in any year.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, TimestampSecondArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Date32Type, Time32SecondType, TimeUnit};
use datafusion::error::Result;

const DAY_SECONDS: i64 = 86_400;

/// How many of a unit a second has.
pub fn ticks_of_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// A time zone, by its name or its offset.
#[derive(Debug, Clone)]
pub struct Zone(pub Arc<str>);

impl Zone {
    /// The offsets, in seconds, by which local times, in seconds, are to be read: a time that is skipped is read by the clock before
    /// the leap, and one that comes twice is the second.
    pub fn offsets_of_local(&self, local: &Int64Array) -> Result<Int64Array> {
        let moved = |by: &Int64Array, sign: i64| -> Int64Array {
            local.iter().zip(by).map(|(local, by)| Some(local? + sign * by?)).collect()
        };
        let days = Int64Array::from_value(DAY_SECONDS, local.len());
        let (before, after) = (self.offsets(&moved(&days, -1))?, self.offsets(&moved(&days, 1))?);
        let of_before = self.offsets(&moved(&before, -1))?;
        let of_after = self.offsets(&moved(&after, -1))?;
        let choose = |row: usize| {
            if local.is_null(row) {
                return None;
            }
            let (before, after) = (before.value(row), after.value(row));
            let (first, second) = (of_before.value(row) == before, of_after.value(row) == after);
            Some(match (first, second) {
                // The smaller offset is the later moment.
                (true, true) => before.min(after),
                (false, true) => after,
                (true, false) | (false, false) => before,
            })
        };
        Ok((0..local.len()).map(choose).collect())
    }

    /// The zone's offsets at moments, in seconds.
    pub fn offsets(&self, moments: &Int64Array) -> Result<Int64Array> {
        let values: TimestampSecondArray = moments.iter().collect();
        let values = values.with_timezone(Arc::clone(&self.0));
        let days = cast(&values, &DataType::Date32)?;
        let times = cast(&values, &DataType::Time32(TimeUnit::Second))?;
        let (days, times) = (days.as_primitive::<Date32Type>(), times.as_primitive::<Time32SecondType>());
        let local =
            days.iter().zip(times).map(|(day, time)| Some(i64::from(day?) * DAY_SECONDS + i64::from(time?)));
        Ok(local.zip(moments).map(|(local, moment)| Some(local? - moment?)).collect())
    }

    /// The moments of local times, both in a unit.
    pub fn moments(&self, local: &Int64Array, unit: TimeUnit) -> Result<Int64Array> {
        let offsets = self.offsets_of_local(&seconds(local, unit))?;
        Ok(moved(local, &offsets, -ticks_of_second(unit)))
    }

    /// The local times of moments, both in a unit.
    pub fn local(&self, moments: &Int64Array, unit: TimeUnit) -> Result<Int64Array> {
        let offsets = self.offsets(&seconds(moments, unit))?;
        Ok(moved(moments, &offsets, ticks_of_second(unit)))
    }
}

fn seconds(ticks: &Int64Array, unit: TimeUnit) -> Int64Array {
    let of_second = ticks_of_second(unit);
    ticks.iter().map(|ticks| ticks.map(|ticks| ticks.div_euclid(of_second))).collect()
}

fn moved(ticks: &Int64Array, offsets: &Int64Array, scale: i64) -> Int64Array {
    ticks.iter().zip(offsets).map(|(ticks, offset)| ticks?.checked_add(offset?.checked_mul(scale)?)).collect()
}
