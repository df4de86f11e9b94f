//! Near copies of groups: sums of the groups that a block (a CPU: a worker) has met, in its own memory, which are merged into the
//! table of all groups at the end.
//!
//! A table of groups that does not fit near memory as a whole is the device's, where every row costs an atomic, and rows of one
//! group wait for each other: on a GPU a single address takes about a thousand million a second, a lock some thousand times
//! less. So a block keeps copies of some groups near: of those it meets first, which where keys are skewed are the heavy ones, and
//! where there are few groups are all of them (Karnagel et al., section 4: placement in shared memory; section 5: skew). A copy is
//! found by the group's slot, whatever the keys are, by a search of [`STEPS`] places; a row whose group has none goes to the table
//! of all as before. A thread that finds too few copies no longer looks.
//!
//! Rows that a warp or block has added up before ([`segments`](super::segments)) come here too.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope};

use super::cells::read_cell;
use super::functions::Cells;
use super::threads::{clear, for_each};
use super::{update_group, word_pointer};
use crate::MicroModel;
use crate::choices::Choices;
use crate::context::{Context, Unsupported};
use crate::shape::LaunchShape;
use crate::variant::axes::NearGroups;
use crate::variant::{Site, Variant};

/// Places that a copy may be at.
const STEPS: i32 = 4;
/// Rows from which on copies pay, at least: they are cleared and merged whatever comes.
const LEAST_ROWS: u64 = 1 << 16;
/// Groups for each copy, at most, where it is known how many there are: each copy is merged at the end, which costs as much as a
/// row, and a block of a GPU may see few more rows than it has copies.
const GROUPS_A_COPY: u64 = 2;
/// Most bytes of a SIMT block's copies: several blocks should fit a multiprocessor of an NVIDIA GPU.
const BLOCK_BYTES: u64 = 40 << 10;
/// Most bytes of a worker's copies on a CPU: they should stay in the second-level cache.
const WORKER_BYTES: u64 = 192 << 10;
/// A thread of a SIMT device looks for copies as long as its credit is not below zero. It begins with this, which is also the
/// most. There are many threads, so that each sees few rows.
const THREAD_CREDIT: i32 = 48;
/// The same of a CPU's worker.
const WORKER_CREDIT: i32 = 1 << 12;
/// Credit for a row whose group has a copy; one that has none costs one.
const GAIN: i32 = 16;
/// Spreads neighbouring slots (Knuth, The Art of Computer Programming, volume 3, section 6.4: multiplicative hashing).
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

/// So many near copies, a power of two.
#[derive(Debug, Clone, Copy)]
pub(super) struct NearCopies(u32);

impl NearCopies {
    /// Whether a block keeps copies of groups, and how many. `row_bound`: rows at most. `groups`: how many there are about,
    /// where all keys are columns, whose values are known.
    pub fn plan(
        cells: &Cells,
        (row_bound, groups): (u64, Option<u64>),
        site: Site<'_>,
        (shape, choices): (&LaunchShape, &Choices<'_>),
    ) -> Result<Option<NearCopies>, Unsupported> {
        let is_simt = shape.block_threads > 1;
        let bytes = |copies: u64| copies * u64::from(words(cells)) * 8;
        let most = u64::from(shape.shared_bytes / 2);
        let lacks = |NearGroups(copies): NearGroups| match () {
            () if copies == 0 => Ok(()),
            () if !cells.cells.iter().all(|cell| cell.op.is_plain()) => {
                Err("texts are compared in the table of all groups".to_string())
            }
            () if bytes(copies) > most => Err(format!("{} bytes do not fit a block's {most}", bytes(copies))),
            () => Ok(()),
        };
        let limit = if is_simt { BLOCK_BYTES } else { WORKER_BYTES };
        let fitting = NearGroups::ALL
            .iter()
            .copied()
            .filter(|copies| copies.0 > 0 && bytes(copies.0) <= limit && lacks(*copies).is_ok());
        let off = NearGroups(0);
        let rule = match fitting.max_by_key(|copies| copies.0) {
            _ if choices.micro_model != MicroModel::Resolution => {
                (off, "the micro model has an atomic a row")
            }
            _ if row_bound < LEAST_ROWS => (off, "few rows"),
            Some(copies) if groups.is_some_and(|groups| groups > copies.0 * GROUPS_A_COPY) => {
                (off, "a block meets few of so many groups twice")
            }
            Some(copies) => (copies, "groups that a block meets often are added up near"),
            None => (off, "a block's memory has no room"),
        };
        let NearGroups(copies) = site.choose(rule, lacks)?;
        let copies = u32::try_from(copies).map_err(Unsupported::internal)?;
        Ok((copies > 0).then_some(NearCopies(copies)))
    }

    /// Clears them, before the row loop.
    pub fn begin(self, cx: &mut Context<'_>, cells: &Cells) -> NearTable {
        let words = self.0 * words(cells);
        let table = cx.builder.shared("near_groups", Pointee::Scalar(Scalar::U64), words);
        clear(cx, table, Scalar::U64, words);
        cx.builder.barrier();
        let most = if cx.shape.block_threads == 1 { WORKER_CREDIT } else { THREAD_CREDIT };
        let credit = cx.builder.i32(most);
        NearTable { copies: self.0, table, credit: cx.builder.var_of("credit", credit), most }
    }
}

/// Words of a copy: the group's slot + 1, or 0 where the place is free, and the cells.
fn words(cells: &Cells) -> u32 {
    1 + cells.words()
}

/// The copies in one kernel.
#[derive(Debug)]
pub(super) struct NearTable {
    copies: u32,
    /// `ptr<shared, u64>`.
    table: V,
    credit: Var,
    /// The most credit.
    most: i32,
}

/// Adds contributions to the group in a slot of the table of all.
pub(super) type AddFar<'f> = dyn Fn(&mut Context<'_>, V, &[Vec<V>]) + 'f;

