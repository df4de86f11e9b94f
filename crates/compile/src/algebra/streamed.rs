//! Tiles whose tuples have one result at most, in the order of threads: SELECT, and the set operations where each thread merges as many tuples.
//! Then nothing is noted of a tuple in the block's memory: a thread knows which of its tuples have results, one prefix sum over the threads
//! gives their places, and results are brought together there before they are written (figure 5).
//!
//! A selection's tuples go from the device's memory to registers, neighbours to neighbouring lanes; a ballot gives their places in the warp.
//! A CPU's worker selects several tuples at a time, and merges without a branch on what comes next.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, CompareOp, Expr, Scalar, ShuffleMode, UnaryOp};

use super::search::{add_to, merge_path, one_if};
use super::tile::{Block, Bounds, Tile};
use super::{Comparison, Duplicates, Operator, Width};
use crate::primitives::for_range;
use crate::primitives::radix::rank_among;
use crate::primitives::scan::block_scan;

/// Elements of a vector of a CPU, and so places that must be there behind the last result.
pub(super) const LANES: u32 = 8;

/// Brings the results of a tile together; how many there are (`u32`, the same in all threads). Begins with a barrier, and ends with one.
pub(super) fn stage(b: &mut Builder, block: &Block<'_>, bounds: Bounds, staged: V) -> (Tile, V) {
    b.barrier();
    let is_serial = block.shape.is_serial();
    let (tile, total) = match &block.description.operator {
        Operator::Select(comparisons) => {
            let tile = block.measure(b, bounds);
            let select = Select { block, comparisons, staged };
            (tile, if is_serial { select.serial(b, &tile) } else { select.by_warps(b, &tile) })
        }
        _ if is_serial => {
            let tile = block.measure(b, bounds);
            (tile, merge_serial(b, block, &tile, staged))
        }
        _ => {
            let tile = block.load(b, bounds);
            (tile, merge(b, block, &tile, staged))
        }
    };
    let total = b.convert(total, Scalar::U64);
    let leads = block.leads(b);
    b.begin_if(leads);
    b.store(block.total, total);
    b.end();
    let total = b.uniform_load(block.total);
    (tile, b.convert(total, Scalar::U32))
}

/// A selection.
struct Select<'a, 'd> {
    block: &'a Block<'d>,
    comparisons: &'a [Comparison],
    staged: V,
}

impl Select<'_, '_> {
    fn is_set(&self) -> bool {
        self.block.description.duplicates == Duplicates::First
    }

    /// Whether all comparisons hold of a tuple, or of each of a vector of them; `None` where there are none.
    fn holds(&self, b: &mut Builder, tuple: V) -> Option<V> {
        let tuples = self.block.description.tuples;
        let scalar = tuples.width.scalar();
        let mut all = None;
        for comparison in self.comparisons {
            let field = tuples.field(b, tuple, (comparison.field.shift, comparison.field.bits));
            let holds = match self.fits(comparison) {
                true => {
                    let value = b.int(scalar, comparison.value);
                    b.compare(comparison.op, field, value)
                }
                false => {
                    let (field, value) = (b.convert(field, Scalar::U64), b.u64(comparison.value));
                    b.compare(comparison.op, field, value)
                }
            };
            all = Some(match all {
                Some(before) => b.and(before, holds),
                None => holds,
            });
        }
        all
    }

    /// Whether a tuple (position `u32`) is selected.
    fn selects(&self, b: &mut Builder, (position, tuple): (V, V)) -> V {
        let holds = self.holds(b, tuple).unwrap_or_else(|| b.bool(true));
        if !self.is_set() {
            return holds;
        }
        let (tuples, inputs) = (self.block.description.tuples, &self.block.inputs);
        let (yes, zero, one) = (b.bool(true), b.u32(0), b.u32(1));
        let is_first = b.var_of("is_first", yes);
        let has_before = b.ne(position, zero);
        b.begin_if(has_before);
        let before = b.sub(position, one);
        let (before, key) = (inputs.key(b, true, before), tuples.key(b, tuple));
        let differs = b.ne(before, key);
        b.assign(is_first, differs);
        b.end();
        let is_first = b.read(is_first);
        b.and(holds, is_first)
    }

