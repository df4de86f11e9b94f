//! Decoupled look-back (Merrill and Garland, “Single-pass Parallel Prefix Scan with Decoupled Look-back”, 2016): how a block learns the sum of
//! all tiles before its own while other blocks still work on these.
//!
//! There are one or several *columns* of sums that are independent of each other. `states: u64[1 + tiles * columns]` is zero before the
//! launch. `states[0]` counts the tiles that blocks have taken. The states of a tile come behind, one a column: nothing, the tile's sum, or the
//! sum of it and of all before, which is told by the bits above the number. A block makes its tile's sum known, then goes back from tile to
//! tile, adding up their sums, until one knows all before it. State and sum are one word that is written and read at once, so that no fence
//! is needed.
//!
//! **Forward progress.** A block waits for tiles with lower numbers only, and takes its number when it runs: whoever has a lower
//! one runs too, and makes its sum known without waiting. So the wait ends whatever number of blocks is resident, on a GPU,
//! among a CPU's workers, and on the interpreter, whose resident blocks take turns.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Builtin, Expr, Pointee, Scalar, Scope, ShuffleMode, UnaryOp};

use super::scan::warp_scan;
use crate::shape::LaunchShape;

/// The bit of a state that has the sum of its tile.
const OWN: u64 = 1 << 32;
/// The bit of a state that has the sum of its tile and all before.
const ALL: u64 = 1 << 33;

/// Words of the states of so many tiles.
pub const fn words(tiles: u64, columns: u64) -> u64 {
    1 + tiles.saturating_mul(columns)
}

/// What the threads of a block have for it.
pub(crate) struct Chain {
    states: V,
    columns: u32,
    /// Shared: the block's tile, `i64`.
    chosen: V,
    /// Whether this is the block's first thread.
    pub leads: V,
}

impl Chain {
    /// Over an array of states, of so many columns.
    pub fn begin(b: &mut Builder, states: V, columns: u32) -> Chain {
        let chosen = b.shared("chosen", Pointee::Scalar(Scalar::I64), 1);
        let (thread, first) = (b.builtin(Builtin::ThreadId), b.u32(0));
        let leads = b.eq(thread, first);
        Chain { states, columns, chosen, leads }
    }

    /// The number of the block's next tile, `i64`: the same in all of its threads.
    pub fn take_tile(&self, b: &mut Builder) -> V {
        b.begin_if(self.leads);
        let one = b.u64(1);
        let number = b.atomic(AtomicOp::Add, self.states, one, Scope::Device);
        let number = b.bitcast(number, Scalar::I64);
        b.store(self.chosen, number);
        b.end();
        b.barrier();
        let tile = b.uniform_load(self.chosen);
        b.barrier();
        tile
    }

    /// The state of a column (`i64`; the only one where there is none) of the tile before number `tile`.
    fn state_before(&self, b: &mut Builder, tile: V, column: Option<V>) -> V {
        let Some(column) = column else { return b.offset(self.states, tile) };
        let (one, columns) = (b.i64(1), b.i64(self.columns.into()));
        let before = b.sub(tile, one);
        let first = b.mul(before, columns);
        let index = b.add(first, column);
        let index = b.add(index, one);
        b.offset(self.states, index)
    }

    /// The state of a column of a tile.
    fn state(&self, b: &mut Builder, tile: V, column: Option<V>) -> V {
        let one = b.i64(1);
        let after = b.add(tile, one);
        self.state_before(b, after, column)
    }

    /// Makes the sum (`u32`) of a column of a tile known, by one thread. Nobody is waited for.
    pub fn announce(&self, b: &mut Builder, (tile, column): (V, Option<V>), total: V) {
        let own = self.state(b, tile, column);
        let (zero, all, part) = (b.i64(0), b.u64(ALL), b.u64(OWN));
        let is_first = b.eq(tile, zero);
        let bit = b.select(is_first, all, part);
        publish(b, own, bit, total);
    }

    /// The sum of a column over all tiles before `tile`, whose own sum, `total`, was announced. By one thread.
    pub fn look_back(&self, b: &mut Builder, (tile, column): (V, Option<V>), total: V) -> V {
        let (zero, nothing) = (b.i64(0), b.u32(0));
        let sum = b.var_of("sum", nothing);
        let has_before = b.ne(tile, zero);
        b.begin_if(has_before);
        // The number of the tile behind the one that is looked at; 0 once nothing is left to be added.
        let at = b.var_of("at", tile);
        b.begin_loop();
        let index = b.read(at);
        let state = self.state_before(b, index, column);
        let word = b.atomic_load(state, Scope::Device);
        let none = b.u64(0);
        let is_known = b.ne(word, none);
        b.begin_if(is_known);
        add_state(b, (sum, at), word);
        b.end();
        let left = b.read(at);
        let done = b.eq(left, zero);
        b.break_if(done);
        b.end();
        let before = b.read(sum);
        let all = b.add(before, total);
        let (own, bit) = (self.state(b, tile, column), b.u64(ALL));
        publish(b, own, bit, all);
        b.end();
        b.read(sum)
    }
}

