//! Aggregation without keys: exactly one group. B2 adds every row to the device's group; B3 keeps the cells in
//! registers, reduces them at the end of the kernel, in the warp by shuffles (`simd`) or in the block by a tree in shared
//! memory (`work_efficient`), and adds once a warp or block (HorseQC, sections 5.1 and 6.1, appendix C, figure 24). B1 has
//! no atomics: every block adds its sum to one of its own, and a second kernel reduces these, again by trees.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builtin, Expr as Kir, Pointee, Scalar, Scope, ShuffleMode, Type};

use super::group_table::{AtGroup, GroupEmitter, GroupTable, Located};
use crate::context::{Context, Lowered, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::aggregate::functions::{
    CellOp, Cells, combine, combine_memory, combine_own, combine_registers, group_pointer, is_used, parts_of,
    read_cell, word_pointer, words_of,
};
use crate::operator::aggregate::keys::{Input, KeyWord, RowKeys};
use crate::program::{Growth, States};
use crate::shape::LaunchShape;
use crate::variant::axes::SingleSum;
use crate::{MicroModel, Resolution};

#[derive(Debug, Clone)]
pub struct SingleGroup {
    class: usize,
    state: usize,
    /// How rows come into it.
    sum: SingleSum,
    partials: Option<SumsOfBlocks>,
}

/// B1: one sum a block, for so many blocks.
#[derive(Debug, Clone, Copy)]
struct SumsOfBlocks {
    class: usize,
    state: usize,
    blocks: u32,
}

impl fmt::Display for SingleGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.sum {
            SingleSum::Atomic => "atomic",
            SingleSum::Warp => "registers",
            SingleSum::Block => "registers, tree in blocks",
            SingleSum::Passes => "registers, sums of blocks",
        })
    }
}

impl SingleGroup {
    pub fn plan(cells: &Cells, input: &Input<'_>, states: &mut States) -> Result<SingleGroup, Unsupported> {
        let Input { shape, choices, .. } = *input;
        let class = states.class(1, Growth::Fixed);
        let state = states.state("group", 8 * cells.words(), class);
        let has_blocks = shape.block_threads > shape.lanes;
        // On an H200 thousands of warps take 37 ms to take the lock of the one group in turn.
        let is_locked = !shape.is_serial() && cells.have_locks();
        let rule = match (choices.micro_model, choices.resolution) {
            (MicroModel::OperatorAtATime | MicroModel::MultiPass, _) => {
                (SingleSum::Passes, "the micro model reduces in kernels of their own")
            }
            (MicroModel::Pipelined, _) => (SingleSum::Atomic, "the micro model has an atomic a row"),
            (MicroModel::Resolution, Resolution::WorkEfficient) if has_blocks => {
                (SingleSum::Block, "resolution = work_efficient")
            }
            (MicroModel::Resolution, _) if is_locked => {
                (SingleSum::Passes, "every warp would wait for the group's lock")
            }
            (MicroModel::Resolution, _) => (SingleSum::Warp, "one atomic for a warp or worker"),
        };
        let sum = input.site.choose(rule, |value| match value {
            SingleSum::Block if !has_blocks => Err("a block is one warp or worker".into()),
            _ => Ok(()),
        })?;
        let partials = (sum == SingleSum::Passes).then(|| {
            let blocks = shape.most_blocks;
            let class = states.class(blocks.into(), Growth::Fixed);
            SumsOfBlocks { class, state: states.state("sums", 8 * cells.words(), class), blocks }
        });
        Ok(SingleGroup { class, state, sum, partials })
    }

    fn is_private(&self) -> bool {
        self.sum != SingleSum::Atomic
    }

    fn registers(&self, cx: &mut Context<'_>, cells: &Cells) -> Vec<Vec<Var>> {
        if !self.is_private() {
            return Vec::new();
        }
        let parts = |op: CellOp| op.parts().iter().map(|part| cx.builder.var("cell", *part)).collect();
        cells.cells.iter().map(|cell| cell.op).map(parts).collect()
    }