    fn by_warps(&self, b: &mut Builder, tile: &Tile) -> V {
        let (block, shape) = (self.block, self.block.shape);
        let items = block.description.tile(shape) / shape.block_threads;
        let (lane, lanes) = (b.builtin(Builtin::LaneId), b.u32(shape.lanes));
        let (warp, of_warp) = (b.div(block.thread, lanes), b.u32(items * shape.lanes));
        let first = b.mul(warp, of_warp);
        let first = b.add(first, lane);
        let first = b.add(tile.bounds.left, first);
        let scalar = block.description.tuples.width.scalar();
        let load = |number: u32| {
            let behind = b.u32(number * shape.lanes);
            let position = b.add(first, behind);
            let live = b.lt(position, tile.bounds.left_end);
            let tuple = b.var("tuple", scalar);
            b.begin_if(live);
            let loaded = b.element(block.inputs.left, position);
            b.assign(tuple, loaded);
            b.end();
            (position, live, tuple)
        };
        // All are loaded before the first is waited for.
        let loaded: Vec<(V, V, Var)> = (0..items).map(load).collect();
        let mut sum = b.u32(0);
        let mut selected = Vec::new();
        for (position, live, tuple) in loaded {
            let (no, tuple) = (b.bool(false), b.read(tuple));
            let is_selected = b.var_of("is_selected", no);
            b.begin_if(live);
            let selects = self.selects(b, (position, tuple));
            b.assign(is_selected, selects);
            b.end();
            let is_selected = b.read(is_selected);
            let lanes = b.value(Expr::Ballot(is_selected));
            let (before, count) = (rank_among(b, lanes), b.unary(UnaryOp::Popcount, lanes));
            let before = b.add(sum, before);
            sum = b.add(sum, count);
            selected.push((is_selected, tuple, before));
        }
        // One lane of each warp has the warp's sum.
        let zero = b.u32(0);
        let leads = b.eq(lane, zero);
        let own = b.select(leads, sum, zero);
        let own = b.convert(own, Scalar::U64);
        let (before, total) = block_scan(b, shape, own, block.totals);
        let before = b.convert(before, Scalar::U32);
        let warp = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: before, lane: zero });
        for (is_selected, tuple, before) in selected {
            b.begin_if(is_selected);
            let place = b.add(warp, before);
            let pointer = b.offset(self.staged, place);
            b.store(pointer, tuple);
            b.end();
        }
        total
    }

    /// Whether a comparison is with a number that a tuple's word may have.
    fn fits(&self, comparison: &Comparison) -> bool {
        self.block.description.tuples.width != Width::W32 || comparison.value >> 32 == 0
    }

    /// Whether there are vectors of tuples that can be compared.
    fn has_vectors(&self) -> bool {
        let is_narrow = self.block.description.tuples.width != Width::W128;
        is_narrow && self.comparisons.iter().all(|comparison| self.fits(comparison))
    }

    fn serial(&self, b: &mut Builder, tile: &Tile) -> V {
        let (block, zero, one) = (self.block, b.u32(0), b.u32(1));
        let Bounds { left: from, left_end: end, .. } = tile.bounds;
        let count = b.var_of("count", zero);
        let each = |b: &mut Builder, from: V, to: V| {
            for_range(b, from, to, one, |b, position| {
                let tuple = b.element(block.inputs.left, position);
                let is_selected = self.selects(b, (position, tuple));
                put(b, (self.staged, count), (tuple, is_selected));
            });
        };
        if !self.has_vectors() {
            each(b, from, end);
            return b.read(count);
        }
        // The first of all has none before it.
        let is_first = b.eq(from, zero);
        let head = one_if(b, is_first);
        let begin = b.add(from, head);
        let begin = b.binary(BinaryOp::Min, begin, end);
        each(b, from, begin);
        let lanes = b.u32(LANES);
        let left = b.sub(end, begin);
        let rest = b.rem(left, lanes);
        let whole = b.sub(end, rest);
        for_range(b, begin, whole, lanes, |b, position| self.eight(b, position, count));
        each(b, whole, end);
        b.read(count)
    }

    /// Selects of eight tuples, which are not the first.
    fn eight(&self, b: &mut Builder, position: V, count: Var) {
        let (block, tuples) = (self.block, self.block.description.tuples);
        let pointer = b.offset(block.inputs.left, position);
        let vector = b.load_vector_read_only(pointer, LANES as u8);
        let mut mask = self.holds(b, vector);
        if self.is_set() {
            let one = b.u32(1);
            let before = b.sub(position, one);
            let pointer = b.offset(block.inputs.left, before);
            let before = b.load_vector_read_only(pointer, LANES as u8);
            let (key, before) = (tuples.key(b, vector), tuples.key(b, before));
            let differs = b.ne(key, before);
            mask = Some(match mask {
                Some(holds) => b.and(holds, differs),
                None => differs,
            });
        }
        let place = b.read(count);
        let pointer = b.offset(self.staged, place);
        let selected = match mask {
            Some(mask) => b.compress(pointer, vector, mask),
            None => {
                b.store_vector(pointer, vector);
                b.u32(LANES)
            }
        };
        add_to(b, count, selected);
    }
}

