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

/// The range of the literals that a positive one is not told apart from where it divides: four in a doubling, which end at the
/// powers of two and at quarters of the way between them. Finer than its class, as what divides by it, or what remains, may say how
/// many groups there are.
pub fn divisor_class(value: i128) -> Range {
    // The remainders of a power of two have one bit less than it, so what is one less is looked at.
    let most = value.max(1) - 1;
    let width = 1i128 << most.checked_ilog2().unwrap_or(0).saturating_sub(2);
    let least = most / width * width;
    Range { min: least + 1, max: least.saturating_add(width) }
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
    fn what_a_literal_divides_has_bounds_of_its_class() {
        let column = Range { min: 0, max: 999_999 };
        let highest = (0b111 << 124) + 1;
        for (literal, class, remainder, quotient) in [
            (1, (1, 1), 0, 999_999),
            (2, (2, 2), 1, 499_999),
            (7, (7, 7), 6, 142_857),
            (1000, (897, 1024), 1023, 1114),
            (1025, (1025, 1280), 1279, 975),
            (2048, (1793, 2048), 2047, 557),
            (i128::MAX, (highest, i128::MAX), 999_999, 0),
        ] {
            let range = divisor_class(literal);
            assert_eq!((range.min, range.max), class, "{literal}");
            assert!(contains(range, literal), "{literal}");
            assert_eq!(super::remainder(column, range), Some(Range { min: 0, max: remainder }), "{literal}");
            assert_eq!(divide(column, range), Some(Range { min: 0, max: quotient }), "{literal}");
        }
        assert_eq!(
            super::remainder(Range { min: -9, max: 9 }, divisor_class(4)),
            Some(Range { min: -3, max: 3 })
        );
    }
}
