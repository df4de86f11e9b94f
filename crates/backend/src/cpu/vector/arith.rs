//! Arithmetic and reductions.

use cranelift_codegen::ir::{self, InstBuilder, types};
use kelpie_kir::{BinaryOp, Handle, ReduceOp, Scalar, Type, UnaryOp, Value};

use super::super::function::Translator;
use super::{REGISTER, Registers};

impl Translator<'_, '_> {
    pub(super) fn vector_unary(&mut self, op: UnaryOp, a: Handle<Value>) -> Registers {
        let (element, _) = self.element_and_lanes(a);
        let mut registers = self.registers(a);
        for part in &mut registers.parts {
            *part = match op {
                UnaryOp::Neg if element.is_float() => self.builder.ins().fneg(*part),
                UnaryOp::Neg => self.builder.ins().ineg(*part),
                _ => self.builder.ins().bnot(*part),
            };
        }
        registers
    }

    pub(super) fn vector_binary(&mut self, op: BinaryOp, a: Handle<Value>, b: Handle<Value>) -> Registers {
        let (element, _) = self.element_and_lanes(a);
        if matches!(self.ty(a), Type::Mask(_)) {
            return self.combined_masks(op, a, b);
        }
        let mut left = self.registers(a);
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) {
            // Cranelift's shifts take the amount modulo the width of the elements.
            let distance = self.value(b);
            for part in &mut left.parts {
                *part = match (op, element.is_signed()) {
                    (BinaryOp::Shl, _) => self.builder.ins().ishl(*part, distance),
                    (_, true) => self.builder.ins().sshr(*part, distance),
                    (_, false) => self.builder.ins().ushr(*part, distance),
                };
            }
            return left;
        }
        let right = self.registers(b);
        for (part, other) in left.parts.iter_mut().zip(right.parts) {
            *part = self.combined(op, element, *part, other);
        }
        left
    }

    /// An operation on the elements of two registers.
    fn combined(&mut self, op: BinaryOp, element: Scalar, a: ir::Value, b: ir::Value) -> ir::Value {
        if element.is_float() {
            return match op {
                BinaryOp::Add => self.builder.ins().fadd(a, b),
                BinaryOp::Sub => self.builder.ins().fsub(a, b),
                BinaryOp::Mul => self.builder.ins().fmul(a, b),
                BinaryOp::Div => self.builder.ins().fdiv(a, b),
                _ => {
                    self.fail(format!("{op:?} of vectors of floats"));
                    a
                }
            };
        }
        match (op, element.is_signed()) {
            (BinaryOp::Add, _) => self.builder.ins().iadd(a, b),
            (BinaryOp::Sub, _) => self.builder.ins().isub(a, b),
            (BinaryOp::Mul, _) if element.bytes() == 1 => self.product_of_bytes(a, b),
            (BinaryOp::Mul, _) => self.builder.ins().imul(a, b),
            (BinaryOp::And, _) => self.builder.ins().band(a, b),
            (BinaryOp::Or, _) => self.builder.ins().bor(a, b),
            (BinaryOp::Xor, _) => self.builder.ins().bxor(a, b),
            (BinaryOp::Min, true) => self.builder.ins().smin(a, b),
            (BinaryOp::Min, false) => self.builder.ins().umin(a, b),
            (BinaryOp::Max, true) => self.builder.ins().smax(a, b),
            (BinaryOp::Max, false) => self.builder.ins().umax(a, b),
            _ => {
                self.fail(format!("{op:?} of vectors"));
                a
            }
        }
    }

    /// x86-64 multiplies no bytes: the even and the odd ones are multiplied as 16 bits.
    fn product_of_bytes(&mut self, a: ir::Value, b: ir::Value) -> ir::Value {
        let (a, b) = (self.as_register(types::I16X8, a), self.as_register(types::I16X8, b));
        let eight = self.int(types::I32, 8);
        let even = self.builder.ins().imul(a, b);
        let low = self.constant_of(2, |_| 0xff);
        let even = self.builder.ins().band(even, low);
        let (a, b) = (self.builder.ins().ushr(a, eight), self.builder.ins().ushr(b, eight));
        let odd = self.builder.ins().imul(a, b);
        let odd = self.builder.ins().ishl(odd, eight);
        let both = self.builder.ins().bor(even, odd);
        self.as_register(types::I8X16, both)
    }

    /// All elements as one scalar.
    pub(in super::super) fn reduce(&mut self, op: ReduceOp, a: Handle<Value>) -> ir::Value {
        let op = match op {
            ReduceOp::Any | ReduceOp::All | ReduceOp::Count => return self.reduce_mask(op, a),
            ReduceOp::Add => BinaryOp::Add,
            ReduceOp::Min => BinaryOp::Min,
            ReduceOp::Max => BinaryOp::Max,
        };
        let (element, _) = self.element_and_lanes(a);
        let registers = self.registers(a);
        let mut parts = registers.parts.clone();
        // The upper half of the elements is added to the lower half, first by registers and then in the one that is left.
        while parts.len() > 1 {
            let upper = parts.split_off(parts.len() / 2);
            for (part, other) in parts.iter_mut().zip(upper) {
                *part = self.combined(op, element, *part, other);
            }
        }
        let Some(&first) = parts.first() else { return self.int(types::I8, 0) };
        let mut sum = first;
        let mut half = registers.lanes.min(REGISTER / registers.width) / 2;
        while half > 0 {
            let upper = self.shifted_down(sum, half * registers.width);
            sum = self.combined(op, element, sum, upper);
            half /= 2;
        }
        self.builder.ins().extractlane(sum, 0)
    }
}
