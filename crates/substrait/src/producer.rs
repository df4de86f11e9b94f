//! Plans of DataFusion, written as plans of Substrait.

use std::sync::Arc;

use datafusion::common::{DFSchemaRef, JoinConstraint, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::expr::{
    Exists, InSubquery, NullTreatment, SetComparison, WindowFunction as Windowed,
};
use datafusion::logical_expr::{
    Aggregate, EmptyRelation, Expr, Join, LogicalPlan, Subquery, WindowFrame, WindowFrameBound,
    WindowFrameUnits,
};
use datafusion_substrait::extensions::Extensions;
use datafusion_substrait::logical_plan::producer::{
    DefaultSubstraitProducer, SubstraitProducer, from_aggregate, from_exists, from_join,
    from_scalar_subquery, from_set_comparison, from_window_function, to_substrait_rel, to_substrait_rex,
};
use datafusion_substrait::substrait::proto::expression::field_reference::{
    OuterReference, ReferenceType, RootType,
};
use datafusion_substrait::substrait::proto::expression::subquery::{InPredicate, SubqueryType};
use datafusion_substrait::substrait::proto::expression::{
    self, FieldReference, ReferenceSegment, RexType, reference_segment,
};
use datafusion_substrait::substrait::proto::{
    Expression, Plan, PlanRel, Rel, RelRoot, Type, plan_rel::RelType, rel,
};
use datafusion_substrait::substrait::version::version_with_producer;

/// A plan of Substrait that says what a plan of DataFusion says. What Substrait has no form for is an error.
pub(crate) fn plan(plan: &LogicalPlan, state: &SessionState) -> Result<Plan> {
    let mut producer = Producer { inner: DefaultSubstraitProducer::new(state), outer: Vec::new() };
    let input = *producer.handle_plan(plan)?;
    let names = names(&mut producer, plan.schema())?;
    let root = RelType::Root(RelRoot { input: Some(input), names });
    Ok(Plan {
        version: Some(version_with_producer("kelpie")),
        extensions: producer.get_extensions().into(),
        relations: vec![PlanRel { rel_type: Some(root) }],
        ..Plan::default()
    })
}

/// Names of columns and of the fields in them, as a relation of none of their rows has them.
fn names(producer: &mut Producer<'_>, schema: &DFSchemaRef) -> Result<Vec<String>> {
    let none = EmptyRelation { produce_one_row: false, schema: Arc::clone(schema) };
    Ok(match producer.handle_empty_relation(&none)?.rel_type {
        Some(rel::RelType::Read(read)) => read.base_schema.map(|schema| schema.names).unwrap_or_default(),
        _ => Vec::new(),
    })
}

/// DataFusion's, which knows no columns of queries around a subquery, and forgets what it has no words for.
struct Producer<'a> {
    inner: DefaultSubstraitProducer<'a>,
    /// The columns that each subquery on the way stands among, the outermost first.
    outer: Vec<DFSchemaRef>,
}

impl Producer<'_> {
    /// Writes a subquery that stands among these columns.
    fn inside<T>(&mut self, columns: &DFSchemaRef, write: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.outer.push(Arc::clone(columns));
        let written = write(self);
        self.outer.pop();
        written
    }

    /// A column of a query around the subquery that is written.
    fn outer_column(&self, column: &datafusion::common::Column) -> Result<Expression> {
        let mut around = self.outer.iter().rev().zip(1..);
        let Some((field, steps_out)) =
            around.find_map(|(columns, steps)| Some((columns.maybe_index_of_column(column)?, steps)))
        else {
            return plan_err!(
                "a plan of Substrait cannot say {column} here, which is a column of another query"
            );
        };
        let field = reference_segment::StructField { field: field as i32, child: None };
        let segment = reference_segment::ReferenceType::StructField(Box::new(field));
        let reference_type =
            ReferenceType::DirectReference(ReferenceSegment { reference_type: Some(segment) });
        Ok(rex(RexType::Selection(Box::new(FieldReference {
            reference_type: Some(reference_type),
            root_type: Some(RootType::OuterReference(OuterReference { steps_out })),
        }))))
    }
}

