//! What the translation of one plan works on.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;

use super::derive::Request;
use super::translated::{KnownScalar, Reasons};
use crate::node::{Node, pass_through};
use crate::source::ScanTable;

/// Translates the nodes of one plan.
#[derive(Debug, Default)]
pub(crate) struct Translator {
    pub(super) tables: Vec<Arc<ScanTable>>,
    /// The address of each table's scan in DataFusion's plan.
    pub(super) scans: Vec<usize>,
    /// Expressions that are to be columns of their tables.
    pub(super) requests: Vec<Request>,
    /// Whether code is generated for each expression by itself, to find those for which none can be.
    pub(super) checked: bool,
    pub(super) reasons: Reasons,
    pub(super) refused: Refused,
    /// The scalar subqueries of the enclosing `ScalarSubqueryExec`.
    pub(super) scalars: Vec<KnownScalar>,
    /// What computes the parameters of the plan, each in the order of its place.
    pub(super) parameters: Vec<Node>,
    /// Whether nobody sees the order of the rows of what is translated.
    pub(super) is_of_any_order: bool,
}

/// Whether nobody sees the order of a node's input: groups hide it, and what works row by row has the order of its input, which is hidden
/// where its own is.
pub(super) fn is_of_any_order(node: &Node, around: bool) -> bool {
    if node.is::<AggregateExec>() {
        return true;
    }
    let keeps = node.is::<FilterExec>() || node.is::<ProjectionExec>() || node.is::<UnnestExec>();
    (keeps || pass_through(node).is_some()) && around && node.fetch().is_none()
}

/// Nodes of one plan that do not translate, so that each is tried once: what is above them does not either. They are known
/// by their address, so the plan must outlive this.
#[derive(Debug, Default)]
pub(crate) struct Refused(HashSet<usize>);

impl Refused {
    pub(crate) fn insert(&mut self, node: &Arc<dyn ExecutionPlan>) {
        self.0.insert(Arc::as_ptr(node).addr());
    }

    pub(crate) fn contains(&self, node: &Arc<dyn ExecutionPlan>) -> bool {
        self.0.contains(&Arc::as_ptr(node).addr())
    }
}
