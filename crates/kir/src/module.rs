//! The module: structs, functions and kernels; values, statements and blocks of a function.

use crate::arena::{Arena, Handle};
use crate::types::{Pointee, Scalar, Struct, Type};

/// A compilation unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Module {
    /// Structs; one may use only those before it.
    pub structs: Arena<Struct>,
    /// Device functions; one may call only those before it, so there is no recursion.
    pub functions: Arena<Function>,
    /// Kernels: what a device launches.
    pub kernels: Arena<Function>,
}

/// A device function, or a kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Function {
    /// Name, an identifier unique in its module.
    pub name: String,
    /// Parameters.
    pub params: Vec<Param>,
    /// Type of the result; `None` for a kernel.
    pub result: Option<Type>,
    /// Arrays in shared memory; only a kernel has them. Their content is undefined at the start.
    pub shared: Arena<SharedArray>,
    /// Mutable variables.
    pub vars: Arena<Variable>,
    /// Every value of the function; each is defined by exactly one statement.
    pub values: Arena<Value>,
    /// The body.
    pub body: Block,
}

/// A parameter of a function or kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Param {
    /// Name, unique among parameters, variables and shared arrays.
    pub name: String,
    /// A kernel's pointers are to global memory.
    pub ty: Type,
}

/// An array in shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedArray {
    /// Name.
    pub name: String,
    /// Element type.
    pub element: Pointee,
    /// Number of elements, at least 1.
    pub count: u32,
}

/// A mutable variable of one thread. Zero (false, null) until assigned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variable {
    /// Name.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// An immutable value of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Value {
    /// Its type, which the expression determines.
    pub ty: Type,
    /// What computes it.
    pub expr: Expr,
}

/// A literal; floats as their bits, so that equality and hashing are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Literal {
    /// A boolean.
    Bool(bool),
    /// An integer of a type; the validator checks that it fits.
    Int(Scalar, i128),
    /// The bits of an `f32`.
    F32(u32),
    /// The bits of an `f64`.
    F64(u64),
}

/// Operators with one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// Integers (wrapping) and floats.
    Neg,
    /// `bool`: logical; integers: every bit.
    Not,
    /// Number of set bits, as `u32`. Integers up to 64 bits.
    Popcount,
    /// Leading zeros, as `u32`; the width for 0. Integers up to 64 bits.
    Clz,
    /// Position of the lowest set bit plus 1, as `u32`; 0 for 0. Integers up to 64 bits.
    Ffs,
    /// Floats: towards negative infinity.
    Floor,
    /// Floats: towards positive infinity.
    Ceil,
    /// Floats: towards zero.
    Trunc,
    /// Floats: to the nearest, ties to even.
    RoundEven,
    /// Floats: clears the sign.
    Abs,
    /// Floats: square root.
    Sqrt,
}

/// Operators with two operands of one type, which is also the result's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Integers wrap.
    Add,
    /// Integers wrap.
    Sub,
    /// Integers wrap.
    Mul,
    /// Integers truncate; x / 0 = 0 and MIN / -1 = MIN, so that it is total.
    Div,
    /// Sign of the dividend; x % 0 = 0 and MIN % -1 = 0. Floats: as C's `fmod`.
    Rem,
    /// Integers and `bool`.
    And,
    /// Integers and `bool`.
    Or,
    /// Integers and `bool`.
    Xor,
    /// Integers; the right operand modulo the width.
    Shl,
    /// Integers; arithmetic for signed types, logical for unsigned; the right operand modulo the width.
    Shr,
    /// Integers only.
    Min,
    /// Integers only.
    Max,
    /// Upper half of the product. `i32`, `u32`, `i64`, `u64`.
    MulHi,
}

/// Arithmetic whose overflow can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverflowOp {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Multiplication.
    Mul,
}

/// Comparisons. Floats as IEEE 754: every comparison with NaN is false but `Ne`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// =
    Eq,
    /// ≠
    Ne,
    /// <
    Lt,
    /// ≤
    Le,
    /// >
    Gt,
    /// ≥
    Ge,
}

impl CompareOp {
    /// The comparison that is the same with its operands exchanged.
    pub fn mirrored(self) -> CompareOp {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            CompareOp::Eq | CompareOp::Ne => self,
        }
    }
}

