//! Local times of a zone: those that its clocks skip, or show twice, are times too.
//!
//! DataFusion's cast to a zone fails for them. As in other systems, a time that is skipped is read by the clock before the leap, and one
//! that comes twice is the second.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::common::{ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use kelpie_datafusion::{CallRows, Zone, name_and_signature};

use super::at_zone::at_time_zone;

/// A cast of a local time to a zone whose clocks change, as a function that knows all of its times.
pub(super) fn mended_cast(cast: &Cast, schema: &DFSchema) -> Option<Expr> {
    if let Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) =
        cast.expr.as_ref()
        && let Some(value) = written_with_zone(text, cast.field.data_type())
    {
        return Some(Expr::Literal(value, None));
    }
    if let Some(local) = local_cast(cast, schema) {
        return Some(local);
    }
    let DataType::Timestamp(unit, Some(zone)) = cast.field.data_type() else { return None };
    // Others have one offset.
    let changes = zone.contains('/') && !zone.starts_with("Etc/");
    let local = DataType::Timestamp(*unit, None);
    let input = match cast.expr.as_ref() {
        Expr::Literal(text @ (ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_))), _) => {
            // A text may have an offset; what fails has none.
            let fails = || text.cast_to(cast.field.data_type()).is_err();
            Expr::Literal(text.cast_to(&local).ok().filter(|_| changes && fails())?, None)
        }
        expr if changes && matches!(expr.get_type(schema), Ok(DataType::Timestamp(_, None))) => expr.clone(),
        _ => return None,
    };
    let function =
        InZone { signature: Signature::any(1, Volatility::Immutable), unit: *unit, zone: Arc::clone(zone) };
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![input])))
}

/// A cast of a moment to a time without a zone: what the clocks of the moment's zone show. DataFusion takes those of UTC.
fn local_cast(cast: &Cast, schema: &DFSchema) -> Option<Expr> {
    const OF_UTC: [&str; 5] = ["UTC", "+00:00", "+00", "Z", "Etc/UTC"];
    let DataType::Timestamp(_, None) = cast.field.data_type() else { return None };
    let Ok(DataType::Timestamp(_, Some(zone))) = cast.expr.get_type(schema) else { return None };
    if OF_UTC.contains(&zone.as_ref()) {
        return None;
    }
    let arguments = vec![cast.expr.as_ref().clone(), Expr::Literal(ScalarValue::from(zone.as_ref()), None)];
    let local = ScalarFunction::new_udf(Arc::new(at_time_zone()), arguments);
    Some(Expr::Cast(Cast::new(Box::new(Expr::ScalarFunction(local)), cast.field.data_type().clone())))
}

/// A time that is written with the name of its zone, where the clocks of that zone skip it or show it twice: others need no help.
fn written_with_zone(text: &str, data_type: &DataType) -> Option<ScalarValue> {
    let DataType::Timestamp(unit, _) = data_type else { return None };
    let (local, zone) = text.trim_end().rsplit_once(' ')?;
    let is_named = zone.contains('/') && ScalarValue::from(text).cast_to(data_type).is_err();
    if !is_named {
        return None;
    }
    let local = ScalarValue::from(local).cast_to(&DataType::Timestamp(*unit, None)).ok()?;
    let ticks = cast(&local.to_array().ok()?, &DataType::Int64).ok()?;
    let moments = Zone(zone.into()).moments(ticks.as_primitive::<Int64Type>(), *unit).ok()?;
    let utc = cast(&moments, &DataType::Timestamp(*unit, Some("+00:00".into()))).ok()?;
    let value = match data_type {
        DataType::Timestamp(_, None) => cast(&moments, data_type),
        _ => cast(&utc, data_type),
    };
    ScalarValue::try_from_array(&value.ok()?, 0).ok()
}

/// The moment of a local time in a zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct InZone {
    signature: Signature,
    unit: TimeUnit,
    zone: Arc<str>,
}

impl ScalarUDFImpl for InZone {
    name_and_signature!("kelpie_in_zone");

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(times) = args.args.first() else { return Err(exec_datafusion_err!("a time is missing")) };
        let rows = CallRows::of(&args);
        let times = times.to_array(rows.count)?;
        let ticks = cast(&cast(&times, &DataType::Timestamp(self.unit, None))?, &DataType::Int64)?;
        let moments = Zone(Arc::clone(&self.zone)).moments(ticks.as_primitive::<Int64Type>(), self.unit)?;
        // Without a zone first: a cast to one would take them for local times.
        let utc = DataType::Timestamp(self.unit, Some("+00:00".into()));
        let moments =
            cast(&cast(&moments, &utc)?, &DataType::Timestamp(self.unit, Some(Arc::clone(&self.zone))))?;
        rows.answer(moments)
    }
}
