//! Types and structs.

use std::fmt::Write;

use kelpie_kir::{Module, Pointee, Scalar, Struct, Type};

use super::names::{Names, identifier};

/// Begins every translation unit.
pub const PRELUDE: &str = "\
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef __int128 i128;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned __int128 u128;
typedef float f32;
typedef double f64;
";

/// The type's name: the scalar's own, or `element*`. The space does not show, since CUDA's pointers are generic.
pub fn name(module: &Module, ty: Type) -> String {
    match ty {
        Type::Scalar(scalar) => scalar.name().to_string(),
        Type::Ptr(_, pointee) => format!("{}*", element(module, pointee)),
        // Printed element by element.
        Type::Vector(scalar, _) => scalar.name().to_string(),
        Type::Mask(_) => Scalar::Bool.name().to_string(),
    }
}

/// The name of what a pointer points to.
pub fn element(module: &Module, pointee: Pointee) -> String {
    match pointee {
        Pointee::Scalar(scalar) => scalar.name().to_string(),
        Pointee::Struct(handle) => {
            let name = module.structs.get(handle).map_or("", |structure| structure.name.as_str());
            format!("struct_{}", identifier(name))
        }
    }
}

/// An immutable value's declaration, up to its name.
pub fn constant(module: &Module, ty: Type) -> String {
    match ty {
        Type::Ptr(..) => format!("{} const", name(module, ty)),
        _ => format!("const {}", name(module, ty)),
    }
}

/// The type in which arithmetic of `scalar` wraps without undefined behaviour. Narrow types are computed in 32 bits:
/// C would promote them to `int`, whose overflow is undefined.
pub fn wrapping(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::I64 | Scalar::U64 => "u64",
        Scalar::I128 => "u128",
        _ => "u32",
    }
}

/// The unsigned type of the same width.
pub fn unsigned(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool | Scalar::I8 | Scalar::U8 => "u8",
        Scalar::I16 | Scalar::U16 => "u16",
        Scalar::I32 | Scalar::U32 | Scalar::F32 => "u32",
        Scalar::I64 | Scalar::U64 | Scalar::F64 => "u64",
        Scalar::I128 => "u128",
    }
}

/// The names of a struct's fields.
pub fn fields(structure: &Struct) -> Vec<String> {
    let mut names = Names::default();
    structure.fields.iter().map(|field| names.unique(&field.name)).collect()
}

/// A struct's definition. Its size is checked by the compiler: host code writes these structs by the same rules.
pub fn structure(module: &Module, structure: &Struct) -> String {
    let struct_name = format!("struct_{}", identifier(&structure.name));
    let mut text = format!("struct {struct_name} {{\n");
    let names = fields(structure);
    for (field, field_name) in structure.fields.iter().zip(&names) {
        let _ = writeln!(text, "    {} {field_name};", name(module, field.ty));
    }
    text.push_str("};\n");
    let _ = writeln!(text, "static_assert(sizeof({struct_name}) == {}, \"layout\");", structure.bytes());
    text
}
