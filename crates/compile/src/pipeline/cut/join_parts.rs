//! Joins whose rows come in parts: where a pipeline is cut for that.
//!
//! Whether the rows of a pipeline come to a join in parts is known when the join is planned; the pipeline is cut there when it ends.
//! Until then joins that stand further on can still leave out rows at its scan.

use std::sync::Arc;

use super::Cut;
use super::join::JoinSite;
use super::open::{Open, OpenRows};
use crate::MicroModel;
use crate::context::Unsupported;
use crate::operator::join::{JoinOperator, Sides};
use crate::operator::partition::{IntoParts, PartRows, PartSize, PartStore, RowParts};
use crate::plan::JoinKind;
use crate::program::Purpose;
use crate::variant::axes::{BuildParts, JoinParts};
use crate::variant::{Variant, all_but};

/// A place where a pipeline is cut, and goes on with its rows in parts.
#[derive(Debug)]
pub(super) struct PartCut {
    /// The number of the step behind it.
    pub(super) step: usize,
    store: Arc<PartStore>,
    by: Arc<dyn RowParts>,
    /// An upper bound of the rows there.
    bound: u64,
    /// What [`Open::shared_out`] is there.
    shared_out: Option<u64>,
}

/// Into how many parts the rows of a join's sides are brought before they come to it: 1 where they are not.
#[derive(Debug, Clone, Copy)]
pub(super) struct SideParts {
    pub(super) build: u64,
    pub(super) probe: u64,
}

impl SideParts {
    /// Rows come as they are.
    const OFF: SideParts = SideParts { build: 1, probe: 1 };
}

/// What a join knows of those that its rows come to in the same pipeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Downstream {
    /// Rows of the largest build side.
    pub(super) build_rows: u64,
}

impl Downstream {
    /// The same of the probe side of a join whose build side is thought to have so many rows.
    pub(super) fn and(self, kind: JoinKind, build_rows: u64) -> Downstream {
        match kind {
            // Its pipeline ends there.
            JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark => Downstream { build_rows },
            _ => Downstream { build_rows: self.build_rows.max(build_rows) },
        }
    }
}

impl Cut<'_> {
    /// Why rows cannot be brought into parts where they are.
    fn why_no_parts(&self, rows: &OpenRows) -> Option<String> {
        let most = JoinParts::ALL.iter().map(|parts| parts.0).max().unwrap_or(1);
        if !self.shape.is_serial() && !rows.branches.iter().all(Open::is_single) {
            let why_not = "a join before may make several rows of one, and a block finds places for as many rows at a time as it has threads";
            return Some(why_not.into());
        }
        let each = rows.branches.iter();
        let mut each = each.map(|open| PartStore::lacks(&rows.columns, (part_size(open), most), self.shape));
        each.find_map(|why_not| why_not)
    }

    /// Into how many parts the rows of the two sides are brought before they come to a join. `sides`: what is thought of them.
    pub(super) fn join_parts(
        &self,
        at: &JoinSite<'_>,
        operator: &JoinOperator,
        (build, probe): (&OpenRows, &OpenRows),
        sides: &Sides,
    ) -> Result<SideParts, Unsupported> {
        // Where keys neither hash nor have slots there is no choice.
        if !operator.index().has_parts() {
            return Ok(SideParts::OFF);
        }
        let (off, why_not) = (JoinParts(1), self.why_no_parts(probe));
        let (parts, reason) = match &why_not {
            Some(_) => (off, "rows cannot be stored in parts".into()),
            None if self.choices.micro_model != MicroModel::Resolution => {
                (off, "the micro model looks up rows as they come".into())
            }
            None if at.downstream.build_rows > sides.build_rows.unwrap_or(0) => {
                (off, "a join further on has a larger build side".into())
            }
            None if probe.branches.iter().any(|open| !open.cuts.is_empty()) => {
                (off, "rows come in the parts of a join before".into())
            }
            None => operator.rule_of_parts(sides, (self.shape.is_serial(), self.choices)),
        };
        let rule = ((parts, &*reason), Some(operator.estimate_of_parts(sides)));
        let parts = at.site.choose_by(rule, |value: JoinParts| match &why_not {
            _ if value == off => Ok(()),
            Some(why_not) => Err(why_not.clone()),
            None => PartStore::admits(value.0, self.shape),
        })?;
        if parts == off {
            return Ok(SideParts::OFF);
        }
        let why_not = self.why_no_parts(build);
        let rule = match &why_not {
            Some(why_not) => (BuildParts::Off, why_not.as_str()),
            None => (BuildParts::On, "the index is filled part after part"),
        };
        let text = operator.estimate_of_build_parts(sides, parts.0);
        let of_build = at.site.choose_by((rule, text), all_but(BuildParts::On, &why_not))?;
        let build = if of_build == BuildParts::On { parts.0 } else { 1 };
        Ok(SideParts { build, probe: parts.0 })
    }

    /// Has the rows of a side come in so many parts to what follows.
    pub(super) fn come_in_parts(
        &mut self,
        OpenRows { branches, columns, .. }: &mut OpenRows,
        operator: &JoinOperator,
        parts: u64,
        by: Arc<dyn RowParts>,
    ) -> Result<(), Unsupported> {
        if parts < 2 {
            return Ok(());
        }
        for open in branches {
            let states = self.states.of(Purpose::Store);
            let store = PartStore::plan(columns, part_size(open), parts, self.shape, states)?;
            let used = operator.index().parts_used(store.bits());
            let store = Arc::new(store.of_parts(u32::try_from(used).map_err(Unsupported::internal)?));
            let (step, bound, shared_out) = (open.steps.len(), open.bound, open.shared_out);
            open.cuts.push(PartCut { step, store, by: Arc::clone(&by), bound, shared_out });
            // Whoever takes the parts sees any of the rows.
            open.shared_out = None;
        }
        Ok(())
    }

    /// Ends a pipeline wherever its rows are to come in parts to what follows; what is left goes on from the last of these places.
    pub(super) fn cut_at_parts(&mut self, open: &mut Open) {
        let mut before = 0;
        for cut in std::mem::take(&mut open.cuts) {
            let behind = open.steps.split_off(cut.step.saturating_sub(before).min(open.steps.len()));
            before = cut.step;
            // A CPU's workers take whole parts, each of which fits the cache of a core; the blocks of a GPU, which share a cache, all
            // work on one. Where rows are counted before they are written, each place has its count, also those between parts.
            let in_blocks = self.shape.is_serial() && self.counts.is_none();
            let source = PartRows { store: Arc::clone(&cut.store), in_blocks, beyond: None };
            let rest = Open {
                steps: behind,
                skips: open.skips.clone(),
                matched: open.matched,
                ..Open::new(source, open.bound)
            };
            let mut front = std::mem::replace(open, rest);
            (front.bound, front.shared_out) = (cut.bound, cut.shared_out);
            let PartCut { store, by, .. } = cut;
            self.close(vec![front], Arc::new(IntoParts { store, by }));
        }
    }
}

/// How many rows of a pipeline come into parts.
fn part_size(open: &Open) -> PartSize {
    PartSize { row_bound: open.bound, expected: open.expected(), is_exact: !open.is_filtered() }
}
