//! A tile in a block's memory: its tuples, how many results each has, and where these begin.
//!
//! Of a tile of `n` left and `m` right tuples the block has the left one before them, they, and the right one behind. Each tuple that may
//! have results has a *slot*, in the order of results: a left one its number, or, where right ones may have results too, its number in the
//! merged order, as these have.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Builtin, CompareOp, Pointee, Scalar};

use super::matching::Found;
use super::partition::Inputs;
use super::search::{add_to, one_if, search};
use super::{BlockJoin, Description, Duplicates, Operator};
use crate::primitives::for_range;
use crate::primitives::scan::block_scan;
use crate::shape::LaunchShape;

/// Bits of the number of a tuple in a tile, with its neighbours.
pub const INDEX_BITS: u32 = 14;
/// Tuples that a thread loads before it waits for the first.
const LOADS: u32 = 4;
/// The bit of an owner that is a right tuple.
const RIGHT: u32 = 1 << 30;
/// The bit of an owner that has no match.
const ALONE: u32 = 1 << 31;

/// Which tuples a tile has. Positions in the inputs, `u32`, the same in all threads of the block.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub left: V,
    pub left_end: V,
    pub right: V,
    pub right_end: V,
}

/// What a block works with.
pub(super) struct Block<'d> {
    pub description: &'d Description,
    pub shape: &'d LaunchShape,
    pub inputs: Inputs,
    pub thread: V,
    pub threads: V,
    /// Shared: the tuples.
    tuples: V,
    /// Shared, `u32` a slot and one more: results; then those of all slots before (wraps).
    starts: V,
    /// Shared, `u32` a slot: whose it is.
    owners: V,
    /// Shared: `u64` a warp, and of the tile.
    pub totals: V,
    pub total: V,
    /// Shared, `u32` each: the table of a hash join, who is in it, whether somebody was written over, and which left tuples were found.
    pub table: Option<[V; 4]>,
}

/// A tile that was loaded. `u32`, the same in all threads.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub bounds: Bounds,
    pub lefts: V,
    pub rights: V,
    /// With the one behind, where there is one.
    pub rights_and_next: V,
    /// Slots in use.
    pub slots: V,
}

/// A result: the slot's number of it, and what is at hand of the slot.
pub(super) struct Owner {
    word: V,
}

