//! Aggregation without keys: exactly one group. B2 adds every row to the device's group; B3 keeps the cells in
//! registers, reduces them at the end of the kernel, in the warp by shuffles (`simd`) or in the block by a tree in shared
//! memory (`work_efficient`), and adds once a warp or block (HorseQC, sections 5.1 and 6.1, appendix C, figure 24).

use std::fmt;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builtin, Expr as Kir, Pointee, Scalar, Scope, ShuffleMode, Target};

use super::cells::{CellOp, combine, combine_memory, combine_registers, parts_of, words_of};
use super::{Cells, declare, fixed_class, group_pointer, update_group, word_pointer};
use crate::context::Context;
use crate::pipeline::Choices;
use crate::{MicroModel, Resolution};

/// The one group.
#[derive(Debug, Clone)]
pub struct SingleGroup {
    pub class: usize,
    pub state: usize,
    /// Who adds up rows before the device does; nobody where absent.
    local: Option<Resolution>,
    /// The parts of each cell.
    registers: Vec<Vec<Var>>,
}

impl fmt::Display for SingleGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.local {
            None => "atomic",
            Some(Resolution::Simd) => "registers",
            Some(Resolution::WorkEfficient) => "registers, tree in blocks",
        })
    }
}

impl SingleGroup {
    pub fn plan(
        cells: &Cells,
        (target, choices): (&Target, &Choices<'_>),
        states: &mut declare::States,
    ) -> SingleGroup {
        let class = fixed_class(states, 1);
        let state = states.state("group", 8 * cells.words(), class);
        let bytes = u64::from(tree_words(cells)) * u64::from(target.block_threads) * 8;
        let has_tree = target.block_threads > target.lanes && bytes <= u64::from(target.shared_bytes);
        let resolution = if has_tree { choices.resolution } else { Resolution::Simd };
        let local = (choices.micro_model == MicroModel::Resolution).then_some(resolution);
        SingleGroup { class, state, local, registers: Vec::new() }
    }

    pub fn is_private(&self) -> bool {
        self.local.is_some()
    }

    pub fn begin(&mut self, cx: &mut Context<'_>, cells: &Cells) {
        if self.is_private() {
            let parts = |op: CellOp| op.parts().iter().map(|part| cx.builder.var("cell", *part)).collect();
            self.registers = cells.cells.iter().map(|cell| cell.op).map(parts).collect();
        }
    }

    pub fn apply(&self, cx: &mut Context<'_>, cells: &Cells, values: &[Vec<V>]) {
        if !self.is_private() {
            let base = self.base(cx, cells);
            return update_group(cx, cells, base, values, Scope::Device);
        }
        for ((cell, register), value) in cells.cells.iter().zip(&self.registers).zip(values) {
            combine_registers(cx, cell.op, register, value);
        }
    }

    pub fn end(&self, cx: &mut Context<'_>, cells: &Cells) {
        let Some(resolution) = self.local else { return };
        let base = self.base(cx, cells);
        let words = (resolution == Resolution::WorkEfficient).then(|| {
            let count = tree_words(cells) * cx.target.block_threads;
            cx.builder.shared("tree", Pointee::Scalar(Scalar::U64), count.max(1))
        });
        for (cell, register) in cells.cells.iter().zip(&self.registers) {
            let private = register.iter().map(|part| cx.builder.read(*part)).collect();
            let (value, number) = match words {
                None => (warp_reduce(cx, cell.op, private), Builtin::LaneId),
                Some(words) => (block_reduce(cx, cell.op, &private, words), Builtin::ThreadId),
            };
            let number = cx.builder.builtin(number);
            let zero = cx.builder.u32(0);
            let leader = cx.builder.eq(number, zero);
            cx.begin_if(leader);
            let pointer = word_pointer(cx, base, cell.word);
            combine_memory(cx, cell.op, pointer, &value, Scope::Device);
            cx.end();
        }
    }

    fn base(&self, cx: &mut Context<'_>, cells: &Cells) -> V {
        let slot = cx.builder.i64(0);
        group_pointer(cx, self.state, cells.words(), slot)
    }
}

/// The combination of every lane's cell, in lane 0: a tree of shuffles.
fn warp_reduce(cx: &mut Context<'_>, op: CellOp, parts: Vec<V>) -> Vec<V> {
    let lanes = cx.target.lanes;
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

/// The combination of every thread's cell, in thread 0: a tree in shared memory, level by level half as many threads.
fn block_reduce(cx: &mut Context<'_>, op: CellOp, parts: &[V], tree: V) -> Vec<V> {
    let threads = cx.target.block_threads;
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
    let first = cx.builder.u32(word * cx.target.block_threads);
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
