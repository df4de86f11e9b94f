//! Types: scalars, pointers with a memory space, vectors and masks; and structs of scalars and pointers.

use crate::arena::{Arena, Handle};

/// A scalar type. Integers are two's complement; arithmetic wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    /// One byte in memory, 0 or 1.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Signed, 128 bits; aligned to 16 bytes in memory.
    I128,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl Scalar {
    /// Every scalar type, in declaration order.
    pub const ALL: [Scalar; 12] = [
        Scalar::Bool,
        Scalar::I8,
        Scalar::I16,
        Scalar::I32,
        Scalar::I64,
        Scalar::I128,
        Scalar::U8,
        Scalar::U16,
        Scalar::U32,
        Scalar::U64,
        Scalar::F32,
        Scalar::F64,
    ];

    /// Size in memory, in bytes; also the alignment.
    pub const fn bytes(self) -> u32 {
        match self {
            Scalar::Bool | Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::I64 | Scalar::U64 | Scalar::F64 => 8,
            Scalar::I128 => 16,
        }
    }

    /// Width in bits; 1 for `bool`.
    pub const fn bits(self) -> u32 {
        match self {
            Scalar::Bool => 1,
            other => other.bytes() * 8,
        }
    }

    /// An integer of any width; not `bool`.
    pub const fn is_integer(self) -> bool {
        !matches!(self, Scalar::Bool | Scalar::F32 | Scalar::F64)
    }

    /// A signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self, Scalar::I8 | Scalar::I16 | Scalar::I32 | Scalar::I64 | Scalar::I128)
    }

    /// `f32` or `f64`.
    pub const fn is_float(self) -> bool {
        matches!(self, Scalar::F32 | Scalar::F64)
    }

    /// The name in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::I8 => "i8",
            Scalar::I16 => "i16",
            Scalar::I32 => "i32",
            Scalar::I64 => "i64",
            Scalar::I128 => "i128",
            Scalar::U8 => "u8",
            Scalar::U16 => "u16",
            Scalar::U32 => "u32",
            Scalar::U64 => "u64",
            Scalar::F32 => "f32",
            Scalar::F64 => "f64",
        }
    }
}

/// A memory space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    /// Device memory: every thread of the grid.
    Global,
    /// Memory of one block; on a CPU, memory private to a worker.
    Shared,
}

/// What a pointer points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pointee {
    /// An array of scalars.
    Scalar(Scalar),
    /// An array of structs.
    Struct(Handle<Struct>),
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// A scalar.
    Scalar(Scalar),
    /// A pointer, 64 bits wide in memory.
    Ptr(Space, Pointee),
    /// A vector: 2, 4, 8 or 16 elements of one scalar type of at most 64 bits, not `bool`.
    Vector(Scalar, u8),
    /// A truth value for each of 2, 4, 8 or 16 elements. It is never in memory.
    Mask(u8),
}

/// Numbers of elements that vectors and masks may have.
pub const LANE_COUNTS: [u8; 4] = [2, 4, 8, 16];

impl Type {
    /// Shorthand of the type `bool`.
    pub const BOOL: Type = Type::Scalar(Scalar::Bool);
    /// Shorthand of the type `u32`.
    pub const U32: Type = Type::Scalar(Scalar::U32);
    /// Shorthand of the type `i64`.
    pub const I64: Type = Type::Scalar(Scalar::I64);

    /// The scalar type, if it is one.
    pub const fn scalar(self) -> Option<Scalar> {
        match self {
            Type::Scalar(scalar) => Some(scalar),
            Type::Ptr(..) | Type::Vector(..) | Type::Mask(_) => None,
        }
    }

    /// The scalar type of what operators work on: a scalar's own, a vector's elements', `bool` of a mask.
    pub const fn element(self) -> Option<Scalar> {
        match self {
            Type::Scalar(scalar) | Type::Vector(scalar, _) => Some(scalar),
            Type::Mask(_) => Some(Scalar::Bool),
            Type::Ptr(..) => None,
        }
    }

    /// The number of elements of a vector or mask, if it is one.
    pub const fn lanes(self) -> Option<u8> {
        match self {
            Type::Vector(_, lanes) | Type::Mask(lanes) => Some(lanes),
            Type::Scalar(_) | Type::Ptr(..) => None,
        }
    }

    /// `element` in the shape of this type: a scalar for a scalar, for a vector or mask one of as many elements.
    pub const fn with_element(self, element: Scalar) -> Type {
        match (self.lanes(), element) {
            (None, _) => Type::Scalar(element),
            (Some(lanes), Scalar::Bool) => Type::Mask(lanes),
            (Some(lanes), _) => Type::Vector(element, lanes),
        }
    }

    /// Whether it is a vector or mask that the language has; true for every other type.
    pub fn is_possible(self) -> bool {
        let fits = |lanes| LANE_COUNTS.contains(&lanes);
        match self {
            Type::Vector(scalar, lanes) => fits(lanes) && !matches!(scalar, Scalar::Bool | Scalar::I128),
            Type::Mask(lanes) => fits(lanes),
            Type::Scalar(_) | Type::Ptr(..) => true,
        }
    }

    /// A pointer into device memory.
    pub const fn global(scalar: Scalar) -> Type {
        Type::Ptr(Space::Global, Pointee::Scalar(scalar))
    }

    /// Size in memory, in bytes; of scalars and pointers also the alignment. A vector is aligned as its elements are; a
    /// mask is never in memory.
    pub const fn bytes(self) -> u32 {
        match self {
            Type::Scalar(scalar) => scalar.bytes(),
            Type::Ptr(..) => 8,
            Type::Vector(scalar, lanes) => scalar.bytes() * lanes as u32,
            Type::Mask(_) => 0,
        }
    }
}

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Type {
        Type::Scalar(scalar)
    }
}

/// A field of a struct.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    /// Name, an identifier unique in its struct.
    pub name: String,
    /// Scalar or pointer.
    pub ty: Type,
}

/// A struct with the layout of C: fields in order, each at its natural alignment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Struct {
    /// Name, an identifier unique in its module.
    pub name: String,
    /// At least one field.
    pub fields: Vec<Field>,
}

impl Struct {
    /// Byte offset of the field at `index`.
    pub fn offset(&self, index: usize) -> u32 {
        let mut offset = 0u32;
        for field in &self.fields[..index] {
            offset = offset.next_multiple_of(field.ty.bytes()) + field.ty.bytes();
        }
        offset.next_multiple_of(self.fields[index].ty.bytes())
    }

    /// The largest alignment of a field, in bytes.
    pub fn alignment(&self) -> u32 {
        self.fields.iter().map(|field| field.ty.bytes()).max().unwrap_or(1)
    }

    /// Size in bytes with tail padding, so that arrays of it are aligned.
    pub fn bytes(&self) -> u32 {
        match self.fields.len() {
            0 => 0,
            n => (self.offset(n - 1) + self.fields[n - 1].ty.bytes()).next_multiple_of(self.alignment()),
        }
    }
}

impl Pointee {
    /// Size of one element in bytes.
    pub fn bytes(self, structs: &Arena<Struct>) -> u32 {
        match self {
            Pointee::Scalar(scalar) => scalar.bytes(),
            Pointee::Struct(handle) => structs[handle].bytes(),
        }
    }

    /// Alignment of one element in bytes.
    pub fn alignment(self, structs: &Arena<Struct>) -> u32 {
        match self {
            Pointee::Scalar(scalar) => scalar.bytes(),
            Pointee::Struct(handle) => structs[handle].alignment(),
        }
    }
}