impl<'d> Block<'d> {
    /// Declares its arrays.
    pub fn begin(
        b: &mut Builder,
        description: &'d Description,
        shape: &'d LaunchShape,
        inputs: Inputs,
    ) -> Block<'d> {
        let tile = description.tile(shape);
        let scalar = description.tuples.width.scalar();
        // Where results are streamed, a selection and a CPU's worker load nothing, and nothing is noted of tuples.
        let is_streamed = description.is_streamed();
        let loads = !is_streamed || !(shape.is_serial() || description.is_select());
        let [places, slots] =
            [(loads, tile + 2), (!is_streamed, tile + 1)].map(|(used, count)| if used { count } else { 1 });
        let tuples = b.shared("tuples", Pointee::Scalar(scalar), places);
        let totals = b.shared("warp_totals", Pointee::Scalar(Scalar::U64), shape.warps());
        let total = b.shared("tile_total", Pointee::Scalar(Scalar::U64), 1);
        let mut words = |name: &str, count| b.shared(name, Pointee::Scalar(Scalar::U32), count);
        let (starts, owners) = (words("starts", slots), words("owners", slots));
        let is_hash = description.block_join == BlockJoin::Hash && !description.is_select();
        let table = is_hash.then(|| {
            [("table", table_slots(tile)), ("done", tile + 1), ("again", 1), ("found", tile)]
                .map(|(name, count)| words(name, count))
        });
        let (thread, threads) = (b.builtin(Builtin::ThreadId), b.u32(shape.block_threads));
        Block { description, shape, inputs, thread, threads, tuples, starts, owners, totals, total, table }
    }

    /// Whether this is the block's first thread.
    pub fn leads(&self, b: &mut Builder) -> V {
        let first = b.u32(0);
        b.eq(self.thread, first)
    }

    /// Left tuple number `index` of the tile.
    pub fn left(&self, b: &mut Builder, index: V) -> V {
        let one = b.u32(1);
        let index = b.add(index, one);
        let pointer = b.offset(self.tuples, index);
        b.load(pointer)
    }

    /// Right tuple number `index`, which may be the one behind.
    pub fn right(&self, b: &mut Builder, tile: &Tile, index: V) -> V {
        let before = b.add(index, tile.lefts);
        self.left(b, before)
    }

    /// Their keys.
    pub fn left_key(&self, b: &mut Builder, index: V) -> V {
        let tuple = self.left(b, index);
        self.description.tuples.key(b, tuple)
    }

    pub fn right_key(&self, b: &mut Builder, tile: &Tile, index: V) -> V {
        let tuple = self.right(b, tile, index);
        self.description.tuples.key(b, tuple)
    }

    /// The first right tuple in `from..to` whose key is not less than `key`, or not `Le`.
    pub fn right_bound(
        &self,
        b: &mut Builder,
        tile: &Tile,
        (from, to): (V, V),
        (op, key): (CompareOp, V),
    ) -> V {
        search(b, from, to, &mut |b, index| {
            let other = self.right_key(b, tile, index);
            b.compare(op, other, key)
        })
    }

    /// How many tuples a tile has.
    pub fn measure(&self, b: &mut Builder, bounds: Bounds) -> Tile {
        let lefts = b.sub(bounds.left_end, bounds.left);
        let rights = b.sub(bounds.right_end, bounds.right);
        let has_next = b.lt(bounds.right_end, self.inputs.right_rows);
        let next = one_if(b, has_next);
        let rights_and_next = b.add(rights, next);
        let slots = if self.description.has_right() { b.add(lefts, rights) } else { lefts };
        Tile { bounds, lefts, rights, rights_and_next, slots }
    }

    /// Loads a tile. Between two barriers of its own.
    pub fn load(&self, b: &mut Builder, bounds: Bounds) -> Tile {
        let tile = self.measure(b, bounds);
        b.barrier();
        let (one, zero) = (b.u32(1), b.u32(0));
        let places = b.add(tile.lefts, one);
        let is_first = b.eq(bounds.left, zero);
        // Place 0 is that of the one before, if there is one.
        let none_before = one_if(b, is_first);
        let before = b.sub(bounds.left, one);
        copy_in(b, (self.inputs.left, before), self.tuples, (none_before, places), self.shape.block_threads);
        let end = b.add(places, tile.rights_and_next);
        let right_less_places = b.sub(bounds.right, places);
        copy_in(
            b,
            (self.inputs.right, right_less_places),
            self.tuples,
            (places, end),
            self.shape.block_threads,
        );
        if !self.description.is_streamed() {
            let all = b.u32(self.description.tile(self.shape) + 1);
            for_range(b, self.thread, all, self.threads, |b, slot| {
                let pointer = b.offset(self.starts, slot);
                b.store(pointer, zero);
            });
        }
        b.barrier();
        tile
    }

    /// Notes how many results a slot has, and whose it is.
    fn set(&self, b: &mut Builder, slot: V, count: V, owner: V) {
        let pointer = b.offset(self.starts, slot);
        b.store(pointer, count);
        let pointer = b.offset(self.owners, slot);
        b.store(pointer, owner);
    }

    /// Notes the results of a left tuple by its matches.
    pub fn set_left(&self, b: &mut Builder, tile: &Tile, found: &Found) {
        let Found { index, key, least, most } = *found;
        let is_matched = b.lt(least, most);
        let alone = b.not(is_matched);
        let count = match &self.description.operator {
            Operator::Join(outer) => {
                let run = self.run(b, tile, found);
                match outer.left {
                    true => {
                        let one = b.u32(1);
                        b.binary(BinaryOp::Max, run, one)
                    }
                    false => run,
                }
            }
            operator => {
                let is_first = self.is_first_left(b, tile, (index, key));
                let counts = match operator {
                    Operator::Intersect => b.and(is_matched, is_first),
                    Operator::Difference => b.and(alone, is_first),
                    _ => is_first,
                };
                one_if(b, counts)
            }
        };
        let (bits, flag, none) = (b.u32(INDEX_BITS), b.u32(ALONE), b.u32(0));
        let place = b.binary(BinaryOp::Shl, least, bits);
        let owner = b.or(place, index);
        let flag = b.select(alone, flag, none);
        let owner = b.or(owner, flag);
        let slot = if self.description.has_right() { b.add(index, least) } else { index };
        self.set(b, slot, count, owner);
    }

    /// How many right tuples have a left one's key. Those behind the tile are looked up where they lie.
    fn run(&self, b: &mut Builder, tile: &Tile, found: &Found) -> V {
        let inside = b.sub(found.most, found.least);
        let run = b.var_of("run", inside);
        let (none, next) = (b.u32(0), b.sub(tile.rights_and_next, tile.rights));
        let has_next = b.ne(next, none);
        let reaches = b.eq(found.most, tile.rights_and_next);
        let is_matched = b.ne(inside, none);
        let goes_on = b.and(has_next, reaches);
        let goes_on = b.and(goes_on, is_matched);
        b.begin_if(goes_on);
        let from = b.add(tile.bounds.right_end, next);
        let to = self.inputs.right_rows;
        let end = self.inputs.bound(b, false, (from, to), (CompareOp::Le, found.key));
        let more = b.sub(end, from);
        add_to(b, run, more);
        b.end();
        b.read(run)
    }

    /// Whether no left tuple before has the key, if that matters.
    fn is_first_left(&self, b: &mut Builder, tile: &Tile, (index, key): (V, V)) -> V {
        let yes = b.bool(true);
        if self.description.duplicates == Duplicates::Each {
            return yes;
        }
        let is_first = b.var_of("is_first", yes);
        let (position, zero, one) = (b.add(tile.bounds.left, index), b.u32(0), b.u32(1));
        let has_before = b.ne(position, zero);
        b.begin_if(has_before);
        let before = b.sub(index, one);
        let before = self.left_key(b, before);
        let differs = b.ne(before, key);
        b.assign(is_first, differs);
        b.end();
        b.read(is_first)
    }

    /// Notes the results of right tuples by themselves.
    pub fn set_rights(&self, b: &mut Builder, tile: &Tile) {
        for_range(b, self.thread, tile.rights, self.threads, |b, index| {
            let key = self.right_key(b, tile, index);
            let zero = b.u32(0);
            // How many left tuples are not behind it.
            let rank = search(b, zero, tile.lefts, &mut |b, index| {
                let other = self.left_key(b, index);
                b.compare(CompareOp::Le, other, key)
            });
            let yes = b.bool(true);
            let counts = b.var_of("counts", yes);
            let before = b.add(tile.bounds.left, rank);
            let has_before = b.ne(before, zero);
            b.begin_if(has_before);
            let one = b.u32(1);
            let last = b.sub(rank, one);
            let last = self.left_key(b, last);
            let differs = b.ne(last, key);
            b.assign(counts, differs);
            b.end();
            if self.description.operator == Operator::Union
                && self.description.duplicates == Duplicates::First
            {
                let is_first = self.is_first_right(b, tile, (index, key));
                let so_far = b.read(counts);
                let both = b.and(so_far, is_first);
                b.assign(counts, both);
            }
            let counts = b.read(counts);
            let (count, flag) = (one_if(b, counts), b.u32(RIGHT | ALONE));
            let (slot, owner) = (b.add(rank, index), b.or(index, flag));
            self.set(b, slot, count, owner);
        });
    }

    fn is_first_right(&self, b: &mut Builder, tile: &Tile, (index, key): (V, V)) -> V {
        let (position, zero, one) = (b.add(tile.bounds.right, index), b.u32(0), b.u32(1));
        let yes = b.bool(true);
        let is_first = b.var_of("is_first", yes);
        let has_before = b.ne(position, zero);
        b.begin_if(has_before);
        // The one before the tile is not at hand.
        let before = b.sub(position, one);
        let before = self.inputs.key(b, false, before);
        let differs = b.ne(before, key);
        b.assign(is_first, differs);
        b.end();
        b.read(is_first)
    }

    /// The tuples of the merged order that a thread has: as many as each other one, but for the last.
    pub fn share(&self, b: &mut Builder, tile: &Tile) -> (V, V) {
        let all = b.add(tile.lefts, tile.rights);
        let most = b.u32(self.shape.block_threads - 1);
        let padded = b.add(all, most);
        let each = b.div(padded, self.threads);
        let first = b.mul(self.thread, each);
        let first = b.binary(BinaryOp::Min, first, all);
        let end = b.add(first, each);
        (first, b.binary(BinaryOp::Min, end, all))
    }

    /// Adds up the results of slots; how many there are, `u64`, the same in all threads. Begins with a barrier, and ends with one.
    pub fn add_up(&self, b: &mut Builder) -> V {
        b.barrier();
        let items = self.description.tile(self.shape) / self.shape.block_threads;
        let (items, one) = (b.u32(items), b.u32(1));
        let first = b.mul(self.thread, items);
        let end = b.add(first, items);
        let none = b.u64(0);
        let sum = b.var_of("sum", none);
        for_range(b, first, end, one, |b, slot| {
            let count = self.start(b, slot);
            let count = b.convert(count, Scalar::U64);
            add_to(b, sum, count);
        });
        let own = b.read(sum);
        let (before, total) = block_scan(b, self.shape, own, self.totals);
        b.assign(sum, before);
        for_range(b, first, end, one, |b, slot| {
            let pointer = b.offset(self.starts, slot);
            let count = b.load(pointer);
            let before = b.read(sum);
            let start = b.convert(before, Scalar::U32);
            b.store(pointer, start);
            let count = b.convert(count, Scalar::U64);
            add_to(b, sum, count);
        });
        let leads = self.leads(b);
        b.begin_if(leads);
        b.store(self.total, total);
        let last = b.u32(self.description.tile(self.shape));
        let pointer = b.offset(self.starts, last);
        let end = b.convert(total, Scalar::U32);
        b.store(pointer, end);
        b.end();
        b.uniform_load(self.total)
    }

    /// The number of the first result of a slot.
    pub fn start(&self, b: &mut Builder, slot: V) -> V {
        let pointer = b.offset(self.starts, slot);
        b.load(pointer)
    }

    /// Whose a slot is.
    pub fn owner(&self, b: &mut Builder, slot: V) -> Owner {
        let pointer = b.offset(self.owners, slot);
        Owner { word: b.load(pointer) }
    }

    /// The slot of a result.
    pub fn slot_of(&self, b: &mut Builder, tile: &Tile, result: V) -> V {
        let (zero, one) = (b.u32(0), b.u32(1));
        let next = search(b, zero, tile.slots, &mut |b, slot| {
            let start = self.start(b, slot);
            b.compare(CompareOp::Le, start, result)
        });
        b.sub(next, one)
    }

    /// Result number `number` of a slot.
    pub fn result(&self, b: &mut Builder, tile: &Tile, owner: &Owner, number: V) -> V {
        let (mask, bits) = (b.u32((1 << INDEX_BITS) - 1), b.u32(INDEX_BITS));
        let index = b.and(owner.word, mask);
        let Operator::Join(outer) = self.description.operator else {
            return match self.description.has_right() {
                true => {
                    // Right tuples lie behind the left ones.
                    let (flag, zero) = (b.u32(RIGHT), b.u32(0));
                    let flag = b.and(owner.word, flag);
                    let is_right = b.ne(flag, zero);
                    let before = b.select(is_right, tile.lefts, zero);
                    let index = b.add(index, before);
                    self.left(b, index)
                }
                false => self.left(b, index),
            };
        };
        let least = b.binary(BinaryOp::Shr, owner.word, bits);
        let least = b.and(least, mask);
        let result = b.var("result", self.description.output().width.scalar());
        let has = |b: &mut Builder, flag: u32| {
            let (flag, zero) = (b.u32(flag), b.u32(0));
            let flag = b.and(owner.word, flag);
            b.ne(flag, zero)
        };
        if outer.right {
            let is_right = has(b, RIGHT);
            b.begin_if(is_right);
            let right = self.right(b, tile, index);
            self.join(b, result, (None, Some(right)));
            b.begin_else();
        }
        if outer.left {
            let is_alone = has(b, ALONE);
            b.begin_if(is_alone);
            let left = self.left(b, index);
            self.join(b, result, (Some(left), None));
            b.begin_else();
        }
        let other = b.add(least, number);
        let left = self.left(b, index);
        let right = self.right_anywhere(b, tile, other);
        self.join(b, result, (Some(left), Some(right)));
        if outer.left {
            b.end();
        }
        if outer.right {
            b.end();
        }
        b.read(result)
    }

    /// A right tuple from the tile on.
    fn right_anywhere(&self, b: &mut Builder, tile: &Tile, index: V) -> V {
        let right = b.var("right", self.description.tuples.width.scalar());
        let is_inside = b.lt(index, tile.rights_and_next);
        b.begin_if(is_inside);
        let tuple = self.right(b, tile, index);
        b.assign(right, tuple);
        b.begin_else();
        let position = b.add(tile.bounds.right, index);
        let tuple = b.element(self.inputs.right, position);
        b.assign(right, tuple);
        b.end();
        b.read(right)
    }

    fn join(&self, b: &mut Builder, result: Var, (left, right): (Option<V>, Option<V>)) {
        let (tuples, to) = (self.description.tuples, self.description.output());
        let Operator::Join(outer) = self.description.operator else { return };
        let [left_bits, right_bits] = self.description.fields(outer);
        let Some(any) = left.or(right) else { return };
        let fields = [
            tuples.key_part(b, any),
            tuples.value_part(b, left, left_bits, to.width),
            tuples.value_part(b, right, right_bits, to.width),
        ];
        let packed = to.pack(b, &fields);
        b.assign(result, packed);
    }
}

/// Copies tuples to places `from..to` of a block's memory, that of place p from `first + p` (wraps) on, several of a thread at a time.
fn copy_in(b: &mut Builder, (source, first): (V, V), places: V, (from, to): (V, V), threads: u32) {
    let thread = b.builtin(Builtin::ThreadId);
    let begin = b.add(from, thread);
    let step = b.u32(threads * LOADS);
    for_range(b, begin, to, step, |b, place| {
        let load = |number: u32| {
            let behind = b.u32(number * threads);
            let own = b.add(place, behind);
            // Who has none loads his first again.
            let live = b.lt(own, to);
            let own = b.select(live, own, place);
            let position = b.add(first, own);
            (own, b.element(source, position))
        };
        let loaded: Vec<(V, V)> = (0..LOADS).map(load).collect();
        for (place, tuple) in loaded {
            let pointer = b.offset(places, place);
            b.store(pointer, tuple);
        }
    });
}

/// Slots of the table of a hash join: twice as many as tuples (section 5.2), a power of two.
pub(super) fn table_slots(tile: u32) -> u32 {
    (2 * tile).next_power_of_two()
}