/// Where a thread is. All are `u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Thread in its block.
    ThreadId,
    /// Block in the grid. On a CPU: the worker.
    BlockId,
    /// Threads of a block.
    BlockDim,
    /// Blocks of the grid.
    GridDim,
    /// Lane in its warp: `ThreadId % Lanes`.
    LaneId,
    /// Lanes of a warp: a constant of the device.
    Lanes,
    /// The launch's status word, read here: 0 while nothing was reported and nobody cancelled the launch.
    Status,
}

/// How a shuffle chooses the lane that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShuffleMode {
    /// The lane given, modulo the number of lanes.
    Index,
    /// This lane minus the operand; below lane 0 a lane keeps its own value.
    Up,
    /// This lane plus the operand; above the last lane a lane keeps its own value.
    Down,
    /// This lane XOR the operand; beyond the last lane a lane keeps its own value.
    Xor,
}

/// How the elements of a vector or mask become one scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum: integers wrap, in the elements' own type. The upper half of the elements is added to the lower half until
    /// one is left, which fixes the order for floats.
    Add,
    /// The smallest. Integers only.
    Min,
    /// The largest. Integers only.
    Max,
    /// Whether any element of a mask is true, as `bool`.
    Any,
    /// Whether every element of a mask is true, as `bool`.
    All,
    /// Number of true elements of a mask, as `u32`.
    Count,
}

/// What a load is promised of the memory that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reads {
    /// Nothing: other threads may write it.
    Shared,
    /// No thread writes it during the launch.
    ReadOnly,
}

impl Reads {
    /// Whether no thread writes the memory during the launch.
    pub fn is_read_only(self) -> bool {
        self != Reads::Shared
    }
}

/// An expression: pure but for `Read`, `Load` and the lane operations, which are evaluated where the value's
/// `Let` stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant of the program.
    Literal(Literal),
    /// A parameter, by position.
    Param(u32),
    /// The address of a shared array's first element.
    Shared(Handle<SharedArray>),
    /// The content of a variable.
    Read(Handle<Variable>),
    /// A position in the grid.
    Builtin(Builtin),
    /// One operand.
    Unary(UnaryOp, Handle<Value>),
    /// Two operands of one type.
    Binary(BinaryOp, Handle<Value>, Handle<Value>),
    /// Whether integer arithmetic overflows, as `bool`.
    Overflows(OverflowOp, Handle<Value>, Handle<Value>),
    /// Two operands of one type (scalars or pointers), as `bool`. `bool`s: `Eq` and `Ne` only.
    Compare(CompareOp, Handle<Value>, Handle<Value>),
    /// `condition ? accept : reject`; both are evaluated.
    Select {
        /// Of type `bool`; for vectors a mask, which chooses element by element.
        condition: Handle<Value>,
        /// The value where it is true.
        accept: Handle<Value>,
        /// The value where it is false.
        reject: Handle<Value>,
    },
    /// To another scalar type by value, as Rust's `as`: integers truncate or extend by the operand's sign, float to
    /// integer saturates (NaN gives 0), `bool` gives 0 or 1. Never to `bool`.
    Convert(Handle<Value>, Scalar),
    /// The same bits as a type of the same width: scalars of one width, or a pointer as a pointer of another
    /// pointee in the same space, or a global pointer as `u64` and back.
    Bitcast(Handle<Value>, Type),
    /// `pointer + index` elements; the index is any integer up to 64 bits, extended by its sign.
    Offset {
        /// A pointer.
        pointer: Handle<Value>,
        /// In elements.
        index: Handle<Value>,
    },
    /// The address of a struct's field, as a pointer to it. Fields that are pointers cannot be addressed: use `LoadField`.
    Field {
        /// A pointer to a struct.
        pointer: Handle<Value>,
        /// Position of a scalar field.
        field: u32,
    },
    /// The scalar at a pointer.
    Load {
        /// A pointer to a scalar.
        pointer: Handle<Value>,
        /// What is promised of the memory.
        reads: Reads,
    },
    /// Eight bytes of global memory as a `u64`, the first byte lowest, at any address.
    LoadBytes(Handle<Value>),
    /// The field of a struct in memory; the only way to read a field that is a pointer. Always read-only memory.
    LoadField {
        /// A pointer to a struct.
        pointer: Handle<Value>,
        /// Position of the field.
        field: u32,
    },
    /// Lane operation: bit i tells whether lane i's operand is true (`u32`). Lanes beyond the warp give 0.
    Ballot(Handle<Value>),
    /// Lane operation: whether any lane's operand is true.
    Any(Handle<Value>),
    /// Lane operation: whether every lane's operand is true.
    All(Handle<Value>),
    /// Lane operation: another lane's value of a scalar.
    Shuffle {
        /// How the lane is chosen.
        mode: ShuffleMode,
        /// The value that each lane offers.
        value: Handle<Value>,
        /// Lane or distance, `u32`.
        lane: Handle<Value>,
    },
    /// The same scalar in every element of a vector (of `bool`: of a mask).
    Splat {
        /// A scalar of at most 64 bits.
        value: Handle<Value>,
        /// Number of elements.
        lanes: u8,
    },
    /// The vector 0, 1, 2, … of an integer type.
    Iota(Scalar, u8),
    /// Consecutive elements of memory, from a pointer to the first.
    LoadVector {
        /// A pointer to a scalar.
        pointer: Handle<Value>,
        /// Number of elements.
        lanes: u8,
        /// What is promised of the memory.
        reads: Reads,
        /// What the address is known to be a multiple of, in bytes: a power of two, at least an element's size. Promise
        /// more than that only where it holds: it decides how wide the accesses of a GPU are.
        align: u32,
    },
    /// One element of a vector or mask.
    Lane {
        /// A vector, or a mask.
        vector: Handle<Value>,
        /// Which, from 0.
        lane: u8,
    },
    /// All elements of a vector or mask as one scalar.
    Reduce(ReduceOp, Handle<Value>),
    /// A mask as `u32`: bit i is element i.
    MaskBits(Handle<Value>),
    /// The mask whose element i is bit i of a `u32`.
    BitsMask {
        /// `u32`; higher bits do not matter.
        bits: Handle<Value>,
        /// Number of elements.
        lanes: u8,
    },
    /// The mask whose elements below a number are true.
    FirstLanes {
        /// `u32`, also more than there are elements.
        count: Handle<Value>,
        /// Number of elements.
        lanes: u8,
    },
    /// Defined by an effect: an atomic's old value, a call's result, a uniform load.
    Result,
}

