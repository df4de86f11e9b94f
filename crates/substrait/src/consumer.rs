//! Plans of Substrait, read as plans of DataFusion.
//!
//! DataFusion's reader takes it that a plan is whole: what is missing or beyond the columns that there are, panics. So each part is looked at
//! before it is read.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use datafusion::arrow::datatypes::Field;
use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, TableReference, plan_err};
use datafusion::error::Result;
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::consumer::*;
use datafusion_substrait::substrait::proto::expression::field_reference::{ReferenceType, RootType};
use datafusion_substrait::substrait::proto::expression::{
    Cast, FieldReference, IfThen, Literal, ScalarFunction, SingularOrList, WindowFunction, reference_segment,
};
use datafusion_substrait::substrait::proto::function_argument::ArgType;
use datafusion_substrait::substrait::proto::plan_rel::RelType as Root;
use datafusion_substrait::substrait::proto::rel::RelType;
use datafusion_substrait::substrait::proto::rel_common::EmitKind;
use datafusion_substrait::substrait::proto::{
    AggregateRel, CrossRel, ExchangeRel, FetchRel, FilterRel, JoinRel, Plan, ProjectRel, ReadRel, Rel,
    RelCommon, SetRel, SortRel, Type,
};

use crate::limits::{
    MOST_BYTES, MOST_COLUMNS, MOST_NAME_BYTES, MOST_PARTS, MOST_RELATIONS, check as check_count,
};
use crate::{parts, reads};

/// The plan of DataFusion that says what a plan of Substrait says, over the tables and functions of a session.
pub(crate) async fn logical_plan(state: &SessionState, plan: &Plan) -> Result<LogicalPlan> {
    match plan.relations.as_slice() {
        [] => return plan_err!("it has no relation"),
        [relation] => match &relation.rel_type {
            Some(Root::Root(root)) if root.input.is_none() => return plan_err!("its root has no relation"),
            _ => {}
        },
        several => return plan_err!("it has {} relations beside each other, and one is run", several.len()),
    }
    let extensions = Extensions::try_from(&plan.extensions)?;
    let consumer = Consumer {
        inner: DefaultSubstraitConsumer::new(&extensions, state),
        extensions: &extensions,
        state,
        relations: AtomicUsize::new(0),
        tables: Mutex::default(),
    };
    from_substrait_plan_with_consumer(&consumer, plan).await
}

/// DataFusion's, with a look at each part before it.
struct Consumer<'a> {
    inner: DefaultSubstraitConsumer<'a>,
    extensions: &'a Extensions,
    state: &'a SessionState,
    /// How many were read.
    relations: AtomicUsize,
    /// Names of the tables that were read.
    tables: Mutex<HashSet<String>>,
}

