//! Reduction of segments: rows of one group that lie together are added up before the table is updated.
//!
//! **C3** where no local table serves: the rows of a warp (`simd`) or block (`work_efficient`) are sorted by the slot of
//! their group, segments of equal slots are reduced, and only the first thread of a segment updates the table (HorseQC,
//! section 6.2 and appendix C: `sort_by_keys`, `reduce_segments`, `if (head_flag) atomic_hash_reduce`).
//!
//! A thread finds or inserts the slot of its row's group before, inside the branches of the row, so that equal slots are
//! equal groups whatever the keys are; slot and contributions wait in variables. Once the row's branches are closed,
//! control flow is uniform again, and the threads resolve what they have.
//!
//! In a warp: a bitonic network of shuffles over (slot, lane) in one word, then a segmented reduction by shuffles, without
//! a barrier. In a block: the same network in shared memory, then the tree of figure 24 over sorted rows: a node has, for
//! each segment in it, the sum at the segment's first place in the node, so that joining two nodes is one addition at most.
//!
//! **When it is used.** It pays where rows that are neighbours share groups. The planner takes it where no more groups are
//! known to be possible than [`GROUPS_PER_THREAD`] a thread of a block, or where it does not know. What it took for few
//! groups may be many: a warp or block that found its rows in nearly as many segments as rows passes the next
//! [`SKIPPED_ROUNDS`] rounds by with an atomic a row, so that a wrong guess costs little.
//! On an H200, 4 million rows with a sum, a count and a maximum by a float key take 9.4 ms by an atomic a row where there is
//! one group, 0.63 ms in warps and 0.38 in blocks; 4.7, 2.3 and 0.9 ms with 16; 1.1, 1.1 and 0.8 with 256; from 4,096 on a
//! wrong guess costs a tenth of 0.3 ms.
//!
//! **C1**: the device's sort has brought the rows of a group together. A warp reduces segments as it finds them; a CPU's
//! worker, who goes from row to row, adds up in registers until the slot changes. The slot decides here too, so that it
//! does not matter where two groups have one hash.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{
    AtomicOp, BinaryOp, Builtin, CompareOp, Expr as Kir, Pointee, Scalar, Scope, ShuffleMode, Target, UnaryOp,
};

use super::Input;
use super::cells::{CellOp, combine, combine_registers, parts_of, words_of};
use super::functions::Cells;
use crate::context::Context;
use crate::pipeline::Choices;
use crate::primitives::segments::segment_of_lane;
use crate::{MicroModel, Resolution};

/// Groups a thread of a block up to which neighbours are taken to share groups.
const GROUPS_PER_THREAD: u64 = 16;
/// Rounds that pass without resolution after one that found few rows in common.
const SKIPPED_ROUNDS: u32 = 63;
/// Most shared memory of a block, in bytes: several blocks should fit a multiprocessor of an NVIDIA GPU.
const SHARED_LIMIT: u64 = 48 << 10;
/// The slot of a thread without a row.
const NOWHERE: i64 = -1;

/// Resolution of groups among threads.
#[derive(Debug, Clone)]
pub struct Segments {
    form: Form,
    round: Option<Box<Round>>,
}

/// Who reduces what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A warp its rows, which it sorts.
    Warp,
    /// A block its rows, which it sorts.
    Block,
    /// A warp its rows, which come sorted.
    SortedWarp,
    /// A CPU's worker its rows, which come sorted.
    SortedWorker,
}

/// What a thread has in a round.
#[derive(Debug, Clone)]
struct Round {
    /// `i64`.
    slot: Var,
    /// The parts of each cell.
    parts: Vec<Vec<Var>>,
    /// Rounds to pass by, `u32`: uniform in the warp or block.
    skips: Option<Var>,
    shared: Option<Shared>,
}

