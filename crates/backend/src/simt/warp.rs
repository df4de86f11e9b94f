//! A warp: registers, masks, and the instructions that touch nothing else.

use std::cell::Cell;

use kelpie_kir::{Scalar, ShuffleMode};

use super::access::lanes_of;
use super::program::{Op, Slot};
use super::values::Row;
use super::vectors::{self, Vector};
use super::wide;

/// The rows of registers of a warp.
#[derive(Debug)]
pub(super) struct Registers {
    cells: Vec<Cell<u64>>,
    lanes: usize,
}

impl Registers {
    pub(super) fn new(slots: u32, lanes: u32) -> Registers {
        Registers { cells: vec![Cell::new(0); slots as usize * lanes as usize], lanes: lanes as usize }
    }

    #[inline(always)]
    pub(super) fn row(&self, slot: Slot) -> &Row {
        &self.cells[slot as usize * self.lanes..][..self.lanes]
    }

    fn wide(&self, slot: Slot) -> wide::WideRow<'_> {
        [self.row(slot), self.row(slot + 1)]
    }

    /// The slots of a vector, one behind the other.
    fn vector(&self, slot: Slot, lanes: u8) -> Vector<'_> {
        let cells = &self.cells[slot as usize * self.lanes..][..usize::from(lanes) * self.lanes];
        Vector { cells, lanes: self.lanes }
    }

    /// The same bits in every lane.
    pub(super) fn fill(&self, slot: Slot, bits: u64) {
        self.row(slot).iter().for_each(|cell| cell.set(bits));
    }

    /// Mask of the lanes where a slot is true.
    pub(super) fn mask(&self, slot: Slot) -> u32 {
        let row = self.row(slot).iter().enumerate();
        row.fold(0, |mask, (lane, cell)| mask | u32::from(cell.get() != 0) << lane)
    }
}

/// An open construct of control flow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Frame {
    /// `if`: lanes that run the other side. Loop: lanes that wait for the next iteration.
    pending: u32,
    /// Lanes that go on behind the construct.
    done: u32,
}

/// Why a warp does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// At a barrier.
    Waiting,
    /// Every lane has left the kernel.
    Done,
}

/// Where a warp is in the kernel.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) pc: usize,
    /// Lanes that execute the next instruction, and how many these are.
    pub(super) active: u32,
    pub(super) active_lanes: u32,
    /// Lanes that have not left the kernel.
    pub(super) live: u32,
    pub(super) state: State,
    /// Statements that it has executed.
    pub(super) steps: u64,
    stack: Vec<Frame>,
}

/// The state of a warp between two instructions.
#[derive(Debug)]
pub(super) struct Warp {
    pub(super) registers: Registers,
    pub(super) flow: Flow,
}

impl Warp {
    /// A warp at the start of a kernel; `lanes` of `width` exist (the last warp of a block may be narrower).
    pub(super) fn new(slots: u32, width: u32, lanes: u32) -> Warp {
        let live = if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 };
        let active_lanes = live.count_ones();
        let flow = Flow {
            pc: 0,
            active: live,
            active_lanes,
            live,
            state: State::Ready,
            steps: 0,
            stack: Vec::new(),
        };
        Warp { registers: Registers::new(slots, width), flow }
    }
}

impl Flow {
    /// Executes an instruction of control flow, and goes to the next one.
    pub(super) fn control(&mut self, op: &Op, registers: &Registers) {
        self.redirect(op, registers);
        self.active_lanes = self.active.count_ones();
    }

    #[inline]
    fn redirect(&mut self, op: &Op, registers: &Registers) {
        let next = self.pc + 1;
        self.pc = next;
        match *op {
            Op::If { condition, otherwise } => {
                let accept = self.active & registers.mask(condition);
                self.stack.push(Frame { pending: self.active & !accept, done: 0 });
                self.active = accept;
                if accept == 0 {
                    self.pc = otherwise as usize;
                }
            }
            Op::Else { end } => {
                if let Some(frame) = self.stack.last_mut() {
                    frame.done = self.active;
                    self.active = std::mem::take(&mut frame.pending);
                }
                if self.active == 0 {
                    self.pc = end as usize;
                }
            }
            Op::EndIf { end } | Op::EndCall { end } => {
                self.active |= self.stack.pop().unwrap_or_default().done;
                if self.active == 0 {
                    self.pc = end as usize;
                }
            }
            Op::Loop | Op::Call => self.stack.push(Frame::default()),
            Op::EndLoop { body, end } => {
                if let Some(frame) = self.stack.last_mut() {
                    self.active |= std::mem::take(&mut frame.pending);
                }
                if self.active != 0 {
                    self.pc = body as usize;
                    return;
                }
                self.active = self.stack.pop().unwrap_or_default().done;
                if self.active == 0 {
                    self.pc = end as usize;
                }
            }
            Op::Leave { depth } => {
                let active = std::mem::take(&mut self.active);
                if let Some(frame) = self.frame(depth) {
                    frame.done |= active;
                }
            }
            Op::Continue { depth } => {
                let active = std::mem::take(&mut self.active);
                if let Some(frame) = self.frame(depth) {
                    frame.pending |= active;
                }
            }
            Op::Exit => self.exit(),
            Op::Halt => self.state = State::Done,
            _ => {}
        }
    }

