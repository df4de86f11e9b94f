//! Types of JSON values.

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};

use super::json_value::Json;

/// The values that were seen under a key.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) enum Seen {
    /// NULL only.
    #[default]
    Nothing,
    Bool,
    /// Whole numbers: whether any is below zero, and whether any is beyond 64 bits with a sign.
    Whole {
        negative: bool,
        large: bool,
    },
    Float,
    Text,
    List(Box<Seen>),
    /// Keys in the order in which they came.
    Object(Vec<(String, Seen)>),
    /// Of several kinds, which only text holds.
    Mixed {
        nested: bool,
    },
}

impl Seen {
    /// Adds a value.
    pub fn add(&mut self, value: &Json) {
        match (&mut *self, value) {
            (_, Json::Null) => {}
            (Seen::Object(keys), Json::Object(values)) => {
                for (key, value) in values {
                    match keys.iter_mut().find(|(known, _)| known == key) {
                        Some((_, seen)) => seen.add(value),
                        None => {
                            let mut seen = Seen::Nothing;
                            seen.add(value);
                            keys.push((key.clone(), seen));
                        }
                    }
                }
            }
            (Seen::List(seen), Json::List(values)) => values.iter().for_each(|value| seen.add(value)),
            (Seen::Nothing, Json::Object(_)) => {
                *self = Seen::Object(Vec::new());
                self.add(value);
            }
            (Seen::Nothing, Json::List(_)) => {
                *self = Seen::List(Box::default());
                self.add(value);
            }
            (_, value) => {
                let seen = std::mem::take(self);
                *self = seen.with(Seen::of(value));
            }
        }
    }

    fn of(value: &Json) -> Seen {
        match value {
            Json::Null => Seen::Nothing,
            Json::Bool(_) => Seen::Bool,
            Json::Text(_) => Seen::Text,
            Json::Number(number) if number.is_i64() => {
                Seen::Whole { negative: number.as_i64().is_some_and(|number| number < 0), large: false }
            }
            Json::Number(number) if number.is_u64() => Seen::Whole { negative: false, large: true },
            Json::Number(_) => Seen::Float,
            Json::List(_) | Json::Object(_) => Seen::Mixed { nested: true },
        }
    }

    fn with(self, other: Seen) -> Seen {
        match (self, other) {
            (Seen::Nothing, seen) | (seen, Seen::Nothing) => seen,
            (Seen::Whole { negative, large }, Seen::Whole { negative: also, large: too }) => {
                Seen::Whole { negative: negative || also, large: large || too }
            }
            (Seen::Whole { .. } | Seen::Float, Seen::Whole { .. } | Seen::Float) => Seen::Float,
            (a, b) if a == b => a,
            (a, b) => Seen::Mixed { nested: a.has_nested() || b.has_nested() },
        }
    }

    /// Whether lists or objects are among its values.
    fn has_nested(&self) -> bool {
        matches!(self, Seen::List(_) | Seen::Object(_) | Seen::Mixed { nested: true })
    }

    /// Whether text stands for lists or objects anywhere in it.
    pub fn has_nested_text(&self) -> bool {
        match self {
            Seen::Mixed { nested } => *nested,
            Seen::List(seen) => seen.has_nested_text(),
            Seen::Object(keys) => keys.iter().any(|(_, seen)| seen.has_nested_text()),
            _ => false,
        }
    }

    /// The type of a column of them.
    pub fn data_type(&self) -> DataType {
        match self {
            Seen::Nothing => DataType::Null,
            Seen::Bool => DataType::Boolean,
            Seen::Whole { large: false, .. } => DataType::Int64,
            Seen::Whole { negative: false, .. } => DataType::UInt64,
            Seen::Whole { .. } => DataType::Decimal128(20, 0),
            Seen::Float => DataType::Float64,
            Seen::Text | Seen::Mixed { .. } => DataType::Utf8,
            Seen::List(seen) => DataType::List(Field::new_list_field(seen.data_type(), true).into()),
            Seen::Object(keys) => DataType::Struct(fields(keys)),
        }
    }
}

/// The columns of keys.
pub(super) fn fields(keys: &[(String, Seen)]) -> Fields {
    keys.iter().map(|(key, seen)| Field::new(key, seen.data_type(), true)).collect()
}

/// The type that a value is first read as: numbers as they are written, since Arrow cuts off what is no whole number.
pub(super) fn as_written(data_type: &DataType) -> DataType {
    let field = |field: &FieldRef| {
        FieldRef::new(field.as_ref().clone().with_data_type(as_written(field.data_type())))
    };
    match data_type {
        DataType::Int64 | DataType::UInt64 | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            DataType::Utf8
        }
        DataType::List(inner) => DataType::List(field(inner)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        other => other.clone(),
    }
}

/// Whether a file's own values of a type are lists or objects where the table has text.
pub(super) fn becomes_text(own: &DataType, table: &DataType) -> bool {
    match (own, table) {
        (DataType::List(own), DataType::List(table)) => becomes_text(own.data_type(), table.data_type()),
        (DataType::Struct(own), DataType::Struct(table)) => own.iter().any(|own| {
            let table = table.iter().find(|table| table.name() == own.name());
            table.is_some_and(|table| becomes_text(own.data_type(), table.data_type()))
        }),
        (own, table) => own.is_nested() && !table.is_nested(),
    }
}

/// Lists and objects where a type has text become the text that they are.
pub(super) fn nested_as_text(value: &mut Json, data_type: &DataType) {
    match (&mut *value, data_type) {
        (Json::List(values), DataType::List(field)) => {
            values.iter_mut().for_each(|value| nested_as_text(value, field.data_type()));
        }
        (Json::Object(values), DataType::Struct(fields)) => {
            for field in fields {
                let of_field = values.iter_mut().filter(|(key, _)| key == field.name());
                of_field.for_each(|(_, value)| nested_as_text(value, field.data_type()));
            }
        }
        (Json::List(_) | Json::Object(_), DataType::Utf8) => *value = Json::Text(value.to_string()),
        _ => {}
    }
}