/// Memory of a block.
#[derive(Debug, Clone, Copy)]
struct Shared {
    /// Slot and thread a thread, `u64`.
    keys: V,
    /// The first place of a place's segment, `u32` a thread.
    starts: V,
    /// The words of the contributions, word by word, one a thread.
    words: V,
    /// How many segments there are, less three times what they save: one `i32`.
    balance: V,
}

impl Segments {
    /// Whether and where rows are resolved. `groups`: how many there can be, as far as that is known.
    pub fn plan(
        cells: &Cells,
        groups: u64,
        input: &Input<'_>,
        (target, choices): (&Target, &Choices<'_>),
    ) -> Option<Segments> {
        let threads = target.block_threads;
        let suits = choices.micro_model == MicroModel::Resolution
            && input.is_single
            && target.lanes > 1
            && target.lanes.is_power_of_two()
            && groups <= GROUPS_PER_THREAD * u64::from(threads)
            && cells.cells.iter().all(|cell| cell.op.is_plain());
        let bytes = u64::from(threads) * (12 + 8 * u64::from(part_words(cells))) + 64;
        let fits = bytes <= SHARED_LIMIT.min(target.shared_bytes.into()) && threads.is_power_of_two();
        let form = match choices.resolution {
            _ if input.is_sorted && threads == 1 => Form::SortedWorker,
            _ if input.is_sorted => Form::SortedWarp,
            _ if !suits => return None,
            Resolution::WorkEfficient if fits => Form::Block,
            _ => Form::Warp,
        };
        Some(Segments { form, round: None })
    }

    /// Who resolves, for people.
    pub fn place(&self) -> &'static str {
        match self.form {
            Form::Warp => "segments in warps",
            Form::Block => "segments in blocks",
            Form::SortedWarp | Form::SortedWorker => "segments",
        }
    }

    /// Before the row loop.
    pub fn begin(&mut self, cx: &mut Context<'_>, cells: &Cells) {
        let threads = cx.target.block_threads;
        let shared = (self.form == Form::Block).then(|| {
            let mut array = |name, scalar, count| cx.builder.shared(name, Pointee::Scalar(scalar), count);
            Shared {
                keys: array("segment_keys", Scalar::U64, threads),
                starts: array("segment_starts", Scalar::U32, threads),
                words: array("segment_words", Scalar::U64, threads * part_words(cells).max(1)),
                balance: array("segment_balance", Scalar::I32, 1),
            }
        });
        let b = &mut *cx.builder;
        let skips = matches!(self.form, Form::Warp | Form::Block).then(|| {
            let none = b.u32(0);
            b.var_of("skips", none)
        });
        let nowhere = b.i64(NOWHERE);
        let slot = b.var_of("own_slot", nowhere);
        let parts = |op: CellOp| op.parts().iter().map(|part| b.var("own", *part)).collect();
        let parts = cells.cells.iter().map(|cell| cell.op).map(parts).collect();
        self.round = Some(Box::new(Round { slot, parts, skips, shared }));
    }

    /// Before a row.
    pub fn open(&self, cx: &mut Context<'_>) {
        let Some(round) = &self.round else { return };
        if self.form != Form::SortedWorker {
            let nowhere = cx.builder.i64(NOWHERE);
            cx.builder.assign(round.slot, nowhere);
        }
    }

