//! What a plan is translated to, or why it is not.

use std::sync::Arc;

use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use kelpie_compile::expr::ExprKind;
use kelpie_compile::plan::Plan;

use crate::node::Node;
use crate::source::ScanTable;

/// A plan that Kelpie knows, and the tables of its scans in the order of `Scan::source`.
#[derive(Debug, Clone)]
pub struct Translated {
    /// The plan.
    pub plan: Plan,
    /// The tables.
    pub tables: Vec<Arc<ScanTable>>,
    /// The plan without the values of its parameters, where it has some.
    pub(crate) generic: Option<Arc<Generic>>,
}

/// A plan with places for values.
#[derive(Debug)]
pub(crate) struct Generic {
    pub(super) plan: Plan,
    /// What computes the value of each place.
    pub(super) parameters: Vec<Node>,
}

/// A scalar subquery, and what stands for its value.
#[derive(Debug)]
pub(crate) struct KnownScalar {
    pub expr: ScalarSubqueryExpr,
    pub kind: ExprKind,
}

/// Every reason why something is not compiled, each once, in the order found.
#[derive(Debug, Default, Clone)]
pub struct Reasons(Vec<String>);

impl Reasons {
    /// Takes back the reasons from a number on.
    pub(super) fn split_off(&mut self, first: usize) -> Vec<String> {
        self.0.split_off(first.min(self.0.len()))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a reason unless it is known.
    pub fn push(&mut self, reason: String) {
        if !self.0.contains(&reason) {
            self.0.push(reason);
        }
    }

    /// The reasons.
    pub fn into_vec(self) -> Vec<String> {
        self.0
    }
}
