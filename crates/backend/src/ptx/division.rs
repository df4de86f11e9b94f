//! Division and remainder of at most 64 bits. They are total: a division by zero gives 0, and the least number divided by -1
//! itself. By a constant a product takes the place of the division, which on a GPU takes tens of instructions.
//!
//! Source: H. S. Warren, *Hacker's Delight*, chapter 10 (multipliers of divisions by constants).

use kelpie_kir::{BinaryOp, Expr, Handle, Literal, Scalar, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, arithmetic};
use crate::BackendError;

impl Printer<'_> {
    /// `a / b` or `a % b`.
    pub fn divide(
        &mut self,
        op: BinaryOp,
        a: Handle<Value>,
        b: Handle<Value>,
    ) -> Result<Piece, BackendError> {
        let scalar = self.scalar(a);
        if scalar.is_float() {
            return self.divide_floats(op, a, b);
        }
        let dividend = self.operand_register(a);
        let quotient_and_rest = |printer: &mut Self, quotient: Operand, divisor: Operand| match op {
            BinaryOp::Div => quotient,
            _ => {
                let product = printer.combine(BinaryOp::Mul, scalar, quotient, divisor);
                printer.combine(BinaryOp::Sub, scalar, dividend, product)
            }
        };
        if let Expr::Literal(Literal::Int(_, divisor)) = self.frame.function.values[b].expr
            && divisor != 0
            && divisor != -1
        {
            let quotient = self.divide_by_constant(scalar, dividend, divisor);
            return Ok(Piece::One(quotient_and_rest(self, quotient, Operand::Integer(divisor as i64))));
        }
        let divisor = self.operand_register(b);
        Ok(Piece::One(self.divide_any(op, scalar, dividend, divisor)))
    }

    fn divide_floats(
        &mut self,
        op: BinaryOp,
        a: Handle<Value>,
        b: Handle<Value>,
    ) -> Result<Piece, BackendError> {
        let (scalar, left, right) = (self.scalar(a), self.operand(a), self.operand(b));
        let ty = arithmetic(scalar);
        if op == BinaryOp::Div {
            let result = self.register(Class::of(scalar.into()));
            instruction!(self, "div.rn.{ty} {result}, {left}, {right}");
            return Ok(Piece::One(result));
        }
        if scalar == Scalar::F64 {
            return self.helper("remainder_f64", &[Piece::One(left), Piece::One(right)]);
        }
        // A remainder is exact, so that the one of the same numbers in more bits has no more of them.
        let (left, right) = (self.as_double(left), self.as_double(right));
        let rest = self.helper("remainder_f64", &[Piece::One(left), Piece::One(right)])?;
        let result = self.register(Class::Single);
        instruction!(self, "cvt.rn.f32.f64 {result}, {}", rest.low());
        Ok(Piece::One(result))
    }

    fn as_double(&mut self, single: Operand) -> Operand {
        let (single, double) = (self.in_register(single, Class::Single), self.register(Class::Double));
        instruction!(self, "cvt.f64.f32 {double}, {single}");
        double
    }

    /// Divides by what is not known: by 1 where the divisor is 0 or -1, whose results are chosen afterwards.
    fn divide_any(&mut self, op: BinaryOp, scalar: Scalar, a: Operand, b: Operand) -> Operand {
        let (class, ty) = (Class::of(scalar.into()), arithmetic(scalar));
        let select = super::registers::bits(scalar);
        let (zero, special) = (self.register(Class::Predicate), self.register(Class::Predicate));
        instruction!(self, "setp.eq.{ty} {zero}, {b}, 0");
        let minus = scalar.is_signed().then(|| {
            let minus = self.register(Class::Predicate);
            instruction!(self, "setp.eq.{ty} {minus}, {b}, -1");
            minus
        });
        match minus {
            Some(minus) => instruction!(self, "or.pred {special}, {zero}, {minus}"),
            None => instruction!(self, "mov.pred {special}, {zero}"),
        }
        let (safe, plain) = (self.register(class), self.register(class));
        instruction!(self, "selp.{select} {safe}, 1, {b}, {special}");
        let word = if op == BinaryOp::Div { "div" } else { "rem" };
        instruction!(self, "{word}.{ty} {plain}, {a}, {safe}");
        if op == BinaryOp::Rem {
            // By 1, which has no rest.
            return plain;
        }
        let mut quotient = plain;
        if let Some(minus) = minus {
            let (negated, chosen) = (self.register(class), self.register(class));
            instruction!(self, "neg.{ty} {negated}, {a}");
            let negated = self.narrow(scalar, negated);
            instruction!(self, "selp.{select} {chosen}, {negated}, {quotient}, {minus}");
            quotient = chosen;
        }
        let result = self.register(class);
        instruction!(self, "selp.{select} {result}, 0, {quotient}, {zero}");
        result
    }

    fn divide_by_constant(&mut self, scalar: Scalar, a: Operand, divisor: i128) -> Operand {
        // Narrow integers are computed as words of their sign.
        let word = match (scalar.is_signed(), scalar.bits()) {
            (true, 64) => Scalar::I64,
            (true, _) => Scalar::I32,
            (false, 64) => Scalar::U64,
            (false, _) => Scalar::U32,
        };
        match word.is_signed() {
            true => self.divide_signed(word, a, divisor),
            false => self.divide_unsigned(word, a, divisor as u128),
        }
    }

    fn divide_unsigned(&mut self, scalar: Scalar, a: Operand, divisor: u128) -> Operand {
        let shift_by = |printer: &mut Self, value, count: u32| match count {
            0 => value,
            _ => printer.shift(BinaryOp::Shr, scalar, value, Operand::Integer(i64::from(count))),
        };
        if divisor.is_power_of_two() {
            return shift_by(self, a, divisor.trailing_zeros());
        }
        let multiplier = Multiplier::unsigned(divisor, scalar.bits());
        let high = self.combine(BinaryOp::MulHi, scalar, a, Operand::Integer(multiplier.factor as i64));
        if !multiplier.add {
            return shift_by(self, high, multiplier.shift);
        }
        // The factor has a bit more than the type: its part beyond is added without leaving the range.
        let rest = self.combine(BinaryOp::Sub, scalar, a, high);
        let half = shift_by(self, rest, 1);
        let sum = self.combine(BinaryOp::Add, scalar, half, high);
        shift_by(self, sum, multiplier.shift - 1)
    }

    fn divide_signed(&mut self, scalar: Scalar, a: Operand, divisor: i128) -> Operand {
        if divisor == 1 {
            return a;
        }
        let multiplier = Multiplier::signed(divisor, scalar.bits());
        let factor = multiplier.factor as i128;
        // As a number of the type, a large factor is negative.
        let wrapped = if scalar.bits() == 64 { factor as i64 } else { i64::from(factor as i32) };
        let mut high = self.combine(BinaryOp::MulHi, scalar, a, Operand::Integer(wrapped));
        if divisor > 0 && wrapped < 0 {
            high = self.combine(BinaryOp::Add, scalar, high, a);
        } else if divisor < 0 && wrapped > 0 {
            high = self.combine(BinaryOp::Sub, scalar, high, a);
        }
        if multiplier.shift > 0 {
            high = self.shift(BinaryOp::Shr, scalar, high, Operand::Integer(i64::from(multiplier.shift)));
        }
        // Towards zero: one more where the quotient is negative.
        let sign = self.register(Class::of(scalar.into()));
        let width = scalar.bits();
        instruction!(self, "shr.u{width} {sign}, {high}, {}", width - 1);
        self.combine(BinaryOp::Add, scalar, high, sign)
    }
}