    /// A live row's slot (`i64`) and contributions; `apply` adds to the table.
    pub fn note(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        (slot, values): (V, &[Vec<V>]),
        apply: impl FnOnce(&mut Context<'_>, V, &[Vec<V>]),
    ) {
        let Some(round) = &self.round else { return };
        if self.form != Form::SortedWorker {
            cx.builder.assign(round.slot, slot);
            return assign(cx, &round.parts, values);
        }
        let known = cx.builder.read(round.slot);
        let same = cx.builder.eq(known, slot);
        cx.begin_if(same);
        for (cell, (part, value)) in cells.cells.iter().zip(round.parts.iter().zip(values)) {
            combine_registers(cx, cell.op, part, value);
        }
        cx.begin_else();
        add_own(cx, round, apply);
        cx.builder.assign(round.slot, slot);
        assign(cx, &round.parts, values);
        cx.end();
    }

    /// After the row, at uniform control flow: `apply` adds to the table.
    pub fn close(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        apply: impl FnOnce(&mut Context<'_>, V, &[Vec<V>]),
    ) {
        let Some(round) = &self.round else { return };
        match (self.form, round.skips) {
            (Form::SortedWorker, _) => return,
            (_, Some(skips)) => resolve_or_skip(cx, cells, round, skips),
            _ => {
                let own = cx.builder.read(round.slot);
                let values = read(cx, &round.parts).into_iter().flatten().collect();
                reduce_in_warp(cx, cells, round, own, values);
            }
        }
        add_own(cx, round, apply);
    }

    /// After the row loop.
    pub fn end(&self, cx: &mut Context<'_>, apply: impl FnOnce(&mut Context<'_>, V, &[Vec<V>])) {
        if let (Some(round), Form::SortedWorker) = (&self.round, self.form) {
            add_own(cx, round, apply);
        }
    }
}

/// Resolves, or passes a round by.
fn resolve_or_skip(cx: &mut Context<'_>, cells: &Cells, round: &Round, skips: Var) {
    let b = &mut *cx.builder;
    let (left, none) = (b.read(skips), b.u32(0));
    let resolves = b.eq(left, none);
    cx.begin_if(resolves);
    let balance = match round.shared {
        None => in_warp(cx, cells, round),
        Some(shared) => in_block(cx, cells, round, shared),
    };
    let b = &mut *cx.builder;
    let (zero, rounds) = (b.i32(0), b.u32(SKIPPED_ROUNDS));
    let is_vain = b.compare(CompareOp::Gt, balance, zero);
    let rounds = b.select(is_vain, rounds, none);
    b.assign(skips, rounds);
    cx.begin_else();
    let b = &mut *cx.builder;
    let one = b.u32(1);
    let rest = b.sub(left, one);
    b.assign(skips, rest);
    cx.end();
}

/// Adds what this thread has to the table.
fn add_own(cx: &mut Context<'_>, round: &Round, apply: impl FnOnce(&mut Context<'_>, V, &[Vec<V>])) {
    let b = &mut *cx.builder;
    let (slot, nowhere) = (b.read(round.slot), b.i64(NOWHERE));
    let has_row = b.ne(slot, nowhere);
    cx.begin_if(has_row);
    let parts = read(cx, &round.parts);
    apply(cx, slot, &parts);
    cx.end();
}

/// Words of a row's contributions.
fn part_words(cells: &Cells) -> u32 {
    cells.cells.iter().map(|cell| cell.op.part_words()).sum()
}

fn read(cx: &mut Context<'_>, parts: &[Vec<Var>]) -> Vec<Vec<V>> {
    parts.iter().map(|parts| parts.iter().map(|part| cx.builder.read(*part)).collect()).collect()
}

fn assign(cx: &mut Context<'_>, parts: &[Vec<Var>], values: &[Vec<V>]) {
    for (part, value) in parts.iter().flatten().zip(values.iter().flatten()) {
        cx.builder.assign(*part, *value);
    }
}

/// Keeps what the first thread of a segment has; the others have no row any more.
fn keep_heads(cx: &mut Context<'_>, round: &Round, is_head: V, slot: V, values: &[Vec<V>]) {
    let nowhere = cx.builder.i64(NOWHERE);
    let slot = cx.builder.select(is_head, slot, nowhere);
    cx.builder.assign(round.slot, slot);
    assign(cx, &round.parts, values);
}

// ---- in a warp

fn shuffle(cx: &mut Context<'_>, mode: ShuffleMode, value: V, lane: V) -> V {
    cx.builder.value(Kir::Shuffle { mode, value, lane })
}

