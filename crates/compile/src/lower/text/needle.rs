//! What a LIKE pattern has between its first two `%`, the *needle*, looked for in the texts of many rows at once: they lie one behind the
//! other, so that vectors go through them without a stop at each text's end. Of the needle the two bytes that are thought to be the
//! rarest are compared first (Langdale, "Teddy", and Mula, "SIMD-friendly algorithms for substring searching", compare two bytes of a
//! needle, too), then all of it. Only then the row is found that a hit lies in, by going on through the offsets; where the needle goes
//! beyond the row's end it is none. What follows the needle in the pattern is looked for in the row alone.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builder, CompareOp, Function, Handle, Pointee, ReduceOp, Scalar, Space, Type, UnaryOp};

use super::function;
use super::like::{ANY_TEXT, Pieces, Shape, encode, rest_function};
use super::words::equal_function;
use crate::context::{Constant, Context, RawTexts};
use crate::expr::{Expr, ExprKind};
use crate::lower::literal::text_of_bytes;
use crate::types::Literal;

/// Bytes of a vector.
const LANES: u8 = 16;
/// Vectors of which it is asked at once whether one has a hit.
const VECTORS: u8 = 4;
/// Places that they look at.
const WINDOW: u64 = LANES as u64 * VECTORS as u64;
/// Offsets that are passed over at once.
const ROWS_AT_ONCE: i64 = 8;
/// Bytes that may be written behind the marks of a batch's rows.
pub(crate) const MORE_MARKS: u32 = LANES as u32;
/// Letters from the most frequent to the rarest, in English.
const LETTERS: &[u8; 26] = b"etaoinshrdlcumwfgypbvkjxqz";

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needle {
    bytes: Vec<u8>,
    /// The encoded pattern behind it and a `%`; `None` where any text may follow.
    rest: Option<Vec<u8>>,
}

/// A condition on a column's texts that a needle decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeedleCondition {
    pub column: usize,
    pub needle: Needle,
    /// Whether rows are wanted that do not match.
    pub negated: bool,
}

impl NeedleCondition {
    /// What a condition looks for, or why it is not by a needle; `None` where it is no LIKE with a constant pattern.
    pub(crate) fn of(condition: &Expr) -> Option<Result<NeedleCondition, &'static str>> {
        match &condition.kind {
            ExprKind::Not(input) => {
                let condition = NeedleCondition::of(input)?;
                Some(condition.map(|found| NeedleCondition { negated: !found.negated, ..found }))
            }
            ExprKind::Like { input, pattern, negated, case_insensitive } => {
                let ExprKind::Literal(Literal::Utf8(pattern)) = &pattern.kind else { return None };
                Some(match (&input.kind, Needle::of(pattern)) {
                    (ExprKind::Column(_), _) if *case_insensitive => {
                        Err("case does not matter in the pattern")
                    }
                    (ExprKind::Column(column), needle) => {
                        needle.map(|needle| NeedleCondition { column: *column, needle, negated: *negated })
                    }
                    _ => Err("the text is computed"),
                })
            }
            _ => None,
        }
    }
}

