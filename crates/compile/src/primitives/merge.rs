//! Sorted arrays merged, two by two, by merge path (Odeh, Green et al. 2012; Green, McColl and Bader 2012): the elements of the result
//! are shared out evenly, and whoever has some of them finds by a binary search how many elements of each array come before the
//! first. So nobody waits for anybody, however the keys are distributed. A thread of a GPU merges [`ITEMS`] elements, a CPU's
//! worker a tile.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`MERGE`] | `keys: u64[]`, `values: u32[]`, `other_keys: u64[]`, `other_values: u32[]`, `shift: i64`, `bounds: u32[2 * pairs + 1]`, `pairs: i64`, `keys_out: u64[rows]`, `values_out: u32[rows]` |
//!
//! **Shape.** One launch merges `pairs` pairs of runs, so that a level of a merge tree is one launch whatever the number of its runs.
//! Of pair `p` the first run is elements `bounds[2p]..bounds[2p + 1]` of `keys` and `values`, the second one is elements
//! `bounds[2p + 1]..bounds[2p + 2]`, less `shift`, of `other_keys` and `other_values`; merged, they are elements
//! `bounds[2p]..bounds[2p + 2]` of what is written. `bounds` rises from 0 to `rows`; any run may be empty. Runs of one array have the other array's
//! parameters equal to the first's and a `shift` of 0; two arrays of `n` and `m` elements are one pair with the bounds 0, `n`, `n + m`
//! and a `shift` of `n`. What is read must not be what is written.
//!
//! **Units.** All numbers are elements; `rows` is less than 2³². A value is whatever the caller likes: a row's number where rows are
//! merged by their keys.
//!
//! **Order.** Keys are compared as unsigned numbers. Equal keys keep their order, those of a first run before those of the second.
//!
//! **Errors.** None. Of runs that are not sorted some elements may come out several times and others not at all, but nothing beyond
//! the runs is read or written.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, CompareOp, Module, Scalar, TypeError};

use super::{array, begin, for_range, for_tiles, param, wide};
use crate::shape::LaunchShape;

/// Merges pairs of runs.
pub const MERGE: &str = "merge_pairs";

/// Elements that a thread of a GPU merges one after the other: enough that the search before costs little beside them.
pub const ITEMS: i64 = 8;

/// The kernel.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    merge(&mut b, shape);
    b.finish()
}

/// What the kernel is given.
struct Merge {
    keys: V,
    values: V,
    other_keys: V,
    other_values: V,
    shift: V,
    bounds: V,
    pairs: V,
    keys_out: V,
    values_out: V,
}

/// Where a thread stands in its pair of runs; all `i64`. `next` and `other` are the next elements of the two runs, and `end` and
/// `other_end` the places behind their last ones, those of the second run before `shift` is taken from them.
struct Place {
    pair: Var,
    next: Var,
    end: Var,
    other: Var,
    other_end: Var,
}

fn merge(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, MERGE);
    let p = Merge {
        keys: array(b, "keys", Scalar::U64),
        values: array(b, "values", Scalar::U32),
        other_keys: array(b, "other_keys", Scalar::U64),
        other_values: array(b, "other_values", Scalar::U32),
        shift: param(b, "shift", Scalar::I64),
        bounds: array(b, "bounds", Scalar::U32),
        pairs: param(b, "pairs", Scalar::I64),
        keys_out: array(b, "keys_out", Scalar::U64),
        values_out: array(b, "values_out", Scalar::U32),
    };
    for_tiles(b, rows, tile_rows, |b, _, from, to| match shape.is_serial() {
        true => merge_range(b, &p, from, to),
        false => {
            let (thread, threads) = (wide(b, Builtin::ThreadId), wide(b, Builtin::BlockDim));
            let items = b.i64(ITEMS);
            let offset = b.mul(thread, items);
            let (first, step) = (b.add(from, offset), b.mul(threads, items));
            for_range(b, first, to, step, |b, first| {
                let end = b.add(first, items);
                let end = b.binary(BinaryOp::Min, end, to);
                merge_range(b, &p, first, end);
            });
        }
    });
    b.end_kernel();
}

/// Element `index` (`i64`) of the bounds, as `i64`.
fn bound(b: &mut Builder, p: &Merge, index: V) -> V {
    let bound = b.element(p.bounds, index);
    b.convert(bound, Scalar::I64)
}

/// The bounds of a pair: where its first run begins, its second one, and where that ends.
fn bounds_of(b: &mut Builder, p: &Merge, pair: V) -> (V, V, V) {
    let (one, two) = (b.i64(1), b.i64(2));
    let index = b.mul(pair, two);
    let first = bound(b, p, index);
    let index = b.add(index, one);
    let second = bound(b, p, index);
    let index = b.add(index, one);
    (first, second, bound(b, p, index))
}

/// An element (`i64`, before the shift) of the second run.
fn other(b: &mut Builder, p: &Merge, array: V, index: V) -> V {
    let index = b.sub(index, p.shift);
    b.element(array, index)
}

