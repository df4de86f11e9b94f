//! Rows in an order that some of their keys decide are put in order by further keys, only within groups of rows that are equal
//! so far. `starts` (`u32` a row) says where a group begins: 1 at its first row, else 0.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`SPLIT`] | `keys: u64[]`, `starts` (or-ed into): a group begins where a key differs from the one before |
//! | [`OPEN`] | `keys`, `starts`, `flip: u64`, `mask: u64`, `value: u64`, `open: u32[rows + 1]` (written): whether a row is one of a group of several, and its key, xor `flip`, has `value` in the bits of `mask`; 0 at the end |
//! | [`TAKE`] | `open` (scanned), `first: u32[]`, `second: u32[]`, `starts`, and the three of the open rows (written) |
//! | [`VARYING_IN`] | `keys`, `starts`, `bits: u64` (or-ed into): in which bits keys of one group differ |
//! | [`GROUPS`] | `scanned: u32[]` (the scanned starts), `starts`, `keys`, `mask: u64`, `groups: u64[]`, `masked: u64[]` (written): the number of a row's group, and its key in some bits |
//! | [`MOVE`] | `order: u32[]`, `places: u32[]`, `keys`, `places_out`, `keys_out` (written): both in another order |
//! | [`WRITE`] | `positions: u32[]`, `places`, `starts`, `order: u32[]`, `all_starts: u32[]`: places and starts at their positions among all rows |
//! | [`COMMON_IN`] | `addresses: u64[]`, `lengths: u32[]`, `places`, `starts`, `from: u32`, `common: u64` (made less): bytes that texts of each group have in common; as it was where all of a group are equal |

use kelpie_kir::builder::V;
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, CompareOp, Module, Pointee, Scalar, Scope, Space, Type, TypeError,
};

use super::select::same_bytes;
use super::{array, begin, for_elements};

/// Begins groups where keys differ.
pub const SPLIT: &str = "ties_split";
/// Finds rows that are not decided.
pub const OPEN: &str = "ties_open";
/// Takes those out.
pub const TAKE: &str = "ties_take";
/// Finds the bits that differ within groups.
pub const VARYING_IN: &str = "ties_varying";
/// Numbers groups.
pub const GROUPS: &str = "ties_groups";
/// Brings places and keys into an order.
pub const MOVE: &str = "ties_move";
/// Writes places back.
pub const WRITE: &str = "ties_write";
/// Finds how many bytes texts of a group have in common.
pub const COMMON_IN: &str = "ties_common";

/// All kernels.
pub fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    split(&mut b);
    open(&mut b);
    take(&mut b);
    varying_in(&mut b);
    groups(&mut b);
    move_rows(&mut b);
    write(&mut b);
    common_in(&mut b);
    b.finish()
}

fn store(b: &mut Builder, array: V, index: V, value: V) {
    let pointer = b.offset(array, index);
    b.store(pointer, value);
}

/// Whether a row is in the group of the one before it.
fn continues(b: &mut Builder, starts: V, row: V) -> V {
    let (start, zero) = (b.element(starts, row), b.u32(0));
    b.eq(start, zero)
}

fn split(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, SPLIT);
    let (keys, starts) = (array(b, "keys", Scalar::U64), array(b, "starts", Scalar::U32));
    for_elements(b, rows, tile_rows, |b, row| {
        let (zero, one) = (b.i64(0), b.u32(1));
        let begins = b.eq(row, zero);
        b.begin_if(begins);
        store(b, starts, row, one);
        b.begin_else();
        let step = b.i64(1);
        let before = b.sub(row, step);
        let (key, before) = (b.element(keys, row), b.element(keys, before));
        let differs = b.ne(key, before);
        b.begin_if(differs);
        store(b, starts, row, one);
        b.end();
        b.end();
    });
    b.end_kernel();
}

fn open(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, OPEN);
    let (keys, starts) = (array(b, "keys", Scalar::U64), array(b, "starts", Scalar::U32));
    let [flip, mask, value] = ["flip", "mask", "value"].map(|name| super::param(b, name, Scalar::U64));
    let open = array(b, "open", Scalar::U32);
    for_elements(b, rows, tile_rows, |b, row| {
        let (key, none, step) = (b.element(keys, row), b.u32(0), b.i64(1));
        let key = b.binary(BinaryOp::Xor, key, flip);
        let key = b.and(key, mask);
        let asked = b.eq(key, value);
        let (next, many) = (b.add(row, step), continues(b, starts, row));
        let several = b.var_of("several", many);
        let has_next = b.lt(next, rows);
        b.begin_if(has_next);
        let goes_on = continues(b, starts, next);
        let either = b.binary(BinaryOp::Or, many, goes_on);
        b.assign(several, either);
        b.begin_else();
        store(b, open, next, none);
        b.end();
        let several = b.read(several);
        let is_open = b.and(asked, several);
        let is_open = b.convert(is_open, Scalar::U32);
        store(b, open, row, is_open);
    });
    b.end_kernel();
}

