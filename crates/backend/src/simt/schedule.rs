//! The grid: resident blocks, the order of their warps, barriers.

use kelpie_kir::{Builtin, Scalar, Space, Type};

use super::access::Accessor;
use super::program::{Op, Program};
use super::races::Races;
use super::warp::{Position, State, Warp};
use super::{Argument, Config, Fault, Memory, Report};

/// Blocks that run at the same time.
const RESIDENT_BLOCKS: u32 = 4;
/// Instructions after which a warp gives way even if others saw nothing of it.
const LONGEST_TURN: u32 = 4096;
/// Turns between two questions whether the launch is cancelled.
const TURNS_PER_POLL: u32 = 64;

/// The generator `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

/// A block that runs.
#[derive(Debug)]
struct Resident {
    block: u32,
    shared: Memory,
    /// Address of each shared array.
    arrays: Vec<u64>,
    warps: Vec<Warp>,
}

struct Grid<'a> {
    program: &'a Program,
    config: &'a Config,
    /// Bits of the parameters as slots have them, low and high half.
    params: Vec<[u64; 2]>,
    memory: &'a mut Memory,
    races: Option<Races>,
    warps_per_block: u32,
    report: Report,
    random: Random,
    residents: Vec<Resident>,
    next_block: u32,
    /// Warps that can run: resident and warp in it.
    ready: Vec<(u32, u32)>,
}

/// Runs a program; see [`super::run`].
pub(super) fn run(
    program: &Program,
    arguments: &[Argument],
    memory: &mut Memory,
    config: &Config,
    cancelled: &dyn Fn() -> bool,
) -> Result<Report, Fault> {
    let bad = |message: String| Fault::BadArguments { kernel: program.kernel.clone(), message };
    if !(1..=32).contains(&config.lanes) || config.block_threads == 0 || config.blocks == 0 {
        let Config { lanes, block_threads, blocks, .. } = config;
        return Err(bad(format!("cannot run {blocks} blocks of {block_threads} threads with {lanes} lanes")));
    }
    let params = bind(&program.params, arguments).map_err(bad)?;
    memory.begin_launch();
    let warps_per_block = config.block_threads.div_ceil(config.lanes);
    let mut grid = Grid {
        program,
        config,
        params,
        memory,
        races: config.detect_races.then(|| Races::new(config.blocks, warps_per_block)),
        warps_per_block,
        report: Report::default(),
        random: Random(config.seed),
        residents: Vec::new(),
        next_block: 0,
        ready: Vec::new(),
    };
    for index in 0..config.blocks.min(RESIDENT_BLOCKS) {
        let resident = grid.next_resident();
        grid.residents.push(resident);
        grid.ready.extend((0..warps_per_block).map(|warp| (index, warp)));
    }
    grid.run(cancelled)
}

/// Checks the arguments against the parameters.
fn bind(params: &[Type], arguments: &[Argument]) -> Result<Vec<[u64; 2]>, String> {
    if params.len() != arguments.len() {
        return Err(format!("{} arguments for {} parameters", arguments.len(), params.len()));
    }
    let bits = params.iter().zip(arguments).enumerate().map(|(index, pair)| match pair {
        (Type::Scalar(scalar), Argument::Scalar(bits)) => {
            let low = super::values::canonical(*scalar, *bits as u64);
            let high = if *scalar == Scalar::I128 { (*bits >> 64) as u64 } else { 0 };
            Ok([low, high])
        }
        (Type::Ptr(..), Argument::Pointer(address)) => Ok([*address, 0]),
        (Type::Vector(..) | Type::Mask(_), _) => Err(format!("argument {index} cannot be a vector")),
        (Type::Scalar(_), Argument::Pointer(_)) => Err(format!("argument {index} must be a scalar")),
        (Type::Ptr(..), Argument::Scalar(_)) => Err(format!("argument {index} must be a pointer")),
    });
    bits.collect()
}

