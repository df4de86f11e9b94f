//! Types that list their values: `CREATE TYPE mood AS ENUM ('sad', 'ok')`. A column of such a type is a text whose values are looked at, as
//! those of other constraints are; so is what is cast to it.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, CheckConstraint, CreateTable, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, ObjectName, ObjectNamePart, ObjectType, Statement as Sql,
    TableConstraint, UserDefinedTypeRepresentation, Value,
};
use kelpie_datafusion::name_and_signature;
use parking_lot::Mutex;

use super::words::{Change, Words, has};
use crate::constraints::declared::OF_TYPE;
use crate::kept_types::{KeepsTypes, NamedTypes};
use crate::sequences::REPLACED;
use crate::syntax::{call, cast, literal, name_of, normal, quoted, taken};

/// What stands before the name of a type that may be there already.
const UNLESS_THERE: &str = "kelpie: if not exists";

/// The types of a session.
#[derive(Debug, Default)]
pub(crate) struct Types {
    own: Mutex<NamedTypes>,
    kept: OnceLock<Arc<dyn KeepsTypes>>,
}

/// Adds them to a session, with the functions that look at values.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    state.config_mut().set_extension(Arc::new(Types::default()));
    for name in [CAST, TRY_CAST] {
        let function = OfType { name, signature: Signature::variadic_any(Volatility::Immutable) };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
    }
    Ok(())
}

impl Types {
    /// From now on they are those that something else keeps.
    pub fn keep_in(&self, kept: Arc<dyn KeepsTypes>) {
        // Set once: a session is in one database.
        let _ = self.kept.set(kept);
    }

    fn with<T: Default>(&self, mut change: impl FnMut(&mut NamedTypes) -> T) -> Result<T> {
        let mut answer = T::default();
        match self.kept.get() {
            Some(kept) => kept.with_types(&mut |all| answer = change(all))?,
            None => answer = change(&mut self.own.lock()),
        }
        Ok(answer)
    }

