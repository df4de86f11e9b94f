//! Axes of the states that kernels of a query share.

use crate::variant::{Axis, Level, Status, Variant};

axis!(
    /// How states come to be empty before the first of their kernels: `pipeline/init`.
    InitForm, "init", Plan, Paper, "how small tables of groups and joins are set to their empty values before a query's kernels",
    {
        /// Each is filled by itself, before the pipelines that need it.
        Each = "each",
        /// A kernel writes all of them.
        Kernel = "kernel",
    }
);
