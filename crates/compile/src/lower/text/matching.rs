//! Matches of a text with LIKE or a regular expression, some bytes at a time: between two steps all that is known of a match is in a few
//! registers, so that a lane can stop, and lanes can look at texts of other rows in the meantime (`operator/match_refill`).
//!
//! A *regular expression* keeps the place and the state of its automaton. A *pattern of pieces*, between which anything may stand, keeps
//! the place, the piece that is looked for from there, and where that begins in the pattern; what the text begins and ends with is
//! compared before the first step, as it takes no longer for long texts. A step ends with the piece that it finds. Patterns without `%`,
//! or with one at the end or the beginning alone, are decided by that comparison, and have no steps. Where `_` stands in a pattern it is
//! compared character by character, with the place of the last `%` to go back to.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, CompareOp, Scalar, Type};

use super::like::{ANY_TEXT, Pieces, Places, Shape, encode};
use super::words::{NOWHERE, equal_function, find_function};
use super::{byte, increment};
use crate::context::{Case, Constant, Context, Text, Unsupported};
use crate::expr::dfa::{FIRST, MATCH, Regex};
use crate::expr::{Expr, ExprKind};
use crate::lower::literal::text_of_bytes;
use crate::types::Literal;

/// Bytes of a step of an automaton, each of which costs some six instructions and waits for two loads. Few steps of 16 go beyond the end
/// of a text that is worth a step, and beside them the vote that follows a step hardly counts.
const AUTOMATON_BYTES: u32 = 16;
/// Places of a step at which a piece is looked for: eight of them are sorted out at once, so that fewer would be no work.
const PIECE_PLACES: u32 = 32;
/// Turns of a step through a pattern with `_`: as many as an automaton's bytes.
const GENERAL_TURNS: u32 = AUTOMATON_BYTES;
/// In place of the place in a pattern with `_`: the text matches.
const FOUND: u32 = u32::MAX - 1;
/// In place of that, or of the number of the piece that is looked for: the text does not match.
const FAILED: u32 = u32::MAX;

/// A match that can be looked for some bytes at a time.
#[derive(Debug)]
pub(crate) struct Matching {
    how: How,
    /// Whether rows are wanted that do not match.
    negated: bool,
}

#[derive(Debug)]
enum How {
    Automaton(Regex),
    /// An encoded pattern.
    Pieces(Vec<u8>),
    /// An encoded pattern in which `_` stands.
    General(Vec<u8>),
}

/// What is known of a match behind a step, `bool` each.
pub(crate) struct Verdict {
    /// Whether it is known if the condition holds.
    pub is_decided: V,
    /// Whether it does, where that is known.
    pub holds: V,
}

impl Matching {
    /// The text that a condition looks at, and how, where a long text takes many steps.
    pub(crate) fn of(condition: &Expr) -> Option<(&Expr, Matching)> {
        match &condition.kind {
            ExprKind::Not(input) => {
                let (text, Matching { how, negated }) = Matching::of(input)?;
                Some((text, Matching { how, negated: !negated }))
            }
            ExprKind::Regex { input, regex, negated } => {
                Some((input, Matching { how: How::Automaton(regex.clone()), negated: *negated }))
            }
            ExprKind::Like { input, pattern, negated, case_insensitive: false } => {
                let ExprKind::Literal(Literal::Utf8(pattern)) = &pattern.kind else { return None };
                let (bytes, shape) = encode(pattern);
                let gaps = bytes.iter().filter(|byte| **byte == ANY_TEXT).count();
                let how = match shape {
                    Shape::Contains => How::Pieces([&[ANY_TEXT][..], &bytes, &[ANY_TEXT]].concat()),
                    Shape::Pieces if gaps > 1 => How::Pieces(bytes),
                    Shape::General if gaps > 0 => How::General(bytes),
                    _ => return None,
                };
                Some((input, Matching { how, negated: *negated }))
            }
            _ => None,
        }
    }

    /// The registers that a match of a text begins with. All that is read of the text is within it.
    pub(crate) fn begin(&self, cx: &mut Context<'_>, text: &Text) -> Result<Vec<V>, Unsupported> {
        if text.case != Case::Keep {
            return Err(Unsupported::internal("steps through a text whose case is changed"));
        }
        Ok(match &self.how {
            How::Automaton(regex) => {
                let start = cx.constant(Constant::Int(Scalar::U32, regex.start.into()));
                let place = cx.builder.u32(0);
                vec![text.data, text.length, place, start]
            }
            How::Pieces(encoded) => begin_pieces(cx, encoded, text),
            How::General(_) => {
                let (zero, no) = (cx.builder.u32(0), cx.builder.bool(false));
                vec![text.data, text.length, zero, zero, no, zero, zero]
            }
        })
    }

