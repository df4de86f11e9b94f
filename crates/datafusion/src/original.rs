//! What a compiled part of a plan replaces; how it is made ready to run is in [`fallback_plan`](crate::fallback_plan).

use std::fmt;
use std::sync::Arc;

use datafusion::physical_optimizer::PhysicalOptimizerRule;

use crate::node::Node;

/// A rule that makes a physical plan ready.
pub(crate) type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// The rules of a session that come after a place in their list, all of them DataFusion's own or Kelpie's.
#[derive(Clone)]
pub struct Rest(pub Arc<[Rule]>);

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|rule| rule.name())).finish()
    }
}

/// The sub-plan that a compiled one replaces.
#[derive(Debug, Clone)]
pub(crate) struct Original {
    pub plan: Node,
    /// What has not gone over it yet.
    pub rest: Option<Rest>,
    /// The plan as it would run, where it is explained.
    pub shown: Option<Node>,
}

impl Original {
    /// A sub-plan of a plan that is ready to run.
    pub fn planned(plan: Node) -> Original {
        Original { plan, rest: None, shown: None }
    }

    /// A plan that some rules have not seen.
    pub fn unfinished(plan: Node, rest: Rest) -> Original {
        Original { plan, rest: Some(rest), shown: None }
    }

    /// The sub-plan as it was compiled.
    pub fn plan(&self) -> &Node {
        &self.plan
    }

    /// The sub-plan that EXPLAIN shows: as it would run, where it was planned to be explained.
    pub fn shown(&self) -> &Node {
        self.shown.as_ref().unwrap_or(&self.plan)
    }
}
