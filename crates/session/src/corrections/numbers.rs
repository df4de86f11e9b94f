//! Numbers as they are written: DataFusion takes those with a point, and those of more than 64 bits, for floats, which have 15 digits.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, Expr, UnaryOperator, Value};

use crate::syntax::{Flow, Walk, cast, literal, visit};

/// Digits that a decimal of 128 bits has.
const MOST_DIGITS: usize = 38;

/// Makes numbers that floats do not hold decimals, and those that are cast to decimals texts, which are read digit by digit.
pub(super) fn keep_digits(statement: &mut Statement) {
    let _ = visit(statement, &mut Numbers);
}

struct Numbers;

impl Walk for Numbers {
    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Expr::Cast { expr: number, data_type, .. } = expr else { return ControlFlow::Continue(()) };
        if is_decimal(data_type)
            && let Some(text) = written(number)
            // Others are decimals by their shortest digits, and keep their names.
            && text.contains('.')
            && !is_held(text.trim_start_matches('-'))
        {
            **number = literal(text);
        }
        ControlFlow::Continue(())
    }

    // What is made here is not looked at again.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        if let Expr::Value(value) = expr
            && let Value::Number(number, false) = &value.value
            && let Some((precision, scale)) = digits(number)
            && !is_held(number)
        {
            let data_type = DataType::Decimal(ExactNumberInfo::PrecisionAndScale(precision, scale));
            *expr = cast(literal(number.clone()), data_type);
        }
        ControlFlow::Continue(())
    }
}

/// Whether a type is a decimal that texts can be cast to.
fn is_decimal(data_type: &DataType) -> bool {
    let (DataType::Decimal(info) | DataType::Numeric(info) | DataType::Dec(info)) = data_type else {
        return false;
    };
    !matches!(info, ExactNumberInfo::PrecisionAndScale(_, scale) if *scale < 0)
}

/// A number without exponent, with its sign.
fn written(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(number, false) if !number.contains(['e', 'E']) => Some(number.clone()),
            _ => None,
        },
        Expr::Nested(inner) => written(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            let number = written(expr)?;
            (!number.starts_with('-')).then(|| format!("-{number}"))
        }
        _ => None,
    }
}

/// Precision and scale of a number; nothing where it has an exponent or more digits than a decimal.
fn digits(number: &str) -> Option<(u64, i64)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let all = (whole.len() + fraction.len()).max(1);
    let are_digits = whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    (are_digits && all <= MOST_DIGITS).then_some((all as u64, fraction.len() as i64))
}

/// Whether DataFusion's literal is the number: an integer of 64 bits, or a float that is shown by the same digits.
fn is_held(number: &str) -> bool {
    if !number.contains('.') {
        return number.parse::<u64>().is_ok();
    }
    let Ok(float) = number.parse::<f64>() else { return true };
    let same = |text: &str| {
        let text = text.trim_start_matches('0');
        let text = if text.contains('.') { text.trim_end_matches('0') } else { text };
        text.trim_end_matches('.').to_string()
    };
    same(&float.to_string()) == same(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_hold_what_they_show() {
        for held in
            ["0.1", "1.50", "18446744073709551615", ".5", "1.", "0.30000000000000004", "123456789.125"]
        {
            assert!(is_held(held), "{held}");
        }
        for lost in ["18446744073709551616", "0.12345678901234567890", "1234567890123456789.5"] {
            assert!(!is_held(lost), "{lost}");
        }
        assert_eq!(digits("00.10"), Some((2, 2)));
        assert_eq!(digits("1e5"), None);
        assert_eq!(digits(&"9".repeat(39)), None);
    }
}
