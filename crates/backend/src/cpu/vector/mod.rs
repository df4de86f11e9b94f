//! Vectors and masks in registers of 16 bytes, Cranelift's only ones.
//!
//! A vector of more bytes is several registers, one of fewer fills a register in part; what is in the rest of it does not
//! matter. A mask is kept as the comparison left it: each element all ones or all zeros, as wide as the elements that were
//! compared; it is made wider or narrower where it meets elements of another width.

mod arith;
mod convert;
mod masks;
mod memory;

use cranelift_codegen::ir::{self, ConstantData, InstBuilder, MemFlagsData, types};
use kelpie_kir::{CompareOp, Expr, Handle, Literal, Scalar, Type, Value};

use super::function::Translator;
use super::types::{float_condition, int_condition, scalar_type};

/// Bytes of a register.
pub(super) const REGISTER: u32 = 16;

/// A vector or mask in registers.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    /// The elements in order.
    parts: Vec<ir::Value>,
    /// Bytes of an element.
    width: u32,
    /// Number of elements.
    lanes: u32,
}

impl Registers {
    /// Elements in each register.
    fn lanes_of_part(&self) -> u32 {
        self.lanes.min(REGISTER / self.width)
    }
}

/// Registers of a vector with elements of `width` bytes.
fn parts_of(width: u32, lanes: u32) -> usize {
    (width * lanes).div_ceil(REGISTER) as usize
}

/// The type of a register with integers of `width` bytes.
fn int_type(width: u32) -> ir::Type {
    match width {
        1 => types::I8X16,
        2 => types::I16X8,
        4 => types::I32X4,
        _ => types::I64X2,
    }
}

/// The type of a register with elements of a scalar type.
pub(super) fn register_type(scalar: Scalar) -> ir::Type {
    match scalar {
        Scalar::F32 => types::F32X4,
        Scalar::F64 => types::F64X2,
        integer => int_type(integer.bytes()),
    }
}

/// Types of the registers of a vector; none of another type.
pub(super) fn register_types(ty: Type) -> Vec<ir::Type> {
    match ty {
        Type::Vector(scalar, lanes) => {
            vec![register_type(scalar); parts_of(scalar.bytes(), u32::from(lanes))]
        }
        _ => Vec::new(),
    }
}

impl Translator<'_, '_> {
    /// A vector or mask that was evaluated before.
    pub(super) fn registers(&mut self, value: Handle<Value>) -> Registers {
        match self.frame.vectors.get(&value.index()) {
            Some(registers) => registers.clone(),
            None => {
                self.fail(format!("vector %{} is not in scope", value.index()));
                let (element, lanes) = self.element_and_lanes(value);
                self.zeros(element, lanes)
            }
        }
    }

    /// Evaluates a vector or mask where its `Let` stands.
    pub(super) fn let_vector(&mut self, handle: Handle<Value>, expr: Expr, ty: Type) {
        let (element, lanes) = (ty.element().unwrap_or(Scalar::I8), u32::from(ty.lanes().unwrap_or(1)));
        let registers = match expr {
            Expr::Read(var) => self.read_vector(var.index(), element, lanes),
            Expr::Unary(op, a) => self.vector_unary(op, a),
            Expr::Binary(op, a, b) => self.vector_binary(op, a, b),
            Expr::Compare(op, a, b) => self.vector_compare(op, a, b),
            Expr::Select { condition, accept, reject } => self.vector_select(condition, accept, reject),
            Expr::Convert(a, to) => self.vector_convert(a, to),
            Expr::Bitcast(a, _) => {
                let mut registers = self.registers(a);
                for part in &mut registers.parts {
                    *part = self.as_register(register_type(element), *part);
                }
                registers
            }
            Expr::Splat { value, .. } => self.splat(value, element, lanes),
            Expr::Iota(..) => self.iota(element.bytes(), lanes),
            Expr::LoadVector { pointer, reads, align, .. } => {
                self.load_vector(pointer, element, lanes, reads.is_read_only(), align)
            }
            Expr::BitsMask { bits, .. } => self.bits_mask(bits, lanes),
            Expr::FirstLanes { count, .. } => self.first_lanes(count, lanes),
            _ => {
                self.fail(format!("{expr:?} is no vector"));
                self.zeros(element, lanes)
            }
        };
        self.frame.vectors.insert(handle.index(), registers);
    }

