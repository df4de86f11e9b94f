//! What is known of a stored column by all of its rows: by zones of [`ZONE`] rows, each of which a warp looks at.
//!
//! | kernel | parameters |
//! |---|---|
//! | [`Facts::Zones`] | `rows: i64`, `zones: i64`, `values`, `places: u32[]`, `sampled: u32`, `out: i64[]` (written) |
//! | [`Facts::Multiples`] | `rows: i64`, `zones: i64`, `values`, `least: i64`, `step: u64`, `others: u32[1]` (set to 1 where a value is no multiple of `step` from `least`) |
//!
//! `out` has for each zone [`WORDS`] words: the least and the greatest value, the order ([`RISES`], [`FALLS`], [`IS_STRICT`]), and then
//! a sample, of values at `places` in a zone of [`ZONE`] rows, and at places in proportion in the last one.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, CompareOp, Expr, Module, Scalar, ShuffleMode, Type, TypeError};

use super::for_pages;
use crate::primitives::{array, for_range, param};
use crate::shape::LaunchShape;

/// Rows of a zone.
pub const ZONE: u64 = 1 << 14;
/// Values of a sample, at most.
pub const SAMPLE: usize = 32;
/// Words of a zone.
pub const WORDS: usize = 3 + SAMPLE;
/// No value is less than the one before.
pub const RISES: u64 = 1;
/// No value is greater than the one before.
pub const FALLS: u64 = 2;
/// No value equals the one before.
pub const IS_STRICT: u64 = 4;

/// A kernel, by what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Facts {
    /// Finds bounds, orders and samples of zones.
    Zones(Scalar),
    /// Finds whether all values are multiples of a number.
    Multiples(Scalar),
}

impl Facts {
    /// All kernels.
    pub fn all() -> Vec<Facts> {
        let stored = [Scalar::U8, Scalar::U16, Scalar::I32, Scalar::I64];
        stored.into_iter().flat_map(|stored| [Facts::Zones(stored), Facts::Multiples(stored)]).collect()
    }

    /// The kernel's name.
    pub fn name(self) -> String {
        match self {
            Facts::Zones(stored) => format!("pages_facts_{}", stored.name()),
            Facts::Multiples(stored) => format!("pages_multiples_{}", stored.name()),
        }
    }

    /// The module with this kernel alone.
    pub fn module(self, shape: &LaunchShape) -> Result<Module, TypeError> {
        let mut b = Builder::new();
        b.begin_kernel(&self.name());
        let [rows, zones] = ["rows", "zones"].map(|name| param(&mut b, name, Scalar::I64));
        match self {
            Facts::Zones(stored) => find_facts(&mut b, shape, (rows, zones), stored),
            Facts::Multiples(stored) => find_others(&mut b, shape, (rows, zones), stored),
        }
        b.end_kernel();
        b.finish()
    }
}

/// The rows of a zone: its first one, and the one behind its last, `i64`.
fn rows_of(b: &mut Builder, rows: V, zone: V) -> (V, V) {
    let length = b.i64(ZONE as i64);
    let first = b.mul(zone, length);
    let end = b.add(first, length);
    (first, b.binary(BinaryOp::Min, end, rows))
}

/// A stored value as 64 bits.
fn value(b: &mut Builder, values: V, row: V) -> V {
    let stored = b.element(values, row);
    b.convert(stored, Scalar::I64)
}

/// The least or greatest value of a warp's lanes, in all of them.
fn of_warp(b: &mut Builder, shape: &LaunchShape, op: BinaryOp, mut own: V) -> V {
    let mut distance = shape.lanes.next_power_of_two() / 2;
    while distance > 0 {
        let step = b.u32(distance);
        // A lane beyond the last keeps its own.
        let other = b.value(Expr::Shuffle { mode: ShuffleMode::Xor, value: own, lane: step });
        own = b.binary(op, own, other);
        distance /= 2;
    }
    own
}

