//! Literals. Each has exactly the C++ type of its scalar, but for 8 and 16 bits, which are `int`s of the same value.

use kelpie_kir::{Literal, Scalar};

use super::expr::Text;

/// A literal as an operand.
pub fn literal(literal: Literal) -> Text {
    match literal {
        Literal::Bool(value) => Text::atom(value.to_string()),
        Literal::Int(scalar, value) => integer(scalar, value),
        Literal::F32(bits) => float32(bits),
        Literal::F64(bits) => float64(bits),
    }
}

fn integer(scalar: Scalar, value: i128) -> Text {
    let suffix = match scalar {
        Scalar::U32 => "u",
        Scalar::I64 => "ll",
        Scalar::U64 => "ull",
        Scalar::I128 => return wide(value),
        _ => "",
    };
    // C++ has no negative literals, so the smallest number is an expression.
    let smallest = match scalar {
        Scalar::I32 => i128::from(i32::MIN),
        Scalar::I64 => i128::from(i64::MIN),
        _ => i128::MIN,
    };
    if value == smallest {
        Text::compound(format!("{}{suffix} - 1", value + 1))
    } else if value < 0 {
        Text::compound(format!("{value}{suffix}"))
    } else {
        Text::atom(format!("{value}{suffix}"))
    }
}

fn wide(value: i128) -> Text {
    match i64::try_from(value) {
        Ok(small) => Text::atom(format!("i128({})", integer(Scalar::I64, i128::from(small)).code)),
        Err(_) => {
            let (high, low) = ((value as u128 >> 64) as u64, value as u64);
            Text::atom(format!("i128((u128({high:#x}ull) << 64) | {low:#x}ull)"))
        }
    }
}

fn float32(bits: u32) -> Text {
    let value = f32::from_bits(bits);
    if !value.is_finite() {
        return Text::atom(format!("::__uint_as_float({bits:#x}u)"));
    }
    // A compiler may read the digits as a double first; they must then round to the same number.
    let short = format!("{value:?}");
    let twice_rounded = short.parse::<f64>().map(|double| (double as f32).to_bits());
    let digits = if twice_rounded == Ok(bits) { short } else { format!("{:?}", f64::from(value)) };
    signed(bits >> 31 == 1, format!("{digits}f"))
}

fn float64(bits: u64) -> Text {
    let value = f64::from_bits(bits);
    if !value.is_finite() {
        return Text::atom(format!("::__longlong_as_double(i64({bits:#x}ull))"));
    }
    signed(bits >> 63 == 1, format!("{value:?}"))
}

fn signed(negative: bool, code: String) -> Text {
    if negative { Text::compound(code) } else { Text::atom(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_keep_value_and_type() {
        use Literal::{Bool, F32, F64, Int};
        for (value, expected) in [
            (Bool(true), "true"),
            (Int(Scalar::I8, -128), "(-128)"),
            (Int(Scalar::U16, 65535), "65535"),
            (Int(Scalar::I32, i128::from(i32::MIN)), "(-2147483647 - 1)"),
            (Int(Scalar::U32, 7), "7u"),
            (Int(Scalar::I64, -1), "(-1ll)"),
            (Int(Scalar::I64, i128::from(i64::MIN)), "(-9223372036854775807ll - 1)"),
            (Int(Scalar::U64, i128::from(u64::MAX)), "18446744073709551615ull"),
            (Int(Scalar::I128, -3), "i128(-3ll)"),
            (Int(Scalar::I128, i128::MIN), "i128((u128(0x8000000000000000ull) << 64) | 0x0ull)"),
            (F32(0.1f32.to_bits()), "0.1f"),
            (F32(f32::NAN.to_bits()), "::__uint_as_float(0x7fc00000u)"),
            (F32(f32::MAX.to_bits()), "3.4028235e38f"),
            (F64((-0.0f64).to_bits()), "(-0.0)"),
            (F64(1e300f64.to_bits()), "1e300"),
            (F64(f64::NEG_INFINITY.to_bits()), "::__longlong_as_double(i64(0xfff0000000000000ull))"),
        ] {
            assert_eq!(literal(value).operand(), expected, "{value:?}");
        }
    }
}
