//! Text whose characters are replaced by others: UPPER and LOWER beyond ASCII, INITCAP and TRANSLATE. Kernels decode
//! UTF-8 a character at a time, and look its mapping up in the tables of `unicode`.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Function, Handle, Scalar, Type};

use super::byte_table::{by_table, byte_table};
use super::heap::{length_where, make};
use super::search::lower_plain;
use super::swar::{beyond_ascii, with_case};
use super::unicode::{self, FINAL_SIGMA, FIRST_BLOCK, IGNORABLE, MOST, PROPERTY, SEVERAL, SIGMA, VALUE};
use super::words;
use super::{byte, continues, count_up, function, return_bool_if};
use crate::context::{Case, Context, Lowered, Repr, Text, Unsupported};
use crate::expr::Expr;
use crate::lower::value::{both, text, unsupported};

const POINTER: Type = Type::global(Scalar::U8);
const TABLE: Type = Type::global(Scalar::U32);
const BOOL: Type = Type::Scalar(Scalar::Bool);

/// Lowers UPPER and LOWER: the bytes of ASCII are mapped when they are read, text beyond it is made anew.
pub(in crate::lower) fn change_case(
    cx: &mut Context<'_>,
    input: &Expr,
    case: Case,
) -> Result<Lowered, Unsupported> {
    let value = cx.lower(input)?;
    let old = text(&value)?;
    let length = length_where(cx, &old, value.valid);
    let is_ascii = words::is_ascii_function(cx);
    let ascii = cx.builder.call(is_ascii, &[old.data, length]);
    let beyond = cx.builder.not(ascii);
    let (data_var, length_var) =
        (cx.builder.var_of("text", old.data), cx.builder.var_of("length", old.length));
    cx.begin_if(beyond);
    let (table, mapping) = match case {
        Case::Upper => (table(cx, &unicode::UPPER), map_function(cx, Mapping::Upper)),
        _ => (table(cx, &unicode::LOWER), map_function(cx, Mapping::Lower)),
    };
    let made = make_mapped(cx, mapping, &[old.data, length, table]);
    cx.builder.assign(data_var, made.data);
    cx.builder.assign(length_var, made.length);
    cx.end();
    // What is mapped already stays as it is when its ASCII is mapped once more.
    let (data, length) = (cx.builder.read(data_var), cx.builder.read(length_var));
    Ok(Lowered { repr: Repr::Text(Text { data, length, case, code: None }), ..value })
}

