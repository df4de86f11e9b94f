//! What a LIKE pattern has between its first two `%`, the [needle](super::needle), looked for by the lanes of a warp in the texts of its rows:
//! those of neighbouring rows lie one behind the other, so that the warp goes through them as one run of bytes, neighbouring lanes through
//! neighbouring words (DogQC, section 3.4, has lanes compare the characters of one text; here they have those of all rows).
//!
//! Where each lane goes through the text of its own row, what a warp reads at a time lies in as many places as it has lanes, and lanes wait
//! for the longest text. Of the needle the four neighbouring bytes that are thought to be the rarest are compared first, at the eight places
//! of a lane's word at once; then, by lanes with such a hit, all of the needle. A true hit is shown to all lanes: the one whose text it lies in
//! keeps the first. What follows the needle in the pattern each lane looks for in its own text.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{
    BinaryOp, Builder, Builtin, Expr as Kir, Function, Handle, Scalar, ShuffleMode, Type, UnaryOp,
};

use super::like::{Pieces, rest_function};
use super::needle::Needle;
use super::swar::bits_of;
use super::words::{WORD_BYTES, equal_function};
use super::{count_up, function};
use crate::context::lanes::{any, ballot, count, read_lane};
use crate::context::{Constant, Context, RawTexts};
use crate::lower::literal::text_of_bytes;

/// Bytes that are compared first.
const ANCHOR_BYTES: usize = 4;

/// A row of each lane.
pub(crate) struct WarpRows {
    /// Its number in the table, `i64`: those of neighbouring lanes are neighbours.
    pub row: V,
    /// Whether there is one, `bool`: in the first lanes.
    pub is_there: V,
    /// Whether its text is asked for (`bool`); nowhere where there is no row.
    pub is_wanted: V,
}

/// Where texts lie: bytes from an aligned address at or before the column's first, unsigned and as wide as the column's offsets.
struct Run {
    /// The aligned address, `ptr<global, u8>`.
    base: V,
    /// Of the column's first text.
    column: V,
    /// Of this lane's text, and where it ends.
    own: [V; 2],
    /// Of the warp's texts, and where they end; the same in the warp.
    all: [V; 2],
}

/// A needle in registers.
struct Wanted<'n> {
    needle: &'n Needle,
    /// The bytes that are compared first, `u32`; those that count, where they are fewer than four.
    anchor: (V, Option<V>),
    /// Bytes before these, and all, of the type of places.
    before: V,
    length: V,
}

impl Needle {
    /// The neighbouring bytes that are thought to be the rarest, as far as there are four: where they begin.
    fn anchor(&self) -> usize {
        let frequency = |place: &usize| {
            let own = self.bytes().iter().skip(*place).take(ANCHOR_BYTES);
            own.map(|byte| super::needle::frequency(*byte)).sum::<usize>()
        };
        let places = 0..=self.bytes().len().saturating_sub(ANCHOR_BYTES);
        places.min_by_key(frequency).unwrap_or(0)
    }

    /// Whether the texts of a warp's rows match (`bool`; false where none is wanted). At uniform control flow of the warp, which has
    /// several lanes.
    pub(crate) fn match_of_warp(&self, cx: &mut Context<'_>, texts: &RawTexts, rows: &WarpRows) -> V {
        let places = place_type(texts);
        let b = &mut *cx.builder;
        let (no, none) = (b.bool(false), b.int(places, u64::MAX >> (64 - 8 * places.bytes())));
        let (matches, first) = (b.var_of("matches", no), b.var_of("first_hit", none));
        let any = any(cx, rows.is_wanted);
        cx.begin_if(any);
        let run = Run::of(cx, texts, rows);
        let wanted = Wanted::of(cx, self, places);
        wanted.find(cx, &run, first);
        let b = &mut *cx.builder;
        let (hit, [begin, end]) = (b.read(first), run.own);
        let is_hit = b.ne(hit, none);
        let is_found = b.and(is_hit, rows.is_wanted);
        match self.rest() {
            None => b.assign(matches, is_found),
            Some(rest) => {
                let rest_matches = rest_function(cx);
                let Pieces { pattern, lengths, count } = Pieces::of(cx, rest);
                cx.begin_if(is_found);
                let b = &mut *cx.builder;
                let behind = b.add(hit, wanted.length);
                let [length, start] = [end, behind].map(|place| {
                    let bytes = b.sub(place, begin);
                    b.convert(bytes, Scalar::U32)
                });
                let text = b.offset(run.base, begin);
                let arguments = [text, length, pattern.data, pattern.length, lengths, count, start];
                let found = b.call(rest_matches, &arguments);
                b.assign(matches, found);
                cx.end();
            }
        }
        cx.end();
        cx.builder.read(matches)
    }
}

