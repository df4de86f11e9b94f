//! Texts of JSON. Each is checked once as a whole, and then taken apart where it lies: order, equal keys and all digits stay.

use std::borrow::Cow;

use datafusion::common::exec_err;
use datafusion::error::Result;
use serde::de::IgnoredAny;

use super::scan::{self, Checked};

/// Letters of a wrong text that its error shows.
const SHOWN: usize = 60;
/// Within these a number is written without an exponent.
const FIXED: std::ops::Range<f64> = 1e-6..1e21;

/// A value of a text that has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Json<'a>(&'a str);

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    Text,
    Number,
    Flag,
    Null,
}

/// A value within another one, with its key where that is an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    pub key: Option<Json<'a>>,
    pub value: Json<'a>,
}

impl<'a> Json<'a> {
    /// Nothing where the text is no JSON.
    pub fn valid(text: &'a str) -> Option<Json<'a>> {
        let is_valid = match scan::check(text) {
            Checked::Valid { has_numbers } => !has_numbers || has_whole_escapes(text),
            Checked::Wrong => false,
            Checked::Deep => serde_json::from_str::<IgnoredAny>(text).is_ok() && has_whole_escapes(text),
        };
        is_valid.then(|| Json(text.trim_ascii()))
    }

    pub fn of(text: &'a str, function: &str) -> Result<Json<'a>> {
        if let Some(json) = Json::valid(text) {
            return Ok(json);
        }
        let shown: String = text.chars().take(SHOWN).collect();
        let dots = if shown.len() < text.len() { "…" } else { "" };
        let reason = match serde_json::from_str::<IgnoredAny>(text) {
            Err(error) => error.to_string(),
            Ok(_) => "an escape is no character".to_string(),
        };
        exec_err!("{function}: '{shown}{dots}' is no JSON: {reason}")
    }

    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::Text,
            Some(b't' | b'f') => Kind::Flag,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// As it is written.
    pub fn written(self) -> &'a str {
        self.0
    }

    /// The letters that a text means; of other values nothing.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        match inner.contains('\\') {
            false => Some(Cow::Borrowed(inner)),
            true => serde_json::from_str(self.0).ok().map(Cow::Owned),
        }
    }

    /// Whether it is a text of such letters.
    fn is_text(self, letters: &str) -> bool {
        let inner = self.0.as_bytes().get(1..self.0.len().saturating_sub(1)).unwrap_or_default();
        match inner.contains(&b'\\') {
            false => inner == letters.as_bytes() && self.kind() == Kind::Text,
            true => self.text().is_some_and(|text| text == letters),
        }
    }

    /// The values within an object or an array; others have none.
    pub fn elements(self) -> Elements<'a> {
        let is_object = self.kind() == Kind::Object;
        let has_any = is_object || self.kind() == Kind::Array;
        Elements { text: self.0, at: if has_any { 1 } else { self.0.len() }, is_object }
    }

    /// The value of a key: of several equal ones the first.
    pub fn field(self, name: &str) -> Option<Json<'a>> {
        let is_named = |element: &Element<'_>| element.key.is_some_and(|key| key.is_text(name));
        match self.kind() {
            Kind::Object => self.elements().find(is_named).map(|element| element.value),
            _ => None,
        }
    }

    /// The value at a place of an array, counted from 0, or from its end where the number is negative.
    pub fn place(self, place: i64) -> Option<Json<'a>> {
        if self.kind() != Kind::Array {
            return None;
        }
        let place = match u64::try_from(place) {
            Ok(place) => place,
            Err(_) => u64::try_from(self.elements().count()).ok()?.checked_sub(place.unsigned_abs())?,
        };
        self.elements().nth(usize::try_from(place).ok()?).map(|element| element.value)
    }

    /// Writes it without blanks, its numbers and escapes in one form. Most values stand so already.
    pub fn write(self, text: &mut String) {
        if self.is_compact() {
            return text.push_str(self.0);
        }
        let bytes = self.0.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            let from = at;
            at += 1;
            match byte {
                b'{' | b'[' | b'}' | b']' | b',' | b':' => text.push(char::from(*byte)),
                byte if byte.is_ascii_whitespace() => {}
                _ => {
                    at = end_of(bytes, from);
                    write_scalar(self.0.get(from..at).unwrap_or_default(), text);
                }
            }
        }
    }

    pub fn compact(self) -> Cow<'a, str> {
        if self.is_compact() {
            return Cow::Borrowed(self.0);
        }
        let mut text = String::with_capacity(self.0.len());
        self.write(&mut text);
        Cow::Owned(text)
    }

    /// Whether it stands so already that [`Json::write`] writes nothing else, as far as a look at its bytes tells.
    fn is_compact(self) -> bool {
        let is_plain =
            |byte: &u8| !byte.is_ascii_whitespace() && !matches!(byte, b'\\' | b'.' | b'e' | b'E' | b'-');
        self.0.as_bytes().iter().all(is_plain)
    }

    /// How many objects and arrays are around the innermost value.
    pub fn levels(self) -> usize {
        let bytes = self.0.as_bytes();
        let (mut at, mut level, mut most) = (0, 0_usize, 0);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'{' | b'[' => level += 1,
                b'}' | b']' => level = level.saturating_sub(1),
                b'"' => at = end_of(bytes, at) - 1,
                _ => {}
            }
            most = most.max(level);
            at += 1;
        }
        most
    }

    /// It on several lines.
    pub fn lines(self) -> String {
        let mut text = String::with_capacity(2 * self.0.len());
        let bytes = self.0.as_bytes();
        let (mut at, mut depth) = (0, 0_usize);
        let line = |depth: usize, text: &mut String| {
            text.push('\n');
            text.extend(std::iter::repeat_n("    ", depth));
        };
        while let Some(byte) = bytes.get(at) {
            let from = at;
            at += 1;
            match byte {
                b'{' | b'[' => {
                    text.push(char::from(*byte));
                    let blanks = bytes.iter().skip(at).take_while(|byte| byte.is_ascii_whitespace()).count();
                    if let Some(close @ (b'}' | b']')) = bytes.get(at + blanks) {
                        text.push(char::from(*close));
                        at += blanks + 1;
                    } else {
                        depth += 1;
                        line(depth, &mut text);
                    }
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    line(depth, &mut text);
                    text.push(char::from(*byte));
                }
                b',' => {
                    text.push(',');
                    line(depth, &mut text);
                }
                b':' => text.push_str(": "),
                byte if byte.is_ascii_whitespace() => {}
                _ => {
                    at = end_of(bytes, from);
                    write_scalar(self.0.get(from..at).unwrap_or_default(), &mut text);
                }
            }
        }
        text
    }
}

