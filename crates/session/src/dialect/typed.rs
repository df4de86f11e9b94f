//! Functions whose meaning goes by the type of their argument, which a statement's syntax does not show: when the plan knows it, they
//! become DataFusion's own.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{DFSchema, ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::context::ExecutionProps;
use datafusion::execution::session_state::SessionState;
use datafusion::functions::expr_fn::{character_length, date_trunc};
use datafusion::functions::unicode::character_length::CharacterLengthFunc;
use datafusion::functions_nested::expr_fn::{array_length, cardinality};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast, col, lit,
    when,
};
use datafusion::physical_expr::create_physical_expr;
use kelpie_datafusion::name_and_signature;

use super::array_subqueries::LIST_OR_EMPTY;
use super::interval_times::IntervalTimes;
use super::moments::TimeBetween;
use super::names_of_types::name_of_type;
use super::signs::SIGNED;
use super::strptime::Strptime;
use super::truths::NUMBER_OF;

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let typed = [
        Typed::new("typeof", |_, data_type| Ok(lit(name_of_type(data_type)))),
        Typed::new("len", length),
        Typed::new("hex", hex),
        Typed::new("struct_keys", struct_keys),
        Typed::new(NUMBER_OF, |value, data_type| {
            Ok(if *data_type == DataType::Boolean { cast(value, DataType::Int64) } else { value })
        }),
        Typed::new(SIGNED, |value, data_type| {
            Ok(if data_type.is_unsigned_integer() { cast(value, DataType::Int64) } else { value })
        }),
        Typed::new("isinf", |value, data_type| infinity("isinf", value, data_type)),
        Typed::new("isfinite", |value, data_type| infinity("isfinite", value, data_type)),
        Typed::new(LIST_OR_EMPTY, list_or_empty),
        Typed::new("epoch_ms", |value, data_type| epoch(value, data_type, TimeUnit::Millisecond)),
        Typed::new("epoch_us", |value, data_type| epoch(value, data_type, TimeUnit::Microsecond)),
        Typed::new("epoch_ns", |value, data_type| epoch(value, data_type, TimeUnit::Nanosecond)),
    ];
    length_of_anything(state)?;
    let readers = [Strptime::new("strptime", false), Strptime::new("try_strptime", true)];
    let readers = readers.into_iter().map(ScalarUDF::new_from_impl);
    let times = ScalarUDF::new_from_impl(IntervalTimes::new());
    let between = ScalarUDF::new_from_impl(TimeBetween::new());
    let functions = typed.into_iter().map(ScalarUDF::new_from_impl).chain(readers).chain([times, between]);
    for function in functions {
        if !state.scalar_functions().contains_key(function.name()) {
            state.register_udf(Arc::new(function))?;
        }
    }
    Ok(())
}

/// Makes DataFusion's `length` one of lists as well, where it is DataFusion's: that takes a list's text.
fn length_of_anything(state: &mut SessionState) -> Result<()> {
    let is_usual = |known: &Arc<ScalarUDF>| known.inner().downcast_ref::<CharacterLengthFunc>().is_some();
    if state.scalar_functions().get("length").is_some_and(is_usual) {
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(Typed::new("length", own_length))))?;
    }
    Ok(())
}

/// The length of a list, and of all else what DataFusion says.
fn own_length(value: Expr, data_type: &DataType) -> Result<Expr> {
    match data_type {
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Map(..) => {
            length(value, data_type)
        }
        DataType::Struct(_) => {
            plan_err!("length: a {} has no length: texts and lists have one", name_of_type(data_type))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Ok(character_length(value)),
        DataType::Dictionary(_, values) => own_length(cast(value, values.as_ref().clone()), values),
        _ => Ok(character_length(cast(value, DataType::Utf8))),
    }
}

/// What a function is of a value of some type.
type Meaning = fn(Expr, &DataType) -> Result<Expr>;

/// A function of one argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Typed {
    name: &'static str,
    signature: Signature,
    meaning: ByName,
}

/// A meaning, which is what the name of its function says.
#[derive(Debug, Clone, Copy)]
struct ByName(Meaning);

impl PartialEq for ByName {
    fn eq(&self, _: &ByName) -> bool {
        true
    }
}

impl Eq for ByName {}

impl std::hash::Hash for ByName {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl Typed {
    fn new(name: &'static str, meaning: Meaning) -> Typed {
        Typed { name, signature: Signature::any(1, Volatility::Immutable), meaning: ByName(meaning) }
    }

    fn of(&self, value: Expr, data_type: &DataType) -> Result<Expr> {
        (self.meaning.0)(value, data_type)
    }
}

/// The column that stands for an argument.
const ARGUMENT: &str = "argument";

fn schema_of(data_type: &DataType) -> Result<DFSchema> {
    DFSchema::try_from(Schema::new(vec![Field::new(ARGUMENT, data_type.clone(), true)]))
}

impl ScalarUDFImpl for Typed {
    name_and_signature!();

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        use datafusion::logical_expr::ExprSchemable;
        let [data_type] = arguments else { return plan_err!("{} takes one argument", self.name) };
        self.of(col(ARGUMENT), data_type)?.get_type(&schema_of(data_type)?)
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match <[Expr; 1]>::try_from(arguments) {
            Ok([value]) => {
                let data_type = info.get_data_type(&value)?;
                Ok(ExprSimplifyResult::Simplified(self.of(value, &data_type)?))
            }
            Err(arguments) => Ok(ExprSimplifyResult::Original(arguments)),
        }
    }

