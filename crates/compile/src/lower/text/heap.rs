//! New text: bytes that a kernel takes from the stage's heap, and copies into them.
//!
//! The heap is one array; a cursor goes up by an atomic addition a text, or a piece for many texts (`context::scratch`). Where it passes the end, the launch reports
//! `Status::Grow`, and the engine runs the pipeline again with a larger heap. It keeps the outgrown ones while the
//! stage runs, so that states may hold addresses of text.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Scope, Type};

use super::swar::with_case;
use super::words;
use super::{byte, case_name, function, increment};
use crate::context::{Argument, Case, Context, HeapPart, Lowered, Repr, Status, Text, Unsupported};
use crate::expr::Expr;
use crate::lower::value::{both, text, unsupported};

/// Bytes of the longest text that is made.
const LENGTH_LIMIT: u64 = i32::MAX as u64;
/// What [`allocate_function`] gives where there is no room.
const NO_ROOM: u64 = u64::MAX;

/// Makes text of `length` (`u64`) bytes, which `fill` writes at the address that it gets; where there is no room, the
/// text is empty and the launch has failed.
pub(crate) fn make(cx: &mut Context<'_>, length: V, fill: impl FnOnce(&mut Context<'_>, V)) -> Text {
    let heap = cx.argument("heap", Type::global(Scalar::U8), Argument::Heap(HeapPart::Bytes));
    let cursor = cx.argument("heap_cursor", Type::global(Scalar::U64), Argument::Heap(HeapPart::Cursor));
    let capacity = cx.argument("heap_capacity", Scalar::I64, Argument::Heap(HeapPart::Capacity));
    let allocate = allocate_function(cx);
    let take = |cx: &mut Context<'_>, bytes| cx.builder.call(allocate, &[cursor, capacity, bytes]);
    let no_room = cx.builder.u64(NO_ROOM);
    let offset = cx.take_text(length, no_room, take);
    let fits = cx.builder.ne(offset, no_room);
    let zero = cx.builder.u64(0);
    let (offset, length) = (cx.builder.select(fits, offset, zero), cx.builder.select(fits, length, zero));
    let data = cx.builder.offset(heap, offset);
    cx.begin_if(fits);
    fill(cx, data);
    cx.end();
    Text { data, length: cx.builder.convert(length, Scalar::U32), case: Case::Keep, code: None }
}

/// As [`make`] of text of `most` bytes at most: `fill` gives how many it has written (`u64`), and the others are given back. Only with a
/// margin ([`Context::text_margin`]).
pub(in crate::lower) fn make_up_to(
    cx: &mut Context<'_>,
    most: V,
    fill: impl FnOnce(&mut Context<'_>, V) -> V,
) -> Text {
    let nothing = cx.builder.u64(0);
    let written = cx.builder.var_of("written", nothing);
    let text = make(cx, most, |cx, target| {
        let bytes = fill(cx, target);
        cx.builder.assign(written, bytes);
        let unused = cx.builder.sub(most, bytes);
        cx.give_text_back(unused);
    });
    let length = cx.builder.read(written);
    Text { length: cx.builder.convert(length, Scalar::U32), ..text }
}

/// The offset of new bytes in the heap, or [`NO_ROOM`].
fn allocate_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [
        ("cursor", Type::global(Scalar::U64)),
        ("capacity", Type::I64),
        ("length", Type::Scalar(Scalar::U64)),
    ];
    function(cx, "text_allocate", &params, Scalar::U64, |b| {
        let [cursor, capacity, length] = [0, 1, 2].map(|index| b.param(index));
        let too_long = b.gt_int(length, LENGTH_LIMIT);
        let no_room = b.u64(NO_ROOM);
        b.begin_if(too_long);
        b.report(Status::Fallback as u32);
        b.return_value(no_room);
        b.end();
        let offset = b.atomic(AtomicOp::Add, cursor, length, Scope::Device);
        let end = b.add(offset, length);
        let capacity = b.bitcast(capacity, Scalar::U64);
        let full = b.compare(CompareOp::Gt, end, capacity);
        b.begin_if(full);
        // The places of texts do not overlap: one of them is where the heap ends. That one says so.
        let is_first = b.compare(CompareOp::Le, offset, capacity);
        b.begin_if(is_first);
        b.report(Status::Grow as u32);
        b.end();
        b.return_value(no_room);
        b.end();
        b.return_value(offset);
    })
}

