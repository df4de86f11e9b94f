//! Arrow's types and DataFusion's scalar values as Kelpie's.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType as ArrowType, Field as ArrowField, TimeUnit as ArrowUnit};
use datafusion::common::ScalarValue;
use kelpie_compile::types::{DataType, Field, Interval, Literal, TimeUnit};

/// The Kelpie type of an Arrow type, if it has one.
pub(crate) fn data_type(arrow: &ArrowType) -> Option<DataType> {
    Some(match arrow {
        ArrowType::Null => DataType::Null,
        ArrowType::Boolean => DataType::Boolean,
        ArrowType::Int8 => DataType::Int8,
        ArrowType::Int16 => DataType::Int16,
        ArrowType::Int32 => DataType::Int32,
        ArrowType::Int64 => DataType::Int64,
        ArrowType::UInt8 => DataType::UInt8,
        ArrowType::UInt16 => DataType::UInt16,
        ArrowType::UInt32 => DataType::UInt32,
        ArrowType::UInt64 => DataType::UInt64,
        ArrowType::Float32 => DataType::Float32,
        ArrowType::Float64 => DataType::Float64,
        ArrowType::Decimal128(precision, scale) => {
            DataType::Decimal128 { precision: *precision, scale: *scale }
        }
        ArrowType::Date32 => DataType::Date32,
        ArrowType::Timestamp(unit, timezone) => {
            DataType::Timestamp { unit: time_unit(*unit), timezone: timezone.clone() }
        }
        ArrowType::Duration(unit) => DataType::Duration { unit: time_unit(*unit) },
        ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::Utf8,
        // Not a dictionary of dictionaries: the column store reads none.
        ArrowType::Dictionary(_, values) => match values.as_ref() {
            ArrowType::Utf8 | ArrowType::LargeUtf8 | ArrowType::Utf8View => DataType::Utf8,
            _ => return None,
        },
        ArrowType::Interval(_) => DataType::Interval,
        _ => return None,
    })
}

fn time_unit(unit: ArrowUnit) -> TimeUnit {
    match unit {
        ArrowUnit::Second => TimeUnit::Second,
        ArrowUnit::Millisecond => TimeUnit::Millisecond,
        ArrowUnit::Microsecond => TimeUnit::Microsecond,
        ArrowUnit::Nanosecond => TimeUnit::Nanosecond,
    }
}

/// The Kelpie type of a column; a column cannot be an interval or the untyped NULL.
pub(crate) fn column_type(arrow: &ArrowType) -> Option<DataType> {
    data_type(arrow).filter(|t| !matches!(t, DataType::Interval | DataType::Null))
}

/// A column of a schema.
pub(crate) fn field(arrow: &ArrowField) -> Option<Field> {
    Some(Field {
        name: arrow.name().clone(),
        data_type: column_type(arrow.data_type())?,
        nullable: arrow.is_nullable(),
    })
}

/// A constant; NULL of any type is `Literal::Null`.
pub(crate) fn literal(value: &ScalarValue) -> Option<Literal> {
    if value.is_null() {
        return Some(Literal::Null);
    }
    let int = |v: i128| Some(Literal::Int(v));
    match value {
        ScalarValue::Boolean(Some(v)) => Some(Literal::Boolean(*v)),
        ScalarValue::Int8(Some(v)) => int((*v).into()),
        ScalarValue::Int16(Some(v)) => int((*v).into()),
        ScalarValue::Int32(Some(v)) | ScalarValue::Date32(Some(v)) => int((*v).into()),
        ScalarValue::UInt8(Some(v)) => int((*v).into()),
        ScalarValue::UInt16(Some(v)) => int((*v).into()),
        ScalarValue::UInt32(Some(v)) => int((*v).into()),
        ScalarValue::UInt64(Some(v)) => int((*v).into()),
        ScalarValue::Int64(Some(v))
        | ScalarValue::TimestampSecond(Some(v), _)
        | ScalarValue::TimestampMillisecond(Some(v), _)
        | ScalarValue::TimestampMicrosecond(Some(v), _)
        | ScalarValue::TimestampNanosecond(Some(v), _)
        | ScalarValue::DurationSecond(Some(v))
        | ScalarValue::DurationMillisecond(Some(v))
        | ScalarValue::DurationMicrosecond(Some(v))
        | ScalarValue::DurationNanosecond(Some(v)) => int((*v).into()),
        ScalarValue::Decimal128(Some(v), _, _) => int(*v),
        ScalarValue::Float32(Some(v)) => Some(Literal::Float((*v).into())),
        ScalarValue::Float64(Some(v)) => Some(Literal::Float(*v)),
        ScalarValue::Utf8(Some(v)) | ScalarValue::LargeUtf8(Some(v)) | ScalarValue::Utf8View(Some(v)) => {
            Some(Literal::Utf8(Arc::from(v.as_str())))
        }
        ScalarValue::Dictionary(_, value) => literal(value),
        ScalarValue::IntervalYearMonth(Some(months)) => {
            Some(Literal::Interval(Interval { months: *months, days: 0, nanoseconds: 0 }))
        }
        ScalarValue::IntervalDayTime(Some(v)) => Some(Literal::Interval(Interval {
            months: 0,
            days: v.days,
            nanoseconds: i64::from(v.milliseconds) * 1_000_000,
        })),
        ScalarValue::IntervalMonthDayNano(Some(v)) => {
            Some(Literal::Interval(Interval { months: v.months, days: v.days, nanoseconds: v.nanoseconds }))
        }
        _ => None,
    }
}
