//! Bytes that are written as a text: in `'\xAA'::BLOB` the escape is one byte.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Value};

use super::functions::text;

/// The bytes of a text that is written out, with an escape, as one of this type; nothing of anything else.
pub(super) fn written_out(expr: &Expr) -> Option<Result<Expr>> {
    let (data_type, written) = match expr {
        Expr::Cast { data_type, expr: value, .. } => (data_type, text(value)?),
        Expr::TypedString(typed) => match &typed.value.value {
            Value::SingleQuotedString(written) => (&typed.data_type, written.as_str()),
            _ => return None,
        },
        _ => return None,
    };
    let are_bytes = matches!(
        data_type,
        DataType::Blob(_) | DataType::Bytea | DataType::Binary(_) | DataType::Varbinary(_)
    );
    (are_bytes && written.contains('\\')).then(|| of_text(written))
}

/// The bytes that a text with escapes says.
fn of_text(text: &str) -> Result<Expr> {
    let mut digits = String::with_capacity(2 * text.len());
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let escaped = rest.strip_prefix("\\x").and_then(|escaped| escaped.get(..2));
        match escaped {
            Some(pair) if pair.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                digits.push_str(pair);
                rest = &rest[4..];
            }
            _ if first == b'\\' => {
                return plan_err!(
                    "'{text}' is no BLOB: behind a backslash stand an x and two digits of base 16"
                );
            }
            _ => {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                rest[..length].bytes().for_each(|byte| digits.push_str(&format!("{byte:02x}")));
                rest = &rest[length..];
            }
        }
    }
    Ok(Expr::value(Value::HexStringLiteral(digits)))
}
