//! Grouping by sort, stride by stride (Karnagel et al. 2015, section 5.2, figure 12 b): memory is for the rows of a stride and for the
//! groups, not for all rows.
//!
//! A chain of three pipelines runs for each stride of the source's rows:
//! 1. rows are stored with the word of their keys ([`StrideRows`]), and the engine sorts them by it;
//! 2. where the groups of earlier strides, which are sorted runs, leave no room for those of this one, the engine merges the runs two
//!    by two, as a tree of merges of their words with the groups' numbers ([`primitives::merge`](crate::primitives::merge)), and the
//!    kernel reduces the groups in that order to one run ([`MergedCells`]), which takes the place of the others;
//! 3. the sorted rows are reduced to their groups, a further run ([`PlacedStride`]).
//!
//! After the last stride the runs that are left are merged and reduced once more, as in 2. The paper merges each stride's groups with
//! all before; here that waits until there is no room, and room is then made for twice as many, so that a group is moved as often as
//! the groups double, and not as often as there are strides.
//!
//! In every step rows of equal words are neighbours, and the number of their run is their place: no table is searched.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{BlockRows, Cut, Open, OpenRows, Work};
use crate::context::Unsupported;
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::aggregate::{
    AddToGroups, AggregateOperator, Contents, Input, MergedCells, SortedRuns, TableChoices,
};
use crate::operator::project::Project;
use crate::operator::roles::Source;
use crate::operator::sort::{PlacedStride, SortOperator, SortRows, StrideRows};
use crate::plan::Aggregate;
use crate::program::{HostAction, PlacedGroups, Purpose, StrideStep, Strides, Task, When};
use crate::variant::Site;
use crate::variant::axes;

/// Rows of a stride on a CPU: their words and numbers, as the sort moves them, lie in the caches of its workers.
const CPU_STRIDE: axes::StrideRows = axes::StrideRows(1 << 18);
/// On a GPU: 32 MB of integers of 4 bytes, as in the paper (section 2.1), so that launches and waits cost little beside the sort.
const GPU_STRIDE: axes::StrideRows = axes::StrideRows(1 << 23);

/// Keys and arguments of an aggregation as columns, and the keys and aggregates over these.
pub(super) struct Stored<'a> {
    pub exprs: &'a [Expr],
    pub infos: &'a [ColumnInfo],
    pub keys: usize,
    pub aggregates: &'a [Aggregate],
}