    /// A step of a match in registers ([`Matching::begin`]) that is not decided. At any control flow.
    pub(crate) fn step(&self, cx: &mut Context<'_>, registers: &[Var]) -> Result<Verdict, Unsupported> {
        let (is_decided, is_match) = match (&self.how, registers) {
            (How::Automaton(regex), &[data, length, place, state]) => {
                step_automaton(cx, regex, (data, length), (place, state))
            }
            (How::Pieces(encoded), &[data, end, place, piece, in_pattern]) => {
                step_pieces(cx, encoded, (data, end), [place, piece, in_pattern])
            }
            (How::General(encoded), &[data, length, at, in_pattern, has_retry, retry_at, retry_pattern]) => {
                let places = Places { at, in_pattern, has_retry, retry_at, retry_pattern };
                step_general(cx, encoded, (data, length), &places)
            }
            _ => return Err(Unsupported::internal("a match in other registers than it begins with")),
        };
        let holds = if self.negated { cx.builder.not(is_match) } else { is_match };
        Ok(Verdict { is_decided, holds })
    }
}

/// Whether it is decided, and whether there is a match.
fn step_automaton(
    cx: &mut Context<'_>,
    regex: &Regex,
    (data, length): (Var, Var),
    (place, state): (Var, Var),
) -> (V, V) {
    let classes = cx.shared_bytes(&regex.classes);
    let table = cx.shared_bytes(&regex.table);
    let table = cx.builder.bitcast(table, Type::global(Scalar::U16));
    let end_class = cx.constant(Constant::Int(Scalar::U32, regex.end_class.into()));
    let b = &mut *cx.builder;
    let successor = |b: &mut kelpie_kir::Builder, state: V, class: V| {
        let next = b.add(state, class);
        let next = b.element(table, next);
        b.convert(next, Scalar::U32)
    };
    let (data, length, start) = (b.read(data), b.read(length), b.read(place));
    let (first, most) = (b.u32(FIRST.into()), b.u32(AUTOMATON_BYTES));
    let rest = b.sub(length, start);
    let bytes = b.binary(BinaryOp::Min, rest, most);
    let end = b.add(start, bytes);
    b.begin_loop();
    let (current, at) = (b.read(state), b.read(place));
    let (is_special, is_end) = (b.lt(current, first), b.ge(at, end));
    let ends = b.or(is_special, is_end);
    b.break_if(ends);
    let byte = byte(b, data, at, Case::Keep);
    let class = b.element(classes, byte);
    let class = b.convert(class, Scalar::U32);
    let next = successor(b, current, class);
    b.assign(state, next);
    increment(b, place);
    b.end();
    let (current, at) = (b.read(state), b.read(place));
    let (is_open, is_end) = (b.ge(current, first), b.ge(at, length));
    let is_through = b.and(is_open, is_end);
    b.begin_if(is_through);
    let last = successor(b, current, end_class);
    b.assign(state, last);
    b.end();
    let (current, found) = (b.read(state), b.u32(MATCH.into()));
    (b.lt(current, first), b.eq(current, found))
}

/// Compares what the text begins and ends with.
fn begin_pieces(cx: &mut Context<'_>, encoded: &[u8], text: &Text) -> Vec<V> {
    let Pieces { pattern, lengths, count } = Pieces::of(cx, encoded);
    let equal = equal_function(cx);
    let b = &mut *cx.builder;
    let (zero, one, failed) = (b.u32(0), b.u32(1), b.u32(FAILED));
    let last = b.sub(count, one);
    let (prefix, suffix) = (b.element(lengths, zero), b.element(lengths, last));
    let outer = b.add(prefix, suffix);
    let end = b.sub(text.length, suffix);
    let piece = b.var_of("piece", failed);
    let fits = b.ge(text.length, outer);
    b.begin_if(fits);
    let starts = b.call(equal, &[text.data, prefix, pattern.data, prefix]);
    b.begin_if(starts);
    let pattern_end = b.sub(pattern.length, suffix);
    let (text_suffix, pattern_suffix) = (b.offset(text.data, end), b.offset(pattern.data, pattern_end));
    let ends = b.call(equal, &[text_suffix, suffix, pattern_suffix, suffix]);
    let first = b.select(ends, one, failed);
    b.assign(piece, first);
    b.end();
    b.end();
    let piece = b.read(piece);
    vec![text.data, end, prefix, piece, prefix]
}

