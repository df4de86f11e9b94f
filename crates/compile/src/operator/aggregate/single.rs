//! Aggregation without keys: exactly one group. B2 adds every row to the device's group; B3 keeps the cells in
//! registers, reduces them in the warp, and adds once a warp (HorseQC, sections 5.1 and 6.1).

use std::fmt;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builtin, Expr as Kir, Scalar, Scope, ShuffleMode};

use super::cells::{CellOp, combine, combine_memory, combine_registers};
use super::{Cells, declare, fixed_class, group_pointer, update_group, word_pointer};
use crate::MicroModel;
use crate::context::Context;

/// The one group.
#[derive(Debug, Clone)]
pub struct SingleGroup {
    pub class: usize,
    pub state: usize,
    micro_model: MicroModel,
    /// The parts of each cell.
    registers: Vec<Vec<Var>>,
}

impl fmt::Display for SingleGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_private() { "registers" } else { "atomic" })
    }
}

impl SingleGroup {
    pub fn plan(cells: &Cells, micro_model: MicroModel, states: &mut declare::States) -> SingleGroup {
        let class = fixed_class(states, 1);
        let state = states.state("group", 8 * cells.words(), class);
        SingleGroup { class, state, micro_model, registers: Vec::new() }
    }

    pub fn is_private(&self) -> bool {
        self.micro_model == MicroModel::Resolution
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
        if !self.is_private() {
            return;
        }
        let base = self.base(cx, cells);
        for (cell, register) in cells.cells.iter().zip(&self.registers) {
            let private = register.iter().map(|part| cx.builder.read(*part)).collect();
            let value = warp_reduce(cx, cell.op, private);
            let lane = cx.builder.builtin(Builtin::LaneId);
            let zero = cx.builder.u32(0);
            let leader = cx.builder.eq(lane, zero);
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
    let mut parts = parts;
    let mut distance = cx.target.lanes / 2;
    while distance > 0 {
        let lane = cx.builder.u32(distance);
        let other: Vec<V> = parts.iter().map(|part| shuffle_down(cx, *part, lane)).collect();
        parts = combine(cx, op, &parts, &other);
        distance /= 2;
    }
    parts
}

fn shuffle_down(cx: &mut Context<'_>, value: V, lane: V) -> V {
    debug_assert_ne!(cx.builder.scalar(value), Scalar::Bool);
    cx.builder.value(Kir::Shuffle { mode: ShuffleMode::Down, value, lane })
}