/// What a warp has learned of the tiles before.
struct Window {
    /// The states that its lanes have read.
    word: V,
    /// The lanes, a bit each, that count: those up to the first that knows all before, or all.
    counted: V,
    /// Whether one of them knows all before, and whether all of them know something.
    is_last: V,
    is_known: V,
}

impl Chain {
    /// As [`Chain::look_back`], of the only column, by all lanes of a warp, each of which looks at another tile: so tiles that do not know the sum
    /// of all before keep nobody waiting for one read after the other. The sum is the same in all lanes. At uniform control flow of the
    /// warp.
    pub fn look_back_by_warp(&self, b: &mut Builder, shape: &LaunchShape, (tile, total): (V, V)) -> V {
        let (nothing, lane, last) = (b.u32(0), b.builtin(Builtin::LaneId), b.u32(shape.lanes - 1));
        let (sum, at) = (b.var_of("sum", nothing), b.var_of("at", tile));
        let of_lane = b.convert(lane, Scalar::I64);
        b.begin_loop();
        let window = self.window(b, shape, (at, of_lane));
        b.begin_if(window.is_known);
        let (one, none) = (b.u32(1), b.u32(0));
        let own = b.binary(BinaryOp::Shr, window.counted, lane);
        let own = b.and(own, one);
        let counts = b.ne(own, none);
        let value = b.convert(window.word, Scalar::U32);
        let value = b.select(counts, value, none);
        let inclusive = warp_scan(b, shape, value);
        let added = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: inclusive, lane: last });
        let old = b.read(sum);
        let new = b.add(old, added);
        b.assign(sum, new);
        let (index, step) = (b.read(at), b.i64(shape.lanes.into()));
        let next = b.sub(index, step);
        b.assign(at, next);
        b.break_if(window.is_last);
        b.end();
        b.end();
        let (before, zero) = (b.read(sum), b.u32(0));
        let leads = b.eq(lane, zero);
        b.begin_if(leads);
        let all = b.add(before, total);
        let (own, bit) = (self.state(b, tile, None), b.u64(ALL));
        publish(b, own, bit, all);
        b.end();
        before
    }

    /// What the lanes of a warp see of the tiles before number `at`.
    fn window(&self, b: &mut Builder, shape: &LaunchShape, (at, lane): (Var, V)) -> Window {
        let (index, zero, none) = (b.read(at), b.i64(0), b.u64(0));
        let index = b.sub(index, lane);
        let exists = b.lt(zero, index);
        // Before the first tile nothing is, and all of that is known.
        let bit = b.u64(ALL);
        let word = b.var_of("word", bit);
        b.begin_if(exists);
        let state = self.state_before(b, index, None);
        let read = b.atomic_load(state, Scope::Device);
        b.assign(word, read);
        b.end();
        let word = b.read(word);
        let all = b.and(word, bit);
        let (knows, knows_all) = (b.ne(word, none), b.ne(all, none));
        let (known, last) = (b.value(Expr::Ballot(knows)), b.value(Expr::Ballot(knows_all)));
        let (nobody, one, lanes) = (b.u32(0), b.u32(1), b.u32(u32::MAX >> (32 - shape.lanes)));
        let is_last = b.ne(last, nobody);
        // The lanes up to the first one: that bit, and those below it.
        let less = b.sub(last, one);
        let up_to = b.binary(BinaryOp::Xor, last, less);
        let counted = b.select(is_last, up_to, lanes);
        let unknown = b.unary(UnaryOp::Not, known);
        let missing = b.and(unknown, counted);
        Window { word, counted, is_last, is_known: b.eq(missing, nobody) }
    }
}

/// Makes a state with a sum (`u32`) known. By an exchange, as others read it at the same time.
fn publish(b: &mut Builder, state: V, bit: V, sum: V) {
    let sum = b.convert(sum, Scalar::U64);
    let word = b.or(bit, sum);
    b.atomic_discard(AtomicOp::Exchange, state, word, Scope::Device);
}

/// Adds what a state has to the sum, and goes on to the tile before, or to none.
fn add_state(b: &mut Builder, (sum, at): (Var, Var), word: V) {
    let (old, added) = (b.read(sum), b.convert(word, Scalar::U32));
    let new = b.add(old, added);
    b.assign(sum, new);
    let (bit, none) = (b.u64(ALL), b.u64(0));
    let bit = b.and(word, bit);
    let is_all = b.ne(bit, none);
    let (zero, one, index) = (b.i64(0), b.i64(1), b.read(at));
    let before = b.sub(index, one);
    let next = b.select(is_all, zero, before);
    b.assign(at, next);
}