/// Adds a tuple to the results if it is one; the place behind the last is written in any case.
fn put(b: &mut Builder, (staged, count): (V, Var), (tuple, is_result): (V, V)) {
    let place = b.read(count);
    let pointer = b.offset(staged, place);
    b.store(pointer, tuple);
    let one = one_if(b, is_result);
    add_to(b, count, one);
}

/// Whether no tuple with a key is before, by the last one before, if there is one.
fn is_new(b: &mut Builder, (has, before): (V, V), key: V) -> V {
    let (differs, none) = (b.ne(before, key), b.not(has));
    b.or(differs, none)
}

/// A merge: where it stands in the tile, and the keys before, if there are such tuples.
struct Merge {
    left: Var,
    right: Var,
    left_before: Var,
    right_before: Var,
    has_left_before: Var,
    has_right_before: Var,
}

/// A tuple that was merged.
struct Merged {
    tuple: V,
    is_left: V,
    is_result: V,
}

/// A tuple of the tile: the left or the right one with a number.
type OfTile<'a> = &'a dyn Fn(&mut Builder, bool, V) -> V;

impl Merge {
    /// From these tuples on.
    fn begin(b: &mut Builder, block: &Block<'_>, tile: &Tile, (left, right): (V, V)) -> Merge {
        let scalar = block.description.tuples.width.scalar();
        let (none, one, zero) = (b.zero(scalar), b.u32(1), b.u32(0));
        let mut before = |is_left: bool, from: V, number: V| {
            let position = b.add(from, number);
            let exists = b.ne(position, zero);
            let key = b.var_of("before", none);
            b.begin_if(exists);
            let position = b.sub(position, one);
            let loaded = block.inputs.key(b, is_left, position);
            b.assign(key, loaded);
            b.end();
            (key, b.var_of("has_before", exists))
        };
        let (left_before, has_left_before) = before(true, tile.bounds.left, left);
        let (right_before, has_right_before) = before(false, tile.bounds.right, right);
        let (left, right) = (b.var_of("left", left), b.var_of("right", right));
        Merge { left, right, left_before, right_before, has_left_before, has_right_before }
    }

    /// The next tuple of the tile, which has one.
    fn next(&self, b: &mut Builder, block: &Block<'_>, tile: &Tile, tuple_of: OfTile<'_>) -> Merged {
        let (description, tuples) = (block.description, block.description.tuples);
        let (index, other) = (b.read(self.left), b.read(self.right));
        let (has_left, has_right) = (b.lt(index, tile.lefts), b.lt(other, tile.rights));
        let has_next = b.lt(other, tile.rights_and_next);
        let mut peek = |exists: V, is_left: bool, index: V| {
            let tuple = b.var("next", tuples.width.scalar());
            b.begin_if(exists);
            let loaded = tuple_of(b, is_left, index);
            b.assign(tuple, loaded);
            b.end();
            let tuple = b.read(tuple);
            (tuple, tuples.key(b, tuple))
        };
        let (left, left_key) = peek(has_left, true, index);
        let (right, right_key) = peek(has_next, false, other);
        let precedes = b.compare(CompareOp::Le, left_key, right_key);
        let no_right = b.not(has_right);
        let is_left = b.or(precedes, no_right);
        let is_left = b.and(is_left, has_left);
        let known = [self.left_before, self.right_before, self.has_left_before, self.has_right_before];
        let [left_before, right_before, has_left_before, has_right_before] = known.map(|var| b.read(var));
        let of_left = {
            let is_first = is_new(b, (has_left_before, left_before), left_key);
            let is_equal = b.eq(left_key, right_key);
            let is_matched = b.and(is_equal, has_next);
            let alone = b.not(is_matched);
            let is_first = if description.duplicates == Duplicates::First { is_first } else { b.bool(true) };
            match description.operator {
                Operator::Intersect => b.and(is_matched, is_first),
                Operator::Difference => b.and(alone, is_first),
                _ => is_first,
            }
        };
        let of_right = match (&description.operator, description.duplicates) {
            (Operator::Union, duplicates) => {
                let alone = is_new(b, (has_left_before, left_before), right_key);
                let is_first = is_new(b, (has_right_before, right_before), right_key);
                if duplicates == Duplicates::First { b.and(alone, is_first) } else { alone }
            }
            _ => b.bool(false),
        };
        let is_result = b.and(of_left, is_left);
        let is_right = b.not(is_left);
        let of_right = b.and(of_right, is_right);
        let is_result = b.or(is_result, of_right);
        self.advance(b, is_left, (left_key, right_key));
        Merged { tuple: b.select(is_left, left, right), is_left, is_result }
    }

