//! How KIR types and comparisons map to Cranelift's.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{self, MemFlagsData, types};
use kelpie_kir::{CompareOp, Scalar, Type};

/// The register type of a scalar. `bool` is an `i8` of 0 or 1.
pub(super) fn scalar_type(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => types::I8,
        Scalar::I16 | Scalar::U16 => types::I16,
        Scalar::I32 | Scalar::U32 => types::I32,
        Scalar::I64 | Scalar::U64 => types::I64,
        Scalar::I128 => types::I128,
        Scalar::F32 => types::F32,
        Scalar::F64 => types::F64,
    }
}

/// The register type of a KIR type; pointers are 64 bits wide.
pub(super) fn value_type(ty: Type) -> ir::Type {
    match ty {
        Type::Scalar(scalar) => scalar_type(scalar),
        Type::Ptr(..) => types::I64,
        // One of the registers of a vector; a mask is made of comparisons.
        Type::Vector(scalar, _) => super::vector::register_type(scalar),
        Type::Mask(_) => types::I8X16,
    }
}

/// Whether comparisons, division and extension of `ty` respect a sign.
pub(super) fn is_signed(ty: Type) -> bool {
    ty.scalar().is_some_and(Scalar::is_signed)
}

/// The condition code of an integer or pointer comparison.
pub(super) fn int_condition(op: CompareOp, signed: bool) -> IntCC {
    match (op, signed) {
        (CompareOp::Eq, _) => IntCC::Equal,
        (CompareOp::Ne, _) => IntCC::NotEqual,
        (CompareOp::Lt, true) => IntCC::SignedLessThan,
        (CompareOp::Le, true) => IntCC::SignedLessThanOrEqual,
        (CompareOp::Gt, true) => IntCC::SignedGreaterThan,
        (CompareOp::Ge, true) => IntCC::SignedGreaterThanOrEqual,
        (CompareOp::Lt, false) => IntCC::UnsignedLessThan,
        (CompareOp::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (CompareOp::Gt, false) => IntCC::UnsignedGreaterThan,
        (CompareOp::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
    }
}

/// The condition code of a float comparison: false with a NaN, but for `Ne`.
pub(super) fn float_condition(op: CompareOp) -> FloatCC {
    match op {
        CompareOp::Eq => FloatCC::Equal,
        CompareOp::Ne => FloatCC::NotEqual,
        CompareOp::Lt => FloatCC::LessThan,
        CompareOp::Le => FloatCC::LessThanOrEqual,
        CompareOp::Gt => FloatCC::GreaterThan,
        CompareOp::Ge => FloatCC::GreaterThanOrEqual,
    }
}

/// Memory that is valid, aligned, and may be written by others.
pub(super) fn memory() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Memory that nothing writes during the launch. It must not be read before its guard is known, so the load stays
/// where it stands: without `can_move`.
pub(super) fn read_only() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly()
}

/// The launch's own memory (arguments, worker context): constant, and valid wherever the kernel runs.
pub(super) fn launch_constant() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}
