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
//! known to be possible than [`GROUPS_PER_THREAD`] a thread of a block, or where it does not know. Bounds are loose (all
//! that is known of `x % 128` are 16 bits, as constants are parameters), and what it took for few
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
use kelpie_kir::{Builder, CompareOp};

use super::block_segments::{Shared, in_block};
use super::warp_segments::{in_warp, reduce_in_warp};
use crate::context::{Context, Unsupported};
use crate::operator::aggregate::functions::{CellOp, Cells, combine_registers};
use crate::operator::aggregate::keys::Facts;
use crate::operator::aggregate::local::LEAST_ROWS;
use crate::shape::LaunchShape;
use crate::variant::axes::SegmentSum;
use crate::{MicroModel, Resolution};

/// Groups a thread of a block up to which neighbours are taken to share groups.
const GROUPS_PER_THREAD: u64 = 256;
/// Rounds that pass without resolution after one that found few rows in common.
const SKIPPED_ROUNDS: u32 = 63;
/// Most shared memory of a block, in bytes: several blocks should fit a multiprocessor of an NVIDIA GPU. At most half of it, as
/// near copies take the other half.
const SHARED_LIMIT: u64 = 48 << 10;
/// The slot of a thread without a row.
pub(super) const NOWHERE: i64 = -1;

/// Resolution of groups among threads.
#[derive(Debug, Clone, Copy)]
pub struct Segments {
    form: SegmentForm,
}

/// Who reduces what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentForm {
    /// A warp its rows, which it sorts.
    Warp,
    /// A block its rows, which it sorts.
    Block,
    /// A warp its rows, which come sorted.
    SortedWarp,
    /// A CPU's worker its rows, which come sorted.
    SortedWorker,
}

/// What a thread has in a round, in one kernel.
#[derive(Debug, Clone)]
pub struct Round {
    form: SegmentForm,
    /// `i64`.
    pub(super) slot: Var,
    /// The parts of each cell.
    pub(super) parts: Vec<Vec<Var>>,
    /// Rounds to pass by, `u32`: uniform in the warp or block.
    skips: Option<Var>,
    shared: Option<Shared>,
}

impl Segments {
    /// Of rows that come sorted.
    pub fn of_sorted_rows(shape: &LaunchShape) -> Segments {
        let is_worker = shape.block_threads == 1;
        Segments { form: if is_worker { SegmentForm::SortedWorker } else { SegmentForm::SortedWarp } }
    }

    /// Whether and where rows are resolved.
    pub fn plan(cells: &Cells, facts: &Facts<'_>) -> Result<Option<Segments>, Unsupported> {
        let Facts { input, table, .. } = facts;
        let (shape, threads) = (input.shape, input.shape.block_threads);
        if input.is_sorted {
            return Ok(Some(Segments::of_sorted_rows(shape)));
        }
        let (groups, follows) = (facts.most_groups(), facts.are_clustered());
        let known = facts.keys.known_combinations.min(input.row_bound);
        // A block is thought to find its groups by keys in a table of its own.
        let has_own_table = !input.is_serial()
            && table.words_in_block.is_some()
            && !table.has_dependent
            && input.row_bound >= LEAST_ROWS;
        let warp = match () {
            () if shape.lanes == 1 => Err("a CPU's worker is one thread"),
            () if !input.is_single => Err("threads are not together in a loop over matches"),
            () if !shape.lanes.is_power_of_two() => Err("lanes are no power of two"),
            () if !facts.are_plain => Err("texts are not added up"),
            () => Ok(()),
        };
        let fits = fits_block(cells, shape);
        let block = match (warp, fits) {
            (Ok(()), false) => Err("rows of a block do not fit its memory"),
            (Ok(()), true) if !threads.is_power_of_two() => Err("threads are no power of two"),
            (warp, _) => warp,
        };
        let rule = match input.choices.resolution {
            _ if input.choices.micro_model != MicroModel::Resolution => {
                (SegmentSum::Off, "the micro model has an atomic a row")
            }
            _ if input.parts.is_some() => {
                (SegmentSum::Off, "groups of a part are many and far from each other")
            }
            _ if warp.is_err() => (SegmentSum::Off, "threads cannot add up"),
            // On an H200 1 to 100 groups of 20 million rows take 0.35 to 0.37 ms so, and 0.21 to 0.28 as they come.
            _ if has_own_table && !facts.have_locks => {
                (SegmentSum::Off, "a block adds rows to a table of its own")
            }
            _ if !follows && known > GROUPS_PER_THREAD * u64::from(threads) => {
                (SegmentSum::Off, "neighbours among so many groups share none")
            }
            Resolution::WorkEfficient if block.is_ok() => (SegmentSum::Block, "resolution = work_efficient"),
            _ if follows => (SegmentSum::Warp, "rows that follow each other have keys near each other"),
            _ if groups.is_none() => (
                SegmentSum::Warp,
                "as long as it is not known that there are many groups, neighbours may share some",
            ),
            _ => (SegmentSum::Warp, "neighbours may share groups"),
        };
        let rows = input.rows_told();
        let groups = groups.map_or("an unknown number of".into(), |groups| format!("at most {groups}"));
        let text = format!("{rows} to {groups} groups, {threads} threads of a block");
        let text = (threads > 1).then_some(text);
        let chosen = input.site.choose_by((rule, text), |value| match value {
            SegmentSum::Off => Ok(()),
            SegmentSum::Warp => warp.map_err(String::from),
            SegmentSum::Block => block.map_err(String::from),
        })?;
        Ok(match chosen {
            SegmentSum::Off => None,
            SegmentSum::Warp => Some(Segments { form: SegmentForm::Warp }),
            SegmentSum::Block => Some(Segments { form: SegmentForm::Block }),
        })
    }