/// Sorts and reduces the warp's rows. How many segments there are, less three times the rows that join one (`i32`).
fn in_warp(cx: &mut Context<'_>, cells: &Cells, round: &Round) -> V {
    let own_slot = cx.builder.read(round.slot);
    let source = sorted_lane(cx, own_slot);
    let slot = shuffle(cx, ShuffleMode::Index, own_slot, source);
    let own = read(cx, &round.parts);
    let move_here = |part: &V| shuffle(cx, ShuffleMode::Index, *part, source);
    let moved = own.iter().flatten().map(move_here).collect();
    let is_head = reduce_in_warp(cx, cells, round, slot, moved);
    let b = &mut *cx.builder;
    let nowhere = b.i64(NOWHERE);
    let is_row = b.ne(slot, nowhere);
    let is_group = b.and(is_head, is_row);
    let [rows, groups] = [is_row, is_group].map(|flag| {
        let mask = b.value(Kir::Ballot(flag));
        let count = b.unary(UnaryOp::Popcount, mask);
        b.bitcast(count, Scalar::I32)
    });
    let (four, three) = (b.i32(4), b.i32(3));
    let (groups, rows) = (b.mul(groups, four), b.mul(rows, three));
    b.sub(groups, rows)
}

/// Reduces the segments of equal slots among the warp's lanes; `parts` are the parts of all cells. Leaves the sums to the
/// first lane of each segment: whether that is this one (`bool`).
fn reduce_in_warp(cx: &mut Context<'_>, cells: &Cells, round: &Round, slot: V, parts: Vec<V>) -> V {
    let (is_head, distance) = segment_of_lane(cx.builder, cx.target, slot);
    let mut parts = parts.into_iter();
    let mut values = Vec::new();
    for cell in &cells.cells {
        let own = parts.by_ref().take(cell.op.parts().len()).collect();
        values.push(reduce_segment(cx, cell.op, own, distance));
    }
    keep_heads(cx, round, is_head, slot, &values);
    is_head
}

/// Sorts the warp's lanes by their slots: which lane comes to this one's place. The slots may be sorted by their lower bits
/// only: that costs segments, not answers.
fn sorted_lane(cx: &mut Context<'_>, slot: V) -> V {
    let lanes = cx.target.lanes;
    let b = &mut *cx.builder;
    let (lane, bits) = (b.builtin(Builtin::LaneId), b.u32(lanes.trailing_zeros()));
    let low = b.convert(slot, Scalar::U32);
    let shifted = b.binary(BinaryOp::Shl, low, bits);
    let mut key = b.or(shifted, lane);
    bitonic(lanes, |size, distance| {
        let (step, block) = (b.u32(distance), b.u32(size));
        let other = b.value(Kir::Shuffle { mode: ShuffleMode::Xor, value: key, lane: step });
        let (below, rising) = (is_clear(b, lane, step), is_clear(b, lane, block));
        let takes_least = b.eq(below, rising);
        let (least, most) = (b.binary(BinaryOp::Min, key, other), b.binary(BinaryOp::Max, key, other));
        key = b.select(takes_least, least, most);
    });
    let mask = b.u32(lanes - 1);
    b.and(key, mask)
}

/// The network of a bitonic sort of `count` elements, a power of two: `exchange(size, distance)` for each step, in which the
/// elements `distance` apart are brought into order, rising where the bit `size` of their place is clear (Batcher 1968).
fn bitonic(count: u32, mut exchange: impl FnMut(u32, u32)) {
    let mut size = 2;
    while size <= count {
        let mut distance = size / 2;
        while distance > 0 {
            exchange(size, distance);
            distance /= 2;
        }
        size *= 2;
    }
}

/// Whether the bit is clear (`u32`).
fn is_clear(b: &mut kelpie_kir::Builder, value: V, bit: V) -> V {
    let (masked, zero) = (b.and(value, bit), b.u32(0));
    b.eq(masked, zero)
}

