//! The places of `format` and `printf`: what they say of a value's form, and the value in that form.

use datafusion::common::exec_err;
use datafusion::error::Result;

/// Letters that a place may have, and digits behind a point.
const MOST: usize = 1000;

/// A value to be written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Written {
    Text(String),
    Integer(i128),
    Float(f64),
    Flag(bool),
}

/// Which letters mark places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Style {
    Braces,
    Percent,
}

#[derive(Debug)]
pub(super) struct Template {
    pub written: String,
    pub pieces: Vec<Piece>,
}

#[derive(Debug)]
pub(super) enum Piece {
    Letters(String),
    Place(Place),
}

#[derive(Debug)]
pub(super) struct Place {
    pub argument: usize,
    /// The argument that says how wide it is.
    pub width: Option<usize>,
    pub layout: Layout,
}

/// How a value is written.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    has_prefix: bool,
    has_zeros: bool,
    /// Digits of other bases are those of 64 bits, as in C.
    has_bits: bool,
    width: usize,
    separator: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// What is left of a template.
struct Rest<'a> {
    text: &'a str,
    whole: &'a str,
    function: &'a str,
}

impl Rest<'_> {
    fn next(&mut self) -> Option<char> {
        let letter = self.text.chars().next()?;
        self.text = &self.text[letter.len_utf8()..];
        Some(letter)
    }

    fn next_if(&mut self, wanted: impl Fn(char) -> bool) -> Option<char> {
        let letter = self.text.chars().next().filter(|letter| wanted(*letter))?;
        self.next();
        Some(letter)
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let end = self.text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(self.text.len());
        let (digits, rest) = self.text.split_at(end);
        self.text = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        match digits.parse().ok().filter(|number| *number <= MOST) {
            Some(number) => Ok(Some(number)),
            None => exec_err!("{}: '{}' has a place of more than {MOST} letters", self.function, self.whole),
        }
    }

    fn wrong<T>(&self, what: &str) -> Result<T> {
        exec_err!("{}: '{}': {what}", self.function, self.whole)
    }
}

impl Template {
    pub fn parsed(written: &str, style: Style, function: &str) -> Result<Template> {
        let mut rest = Rest { text: written, whole: written, function };
        let mut pieces = Vec::new();
        let mut letters = String::new();
        let mut next = 0;
        while let Some(letter) = rest.next() {
            let begins = match (style, letter) {
                (Style::Braces, '{') => rest.next_if(|letter| letter == '{').is_none(),
                (Style::Braces, '}') if rest.next_if(|letter| letter == '}').is_none() => {
                    return rest.wrong("a } has no { before it");
                }
                (Style::Percent, '%') => rest.next_if(|letter| letter == '%').is_none(),
                _ => false,
            };
            if !begins {
                letters.push(letter);
                continue;
            }
            if !letters.is_empty() {
                pieces.push(Piece::Letters(std::mem::take(&mut letters)));
            }
            pieces.push(Piece::Place(match style {
                Style::Braces => braces(&mut rest, &mut next)?,
                Style::Percent => percent(&mut rest, &mut next)?,
            }));
        }
        if !letters.is_empty() {
            pieces.push(Piece::Letters(letters));
        }
        Ok(Template { written: written.to_string(), pieces })
    }
}

/// `{}`, `{0}`, `{:>8.2f}`: what stands behind the opening brace.
fn braces(rest: &mut Rest<'_>, next: &mut usize) -> Result<Place> {
    let argument = match rest.number()? {
        Some(number) => number,
        None => {
            *next += 1;
            *next - 1
        }
    };
    let mut layout = Layout::default();
    if rest.next_if(|letter| letter == ':').is_some() {
        let is_align = |letter: char| matches!(letter, '<' | '>' | '^');
        let mut letters = rest.text.chars();
        match (letters.next(), letters.next()) {
            (Some(fill), Some(align)) if is_align(align) && fill != '}' => {
                (layout.fill, layout.align) = (Some(fill), Some(align));
                rest.next();
                rest.next();
            }
            _ => layout.align = rest.next_if(is_align),
        }
        layout.sign = rest.next_if(|letter| matches!(letter, '+' | '-' | ' '));
        layout.has_prefix = rest.next_if(|letter| letter == '#').is_some();
        layout.has_zeros = rest.next_if(|letter| letter == '0').is_some();
        layout.width = rest.number()?.unwrap_or(0);
        layout.separator = match rest.next_if(|letter| matches!(letter, ',' | '_' | '\'' | 't')) {
            Some('t') => rest.next(),
            other => other,
        };
        if rest.next_if(|letter| letter == '.').is_some() {
            layout.precision = Some(rest.number()?.unwrap_or(0));
        }
        layout.kind = rest.next_if(|letter| letter.is_ascii_alphabetic());
    }
    match rest.next() {
        Some('}') => Ok(Place { argument, width: None, layout }),
        Some(other) => rest.wrong(&format!("'{other}' is not known between {{ and }}")),
        None => rest.wrong("a { has no } behind it"),
    }
}