    fn base(&self, cx: &mut Context<'_>, cells: &Cells) -> V {
        let slot = cx.builder.i64(0);
        group_pointer(cx, self.state, cells.words(), slot)
    }
}

impl GroupTable for SingleGroup {
    fn class(&self) -> usize {
        self.class
    }

    fn zeroed(&self) -> Vec<usize> {
        [self.state].into_iter().chain(self.partials().map(|(_, sums)| sums)).collect()
    }

    fn row_bound(&self) -> u64 {
        1
    }

    fn is_local(&self) -> bool {
        true
    }

    fn takes_flags(&self) -> bool {
        self.is_private()
    }

    fn takes_wide_rows(&self) -> Result<(), String> {
        match self.is_private() {
            true => Ok(()),
            false => Err("every row is added by an atomic".into()),
        }
    }

    fn partials(&self) -> Option<(usize, usize)> {
        self.partials.map(|sums| (sums.class, sums.state))
    }

    fn fits(&self, cells: &Cells, shape: &LaunchShape, _thread_rows: u64) -> Result<(), String> {
        let has_tree = matches!(self.sum, SingleSum::Block | SingleSum::Passes);
        match self.partials {
            _ if has_tree && tree_bytes(cells, shape) > shape.table_bytes().into() => {
                Err("a tree over so many threads does not fit a block's memory".into())
            }
            Some(SumsOfBlocks { blocks, .. }) if shape.most_blocks > blocks => {
                Err(format!("there is room for the sums of {blocks} blocks"))
            }
            _ => Ok(()),
        }
    }

    fn begin<'s>(&'s self, cx: &mut Context<'_>, cells: &'s Cells, _: u64) -> Box<dyn GroupEmitter + 's> {
        let registers = self.registers(cx, cells);
        Box::new(SingleEmitter { group: self, cells, registers, wide: RefCell::default() })
    }

    /// B1's second kernel: the first block reduces `rows` (`i64`) sums of blocks.
    fn reduce(&self, cx: &mut Context<'_>, cells: &Cells, rows: V) {
        let Some((_, sums)) = self.partials() else {
            return cx.impossible("a reduction without sums of blocks");
        };
        let registers = self.registers(cx, cells);
        let emitter = SingleEmitter { group: self, cells, registers, wide: RefCell::default() };
        let b = &mut *cx.builder;
        let (block, zero) = (b.builtin(Builtin::BlockId), b.u32(0));
        let is_first = b.eq(block, zero);
        cx.begin_if(is_first);
        let b = &mut *cx.builder;
        let (thread, threads) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::BlockDim));
        let (thread, threads) = (b.convert(thread, Scalar::I64), b.convert(threads, Scalar::I64));
        let place = b.var_of("place", thread);
        cx.begin_loop();
        let current = cx.builder.read(place);
        let done = cx.builder.ge(current, rows);
        cx.builder.break_if(done);
        let sum = group_pointer(cx, sums, cells.words(), current);
        for (cell, register) in cells.cells.iter().zip(&emitter.registers) {
            let pointer = word_pointer(cx, sum, cell.word);
            let value = read_cell(cx, cell.op, pointer);
            combine_registers(cx, cell.op, register, &value);
        }
        let next = cx.builder.add(current, threads);
        cx.builder.assign(place, next);
        cx.end();
        let base = self.base(cx, cells);
        emitter.combine_threads(cx, |cx, op, word, value| {
            let pointer = word_pointer(cx, base, word);
            combine_own(cx, op, pointer, value);
        });
        cx.end();
    }

    fn present(&self, _cx: &mut Context<'_>, _cells: &Cells, _slot: V) -> Option<V> {
        None
    }

    fn words(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> V {
        group_pointer(cx, self.state, cells.words(), slot)
    }

    fn keys(&self, _cx: &mut Context<'_>, _columns: &[ColumnInfo], _slot: V) -> Vec<Lowered> {
        Vec::new()
    }
}

struct SingleEmitter<'s> {
    group: &'s SingleGroup,
    cells: &'s Cells,
    /// The parts of each cell, where rows are added up before.
    registers: Vec<Vec<Var>>,
    /// Vectors that wide rows are added up in before, by the number of their cell.
    wide: RefCell<BTreeMap<usize, Var>>,
}