impl Consumer<'_> {
    /// What a relation gives before it hands on what its plan says, where that can be handed on.
    fn whole(&self, common: Option<&RelCommon>, plan: LogicalPlan) -> Result<LogicalPlan> {
        let Some(EmitKind::Emit(emit)) = common.and_then(|common| common.emit_kind.as_ref()) else {
            return Ok(plan);
        };
        check_count("columns", emit.output_mapping.len(), MOST_COLUMNS)?;
        let (columns, mut size) = (plan.schema().fields().len(), 0);
        for column in &emit.output_mapping {
            let column = parts::column(*column, columns)?;
            // Of a projection it is the expression that is handed on.
            if let LogicalPlan::Projection(projection) = &plan {
                size += projection.expr.get(column).map_or(Ok(0), size_of)?;
                check_count("parts of expressions", size, MOST_PARTS)?;
            }
        }
        Ok(plan)
    }

    /// DataFusion knows columns by their names, Substrait by their places. One that is an expression has its text as a name: one that
    /// is computed of it twice would have a name of twice the length, and so on. And one of a subquery must not be called as one of the
    /// queries around it is.
    fn with_names_of_its_own(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let around: Vec<Arc<DFSchema>> = (1..).map_while(|steps| self.get_outer_schema(steps)).collect();
        let is_bad = |qualifier: Option<&TableReference>, field: &Field| {
            let is_of = |schema: &Arc<DFSchema>| match qualifier {
                Some(table) => schema.has_column_with_qualified_name(table, field.name()),
                None => schema.has_column_with_unqualified_name(field.name()),
            };
            field.name().len() > MOST_NAME_BYTES || around.iter().any(is_of)
        };
        if !plan.schema().iter().any(|(qualifier, field)| is_bad(qualifier, field)) {
            return Ok(plan);
        }
        let relation = self.relations.load(Ordering::Relaxed);
        let columns = plan.schema().iter().enumerate().map(|(place, (qualifier, field))| {
            let column = Expr::from((qualifier, field));
            match is_bad(qualifier, field) {
                true => column.alias(format!("column {place} of {relation}")),
                false => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(plan).project(columns)?.build()
    }

    /// A table that is read more than once has a name for each time.
    fn with_name_of_its_own(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let Some(table) = plan.schema().iter().find_map(|(qualifier, _)| qualifier.cloned()) else {
            return Ok(plan);
        };
        let is_new = self.tables.lock().is_ok_and(|mut tables| tables.insert(table.to_string()));
        if is_new {
            return Ok(plan);
        }
        let name = format!("{} {}", table.table(), self.relations.load(Ordering::Relaxed));
        LogicalPlanBuilder::from(plan).alias(name)?.build()
    }
}

fn size_of(expr: &Expr) -> Result<usize> {
    let mut size = 0;
    expr.apply(|_| {
        size += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(size)
}

// The trait is one of `async_trait`.
#[async_trait::async_trait]
impl SubstraitConsumer for Consumer<'_> {
    async fn resolve_table_ref(&self, table: &TableReference) -> Result<Option<Arc<dyn TableProvider>>> {
        self.inner.resolve_table_ref(table).await
    }

    fn get_extensions(&self) -> &Extensions {
        self.extensions
    }

    fn get_function_registry(&self) -> &impl FunctionRegistry {
        self.state
    }

    async fn consume_rel(&self, rel: &Rel) -> Result<LogicalPlan> {
        check_count("relations", self.relations.fetch_add(1, Ordering::Relaxed) + 1, MOST_RELATIONS)?;
        if let Some(kind) = rel.rel_type.as_ref().and_then(unread) {
            return plan_err!("it has a relation of the kind {kind}, which is not read");
        }
        self.with_names_of_its_own(from_substrait_rel(self, rel).await?)
    }

    async fn consume_read(&self, rel: &ReadRel) -> Result<LogicalPlan> {
        let table = self.with_name_of_its_own(reads::table(self, rel).await?)?;
        let plan = reads::selected(self, rel, table).await?;
        self.whole(rel.common.as_ref(), plan)
    }

    async fn consume_filter(&self, rel: &FilterRel) -> Result<LogicalPlan> {
        self.whole(rel.common.as_ref(), from_filter_rel(self, rel).await?)
    }

    async fn consume_fetch(&self, rel: &FetchRel) -> Result<LogicalPlan> {
        self.whole(rel.common.as_ref(), from_fetch_rel(self, rel).await?)
    }

    async fn consume_aggregate(&self, rel: &AggregateRel) -> Result<LogicalPlan> {
        let references = rel.groupings.iter().flat_map(|grouping| &grouping.expression_references);
        let (mut count, mut bytes) = (rel.measures.len(), 0);
        for reference in references {
            let Some(expression) = rel.grouping_expressions.get(*reference as usize) else {
                return plan_err!(
                    "it groups by expression {reference} of {}",
                    rel.grouping_expressions.len()
                );
            };
            count += 1;
            bytes += prost::Message::encoded_len(expression);
        }
        check_count("columns", count, MOST_COLUMNS)?;
        check_count("bytes of keys", bytes, MOST_BYTES as usize)?;
        for function in rel.measures.iter().filter_map(|measure| measure.measure.as_ref()) {
            parts::sorts(&function.sorts)?;
        }
        self.whole(rel.common.as_ref(), from_aggregate_rel(self, rel).await?)
    }

    async fn consume_sort(&self, rel: &SortRel) -> Result<LogicalPlan> {
        parts::sorts(&rel.sorts)?;
        self.whole(rel.common.as_ref(), from_sort_rel(self, rel).await?)
    }

    async fn consume_join(&self, rel: &JoinRel) -> Result<LogicalPlan> {
        parts::needed("a join", &[rel.left.is_some(), rel.right.is_some()])?;
        self.whole(rel.common.as_ref(), from_join_rel(self, rel).await?)
    }

    async fn consume_project(&self, rel: &ProjectRel) -> Result<LogicalPlan> {
        check_count("columns", rel.expressions.len(), MOST_COLUMNS)?;
        self.whole(rel.common.as_ref(), from_project_rel(self, rel).await?)
    }

    async fn consume_set(&self, rel: &SetRel) -> Result<LogicalPlan> {
        self.whole(rel.common.as_ref(), from_set_rel(self, rel).await?)
    }

    async fn consume_cross(&self, rel: &CrossRel) -> Result<LogicalPlan> {
        parts::needed("a product", &[rel.left.is_some(), rel.right.is_some()])?;
        self.whole(rel.common.as_ref(), from_cross_rel(self, rel).await?)
    }

    /// Who computes which rows is the engine's to say.
    async fn consume_exchange(&self, rel: &ExchangeRel) -> Result<LogicalPlan> {
        let Some(input) = &rel.input else { return plan_err!("an exchange has no input") };
        self.whole(rel.common.as_ref(), self.consume_rel(input).await?)
    }

    async fn consume_literal(&self, expr: &Literal) -> Result<Expr> {
        parts::literal(expr)?;
        from_literal(self, expr).await
    }

    async fn consume_field_reference(&self, expr: &FieldReference, schema: &DFSchema) -> Result<Expr> {
        if let Some(ReferenceType::DirectReference(segment)) = &expr.reference_type
            && let Some(reference_segment::ReferenceType::StructField(field)) = &segment.reference_type
        {
            match &expr.root_type {
                None | Some(RootType::RootReference(_)) => {
                    parts::column(field.field, schema.fields().len())?;
                }
                Some(RootType::OuterReference(outer)) => {
                    if let Some(schema) = self.get_outer_schema(outer.steps_out as usize) {
                        parts::column(field.field, schema.fields().len())?;
                    }
                }
                Some(_) => {}
            }
        }
        from_field_reference(self, expr, schema).await
    }

    async fn consume_scalar_function(&self, expr: &ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        let name = self.extensions.functions.get(&expr.function_reference);
        if name.is_some_and(|name| substrait_fun_name(name) == "xor")
            && let [left, right] = expr.arguments.as_slice()
            && let (Some(ArgType::Value(left)), Some(ArgType::Value(right))) =
                (&left.arg_type, &right.arg_type)
        {
            // DataFusion's has each argument twice: as many as there are levels would be of 2ⁿ parts.
            let left = self.consume_expression(left, schema).await?;
            return Ok(left.not_eq(self.consume_expression(right, schema).await?));
        }
        from_scalar_function(self, expr, schema).await
    }

    async fn consume_window_function(&self, expr: &WindowFunction, schema: &DFSchema) -> Result<Expr> {
        parts::sorts(&expr.sorts)?;
        from_window_function(self, expr, schema).await
    }

    async fn consume_if_then(&self, expr: &IfThen, schema: &DFSchema) -> Result<Expr> {
        // The first may be what the others are compared with.
        let is_compared = expr.ifs.first().is_some_and(|first| first.then.is_none());
        let cases = &expr.ifs[usize::from(is_compared)..];
        parts::needed("a condition", &[!cases.is_empty()])?;
        for case in &expr.ifs {
            parts::needed("a condition", &[case.r#if.is_some()])?;
        }
        for case in cases {
            parts::needed("a condition", &[case.then.is_some()])?;
        }
        from_if_then(self, expr, schema).await
    }

    async fn consume_singular_or_list(&self, expr: &SingularOrList, schema: &DFSchema) -> Result<Expr> {
        parts::needed("a list", &[expr.value.is_some()])?;
        from_singular_or_list(self, expr, schema).await
    }

    async fn consume_cast(&self, expr: &Cast, schema: &DFSchema) -> Result<Expr> {
        parts::needed("a cast", &[expr.input.is_some(), expr.r#type.is_some()])?;
        from_cast(self, expr, schema).await
    }

    fn push_outer_schema(&self, schema: Arc<DFSchema>) {
        self.inner.push_outer_schema(schema);
    }

    fn pop_outer_schema(&self) {
        self.inner.pop_outer_schema();
    }

    fn get_outer_schema(&self, steps_out: usize) -> Option<Arc<DFSchema>> {
        self.inner.get_outer_schema(steps_out)
    }

    fn push_lambda_parameters(&self, parameters: &[Type], schema: &DFSchema) -> Result<Vec<String>> {
        self.inner.push_lambda_parameters(parameters, schema)
    }

    fn pop_lambda_parameters(&self) {
        self.inner.pop_lambda_parameters();
    }

    fn lambda_variable(&self, steps_out: usize, field: usize) -> Result<Expr> {
        self.inner.lambda_variable(steps_out, field)
    }
}

/// What DataFusion's reader has no plan for.
fn unread(relation: &RelType) -> Option<&'static str> {
    Some(match relation {
        RelType::Reference(_) => "reference",
        RelType::Write(_) => "write",
        RelType::Ddl(_) => "ddl",
        RelType::Update(_) => "update",
        RelType::HashJoin(_) => "hash join",
        RelType::MergeJoin(_) => "merge join",
        RelType::NestedLoopJoin(_) => "nested loop join",
        RelType::Window(_) => "window",
        RelType::Expand(_) => "expand",
        _ => return None,
    })
}
