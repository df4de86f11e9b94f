//! Lines of JSON without the keys that nobody asked for: whoever decodes a line looks at each of its bytes several times, and most
//! queries ask for a few keys of many.

use std::io::{self, BufRead, Read};

/// Bytes that are made at once.
const BYTES_AT_ONCE: usize = 1 << 16;
/// Lists and objects within each other that are gone through.
const MAX_DEPTH: usize = 128;

/// The text of some keys of the objects of lines.
pub(super) struct KeysOfLines {
    text: Box<dyn BufRead + Send>,
    keys: Keys,
    line: Vec<u8>,
    /// What was made, and how much of it was taken.
    made: Vec<u8>,
    taken: usize,
}

/// Which keys there are, as they stand between quotes.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys {
    /// Those that are kept.
    pub wanted: Vec<String>,
    /// Those that are left out; nothing where any other is.
    pub known: Option<Vec<String>>,
}

impl KeysOfLines {
    /// The lines of a text, which are whole from its beginning on.
    pub fn new(text: Box<dyn BufRead + Send>, keys: Keys) -> KeysOfLines {
        KeysOfLines { text, keys, line: Vec::new(), made: Vec::new(), taken: 0 }
    }

    fn make(&mut self) -> io::Result<()> {
        (self.made, self.taken) = (std::mem::take(&mut self.made), 0);
        self.made.clear();
        while self.made.len() < BYTES_AT_ONCE {
            self.line.clear();
            if self.text.read_until(b'\n', &mut self.line)? == 0 {
                break;
            }
            let begin = self.made.len();
            if self.keys.keep(self.line.trim_ascii(), &mut self.made).is_none() {
                self.made.truncate(begin);
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line is no object of the keys that are known",
                ));
            }
        }
        Ok(())
    }
}

impl Read for KeysOfLines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.made.len() {
            self.make()?;
        }
        let bytes = (&self.made[self.taken..]).read(buffer)?;
        self.taken += bytes;
        Ok(bytes)
    }
}

impl Keys {
    /// Writes a line's object with the keys that are wanted; nothing where the line is no object, or has a key that nobody knows.
    fn keep(&self, line: &[u8], into: &mut Vec<u8>) -> Option<()> {
        if line.is_empty() {
            return Some(());
        }
        let mut at = blanks(line, expect(line, 0, b'{')?);
        into.push(b'{');
        let (mut is_first, mut place) = (true, 0);
        while line.get(at) != Some(&b'}') {
            if !is_first {
                at = blanks(line, expect(line, at, b',')?);
            }
            let end = text_end(line, at)?;
            let key = line.get(at + 1..end - 1)?;
            let value = blanks(line, expect(line, blanks(line, end), b':')?);
            let value_end = value_end(line, value)?;
            if self.is_wanted(key, &mut place)? {
                if into.last() != Some(&b'{') {
                    into.push(b',');
                }
                into.extend_from_slice(line.get(at..end)?);
                into.push(b':');
                into.extend_from_slice(line.get(value..value_end)?);
            }
            (at, is_first) = (blanks(line, value_end), false);
        }
        into.extend_from_slice(b"}\n");
        (at + 1 == line.len()).then_some(())
    }

    /// Whether a key is kept; nothing where nobody knows it. Most lines have their keys in one order, so it is looked for behind the last one.
    fn is_wanted(&self, key: &[u8], place: &mut usize) -> Option<bool> {
        // What is written by escapes may be any key.
        if memchr::memchr(b'\\', key).is_some() {
            return None;
        }
        if self.wanted.iter().any(|wanted| wanted.as_bytes() == key) {
            return Some(true);
        }
        let Some(known) = &self.known else { return Some(false) };
        let is_here = |place: usize| known.get(place).is_some_and(|known| known.as_bytes() == key);
        if !is_here(*place) {
            *place = known.iter().position(|known| known.as_bytes() == key)?;
        }
        *place += 1;
        Some(false)
    }
}

