//! The rows of CSV: where their values stand in the text.
//!
//! Values are cut as the crate `csv` cuts them: a row ends with a line feed, a carriage return or both, rows of nothing are left out, a quote
//! at the beginning of a value is closed by the next one that stands alone, and anywhere else it is a sign as any other. But text is
//! looked at eight bytes at a time, and only where one of the signs is that may end a value, byte by byte; nothing is copied.

use std::borrow::Cow;
use std::io::{self, Read};
use std::ops::Range;

use kelpie_datafusion::Quoting;

/// Bytes of text that are cut at once.
const TEXT_BYTES: usize = 1 << 20;
/// The most bytes of a row, whose places have 32 bits.
const MAX_ROW_BYTES: usize = 1 << 30;
/// Bytes whose signs are found at once.
const BLOCK_BYTES: usize = 64;

/// Why a text has no more rows.
#[derive(Debug)]
pub(super) enum RowError {
    Io(io::Error),
    /// A row has another number of values than the others.
    Values {
        found: usize,
        columns: usize,
    },
    NotUtf8,
    OpenQuote,
    TooLong,
}

impl From<io::Error> for RowError {
    fn from(error: io::Error) -> RowError {
        RowError::Io(error)
    }
}

/// How rows are cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    pub quoting: Quoting,
    /// Values of a row; those of the first one where nothing is said.
    pub columns: Option<usize>,
    /// Whether values may be missing at the end of a row.
    pub may_be_short: bool,
}

/// Where a value stands in the text of its rows.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    start: u32,
    end: u32,
    /// Whether quotes are among its bytes that are none of the value.
    is_quoted: bool,
}

/// Cuts a text into rows, some at a time.
pub(super) struct CsvRows<R> {
    text: R,
    cut: Cut,
    /// Of each column, whether its values are noted.
    wanted: Vec<bool>,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not cut yet.
    left: Range<usize>,
    is_at_end: bool,
    /// The part of the buffer that has the noted rows.
    cut_text: Range<usize>,
    /// Of each row, its wanted values.
    places: Vec<Place>,
}

impl<R: Read> CsvRows<R> {
    /// The rows of a text that begins with one; `wanted` are columns in order, of which values are noted.
    pub fn new(text: R, cut: Cut, wanted: &[usize]) -> CsvRows<R> {
        let columns = wanted.last().map_or(0, |last| last + 1);
        let wanted = (0..columns).map(|column| wanted.contains(&column)).collect();
        CsvRows {
            text,
            cut,
            wanted,
            buffer: Vec::new(),
            left: 0..0,
            is_at_end: false,
            cut_text: 0..0,
            places: Vec::new(),
        }
    }

    /// The next rows, at most so many; none at the end.
    pub fn advance(&mut self, most: usize) -> Result<Option<CutRows<'_>>, RowError> {
        let rows = loop {
            let rows = self.cut_rows(most)?;
            if rows > 0 {
                break rows;
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.fill()?;
        };
        let text = std::str::from_utf8(&self.buffer[self.cut_text.clone()]).map_err(|_| RowError::NotUtf8)?;
        let width = self.places.len() / rows;
        Ok(Some(CutRows { text, places: &self.places, rows, width, quote: self.cut.quoting.quote }))
    }

