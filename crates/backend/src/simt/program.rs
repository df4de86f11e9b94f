//! Flat code of a kernel: what warps run.
//!
//! A value is a *slot*: a row of one `u64` a lane. Integers are extended by their sign to 64 bits, `bool` is 0 or 1,
//! floats are their bits; an `i128` is two slots, low half first; a vector or mask is a slot for each element. Device functions are inlined at their calls.

use kelpie_kir::{
    AtomicOp, BinaryOp, Builtin, CompareOp, OverflowOp, ReduceOp, Scalar, Scope, ShuffleMode, Space, Type,
    UnaryOp, ValidModule,
};

use super::values::{Map, Map2};
use super::{Argument, Config, Fault, Memory, Report, compile, schedule};

/// Index of a row of lanes in a warp's registers.
pub(super) type Slot = u32;
/// Index of an instruction.
pub(super) type Target = u32;

/// What is loaded or stored: pointers are as `u64`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    pub(super) scalar: Scalar,
    pub(super) space: Space,
}

/// What an instruction does. Slots are the destination first, then the operands.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// The same bits in every lane.
    Fill {
        to: Slot,
        bits: u64,
    },
    /// The low (false) or high (true) half of a parameter in every lane.
    Param {
        to: Slot,
        index: u32,
        high: bool,
    },
    /// The address of a shared array of this block.
    Shared {
        to: Slot,
        index: u32,
    },
    /// A position in the grid.
    Builtin {
        to: Slot,
        builtin: Builtin,
    },
    /// An operation on one slot.
    Map {
        map: Map,
        to: Slot,
        a: Slot,
    },
    /// An operation on two slots.
    Map2 {
        map: Map2,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    /// `i128`.
    WideUnary {
        op: UnaryOp,
        to: Slot,
        a: Slot,
    },
    /// `i128`.
    WideBinary {
        op: BinaryOp,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    /// `i128`.
    WideOverflows {
        op: OverflowOp,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    /// `i128`.
    WideCompare {
        op: CompareOp,
        to: Slot,
        a: Slot,
        b: Slot,
    },
    /// One slot.
    Select {
        to: Slot,
        condition: Slot,
        accept: Slot,
        reject: Slot,
    },
    /// Up to 64 bits to `i128`.
    Widen {
        from: Scalar,
        to: Slot,
        a: Slot,
    },
    /// `i128` to any scalar.
    Narrow {
        scalar: Scalar,
        to: Slot,
        a: Slot,
    },
    /// One slot in every lane.
    Copy {
        to: Slot,
        a: Slot,
    },
    /// One slot in the active lanes.
    Assign {
        to: Slot,
        a: Slot,
    },
    /// `pointer + index * bytes`.
    Offset {
        to: Slot,
        pointer: Slot,
        index: Slot,
        bytes: u32,
    },
    /// `pointer + bytes`.
    Field {
        to: Slot,
        pointer: Slot,
        bytes: u32,
    },
    /// Reads memory.
    Load {
        access: Access,
        read_only: bool,
        to: Slot,
        pointer: Slot,
    },
    LoadBytes {
        to: Slot,
        pointer: Slot,
    },
    /// Reads a struct's field, `bytes` behind its start; read-only.
    LoadField {
        access: Access,
        to: Slot,
        pointer: Slot,
        bytes: u32,
    },
    /// Writes memory.
    Store {
        access: Access,
        pointer: Slot,
        value: Slot,
    },
    /// Writes eight bytes at any address.
    StoreBytes {
        pointer: Slot,
        value: Slot,
    },
    /// Read-modify-write; `expected` is of a compare-exchange.
    Atomic {
        op: AtomicOp,
        access: Access,
        scope: Scope,
        to: Option<Slot>,
        pointer: Slot,
        value: Slot,
        expected: Slot,
    },
    /// Atomic read.
    AtomicLoad {
        access: Access,
        scope: Scope,
        to: Slot,
        pointer: Slot,
    },
    /// Read of shared memory at one address.
    UniformLoad {
        access: Access,
        to: Slot,
        pointer: Slot,
    },
    /// Elements of memory, to as many slots.
    LoadVector {
        access: Access,
        read_only: bool,
        to: Slot,
        pointer: Slot,
        lanes: u8,
        align: u32,
    },
    /// As many slots to elements of memory.
    StoreVector {
        access: Access,
        pointer: Slot,
        value: Slot,
        lanes: u8,
        align: u32,
    },
    /// The slots whose slot of the mask is true, to elements of memory.
    Compress {
        access: Access,
        to: Option<Slot>,
        pointer: Slot,
        value: Slot,
        mask: Slot,
        lanes: u8,
    },
    /// Several slots to one.
    Reduce {
        op: ReduceOp,
        scalar: Scalar,
        to: Slot,
        a: Slot,
        lanes: u8,
    },
    /// Slots of truth values to the bits of one.
    MaskBits {
        to: Slot,
        a: Slot,
        lanes: u8,
    },
    /// The bits of a slot to one slot each.
    BitsMask {
        to: Slot,
        a: Slot,
        lanes: u8,
    },
    /// Slots of truth values: whether their number is below a slot's.
    FirstLanes {
        to: Slot,
        a: Slot,
        lanes: u8,
    },
    /// Lane operation.
    Ballot {
        to: Slot,
        a: Slot,
    },
    /// Lane operation.
    Any {
        to: Slot,
        a: Slot,
    },
    /// Lane operation.
    All {
        to: Slot,
        a: Slot,
    },
    /// Lane operation on one or two slots.
    Shuffle {
        mode: ShuffleMode,
        to: Slot,
        a: Slot,
        lane: Slot,
        wide: bool,
    },
    /// Waits for the block.
    Barrier,
    /// Waits for the warp.
    WarpBarrier,
    /// Orders memory accesses.
    Fence(Scope),
    /// Nothing: other warps go on.
    Pause,
    /// Counts the active lanes.
    Mark(u32),
    /// Adds 1 to the word of the number of active lanes.
    Tally {
        counters: Slot,
    },
    /// Sets the status word; `leave`: and leaves the kernel.
    Report {
        code: Slot,
        leave: bool,
    },
    /// Splits the active lanes; goes to the `Else` at `otherwise` where no lane accepts.
    If {
        condition: Slot,
        otherwise: Target,
    },
    /// The end of the accepting side; goes to the `EndIf` at `end` where no lane rejects.
    Else {
        end: Target,
    },
    /// The sides are together again; `end` is the end of the block around, for when no lane is left.
    EndIf {
        end: Target,
    },
    /// Opens a loop.
    Loop,
    /// The end of a loop's body, which is at `body`; `end` as of `EndIf`.
    EndLoop {
        body: Target,
        end: Target,
    },
    /// Active lanes leave the loop or call `depth` frames up.
    Leave {
        depth: u32,
    },
    /// Active lanes wait for the end of the body of the loop `depth` frames up.
    Continue {
        depth: u32,
    },
    /// Opens an inlined call.
    Call,
    /// The end of an inlined call; `end` as of `EndIf`.
    EndCall {
        end: Target,
    },
    /// Active lanes leave the kernel.
    Exit,
    /// The end of the kernel.
    Halt,
}

impl Op {
    /// Whether others can see what an instruction does, or it sees what others do: a warp may give way after it.
    pub(super) fn is_observable(&self) -> bool {
        match *self {
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
}

/// An instruction, and what is asked of it each time that it runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instruction {
    pub(super) op: Op,
    /// Whether it counts as a step: the first instruction of a statement does.
    pub(super) counts: bool,
    /// As [`Op::is_observable`] says.
    pub(super) is_observable: bool,
}

/// Where an instruction comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// Index in [`Program::functions`].
    pub(super) function: u32,
    /// Number of the statement, in the order of the text.
    pub(super) statement: u32,
    /// The statement's value, where it is a `Let`.
    pub(super) value: Option<u32>,
}

/// A kernel ready to run.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) kernel: String,
    pub(super) instructions: Vec<Instruction>,
    /// One an instruction.
    pub(super) origins: Vec<Origin>,
    /// Names of functions, for places.
    pub(super) functions: Vec<String>,
    /// Rows of registers of a warp.
    pub(super) slots: u32,
    pub(super) params: Vec<Type>,
    /// Sizes of the shared arrays in bytes.
    pub(super) shared: Vec<u32>,
}

impl Program {
    /// Flattens a kernel.
    pub fn new(module: &ValidModule, kernel: &str) -> Result<Program, Fault> {
        compile::compile(module, kernel)
    }

    /// Runs the kernel to its end; `cancelled` is asked now and then, and the status is 1 after it says true.
    pub fn run(
        &self,
        arguments: &[Argument],
        memory: &mut Memory,
        config: &Config,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Report, Fault> {
        schedule::run(self, arguments, memory, config, cancelled)
    }

    /// The place of an instruction, for people.
    pub(super) fn place(&self, pc: usize) -> String {
        let Some(origin) = self.origins.get(pc) else { return format!("kernel {}", self.kernel) };
        let function = self.functions.get(origin.function as usize).map_or("?", String::as_str);
        let place = format!("{function}, statement {}", origin.statement);
        match origin.value {
            Some(value) => format!("{place}, %{value}"),
            None => place,
        }
    }
}
