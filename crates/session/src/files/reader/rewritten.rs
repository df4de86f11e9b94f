//! CSV that readers do not take as it is meant, as one that they do: with other escapes of quotes, comments, and rows that are empty
//! lines. A line stays a line, so that errors name the true one.

use std::io::{self, Read};

use super::text::{READ_BYTES, Text};

/// What becomes of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::files) struct Rewriting {
    /// What stands before a quote that is part of a value; a second quote where there is nothing.
    pub escape: Option<u8>,
    /// What lines begin with that are no data.
    pub comment: Option<u8>,
    /// Whether an empty line is a row with an empty value, as it is where there is one column.
    pub empty_rows: bool,
}

impl Rewriting {
    fn changes_nothing(self) -> bool {
        self == Rewriting::default()
    }
}

/// What a text looks like between bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    LineStart,
    ValueStart,
    Value,
    Quoted,
    /// After an escape within quotes.
    Escaped,
    Comment,
    /// After a return at the beginning of a line.
    Return,
}

/// A text after what becomes of it. It must begin with a line.
pub(super) fn rewritten(text: Text, rewriting: Rewriting, delimiter: u8, quote: u8) -> Text {
    if rewriting.changes_nothing() {
        return text;
    }
    let signs = Signs { rewriting, delimiter, quote, place: Place::LineStart };
    let rewritten = Rewritten { text, signs, input: vec![0; READ_BYTES / 4], output: Vec::new(), taken: 0 };
    Text::with_capacity(READ_BYTES, Box::new(rewritten))
}

struct Rewritten {
    text: Text,
    signs: Signs,
    input: Vec<u8>,
    output: Vec<u8>,
    /// How many bytes of the output are taken.
    taken: usize,
}

struct Signs {
    rewriting: Rewriting,
    delimiter: u8,
    quote: u8,
    place: Place,
}

impl Signs {
    /// Adds what a byte becomes.
    fn add(&mut self, byte: u8, output: &mut Vec<u8>) {
        self.place = match self.place {
            Place::Comment if byte == b'\n' => {
                output.push(byte);
                Place::LineStart
            }
            Place::Comment => Place::Comment,
            Place::Quoted => self.quoted(byte, output),
            Place::Escaped => {
                self.escaped(byte, output);
                Place::Quoted
            }
            Place::LineStart if Some(byte) == self.rewriting.comment => Place::Comment,
            Place::LineStart if byte == b'\r' => Place::Return,
            Place::LineStart | Place::Return if byte == b'\n' => {
                self.empty_line(output);
                output.push(byte);
                Place::LineStart
            }
            Place::Return => {
                // A return alone ends a line, too.
                self.empty_line(output);
                output.push(b'\r');
                self.place = Place::LineStart;
                return self.add(byte, output);
            }
            place => {
                output.push(byte);
                match byte {
                    b'\n' => Place::LineStart,
                    byte if byte == self.delimiter => Place::ValueStart,
                    byte if byte == self.quote && place != Place::Value => Place::Quoted,
                    _ => Place::Value,
                }
            }
        };
    }

    fn empty_line(&self, output: &mut Vec<u8>) {
        if self.rewriting.empty_rows {
            output.extend_from_slice(&[self.quote, self.quote]);
        }
    }

    /// Adds a byte within quotes, and says what follows. After a quote that is doubled comes another quoted part.
    fn quoted(&self, byte: u8, output: &mut Vec<u8>) -> Place {
        match byte {
            byte if Some(byte) == self.rewriting.escape => Place::Escaped,
            byte if byte == self.quote => {
                output.push(byte);
                Place::ValueStart
            }
            byte => {
                output.push(byte);
                Place::Quoted
            }
        }
    }

    /// Adds a byte behind an escape, which stays where it escapes nothing.
    fn escaped(&self, byte: u8, output: &mut Vec<u8>) {
        match self.rewriting.escape {
            _ if byte == self.quote => output.extend_from_slice(&[byte, byte]),
            Some(escape) if byte != escape => output.extend_from_slice(&[escape, byte]),
            _ => output.push(byte),
        }
    }
}

impl Read for Rewritten {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.output.len() {
            if buffer.is_empty() {
                return Ok(0);
            }
            let read = self.text.read(&mut self.input)?;
            self.output.clear();
            self.taken = 0;
            if read == 0 {
                return Ok(0);
            }
            for byte in &self.input[..read] {
                self.signs.add(*byte, &mut self.output);
            }
        }
        let left = &self.output[self.taken..];
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{Rewriting, Text, rewritten};

    #[test]
    fn a_text_becomes_one_that_readers_take() {
        let escape = Rewriting { escape: Some(b'\\'), ..Rewriting::default() };
        let comment = Rewriting { comment: Some(b'#'), ..Rewriting::default() };
        let empty = Rewriting { empty_rows: true, ..Rewriting::default() };
        for (rewriting, text, expected) in [
            (escape, r#""a\"b",\1"#, r#""a""b",\1"#),
            (escape, r#""C:\new \\ \"x\"","y""#, r#""C:\new \ ""x""","y""#),
            (escape, r#""a""b\"c",d"#, r#""a""b""c",d"#),
            (comment, "#x\na\n#\"y\nb#\n", "\na\n\nb#\n"),
            (comment, "\"#\n#\",1\n", "\"#\n#\",1\n"),
            (empty, "a\n\nb\n\n", "a\n\"\"\nb\n\"\"\n"),
            (empty, "a\r\n\r\nb", "a\r\n\"\"\nb"),
            (empty, "\"x\n\ny\"\nz\n", "\"x\n\ny\"\nz\n"),
            (empty, "", ""),
        ] {
            let text = Text::new(Box::new(std::io::Cursor::new(text.as_bytes().to_vec())));
            let mut found = String::new();
            rewritten(text, rewriting, b',', b'"').read_to_string(&mut found).unwrap();
            assert_eq!(found, expected);
        }
    }
}
