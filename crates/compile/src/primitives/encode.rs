//! The rows of a result become columns as a scan reads them, on the device: as narrow as their values allow, with bits for NULLs, and
//! texts one after the other. Each kernel is a module of its own, as a result needs few of them.
//!
//! The rows are some of those in the arrays of a result: from `first` on, where NULLs are told by bytes (`valid`, with `nullable`
//! 1; there are none where that is 0).
//!
//! | kernel | parameters |
//! |---|---|
//! | [`Encode::Measure`] | `count: u64[1]`, `first: i64`, `end: i64`, `tile_rows: i64`, `values`, `valid: u8[]`, `nullable: u32`, `out: u64[4]` |
//! | [`Encode::Values`] | `rows: i64`, `tile_rows: i64`, `first: i64`, `values`, `base`, `valid: u8[]`, `nullable: u32`, `filler`, `out` |
//! | [`Encode::Validity`] | `bytes: i64`, `tile_rows: i64`, `rows: i64`, `first: i64`, `valid: u8[]`, `out: u8[]` |
//! | [`Encode::Texts`] | `rows: i64`, `tile_rows: i64`, `first: i64`, `starts: u64[]`, `heap: u8[]`, `ends: u32[]`, `out: u8[]` |
//!
//! *Measure* looks at rows `first` to `end`, but at none beyond `count`, which kernels before it have counted: so nobody has to
//! wait for these before it is launched. In `out` it finds of all values that are not NULL the greatest order key (the value as 64 bits
//! with the sign flipped), the greatest complement of one (both stay 0 where there is no value), and of all rows how many are NULL,
//! and how many values do not fit 64 bits; of lengths of texts (`u32`), in place of the last, their sum. *Values* writes `value - base`
//! in another type, and `filler` for NULLs. *Texts* copies each text from where it starts in a heap to the bytes between two `ends`.

use kelpie_kir::builder::V;
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, Builtin, Expr, Module, Scalar, Scope, ShuffleMode, Type, TypeError,
};

use super::{array, for_elements, param};
use crate::shape::LaunchShape;

/// Words that [`Encode::Measure`] finds.
pub const MEASURES: usize = 4;
/// What flips the sign of a value, so that order keys have the order of the values.
pub const SIGN: u64 = 1 << 63;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encode {
    /// Finds what is known of values of a type: `U8`, `I32`, `I64`, `I128`, or `U32`, which are lengths.
    Measure(Scalar),
    /// Writes values of a type in another.
    Values(Scalar, Scalar),
    /// Writes the bits that tell NULLs.
    Validity,
    /// Writes texts one after the other.
    Texts,
}

impl Encode {
    /// All kernels that a result may need.
    pub fn all() -> Vec<Encode> {
        use Scalar::{F32, F64, I32, I64, I128, U8, U16, U32};
        let narrower = [U8, U16, I32, I64, I128];
        let integers = [(I32, 3), (I64, 4), (I128, 5)].into_iter();
        let integers =
            integers.flat_map(|(from, widths)| narrower[..widths].iter().map(move |to| (from, *to)));
        let same = [U8, U16, U32, F32, F64].into_iter().map(|scalar| (scalar, scalar));
        let values = integers.chain(same).map(|(from, to)| Encode::Values(from, to));
        let measures = [U8, U32, I32, I64, I128].map(Encode::Measure);
        measures.into_iter().chain(values).chain([Encode::Validity, Encode::Texts]).collect()
    }

    /// The name of the kernel.
    pub fn name(self) -> String {
        match self {
            Encode::Measure(of) => format!("encode_measure_{}", of.name()),
            Encode::Values(from, to) => format!("encode_{}_{}", from.name(), to.name()),
            Encode::Validity => "encode_validity".into(),
            Encode::Texts => "encode_texts".into(),
        }
    }

    /// The module with this kernel alone.
    pub fn module(self, shape: &LaunchShape) -> Result<Module, TypeError> {
        let mut b = Builder::new();
        b.begin_kernel(&self.name());
        match self {
            Encode::Measure(of) => measure(&mut b, shape, of),
            Encode::Values(from, to) => values(&mut b, from, to),
            Encode::Validity => validity(&mut b),
            Encode::Texts => texts(&mut b),
        }
        b.end_kernel();
        b.finish()
    }
}

