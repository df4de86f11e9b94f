//! `generate_series` and `range` of times of any year: DataFusion's compute in nanoseconds.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, PrimitiveArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use kelpie_datafusion::{Bounds, CallRows, Series as Values};

/// DataFusion's names of the functions, and what each becomes where it is a relation.
pub(crate) const SERIES: [(&str, &str); 2] =
    [("generate_series", "kelpie_generate_series"), ("range", "kelpie_range")];

/// The functions that stand in the place of one of DataFusion's, where it is one of these: as a value, and as a relation.
pub(super) fn of(function: &Arc<ScalarUDF>) -> Option<[ScalarUDF; 2]> {
    let (_, relation) = SERIES.iter().find(|(name, _)| *name == function.name())?;
    let series = |name: &str| ScalarUDF::from(Series { name: name.to_string(), inner: Arc::clone(function) });
    Some([series(function.name()), series(relation)])
}

/// The values of a call of one of these functions with constants; nothing where an argument is NULL, or where it cannot be told.
pub(super) fn values(function: &ScalarUDF, arguments: &[ScalarValue]) -> Result<Option<Values>> {
    match function.inner().downcast_ref::<Series>() {
        Some(series) => series.of_constants(arguments),
        None => Ok(None),
    }
}

/// Whether a function is one of these.
pub(super) fn is_series(function: &ScalarUDF) -> bool {
    function.inner().is::<Series>()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Series {
    name: String,
    /// DataFusion's, for numbers and for times in nanoseconds.
    inner: Arc<ScalarUDF>,
}

impl Series {
    fn has_end(&self) -> bool {
        self.inner.name() == "generate_series"
    }

    /// The times that are computed here: all but those that nanoseconds hold, as their type says. The days from one date to another are
    /// timestamps; DataFusion's leave out the last one where its month is shorter than that of the first.
    fn times_here(&self, types: &[DataType]) -> Option<DataType> {
        let [start, stop, _] = types else { return None };
        let is_coarse = |time: &DataType| match time {
            DataType::Timestamp(unit, _) => *unit != TimeUnit::Nanosecond,
            DataType::Date32 | DataType::Date64 => true,
            _ => false,
        };
        let zone = match start {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        (is_coarse(start) || is_coarse(stop)).then_some(DataType::Timestamp(TimeUnit::Microsecond, zone))
    }

    fn lists(&self, args: &ScalarFunctionArgs, times: &DataType) -> Result<ColumnarValue> {
        let rows = CallRows::of(args);
        let column = |place: usize, data_type: &DataType| -> Result<ArrayRef> {
            match args.args.get(place) {
                Some(arg) => Ok(cast(&arg.to_array(rows.count)?, data_type)?),
                None => exec_err!("{} takes three arguments", self.inner.name()),
            }
        };
        let (starts, stops) = (column(0, times)?, column(1, times)?);
        let steps = column(2, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        let (starts, stops): (Micros, Micros) = (starts.as_primitive(), stops.as_primitive());
        let steps: &PrimitiveArray<IntervalMonthDayNanoType> = steps.as_primitive();
        let mut values = Vec::new();
        let mut ends = vec![0];
        let mut valid = Vec::with_capacity(rows.count);
        for row in 0..rows.count {
            let is_valid = starts.is_valid(row) && stops.is_valid(row) && steps.is_valid(row);
            if is_valid {
                let bounds =
                    Bounds { start: starts.value(row), stop: stops.value(row), has_end: self.has_end() };
                let series = Values::of_times(bounds, steps.value(row), times)?;
                series.add_all(&mut values)?;
            }
            ends.push(values.len() as i32);
            valid.push(is_valid);
        }
        let values = TimestampMicrosecondArray::from(values).with_data_type(times.clone());
        let element = Arc::new(Field::new_list_field(times.clone(), true));
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        let ends = OffsetBuffer::new(ends.into());
        rows.answer(Arc::new(ListArray::try_new(element, ends, Arc::new(values), nulls)?))
    }

    /// A call's values where its arguments are constants, and none of them is NULL.
    fn of_constants(&self, args: &[ScalarValue]) -> Result<Option<Values>> {
        let types: Vec<DataType> = args.iter().map(ScalarValue::data_type).collect();
        let DataType::List(element) = self.return_type(&types)? else { return Ok(None) };
        let times = element.data_type();
        let number = |value: &ScalarValue| match value.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(number)) => number,
            _ => None,
        };
        let numbers = || args.iter().map(number).collect::<Option<Vec<i64>>>();
        let bounds = |start, stop| Bounds { start, stop, has_end: self.has_end() };
        Ok(match (times, args) {
            (DataType::Int64, _) => numbers().and_then(|numbers| match numbers[..] {
                [stop] => Values::of_numbers(bounds(0, stop), 1),
                [start, stop] => Values::of_numbers(bounds(start, stop), 1),
                [start, stop, step] => Values::of_numbers(bounds(start, stop), step),
                _ => None,
            }),
            (
                DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _),
                [start, stop, ScalarValue::IntervalMonthDayNano(Some(step))],
            ) => {
                let (start, stop) = (start.cast_to(times)?, stop.cast_to(times)?);
                match number(&start).zip(number(&stop)) {
                    Some((start, stop)) => Some(Values::of_times(bounds(start, stop), *step, times)?),
                    None => None,
                }
            }
            _ => None,
        })
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
