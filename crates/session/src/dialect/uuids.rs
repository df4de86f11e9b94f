//! UUIDs are texts in the form of RFC 9562, small letters and four dashes, as files give theirs: so they are compared and ordered. A cast
//! writes a text in that form.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::sql::sqlparser::ast::{CastKind, Expr};

use super::by_row::{Definition, Kind};
use crate::syntax::call;

const CAST: &str = "cast_to_uuid";
const TRY_CAST: &str = "try_cast_to_uuid";
/// Hexadecimal digits, and those that a dash stands before.
const DIGITS: usize = 32;
const DASHES: [usize; 4] = [8, 12, 16, 20];

/// A cast to this type.
pub(super) fn cast(value: Expr, kind: &CastKind) -> Expr {
    let name = match kind {
        CastKind::TryCast | CastKind::SafeCast => TRY_CAST,
        _ => CAST,
    };
    call(name, vec![value])
}

/// The functions that casts are written as.
pub(super) fn casts() -> [Definition; 2] {
    let definition = |name, body| Definition {
        name,
        aliases: &[],
        parameters: &[Kind::Text],
        least: 1,
        result: DataType::Utf8,
        body,
    };
    [
        definition(CAST, |row| match written(row.text(0)) {
            Some(uuid) => Ok(ScalarValue::from(uuid)),
            None => exec_err!("'{}' is no UUID", row.text(0)),
        }),
        definition(TRY_CAST, |row| Ok(ScalarValue::Utf8(written(row.text(0))))),
    ]
}

/// A UUID in its form; nothing of what is none. Letters may be large, dashes may lack, and braces may stand around it.
fn written(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
    let mut uuid = String::with_capacity(DIGITS + DASHES.len());
    let mut digits = 0;
    let mut was_dash = true;
    for letter in text.chars() {
        match letter {
            '-' if !was_dash => was_dash = true,
            digit if digit.is_ascii_hexdigit() && digits < DIGITS => {
                if DASHES.contains(&digits) {
                    uuid.push('-');
                }
                uuid.push(digit.to_ascii_lowercase());
                digits += 1;
                was_dash = false;
            }
            _ => return None,
        }
    }
    (digits == DIGITS && !was_dash).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::written;

    #[test]
    fn uuids_are_written_in_one_form() {
        let form = Some("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11".to_string());
        for text in [
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            " a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11 ",
        ] {
            assert_eq!(written(text), form, "{text}");
        }
        for text in
            ["", "abc", "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a110", "-"]
        {
            assert_eq!(written(text), None, "{text}");
        }
    }
}
