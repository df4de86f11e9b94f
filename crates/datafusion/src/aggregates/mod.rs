//! Aggregates that DataFusion lacks. Its operators run them by these accumulators; the translation knows some of them.

mod counted;
mod quantile_disc;

pub use self::counted::Counted;
pub use self::quantile_disc::QuantileDisc;