    fn element_and_lanes(&self, value: Handle<Value>) -> (Scalar, u32) {
        let ty = self.ty(value);
        (ty.element().unwrap_or(Scalar::I8), u32::from(ty.lanes().unwrap_or(2)))
    }

    /// A constant of 16 bytes.
    fn constant(&mut self, ty: ir::Type, bytes: [u8; 16]) -> ir::Value {
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(&bytes[..]));
        self.builder.ins().vconst(ty, constant)
    }

    /// A constant whose element i is `value(i)`.
    fn constant_of(&mut self, width: u32, value: impl Fn(u32) -> u64) -> ir::Value {
        let mut bytes = [0; 16];
        for (lane, element) in (0..).zip(bytes.chunks_exact_mut(width as usize)) {
            element.copy_from_slice(&value(lane).to_le_bytes()[..width as usize]);
        }
        self.constant(int_type(width), bytes)
    }

    fn zero_register(&mut self, ty: ir::Type) -> ir::Value {
        self.constant(ty, [0; 16])
    }

    fn zeros(&mut self, element: Scalar, lanes: u32) -> Registers {
        let width = element.bytes();
        let zero = self.zero_register(register_type(element));
        Registers { parts: vec![zero; parts_of(width, lanes)], width, lanes }
    }

    /// A register as another type of its bits.
    fn as_register(&mut self, ty: ir::Type, value: ir::Value) -> ir::Value {
        if self.builder.func.dfg.value_type(value) == ty {
            return value;
        }
        let flags = MemFlagsData::new().with_endianness(ir::Endianness::Little);
        self.builder.ins().bitcast(ty, flags, value)
    }

    /// The bytes of two registers in another order: those of the second are counted from 16.
    fn shuffle_bytes(&mut self, a: ir::Value, b: ir::Value, byte: impl Fn(u8) -> u8) -> ir::Value {
        let (a, b) = (self.as_register(types::I8X16, a), self.as_register(types::I8X16, b));
        let order: Vec<u8> = (0..16).map(byte).collect();
        let order = self.builder.func.dfg.immediates.push(ConstantData::from(&order[..]));
        self.builder.ins().shuffle(a, b, order)
    }

    /// A register with the bytes from `bytes` on at its beginning; the rest does not matter.
    fn shifted_down(&mut self, value: ir::Value, bytes: u32) -> ir::Value {
        let ty = self.builder.func.dfg.value_type(value);
        let shifted = self.shuffle_bytes(value, value, |byte| (byte + bytes as u8) % 16);
        self.as_register(ty, shifted)
    }

    fn read_vector(&mut self, var: usize, element: Scalar, lanes: u32) -> Registers {
        let variables = self.frame.vars.get(var).cloned().unwrap_or_default();
        let parts = variables.into_iter().map(|variable| self.builder.use_var(variable)).collect();
        Registers { parts, width: element.bytes(), lanes }
    }

    /// Writes a variable that is a vector.
    pub(super) fn assign_vector(&mut self, var: usize, value: Handle<Value>) {
        let registers = self.registers(value);
        let variables = self.frame.vars.get(var).cloned().unwrap_or_default();
        for (variable, part) in variables.into_iter().zip(registers.parts) {
            self.builder.def_var(variable, part);
        }
    }

    fn splat(&mut self, value: Handle<Value>, element: Scalar, lanes: u32) -> Registers {
        let scalar = self.value(value);
        let register = if element == Scalar::Bool {
            let negative = self.builder.ins().ineg(scalar);
            self.builder.ins().splat(types::I8X16, negative)
        } else {
            self.builder.ins().splat(register_type(element), scalar)
        };
        let width = element.bytes();
        Registers { parts: vec![register; parts_of(width, lanes)], width, lanes }
    }

    fn iota(&mut self, width: u32, lanes: u32) -> Registers {
        let of_part = REGISTER / width;
        let part = |this: &mut Self, part: usize| {
            this.constant_of(width, |lane| u64::from(part as u32 * of_part + lane))
        };
        let parts = (0..parts_of(width, lanes)).map(|index| part(self, index)).collect();
        Registers { parts, width, lanes }
    }

    fn vector_compare(&mut self, op: CompareOp, a: Handle<Value>, b: Handle<Value>) -> Registers {
        let (element, _) = self.element_and_lanes(a);
        let (mut left, right) = (self.registers(a), self.registers(b));
        for (part, other) in left.parts.iter_mut().zip(right.parts) {
            *part = if element.is_float() {
                self.builder.ins().fcmp(float_condition(op), *part, other)
            } else {
                self.builder.ins().icmp(int_condition(op, element.is_signed()), *part, other)
            };
        }
        left
    }

    fn vector_select(
        &mut self,
        condition: Handle<Value>,
        accept: Handle<Value>,
        reject: Handle<Value>,
    ) -> Registers {
        let (element, _) = self.element_and_lanes(accept);
        let masks = self.mask_of_width(condition, element.bytes());
        let zero = self.is_zero_vector(reject);
        let (mut accepts, rejects) = (self.registers(accept), self.registers(reject));
        for ((part, reject), mask) in accepts.parts.iter_mut().zip(rejects.parts).zip(masks.parts) {
            let ints = int_type(element.bytes());
            let value = self.as_register(ints, *part);
            let chosen = if zero {
                self.builder.ins().band(value, mask)
            } else {
                let reject = self.as_register(ints, reject);
                self.blend(mask, value, reject)
            };
            *part = self.as_register(register_type(element), chosen);
        }
        accepts
    }

    /// `accept` where a mask's element is all ones, `reject` where it is all zeros.
    fn blend(&mut self, mask: ir::Value, accept: ir::Value, reject: ir::Value) -> ir::Value {
        if cfg!(target_arch = "x86_64") {
            // One instruction, which looks at the highest bit of each byte.
            let ty = self.builder.func.dfg.value_type(accept);
            let bytes = [mask, accept, reject].map(|value| self.as_register(types::I8X16, value));
            let chosen = self.builder.ins().blendv(bytes[0], bytes[1], bytes[2]);
            return self.as_register(ty, chosen);
        }
        self.builder.ins().bitselect(mask, accept, reject)
    }

    /// Whether a vector is a literal zero in every element (and not −0.0).
    fn is_zero_vector(&self, value: Handle<Value>) -> bool {
        let expr = |value| self.frame.function.values.get(value).map(|value: &Value| value.expr);
        let Some(Expr::Splat { value, .. }) = expr(value) else { return false };
        match expr(value) {
            Some(Expr::Literal(literal)) => matches!(
                literal,
                Literal::Int(_, 0) | Literal::F32(0) | Literal::F64(0) | Literal::Bool(false)
            ),
            _ => false,
        }
    }

    /// One element of a vector, or of a mask as `bool`.
    pub(super) fn lane(&mut self, vector: Handle<Value>, lane: u8) -> ir::Value {
        let is_mask = matches!(self.ty(vector), Type::Mask(_));
        let registers = self.registers(vector);
        let value = self.element(&registers, u32::from(lane));
        if !is_mask {
            return value;
        }
        let value = match self.builder.func.dfg.value_type(value) {
            types::I8 => value,
            _ => self.builder.ins().ireduce(types::I8, value),
        };
        let one = self.int(types::I8, 1);
        self.builder.ins().band(value, one)
    }

    fn element(&mut self, registers: &Registers, lane: u32) -> ir::Value {
        let of_part = REGISTER / registers.width;
        match registers.parts.get((lane / of_part) as usize) {
            Some(&part) => self.builder.ins().extractlane(part, (lane % of_part) as u8),
            None => {
                self.fail("an element that a vector does not have");
                self.int(types::I8, 0)
            }
        }
    }

    /// A vector of scalars, one an element.
    fn gathered(&mut self, element: Scalar, scalars: &[ir::Value]) -> Registers {
        let (width, lanes) = (element.bytes(), scalars.len() as u32);
        let of_part = (REGISTER / width) as usize;
        let mut parts = Vec::new();
        for chunk in scalars.chunks(of_part) {
            let mut part = self.zero_register(register_type(element));
            for (lane, scalar) in (0u8..).zip(chunk) {
                debug_assert_eq!(self.builder.func.dfg.value_type(*scalar), scalar_type(element));
                part = self.builder.ins().insertlane(part, *scalar, lane);
            }
            parts.push(part);
        }
        Registers { parts, width, lanes }
    }
}
