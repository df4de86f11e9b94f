//! The words of the text form, each stated once for the printer and the parser.

use crate::module::*;
use crate::types::{LANE_COUNTS, Scalar, Space, Type};

macro_rules! words {
    ($($ty:ident $name:ident $from:ident { $($variant:ident => $word:literal,)* })*) => { $(
        /// The word of a variant.
        pub(super) const fn $name(value: $ty) -> &'static str {
            match value { $($ty::$variant => $word,)* }
        }
        /// The variant of a word.
        pub(super) fn $from(word: &str) -> Option<$ty> {
            match word { $($word => Some($ty::$variant),)* _ => None }
        }
    )* };
}

words! {
    UnaryOp unary unary_of {
        Neg => "neg", Not => "not", Popcount => "popcount", Clz => "clz", Ffs => "ffs", Floor => "floor",
        Ceil => "ceil", Trunc => "trunc", RoundEven => "round_even", Abs => "abs", Sqrt => "sqrt",
    }
    BinaryOp binary binary_of {
        Add => "add", Sub => "sub", Mul => "mul", Div => "div", Rem => "rem", And => "and", Or => "or",
        Xor => "xor", Shl => "shl", Shr => "shr", Min => "min", Max => "max", MulHi => "mul_hi",
    }
    OverflowOp overflow overflow_of {
        Add => "overflow.add", Sub => "overflow.sub", Mul => "overflow.mul",
    }
    CompareOp compare compare_of {
        Eq => "eq", Ne => "ne", Lt => "lt", Le => "le", Gt => "gt", Ge => "ge",
    }
    Builtin builtin builtin_of {
        ThreadId => "thread_id", BlockId => "block_id", BlockDim => "block_dim", GridDim => "grid_dim",
        LaneId => "lane_id", Lanes => "lanes", Status => "status",
    }
    ShuffleMode shuffle shuffle_of {
        Index => "shuffle.index", Up => "shuffle.up", Down => "shuffle.down", Xor => "shuffle.xor",
    }
    ReduceOp reduce reduce_of {
        Add => "reduce.add", Min => "reduce.min", Max => "reduce.max", Any => "reduce.any", All => "reduce.all",
        Count => "reduce.count",
    }
    Scope scope scope_of { Block => "block", Device => "device", }
    Space space space_of { Global => "global", Shared => "shared", }
}

/// The word of an atomic operation.
pub(super) const fn atomic(op: AtomicOp) -> &'static str {
    match op {
        AtomicOp::Add => "add",
        AtomicOp::Min => "min",
        AtomicOp::Max => "max",
        AtomicOp::Or => "or",
        AtomicOp::Xor => "xor",
        AtomicOp::Exchange => "exchange",
        AtomicOp::CompareExchange(_) => "cas",
    }
}

/// The atomic operation of a word; `cas` has an operand of its own and is not here.
pub(super) fn atomic_of(word: &str) -> Option<AtomicOp> {
    [AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Exchange]
        .into_iter()
        .find(|&op| atomic(op) == word)
}

/// The scalar type of a word.
pub(super) fn scalar_of(word: &str) -> Option<Scalar> {
    Scalar::ALL.into_iter().find(|scalar| scalar.name() == word)
}

/// The name of a vector or mask: `i64x4`, `mask4`.
pub(super) fn vector(ty: Type) -> Option<String> {
    match ty {
        Type::Vector(scalar, lanes) => Some(format!("{}x{lanes}", scalar.name())),
        Type::Mask(lanes) => Some(format!("mask{lanes}")),
        Type::Scalar(_) | Type::Ptr(..) => None,
    }
}

/// The vector or mask of a word.
pub(super) fn vector_of(word: &str) -> Option<Type> {
    let lanes = |text: &str| LANE_COUNTS.into_iter().find(|lanes| lanes.to_string() == text);
    let ty = match word.strip_prefix("mask") {
        Some(count) => Type::Mask(lanes(count)?),
        None => {
            let (scalar, count) = word.split_once('x')?;
            Type::Vector(scalar_of(scalar)?, lanes(count)?)
        }
    };
    ty.is_possible().then_some(ty)
}
