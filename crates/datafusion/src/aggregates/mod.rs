//! Aggregates that DataFusion lacks, or has no accumulators of many groups for. Its operators run them by these accumulators; the translation knows some of them.

mod any_value;
mod arg_most;
mod array_agg;
mod counted;
mod grouped_rows;
mod histograms;
mod quantile_functions;
mod quantiles;

pub use self::any_value::GroupedAnyValue;
pub use self::arg_most::ArgMost;
pub use self::array_agg::GroupedArrayAgg;
pub use self::counted::Counted;
pub use self::quantile_functions::{Median, PercentileCont, QuantileDisc};
