//! One table of files whose columns differ: they meet by name, with a type that holds the values of all.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Fields, Schema, SchemaRef,
    TimeUnit,
};
use datafusion::error::Result;

use super::error::at;

/// The columns of all files.
#[derive(Debug)]
pub(super) struct United {
    pub schema: SchemaRef,
    /// Whether a file has other types, or names that differ in case: what it says of its columns is not said of the table's.
    pub differ: bool,
}

/// How types meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// They are written as text, which every value can be read as.
    Text,
    /// They have the type that the file says.
    Typed,
}

/// The columns of several files. Each file's names meet the same names of the files before it, or names that differ in case.
pub(super) fn unite(files: &[(&Path, SchemaRef)], values: Values) -> Result<United> {
    let mut columns: Vec<(FieldRef, &Path, usize)> = Vec::new();
    let mut differ = false;
    for (path, schema) in files {
        let known = Schema::new(columns.iter().map(|(field, _, _)| Arc::clone(field)).collect::<Vec<_>>());
        let places = places(&known, schema);
        for (place, (field, first, seen)) in places.iter().zip(&mut columns) {
            let Some(place) = place else { continue };
            let met = schema.field(*place);
            *seen += 1;
            differ |= met.name() != field.name() || met.data_type() != field.data_type();
            *field =
                Arc::new(meet(field, met, values).ok_or_else(|| no_common_type(path, met, (first, field)))?);
        }
        for (place, field) in schema.fields().iter().enumerate() {
            if !places.contains(&Some(place)) {
                columns.push((Arc::clone(field), path, 1));
            }
        }
    }
    let everywhere = |(field, _, seen): (FieldRef, &Path, usize)| match seen == files.len() {
        true => field,
        false => Arc::new(field.as_ref().clone().with_nullable(true)),
    };
    let fields: Vec<FieldRef> = columns.into_iter().map(everywhere).collect();
    Ok(United { schema: Arc::new(Schema::new_with_metadata(fields, shared_metadata(files))), differ })
}

fn no_common_type(
    path: &Path,
    met: &Field,
    (first, field): (&Path, &Field),
) -> datafusion::error::DataFusionError {
    at(
        path,
        format!(
            "column {}: {} here, and {} in {}: no type holds both",
            met.name(),
            met.data_type(),
            field.data_type(),
            first.display()
        ),
    )
}

/// What all files say of themselves.
fn shared_metadata(files: &[(&Path, SchemaRef)]) -> std::collections::HashMap<String, String> {
    let mut all = files.iter().map(|(_, schema)| schema.metadata());
    let mut shared = all.next().cloned().unwrap_or_default();
    for metadata in all {
        shared.retain(|key, value| metadata.get(key) == Some(value));
    }
    shared
}

/// Where each of a table's columns stands in a file: by its name, or by the only one that differs in case and is no other column's.
pub(super) fn places(table: &Schema, file: &Schema) -> Vec<Option<usize>> {
    let exact: Vec<Option<usize>> =
        table.fields().iter().map(|field| file.index_of(field.name()).ok()).collect();
    let free: Vec<(usize, String)> = (0..file.fields().len())
        .filter(|place| !exact.contains(&Some(*place)))
        .map(|place| (place, file.field(place).name().to_lowercase()))
        .collect();
    if free.is_empty() {
        return exact;
    }
    let mut taken = Vec::new();
    let of_case = |(field, exact): (&FieldRef, Option<usize>)| {
        let name = field.name().to_lowercase();
        let mut like = free.iter().filter(|(_, free)| *free == name);
        let found = match (exact, like.next(), like.next()) {
            (None, Some((place, _)), None) if !taken.contains(place) => Some(*place),
            (exact, _, _) => exact,
        };
        taken.extend(found);
        found
    };
    table.fields().iter().zip(exact.iter().copied()).map(of_case).collect()
}

fn meet(a: &Field, b: &Field, values: Values) -> Option<Field> {
    let data_type = common_type(a.data_type(), b.data_type(), values)?;
    let mut metadata = a.metadata().clone();
    metadata.retain(|key, value| b.metadata().get(key) == Some(value));
    let nullable = a.is_nullable() || b.is_nullable();
    Some(Field::new(a.name(), data_type, nullable).with_metadata(metadata))
}