/// Whether all escapes of a text that is JSON otherwise are characters: halves of one are none.
fn has_whole_escapes(text: &str) -> bool {
    if !text.contains("\\u") {
        return true;
    }
    let mut at = 0;
    while let Some(place) = text.as_bytes().iter().skip(at).position(|byte| *byte == b'"') {
        let from = at + place;
        at = end_of(text.as_bytes(), from);
        if serde_json::from_str::<Cow<'_, str>>(text.get(from..at).unwrap_or_default()).is_err() {
            return false;
        }
    }
    true
}

/// Where a value of a valid text ends that begins at a place.
fn end_of(bytes: &[u8], from: usize) -> usize {
    let is_over = |byte: &u8| matches!(byte, b',' | b':' | b'}' | b']') || byte.is_ascii_whitespace();
    let at = match bytes.get(from) {
        Some(b'"') => scan::end_of_letters(bytes, from + 1),
        Some(b'{' | b'[') => end_of_several(bytes, from),
        _ => from + bytes.iter().skip(from).take_while(|byte| !is_over(byte)).count(),
    };
    at.min(bytes.len())
}

/// Where an object or an array ends.
fn end_of_several(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = scan::end_of_letters(bytes, at),
            b'{' | b'[' => depth += 1,
            _ => depth = depth.saturating_sub(1),
        }
        if depth == 0 {
            break;
        }
        at = scan::next_mark(bytes, at);
    }
    at
}

/// See [`Json::elements`].
pub(super) struct Elements<'a> {
    text: &'a str,
    at: usize,
    is_object: bool,
}

impl<'a> Elements<'a> {
    /// The next value behind blanks, commas and colons.
    fn value(&mut self) -> Option<Json<'a>> {
        let bytes = self.text.as_bytes();
        let is_between = |byte: &u8| matches!(byte, b',' | b':') || byte.is_ascii_whitespace();
        let from = self.at + bytes.iter().skip(self.at).take_while(|byte| is_between(byte)).count();
        if matches!(bytes.get(from), None | Some(b'}' | b']')) {
            self.at = bytes.len();
            return None;
        }
        self.at = end_of(bytes, from);
        self.text.get(from..self.at).map(Json)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let key = if self.is_object { Some(self.value()?) } else { None };
        Some(Element { key, value: self.value()? })
    }
}

