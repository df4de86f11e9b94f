//! UNNEST of lists that a projection writes out of each row's values, as UNPIVOT does: rows for each place of the lists, all together.

use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::functions_nested::make_array::MakeArray;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::scalar::ScalarValue;
use kelpie_compile::plan::Plan;

use super::derive::Below;
use super::plans::{fields_at, projected};
use super::translator::Translator;
use crate::node::Node;

/// Elements of a list, at most: each is a pass over the rows below.
const MOST_ELEMENTS: usize = 100;

/// What becomes rows: the projection below, and which of its columns are lists, with their elements.
pub(super) struct WrittenLists<'p> {
    projection: &'p ProjectionExec,
    lists: Vec<(usize, Vec<Arc<dyn PhysicalExpr>>)>,
}

impl<'p> WrittenLists<'p> {
    /// Lists of one length, so that no row has more elements than another; nothing where they are others. The rows come in another order
    /// than DataFusion's.
    pub(super) fn of(unnest: &'p UnnestExec) -> Option<WrittenLists<'p>> {
        let projection = unnest.input().downcast_ref::<ProjectionExec>()?;
        let is_plain = unnest.struct_column_indices().is_empty()
            && unnest.list_column_indices().iter().all(|list| list.depth == 1)
            && unnest.schema().fields().len() == projection.expr().len();
        let lists = unnest.list_column_indices().iter().filter(|_| is_plain).map(|list| {
            let place = list.index_in_input_schema;
            Some((place, elements(&projection.expr().get(place)?.expr)?))
        });
        let lists = lists.collect::<Option<Vec<_>>>()?;
        let (_, first) = lists.first()?;
        let is_one_length = lists.iter().all(|(_, elements)| elements.len() == first.len());
        let counts = 1..=MOST_ELEMENTS;
        (is_one_length && counts.contains(&first.len())).then_some(WrittenLists { projection, lists })
    }

    /// The rows of each place.
    pub(super) fn plan(&self, translator: &mut Translator, node: &Node) -> Option<Plan> {
        let below = self.projection.input();
        let input = translator.plan(below)?;
        let (schema, output) = (below.schema(), node.schema());
        let all: Vec<usize> = (0..output.fields().len()).collect();
        let mut fields = match fields_at(&output, &all) {
            Ok(fields) => fields,
            Err(reason) => return translator.refuse(&format!("UnnestExec: {reason}")),
        };
        let mut inputs = Vec::new();
        for place in 0..self.lists.first()?.1.len() {
            let columns = self.projection.expr().iter().enumerate().map(|(index, column)| {
                let list = self.lists.iter().find(|(list, _)| *list == index);
                list.and_then(|(_, elements)| elements.get(place)).unwrap_or(&column.expr)
            });
            let mut exprs = translator.exprs_over(Below::Node(below), &schema, "UnnestExec");
            let exprs = exprs.outputs(columns)?;
            if exprs.iter().zip(&fields).any(|(expr, field)| expr.data_type != field.data_type) {
                return translator.refuse("UnnestExec: elements of a list are of several types");
            }
            for (field, expr) in fields.iter_mut().zip(&exprs) {
                field.nullable |= expr.nullable;
            }
            let names = fields.iter().map(|field| field.name.clone()).collect();
            inputs.push(projected(input.clone(), exprs, names));
        }
        Some(Plan::Union { inputs, fields })
    }
}

/// The elements of a list that is written out, constants or not.
fn elements(list: &Arc<dyn PhysicalExpr>) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
    if let Some(call) = list.downcast_ref::<ScalarFunctionExpr>() {
        return call.fun().inner().is::<MakeArray>().then(|| call.args().to_vec());
    }
    let ScalarValue::List(list) = list.downcast_ref::<Literal>()?.value() else { return None };
    if list.len() != 1 || list.is_null(0) {
        return None;
    }
    let values = list.value(0);
    let value = |place: usize| {
        let value = ScalarValue::try_from_array(&values, place).ok()?;
        Some(Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>)
    };
    (0..values.len()).map(value).collect()
}
