//! UNNEST: a scan of a table with a row for each element of its lists (`crate::unnested`).

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::unnest::UnnestExec;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{JoinKind, Plan};
use kelpie_compile::types::{DataType, Field, Literal};

use super::derive::{REQUESTS, Request, unnested};
use super::plans::projected;
use super::translator::Translator;
use super::written_lists::WrittenLists;
use crate::join_order::rows_estimate;
use crate::node::Node;
use crate::types;

/// Where fewer rows than this share of a table come to it, not all of the table is made rows of. What conditions leave is mostly a guess.
const LEAST_SHARE: f64 = 0.01;

/// The rows of a node with one for each element of some lists.
///
/// The table that the lists are of gets the elements as further columns, and so many rows, wherever it is below: filters and
/// projections on the way are of its other columns, and an inner join repeats what it finds for a row.
pub(super) fn unnest(translator: &mut Translator, node: &Node, unnest: &UnnestExec) -> Option<Plan> {
    if translator.is_of_any_order
        && let Some(lists) = WrittenLists::of(unnest)
    {
        return lists.plan(translator, node);
    }
    let before = translator.tables.len();
    let input = translator.plan(unnest.input());
    let (scan, unnested) = match unnested(unnest) {
        Ok(found) => found,
        Err(reason) => return translator.refuse(&format!("UnnestExec: {reason}")),
    };
    let input = input?;
    if let (Some(here), Some(all)) = (rows_estimate(unnest.input()), rows_estimate(&scan))
        && here < all * LEAST_SHARE
    {
        return translator.refuse("UnnestExec: less than a hundredth of its table's rows come to it");
    }
    let address = std::ptr::from_ref(scan.downcast_ref::<DataSourceExec>()?).addr();
    let source = before + translator.scans.get(before..)?.iter().position(|scan| *scan == address)?;
    if !repeats(&input, source) {
        return translator.refuse("UnnestExec: what is between it and its table is not done row by row");
    }
    let table = translator.tables.get_mut(source).and_then(Arc::get_mut)?;
    if table.unnested().is_some() {
        return translator.refuse("UnnestExec: rows of elements become rows again");
    }
    let fields = input.fields();
    let schema = unnest.schema();
    if schema.fields().len() != fields.len() {
        return translator.refuse("UnnestExec: it has other columns than its input");
    }
    let lists = unnest.list_column_indices();
    let output = |(index, field): (usize, &Field)| {
        let Some(list) = lists.iter().position(|list| list.index_in_input_schema == index) else {
            return Expr::column(index, field.data_type.clone(), field.nullable);
        };
        // Elements that are no scalars are not compiled, but expressions over them may be derived columns.
        let Some(data_type) = types::column_type(schema.field(index).data_type()) else {
            return Expr::literal(Literal::Null, DataType::Boolean);
        };
        let name = schema.field(index).name();
        let place = unnested.place(list);
        translator.requests.push(Request {
            scan: address,
            below: Arc::as_ptr(node).cast::<()>().addr(),
            expr: Arc::new(Column::new(name, place)) as Arc<dyn PhysicalExpr>,
            conditions: Vec::new(),
            is_element: true,
            field: Field { name: name.clone(), data_type: data_type.clone(), nullable: true },
            reasons: Vec::new(),
        });
        Expr::column(REQUESTS + translator.requests.len() - 1, data_type, true)
    };
    let exprs = fields.iter().enumerate().map(output).collect();
    let names = schema.fields().iter().map(|field| field.name().clone()).collect();
    table.unnest(unnested.clone());
    Some(projected(input, exprs, names))
}

/// Whether a plan's rows come so many times as those of a table, with all else the same.
fn repeats(plan: &Plan, source: usize) -> bool {
    match plan {
        Plan::Scan(scan) => scan.source == source,
        Plan::Filter { input, .. } | Plan::Project { input, .. } => repeats(input, source),
        Plan::Join(join) => match join.kind {
            JoinKind::Inner => repeats(&join.build, source) || repeats(&join.probe, source),
            JoinKind::BuildSemi | JoinKind::BuildAnti => repeats(&join.build, source),
            JoinKind::ProbeSemi | JoinKind::ProbeAnti => repeats(&join.probe, source),
            _ => false,
        },
        _ => false,
    }
}
