//! Values of CSV that are written in another way than Arrow reads them: dates of a format, numbers with a decimal comma or with signs
//! between their thousands.

use std::borrow::Cow;

use chrono::{NaiveDate, NaiveDateTime};
use datafusion::arrow::datatypes::DataType;

/// How values are written, where somebody has said so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Forms {
    /// The formats of dates and of times, as `strptime` takes them.
    pub date: Option<String>,
    pub timestamp: Option<String>,
    /// What stands before the fraction of a number; a point where nothing is said.
    pub decimal_separator: Option<u8>,
    /// What stands between the thousands of a number.
    pub thousands: Option<u8>,
    /// Whether types are given that values may be written otherwise for than those of columns whose types are found out: truths as `yes`,
    /// `t` and `1`, and times without seconds.
    pub wide: bool,
}

impl Forms {
    /// Whether all values are written as Arrow reads them.
    pub fn are_plain(&self) -> bool {
        *self == Forms::default()
    }

    /// Whether values of a type may be written otherwise.
    pub fn concern(&self, data_type: &DataType) -> bool {
        match data_type {
            DataType::Boolean => self.wide,
            DataType::Timestamp(..) if self.wide => true,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
                self.date.is_some() || self.timestamp.is_some()
            }
            other => other.is_numeric() && (self.decimal_separator.is_some() || self.thousands.is_some()),
        }
    }

    /// A value as Arrow reads it in a type; nothing where it would be read as another one than is meant.
    pub fn plain_as<'a>(&self, value: &'a str, data_type: &DataType) -> Option<Cow<'a, str>> {
        let wide = match data_type {
            DataType::Boolean if self.wide => truth(value).map(Cow::Borrowed),
            DataType::Timestamp(..) if self.wide => with_seconds(value).map(Cow::Owned),
            _ => None,
        };
        wide.or_else(|| self.plain(value))
    }

    /// The same of a value whose type is not known yet.
    pub fn plain<'a>(&self, value: &'a str) -> Option<Cow<'a, str>> {
        if self.are_plain() {
            return Some(Cow::Borrowed(value));
        }
        if let Some(format) = &self.timestamp
            && let Ok(time) = NaiveDateTime::parse_from_str(value, format)
        {
            return Some(Cow::Owned(time.format("%Y-%m-%d %H:%M:%S%.f").to_string()));
        }
        if let Some(format) = &self.date
            && let Ok(date) = NaiveDate::parse_from_str(value, format)
        {
            return Some(Cow::Owned(date.format("%Y-%m-%d").to_string()));
        }
        if self.decimal_separator.is_some() || self.thousands.is_some() {
            return self.number(value);
        }
        Some(Cow::Borrowed(value))
    }

    /// A number with a point and without signs between thousands; what is no number stays.
    fn number<'a>(&self, value: &'a str) -> Option<Cow<'a, str>> {
        let unsigned = value.strip_prefix('-').unwrap_or(value);
        let point = self.decimal_separator.unwrap_or(b'.');
        let is_of_number = |byte: u8| {
            byte.is_ascii_digit()
                || byte == point
                || Some(byte) == self.thousands
                || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+')
        };
        if unsigned.is_empty()
            || !unsigned.bytes().all(is_of_number)
            || !unsigned.contains(|c: char| c.is_ascii_digit())
        {
            return Some(Cow::Borrowed(value));
        }
        let (whole, part) = match unsigned.split_once(char::from(point)) {
            Some((whole, part)) => (whole, Some(part)),
            None => (unsigned, None),
        };
        let whole = self.without_thousands(whole)?;
        // A point is part of a date or a version here.
        if point != b'.' && (whole.contains('.') || part.is_some_and(|part| part.contains('.'))) {
            return None;
        }
        if part.is_none() && whole.len() == unsigned.len() {
            return Some(Cow::Borrowed(value));
        }
        let sign = &value[..value.len() - unsigned.len()];
        Some(Cow::Owned(match part {
            Some(part) => format!("{sign}{whole}.{part}"),
            None => format!("{sign}{whole}"),
        }))
    }

    /// Digits without the signs between thousands, which stand before three digits each.
    fn without_thousands<'a>(&self, whole: &'a str) -> Option<Cow<'a, str>> {
        let Some(sign) = self.thousands.map(char::from).filter(|sign| whole.contains(*sign)) else {
            return Some(Cow::Borrowed(whole));
        };
        let mut groups = whole.split(sign);
        let first = groups.next()?;
        let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
        let are_thousands = (1..=3).contains(&first.len())
            && is_digits(first)
            && groups.all(|group| group.len() == 3 && is_digits(group));
        are_thousands.then(|| Cow::Owned(whole.split(sign).collect()))
    }
}

