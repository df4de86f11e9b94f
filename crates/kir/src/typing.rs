//! The type of an expression from the types of its operands: the one place that knows the typing rules.

mod vectors;

use crate::arena::Handle;
use crate::module::*;
use crate::types::{Pointee, Scalar, Space, Type};

pub(crate) use vectors::accessed;

/// Why an expression or statement is ill-typed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

fn fail<T>(message: impl Into<String>) -> Result<T, TypeError> {
    Err(TypeError(message.into()))
}

/// The type of `expr` in `function` of `module`. [`Expr::Result`] has no type of its own.
pub fn type_of(module: &Module, function: &Function, expr: &Expr) -> Result<Type, TypeError> {
    let value = |handle: Handle<Value>| match function.values.get(handle) {
        Some(value) => Ok(value.ty),
        None => fail(format!("value %{} does not exist", handle.index())),
    };
    let scalar = |handle: Handle<Value>| match value(handle)? {
        Type::Scalar(scalar) => Ok(scalar),
        Type::Ptr(..) => fail(format!("%{} is a pointer, a scalar is needed", handle.index())),
        other => fail(format!("%{} is {other:?}, a scalar is needed", handle.index())),
    };
    let is_vector = |handle| matches!(value(handle), Ok(Type::Vector(..) | Type::Mask(_)));
    let pair = |a: Handle<Value>, b: Handle<Value>| {
        let (left, right) = (scalar(a)?, scalar(b)?);
        if left == right {
            Ok(left)
        } else {
            fail(format!("operands are {} and {}", left.name(), right.name()))
        }
    };
    Ok(match *expr {
        Expr::Literal(literal) => Type::Scalar(literal_type(literal)?),
        Expr::Param(index) => match function.params.get(index as usize) {
            Some(param) => param.ty,
            None => return fail(format!("parameter {index} does not exist")),
        },
        Expr::Shared(handle) => match function.shared.get(handle) {
            Some(array) => Type::Ptr(Space::Shared, array.element),
            None => return fail(format!("shared array {} does not exist", handle.index())),
        },
        Expr::Read(handle) => match function.vars.get(handle) {
            Some(var) => var.ty,
            None => return fail(format!("variable {} does not exist", handle.index())),
        },
        Expr::Builtin(_) => Type::U32,
        Expr::Unary(op, a) if is_vector(a) => vectors::unary(op, value(a)?)?,
        Expr::Binary(op, a, b) if is_vector(a) => vectors::binary(op, value(a)?, value(b)?)?,
        Expr::Convert(a, to) if is_vector(a) => vectors::convert(value(a)?, to)?,
        Expr::Unary(op, a) => unary_type(op, scalar(a)?)?,
        Expr::Binary(op, a, b) => binary_type(op, pair(a, b)?)?,
        Expr::Overflows(_, a, b) => match pair(a, b)? {
            integer if integer.is_integer() => Type::BOOL,
            other => return fail(format!("overflow of {}", other.name())),
        },
        Expr::Compare(op, a, b) => {
            let (left, right) = (value(a)?, value(b)?);
            if left != right {
                return fail(format!("compares {left:?} with {right:?}"));
            }
            if left == Type::BOOL && !matches!(op, CompareOp::Eq | CompareOp::Ne) {
                return fail("bool has no order");
            }
            match left {
                Type::Mask(_) => return fail("masks are not compared: use xor"),
                other => other.with_element(Scalar::Bool),
            }
        }
        Expr::Select { condition, accept, reject } => {
            let (left, right) = (value(accept)?, value(reject)?);
            if left != right {
                return fail(format!("selects between {left:?} and {right:?}"));
            }
            match left {
                Type::Mask(_) => return fail("masks are not selected: use and, or"),
                Type::Vector(_, lanes) if value(condition)? != Type::Mask(lanes) => {
                    return fail("the condition of a vector's select must be a mask of as many elements");
                }
                Type::Scalar(_) | Type::Ptr(..) if value(condition)? != Type::BOOL => {
                    return fail("the condition of a select must be bool");
                }
                _ => {}
            }
            left
        }
        Expr::Convert(a, to) => {
            scalar(a)?;
            if to == Scalar::Bool {
                return fail("no conversion to bool: compare instead");
            }
            Type::Scalar(to)
        }
        Expr::Bitcast(a, to) => bitcast_type(value(a)?, to)?,
        Expr::Offset { pointer, index } => {
            let integer = scalar(index)?;
            if !integer.is_integer() || integer == Scalar::I128 {
                return fail(format!("an index cannot be {}", integer.name()));
            }
            match value(pointer)? {
                ty @ Type::Ptr(..) => ty,
                _ => return fail("offset of a scalar"),
            }
        }
        Expr::Field { pointer, field } => match field_type(module, value(pointer)?, field)? {
            (space, Type::Scalar(scalar)) => Type::Ptr(space, Pointee::Scalar(scalar)),
            _ => return fail("a pointer field has no address: use load_field"),
        },
        Expr::Load { pointer, .. } => match value(pointer)? {
            Type::Ptr(_, Pointee::Scalar(scalar)) => Type::Scalar(scalar),
            other => return fail(format!("load through {other:?}")),
        },
        Expr::LoadBytes(pointer) => match value(pointer)? {
            Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8)) => Type::Scalar(Scalar::U64),
            other => return fail(format!("load_bytes through {other:?}")),
        },
        Expr::LoadField { pointer, field } => field_type(module, value(pointer)?, field)?.1,
        Expr::Ballot(a) => expect_bool(value(a)?, Type::U32)?,
        Expr::Any(a) | Expr::All(a) => expect_bool(value(a)?, Type::BOOL)?,
        Expr::Shuffle { value: a, lane, .. } => {
            if value(lane)? != Type::U32 {
                return fail("the lane of a shuffle must be u32");
            }
            Type::Scalar(scalar(a)?)
        }
        Expr::Result => return fail("a result has no type of its own"),
        Expr::Splat { .. }
        | Expr::Iota(..)
        | Expr::LoadVector { .. }
        | Expr::Lane { .. }
        | Expr::Reduce(..)
        | Expr::MaskBits(_)
        | Expr::BitsMask { .. }
        | Expr::FirstLanes { .. } => vectors::other(expr, value)?,
    })
}

