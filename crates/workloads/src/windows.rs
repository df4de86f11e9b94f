//! Window functions over one table: ranks, sums that run and slide, ranges of dates, and the first rows of each partition, in a hundred
//! partitions, in one of two rows each, and in a single one. Each query adds its values up and delivers one row, so that what is timed is
//! the window.

use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{ArrayRef, Date32Array, Float64Array, Int32Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema};

use crate::output::{GenerateOptions, Table, WrittenTable, check_options, keyed_table, write_tables};
use crate::random::Column;

/// The only table.
pub const TABLES: [&str; 1] = ["series"];

/// Rows at scale factor 1; their numbers have 31 bits.
const ROWS: f64 = 5e6;
const MAX_SCALE: f64 = 400.0;

macro_rules! queries {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../queries/windows/", $name, ".sql")))),*]
    };
}

/// Names and texts of the queries. Behind a name stands into how many partitions rows fall: `many` are half as many as there are rows.
pub const QUERIES: [(&str, &str); 16] = queries!(
    "row-number-100", "row-number-many", "row-number-all", "rank-100", "running-sum-many", "running-sum-100",
    "sliding-avg-100", "sliding-min-all", "range-sum-100", "lag-many", "ntile-100", "partition-avg-100",
    "partition-sum-many", "first-two", "first-ten", "best",
);

const HUNDRED: Column = Column::new("windows hundred");
const MANY: Column = Column::new("windows many");
const HUNDREDTH: Column = Column::new("windows hundredth");
const THOUSANDTH: Column = Column::new("windows thousandth");
const VALUE: Column = Column::new("windows value");
const SHARE: Column = Column::new("windows share");
const DAY: Column = Column::new("windows day");

/// The first of the dates: 1995-01-01, in days from 1970-01-01.
const FIRST_DAY: i32 = 9131;

/// Writes the table: the same data at a scale factor, whatever the number of threads.
pub fn generate(options: &GenerateOptions<'_>) -> Result<Vec<WrittenTable>> {
    check_options(options, &TABLES, MAX_SCALE)?;
    write_tables(&[series(((ROWS * options.scale).round() as u64).max(1))], options)
}

/// Partitions `g`, `p`, `m` and `h`, of which there are 100, a half, a hundredth and a thousandth of the rows; `o`, which no two rows
/// have alike and which is in no order; `v` below 10,000, `f` below 1,000 and `d` of 3,000 days.
fn series(rows: u64) -> Table {
    let share = move |part: u64| u32::try_from(rows / part).unwrap_or(u32::MAX).max(1);
    let integers = |rows: &[u64], value: &dyn Fn(u64) -> u32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| value(*row) as i32)))
    };
    let bits = u64::BITS - rows.leading_zeros();
    let columns = move |rows: &[u64]| -> Vec<ArrayRef> {
        vec![
            integers(rows, &|row| HUNDRED.below(row, 100)),
            integers(rows, &|row| MANY.below(row, share(2))),
            integers(rows, &|row| HUNDREDTH.below(row, share(100))),
            integers(rows, &|row| THOUSANDTH.below(row, share(1000))),
            integers(rows, &|row| scrambled(row, bits)),
            integers(rows, &|row| VALUE.below(row, 10_000)),
            Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|row| f64::from(SHARE.below(*row, 1 << 30)) / f64::from(1 << 30) * 1000.0),
            )),
            Arc::new(Date32Array::from_iter_values(
                rows.iter().map(|row| FIRST_DAY + DAY.below(*row, 3000) as i32),
            )),
        ]
    };
    let integer = |name: &&str| Field::new(*name, DataType::Int32, false);
    let mut fields: Vec<Field> = ["g", "p", "m", "h", "o", "v"].iter().map(integer).collect();
    fields.push(Field::new("f", DataType::Float64, false));
    fields.push(Field::new("d", DataType::Date32, false));
    keyed_table(TABLES[0], Arc::new(Schema::new(fields)), rows, columns)
}

/// Another number of so many bits, and for each number another one: both steps can be undone.
fn scrambled(number: u64, bits: u32) -> u32 {
    let mask = (1 << bits) - 1;
    let mixed = |number: u64| (number ^ (number >> bits.div_ceil(2))).wrapping_mul(0x9e37_79b1) & mask;
    mixed(mixed(mixed(number & mask))) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn scrambled_numbers_are_all_different() {
        let numbers: BTreeSet<u32> = (0..1 << 12).map(|number| scrambled(number, 12)).collect();
        assert_eq!((numbers.len(), numbers.last()), (1 << 12, Some(&((1 << 12) - 1))));
    }
}
