//! Interval arithmetic on value ranges. `None`: the value may be beyond `i128`.

use crate::types::Range;

/// Every `i128`.
pub const UNBOUNDED: Range = Range { min: i128::MIN, max: i128::MAX };

/// The range that stands for a literal: the class of its sign and magnitude (bits rounded up to 8k - 1), so that the
/// same query with a similar constant compiles to the same module.
pub fn literal_class(value: i128) -> Range {
    let bits = 128 - if value < 0 { !value } else { value }.leading_zeros();
    let class = (bits + 1).next_multiple_of(8) - 1;
    let limit = if class >= 127 { i128::MAX } else { (1i128 << class) - 1 };
    match value.signum() {
        0 => Range { min: 0, max: 0 },
        1 => Range { min: 1, max: limit },
        _ => Range { min: -limit - 1, max: -1 },
    }
}

/// The range of the literals with as many bits as a positive one: finer than its class. What divides by it, or what remains, may say
/// how many groups there are.
pub fn literal_bits(value: i128) -> Range {
    let least = 1i128 << value.max(1).ilog2();
    Range { min: least, max: least + (least - 1) }
}

/// The hull of `operation` on the corners of two ranges.
fn corners(a: Range, b: Range, operation: fn(i128, i128) -> Option<i128>) -> Option<Range> {
    let mut hull: Option<Range> = None;
    for left in [a.min, a.max] {
        for right in [b.min, b.max] {
            let value = operation(left, right)?;
            let point = Range { min: value, max: value };
            hull = Some(hull.map_or(point, |range| range.union(point)));
        }
    }
    hull
}

/// a + b
pub fn add(a: Range, b: Range) -> Option<Range> {
    corners(a, b, i128::checked_add)
}

/// a - b
pub fn subtract(a: Range, b: Range) -> Option<Range> {
    corners(a, b, i128::checked_sub)
}

/// a × b
pub fn multiply(a: Range, b: Range) -> Option<Range> {
    corners(a, b, i128::checked_mul)
}

/// |a|
pub fn absolute(a: Range) -> Option<Range> {
    let (low, high) = (a.min.checked_abs()?, a.max.checked_abs()?);
    let min = if contains(a, 0) { 0 } else { low.min(high) };
    Some(Range { min, max: low.max(high) })
}

/// Whether a value is in a range.
pub fn contains(a: Range, value: i128) -> bool {
    a.min <= value && value <= a.max
}

/// a / b, truncated, for divisors other than 0; the quotient of 0 counts, as the kernel gives it for x / 0.
pub fn divide(a: Range, b: Range) -> Option<Range> {
    let mut hull = Range { min: 0, max: 0 };
    for divisor in [b.min, b.max, -1, 1] {
        if divisor == 0 || !contains(b, divisor) {
            continue;
        }
        for dividend in [a.min, a.max] {
            let value = dividend.checked_div(divisor)?;
            hull = hull.union(Range { min: value, max: value });
        }
    }
    Some(hull)
}

/// a % b: sign of a, and no larger than a or b - 1.
pub fn remainder(a: Range, b: Range) -> Option<Range> {
    let divisor = b.min.checked_abs()?.max(b.max.checked_abs()?);
    let limit = (divisor - 1).max(0);
    Some(Range { min: a.min.max(-limit).min(0), max: a.max.min(limit).max(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_literal_divides_has_bounds_of_its_bits() {
        let column = Range { min: 0, max: 999_999 };
        for (literal, bits, remainder, quotient) in [
            (1, (1, 1), 0, 999_999),
            (2, (2, 3), 2, 499_999),
            (1000, (512, 1023), 1022, 1953),
            (2048, (2048, 4095), 4094, 488),
            (i128::MAX, (1 << 126, i128::MAX), 999_999, 0),
        ] {
            let range = literal_bits(literal);
            assert_eq!((range.min, range.max), bits, "{literal}");
            assert!(contains(range, literal), "{literal}");
            assert_eq!(super::remainder(column, range), Some(Range { min: 0, max: remainder }), "{literal}");
            assert_eq!(divide(column, range), Some(Range { min: 0, max: quotient }), "{literal}");
        }
        assert_eq!(
            super::remainder(Range { min: -9, max: 9 }, literal_bits(4)),
            Some(Range { min: -6, max: 6 })
        );
    }
}
