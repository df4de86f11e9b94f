//! The first stage: sections of the inputs that blocks work on by themselves. Positions are `u32`.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`SPLITS`] | `left`, `right`, `left_rows: u32`, `right_rows: u32`, `tiles: u32`, `splits: u32[tiles + 1]` | `splits[t]` = left tuples before tile t of the inputs merged |
//! | [`SECTIONS`] | `left`, `right`, `left_rows`, `right_rows`, `levels: u32`, `sections: u32[4 << levels]` | section s = left tuples `sections[4s]..sections[4s + 1]` and right ones `sections[4s + 2]..sections[4s + 3]` |
//!
//! **By search.** The inputs are cut in two by a pivot, the middle tuple of one of them, which is looked up in both: tuples with its key go
//! to the right half, so that equal keys stay together. Each half is cut likewise, with the inputs in turn. In the paper a section is cut
//! by whoever has it; here the thread of a section goes from the whole down to it, so that one launch does all: what the threads of
//! neighbouring sections look at on the upper levels is the same, and comes from the cache. Where a tuple without a match is in no
//! result, a section is cut back to the keys that both inputs may have there, and dropped where there are none.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, CompareOp, Scalar, Type};

use super::search::{merge_path, search};
use super::{Description, Tuples};
use crate::primitives::for_range;
use crate::shape::LaunchShape;

/// Cuts by merge path.
pub const SPLITS: &str = "algebra_splits";
/// Cuts by pivots.
pub const SECTIONS: &str = "algebra_sections";

/// Adds a parameter to the kernel; its value.
pub(super) fn param(b: &mut Builder, name: &str, ty: impl Into<Type>) -> V {
    let index = b.add_param(name, ty.into());
    b.param(index)
}

/// Two relations.
#[derive(Clone, Copy)]
pub(super) struct Inputs {
    pub tuples: Tuples,
    pub left: V,
    pub right: V,
    /// `u32`.
    pub left_rows: V,
    pub right_rows: V,
}

impl Inputs {
    /// Adds the parameters to the kernel.
    pub fn begin(b: &mut Builder, tuples: Tuples) -> Inputs {
        let array = Type::global(tuples.width.scalar());
        let (left, right) = (param(b, "left", array), param(b, "right", array));
        let (left_rows, right_rows) =
            (param(b, "left_rows", Scalar::U32), param(b, "right_rows", Scalar::U32));
        Inputs { tuples, left, right, left_rows, right_rows }
    }

    /// The key of a tuple of one of them.
    pub fn key(&self, b: &mut Builder, is_left: bool, position: V) -> V {
        let tuple = b.element(if is_left { self.left } else { self.right }, position);
        self.tuples.key(b, tuple)
    }

    /// The first tuple of one of them in `from..to` whose key is not less than `key`, or not `Le`.
    pub fn bound(&self, b: &mut Builder, is_left: bool, (from, to): (V, V), (op, key): (CompareOp, V)) -> V {
        search(b, from, to, &mut |b, position| {
            let other = self.key(b, is_left, position);
            b.compare(op, other, key)
        })
    }
}

/// Numbers `0..count` (`u32`), shared out among the threads of the grid.
pub(super) fn for_grid(b: &mut Builder, count: V, body: impl FnOnce(&mut Builder, V)) {
    let (block, threads) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::BlockDim));
    let (blocks, thread) = (b.builtin(Builtin::GridDim), b.builtin(Builtin::ThreadId));
    let before = b.mul(block, threads);
    let (own, step) = (b.add(before, thread), b.mul(blocks, threads));
    for_range(b, own, count, step, body);
}

/// The kernel that cuts by merge path.
pub(super) fn splits(b: &mut Builder, description: &Description, shape: &LaunchShape) {
    b.begin_kernel(SPLITS);
    let inputs = Inputs::begin(b, description.tuples);
    let tiles = param(b, "tiles", Scalar::U32);
    let splits = param(b, "splits", Type::global(Scalar::U32));
    let one = b.u32(1);
    let count = b.add(tiles, one);
    let all = b.add(inputs.left_rows, inputs.right_rows);
    for_grid(b, count, |b, number| {
        let tile = b.u32(description.tile(shape));
        let first = b.mul(number, tile);
        let first = b.binary(BinaryOp::Min, first, all);
        let taken =
            merge_path(b, first, (inputs.left_rows, inputs.right_rows), &mut |b, position, is_left| {
                inputs.key(b, is_left, position)
            });
        let pointer = b.offset(splits, number);
        b.store(pointer, taken);
    });
    b.end_kernel();
}

/// A section: from and to, of the left and of the right input.
type Section = [Var; 4];