/// Elements `first..end` of the result, of which there is one at least.
fn merge_range(b: &mut Builder, p: &Merge, first: V, end: V) {
    let place = find(b, p, first);
    let one = b.i64(1);
    for_range(b, first, end, one, |b, element| {
        let pair_end = b.read(place.other_end);
        let is_beyond = b.ge(element, pair_end);
        b.begin_if(is_beyond);
        next_pair(b, p, &place, element);
        b.end();
        take(b, p, &place, element);
    });
}

/// Moves one element to its place.
fn take(b: &mut Builder, p: &Merge, place: &Place, element: V) {
    let (next, end) = (b.read(place.next), b.read(place.end));
    let (other_next, other_end) = (b.read(place.other), b.read(place.other_end));
    let none = b.bool(false);
    let takes_first = b.var_of("takes_first", none);
    let has_first = b.lt(next, end);
    b.begin_if(has_first);
    let is_alone = b.ge(other_next, other_end);
    b.assign(takes_first, is_alone);
    let has_both = b.not(is_alone);
    b.begin_if(has_both);
    let (key, other_key) = (b.element(p.keys, next), other(b, p, p.other_keys, other_next));
    let precedes = b.compare(CompareOp::Le, key, other_key);
    b.assign(takes_first, precedes);
    b.end();
    b.end();
    let (one, takes_first) = (b.i64(1), b.read(takes_first));
    let (key_out, value_out) = (b.offset(p.keys_out, element), b.offset(p.values_out, element));
    b.begin_if(takes_first);
    let (key, value) = (b.element(p.keys, next), b.element(p.values, next));
    b.store(key_out, key);
    b.store(value_out, value);
    let after = b.add(next, one);
    b.assign(place.next, after);
    b.begin_else();
    let (key, value) = (other(b, p, p.other_keys, other_next), other(b, p, p.other_values, other_next));
    b.store(key_out, key);
    b.store(value_out, value);
    let after = b.add(other_next, one);
    b.assign(place.other, after);
    b.end();
}

/// Goes on to the pair that has an element (`i64`) of the result, which is behind the pair so far.
fn next_pair(b: &mut Builder, p: &Merge, place: &Place, element: V) {
    let one = b.i64(1);
    b.begin_loop();
    let pair = b.read(place.pair);
    let pair = b.add(pair, one);
    b.assign(place.pair, pair);
    let (first, second, end) = bounds_of(b, p, pair);
    for (var, value) in
        [(place.next, first), (place.end, second), (place.other, second), (place.other_end, end)]
    {
        b.assign(var, value);
    }
    // An empty pair has no element.
    let has_it = b.lt(element, end);
    b.break_if(has_it);
    b.end();
}

/// Where the elements from `element` (`i64`) of the result on come from.
fn find(b: &mut Builder, p: &Merge, element: V) -> Place {
    let (zero, one) = (b.i64(0), b.i64(1));
    let last = b.sub(p.pairs, one);
    // The first pair that ends behind the element.
    let pair = search(b, zero, last, |b, pair| {
        let (_, _, end) = bounds_of(b, p, pair);
        b.compare(CompareOp::Le, end, element)
    });
    let (first, second, end) = bounds_of(b, p, pair);
    let (count, other_count) = (b.sub(second, first), b.sub(end, second));
    let before = b.sub(element, first);
    // Of the elements before, so many may be of the first run, at least and at most.
    let least = b.sub(before, other_count);
    let least = b.binary(BinaryOp::Max, least, zero);
    let most = b.binary(BinaryOp::Min, before, count);
    let taken = search(b, least, most, |b, taken| {
        // The last element before, if no more than `taken` are of the first run.
        let index = b.add(first, taken);
        let key = b.element(p.keys, index);
        let others = b.sub(before, taken);
        let index = b.add(second, others);
        let index = b.sub(index, one);
        let other_key = other(b, p, p.other_keys, index);
        b.compare(CompareOp::Le, key, other_key)
    });
    let next = b.add(first, taken);
    let others = b.sub(before, taken);
    let other = b.add(second, others);
    Place {
        pair: b.var_of("pair", pair),
        next: b.var_of("next", next),
        end: b.var_of("end", second),
        other: b.var_of("other", other),
        other_end: b.var_of("other_end", end),
    }
}

/// The first number of `least..most` (`i64`) that is not `below`, or `most`: those that are come first.
fn search(b: &mut Builder, least: V, most: V, below: impl FnOnce(&mut Builder, V) -> V) -> V {
    let (least, most) = (b.var_of("least", least), b.var_of("most", most));
    b.begin_loop();
    let (from, to) = (b.read(least), b.read(most));
    let done = b.ge(from, to);
    b.break_if(done);
    let (sum, two) = (b.add(from, to), b.i64(2));
    let middle = b.div(sum, two);
    let is_below = below(b, middle);
    b.begin_if(is_below);
    let one = b.i64(1);
    let after = b.add(middle, one);
    b.assign(least, after);
    b.begin_else();
    b.assign(most, middle);
    b.end();
    b.end();
    b.read(least)
}
