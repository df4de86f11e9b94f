//! JSON, which is a text here: what it says (`read`), and texts of it that are made of values (`write`). A column that a function of these has
//! made carries a mark, by which another one knows that its texts are JSON and takes them as they are.

mod document;
mod each;
mod marks;
mod merge;
mod path;
mod read;
mod scan;
mod structure;
mod transform;
mod write;
mod written_values;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::ScalarUDF;
use datafusion::logical_expr::registry::FunctionRegistry;

use super::by_row::ByRow;
pub(super) use each::write_out as write_out_each;
pub(super) use write::{CAST, TRY_CAST, shown, text_of};
pub(super) use written_values::written_out;

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let readers = read::Read::all().into_iter().map(ScalarUDF::new_from_impl);
    let writers = write::Write::all().into_iter().map(ScalarUDF::new_from_impl);
    let by_row = merge::definitions().into_iter().chain(each::definitions());
    let by_row = by_row.map(|made| ScalarUDF::new_from_impl(ByRow::from(made)));
    let transforms = transform::Transform::all().into_iter().map(ScalarUDF::new_from_impl);
    for function in readers.chain(writers).chain(by_row).chain(transforms) {
        if !state.scalar_functions().contains_key(function.name()) {
            state.register_udf(Arc::new(function))?;
        }
    }
    Ok(())
}
