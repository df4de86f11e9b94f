//! Arrow values as Python objects.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
    UInt64Type,
};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::errors::of_arrow;

type Get<'a, 'py> = Box<dyn Fn(usize) -> PyResult<Bound<'py, PyAny>> + 'a>;

/// What makes Python objects of values.
pub struct Reading<'py> {
    py: Python<'py>,
}

/// The values of an array.
pub struct Column<'a, 'py> {
    py: Python<'py>,
    nulls: Option<NullBuffer>,
    get: Get<'a, 'py>,
}

impl<'py> Column<'_, 'py> {
    /// The value of a row, NULL as `None`.
    pub fn value(&self, row: usize) -> PyResult<Bound<'py, PyAny>> {
        match &self.nulls {
            Some(nulls) if nulls.is_null(row) => Ok(self.py.None().into_bound(self.py)),
            _ => (self.get)(row),
        }
    }
}

macro_rules! object {
    ($py:expr, $value:expr) => {
        $value.into_pyobject($py).map(|value| value.into_any()).map_err(PyErr::from)
    };
}

impl<'py> Reading<'py> {
    pub fn new(py: Python<'py>) -> Reading<'py> {
        Reading { py }
    }

    /// The values of an array: numbers, texts, bytes, what `datetime` and `decimal` have, lists, and dictionaries for structs and
    /// maps. What Python has no type for is its text.
    pub fn column<'a>(&self, array: &'a ArrayRef) -> PyResult<Column<'a, 'py>>
    where
        'py: 'a,
    {
        Ok(Column { py: self.py, nulls: array.logical_nulls(), get: self.getter(array)? })
    }

