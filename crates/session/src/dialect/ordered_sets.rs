//! `percentile_disc(0.5) WITHIN GROUP (ORDER BY x)` and `mode() WITHIN GROUP (ORDER BY x)`: aggregates that DataFusion has not under these
//! names.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart,
};

/// Writes such a call as one of `quantile_disc(x, 0.5)` or `mode(x)`.
pub(super) fn rewrite(name: &str, function: &mut Function) -> Result<()> {
    let other = match name {
        "percentile_disc" => "quantile_disc",
        "mode" => "mode",
        _ => return Ok(()),
    };
    let [key] = function.within_group.as_slice() else { return Ok(()) };
    if key.options.asc == Some(false) {
        return plan_err!("{name}: WITHIN GROUP takes an order from the least value on, and not DESC");
    }
    let value: Expr = key.expr.clone();
    let FunctionArguments::List(list) = &mut function.args else { return Ok(()) };
    list.args.insert(0, FunctionArg::Unnamed(FunctionArgExpr::Expr(value)));
    function.within_group.clear();
    function.name = ObjectName(vec![ObjectNamePart::Identifier(Ident::new(other))]);
    Ok(())
}
