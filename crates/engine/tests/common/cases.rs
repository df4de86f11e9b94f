//! The cases of a test: what tells one from another.

use std::fmt::Debug;

use super::*;

pub use kelpie_engine::testing::sample::{covering, is_whole, sample};

/// The facets of options: each device, each model and each value that is forced is that of a case which runs, where these are given to
/// [`covering`].
pub fn facets(options: &QueryOptions) -> Vec<String> {
    let QueryOptions { device, simt_lanes, micro_model, resolution, macro_model, threads, .. } = options;
    let device = match device {
        DeviceChoice::Simt => format!("{device:?} of {simt_lanes} lanes"),
        DeviceChoice::Cpu => format!("{device:?} with {threads:?} workers"),
        _ => format!("{device:?}"),
    };
    let models = [format!("{micro_model:?}"), format!("{resolution:?}"), format!("{macro_model:?}")];
    let forced = options.variants.iter().map(|(axis, value)| format!("{axis} = {value}"));
    [device].into_iter().chain(models).chain(forced).collect()
}

/// The same, and others.
pub fn facets_and(options: &QueryOptions, others: &[&dyn Debug]) -> Vec<String> {
    let others = others.iter().enumerate().map(|(number, other)| format!("{number}: {other:?}"));
    facets(options).into_iter().chain(others).collect()
}

/// How often something is to be seen at least: of all cases so often, of a sample of them it cannot be known.
pub fn floor(whole: usize) -> usize {
    if is_whole() { whole } else { 0 }
}

/// The numbers of rows of a case that is slow where rows are many: the one that runs always, and the one beside it where all cases run.
pub fn sizes(always: usize, whole: usize) -> Vec<usize> {
    if is_whole() { vec![always, whole] } else { vec![always] }
}
