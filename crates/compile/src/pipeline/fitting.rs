//! What groups, or rows that were counted before, become is sized by their number: results, stores, sorts and the texts in them. The
//! host learns the number when their kernel has ended, before the first run of the pipeline that reads them; later runs begin with what
//! fitted the first (`engine/stage/store`), so that nobody waits for a number then.
//!
//! Without it arrays begin with as many elements as there may be, up to a limit: of few groups of many rows memory is taken in vain, and of
//! more groups than the limit the pipeline runs twice.

use super::Pipeline;
use crate::program::{Fitting, Growth, HostAction, States, Task, When};
use crate::shape::LaunchShape;
use crate::table::chunks::PlaceChunks;

/// Bytes of arrays from which on they are sized by what was counted: less is not worth a copy that the host waits for.
const LEAST_BYTES: u64 = 1 << 20;

/// The actions that size what each pipeline writes, by the number of the pipeline.
pub(super) fn of_pipelines(
    pipelines: &[Pipeline],
    states: &States,
    shape: &LaunchShape,
) -> Vec<Vec<HostAction>> {
    let alone = |pipeline: &Pipeline| {
        pipelines.iter().filter(|other| other.group == pipeline.group).count() == 1 && !pipeline.continues
    };
    let of = |pipeline: &Pipeline| match alone(pipeline) {
        true => of_pipeline(pipeline, states, shape),
        false => Vec::new(),
    };
    pipelines.iter().map(of).collect()
}

fn of_pipeline(pipeline: &Pipeline, states: &States, shape: &LaunchShape) -> Vec<HostAction> {
    let (Some(count), Some((rows, leaves_out))) = (pipeline.source.counted(), pipeline.sink.takes_places())
    else {
        return Vec::new();
    };
    if pipeline.steps.iter().any(|step| step.expands()) {
        return Vec::new();
    }
    let of_rows = states.classes.get(rows).map_or(1, |class| class.initial.max(1));
    let drops = leaves_out || pipeline.steps.iter().any(|step| step.drops());
    let grown =
        pipeline.sink.needs().around.into_iter().filter_map(|action| match (action.when, action.task) {
            (When::OnGrow, Task::Grow(class)) => Some(class),
            _ => None,
        });
    let fit = |class: usize| {
        let declared = states.classes.get(class)?;
        let Growth::Counted(_) = declared.growth else { return None };
        let own = states.states.iter().filter(|state| state.class == class);
        let bytes = own.map(|state| u64::from(state.element_bytes)).sum::<u64>();
        let each = if class == rows { 1 } else { declared.initial / of_rows };
        let slack = if class == rows { PlaceChunks::slack(u64::MAX, shape) } else { 0 };
        let is_large = declared.initial.saturating_mul(bytes) >= LEAST_BYTES;
        (is_large && each > 0).then_some(Fitting { count, class, each, slack, drops })
    };
    let task = |fitting| HostAction { when: When::BeforeGroup, task: Task::Fit(fitting) };
    grown.filter_map(fit).map(task).collect()
}