    /// Reads on, behind what is not cut yet.
    fn fill(&mut self) -> Result<(), RowError> {
        self.buffer.copy_within(self.left.clone(), 0);
        self.left = 0..self.left.len();
        if self.left.end == self.buffer.len() {
            if self.buffer.len() >= MAX_ROW_BYTES {
                return Err(RowError::TooLong);
            }
            self.buffer.resize((self.buffer.len() * 2).max(TEXT_BYTES), 0);
        }
        while self.left.end < self.buffer.len() {
            match self.text.read(&mut self.buffer[self.left.end..]) {
                Ok(0) => {
                    self.is_at_end = true;
                    break;
                }
                Ok(bytes) => self.left.end += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Notes whole rows, and says how many.
    fn cut_rows(&mut self, most: usize) -> Result<usize, RowError> {
        self.places.clear();
        let Quoting { delimiter, quote } = self.cut.quoting;
        let text = &self.buffer[self.left.clone()];
        let mut row =
            RowOfPlaces { places: &mut self.places, wanted: &self.wanted, cut: &mut self.cut, column: 0 };
        let mut signs = Signs::new(text, [delimiter, quote, b'\n', b'\r']);
        let (mut rows, mut row_start) = (0, 0);
        let mut value = Value::from(0);
        while rows < most
            && let Some(at) = signs.next()
        {
            let sign = text[at];
            if value.is_open {
                if sign != quote || at < value.go_on_at {
                    continue;
                }
                match text.get(at + 1) {
                    Some(next) if *next == quote => (value.has_two, value.go_on_at) = (true, at + 2),
                    None if !self.is_at_end => break,
                    _ => (value.is_open, value.closed_at) = (false, at),
                }
            } else if sign == delimiter {
                row.add(value.place(at));
                value = Value::from(at + 1);
            } else if sign == quote {
                if at == value.start {
                    (value.is_open, value.is_quoted) = (true, true);
                }
            } else if at == row_start {
                // The line feed behind a carriage return, or a line of nothing.
                row_start = at + 1;
                value = Value::from(row_start);
            } else {
                row.add(value.place(at));
                row.end()?;
                (rows, row_start) = (rows + 1, at + 1);
                value = Value::from(row_start);
            }
        }
        if rows < most && self.is_at_end && row_start < text.len() {
            if value.is_open {
                return Err(RowError::OpenQuote);
            }
            row.add(value.place(text.len()));
            row.end()?;
            (rows, row_start) = (rows + 1, text.len());
        }
        // Values of a row that has no end yet are noted again.
        self.places.truncate(rows * self.wanted.iter().filter(|is_wanted| **is_wanted).count());
        self.cut_text = self.left.start..self.left.start + row_start;
        self.left.start += row_start;
        Ok(rows)
    }
}

/// Rows that were cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct CutRows<'a> {
    text: &'a str,
    /// Of each row, its wanted values.
    places: &'a [Place],
    pub rows: usize,
    /// Wanted values of a row.
    width: usize,
    quote: u8,
}

impl<'a> CutRows<'a> {
    /// The values of a wanted column, in the order of the rows; nothing where a delimiter is within a letter.
    pub fn values(self, column: usize) -> impl Iterator<Item = Option<Cow<'a, str>>> {
        self.places.iter().skip(column).step_by(self.width.max(1)).map(move |place| {
            let value = self.text.get(place.start as usize..place.end as usize)?;
            match place.is_quoted {
                true => unquoted(value, self.quote).map(Cow::Owned),
                false => Some(Cow::Borrowed(value)),
            }
        })
    }
}

/// A value that is being cut.
#[derive(Debug)]
struct Value {
    start: usize,
    is_quoted: bool,
    /// Whether what comes next is within its quotes.
    is_open: bool,
    /// Whether two quotes stand for one.
    has_two: bool,
    /// Where the quote stands that closed it.
    closed_at: usize,
    /// Behind two quotes that stand for one.
    go_on_at: usize,
}

impl Value {
    fn from(start: usize) -> Value {
        Value { start, is_quoted: false, is_open: false, has_two: false, closed_at: 0, go_on_at: 0 }
    }

    /// Where it stands when it ends before a byte.
    fn place(&self, end: usize) -> Place {
        let place =
            |start: usize, end: usize, is_quoted| Place { start: start as u32, end: end as u32, is_quoted };
        match self.is_quoted && !self.has_two && self.closed_at + 1 == end {
            true => place(self.start + 1, self.closed_at, false),
            false => place(self.start, end, self.is_quoted),
        }
    }
}

/// The row that is being cut.
struct RowOfPlaces<'a> {
    places: &'a mut Vec<Place>,
    wanted: &'a [bool],
    cut: &'a mut Cut,
    column: usize,
}

impl RowOfPlaces<'_> {
    fn add(&mut self, place: Place) {
        if self.wanted.get(self.column).is_some_and(|is_wanted| *is_wanted) {
            self.places.push(place);
        }
        self.column += 1;
    }

    /// The row has all of its values.
    fn end(&mut self) -> Result<(), RowError> {
        let (found, columns) = (self.column, *self.cut.columns.get_or_insert(self.column));
        if found > columns || (found < columns && !self.cut.may_be_short) {
            return Err(RowError::Values { found, columns });
        }
        while self.column < columns.min(self.wanted.len()) {
            self.add(Place::default());
        }
        self.column = 0;
        Ok(())
    }
}

/// What a value with quotes is: those around it are left out, of two within them one, and what stands behind is taken as it is.
fn unquoted(value: &str, quote: u8) -> Option<String> {
    let (mut bytes, mut is_open) = (Vec::with_capacity(value.len()), true);
    let mut rest = value.as_bytes().get(1..).unwrap_or_default().iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match byte {
            byte if byte != quote || !is_open => bytes.push(byte),
            _ if rest.peek() == Some(&quote) => bytes.extend(rest.next()),
            _ => is_open = false,
        }
    }
    String::from_utf8(bytes).ok()
}

/// The places of four signs in a text, in order.
struct Signs<'a> {
    text: &'a [u8],
    /// Each sign in all bytes of a word.
    patterns: [u64; 4],
    /// Where the block begins that is looked at.
    block: usize,
    /// Of the block's bytes, those that are signs and were not handed out.
    found: u64,
}

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = ONES << 7;
/// Brings the high bits of eight bytes together.
const GATHER: u64 = 0x0002_0408_1020_4081;

impl<'a> Signs<'a> {
    fn new(text: &'a [u8], signs: [u8; 4]) -> Signs<'a> {
        let mut new = Signs { text, patterns: signs.map(|sign| ONES * u64::from(sign)), block: 0, found: 0 };
        new.look();
        new
    }

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.found == 0 {
            self.block += BLOCK_BYTES;
            if self.block >= self.text.len() {
                return None;
            }
            self.look();
        }
        let at = self.block + self.found.trailing_zeros() as usize;
        self.found &= self.found - 1;
        Some(at)
    }