impl Needle {
    /// That of a pattern, or why it has none.
    fn of(pattern: &str) -> Result<Needle, &'static str> {
        let (encoded, shape) = encode(pattern);
        let needle = match shape {
            Shape::Contains => Needle { bytes: encoded, rest: None },
            Shape::Pieces => {
                let mut pieces = encoded.splitn(3, |byte| *byte == ANY_TEXT);
                let (start, first, rest) = (pieces.next(), pieces.next(), pieces.next());
                match (start, first, rest) {
                    (Some([]), Some(first), Some(rest)) => {
                        Needle { bytes: first.to_vec(), rest: Some(rest.to_vec()) }
                    }
                    _ => return Err("the pattern does not begin with %"),
                }
            }
            Shape::General => return Err("_ stands in the pattern"),
            Shape::Exact | Shape::Prefix | Shape::Suffix => {
                return Err("the pattern has nothing between two %");
            }
        };
        match needle.bytes.len() {
            0 | 1 => Err("what the pattern has between two % is shorter than two bytes"),
            _ => Ok(needle),
        }
    }

    pub(in crate::lower) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoded pattern behind it and a `%`; `None` where any text may follow.
    pub(in crate::lower) fn rest(&self) -> Option<&[u8]> {
        self.rest.as_deref()
    }

    /// The two places of bytes that are compared first.
    fn rarest(&self) -> [usize; 2] {
        let mut places: Vec<usize> = (0..self.bytes.len()).collect();
        places.sort_by_key(|place| self.bytes.get(*place).map(|byte| frequency(*byte)));
        match places[..] {
            [first, second, ..] => [first, second],
            _ => [0, 0],
        }
    }

    /// Makes ready to look for it in a column: before the loop over batches, as it does not change.
    pub(crate) fn begin(&self, cx: &mut Context<'_>, texts: &RawTexts) -> Finder {
        let (data, offsets) = cx.raw_texts(texts);
        let needle = text_of_bytes(cx, &self.bytes);
        let mut search = vec![data, offsets, needle.data, needle.length];
        for place in self.rarest() {
            let byte = self.bytes.get(place).copied().unwrap_or_default();
            search.push(cx.constant(Constant::Int(Scalar::U32, place as i128)));
            search.push(cx.constant(Constant::Int(Scalar::U8, byte.into())));
        }
        let (mut word, mut mask) = ([0; 8], [0; 8]);
        for (byte, (word, mask)) in self.bytes.iter().zip(word.iter_mut().zip(&mut mask)) {
            (*word, *mask) = (*byte, u8::MAX);
        }
        for word in [word, mask] {
            search.push(cx.constant(Constant::Int(Scalar::U64, u64::from_le_bytes(word).into())));
        }
        if let Some(rest) = &self.rest {
            let Pieces { pattern, lengths, count } = Pieces::of(cx, rest);
            search.extend([pattern.data, pattern.length, lengths, count]);
        }
        let function = search_function(cx, texts.offset, self.bytes.len() > 8, self.rest.is_some());
        Finder { function, search }
    }
}

/// How frequent a byte is thought to be in text: more than bytes with lower numbers.
pub(in crate::lower) fn frequency(byte: u8) -> usize {
    let of_letter = |letter: u8| {
        let place = LETTERS.iter().position(|other| *other == letter).unwrap_or(LETTERS.len());
        LETTERS.len() - place
    };
    match byte {
        b' ' => 256,
        b'a'..=b'z' => 128 + of_letter(byte),
        // The first bytes of characters are few different ones in a language.
        0xC0..=0xFF => 127,
        0x80..=0xBF => 126,
        b'0'..=b'9' => 125,
        b'A'..=b'Z' => 64 + of_letter(byte.to_ascii_lowercase()),
        _ => 32,
    }
}

/// A needle that is looked for.
pub(crate) struct Finder {
    function: Handle<Function>,
    /// The function's arguments that are the same for all rows.
    search: Vec<V>,
}

impl Finder {
    /// Sets a byte of `marks`, one a row of `from..to`, to 1 where the row's text matches and to 0 where it does not; of rows that are
    /// NULL to any of these. Whether one matches, `bool`.
    pub(crate) fn mark(&self, cx: &mut Context<'_>, (from, to): (V, V), marks: V) -> V {
        let arguments = [&[from, to, marks], &self.search[..]].concat();
        cx.builder.call(self.function, &arguments)
    }
}

/// What a search is about.
struct Search {
    data: V,
    offsets: V,
    /// The first row, and the end of the rows.
    rows: (V, V),
    marks: V,
    needle: V,
    needle_length: V,
    /// The first eight bytes of the needle, and which of them count.
    word: V,
    mask: V,
    /// Who compares needles of more bytes.
    equal: Option<Handle<Function>>,
    /// Who looks for the rest of the pattern, and its pattern, length, lengths of pieces and their number.
    rest: Option<(Handle<Function>, [V; 4])>,
}

