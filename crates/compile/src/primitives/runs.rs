//! Runs of equal keys in a sorted array, by number: what brings elements to the places of their runs in another array.
//! [`ENDS`](super::segments::ENDS) and a prefix sum number the runs; [`PLACES`] makes places of the numbers, and notes the keys.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`ENDS`](super::segments::ENDS) | `keys: u64[]`, `ends: u32[]` (written) |
//! | [`PLACES`] | `keys`, `places: u32[]` (the scanned ends; `base` is added to each), `base: u32`, `run_keys: u64[]` (written from `base` on: a key a run) |

use kelpie_kir::{Builder, Module, Scalar, TypeError};

use super::{array, begin, for_elements, param, segments};

/// Makes places of runs.
pub const PLACES: &str = "run_places";

/// Both kernels.
pub fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    segments::ends(&mut b);
    places(&mut b);
    b.finish()
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
