//! The join network (section 4.2, figure 8e): left tuples are halved until a thread has a few, and with each half goes the half of the right
//! tuples that may match it. Halves of right ones overlap, so that the last of a half seldom has matches in the other; where it may, the
//! side exit is taken: the thread's tuples are looked up one by one.
//!
//! All stages but the loops of the last are fixed: the number of a group says which way it goes, and threads of a group read the same
//! pivots.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder};

use super::matching::{Held, compare_all, look_up};
use super::tile::{Block, Tile};
use crate::primitives::for_range;

/// Of a half of the right tuples, the part by which it is longer: one of so many.
const OVERLAP: u32 = 4;

/// Finds the matches of all left tuples.
pub(super) fn find(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    let blocking = block.description.tuning.blocking;
    let groups = block.description.tile(block.shape).div_ceil(blocking).next_power_of_two();
    let stages = groups.trailing_zeros();
    let count = b.u32(groups);
    for_range(b, block.thread, count, block.threads, |b, group| {
        let (from, to) = part(b, tile, group, stages);
        let any = b.lt(from, to);
        b.begin_if(any);
        let (window, length, exits) = route(b, block, tile, (group, stages));
        b.begin_if(exits);
        let one = b.u32(1);
        for_range(b, from, to, one, |b, index| {
            let key = block.left_key(b, index);
            look_up(b, block, tile, (index, key));
        });
        b.begin_else();
        let held: Vec<Held> = (0..blocking)
            .map(|number| {
                let number = b.u32(number);
                let index = b.add(from, number);
                Held::new(b, block, (index, to))
            })
            .collect();
        let end = b.add(window, length);
        compare_all(b, block, tile, &held, (window, end));
        for one in &held {
            one.finish(b, block, tile, window);
        }
        b.end();
        b.end();
    });
}

/// Left tuples of part `number` of `2^stages`.
fn part(b: &mut Builder, tile: &Tile, number: V, stages: u32) -> (V, V) {
    let (one, distance) = (b.u32(1), b.u32(stages));
    let next = b.add(number, one);
    let mut bound = |number: V| {
        let before = b.mul(number, tile.lefts);
        b.binary(BinaryOp::Shr, before, distance)
    };
    (bound(number), bound(next))
}

/// The right tuples that may match a group (the first of them, and how many), and whether there may be others.
fn route(b: &mut Builder, block: &Block<'_>, tile: &Tile, (group, stages): (V, u32)) -> (V, V, V) {
    let (zero, one, no) = (b.u32(0), b.u32(1), b.bool(false));
    let (mut window, mut length, mut exits) = (zero, tile.rights_and_next, no);
    for stage in 0..stages {
        // Of which half it is on this stage.
        let distance = b.u32(stages - stage - 1);
        let number = b.binary(BinaryOp::Shr, group, distance);
        let (from, to) = part(b, tile, number, stage + 1);
        let last = b.sub(to, one);
        let (first_key, last_key) = (block.left_key(b, from), block.left_key(b, last));
        let half = b.add(length, one);
        let half = b.binary(BinaryOp::Shr, half, one);
        let overlap = b.u32(OVERLAP);
        let more = b.div(half, overlap);
        let half = b.add(half, more);
        let half = b.binary(BinaryOp::Min, half, length);
        let upper = b.sub(length, half);
        // The last tuple that only the lower half has: if it is less, nothing of the lower half is lost.
        let has_upper = b.ne(upper, zero);
        let (is_upper, is_beyond) = (b.var_of("is_upper", no), b.var_of("is_beyond", no));
        b.begin_if(has_upper);
        let before = b.add(window, upper);
        let before = b.sub(before, one);
        let before = block.right_key(b, tile, before);
        let is_less = b.lt(before, first_key);
        b.assign(is_upper, is_less);
        // The first that only the upper half has.
        let behind = b.add(window, half);
        let behind = block.right_key(b, tile, behind);
        let goes_beyond = b.compare(kelpie_kir::CompareOp::Le, behind, last_key);
        let goes_low = b.not(is_less);
        let goes_beyond = b.and(goes_beyond, goes_low);
        b.assign(is_beyond, goes_beyond);
        b.end();
        let (is_upper, is_beyond) = (b.read(is_upper), b.read(is_beyond));
        let moved = b.add(window, upper);
        window = b.select(is_upper, moved, window);
        length = half;
        exits = b.or(exits, is_beyond);
    }
    (window, length, exits)
}
