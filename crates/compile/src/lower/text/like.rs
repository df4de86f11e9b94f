//! LIKE and ILIKE with a constant pattern. The shape of the pattern (exact, prefix, suffix, contains, general) chooses
//! the code, its bytes are arguments.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builder, CompareOp, Function, Handle, Scalar, Type};

use super::words;
use super::{byte, case_name, continues, count_up, function, increment, require_ascii, return_bool_if};
use crate::context::{Case, Constant, Context, Lowered, Repr, Text, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::lower::literal::text_of_bytes;
use crate::lower::value::{boolean, text, unsupported};
use crate::types::Literal;

/// `%` in an encoded pattern: a byte that UTF-8 never has.
pub(in crate::lower) const ANY_TEXT: u8 = 0xFF;
/// `_` in an encoded pattern.
const ANY_CHARACTER: u8 = 0xFE;

/// How a pattern is matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lower) enum Shape {
    Exact,
    Prefix,
    Suffix,
    Contains,
    /// Texts that stand one after the other, `%` between them.
    Pieces,
    General,
}

/// Lowers `input [NOT] [I]LIKE pattern`.
pub(in crate::lower) fn lower(
    cx: &mut Context<'_>,
    input: &Expr,
    pattern: &Expr,
    negated: bool,
    case_insensitive: bool,
) -> Result<Lowered, Unsupported> {
    let value = cx.lower(input)?;
    let mut text = text(&value)?;
    let pattern = match &pattern.kind {
        ExprKind::Literal(Literal::Utf8(pattern)) => pattern,
        ExprKind::Literal(Literal::Null) => {
            let (null, valid) = (cx.builder.bool(false), cx.builder.bool(false));
            return Ok(boolean(null, Some(valid)));
        }
        _ => return unsupported("LIKE with a pattern that is not constant"),
    };
    let (mut bytes, shape) = encode(pattern);
    if case_insensitive {
        if !pattern.is_ascii() {
            return unsupported("ILIKE with a pattern beyond ASCII");
        }
        require_ascii(cx, &text, value.valid);
        bytes.make_ascii_lowercase();
        text.case = Case::Lower;
    }
    let found = match (shape, text.case) {
        (Shape::Pieces, Case::Keep) => match_pieces(cx, &text, &bytes),
        _ => {
            let pattern = text_of_bytes(cx, &bytes);
            match_shape(cx, shape, text, pattern)?
        }
    };
    Ok(boolean(if negated { cx.builder.not(found) } else { found }, value.valid))
}

/// The bytes to look for (with `%` and `_` encoded in a general pattern) and the shape.
pub(in crate::lower) fn encode(pattern: &str) -> (Vec<u8>, Shape) {
    let mut encoded = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.bytes().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            // Several `%` are as one.
            b'%' if encoded.last() == Some(&ANY_TEXT) => {}
            b'%' => encoded.push(ANY_TEXT),
            b'_' => encoded.push(ANY_CHARACTER),
            // A backslash at the end stands for itself.
            b'\\' => encoded.push(bytes.next().unwrap_or(b'\\')),
            other => encoded.push(other),
        }
    }
    let is_plain = |bytes: &[u8]| !bytes.iter().any(|&byte| byte == ANY_TEXT || byte == ANY_CHARACTER);
    match encoded.as_slice() {
        all if is_plain(all) => (encoded, Shape::Exact),
        [ANY_TEXT, middle @ .., ANY_TEXT] if is_plain(middle) => (middle.to_vec(), Shape::Contains),
        [ANY_TEXT, rest @ ..] if is_plain(rest) => (rest.to_vec(), Shape::Suffix),
        [start @ .., ANY_TEXT] if is_plain(start) => (start.to_vec(), Shape::Prefix),
        all if !all.contains(&ANY_CHARACTER) => (encoded, Shape::Pieces),
        _ => (encoded, Shape::General),
    }
}

fn match_shape(cx: &mut Context<'_>, shape: Shape, text: Text, pattern: Text) -> Result<V, Unsupported> {
    let arguments = [text.data, text.length, pattern.data, pattern.length];
    let function = match shape {
        Shape::Exact => {
            let [text, pattern] =
                [text, pattern].map(|text| Lowered { repr: Repr::Text(text), valid: None, range: None });
            return super::compare(cx, CompareOp::Eq, &text, &pattern);
        }
        Shape::Prefix => starts_function(cx, text.case),
        Shape::Suffix => ends_function(cx, text.case),
        Shape::Contains if text.case == Case::Keep => return Ok(contains(cx, &text, &pattern)),
        Shape::Contains => contains_function(cx, text.case),
        Shape::Pieces | Shape::General => general_function(cx, text.case),
    };
    Ok(cx.builder.call(function, &arguments))
}