    /// Why rows cannot be resolved in launches of a shape, if they cannot.
    pub fn fits(&self, cells: &Cells, shape: &LaunchShape) -> Result<(), String> {
        let (threads, lanes) = (shape.block_threads, shape.lanes);
        match self.form {
            SegmentForm::Warp if !lanes.is_power_of_two() => Err("lanes are no power of two".into()),
            SegmentForm::Block if !threads.is_power_of_two() => Err("threads are no power of two".into()),
            SegmentForm::Block if !fits_block(cells, shape) => {
                Err("rows of a block do not fit its memory".into())
            }
            _ => Ok(()),
        }
    }

    /// Whether the threads of a block wait for each other in each round.
    pub fn is_of_block(&self) -> bool {
        self.form == SegmentForm::Block
    }

    /// Who resolves, for people.
    pub fn place(&self) -> &'static str {
        match self.form {
            SegmentForm::Warp => "segments in warps",
            SegmentForm::Block => "segments in blocks",
            SegmentForm::SortedWarp | SegmentForm::SortedWorker => "segments",
        }
    }

    /// Before the row loop.
    pub fn begin(&self, cx: &mut Context<'_>, cells: &Cells) -> Round {
        let shared = (self.form == SegmentForm::Block).then(|| Shared::declare(cx, cells));
        let b = &mut *cx.builder;
        let skips = matches!(self.form, SegmentForm::Warp | SegmentForm::Block).then(|| {
            let none = b.u32(0);
            b.var_of("skips", none)
        });
        let nowhere = b.i64(NOWHERE);
        let slot = b.var_of("own_slot", nowhere);
        let parts = |op: CellOp| op.parts().iter().map(|part| b.var("own", *part)).collect();
        let parts = cells.cells.iter().map(|cell| cell.op).map(parts).collect();
        Round { form: self.form, slot, parts, skips, shared }
    }
}

impl Round {
    /// Whether the threads of a block wait for each other in each round.
    pub fn is_of_block(&self) -> bool {
        self.form == SegmentForm::Block
    }

    /// Before a row.
    pub fn open(&self, cx: &mut Context<'_>) {
        if self.form != SegmentForm::SortedWorker {
            let nowhere = cx.builder.i64(NOWHERE);
            cx.builder.assign(self.slot, nowhere);
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
        if self.form != SegmentForm::SortedWorker {
            cx.builder.assign(self.slot, slot);
            return assign(cx, &self.parts, values);
        }
        let known = cx.builder.read(self.slot);
        let same = cx.builder.eq(known, slot);
        cx.begin_if(same);
        for (cell, (part, value)) in cells.cells.iter().zip(self.parts.iter().zip(values)) {
            combine_registers(cx, cell.op, part, value);
        }
        cx.begin_else();
        add_own(cx, self, apply);
        cx.builder.assign(self.slot, slot);
        assign(cx, &self.parts, values);
        cx.end();
    }

    /// After the row, at uniform control flow: `apply` adds to the table.
    pub fn close(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        apply: impl FnOnce(&mut Context<'_>, V, &[Vec<V>]),
    ) {
        match (self.form, self.skips) {
            (SegmentForm::SortedWorker, _) => return,
            (_, Some(skips)) => resolve_or_skip(cx, cells, self, skips),
            _ => {
                let own = cx.builder.read(self.slot);
                let values = read(cx, &self.parts).into_iter().flatten().collect();
                reduce_in_warp(cx, cells, self, own, values);
            }
        }
        add_own(cx, self, apply);
    }

    /// After the row loop.
    pub fn end(&self, cx: &mut Context<'_>, apply: impl FnOnce(&mut Context<'_>, V, &[Vec<V>])) {
        if self.form == SegmentForm::SortedWorker {
            add_own(cx, self, apply);
        }
    }
}

/// Whether a block's memory has room for its rows.
fn fits_block(cells: &Cells, shape: &LaunchShape) -> bool {
    let most = SHARED_LIMIT.min((shape.table_bytes() - shape.shared_bytes / 2).into());
    Shared::bytes(cells, shape.block_threads) <= most
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

pub(super) fn read(cx: &mut Context<'_>, parts: &[Vec<Var>]) -> Vec<Vec<V>> {
    parts.iter().map(|parts| parts.iter().map(|part| cx.builder.read(*part)).collect()).collect()
}

fn assign(cx: &mut Context<'_>, parts: &[Vec<Var>], values: &[Vec<V>]) {
    for (part, value) in parts.iter().flatten().zip(values.iter().flatten()) {
        cx.builder.assign(*part, *value);
    }
}

/// Keeps what the first thread of a segment has; the others have no row any more.
pub(super) fn keep_heads(cx: &mut Context<'_>, round: &Round, is_head: V, slot: V, values: &[Vec<V>]) {
    let nowhere = cx.builder.i64(NOWHERE);
    let slot = cx.builder.select(is_head, slot, nowhere);
    cx.builder.assign(round.slot, slot);
    assign(cx, &round.parts, values);
}

/// The network of a bitonic sort of `count` elements, a power of two: `exchange(size, distance)` for each step, in which the
/// elements `distance` apart are brought into order, rising where the bit `size` of their place is clear (Batcher 1968).
pub(super) fn bitonic(count: u32, mut exchange: impl FnMut(u32, u32)) {
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
pub(super) fn is_clear(b: &mut Builder, value: V, bit: V) -> V {
    let (masked, zero) = (b.and(value, bit), b.u32(0));
    b.eq(masked, zero)
}