    /// The active lanes leave the kernel.
    pub(super) fn exit(&mut self) {
        self.live &= !self.active;
        self.active = 0;
        self.active_lanes = 0;
    }

    fn frame(&mut self, depth: u32) -> Option<&mut Frame> {
        let index = self.stack.len().checked_sub(1 + depth as usize)?;
        self.stack.get_mut(index)
    }
}

impl Registers {
    /// Executes an instruction that changes registers only; it may run on inactive lanes too.
    #[inline(always)]
    pub(super) fn compute(&self, op: &Op, active: u32) {
        let row = |slot| self.row(slot);
        match *op {
            Op::Fill { to, bits } => self.fill(to, bits),
            Op::Map { map, to, a } => map(row(to), row(a)),
            Op::Map2 { map, to, a, b } => map(row(to), row(a), row(b)),
            Op::WideUnary { op, to, a } => wide::unary(op, self.wide(to), self.wide(a)),
            Op::WideBinary { op, to, a, b } => wide::binary(op, self.wide(to), self.wide(a), self.wide(b)),
            Op::WideCompare { op, to, a, b } => wide::compare(op, row(to), self.wide(a), self.wide(b)),
            Op::Select { to, condition, accept, reject } => {
                let (accept, reject) = (row(accept), row(reject));
                for (lane, (to, condition)) in row(to).iter().zip(row(condition)).enumerate() {
                    to.set(if condition.get() != 0 { accept[lane].get() } else { reject[lane].get() });
                }
            }
            Op::WideOverflows { op, to, a, b } => wide::overflows(op, row(to), self.wide(a), self.wide(b)),
            Op::Narrow { scalar, to, a } => {
                let high = if scalar == Scalar::I128 { to + 1 } else { to };
                wide::narrow(scalar, [row(to), row(high)], self.wide(a));
            }
            Op::Widen { from, to, a } => wide::widen(from, self.wide(to), row(a)),
            Op::Copy { to, a } => row(to).iter().zip(row(a)).for_each(|(to, a)| to.set(a.get())),
            Op::Assign { to, a } => {
                let (to, a) = (row(to), row(a));
                lanes_of(active).for_each(|lane| to[lane].set(a[lane].get()));
            }
            Op::Offset { to, pointer, index, bytes } => {
                for ((to, pointer), index) in row(to).iter().zip(row(pointer)).zip(row(index)) {
                    to.set(pointer.get().wrapping_add(index.get().wrapping_mul(u64::from(bytes))));
                }
            }
            Op::Field { to, pointer, bytes } => {
                for (to, pointer) in row(to).iter().zip(row(pointer)) {
                    to.set(pointer.get().wrapping_add(u64::from(bytes)));
                }
            }
            Op::Reduce { op, scalar, to, a, lanes } => {
                vectors::reduce(op, scalar, row(to), self.vector(a, lanes));
            }
            Op::MaskBits { to, a, lanes } => vectors::mask_bits(row(to), self.vector(a, lanes)),
            Op::BitsMask { to, a, lanes } => vectors::bits_mask(self.vector(to, lanes), row(a)),
            Op::FirstLanes { to, a, lanes } => vectors::first_lanes(self.vector(to, lanes), row(a)),
            _ => {}
        }
    }

    /// Executes a lane operation; `live` are the lanes that take part.
    pub(super) fn lane_operation(&self, op: &Op, live: u32) {
        match *op {
            Op::Ballot { to, a } => self.fill(to, u64::from(self.mask(a) & live)),
            Op::Any { to, a } => self.fill(to, u64::from(self.mask(a) & live != 0)),
            Op::All { to, a } => self.fill(to, u64::from(self.mask(a) & live == live)),
            Op::Shuffle { mode, to, a, lane, wide } => {
                for half in 0..=u32::from(wide) {
                    let (to, a) = (self.row(to + half), self.row(a + half));
                    for (own, (cell, lane)) in to.iter().zip(self.row(lane)).enumerate() {
                        cell.set(a[self.source(mode, own, lane.get() as usize)].get());
                    }
                }
            }
            _ => {}
        }
    }

    /// The lane that a shuffle reads.
    fn source(&self, mode: ShuffleMode, own: usize, operand: usize) -> usize {
        let source = match mode {
            ShuffleMode::Index => Some(operand % self.lanes),
            ShuffleMode::Up => own.checked_sub(operand),
            ShuffleMode::Down => own.checked_add(operand),
            ShuffleMode::Xor => Some(own ^ operand),
        };
        source.filter(|source| *source < self.lanes).unwrap_or(own)
    }
}
