//! The grid: resident blocks, the order of their warps, barriers.

use kelpie_kir::{Scalar, Type};

use super::program::Program;
use super::races::Races;
use super::turn::{Memories, Turn};
use super::warp::{State, Warp};
use super::{Argument, Config, Fault, Memory, Report};

/// Blocks that run at the same time.
const RESIDENT_BLOCKS: u32 = 4;
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
            if self.residents[resident as usize].warps[warp as usize].flow.state != State::Ready {
                self.ready.swap_remove(choice);
                self.settle(resident)?;
            }
        }
        Ok(self.report)
    }

    /// After a warp stopped: opens a barrier that all have reached, or replaces a block that is done.
    fn settle(&mut self, index: u32) -> Result<(), Fault> {
        let resident = &mut self.residents[index as usize];
        if resident.warps.iter().any(|warp| warp.flow.state == State::Ready) {
            return Ok(());
        }
        let mut waiting = resident.warps.iter().filter(|warp| warp.flow.state == State::Waiting);
        if let Some(first) = waiting.next() {
            if let Some(other) = waiting.find(|warp| warp.flow.pc != first.flow.pc) {
                let detail = format!("other warps of block {} wait at {}", resident.block, {
                    self.program.place(other.flow.pc)
                });
                return Err(Fault::DivergentBarrier { place: self.program.place(first.flow.pc), detail });
            }
            if let Some(races) = &mut self.races {
                races.barrier(resident.block);
            }
            for (number, warp) in (0..).zip(&mut resident.warps) {
                if warp.flow.state == State::Waiting {
                    warp.flow.state = State::Ready;
                    warp.flow.pc += 1;
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
        let observable = 1 + self.random.below(4);
        let first_lane = self.random.below(self.config.lanes as usize) as u32;
        let Resident { block, shared, arrays, warps } = &mut self.residents[resident];
        let Warp { registers, flow } = &mut warps[warp];
        let mut turn = Turn {
            program: self.program,
            config: self.config,
            params: &self.params,
            arrays,
            memories: Memories { global: self.memory, shared },
            races: self.races.as_mut(),
            report: &mut self.report,
            registers,
            flow,
            block: *block,
            warp: *block * self.warps_per_block + warp as u32,
            warp_in_block: warp as u32,
            warps_per_block: self.warps_per_block,
            first_lane,
        };
        turn.run(observable)
    }
}
