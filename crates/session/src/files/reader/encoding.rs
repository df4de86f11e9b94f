//! Texts in other encodings than UTF-8, as UTF-8.

use std::io::{self, Read};
use std::path::Path;

use datafusion::error::Result;

use super::text::{READ_BYTES, Text, check_encoding};

/// How the letters of a file are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(in crate::files) enum Encoding {
    #[default]
    Utf8,
    Utf16 {
        is_little: bool,
    },
    /// ISO 8859-1.
    Latin1,
    /// What Windows writes where it says Latin-1: letters where that has controls.
    Windows1252,
}

/// What somebody says of an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::files) enum NamedEncoding {
    Is(Encoding),
    /// UTF-16, whose mark says the order of its bytes.
    Utf16,
}

impl NamedEncoding {
    /// Names of encodings, for people.
    pub const KNOWN: &str = "utf-8, utf-16, utf-16le, utf-16be, latin-1 or windows-1252";

    /// The encoding of a name.
    pub fn of(name: &str) -> Option<NamedEncoding> {
        let is = NamedEncoding::Is;
        let name = name.to_ascii_lowercase().replace(['-', '_', ' '], "");
        Some(match name.as_str() {
            "utf8" => is(Encoding::Utf8),
            "utf16" => NamedEncoding::Utf16,
            "utf16le" => is(Encoding::Utf16 { is_little: true }),
            "utf16be" => is(Encoding::Utf16 { is_little: false }),
            "latin1" | "iso88591" => is(Encoding::Latin1),
            "windows1252" | "cp1252" => is(Encoding::Windows1252),
            _ => return None,
        })
    }
}

/// The encoding of a file that begins so: what is said of it, else UTF-16 where a mark or zeros show it.
pub(super) fn encoding_of(path: &Path, start: &[u8], named: Option<NamedEncoding>) -> Result<Encoding> {
    match named {
        Some(NamedEncoding::Is(Encoding::Utf8)) => {
            check_encoding(path, start)?;
            Ok(Encoding::Utf8)
        }
        Some(NamedEncoding::Is(encoding)) => Ok(encoding),
        Some(NamedEncoding::Utf16) => Ok(utf16(start).unwrap_or(Encoding::Utf16 { is_little: true })),
        None => Ok(utf16(start).unwrap_or_default()),
    }
}

/// UTF-16, where a text begins with its mark, or every second one of its first bytes is 0.
pub(super) fn utf16(start: &[u8]) -> Option<Encoding> {
    let zeros = start.get(..4).map(|start| [0, 1, 2, 3].map(|place| start[place] == 0));
    let is_little = match start {
        [0xff, 0xfe, ..] => true,
        [0xfe, 0xff, ..] => false,
        _ => match zeros? {
            [false, true, false, true] => true,
            [true, false, true, false] => false,
            _ => return None,
        },
    };
    Some(Encoding::Utf16 { is_little })
}

/// A text as UTF-8.
pub(super) fn decoded(text: Text, encoding: Encoding, path: &Path) -> Text {
    match encoding {
        Encoding::Utf8 => text,
        encoding => {
            let name = path.display().to_string();
            let decoding = Decoding { text, encoding, name, rest: Vec::new(), decoded: Vec::new(), taken: 0 };
            Text::with_capacity(READ_BYTES, Box::new(decoding))
        }
    }
}

struct Decoding {
    text: Text,
    encoding: Encoding,
    /// Of the file, for errors.
    name: String,
    /// Bytes of a letter whose other ones are still to come.
    rest: Vec<u8>,
    decoded: Vec<u8>,
    /// How many of these are taken.
    taken: usize,
}

