//! How values are shown: the options `datafusion.format.*`.

use anyhow::{Result, bail};
use datafusion::arrow::array::{
    Array, Date32Array, Date64Array, Time64NanosecondArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions as Shown};
use datafusion::config::FormatOptions;

/// How a session shows values to people.
pub(super) fn for_people(options: &FormatOptions) -> Result<Shown<'_>> {
    Ok(Shown::try_from(options)?)
}

/// How it writes them for programs: NULL, dates and times as it says, all else as it is read back.
pub(super) fn for_programs(options: &FormatOptions) -> Shown<'_> {
    let usual = FormatOptions::default();
    // What nobody chose needs no format, which takes longer.
    let chosen = |format: &'_ Option<String>, usual: &Option<String>| format != usual;
    let mut shown = Shown::default().with_null(&options.null);
    if chosen(&options.date_format, &usual.date_format) {
        shown = shown.with_date_format(options.date_format.as_deref());
    }
    if chosen(&options.datetime_format, &usual.datetime_format) {
        shown = shown.with_datetime_format(options.datetime_format.as_deref());
    }
    if chosen(&options.timestamp_format, &usual.timestamp_format) {
        shown = shown.with_timestamp_format(options.timestamp_format.as_deref());
    }
    if chosen(&options.timestamp_tz_format, &usual.timestamp_tz_format) {
        shown = shown.with_timestamp_tz_format(options.timestamp_tz_format.as_deref());
    }
    if chosen(&options.time_format, &usual.time_format) {
        shown = shown.with_time_format(options.time_format.as_deref());
    }
    shown
}

/// Whether there is no value; the null type has no validity bitmap.
pub(super) fn is_null(column: &dyn Array, row: usize) -> bool {
    column.is_null(row) || *column.data_type() == DataType::Null
}

/// A type as SQL names it.
pub(super) fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "null",
        DataType::Boolean => "boolean",
        DataType::Int8 => "tinyint",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::UInt8 => "utinyint",
        DataType::UInt16 => "usmallint",
        DataType::UInt32 => "uinteger",
        DataType::UInt64 => "ubigint",
        DataType::Float16 => "half",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "varchar",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "blob"
        }
        DataType::Date32 => "date",
        DataType::Date64 => "datetime",
        DataType::Time32(_) | DataType::Time64(_) => "time",
        DataType::Timestamp(_, None) => "timestamp",
        DataType::Timestamp(_, Some(_)) => "timestamptz",
        DataType::Interval(IntervalUnit::YearMonth) => "interval year to month",
        DataType::Interval(_) | DataType::Duration(_) => "interval",
        DataType::Decimal32(digits, behind)
        | DataType::Decimal64(digits, behind)
        | DataType::Decimal128(digits, behind)
        | DataType::Decimal256(digits, behind) => return format!("decimal({digits},{behind})"),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => return format!("{}[]", type_name(item.data_type())),
        DataType::Dictionary(_, values) => return type_name(values),
        DataType::Struct(fields) => {
            let fields =
                fields.iter().map(|field| format!("{} {}", field.name(), type_name(field.data_type())));
            return format!("struct({})", fields.collect::<Vec<_>>().join(", "));
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(entry) => {
                let parts = entry.iter().map(|field| type_name(field.data_type()));
                return format!("map({})", parts.collect::<Vec<_>>().join(", "));
            }
            _ => "map",
        },
        other => return other.to_string().to_lowercase(),
    };
    name.to_string()
}

/// A format that shows nothing is an error that names its option.
pub(super) fn check(options: &FormatOptions) -> Result<()> {
    if *options == FormatOptions::default() {
        return Ok(());
    }
    let shown = for_people(options)?;
    let moment = TimestampNanosecondArray::from(vec![0]);
    let zoned = moment.clone().with_timezone("+00:00");
    let samples: [(&str, &Option<String>, &dyn Array); 5] = [
        ("date_format", &options.date_format, &Date32Array::from(vec![0])),
        ("datetime_format", &options.datetime_format, &Date64Array::from(vec![0])),
        ("timestamp_format", &options.timestamp_format, &moment),
        ("timestamp_tz_format", &options.timestamp_tz_format, &zoned),
        ("time_format", &options.time_format, &Time64NanosecondArray::from(vec![0])),
    ];
    for (option, format, sample) in samples {
        if ArrayFormatter::try_new(sample, &shown)?.value(0).try_to_string().is_err() {
            bail!(
                "datafusion.format.{option} = '{}' is no format of such values",
                format.as_deref().unwrap_or_default()
            );
        }
    }
    Ok(())
}