    fn getter<'a>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let py = self.py;
        Ok(match array.data_type() {
            DataType::Null => Box::new(move |_| Ok(py.None().into_bound(py))),
            DataType::Boolean => {
                let values = array.as_boolean();
                Box::new(move |row| Ok(pyo3::types::PyBool::new(py, values.value(row)).to_owned().into_any()))
            }
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                let values = self.cast(array, &DataType::Int64)?;
                Box::new(move |row| object!(py, values.as_primitive::<Int64Type>().value(row)))
            }
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                let values = self.cast(array, &DataType::UInt64)?;
                Box::new(move |row| object!(py, values.as_primitive::<UInt64Type>().value(row)))
            }
            DataType::Float16 | DataType::Float32 => {
                let values = self.cast(array, &DataType::Float32)?;
                Box::new(move |row| object!(py, f64::from(values.as_primitive::<Float32Type>().value(row))))
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>();
                Box::new(move |row| object!(py, values.value(row)))
            }
            DataType::Utf8 => self.texts(array.as_string::<i32>()),
            DataType::LargeUtf8 => self.texts(array.as_string::<i64>()),
            DataType::Utf8View => self.texts(array.as_string_view()),
            DataType::Binary => self.bytes(array.as_binary::<i32>()),
            DataType::LargeBinary => self.bytes(array.as_binary::<i64>()),
            DataType::BinaryView => self.bytes(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => self.bytes(array.as_fixed_size_binary()),
            DataType::List(_) => self.lists::<i32>(array)?,
            DataType::LargeList(_) => self.lists::<i64>(array)?,
            DataType::FixedSizeList(..) => self.fixed_lists(array)?,
            DataType::Struct(_) => self.structs(array)?,
            DataType::Map(..) => self.maps(array)?,
            DataType::Dictionary(..) => self.dictionary(array)?,
            _ => self.by_helper(array)?,
        })
    }

    fn cast(&self, array: &ArrayRef, to: &DataType) -> PyResult<ArrayRef> {
        cast(array, to).map_err(|error| of_arrow(self.py, error))
    }

    fn texts<'a, A: arrow::array::ArrayAccessor<Item = &'a str> + 'a>(&self, values: A) -> Get<'a, 'py>
    where
        'py: 'a,
    {
        let py = self.py;
        Box::new(move |row| object!(py, values.value(row)))
    }

    fn bytes<'a, A: arrow::array::ArrayAccessor<Item = &'a [u8]> + 'a>(&self, values: A) -> Get<'a, 'py>
    where
        'py: 'a,
    {
        let py = self.py;
        Box::new(move |row| Ok(PyBytes::new(py, values.value(row)).into_any()))
    }

    fn lists<'a, O: OffsetSizeTrait>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let (py, lists) = (self.py, array.as_list::<O>());
        let values = self.column(lists.values())?;
        Ok(Box::new(move |row| {
            let offsets = lists.value_offsets();
            list(py, &values, offsets[row].as_usize()..offsets[row + 1].as_usize())
        }))
    }

    fn fixed_lists<'a>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let (py, lists) = (self.py, array.as_fixed_size_list());
        let values = self.column(lists.values())?;
        let length = usize::try_from(lists.value_length()).unwrap_or(0);
        Ok(Box::new(move |row| list(py, &values, row * length..(row + 1) * length)))
    }

    fn structs<'a>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let (py, structs) = (self.py, array.as_struct());
        let columns =
            structs.columns().iter().map(|column| self.column(column)).collect::<PyResult<Vec<_>>>()?;
        Ok(Box::new(move |row| {
            let values = PyDict::new(py);
            for (field, column) in structs.fields().iter().zip(&columns) {
                values.set_item(field.name(), column.value(row)?)?;
            }
            Ok(values.into_any())
        }))
    }

    fn maps<'a>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let (py, maps) = (self.py, array.as_map());
        let (keys, values) = (self.column(maps.keys())?, self.column(maps.values())?);
        Ok(Box::new(move |row| {
            let (offsets, entries) = (maps.value_offsets(), PyDict::new(py));
            for entry in offsets[row] as usize..offsets[row + 1] as usize {
                entries.set_item(keys.value(entry)?, values.value(entry)?)?;
            }
            Ok(entries.into_any())
        }))
    }

    fn dictionary<'a>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let dictionary = array.as_any_dictionary();
        let (keys, values) = (dictionary.normalized_keys(), self.column(dictionary.values())?);
        Ok(Box::new(move |row| values.value(keys[row])))
    }

    /// What a function of `kelpie._values` makes of numbers or texts.
    fn by_helper<'a>(&self, array: &'a ArrayRef) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let helpers = self.py.import("kelpie._values")?;
        let helper = |name: &str| helpers.getattr(name);
        match array.data_type() {
            DataType::Date32 => self.counted(array, &DataType::Int32, 1, helper("date")?),
            DataType::Date64 => {
                let days = cast(array, &DataType::Date32).map_err(|error| of_arrow(self.py, error))?;
                self.counted(&days, &DataType::Int32, 1, helper("date")?)
            }
            DataType::Timestamp(unit, zone) => {
                let make = helper("timestamps")?.call1((zone.as_deref(),))?;
                self.counted(array, &DataType::Int64, nanoseconds(*unit), make)
            }
            DataType::Time32(unit) => {
                self.counted(array, &DataType::Int32, nanoseconds(*unit), helper("time")?)
            }
            DataType::Time64(unit) => {
                self.counted(array, &DataType::Int64, nanoseconds(*unit), helper("time")?)
            }
            DataType::Duration(unit) => {
                self.counted(array, &DataType::Int64, nanoseconds(*unit), helper("duration")?)
            }
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => {
                self.formatted(array, Some(self.py.import("decimal")?.getattr("Decimal")?))
            }
            DataType::Interval(_) => self.intervals(array, helper("Interval")?),
            _ => self.formatted(array, None),
        }
    }

    fn counted<'a>(
        &self,
        array: &ArrayRef,
        whole: &DataType,
        unit: i128,
        make: Bound<'py, PyAny>,
    ) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        // Times of 32 bits are cast by way of numbers of 32 bits.
        let values = self.cast(&self.cast(array, whole)?, &DataType::Int64)?;
        Ok(Box::new(move |row| {
            make.call1((i128::from(values.as_primitive::<Int64Type>().value(row)) * unit,))
        }))
    }

    fn intervals<'a>(&self, array: &ArrayRef, make: Bound<'py, PyAny>) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let values = self.cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
        Ok(Box::new(move |row| {
            let interval = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
            make.call1((interval.months, interval.days, interval.nanoseconds))
        }))
    }

    fn formatted<'a>(&self, array: &'a ArrayRef, make: Option<Bound<'py, PyAny>>) -> PyResult<Get<'a, 'py>>
    where
        'py: 'a,
    {
        let (py, options) = (self.py, FormatOptions::new());
        let formatter = ArrayFormatter::try_new(array.as_ref(), &options);
        let formatter = formatter.map_err(|error| of_arrow(py, error))?;
        Ok(Box::new(move |row| {
            let text = formatter.value(row).try_to_string().map_err(|error| of_arrow(py, error))?;
            match &make {
                Some(make) => make.call1((text,)),
                None => object!(py, text),
            }
        }))
    }
}

fn list<'py>(
    py: Python<'py>,
    values: &Column<'_, 'py>,
    places: std::ops::Range<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let values = places.map(|place| values.value(place)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, values)?.into_any())
}

fn nanoseconds(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}