/// Copies the bytes of a text; the address after the copy.
pub(crate) fn copy(cx: &mut Context<'_>, target: V, text: &Text, length: V) -> V {
    let copy = copy_function(cx, text.case);
    cx.builder.call(copy, &[target, text.data, length]);
    cx.builder.offset(target, length)
}

/// Copies bytes with their case mapping; gives the length. With a margin ([`Context::text_margin`]), what stands behind the target
/// is overwritten: texts are made front to back.
pub(in crate::lower) fn copy_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    if cx.text_margin() {
        return copy_words_function(cx, case);
    }
    exact_copy_function(cx, case)
}

/// [`copy_function`] where the source may be read beyond its end, and the target written: words only.
fn copy_words_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let pointer = Type::global(Scalar::U8);
    let params = [("target", pointer), ("text", pointer), ("length", Type::U32)];
    function(cx, &format!("text_copy_words{}", case_name(case)), &params, Scalar::U32, |b| {
        let [target, data, length] = [0, 1, 2].map(|index| b.param(index));
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        b.begin_loop();
        let current = b.read(place);
        let done = b.ge(current, length);
        b.break_if(done);
        let word = words::mapped_word(b, data, current, case);
        let to = b.offset(target, current);
        b.store_bytes(to, word);
        words::advance(b, place, 8);
        b.end();
        b.return_value(length);
    })
}

/// Copies bytes with their case mapping, and neither reads nor writes any other; gives the length.
fn exact_copy_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    // A CPU stores words anywhere in one instruction.
    let any_address = cx.text_margin();
    let pointer = Type::global(Scalar::U8);
    let params = [("target", pointer), ("text", pointer), ("length", Type::U32)];
    function(cx, &format!("text_copy{}", case_name(case)), &params, Scalar::U32, |b| {
        let [target, data, length] = [0, 1, 2].map(|index| b.param(index));
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        if any_address {
            words::each_word(b, data, length, place, |b, word, current| {
                let to = b.offset(target, current);
                let word = with_case(b, word, case);
                b.store_bytes(to, word);
            });
        } else {
            // Words are stored where the target is aligned.
            let (address, eight, seven) = (b.bitcast(target, Scalar::U64), b.u32(8), b.u32(7));
            let address = b.convert(address, Scalar::U32);
            let over = b.and(address, seven);
            let missing = b.sub(eight, over);
            let missing = b.and(missing, seven);
            let head = b.binary(BinaryOp::Min, missing, length);
            copy_bytes(b, [target, data, head], case, place);
            words::each_word(b, data, length, place, |b, word, current| {
                let place = b.offset(target, current);
                let place = b.bitcast(place, Type::global(Scalar::U64));
                let word = with_case(b, word, case);
                b.store(place, word);
            });
        }
        copy_bytes(b, [target, data, length], case, place);
        b.return_value(length);
    })
}

/// Copies the bytes of a text, and writes nothing behind them.
pub(crate) fn copy_exactly(cx: &mut Context<'_>, target: V, text: &Text, length: V) {
    let copy = exact_copy_function(cx, text.case);
    cx.builder.call(copy, &[target, text.data, length]);
}

/// Copies the bytes from `place` up to `end`.
fn copy_bytes(b: &mut Builder, [target, data, end]: [V; 3], case: Case, place: Var) {
    b.begin_loop();
    let current = b.read(place);
    let done = b.ge(current, end);
    b.break_if(done);
    let byte = byte(b, data, current, case);
    let byte = b.convert(byte, Scalar::U8);
    let to = b.offset(target, current);
    b.store(to, byte);
    increment(b, place);
    b.end();
}

