//! Texts that are keys of a hash table, which the lanes of a warp hash and compare together (push-down parallelism over characters; DogQC,
//! section 3.4).
//!
//! As of texts that a filter compares ([`texts`](super::texts)) the words of a text are numbers of a range, which other lanes take
//! ([`expand`](super::expand)): neighbouring lanes read neighbouring words. Where texts are hashed, what lanes make of
//! the words is summed up for the row's own lane; where they are compared, a vote tells whether a word differs. A row does not change lanes.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::expand::{Ranges, any_by_leaders, sum_by_leaders};
use crate::context::{Context, Lowered, Text, Unsupported};
use crate::lower::{WORD_BYTES, text_equal, text_hash_of_parts, text_hash_part, text_word};
use crate::table::shared_keys::{Found, Together};

/// A step or a sink that finds the keys of rows in a hash table, where lanes look at texts of keys together.
pub(crate) trait KeySearch {
    /// The keys of the current row.
    fn keys(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported>;

    /// Finds the keys of each lane that is `live` (`bool`), at uniform control flow of the warp. `at`: the row of the source (`i64`), and the
    /// number of the first mark that lanes can come by here ([`KeyTexts`]).
    fn find(&self, cx: &mut Context<'_>, keys: (&[Lowered], V), at: (V, u32)) -> Result<Found, Unsupported>;
}

/// How the lanes of a warp take the words of a leader's texts. By a mark come the lanes that have a word to hash, by the next one
/// those that have a pair to compare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyTexts {
    pub mark: u32,
}

impl KeyTexts {
    fn mark(self, cx: &mut Context<'_>, is_compared: bool) {
        if cx.target.counts_marks {
            cx.builder.mark(self.mark + u32::from(is_compared));
        }
    }
}

/// How many words a text of so many bytes (`u32`) has, where it is `active`.
fn words_of(cx: &mut Context<'_>, length: V, active: V) -> V {
    let b = &mut *cx.builder;
    let (zero, width) = (b.u32(0), b.u32(WORD_BYTES));
    // Rounded up without a sum, which may be beyond 32 bits.
    let (whole, rest) = (b.div(length, width), b.rem(length, width));
    let has_rest = b.ne(rest, zero);
    let last = b.convert(has_rest, Scalar::U32);
    let words = b.add(whole, last);
    b.select(active, words, zero)
}

impl Together for KeyTexts {
    fn hashes(&self, cx: &mut Context<'_>, text: &Text, active: V) -> Result<V, Unsupported> {
        let (begin, count) = (cx.builder.u32(0), words_of(cx, text.length, active));
        let ranges = Ranges { begin, count, registers: &[text.data, text.length] };
        let part = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            let [data, length] = registers else { return Err(Unsupported::internal("a text of no address")) };
            let nothing = cx.builder.u64(0);
            let part = cx.builder.var_of("part", nothing);
            cx.begin_if(active);
            let text = Text { data: *data, length: *length, case: text.case, code: None };
            self.mark(cx, false);
            let place = cx.builder.mul_int(number, WORD_BYTES);
            let own = text_hash_part(cx, &text, place);
            cx.builder.assign(part, own);
            cx.end();
            Ok(cx.builder.read(part))
        };
        let sum = sum_by_leaders(cx, &ranges, part)?;
        Ok(text_hash_of_parts(cx, sum, text.length))
    }

    fn differ(&self, cx: &mut Context<'_>, (a, b): (&Text, &Text), active: V) -> Result<V, Unsupported> {
        let (begin, count) = (cx.builder.u32(0), words_of(cx, a.length, active));
        let ranges = Ranges { begin, count, registers: &[a.data, b.data, a.length] };
        let test = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            let [left, right, length] = registers else {
                return Err(Unsupported::internal("texts of no address"));
            };
            let [left, right] = [(left, a.case), (right, b.case)].map(|(data, case)| Text {
                data: *data,
                length: *length,
                case,
                code: None,
            });
            let differs = cx.builder.var("differs", Scalar::Bool);
            let no = cx.builder.bool(false);
            cx.builder.assign(differs, no);
            cx.begin_if(active);
            self.mark(cx, true);
            let other = words_differ(cx, (&left, &right), number);
            cx.builder.assign(differs, other);
            cx.end();
            Ok(cx.builder.read(differs))
        };
        any_by_leaders(cx, &ranges, test)
    }
}

/// Whether the words with a number (`u32`) of two texts of the same length, which is not 0, differ (`bool`). The last word overlaps the one
/// before; texts of less than one are compared as they are. So nothing behind a text is read.
pub(super) fn words_differ(cx: &mut Context<'_>, (a, b): (&Text, &Text), number: V) -> V {
    let differs = cx.builder.var("differs", Scalar::Bool);
    let width = cx.builder.u32(WORD_BYTES);
    let is_short = cx.builder.lt(a.length, width);
    cx.begin_if(is_short);
    let same = text_equal(cx, a, b);
    let other = cx.builder.not(same);
    cx.builder.assign(differs, other);
    cx.begin_else();
    let (last, place) = (cx.builder.sub(a.length, width), cx.builder.mul(number, width));
    let place = cx.builder.binary(BinaryOp::Min, place, last);
    let (left, right) = (text_word(cx, a, place), text_word(cx, b, place));
    let other = cx.builder.ne(left, right);
    cx.builder.assign(differs, other);
    cx.end();
    cx.builder.read(differs)
}
