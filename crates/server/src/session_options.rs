//! Settings of a session by the actions of Flight, whose messages `arrow-flight` does not have.

use std::collections::HashMap;

use datafusion::config::ConfigEntry;
use datafusion::error::{DataFusionError, Result};
use kelpie_session::KelpieSession;
use prost::{Enumeration, Message, Oneof};

/// What drivers call the catalog and the schema that a session begins with, and what they are here.
const ALIASES: [(&str, &str); 2] =
    [("catalog", "datafusion.catalog.default_catalog"), ("schema", "datafusion.catalog.default_schema")];

/// `SetSessionOptionsRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetRequest {
    #[prost(map = "string, message", tag = "1")]
    pub options: HashMap<String, OptionValue>,
}

/// `SessionOptionValue`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OptionValue {
    #[prost(oneof = "Value", tags = "1, 2, 3, 4, 5")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Float(f64),
    #[prost(message, tag = "5")]
    Texts(Texts),
}

/// `SessionOptionValue.StringListValue`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Texts {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// `SetSessionOptionsResult`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetResult {
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, SetError>,
}

/// `SetSessionOptionsResult.Error`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SetError {
    #[prost(enumeration = "ErrorValue", tag = "1")]
    pub value: i32,
}

/// `SetSessionOptionsResult.ErrorValue`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum ErrorValue {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

/// `GetSessionOptionsResult`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetResult {
    #[prost(map = "string, message", tag = "1")]
    pub options: HashMap<String, OptionValue>,
}

/// `CloseSessionResult`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CloseResult {
    #[prost(enumeration = "CloseStatus", tag = "1")]
    pub status: i32,
}

/// `CloseSessionResult.Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum CloseStatus {
    Unspecified = 0,
    Closed = 1,
    Closing = 2,
    NotCloseable = 3,
}

fn own_name(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| own)
}

fn entries(session: &KelpieSession) -> Vec<ConfigEntry> {
    session.context().state_ref().read().config_options().entries()
}

/// Sets options, and says which could not be set.
pub(crate) async fn set(session: &KelpieSession, request: SetRequest) -> SetResult {
    let mut errors = HashMap::new();
    for (name, value) in request.options {
        let own = own_name(&name);
        let done = match value.value {
            Some(Value::Text(text)) => session.set(own, &text),
            Some(Value::Bool(value)) => session.set(own, &value.to_string()),
            Some(Value::Integer(value)) => session.set(own, &value.to_string()),
            Some(Value::Float(value)) => session.set(own, &value.to_string()),
            Some(Value::Texts(texts)) => session.set(own, &texts.values.join(",")),
            // Without a value it is what it was at first.
            None => reset(session, own).await,
        };
        if done.is_err() {
            let is_known = entries(session).iter().any(|entry| entry.key == own);
            let value = if is_known { ErrorValue::InvalidValue } else { ErrorValue::InvalidName };
            errors.insert(name, SetError { value: value as i32 });
        }
    }
    SetResult { errors }
}

async fn reset(session: &KelpieSession, name: &str) -> Result<()> {
    // The name becomes part of a statement.
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(DataFusionError::Configuration(format!("there is no option {name}")));
    }
    session.sql(&format!("RESET {name}")).await.map(|_| ())
}

/// The options of a session and their values.
pub(crate) fn get(session: &KelpieSession) -> GetResult {
    let entries = entries(session);
    let value = |text: &str| OptionValue { value: Some(Value::Text(text.to_string())) };
    let known = entries.iter().filter_map(|entry| Some((entry.key.clone(), value(entry.value.as_deref()?))));
    let mut options: HashMap<String, OptionValue> = known.collect();
    for (alias, own) in ALIASES {
        if let Some(value) = options.get(own).cloned() {
            options.insert(alias.to_string(), value);
        }
    }
    GetResult { options }
}