/// A text whose bytes are in memory as they are: one with a case mapping is copied.
pub(crate) fn plain(cx: &mut Context<'_>, text: Text, valid: Option<V>) -> Text {
    if text.case == Case::Keep {
        return text;
    }
    let length = length_where(cx, &text, valid);
    let wide = cx.builder.convert(length, Scalar::U64);
    make(cx, wide, |cx, target| {
        copy(cx, target, &text, length);
    })
}

/// A text whose bytes are in memory as they are, in a place of its own that outlives the row.
pub(crate) fn copied(cx: &mut Context<'_>, text: &Text) -> Text {
    copied_where(cx, text, None)
}

/// As [`copied`]; without bytes where the text is NULL.
fn copied_where(cx: &mut Context<'_>, text: &Text, valid: Option<V>) -> Text {
    let was_open = cx.open_scratch(false);
    let length = length_where(cx, text, valid);
    let wide = cx.builder.convert(length, Scalar::U64);
    let copied = make(cx, wide, |cx, target| {
        copy(cx, target, text, length);
    });
    cx.open_scratch(was_open);
    copied
}

/// A part's memory for copies of texts: pointers to the offset in the heap (`u64`) where the next one begins, and to that of its end.
/// Both are 0 at first.
pub(crate) struct TextPart {
    pub place: V,
    pub end: V,
    /// Bytes of the heap that are taken at a time, at least.
    pub chunk: u64,
}

