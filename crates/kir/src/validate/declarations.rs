//! Names, structs, parameters, variables, shared arrays.

use std::collections::HashSet;

use super::{ValidationError, function_place};
use crate::module::*;
use crate::text::{is_identifier, is_type_name};
use crate::types::{Pointee, Space, Type};

type Result<T> = std::result::Result<T, ValidationError>;

/// The most that a kernel's shared arrays may take together, in bytes. Far above any device; keeps sums in `u32`.
const MOST_SHARED_BYTES: u64 = 1 << 30;

/// Names of one scope, each used once.
struct Names<'a> {
    place: String,
    used: HashSet<&'a str>,
}

impl<'a> Names<'a> {
    fn new(place: String) -> Names<'a> {
        Names { place, used: HashSet::new() }
    }

    fn fail<T>(&self, message: String) -> Result<T> {
        Err(ValidationError { place: self.place.clone(), message })
    }

    fn add(&mut self, name: &'a str) -> Result<()> {
        if !is_identifier(name) {
            return self.fail(format!("{name:?} is not an identifier"));
        }
        if self.used.insert(name) { Ok(()) } else { self.fail(format!("the name {name} is used twice")) }
    }
}

/// Checks structs, and the names of functions and kernels.
pub(super) fn check(module: &Module) -> Result<()> {
    let mut structs = Names::new("structs".to_string());
    for (handle, structure) in module.structs.iter() {
        structs.add(&structure.name)?;
        if is_type_name(&structure.name) {
            return structs.fail(format!("{} is the name of a type of the language", structure.name));
        }
        let mut fields = Names::new(format!("struct {}", structure.name));
        if structure.fields.is_empty() {
            return fields.fail("a struct has at least one field".to_string());
        }
        for field in &structure.fields {
            fields.add(&field.name)?;
            if is_vector(field.ty) {
                return fields.fail(format!("field {} is a vector or mask", field.name));
            }
            if !type_exists(field.ty, handle.index()) {
                return fields
                    .fail(format!("field {} is of a struct that does not stand before", field.name));
            }
        }
    }
    let mut functions = Names::new("functions".to_string());
    for (_, function) in module.functions.iter().chain(module.kernels.iter()) {
        functions.add(&function.name)?;
    }
    Ok(())
}

/// Whether a type is of scalars and of the first `structs` structs.
pub(super) fn type_exists(ty: Type, structs: usize) -> bool {
    match ty {
        Type::Scalar(_) | Type::Ptr(_, Pointee::Scalar(_)) => true,
        Type::Ptr(_, Pointee::Struct(handle)) => handle.index() < structs,
        Type::Vector(..) | Type::Mask(_) => ty.is_possible(),
    }
}

fn is_vector(ty: Type) -> bool {
    matches!(ty, Type::Vector(..) | Type::Mask(_))
}

/// Checks what a function or kernel declares.
pub(super) fn check_function(module: &Module, function: &Function, kernel: bool) -> Result<()> {
    let structs = module.structs.len();
    let mut names = Names::new(function_place(module, function));
    for param in &function.params {
        names.add(&param.name)?;
        if !type_exists(param.ty, structs) {
            return names.fail(format!("parameter {} is of a struct that does not exist", param.name));
        }
        if is_vector(param.ty) {
            return names.fail(format!("parameter {} is a vector or mask", param.name));
        }
        if kernel && matches!(param.ty, Type::Ptr(Space::Shared, _)) {
            return names.fail(format!("parameter {} of a kernel points to shared memory", param.name));
        }
    }
    if function.result.is_some_and(|ty| !type_exists(ty, structs)) {
        return names.fail("the result is of a struct that does not exist".to_string());
    }
    if function.result.is_some_and(is_vector) {
        return names.fail("the result is a vector or mask".to_string());
    }
    if kernel && function.result.is_some() {
        return names.fail("a kernel returns no value".to_string());
    }
    if !kernel && !function.shared.is_empty() {
        return names.fail("only a kernel has shared arrays".to_string());
    }
    let mut bytes = 0u64;
    for (_, array) in function.shared.iter() {
        names.add(&array.name)?;
        if !type_exists(Type::Ptr(Space::Shared, array.element), structs) {
            return names.fail(format!("shared array {} is of a struct that does not exist", array.name));
        }
        if array.count == 0 {
            return names.fail(format!("shared array {} has no element", array.name));
        }
        bytes = bytes.next_multiple_of(16)
            + u64::from(array.element.bytes(&module.structs)) * u64::from(array.count);
        if bytes > MOST_SHARED_BYTES {
            return names.fail(format!("the shared arrays take more than {MOST_SHARED_BYTES} bytes"));
        }
    }
    for (_, var) in function.vars.iter() {
        names.add(&var.name)?;
        if !type_exists(var.ty, structs) {
            return names.fail(format!("variable {} is of a type that does not exist", var.name));
        }
        if matches!(var.ty, Type::Mask(_)) {
            return names.fail(format!("variable {} is a mask", var.name));
        }
    }
    Ok(())
}