/// What a number is multiplied by to divide it: the upper half of the product, shifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Multiplier {
    /// The lowest bits of the factor, as many as the type has.
    factor: u128,
    /// Whether the factor has one bit more, which is set.
    add: bool,
    /// Bits by which the upper half is shifted.
    shift: u32,
}

impl Multiplier {
    /// For a divisor that is no power of two, of a type with `width` bits: the least power of two above the divisor gives
    /// a factor of at most `width + 1` bits; a smaller one is taken where it is exact enough (Warren, 10-8 to 10-10).
    fn unsigned(divisor: u128, width: u32) -> Multiplier {
        let ceiling = 128 - (divisor - 1).leading_zeros();
        for shift in 0..=ceiling {
            // 2^(width + shift) / divisor, rounded up; its error must not reach 2^shift.
            let (quotient, rest) = divide_power(width + shift, divisor);
            let error = if rest == 0 { 0 } else { divisor - rest };
            let exact = shift == ceiling || error <= 1u128 << shift;
            let factor = quotient + u128::from(rest != 0);
            if exact && (shift == ceiling || factor >> width == 0) {
                let mask = if width == 64 { u128::from(u64::MAX) } else { (1 << width) - 1 };
                return Multiplier { factor: factor & mask, add: factor >> width != 0, shift };
            }
        }
        Multiplier { factor: 0, add: false, shift: 0 }
    }