/// The type of places in the texts of a column.
fn place_type(texts: &RawTexts) -> Scalar {
    if texts.offset.bytes() > 4 { Scalar::U64 } else { Scalar::U32 }
}

impl Run {
    fn of(cx: &mut Context<'_>, texts: &RawTexts, rows: &WarpRows) -> Run {
        let places = place_type(texts);
        let (data, offsets) = cx.raw_texts(texts);
        let mask = ballot(cx, rows.is_there);
        let there = count(cx, mask);
        let b = &mut *cx.builder;
        let address = b.bitcast(data, Scalar::U64);
        let aligned = b.u64(!(u64::from(WORD_BYTES) - 1));
        let aligned = b.binary(BinaryOp::And, address, aligned);
        let column = b.sub(address, aligned);
        let column = b.convert(column, places);
        let base = b.bitcast(aligned, Type::global(Scalar::U8));
        let [begin, end] = ["text_begin", "text_end"].map(|name| b.var_of(name, column));
        cx.begin_if(rows.is_there);
        let b = &mut *cx.builder;
        let one = b.i64(1);
        let next = b.add(rows.row, one);
        for (row, place) in [(rows.row, begin), (next, end)] {
            let offset = b.element(offsets, row);
            let offset = b.convert(offset, places);
            let own = b.add(column, offset);
            b.assign(place, own);
        }
        cx.end();
        let b = &mut *cx.builder;
        let own = [b.read(begin), b.read(end)];
        let (zero, one) = (b.u32(0), b.u32(1));
        let there = b.binary(BinaryOp::Max, there, one);
        let last = b.sub(there, one);
        let all = [read_lane(cx, own[0], zero), read_lane(cx, own[1], last)];
        Run { base, column, own, all }
    }

    /// The eight bytes at an aligned place, as far as they are texts of the column that are in the run or before it; zeros else.
    fn word(&self, cx: &mut Context<'_>, place: V) -> V {
        let b = &mut *cx.builder;
        let (nothing, end) = (b.u64(0), self.all[1]);
        let (scalar, word) = (b.scalar(place), b.var_of("word", nothing));
        let width = b.int(scalar, WORD_BYTES);
        let (begins, ends) = (b.ge(place, self.column), has_room(b, (place, end), width));
        let is_whole = b.and(begins, ends);
        cx.begin_if(is_whole);
        let b = &mut *cx.builder;
        let pointer = b.offset(self.base, place);
        let pointer = b.bitcast(pointer, Type::global(Scalar::U64));
        let all = b.load_read_only(pointer);
        b.assign(word, all);
        cx.begin_else();
        let is_there = cx.builder.lt(place, end);
        cx.begin_if(is_there);
        let function = part_function(cx, scalar);
        let b = &mut *cx.builder;
        let part = b.call(function, &[self.base, self.column, end, place]);
        b.assign(word, part);
        cx.end();
        cx.end();
        cx.builder.read(word)
    }
}

/// Whether so many bytes (of the type of places) from `place` on are before `end`; no sum of places is taken, which 32 bits may not have
/// room for.
fn has_room(b: &mut Builder, (place, end): (V, V), bytes: V) -> V {
    let (is_before, left) = (b.ge(end, place), b.sub(end, place));
    let fits = b.ge(left, bytes);
    b.and(is_before, fits)
}