/// Whether a row is not NULL, `bool`.
fn is_valid(b: &mut Builder, (valid, nullable): (V, V), row: V) -> V {
    let (yes, none) = (b.bool(true), b.u32(0));
    let known = b.var_of("is_valid", yes);
    let looks = b.ne(nullable, none);
    b.begin_if(looks);
    let (byte, zero) = (b.element(valid, row), b.int(Scalar::U8, 0));
    let told = b.ne(byte, zero);
    b.assign(known, told);
    b.end();
    b.read(known)
}

fn measure(b: &mut Builder, shape: &LaunchShape, of: Scalar) {
    let count = array(b, "count", Scalar::U64);
    let [first, end, tile_rows] = ["first", "end", "tile_rows"].map(|name| param(b, name, Scalar::I64));
    let values = array(b, "values", of);
    let nulls = (array(b, "valid", Scalar::U8), param(b, "nullable", Scalar::U32));
    let out = array(b, "out", Scalar::U64);
    let counted = b.load_read_only(count);
    let counted = b.bitcast(counted, Scalar::I64);
    let end = b.binary(BinaryOp::Min, end, counted);
    let start = b.binary(BinaryOp::Min, first, end);
    let rows = b.sub(end, start);
    let none = b.u64(0);
    let found = ["greatest", "least", "nulls", "more"].map(|name| b.var_of(name, none));
    let [greatest, least, null_rows, more] = found;
    for_elements(b, rows, tile_rows, |b, element| {
        let row = b.add(first, element);
        let valid = is_valid(b, nulls, row);
        let missing = b.not(valid);
        let missing = b.convert(missing, Scalar::U64);
        add_to(b, null_rows, BinaryOp::Add, missing);
        b.begin_if(valid);
        let value = b.element(values, row);
        if of == Scalar::U32 {
            let length = b.convert(value, Scalar::U64);
            add_to(b, more, BinaryOp::Add, length);
        } else {
            let low = b.convert(value, Scalar::I64);
            if of == Scalar::I128 {
                let back = b.convert(low, Scalar::I128);
                let differs = b.ne(back, value);
                let differs = b.convert(differs, Scalar::U64);
                add_to(b, more, BinaryOp::Add, differs);
            }
            let (bits, sign) = (b.bitcast(low, Scalar::U64), b.u64(SIGN));
            let key = b.binary(BinaryOp::Xor, bits, sign);
            let ones = b.u64(u64::MAX);
            let complement = b.binary(BinaryOp::Xor, key, ones);
            add_to(b, greatest, BinaryOp::Max, key);
            add_to(b, least, BinaryOp::Max, complement);
        }
        b.end();
    });
    let ops = [
        (BinaryOp::Max, AtomicOp::Max),
        (BinaryOp::Max, AtomicOp::Max),
        (BinaryOp::Add, AtomicOp::Add),
        (BinaryOp::Add, AtomicOp::Add),
    ];
    for (index, (var, (op, atomic))) in found.into_iter().zip(ops).enumerate() {
        let own = b.read(var);
        add_of_warp(b, shape, (own, op, atomic), (out, index));
    }
}

fn add_to(b: &mut Builder, var: kelpie_kir::builder::Var, op: BinaryOp, value: V) {
    let old = b.read(var);
    let new = b.binary(op, old, value);
    b.assign(var, new);
}

