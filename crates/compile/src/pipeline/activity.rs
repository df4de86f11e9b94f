//! The share of a warp's lanes that are thought to have rows, step after step: where it is small, idle lanes are worth refilling (DogQC,
//! section 4, whose lanes are refilled behind operators that are known to leave few).

use std::sync::Arc;

use super::Pipeline;
use crate::expr::share_kept;
use crate::layout::ColumnInfo;
use crate::operator::roles::Step;

/// The share of the rows that a join leaves of which nothing is known.
const UNKNOWN: f64 = 1.0 / 3.0;

/// The share of lanes with rows behind the steps so far, since lanes were last refilled.
#[derive(Debug)]
pub(super) struct Activity {
    columns: Vec<ColumnInfo>,
    share: f64,
    /// A runtime filter has left out the rows that a join behind it would drop.
    is_filtered: bool,
}

impl Activity {
    /// At the source of a pipeline, whose lanes all have rows.
    pub(super) fn at_source(pipeline: &Pipeline) -> Activity {
        Activity { columns: pipeline.source.columns(), share: 1.0, is_filtered: false }
    }

    /// Behind one step more.
    pub(super) fn pass(&mut self, step: &Arc<dyn Step>) {
        self.share *= match (step.condition(), step.runtime_filter()) {
            (Some(condition), _) => {
                share_kept(condition, &|index: usize| self.columns.get(index).and_then(|info| info.range))
            }
            (None, Some(runtime_filter)) => runtime_filter.share(),
            (None, None) if step.drops() && !self.is_filtered => UNKNOWN,
            (None, None) => 1.0,
        };
        self.is_filtered |= step.runtime_filter().is_some();
        if let Some(behind) = step.columns(&self.columns) {
            self.columns = behind;
        }
    }

    /// The lanes that are thought to have rows.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Lanes are refilled, or have taken the rows that were made of others.
    pub(super) fn fill(&mut self) {
        self.share = 1.0;
    }
}