impl Decoding {
    /// Decodes some more bytes; whether there were any.
    fn more(&mut self) -> io::Result<bool> {
        let mut bytes = std::mem::take(&mut self.rest);
        let known = bytes.len();
        bytes.resize(known + READ_BYTES / 4, 0);
        let read = self.text.read(&mut bytes[known..])?;
        bytes.truncate(known + read);
        if read == 0 {
            return match known {
                0 => Ok(false),
                _ => Err(io::Error::other(format!("{}: the text ends within a letter of UTF-16", self.name))),
            };
        }
        let mut text = String::with_capacity(bytes.len() * 2);
        match self.encoding {
            Encoding::Utf8 => return Err(io::Error::other("UTF-8 is not decoded")),
            Encoding::Latin1 => text.extend(bytes.iter().map(|byte| char::from(*byte))),
            Encoding::Windows1252 => text.extend(bytes.iter().map(|byte| of_windows(*byte))),
            Encoding::Utf16 { is_little } => self.rest = add_utf16(&bytes, is_little, &mut text),
        }
        (self.decoded, self.taken) = (text.into_bytes(), 0);
        Ok(true)
    }
}

/// Adds the letters of UTF-16, and gives the bytes of the last one where some are missing.
fn add_utf16(bytes: &[u8], is_little: bool, text: &mut String) -> Vec<u8> {
    let unit = |pair: &[u8]| match is_little {
        true => u16::from_le_bytes([pair[0], pair[1]]),
        false => u16::from_be_bytes([pair[0], pair[1]]),
    };
    let mut whole = bytes.len() / 2 * 2;
    // The first half of a letter beyond 16 bits.
    let is_half = |pair: &[u8]| (0xd800..0xdc00).contains(&unit(pair));
    if whole >= 2 && is_half(&bytes[whole - 2..whole]) {
        whole -= 2;
    }
    let letters = char::decode_utf16(bytes[..whole].chunks_exact(2).map(unit));
    text.extend(letters.map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)));
    bytes[whole..].to_vec()
}

/// A byte of Windows-1252; those that stand for nothing are what they are in Latin-1.
fn of_windows(byte: u8) -> char {
    const LETTERS: &str = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";
    match byte {
        0x80..=0x9f => LETTERS.chars().nth(usize::from(byte - 0x80)).unwrap_or(char::from(byte)),
        _ => char::from(byte),
    }
}

impl Read for Decoding {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.decoded.len() {
            if buffer.is_empty() || !self.more()? {
                return Ok(0);
            }
        }
        let left = &self.decoded[self.taken..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::path::Path;

    use super::{Encoding, Text, decoded, utf16};

    #[test]
    fn texts_become_utf8() {
        let text = "a,ü,€,😀\n".repeat(40_000);
        let units = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let windows: Vec<u8> = b"a,\xfc,\x80\n".repeat(3);
        for (bytes, encoding, expected) in [
            (units(u16::to_le_bytes), Encoding::Utf16 { is_little: true }, text.clone()),
            (units(u16::to_be_bytes), Encoding::Utf16 { is_little: false }, text.clone()),
            (b"a,\xfc\n".to_vec(), Encoding::Latin1, "a,ü\n".to_string()),
            (windows, Encoding::Windows1252, "a,ü,€\n".repeat(3)),
            (Vec::new(), Encoding::Latin1, String::new()),
        ] {
            let input = Text::new(Box::new(std::io::Cursor::new(bytes)));
            let mut found = String::new();
            decoded(input, encoding, Path::new("t.csv")).read_to_string(&mut found).unwrap();
            assert!(found == expected, "{encoding:?}");
        }
        assert_eq!(utf16(b"a\0,\0"), Some(Encoding::Utf16 { is_little: true }));
        assert_eq!(utf16(b"a,"), None);
        let odd = Text::new(Box::new(std::io::Cursor::new(b"a\0,".to_vec())));
        let mut found = String::new();
        let read = decoded(odd, Encoding::Utf16 { is_little: true }, Path::new("t.csv"));
        assert!({ read }.read_to_string(&mut found).unwrap_err().to_string().contains("t.csv"));
    }
}