/// The type that holds the values of both.
pub(super) fn common_type(a: &DataType, b: &DataType, values: Values) -> Option<DataType> {
    use DataType::{Boolean, Date32, Date64, Dictionary, Null, Struct, Timestamp, Utf8, Utf8View};
    if a == b {
        return Some(a.clone());
    }
    match (a, b) {
        (Null, other) | (other, Null) => return Some(other.clone()),
        (Dictionary(_, inner), other) | (other, Dictionary(_, inner)) => {
            return common_type(inner, other, values);
        }
        (Struct(a), Struct(b)) => return Some(Struct(common_fields(a, b, values)?)),
        (Timestamp(x, zone), Timestamp(y, other)) => {
            let zone = match (zone, other) {
                (Some(zone), Some(other)) if zone != other => Some("+00:00".into()),
                (zone, other) => zone.clone().or_else(|| other.clone()),
            };
            return Some(Timestamp(finer(*x, *y), zone));
        }
        (Date32 | Date64, Timestamp(unit, zone)) | (Timestamp(unit, zone), Date32 | Date64) => {
            return Some(Timestamp(*unit, zone.clone()));
        }
        (Date32, Date64) | (Date64, Date32) => return Some(Date64),
        _ => {}
    }
    if let Some(list) = common_list(a, b, values) {
        return Some(list);
    }
    if is_number(a) && is_number(b) {
        return common_number(a, b);
    }
    let text = |data_type: &DataType| matches!(data_type, Utf8 | Utf8View | DataType::LargeUtf8);
    let binary = |data_type: &DataType| {
        matches!(data_type, DataType::Binary | DataType::BinaryView | DataType::LargeBinary)
    };
    match values {
        _ if text(a) && text(b) => Some(Utf8View),
        _ if binary(a) && binary(b) => Some(DataType::BinaryView),
        Values::Text => Some(Utf8),
        Values::Typed if (text(a) && is_plain(b)) || (text(b) && is_plain(a)) => Some(Utf8View),
        Values::Typed if *a == Boolean && is_number(b) => Some(b.clone()),
        Values::Typed if *b == Boolean && is_number(a) => Some(a.clone()),
        Values::Typed => None,
    }
}

fn common_fields(a: &Fields, b: &Fields, values: Values) -> Option<Fields> {
    let mut fields: Vec<Field> = Vec::new();
    for field in a {
        fields.push(match b.iter().find(|other| other.name() == field.name()) {
            Some(other) => meet(field, other, values)?,
            None => field.as_ref().clone().with_nullable(true),
        });
    }
    for field in b {
        if a.iter().all(|other| other.name() != field.name()) {
            fields.push(field.as_ref().clone().with_nullable(true));
        }
    }
    Some(fields.into())
}

fn common_list(a: &DataType, b: &DataType, values: Values) -> Option<DataType> {
    use DataType::{FixedSizeList, LargeList, List};
    let element = |data_type: &DataType| match data_type {
        List(field) | LargeList(field) | FixedSizeList(field, _) => Some(Arc::clone(field)),
        _ => None,
    };
    let (first, second) = (element(a)?, element(b)?);
    let field = Arc::new(meet(first.as_ref(), second.as_ref(), values)?);
    let is_large = matches!(a, LargeList(_)) || matches!(b, LargeList(_));
    Some(if is_large { LargeList(field) } else { List(field) })
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    let rank = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(&a) >= rank(&b) { a } else { b }
}

fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// Whether values can be written as text.
fn is_plain(data_type: &DataType) -> bool {
    data_type.is_numeric() || data_type.is_temporal() || *data_type == DataType::Boolean
}

/// Digits of an integer before its decimal point.
fn integer_digits(data_type: &DataType) -> Option<u8> {
    use DataType::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    match data_type {
        Int8 | UInt8 => Some(3),
        Int16 | UInt16 => Some(5),
        Int32 | UInt32 => Some(10),
        Int64 => Some(19),
        UInt64 => Some(20),
        _ => None,
    }
}

fn common_number(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Decimal128, Decimal256, Float32, Float64, Int64};
    if a.is_floating() || b.is_floating() {
        let fits = |data_type: &DataType| {
            matches!(data_type, DataType::Float16 | Float32)
                || integer_digits(data_type).is_some_and(|digits| digits <= 5)
        };
        return Some(if fits(a) && fits(b) { Float32 } else { Float64 });
    }
    if let (Some(x), Some(y)) = (integer_digits(a), integer_digits(b)) {
        return Some(match (a.is_signed_integer(), b.is_signed_integer()) {
            (true, true) | (false, false) => {
                if x >= y {
                    a.clone()
                } else {
                    b.clone()
                }
            }
            _ if x.max(y) <= 3 => DataType::Int16,
            _ if x.max(y) <= 5 => DataType::Int32,
            _ if x.max(y) <= 19 => Int64,
            _ => Decimal128(20, 0),
        });
    }
    let decimal = |data_type: &DataType| match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | Decimal128(precision, scale)
        | Decimal256(precision, scale) => {
            let scale = (*scale).max(0);
            Some((precision.saturating_sub(scale.unsigned_abs()), scale))
        }
        other => integer_digits(other).map(|digits| (digits, 0)),
    };
    let ((digits, scale), (others, other_scale)) = (decimal(a)?, decimal(b)?);
    let scale = scale.max(other_scale);
    let precision = digits.max(others).saturating_add(scale.unsigned_abs());
    Some(match precision {
        _ if precision <= DECIMAL128_MAX_PRECISION => Decimal128(precision.max(1), scale),
        _ if precision <= DECIMAL256_MAX_PRECISION => Decimal256(precision, scale),
        _ => Float64,
    })
}