fn find_facts(b: &mut Builder, shape: &LaunchShape, (rows, zones): (V, V), stored: Scalar) {
    let values = array(b, "values", stored);
    let (places, sampled) = (array(b, "places", Scalar::U32), param(b, "sampled", Scalar::U32));
    let out = param(b, "out", Type::global(Scalar::I64));
    for_pages(b, shape, zones, |b, zone| {
        let (first, end) = rows_of(b, rows, zone);
        let (lane, lanes) = (b.builtin(Builtin::LaneId), b.builtin(Builtin::Lanes));
        let (wide_lane, wide_lanes) = (b.convert(lane, Scalar::I64), b.convert(lanes, Scalar::I64));
        let start = b.add(first, wide_lane);
        let (most, fewest, no) = (b.i64(i64::MAX), b.i64(i64::MIN), b.bool(false));
        let (least, greatest) = (b.var_of("least", most), b.var_of("greatest", fewest));
        let [falls_once, rises_once, equals_once] =
            ["falls_once", "rises_once", "equals_once"].map(|name| b.var_of(name, no));
        for_range(b, start, end, wide_lanes, |b, row| {
            let own = value(b, values, row);
            for (var, op) in [(least, BinaryOp::Min), (greatest, BinaryOp::Max)] {
                let known = b.read(var);
                let known = b.binary(op, known, own);
                b.assign(var, known);
            }
            let one = b.i64(1);
            let next = b.add(row, one);
            let has_next = b.lt(next, end);
            b.begin_if(has_next);
            let next = value(b, values, next);
            let met =
                [(falls_once, CompareOp::Lt), (rises_once, CompareOp::Gt), (equals_once, CompareOp::Eq)];
            for (var, op) in met {
                let (known, is_so) = (b.read(var), b.compare(op, next, own));
                let known = b.or(known, is_so);
                b.assign(var, known);
            }
            b.end();
        });
        let words = b.i64(WORDS as i64);
        let at = b.mul(zone, words);
        let out = b.offset(out, at);
        let (least, greatest) = (b.read(least), b.read(greatest));
        let (least, greatest) =
            (of_warp(b, shape, BinaryOp::Min, least), of_warp(b, shape, BinaryOp::Max, greatest));
        let mut order = b.i64(0);
        for (var, bit) in [(falls_once, RISES), (rises_once, FALLS), (equals_once, IS_STRICT)] {
            let is_so = b.read(var);
            let any = b.value(Expr::Any(is_so));
            let (bit, none) = (b.i64(bit as i64), b.i64(0));
            let bit = b.select(any, none, bit);
            order = b.or(order, bit);
        }
        let zero = b.u32(0);
        let leads = b.eq(lane, zero);
        b.begin_if(leads);
        for (index, word) in [least, greatest, order].into_iter().enumerate() {
            let index = b.i64(index as i64);
            let pointer = b.offset(out, index);
            b.store(pointer, word);
        }
        b.end();
        let (length, count) = (b.sub(end, first), b.i64(ZONE as i64));
        for_range(b, lane, sampled, lanes, |b, number| {
            let place = b.element(places, number);
            let place = b.convert(place, Scalar::I64);
            let place = b.mul(place, length);
            let place = b.div(place, count);
            let row = b.add(first, place);
            let own = value(b, values, row);
            let (number, behind) = (b.convert(number, Scalar::I64), b.i64(3));
            let index = b.add(number, behind);
            let pointer = b.offset(out, index);
            b.store(pointer, own);
        });
    });
}

fn find_others(b: &mut Builder, shape: &LaunchShape, (rows, zones): (V, V), stored: Scalar) {
    let values = array(b, "values", stored);
    let (least, step) = (param(b, "least", Scalar::I64), param(b, "step", Scalar::U64));
    let others = array(b, "others", Scalar::U32);
    for_pages(b, shape, zones, |b, zone| {
        let (first, end) = rows_of(b, rows, zone);
        let (lane, lanes) = (b.builtin(Builtin::LaneId), b.builtin(Builtin::Lanes));
        let (lane, lanes) = (b.convert(lane, Scalar::I64), b.convert(lanes, Scalar::I64));
        let start = b.add(first, lane);
        let no = b.bool(false);
        let found = b.var_of("found", no);
        for_range(b, start, end, lanes, |b, row| {
            let own = value(b, values, row);
            let above = b.sub(own, least);
            let above = b.bitcast(above, Scalar::U64);
            let (rest, none) = (b.rem(above, step), b.u64(0));
            let is_other = b.ne(rest, none);
            let known = b.read(found);
            let known = b.or(known, is_other);
            b.assign(found, known);
        });
        let found = b.read(found);
        b.begin_if(found);
        let (index, one) = (b.i64(0), b.u32(1));
        let pointer = b.offset(others, index);
        b.atomic_discard(kelpie_kir::AtomicOp::Or, pointer, one, kelpie_kir::Scope::Device);
        b.end();
    });
}
