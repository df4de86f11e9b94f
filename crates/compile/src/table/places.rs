//! Dense writes: where a row goes in an array that has no gaps (HorseQC, Table 4, row A).
//!
//! - A1 ([`CountedPlaces`]): a kernel of its own counts what each row of the source becomes, a device-wide prefix sum over the
//!   counts gives the places, and a second kernel writes. Rows keep the source's order; nothing is atomic.
//! - A2: one atomic a row ([`Dense::place`]).
//!   On a CPU a worker takes many places by one ([`chunks`](super::chunks)).
//! - A3 ([`local`]): a prefix sum over a group of threads, and one atomic for all of them. The group is a warp, which
//!   adds up by a ballot, or a block, which adds up by a tree in shared memory (appendix C).

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{
    AtomicOp, BinaryOp, Builtin, Expr as Kir, Pointee, Scalar, Scope, ShuffleMode, Type, UnaryOp,
};

use crate::Resolution;
use crate::context::{Argument, Context, Unsupported};
use crate::table::chunks::{Chunk, PlaceChunks};
use crate::variant::axes::WritePlaces;

/// An array of rows that a sink writes.
pub(crate) trait Dense {
    /// Takes `count` (`u64`) places; the first of them.
    fn reserve(&self, cx: &mut Context<'_>, count: V) -> V;

    /// A2: takes a place (`u64`) for a row.
    fn place(&self, cx: &mut Context<'_>, chunk: Option<Chunk>) -> V {
        match chunk {
            Some(chunk) => chunk.place(cx, |cx, rows| {
                self.note(cx, chunk);
                self.reserve(cx, rows)
            }),
            None => {
                let one = cx.builder.u64(1);
                self.reserve(cx, one)
            }
        }
    }

    /// Writes the current row, which is live, to a place (`u64`). Columns none of whose states is `needed` may be left
    /// out.
    fn write(&self, cx: &mut Context<'_>, place: V, needed: &BTreeSet<usize>) -> Result<(), Unsupported>;

    /// Where workers may take many places at a time, and leave none without a row.
    fn chunks(&self) -> Option<PlaceChunks> {
        None
    }

    /// How many places a worker takes at a time, where it does. `places`: how rows find theirs.
    fn chunk_rows(&self, places: WritePlaces) -> Option<u64> {
        self.chunks().filter(|_| places == WritePlaces::Chunks).map(PlaceChunks::rows)
    }

    /// Notes how much of a worker's chunk is used: before it takes the next one, the first time of none, and in the end.
    fn note(&self, cx: &mut Context<'_>, chunk: Chunk) {
        if let Some(chunks) = self.chunks() {
            chunks.note(cx, chunk);
        }
    }

    fn begin(&self, cx: &mut Context<'_>, places: WritePlaces) -> Option<Chunk> {
        self.chunk_rows(places).map(|rows| Chunk::begin(cx, rows))
    }

    fn end(&self, cx: &mut Context<'_>, chunk: Option<Chunk>) {
        if let Some(chunk) = chunk {
            self.note(cx, chunk);
        }
    }

    /// `bool`: there are as many rows as are wanted; `None`: all are. The same in every lane of a warp.
    fn is_done(&self, _cx: &mut Context<'_>) -> Option<V> {
        None
    }
}

/// An array of rows that a sink writes densely.
pub(crate) struct DenseTarget {
    /// State that counts its rows, one `u64`.
    pub total: usize,
    /// Class of its capacity.
    pub class: usize,
    /// More rows than this are not wanted.
    pub limit: Option<u64>,
    /// Where every row of the source comes, a row's place is its number there.
    pub keeps_places: bool,
    /// Where workers may take many places at a time.
    pub chunks: Option<PlaceChunks>,
}

/// A3: a place (`u64`) for each thread of the group whose row is `active` (`bool`). Needs uniform control flow, of the
/// warp for [`Resolution::Simd`], of the block for [`Resolution::WorkEfficient`].
pub(crate) fn local(cx: &mut Context<'_>, resolution: Resolution, active: V, sink: &dyn Dense) -> V {
    match resolution {
        Resolution::Simd => in_warp(cx, active, sink),
        Resolution::WorkEfficient => in_block(cx, active, sink),
    }
}

/// The prefix sum of one bit a lane is the number of bits below it in the ballot.
fn in_warp(cx: &mut Context<'_>, active: V, sink: &dyn Dense) -> V {
    let b = &mut *cx.builder;
    let mask = b.value(Kir::Ballot(active));
    let lane = b.builtin(Builtin::LaneId);
    let (zero, one) = (b.u32(0), b.u32(1));
    let bit = b.binary(BinaryOp::Shl, one, lane);
    let below = b.sub(bit, one);
    let before = b.and(mask, below);
    let before = b.unary(UnaryOp::Popcount, before);
    let total = b.unary(UnaryOp::Popcount, mask);
    let base = b.var("base", Scalar::U64);
    let is_leader = b.eq(lane, zero);
    let any = b.ne(total, zero);
    let reserves = b.and(is_leader, any);
    cx.begin_if(reserves);
    let total = cx.builder.convert(total, Scalar::U64);
    let first = sink.reserve(cx, total);
    cx.builder.assign(base, first);
    cx.end();
    let b = &mut *cx.builder;
    let own = b.read(base);
    let first = b.value(Kir::Shuffle { mode: ShuffleMode::Index, value: own, lane: zero });
    let before = b.convert(before, Scalar::U64);
    b.add(first, before)
}

/// Blelloch's exclusive prefix sum: an up-sweep leaves in each node of a tree the sum of its leaves, a down-sweep hands
/// each node the sum of what is left of it. The first thread reserves between the two.
fn in_block(cx: &mut Context<'_>, active: V, sink: &dyn Dense) -> V {
    let threads = cx.shape.block_threads;
    let leaves = threads.next_power_of_two();
    let b = &mut *cx.builder;
    let tree = b.shared("tree", Pointee::Scalar(Scalar::U32), leaves);
    let base = b.shared("block_base", Pointee::Scalar(Scalar::U64), 1);
    let thread = b.builtin(Builtin::ThreadId);
    let own = b.convert(active, Scalar::U32);
    let leaf = b.offset(tree, thread);
    b.store(leaf, own);
    if leaves > threads {
        let (zero, padding) = (b.u32(0), b.u32(threads));
        let index = b.add(thread, padding);
        let end = b.u32(leaves);
        let pads = b.lt(index, end);
        b.begin_if(pads);
        let pointer = b.offset(tree, index);
        b.store(pointer, zero);
        b.end();
    }
    let mut stride = 1;
    while stride < leaves {
        for_nodes(cx, tree, leaves, stride, |cx, left, right| {
            let (a, b) = (cx.builder.load(left), cx.builder.load(right));
            let sum = cx.builder.add(a, b);
            cx.builder.store(right, sum);
        });
        stride *= 2;
    }
    reserve_by_first(cx, tree, leaves, base, sink);
    while stride > 1 {
        stride /= 2;
        for_nodes(cx, tree, leaves, stride, |cx, left, right| {
            let (a, b) = (cx.builder.load(left), cx.builder.load(right));
            cx.builder.store(left, b);
            let sum = cx.builder.add(a, b);
            cx.builder.store(right, sum);
        });
    }
    let b = &mut *cx.builder;
    b.barrier();
    let before = b.load(leaf);
    let before = b.convert(before, Scalar::U64);
    let first = b.load(base);
    // The next row's sum must not overwrite what a thread has not read.
    b.barrier();
    b.add(first, before)
}

/// The root's sum: so many places are taken. The root is 0 for the down-sweep.
fn reserve_by_first(cx: &mut Context<'_>, tree: V, leaves: u32, base: V, sink: &dyn Dense) {
    let b = &mut *cx.builder;
    b.barrier();
    let (thread, zero, root) = (b.builtin(Builtin::ThreadId), b.u32(0), b.u32(leaves - 1));
    let is_first = b.eq(thread, zero);
    cx.begin_if(is_first);
    let b = &mut *cx.builder;
    let root = b.offset(tree, root);
    let total = b.load(root);
    b.store(root, zero);
    let any = b.ne(total, zero);
    cx.begin_if(any);
    let total = cx.builder.convert(total, Scalar::U64);
    let first = sink.reserve(cx, total);
    let pointer = cx.builder.offset(base, zero);
    cx.builder.store(pointer, first);
    cx.end();
    cx.end();
}

/// One level of the tree, after a barrier: a thread takes a pair of nodes `stride` apart, of which there are
/// `leaves / (2 * stride)`.
fn for_nodes(
    cx: &mut Context<'_>,
    tree: V,
    leaves: u32,
    stride: u32,
    body: impl FnOnce(&mut Context<'_>, V, V),
) {
    let b = &mut *cx.builder;
    b.barrier();
    let (thread, pairs) = (b.builtin(Builtin::ThreadId), b.u32(leaves / (2 * stride)));
    let takes = b.lt(thread, pairs);
    cx.begin_if(takes);
    let b = &mut *cx.builder;
    let (width, half, last) = (b.u32(2 * stride), b.u32(stride), b.u32(stride - 1));
    let start = b.mul(thread, width);
    let left = b.add(start, last);
    let right = b.add(left, half);
    let (left, right) = (b.offset(tree, left), b.offset(tree, right));
    body(cx, left, right);
    cx.end();
}

/// A1: the places that follow from the counts of the rows before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedPlaces {
    /// State of one `u32` a row of the source: first its rows, then the rows of those before it. `None`: each row of the
    /// source becomes one.
    counts: Option<usize>,
    /// First place of this launch, `u64`.
    base: Option<V>,
    /// First row of this launch, `i64`.
    first: V,
    /// Rows that the current row has become so far, `u32`.
    emitted: Option<Var>,
    /// All rows of this thread, `u64`, and the state of one `u64` that they are added to.
    sum: Option<(Var, usize)>,
}

impl CountedPlaces {
    /// Before the row loop of the kernel that counts. `sum`: a state of one `u64` that counts all rows, where a `u32`
    /// may be too small.
    pub(crate) fn begin_count(cx: &mut Context<'_>, counts: usize, sum: Option<usize>) -> CountedPlaces {
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let sum = sum.map(|state| {
            let zero = cx.builder.u64(0);
            (cx.builder.var_of("thread_rows", zero), state)
        });
        CountedPlaces { counts: Some(counts), base: None, first, emitted: None, sum }
    }

    /// Before the row loop of the kernel that writes. `total`: the state of one `u64` that counts the rows of earlier
    /// launches.
    pub(crate) fn begin_write(cx: &mut Context<'_>, counts: Option<usize>, total: usize) -> CountedPlaces {
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let total = cx.argument("total", Type::global(Scalar::U64), Argument::State(total));
        let base = Some(cx.builder.load(total));
        CountedPlaces { counts, base, first, emitted: None, sum: None }
    }

    /// Before a row's steps.
    pub(crate) fn begin_row(&mut self, cx: &mut Context<'_>) {
        self.emitted = self.counts.map(|_| {
            let zero = cx.builder.u32(0);
            cx.builder.var_of("emitted", zero)
        });
    }

    /// The source's row has become one more row.
    pub(crate) fn count(&self, cx: &mut Context<'_>) -> Option<V> {
        let emitted = self.emitted?;
        let (before, one) = (cx.builder.read(emitted), cx.builder.u32(1));
        let after = cx.builder.add(before, one);
        cx.builder.assign(emitted, after);
        Some(before)
    }

    /// After the steps of row `row` (`i64`) of the source: notes what it became.
    pub(crate) fn end_row(&self, cx: &mut Context<'_>, row: V) {
        let (Some(emitted), Some(pointer)) = (self.emitted, self.pointer(cx, row)) else { return };
        let count = cx.builder.read(emitted);
        cx.builder.store(pointer, count);
        if let Some((sum, _)) = self.sum {
            let (before, count) = (cx.builder.read(sum), cx.builder.convert(count, Scalar::U64));
            let after = cx.builder.add(before, count);
            cx.builder.assign(sum, after);
        }
    }

    /// After the row loop of the kernel that counts.
    pub(crate) fn end(&self, cx: &mut Context<'_>) {
        if let Some((sum, state)) = self.sum {
            let total = cx.argument("launch_rows", Type::global(Scalar::U64), Argument::State(state));
            let sum = cx.builder.read(sum);
            cx.builder.atomic_discard(AtomicOp::Add, total, sum, Scope::Device);
        }
    }

    /// The place (`u64`) of the next row that row `row` (`i64`) of the source becomes.
    pub(crate) fn place(&self, cx: &mut Context<'_>, row: V) -> Result<V, Unsupported> {
        let base = self.base.ok_or_else(|| Unsupported::internal("a place in a kernel that counts"))?;
        let within = match self.pointer(cx, row) {
            Some(pointer) => {
                let before = cx.builder.load(pointer);
                let before = cx.builder.convert(before, Scalar::U64);
                match self.count(cx) {
                    Some(own) => {
                        let own = cx.builder.convert(own, Scalar::U64);
                        cx.builder.add(before, own)
                    }
                    None => before,
                }
            }
            None => {
                let index = cx.builder.sub(row, self.first);
                cx.builder.bitcast(index, Scalar::U64)
            }
        };
        Ok(cx.builder.add(base, within))
    }

    fn pointer(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        let counts = cx.argument("counts", Type::global(Scalar::U32), Argument::State(self.counts?));
        let index = cx.builder.sub(row, self.first);
        Some(cx.builder.offset(counts, index))
    }
}
