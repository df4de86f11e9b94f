//! Where texts and values of JSON end, found eight bytes at a time.

/// Levels that are told apart by the bits of a word.
const MOST_LEVELS: u32 = u64::BITS;

const LANES: usize = 8;
const ONES: u64 = u64::from_le_bytes([1; LANES]);
const TOPS: u64 = ONES << 7;

/// What a look at a whole text has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checked {
    Valid {
        /// Whether characters are written by their numbers, of which pairs may lack a half.
        has_numbers: bool,
    },
    Wrong,
    /// There are more levels than are looked at here.
    Deep,
}

/// Whether a text is one value of JSON, with blanks around it at most.
pub(super) fn check(text: &str) -> Checked {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0, has_numbers: false };
    scan.blanks();
    match scan.value() {
        Some(Ended::Deep) => Checked::Deep,
        Some(Ended::Whole) if scan.is_at_end() => Checked::Valid { has_numbers: scan.has_numbers },
        _ => Checked::Wrong,
    }
}

/// The tops of the bytes of a word that are equal to one. The lowest that is set is right; others may follow a right one.
fn equal_to(word: u64, byte: u8) -> u64 {
    let differing = word ^ (ONES * u64::from(byte));
    differing.wrapping_sub(ONES) & !differing & TOPS
}

/// The tops of the bytes of a word that are below 32, with the same reservation.
fn below_blank(word: u64) -> u64 {
    word.wrapping_sub(ONES * 0x20) & !word & TOPS
}

/// The first place from one on whose byte is looked for: by words, and where these end by bytes.
fn find(bytes: &[u8], mut at: usize, words: impl Fn(u64) -> u64, is_found: impl Fn(u8) -> bool) -> usize {
    while let Some(next) = bytes.get(at..).and_then(|rest| rest.first_chunk::<LANES>()) {
        let found = words(u64::from_le_bytes(*next));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += LANES;
    }
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(|byte| is_found(*byte)).unwrap_or(rest.len())
}

/// Where a text of letters ends behind its second quote, of which a place behind the first one is given, in what has been checked.
pub(super) fn end_of_letters(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at = find(
            bytes,
            at,
            |word| equal_to(word, b'"') | equal_to(word, b'\\'),
            |byte| matches!(byte, b'"' | b'\\'),
        );
        match bytes.get(at) {
            Some(b'\\') => at += 2,
            Some(_) => return at + 1,
            None => return bytes.len(),
        }
    }
}

/// The next quote or bracket of what has been checked.
pub(super) fn next_mark(bytes: &[u8], at: usize) -> usize {
    // `[` and `]` are `{` and `}` without a bit.
    const BIT: u8 = b'{' ^ b'[';
    let words = |word: u64| {
        let joined = word | (ONES * u64::from(BIT));
        equal_to(word, b'"') | equal_to(joined, b'{') | equal_to(joined, b'}')
    };
    find(bytes, at, words, |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))
}

/// How a value has ended that has nothing wrong.
enum Ended {
    Whole,
    Deep,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    has_numbers: bool,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn is_at_end(&mut self) -> bool {
        self.blanks();
        self.at >= self.bytes.len()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Passes over a value and all that is in it; nothing where it is wrong.
    fn value(&mut self) -> Option<Ended> {
        // Of each level, the innermost in the lowest bit, whether it is an object.
        let (mut objects, mut levels) = (0_u64, 0);
        loop {
            match self.peek()? {
                open @ (b'{' | b'[') => {
                    if levels == MOST_LEVELS {
                        return Some(Ended::Deep);
                    }
                    self.at += 1;
                    self.blanks();
                    let is_object = open == b'{';
                    if self.take(if is_object { b'}' } else { b']' }).is_none() {
                        objects = (objects << 1) | u64::from(is_object);
                        levels += 1;
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b'"' => self.letters()?,
                b't' => self.word(b"true")?,
                b'f' => self.word(b"false")?,
                b'n' => self.word(b"null")?,
                _ => self.number()?,
            }
            loop {
                if levels == 0 {
                    return Some(Ended::Whole);
                }
                self.blanks();
                let is_object = objects & 1 == 1;
                if self.take(b',').is_some() {
                    self.blanks();
                    if is_object {
                        self.key()?;
                    }
                    break;
                }
                self.take(if is_object { b'}' } else { b']' })?;
                (objects, levels) = (objects >> 1, levels - 1);
            }
        }
    }

    /// A key and what stands between it and its value.
    fn key(&mut self) -> Option<()> {
        self.letters()?;
        self.blanks();
        self.take(b':')?;
        self.blanks();
        Some(())
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.bytes.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    fn letters(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            self.at = find(
                self.bytes,
                self.at,
                |word| equal_to(word, b'"') | equal_to(word, b'\\') | below_blank(word),
                |byte| matches!(byte, b'"' | b'\\' | ..0x20),
            );
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.bytes.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let digits = self.bytes.get(self.at + 2..self.at + 6)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return None;
                }
                self.at += 6;
                self.has_numbers = true;
            }
            _ => return None,
        }
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let _ = self.take(b'-');
        if self.take(b'0').is_none() {
            self.digits()?;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    /// One digit at least.
    fn digits(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;

    fn is_valid(text: &str) -> bool {
        matches!(check(text), Checked::Valid { .. })
    }

    #[test]
    fn what_serde_takes_is_valid() {
        let parts = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "\"a\"",
            "\"\\\"\"",
            "\"\\u00e9\"",
            "\"é\\\\ long enough for words\"",
            "1",
            "-0",
            "01",
            "1.5e-7",
            ".",
            "e",
            "true",
            "nul",
            "null",
            " ",
            "\n",
            "\u{c}",
            "\"\u{1}\"",
            "\"\\x\"",
            "\"open",
            "-",
        ];
        let mut state = 7_u64;
        let mut found = [0; 2];
        for _ in 0..200_000 {
            let mut text = String::new();
            for _ in 0..state % 9 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(parts[(state >> 33) as usize % parts.len()]);
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let expected = serde_json::from_str::<IgnoredAny>(&text).is_ok();
            assert_eq!(is_valid(&text), expected, "{text}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|count| *count > 1_000), "{found:?}");
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        for length in 0..20 {
            for place in 0..length {
                for mark in *b"\"{}[]" {
                    let mut bytes = vec![b'z'; length];
                    bytes[place] = mark;
                    assert_eq!(next_mark(&bytes, 0), place);
                }
                let letters: String =
                    (0..length).map(|at| if at == place { '\u{1f}' } else { 'é' }).collect();
                assert!(!is_valid(&format!("\"{letters}\"")));
                let letters: String = (0..length).map(|at| if at == place { "\\\"" } else { "ü" }).collect();
                let text = format!("\"{letters}\"");
                assert!(is_valid(&text));
                assert_eq!(end_of_letters(text.as_bytes(), 1), text.len());
            }
        }
        assert_eq!(check(&"[".repeat(65)), Checked::Deep);
    }
}
