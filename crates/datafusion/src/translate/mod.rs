//! DataFusion's physical plans as Kelpie's.
//!
//! A plan translates as a whole or not at all; where it does not, *every* reason is collected, each naming its operator
//! and expression. The type system and the coercions are DataFusion's: they arrive as casts.

mod aggregate;
mod derive;
mod expr;
mod first_row;
mod function;
mod join;
mod order;
mod parameters;
mod plans;
mod prune;
mod scan;
mod translated;
mod translator;
mod unnest;
mod window;
mod written_lists;

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use kelpie_compile::plan::Plan;
use kelpie_engine::Engine;

pub use self::aggregate::skips_nulls;
use self::derive::{Below, Deriver};
use self::expr::ExprTranslator;
use self::first_row::FirstRows;
use self::order::{ordered, sort_keys};
use self::plans::{fields_at, limited, project_columns, projected};
pub(crate) use self::prune::pruned;
pub use self::translated::{Reasons, Translated};
pub(crate) use self::translator::{Refused, Translator};
use crate::exec::KelpieExec;
use crate::node::{Node, name_of, partition_count, pass_through};
use crate::received::ReceivedExec;
use crate::source::ScanTable;

/// Translates a physical plan; on failure every reason.
pub fn translate(node: &Arc<dyn ExecutionPlan>) -> Result<Translated, Vec<String>> {
    translate_known(node, &mut Refused::default())
}

/// What a node was translated to, and what code generation refuses in it. Where it refuses something, each expression is
/// tried by itself, and those for which there is no code may become derived columns.
pub(crate) fn refined(
    node: &Arc<dyn ExecutionPlan>,
    translated: Translated,
    engine: &Engine,
) -> (Translated, Vec<String>) {
    let refused = engine.check(&translated.plan);
    if refused.is_empty() {
        return (translated, refused);
    }
    match translate_with(Translator { checked: true, ..Translator::default() }, node).0 {
        Ok(other) if engine.check(&other.plan).is_empty() => (other, Vec::new()),
        _ => (translated, refused),
    }
}

/// Translates a part of a plan of which some nodes are known not to translate; their reasons are not given again.
pub(crate) fn translate_known(
    node: &Arc<dyn ExecutionPlan>,
    refused: &mut Refused,
) -> Result<Translated, Vec<String>> {
    let translator = Translator { refused: std::mem::take(refused), ..Translator::default() };
    let (translated, known) = translate_with(translator, node);
    *refused = known;
    translated
}

fn translate_with(
    mut translator: Translator,
    node: &Arc<dyn ExecutionPlan>,
) -> (Result<Translated, Vec<String>>, Refused) {
    let plan = translator.plan(node).and_then(|plan| ordered(plan, node, &mut translator));
    let plan = plan.and_then(|plan| translator.finished(plan, node));
    let plan = plan.and_then(|plan| translator.with_first_values(plan));
    let refused = std::mem::take(&mut translator.refused);
    let translated = match plan {
        Some((plan, generic)) => Ok(Translated { plan, tables: translator.tables, generic }),
        None => {
            derive::explain_result(&mut translator, node);
            Err(translator.reasons.into_vec())
        }
    };
    (translated, refused)
}

/// The table that a scan reads, also where its columns are of types that are not compiled.
pub fn scanned(node: &DataSourceExec) -> Option<ScanTable> {
    scan::table(node)
}

impl Translator {
    fn plan(&mut self, node: &Node) -> Option<Plan> {
        if self.refused.contains(node) {
            return None;
        }
        let is_of_any_order = translator::is_of_any_order(node, self.is_of_any_order);
        let around = std::mem::replace(&mut self.is_of_any_order, is_of_any_order);
        let plan = self.operator(node);
        self.is_of_any_order = around;
        if plan.is_none() {
            self.refused.insert(node);
        }
        plan
    }