/// Looks for the next piece at some places. Whether it is decided, and whether there is a match.
fn step_pieces(
    cx: &mut Context<'_>,
    encoded: &[u8],
    (data, end): (Var, Var),
    [place, piece, in_pattern]: [Var; 3],
) -> (V, V) {
    let Pieces { pattern, lengths, count } = Pieces::of(cx, encoded);
    let find = find_function(cx);
    let b = &mut *cx.builder;
    let (one, places, failed) = (b.u32(1), b.u32(PIECE_PLACES), b.u32(FAILED));
    let (last, number) = (b.sub(count, one), b.read(piece));
    let is_open = b.lt(number, last);
    b.begin_if(is_open);
    let (data, at, offset) = (b.read(data), b.read(place), b.read(in_pattern));
    let (end, width) = (b.read(end), b.element(lengths, number));
    let wanted = b.offset(pattern.data, offset);
    // The piece may begin at one of the places, and be there as a whole. The place is never beyond the end.
    let (rest, others) = (b.sub(end, at), b.sub(width, one));
    let reach = b.add(places, others);
    let reach = b.binary(BinaryOp::Min, reach, rest);
    let limit = b.add(at, reach);
    let found = b.call(find, &[data, limit, wanted, width, at]);
    let is_missing = b.eq_int(found, NOWHERE);
    b.begin_if(is_missing);
    let is_end = b.eq(reach, rest);
    let (further, number_now) = (b.add(at, places), b.select(is_end, failed, number));
    b.assign(place, further);
    b.assign(piece, number_now);
    b.begin_else();
    let (behind, next, next_offset) = (b.add(found, width), b.add(number, one), b.add(offset, width));
    b.assign(place, behind);
    b.assign(piece, next);
    b.assign(in_pattern, next_offset);
    b.end();
    b.end();
    let number = b.read(piece);
    (b.compare(CompareOp::Ge, number, last), b.eq(number, last))
}

/// Compares some characters. Whether it is decided, and whether there is a match.
fn step_general(cx: &mut Context<'_>, encoded: &[u8], (data, length): (Var, Var), places: &Places) -> (V, V) {
    let pattern = text_of_bytes(cx, encoded);
    let b = &mut *cx.builder;
    let (data, length) = (b.read(data), b.read(length));
    let [zero, one, turns, found, failed] = [0, 1, GENERAL_TURNS, FOUND, FAILED].map(|number| b.u32(number));
    let left = b.var_of("left", turns);
    b.begin_loop();
    let (at, position, turns) = (b.read(places.at), b.read(places.in_pattern), b.read(left));
    // Behind a `%` at the end of the pattern any text may follow.
    let gap = b.read(places.retry_pattern);
    let (is_rest, is_failed) = (b.eq(gap, pattern.length), b.eq(position, failed));
    let (is_end, is_enough) = (b.ge(at, length), b.eq(turns, zero));
    let (is_decided, stops) = (b.or(is_rest, is_failed), b.or(is_end, is_enough));
    let ends = b.or(is_decided, stops);
    b.break_if(ends);
    let fewer = b.sub(turns, one);
    b.assign(left, fewer);
    places.advance(b, (data, length, Case::Keep), (pattern.data, pattern.length), at, |b, stuck| {
        b.begin_if(stuck);
        b.assign(places.in_pattern, failed);
        b.continue_loop();
        b.end();
    });
    b.end();
    let (at, position, gap) = (b.read(places.at), b.read(places.in_pattern), b.read(places.retry_pattern));
    let (is_rest, is_end) = (b.eq(gap, pattern.length), b.ge(at, length));
    let is_through = b.or(is_rest, is_end);
    let is_open = b.lt(position, found);
    let ends = b.and(is_through, is_open);
    b.begin_if(ends);
    // The text is used up: a `%` is all that may be left.
    let rest = b.sub(pattern.length, position);
    let (is_whole, is_one) = (b.eq(rest, zero), b.eq(rest, one));
    let verdict = b.select(is_whole, found, failed);
    b.assign(places.in_pattern, verdict);
    b.begin_if(is_one);
    let wanted = byte(b, pattern.data, position, Case::Keep);
    let is_any_text = b.eq_int(wanted, ANY_TEXT);
    let verdict = b.select(is_any_text, found, failed);
    b.assign(places.in_pattern, verdict);
    b.end();
    b.end();
    let position = b.read(places.in_pattern);
    (b.ge(position, found), b.eq(position, found))
}