/// The bytes of a word at a place that are between others, zeros else: of a column that begins within the word, or a run that ends there.
fn part_function(cx: &mut Context<'_>, places: Scalar) -> Handle<Function> {
    let params = [
        ("base", Type::global(Scalar::U8)),
        ("begin", Type::Scalar(places)),
        ("end", Type::Scalar(places)),
        ("place", Type::Scalar(places)),
    ];
    function(cx, &format!("text_part_{}", places.name()), &params, Scalar::U64, |b| {
        let [base, begin, end, place] = [0, 1, 2, 3].map(|index| b.param(index));
        let (nothing, width, eight) = (b.u64(0), b.int(places, WORD_BYTES), b.u32(8));
        let word = b.var_of("word", nothing);
        let last = b.sub(end, width);
        let first = b.add(begin, width);
        // The last eight bytes, of which the first are before the word.
        let (is_begun, is_long) = (b.ge(place, begin), b.ge(end, first));
        let is_last = b.and(is_begun, is_long);
        b.begin_if(is_last);
        let pointer = b.offset(base, last);
        let all = b.load_bytes(pointer);
        let before = b.sub(place, last);
        let before = b.convert(before, Scalar::U32);
        let bits = bits_of(b, before);
        let own = b.binary(BinaryOp::Shr, all, bits);
        b.return_value(own);
        b.end();
        count_up(b, eight, |b, index| {
            let distance = b.convert(index, places);
            let at = b.add(place, distance);
            let (begins, ends) = (b.ge(at, begin), b.lt(at, end));
            let is_there = b.and(begins, ends);
            b.begin_if(is_there);
            let byte = b.element(base, at);
            let (byte, bits) = (b.convert(byte, Scalar::U64), bits_of(b, index));
            let byte = b.binary(BinaryOp::Shl, byte, bits);
            let before = b.read(word);
            let with = b.or(before, byte);
            b.assign(word, with);
            b.end();
        });
        let word = b.read(word);
        b.return_value(word);
    })
}