/// Writes a text, a number or a word.
fn write_scalar(written: &str, text: &mut String) {
    match Json(written).kind() {
        Kind::Number => write_number(written, text),
        _ => match Json(written).text() {
            Some(Cow::Owned(letters)) => write_letters(&letters, text),
            _ => text.push_str(written),
        },
    }
}

/// Writes letters as a text between quotes.
pub(super) fn write_letters(letters: &str, text: &mut String) {
    text.push('"');
    for letter in letters.chars() {
        match letter {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            letter if u32::from(letter) < 0x20 => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => text.push(letter),
        }
    }
    text.push('"');
}

/// Whole numbers keep all their digits, and so do those that no float holds.
fn write_number(number: &str, text: &mut String) {
    if !number.contains(['.', 'e', 'E']) {
        return text.push_str(if number == "-0" { "0" } else { number });
    }
    if is_shortest(number) {
        return text.push_str(number);
    }
    match number.parse::<f64>() {
        Ok(value) if value.is_finite() => write_float(value, text),
        _ => text.push_str(number),
    }
}

/// Whether a number with a point is written as [`write_float`] would: floats tell all numbers of 15 digits apart, so that no shorter one is the
/// same float.
fn is_shortest(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let Some((whole, part)) = digits.split_once('.') else { return false };
    let are_digits = part.bytes().all(|byte| byte.is_ascii_digit());
    let is_ended = part == "0" || !part.ends_with('0');
    // Six digits behind the point are not so small that an exponent would be written.
    are_digits && is_ended && whole.len() + part.len() <= 15 && (whole != "0" || part.len() <= 6)
}

/// Writes a finite float so that it is read as the same.
pub(super) fn write_float(value: f64, text: &mut String) {
    if value != 0.0 && !FIXED.contains(&value.abs()) {
        return text.push_str(&format!("{value:e}"));
    }
    let written = value.to_string();
    text.push_str(&written);
    if !written.contains('.') {
        text.push_str(".0");
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    fn compact(text: &str) -> String {
        Json::valid(text).unwrap().compact().into_owned()
    }

    #[test]
    fn values_are_found_where_they_lie() {
        let json = Json::valid(" {\"a\" : [1, {\"b\": \"x]\\\"\"}] , \"\\u00e9\":null, \"a\":2} ").unwrap();
        assert_eq!(json.field("a").unwrap().written(), "[1, {\"b\": \"x]\\\"\"}]");
        assert_eq!(json.field("a").unwrap().place(-1).unwrap().field("b").unwrap().text().unwrap(), "x]\"");
        assert_eq!(json.field("é").unwrap().written(), "null");
        assert_eq!(json.elements().count(), 3);
        assert!(json.field("a").unwrap().place(2).is_none() && json.field("a").unwrap().place(-3).is_none());
        assert!(json.place(0).is_none() && json.field("b").is_none());
        assert_eq!(Json::valid("[ ]").unwrap().elements().count(), 0);
    }

    #[test]
    fn values_have_one_form() {
        assert_eq!(
            compact(" [ 1e-7, 0.0000010, 1e20 , 1e21, -0 , -0.0, 1.50] "),
            "[1e-7,0.000001,100000000000000000000.0,1e21,0,-0.0,1.5]"
        );
        assert_eq!(
            compact("{ \"a\" : 123456789012345678901234567890, \"b\":1e400 }"),
            "{\"a\":123456789012345678901234567890,\"b\":1e400}"
        );
        assert_eq!(compact("\"\\u00e9\\/\\n\\u0001\""), "\"é/\\n\\u0001\"");
        assert_eq!(compact("[true,false,null]"), "[true,false,null]");
        for digits in 1..16 {
            for number in
                ["1", "-7", "0", "123456789012"].map(|whole| format!("{whole}.{}", "3".repeat(digits)))
            {
                assert_eq!(compact(&number), format!("{:?}", number.parse::<f64>().unwrap()), "{number}");
            }
        }
        assert_eq!(compact("[0.000001,0.000000,0.50,-0.0,0.0]"), "[0.000001,0.0,0.5,-0.0,0.0]");
    }

    #[test]
    fn what_is_wrong_is_found() {
        for text in ["", "x", "{\"a\":1", "[1,]", "[01]", "1 2", "\"\\ud83d\"", "{\"a\" 1}"] {
            assert!(Json::valid(text).is_none(), "{text}");
        }
        let key = Json::valid("{\"a\\\\b\": 1, \"a\\u0062\": 2}").unwrap();
        assert_eq!(key.field("a\\b").unwrap().written(), "1");
        assert_eq!(key.field("ab").unwrap().written(), "2");
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(Json::valid(&deep).unwrap().compact(), deep);
    }
}
