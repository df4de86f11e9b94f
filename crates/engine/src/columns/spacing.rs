//! The distances of a column's values: where all of them are multiples of one, so many fewer values are possible between the least and the
//! greatest. Times of whole days, decimals of whole units and numbers that are given out in tens are such.

use kelpie_compile::types::{Range, Spacing, inverse};

/// Tells multiples of a number by two multiplications less than a division: of an odd number those are multiples whose product with its
/// inverse modulo 2^64 is small (Granlund and Montgomery 1994, section 9).
struct Divisor {
    /// Bits that are 0 in a multiple.
    zeros: u64,
    shift: u32,
    inverse: u64,
    /// The greatest quotient.
    limit: u64,
}

impl Divisor {
    /// Of 0 only 0 is a multiple.
    fn of(number: u64) -> Divisor {
        if number == 0 {
            return Divisor { zeros: u64::MAX, shift: 0, inverse: 0, limit: 0 };
        }
        let shift = number.trailing_zeros();
        let odd = number >> shift;
        let inverse = inverse(odd);
        Divisor { zeros: (1 << shift) - 1, shift, inverse, limit: u64::MAX / odd }
    }

    fn divides(&self, number: u64) -> bool {
        number & self.zeros == 0 && (number >> self.shift).wrapping_mul(self.inverse) <= self.limit
    }
}

fn greatest_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The distance that values within a range have multiples of from its least one, 0 where there are no others; 1 where the range has more than
/// 64 bits. Of most columns the first few values show that it is 1.
pub(super) fn step<T: Copy>(values: &[T], low: impl Fn(T) -> i64, range: Range) -> u64 {
    if range.max.checked_sub(range.min).is_none_or(|width| width > u64::MAX.into()) {
        return 1;
    }
    let least = range.min as i64;
    let (mut step, mut divisor) = (0, Divisor::of(0));
    for value in values {
        // The difference fits 64 bits, so it is that of the lower bits.
        let distance = low(*value).wrapping_sub(least) as u64;
        if !divisor.divides(distance) {
            step = greatest_divisor(step.into(), distance.into()) as u64;
            if step == 1 {
                break;
            }
            divisor = Divisor::of(step);
        }
    }
    step
}

/// The distances of a column's values, by the least value and the step of each of its chunks.
pub(super) fn of_chunks(mut chunks: impl Iterator<Item = (i128, u64)>) -> Option<Spacing> {
    let (first, step) = chunks.next()?;
    let mut all = u128::from(step);
    for (least, step) in chunks {
        all = greatest_divisor(greatest_divisor(all, step.into()), first.abs_diff(least));
        if all == 1 {
            return None;
        }
    }
    Spacing::new(first, i128::try_from(all).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step_of(values: &[i64]) -> u64 {
        let range = Range::new(*values.iter().min().unwrap(), *values.iter().max().unwrap());
        step(values, |value| value, range)
    }

    #[test]
    fn the_step_is_the_greatest_divisor_of_all_distances() {
        assert_eq!(step_of(&[7]), 0);
        assert_eq!(step_of(&[7, 7, 7]), 0);
        assert_eq!(step_of(&[100, 300, 500, 1000]), 100);
        assert_eq!(step_of(&[101, 301, -99]), 200);
        assert_eq!(step_of(&[0, 6, 10]), 2);
        assert_eq!(step_of(&[0, 6, 10, 15]), 1);
        assert_eq!(step_of(&[0, 86_400_000_000_000, -86_400_000_000_000 * 3]), 86_400_000_000_000);
        assert_eq!(step_of(&[i64::MIN, i64::MAX]), u64::MAX);
        assert_eq!(step_of(&[i64::MIN, 0]), 1 << 63);
        assert_eq!(step_of(&[i64::MIN, 0, i64::MAX]), 1);
        let wide = Range { min: 0, max: 1 << 64 };
        assert_eq!(step(&[0_i128, 1 << 64], |value| value as i64, wide), 1);
    }

    #[test]
    fn multiples_are_told_from_others() {
        for number in [1_u64, 2, 3, 5, 6, 7, 12, 100, 1 << 63, u64::MAX, 86_400_000_000_000] {
            let divisor = Divisor::of(number);
            for factor in [0, 1, 2, 3, 1000, u64::MAX / number] {
                let Some(multiple) = number.checked_mul(factor) else { continue };
                assert!(divisor.divides(multiple), "{number} {multiple}");
                for other in [multiple.wrapping_add(1), multiple.wrapping_sub(1)] {
                    assert_eq!(divisor.divides(other), other.is_multiple_of(number), "{number} {other}");
                }
            }
        }
        assert!(Divisor::of(0).divides(0) && !Divisor::of(0).divides(1));
    }

    #[test]
    fn chunks_are_apart_by_a_multiple_of_the_column_s_step() {
        let spacing = |first, step| Some(Spacing { first, step });
        assert_eq!(of_chunks([].into_iter()), None);
        assert_eq!(of_chunks([(5, 0)].into_iter()), None);
        assert_eq!(of_chunks([(5, 0), (35, 0)].into_iter()), spacing(5, 30));
        assert_eq!(of_chunks([(5, 20), (35, 40)].into_iter()), spacing(5, 10));
        assert_eq!(of_chunks([(5, 20), (36, 40)].into_iter()), None);
        assert_eq!(of_chunks([(i128::MIN, 0), (i128::MAX, 0)].into_iter()), None);
        assert_eq!(of_chunks([(-40, 8), (0, 0)].into_iter()), spacing(-40, 8));
    }
}
