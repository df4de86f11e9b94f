//! The types of expressions with vectors and masks.

use super::{TypeError, fail};
use crate::arena::Handle;
use crate::module::*;
use crate::types::{LANE_COUNTS, Pointee, Scalar, Type};

type Result = std::result::Result<Type, TypeError>;

/// A vector or mask that the language has.
fn possible(ty: Type) -> Result {
    match ty {
        _ if ty.is_possible() => Ok(ty),
        Type::Mask(lanes) => fail(format!("no mask has {lanes} elements")),
        Type::Vector(scalar, lanes) if LANE_COUNTS.contains(&lanes) => {
            fail(format!("no vector has elements of type {}", scalar.name()))
        }
        _ => fail(format!("no vector has {} elements", ty.lanes().unwrap_or(1))),
    }
}

/// The vector or mask with `lanes` elements of a scalar type.
fn vector_of(element: Scalar, lanes: u8) -> Result {
    possible(match element {
        Scalar::Bool => Type::Mask(lanes),
        element => Type::Vector(element, lanes),
    })
}

/// What an access of `lanes` elements through a pointer has in registers.
pub fn accessed(pointer: Type, lanes: u8, align: u32) -> Result {
    let Type::Ptr(_, Pointee::Scalar(scalar)) = pointer else {
        return fail(format!("elements of {pointer:?} are no vector"));
    };
    if scalar == Scalar::Bool {
        return fail("a mask is never in memory");
    }
    if !align.is_power_of_two() || align < scalar.bytes() {
        return fail(format!("an array of {} is not aligned to {align} bytes", scalar.name()));
    }
    vector_of(scalar, lanes)
}

/// One operand that is a vector or mask.
pub(super) fn unary(op: UnaryOp, operand: Type) -> Result {
    match (op, operand) {
        (UnaryOp::Neg, Type::Vector(..)) | (UnaryOp::Not, Type::Mask(_)) => Ok(operand),
        (UnaryOp::Not, Type::Vector(scalar, _)) if scalar.is_integer() => Ok(operand),
        _ => fail(format!("{op:?} of {operand:?}")),
    }
}

/// Two operands, the left one a vector or mask.
pub(super) fn binary(op: BinaryOp, left: Type, right: Type) -> Result {
    use BinaryOp::*;
    let accepted = match (op, left) {
        (Shl | Shr, Type::Vector(scalar, _)) => {
            if right != Type::U32 {
                return fail("the distance of a vector's shift must be u32");
            }
            return if scalar.is_integer() { Ok(left) } else { fail(format!("{op:?} of {left:?}")) };
        }
        (And | Or | Xor, Type::Mask(_)) | (Add | Sub | Mul, Type::Vector(..)) => true,
        (And | Or | Xor | Min | Max, Type::Vector(scalar, _)) => scalar.is_integer(),
        (Div, Type::Vector(scalar, _)) => scalar.is_float(),
        _ => false,
    };
    match accepted {
        _ if left != right => fail(format!("operands are {left:?} and {right:?}")),
        true => Ok(left),
        false => fail(format!("{op:?} of {left:?}")),
    }
}

/// By value, element by element.
pub(super) fn convert(from: Type, to: Scalar) -> Result {
    match from {
        Type::Vector(_, lanes) if to != Scalar::Bool => vector_of(to, lanes),
        _ => fail(format!("conversion of {from:?} to {}", to.name())),
    }
}

/// The expressions that only vectors and masks have.
pub(super) fn other(expr: &Expr, value: impl Fn(Handle<Value>) -> Result) -> Result {
    let of_u32 = |operand, result| match value(operand)? {
        Type::U32 => possible(result),
        other => fail(format!("needs u32, not {other:?}")),
    };
    let of_mask = |operand, result| match value(operand)? {
        Type::Mask(_) => Ok(result),
        other => fail(format!("needs a mask, not {other:?}")),
    };
    let ty = match *expr {
        Expr::Splat { value: a, lanes } => match value(a)? {
            Type::Scalar(scalar) => vector_of(scalar, lanes)?,
            other => return fail(format!("splat of {other:?}")),
        },
        Expr::Iota(scalar, lanes) if scalar.is_integer() => vector_of(scalar, lanes)?,
        Expr::Iota(scalar, _) => return fail(format!("iota of {}", scalar.name())),
        Expr::LoadVector { pointer, lanes, align, .. } => accessed(value(pointer)?, lanes, align)?,
        Expr::Lane { vector, lane } => match value(vector)? {
            Type::Vector(scalar, lanes) if lane < lanes => Type::Scalar(scalar),
            Type::Mask(lanes) if lane < lanes => Type::BOOL,
            other => return fail(format!("{other:?} has no element {lane}")),
        },
        Expr::Reduce(op, a) => match (op, value(a)?) {
            (ReduceOp::Any | ReduceOp::All, Type::Mask(_)) => Type::BOOL,
            (ReduceOp::Count, Type::Mask(_)) => Type::U32,
            (ReduceOp::Add, Type::Vector(scalar, _)) => Type::Scalar(scalar),
            (ReduceOp::Min | ReduceOp::Max, Type::Vector(scalar, _)) if scalar.is_integer() => {
                Type::Scalar(scalar)
            }
            (op, other) => return fail(format!("reduction {op:?} of {other:?}")),
        },
        Expr::MaskBits(mask) => of_mask(mask, Type::U32)?,
        Expr::BitsMask { bits, lanes } => of_u32(bits, Type::Mask(lanes))?,
        Expr::FirstLanes { count, lanes } => of_u32(count, Type::Mask(lanes))?,
        _ => return fail("not of vectors"),
    };
    Ok(ty)
}
