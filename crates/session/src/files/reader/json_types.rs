//! Types of JSON values.

use std::fmt;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

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
    /// Adds a value of one more kind.
    fn meet(&mut self, other: Seen) {
        *self = std::mem::take(self).with(other);
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

/// Adds a value as it is parsed: nothing of it is kept.
impl<'de> DeserializeSeed<'de> for &mut Seen {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Seen {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.meet(Seen::Bool);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.meet(Seen::Whole { negative: value < 0, large: false });
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.meet(Seen::Whole { negative: false, large: i64::try_from(value).is_err() });
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.meet(Seen::Float);
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.meet(Seen::Text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        if *self == Seen::Nothing {
            *self = Seen::List(Box::default());
        }
        if let Seen::List(seen) = self {
            while values.next_element_seed(&mut **seen)?.is_some() {}
            return Ok(());
        }
        while values.next_element::<IgnoredAny>()?.is_some() {}
        self.meet(Seen::Mixed { nested: true });
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        if *self == Seen::Nothing {
            *self = Seen::Object(Vec::new());
        }
        if let Seen::Object(keys) = self {
            let mut next = 0;
            while let Some(place) = values.next_key_seed(Key { keys, expected: next })? {
                if let Some((_, seen)) = keys.get_mut(place) {
                    values.next_value_seed(seen)?;
                }
                next = place + 1;
            }
            return Ok(());
        }
        while values.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        self.meet(Seen::Mixed { nested: true });
        Ok(())
    }
}

/// Adds an object: other values are errors of the kind that says that data are other than they should be.
pub(super) struct Row<'a>(pub &'a mut Seen);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, values: A) -> Result<(), A::Error> {
        self.0.visit_map(values)
    }
}

/// A key of an object, which becomes its place among those that were seen. Most objects have them in one order.
struct Key<'a> {
    keys: &'a mut Vec<(String, Seen)>,
    expected: usize,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<usize, E> {
        let Key { keys, expected } = self;
        if keys.get(expected).is_some_and(|(known, _)| known == key) {
            return Ok(expected);
        }
        Ok(keys.iter().position(|(known, _)| known == key).unwrap_or_else(|| {
            keys.push((key.to_string(), Seen::Nothing));
            keys.len() - 1
        }))
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