/// The variables of a search.
struct State {
    /// Where it goes on, `u64`.
    place: Var,
    /// Places from `base` on that are to be looked at, a bit each.
    open: Var,
    base: Var,
    /// The row that the last hit was in, or one before, `i64`.
    row: Var,
    is_found: Var,
}

/// See [`Finder::mark`].
fn search_function(cx: &mut Context<'_>, offset: Scalar, is_long: bool, has_rest: bool) -> Handle<Function> {
    let equal = is_long.then(|| equal_function(cx));
    let rest = has_rest.then(|| rest_function(cx));
    let bytes = Type::global(Scalar::U8);
    let u64 = Type::Scalar(Scalar::U64);
    let mut params = vec![
        ("from", Type::I64),
        ("to", Type::I64),
        ("marks", Type::Ptr(Space::Shared, Pointee::Scalar(Scalar::U8))),
        ("text", bytes),
        ("offsets", Type::global(offset)),
        ("needle", bytes),
        ("needle_length", Type::U32),
        ("first_place", Type::U32),
        ("first", Type::Scalar(Scalar::U8)),
        ("second_place", Type::U32),
        ("second", Type::Scalar(Scalar::U8)),
        ("word", u64),
        ("mask", u64),
    ];
    if has_rest {
        let lengths = Type::global(Scalar::U32);
        params.extend([
            ("rest", bytes),
            ("rest_length", Type::U32),
            ("lengths", lengths),
            ("count", Type::U32),
        ]);
    }
    let name = format!(
        "texts_search_{}{}{}",
        offset.name(),
        if is_long { "_long" } else { "" },
        if has_rest { "_rest" } else { "" }
    );
    function(cx, &name, &params, Scalar::Bool, |b| {
        let search = Search {
            rows: (b.param(0), b.param(1)),
            marks: b.param(2),
            data: b.param(3),
            offsets: b.param(4),
            needle: b.param(5),
            needle_length: b.param(6),
            word: b.param(11),
            mask: b.param(12),
            equal,
            rest: rest.map(|rest| (rest, [13, 14, 15, 16].map(|index| b.param(index)))),
        };
        let rare = [7, 9].map(|index| {
            let (place, byte) = (b.param(index), b.param(index + 1));
            (b.offset(search.data, place), b.splat(byte, LANES))
        });
        search.build(b, rare);
    })
}

impl Search {
    /// The function's body. `rare`: where the bytes that are compared first are looked for at place 0, and vectors of them.
    fn build(&self, b: &mut Builder, rare: [(V, V); 2]) {
        self.clear(b);
        let [start, end] = [self.rows.0, self.rows.1].map(|row| self.offset_of(b, row));
        let width = b.convert(self.needle_length, Scalar::U64);
        let bytes = b.sub(end, start);
        let is_short = b.lt(bytes, width);
        b.begin_if(is_short);
        let nothing = b.bool(false);
        b.return_value(nothing);
        b.end();
        // The end of the places where a needle may begin.
        let last = b.sub(end, width);
        let limit = b.add_int(last, 1);
        let (none, no) = (b.u64(0), b.bool(false));
        let state = State {
            place: b.var_of("place", start),
            open: b.var_of("open", none),
            base: b.var_of("base", start),
            row: b.var_of("row", self.rows.0),
            is_found: b.var_of("is_found", no),
        };
        b.begin_loop();
        let current = b.read(state.place);
        let done = b.ge(current, limit);
        b.break_if(done);
        b.assign(state.open, none);
        let window_end = b.add_int(current, WINDOW);
        let is_last = b.lt(limit, window_end);
        b.begin_if(is_last);
        // A vector may go beyond the last text by less than its own bytes, where there is always something to read.
        b.assign(state.base, current);
        let hits = hits(b, rare, current);
        let bits = b.mask_bits(hits);
        let bits = b.convert(bits, Scalar::U64);
        b.assign(state.open, bits);
        let next = b.add_int(current, LANES);
        b.assign(state.place, next);
        b.begin_else();
        next_window(b, &state, rare, limit);
        b.end();
        self.look_at_hits(b, &state, (width, limit));
        b.end();
        let is_found = b.read(state.is_found);
        b.return_value(is_found);
    }

