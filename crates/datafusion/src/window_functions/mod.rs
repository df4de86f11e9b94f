//! Functions over windows as SQL has them, where DataFusion's own give another type or other values: numbers of rows (`numbers`), rows
//! ahead and behind of which NULLs are left out (`shifts`), and aggregates over frames that rows leave (`moving`, `blocks`). The
//! translator takes each for the function that it stands for ([`own_window`], [`own_aggregate`]).

mod blocks;
mod moving;
mod numbers;
mod shifts;

use std::sync::{Arc, LazyLock};

use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{dense_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{AggregateUDF, WindowUDF};

use crate::corrections::extremes::Extreme;

pub(crate) use moving::corrected as corrected_moving;

/// A function of DataFusion's, and what stands for it.
struct Replaced {
    own: Arc<WindowUDF>,
    by: Arc<WindowUDF>,
}

/// Functions that number rows.
static NUMBERS: LazyLock<Vec<Replaced>> = LazyLock::new(|| {
    let numbers = [row_number_udwf(), rank_udwf(), dense_rank_udwf(), ntile_udwf()];
    let replaced = numbers.map(|own| Replaced {
        by: Arc::new(WindowUDF::new_from_impl(numbers::Numbers::new(Arc::clone(&own)))),
        own,
    });
    replaced.into()
});

/// Functions that look at other rows.
static SHIFTS: LazyLock<Vec<Replaced>> = LazyLock::new(|| {
    let replaced = [lead_udwf(), lag_udwf()].map(|own| Replaced {
        by: Arc::new(WindowUDF::new_from_impl(shifts::Present::new(Arc::clone(&own)))),
        own,
    });
    replaced.into()
});

/// What stands for a window function of DataFusion's; nothing where that is right as it is, or another of the same name.
pub fn mended_window_function(function: &WindowUDF, ignores_nulls: bool) -> Option<Arc<WindowUDF>> {
    let shifts: &[Replaced] = if ignores_nulls { &SHIFTS } else { &[] };
    let replaced = NUMBERS.iter().chain(shifts).find(|replaced| *replaced.own == *function)?;
    Some(Arc::clone(&replaced.by))
}

/// What numbers rows in plans: processes that run parts of plans take these for DataFusion's of the same names.
pub(crate) fn numbering() -> Vec<Arc<WindowUDF>> {
    NUMBERS.iter().map(|replaced| Arc::clone(&replaced.by)).collect()
}

/// The function of DataFusion's that a window function stands for, or the function itself.
pub(crate) fn own_window(function: &WindowUDF) -> &WindowUDF {
    let implementation = function.inner().as_ref();
    let numbers = implementation.downcast_ref::<numbers::Numbers>().map(numbers::Numbers::inner);
    let present = || implementation.downcast_ref::<shifts::Present>().map(shifts::Present::inner);
    numbers.or_else(present).unwrap_or(function)
}

/// The aggregate that another stands for, or the aggregate itself.
pub(crate) fn own_aggregate(function: &AggregateUDF) -> &AggregateUDF {
    let implementation = function.inner().as_ref();
    let moving = implementation.downcast_ref::<moving::Moving>().map(moving::Moving::inner);
    let extreme = || implementation.downcast_ref::<Extreme>().map(Extreme::inner);
    moving.or_else(extreme).unwrap_or(function)
}