    fn operator(&mut self, node: &Node) -> Option<Plan> {
        if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
            let plan = scan::scan(self, scan);
            self.stopped(plan, node, scan.fetch())
        } else if let Some(received) = node.downcast_ref::<ReceivedExec>() {
            scan::received(self, received)
        } else if let Some(filter) = node.downcast_ref::<FilterExec>() {
            let plan = match FirstRows::of(filter) {
                Some(first_rows) => first_rows.plan(self),
                None => self.filter(filter),
            };
            self.stopped(plan, node, filter.fetch())
        } else if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            self.projection(projection)
        } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
            aggregate::aggregate(self, aggregate)
        } else if let Some(sort) = node.downcast_ref::<SortExec>() {
            // Partitions that are sorted apart, or cut apart to some first rows, only serve what is above: there all of
            // them are merged or cut again, perhaps by further keys, which are constant in each of them.
            let fetch = sort.fetch().filter(|_| partition_count(node) == 1);
            let input = self.plan(sort.input());
            self.sort(input, sort.expr(), sort.input(), fetch, "SortExec")
        } else if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
            self.merge(merge)
        } else if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
            self.limit(limit.input(), limit.skip(), limit.fetch())
        } else if let Some(limit) = node.downcast_ref::<LocalLimitExec>() {
            let plan = self.plan(limit.input());
            self.stopped(plan, node, Some(limit.fetch()))
        } else if let Some(plan) = window::window(self, node) {
            self.stopped(plan, node, node.fetch())
        } else if let Some(plan) = join::join(self, node) {
            self.stopped(plan, node, node.fetch())
        } else if let Some(union) = node.downcast_ref::<UnionExec>() {
            self.union(node, union.inputs())
        } else if let Some(union) = node.downcast_ref::<InterleaveExec>() {
            self.union(node, union.inputs())
        } else if let Some(unnest) = node.downcast_ref::<UnnestExec>() {
            unnest::unnest(self, node, unnest)
        } else if let Some(scalars) = node.downcast_ref::<ScalarSubqueryExec>() {
            self.scalars(scalars)
        } else if node.is::<EmptyExec>() {
            scan::constant(self, &node.schema(), 0)
        } else if node.is::<PlaceholderRowExec>() {
            scan::constant(self, &node.schema(), 1)
        } else if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
            self.plan(compiled.original())
        } else if let Some(input) = pass_through(node) {
            match node.fetch() {
                Some(fetch) => self.limit(input, 0, Some(fetch)),
                None => self.plan(input),
            }
        } else {
            // The inputs' own reasons are wanted too.
            for child in node.children() {
                self.plan(child);
            }
            self.refuse(&format!("{}: this operator is not compiled", name_of(node)))
        }
    }

    fn refuse<T>(&mut self, reason: &str) -> Option<T> {
        self.reasons.push(reason.into());
        None
    }

    /// The whole plan: with its derived columns, and of columns of Kelpie's types.
    fn finished(&mut self, plan: Plan, node: &Node) -> Option<Plan> {
        let schema = node.schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        if let Err(reason) = fields_at(&schema, &all) {
            return self.refuse(&format!("{}: {reason}", name_of(node)));
        }
        derive::added(plan, self)
    }

    fn exprs<'a>(&'a mut self, schema: &'a Schema, operator: &'a str) -> ExprTranslator<'a> {
        let Translator { reasons, scalars, .. } = self;
        ExprTranslator { schema, positions: None, reasons, scalars, derive: None, operator, level: 0 }
    }

    /// Translates expressions over the rows of what is below; those that do not compile may become derived columns.
    fn exprs_over<'a>(
        &'a mut self,
        below: Below<'a>,
        schema: &'a Schema,
        operator: &'a str,
    ) -> ExprTranslator<'a> {
        let Translator { reasons, scalars, requests, checked, .. } = self;
        let derive = Some(Deriver { below, requests, checked: *checked });
        ExprTranslator { schema, positions: None, reasons, scalars, derive, operator, level: 0 }
    }

    fn filter(&mut self, filter: &FilterExec) -> Option<Plan> {
        let before = self.tables.len();
        let input = self.plan(filter.input());
        self.tell_of_filter(filter, before);
        let schema = filter.input().schema();
        let below = Below::Node(filter.input());
        let predicate = self.exprs_over(below, &schema, "FilterExec").expr(filter.predicate());
        let (input, predicate) = (input?, predicate?);
        let plan = Plan::Filter { input: Box::new(input), predicate };
        match filter.projection() {
            Some(projection) => project_columns(plan, projection.as_ref()),
            None => Some(plan),
        }
    }

    /// Tells the one table below a filter, which was opened since there were so many, what the filter leaves of its rows.
    fn tell_of_filter(&mut self, filter: &FilterExec, before: usize) {
        if self.tables.len() == before + 1
            && let Some((scan, condition)) = derive::over_table(filter.predicate(), filter.input())
            && self.scans.get(before) == Some(&scan)
            && let Some(table) = self.tables.get_mut(before).and_then(Arc::get_mut)
        {
            table.filter_by(condition);
        }
    }

    fn projection(&mut self, projection: &ProjectionExec) -> Option<Plan> {
        let input = self.plan(projection.input());
        let schema = projection.input().schema();
        let below = Below::Node(projection.input());
        let mut exprs = self.exprs_over(below, &schema, "ProjectionExec");
        let exprs = exprs.outputs(projection.expr().iter().map(|e| &e.expr));
        let names = projection.expr().iter().map(|e| e.alias.clone()).collect();
        Some(projected(input?, exprs?, names))
    }

    fn sort(
        &mut self,
        input: Option<Plan>,
        ordering: &LexOrdering,
        below: &Node,
        fetch: Option<usize>,
        operator: &str,
    ) -> Option<Plan> {
        let schema = below.schema();
        let keys = sort_keys(self.exprs_over(Below::Node(below), &schema, operator), ordering);
        Some(Plan::Sort { input: Box::new(order::unsorted(input?)), keys: keys?, fetch })
    }

    /// A merge of sorted partitions is a sort of all their rows.
    fn merge(&mut self, merge: &SortPreservingMergeExec) -> Option<Plan> {
        let input = match merge.input().downcast_ref::<SortExec>() {
            Some(sort) if sort.expr() == merge.expr() => sort.input(),
            _ => merge.input(),
        };
        let plan = self.plan(input);
        self.sort(plan, merge.expr(), input, merge.fetch(), "SortPreservingMergeExec")
    }

    /// UNION ALL. Branches whose types differ only as Arrow's kinds of text do are of one type here.
    fn union(&mut self, node: &Node, inputs: &[Node]) -> Option<Plan> {
        let plans: Vec<_> = inputs.iter().map(|input| self.plan(input)).collect();
        let inputs = plans.into_iter().collect::<Option<Vec<_>>>()?;
        let schema = node.schema();
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let mut fields = match fields_at(&schema, &all) {
            Ok(fields) => fields,
            Err(reason) => return self.refuse(&format!("{}: {reason}", node.name())),
        };
        for branch in inputs.iter().map(Plan::fields) {
            if branch.len() != fields.len() {
                return self.refuse(&format!("{}: a branch has other columns", node.name()));
            }
            for (field, other) in fields.iter_mut().zip(branch) {
                if field.data_type != other.data_type {
                    let (name, ours, theirs) = (&field.name, &field.data_type, &other.data_type);
                    let reason = format!("{}: column {name}: {theirs} is not {ours}", node.name());
                    return self.refuse(&reason);
                }
                field.nullable |= other.nullable;
            }
        }
        Some(Plan::Union { inputs, fields })
    }

    /// A node that stops after some first rows of each of its partitions. Where these are sorted, the first rows of all are the
    /// first of a merge above, which may be by another of their orders: then it is left to what is above to cut.
    fn stopped(&mut self, plan: Option<Plan>, node: &Node, fetch: Option<usize>) -> Option<Plan> {
        let plan = plan?;
        match fetch {
            None => Some(plan),
            Some(_) if partition_count(node) > 1 && node.output_ordering().is_some() => Some(plan),
            fetch => Some(limited(ordered(plan, node, self)?, 0, fetch)),
        }
    }

    fn limit(&mut self, input: &Node, skip: usize, fetch: Option<usize>) -> Option<Plan> {
        let plan = self.plan(input)?;
        let plan = ordered(plan, input, self)?;
        Some(limited(plan, skip, fetch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DataFusion's own limits below one with an offset leave enough rows for both; a plan of somebody else may not.
    #[test]
    fn a_limit_with_an_offset_does_not_replace_one_that_leaves_fewer_rows() {
        let below = || limited(Plan::Union { inputs: Vec::new(), fields: Vec::new() }, 0, Some(6));
        let is_one =
            |plan: &Plan| matches!(plan, Plan::Limit { input, .. } if !matches!(**input, Plan::Limit { .. }));
        assert!(is_one(&limited(below(), 2, Some(4))));
        assert!(!is_one(&limited(below(), 3, Some(4))));
        assert!(!is_one(&limited(below(), 0, None)));
    }
}
