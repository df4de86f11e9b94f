//! Runs Kelpie's compiled plans: stages, memory budget, column cache, cancellation and metrics.