impl<'n> Wanted<'n> {
    fn of(cx: &mut Context<'_>, needle: &'n Needle, places: Scalar) -> Wanted<'n> {
        let (bytes, before) = (needle.bytes(), needle.anchor());
        let (mut word, mut mask) = ([0; ANCHOR_BYTES], [0; ANCHOR_BYTES]);
        for (byte, (word, mask)) in bytes.iter().skip(before).zip(word.iter_mut().zip(&mut mask)) {
            (*word, *mask) = (*byte, u8::MAX);
        }
        let mut constant = |scalar, value: u64| cx.constant(Constant::Int(scalar, value.into()));
        let anchor = constant(Scalar::U32, u32::from_le_bytes(word).into());
        let is_short = bytes.len() < ANCHOR_BYTES;
        let counts = is_short.then(|| constant(Scalar::U32, u32::from_le_bytes(mask).into()));
        let (before, length) = (constant(places, before as u64), constant(places, bytes.len() as u64));
        Wanted { needle, anchor: (anchor, counts), before, length }
    }

    /// Sets `first` to the place of the first needle in this lane's text, where there is one.
    fn find(&self, cx: &mut Context<'_>, run: &Run, first: Var) {
        let lanes = cx.shape.lanes;
        let b = &mut *cx.builder;
        let [begin, end] = run.all;
        let (scalar, width) = (b.scalar(begin), WORD_BYTES);
        let all = b.int(scalar, width);
        let rest = b.rem(begin, all);
        let start = b.sub(begin, rest);
        let place = b.var_of("place", start);
        let lane = b.builtin(Builtin::LaneId);
        let own_lane = b.convert(lane, scalar);
        let distance = b.mul(own_lane, all);
        // The last lane's word is there for the places of the lane before it.
        let (last, step) = (b.u32(lanes - 1), b.int(scalar, (lanes - 1) * width));
        let looks = b.lt(lane, last);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let current = b.read(place);
        let done = b.ge(current, end);
        b.break_if(done);
        let own = b.add(current, distance);
        let word = run.word(cx, own);
        let equal = self.places(cx, word);
        let b = &mut *cx.builder;
        let no = b.bool(false);
        let hits = equal.iter().fold(no, |any, equal| b.or(any, *equal));
        let hits = b.and(hits, looks);
        let mask = ballot(cx, hits);
        let b = &mut *cx.builder;
        let none = b.u32(0);
        let is_hit = b.ne(mask, none);
        cx.begin_if(is_hit);
        let b = &mut *cx.builder;
        let bits = equal.iter().enumerate().fold(none, |bits, (place, equal)| {
            let bit = b.u32(1 << place);
            let bit = b.select(*equal, bit, none);
            b.or(bits, bit)
        });
        let bits = b.select(looks, bits, none);
        self.look_at_hits(cx, run, (own, bits), first);
        cx.end();
        let b = &mut *cx.builder;
        let left = b.sub(end, current);
        let is_last = b.ge(step, left);
        b.break_if(is_last);
        let next = b.add(current, step);
        b.assign(place, next);
        cx.end();
    }

    /// At which of the eight places of a lane's word the bytes stand that are compared first (`bool` each).
    fn places(&self, cx: &mut Context<'_>, word: V) -> Vec<V> {
        let b = &mut *cx.builder;
        let one = b.u32(1);
        let next = b.value(Kir::Shuffle { mode: ShuffleMode::Down, value: word, lane: one });
        let half = b.u64(u32::BITS.into());
        let (high, low) = (b.binary(BinaryOp::Shr, word, half), b.binary(BinaryOp::Shl, next, half));
        let between = b.or(high, low);
        let bytes = WORD_BYTES as usize / 2;
        let places = [(word, 0..=bytes), (between, 1..=bytes - 1)];
        let places = places.into_iter().flat_map(|(word, places)| places.map(move |place| (word, place)));
        places
            .map(|(word, place)| {
                let shifted = if place == 0 { word } else { b.shr_int(word, 8 * place as u64) };
                let own = b.convert(shifted, Scalar::U32);
                let own = self.anchor.1.map_or(own, |counts| b.and(own, counts));
                b.eq(own, self.anchor.0)
            })
            .collect()
    }

    /// Looks at the places of all lanes' words that have a bit (`u32`). `word`: the place of this lane's.
    fn look_at_hits(&self, cx: &mut Context<'_>, run: &Run, (word, bits): (V, V), first: Var) {
        let equal = (self.needle.bytes().len() > ANCHOR_BYTES).then(|| {
            let needle = text_of_bytes(cx, self.needle.bytes());
            (equal_function(cx), needle)
        });
        let left = cx.builder.var_of("hits", bits);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let (bits, none, one) = (b.read(left), b.u32(0), b.u32(1));
        let has_hit = b.ne(bits, none);
        let mask = ballot(cx, has_hit);
        let b = &mut *cx.builder;
        let done = b.eq(mask, none);
        b.break_if(done);
        let less = b.sub(bits, one);
        let others = b.and(bits, less);
        b.assign(left, others);
        let bit = b.unary(UnaryOp::Ffs, bits);
        let index = b.sub(bit, one);
        let scalar = b.scalar(word);
        let index = b.convert(index, scalar);
        let at = b.add(word, index);
        let hit = b.sub(at, self.before);
        let [begin, end] = run.all;
        let begins = has_room(b, (begin, at), self.before);
        let ends = has_room(b, (hit, end), self.length);
        let is_inside = b.and(begins, ends);
        let is_hit = b.and(has_hit, is_inside);
        let is_needle = b.var_of("needle", is_hit);
        if let Some((equal, needle)) = equal {
            cx.begin_if(is_hit);
            let b = &mut *cx.builder;
            let text = b.offset(run.base, hit);
            let is_equal = b.call(equal, &[text, needle.length, needle.data, needle.length]);
            b.assign(is_needle, is_equal);
            cx.end();
        }
        let is_needle = cx.builder.read(is_needle);
        self.show(cx, run, (hit, is_needle), first);
        cx.end();
    }

    /// Shows the needles that lanes have found to all lanes, one by one.
    fn show(&self, cx: &mut Context<'_>, run: &Run, (hit, is_needle): (V, V), first: Var) {
        let mask = ballot(cx, is_needle);
        let b = &mut *cx.builder;
        let (left, none, one) = (b.var_of("shown", mask), b.u32(0), b.u32(1));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let mask = b.read(left);
        let done = b.eq(mask, none);
        b.break_if(done);
        let less = b.sub(mask, one);
        let others = b.and(mask, less);
        b.assign(left, others);
        let bit = b.unary(UnaryOp::Ffs, mask);
        let lane = b.sub(bit, one);
        let hit = read_lane(cx, hit, lane);
        let b = &mut *cx.builder;
        let [begin, end] = run.own;
        let (begins, ends) = (b.ge(hit, begin), has_room(b, (hit, end), self.length));
        let is_own = b.and(begins, ends);
        let before = b.read(first);
        let earlier = b.binary(BinaryOp::Min, before, hit);
        let now = b.select(is_own, earlier, before);
        b.assign(first, now);
        cx.end();
    }
}