/// Behind a sign that has to stand somewhere.
fn expect(line: &[u8], at: usize, sign: u8) -> Option<usize> {
    (*line.get(at)? == sign).then_some(at + 1)
}

/// Behind blanks.
fn blanks(line: &[u8], at: usize) -> usize {
    let rest = line.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Behind a text that begins somewhere with its quote.
fn text_end(line: &[u8], at: usize) -> Option<usize> {
    let mut at = expect(line, at, b'"')?;
    loop {
        at += memchr::memchr2(b'"', b'\\', line.get(at..)?)?;
        match line[at] {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

/// Behind a value.
fn value_end(line: &[u8], at: usize) -> Option<usize> {
    match line.get(at)? {
        b'"' => text_end(line, at),
        b'{' | b'[' => nested_end(line, at),
        _ => {
            let rest = line.get(at..)?;
            let length = rest
                .iter()
                .take_while(|byte| !matches!(byte, b',' | b'}' | b']') && !byte.is_ascii_whitespace())
                .count();
            is_scalar(&rest[..length]).then_some(at + length)
        }
    }
}

fn is_scalar(text: &[u8]) -> bool {
    match text.first() {
        Some(b'0'..=b'9' | b'-') => {
            text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
        }
        _ => [&b"true"[..], b"false", b"null"].contains(&text),
    }
}

/// Behind a list or an object, whose brackets close in the order in which they opened.
fn nested_end(line: &[u8], mut at: usize) -> Option<usize> {
    let mut open = Vec::with_capacity(8);
    loop {
        match line.get(at)? {
            b'"' => {
                at = text_end(line, at)?;
                continue;
            }
            opening @ (b'{' | b'[') => open.push(if *opening == b'{' { b'}' } else { b']' }),
            closing @ (b'}' | b']') if open.pop() != Some(*closing) => return None,
            _ => {}
        }
        at += 1;
        if open.is_empty() {
            return Some(at);
        }
        if open.len() > MAX_DEPTH {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{Keys, KeysOfLines};

    fn kept(text: &'static str, wanted: &[&str], known: Option<&[&str]>) -> Option<String> {
        let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let keys = Keys { wanted: own(wanted), known: known.map(own) };
        let mut made = String::new();
        KeysOfLines::new(Box::new(text.as_bytes()), keys).read_to_string(&mut made).ok()?;
        Some(made)
    }

    #[test]
    fn keys_that_nobody_asked_for_are_left_out() {
        for (text, expected) in [
            ("{\"a\":1,\"b\":2}\n", "{\"b\":2}\n"),
            ("  { \"a\" : [1, {\"b\": 9}] , \"b\" : \"x,}\\\"\" }  \r\n\n", "{\"b\":\"x,}\\\"\"}\n"),
            ("{}\n{\"b\":null}", "{}\n{\"b\":null}\n"),
            ("{\"b\":{\"c\":[\"]\"]},\"c\":-1.5e3,\"b\":true}", "{\"b\":{\"c\":[\"]\"]},\"b\":true}\n"),
            ("{\"ü\":\"b\",\"b\":\"ü\"}", "{\"b\":\"ü\"}\n"),
        ] {
            assert_eq!(kept(text, &["b"], None).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_of_known_keys_is_told() {
        for text in [
            "[1]", "{\"a\":1", "{\"a\":1}}", "{\"a\" 1}", "{\"a\":1 \"b\":2}", "{\"a\":tru}", "{\"a\":[1}]}",
            "{a:1}", "{\"a\":\"x}", "{\"\\u0062\":1}", "{\"a\":}", "{,}", "null",
        ] {
            assert_eq!(kept(text, &["b"], None), None, "{text}");
        }
        let known = Some(&["a", "c"][..]);
        assert_eq!(kept("{\"c\":1,\"a\":2,\"b\":3}", &["b"], known).as_deref(), Some("{\"b\":3}\n"));
        assert_eq!(kept("{\"d\":1}", &["b"], known), None);
    }
}