/// A copy of a text in a part's memory, by a CPU's worker to whom that belongs: words, so that there must be room behind it. `taken` is
/// told of memory that was newly taken (its first byte). Without bytes where the text is NULL; where there is no room the text is
/// empty and the launch has failed.
pub(crate) fn copied_to_part(
    cx: &mut Context<'_>,
    (text, valid): (&Text, Option<V>),
    part: &TextPart,
    taken: &mut dyn FnMut(&mut Context<'_>, V),
) -> Text {
    let heap = cx.argument("heap", Type::global(Scalar::U8), Argument::Heap(HeapPart::Bytes));
    let length = length_where(cx, text, valid);
    let b = &mut *cx.builder;
    let (seven, words) = (b.u64(7), b.u64(!7));
    let bytes = b.convert(length, Scalar::U64);
    let bytes = b.add(bytes, seven);
    let bytes = b.and(bytes, words);
    let (place, end) = (b.load(part.place), b.load(part.end));
    let (place, end) = (b.var_of("text_place", place), b.var_of("text_end", end));
    let room = |b: &mut Builder| {
        let (end, place) = (b.read(end), b.read(place));
        b.sub(end, place)
    };
    let left = room(b);
    let is_short = b.lt(left, bytes);
    cx.begin_if(is_short);
    let wanted = cx.builder.max_int(bytes, part.chunk);
    let was_open = cx.open_scratch(false);
    let chunk = make(cx, wanted, |cx, target| {
        let (first, start) = (cx.builder.bitcast(target, Scalar::U64), cx.builder.bitcast(heap, Scalar::U64));
        let offset = cx.builder.sub(first, start);
        let behind = cx.builder.add(offset, wanted);
        cx.builder.assign(place, offset);
        cx.builder.assign(end, behind);
        taken(cx, target);
    });
    cx.open_scratch(was_open);
    debug_assert_eq!(chunk.case, Case::Keep);
    cx.end();
    let b = &mut *cx.builder;
    let left = room(b);
    let (fits, none) = (b.ge(left, bytes), b.u32(0));
    let length = b.select(fits, length, none);
    let current = b.read(place);
    let data = b.offset(heap, current);
    cx.begin_if(fits);
    copy(cx, data, text, length);
    let b = &mut *cx.builder;
    let (after, end) = (b.add(current, bytes), b.read(end));
    b.store(part.place, after);
    b.store(part.end, end);
    cx.end();
    Text { data, length, case: Case::Keep, code: None }
}

/// A value that outlives the row: a text that may lie in scratch memory is copied.
pub(crate) fn lasting(cx: &mut Context<'_>, value: &Lowered, is_scratch: bool) -> Lowered {
    match &value.repr {
        Repr::Text(text) if is_scratch && cx.uses_scratch() && text.code.is_none() => {
            let made = copied_where(cx, text, value.valid);
            Lowered { repr: Repr::Text(made), ..*value }
        }
        _ => value.clone(),
    }
}

/// The length of a text; 0 where it is NULL.
pub(in crate::lower) fn length_where(cx: &mut Context<'_>, text: &Text, valid: Option<V>) -> V {
    match valid {
        Some(valid) => {
            let zero = cx.builder.u32(0);
            cx.builder.select(valid, text.length, zero)
        }
        None => text.length,
    }
}

/// Texts one after the other, each with the length (`u32`) that it is to have.
fn join(cx: &mut Context<'_>, parts: &[(Text, V)]) -> Text {
    let mut total = cx.builder.u64(0);
    for (_, length) in parts {
        let length = cx.builder.convert(*length, Scalar::U64);
        total = cx.builder.add(total, length);
    }
    make(cx, total, |cx, target| {
        parts.iter().fold(target, |target, (text, length)| copy(cx, target, text, *length));
    })
}

fn lower_texts(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Vec<(Text, Option<V>)>, Unsupported> {
    let lower_text = |argument| {
        let value = cx.lower(argument)?;
        Ok((text(&value)?, value.valid))
    };
    arguments.iter().map(lower_text).collect()
}

/// Lowers `a || b`: NULL where one of them is.
pub(in crate::lower) fn concat_operator(
    cx: &mut Context<'_>,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let texts = lower_texts(cx, arguments)?;
    let valid = texts.iter().fold(None, |valid, (_, next)| both(cx, valid, *next));
    let parts: Vec<_> = (texts.into_iter())
        .map(|(text, _)| {
            let length = length_where(cx, &text, valid);
            (text, length)
        })
        .collect();
    Ok(Lowered { repr: Repr::Text(join(cx, &parts)), valid, range: None })
}

/// Lowers `concat(...)`: NULLs are left out.
pub(in crate::lower) fn concat(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Lowered, Unsupported> {
    let mut parts = Vec::new();
    for (text, valid) in lower_texts(cx, arguments)? {
        let length = length_where(cx, &text, valid);
        parts.push((text, length));
    }
    Ok(Lowered { repr: Repr::Text(join(cx, &parts)), valid: None, range: None })
}

/// Lowers `concat_ws(separator, ...)`: NULLs are left out, and NULL where the separator is.
pub(in crate::lower) fn concat_with_separator(
    cx: &mut Context<'_>,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let mut texts = lower_texts(cx, arguments)?.into_iter();
    let Some((separator, valid)) = texts.next() else {
        return unsupported("concat_ws without a separator");
    };
    let mut parts = Vec::new();
    // Whether a text stands before: then the next one is separated from it.
    let mut follows = cx.builder.bool(false);
    let zero = cx.builder.u32(0);
    for (text, text_valid) in texts {
        let present = match both(cx, valid, text_valid) {
            Some(present) => present,
            None => cx.builder.bool(true),
        };
        let separated = cx.builder.and(follows, present);
        let separator_length = cx.builder.select(separated, separator.length, zero);
        parts.push((separator.clone(), separator_length));
        let length = cx.builder.select(present, text.length, zero);
        parts.push((text, length));
        follows = cx.builder.or(follows, present);
    }
    Ok(Lowered { repr: Repr::Text(join(cx, &parts)), valid, range: None })
}
