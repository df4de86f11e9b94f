//! Searches in sorted arrays. Positions are `u32`.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, CompareOp};

/// The first position of `least..most` that is not `below`, or `most`: those that are come first.
pub(super) fn search(b: &mut Builder, least: V, most: V, below: &mut dyn FnMut(&mut Builder, V) -> V) -> V {
    let (least, most) = (b.var_of("least", least), b.var_of("most", most));
    b.begin_loop();
    let (from, to) = (b.read(least), b.read(most));
    let done = b.ge(from, to);
    b.break_if(done);
    // Half of the distance, as a sum of positions may be beyond 32 bits.
    let (distance, one) = (b.sub(to, from), b.u32(1));
    let half = b.binary(BinaryOp::Shr, distance, one);
    let middle = b.add(from, half);
    let is_below = below(b, middle);
    let after = b.add(middle, one);
    let (new_from, new_to) = (b.select(is_below, after, from), b.select(is_below, to, middle));
    b.assign(least, new_from);
    b.assign(most, new_to);
    b.end();
    b.read(least)
}

/// The number of left tuples among the first `diagonal` of two runs merged, those of the left one first where keys are equal. `keys`: the
/// keys of the left and the right run at a position.
pub(super) fn merge_path(
    b: &mut Builder,
    diagonal: V,
    (left, right): (V, V),
    keys: &mut dyn FnMut(&mut Builder, V, bool) -> V,
) -> V {
    let beyond = b.binary(BinaryOp::Min, diagonal, right);
    let least = b.sub(diagonal, beyond);
    let most = b.binary(BinaryOp::Min, diagonal, left);
    search(b, least, most, &mut |b, taken| {
        let one = b.u32(1);
        let others = b.sub(diagonal, taken);
        let others = b.sub(others, one);
        let (key, other) = (keys(b, taken, true), keys(b, others, false));
        b.compare(CompareOp::Le, key, other)
    })
}

/// Adds to a variable.
pub(super) fn add_to(b: &mut Builder, var: Var, added: V) {
    let old = b.read(var);
    let new = b.add(old, added);
    b.assign(var, new);
}

/// 1 where a condition holds, else 0.
pub(super) fn one_if(b: &mut Builder, condition: V) -> V {
    let (one, zero) = (b.u32(1), b.u32(0));
    b.select(condition, one, zero)
}