/// `%s`, `%-8.2f`, `%2$s`: what stands behind the sign.
fn percent(rest: &mut Rest<'_>, next: &mut usize) -> Result<Place> {
    let mut layout = Layout { has_bits: true, ..Layout::default() };
    let before = rest.text;
    let numbered = rest.number()?.filter(|_| rest.text.starts_with('$'));
    match numbered {
        Some(_) => drop(rest.next()),
        None => rest.text = before,
    }
    while let Some(flag) = rest.next_if(|letter| matches!(letter, '-' | '+' | ' ' | '#' | '0' | ',' | '\'')) {
        match flag {
            '-' => layout.align = Some('<'),
            '+' | ' ' => layout.sign = Some(flag),
            '#' => layout.has_prefix = true,
            '0' => layout.has_zeros = true,
            _ => layout.separator = Some(','),
        }
    }
    if layout.align.is_some() {
        layout.has_zeros = false;
    } else {
        layout.align = Some('>');
    }
    let mut width = None;
    if rest.next_if(|letter| letter == '*').is_some() {
        width = Some(*next);
        *next += 1;
    } else {
        layout.width = rest.number()?.unwrap_or(0);
    }
    if rest.next_if(|letter| letter == '.').is_some() {
        layout.precision = Some(rest.number()?.unwrap_or(0));
    }
    while rest.next_if(|letter| matches!(letter, 'h' | 'l' | 'L' | 'q' | 'j' | 'z' | 't')).is_some() {}
    layout.kind = match rest.next() {
        Some('i' | 'u') => Some('d'),
        Some(kind) if "dsfFeEgGxXocb".contains(kind) => Some(kind),
        Some(other) => return rest.wrong(&format!("%{other} is not known")),
        None => return rest.wrong("it ends in the middle of a place"),
    };
    let argument = match numbered {
        Some(number) => match number.checked_sub(1) {
            Some(place) => place,
            None => return rest.wrong("arguments are counted from 1"),
        },
        None => {
            *next += 1;
            *next - 1
        }
    };
    Ok(Place { argument, width, layout })
}

impl Layout {
    pub fn set_width(&mut self, value: &Written, function: &str) -> Result<()> {
        match value {
            Written::Integer(width) if width.unsigned_abs() <= MOST as u128 => {
                if *width < 0 {
                    self.align = Some('<');
                }
                self.width = width.unsigned_abs() as usize;
                Ok(())
            }
            other => exec_err!("{function}: {other:?} is no width of a place"),
        }
    }

