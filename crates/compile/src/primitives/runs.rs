//! Runs of equal keys in a sorted array, by number: what brings elements to the places of their runs in another array.
//! [`ENDS`] and a prefix sum number the runs; [`PLACES`] makes places of the numbers, and notes the keys.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`ENDS`] | `keys: u64[]`, `ends: u32[]` (written: 1 at the last element of a run that is not the last one) |
//! | [`PLACES`] | `keys`, `places: u32[]` (the scanned ends; `base` is added to each), `base: u32`, `run_keys: u64[]` (written from `base` on: a key a run) |

use kelpie_kir::{Builder, Module, Scalar, Type, TypeError};

use super::{array, begin, for_elements, param};

/// Finds the ends of runs.
pub const ENDS: &str = "segment_ends";
/// Makes places of runs.
pub const PLACES: &str = "run_places";

/// Both kernels.
pub fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    ends(&mut b);
    places(&mut b);
    b.finish()
}

/// Emits [`ENDS`].
fn ends(b: &mut Builder) {
    b.begin_kernel(ENDS);
    let (rows, tile_rows) = (param(b, "rows", Scalar::I64), param(b, "tile_rows", Scalar::I64));
    let keys = param(b, "keys", Type::global(Scalar::U64));
    let ends = param(b, "ends", Type::global(Scalar::U32));
    for_elements(b, rows, tile_rows, |b, element| {
        let (one, none) = (b.i64(1), b.u32(0));
        let is_end = b.var_of("is_end", none);
        let next = b.add(element, one);
        let exists = b.lt(next, rows);
        b.begin_if(exists);
        let (own, after) = (b.element(keys, element), b.element(keys, next));
        let differs = b.ne(own, after);
        let differs = b.convert(differs, Scalar::U32);
        b.assign(is_end, differs);
        b.end();
        let (pointer, is_end) = (b.offset(ends, element), b.read(is_end));
        b.store(pointer, is_end);
    });
    b.end_kernel();
}

fn places(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, PLACES);
    let (keys, places) = (array(b, "keys", Scalar::U64), array(b, "places", Scalar::U32));
    let (base, run_keys) = (param(b, "base", Scalar::U32), array(b, "run_keys", Scalar::U64));
    for_elements(b, rows, tile_rows, |b, element| {
        let pointer = b.offset(places, element);
        let number = b.load(pointer);
        let place = b.add(number, base);
        b.store(pointer, place);
        let (zero, one) = (b.i64(0), b.i64(1));
        let key = b.element(keys, element);
        let none_before = b.eq(element, zero);
        let is_first = b.var_of("is_first", none_before);
        let some_before = b.not(none_before);
        b.begin_if(some_before);
        let before = b.sub(element, one);
        let before = b.element(keys, before);
        let differs = b.ne(before, key);
        b.assign(is_first, differs);
        b.end();
        let is_first = b.read(is_first);
        b.begin_if(is_first);
        let pointer = b.offset(run_keys, place);
        b.store(pointer, key);
        b.end();
    });
    b.end_kernel();
}
