//! Formats of times: those of `strftime` as those of `to_char` and `to_timestamp`.

use datafusion::common::plan_err;
use datafusion::error::Result;

/// A format to write times by.
pub(super) fn to_write(format: &str) -> Result<String> {
    translated(format, |directive| match directive {
        "%f" => Some("%6f"),
        "%g" => Some("%3f"),
        "%n" => Some("%9f"),
        "%c" => Some("%Y-%m-%d %H:%M:%S"),
        "%x" => Some("%Y-%m-%d"),
        "%X" => Some("%H:%M:%S"),
        _ => None,
    })
}

/// A format to read times by. `%f` takes one to nine digits behind a point.
pub(super) fn to_read(format: &str) -> Result<String> {
    let format = format.replace(".%f", "%.f").replace(".%g", "%.f").replace(".%n", "%.f");
    translated(&format, |directive| match directive {
        "%c" => Some("%Y-%m-%d %H:%M:%S"),
        "%x" => Some("%Y-%m-%d"),
        "%X" => Some("%H:%M:%S"),
        _ => None,
    })
}

/// A format with other directives, each of `%`, perhaps a sign that takes zeros away, and a letter.
fn translated(format: &str, other: impl Fn(&str) -> Option<&'static str>) -> Result<String> {
    const KNOWN: &str = "aAwudbBmyYGHIpMSfgnzZjUWVcxXe%.";
    let mut written = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(place) = rest.find('%') {
        written.push_str(&rest[..place]);
        rest = &rest[place..];
        let mut letters = rest.char_indices().skip(1);
        let mut letter = letters.next();
        if matches!(letter, Some((_, '-' | '.'))) {
            letter = letters.next();
        }
        let Some((at, letter)) = letter else {
            return plan_err!("the format '{format}' ends in the middle of a part that begins with %");
        };
        if !KNOWN.contains(letter) {
            return plan_err!("the format '{format}': %{letter} is not known");
        }
        let directive = &rest[..at + letter.len_utf8()];
        written.push_str(other(directive).unwrap_or(directive));
        rest = &rest[directive.len()..];
    }
    written.push_str(rest);
    Ok(written)
}

/// What a format lacks of a moment, as a text that is put before what is read and what reads it: the first day of the first month of
/// 1900, at midnight.
pub(super) fn missing(format: &str) -> (String, String) {
    let has = |letters: &str| {
        let mut signs = format.chars().peekable();
        let mut found = false;
        while let Some(sign) = signs.next() {
            if sign == '%' {
                let letter = signs.next();
                let letter = if letter == Some('-') { signs.next() } else { letter };
                found |= letter.is_some_and(|letter| letters.contains(letter));
            }
        }
        found
    };
    let mut missing = (String::new(), String::new());
    let mut add = |value: &str, directive: &str| {
        missing.0.push_str(value);
        missing.1.push_str(directive);
    };
    let is_whole = has("cx");
    if !is_whole && !has("yYG") {
        add("1900 ", "%Y ");
    }
    if !is_whole && !has("mbBjUWV") {
        add("01 ", "%m ");
    }
    if !is_whole && !has("dejuw") {
        add("01 ", "%d ");
    }
    // Without these the reader would leave the time of day out.
    let (has_hour, has_minute, has_second) = (has("HI"), has("M"), has("S"));
    if !has("cX") && (has_hour || has_minute || has_second) {
        if !has_hour {
            add("00 ", "%H ");
        }
        if !has_minute {
            add("00 ", "%M ");
        }
        if has("I") && !has("p") {
            add("AM ", "%p ");
        }
    }
    missing
}
