//! The block joins (section 4.2, figure 8): how the threads of a block find, for each left tuple of a tile, the right tuples with its key.
//!
//! All give the same ([`Found`]): compaction, joining and writing are common to them (section 4.2: “the major difference is in computing the
//! matching elements”).

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, CompareOp, Scalar, Scope};

use super::search::{add_to, merge_path, one_if};
use super::tile::{Block, Tile, table_slots};
use super::{BlockJoin, network};
use crate::primitives::for_range;

/// The right tuples with the key of left tuple `index`: numbers `least..most` in the tile, of which there may be none.
pub(super) struct Found {
    pub index: V,
    pub key: V,
    pub least: V,
    pub most: V,
}

/// What no number of a tuple is.
const NOBODY: u32 = u32::MAX;
/// Odd, and without a pattern (Knuth's multiplicative hashing).
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Finds the matches of all left tuples.
pub(super) fn find(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    match block.description.block_join {
        BlockJoin::BinarySearch => binary_search(b, block, tile),
        BlockJoin::BlockedBinarySearch => blocked_binary_search(b, block, tile),
        BlockJoin::BruteForce => brute_force(b, block, tile),
        BlockJoin::Hash => hash(b, block, tile),
        BlockJoin::JoinNetwork => network::find(b, block, tile),
        BlockJoin::TwoFinger => two_finger(b, block, tile),
    }
}

/// The end of the run of right tuples with a key that begins with `least`, if that one has it.
fn run_end(b: &mut Builder, block: &Block<'_>, tile: &Tile, (least, key): (V, V)) -> V {
    if block.description.is_join() {
        return gallop(b, block, tile, (least, key));
    }
    // Whether there is one is all that matters.
    let most = b.var_of("most", least);
    let exists = b.lt(least, tile.rights_and_next);
    b.begin_if(exists);
    let other = block.right_key(b, tile, least);
    let is_equal = b.eq(other, key);
    let one = one_if(b, is_equal);
    add_to(b, most, one);
    b.end();
    b.read(most)
}

/// The first right tuple from `least` on whose key is greater than `key`, where that is seldom far: after steps that double (Bentley and Yao
/// 1976), by a search in the last of them.
fn gallop(b: &mut Builder, block: &Block<'_>, tile: &Tile, (least, key): (V, V)) -> V {
    let zero = b.u32(0);
    // All before `from` are not greater; the one at `from + step - 1` is looked at next.
    let (from, step) = (b.var_of("from", least), b.var_of("step", zero));
    let one = b.u32(1);
    b.assign(step, one);
    b.begin_loop();
    let (begin, wide) = (b.read(from), b.read(step));
    let end = b.add(begin, wide);
    let is_beyond = b.lt(tile.rights_and_next, end);
    b.break_if(is_beyond);
    let last = b.sub(end, one);
    let other = block.right_key(b, tile, last);
    let is_greater = b.lt(key, other);
    b.break_if(is_greater);
    b.assign(from, end);
    let twice = b.add(wide, wide);
    b.assign(step, twice);
    b.end();
    let (begin, wide) = (b.read(from), b.read(step));
    let last = b.sub(wide, one);
    let end = b.add(begin, last);
    let end = b.binary(BinaryOp::Min, end, tile.rights_and_next);
    block.right_bound(b, tile, (begin, end), (CompareOp::Le, key))
}

/// Looks a tuple up.
pub(super) fn look_up(b: &mut Builder, block: &Block<'_>, tile: &Tile, (index, key): (V, V)) {
    let zero = b.u32(0);
    let least = block.right_bound(b, tile, (zero, tile.rights_and_next), (CompareOp::Lt, key));
    let most = run_end(b, block, tile, (least, key));
    block.set_left(b, tile, &Found { index, key, least, most });
}

fn binary_search(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    for_range(b, block.thread, tile.lefts, block.threads, |b, index| {
        let key = block.left_key(b, index);
        look_up(b, block, tile, (index, key));
    });
}

/// A left tuple that a thread has in registers.
pub(super) struct Held {
    index: V,
    /// Whether there is such a tuple; else the last one stands for it.
    live: V,
    pub key: V,
    /// How many right tuples are less, and not greater, of those that it was compared with.
    pub less: Var,
    pub not_greater: Var,
}

impl Held {
    /// The tuple with a number, or the last of those before `end`, of which there is one.
    pub fn new(b: &mut Builder, block: &Block<'_>, (index, end): (V, V)) -> Held {
        let live = b.lt(index, end);
        let (one, zero) = (b.u32(1), b.u32(0));
        let last = b.sub(end, one);
        let within = b.binary(BinaryOp::Min, index, last);
        let key = block.left_key(b, within);
        let (less, not_greater) = (b.var_of("less", zero), b.var_of("not_greater", zero));
        Held { index, live, key, less, not_greater }
    }

