//! Texts that stand beside other values, `coalesce(d, '1900-01-01')`, `CASE WHEN … THEN d ELSE '2020-01-01' END`: such a text is a value of the
//! others' type. DataFusion makes texts of the others. A text that is no value of that type stays one.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as Syntax, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Select, SelectItem, Value,
};
use kelpie_datafusion::name_and_signature;

use super::functions::text;
use super::words::has;
use crate::syntax::{Flow, Walk, call, has_expr, name_of, quoted, taken, visit, visit_part};

const NAME: &str = "literal_of_type";

/// Functions whose arguments have one type.
const ALIKE: [&str; 6] = ["coalesce", "ifnull", "nvl", "nullif", "greatest", "least"];

/// Of more values the type is what DataFusion makes of them: each text would name all of them.
const MOST_VALUES: usize = 16;

pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let function = LiteralOfType { signature: Signature::variadic_any(Volatility::Immutable) };
    state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    Ok(())
}

/// Writes such texts as calls that have their types, where a statement may have some.
pub(super) fn rewrite(statement: &mut Statement, sql: &str) {
    let may_have = sql.contains('\'')
        && (sql.contains('[') || ALIKE.iter().chain(&["case", "if"]).any(|word| has(sql, word)));
    if may_have {
        let _ = visit(statement, &mut Literals { has_changed: false });
    }
}

struct Literals {
    has_changed: bool,
}

impl Walk for Literals {
    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let mut other = expr.clone();
            let mut literals = Literals { has_changed: false };
            let _ = visit_part(&mut other, &mut literals);
            if literals.has_changed {
                // A column is called as it is written.
                let alias = quoted(expr.to_string());
                *item = SelectItem::ExprWithAlias { expr: other, alias };
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Syntax) -> Flow {
        let mut values = values_of(expr);
        if !values.iter().any(|value| text(value).is_some()) {
            return ControlFlow::Continue(());
        }
        let mut others: Vec<Syntax> = Vec::new();
        values.iter().for_each(|value| leaves(value, &mut others));
        let names_itself = |value: &Syntax| has_expr(&mut value.clone(), &must_not_repeat);
        if others.is_empty() || others.len() > MOST_VALUES || others.iter().any(names_itself) {
            return ControlFlow::Continue(());
        }
        for value in values.iter_mut().filter(|value| text(value).is_some()) {
            let literal = taken(value);
            **value = call(NAME, std::iter::once(literal).chain(others.iter().cloned()).collect());
            self.has_changed = true;
        }
        ControlFlow::Continue(())
    }
}

/// Whether it must not be written a second time: such a call, which names all others again, and rows that are made of a list.
fn must_not_repeat(expr: &Syntax) -> bool {
    match expr {
        Syntax::Function(function) => name_of(function).is_some_and(|name| name == NAME || name == "unnest"),
        _ => false,
    }
}

/// The values of an expression that have one type.
fn values_of(expr: &mut Syntax) -> Vec<&mut Syntax> {
    match expr {
        Syntax::Case { conditions, else_result, .. } => {
            let results = conditions.iter_mut().map(|branch| &mut branch.result);
            results.chain(else_result.iter_mut().map(AsMut::as_mut)).collect()
        }
        Syntax::Function(function) if is_alike(function) => {
            let FunctionArguments::List(list) = &mut function.args else { return vec![] };
            let value = |arg| match arg {
                &mut FunctionArg::Unnamed(FunctionArgExpr::Expr(ref mut value)) => Some(value),
                _ => None,
            };
            list.args.iter_mut().filter_map(value).collect()
        }
        Syntax::Array(array) => array.elem.iter_mut().collect(),
        _ => vec![],
    }
}

fn is_alike(function: &Function) -> bool {
    name_of(function).is_some_and(|name| ALIKE.contains(&name.as_str()))
}

/// What decides of which type a value is: of a CASE within another its results.
fn leaves(value: &Syntax, found: &mut Vec<Syntax>) {
    match value {
        Syntax::Nested(inner) => leaves(inner, found),
        Syntax::Value(value) if matches!(value.value, Value::Null) => {}
        Syntax::Function(function) if name_of(function).as_deref() == Some(NAME) => {}
        Syntax::Case { .. } => {
            values_of(&mut value.clone()).iter().for_each(|value| leaves(value, found));
        }
        Syntax::Function(function) if is_alike(function) => {
            values_of(&mut value.clone()).iter().for_each(|value| leaves(value, found));
        }
        value if text(value).is_some() || found.contains(value) => {}
        value => found.push(value.clone()),
    }
}

/// A text that is written out, in the type of the values behind it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LiteralOfType {
    signature: Signature,
}

/// The text as a value of the type that others have together; as it is where they have none, or it is no value of that.
fn in_type(text: &ScalarValue, others: &[DataType]) -> ScalarValue {
    let plain = |data_type: &DataType| match data_type {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        data_type => data_type.clone(),
    };
    let mut types: Vec<DataType> =
        others.iter().map(plain).filter(|data_type| !data_type.is_null()).collect();
    types.dedup();
    let common = match types.as_slice() {
        [only] => Some(only.clone()),
        types => type_union_resolution(types),
    };
    let is_plain =
        |data_type: &DataType| !(data_type.is_string() || data_type.is_nested() || data_type.is_binary());
    let value = common.filter(is_plain).and_then(|common| text.cast_to(&common).ok());
    value.filter(|value| !value.is_null()).unwrap_or_else(|| text.clone())
}

impl ScalarUDFImpl for LiteralOfType {
    name_and_signature!(NAME);

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{NAME} has a field")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> =
            arguments.arg_fields.iter().skip(1).map(|field| field.data_type().clone()).collect();
        let data_type = match arguments.scalar_arguments.first() {
            Some(Some(text)) => in_type(text, &types).data_type(),
            _ => DataType::Utf8,
        };
        Ok(Arc::new(Field::new(NAME, data_type, false)))
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let types = arguments.iter().skip(1).map(|value| info.get_data_type(value));
        // The types of a lambda's parameters are not known here.
        match (arguments.first(), types.collect::<Result<Vec<_>>>()) {
            (Some(Expr::Literal(text, _)), Ok(types)) => {
                Ok(ExprSimplifyResult::Simplified(Expr::Literal(in_type(text, &types), None)))
            }
            _ => Ok(ExprSimplifyResult::Original(arguments)),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.first() {
            Some(text) => text.cast_to(arguments.return_field.data_type(), None),
            None => internal_err!("{NAME} of nothing"),
        }
    }
}
