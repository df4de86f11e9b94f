//! The queries that find the rows which a statement changes.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{CastOptions, cast_with_options, concat_batches};
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr as Planned, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr,
    Statement as Sql, TableAlias, TableFactor, TableFunctionArgs as Arguments, TableWithJoins, With,
};

use crate::syntax::{plain_query, quoted, select_all};

/// The column of a row's number.
pub(super) const ROW: &str = "kelpie: row";
/// The relation of the rows of the table that is changed.
pub(super) const ROWS: &str = "kelpie_rows_before";
/// That of the rows that MERGE brings.
pub(super) const SOURCE: &str = "kelpie_rows_to_merge";
/// That of the rows that were changed.
pub(super) const CHANGED: &str = "kelpie_rows_changed";

/// What plans and runs the queries of a statement.
#[async_trait]
pub(crate) trait Queries: Send + Sync {
    /// The plan of a statement that knows some relations besides.
    async fn plan(&self, statement: Statement, relations: &[Relation]) -> Result<LogicalPlan>;

    /// The rows of a plan.
    async fn run(&self, plan: &LogicalPlan) -> Result<Vec<RecordBatch>>;
}

/// Rows that a query knows by the name of a function without arguments.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    pub name: &'static str,
    rows: Arc<MemTable>,
}

impl Relation {
    pub fn of(name: &'static str, rows: RecordBatch) -> Result<Relation> {
        Ok(Relation { name, rows: Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?) })
    }
}

impl TableFunctionImpl for Relation {
    fn call_with_args(&self, _: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::clone(&self.rows) as _)
    }
}

/// Such a relation under a name in FROM.
pub(super) fn rows_of(name: &str, alias: TableAlias) -> TableFactor {
    TableFactor::Table {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(name))]),
        alias: Some(alias),
        args: Some(Arguments { args: vec![], settings: None }),
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

/// Tables of FROM without joins.
pub(super) fn alone(relation: TableFactor) -> TableWithJoins {
    TableWithJoins { relation, joins: vec![] }
}

/// A query of some columns, which are called by their places.
pub(super) fn query(
    columns: Vec<Expr>,
    from: Vec<TableWithJoins>,
    condition: Option<Expr>,
    with: Option<&With>,
) -> Query {
    let name = |(place, expr)| SelectItem::ExprWithAlias { expr, alias: quoted(format!("kelpie: {place}")) };
    let projection = columns.into_iter().enumerate().map(name).collect();
    let select = Select { projection, selection: condition, ..select_all(from) };
    Query { with: with.cloned(), ..plain_query(SetExpr::Select(Box::new(select))) }
}

pub(super) fn statement(query: Query) -> Statement {
    Statement::Statement(Box::new(Sql::Query(Box::new(query))))
}

/// `EXISTS (SELECT * FROM … WHERE …)`, or that there is none.
pub(super) fn exists(from: TableFactor, condition: Expr, negated: bool) -> Expr {
    let select = Select { selection: Some(condition), ..select_all(vec![alone(from)]) };
    Expr::Exists { subquery: Box::new(plain_query(SetExpr::Select(Box::new(select)))), negated }
}

/// All of some conditions; nothing where there are none.
pub(super) fn all(conditions: impl IntoIterator<Item = Expr>) -> Option<Expr> {
    let nested = conditions.into_iter().map(|condition| Expr::Nested(Box::new(condition)));
    nested.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    })
}

/// The rows of a query, whose columns from one on are of the types of some fields.
pub(super) async fn rows(
    queries: &dyn Queries,
    (query, relations): (Query, &[Relation]),
    (first, fields): (usize, &[FieldRef]),
) -> Result<RecordBatch> {
    let plan = queries.plan(statement(query), relations).await?;
    let columns = plan.schema().iter().enumerate().map(|(place, column)| {
        let (name, column) = (column.1.name().clone(), Planned::from(column));
        match place.checked_sub(first).and_then(|place| fields.get(place)) {
            Some(field) => cast(column, field.data_type().clone()).alias(name),
            None => column,
        }
    });
    let columns: Vec<Planned> = columns.collect();
    let plan = LogicalPlanBuilder::from(plan).project(columns)?.build()?;
    with_types(&all_of(queries, &plan).await?, (first, fields))
}

/// Rows whose columns from one on are of the types of some fields. A cast of the plan may have got another type since: texts are read as
/// microseconds where the table has nanoseconds.
fn with_types(rows: &RecordBatch, (first, fields): (usize, &[FieldRef])) -> Result<RecordBatch> {
    let exactly = CastOptions { safe: false, ..CastOptions::default() };
    let (mut own, mut columns) = (Vec::new(), Vec::new());
    for (place, (column, field)) in rows.columns().iter().zip(rows.schema_ref().fields()).enumerate() {
        let asked = place.checked_sub(first).and_then(|place| fields.get(place));
        let data_type = asked.map_or(field.data_type(), |asked| asked.data_type());
        columns.push(cast_with_options(column, data_type, &exactly)?);
        own.push(field.as_ref().clone().with_data_type(data_type.clone()));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(own)), columns)?)
}

/// The rows of a plan in one batch.
pub(super) async fn all_of(queries: &dyn Queries, plan: &LogicalPlan) -> Result<RecordBatch> {
    let batches = queries.run(plan).await?;
    let schema = batches.first().map_or_else(|| Arc::clone(plan.schema().inner()), RecordBatch::schema);
    Ok(concat_batches(&schema, &batches)?)
}