    /// Makes or drops a type, where a statement says so; whether it does.
    pub fn follow(&self, statement: &Statement) -> Result<bool> {
        let Statement::Statement(statement) = statement else { return Ok(false) };
        match statement.as_ref() {
            Sql::CreateType { name, representation } => {
                let Some(UserDefinedTypeRepresentation::Enum { labels }) = representation else {
                    return plan_err!("CREATE TYPE {name} is not supported: AS ENUM ('…', '…') is");
                };
                let values: Vec<String> = labels.iter().map(|label| label.value.clone()).collect();
                if let Some(place) =
                    (1..values.len()).find(|place| values[..*place].contains(&values[*place]))
                {
                    return plan_err!("the type {name} has the value '{}' twice", values[place]);
                }
                let (first, name) = (name.0.first().map(ToString::to_string), last(name)?);
                let is = |mark: &str| first.as_ref() == Some(&quoted(mark).to_string());
                let is_there = self.with(|all| {
                    let is_there = all.contains_key(&name);
                    if !is_there || is(REPLACED) {
                        all.insert(name.clone(), values.clone());
                    }
                    is_there
                })?;
                match is_there && !is(REPLACED) && !is(UNLESS_THERE) {
                    true => plan_err!("there is a type {name} already"),
                    false => Ok(true),
                }
            }
            Sql::Drop { object_type: ObjectType::Type, if_exists, names, .. } => {
                for name in names {
                    let name = last(name)?;
                    if !self.with(|all| all.remove(&name).is_some())? && !if_exists {
                        return plan_err!("there is no type {name}");
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// The values of a type in a syntax tree, with its name.
    fn of(state: &SessionState, data_type: &DataType) -> Option<(String, Vec<String>)> {
        let DataType::Custom(name, modifiers) = data_type else { return None };
        let types = state.config().get_extension::<Types>().filter(|_| modifiers.is_empty())?;
        let name = last(name).ok()?;
        let values = types.with(|all| all.get(&name).cloned()).ok()??;
        Some((name, values))
    }
}

fn last(name: &ObjectName) -> Result<String> {
    match name.0.last().and_then(ObjectNamePart::as_ident) {
        Some(name) => Ok(normal(name)),
        None => plan_err!("{name} is no name of a type"),
    }
}

/// Columns of such types are texts, and a check says which.
pub(super) fn of_columns(table: &mut CreateTable, state: &SessionState) {
    for column in &mut table.columns {
        let Some((name, values)) = Types::of(state, &column.data_type) else { continue };
        column.data_type = DataType::Varchar(None);
        let list = values.into_iter().map(literal).collect();
        let of_column = Box::new(Expr::Identifier(column.name.clone()));
        let check = CheckConstraint {
            name: Some(quoted(format!("{OF_TYPE}{name}"))),
            expr: Box::new(Expr::InList { expr: of_column, list, negated: false }),
            enforced: None,
        };
        table.constraints.push(TableConstraint::Check(check));
    }
}

const CAST: &str = "kelpie_of_type";
const TRY_CAST: &str = "kelpie_of_type_or_null";

/// What a cast to such a type is; nothing of other casts.
pub(super) fn cast_to(expr: &mut Expr, state: &SessionState) -> Option<Expr> {
    let Expr::Cast { kind, expr: value, data_type, .. } = expr else { return None };
    let (name, values) = Types::of(state, data_type)?;
    let function = if *kind == CastKind::TryCast { TRY_CAST } else { CAST };
    let arguments = [taken(value), literal(name)].into_iter().chain(values.into_iter().map(literal));
    Some(call(function, arguments.collect()))
}

/// What a function of such a type is, whose argument was written out: `enum_range(NULL::mood)`.
pub(super) fn function_of(function: &Function) -> Option<Expr> {
    let name = name_of(function)?;
    if !["enum_range", "enum_first", "enum_last", "enum_code"].contains(&name.as_str()) {
        return None;
    }
    let arguments = arguments(function)?;
    let [Expr::Function(typed)] = arguments.as_slice() else { return None };
    if name_of(typed).is_none_or(|name| name != CAST && name != TRY_CAST) {
        return None;
    }
    let values: Vec<Expr> = self::arguments(typed)?.into_iter().skip(2).collect();
    match name.as_str() {
        "enum_range" => Some(call("make_array", values)),
        "enum_first" => values.into_iter().next(),
        "enum_last" => values.into_iter().next_back(),
        _ => {
            let all = call("make_array", values);
            let place = call("array_position", vec![all, Expr::Function(typed.clone())]);
            let minus = BinaryOperator::Minus;
            let one = Box::new(Expr::value(Value::Number("1".into(), false)));
            // `array_position` counts without a sign.
            let place = cast(place, DataType::BigInt(None));
            let code = Expr::BinaryOp { left: Box::new(place), op: minus, right: one };
            Some(Expr::Nested(Box::new(code)))
        }
    }
}

fn arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    list.args.iter().map(argument).collect()
}

pub(super) fn may_change(sql: &str) -> bool {
    has(sql, "create") && has(sql, "type")
}

/// `CREATE OR REPLACE TYPE` and `CREATE TYPE IF NOT EXISTS`, which the parser does not take.
pub(super) fn changes(words: &Words<'_>, first: usize, changes: &mut Vec<Change>) {
    let replaces = words.is(first + 1, "or") && words.is(first + 2, "replace");
    let place = if replaces { first + 3 } else { first + 1 };
    if !words.is(first, "create") || !words.is(place, "type") {
        return;
    }
    let may_be_there = words.is(place + 1, "if") && words.is(place + 2, "not");
    let (begin, end) = (words.byte(first + 1), words.byte(place + if may_be_there { 4 } else { 1 }));
    let mark = match (replaces, may_be_there) {
        (true, _) => REPLACED,
        (false, true) => UNLESS_THERE,
        (false, false) => return,
    };
    changes.push(Change { from: begin, to: end, text: format!("TYPE \"{mark}\".") });
}

/// The functions that look at values: of the value, the type's name and its values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfType {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for OfType {
    name_and_signature!();

    fn return_type(&self, _: &[ArrowType]) -> Result<ArrowType> {
        Ok(ArrowType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, name, values @ ..] = args.args.as_slice() else {
            return plan_err!("{} takes a value, and those of a type", self.name);
        };
        let text = |value: &ColumnarValue| match value {
            ColumnarValue::Scalar(value) => value.try_as_str().flatten().unwrap_or_default().to_string(),
            ColumnarValue::Array(_) => String::new(),
        };
        let values: Vec<String> = values.iter().map(text).collect();
        let found = compute::cast(&value.to_array(args.number_rows)?, &ArrowType::Utf8)?;
        let found = found.as_string::<i32>();
        let is_one = |text: &str| values.iter().any(|value| value == text);
        if let Some(other) = found.iter().flatten().find(|text| !is_one(text) && self.name == CAST) {
            let all: Vec<String> = values.iter().map(|value| format!("'{value}'")).collect();
            return exec_err!("'{other}' is no value of the type {}: {}", text(name), all.join(", "));
        }
        let found: StringArray = found.iter().map(|text| text.filter(|text| is_one(text))).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}