    /// Notes what was found, with `before` right tuples before those that it was compared with.
    pub fn finish(&self, b: &mut Builder, block: &Block<'_>, tile: &Tile, before: V) {
        b.begin_if(self.live);
        let (less, not_greater) = (b.read(self.less), b.read(self.not_greater));
        let (least, most) = (b.add(before, less), b.add(before, not_greater));
        block.set_left(b, tile, &Found { index: self.index, key: self.key, least, most });
        b.end();
    }
}

/// Compares all that a thread has with the right tuples `from..to`, several in a turn of the loop.
pub(super) fn compare_all(
    b: &mut Builder,
    block: &Block<'_>,
    tile: &Tile,
    held: &[Held],
    (from, to): (V, V),
) {
    for one in held {
        let zero = b.u32(0);
        b.assign(one.less, zero);
        b.assign(one.not_greater, zero);
    }
    let compare = |b: &mut Builder, index: V| {
        let other = block.right_key(b, tile, index);
        for one in held {
            let is_less = b.lt(other, one.key);
            let is_not_greater = b.compare(CompareOp::Le, other, one.key);
            let (less, not_greater) = (one_if(b, is_less), one_if(b, is_not_greater));
            add_to(b, one.less, less);
            add_to(b, one.not_greater, not_greater);
        }
    };
    let unroll = block.description.tuning.unroll;
    let (step, one) = (b.u32(unroll), b.u32(1));
    let count = b.sub(to, from);
    let rest = b.rem(count, step);
    let whole = b.sub(to, rest);
    for_range(b, from, whole, step, |b, first| {
        for number in 0..unroll {
            let number = b.u32(number);
            let index = b.add(first, number);
            compare(b, index);
        }
    });
    for_range(b, whole, to, one, |b, index| compare(b, index));
}

fn blocked_binary_search(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    let blocking = block.description.tuning.blocking;
    let each = b.u32(blocking);
    let (first, step) = (b.mul(block.thread, each), b.mul(block.threads, each));
    for_range(b, first, tile.lefts, step, |b, first| {
        let held: Vec<Held> = (0..blocking)
            .map(|number| {
                let number = b.u32(number);
                let index = b.add(first, number);
                Held::new(b, block, (index, tile.lefts))
            })
            .collect();
        let [Some(lowest), Some(highest)] = [held.first(), held.last()] else { return };
        let zero = b.u32(0);
        let from = block.right_bound(b, tile, (zero, tile.rights_and_next), (CompareOp::Lt, lowest.key));
        let to = block.right_bound(b, tile, (from, tile.rights_and_next), (CompareOp::Le, highest.key));
        compare_all(b, block, tile, &held, (from, to));
        for one in &held {
            one.finish(b, block, tile, from);
        }
    });
}

fn brute_force(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    let blocking = block.description.tuning.blocking;
    let each = b.u32(blocking);
    let step = b.mul(block.threads, each);
    for_range(b, block.thread, tile.lefts, step, |b, first| {
        let held: Vec<Held> = (0..blocking)
            .map(|number| {
                let number = b.u32(number);
                let behind = b.mul(number, block.threads);
                let index = b.add(first, behind);
                Held::new(b, block, (index, tile.lefts))
            })
            .collect();
        let zero = b.u32(0);
        compare_all(b, block, tile, &held, (zero, tile.rights_and_next));
        for one in &held {
            one.finish(b, block, tile, zero);
        }
    });
}

fn two_finger(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    // The one behind is not merged: left tuples are looked for, and all of them come before it.
    let one = b.u32(1);
    let (first, end) = block.share(b, tile);
    let taken = merge_path(b, first, (tile.lefts, tile.rights), &mut |b, index, is_left| match is_left {
        true => block.left_key(b, index),
        false => block.right_key(b, tile, index),
    });
    let others = b.sub(first, taken);
    let (left, right) = (b.var_of("left", taken), b.var_of("right", others));
    for_range(b, first, end, one, |b, _| {
        let (index, other) = (b.read(left), b.read(right));
        let has_left = b.lt(index, tile.lefts);
        let no = b.bool(false);
        let takes_left = b.var_of("takes_left", no);
        b.begin_if(has_left);
        let key = block.left_key(b, index);
        let has_right = b.lt(other, tile.rights);
        let is_alone = b.not(has_right);
        b.assign(takes_left, is_alone);
        b.begin_if(has_right);
        let other_key = block.right_key(b, tile, other);
        let precedes = b.compare(CompareOp::Le, key, other_key);
        b.assign(takes_left, precedes);
        b.end();
        let takes = b.read(takes_left);
        b.begin_if(takes);
        let most = run_end(b, block, tile, (other, key));
        block.set_left(b, tile, &Found { index, key, least: other, most });
        b.end();
        b.end();
        let takes = b.read(takes_left);
        let (taken, passed) = (one_if(b, takes), b.not(takes));
        let passed = one_if(b, passed);
        add_to(b, left, taken);
        add_to(b, right, passed);
    });
}

