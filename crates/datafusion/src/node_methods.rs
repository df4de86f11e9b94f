//! What nodes of plans that have no expressions say of themselves.

/// Methods of an [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan) of some name without expressions of its own, whose one input
/// is its field `input`, and whose method `with_input` makes the same over another input.
#[macro_export]
macro_rules! one_input {
    ($name:expr) => {
        fn name(&self) -> &str {
            $name
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.input]
        }

        fn replace_children(
            self: Arc<Self>,
            mut children: Vec<Arc<dyn ExecutionPlan>>,
            _: datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            match (children.pop(), children.is_empty()) {
                (Some(input), true) => Ok(Arc::new(self.with_input(input))),
                _ => datafusion::common::internal_err!("{} has one child", $name),
            }
        }

        $crate::no_expressions!();
    };
}

/// The same of a node that has no input.
macro_rules! no_input {
    ($name:expr) => {
        fn name(&self) -> &str {
            $name
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![]
        }

        fn replace_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
            _: datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            match children.is_empty() {
                true => Ok(self),
                false => datafusion::common::internal_err!("{} has no children", $name),
            }
        }

        $crate::no_expressions!();
    };
}

/// Methods that are the same of all nodes without expressions.
#[doc(hidden)]
#[macro_export]
macro_rules! no_expressions {
    () => {
        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(
                &Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> Result<datafusion::common::tree_node::TreeNodeRecursion>,
        ) -> Result<datafusion::common::tree_node::TreeNodeRecursion> {
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            use datafusion::physical_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            self.replace_children(children, options)
        }
    };
}

/// Methods of a node whose rows are those of its one input, in as many partitions as they come.
macro_rules! rows_of_input {
    () => {
        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }

        fn statistics_from_inputs(
            &self,
            inputs: &[Arc<datafusion::common::Statistics>],
            _: &datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> Result<Arc<datafusion::common::Statistics>> {
            match inputs {
                [input] => Ok(Arc::clone(input)),
                _ => datafusion::common::internal_err!("{} has one child", self.name()),
            }
        }
    };
}

pub(crate) use {no_input, one_input, rows_of_input};