impl Cut<'_> {
    /// Brings rows to their groups stride by stride.
    pub(super) fn strided(
        &mut self,
        rows: OpenRows,
        stored: &Stored<'_>,
    ) -> Result<Arc<AggregateOperator>, Unsupported> {
        let site = self.groups.to_string();
        let rule = match self.shape.is_serial() {
            true => (CPU_STRIDE, "a stride's sort stays in a worker's caches"),
            false => (GPU_STRIDE, "the sort of a stride fills the device"),
        };
        let axes::StrideRows(stride) = self.chooser.choose(&site, rule, |_| Ok(()))?;
        let (bound, form) = (rows.bound(), self.sort_form(&site)?);
        let states = self.states.of(Purpose::Store);
        let sort = Arc::new(SortOperator::plan_stride(stored.keys, stored.infos, stride.min(bound), states)?);
        let (counter, words, order) = sort.stride_states()?;
        let places = sort.numbers("group_places", states);
        let key_columns = &stored.infos[..stored.keys.min(stored.infos.len())];
        let initial = stride.saturating_mul(2);

        let sorted = PlacedStride::new(Arc::clone(&sort), places);
        let (columns, place) = (sorted.columns(), sorted.place());
        let from = Contents::Rows(stored.aggregates);
        let (partial, partial_groups) =
            self.runs((key_columns, place), from, (&site, &columns), (bound, initial))?;
        let states = self.states.of(Purpose::Table);
        let merge_order = states.state("merge_order", 4, partial_groups.class);
        let merge_places = states.state("merge_places", 4, partial_groups.class);
        let merging = || MergedCells {
            groups: Arc::clone(&partial),
            count: partial_groups.count,
            order: merge_order,
            places: merge_places,
        };
        let (columns, place) = (merging().columns(), merging().place());
        let from = Contents::Groups(&partial);
        let (merged, merged_groups) = self.runs((key_columns, place), from, (&site, &columns), (bound, 1))?;
        let strides = Strides {
            form,
            rows: counter,
            words,
            order,
            places,
            partial: partial_groups,
            merged: merged_groups,
            merge_order,
            merge_places,
            row_bound: bound,
        };
        let (own, made) = (Arc::clone(&partial), Arc::clone(&merged));
        let each = StridePipelines { sort, partial: own, merged: made, strides, stride, bound };
        self.stride_chains(rows, stored.exprs, &each, (&merging, places));
        let work = each.work(BlockRows::Whole, &[(When::BeforeGroup, StrideStep::Merge)]);
        let group = self.take_group();
        let sink = Arc::new(AddToGroups(Arc::clone(&merged), None));
        self.end_with(Open::new(merging(), bound), sink, (group, false), Vec::new(), work);
        Ok(merged)
    }

    /// Groups at places, which rows bring in the column `place`.
    fn runs(
        &mut self,
        keys: (&[ColumnInfo], Expr),
        from: Contents<'_>,
        (site, columns): (&str, &[ColumnInfo]),
        (bound, initial): (u64, u64),
    ) -> Result<(Arc<AggregateOperator>, PlacedGroups), Unsupported> {
        let input = Input {
            site: Site { chooser: self.chooser, name: site },
            shape: self.shape,
            choices: self.choices,
            columns,
            row_bound: bound,
            expected_rows: bound,
            thread_rows: bound,
            is_single: true,
            has_probes: false,
            is_sorted: true,
            followers: BTreeSet::new(),
            parts: None,
            groups: None,
            made: TableChoices::default(),
        };
        let runs = SortedRuns { key_columns: keys.0, place: keys.1, initial };
        let states = self.states.of(Purpose::Table);
        let (operator, groups) = AggregateOperator::plan_runs(&runs, from, &input, states)?;
        Ok((Arc::new(operator), groups))
    }

    /// Ends open pipelines in a chain each, all of which fill the same runs.
    fn stride_chains(
        &mut self,
        mut rows: OpenRows,
        exprs: &[Expr],
        each: &StridePipelines,
        (merging, places): (&dyn Fn() -> MergedCells, usize),
    ) {
        rows.push(Project(exprs.to_vec()));
        rows.branches.iter_mut().for_each(|open| self.cut_at_parts(open));
        let group = self.take_group();
        let mut begin: &[_] = &[(When::BeforeRun, StrideStep::Begin)];
        for mut open in rows.branches {
            let mut continues = false;
            for (part, sink) in open.take_parts() {
                let blocks = if continues { BlockRows::Any } else { BlockRows::AtMost(each.stride) };
                self.end_with(part, sink, (group, continues), Vec::new(), each.work(blocks, begin));
                (continues, begin) = (true, &[]);
            }
            let blocks = if continues { BlockRows::Any } else { BlockRows::AtMost(each.stride) };
            let stride = Arc::new(StrideRows(SortRows(Arc::clone(&each.sort))));
            self.end_with(open, stride, (group, continues), Vec::new(), each.work(blocks, begin));
            begin = &[];
            let steps = [(When::BeforeLaunch, StrideStep::Sort), (When::AfterLaunch, StrideStep::Exchange)];
            let work = each.work(BlockRows::Whole, &steps);
            let sink = Arc::new(AddToGroups(Arc::clone(&each.merged), None));
            self.end_with(Open::new(merging(), each.bound), sink, (group, true), Vec::new(), work);
            let work = each.work(BlockRows::Any, &[(When::BeforeLaunch, StrideStep::Place)]);
            let sorted = PlacedStride::new(Arc::clone(&each.sort), places);
            let sink = Arc::new(AddToGroups(Arc::clone(&each.partial), None));
            self.end_with(Open::new(sorted, each.bound), sink, (group, true), Vec::new(), work);
        }
    }
}

/// What the pipelines of a grouping by strides share.
struct StridePipelines {
    sort: Arc<SortOperator>,
    partial: Arc<AggregateOperator>,
    merged: Arc<AggregateOperator>,
    strides: Strides,
    /// Rows of a stride.
    stride: u64,
    /// Rows at most.
    bound: u64,
}

impl StridePipelines {
    /// What the engine does for a pipeline of them.
    fn work(&self, blocks: BlockRows, steps: &[(When, StrideStep)]) -> Work {
        let action = |&(when, step): &(When, StrideStep)| HostAction {
            when,
            task: Task::Stride(step, Box::new(self.strides)),
        };
        Work { blocks, around: steps.iter().map(action).collect() }
    }
}