/// Lowers INITCAP: words of letters and digits begin with a capital letter and go on with small ones.
pub(in crate::lower) fn initial_capitals(cx: &mut Context<'_>, input: &Expr) -> Result<Lowered, Unsupported> {
    let (input, valid) = lower_plain(cx, input)?;
    let length = length_where(cx, &input, valid);
    let (upper, lower) = (table(cx, &unicode::CAPITALS), table(cx, &unicode::LOWER));
    let mapping = initcap_function(cx);
    let text = make_mapped(cx, mapping, &[input.data, length, upper, lower]);
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

/// Lowers TRANSLATE(text, from, to): characters of `from` become those at the same place of `to`, or nothing where it is
/// shorter.
pub(in crate::lower) fn translate(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Lowered, Unsupported> {
    let [input, from, to] = arguments else { return unsupported("translate takes three arguments") };
    let (input, input_valid) = lower_plain(cx, input)?;
    if let Some(table) = byte_table(from, to) {
        let length = length_where(cx, &input, input_valid);
        let text = by_table(cx, input.data, length, &table);
        return Ok(Lowered { repr: Repr::Text(text), valid: input_valid, range: None });
    }
    let (from, from_valid) = lower_plain(cx, from)?;
    let (to, to_valid) = lower_plain(cx, to)?;
    let valid = both(cx, input_valid, from_valid);
    let valid = both(cx, valid, to_valid);
    let lengths = [&input, &from, &to].map(|text| length_where(cx, text, valid));
    let mapping = translate_function(cx);
    let arguments = [input.data, lengths[0], from.data, lengths[1], to.data, lengths[2]];
    let text = make_mapped(cx, mapping, &arguments);
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

/// Text that a function makes from `arguments`: called once for its length and once to write it.
fn make_mapped(cx: &mut Context<'_>, mapping: Handle<Function>, arguments: &[V]) -> Text {
    let source = arguments[0];
    let count_only = cx.builder.bool(true);
    let needed = cx.builder.call(mapping, &[arguments, &[source, count_only]].concat());
    make(cx, needed, |cx, target| {
        let write = cx.builder.bool(false);
        cx.builder.call(mapping, &[arguments, &[target, write]].concat());
    })
}

fn table(cx: &mut Context<'_>, bytes: &std::sync::Arc<[u8]>) -> V {
    let bytes = cx.shared_bytes(bytes);
    cx.builder.bitcast(bytes, TABLE)
}

/// Which mapping of single characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mapping {
    Upper,
    Lower,
}

/// The character (`u32`) that starts at a place of a text. What is cut off at the end is taken byte by byte.
fn decode_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("text", POINTER), ("length", Type::U32), ("place", Type::U32)];
    function(cx, "utf8_decode", &params, Scalar::U32, |b| {
        let [data, length, place] = [0, 1, 2].map(|index| b.param(index));
        let first = byte(b, data, place, Case::Keep);
        let single = b.lt_int(first, 0xC0);
        b.begin_if(single);
        b.return_value(first);
        b.end();
        let (two, three) = (b.u32(0xE0), b.u32(0xF0));
        let (at_least_three, four) = (b.ge(first, two), b.ge(first, three));
        let [at_least_three, four] = [at_least_three, four].map(|more| b.convert(more, Scalar::U32));
        let one = b.u32(1);
        let following = b.add(one, at_least_three);
        let following = b.add(following, four);
        let last = b.add(place, following);
        let cut = b.ge(last, length);
        b.begin_if(cut);
        b.return_value(first);
        b.end();
        // The first byte has 5, 4 or 3 bits of the character.
        let most = b.u32(0x3F);
        let mask = b.binary(BinaryOp::Shr, most, following);
        let start = b.and(first, mask);
        let character = b.var_of("character", start);
        count_up(b, following, |b, index| {
            let (one, six, mask) = (b.u32(1), b.u32(6), b.u32(0x3F));
            let at = b.add(place, index);
            let at = b.add(at, one);
            let next = byte(b, data, at, Case::Keep);
            let bits = b.and(next, mask);
            let before = b.read(character);
            let shifted = b.binary(BinaryOp::Shl, before, six);
            let character_now = b.or(shifted, bits);
            b.assign(character, character_now);
        });
        let character = b.read(character);
        b.return_value(character);
    })
}

/// Bytes of a character.
fn width(b: &mut Builder, character: V) -> V {
    let mut bytes = b.u32(1);
    for limit in [0x80, 0x800, 0x1_0000] {
        let more = b.ge_int(character, limit);
        let more = b.convert(more, Scalar::U32);
        bytes = b.add(bytes, more);
    }
    bytes
}

/// Writes a character, or nothing where it is only counted; gives its bytes.
fn put_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("target", POINTER), ("character", Type::U32), ("count_only", BOOL)];
    function(cx, "utf8_put", &params, Scalar::U64, |b| {
        let [target, character, count_only] = [0, 1, 2].map(|index| b.param(index));
        let bytes = width(b, character);
        let wide = b.convert(bytes, Scalar::U64);
        b.begin_if(count_only);
        b.return_value(wide);
        b.end();
        let one = b.u32(1);
        let single = b.eq(bytes, one);
        b.begin_if(single);
        let ascii = b.convert(character, Scalar::U8);
        b.store(target, ascii);
        b.return_value(wide);
        b.end();
        // 110xxxxx, 1110xxxx or 11110xxx, then 10xxxxxx.
        let (ones, six) = (b.u32(0xF00), b.u32(6));
        let lead = b.binary(BinaryOp::Shr, ones, bytes);
        let lead = b.and_int(lead, 0xFF);
        count_up(b, bytes, |b, index| {
            let left = b.sub(bytes, one);
            let left = b.sub(left, index);
            let shift = b.mul(left, six);
            let bits = b.binary(BinaryOp::Shr, character, shift);
            let (zero, mask, mark) = (b.u32(0), b.u32(0x3F), b.u32(0x80));
            let following = b.and(bits, mask);
            let following = b.or(following, mark);
            let first = b.or(bits, lead);
            let is_first = b.eq(index, zero);
            let byte = b.select(is_first, first, following);
            let byte = b.convert(byte, Scalar::U8);
            let place = b.offset(target, index);
            b.store(place, byte);
        });
        b.return_value(wide);
    })
}