/// Whether others can see what an instruction does, or it sees what others do: a warp may give way after it.
fn is_observable(op: Op) -> bool {
    match op {
        Op::Load { read_only, .. } | Op::LoadVector { read_only, .. } => !read_only,
        Op::Builtin { builtin, .. } => builtin == Builtin::Status,
        Op::Store { .. }
        | Op::StoreBytes { .. }
        | Op::StoreVector { .. }
        | Op::Compress { .. }
        | Op::LoadBytes { .. }
        | Op::Atomic { .. }
        | Op::AtomicLoad { .. }
        | Op::UniformLoad { .. }
        | Op::Fence(_)
        | Op::Report { .. } => true,
        _ => false,
    }
}

impl Grid<'_> {
    /// The next block of the grid, ready to run.
    fn next_resident(&mut self) -> Resident {
        let block = self.next_block;
        self.next_block += 1;
        let mut shared = Memory::new();
        let mut arrays = Vec::new();
        for bytes in &self.program.shared {
            let id = shared.allocate(*bytes as usize);
            arrays.push(shared.address(id));
            // Undefined, and not by chance zero.
            for byte in shared.data_mut(id).unwrap_or_default() {
                *byte = self.random.next() as u8 | 1;
            }
        }
        if let Some(races) = &mut self.races {
            races.begin_block(block);
        }
        let Config { lanes, block_threads, .. } = *self.config;
        let warp = |warp| Warp::new(self.program.slots, lanes, lanes.min(block_threads - warp * lanes));
        Resident { block, shared, arrays, warps: (0..self.warps_per_block).map(warp).collect() }
    }

    fn run(mut self, cancelled: &dyn Fn() -> bool) -> Result<Report, Fault> {
        let mut turns = 0u32;
        while !self.ready.is_empty() {
            if turns.is_multiple_of(TURNS_PER_POLL) && cancelled() {
                self.report.status = 1;
                break;
            }
            turns = turns.wrapping_add(1);
            let choice = self.random.below(self.ready.len());
            let (resident, warp) = self.ready[choice];
            self.turn(resident as usize, warp as usize)?;
            if self.residents[resident as usize].warps[warp as usize].state != State::Ready {
                self.ready.swap_remove(choice);
                self.settle(resident)?;
            }
        }
        Ok(self.report)
    }

    /// After a warp stopped: opens a barrier that all have reached, or replaces a block that is done.
    fn settle(&mut self, index: u32) -> Result<(), Fault> {
        let resident = &mut self.residents[index as usize];
        if resident.warps.iter().any(|warp| warp.state == State::Ready) {
            return Ok(());
        }
        let mut waiting = resident.warps.iter().filter(|warp| warp.state == State::Waiting);
        if let Some(first) = waiting.next() {
            if let Some(other) = waiting.find(|warp| warp.pc != first.pc) {
                let detail = format!("other warps of block {} wait at {}", resident.block, {
                    self.program.place(other.pc)
                });
                return Err(Fault::DivergentBarrier { place: self.program.place(first.pc), detail });
            }
            if let Some(races) = &mut self.races {
                races.barrier(resident.block);
            }
            for (number, warp) in (0..).zip(&mut resident.warps) {
                if warp.state == State::Waiting {
                    warp.state = State::Ready;
                    warp.pc += 1;
                    self.ready.push((index, number));
                }
            }
            return Ok(());
        }
        if let Some(races) = &mut self.races {
            races.end_block(resident.block);
        }
        if self.next_block < self.config.blocks {
            self.residents[index as usize] = self.next_resident();
            self.ready.extend((0..self.warps_per_block).map(|warp| (index, warp)));
        }
        Ok(())
    }

    /// Runs a warp for a while.
    fn turn(&mut self, resident: usize, warp: usize) -> Result<(), Fault> {
        let mut observable = 1 + self.random.below(4);
        let first_lane = self.random.below(self.config.lanes as usize) as u32;
        let program = self.program;
        for _ in 0..LONGEST_TURN {
            let state = &mut self.residents[resident].warps[warp];
            let pc = state.pc;
            let Some(op) = program.ops.get(pc).copied() else { break };
            if program.origins[pc].counts {
                self.report.warp_steps += 1;
                state.steps += 1;
                self.report.most_warp_steps = self.report.most_warp_steps.max(state.steps);
                self.report.lane_steps += u64::from(state.active.count_ones());
                if self.report.warp_steps > self.config.step_limit {
                    let (kernel, place) = (program.kernel.clone(), program.place(pc));
                    return Err(Fault::StepLimit { kernel, place, steps: self.config.step_limit });
                }
            }
            if let Op::Atomic { access, .. } = op {
                let lanes = u64::from(self.residents[resident].warps[warp].active.count_ones());
                match access.space {
                    Space::Shared => self.report.block_atomics += lanes,
                    Space::Global => self.report.device_atomics += lanes,
                }
            }
            self.step(resident, warp, op, first_lane)?;
            if self.residents[resident].warps[warp].state != State::Ready {
                return Ok(());
            }
            if is_observable(op) {
                observable -= 1;
                if observable == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Executes one instruction of a warp.
    fn step(&mut self, resident: usize, index: usize, op: Op, first_lane: u32) -> Result<(), Fault> {
        let Resident { block, shared, arrays, warps } = &mut self.residents[resident];
        let warp = &mut warps[index];
        let program = self.program;
        match op {
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
                warp.control(op);
                return Ok(());
            }
            Op::Barrier => {
                check_together(program, warp, "a barrier")?;
                warp.state = State::Waiting;
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
            | Op::UniformLoad { .. } => {
                if matches!(op, Op::UniformLoad { .. }) {
                    check_together(program, warp, "a uniform load")?;
                }
                let mut accessor = Accessor {
                    program,
                    global: self.memory,
                    shared,
                    races: self.races.as_mut(),
                    registers: &warp.registers,
                    lanes: self.config.lanes,
                    warps_per_block: self.warps_per_block,
                    warp: *block * self.warps_per_block + index as u32,
                    pc: warp.pc as u32,
                    active: warp.active,
                    first_lane,
                };
                accessor.execute(op)?;
            }
            Op::Ballot { .. } | Op::Any { .. } | Op::All { .. } | Op::Shuffle { .. } => {
                let (active, live) = (warp.active, warp.live);
                if active != live {
                    let place = program.place(warp.pc);
                    return Err(Fault::DivergentLaneOperation { place, active, live });
                }
                warp.registers.lane_operation(op, live);
            }
            Op::WarpBarrier => {
                let (active, live) = (warp.active, warp.live);
                if active != live {
                    let place = program.place(warp.pc);
                    return Err(Fault::DivergentLaneOperation { place, active, live });
                }
                if let Some(races) = &mut self.races {
                    races.warp_barrier(*block * self.warps_per_block + index as u32);
                }
            }
            Op::Pause => {}
            Op::Fence(scope) => {
                if let Some(races) = &mut self.races {
                    races.fence(*block * self.warps_per_block + index as u32, scope);
                }
            }
            Op::Mark(number) => {
                let lanes = warp.active.count_ones();
                self.report.marks.entry(number).or_default().count(lanes);
            }
            Op::Report { code, leave } => {
                let codes = warp.registers.row(code);
                let code = super::access::lanes_of(warp.active).next().map(|lane| codes[lane].get() as u32);
                if self.report.status == 0 {
                    self.report.status = code.unwrap_or(0);
                }
                if leave {
                    warp.exit();
                }
            }
            Op::Param { to, index, high } => {
                let bits = self.params[index as usize][usize::from(high)];
                warp.registers.compute(Op::Fill { to, bits }, warp.active, &Position::default());
            }
            Op::Shared { to, index } => {
                let bits = arrays[index as usize];
                warp.registers.compute(Op::Fill { to, bits }, warp.active, &Position::default());
            }
            op => {
                let position = Position {
                    block: *block,
                    blocks: self.config.blocks,
                    block_threads: self.config.block_threads,
                    lanes: self.config.lanes,
                    warp: index as u32,
                    status: self.report.status,
                };
                warp.registers.compute(op, warp.active, &position);
            }
        }
        warp.pc += 1;
        Ok(())
    }
}

/// Every lane that is in the kernel must be active.
fn check_together(program: &Program, warp: &Warp, what: &str) -> Result<(), Fault> {
    if warp.active == warp.live {
        return Ok(());
    }
    let (active, live) = (warp.active, warp.live);
    let detail = format!("only lanes {active:#x} of {live:#x} of a warp reach {what} together");
    Err(Fault::DivergentBarrier { place: program.place(warp.pc), detail })
}
