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
    const KNOWN: &str = "aAwudbBhmyYGHIpMSfgnzZjUWVcxXeTDFR%.";
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
