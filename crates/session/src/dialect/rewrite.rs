//! One walk over a statement that writes all of it anew that DataFusion plans otherwise or not at all.

use std::ops::ControlFlow;

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, Ident, ObjectName,
    ObjectNamePart, OrderBy, OrderByKind, Query, Select, SelectItem, Set, SetExpr, Statement as Sql,
    Subscript, TableFactor, UnaryOperator,
};

use super::functions::{Functions, setting, word};
use super::macros::{Expand, Macros, Spent};
use super::{
    arrows, bytes, enums, globs, interval_times, joins, json, lambdas, membership, queried, reading, samples,
    short_forms, struct_casts, substrings, types, uuids,
};
use crate::syntax::{
    Flow, Walk, call, cast, ended, flow, last_name, literal, normal, number, quoted, taken, visit,
};

/// Writes a statement anew.
pub(super) fn rewrite(
    statement: &mut Statement,
    operators: Option<Operators>,
    state: &SessionState,
) -> Result<()> {
    let mut spent = Spent::default();
    if let Statement::CreateExternalTable(table) = statement {
        for column in &mut table.columns {
            types::convert(&mut column.data_type);
        }
        return Ok(());
    }
    if let Some(mut operators) = operators {
        ended(visit(statement, &mut operators))?;
    }
    let macros = state.config().get_extension::<Macros>();
    let makes_macro =
        matches!(statement, Statement::Statement(made) if matches!(made.as_ref(), Sql::CreateMacro { .. }));
    if let Some(macros) = macros.filter(|_| !makes_macro)
        && let Some(mut expand) = Expand::of(&macros, &mut spent)
    {
        ended(visit(statement, &mut expand))?;
    }
    ended(visit(statement, &mut Rewrite { functions: Functions { state, spent: &mut spent } }))
}

/// Operators, before macros come into the statement.
pub(super) struct Operators {
    /// Whether AT TIME ZONE is a power.
    pub has_powers: bool,
    /// Whether arrows that make no lambda read JSON.
    pub reads_json: bool,
}

impl Walk for Operators {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        lambdas::rewrite(expr);
        // A sign belongs to the base, -2 ** 2 is 4, and the parser gives it to the power.
        if let Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } = expr
            && self.has_powers
            && matches!(inner.as_ref(), Expr::AtTimeZone { .. })
        {
            let mut power = taken(inner);
            let mut base = &mut power;
            while let Expr::AtTimeZone { timestamp, .. } = base {
                base = timestamp;
            }
            *base = Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(taken(base)) };
            *expr = power;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        match expr {
            // Of whole numbers DataFusion's quotient is one, and of others DuckDB's is none.
            Expr::BinaryOp { op: op @ BinaryOperator::DuckIntegerDivide, .. } => *op = BinaryOperator::Divide,
            Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
                *expr = call("starts_with", vec![taken(left), taken(right)]);
            }
            Expr::AtTimeZone { timestamp: base, time_zone: exponent } if self.has_powers => {
                *expr = call("power", vec![double(taken(base)), double(taken(exponent))]);
            }
            Expr::BinaryOp { .. } if self.reads_json => arrows::rewrite(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

pub(super) fn double(expr: Expr) -> Expr {
    cast(expr, DataType::Double(ExactNumberInfo::None))
}

/// Functions, types, joins and files.
struct Rewrite<'a> {
    functions: Functions<'a>,
}

