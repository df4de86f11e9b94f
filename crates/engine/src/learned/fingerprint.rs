//! The name of a piece of work: 128 bits of hash of its structure, the same in every process and in every build of the same sources.
//!
//! The hash is SipHash-1-3 with 128 bits and a key of zeros, over a sequence of bytes. These are what `derive(Hash)` hands over, from the
//! first field to the last:
//! - integers, little endian, in as many bytes as their type has; those of the size of a pointer, and so the lengths of lists and the
//!   numbers of an enum's variants, in 8;
//! - texts as UTF-8 and a byte 0xff behind; lists of integers as these, one after the other.
//!
//! So another order of fields or variants makes other fingerprints. Then what was kept under the former ones is not found, or is found
//! for other work, which costs no answer ([`learned`](super)). A test holds the fingerprint of a plan; who changes it gives files another
//! version.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use siphasher::sip128::{Hasher128, SipHasher13};

/// The hash of a structure. Different structures have different ones for all practical purposes (`docs/log/decisions.md`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    /// That of a value: all that its `Hash` looks at.
    pub fn of(value: &impl Hash) -> Fingerprint {
        let mut encoder = Encoder(SipHasher13::new());
        value.hash(&mut encoder);
        Fingerprint(encoder.0.finish128().as_u128())
    }

    /// What random numbers about it begin with.
    pub fn seed(self) -> u64 {
        self.0 as u64
    }
}

/// As files have it: 32 digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = std::num::ParseIntError;

    fn from_str(digits: &str) -> Result<Fingerprint, Self::Err> {
        u128::from_str_radix(digits, 16).map(Fingerprint)
    }
}

/// Makes bytes of values that are the same on every machine.
struct Encoder(SipHasher13);

impl Hasher for Encoder {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn write_u8(&mut self, value: u8) {
        self.0.write_u8(value);
    }

    fn write_u16(&mut self, value: u16) {
        self.0.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.0.write(&value.to_le_bytes());
    }

    fn write_u64(&mut self, value: u64) {
        self.0.write(&value.to_le_bytes());
    }

    fn write_u128(&mut self, value: u128) {
        self.0.write(&value.to_le_bytes());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as i64 as u64);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use kelpie_compile::layout::{ColumnLayout, Storage};
    use kelpie_compile::pipeline::ScanInfo;
    use kelpie_compile::plan::Plan;
    use kelpie_compile::types::Range;
    use kelpie_kir::Scalar;

    use super::*;

    /// A plan with an operator of each kind that is common.
    const PLAN: &str = "\
sort most desc nulls last fetch 3
  aggregate by name; max(v) as most, count(*) as n
    join inner on build.k = probe.k
      filter name <> 'two'
        scan t source 0 (k: Int32, name: Utf8)
      scan u source 1 (k: Int32, v: Int64?)
";

    #[test]
    fn values_are_told_apart() {
        let values = [("a", 1), ("a", 2), ("b", 1), ("", 1), ("a1", 0)];
        for (index, value) in values.iter().enumerate() {
            assert_eq!(Fingerprint::of(value), Fingerprint::of(&value.clone()));
            for other in &values[..index] {
                assert!(Fingerprint::of(value) != Fingerprint::of(other), "{value:?} {other:?}");
            }
        }
    }

    #[test]
    fn digits_are_read_back() {
        for value in 0..100 {
            let fingerprint = Fingerprint::of(&value);
            assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
            assert_eq!(fingerprint.to_string().len(), 32);
        }
        assert!("".parse::<Fingerprint>().is_err() && "g".parse::<Fingerprint>().is_err());
    }

    /// Who changes these numbers changes `disk::VERSION` too.
    #[test]
    fn fingerprints_are_the_same_in_every_build() {
        assert_eq!(Fingerprint::of(&()).to_string(), "b91c5ed031fb33032134935d61d9b40d");
        let integers = (1_u8, 2_u16, 3_u32, 4_u64, (5_u128, 6_usize, -7_isize, -8_i64));
        assert_eq!(Fingerprint::of(&integers).to_string(), "507b95a0b6ae967c3e3c53e0206a99c3");
        assert_eq!(
            Fingerprint::of(&("text", vec![1_u64, 2], Some(true))).to_string(),
            "62cf61b10a853e130351a6bb13062175"
        );
        let plan = kelpie_compile::plan::text::parse(PLAN, &[]).expect("a plan");
        let layout = |has_nulls, range| {
            let storage = Storage::Fixed { scalar: Scalar::I32, has_base: false };
            ColumnLayout { storage, has_nulls, range }
        };
        let infos = [ScanInfo::new(60, vec![layout(false, Some(Range::new(1, 50))), layout(true, None)])];
        let of = |plan: &Plan| Fingerprint::of(&(plan, &infos)).to_string();
        assert_eq!(
            [of(&plan), of(&plan.without_constants())],
            ["15237209f6ba63fcf6c8611a4897bb9f", "9e0f738888d7a27153505f3784265119"]
        );
    }
}
