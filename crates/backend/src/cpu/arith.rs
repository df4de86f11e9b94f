//! Arithmetic on scalars of up to 64 bits; `i128` is in [`super::int128`].

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};
use kelpie_kir::{BinaryOp, Handle, OverflowOp, Scalar, UnaryOp, Value};

use super::function::{OverflowKey, Translator};
use super::helpers::Helper;
use super::types::{is_signed, value_type};

impl Translator<'_, '_> {
    pub(super) fn unary(&mut self, op: UnaryOp, a: Handle<Value>) -> ir::Value {
        let ty = self.ty(a);
        let value = self.value(a);
        let is_float = ty.scalar().is_some_and(Scalar::is_float);
        match op {
            UnaryOp::Neg if is_float => self.builder.ins().fneg(value),
            UnaryOp::Neg => self.builder.ins().ineg(value),
            UnaryOp::Not if ty.scalar() == Some(Scalar::Bool) => {
                let zero = self.int(types::I8, 0);
                self.builder.ins().icmp(IntCC::Equal, value, zero)
            }
            UnaryOp::Not => self.builder.ins().bnot(value),
            UnaryOp::Popcount => {
                let count = self.builder.ins().popcnt(value);
                self.as_u32(count)
            }
            UnaryOp::Clz => {
                let count = self.builder.ins().clz(value);
                self.as_u32(count)
            }
            UnaryOp::Ffs => {
                let count = self.builder.ins().ctz(value);
                let count = self.as_u32(count);
                let (one, none) = (self.int(types::I32, 1), self.int(types::I32, 0));
                let position = self.builder.ins().iadd(count, one);
                let zero = self.int(value_type(ty), 0);
                let is_zero = self.builder.ins().icmp(IntCC::Equal, value, zero);
                self.builder.ins().select(is_zero, none, position)
            }
            UnaryOp::Floor => self.builder.ins().floor(value),
            UnaryOp::Ceil => self.builder.ins().ceil(value),
            UnaryOp::Trunc => self.builder.ins().trunc(value),
            UnaryOp::RoundEven => self.builder.ins().nearest(value),
            UnaryOp::Abs => self.builder.ins().fabs(value),
            UnaryOp::Sqrt => self.builder.ins().sqrt(value),
        }
    }

    fn as_u32(&mut self, value: ir::Value) -> ir::Value {
        match self.builder.func.dfg.value_type(value) {
            types::I32 => value,
            types::I64 => self.builder.ins().ireduce(types::I32, value),
            _ => self.builder.ins().uextend(types::I32, value),
        }
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Handle<Value>, b: Handle<Value>) -> ir::Value {
        let ty = self.ty(a);
        match ty.scalar() {
            Some(Scalar::I128) => self.binary_i128(op, a, b),
            Some(scalar) if scalar.is_float() => {
                let (a, b) = (self.value(a), self.value(b));
                self.binary_float(op, scalar, a, b)
            }
            _ => self.binary_int(op, a, b),
        }
    }

    fn binary_float(&mut self, op: BinaryOp, scalar: Scalar, a: ir::Value, b: ir::Value) -> ir::Value {
        match op {
            BinaryOp::Add => self.builder.ins().fadd(a, b),
            BinaryOp::Sub => self.builder.ins().fsub(a, b),
            BinaryOp::Mul => self.builder.ins().fmul(a, b),
            BinaryOp::Div => self.builder.ins().fdiv(a, b),
            BinaryOp::Rem => {
                let helper = if scalar == Scalar::F32 { Helper::FmodF32 } else { Helper::FmodF64 };
                self.call_helper(helper, &[a, b]).unwrap_or(a)
            }
            _ => {
                self.fail(format!("{op:?} of floats"));
                a
            }
        }
    }