impl GroupEmitter for SingleEmitter<'_> {
    fn locate(
        &self,
        cx: &mut Context<'_>,
        _keys: &RowKeys,
        _word: Option<KeyWord>,
        flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        next(cx, Located { slot: None, active: flow.active(), keys: None })
    }

    fn add(&self, cx: &mut Context<'_>, _slot: Option<V>, values: &[Vec<V>]) {
        if !self.group.is_private() {
            let base = self.group.base(cx, self.cells);
            return self.cells.update(cx, base, values, Scope::Device);
        }
        let cells = self.cells.cells.iter().zip(&self.registers).zip(values).enumerate();
        for (index, ((cell, register), value)) in cells {
            match value.first().map(|part| cx.builder.ty(*part)) {
                Some(ty @ Type::Vector(..)) => {
                    let mut wide = self.wide.borrow_mut();
                    let vector = *wide.entry(index).or_insert_with(|| cx.builder.var("cells", ty));
                    combine_registers(cx, cell.op, &[vector], value);
                }
                _ => combine_registers(cx, cell.op, register, value),
            }
        }
    }

    fn current(&self, cx: &mut Context<'_>, _slot: Option<V>, index: usize) -> Option<V> {
        if let Some(register) = self.registers.get(index) {
            return Some(cx.builder.read(*register.first()?));
        }
        let base = self.group.base(cx, self.cells);
        self.cells.current(cx, base, index)
    }

    fn end(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.end_wide_rows(cx);
        match (self.group.sum, self.group.partials) {
            (SingleSum::Atomic, _) => {}
            (_, None) => {
                let base = self.group.base(cx, self.cells);
                self.combine_threads(cx, |cx, op, word, value| {
                    let pointer = word_pointer(cx, base, word);
                    // Many a warp has found no row.
                    let Some(used) = is_used(cx, value) else { return cx.impossible("a cell without parts") };
                    cx.begin_if(used);
                    combine_memory(cx, op, pointer, value, Scope::Device);
                    cx.end();
                });
            }
            (_, Some(SumsOfBlocks { state: sums, .. })) => {
                let block = cx.builder.builtin(Builtin::BlockId);
                let block = cx.builder.convert(block, Scalar::I64);
                let own = group_pointer(cx, sums, self.cells.words(), block);
                self.combine_threads(cx, |cx, op, word, value| {
                    let pointer = word_pointer(cx, own, word);
                    combine_own(cx, op, pointer, value);
                });
            }
        }
        Ok(())
    }
}

impl SingleEmitter<'_> {
    /// Adds the elements of the vectors to the registers.
    fn end_wide_rows(&self, cx: &mut Context<'_>) {
        for (index, vector) in &*self.wide.borrow() {
            let (Some(cell), Some(register)) = (self.cells.cells.get(*index), self.registers.get(*index))
            else {
                return cx.impossible("a vector of no cell");
            };
            let vector = cx.builder.read(*vector);
            for row in 0..cx.builder.ty(vector).lanes().unwrap_or(0) {
                let element = cx.builder.lane(vector, row);
                combine_registers(cx, cell.op, register, &[element]);
            }
        }
    }

    /// Combines the registers of a warp's or a block's threads; the first of them adds what comes out: `add(op, word of the
    /// cell, value)`.
    fn combine_threads(
        &self,
        cx: &mut Context<'_>,
        mut add: impl FnMut(&mut Context<'_>, CellOp, u32, &[V]),
    ) {
        let cells = self.cells;
        let tree = (self.group.sum != SingleSum::Warp && cx.shape.block_threads > 1).then(|| {
            let count = tree_words(cells) * cx.shape.block_threads;
            cx.builder.shared("tree", Pointee::Scalar(Scalar::U64), count.max(1))
        });
        for (cell, register) in cells.cells.iter().zip(&self.registers) {
            let private = register.iter().map(|part| cx.builder.read(*part)).collect();
            let (value, number) = match tree {
                None => (warp_reduce(cx, cell.op, private), Builtin::LaneId),
                Some(tree) => (block_reduce(cx, cell.op, &private, tree), Builtin::ThreadId),
            };
            let number = cx.builder.builtin(number);
            let leader = cx.builder.eq_int(number, 0);
            cx.begin_if(leader);
            add(cx, cell.op, cell.word, &value);
            cx.end();
        }
    }
}

