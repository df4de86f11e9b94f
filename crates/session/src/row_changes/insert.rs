//! INSERT: DEFAULT where a value stands, DEFAULT VALUES, queries before it, and RETURNING.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::common::plan_err;
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Insert, ObjectNamePart, Parens, Query, SetExpr, Statement as Sql, TableObject, Values, With,
};

use super::assignments::is_default;
use super::queries::all_of;
use super::returning::Returning;
use super::target::{Target, Within, alias_of};
use crate::syntax::plain_query;

/// Writes out what stands for defaults, and has the queries that stand before INSERT in its own.
pub(super) async fn complete(insert: &mut Insert, with: Option<With>, within: &Within<'_>) -> Result<()> {
    if let (Some(source), Some(mut with)) = (&mut insert.source, with) {
        if let Some(own) = source.with.take() {
            with.recursive |= own.recursive;
            with.cte_tables.extend(own.cte_tables);
        }
        source.with = Some(with);
    }
    let has_default = insert.source.as_ref().is_none_or(|source| {
        values_of(source)
            .is_some_and(|values| values.rows.iter().flat_map(|row| row.content.iter()).any(is_default))
    });
    let TableObject::TableName(name) = &insert.table else { return Ok(()) };
    if !has_default || !insert.assignments.is_empty() {
        return Ok(());
    }
    let Some(target) = within.target(name, None).await? else { return Ok(()) };
    let Some(source) = &mut insert.source else {
        insert.source = Some(Box::new(default_row(&target)?));
        return Ok(());
    };
    let places: Vec<usize> = match insert.columns.is_empty() {
        true => (0..target.schema().fields().len()).collect(),
        false => insert.columns.iter().map(|column| target.place(column)).collect::<Result<_>>()?,
    };
    if let SetExpr::Values(values) = source.body.as_mut() {
        for row in &mut values.rows {
            for (value, place) in row.content.iter_mut().zip(&places) {
                if is_default(value) {
                    *value = target.default_of(*place)?;
                }
            }
        }
    }
    Ok(())
}

fn values_of(query: &Query) -> Option<&Values> {
    match query.body.as_ref() {
        SetExpr::Values(values) => Some(values),
        _ => None,
    }
}

/// `VALUES` of a row of defaults.
fn default_row(target: &Target) -> Result<Query> {
    let row: Vec<_> =
        (0..target.schema().fields().len()).map(|place| target.default_of(place)).collect::<Result<_>>()?;
    let rows = vec![Parens::with_empty_span(row)];
    Ok(plain_query(SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows })))
}

/// Inserts rows and gives what RETURNING says of them.
pub(super) async fn insert(insert: &Insert, within: &Within<'_>) -> Result<RecordBatch> {
    let TableObject::TableName(name) = &insert.table else {
        return plan_err!("RETURNING needs the name of a table");
    };
    let Some(last) = name.0.last().and_then(ObjectNamePart::as_ident) else {
        return plan_err!("{name} is no name of a table");
    };
    let alias = match &insert.table_alias {
        Some(alias) => alias.alias.clone(),
        None => last.clone(),
    };
    let alias = alias_of(alias);
    let plain = Insert { returning: None, ..insert.clone() };
    let statement = Statement::Statement(Box::new(Sql::Insert(plain)));
    let LogicalPlan::Dml(write) = within.queries.plan(statement, &[]).await? else {
        return plan_err!("RETURNING is for INSERT that writes rows");
    };
    let rows = all_of(within.queries, &write.input).await?;
    let returning = Returning::of(insert.returning.as_deref(), &alias, rows.clone());
    let answer = returning.answer(within.queries).await?;
    write_rows(write, rows, within).await?;
    Ok(answer)
}

/// Writes rows that are known in place of those that an INSERT would find.
pub(super) async fn write_rows(write: DmlStatement, rows: RecordBatch, within: &Within<'_>) -> Result<()> {
    let rows = provider_as_source(Arc::new(MemTable::try_new(rows.schema(), vec![vec![rows]])?));
    let input = LogicalPlanBuilder::scan("rows", rows, None)?.build()?;
    let write = DmlStatement { input: Arc::new(input), ..write };
    within.queries.run(&LogicalPlan::Dml(write)).await.map(drop)
}
