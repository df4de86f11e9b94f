//! Operators that know the places of their results: PROJECT, a pass over the tuples (figure 3), and PRODUCT (figure 4), whose right tuples a
//! block keeps in its memory while it goes through left ones.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`PROJECT`] | `data`, `rows: u32`, `out` | each tuple's fields put together anew |
//! | [`COPY`] | `data: u64[]`, `pairs: i64`, `out: u64[]` | nothing: what a device copies in a time is what others are compared with |
//! | [`PRODUCT`] | `left`, `right`, `left_rows: u32`, `right_rows: u32`, `out` | `out[i * right_rows + j]` = left tuple i above right tuple j |
//!
//! A projection that keeps the key's highest fields in their order leaves tuples in order; another one must be sorted ([`keeps_order`]).

use kelpie_kir::{BinaryOp, Builder, Builtin, Module, Pointee, Reads, Scalar, Type, TypeError};

use super::partition::{for_grid, param};
use super::{Field, Tuples, Width};
use crate::primitives::for_range;
use crate::shape::LaunchShape;

/// Puts fields together anew.
pub const PROJECT: &str = "algebra_project";
/// Puts each left tuple together with each right one.
pub const PRODUCT: &str = "algebra_product";

/// Copies words.
pub const COPY: &str = "algebra_copy";

/// Right tuples that a block keeps.
const KEPT: u32 = 1024;
/// Left tuples that it goes through then.
const LEFTS: u32 = 8;

/// Whether tuples stay in order whose fields become these, from the highest on: each is the next below the one before, down from the highest
/// bit of the key, until one that is not ends what is in order; then nothing of the key may follow.
pub fn keeps_order(tuples: &Tuples, fields: &[Field]) -> bool {
    let mut top = tuples.key_bits + tuples.value_bits;
    for (number, field) in fields.iter().enumerate() {
        if field.shift + field.bits != top {
            // What is below a value that was left out may have any order, but it may stand for no key.
            return number > 0 && top <= tuples.value_bits;
        }
        top = field.shift;
    }
    true
}

/// Tuples of both widths that a thread takes at a time: those of 16 bytes of a GPU, eight of a CPU's worker.
fn lanes(shape: &LaunchShape, from: Width, to: Width) -> u8 {
    match (from.max(to), from) {
        (Width::W128, _) => 1,
        _ if shape.is_serial() => 8,
        (_, Width::W32) => 4,
        _ => 2,
    }
}

/// The kernel of a projection. The fields of the result, of which there is one, from the highest on, which it has room for.
pub fn project(
    shape: &LaunchShape,
    tuples: Tuples,
    fields: &[Field],
    to: Tuples,
) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    let b = &mut b;
    b.begin_kernel(PROJECT);
    let data = param(b, "data", Type::global(tuples.width.scalar()));
    let rows = param(b, "rows", Scalar::U32);
    let out = param(b, "out", Type::global(to.width.scalar()));
    let packed = |b: &mut Builder, tuple| {
        let parts: Vec<_> = fields
            .iter()
            .map(|field| (tuples.field(b, tuple, (field.shift, field.bits)), field.bits))
            .collect();
        to.pack(b, &parts)
    };
    let lanes = lanes(shape, tuples.width, to.width);
    let each = b.u32(lanes.into());
    let (vectors, rest) = (b.div(rows, each), b.rem(rows, each));
    if lanes > 1 {
        let align = |width: Width| (width.bytes() * u32::from(lanes)).min(16);
        for_grid(b, vectors, |b, number| {
            let row = b.mul(number, each);
            let pointer = b.offset(data, row);
            let vector = b.load_vector_reading(pointer, lanes, (Reads::ReadOnly, align(tuples.width)));
            let vector = packed(b, vector);
            let pointer = b.offset(out, row);
            b.store_vector_aligned(pointer, vector, align(to.width));
        });
    }
    let (single, first) = if lanes > 1 { (rest, b.mul(vectors, each)) } else { (rows, b.u32(0)) };
    for_grid(b, single, |b, number| {
        let row = b.add(first, number);
        let tuple = b.element(data, row);
        let packed = packed(b, tuple);
        let pointer = b.offset(out, row);
        b.store(pointer, packed);
    });
    b.end_kernel();
    std::mem::take(b).finish()
}

