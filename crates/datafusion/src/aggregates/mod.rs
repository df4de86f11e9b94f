//! Aggregates that DataFusion lacks, or has no accumulators of many groups for. Its operators run them by these accumulators; the translation knows some of them.

mod arg_most;
mod array_agg;
mod counted;
mod distinct_rows;
mod ends;
mod grouped_rows;
mod histograms;
mod quantile_functions;
mod quantiles;
mod string_agg;

pub use self::arg_most::ArgMost;
pub use self::array_agg::GroupedArrayAgg;
pub use self::counted::Counted;
pub use self::distinct_rows::CountDistinctRows;
pub(crate) use self::ends::End;
pub use self::ends::GroupedEnd;
pub use self::quantile_functions::{Median, PercentileCont, QuantileDisc};
pub use self::string_agg::GroupedStringAgg;