const PARAMS: [(&str, Type); 4] = [
    ("text", Type::global(Scalar::U8)),
    ("length", Type::U32),
    ("pattern", Type::global(Scalar::U8)),
    ("pattern_length", Type::U32),
];

fn params_of(b: &mut Builder) -> [V; 4] {
    [0, 1, 2, 3].map(|index| b.param(index))
}

/// Whether the text starts with the pattern.
pub(in crate::lower) fn starts_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    affix_function(cx, "text_starts_with", case, |b, _, _| b.u32(0))
}

/// Whether the text ends with the pattern.
pub(in crate::lower) fn ends_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    affix_function(cx, "text_ends_with", case, |b, length, affix| b.sub(length, affix))
}

/// Whether the pattern stands at the place that `start` gives from both lengths.
fn affix_function(
    cx: &mut Context<'_>,
    name: &str,
    case: Case,
    start: impl FnOnce(&mut Builder, V, V) -> V,
) -> Handle<Function> {
    let name = format!("{name}{}", case_name(case));
    function(cx, &name, &PARAMS, Scalar::Bool, |b| {
        let [text, length, pattern, pattern_length] = params_of(b);
        let longer = b.compare(CompareOp::Gt, pattern_length, length);
        return_bool_if(b, longer, false);
        let start = start(b, length, pattern_length);
        count_up(b, pattern_length, |b, index| {
            let place = b.add(start, index);
            let (left, right) = (byte(b, text, place, case), byte(b, pattern, index, Case::Keep));
            let different = b.ne(left, right);
            return_bool_if(b, different, false);
        });
        let found = b.bool(true);
        b.return_value(found);
    })
}

/// Whether a text has another one in it; neither has a case mapping.
pub(in crate::lower) fn contains(cx: &mut Context<'_>, text: &Text, wanted: &Text) -> V {
    let find = words::find_function(cx);
    let zero = cx.builder.u32(0);
    let place = cx.builder.call(find, &[text.data, text.length, wanted.data, wanted.length, zero]);
    cx.builder.ne_int(place, words::NOWHERE)
}

/// Whether a text starts with the first piece of an encoded pattern and ends with the last one (which may be empty),
/// with the others between them.
fn match_pieces(cx: &mut Context<'_>, text: &Text, encoded: &[u8]) -> V {
    let Pieces { pattern, lengths, count } = Pieces::of(cx, encoded);
    let function = pieces_function(cx);
    cx.builder.call(function, &[text.data, text.length, pattern.data, pattern.length, lengths, count])
}

/// The texts of an encoded pattern between its `%`.
pub(in crate::lower) struct Pieces {
    /// One behind the other.
    pub pattern: Text,
    /// The bytes of each, an array of `u32`.
    pub lengths: V,
    /// How many there are, `u32`.
    pub count: V,
}

impl Pieces {
    /// As arguments of the kernel.
    pub(in crate::lower) fn of(cx: &mut Context<'_>, encoded: &[u8]) -> Pieces {
        let pieces: Vec<&[u8]> = encoded.split(|byte| *byte == ANY_TEXT).collect();
        let lengths: Vec<u8> = pieces.iter().flat_map(|piece| (piece.len() as u32).to_le_bytes()).collect();
        let pattern = text_of_bytes(cx, &pieces.concat());
        let lengths = cx.bytes(&lengths);
        let lengths = cx.builder.bitcast(lengths, Type::global(Scalar::U32));
        let count = cx.constant(Constant::Int(Scalar::U32, pieces.len() as i128));
        Pieces { pattern, lengths, count }
    }
}

/// See [`match_pieces`]: each piece between is looked for from the end of the one before, which leaves most to the others.
fn pieces_function(cx: &mut Context<'_>) -> Handle<Function> {
    let (find, equal) = (words::find_function(cx), words::equal_function(cx));
    let mut params = PARAMS.to_vec();
    params.extend([("lengths", Type::global(Scalar::U32)), ("count", Type::U32)]);
    function(cx, "text_like_pieces", &params, Scalar::Bool, |b| {
        let [text, length, pattern, pattern_length] = params_of(b);
        let (lengths, count) = (b.param(4), b.param(5));
        let (zero, one, two) = (b.u32(0), b.u32(1), b.u32(2));
        let last = b.sub(count, one);
        let (prefix, suffix) = (b.element(lengths, zero), b.element(lengths, last));
        let outer = b.add(prefix, suffix);
        let short = b.lt(length, outer);
        return_bool_if(b, short, false);
        let starts = b.call(equal, &[text, prefix, pattern, prefix]);
        let different = b.not(starts);
        return_bool_if(b, different, false);
        let (end, pattern_end) = (b.sub(length, suffix), b.sub(pattern_length, suffix));
        let (text_suffix, pattern_suffix) = (b.offset(text, end), b.offset(pattern, pattern_end));
        let ends = b.call(equal, &[text_suffix, suffix, pattern_suffix, suffix]);
        let different = b.not(ends);
        return_bool_if(b, different, false);
        let (place, in_pattern) = (b.var_of("place", prefix), b.var_of("in_pattern", prefix));
        let between = b.sub(count, two);
        count_up(b, between, |b, index| {
            let index = b.add(index, one);
            next_piece(b, find, (text, end), (pattern, lengths, index), (place, in_pattern));
        });
        let found = b.bool(true);
        b.return_value(found);
    })
}