    /// For a divisor other than 0, 1 and -1 (Warren, 10-3 to 10-5).
    fn signed(divisor: i128, width: u32) -> Multiplier {
        let magnitude = divisor.unsigned_abs();
        let half = 1u128 << (width - 1);
        // The largest number whose rest is `magnitude - 1`.
        let limit = half + u128::from(divisor < 0);
        let largest = limit - 1 - limit % magnitude;
        let mut power = width;
        loop {
            let (quotient, rest) = divide_power(power, magnitude);
            // Exact enough where 2^power exceeds what the error adds up to.
            if wide_product_below(largest, magnitude - rest, power) || power >= 2 * width {
                let factor = quotient + 1;
                let factor = if divisor < 0 { (factor as i128).wrapping_neg() as u128 } else { factor };
                return Multiplier { factor, add: false, shift: power - width };
            }
            power += 1;
        }
    }
}

/// 2^`power` divided by a number: quotient and rest. The quotient has fewer than 128 bits where the power is at most 128.
fn divide_power(power: u32, divisor: u128) -> (u128, u128) {
    match power {
        ..=127 => ((1u128 << power) / divisor, (1u128 << power) % divisor),
        _ => {
            // 2^128 = 2 (2^127): the rest is doubled, and the quotient with it.
            let (quotient, rest) = (u128::MAX / divisor, u128::MAX % divisor + 1);
            if rest == divisor { (quotient.wrapping_add(1), 0) } else { (quotient, rest) }
        }
    }
}

/// Whether `a * b` is below 2^`power`.
fn wide_product_below(a: u128, b: u128, power: u32) -> bool {
    match a.checked_mul(b) {
        Some(product) => power >= 128 || product >> power == 0,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the printed instructions compute.
    fn unsigned(a: u64, divisor: u64, width: u32) -> u64 {
        let multiplier = Multiplier::unsigned(u128::from(divisor), width);
        let high = ((u128::from(a) * multiplier.factor) >> width) as u64;
        if !multiplier.add {
            return high >> multiplier.shift;
        }
        (((a - high) >> 1) + high) >> (multiplier.shift - 1)
    }

    fn signed(a: i64, divisor: i64, width: u32) -> i64 {
        let multiplier = Multiplier::signed(i128::from(divisor), width);
        let wrap = |value: i128| if width == 64 { value as i64 } else { i64::from(value as i32) };
        let factor = wrap(multiplier.factor as i128);
        let mut high = wrap((i128::from(a) * i128::from(factor)) >> width);
        if divisor > 0 && factor < 0 {
            high = wrap(i128::from(high) + i128::from(a));
        } else if divisor < 0 && factor > 0 {
            high = wrap(i128::from(high) - i128::from(a));
        }
        high >>= multiplier.shift;
        high + i64::from(high < 0)
    }

    #[test]
    fn products_divide() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..200_000 {
            let bits = random.u32(1..=64);
            let (a, divisor) = (random.u64(..), random.u64(..) >> (64 - bits));
            let a = if round % 4 == 0 { u64::MAX - random.u64(..3) } else { a >> random.u32(..64) };
            if divisor > 2 && !divisor.is_power_of_two() {
                assert_eq!(unsigned(a, divisor, 64), a / divisor, "{a} / {divisor}");
            }
            let (small, by) = (a as u32, divisor as u32);
            if by > 2 && !by.is_power_of_two() {
                assert_eq!(unsigned(small.into(), by.into(), 32), u64::from(small / by), "{small} / {by}");
            }
            let (a, divisor) = (a as i64, divisor as i64);
            for a in [a, a.wrapping_neg(), i64::MIN] {
                if !matches!(divisor, -1..=1) {
                    assert_eq!(signed(a, divisor, 64), a / divisor, "{a} / {divisor}");
                }
                let (small, by) = (a as i32, divisor as i32);
                if !matches!(by, -1..=1) {
                    assert_eq!(signed(small.into(), by.into(), 32), i64::from(small / by), "{small} / {by}");
                }
            }
        }
    }
}
