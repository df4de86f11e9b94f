//! The largest parts of a plan that compile, replaced.
//!
//! Nodes are visited from the root down; the first that compiles takes all that is below it. A node that was found not to
//! translate is not tried again as part of a smaller plan, so every node is translated twice at most here, however many
//! there are, and once more before, where `whole` tried the query. What stays around a compiled part stays as DataFusion planned it, with its partitions: see `partitions`.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use kelpie_compile::plan::Plan;
use kelpie_engine::Engine;

use super::nodes::{bare_scan, is_worth};
use super::{leave, partitions};
use crate::exec::KelpieExec;
use crate::join_order::estimated_rows;
use crate::node::Node;
use crate::node::pass_through;
use crate::options::KelpieOptions;
use crate::original::Original;
use crate::translate::{Reasons, Refused, Translated, refined, translate_known};

/// The plan with its largest compilable parts replaced, and every reason why the rest is not.
pub(super) fn replaced(
    plan: &Node,
    engine: &Arc<Engine>,
    options: &KelpieOptions,
) -> Result<(Node, Vec<String>)> {
    let (left, found) = leave::parts(plan, engine, options);
    let mut reasons = Reasons::default();
    found.into_iter().for_each(|reason| reasons.push(reason));
    let mut refused = Refused::default();
    let whole = translate_known(plan, &mut refused);
    let whole = match whole {
        Ok(translated) => Some(translated).filter(|_| !left.contains(plan)),
        Err(found) => {
            found.into_iter().for_each(|reason| reasons.push(reason));
            None
        }
    };
    let mut replacer = Replacer { engine, options, left, refused, reasons };
    let place = Place { depth: 0, any_partitions: true };
    let replaced = match whole {
        Some(translated) => replacer.root(plan, translated, place)?,
        None => replacer.below(plan, place)?,
    };
    Ok((replaced, replacer.reasons.into_vec()))
}

/// Where a node stands.
#[derive(Clone, Copy)]
struct Place {
    /// Levels of EXPLAIN's tree above.
    depth: usize,
    /// How many partitions the node has does not matter to what is above it.
    any_partitions: bool,
}

struct Replacer<'a> {
    engine: &'a Arc<Engine>,
    options: &'a KelpieOptions,
    /// What DataFusion does better, and all above it.
    left: Refused,
    /// What does not translate, and all above it.
    refused: Refused,
    reasons: Reasons,
}

impl Replacer<'_> {
    fn root(&mut self, plan: &Node, translated: Translated, place: Place) -> Result<Node> {
        if is_worth(&translated.plan)
            && let Some(compiled) = self.compiled(plan, translated, place)
        {
            return Ok(compiled);
        }
        self.below(plan, place)
    }

    /// A node below the root: an exchange or a sort on top of it stays DataFusion's, which runs it on all cores.
    fn node(&mut self, node: &Node, place: Place) -> Result<Node> {
        let sorts = node.is::<SortPreservingMergeExec>()
            || node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none());
        let hands_on = pass_through(node).is_some() && !node.is::<CooperativeExec>();
        let fits = place.any_partitions || partitions::keeps_promises(node);
        let known = self.left.contains(node) || self.refused.contains(node);
        if sorts || hands_on || known || !fits || bare_scan(node) {
            return self.below(node, place);
        }
        if let Ok(translated) = translate_known(node, &mut self.refused)
            && (reduces(&translated.plan) || filters_most(node, &translated.plan))
            && hands_on_few(node, &translated.plan)
            && !leave::small_part(node, self.options)
        {
            let inner = Place { depth: place.depth + spread_levels(node, place), ..place };
            if let Some(compiled) = self.compiled(node, translated, inner) {
                return match place.any_partitions {
                    true => Ok(compiled),
                    false => partitions::spread(compiled, node),
                };
            }
        }
        self.below(node, place)
    }

    fn below(&mut self, node: &Node, place: Place) -> Result<Node> {
        let any_partitions = partitions::any_partitions_below(node, place.any_partitions);
        let place = Place { depth: place.depth + 1, any_partitions };
        let children = node.children().into_iter().map(|child| self.node(child, place));
        replace_children_if_necessary(Arc::clone(node), children.collect::<Result<Vec<_>>>()?)
    }

    /// `None` where code generation refuses the plan, with its reasons.
    fn compiled(&mut self, node: &Node, translated: Translated, place: Place) -> Option<Node> {
        let (translated, refused) = refined(node, translated, self.engine);
        if refused.is_empty() {
            let (original, engine) = (Original::planned(Arc::clone(node)), Arc::clone(self.engine));
            let compiled = KelpieExec::new(original, translated, engine, place.depth);
            return Some(match self.options.explaining {
                true => Arc::new(compiled.explained(self.options)),
                false => Arc::new(compiled),
            });
        }
        refused.into_iter().for_each(|reason| self.reasons.push(reason));
        None
    }
}

