//! The Star Schema Benchmark (O'Neil et al., 2009): our own generator, and the 13 queries.
//!
//! Every value is a hash of (seed, column, row): a table is the same table however it is cut into parts.

mod calendar;
mod dimensions;
mod lineorder;

use anyhow::Result;

use crate::output::{GenerateOptions, WrittenTable, check_options, write_tables};

/// Names of the tables, smallest first.
pub const TABLES: [&str; 5] = ["date", "supplier", "customer", "part", "lineorder"];

/// Order keys are 32-bit integers up to 6,000,000 × the scale factor.
const MAX_SCALE: f64 = 350.0;

macro_rules! queries {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../queries/ssb/q", $name, ".sql")))),*]
    };
}

/// Names and texts of the queries.
pub const QUERIES: [(&str, &str); 13] =
    queries!("1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3");

/// Writes the tables of the benchmark: the same data at a scale factor, whatever the number of threads.
pub fn generate(options: &GenerateOptions<'_>) -> Result<Vec<WrittenTable>> {
    check_options(options, &TABLES, MAX_SCALE)?;
    let sizes = Sizes::of(options.scale);
    let tables = [
        calendar::table(),
        dimensions::supplier(sizes),
        dimensions::customer(sizes),
        dimensions::part(sizes),
        lineorder::table(sizes),
    ];
    write_tables(&tables, options)
}

/// The first date, as `lo_orderdate` has it, that is beyond such a share (0 to 1) of the days on which orders are placed.
pub(crate) fn first_date_beyond(share: f64) -> i32 {
    let day = (share.clamp(0.0, 1.0) * f64::from(calendar::ORDER_DAYS)).round() as usize;
    calendar::days().get(day).map_or(i32::MAX, |day| day.key())
}

/// Rows of the tables at a scale factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    customers: u64,
    suppliers: u64,
    parts: u64,
    orders: u64,
}

impl Sizes {
    fn of(scale: f64) -> Sizes {
        let scaled = |rows: f64| (rows * scale).round().max(1.0) as u64;
        // Parts grow with the logarithm; below 1 the benchmark says nothing, and a share of them serves.
        let parts = if scale < 1.0 { scaled(200_000.0) } else { 200_000 * (1 + scale.log2().floor() as u64) };
        Sizes { customers: scaled(30_000.0), suppliers: scaled(2_000.0), parts, orders: scaled(1_500_000.0) }
    }
}

#[cfg(test)]
mod tests;
