//! TPC-H: data by `tpchgen`, the 22 queries and their answers.

mod answers;
mod data;

pub use answers::{answer_scales, check_answer};
pub use data::generate;

/// Names of the tables, smallest first.
pub const TABLES: [&str; 8] =
    ["region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem"];

macro_rules! queries {
    ($($number:literal),* $(,)?) => {
        [$(include_str!(concat!("../../queries/tpch/q", $number, ".sql"))),*]
    };
}

/// The queries 1 to 22.
pub const QUERIES: [&str; 22] = queries!(
    "01", "02", "03", "04", "05", "06", "07", "08", "09", "10", "11", "12", "13", "14", "15", "16", "17",
    "18", "19", "20", "21", "22",
);