/// The combination of a lane's value with those after it in its segment, which ends `distance` lanes on: right for the
/// first lane of a segment.
fn reduce_segment(cx: &mut Context<'_>, op: CellOp, parts: Vec<V>, distance: V) -> Vec<V> {
    let mut parts = parts;
    let mut step = 1;
    while step < cx.target.lanes {
        let lane = cx.builder.u32(step);
        let other: Vec<V> = parts.iter().map(|part| shuffle(cx, ShuffleMode::Down, *part, lane)).collect();
        let joins = cx.builder.lt(lane, distance);
        let sum = combine(cx, op, &parts, &other);
        let kept = sum.iter().zip(&parts).map(|(sum, own)| cx.builder.select(joins, *sum, *own));
        parts = kept.collect();
        step *= 2;
    }
    parts
}

// ---- in a block

/// Sorts and reduces the block's rows. How many segments there are, less three times the rows that join one (`i32`).
fn in_block(cx: &mut Context<'_>, cells: &Cells, round: &Round, shared: Shared) -> V {
    let threads = cx.target.block_threads;
    let thread = cx.builder.builtin(Builtin::ThreadId);
    let own_slot = cx.builder.read(round.slot);
    let own = read(cx, &round.parts);
    write_words(cx, cells, shared, thread, &own);
    let key = sorted_key(cx, shared, own_slot);
    let b = &mut *cx.builder;
    // Since the last round read it there were barriers.
    let (zero, none) = (b.u32(0), b.i32(0));
    let is_first = b.eq(thread, zero);
    b.begin_if(is_first);
    b.store(shared.balance, none);
    b.end();
    let (bits, mask) = (b.u64(threads.trailing_zeros().into()), b.u64(u64::from(threads) - 1));
    let source = b.and(key, mask);
    let source = b.convert(source, Scalar::U32);
    let signed = b.bitcast(key, Scalar::I64);
    let signed_bits = b.bitcast(bits, Scalar::I64);
    let slot = b.binary(BinaryOp::Shr, signed, signed_bits);
    let moved = read_words(cx, cells, shared, source);
    let b = &mut *cx.builder;
    let above = b.not(mask);
    let first_key = b.and(key, above);
    let start = lower_bound(b, shared.keys, threads, first_key);
    let pointer = b.offset(shared.starts, thread);
    b.store(pointer, start);
    b.barrier();
    write_words(cx, cells, shared, thread, &moved);
    let is_head = cx.builder.eq(start, thread);
    count_balance(cx, shared, slot, is_head);
    cx.builder.barrier();
    reduce_tree(cx, cells, shared);
    let balance = cx.builder.uniform_load(shared.balance);
    let values = read_words(cx, cells, shared, thread);
    keep_heads(cx, round, is_head, slot, &values);
    balance
}

/// Sorts the block's threads by their slots: the slot and, in the lower bits, the thread that come to this one's place.
/// Leaves all of them in `shared.keys`.
fn sorted_key(cx: &mut Context<'_>, shared: Shared, slot: V) -> V {
    let threads = cx.target.block_threads;
    let b = &mut *cx.builder;
    let thread = b.builtin(Builtin::ThreadId);
    let (bits, wide) = (b.i64(threads.trailing_zeros().into()), b.convert(thread, Scalar::U64));
    let shifted = b.binary(BinaryOp::Shl, slot, bits);
    let shifted = b.bitcast(shifted, Scalar::U64);
    let key = b.or(shifted, wide);
    let own = b.offset(shared.keys, thread);
    b.store(own, key);
    b.barrier();
    bitonic(threads, |size, distance| {
        let (step, block) = (b.u32(distance), b.u32(size));
        let is_lower = is_clear(b, thread, step);
        b.begin_if(is_lower);
        let upper = b.offset(own, step);
        let (low, high) = (b.load(own), b.load(upper));
        let (falls, rising) = (b.lt(high, low), is_clear(b, thread, block));
        let wrong = b.eq(falls, rising);
        b.begin_if(wrong);
        b.store(own, high);
        b.store(upper, low);
        b.end();
        b.end();
        b.barrier();
    });
    b.load(own)
}

