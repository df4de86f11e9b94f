//! Types of the values of CSV: those that read every value back as it is written.

use datafusion::arrow::compute::kernels::cast_utils::Parser;
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date32Type, TimeUnit, TimestampNanosecondType,
};

use super::iso_times::IsoTime;

/// The kinds of values that were seen in a column.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Kinds(u16);

const BOOL: u16 = 1;
const WHOLE: u16 = 1 << 1;
/// Whole numbers beyond 64 bits.
const LARGE: u16 = 1 << 2;
const FLOAT: u16 = 1 << 3;
const DATE: u16 = 1 << 4;
const SECOND: u16 = 1 << 5;
const MILLI: u16 = 1 << 6;
const MICRO: u16 = 1 << 7;
const NANO: u16 = 1 << 8;
const TEXT: u16 = 1 << 9;
const TIMES: u16 = DATE | SECOND | MILLI | MICRO | NANO;

impl Kinds {
    /// Adds a value that is not NULL.
    pub fn add(&mut self, value: &str) {
        // A text more changes nothing.
        if self.0 & TEXT == 0 {
            self.0 |= kind_of(value);
        }
    }

    /// Whether no value more changes its type.
    pub fn are_texts(self) -> bool {
        self.0 & TEXT != 0
    }

    /// Adds a value that only text holds.
    pub fn add_text(&mut self) {
        self.0 |= TEXT;
    }

    /// Whether a value might be one of these, which are numbers, times or truths: a value of another kind stands in a header.
    pub fn is_alike(self, value: &str) -> bool {
        const NUMBERS: u16 = WHOLE | LARGE | FLOAT;
        let kind = kind_of(value);
        [BOOL, NUMBERS, TIMES].iter().any(|family| self.0 & family == self.0 && kind & family == kind)
    }

    /// Whether all values are of a kind of their own: numbers, times or truths.
    pub fn are_typed(self) -> bool {
        !matches!(self.data_type(), DataType::Null | DataType::Utf8)
    }

    /// The type that holds them all.
    pub fn data_type(self) -> DataType {
        match self.0 {
            0 => DataType::Null,
            BOOL => DataType::Boolean,
            WHOLE => DataType::Int64,
            kinds if kinds & !(WHOLE | LARGE) == 0 => DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0),
            kinds if kinds & !(WHOLE | LARGE | FLOAT) == 0 => DataType::Float64,
            DATE => DataType::Date32,
            kinds if kinds & !TIMES == 0 => DataType::Timestamp(unit(kinds), None),
            _ => DataType::Utf8,
        }
    }
}

/// The unit that no time of these kinds is cut off by.
fn unit(kinds: u16) -> TimeUnit {
    match () {
        () if kinds & NANO != 0 => TimeUnit::Nanosecond,
        () if kinds & MICRO != 0 => TimeUnit::Microsecond,
        () if kinds & MILLI != 0 => TimeUnit::Millisecond,
        () => TimeUnit::Second,
    }
}

/// Whether a type reads a value as less than what is written: a date with a time as the date, a fraction of a second as none. Readers of
/// CSV do.
pub(in crate::files) fn is_cut_off(value: &str, data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32 => kind_of(value) & (TIMES | WHOLE | LARGE) & !DATE != 0,
        DataType::Timestamp(of_column, _) => {
            let kind = kind_of(value) & TIMES;
            kind != 0 && unit(kind) > *of_column
        }
        DataType::Decimal128(_, scale) => {
            let part = value.split_once('.').map_or("", |(_, part)| part);
            part.trim_end_matches('0').len() > usize::try_from(*scale).unwrap_or(0)
        }
        _ => false,
    }
}

/// The type, as SQL has it, of a column of some type that has such a value too.
pub(in crate::files) fn wider_type(value: &str, data_type: &DataType) -> &'static str {
    match kind_of(value) {
        LARGE if data_type.is_integer() => "HUGEINT",
        WHOLE | LARGE | FLOAT if data_type.is_numeric() => "DOUBLE",
        kind if kind & !TIMES == 0 && data_type.is_temporal() => "TIMESTAMP",
        _ => "VARCHAR",
    }
}

fn kind_of(value: &str) -> u16 {
    let Some(first) = value.bytes().next() else { return TEXT };
    match first {
        b'0'..=b'9' | b'-' | b'.' => number_or_time(value),
        b't' | b'T' | b'f' | b'F'
            if ["true", "false"].iter().any(|word| value.eq_ignore_ascii_case(word)) =>
        {
            BOOL
        }
        b'n' | b'N' | b'i' if ["NaN", "nan", "inf"].contains(&value) => FLOAT,
        _ => TEXT,
    }
}

fn number_or_time(value: &str) -> u16 {
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    let digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    if digits == unsigned.len() && digits > 0 {
        return match unsigned.as_bytes() {
            // What begins with zeros is a code or a postal address, not a number.
            [b'0', _, ..] => TEXT,
            _ if value.parse::<i64>().is_ok() => WHOLE,
            _ if digits <= usize::from(DECIMAL128_MAX_PRECISION) => LARGE,
            _ => TEXT,
        };
    }
    match unsigned.as_bytes().get(digits) {
        Some(b'-') if digits == 4 && unsigned.len() == value.len() => time(value),
        Some(b'.' | b'e' | b'E') if is_float(unsigned) => FLOAT,
        _ if unsigned == "inf" => FLOAT,
        _ => TEXT,
    }
}