/// Adds what the lanes of a warp have found to a word: one atomic a warp, and none where there is nothing.
fn add_of_warp(
    b: &mut Builder,
    shape: &LaunchShape,
    (own, op, atomic): (V, BinaryOp, AtomicOp),
    (out, index): (V, usize),
) {
    let (lanes, lane) = (shape.lanes, b.builtin(Builtin::LaneId));
    let mut total = own;
    let mut distance = lanes.next_power_of_two() / 2;
    while distance > 0 {
        let (step, rest) = (b.u32(distance), b.u32(lanes - distance));
        let other = b.value(Expr::Shuffle { mode: ShuffleMode::Down, value: total, lane: step });
        let (both, has_other) = (b.binary(op, total, other), b.lt(lane, rest));
        total = b.select(has_other, both, total);
        distance /= 2;
    }
    let (zero, nothing) = (b.u32(0), b.u64(0));
    let (leads, some) = (b.eq(lane, zero), b.ne(total, nothing));
    let adds = b.and(leads, some);
    b.begin_if(adds);
    let index = b.i64(index as i64);
    let pointer = b.offset(out, index);
    b.atomic_discard(atomic, pointer, total, Scope::Device);
    b.end();
}

fn values(b: &mut Builder, from: Scalar, to: Scalar) {
    let [rows, tile_rows, first] = ["rows", "tile_rows", "first"].map(|name| param(b, name, Scalar::I64));
    let (values, base) = (array(b, "values", from), param(b, "base", from));
    let nulls = (array(b, "valid", Scalar::U8), param(b, "nullable", Scalar::U32));
    let (filler, out) = (param(b, "filler", to), param(b, "out", Type::global(to)));
    for_elements(b, rows, tile_rows, |b, element| {
        let row = b.add(first, element);
        let valid = is_valid(b, nulls, row);
        let value = b.element(values, row);
        let value = if from.is_integer() { b.sub(value, base) } else { value };
        let value = b.convert(value, to);
        let value = b.select(valid, value, filler);
        let pointer = b.offset(out, element);
        b.store(pointer, value);
    });
}

fn validity(b: &mut Builder) {
    let [bytes, tile_rows, rows, first] =
        ["bytes", "tile_rows", "rows", "first"].map(|name| param(b, name, Scalar::I64));
    let (valid, out) = (array(b, "valid", Scalar::U8), array(b, "out", Scalar::U8));
    for_elements(b, bytes, tile_rows, |b, byte| {
        let (none, eight) = (b.u32(0), b.i64(8));
        let bits = b.var_of("bits", none);
        let start = b.mul(byte, eight);
        for bit in 0..8 {
            let number = b.i64(bit);
            let row = b.add(start, number);
            let exists = b.lt(row, rows);
            b.begin_if(exists);
            let place = b.add(first, row);
            let (told, zero) = (b.element(valid, place), b.int(Scalar::U8, 0));
            let is_set = b.ne(told, zero);
            let (own, nothing) = (b.u32(1 << bit), b.u32(0));
            let own = b.select(is_set, own, nothing);
            add_to(b, bits, BinaryOp::Or, own);
            b.end();
        }
        let bits = b.read(bits);
        let bits = b.convert(bits, Scalar::U8);
        let pointer = b.offset(out, byte);
        b.store(pointer, bits);
    });
}

fn texts(b: &mut Builder) {
    let [rows, tile_rows, first] = ["rows", "tile_rows", "first"].map(|name| param(b, name, Scalar::I64));
    let (starts, heap) = (array(b, "starts", Scalar::U64), array(b, "heap", Scalar::U8));
    let (ends, out) = (array(b, "ends", Scalar::U32), array(b, "out", Scalar::U8));
    for_elements(b, rows, tile_rows, |b, element| {
        let (row, one) = (b.add(first, element), b.i64(1));
        let next = b.add(element, one);
        let (from, to) = (b.element(ends, element), b.element(ends, next));
        let (start, length) = (b.element(starts, row), b.sub(to, from));
        let (source, target) = (b.offset(heap, start), b.offset(out, from));
        let zero = b.u32(0);
        let position = b.var_of("position", zero);
        b.begin_loop();
        let current = b.read(position);
        let done = b.ge(current, length);
        b.break_if(done);
        let pointer = b.offset(source, current);
        let byte = b.load(pointer);
        let pointer = b.offset(target, current);
        b.store(pointer, byte);
        let one = b.u32(1);
        let next = b.add(current, one);
        b.assign(position, next);
        b.end();
    });
}