/// The number of the block's sorted keys that are less than `key`, which is no greater than one of them (`u32`).
fn lower_bound(b: &mut kelpie_kir::Builder, keys: V, count: u32, key: V) -> V {
    let mut less = b.u32(0);
    let mut step = count / 2;
    while step > 0 {
        let (taken, one) = (b.u32(step), b.u32(1));
        let next = b.add(less, taken);
        let last = b.sub(next, one);
        let pointer = b.offset(keys, last);
        let probe = b.load(pointer);
        let is_less = b.lt(probe, key);
        less = b.select(is_less, next, less);
        step /= 2;
    }
    less
}

/// Adds to the balance what this thread's row, in order, says.
fn count_balance(cx: &mut Context<'_>, shared: Shared, slot: V, is_head: V) {
    let b = &mut *cx.builder;
    let nowhere = b.i64(NOWHERE);
    let is_row = b.ne(slot, nowhere);
    b.begin_if(is_row);
    let (costs, saves) = (b.i32(1), b.i32(-3));
    let own = b.select(is_head, costs, saves);
    b.atomic_discard(AtomicOp::Add, shared.balance, own, Scope::Block);
    b.end();
}

/// Reduces sorted rows: for each segment, its first place has the sum. Ends with a barrier.
fn reduce_tree(cx: &mut Context<'_>, cells: &Cells, shared: Shared) {
    let threads = cx.target.block_threads;
    let thread = cx.builder.builtin(Builtin::ThreadId);
    let mut half = 1;
    while half < threads {
        let b = &mut *cx.builder;
        let (nodes, size, half_size) = (b.u32(threads / (2 * half)), b.u32(2 * half), b.u32(half));
        let has_node = b.lt(thread, nodes);
        b.begin_if(has_node);
        let first = b.mul(thread, size);
        let right = b.add(first, half_size);
        let pointer = b.offset(shared.starts, right);
        let start = b.load(pointer);
        let crosses = b.lt(start, right);
        b.begin_if(crosses);
        let left = b.binary(BinaryOp::Max, start, first);
        let (sum, added) = (read_words(cx, cells, shared, left), read_words(cx, cells, shared, right));
        let pairs = cells.cells.iter().zip(sum.iter().zip(&added));
        let joined: Vec<Vec<V>> = pairs.map(|(cell, (sum, add))| combine(cx, cell.op, sum, add)).collect();
        write_words(cx, cells, shared, left, &joined);
        let b = &mut *cx.builder;
        b.end();
        b.end();
        b.barrier();
        half *= 2;
    }
}

/// The address of word `word` of the contributions at `place` (`u32`).
fn word_at(cx: &mut Context<'_>, shared: Shared, word: u32, place: V) -> V {
    let first = cx.builder.u32(word * cx.target.block_threads);
    let index = cx.builder.add(first, place);
    cx.builder.offset(shared.words, index)
}

fn write_words(cx: &mut Context<'_>, cells: &Cells, shared: Shared, place: V, values: &[Vec<V>]) {
    let mut next = 0;
    for (_, parts) in cells.cells.iter().zip(values) {
        for word in words_of(cx, parts) {
            let pointer = word_at(cx, shared, next, place);
            cx.builder.store(pointer, word);
            next += 1;
        }
    }
}

fn read_words(cx: &mut Context<'_>, cells: &Cells, shared: Shared, place: V) -> Vec<Vec<V>> {
    let mut first = 0;
    let each = cells.cells.iter().map(|cell| {
        let parts = parts_of(cx, cell.op, |cx, index| {
            let pointer = word_at(cx, shared, first + index, place);
            cx.builder.load(pointer)
        });
        first += cell.op.part_words();
        parts
    });
    each.collect()
}