    /// No row matches yet.
    fn clear(&self, b: &mut Builder) {
        let (from, to) = self.rows;
        let (rows, zero, step) = (b.sub(to, from), b.i64(0), b.i64(LANES.into()));
        let zeros = b.zero_vector(Scalar::U8, LANES);
        let index = b.var_of("index", zero);
        b.begin_loop();
        let current = b.read(index);
        let done = b.ge(current, rows);
        b.break_if(done);
        let marks = b.offset(self.marks, current);
        b.store_vector(marks, zeros);
        let next = b.add(current, step);
        b.assign(index, next);
        b.end();
    }

    /// Where the text of a row begins.
    fn offset_of(&self, b: &mut Builder, row: V) -> V {
        let offset = b.element(self.offsets, row);
        b.convert(offset, Scalar::U64)
    }

    /// Looks at open places one after the other. Where a text matches, or what the pattern has behind the needle is not there, the
    /// search goes on with the next text: a later needle has no more text behind it.
    fn look_at_hits(&self, b: &mut Builder, state: &State, (width, limit): (V, V)) {
        b.begin_loop();
        let (open, none) = (b.read(state.open), b.u64(0));
        let is_done = b.eq(open, none);
        b.break_if(is_done);
        let one = b.u64(1);
        let less = b.sub(open, one);
        let others = b.and(open, less);
        b.assign(state.open, others);
        let index = b.unary(UnaryOp::Ffs, open);
        let index = b.convert(index, Scalar::U64);
        let index = b.sub(index, one);
        let base = b.read(state.base);
        let hit = b.add(base, index);
        let is_beyond = b.ge(hit, limit);
        b.break_if(is_beyond);
        self.continue_unless_needle(b, hit);
        let row = self.row_of(b, state.row, hit);
        let next_row = b.i64(1);
        let next_row = b.add(row, next_row);
        let text_end = self.offset_of(b, next_row);
        let hit_end = b.add(hit, width);
        let crosses = b.lt(text_end, hit_end);
        continue_if(b, crosses);
        b.assign(state.place, text_end);
        let matches = match self.rest {
            None => b.bool(true),
            Some((rest, [pattern, pattern_length, lengths, count])) => {
                let text_start = self.offset_of(b, row);
                let text = b.offset(self.data, text_start);
                let [length, start] = [text_end, hit_end].map(|end| {
                    let bytes = b.sub(end, text_start);
                    b.convert(bytes, Scalar::U32)
                });
                b.call(rest, &[text, length, pattern, pattern_length, lengths, count, start])
            }
        };
        let mark = b.sub(row, self.rows.0);
        let mark = b.offset(self.marks, mark);
        let (yes, no) = (b.int(Scalar::U8, 1), b.int(Scalar::U8, 0));
        let value = b.select(matches, yes, no);
        b.store(mark, value);
        let known = b.read(state.is_found);
        let is_found = b.or(known, matches);
        b.assign(state.is_found, is_found);
        b.break_loop();
        b.end();
    }

    /// Goes on with the next turn of a loop where the needle does not stand at a place.
    fn continue_unless_needle(&self, b: &mut Builder, place: V) {
        let here = b.offset(self.data, place);
        let word = b.load_bytes(here);
        let word = b.and(word, self.mask);
        let is_other = b.ne(word, self.word);
        continue_if(b, is_other);
        if let Some(equal) = self.equal {
            let found = b.call(equal, &[here, self.needle_length, self.needle, self.needle_length]);
            let is_other = b.not(found);
            continue_if(b, is_other);
        }
    }

