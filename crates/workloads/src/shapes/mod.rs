//! Shapes of queries that the benchmarks lack: groupings of 6 million rows by keys of all kinds and numbers, joins with 18
//! dimensions, and statements of kinds that were slow. Nothing is tuned for them alone: they show what a query costs whose shape nobody had foreseen.

mod tables;

use anyhow::Result;

use crate::output::{GenerateOptions, WrittenTable, check_options, write_tables};

/// Names of the tables: the dimensions, the facts, and a dimension whose keys are far from each other.
pub const TABLES: [&str; 22] = [
    "dim0", "dim1", "dim2", "dim3", "dim4", "dim5", "dim6", "dim7", "dim8", "dim9", "dim10", "dim11",
    "dim12", "dim13", "dim14", "dim15", "dim16", "dim17", "star", "levels", "keyed", "sparse",
];

/// Rows of the largest table at scale factor 1 are 12 million, and row numbers have 32 bits.
const MAX_SCALE: f64 = 300.0;

macro_rules! queries {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../queries/shapes/", $name, ".sql")))),*]
    };
}

/// Names and texts of the queries. `i…` and `t…` group `keyed` by integers and by texts, of which there are so many at scale factor 1;
/// they look at every group and deliver one row, so that what is timed is the grouping. `ordered` has the keys in the order of the rows, `power` by a power law.
/// `sparse…` join with keys of 64 bits, of which all, or few, have a match. `view…` use a view several times, `exists…` ask for another row of
/// a key under a comparison, `fact-build` builds on all facts, `top-worst` wants the first rows of an order in which they come last, and
/// `item-texts` groups by four texts of one dimension.
pub const QUERIES: [(&str, &str); 38] = queries!(
    "i4", "i10k", "i1500k", "i6m", "t4", "t10k", "t1500k", "t6m", "i10k-t4", "t4-t10k", "i10k-t1500k",
    "distinct-i", "distinct-t", "heavy", "power", "computed", "ordered", "rollup", "star", "star-count",
    "star-filter", "star-text", "sparse", "sparse-few", "view-twice", "view-union", "exists-other",
    "exists-none", "exists-greater", "fact-build", "top-worst", "item-texts", "text-part", "i1500k-i4",
    "median", "pairs", "many-aggregates", "range-join",
);

/// Writes the tables: the same data at a scale factor, whatever the number of threads.
pub fn generate(options: &GenerateOptions<'_>) -> Result<Vec<WrittenTable>> {
    check_options(options, &TABLES, MAX_SCALE)?;
    write_tables(&tables::of(options.scale), options)
}