    fn advance(&self, b: &mut Builder, is_left: V, (left_key, right_key): (V, V)) {
        let is_right = b.not(is_left);
        for (moves, at, (key, before), has) in [
            (is_left, self.left, (left_key, self.left_before), self.has_left_before),
            (is_right, self.right, (right_key, self.right_before), self.has_right_before),
        ] {
            let step = one_if(b, moves);
            add_to(b, at, step);
            let old = b.read(before);
            let new = b.select(moves, key, old);
            b.assign(before, new);
            let known = b.read(has);
            let known = b.or(known, moves);
            b.assign(has, known);
        }
    }
}

/// Merges a tile that was loaded: each thread as many tuples, first to see which have results, then to bring them to their places.
fn merge(b: &mut Builder, block: &Block<'_>, tile: &Tile, staged: V) -> V {
    let (first, end) = block.share(b, tile);
    let taken = merge_path(b, first, (tile.lefts, tile.rights), &mut |b, index, is_left| match is_left {
        true => block.left_key(b, index),
        false => block.right_key(b, tile, index),
    });
    let others = b.sub(first, taken);
    let state = Merge::begin(b, block, tile, (taken, others));
    let (none, one) = (b.u64(0), b.u32(1));
    // A bit a tuple of the thread: whether it is a result, and whether it is a left one.
    let (results, lefts) = (b.var_of("results", none), b.var_of("lefts", none));
    for_range(b, first, end, one, |b, number| {
        let merged = state.next(b, block, tile, &|b, is_left, index| match is_left {
            true => block.left(b, index),
            false => block.right(b, tile, index),
        });
        let bit = b.sub(number, first);
        let bit = b.convert(bit, Scalar::U64);
        for (mask, is_set) in [(results, merged.is_result), (lefts, merged.is_left)] {
            let (one, none) = (b.u64(1), b.u64(0));
            let set = b.select(is_set, one, none);
            let set = b.binary(BinaryOp::Shl, set, bit);
            let old = b.read(mask);
            let new = b.or(old, set);
            b.assign(mask, new);
        }
    });
    let (results, lefts) = (b.read(results), b.read(lefts));
    let count = b.unary(UnaryOp::Popcount, results);
    let count = b.convert(count, Scalar::U64);
    let (before, total) = block_scan(b, block.shape, count, block.totals);
    let before = b.convert(before, Scalar::U32);
    let (place, left, right) =
        (b.var_of("place", before), b.var_of("left", taken), b.var_of("right", others));
    for_range(b, first, end, one, |b, number| {
        let bit = b.sub(number, first);
        let bit = b.convert(bit, Scalar::U64);
        let mut is_set = |mask: V| {
            let (shifted, one, none) = (b.binary(BinaryOp::Shr, mask, bit), b.u64(1), b.u64(0));
            let set = b.and(shifted, one);
            b.ne(set, none)
        };
        let (is_result, is_left) = (is_set(results), is_set(lefts));
        let (index, other) = (b.read(left), b.read(right));
        b.begin_if(is_result);
        let behind = b.add(tile.lefts, other);
        let index = b.select(is_left, index, behind);
        let tuple = block.left(b, index);
        let at = b.read(place);
        let pointer = b.offset(staged, at);
        b.store(pointer, tuple);
        add_to(b, place, one);
        b.end();
        let (moves, is_right) = (one_if(b, is_left), b.not(is_left));
        let passes = one_if(b, is_right);
        add_to(b, left, moves);
        add_to(b, right, passes);
    });
    total
}

/// Merges a tile by a CPU's worker, from where the inputs lie.
fn merge_serial(b: &mut Builder, block: &Block<'_>, tile: &Tile, staged: V) -> V {
    let (zero, one) = (b.u32(0), b.u32(1));
    let state = Merge::begin(b, block, tile, (zero, zero));
    let count = b.var_of("count", zero);
    let all = b.add(tile.lefts, tile.rights);
    for_range(b, zero, all, one, |b, _| {
        let merged = state.next(b, block, tile, &|b, is_left, index| {
            let (array, from) = match is_left {
                true => (block.inputs.left, tile.bounds.left),
                false => (block.inputs.right, tile.bounds.right),
            };
            let position = b.add(from, index);
            b.element(array, position)
        });
        put(b, (staged, count), (merged.tuple, merged.is_result));
    });
    b.read(count)
}