/// The kernel that cuts by pivots.
pub(super) fn sections(b: &mut Builder, description: &Description) {
    b.begin_kernel(SECTIONS);
    let inputs = Inputs::begin(b, description.tuples);
    let levels = param(b, "levels", Scalar::U32);
    let sections = param(b, "sections", Type::global(Scalar::U32));
    let one = b.u32(1);
    let count = b.binary(BinaryOp::Shl, one, levels);
    for_grid(b, count, |b, number| {
        let zero = b.u32(0);
        let section: Section = [
            ("left_from", zero),
            ("left_to", inputs.left_rows),
            ("right_from", zero),
            ("right_to", inputs.right_rows),
        ]
        .map(|(name, value)| b.var_of(name, value));
        for_range(b, zero, levels, one, |b, level| {
            let (last, one) = (b.sub(levels, level), b.u32(1));
            let bit = b.sub(last, one);
            let bit = b.binary(BinaryOp::Shr, number, bit);
            let bit = b.and(bit, one);
            let parity = b.and(level, one);
            let zero = b.u32(0);
            let (is_upper, in_turn) = (b.ne(bit, zero), b.eq(parity, zero));
            halve(b, &inputs, section, (is_upper, in_turn));
        });
        if description.needs_both() {
            cut_back(b, &inputs, section);
        }
        let two = b.u32(2);
        let first = b.binary(BinaryOp::Shl, number, two);
        for (offset, var) in (0..).zip(section) {
            let (offset, value) = (b.u32(offset), b.read(var));
            let index = b.add(first, offset);
            let pointer = b.offset(sections, index);
            b.store(pointer, value);
        }
    });
    b.end_kernel();
}

/// Goes on to one half of a section, which is cut by a pivot of the left input if it is its turn, or the right one has nothing.
fn halve(b: &mut Builder, inputs: &Inputs, section: Section, (is_upper, in_turn): (V, V)) {
    let [left_from, left_to, right_from, right_to] = section.map(|var| b.read(var));
    let (has_left, has_right) = (b.lt(left_from, left_to), b.lt(right_from, right_to));
    let any = b.or(has_left, has_right);
    b.begin_if(any);
    let no_right = b.not(has_right);
    let by_left = b.or(in_turn, no_right);
    let by_left = b.and(by_left, has_left);
    let scalar = inputs.tuples.width.scalar();
    let pivot = b.var("pivot", scalar);
    b.begin_if(by_left);
    let key = middle_key(b, inputs, true, (left_from, left_to));
    b.assign(pivot, key);
    b.begin_else();
    let key = middle_key(b, inputs, false, (right_from, right_to));
    b.assign(pivot, key);
    b.end();
    let key = b.read(pivot);
    let left = inputs.bound(b, true, (left_from, left_to), (CompareOp::Lt, key));
    let right = inputs.bound(b, false, (right_from, right_to), (CompareOp::Lt, key));
    b.begin_if(is_upper);
    b.assign(section[0], left);
    b.assign(section[2], right);
    b.begin_else();
    b.assign(section[1], left);
    b.assign(section[3], right);
    b.end();
    b.end();
}

fn middle_key(b: &mut Builder, inputs: &Inputs, is_left: bool, (from, to): (V, V)) -> V {
    let (distance, one) = (b.sub(to, from), b.u32(1));
    let half = b.binary(BinaryOp::Shr, distance, one);
    let middle = b.add(from, half);
    inputs.key(b, is_left, middle)
}

/// Leaves of a section the keys that both inputs may have.
fn cut_back(b: &mut Builder, inputs: &Inputs, section: Section) {
    let [left_from, left_to, right_from, right_to] = section.map(|var| b.read(var));
    let (has_left, has_right) = (b.lt(left_from, left_to), b.lt(right_from, right_to));
    let both = b.and(has_left, has_right);
    let one = b.u32(1);
    b.begin_if(both);
    let ends = |b: &mut Builder, is_left: bool, from: V, to: V| {
        let last = b.sub(to, one);
        (inputs.key(b, is_left, from), inputs.key(b, is_left, last))
    };
    let (least_left, most_left) = ends(b, true, left_from, left_to);
    let (least_right, most_right) = ends(b, false, right_from, right_to);
    let (left, right) = ((left_from, left_to), (right_from, right_to));
    let new = [
        inputs.bound(b, true, left, (CompareOp::Lt, least_right)),
        inputs.bound(b, true, left, (CompareOp::Le, most_right)),
        inputs.bound(b, false, right, (CompareOp::Lt, least_left)),
        inputs.bound(b, false, right, (CompareOp::Le, most_left)),
    ];
    for (var, value) in section.into_iter().zip(new) {
        b.assign(var, value);
    }
    b.end();
    // Where one of them has nothing, there is nothing to be done.
    let [left_from, left_to, right_from, right_to] = section.map(|var| b.read(var));
    let (no_left, no_right) = (b.ge(left_from, left_to), b.ge(right_from, right_to));
    let nothing = b.or(no_left, no_right);
    b.begin_if(nothing);
    b.assign(section[1], left_from);
    b.assign(section[3], right_from);
    b.end();
}
