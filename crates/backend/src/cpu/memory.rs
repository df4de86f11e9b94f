//! Addresses, loads and stores. Constant parts of an address become the offset of the access.

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};
use kelpie_kir::{BinaryOp, Expr, Handle, Pointee, Scalar, Type, Value};

use super::function::{Operand, Translator};
use super::types::{is_signed, memory, read_only, scalar_type, value_type};

impl Translator<'_, '_> {
    /// A pointer as a register and a constant offset.
    pub(super) fn address(&mut self, pointer: Handle<Value>) -> (ir::Value, i32) {
        match self.operand(pointer) {
            Operand::Value(value) | Operand::Extended { narrow: value, .. } => (value, 0),
            Operand::Address { base, offset } => (base, offset),
        }
    }

    /// `base + bytes`; an addition only where the constant does not fit an instruction.
    pub(super) fn shifted_address(&mut self, base: ir::Value, bytes: i64) -> Operand {
        if let Ok(offset) = i32::try_from(bytes) {
            return Operand::Address { base, offset };
        }
        let bytes = self.int(types::I64, bytes);
        Operand::Value(self.builder.ins().iadd(base, bytes))
    }

    /// `pointer + index` elements.
    pub(super) fn offset_address(&mut self, pointer: Handle<Value>, index: Handle<Value>) -> Operand {
        let Type::Ptr(_, pointee) = self.ty(pointer) else {
            self.fail("offset of a scalar");
            return self.operand(pointer);
        };
        let element_bytes = i64::from(pointee.bytes(&self.module.structs));
        let (base, offset) = self.address(pointer);
        let (index, elements) = self.index(index);
        let bytes = i64::from(offset).wrapping_add(elements.wrapping_mul(element_bytes));
        match index {
            Some(index) => {
                let scaled = self.scaled(index, element_bytes);
                let base = self.builder.ins().iadd(base, scaled);
                self.shifted_address(base, bytes)
            }
            None => self.shifted_address(base, bytes),
        }
    }

    /// An index as 64 bits, split into a variable and a constant part.
    fn index(&mut self, index: Handle<Value>) -> (Option<ir::Value>, i64) {
        if let Some(constant) = self.literal(index) {
            return (None, constant as i64);
        }
        let ty = self.ty(index);
        if value_type(ty) == types::I64 {
            // Wraps as addresses do, so that `(i + 3) * 8` is `i * 8 + 24`.
            if let Some(Expr::Binary(BinaryOp::Add, a, b)) = self.expr_of(index)
                && let Some(constant) = self.literal(b)
            {
                return (Some(self.value(a)), constant as i64);
            }
            return (Some(self.value(index)), 0);
        }
        let operand = self.operand(index);
        if let Operand::Extended { wide, .. } = operand {
            return (Some(wide), 0);
        }
        let value = self.value(index);
        let wide = if is_signed(ty) {
            self.builder.ins().sextend(types::I64, value)
        } else {
            self.builder.ins().uextend(types::I64, value)
        };
        (Some(wide), 0)
    }

    fn expr_of(&self, value: Handle<Value>) -> Option<Expr> {
        self.frame.function.values.get(value).map(|value| value.expr)
    }

    fn scaled(&mut self, index: ir::Value, element_bytes: i64) -> ir::Value {
        if element_bytes == 1 {
            index
        } else if element_bytes.count_ones() == 1 {
            let shift = self.int(types::I64, i64::from(element_bytes.trailing_zeros()));
            self.builder.ins().ishl(index, shift)
        } else {
            let factor = self.int(types::I64, element_bytes);
            self.builder.ins().imul(index, factor)
        }
    }

    fn field_offset(&mut self, pointer: Handle<Value>, field: u32) -> i64 {
        if let Type::Ptr(_, Pointee::Struct(handle)) = self.ty(pointer)
            && let Some(structure) = self.module.structs.get(handle)
            && (field as usize) < structure.fields.len()
        {
            return i64::from(structure.offset(field as usize));
        }
        self.fail("a field that does not exist");
        0
    }

