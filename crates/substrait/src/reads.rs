//! Tables that a plan reads.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion_substrait::logical_plan::consumer::{SubstraitConsumer, from_read_rel};
use datafusion_substrait::substrait::proto::ReadRel;
use datafusion_substrait::substrait::proto::expression::MaskExpression;
use datafusion_substrait::substrait::proto::read_rel::local_files::file_or_files::PathType;
use datafusion_substrait::substrait::proto::read_rel::{LocalFiles, NamedTable, ReadType, VirtualTable};
use url::Url;

use crate::parts;

/// The table that a relation reads, with all rows and columns that its plan knows.
pub(crate) async fn table(consumer: &impl SubstraitConsumer, rel: &ReadRel) -> Result<LogicalPlan> {
    if let Some(ReadType::VirtualTable(table)) = &rel.read_type {
        check_rows(table)?;
    }
    // A scan's own filters are hints to DataFusion, which a table need not follow.
    let plain = ReadRel { filter: None, projection: None, read_type: table_of(rel)?, ..rel.clone() };
    from_read_rel(consumer, &plain).await
}

/// The rows of a table that a relation hands on, and then the columns.
pub(crate) async fn selected(
    consumer: &impl SubstraitConsumer,
    rel: &ReadRel,
    table: LogicalPlan,
) -> Result<LogicalPlan> {
    let mask = columns_of(rel.projection.as_ref(), table.schema().fields().len())?;
    let mut plan = LogicalPlanBuilder::from(table);
    if let Some(filter) = &rel.filter {
        let filter = consumer.consume_expression(filter, plan.schema()).await?;
        plan = plan.filter(filter)?;
    }
    if let Some(mask) = mask {
        let columns: Vec<Expr> =
            mask.into_iter().map(|column| Expr::from(plan.schema().qualified_field(column))).collect();
        plan = plan.project(columns)?;
    }
    plan.build()
}

/// The columns that a relation hands on of those that it reads.
fn columns_of(mask: Option<&MaskExpression>, fields: usize) -> Result<Option<Vec<usize>>> {
    let Some(select) = mask.and_then(|mask| mask.select.as_ref()) else { return Ok(None) };
    let columns = select.struct_items.iter().map(|item| match item.child {
        Some(_) => plan_err!("it reads parts of a column, which is not done"),
        None => parts::column(item.field, fields),
    });
    columns.collect::<Result<Vec<_>>>().map(Some)
}

/// What is read; a file by its path, as in SQL.
fn table_of(rel: &ReadRel) -> Result<Option<ReadType>> {
    let Some(ReadType::LocalFiles(LocalFiles { items, .. })) = &rel.read_type else {
        return Ok(rel.read_type.clone());
    };
    let [item] = items.as_slice() else {
        return plan_err!("it reads {} files as one table, and one is read", items.len());
    };
    let Some(PathType::UriFile(uri) | PathType::UriPath(uri) | PathType::UriFolder(uri)) = &item.path_type
    else {
        return plan_err!("it reads files that it does not name one by one");
    };
    let path = match Url::parse(uri) {
        Ok(url) if url.scheme() == "file" => url.to_file_path().ok(),
        Ok(_) => None,
        // A plain path.
        Err(_) => Some(uri.into()),
    };
    match path.as_ref().and_then(|path| path.to_str()) {
        Some(path) => {
            let table = NamedTable { names: vec![path.to_string()], ..NamedTable::default() };
            Ok(Some(ReadType::NamedTable(table)))
        }
        None => plan_err!("it reads {uri}, and only local files can be tables"),
    }
}

/// Rows that the plan itself has.
fn check_rows(table: &VirtualTable) -> Result<()> {
    // Older producers have them there.
    #[expect(deprecated, reason = "they are read, too")]
    let rows = &table.values;
    rows.iter().flat_map(|row| &row.fields).try_for_each(parts::literal)?;
    for value in table.expressions.iter().flat_map(|row| &row.fields) {
        if let Some(datafusion_substrait::substrait::proto::expression::RexType::Literal(value)) =
            &value.rex_type
        {
            parts::literal(value)?;
        }
    }
    Ok(())
}
