//! Pages: a relation as a list of large arrays that need not lie together (sections 4.3 and 6.1), and what makes a dense array of results.
//!
//! A pool is an array of pages of as many tuples each; `next` has the page behind each, or [`NOWHERE`]. A *section*, what one block has
//! written, is a list of pages of which all but the last are full; its `first` page, its `last` and its `count` of tuples are known. Linked,
//! the sections are one list in the order of tuples.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`LINK`] | `sections: u32`, `firsts`, `lasts`, `next`, `head: u32[1]` (written) | links the sections; `head` becomes the first page |
//! | [`TO_DENSE`] | `pool`, `next`, `firsts`, `places: u32[sections + 1]` (the counts scanned), `sections`, `out` | copies pages to their places |
//! | [`FROM_DENSE`] | `data`, `rows: u32`, `pool`, `next` (written) | copies an array to pages in their order; page p has the tuples from p times its size on |
//! | [`GATHER`] | `areas: u32[sections + 1]`, `places`, `sections`, `data`, `out` | copies the results of sections from their areas to their places |

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Module, Scalar, Type, TypeError};

use super::partition::{for_grid, param};
use super::tuples::Width;
use crate::primitives::for_range;

/// Tuples that a thread loads before it waits for the first.
const LOADS: u32 = 4;
/// No page.
pub const NOWHERE: u32 = u32::MAX;
/// Links sections.
pub const LINK: &str = "algebra_link";
/// Makes a dense array of pages.
pub const TO_DENSE: &str = "algebra_to_dense";
/// Makes pages of a dense array.
pub const FROM_DENSE: &str = "algebra_from_dense";
/// Gathers the results of sections.
pub const GATHER: &str = "algebra_gather";

fn words(b: &mut Builder, name: &str) -> V {
    param(b, name, Type::global(Scalar::U32))
}

/// The sections of a block.
fn for_sections(b: &mut Builder, sections: V, body: impl FnOnce(&mut Builder, V)) {
    let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
    for_range(b, block, sections, blocks, body);
}

/// Copies so many tuples, by all threads of the block, several of a thread at a time. Positions are `u32`.
fn copy(b: &mut Builder, (source, from): (V, V), (target, to): (V, V), count: V) {
    let (thread, threads) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::BlockDim));
    let loads = b.u32(LOADS);
    let step = b.mul(threads, loads);
    for_range(b, thread, count, step, |b, first| {
        let load = |number: u32| {
            let number = b.u32(number);
            let behind = b.mul(number, threads);
            let index = b.add(first, behind);
            // Who has none copies his first again.
            let live = b.lt(index, count);
            let index = b.select(live, index, first);
            let place = b.add(from, index);
            (index, b.element(source, place))
        };
        let loaded: Vec<(V, V)> = (0..LOADS).map(load).collect();
        for (index, tuple) in loaded {
            let place = b.add(to, index);
            let pointer = b.offset(target, place);
            b.store(pointer, tuple);
        }
    });
}

/// From where to where a section's results go.
fn places_of(b: &mut Builder, places: V, section: V) -> (V, V) {
    let one = b.u32(1);
    let after = b.add(section, one);
    (b.element(places, section), b.element(places, after))
}

/// The kernel that gathers results.
pub(super) fn gather(b: &mut Builder, width: Width) {
    b.begin_kernel(GATHER);
    let (areas, places) = (words(b, "areas"), words(b, "places"));
    let sections = param(b, "sections", Scalar::U32);
    let array = Type::global(width.scalar());
    let (data, out) = (param(b, "data", array), param(b, "out", array));
    for_sections(b, sections, |b, section| {
        let from = b.element(areas, section);
        let (to, end) = places_of(b, places, section);
        let count = b.sub(end, to);
        copy(b, (data, from), (out, to), count);
    });
    b.end_kernel();
}