impl Walk for Rewrite<'_> {
    fn pre_visit_statement(&mut self, statement: &mut Sql) -> Flow {
        match statement {
            Sql::CreateTable(table) => {
                enums::of_columns(table, self.functions.state);
                table.columns.iter_mut().for_each(|column| types::convert(&mut column.data_type));
                // What a session makes in memory is its own, and gone with it.
                table.temporary = false;
            }
            Sql::CreateView(view) => view.temporary = false,
            Sql::Set(Set::SingleAssignment { variable, .. }) => {
                if let [ObjectNamePart::Identifier(name)] = variable.0.as_slice()
                    && let Some(own) = setting(&normal(name))
                {
                    let parts = own.split('.').map(|part| ObjectNamePart::Identifier(Ident::new(part)));
                    *variable = ObjectName(parts.collect());
                }
            }
            Sql::Prepare { data_types, .. } => data_types.iter_mut().for_each(types::convert),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        short_forms::count_share(query);
        if let (Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }), SetExpr::Select(select)) =
            (&mut query.order_by, query.body.as_ref())
        {
            // A key that is a column of the list is that column, under the name that it gets below.
            for key in keys {
                let is_item =
                    |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(expr) if *expr == key.expr);
                if let Expr::Function(function) = &key.expr
                    && self.functions.renames(function)
                    && select.projection.iter().any(is_item)
                {
                    key.expr = Expr::Identifier(quoted(key.expr.to_string()));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            // A column is called as it is written, not as what it becomes.
            if let SelectItem::UnnamedExpr(expr) = item
                && word(expr, self.functions.state).is_some()
            {
                let alias = quoted(expr.to_string().to_lowercase());
                *item = SelectItem::ExprWithAlias { expr: taken(expr), alias };
            } else if let SelectItem::UnnamedExpr(expr @ Expr::Function(_)) = item
                && let Expr::Function(function) = &*expr
                && self.functions.renames(function)
            {
                let alias = quoted(expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: taken(expr), alias };
            }
        }
        select.from.iter_mut().for_each(|table| joins::write_out(table, false));
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor {
            joins::write_out(table_with_joins, alias.is_none());
        }
        flow(samples::write_out(factor))?;
        flow(queried::write_out(factor, self.functions.state))?;
        if !self.functions.state.table_functions().contains_key("json_each") {
            json::write_out_each(factor);
        }
        flow(reading::name(factor, self.functions.state))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Some(written) = word(expr, self.functions.state) {
            *expr = written;
            return ControlFlow::Continue(());
        }
        if let Some(bytes) = bytes::written_out(expr) {
            return flow(bytes.map(|bytes| *expr = bytes));
        }
        match expr {
            Expr::Cast { data_type: DataType::JSON | DataType::JSONB, kind, expr: value, .. } => {
                let name = if *kind == CastKind::TryCast { json::TRY_CAST } else { json::CAST };
                *expr = call(name, vec![taken(value)]);
            }
            Expr::Cast { data_type: DataType::Uuid, kind, expr: value, .. } => {
                *expr = uuids::cast(taken(value), kind);
            }
            Expr::TypedString(typed) if typed.data_type == DataType::Uuid => {
                *expr = uuids::cast(Expr::Value(typed.value.clone()), &CastKind::Cast);
            }
            Expr::Cast { data_type: DataType::Custom(..), .. } => {
                match enums::cast_to(expr, self.functions.state) {
                    Some(looked_at) => *expr = looked_at,
                    None => {
                        if let Expr::Cast { data_type, .. } = expr {
                            types::convert(data_type);
                        }
                    }
                }
            }
            Expr::Cast { data_type: DataType::Struct(..), .. } => {
                struct_casts::rewrite(expr);
                if let Expr::Cast { data_type, .. } = expr {
                    types::convert(data_type);
                }
            }
            Expr::Cast { data_type, .. } => types::convert(data_type),
            Expr::TypedString(typed) => types::convert(&mut typed.data_type),
            // A field of what is no column: DataFusion takes its name as a text.
            Expr::CompoundFieldAccess { root, access_chain } => {
                // What stands before the first subscript of a column is its name.
                let mut is_name = matches!(root.as_ref(), Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                for access in access_chain.iter_mut() {
                    // A slice without a bound goes to the end.
                    if let AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, .. }) = access {
                        lower_bound.get_or_insert_with(|| number("1"));
                        upper_bound.get_or_insert_with(|| number("-1"));
                    }
                    is_name &= matches!(access, AccessExpr::Dot(_));
                    if let AccessExpr::Dot(field @ Expr::Identifier(_)) = access
                        && let Expr::Identifier(name) = &*field
                        && !is_name
                    {
                        *field = literal(normal(name));
                    }
                }
                // DataFusion takes an element of a list that it makes for the value of its n-th row, also of one without repetitions.
                let is_list = |call: &Function| {
                    let name = last_name(&call.name).map(normal);
                    name.is_some_and(|name| name == "array_agg" || name == "list")
                };
                if matches!(root.as_ref(), Expr::Function(made) if is_list(made))
                    && let Some(AccessExpr::Subscript(Subscript::Index { index })) = access_chain.first_mut()
                {
                    **root = call("array_element", vec![taken(root), taken(index)]);
                    access_chain.remove(0);
                    if access_chain.is_empty() {
                        *expr = taken(root);
                    }
                }
            }
            Expr::Function(function) => match enums::function_of(function) {
                Some(written) => *expr = written,
                None => match self.functions.written_out(function) {
                    Ok(Some(written)) => *expr = written,
                    Ok(None) => {}
                    Err(error) => return ControlFlow::Break(Some(error)),
                },
            },
            Expr::Substring { .. } => {
                if let Some(part) = substrings::of_expr(expr) {
                    *expr = part;
                }
            }
            Expr::InUnnest { .. } => membership::rewrite(expr),
            Expr::RLike { .. } | Expr::SimilarTo { .. } => globs::rewrite(expr),
            Expr::BinaryOp { left, op: BinaryOperator::PGOverlap, right } => {
                *expr = call("array_has_any", vec![taken(left), taken(right)]);
            }
            Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: bits } => {
                let (bits, ones) = (Expr::Nested(Box::new(taken(bits))), Box::new(number("-1")));
                let turned =
                    Expr::BinaryOp { left: Box::new(bits), op: BinaryOperator::BitwiseXor, right: ones };
                *expr = Expr::Nested(Box::new(turned));
            }
            Expr::BinaryOp { .. } | Expr::Interval(_) => interval_times::rewrite(expr),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