    /// For plans that nobody has simplified.
    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return internal_err!("{} of one argument", self.name);
        };
        let data_type = value.data_type();
        let meaning = self.of(col(ARGUMENT), &data_type)?;
        let (schema, properties) = (schema_of(&data_type)?, ExecutionProps::new());
        let meaning =
            create_physical_expr(&meaning, &schema, &properties, &PhysicalPlanningContext::default())?;
        let schema = Arc::new(Schema::new(vec![Field::new(ARGUMENT, data_type, true)]));
        let batch = RecordBatch::try_new(schema, vec![value.to_array(arguments.number_rows)?])?;
        meaning.evaluate(&batch)
    }
}

/// The length of a text in characters, or of a list.
fn length(value: Expr, data_type: &DataType) -> Result<Expr> {
    let length = match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => character_length(value),
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Map(..) => {
            let is_empty_or_more = value.clone().is_not_null();
            // DataFusion's cardinality of a list of lists is that of all their elements, and an empty list may have none.
            let elements = match data_type {
                DataType::Map(..) => cardinality(value),
                _ => array_length(value),
            };
            let number =
                datafusion::functions::expr_fn::coalesce(vec![cast(elements, DataType::Int64), lit(0_i64)]);
            return when(is_empty_or_more, number).end();
        }
        DataType::Null => lit(ScalarValue::Int64(None)),
        DataType::Dictionary(_, values) => return length(cast(value, values.as_ref().clone()), values),
        other => return plan_err!("len: a {} has no length: texts and lists have one", name_of_type(other)),
    };
    Ok(cast(length, DataType::Int64))
}

/// The digits of a whole number, or of the bytes of a text.
fn hex(value: Expr, data_type: &DataType) -> Result<Expr> {
    use datafusion::functions::expr_fn::{encode, to_hex, upper};
    Ok(upper(match data_type {
        data_type if data_type.is_integer() => to_hex(cast(value, DataType::Int64)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            encode(cast(value, DataType::Binary), lit("hex"))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            encode(value, lit("hex"))
        }
        DataType::Null => return Ok(lit(ScalarValue::Utf8(None))),
        DataType::Dictionary(_, values) => return hex(cast(value, values.as_ref().clone()), values),
        other => return plan_err!("hex: a {} is neither a whole number nor a text", name_of_type(other)),
    }))
}

fn list_or_empty(value: Expr, data_type: &DataType) -> Result<Expr> {
    let DataType::List(element) = data_type else {
        return plan_err!("{LIST_OR_EMPTY}: a {} is no list", name_of_type(data_type));
    };
    let empty = ScalarValue::List(ScalarValue::new_list_nullable(&[], element.data_type()));
    Ok(datafusion::functions::expr_fn::coalesce(vec![value, lit(empty)]))
}

/// The names of a struct's fields.
fn struct_keys(value: Expr, data_type: &DataType) -> Result<Expr> {
    let DataType::Struct(fields) = data_type else {
        return plan_err!("struct_keys: a {} is no struct", name_of_type(data_type));
    };
    let names = fields.iter().map(|field| lit(field.name())).collect();
    when(value.is_not_null(), datafusion::functions_nested::expr_fn::make_array(names)).end()
}

/// Whether a number is infinite, or is not; times never are.
fn infinity(name: &str, value: Expr, data_type: &DataType) -> Result<Expr> {
    use datafusion::functions::expr_fn::abs;
    let is_asked = name == "isinf";
    match data_type {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            when(value.is_not_null(), lit(!is_asked)).end()
        }
        data_type if data_type.is_numeric() || data_type.is_null() || data_type.is_string() => {
            let size = abs(cast(value, DataType::Float64));
            Ok(if is_asked { size.eq(lit(f64::INFINITY)) } else { size.lt(lit(f64::INFINITY)) })
        }
        other => plan_err!("{name}: a {} is neither a number nor a time", name_of_type(other)),
    }
}

/// The units since 1970 of a time; of a number the time.
fn epoch(value: Expr, data_type: &DataType, unit: TimeUnit) -> Result<Expr> {
    let name = match unit {
        TimeUnit::Millisecond => "epoch_ms",
        TimeUnit::Microsecond => "epoch_us",
        _ => "epoch_ns",
    };
    match data_type {
        data_type if data_type.is_integer() => {
            Ok(cast(cast(value, DataType::Int64), DataType::Timestamp(unit, None)))
        }
        DataType::Date32 | DataType::Date64 => {
            Ok(cast(cast(value, DataType::Timestamp(unit, None)), DataType::Int64))
        }
        DataType::Timestamp(_, zone) => {
            // A cast to a coarser unit cuts towards 1970, and times before that would be later ones.
            let value = match unit {
                TimeUnit::Millisecond => date_trunc(lit("millisecond"), value),
                TimeUnit::Microsecond => date_trunc(lit("microsecond"), value),
                _ => value,
            };
            Ok(cast(cast(value, DataType::Timestamp(unit, zone.clone())), DataType::Int64))
        }
        DataType::Null => Ok(lit(ScalarValue::Int64(None))),
        other => plan_err!("{name}: a {} is no time", name_of_type(other)),
    }
}
