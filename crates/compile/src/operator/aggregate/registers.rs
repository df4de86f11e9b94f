//! Cells of direct-addressed groups in the registers of each thread, where there are very few groups: a row is compared with each of
//! them, and added where they are equal, so that no thread waits for another one, nor for memory. At the end of the kernel the lanes of
//! a warp add up theirs by shuffles, and warps theirs in a table of the block (Karnagel et al., section 4: the nearest placement there is).
//!
//! How many rows a thread sees bounds what its cells come to: mostly they have 32 bits then, where the groups' own have 64 or 128.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builtin, Scalar};

use super::block_table::{BlockTable, Width, above, from_above, from_half};
use super::cells::combine_registers;
use super::functions::{Cell, Cells};
use super::single::warp_reduce;
use crate::context::Context;

/// Registers of 32 bits that a thread may have for cells whatever is asked for: it has 255, and needs some for its rows.
pub const MOST_REGISTERS: u64 = 128;

/// The cells of one thread.
#[derive(Debug)]
pub struct RegisterCells {
    /// One a cell.
    widths: Vec<Width>,
    /// The parts of each cell, of each group.
    groups: Vec<Vec<Vec<Var>>>,
}

/// The registers of a cell.
fn parts_of(cell: &Cell, width: Width) -> Vec<Scalar> {
    match width {
        Width::HalfSum { .. } | Width::HalfMaximum { .. } => vec![Scalar::U32],
        Width::Word => vec![Scalar::I64],
        Width::Whole => cell.op.parts().to_vec(),
    }
}

/// Registers of 32 bits for so many groups of threads that see so many rows each.
pub fn registers(cells: &Cells, slots: u64, thread_rows: u64) -> u64 {
    let parts = cells.cells.iter().flat_map(|cell| parts_of(cell, Width::of(cell, thread_rows)));
    slots.saturating_mul(parts.map(|part| u64::from(part.bytes().div_ceil(4))).sum())
}

/// Whether cells can be kept in registers, or what that lacks.
pub fn supports(cells: &Cells, slots: u64, thread_rows: u64) -> Result<(), String> {
    if !cells.cells.iter().all(|cell| cell.op.is_plain()) {
        return Err("texts are compared in the table of all groups".into());
    }
    match registers(cells, slots, thread_rows) {
        wanted if wanted > MOST_REGISTERS => {
            Err(format!("{wanted} registers are more than a thread's {MOST_REGISTERS} for groups"))
        }
        _ => Ok(()),
    }
}

impl RegisterCells {
    /// Declares and clears them.
    pub fn begin(cx: &mut Context<'_>, cells: &Cells, slots: u64, thread_rows: u64) -> RegisterCells {
        let widths: Vec<Width> = cells.cells.iter().map(|cell| Width::of(cell, thread_rows)).collect();
        let mut registers = |(cell, width): (&Cell, &Width)| -> Vec<Var> {
            parts_of(cell, *width).into_iter().map(|part| cx.builder.var("cell", part)).collect()
        };
        let groups =
            (0..slots).map(|_| cells.cells.iter().zip(&widths).map(&mut registers).collect()).collect();
        RegisterCells { widths, groups }
    }

    /// Adds a row's contributions to its group; a slot that no group has takes none.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>]) {
        let values: Vec<Vec<V>> = self
            .widths
            .iter()
            .zip(values)
            .map(|(width, value)| match (width, value.as_slice()) {
                (Width::HalfSum { .. }, &[value]) => vec![cx.builder.convert(value, Scalar::U32)],
                (Width::HalfMaximum { below }, &[value]) => vec![above(cx, value, *below)],
                (Width::Word, &[value]) => vec![cx.builder.convert(value, Scalar::I64)],
                _ => value.clone(),
            })
            .collect();
        let slot = cx.builder.convert(slot, Scalar::U32);
        for (number, group) in self.groups.iter().enumerate() {
            let number = cx.builder.u32(number as u32);
            let is_own = cx.builder.eq(slot, number);
            cx.begin_if(is_own);
            for (((cell, width), registers), value) in
                cells.cells.iter().zip(&self.widths).zip(group).zip(&values)
            {
                match (width, registers.as_slice(), value.as_slice()) {
                    (Width::Whole, _, _) => combine_registers(cx, cell.op, registers, value),
                    (Width::HalfMaximum { .. }, &[register], &[value]) => {
                        let old = cx.builder.read(register);
                        let new = cx.builder.binary(BinaryOp::Max, old, value);
                        cx.builder.assign(register, new);
                    }
                    (_, &[register], &[value]) => {
                        let old = cx.builder.read(register);
                        let new = cx.builder.add(old, value);
                        cx.builder.assign(register, new);
                    }
                    _ => cx.impossible("a cell of several parts in one register"),
                }
            }
            cx.end();
        }
    }

    /// Adds what all lanes have to the block's table. No thread adds rows any more.
    pub fn flush(&self, cx: &mut Context<'_>, cells: &Cells, table: &BlockTable) {
        let (lane, zero) = (cx.builder.builtin(Builtin::LaneId), cx.builder.u32(0));
        let is_first = cx.builder.eq(lane, zero);
        for (number, group) in self.groups.iter().enumerate() {
            for (index, (cell, registers)) in cells.cells.iter().zip(group).enumerate() {
                let own = self.contribution(cx, (index, cell), registers);
                let total = warp_reduce(cx, cell.op, own);
                cx.begin_if(is_first);
                let slot = cx.builder.i64(number as i64);
                table.add_cell(cx, cells, (slot, index), &total);
                cx.end();
            }
        }
    }

    /// What the registers of a cell hold, as a contribution to it.
    fn contribution(&self, cx: &mut Context<'_>, (index, cell): (usize, &Cell), registers: &[Var]) -> Vec<V> {
        let held: Vec<V> = registers.iter().map(|register| cx.builder.read(*register)).collect();
        let part = cell.op.parts().first().copied().unwrap_or(Scalar::U64);
        match (self.widths.get(index), held.as_slice()) {
            (Some(Width::HalfSum { signed }), &[half]) => vec![from_half(cx, half, *signed, part)],
            (Some(Width::HalfMaximum { below }), &[half]) => vec![from_above(cx, half, *below)],
            (Some(Width::Word), &[word]) => vec![cx.builder.convert(word, part)],
            _ => held,
        }
    }
}
