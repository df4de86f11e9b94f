//! `generate_series` and `range` of times of any year: DataFusion's compute in nanoseconds.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListBuilder, PrimitiveArray, TimestampMicrosecondBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

/// DataFusion's names of the functions, and what each becomes where it is a relation: there, the days from one date to another are
/// timestamps.
pub(crate) const SERIES: [(&str, &str); 2] =
    [("generate_series", "kelpie_generate_series"), ("range", "kelpie_range")];

/// The functions that stand in the place of one of DataFusion's, where it is one of these: as a value, and as a relation.
pub(super) fn of(function: &Arc<ScalarUDF>) -> Option<[ScalarUDF; 2]> {
    let (_, relation) = SERIES.iter().find(|(name, _)| *name == function.name())?;
    let series = |name: &str, dates_are_days| {
        let (name, inner) = (name.to_string(), Arc::clone(function));
        ScalarUDF::from(Series { name, inner, dates_are_days })
    };
    Some([series(function.name(), true), series(relation, false)])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    name: String,
    /// DataFusion's, for numbers and for times in nanoseconds.
    inner: Arc<ScalarUDF>,
    /// Whether dates give dates.
    dates_are_days: bool,
}

impl Series {
    fn has_end(&self) -> bool {
        self.inner.name() == "generate_series"
    }

    /// The times that are computed here: all but those that nanoseconds hold, as their type says.
    fn times_here(&self, types: &[DataType]) -> Option<DataType> {
        let [start, stop, _] = types else { return None };
        let is_coarse = |time: &DataType| match time {
            DataType::Timestamp(unit, _) => *unit != TimeUnit::Nanosecond,
            DataType::Date32 | DataType::Date64 => !self.dates_are_days,
            _ => false,
        };
        let zone = match start {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        (is_coarse(start) || is_coarse(stop)).then_some(DataType::Timestamp(TimeUnit::Microsecond, zone))
    }

    fn lists(&self, args: &ScalarFunctionArgs, times: &DataType) -> Result<ColumnarValue> {
        let is_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if is_scalar { 1 } else { args.number_rows };
        let column = |place: usize, data_type: &DataType| -> Result<ArrayRef> {
            match args.args.get(place) {
                Some(arg) => Ok(cast(&arg.to_array(rows)?, data_type)?),
                None => exec_err!("{} takes three arguments", self.inner.name()),
            }
        };
        let (starts, stops) = (column(0, times)?, column(1, times)?);
        let steps = column(2, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let DataType::Timestamp(_, zone) = times else { return exec_err!("a series of {times}") };
        let clock: Tz = zone.as_deref().unwrap_or("+00:00").parse()?;
        let (starts, stops): (Micros, Micros) = (starts.as_primitive(), stops.as_primitive());
        let steps: &PrimitiveArray<IntervalMonthDayNanoType> = steps.as_primitive();
        let values = TimestampMicrosecondBuilder::new().with_data_type(times.clone());
        let mut lists = ListBuilder::new(values);
        for row in 0..rows {
            if starts.is_null(row) || stops.is_null(row) || steps.is_null(row) {
                lists.append_null();
                continue;
            }
            let (mut time, stop, step) = (starts.value(row), stops.value(row), steps.value(row));
            let direction = self.direction(time, step, clock)?;
            loop {
                let order = time.cmp(&stop);
                if order == direction || order == Ordering::Equal && !self.has_end() {
                    break;
                }
                lists.values().append_value(time);
                // Beyond the years that microseconds hold there is no further time.
                match TimestampMicrosecondType::add_month_day_nano(time, step, clock) {
                    Some(next) if next.cmp(&time) == direction => time = next,
                    _ => break,
                }
            }
            lists.append(true);
        }
        let lists: ArrayRef = Arc::new(lists.finish());
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lists, 0)?),
            false => ColumnarValue::Array(lists),
        })
    }

    /// Where a step leads.
    fn direction(&self, start: i64, step: IntervalMonthDayNano, clock: Tz) -> Result<Ordering> {
        match TimestampMicrosecondType::add_month_day_nano(start, step, clock).map(|next| next.cmp(&start)) {
            Some(Ordering::Equal) => {
                exec_err!("the step of {} must not be 0, nor below a microsecond", self.inner.name())
            }
            Some(direction) => Ok(direction),
            None => {
                exec_err!("a step of {} leads beyond the years that a timestamp holds", self.inner.name())
            }
        }
    }
}

/// Times in microseconds.
type Micros<'a> = &'a PrimitiveArray<TimestampMicrosecondType>;

impl ScalarUDFImpl for Series {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match self.times_here(types) {
            Some(times) => Ok(DataType::List(Arc::new(Field::new_list_field(times, true)))),
            None => self.inner.return_type(types),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        match self.times_here(&types) {
            Some(times) => self.lists(&args, &times),
            None => self.inner.invoke_with_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