    /// Finds the signs of the block.
    #[inline]
    fn look(&mut self) {
        let rest = self.text.get(self.block..).unwrap_or_default();
        if let Some(block) = rest.first_chunk::<BLOCK_BYTES>() {
            self.found = self.signs_of(block);
            return;
        }
        let mut block = [0; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        // What stands behind the text is none of it.
        self.found = self.signs_of(&block) & ((1 << rest.len()) - 1);
    }

    #[inline]
    fn signs_of(&self, block: &[u8; BLOCK_BYTES]) -> u64 {
        let mut found = 0;
        for (place, word) in block.as_chunks::<8>().0.iter().enumerate() {
            let word = u64::from_le_bytes(*word);
            // The high bit of a byte is set where it differs from the sign.
            let differs = |pattern: &u64| {
                let other = word ^ pattern;
                ((other & !HIGH) + !HIGH) | other
            };
            let [a, b, c, d] = &self.patterns;
            let signs = !(differs(a) & differs(b) & differs(c) & differs(d)) & HIGH;
            found |= ((signs >> 7).wrapping_mul(GATHER << 7) >> 56) << (place * 8);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::{CsvRows, Cut, Quoting, RowError};

    /// A text that comes in pieces of so many bytes.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let bytes = self.1.min(buffer.len());
            (&mut self.0).take(bytes as u64).read(buffer)
        }
    }

    const COMMA: Cut =
        Cut { quoting: Quoting { delimiter: b',', quote: b'"' }, columns: None, may_be_short: false };

    fn rows(text: &[u8], cut: Cut, wanted: &[usize], most: usize) -> Result<Vec<Vec<String>>, RowError> {
        let mut rows = CsvRows::new(Pieces(text, 7), cut, wanted);
        let mut all = Vec::new();
        loop {
            let Some(more) = rows.advance(most)? else { return Ok(all) };
            let begin = all.len();
            all.resize(begin + more.rows, Vec::new());
            for column in 0..wanted.len() {
                for (row, value) in more.values(column).enumerate() {
                    all[begin + row].push(value.expect("whole letters").into_owned());
                }
            }
        }
    }

    /// As the crate `csv` reads them.
    fn by_csv(text: &[u8]) -> Option<Vec<Vec<String>>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text);
        reader.records().map(|row| Some(row.ok()?.iter().map(str::to_string).collect())).collect()
    }

    #[test]
    fn rows_are_those_of_the_csv_crate() {
        // A simple generator: the texts are the same in every run.
        let mut state = 7_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let parts = [
            "a", "bc", "\"", "\"\"", ",", ",", "\n", "\r\n", "\r", "é", " ", "\"x,y\"", "\"\n\"",
            "1234567890",
        ];
        let mut whole = 0;
        for _ in 0..20_000 {
            let text: String = (0..next(40)).map(|_| parts[next(parts.len())]).collect();
            let Some(expected) = by_csv(text.as_bytes()) else { continue };
            let columns: Vec<usize> = (0..expected.first().map_or(0, Vec::len)).collect();
            match rows(text.as_bytes(), COMMA, &columns, 1 + next(5)) {
                // The crate takes the rest of the text for the value.
                Err(RowError::OpenQuote) => {}
                found => {
                    assert_eq!(found.expect("rows"), expected, "{text:?}");
                    whole += usize::from(!expected.is_empty());
                }
            }
        }
        assert!(whole > 1000, "{whole} texts had rows");
    }

    #[test]
    fn values_of_wanted_columns_alone_are_noted() {
        let text = b"a,b,c\n1,\"2,\"\"3\",4\n5,,6";
        let found = rows(text, COMMA, &[1], 2).expect("rows");
        assert_eq!(found, [["b"], ["2,\"3"], [""]]);
        assert_eq!(rows(text, COMMA, &[], 9).expect("rows").len(), 3);
    }

    #[test]
    fn rows_longer_than_the_buffer_are_whole() {
        let long = "x".repeat(3 << 20);
        let text = format!("a,b\n{long},1\n2,\"{long}\"\n");
        let found = rows(text.as_bytes(), COMMA, &[0, 1], 10).expect("rows");
        assert_eq!(found.len(), 3);
        assert!(found[1][0] == long && found[2][1] == long);
    }

    #[test]
    fn what_is_no_row_is_told() {
        let error = |text: &[u8], cut| rows(text, cut, &[0], 10).expect_err("an error");
        assert!(matches!(error(b"a,b\n1\n", COMMA), RowError::Values { found: 1, columns: 2 }));
        assert!(matches!(error(b"a\n1,2\n", COMMA), RowError::Values { found: 2, columns: 1 }));
        assert!(matches!(error(b"a\n\"1\n", COMMA), RowError::OpenQuote));
        assert!(matches!(error(b"a\n\xff\n", COMMA), RowError::NotUtf8));
        let short = Cut { may_be_short: true, ..COMMA };
        assert_eq!(rows(b"a,b\n1\n", short, &[0, 1], 10).expect("rows"), [["a", "b"], ["1", ""]]);
    }
}