/// The entry of a character in a table.
fn entry_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("table", TABLE), ("character", Type::U32)];
    function(cx, "unicode_entry", &params, Scalar::U32, |b| {
        let (table, character) = (b.param(0), b.param(1));
        // What is no character, as text never has, is looked up as another.
        let character = b.min_int(character, u32::from(char::MAX));
        let (bits, one, four) = (b.u32(unicode::BLOCK_BITS), b.u32(1), b.u32(4));
        let block = b.binary(BinaryOp::Shr, character, bits);
        let word = b.binary(BinaryOp::Shr, block, one);
        let numbers = b.element(table, word);
        let odd = b.and(block, one);
        let shift = b.binary(BinaryOp::Shl, odd, four);
        let number = b.binary(BinaryOp::Shr, numbers, shift);
        let number = b.and_int(number, 0xFFFF);
        let start = b.binary(BinaryOp::Shl, number, bits);
        let (first, inside) = (b.u32(FIRST_BLOCK), b.u32((1 << unicode::BLOCK_BITS) - 1));
        let inside = b.and(character, inside);
        let place = b.add(first, start);
        let place = b.add(place, inside);
        let entry = b.element(table, place);
        b.return_value(entry);
    })
}

/// Functions that every mapping calls.
struct Parts {
    decode: Handle<Function>,
    put: Handle<Function>,
    entry: Handle<Function>,
}

impl Parts {
    fn new(cx: &mut Context<'_>) -> Parts {
        Parts { decode: decode_function(cx), put: put_function(cx), entry: entry_function(cx) }
    }
}

/// Where the text goes.
struct Output {
    target: V,
    count_only: V,
    /// Bytes so far, `u64`.
    written: Var,
}

impl Output {
    fn put(&self, b: &mut Builder, parts: &Parts, character: V) {
        let before = b.read(self.written);
        let target = b.offset(self.target, before);
        let bytes = b.call(parts.put, &[target, character, self.count_only]);
        let after = b.add(before, bytes);
        b.assign(self.written, after);
    }

    /// What an entry says that a character becomes.
    fn put_mapped(&self, b: &mut Builder, parts: &Parts, table: V, entry: V, character: V) {
        let (value, several, zero) = (b.u32(VALUE), b.u32(SEVERAL), b.u32(0));
        let value = b.and(entry, value);
        let several = b.and(entry, several);
        let several = b.ne(several, zero);
        b.begin_if(several);
        for index in 0..MOST as u32 {
            let place = b.add_int(value, index);
            let next = b.element(table, place);
            let present = b.ne(next, zero);
            b.begin_if(present);
            self.put(b, parts, next);
            b.end();
        }
        b.begin_else();
        let same = b.eq(value, zero);
        let mapped = b.select(same, character, value);
        self.put(b, parts, mapped);
        b.end();
    }
}

/// `for character in text { body }`: the body gets the character and the place where it starts.
fn each_character(
    b: &mut Builder,
    decode: Handle<Function>,
    (data, length): (V, V),
    body: impl FnOnce(&mut Builder, V, V),
) {
    let zero = b.u32(0);
    let place = b.var_of("place", zero);
    b.begin_loop();
    let current = b.read(place);
    let done = b.ge(current, length);
    b.break_if(done);
    let character = b.call(decode, &[data, length, current]);
    let bytes = width(b, character);
    let next = b.add(current, bytes);
    b.assign(place, next);
    body(b, character, current);
    b.end();
}