/// Digits with a point among them, an exponent behind them, or both.
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && is_digits(digits)
    });
    exponent && is_digits(whole) && is_digits(part) && !(whole.is_empty() && part.is_empty())
}

/// A date, a date with a time, or text that only begins so.
fn time(value: &str) -> u16 {
    if let Some(time) = IsoTime::parse(value.as_bytes()) {
        return match time.unit() {
            None => DATE,
            Some(TimeUnit::Second) => SECOND,
            Some(TimeUnit::Millisecond) => MILLI,
            Some(TimeUnit::Microsecond) => MICRO,
            Some(TimeUnit::Nanosecond) if time.in_units(TimeUnit::Nanosecond).is_some() => NANO,
            Some(TimeUnit::Nanosecond) => TEXT,
        };
    }
    let Some(date) = value.get(..DATE_CHARS) else { return TEXT };
    if date.as_bytes()[7] != b'-' || Date32Type::parse(date).is_none() {
        return TEXT;
    }
    if value.len() == DATE_CHARS {
        return DATE;
    }
    let (Some(clock), Some(rest)) = (value.get(DATE_CHARS..SECOND_CHARS), value.get(SECOND_CHARS..)) else {
        return TEXT;
    };
    let has_form = clock.bytes().zip(*b"T00:00:00").all(|(byte, form)| match form {
        b'T' => byte == b'T' || byte == b' ',
        b'0' => byte.is_ascii_digit(),
        _ => byte == form,
    });
    // The year says nothing of the rest, and some are beyond what nanoseconds count.
    let Some(in_range) = value.get(4..).map(|rest| format!("2000{rest}")) else { return TEXT };
    if !has_form || TimestampNanosecondType::parse(&in_range).is_none() {
        return TEXT;
    }
    let digits = match rest.strip_prefix('.') {
        Some(part) => part.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    match digits {
        0 => SECOND,
        1..=3 => MILLI,
        4..=6 => MICRO,
        7..=9 if TimestampNanosecondType::parse(value).is_some() => NANO,
        _ => TEXT,
    }
}

/// `2020-02-29`.
const DATE_CHARS: usize = 10;
/// `2020-02-29T12:00:00`.
const SECOND_CHARS: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_values_back_as_they_are_written() {
        let time = |unit| DataType::Timestamp(unit, None);
        for (values, expected) in [
            (&["", ""][..], DataType::Null),
            (&["true", "", "FALSE"], DataType::Boolean),
            (&["1", "-2", "0"], DataType::Int64),
            (&["9223372036854775807", "-9223372036854775808"], DataType::Int64),
            (&["1", "9223372036854775808"], DataType::Decimal128(38, 0)),
            (&["1", "100000000000000000000000000000000000000"], DataType::Utf8),
            (&["007", "8"], DataType::Utf8),
            (&["-012"], DataType::Utf8),
            (&["+1"], DataType::Utf8),
            (&["1", "2.5", ".5", "3.", "-1e10", "1E-3", "0.5"], DataType::Float64),
            (&["NaN", "inf", "-inf", "1"], DataType::Float64),
            (&["."], DataType::Utf8),
            (&["-"], DataType::Utf8),
            (&["1e"], DataType::Utf8),
            (&["1.2.3"], DataType::Utf8),
            (&["1,5"], DataType::Utf8),
            (&["1", "true"], DataType::Utf8),
            (&["2020-02-29"], DataType::Date32),
            (&["2021-02-29"], DataType::Utf8),
            (&["2020-13-01"], DataType::Utf8),
            (&["2020-1-1"], DataType::Utf8),
            (&["2020-02-29 12:00:00", "2020-01-01"], time(TimeUnit::Second)),
            (&["2020-02-29T12:00:00.5", "2020-02-29T12:00:00Z"], time(TimeUnit::Millisecond)),
            (&["9999-12-31 23:59:59.123456"], time(TimeUnit::Microsecond)),
            (&["2020-01-01 00:00:00.123456789"], time(TimeUnit::Nanosecond)),
            (&["9999-12-31 23:59:59.123456789"], DataType::Utf8),
            (&["2020-01-01 00:00:00 started"], DataType::Utf8),
            (&["2020-01-01 25:00:00"], DataType::Utf8),
            (&["2020-01-01 10:00"], DataType::Utf8),
            (&["2020-01-01", "5"], DataType::Utf8),
            (&["1234-5678"], DataType::Utf8),
            (&["ä020-01-01"], DataType::Utf8),
        ] {
            let mut kinds = Kinds::default();
            values.iter().filter(|value| !value.is_empty()).for_each(|value| kinds.add(value));
            assert_eq!(kinds.data_type(), expected, "{values:?}");
        }
    }
}