/// The kernel of a product. The result has room for all bits of both.
pub fn product(
    shape: &LaunchShape,
    (left, right): (Tuples, Tuples),
    to: Tuples,
) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    let b = &mut b;
    b.begin_kernel(PRODUCT);
    let (lefts, rights) = (
        param(b, "left", Type::global(left.width.scalar())),
        param(b, "right", Type::global(right.width.scalar())),
    );
    let (left_rows, right_rows) = (param(b, "left_rows", Scalar::U32), param(b, "right_rows", Scalar::U32));
    let out = param(b, "out", Type::global(to.width.scalar()));
    let kept = b.shared("kept", Pointee::Scalar(right.width.scalar()), KEPT);
    let (threads, thread, one) = (b.u32(shape.block_threads), b.builtin(Builtin::ThreadId), b.u32(1));
    let mut parts = |rows, of: u32| {
        let (of, more) = (b.u32(of), b.u32(of - 1));
        let padded = b.add(rows, more);
        b.div(padded, of)
    };
    let (chunks, groups) = (parts(right_rows, KEPT), parts(left_rows, LEFTS));
    let items = b.mul(chunks, groups);
    let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
    for_range(b, block, items, blocks, |b, item| {
        let (chunk, group) = (b.div(item, groups), b.rem(item, groups));
        let mut range = |number, size: u32, rows| {
            let size = b.u32(size);
            let from = b.mul(number, size);
            let left = b.sub(rows, from);
            (from, b.binary(BinaryOp::Min, left, size))
        };
        let ((right_from, right_count), (left_from, left_count)) =
            (range(chunk, KEPT, right_rows), range(group, LEFTS, left_rows));
        b.barrier();
        for_range(b, thread, right_count, threads, |b, index| {
            let position = b.add(right_from, index);
            let tuple = b.element(rights, position);
            let pointer = b.offset(kept, index);
            b.store(pointer, tuple);
        });
        b.barrier();
        let end = b.add(left_from, left_count);
        for_range(b, left_from, end, one, |b, position| {
            let tuple = b.element(lefts, position);
            let tuple = left.field(b, tuple, (0, left.key_bits + left.value_bits));
            let row = b.mul(position, right_rows);
            let row = b.add(row, right_from);
            let combined = |b: &mut Builder, index, lanes: u8| {
                let pointer = b.offset(kept, index);
                let other = if lanes > 1 { b.load_vector(pointer, lanes) } else { b.load(pointer) };
                let bits = [left, right].map(|tuples| tuples.key_bits + tuples.value_bits);
                let tuple = b.convert(tuple, to.width.scalar());
                let tuple = if lanes > 1 { b.splat(tuple, lanes) } else { tuple };
                let packed = to.pack(b, &[(tuple, bits[0]), (other, bits[1])]);
                let place = b.add(row, index);
                (b.offset(out, place), packed)
            };
            // Rows begin anywhere, so that only a CPU has vectors.
            let lanes = if shape.is_serial() { lanes(shape, right.width, to.width) } else { 1 };
            let zero = b.u32(0);
            let mut first = zero;
            if lanes > 1 {
                let each = b.u32(lanes.into());
                let rest = b.rem(right_count, each);
                first = b.sub(right_count, rest);
                for_range(b, zero, first, each, |b, index| {
                    let (pointer, packed) = combined(b, index, lanes);
                    b.store_vector(pointer, packed);
                });
            }
            let first = b.add(first, thread);
            for_range(b, first, right_count, threads, |b, index| {
                let (pointer, packed) = combined(b, index, 1);
                b.store(pointer, packed);
            });
        });
    });
    b.end_kernel();
    std::mem::take(b).finish()
}

/// The kernel that copies pairs of words.
pub fn copy() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    let b = &mut b;
    b.begin_kernel(COPY);
    let data = param(b, "data", Type::global(Scalar::U64));
    let pairs = param(b, "pairs", Scalar::I64);
    let out = param(b, "out", Type::global(Scalar::U64));
    let mut wide = |builtin| {
        let value = b.builtin(builtin);
        b.convert(value, Scalar::I64)
    };
    let [block, threads, blocks, thread] =
        [Builtin::BlockId, Builtin::BlockDim, Builtin::GridDim, Builtin::ThreadId].map(&mut wide);
    let before = b.mul(block, threads);
    let (own, step) = (b.add(before, thread), b.mul(blocks, threads));
    for_range(b, own, pairs, step, |b, pair| {
        let two = b.i64(2);
        let word = b.mul(pair, two);
        let pointer = b.offset(data, word);
        let words = b.load_vector_reading(pointer, 2, (Reads::ReadOnly, 16));
        let pointer = b.offset(out, word);
        b.store_vector_aligned(pointer, words, 16);
    });
    b.end_kernel();
    std::mem::take(b).finish()
}