fn take(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, TAKE);
    let names = ["open", "first", "second", "starts", "first_out", "second_out", "starts_out"];
    let [open, first, second, starts, first_out, second_out, starts_out] =
        names.map(|name| array(b, name, Scalar::U32));
    for_elements(b, rows, tile_rows, |b, row| {
        let step = b.i64(1);
        let next = b.add(row, step);
        let (place, after) = (b.element(open, row), b.element(open, next));
        let taken = b.ne(place, after);
        b.begin_if(taken);
        for (from, to) in [(first, first_out), (second, second_out), (starts, starts_out)] {
            let value = b.element(from, row);
            store(b, to, place, value);
        }
        b.end();
    });
    b.end_kernel();
}

fn varying_in(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, VARYING_IN);
    let (keys, starts) = (array(b, "keys", Scalar::U64), array(b, "starts", Scalar::U32));
    let bits = array(b, "bits", Scalar::U64);
    let none = b.u64(0);
    let found = b.var_of("found", none);
    for_elements(b, rows, tile_rows, |b, row| {
        let inside = continues(b, starts, row);
        b.begin_if(inside);
        let step = b.i64(1);
        let before = b.sub(row, step);
        let (key, before) = (b.element(keys, row), b.element(keys, before));
        let differs = b.binary(BinaryOp::Xor, key, before);
        let old = b.read(found);
        let new = b.binary(BinaryOp::Or, old, differs);
        b.assign(found, new);
        b.end();
    });
    let (found, none) = (b.read(found), b.u64(0));
    let some = b.ne(found, none);
    b.begin_if(some);
    b.atomic_discard(AtomicOp::Or, bits, found, Scope::Device);
    b.end();
    b.end_kernel();
}

fn groups(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, GROUPS);
    let (scanned, starts) = (array(b, "scanned", Scalar::U32), array(b, "starts", Scalar::U32));
    let (keys, mask) = (array(b, "keys", Scalar::U64), super::param(b, "mask", Scalar::U64));
    let (groups, masked) = (array(b, "groups", Scalar::U64), array(b, "masked", Scalar::U64));
    for_elements(b, rows, tile_rows, |b, row| {
        let (before, start) = (b.element(scanned, row), b.element(starts, row));
        let group = b.add(before, start);
        let group = b.convert(group, Scalar::U64);
        store(b, groups, row, group);
        let key = b.element(keys, row);
        let key = b.and(key, mask);
        store(b, masked, row, key);
    });
    b.end_kernel();
}

fn move_rows(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, MOVE);
    let (order, places) = (array(b, "order", Scalar::U32), array(b, "places", Scalar::U32));
    let (keys, places_out) = (array(b, "keys", Scalar::U64), array(b, "places_out", Scalar::U32));
    let keys_out = array(b, "keys_out", Scalar::U64);
    for_elements(b, rows, tile_rows, |b, row| {
        let source = b.element(order, row);
        let (place, key) = (b.element(places, source), b.element(keys, source));
        store(b, places_out, row, place);
        store(b, keys_out, row, key);
    });
    b.end_kernel();
}

fn write(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, WRITE);
    let names = ["positions", "places", "starts", "order", "all_starts"];
    let [positions, places, starts, order, all_starts] = names.map(|name| array(b, name, Scalar::U32));
    for_elements(b, rows, tile_rows, |b, row| {
        let position = b.element(positions, row);
        let (place, start) = (b.element(places, row), b.element(starts, row));
        store(b, order, position, place);
        store(b, all_starts, position, start);
    });
    b.end_kernel();
}

/// Each text is compared with the one before it in its group.
fn common_in(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, COMMON_IN);
    let (addresses, lengths) = (array(b, "addresses", Scalar::U64), array(b, "lengths", Scalar::U32));
    let (places, starts) = (array(b, "places", Scalar::U32), array(b, "starts", Scalar::U32));
    let (from, common) = (super::param(b, "from", Scalar::U32), array(b, "common", Scalar::U64));
    let most = b.u32(u32::MAX);
    let least = b.var_of("least", most);
    for_elements(b, rows, tile_rows, |b, row| {
        let inside = continues(b, starts, row);
        b.begin_if(inside);
        let step = b.i64(1);
        let before = b.sub(row, step);
        let [(left, left_length), (right, right_length)] = [before, row].map(|row| {
            let place = b.element(places, row);
            let (address, length) = (b.element(addresses, place), b.element(lengths, place));
            (b.bitcast(address, Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8))), length)
        });
        let known = b.read(least);
        let shorter = b.binary(BinaryOp::Min, left_length, right_length);
        let end = b.binary(BinaryOp::Min, shorter, known);
        let same = same_bytes(b, (left, right), from, end);
        // Equal texts have everything in common.
        let longer = b.binary(BinaryOp::Max, left_length, right_length);
        let differ = b.compare(CompareOp::Lt, same, longer);
        b.begin_if(differ);
        b.assign(least, same);
        b.end();
        b.end();
    });
    let least = b.read(least);
    let found = b.ne(least, most);
    b.begin_if(found);
    let least = b.convert(least, Scalar::U64);
    b.atomic_discard(AtomicOp::Min, common, least, Scope::Device);
    b.end();
    b.end_kernel();
}
