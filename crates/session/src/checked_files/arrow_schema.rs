//! Whether there are such types as the schema of an Arrow file or stream says. Arrow's own reader of schemas panics over those that
//! there are not.

use std::collections::BTreeSet;

use datafusion::arrow::ipc::{
    DateUnit, Endianness, Field, Int, IntervalUnit, Precision, Schema, TimeUnit, Type, UnionMode,
};

/// An error names the column and says what is wrong with it.
pub(super) fn check(schema: Option<Schema<'_>>) -> Result<(), String> {
    let schema = schema.ok_or("it has no schema")?;
    if schema.endianness() != Endianness::Little {
        return Err("its schema: the bytes of its numbers are in the other order".into());
    }
    let fields = schema.fields().ok_or("its schema has no columns")?;
    fields.iter().try_for_each(|field| check_field(field, "")).map_err(|what| format!("its schema: {what}"))
}

/// Whether a field and those inside of it have types. `within`: the names around it, with points behind them.
fn check_field(field: Field<'_>, within: &str) -> Result<(), String> {
    let name = format!("{within}{}", field.name().unwrap_or_default());
    let index = field.dictionary().map(|dictionary| dictionary.indexType());
    let is_of_dictionary = match index {
        Some(index) => index.is_some_and(is_integer),
        None => true,
    };
    if !is_of_dictionary {
        return Err(format!("column {name}: the codes of its dictionary are of no type"));
    }
    if !has_type(field) {
        return Err(format!("column {name}: {}", told(field)));
    }
    let within = format!("{name}.");
    field.children().into_iter().flatten().try_for_each(|child| check_field(child, &within))
}

/// What stands in place of a type.
fn told(field: Field<'_>) -> String {
    let name = field.type_type().variant_name().unwrap_or("unknown");
    match field.type_as_int() {
        Some(int) => format!("there is no integer of {} bits", int.bitWidth()),
        None => format!("there is no such type of the kind {name}"),
    }
}

fn is_integer(int: Int<'_>) -> bool {
    matches!(int.bitWidth(), 8 | 16 | 32 | 64)
}

/// Whether a field's own type is one, whatever is inside of it.
fn has_type(field: Field<'_>) -> bool {
    let children = field.children().map_or(0, |children| children.len());
    let is_unit = |unit| {
        matches!(
            unit,
            TimeUnit::SECOND | TimeUnit::MILLISECOND | TimeUnit::MICROSECOND | TimeUnit::NANOSECOND
        )
    };
    match field.type_type() {
        Type::Null
        | Type::Bool
        | Type::Binary
        | Type::BinaryView
        | Type::LargeBinary
        | Type::Utf8
        | Type::Utf8View
        | Type::LargeUtf8
        | Type::Struct_ => true,
        Type::Int => field.type_as_int().is_some_and(is_integer),
        Type::FixedSizeBinary => field.type_as_fixed_size_binary().is_some_and(|own| own.byteWidth() >= 0),
        Type::FloatingPoint => field.type_as_floating_point().is_some_and(|own| {
            matches!(own.precision(), Precision::HALF | Precision::SINGLE | Precision::DOUBLE)
        }),
        Type::Date => field
            .type_as_date()
            .is_some_and(|own| matches!(own.unit(), DateUnit::DAY | DateUnit::MILLISECOND)),
        Type::Time => field.type_as_time().is_some_and(|own| {
            matches!(
                (own.bitWidth(), own.unit()),
                (32, TimeUnit::SECOND | TimeUnit::MILLISECOND)
                    | (64, TimeUnit::MICROSECOND | TimeUnit::NANOSECOND)
            )
        }),
        Type::Timestamp => field.type_as_timestamp().is_some_and(|own| is_unit(own.unit())),
        Type::Duration => field.type_as_duration().is_some_and(|own| is_unit(own.unit())),
        Type::Interval => field.type_as_interval().is_some_and(|own| {
            matches!(
                own.unit(),
                IntervalUnit::YEAR_MONTH | IntervalUnit::DAY_TIME | IntervalUnit::MONTH_DAY_NANO
            )
        }),
        Type::List | Type::LargeList | Type::ListView | Type::LargeListView => children == 1,
        Type::Map => children == 1 && field.type_as_map().is_some(),
        Type::FixedSizeList => {
            children == 1 && field.type_as_fixed_size_list().is_some_and(|own| own.listSize() >= 0)
        }
        Type::RunEndEncoded => children == 2,
        Type::Decimal => field
            .type_as_decimal()
            .is_some_and(|own| is_decimal(own.bitWidth(), own.precision(), own.scale())),
        Type::Union => is_union(field, children),
        _ => false,
    }
}