/// The combination of every lane's cell, in lane 0: a tree of shuffles.
fn warp_reduce(cx: &mut Context<'_>, op: CellOp, parts: Vec<V>) -> Vec<V> {
    let lanes = cx.shape.lanes;
    let mut parts = parts;
    let mut distance = lanes.next_power_of_two() / 2;
    while distance > 0 {
        let step = cx.builder.u32(distance);
        let other: Vec<V> = parts.iter().map(|part| shuffle_down(cx, *part, step)).collect();
        let sum = combine(cx, op, &parts, &other);
        parts = match lanes.is_power_of_two() {
            true => sum,
            // A lane of the first half may have no partner.
            false => {
                let b = &mut *cx.builder;
                let (lane, rest) = (b.builtin(Builtin::LaneId), b.u32(lanes - distance));
                let has_partner = b.lt(lane, rest);
                sum.iter().zip(&parts).map(|(sum, own)| b.select(has_partner, *sum, *own)).collect()
            }
        };
        distance /= 2;
    }
    parts
}

/// Words a thread of the tree's memory: those of the largest cell.
fn tree_words(cells: &Cells) -> u32 {
    cells.cells.iter().map(|cell| cell.op.part_words()).max().unwrap_or(0)
}

/// Shared memory for that tree, in bytes.
fn tree_bytes(cells: &Cells, shape: &LaunchShape) -> u64 {
    8 * u64::from(tree_words(cells)) * u64::from(shape.block_threads)
}

/// The combination of every thread's cell, in thread 0: a tree in shared memory, level by level half as many threads.
fn block_reduce(cx: &mut Context<'_>, op: CellOp, parts: &[V], tree: V) -> Vec<V> {
    let threads = cx.shape.block_threads;
    let thread = cx.builder.builtin(Builtin::ThreadId);
    write_tree(cx, parts, tree, thread);
    cx.builder.barrier();
    let mut half = threads.next_power_of_two() / 2;
    while half > 0 {
        let b = &mut *cx.builder;
        let (partners, distance) = (b.u32(half.min(threads - half)), b.u32(half));
        let adds = b.lt(thread, partners);
        b.begin_if(adds);
        let partner = b.add(thread, distance);
        let (own, other) = (read_tree(cx, op, tree, thread), read_tree(cx, op, tree, partner));
        let sum = combine(cx, op, &own, &other);
        write_tree(cx, &sum, tree, thread);
        cx.builder.end();
        cx.builder.barrier();
        half /= 2;
    }
    read_tree(cx, op, tree, thread)
}

/// The address of a word of a thread (`u32`).
fn tree_word(cx: &mut Context<'_>, tree: V, word: u32, thread: V) -> V {
    let first = cx.builder.u32(word * cx.shape.block_threads);
    let index = cx.builder.add(first, thread);
    cx.builder.offset(tree, index)
}

fn write_tree(cx: &mut Context<'_>, parts: &[V], tree: V, thread: V) {
    for (index, word) in words_of(cx, parts).into_iter().enumerate() {
        let pointer = tree_word(cx, tree, index as u32, thread);
        cx.builder.store(pointer, word);
    }
}

fn read_tree(cx: &mut Context<'_>, op: CellOp, tree: V, thread: V) -> Vec<V> {
    parts_of(cx, op, |cx, index| {
        let pointer = tree_word(cx, tree, index, thread);
        cx.builder.load(pointer)
    })
}

fn shuffle_down(cx: &mut Context<'_>, value: V, lane: V) -> V {
    debug_assert_ne!(cx.builder.scalar(value), Scalar::Bool);
    cx.builder.value(Kir::Shuffle { mode: ShuffleMode::Down, value, lane })
}
