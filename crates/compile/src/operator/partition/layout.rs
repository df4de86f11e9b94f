//! Parts that follow each other in their array without gaps: where they are, and who has them so.
//!
//! A kernel counts the rows of each part ([`count`](super::count)), a prefix sum over the counts gives each part its first place, and
//! the kernel that writes takes places from there on: so a part is one range of places, however many rows it has, and there are as many
//! places as rows. What it costs is that rows come twice: the columns that give a row its part are read once more, and what is before in
//! the pipeline, filters and joins, is done once more.

use kelpie_kir::{BinaryOp, Scalar, Type};

use super::PartStore;
use crate::context::{Argument, Context, Unsupported};
use crate::primitives::partition::{MOST_PLACES, Starts};
use crate::program::{Fitting, HostAction, Task, When};
use crate::variant::Site;
use crate::variant::axes::PartLayout;

/// How parts lie in their array. `lacks`: why rows cannot come twice, if they cannot.
pub(crate) fn choose_layout(site: Site<'_>, lacks: Option<&str>) -> Result<PartLayout, Unsupported> {
    let rule = (PartLayout::Shares, lacks.unwrap_or("rows that are spread by a hash are read once"));
    site.choose(rule, |value| match (value, lacks) {
        (PartLayout::Histogram, Some(lacks)) => Err(lacks.into()),
        _ => Ok(()),
    })
}

impl PartStore {
    /// Whether parts follow each other.
    pub(crate) fn follows(&self) -> bool {
        self.starts.is_some()
    }

    /// Where they do: what the engine does between the kernel that counts and the one that writes.
    pub(crate) fn before_writing(&self) -> Vec<HostAction> {
        let Some(starts) = self.starts else { return Vec::new() };
        let fitting = Fitting { count: self.wanted, class: self.class, each: 1, slack: 0, drops: false };
        let tasks = [Task::PrefixSum(starts), Task::Fit(fitting)];
        tasks.into_iter().map(|task| HostAction { when: When::BeforeGroup, task }).collect()
    }

    /// Where they are, if they follow each other.
    pub(super) fn starts(&self, cx: &mut Context<'_>) -> Option<Starts> {
        let starts = cx.argument("part_starts", Type::global(Scalar::U32), Argument::State(self.starts?));
        let places = self.capacity(cx);
        let b = &mut *cx.builder;
        let most = b.i64(MOST_PLACES as i64);
        let places = b.binary(BinaryOp::Min, places, most);
        Some(Starts { starts, places: b.convert(places, Scalar::U32) })
    }
}
