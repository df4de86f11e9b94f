//! Rules over logical plans, each of which is a condition and a function.

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::AnalyzerRule;

use crate::options::KelpieOptions;

/// Such a rule.
#[derive(Debug)]
pub struct LogicalRule {
    /// What DataFusion calls it.
    pub name: &'static str,
    /// Whether sessions of these options have it.
    pub applies: fn(&KelpieOptions) -> bool,
    /// What it makes of a plan.
    pub rewrite: fn(LogicalPlan) -> Result<LogicalPlan>,
}

impl AnalyzerRule for LogicalRule {
    fn name(&self) -> &str {
        self.name
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        match (self.applies)(&KelpieOptions::of(config)) {
            true => (self.rewrite)(plan),
            false => Ok(plan),
        }
    }
}