/// Looks for a piece, given with the lengths of all, in the text up to `end` and from `place` on, which moves behind it as `in_pattern`
/// does in the pattern; the function returns false where there is none.
fn next_piece(
    b: &mut Builder,
    find: Handle<Function>,
    (text, end): (V, V),
    (pattern, lengths, index): (V, V, V),
    (place, in_pattern): (Var, Var),
) {
    let width = b.element(lengths, index);
    let (start, offset) = (b.read(place), b.read(in_pattern));
    let piece = b.offset(pattern, offset);
    let found = b.call(find, &[text, end, piece, width, start]);
    let missing = b.eq_int(found, words::NOWHERE);
    return_bool_if(b, missing, false);
    let (next, offset) = (b.add(found, width), b.add(offset, width));
    b.assign(place, next);
    b.assign(in_pattern, offset);
}

/// Whether a text goes on from `start` with the pieces of a pattern, of which the last one (which may be empty) stands at its end.
pub(in crate::lower) fn rest_function(cx: &mut Context<'_>) -> Handle<Function> {
    let (find, equal) = (words::find_function(cx), words::equal_function(cx));
    let mut params = PARAMS.to_vec();
    params.extend([("lengths", Type::global(Scalar::U32)), ("count", Type::U32), ("start", Type::U32)]);
    function(cx, "text_like_rest", &params, Scalar::Bool, |b| {
        let [text, length, pattern, pattern_length] = params_of(b);
        let (lengths, count, start) = (b.param(4), b.param(5), b.param(6));
        let (zero, one) = (b.u32(0), b.u32(1));
        let between = b.sub(count, one);
        let suffix = b.element(lengths, between);
        let left = b.sub(length, start);
        let short = b.lt(left, suffix);
        return_bool_if(b, short, false);
        let (end, pattern_end) = (b.sub(length, suffix), b.sub(pattern_length, suffix));
        let (text_suffix, pattern_suffix) = (b.offset(text, end), b.offset(pattern, pattern_end));
        let ends = b.call(equal, &[text_suffix, suffix, pattern_suffix, suffix]);
        let different = b.not(ends);
        return_bool_if(b, different, false);
        let (place, in_pattern) = (b.var_of("place", start), b.var_of("in_pattern", zero));
        count_up(b, between, |b, index| {
            next_piece(b, find, (text, end), (pattern, lengths, index), (place, in_pattern));
        });
        let found = b.bool(true);
        b.return_value(found);
    })
}

/// Whether the pattern stands anywhere.
fn contains_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let name = format!("text_contains{}", case_name(case));
    function(cx, &name, &PARAMS, Scalar::Bool, |b| {
        let [text, length, pattern, pattern_length] = params_of(b);
        let longer = b.compare(CompareOp::Gt, pattern_length, length);
        return_bool_if(b, longer, false);
        let last = b.sub(length, pattern_length);
        let places = b.add_int(last, 1);
        count_up(b, places, |b, start| {
            let zero = b.u32(0);
            let matched = b.var_of("matched", zero);
            b.begin_loop();
            let index = b.read(matched);
            let complete = b.ge(index, pattern_length);
            return_bool_if(b, complete, true);
            let place = b.add(start, index);
            let (left, right) = (byte(b, text, place, case), byte(b, pattern, index, Case::Keep));
            let different = b.ne(left, right);
            b.break_if(different);
            increment(b, matched);
            b.end();
        });
        let found = b.bool(false);
        b.return_value(found);
    })
}