/// A truth value as Arrow reads it.
fn truth(value: &str) -> Option<&'static str> {
    let is_one = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
    match () {
        () if is_one(&["yes", "y", "t", "1"]) => Some("true"),
        () if is_one(&["no", "n", "f", "0"]) => Some("false"),
        () => None,
    }
}

/// A time that is written without its seconds.
fn with_seconds(value: &str) -> Option<String> {
    let form = b"0000-00-00 00:00";
    let is_of_form = value.len() == form.len()
        && value.bytes().zip(form).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            b' ' => matches!(byte, b' ' | b'T'),
            form => byte == *form,
        });
    is_of_form.then(|| format!("{value}:00"))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, TimeUnit};

    use super::Forms;

    #[test]
    fn more_forms_are_read_where_a_type_is_given() {
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let wide = Forms { wide: true, ..Forms::default() };
        for (value, data_type, expected) in [
            ("Yes", &DataType::Boolean, "true"),
            ("0", &DataType::Boolean, "false"),
            ("true", &DataType::Boolean, "true"),
            ("maybe", &DataType::Boolean, "maybe"),
            ("yes", &DataType::Utf8, "yes"),
            ("2024-01-31 10:20", &time, "2024-01-31 10:20:00"),
            ("2024-01-31T10:20", &time, "2024-01-31T10:20:00"),
            ("2024-01-31 10-20", &time, "2024-01-31 10-20"),
            ("2024-01-31 10:20:30", &time, "2024-01-31 10:20:30"),
        ] {
            assert_eq!(wide.plain_as(value, data_type).as_deref(), Some(expected), "{value}");
            assert_eq!(Forms::default().plain_as(value, data_type).as_deref(), Some(value));
        }
    }

    #[test]
    fn numbers_and_dates_become_those_that_arrow_reads() {
        let forms = |point: Option<u8>, thousands: Option<u8>| Forms {
            decimal_separator: point,
            thousands,
            ..Forms::default()
        };
        for (forms, value, expected) in [
            (forms(Some(b','), None), "1,5", Some("1.5")),
            (forms(Some(b','), None), "-,5", Some("-.5")),
            (forms(Some(b','), None), "12", Some("12")),
            (forms(Some(b','), None), "1.5", None),
            (forms(Some(b','), None), "a,b", Some("a,b")),
            (forms(Some(b','), Some(b'.')), "1.234.567,25", Some("1234567.25")),
            (forms(Some(b','), Some(b'.')), "-1.234", Some("-1234")),
            (forms(Some(b','), Some(b'.')), "1.23", None),
            (forms(None, Some(b',')), "1,234", Some("1234")),
            (forms(None, Some(b',')), "12,34", None),
            (forms(None, Some(b'\'')), "1'234.5", Some("1234.5")),
            (forms(None, Some(b',')), "", Some("")),
            (Forms { date: Some("%d.%m.%Y".into()), ..Forms::default() }, "31.12.2023", Some("2023-12-31")),
            (Forms { date: Some("%d.%m.%Y".into()), ..Forms::default() }, "31.13.2023", Some("31.13.2023")),
            (
                Forms { timestamp: Some("%d/%m/%Y %H:%M".into()), ..Forms::default() },
                "31/12/2023 10:05",
                Some("2023-12-31 10:05:00"),
            ),
        ] {
            assert_eq!(forms.plain(value).as_deref(), expected, "{value} by {forms:?}");
        }
    }
}
