//! A turn of a warp: the instructions that it runs until others may go on.

use kelpie_kir::{Builtin, Space};

use super::access::lanes_of;
use super::program::{Access, Op, Program, Slot};
use super::races::Races;
use super::values::Row;
use super::warp::{Flow, Registers, State};
use super::{Config, Fault, Memory, Report};

/// Instructions after which a warp gives way even if others saw nothing of it.
const LONGEST_TURN: u32 = 4096;

/// What a kernel's pointers point into.
pub(super) struct Memories<'a> {
    pub(super) global: &'a mut Memory,
    /// Of the block.
    pub(super) shared: &'a mut Memory,
}

impl Memories<'_> {
    pub(super) fn of(&mut self, space: Space) -> &mut Memory {
        match space {
            Space::Global => self.global,
            Space::Shared => self.shared,
        }
    }
}

/// A warp that runs, and all that its instructions work on.
pub(super) struct Turn<'a> {
    pub(super) program: &'a Program,
    pub(super) config: &'a Config,
    pub(super) params: &'a [[u64; 2]],
    /// Address of each shared array.
    pub(super) arrays: &'a [u64],
    pub(super) memories: Memories<'a>,
    /// Absent where races are not looked for.
    pub(super) races: Option<&'a mut Races>,
    pub(super) report: &'a mut Report,
    pub(super) registers: &'a Registers,
    pub(super) flow: &'a mut Flow,
    pub(super) block: u32,
    /// Warp in the grid, and in its block.
    pub(super) warp: u32,
    pub(super) warp_in_block: u32,
    pub(super) warps_per_block: u32,
    /// The lane at which atomics of a warp begin.
    pub(super) first_lane: u32,
}

impl<'a> Turn<'a> {
    /// Runs until others may have seen `observable` instructions, or the warp waits or ends.
    pub(super) fn run(&mut self, mut observable: usize) -> Result<(), Fault> {
        let program = self.program;
        let steps_left = self.config.step_limit - self.report.warp_steps;
        let (mut steps, mut lane_steps) = (0, 0);
        for _ in 0..LONGEST_TURN {
            let Some(instruction) = program.instructions.get(self.flow.pc) else { break };
            if instruction.counts {
                if steps == steps_left {
                    return Err(self.step_limit());
                }
                steps += 1;
                lane_steps += u64::from(self.flow.active_lanes);
            }
            self.step(&instruction.op)?;
            if self.flow.state != State::Ready {
                break;
            }
            if instruction.is_observable {
                observable -= 1;
                if observable == 0 {
                    break;
                }
            }
        }
        self.flow.steps += steps;
        self.report.warp_steps += steps;
        self.report.lane_steps += lane_steps;
        self.report.most_warp_steps = self.report.most_warp_steps.max(self.flow.steps);
        Ok(())
    }

    #[cold]
    fn step_limit(&self) -> Fault {
        let (kernel, place) = (self.program.kernel.clone(), self.place());
        Fault::StepLimit { kernel, place, steps: self.config.step_limit }
    }

    /// The place of the instruction, for people.
    pub(super) fn place(&self) -> String {
        self.program.place(self.flow.pc)
    }

    #[inline(always)]
    pub(super) fn row(&self, slot: Slot) -> &'a Row {
        self.registers.row(slot)
    }

    /// Executes one instruction, and goes to the next.
    fn step(&mut self, op: &Op) -> Result<(), Fault> {
        match *op {
            Op::If { .. }
            | Op::Else { .. }
            | Op::EndIf { .. }
            | Op::Loop
            | Op::EndLoop { .. }
            | Op::Leave { .. }
            | Op::Continue { .. }
            | Op::Call
            | Op::EndCall { .. }
            | Op::Exit
            | Op::Halt => {
                self.flow.control(op, self.registers);
                return Ok(());
            }
            Op::Barrier => {
                self.check_together("a barrier")?;
                self.flow.state = State::Waiting;
                // It goes on when the barrier opens.
                return Ok(());
            }
            Op::Load { .. }
            | Op::LoadBytes { .. }
            | Op::LoadField { .. }
            | Op::LoadVector { .. }
            | Op::Store { .. }
            | Op::StoreBytes { .. }
            | Op::StoreVector { .. }
            | Op::Compress { .. }
            | Op::Atomic { .. }
            | Op::AtomicLoad { .. }
            | Op::Tally { .. }
            | Op::UniformLoad { .. } => self.access_memory(op)?,
            Op::Ballot { .. } | Op::Any { .. } | Op::All { .. } | Op::Shuffle { .. } => {
                self.check_lane_operation()?;
                self.registers.lane_operation(op, self.flow.live);
            }
            Op::WarpBarrier => {
                self.check_lane_operation()?;
                if let Some(races) = &mut self.races {
                    races.warp_barrier(self.warp);
                }
            }
            Op::Pause => {}
            Op::Fence(scope) => {
                if let Some(races) = &mut self.races {
                    races.fence(self.warp, scope);
                }
            }
            Op::Mark(number) => {
                let lanes = self.flow.active.count_ones();
                self.report.marks.entry(number).or_default().count(lanes);
            }
            Op::Report { code, leave } => self.set_status(code, leave),
            Op::Param { to, index, high } => {
                self.registers.fill(to, self.params[index as usize][usize::from(high)]);
            }
            Op::Shared { to, index } => self.registers.fill(to, self.arrays[index as usize]),
            Op::Builtin { to, builtin } => self.builtin(to, builtin),
            _ => self.registers.compute(op, self.flow.active),
        }
        self.flow.pc += 1;
        Ok(())
    }

    /// The first report of a launch is its status.
    fn set_status(&mut self, code: Slot, leave: bool) {
        let codes = self.row(code);
        if self.report.status == 0 {
            let first = lanes_of(self.flow.active).next();
            self.report.status = first.map_or(0, |lane| codes[lane].get() as u32);
        }
        if leave {
            self.flow.exit();
        }
    }

    fn builtin(&self, to: Slot, builtin: Builtin) {
        let value = match builtin {
            Builtin::ThreadId => {
                let first = u64::from(self.warp_in_block * self.config.lanes);
                (first..).zip(self.row(to)).for_each(|(thread, cell)| cell.set(thread));
                return;
            }
            Builtin::LaneId => {
                (0..).zip(self.row(to)).for_each(|(lane, cell)| cell.set(lane));
                return;
            }
            Builtin::BlockId => self.block,
            Builtin::BlockDim => self.config.block_threads,
            Builtin::GridDim => self.config.blocks,
            Builtin::Lanes => self.config.lanes,
            Builtin::Status => self.report.status,
        };
        self.registers.fill(to, u64::from(value));
    }

    /// Counts an atomic update of every active lane.
    pub(super) fn count_atomics(&mut self, access: Access) {
        let lanes = u64::from(self.flow.active_lanes);
        match access.space {
            Space::Shared => self.report.block_atomics += lanes,
            Space::Global => self.report.device_atomics += lanes,
        }
    }

    /// Every lane that is in the kernel must be active.
    pub(super) fn check_together(&self, what: &str) -> Result<(), Fault> {
        let Flow { active, live, .. } = *self.flow;
        if active == live {
            return Ok(());
        }
        let detail = format!("only lanes {active:#x} of {live:#x} of a warp reach {what} together");
        Err(Fault::DivergentBarrier { place: self.place(), detail })
    }

    fn check_lane_operation(&self) -> Result<(), Fault> {
        let Flow { active, live, .. } = *self.flow;
        match active == live {
            true => Ok(()),
            false => Err(Fault::DivergentLaneOperation { place: self.place(), active, live }),
        }
    }
}