/// Atomic read-modify-write operations; the result is the old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Addition: `i32`, `u32`, `i64`, `u64`, `f32`, `f64`.
    Add,
    /// Minimum: 32- and 64-bit integers.
    Min,
    /// Maximum: 32- and 64-bit integers.
    Max,
    /// Bitwise or: 32- and 64-bit integers.
    Or,
    /// Bitwise exclusive or: 32- and 64-bit integers.
    Xor,
    /// Unconditional exchange: 32- and 64-bit integers.
    Exchange,
    /// Writes the value where the memory equals the operand: 32- and 64-bit integers.
    CompareExchange(Handle<Value>),
}

/// Who sees an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The threads of this block.
    Block,
    /// Every thread of the device.
    Device,
}

/// A sequence of statements.
pub type Block = Vec<Stmt>;

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stmt {
    /// Evaluates a value's expression here. Its scope is the rest of this block and the blocks in it.
    Let(Handle<Value>),
    /// Writes a variable.
    Assign {
        /// The variable.
        var: Handle<Variable>,
        /// Of its type.
        value: Handle<Value>,
    },
    /// Writes a scalar to memory.
    Store {
        /// A pointer to a scalar.
        pointer: Handle<Value>,
        /// Of the pointee's type.
        value: Handle<Value>,
    },
    /// Writes a `u64` to eight bytes of global memory, its lowest byte first, at any address.
    StoreBytes {
        /// A pointer to the first byte, a `u8`.
        pointer: Handle<Value>,
        /// A `u64`.
        value: Handle<Value>,
    },
    /// Writes the elements of a vector to consecutive elements of memory.
    StoreVector {
        /// A pointer to the first.
        pointer: Handle<Value>,
        /// A vector of the pointee's type.
        value: Handle<Value>,
        /// What the address is known to be a multiple of, in bytes; see [`Expr::LoadVector`].
        align: u32,
    },
    /// Writes those elements of a vector of which the mask is true one after the other, in their order. What follows them, up
    /// to the length of the vector, is undefined afterwards: there must be memory for all elements.
    Compress {
        /// A pointer to the pointee's type.
        pointer: Handle<Value>,
        /// A vector of the pointee's type.
        value: Handle<Value>,
        /// A mask of as many elements.
        mask: Handle<Value>,
        /// Receives the number of true elements, `u32`; an [`Expr::Result`].
        result: Option<Handle<Value>>,
    },
    /// Runs one of two blocks.
    If {
        /// Of type `bool`.
        condition: Handle<Value>,
        /// Runs where it is true.
        accept: Block,
        /// Runs where it is false.
        reject: Block,
    },
    /// Runs the block until `Break`.
    Loop(Block),
    /// Leaves the innermost loop.
    Break,
    /// Starts the next iteration of the innermost loop.
    Continue,
    /// An atomic read-modify-write.
    Atomic {
        /// The operation.
        op: AtomicOp,
        /// A pointer to a scalar.
        pointer: Handle<Value>,
        /// The operand, of the pointee's type.
        value: Handle<Value>,
        /// Who sees it.
        scope: Scope,
        /// Receives the old value; an [`Expr::Result`].
        result: Option<Handle<Value>>,
    },
    /// A relaxed atomic read: sees a value that some atomic or store wrote, and does not race with them. The fast path
    /// of publication protocols and hash tables; also what a spinning loop reads.
    AtomicLoad {
        /// A pointer to a 32- or 64-bit integer.
        pointer: Handle<Value>,
        /// Who writes it.
        scope: Scope,
        /// Receives the scalar; an [`Expr::Result`].
        result: Handle<Value>,
    },
    /// Every thread of the block waits, and sees what the others wrote. Needs uniform control flow in the block.
    Barrier,
    /// Every lane of the warp waits, and sees what the others wrote. Needs uniform control flow in the warp.
    WarpBarrier,
    /// Orders this thread's memory accesses before those after it, as others on the device see them: all that publication
    /// needs. A store before and a load after it may still change places. Of the scope of a block: as the threads of the block see
    /// them.
    Fence(Scope),
    /// Tells the device that the thread waits for others, and need not run for about so many nanoseconds (`u32`). Changes nothing
    /// that a kernel computes.
    Pause(Handle<Value>),
    /// Does nothing: who profiles a kernel ([`profile`](crate::profile)) counts the threads that come by together, by this number.
    Mark(u32),
    /// Counts the threads that come by together, as a [`Stmt::Mark`] lets others do it: of those threads of a warp one adds 1 to
    /// the word of their number, atomically for the device. May stand under divergent control flow.
    Tally {
        /// A pointer to `u64` in global memory, the same in all threads that come together: the word of one thread. The
        /// words of more follow it, up to that of the whole warp.
        counters: Handle<Value>,
    },
    /// Reads shared memory at an address uniform in the block, between two barriers of its own: the result is uniform in the block.
    UniformLoad {
        /// A pointer to a scalar in shared memory.
        pointer: Handle<Value>,
        /// Receives the scalar; an [`Expr::Result`].
        result: Handle<Value>,
    },
    /// Calls a device function.
    Call {
        /// The function; it stands before the caller.
        function: Handle<Function>,
        /// One value a parameter.
        args: Vec<Handle<Value>>,
        /// Receives the result; an [`Expr::Result`].
        result: Option<Handle<Value>>,
    },
    /// Leaves the function.
    Return(Option<Handle<Value>>),
    /// Sets the launch's status word to `code` (not 0) unless one is set, and goes on.
    Report {
        /// `u32`; what it means is the launcher's.
        code: Handle<Value>,
    },
    /// As `Report`, and this thread leaves the kernel. Only in a kernel.
    Trap {
        /// `u32`; what it means is the launcher's.
        code: Handle<Value>,
    },
}

/// Byte offsets of a kernel's shared arrays, and their size together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedLayout {
    /// Offset of each array, in the arena's order; each aligned for its element and to at least 16 bytes.
    pub offsets: Vec<u32>,
    /// Size of all arrays in bytes.
    pub bytes: u32,
}

impl Function {
    /// Lays the shared arrays out one after the other.
    pub fn shared_layout(&self, structs: &Arena<Struct>) -> SharedLayout {
        let mut layout = SharedLayout { offsets: Vec::new(), bytes: 0 };
        for (_, array) in self.shared.iter() {
            let offset = layout.bytes.next_multiple_of(array.element.alignment(structs).max(16));
            layout.offsets.push(offset);
            layout.bytes = offset.saturating_add(array.element.bytes(structs).saturating_mul(array.count));
        }
        layout
    }
}