/// The slot of a key in the table of so many slots, a power of two.
fn slot_of(b: &mut Builder, key: V, slots: u32) -> V {
    let word = match b.scalar(key) {
        Scalar::I128 => {
            let distance = b.int(Scalar::I128, 64);
            let high = b.binary(BinaryOp::Shr, key, distance);
            let (high, low) = (b.convert(high, Scalar::U64), b.convert(key, Scalar::U64));
            b.binary(BinaryOp::Xor, high, low)
        }
        _ => b.convert(key, Scalar::U64),
    };
    let (factor, distance) = (b.u64(FACTOR), b.u64(u64::from(64 - slots.trailing_zeros())));
    let mixed = b.mul(word, factor);
    let slot = b.binary(BinaryOp::Shr, mixed, distance);
    b.convert(slot, Scalar::U32)
}

/// Collide, then detect: tuples are written to their slots whatever is there; then each looks whether it was written over, and is tried
/// again. Of tuples with one key the first is in the table. (The paper's threads write without atomics, as they had none; here an exchange
/// stands for such a write, since plain writes to one place are a race.)
fn hash(b: &mut Builder, block: &Block<'_>, tile: &Tile) {
    let Some([table, done, again, found]) = block.table else { return };
    let slots = table_slots(block.description.tile(block.shape));
    let (zero, one, nobody) = (b.u32(0), b.u32(1), b.u32(NOBODY));
    for_range(b, block.thread, tile.rights_and_next, block.threads, |b, index| {
        let yes = b.bool(true);
        let is_first = b.var_of("is_first", yes);
        let has_before = b.ne(index, zero);
        b.begin_if(has_before);
        let before = b.sub(index, one);
        let (before, key) = (block.right_key(b, tile, before), block.right_key(b, tile, index));
        let differs = b.ne(before, key);
        b.assign(is_first, differs);
        b.end();
        let is_first = b.read(is_first);
        let is_done = b.select(is_first, zero, one);
        let pointer = b.offset(done, index);
        b.store(pointer, is_done);
    });
    for_range(b, block.thread, tile.lefts, block.threads, |b, index| {
        let pointer = b.offset(found, index);
        b.store(pointer, zero);
    });
    let leads = block.leads(b);
    b.begin_loop();
    let count = b.u32(slots);
    for_range(b, block.thread, count, block.threads, |b, slot| {
        let pointer = b.offset(table, slot);
        b.store(pointer, nobody);
    });
    b.begin_if(leads);
    b.store(again, zero);
    b.end();
    b.barrier();
    let open = |b: &mut Builder, body: &dyn Fn(&mut Builder, V, V)| {
        for_range(b, block.thread, tile.rights_and_next, block.threads, |b, index| {
            let pointer = b.offset(done, index);
            let is_done = b.load(pointer);
            let is_open = b.eq(is_done, zero);
            b.begin_if(is_open);
            let key = block.right_key(b, tile, index);
            let slot = slot_of(b, key, slots);
            body(b, index, slot);
            b.end();
        });
        b.barrier();
    };
    open(b, &|b, index, slot| {
        let pointer = b.offset(table, slot);
        b.atomic_discard(AtomicOp::Exchange, pointer, index, Scope::Block);
    });
    open(b, &|b, index, slot| {
        let pointer = b.offset(table, slot);
        let who = b.load(pointer);
        let is_there = b.eq(who, index);
        b.begin_if(is_there);
        let pointer = b.offset(done, index);
        b.store(pointer, one);
        b.begin_else();
        b.atomic_discard(AtomicOp::Or, again, one, Scope::Block);
        b.end();
    });
    probe(b, block, tile, (table, found));
    let collided = b.uniform_load(again);
    let finished = b.eq(collided, zero);
    b.break_if(finished);
    b.end();
    let none = b.u32(0);
    for_range(b, block.thread, tile.lefts, block.threads, |b, index| {
        let pointer = b.offset(found, index);
        let was_found = b.load(pointer);
        let is_open = b.eq(was_found, zero);
        b.begin_if(is_open);
        let key = block.left_key(b, index);
        // Whoever has a place among right tuples is looked up for it.
        match block.description.has_right() {
            true => look_up(b, block, tile, (index, key)),
            false => block.set_left(b, tile, &Found { index, key, least: none, most: none }),
        }
        b.end();
    });
}

/// Looks up in the table the left tuples that were not found so far.
fn probe(b: &mut Builder, block: &Block<'_>, tile: &Tile, (table, found): (V, V)) {
    let slots = table_slots(block.description.tile(block.shape));
    for_range(b, block.thread, tile.lefts, block.threads, |b, index| {
        let key = block.left_key(b, index);
        let slot = slot_of(b, key, slots);
        let pointer = b.offset(table, slot);
        let least = b.load(pointer);
        let nobody = b.u32(NOBODY);
        let is_taken = b.ne(least, nobody);
        b.begin_if(is_taken);
        let other = block.right_key(b, tile, least);
        let is_equal = b.eq(other, key);
        b.begin_if(is_equal);
        let most = run_end(b, block, tile, (least, key));
        block.set_left(b, tile, &Found { index, key, least, most });
        let (pointer, yes) = (b.offset(found, index), b.u32(1));
        b.store(pointer, yes);
        b.end();
        b.end();
    });
}