fn is_decimal(bits: i32, precision: i32, scale: i32) -> bool {
    let most = match bits {
        32 => 9,
        64 => 18,
        128 => 38,
        256 => 76,
        _ => return false,
    };
    (1..=most).contains(&precision) && (-most..=precision).contains(&scale)
}

fn is_union(field: Field<'_>, children: usize) -> bool {
    let Some(own) = field.type_as_union() else { return false };
    let has_ids = match own.typeIds() {
        None => children <= 127,
        Some(ids) => {
            let distinct: BTreeSet<i32> = ids.iter().filter(|id| (0..=127).contains(id)).collect();
            distinct.len() == children && ids.len() == children
        }
    };
    has_ids && matches!(own.mode(), UnionMode::Dense | UnionMode::Sparse)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use datafusion::arrow::datatypes::{self as arrow, DataType, UnionFields};
    use datafusion::arrow::ipc::convert::fb_to_schema;
    use datafusion::arrow::ipc::root_as_message;
    use datafusion::arrow::ipc::writer::StreamWriter;

    use super::*;

    /// What stands before the message of a schema in a stream: a mark, and its length.
    const HEAD_BYTES: usize = 8;

    fn types() -> Vec<DataType> {
        let item = || Arc::new(arrow::Field::new("item", DataType::Int32, true));
        let entries = ["key", "value"].map(|name| arrow::Field::new(name, DataType::Int64, name == "value"));
        let entries = arrow::Field::new("entries", DataType::Struct(entries.to_vec().into()), false);
        let parts = UnionFields::try_new([3, 5], [item().as_ref().clone(), item().as_ref().clone()]).unwrap();
        let ends = Arc::new(arrow::Field::new("run_ends", DataType::Int32, false));
        vec![
            DataType::Null,
            DataType::Boolean,
            DataType::UInt16,
            DataType::Float64,
            DataType::Utf8View,
            DataType::FixedSizeBinary(4),
            DataType::Date64,
            DataType::Time32(arrow::TimeUnit::Second),
            DataType::Time64(arrow::TimeUnit::Nanosecond),
            DataType::Timestamp(arrow::TimeUnit::Microsecond, Some("UTC".into())),
            DataType::Duration(arrow::TimeUnit::Millisecond),
            DataType::Interval(arrow::IntervalUnit::MonthDayNano),
            DataType::Decimal128(12, 2),
            DataType::Decimal256(60, -3),
            DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)),
            DataType::List(item()),
            DataType::FixedSizeList(item(), 3),
            DataType::Map(Arc::new(entries), false),
            DataType::Union(parts, arrow::UnionMode::Sparse),
            DataType::RunEndEncoded(ends, item()),
        ]
    }

    fn message(data_type: &DataType) -> Vec<u8> {
        let schema = arrow::Schema::new(vec![arrow::Field::new("c", data_type.clone(), true)]);
        let mut bytes = Vec::new();
        StreamWriter::try_new(&mut bytes, &schema).unwrap().finish().unwrap();
        bytes.split_off(HEAD_BYTES)
    }

    /// Every type that Arrow writes is one, and of what is read with another number in any place, Arrow's reader makes types.
    #[test]
    fn what_passes_can_be_read() {
        let (mut read, mut refused) = (0, 0);
        for data_type in types() {
            let sound = message(&data_type);
            let checked = check(root_as_message(&sound).unwrap().header_as_schema());
            assert_eq!(checked, Ok(()), "{data_type}");
            for place in 0..sound.len() {
                for value in [0, 1, 2, 3, 7, 33, 127, 128, 255] {
                    let mut bytes = sound.clone();
                    bytes[place] = value;
                    let Ok(message) = root_as_message(&bytes) else { continue };
                    let Some(schema) = message.header_as_schema() else { continue };
                    if check(Some(schema)).is_err() {
                        refused += 1;
                        continue;
                    }
                    read += 1;
                    let outcome = catch_unwind(AssertUnwindSafe(|| fb_to_schema(schema)));
                    assert!(outcome.is_ok(), "{data_type}: byte {place} is {value}");
                }
            }
        }
        assert!(read > 1000 && refused > 100, "{read} read, {refused} refused");
    }

    #[test]
    fn messages_name_the_column() {
        let mut bytes = message(&DataType::UInt16);
        let width = bytes.windows(4).rposition(|bytes| bytes == 16_i32.to_le_bytes()).unwrap();
        bytes[width..width + 4].copy_from_slice(&17_i32.to_le_bytes());
        let checked = check(root_as_message(&bytes).unwrap().header_as_schema());
        assert_eq!(checked, Err("its schema: column c: there is no integer of 17 bits".into()));
    }
}