    fn binary_int(&mut self, op: BinaryOp, a: Handle<Value>, b: Handle<Value>) -> ir::Value {
        let key = match op {
            BinaryOp::Add => Some((OverflowOp::Add, a, b)),
            BinaryOp::Sub => Some((OverflowOp::Sub, a, b)),
            BinaryOp::Mul => Some((OverflowOp::Mul, a, b)),
            _ => None,
        };
        if let Some(key) = key.filter(|key| self.frame.overflow_keys.contains(key)) {
            return self.overflowing(key).0;
        }
        let signed = is_signed(self.ty(a));
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) {
            let literal = self.literal(b);
            let (a, b) = (self.value(a), self.value(b));
            return self.divide(op, signed, a, b, literal);
        }
        let (a, b) = (self.value(a), self.value(b));
        match (op, signed) {
            (BinaryOp::Add, _) => self.builder.ins().iadd(a, b),
            (BinaryOp::Sub, _) => self.builder.ins().isub(a, b),
            (BinaryOp::Mul, _) => self.builder.ins().imul(a, b),
            (BinaryOp::And, _) => self.builder.ins().band(a, b),
            (BinaryOp::Or, _) => self.builder.ins().bor(a, b),
            (BinaryOp::Xor, _) => self.builder.ins().bxor(a, b),
            // Cranelift's shifts take the amount modulo the width.
            (BinaryOp::Shl, _) => self.builder.ins().ishl(a, b),
            (BinaryOp::Shr, true) => self.builder.ins().sshr(a, b),
            (BinaryOp::Shr, false) => self.builder.ins().ushr(a, b),
            (BinaryOp::Min, true) => self.builder.ins().smin(a, b),
            (BinaryOp::Min, false) => self.builder.ins().umin(a, b),
            (BinaryOp::Max, true) => self.builder.ins().smax(a, b),
            (BinaryOp::Max, false) => self.builder.ins().umax(a, b),
            (BinaryOp::MulHi, true) => self.builder.ins().smulhi(a, b),
            (BinaryOp::MulHi, false) => self.builder.ins().umulhi(a, b),
            (BinaryOp::Div | BinaryOp::Rem, _) => a,
        }
    }

    /// Total division: x / 0 = 0, MIN / -1 = MIN, x % 0 = 0, MIN % -1 = 0.
    fn divide(
        &mut self,
        op: BinaryOp,
        signed: bool,
        a: ir::Value,
        b: ir::Value,
        literal: Option<i128>,
    ) -> ir::Value {
        let ty = self.builder.func.dfg.value_type(a);
        if ty.bits() >= 32 {
            return self.divide_wide(op, signed, a, b, literal);
        }
        // In 32 bits a narrow division cannot overflow, and truncating it wraps.
        let extend = |this: &mut Self, value| {
            if signed {
                this.builder.ins().sextend(types::I32, value)
            } else {
                this.builder.ins().uextend(types::I32, value)
            }
        };
        let a = extend(self, a);
        let b = match literal {
            Some(divisor) => self.int(types::I32, divisor as i64),
            None => extend(self, b),
        };
        let result = self.divide_wide(op, signed, a, b, literal);
        self.builder.ins().ireduce(ty, result)
    }

    fn divide_wide(
        &mut self,
        op: BinaryOp,
        signed: bool,
        a: ir::Value,
        b: ir::Value,
        literal: Option<i128>,
    ) -> ir::Value {
        let ty = self.builder.func.dfg.value_type(a);
        let is_div = op == BinaryOp::Div;
        match literal {
            Some(0) => return self.int(ty, 0),
            Some(-1) if is_div => return self.builder.ins().ineg(a),
            Some(-1) => return self.int(ty, 0),
            // Cranelift multiplies by the reciprocal of a constant.
            Some(_) => return self.divide_safely(is_div, signed, a, b),
            None => {}
        }
        let one = self.int(ty, 1);
        let zero = self.int(ty, 0);
        if !signed {
            let is_zero = self.builder.ins().icmp(IntCC::Equal, b, zero);
            let divisor = self.builder.ins().select(is_zero, one, b);
            let result = self.divide_safely(is_div, false, a, divisor);
            return if is_div { self.builder.ins().select(is_zero, zero, result) } else { result };
        }
        // 0 and -1, the divisors that trap, are those with b + 1 <= 1.
        let next = self.builder.ins().iadd(b, one);
        let special = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, next, one);
        let divisor = self.builder.ins().select(special, one, b);
        let result = self.divide_safely(is_div, true, a, divisor);
        if !is_div {
            return result;
        }
        // -(a & b) is 0 for b = 0 and -a for b = -1.
        let masked = self.builder.ins().band(a, b);
        let quotient = self.builder.ins().ineg(masked);
        self.builder.ins().select(special, quotient, result)
    }

    /// Division by something that is neither 0 nor (signed) -1.
    fn divide_safely(&mut self, is_div: bool, signed: bool, a: ir::Value, b: ir::Value) -> ir::Value {
        match (is_div, signed) {
            (true, true) => self.builder.ins().sdiv(a, b),
            (true, false) => self.builder.ins().udiv(a, b),
            (false, true) => self.builder.ins().srem(a, b),
            (false, false) => self.builder.ins().urem(a, b),
        }
    }

    /// Whether integer arithmetic overflows.
    pub(super) fn overflows(&mut self, op: OverflowOp, a: Handle<Value>, b: Handle<Value>) -> ir::Value {
        if self.ty(a).scalar() == Some(Scalar::I128) {
            let (a, b) = (self.value(a), self.value(b));
            return self.overflows_i128(op, a, b);
        }
        self.overflowing((op, a, b)).1
    }

    /// Result and overflow by one instruction, which the other of the two uses again.
    fn overflowing(&mut self, key: OverflowKey) -> (ir::Value, ir::Value) {
        if let Some(&(_, value, overflow)) = self.frame.overflow_values.iter().find(|entry| entry.0 == key) {
            return (value, overflow);
        }
        let (op, a, b) = key;
        let signed = is_signed(self.ty(a));
        let (a, b) = (self.value(a), self.value(b));
        let (value, overflow) = match (op, signed) {
            (OverflowOp::Add, true) => self.builder.ins().sadd_overflow(a, b),
            (OverflowOp::Add, false) => self.builder.ins().uadd_overflow(a, b),
            (OverflowOp::Sub, true) => self.builder.ins().ssub_overflow(a, b),
            (OverflowOp::Sub, false) => self.builder.ins().usub_overflow(a, b),
            (OverflowOp::Mul, true) => self.builder.ins().smul_overflow(a, b),
            (OverflowOp::Mul, false) => self.builder.ins().umul_overflow(a, b),
        };
        self.frame.overflow_values.push((key, value, overflow));
        (value, overflow)
    }
}