    /// The address of a struct's field.
    pub(super) fn field_address(&mut self, pointer: Handle<Value>, field: u32) -> Operand {
        let field_offset = self.field_offset(pointer, field);
        let (base, offset) = self.address(pointer);
        self.shifted_address(base, i64::from(offset) + field_offset)
    }

    /// The scalar at a pointer.
    pub(super) fn load(&mut self, pointer: Handle<Value>, ty: Type, is_read_only: bool) -> Operand {
        let address = self.address(pointer);
        let flags = if is_read_only { read_only() } else { memory() };
        self.load_at(ty, flags, address)
    }

    /// Eight bytes, wherever they begin.
    pub(super) fn load_bytes(&mut self, pointer: Handle<Value>) -> Operand {
        let (base, offset) = self.address(pointer);
        let flags = MemFlagsData::new().with_notrap();
        Operand::Value(self.builder.ins().load(types::I64, flags, base, offset))
    }

    /// As [`Self::load`], at the width of the scalar.
    pub(super) fn load_register(&mut self, pointer: Handle<Value>, scalar: Scalar) -> ir::Value {
        let (base, offset) = self.address(pointer);
        self.builder.ins().load(scalar_type(scalar), memory(), base, offset)
    }

    /// The field of a struct in memory that nothing writes.
    pub(super) fn load_field(&mut self, pointer: Handle<Value>, field: u32, ty: Type) -> Operand {
        let address = match self.field_address(pointer, field) {
            Operand::Address { base, offset } => (base, offset),
            Operand::Value(base) | Operand::Extended { narrow: base, .. } => (base, 0),
        };
        self.load_at(ty, read_only(), address)
    }

    /// Loads a register; narrow integers with their extension, which most of them need next.
    fn load_at(&mut self, ty: Type, flags: MemFlagsData, (base, offset): (ir::Value, i32)) -> Operand {
        let narrow_type = value_type(ty);
        let wide = match (narrow_type, is_signed(ty)) {
            (types::I8, true) => self.builder.ins().sload8(types::I64, flags, base, offset),
            (types::I8, false) => self.builder.ins().uload8(types::I64, flags, base, offset),
            (types::I16, true) => self.builder.ins().sload16(types::I64, flags, base, offset),
            (types::I16, false) => self.builder.ins().uload16(types::I64, flags, base, offset),
            (types::I32, true) => self.builder.ins().sload32(flags, base, offset),
            (types::I32, false) => self.builder.ins().uload32(flags, base, offset),
            _ => return Operand::Value(self.builder.ins().load(narrow_type, flags, base, offset)),
        };
        let narrow = self.builder.ins().ireduce(narrow_type, wide);
        Operand::Extended { narrow, wide }
    }

    /// Writes a scalar.
    pub(super) fn store(&mut self, pointer: Handle<Value>, value: Handle<Value>) {
        let value = self.value(value);
        self.store_value(pointer, value);
    }

    pub(super) fn store_value(&mut self, pointer: Handle<Value>, value: ir::Value) {
        let (base, offset) = self.address(pointer);
        self.builder.ins().store(memory(), value, base, offset);
    }

    /// Writes eight bytes, wherever they begin.
    pub(super) fn store_bytes(&mut self, pointer: Handle<Value>, value: Handle<Value>) {
        let value = self.value(value);
        let (base, offset) = self.address(pointer);
        let flags = MemFlagsData::new().with_notrap();
        self.builder.ins().store(flags, value, base, offset);
    }

    /// The same bits as another type.
    pub(super) fn bitcast(&mut self, a: Handle<Value>, to: Type) -> Operand {
        let operand = match self.operand(a) {
            // Extended by the sign of the type that it no longer has.
            Operand::Extended { narrow, .. } => Operand::Value(narrow),
            other => other,
        };
        let from_float = self.ty(a).scalar().is_some_and(Scalar::is_float);
        let to_float = to.scalar().is_some_and(Scalar::is_float);
        if from_float == to_float {
            return operand;
        }
        let value = self.value(a);
        Operand::Value(self.builder.ins().bitcast(value_type(to), MemFlagsData::new(), value))
    }
}