/// Levels that `partitions::spread` puts above a node.
fn spread_levels(node: &Node, place: Place) -> usize {
    use datafusion::physical_plan::ExecutionPlanProperties;
    usize::from(!place.any_partitions && node.output_partitioning().partition_count() > 1)
}

/// Whether a part of a plan may leave fewer rows than it reads, or joins them: otherwise DataFusion would hand all rows from
/// its reader to its operators, on all cores, while Kelpie stores them first.
fn reduces(plan: &Plan) -> bool {
    match plan {
        Plan::Aggregate { .. }
        | Plan::GroupingSets(_)
        | Plan::Ranked(_)
        | Plan::Window(_)
        | Plan::Join(_)
        | Plan::Sort { fetch: Some(_), .. } => true,
        Plan::Scan(_) => false,
        _ => plan.inputs().into_iter().any(reduces),
    }
}

/// Whether filters alone leave so few rows of a scan that a part is worth it: its columns are read once for all queries, where
/// DataFusion's reader reads them each time.
fn filters_most(node: &Node, plan: &Plan) -> bool {
    has_filter(plan)
        && matches!((handed_on(node), scanned_rows(node)), (Some(rows), Some(scanned)) if rows <= scanned * FILTERED)
}

fn has_filter(plan: &Plan) -> bool {
    matches!(plan, Plan::Filter { .. }) || plan.inputs().into_iter().any(has_filter)
}

/// Of the rows that it reads, a part that only filters leaves at most this share.
const FILTERED: f64 = 0.1;

/// So many rows are handed on in no time.
const FEW_ROWS: f64 = 10_000.0;

/// Of more rows, a part hands on at most this share of what it reads.
const HANDED_ON: f64 = 0.25;

/// Whether a part hands few rows on to DataFusion's operators, as far as that is known: those take them from one stream,
/// where DataFusion's own joins would hand on theirs on all cores. An aggregation is taken to leave few.
fn hands_on_few(node: &Node, plan: &Plan) -> bool {
    if aggregates(plan) {
        return true;
    }
    match (handed_on(node), scanned_rows(node)) {
        (Some(rows), Some(scanned)) => rows <= FEW_ROWS || rows <= scanned * HANDED_ON,
        _ => true,
    }
}

fn aggregates(plan: &Plan) -> bool {
    match plan {
        Plan::Aggregate { .. }
        | Plan::GroupingSets(_)
        | Plan::Ranked(_)
        | Plan::Sort { fetch: Some(_), .. } => true,
        Plan::Scan(_) | Plan::Join(_) => false,
        _ => plan.inputs().into_iter().all(aggregates),
    }
}

/// The rows of a part of a plan; of a join at least those of its larger side, as keys mostly find one partner, and estimates
/// without counts of distinct values know no better.
fn handed_on(node: &Node) -> Option<f64> {
    let rows = estimated_rows(node)?;
    match node.children()[..] {
        [left, right] => Some(rows.max(handed_on(left)?).max(handed_on(right)?)),
        [input] if !node.is::<AggregateExec>() && joins(input) => Some(rows.max(handed_on(input)?)),
        _ => Some(rows),
    }
}

fn joins(node: &Node) -> bool {
    let children = node.children();
    children.len() > 1 || children.into_iter().any(joins)
}

fn scanned_rows(node: &Node) -> Option<f64> {
    if node.is::<DataSourceExec>() {
        return estimated_rows(node);
    }
    node.children().into_iter().try_fold(0.0, |sum, child| Some(sum + scanned_rows(child)?))
}
