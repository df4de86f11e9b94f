//! SQL types, literals and value ranges. Values and semantics are Arrow's and DataFusion's.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Unit of a timestamp or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimeUnit {
    /// Seconds.
    Second,
    /// 1e-3 s.
    Millisecond,
    /// 1e-6 s.
    Microsecond,
    /// 1e-9 s.
    Nanosecond,
}

impl TimeUnit {
    /// Ticks of the unit in a second.
    pub const fn per_second(self) -> i64 {
        match self {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        }
    }
}

/// The SQL types that Kelpie compiles.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DataType {
    /// The type of an untyped NULL.
    Null,
    /// Three-valued logic's.
    Boolean,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// Unsigned, 8 bits.
    UInt8,
    /// Unsigned, 16 bits.
    UInt16,
    /// Unsigned, 32 bits.
    UInt32,
    /// Unsigned, 64 bits.
    UInt64,
    /// IEEE binary32; compared in IEEE total order, as Arrow does.
    Float32,
    /// IEEE binary64; compared in IEEE total order, as Arrow does.
    Float64,
    /// An integer of up to 38 digits times 10^-scale.
    Decimal128 {
        /// Digits.
        precision: u8,
        /// Digits after the point.
        scale: i8,
    },
    /// Days since 1970-01-01.
    Date32,
    /// Ticks since 1970-01-01 00:00 UTC.
    Timestamp {
        /// Length of a tick.
        unit: TimeUnit,
        /// Time zone of display; the value is UTC.
        timezone: Option<Arc<str>>,
    },
    /// Ticks between two points in time.
    Duration {
        /// Length of a tick.
        unit: TimeUnit,
    },
    /// UTF-8 text: whichever Arrow string type the plan has; results are cast to the plan's.
    Utf8,
    /// A calendar interval; only literals have it.
    Interval,
}

impl DataType {
    /// An integer type.
    pub const fn is_integer(&self) -> bool {
        use DataType::*;
        matches!(self, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64)
    }

    /// A floating-point type.
    pub const fn is_float(&self) -> bool {
        matches!(self, DataType::Float32 | DataType::Float64)
    }

