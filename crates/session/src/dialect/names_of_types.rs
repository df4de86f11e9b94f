//! What types are called in SQL.

use datafusion::arrow::datatypes::{DataType, TimeUnit};

/// The name of a type in SQL, as DuckDB and PostgreSQL have it.
pub(super) fn name_of_type(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Null => "\"NULL\"",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float16 | DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB"
        }
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Interval(_) | DataType::Duration(_) => "INTERVAL",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP_S",
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP_MS",
        // Those of TIMESTAMP are of one or the other, as they come from a literal, a cast or a file.
        DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, None) => "TIMESTAMP",
        DataType::Decimal32(digits, scale)
        | DataType::Decimal64(digits, scale)
        | DataType::Decimal128(digits, scale)
        | DataType::Decimal256(digits, scale) => return format!("DECIMAL({digits},{scale})"),
        DataType::List(element) | DataType::LargeList(element) | DataType::ListView(element) => {
            return format!("{}[]", name_of_type(element.data_type()));
        }
        DataType::FixedSizeList(element, length) => {
            return format!("{}[{length}]", name_of_type(element.data_type()));
        }
        DataType::Struct(fields) => {
            let fields = fields.iter();
            let fields: Vec<String> =
                fields.map(|field| format!("{} {}", field.name(), name_of_type(field.data_type()))).collect();
            return format!("STRUCT({})", fields.join(", "));
        }
        DataType::Map(entries, _) => {
            if let DataType::Struct(fields) = entries.data_type()
                && let [key, value] = fields.as_ref()
            {
                return format!(
                    "MAP({}, {})",
                    name_of_type(key.data_type()),
                    name_of_type(value.data_type())
                );
            }
            "MAP"
        }
        DataType::Dictionary(_, values) => return name_of_type(values),
        other => return other.to_string(),
    };
    name.to_string()
}