/// The same for the characters beyond ASCII; others are written as a mapping has them, a word at a time where a word has no others.
fn each_character_beyond_ascii(
    b: &mut Builder,
    decode: Handle<Function>,
    (data, length): (V, V),
    (output, mapping): (&Output, Mapping),
    body: impl FnOnce(&mut Builder, V, V),
) {
    let case = if mapping == Mapping::Upper { Case::Upper } else { Case::Lower };
    let zero = b.u32(0);
    let place = b.var_of("place", zero);
    let advance = |b: &mut Builder, current: V, bytes: u32| {
        let next = b.add_int(current, bytes);
        b.assign(place, next);
        let before = b.read(output.written);
        let after = b.add_int(before, bytes);
        b.assign(output.written, after);
    };
    b.begin_loop();
    words::each_word(b, data, length, place, |b, word, _| {
        let beyond = beyond_ascii(b, word);
        b.break_if(beyond);
        let writes = b.not(output.count_only);
        b.begin_if(writes);
        let before = b.read(output.written);
        let target = b.offset(output.target, before);
        let mapped = with_case(b, word, case);
        b.store_bytes(target, mapped);
        b.end();
        let before = b.read(output.written);
        let after = b.add_int(before, words::WORD_BYTES);
        b.assign(output.written, after);
    });
    let current = b.read(place);
    let done = b.ge(current, length);
    b.break_if(done);
    let first = byte(b, data, current, case);
    let is_ascii = b.lt_int(first, 0x80);
    b.begin_if(is_ascii);
    let writes = b.not(output.count_only);
    b.begin_if(writes);
    let before = b.read(output.written);
    let target = b.offset(output.target, before);
    let mapped = b.convert(first, Scalar::U8);
    b.store(target, mapped);
    b.end();
    advance(b, current, 1);
    b.begin_else();
    let character = b.call(decode, &[data, length, current]);
    let bytes = width(b, character);
    let next = b.add(current, bytes);
    b.assign(place, next);
    body(b, character, current);
    b.end();
    b.end();
}

/// Writes a text in upper or lower case, or only counts its bytes.
fn map_function(cx: &mut Context<'_>, mapping: Mapping) -> Handle<Function> {
    let parts = Parts::new(cx);
    let sigma = (mapping == Mapping::Lower).then(|| final_sigma_function(cx));
    let name = if mapping == Mapping::Upper { "text_to_upper" } else { "text_to_lower" };
    let params = [
        ("text", POINTER),
        ("length", Type::U32),
        ("table", TABLE),
        ("target", POINTER),
        ("count_only", BOOL),
    ];
    function(cx, name, &params, Scalar::U64, |b| {
        let [data, length, table, target, count_only] = [0, 1, 2, 3, 4].map(|index| b.param(index));
        let nothing = b.u64(0);
        let output = Output { target, count_only, written: b.var_of("written", nothing) };
        each_character_beyond_ascii(
            b,
            parts.decode,
            (data, length),
            (&output, mapping),
            |b, character, place| {
                let found = b.call(parts.entry, &[table, character]);
                let entry = b.var_of("entry", found);
                if let Some(is_final) = sigma {
                    let is_sigma = b.eq_int(character, u32::from(SIGMA));
                    b.begin_if(is_sigma);
                    let at_end = b.call(is_final, &[data, length, place, table]);
                    b.begin_if(at_end);
                    let last = b.u32(FINAL_SIGMA.into());
                    b.assign(entry, last);
                    b.end();
                    b.end();
                }
                let entry = b.read(entry);
                output.put_mapped(b, &parts, table, entry, character);
            },
        );
        let written = b.read(output.written);
        b.return_value(written);
    })
}

/// Whether the sigma at a place ends a word: before it stands a letter with case and behind it none, where characters
/// that are ignorable do not count.
fn final_sigma_function(cx: &mut Context<'_>) -> Handle<Function> {
    let Parts { decode, entry, .. } = Parts::new(cx);
    let params = [("text", POINTER), ("length", Type::U32), ("place", Type::U32), ("table", TABLE)];
    function(cx, "text_ends_word", &params, Scalar::Bool, |b| {
        let [data, length, place, table] = [0, 1, 2, 3].map(|index| b.param(index));
        let (zero, one) = (b.u32(0), b.u32(1));
        let at = b.var_of("at", place);
        b.begin_loop();
        let current = b.read(at);
        let start = b.eq(current, zero);
        return_bool_if(b, start, false);
        // Back to the start of the character before.
        b.begin_loop();
        let current = b.read(at);
        let before = b.sub(current, one);
        b.assign(at, before);
        let byte = byte(b, data, before, Case::Keep);
        let inside = continues(b, byte);
        let starts = b.not(inside);
        let first = b.eq(before, zero);
        let stop = b.or(starts, first);
        b.break_if(stop);
        b.end();
        let current = b.read(at);
        let character = b.call(decode, &[data, length, current]);
        let found = b.call(entry, &[table, character]);
        let counts = counts(b, found);
        b.begin_if(counts);
        let plain = has_no_case(b, found);
        return_bool_if(b, plain, false);
        b.break_loop();
        b.end();
        b.end();
        let behind = b.add_int(place, 2);
        b.assign(at, behind);
        b.begin_loop();
        let current = b.read(at);
        let end = b.ge(current, length);
        return_bool_if(b, end, true);
        let character = b.call(decode, &[data, length, current]);
        let bytes = width(b, character);
        let next = b.add(current, bytes);
        b.assign(at, next);
        let found = b.call(entry, &[table, character]);
        let counts = self::counts(b, found);
        b.begin_if(counts);
        let plain = has_no_case(b, found);
        b.return_value(plain);
        b.end();
        b.end();
        let yes = b.bool(true);
        b.return_value(yes);
    })
}