    pub fn write(&self, value: &Written, function: &str, text: &mut String) -> Result<()> {
        let refused = |kind: char, what: &str| exec_err!("{function}: '{kind}' is no form of a {what}");
        let is_plain =
            self.width == 0 && self.sign.is_none() && self.separator.is_none() && self.precision.is_none();
        match (value, self.kind) {
            (Written::Text(letters), None | Some('s')) if is_plain => text.push_str(letters),
            (Written::Integer(number), None | Some('d' | 's')) if is_plain => {
                text.push_str(&number.to_string());
            }
            (Written::Text(letters), None | Some('s')) => {
                let cut: String = letters.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                self.pad("", &cut, '<', text);
            }
            (Written::Text(_), Some(kind)) => return refused(kind, "text"),
            (Written::Flag(flag), None | Some('s')) => {
                self.pad("", if *flag { "true" } else { "false" }, '<', text)
            }
            (Written::Flag(flag), Some(_)) => {
                return self.write(&Written::Integer((*flag).into()), function, text);
            }
            (Written::Integer(number), Some('f' | 'F' | 'e' | 'E' | 'g' | 'G')) => {
                return self.write(&Written::Float(*number as f64), function, text);
            }
            (Written::Integer(number), Some('c')) => {
                let letter = u32::try_from(*number).ok().and_then(char::from_u32);
                match letter {
                    Some(letter) => self.pad("", letter.encode_utf8(&mut [0; 4]), '<', text),
                    None => return exec_err!("{function}: {number} is no character"),
                }
            }
            (Written::Integer(number), kind) => {
                let is_bits = self.has_bits && matches!(kind, Some('x' | 'X' | 'o' | 'b'));
                let bits = i64::try_from(*number).ok().filter(|number| is_bits && *number < 0);
                let magnitude =
                    bits.map_or(number.unsigned_abs(), |number| u128::from(number.cast_unsigned()));
                let (prefix, digits) = match kind {
                    None | Some('d' | 's' | 'n') => ("", magnitude.to_string()),
                    Some('x') => ("0x", format!("{magnitude:x}")),
                    Some('X') => ("0X", format!("{magnitude:X}")),
                    Some('o') => ("0", format!("{magnitude:o}")),
                    Some('b' | 'B') => ("0b", format!("{magnitude:b}")),
                    Some(kind) => return refused(kind, "whole number"),
                };
                let prefix = if self.has_prefix { prefix } else { "" };
                self.pad(
                    &format!("{}{prefix}", self.sign(*number < 0 && bits.is_none())),
                    &self.grouped(&digits),
                    '>',
                    text,
                );
            }
            (Written::Float(number), kind) => {
                let digits = match kind {
                    _ if !number.is_finite() => number.abs().to_string().to_lowercase(),
                    None => match self.precision {
                        None => shortest(number.abs()),
                        Some(precision) => general(number.abs(), precision),
                    },
                    Some('s') => shortest(number.abs()),
                    Some('f' | 'F') => format!("{:.*}", self.precision.unwrap_or(6), number.abs()),
                    Some('e' | 'E') => exponential(number.abs(), self.precision.unwrap_or(6)),
                    Some('g' | 'G') => general(number.abs(), self.precision.unwrap_or(6)),
                    Some(kind) => return refused(kind, "float"),
                };
                let digits = match kind {
                    Some('E' | 'G') => digits.to_uppercase(),
                    _ => digits,
                };
                let is_negative = number.is_sign_negative() && !number.is_nan();
                self.pad(self.sign(is_negative), &self.grouped(&digits), '>', text);
            }
        }
        Ok(())
    }

    fn sign(&self, is_negative: bool) -> &'static str {
        match (is_negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        }
    }

    /// Digits with a separator between thousands.
    fn grouped(&self, digits: &str) -> String {
        let Some(separator) = self.separator else { return digits.to_string() };
        let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
        let (whole, rest) = digits.split_at(end);
        let mut text = String::new();
        for (place, digit) in whole.chars().enumerate() {
            if place > 0 && (whole.len() - place).is_multiple_of(3) {
                text.push(separator);
            }
            text.push(digit);
        }
        text.push_str(rest);
        text
    }

    /// Fills up to the width; zeros stand behind what is before the digits.
    fn pad(&self, before: &str, letters: &str, align: char, text: &mut String) {
        let missing = self.width.saturating_sub(before.chars().count() + letters.chars().count());
        if self.has_zeros && align == '>' {
            text.push_str(before);
            text.extend(std::iter::repeat_n('0', missing));
            text.push_str(letters);
            return;
        }
        let fill = self.fill.unwrap_or(' ');
        let left = match self.align.unwrap_or(align) {
            '<' => 0,
            '^' => missing / 2,
            _ => missing,
        };
        text.extend(std::iter::repeat_n(fill, left));
        text.push_str(before);
        text.push_str(letters);
        text.extend(std::iter::repeat_n(fill, missing - left));
    }
}

/// The power of ten of a float's first digit.
fn exponent(written: &str) -> i32 {
    written.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
}

/// With an exponent of two digits at least.
fn with_exponent(written: &str) -> String {
    let exponent = exponent(written);
    let mantissa = written.split('e').next().unwrap_or_default();
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

fn exponential(number: f64, precision: usize) -> String {
    with_exponent(&format!("{number:.precision$e}"))
}

/// As few digits as tell a float apart from all others.
fn shortest(number: f64) -> String {
    let written = format!("{number:e}");
    if number != 0.0 && !(-4..16).contains(&exponent(&written)) {
        return with_exponent(&written);
    }
    let written = number.to_string();
    if written.contains('.') { written } else { format!("{written}.0") }
}

/// So many digits in all, without zeros at the end.
fn general(number: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let written = format!("{number:.*e}", precision - 1);
    let power = exponent(&written);
    let trimmed = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => digits.to_string(),
    };
    if power < -4 || power >= precision as i32 {
        let mantissa = written.split('e').next().unwrap_or_default();
        return with_exponent(&format!("{}e{power}", trimmed(mantissa)));
    }
    let behind = usize::try_from(precision as i32 - 1 - power).unwrap_or(0);
    trimmed(&format!("{number:.behind$}"))
}
