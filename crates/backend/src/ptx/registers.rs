//! Registers and immediates: what an instruction of PTX is written with.

use std::fmt;

use kelpie_kir::{Scalar, Type};

/// A kind of virtual register. Integers narrower than 32 bits live in words, extended by their sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A truth value.
    Predicate,
    /// 32 bits of an integer.
    Word,
    /// 64 bits of an integer, a pointer, or half of 128 bits.
    Long,
    /// An `f32`.
    Single,
    /// An `f64`.
    Double,
}

impl Class {
    /// Every class, in the order in which registers are declared.
    pub const ALL: [Class; 5] = [Class::Predicate, Class::Word, Class::Long, Class::Single, Class::Double];

    /// The class of a value's register; of 128 bits, that of each half.
    pub fn of(ty: Type) -> Class {
        match ty.element() {
            None => Class::Long,
            Some(Scalar::Bool) => Class::Predicate,
            Some(Scalar::F32) => Class::Single,
            Some(Scalar::F64) => Class::Double,
            Some(scalar) if scalar.bytes() <= 4 => Class::Word,
            Some(_) => Class::Long,
        }
    }

    /// The letters before a register's number.
    pub fn prefix(self) -> &'static str {
        match self {
            Class::Predicate => "%p",
            Class::Word => "%r",
            Class::Long => "%l",
            Class::Single => "%f",
            Class::Double => "%d",
        }
    }

    /// The type in which registers are declared and moved.
    pub fn ty(self) -> &'static str {
        match self {
            Class::Predicate => "pred",
            Class::Word => "b32",
            Class::Long => "b64",
            Class::Single => "f32",
            Class::Double => "f64",
        }
    }
}

/// An operand of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// A register by class and number.
    Register(Class, u32),
    /// An integer constant.
    Integer(i64),
    /// The bits of an `f32` constant.
    Single(u32),
    /// The bits of an `f64` constant.
    Double(u64),
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Register(class, number) => write!(f, "{}{number}", class.prefix()),
            Operand::Integer(value) => write!(f, "{value}"),
            Operand::Single(bits) => write!(f, "0f{bits:08X}"),
            Operand::Double(bits) => write!(f, "0d{bits:016X}"),
        }
    }
}

/// Where a scalar or pointer is: one operand, or the halves of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// Anything up to 64 bits.
    One(Operand),
    /// 128 bits.
    Two(Wide),
}

/// The halves of 128 bits, each in 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wide {
    /// The lower half.
    pub low: Operand,
    /// The upper half, with the sign.
    pub high: Operand,
}

impl Piece {
    /// The operand; of 128 bits the lower half.
    pub fn low(self) -> Operand {
        match self {
            Piece::One(operand) => operand,
            Piece::Two(wide) => wide.low,
        }
    }

    /// The halves; what is narrower has none.
    pub fn wide(self) -> Wide {
        match self {
            Piece::One(low) => Wide { low, high: Operand::Integer(0) },
            Piece::Two(wide) => wide,
        }
    }
}

/// The instruction type in which a scalar is computed: narrow integers in 32 bits.
pub fn arithmetic(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::I8 | Scalar::I16 | Scalar::I32 => "s32",
        Scalar::U8 | Scalar::U16 | Scalar::U32 | Scalar::Bool => "u32",
        Scalar::I64 | Scalar::I128 => "s64",
        Scalar::U64 => "u64",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
    }
}

/// The instruction type of a scalar as bits: narrow integers in 32 bits.
pub fn bits(scalar: Scalar) -> &'static str {
    if scalar.bytes() <= 4 { "b32" } else { "b64" }
}

/// The instruction type of a scalar in memory, up to 64 bits.
pub fn memory(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool | Scalar::U8 => "u8",
        Scalar::I8 => "s8",
        Scalar::I16 => "s16",
        Scalar::U16 => "u16",
        Scalar::I32 | Scalar::U32 => "b32",
        Scalar::I64 | Scalar::U64 | Scalar::I128 => "b64",
        Scalar::F32 => "f32",
        Scalar::F64 => "f64",
    }
}
