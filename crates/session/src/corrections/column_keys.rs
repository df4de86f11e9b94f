//! What DataFusion calls a column that has no name of its own: by what it computes, however that is written. `sum(x)` and `sum(t.x)` are
//! one to it, as are `substr(n, 1, 2)` and `substring(n, 1, 2)`, `x::text` and `CAST(x AS int)`, `ORDER BY a` and `ORDER BY a ASC`.

use std::ops::ControlFlow;

use datafusion::execution::session_state::SessionState;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, Ident, ObjectName, OrderByExpr, Value,
    WindowType,
};

use crate::syntax::{Flow, Walk, call, normal, quoted, visit_part};

/// The functions of a session, which may have several names.
#[derive(Clone, Copy)]
pub(super) struct ColumnKeys<'a>(&'a SessionState);

impl<'a> ColumnKeys<'a> {
    pub(super) fn of(state: &'a SessionState) -> ColumnKeys<'a> {
        ColumnKeys(state)
    }

    /// A text that two expressions share where they may have one name. That it may be shared by others does no harm: one of them is then
    /// called something else within the statement.
    pub(super) fn key(&self, expr: &Expr) -> String {
        let mut bare = expr.clone();
        let _ = visit_part(&mut bare, &mut Bare(*self));
        bare.to_string().to_lowercase()
    }

    /// The name that a function goes by, whichever of its names is written.
    fn function(&self, written: &ObjectName) -> Option<String> {
        let [name] = written.0.as_slice() else { return None };
        let (state, name) = (self.0, normal(name.as_ident()?));
        let scalar = state.scalar_functions().get(&name).map(|function| function.name());
        let aggregate = || state.aggregate_functions().get(&name).map(|function| function.name());
        let window = || state.window_functions().get(&name).map(|function| function.name());
        scalar.or_else(aggregate).or_else(window).map(str::to_string)
    }
}

/// Leaves out what DataFusion's names leave out.
struct Bare<'a>(ColumnKeys<'a>);

impl Walk for Bare<'_> {
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            // Numbers are named by their values, and a subquery in a list like any other.
            Expr::Value(value) => {
                if let Value::Number(number, _) = &mut value.value
                    && number.contains(['.', 'e', 'E'])
                    && let Ok(float) = number.parse::<f64>()
                {
                    *number = float.to_string();
                }
            }
            Expr::TypedString(written) => *expr = Expr::Value(written.value.clone()),
            Expr::InSubquery { .. } | Expr::Exists { .. } | Expr::Subquery(_) => {
                *expr = Expr::Identifier(quoted("<subquery>"));
            }
            Expr::CompoundIdentifier(path) => {
                if let Some(column) = path.pop() {
                    *expr = Expr::Identifier(Ident::new(normal(&column)));
                }
            }
            Expr::Identifier(name) => *name = Ident::new(normal(name)),
            Expr::Substring { expr: text, substring_from, substring_for, .. } => {
                let parts = [substring_from.take(), substring_for.take()].into_iter().flatten();
                let text = std::mem::replace(text.as_mut(), Expr::value(Value::Null));
                let arguments = std::iter::once(text).chain(parts.map(|part| *part)).collect();
                *expr = call("substr", arguments);
            }
            Expr::Function(function) => self.call(function),
            _ => {}
        }
        if let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = expr {
            *expr = std::mem::replace(inner, Expr::value(Value::Null));
        }
        ControlFlow::Continue(())
    }
}

impl Bare<'_> {
    fn call(&self, function: &mut Function) {
        if let Some(name) = self.0.function(&function.name) {
            function.name = ObjectName::from(vec![Ident::new(name)]);
        }
        if let FunctionArguments::List(list) = &mut function.args {
            for clause in &mut list.clauses {
                if let FunctionArgumentClause::OrderBy(orders) = clause {
                    orders.iter_mut().for_each(without_defaults);
                }
            }
        }
        if let Some(WindowType::WindowSpec(window)) = &mut function.over {
            window.order_by.iter_mut().for_each(without_defaults);
            // The frame that is meant without one may be written.
            window.window_frame = None;
        }
    }
}

/// ASC is meant where nothing is said, and so is one of the places of NULLs.
fn without_defaults(order: &mut OrderByExpr) {
    order.options.asc = order.options.asc.filter(|is_ascending| !is_ascending);
    order.options.nulls_first = None;
}