/// Any encoded pattern: byte by byte, going back to the last `%` where the text does not go on as the pattern does.
/// Going back only to the last one is enough, as an earlier `%` cannot give the rest more text to match than it had.
fn general_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let name = format!("text_like{}", case_name(case));
    function(cx, &name, &PARAMS, Scalar::Bool, |b| {
        let [text, length, pattern, pattern_length] = params_of(b);
        let (zero, no) = (b.u32(0), b.bool(false));
        let (at, in_pattern) = (b.var_of("at", zero), b.var_of("in_pattern", zero));
        let (has_retry, retry_at) = (b.var_of("has_retry", no), b.var_of("retry_at", zero));
        let retry_pattern = b.var_of("retry_pattern", zero);
        b.begin_loop();
        let place = b.read(at);
        let end = b.ge(place, length);
        b.break_if(end);
        let places = Places { at, in_pattern, has_retry, retry_at, retry_pattern };
        places.advance(b, (text, length, case), (pattern, pattern_length), place, |b, stuck| {
            return_bool_if(b, stuck, false);
        });
        b.end();
        // The text is used up: a `%` is all that may be left.
        let position = b.read(in_pattern);
        let rest = b.sub(pattern_length, position);
        count_up(b, rest, |b, index| {
            let place = b.add(position, index);
            let wanted = byte(b, pattern, place, Case::Keep);
            let needs_text = b.ne_int(wanted, ANY_TEXT);
            return_bool_if(b, needs_text, false);
        });
        let found = b.bool(true);
        b.return_value(found);
    })
}

/// Where a general pattern and a text have been compared up to.
pub(in crate::lower) struct Places {
    /// The place in the text, `u32`.
    pub at: Var,
    /// The place in the pattern, `u32`.
    pub in_pattern: Var,
    /// Whether there was a `%`, `bool`.
    pub has_retry: Var,
    /// How far the text that the last `%` stands for goes by now, `u32`.
    pub retry_at: Var,
    /// The place behind the last `%`, `u32`.
    pub retry_pattern: Var,
}

impl Places {
    /// One turn of a loop over a text, of which there is more at `place`: a byte or character of both, or a `%`, or back to the last one.
    /// `on_stuck` leaves the loop where (`bool`) there was none.
    pub(in crate::lower) fn advance(
        &self,
        b: &mut Builder,
        (text, length, case): (V, V, Case),
        (pattern, pattern_length): (V, V),
        place: V,
        on_stuck: impl FnOnce(&mut Builder, V),
    ) {
        let &Places { at, in_pattern, has_retry, retry_at, retry_pattern } = self;
        let position = b.read(in_pattern);
        let has_pattern = b.lt(position, pattern_length);
        b.begin_if(has_pattern);
        {
            let wanted = byte(b, pattern, position, Case::Keep);
            let is_any_text = b.eq_int(wanted, ANY_TEXT);
            b.begin_if(is_any_text);
            increment(b, in_pattern);
            let (yes, next) = (b.bool(true), b.read(in_pattern));
            b.assign(has_retry, yes);
            b.assign(retry_at, place);
            b.assign(retry_pattern, next);
            b.continue_loop();
            b.end();
            let is_any_character = b.eq_int(wanted, ANY_CHARACTER);
            b.begin_if(is_any_character);
            next_character(b, text, length, at);
            increment(b, in_pattern);
            b.continue_loop();
            b.end();
            let byte = byte(b, text, place, case);
            let same = b.eq(byte, wanted);
            b.begin_if(same);
            increment(b, at);
            increment(b, in_pattern);
            b.continue_loop();
            b.end();
        }
        b.end();
        let can_retry = b.read(has_retry);
        let stuck = b.not(can_retry);
        on_stuck(b, stuck);
        next_character(b, text, length, retry_at);
        let (place, position) = (b.read(retry_at), b.read(retry_pattern));
        b.assign(at, place);
        b.assign(in_pattern, position);
    }
}

/// Moves a position past the character that starts there.
pub(in crate::lower) fn next_character(b: &mut Builder, text: V, length: V, position: Var) {
    increment(b, position);
    b.begin_loop();
    let place = b.read(position);
    let end = b.ge(place, length);
    b.break_if(end);
    let byte = byte(b, text, place, Case::Keep);
    let continues = continues(b, byte);
    let starts = b.not(continues);
    b.break_if(starts);
    increment(b, position);
    b.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_shapes() {
        let cases: [(&str, &[u8], Shape); 14] = [
            ("", b"", Shape::Exact),
            ("abc", b"abc", Shape::Exact),
            ("a\\%", b"a%", Shape::Exact),
            ("a\\\\", b"a\\", Shape::Exact),
            ("a\\", b"a\\", Shape::Exact),
            ("a\\b", b"ab", Shape::Exact),
            ("abc%", b"abc", Shape::Prefix),
            ("%", b"", Shape::Suffix),
            ("%%", b"", Shape::Suffix),
            ("%abc", b"abc", Shape::Suffix),
            ("%abc%", b"abc", Shape::Contains),
            ("a%b", &[b'a', ANY_TEXT, b'b'], Shape::Pieces),
            ("a_", &[b'a', ANY_CHARACTER], Shape::General),
            ("%\\_%", b"_", Shape::Contains),
        ];
        for (pattern, bytes, shape) in cases {
            assert_eq!(encode(pattern), (bytes.to_vec(), shape), "{pattern}");
        }
    }
}