    /// The values that the type itself allows, for types that are integers inside.
    pub fn full_range(&self) -> Option<Range> {
        Some(match self {
            DataType::Boolean => Range::new(0, 1),
            DataType::Int8 => Range::new(i8::MIN, i8::MAX),
            DataType::Int16 => Range::new(i16::MIN, i16::MAX),
            DataType::Int32 | DataType::Date32 => Range::new(i32::MIN, i32::MAX),
            DataType::Int64 | DataType::Timestamp { .. } | DataType::Duration { .. } => {
                Range::new(i64::MIN, i64::MAX)
            }
            DataType::UInt8 => Range::new(u8::MIN, u8::MAX),
            DataType::UInt16 => Range::new(u16::MIN, u16::MAX),
            DataType::UInt32 => Range::new(u32::MIN, u32::MAX),
            DataType::UInt64 => Range::new(u64::MIN, u64::MAX),
            DataType::Decimal128 { precision, .. } => {
                let limit = 10i128.pow(u32::from((*precision).min(38))) - 1;
                Range { min: -limit, max: limit }
            }
            _ => return None,
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Decimal128 { precision, scale } => write!(f, "Decimal128({precision}, {scale})"),
            DataType::Timestamp { unit, timezone: None } => write!(f, "Timestamp({unit:?})"),
            DataType::Timestamp { unit, timezone: Some(zone) } => write!(f, "Timestamp({unit:?}, {zone})"),
            DataType::Duration { unit } => write!(f, "Duration({unit:?})"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Inclusive bounds of a value that is an integer inside (dates: days; decimals: the unscaled integer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Range {
    /// Smallest possible value.
    pub min: i128,
    /// Largest possible value.
    pub max: i128,
}

impl Range {
    /// Bounds of any integer type.
    pub fn new(min: impl Into<i128>, max: impl Into<i128>) -> Range {
        Range { min: min.into(), max: max.into() }
    }

    /// Whether every value of `self` is in `other`.
    pub fn within(self, other: Range) -> bool {
        other.min <= self.min && self.max <= other.max
    }

    /// The smallest range that holds both.
    pub fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Values at equal distances: each is `first`, or further from it by a multiple of `step`. Times of whole days are such, and decimals of
/// whole units. `first` need be none of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Spacing {
    /// Where the values are counted from.
    pub first: i128,
    /// The distance: 2 or more.
    pub step: i128,
}

impl Spacing {
    /// `None` for a distance that says nothing.
    pub fn new(first: i128, step: i128) -> Option<Spacing> {
        (step > 1).then_some(Spacing { first, step })
    }

    /// The range of those of the values that are in a range; empty ranges and others whose bounds are beyond 128 bits are `None`.
    pub fn within(self, range: Range) -> Option<Range> {
        let above = self.first.checked_sub(range.min)?.rem_euclid(self.step);
        let below = range.max.checked_sub(self.first)?.rem_euclid(self.step);
        let (min, max) = (range.min.checked_add(above)?, range.max.checked_sub(below)?);
        (min <= max).then_some(Range { min, max })
    }

    /// Of the values times a factor above 0.
    pub fn times(self, factor: i128) -> Option<Spacing> {
        Spacing::new(self.first.checked_mul(factor)?, self.step.checked_mul(factor)?)
    }
}

/// The inverse of an odd number modulo 2^64, by which multiples of it are divided without a division (Granlund and Montgomery 1994, section 9).
pub fn inverse(odd: u64) -> u64 {
    // Each step of Newton's method doubles the bits that are right, of which there are three at first.
    (0..5).fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

/// A calendar interval, as Arrow's `IntervalMonthDayNano`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Months, clamped to the month's last day where the day does not exist.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// A constant of a query. Floats are equal, and print alike, where their bits are: caches are keyed by what plans print,
/// and to IN the sign and the payload of a NaN matter.
#[derive(Clone)]
pub enum Literal {
    /// NULL of the expression's type.
    Null,
    /// A boolean.
    Boolean(bool),
    /// Integers; days of a date; ticks of a timestamp or a duration; the unscaled integer of a decimal.
    Int(i128),
    /// `Float32` (exactly representable there) and `Float64`.
    Float(f64),
    /// Text.
    Utf8(Arc<str>),
    /// A calendar interval.
    Interval(Interval),
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        use Literal::*;
        match (self, other) {
            (Null, Null) => true,
            (Boolean(a), Boolean(b)) => a == b,
            (Int(a), Int(b)) => a == b,
            (Float(a), Float(b)) => a.to_bits() == b.to_bits(),
            (Utf8(a), Utf8(b)) => a == b,
            (Interval(a), Interval(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            Literal::Null => {}
            Literal::Boolean(value) => value.hash(state),
            Literal::Int(value) => value.hash(state),
            Literal::Float(value) => value.to_bits().hash(state),
            Literal::Utf8(value) => value.hash(state),
            Literal::Interval(value) => value.hash(state),
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Null => f.write_str("Null"),
            Literal::Boolean(value) => f.debug_tuple("Boolean").field(value).finish(),
            Literal::Int(value) => f.debug_tuple("Int").field(value).finish(),
            Literal::Float(value) if value.is_nan() => write!(f, "Float(NaN {:#x})", value.to_bits()),
            Literal::Float(value) => f.debug_tuple("Float").field(value).finish(),
            Literal::Utf8(value) => f.debug_tuple("Utf8").field(value).finish(),
            Literal::Interval(value) => f.debug_tuple("Interval").field(value).finish(),
        }
    }
}

/// A column of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Name, for people: columns are addressed by position.
    pub name: String,
    /// Type.
    pub data_type: DataType,
    /// Whether NULL is possible.
    pub nullable: bool,
}