/// The kernel that links sections.
pub(super) fn link(b: &mut Builder) {
    b.begin_kernel(LINK);
    let sections = param(b, "sections", Scalar::U32);
    let [firsts, lasts, next, head] = ["firsts", "lasts", "next", "head"].map(|name| words(b, name));
    let one = b.u32(1);
    // Number 0 stands before all sections.
    let count = b.add(sections, one);
    for_grid(b, count, |b, number| {
        let (zero, one, nowhere) = (b.u32(0), b.u32(1), b.u32(NOWHERE));
        let last = b.var_of("last", nowhere);
        let is_section = b.ne(number, zero);
        b.begin_if(is_section);
        let section = b.sub(number, one);
        let known = b.element(lasts, section);
        b.assign(last, known);
        b.end();
        let last = b.read(last);
        let has_pages = b.ne(last, nowhere);
        let is_head = b.eq(number, zero);
        let counts = b.or(has_pages, is_head);
        b.begin_if(counts);
        let (found, at) = (b.var_of("found", nowhere), b.var_of("at", number));
        b.begin_loop();
        let (page, section) = (b.read(found), b.read(at));
        let is_found = b.ne(page, nowhere);
        let is_over = b.ge(section, sections);
        let done = b.or(is_found, is_over);
        b.break_if(done);
        let first = b.element(firsts, section);
        b.assign(found, first);
        let after = b.add(section, one);
        b.assign(at, after);
        b.end();
        let found = b.read(found);
        b.begin_if(is_head);
        b.store(head, found);
        b.begin_else();
        let pointer = b.offset(next, last);
        b.store(pointer, found);
        b.end();
        b.end();
    });
    b.end_kernel();
}

/// The kernel that makes a dense array of pages of so many tuples.
pub(super) fn to_dense(b: &mut Builder, width: Width, page: u32) {
    b.begin_kernel(TO_DENSE);
    let array = Type::global(width.scalar());
    let pool = param(b, "pool", array);
    let [next, firsts, places] = ["next", "firsts", "places"].map(|name| words(b, name));
    let sections = param(b, "sections", Scalar::U32);
    let out = param(b, "out", array);
    for_sections(b, sections, |b, section| {
        let (to, end) = places_of(b, places, section);
        let first = b.element(firsts, section);
        let (place, current) = (b.var_of("place", to), b.var_of("page", first));
        b.begin_loop();
        let to = b.read(place);
        let done = b.ge(to, end);
        b.break_if(done);
        let (tuples, number) = (b.u32(page), b.read(current));
        let left = b.sub(end, to);
        let count = b.binary(BinaryOp::Min, left, tuples);
        let from = b.mul(number, tuples);
        copy(b, (pool, from), (out, to), count);
        let after = b.add(to, count);
        b.assign(place, after);
        let following = b.element(next, number);
        b.assign(current, following);
        b.end();
    });
    b.end_kernel();
}

/// The kernels that make pages of so many tuples of a dense array, and an array of them.
pub fn from_dense(width: Width, page: u32) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    let b = &mut b;
    b.begin_kernel(FROM_DENSE);
    let array = Type::global(width.scalar());
    let data = param(b, "data", array);
    let rows = param(b, "rows", Scalar::U32);
    let pool = param(b, "pool", array);
    let next = words(b, "next");
    let (tuples, one) = (b.u32(page), b.u32(1));
    let whole = b.div(rows, tuples);
    let rest = b.rem(rows, tuples);
    let none = b.u32(0);
    let has_rest = b.ne(rest, none);
    let last = b.select(has_rest, one, none);
    let pages = b.add(whole, last);
    for_sections(b, pages, |b, number| {
        let from = b.mul(number, tuples);
        let left = b.sub(rows, from);
        let count = b.binary(BinaryOp::Min, left, tuples);
        copy(b, (data, from), (pool, from), count);
        let (thread, zero) = (b.builtin(Builtin::ThreadId), b.u32(0));
        let leads = b.eq(thread, zero);
        b.begin_if(leads);
        let (after, nowhere) = (b.add(number, one), b.u32(NOWHERE));
        let is_last = b.ge(after, pages);
        let following = b.select(is_last, nowhere, after);
        let pointer = b.offset(next, number);
        b.store(pointer, following);
        b.end();
    });
    b.end_kernel();
    to_dense(b, width, page);
    std::mem::take(b).finish()
}