fn expect_bool(operand: Type, result: Type) -> Result<Type, TypeError> {
    if operand == Type::BOOL { Ok(result) } else { fail(format!("needs bool, not {operand:?}")) }
}

fn literal_type(literal: Literal) -> Result<Scalar, TypeError> {
    match literal {
        Literal::Bool(_) => Ok(Scalar::Bool),
        Literal::F32(_) => Ok(Scalar::F32),
        Literal::F64(_) => Ok(Scalar::F64),
        Literal::Int(scalar, value) if scalar.is_integer() => {
            let bits = scalar.bits();
            let fits = match (scalar.is_signed(), bits) {
                (_, 128) => true,
                (true, _) => (-(1i128 << (bits - 1))..(1i128 << (bits - 1))).contains(&value),
                (false, _) => (0..(1i128 << bits)).contains(&value),
            };
            if fits { Ok(scalar) } else { fail(format!("{value} does not fit {}", scalar.name())) }
        }
        Literal::Int(scalar, _) => fail(format!("integer literal of type {}", scalar.name())),
    }
}

fn unary_type(op: UnaryOp, operand: Scalar) -> Result<Type, TypeError> {
    use UnaryOp::*;
    let (accepted, result) = match op {
        Neg => (operand != Scalar::Bool, operand),
        Not => (!operand.is_float(), operand),
        Popcount | Clz | Ffs => (operand.is_integer() && operand != Scalar::I128, Scalar::U32),
        Floor | Ceil | Trunc | RoundEven | Abs | Sqrt => (operand.is_float(), operand),
    };
    if accepted { Ok(Type::Scalar(result)) } else { fail(format!("{op:?} of {}", operand.name())) }
}

fn binary_type(op: BinaryOp, operand: Scalar) -> Result<Type, TypeError> {
    use BinaryOp::*;
    let accepted = match op {
        Add | Sub | Mul | Div | Rem => operand != Scalar::Bool,
        And | Or | Xor => !operand.is_float(),
        Shl | Shr | Min | Max => operand.is_integer(),
        MulHi => matches!(operand, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64),
    };
    if accepted { Ok(Type::Scalar(operand)) } else { fail(format!("{op:?} of {}", operand.name())) }
}

fn bitcast_type(from: Type, to: Type) -> Result<Type, TypeError> {
    let accepted = match (from, to) {
        (Type::Scalar(Scalar::Bool), _) | (_, Type::Scalar(Scalar::Bool)) => false,
        (Type::Scalar(a), Type::Scalar(b)) => a.bits() == b.bits(),
        (Type::Ptr(a, _), Type::Ptr(b, _)) => a == b,
        (Type::Ptr(space, _), Type::Scalar(scalar)) | (Type::Scalar(scalar), Type::Ptr(space, _)) => {
            space == Space::Global && scalar == Scalar::U64
        }
        (Type::Vector(a, of_a), Type::Vector(b, of_b)) => {
            of_a == of_b && a.bits() == b.bits() && to.is_possible()
        }
        _ => false,
    };
    if accepted { Ok(to) } else { fail(format!("bitcast of {from:?} to {to:?}")) }
}

fn field_type(module: &Module, pointer: Type, field: u32) -> Result<(Space, Type), TypeError> {
    let Type::Ptr(space, Pointee::Struct(handle)) = pointer else {
        return fail(format!("field of {pointer:?}"));
    };
    let Some(structure) = module.structs.get(handle) else {
        return fail(format!("struct {} does not exist", handle.index()));
    };
    match structure.fields.get(field as usize) {
        Some(field) => Ok((space, field.ty)),
        None => fail(format!("struct {} has no field {field}", structure.name)),
    }
}

/// Whether `op` is defined on memory of type `scalar`.
pub fn atomic_accepts(op: AtomicOp, scalar: Scalar) -> bool {
    let integer = matches!(scalar, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64);
    integer || (matches!(op, AtomicOp::Add) && scalar.is_float())
}
