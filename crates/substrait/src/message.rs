//! A plan as bytes: Protobuf, or the JSON that stands for it.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion_substrait::substrait::proto::Plan;
use prost::Message;

use crate::limits::MOST_BYTES;

/// How a plan is written. Which form bytes have is seen from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Protobuf.
    Binary,
    /// The JSON of Protobuf.
    Json,
}

impl Form {
    /// That of a file: JSON where its name says so.
    pub fn of(path: &Path) -> Form {
        match path.extension() {
            Some(extension) if extension.eq_ignore_ascii_case("json") => Form::Json,
            _ => Form::Binary,
        }
    }
}

/// The bytes of a file. What is no file is not opened: a pipe would be waited for.
pub(crate) fn file(path: &Path) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
    let found = fs::metadata(path).map_err(unreadable)?;
    if found.is_dir() {
        return Err("it is a folder, and a plan is a file".into());
    }
    if !found.is_file() {
        return Err("it is a pipe or a device, and a plan is a file".into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > MOST_BYTES {
        true => Err(format!("it has {} bytes, and a plan has at most {MOST_BYTES}", found.len())),
        false => Ok(bytes),
    }
}

/// The plan that bytes are.
pub(crate) fn decoded(bytes: &[u8]) -> Result<Plan, String> {
    if bytes.is_empty() {
        return Err("it is empty, and no plan of Substrait".into());
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // Texts have no such bytes, and no plan in Protobuf is without.
    let is_text = !text.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    let decoded = match is_text && text.trim_ascii_start().starts_with(b"{") {
        true => serde_json::from_slice(text).map_err(|error| error.to_string()),
        false => Plan::decode(bytes).map_err(|error| {
            // Before what is wrong stands the way to it, message by message.
            let text = error.to_string();
            let parts: Vec<&str> = text.rsplitn(3, ": ").collect();
            parts.iter().take(2).rev().copied().collect::<Vec<_>>().join(": ")
        }),
    };
    decoded.map_err(|problem| format!("it is no plan of Substrait: {problem}"))
}

/// A plan as bytes that can be read again.
pub(crate) fn encoded(plan: &Plan, form: Form) -> Result<Vec<u8>> {
    let bytes = match form {
        Form::Binary => plan.encode_to_vec(),
        Form::Json => match serde_json::to_string_pretty(plan) {
            Ok(text) => (text + "\n").into_bytes(),
            Err(error) => return Err(DataFusionError::External(Box::new(error))),
        },
    };
    // Parsers take messages a hundred levels deep.
    if let Err(problem) = decoded(&bytes) {
        return plan_err!("the statement cannot be written as a plan that can be read again: {problem}");
    }
    Ok(bytes)
}