impl NearTable {
    /// Adds contributions to the copy of the group in `slot` (`i64`), or where there is none and no place for one, by `far`.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>], far: &AddFar<'_>) {
        let zero = cx.builder.i64(0);
        let copy = cx.builder.var_of("copy", zero);
        let no = cx.builder.bool(false);
        let found = cx.builder.var_of("is_near", no);
        let b = &mut *cx.builder;
        let (credit, none) = (b.read(self.credit), b.i32(0));
        let looks = b.ge(credit, none);
        cx.begin_if(looks);
        self.find(cx, cells, slot, (copy, found));
        cx.end();
        let is_near = cx.builder.read(found);
        cx.begin_if(is_near);
        let copy = cx.builder.read(copy);
        let entry = self.entry(cx, cells, copy);
        let base = word_pointer(cx, entry, 1);
        update_group(cx, cells, base, values, Scope::Block);
        self.settle(cx, GAIN);
        cx.begin_else();
        far(cx, slot, values);
        self.settle(cx, -1);
        cx.end();
    }

    /// Looks for the copy of a group, and makes it where there is a place.
    fn find(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, (copy, found): (Var, Var)) {
        let b = &mut *cx.builder;
        let bits = b.bitcast(slot, Scalar::U64);
        let (one, spread) = (b.u64(1), b.u64(SPREAD));
        let tag = b.add(bits, one);
        let hash = b.mul(bits, spread);
        let shift = b.u64(u64::from(u64::BITS - self.copies.ilog2()));
        let start = b.binary(BinaryOp::Shr, hash, shift);
        let start = b.bitcast(start, Scalar::I64);
        b.assign(copy, start);
        let zero = b.i32(0);
        let steps = b.var_of("steps", zero);
        cx.begin_loop();
        let place = cx.builder.read(copy);
        let entry = self.entry(cx, cells, place);
        let seen = self.claim(cx, entry, tag);
        let b = &mut *cx.builder;
        let same = b.eq(seen, tag);
        b.assign(found, same);
        b.break_if(same);
        let (steps_now, one) = (b.read(steps), b.i32(1));
        let next = b.add(steps_now, one);
        b.assign(steps, next);
        let most = b.i32(STEPS);
        let done = b.ge(next, most);
        b.break_if(done);
        let (one, mask) = (b.i64(1), b.i64(i64::from(self.copies) - 1));
        let following = b.add(place, one);
        let following = b.and(following, mask);
        b.assign(copy, following);
        cx.end();
    }

    /// What an entry's first word is, once it was claimed where it was free.
    fn claim(&self, cx: &mut Context<'_>, entry: V, tag: V) -> V {
        let is_own = cx.shape.block_threads == 1;
        let b = &mut *cx.builder;
        let current = if is_own { b.load(entry) } else { b.atomic_load(entry, Scope::Block) };
        let seen = b.var_of("seen", current);
        let zero = b.u64(0);
        let free = b.eq(current, zero);
        cx.begin_if(free);
        let b = &mut *cx.builder;
        if is_own {
            b.store(entry, tag);
            b.assign(seen, tag);
        } else {
            let old = b.atomic(AtomicOp::CompareExchange(zero), entry, tag, Scope::Block);
            let won = b.eq(old, zero);
            let now = b.select(won, tag, old);
            b.assign(seen, now);
        }
        cx.end();
        cx.builder.read(seen)
    }

    /// The thread's credit after a row.
    fn settle(&self, cx: &mut Context<'_>, change: i32) {
        let b = &mut *cx.builder;
        let (credit, change) = (b.read(self.credit), b.i32(change));
        let (least, most) = (b.i32(-1), b.i32(self.most));
        let credit = b.add(credit, change);
        let credit = b.binary(BinaryOp::Max, credit, least);
        let credit = b.binary(BinaryOp::Min, credit, most);
        b.assign(self.credit, credit);
    }

    /// The first word of a copy.
    fn entry(&self, cx: &mut Context<'_>, cells: &Cells, copy: V) -> V {
        let stride = cx.builder.i64(i64::from(words(cells)));
        let index = cx.builder.mul(copy, stride);
        cx.builder.offset(self.table, index)
    }

    /// Merges the copies into the table of all groups by `far`, after the row loop: one thread a copy.
    pub fn end(&self, cx: &mut Context<'_>, cells: &Cells, far: &AddFar<'_>) {
        cx.builder.barrier();
        for_each(cx, self.copies, |cx, copy| {
            let entry = self.entry(cx, cells, copy);
            let tag = cx.builder.load(entry);
            let zero = cx.builder.u64(0);
            let taken = cx.builder.ne(tag, zero);
            cx.begin_if(taken);
            let one = cx.builder.u64(1);
            let slot = cx.builder.sub(tag, one);
            let slot = cx.builder.bitcast(slot, Scalar::I64);
            let base = word_pointer(cx, entry, 1);
            let values: Vec<Vec<V>> = cells
                .cells
                .iter()
                .map(|cell| {
                    let pointer = word_pointer(cx, base, cell.word);
                    read_cell(cx, cell.op, pointer)
                })
                .collect();
            far(cx, slot, &values);
            cx.end();
        });
    }
}