impl SubstraitProducer for Producer<'_> {
    fn register_function(&mut self, signature: String) -> u32 {
        self.inner.register_function(signature)
    }

    fn register_type(&mut self, name: String) -> u32 {
        self.inner.register_type(name)
    }

    fn get_extensions(self) -> Extensions {
        self.inner.get_extensions()
    }

    fn handle_plan(&mut self, plan: &LogicalPlan) -> Result<Box<Rel>> {
        match plan {
            LogicalPlan::Unnest(_)
            | LogicalPlan::RecursiveQuery(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Extension(_)
            | LogicalPlan::Statement(_) => {
                plan_err!("a plan of Substrait cannot say what this does: {}", plan.display())
            }
            plan => to_substrait_rel(self, plan),
        }
    }

    fn handle_expr(&mut self, expr: &Expr, schema: &DFSchemaRef) -> Result<Expression> {
        match expr {
            Expr::OuterReferenceColumn(_, column) => self.outer_column(column),
            Expr::SimilarTo(_) | Expr::ScalarVariable(..) | Expr::Unnest(_) => {
                plan_err!("a plan of Substrait cannot say what this does: {expr}")
            }
            expr => to_substrait_rex(self, expr, schema),
        }
    }

    fn handle_aggregate(&mut self, plan: &Aggregate) -> Result<Box<Rel>> {
        for expr in &plan.aggr_expr {
            if let Expr::AggregateFunction(aggregate) = expr.clone().unalias()
                && aggregate.params.null_treatment == Some(NullTreatment::IgnoreNulls)
            {
                return plan_err!("a plan of Substrait cannot say IGNORE NULLS: {expr}");
            }
        }
        from_aggregate(self, plan)
    }

    fn handle_join(&mut self, plan: &Join) -> Result<Box<Rel>> {
        // Which of two equal columns USING shows is said above the join.
        from_join(self, &Join { join_constraint: JoinConstraint::On, ..plan.clone() })
    }

    fn handle_window_function(&mut self, expr: &Windowed, schema: &DFSchemaRef) -> Result<Expression> {
        let params = &expr.params;
        let ignores_nulls = params.null_treatment == Some(NullTreatment::IgnoreNulls);
        if params.filter.is_some() || params.distinct || ignores_nulls || !is_plain(&params.window_frame) {
            let what = Expr::WindowFunction(Box::new(expr.clone()));
            return plan_err!("a plan of Substrait cannot say what this does: {what}");
        }
        from_window_function(self, expr, schema)
    }

    fn handle_in_subquery(&mut self, expr: &InSubquery, schema: &DFSchemaRef) -> Result<Expression> {
        if expr.negated {
            let found = Expr::InSubquery(InSubquery { negated: false, ..expr.clone() });
            return self.handle_expr(&Expr::Not(Box::new(found)), schema);
        }
        let needles = vec![self.handle_expr(&expr.expr, schema)?];
        let haystack = self.inside(schema, |producer| producer.handle_plan(&expr.subquery.subquery))?;
        let found = SubqueryType::InPredicate(Box::new(InPredicate { needles, haystack: Some(haystack) }));
        Ok(rex(RexType::Subquery(Box::new(expression::Subquery { subquery_type: Some(found) }))))
    }

    fn handle_set_comparison(&mut self, expr: &SetComparison, schema: &DFSchemaRef) -> Result<Expression> {
        if expr.expr.contains_outer() {
            return plan_err!(
                "a plan of Substrait cannot say {} here, which is a column of another query",
                expr.expr
            );
        }
        self.inside(schema, |producer| from_set_comparison(producer, expr, schema))
    }

    fn handle_scalar_subquery(&mut self, subquery: &Subquery, schema: &DFSchemaRef) -> Result<Expression> {
        self.inside(schema, |producer| from_scalar_subquery(producer, subquery, schema))
    }

    fn handle_exists(&mut self, exists: &Exists, schema: &DFSchemaRef) -> Result<Expression> {
        self.inside(schema, |producer| from_exists(producer, exists, schema))
    }

    fn push_lambda_parameters(
        &mut self,
        parameters: Vec<datafusion::arrow::datatypes::FieldRef>,
    ) -> Result<()> {
        self.inner.push_lambda_parameters(parameters)
    }

    fn pop_lambda_parameters(&mut self) -> Result<()> {
        self.inner.pop_lambda_parameters()
    }

    fn lambda_variable(&self, name: &str) -> Result<(u32, i32)> {
        self.inner.lambda_variable(name)
    }

    fn lambda_parameter_type(&self, name: &str) -> Result<Type> {
        self.inner.lambda_parameter_type(name)
    }
}

fn rex(rex_type: RexType) -> Expression {
    Expression { rex_type: Some(rex_type) }
}

/// Whether the bounds of a frame are numbers of rows, or none: others would be written as none.
fn is_plain(frame: &WindowFrame) -> bool {
    let is_plain = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => true,
        WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) => {
            offset.is_null() || (offset.data_type().is_integer() && *offset != ScalarValue::UInt64(Some(0)))
        }
    };
    frame.units != WindowFrameUnits::Groups && is_plain(&frame.start_bound) && is_plain(&frame.end_bound)
}