fn counts(b: &mut Builder, entry: V) -> V {
    let (ignorable, zero) = (b.u32(IGNORABLE), b.u32(0));
    let ignorable = b.and(entry, ignorable);
    b.eq(ignorable, zero)
}

fn has_no_case(b: &mut Builder, entry: V) -> V {
    let (cased, zero) = (b.u32(PROPERTY), b.u32(0));
    let cased = b.and(entry, cased);
    b.eq(cased, zero)
}

fn initcap_function(cx: &mut Context<'_>) -> Handle<Function> {
    let parts = Parts::new(cx);
    let params = [
        ("text", POINTER),
        ("length", Type::U32),
        ("upper", TABLE),
        ("lower", TABLE),
        ("target", POINTER),
        ("count_only", BOOL),
    ];
    function(cx, "text_initcap", &params, Scalar::U64, |b| {
        let [data, length, upper, lower, target, count_only] = [0, 1, 2, 3, 4, 5].map(|index| b.param(index));
        let (nothing, no) = (b.u64(0), b.bool(false));
        let output = Output { target, count_only, written: b.var_of("written", nothing) };
        let in_word = b.var_of("in_word", no);
        each_character(b, parts.decode, (data, length), |b, character, _| {
            let inside = b.read(in_word);
            let as_upper = b.call(parts.entry, &[upper, character]);
            b.begin_if(inside);
            let as_lower = b.call(parts.entry, &[lower, character]);
            output.put_mapped(b, &parts, lower, as_lower, character);
            b.begin_else();
            output.put_mapped(b, &parts, upper, as_upper, character);
            b.end();
            let (property, zero) = (b.u32(PROPERTY), b.u32(0));
            let letter = b.and(as_upper, property);
            let letter = b.ne(letter, zero);
            b.assign(in_word, letter);
        });
        let written = b.read(output.written);
        b.return_value(written);
    })
}

fn translate_function(cx: &mut Context<'_>) -> Handle<Function> {
    let parts = Parts::new(cx);
    let params = [
        ("text", POINTER),
        ("length", Type::U32),
        ("from", POINTER),
        ("from_length", Type::U32),
        ("to", POINTER),
        ("to_length", Type::U32),
        ("target", POINTER),
        ("count_only", BOOL),
    ];
    function(cx, "text_translate", &params, Scalar::U64, |b| {
        let [data, length, from, from_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let [to, to_length, target, count_only] = [4, 5, 6, 7].map(|index| b.param(index));
        let (nothing, zero) = (b.u64(0), b.u32(0));
        let output = Output { target, count_only, written: b.var_of("written", nothing) };
        each_character(b, parts.decode, (data, length), |b, character, _| {
            // Both sets are walked side by side up to the first equal character.
            let (in_from, in_to) = (b.var_of("in_from", zero), b.var_of("in_to", zero));
            b.begin_loop();
            let place = b.read(in_from);
            let other = b.ge(place, from_length);
            b.begin_if(other);
            output.put(b, &parts, character);
            b.break_loop();
            b.end();
            let candidate = b.call(parts.decode, &[from, from_length, place]);
            let target_place = b.read(in_to);
            let has_target = b.lt(target_place, to_length);
            let found = b.eq(candidate, character);
            b.begin_if(found);
            b.begin_if(has_target);
            let replacement = b.call(parts.decode, &[to, to_length, target_place]);
            output.put(b, &parts, replacement);
            b.end();
            b.break_loop();
            b.end();
            let bytes = width(b, candidate);
            let next = b.add(place, bytes);
            b.assign(in_from, next);
            b.begin_if(has_target);
            let skipped = b.call(parts.decode, &[to, to_length, target_place]);
            let bytes = width(b, skipped);
            let next = b.add(target_place, bytes);
            b.assign(in_to, next);
            b.end();
            b.end();
        });
        let written = b.read(output.written);
        b.return_value(written);
    })
}