    /// The row that has the byte at a place: `row`, which becomes it, or one behind that.
    fn row_of(&self, b: &mut Builder, row: Var, place: V) -> V {
        for step in [ROWS_AT_ONCE, 1] {
            b.begin_loop();
            let (current, step) = (b.read(row), b.i64(step));
            let next = b.add(current, step);
            // The last row's end is beyond the place: single steps end there.
            let is_beyond = b.compare(CompareOp::Gt, next, self.rows.1);
            b.break_if(is_beyond);
            let offset = self.offset_of(b, next);
            let is_behind = b.compare(CompareOp::Gt, offset, place);
            b.break_if(is_behind);
            b.assign(row, next);
            b.end();
        }
        b.read(row)
    }
}

/// At which of the places of a vector, from `place` on, both bytes stand: a mask.
fn hits(b: &mut Builder, rare: [(V, V); 2], place: V) -> V {
    let [first, second] = rare.map(|(bytes, wanted)| {
        let pointer = b.offset(bytes, place);
        let bytes = b.load_vector_read_only(pointer, LANES);
        b.eq(bytes, wanted)
    });
    b.and(first, second)
}

/// Goes through the windows before `limit` up to the first one that has hits, which become the open places, and moves the place
/// behind it.
fn next_window(b: &mut Builder, state: &State, rare: [(V, V); 2], limit: V) {
    b.begin_loop();
    let current = b.read(state.place);
    let masks: Vec<V> = (0..VECTORS)
        .map(|index| {
            let place = b.add_int(current, u64::from(index) * u64::from(LANES));
            hits(b, rare, place)
        })
        .collect();
    let window = b.u64(WINDOW);
    let next = b.add(current, window);
    b.assign(state.place, next);
    let union = masks.iter().copied().reduce(|a, mask| b.or(a, mask));
    let has_hits = match union {
        Some(union) => b.reduce(ReduceOp::Any, union),
        None => b.bool(false),
    };
    b.begin_if(has_hits);
    b.assign(state.base, current);
    let mut open = b.u64(0);
    for (index, mask) in masks.into_iter().enumerate() {
        let bits = b.mask_bits(mask);
        let bits = b.convert(bits, Scalar::U64);
        let bits = b.shl_int(bits, index as u64 * u64::from(LANES));
        open = b.or(open, bits);
    }
    b.assign(state.open, open);
    b.end();
    b.break_if(has_hits);
    let next_end = b.add(next, window);
    let is_last = b.lt(limit, next_end);
    b.break_if(is_last);
    b.end();
}

/// `if condition { continue }`
fn continue_if(b: &mut Builder, condition: V) {
    b.begin_if(condition);
    b.continue_loop();
    b.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_needles() {
        let needle = |pattern| Needle::of(pattern).map(|Needle { bytes, rest }| (bytes, rest));
        assert_eq!(needle("%fox%"), Ok((b"fox".to_vec(), None)));
        assert_eq!(needle("%a\\%b%"), Ok((b"a%b".to_vec(), None)));
        assert_eq!(needle("%ab%cd%"), Ok((b"ab".to_vec(), Some(vec![b'c', b'd', ANY_TEXT]))));
        assert_eq!(needle("%ab%c"), Ok((b"ab".to_vec(), Some(b"c".to_vec()))));
        for pattern in ["fox", "fox%", "%fox", "a%b%c", "%a%", "%%", "%a%bc%", "%f_x%", ""] {
            assert!(needle(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn rare_bytes_are_compared_first() {
        let rarest = |bytes: &[u8]| Needle { bytes: bytes.to_vec(), rest: None }.rarest();
        assert_eq!(rarest(b"fox"), [2, 0]);
        assert_eq!(rarest(b"special"), [1, 3]);
        assert_eq!(rarest(b" e"), [1, 0]);
    }
}
