//! Conversions by value between scalar types.

use cranelift_codegen::ir::{self, InstBuilder, types};
use kelpie_kir::{Handle, Scalar, Value};

use super::function::{Operand, Translator};
use super::helpers::Helper;
use super::types::scalar_type;

impl Translator<'_, '_> {
    /// As Rust's `as`.
    pub(super) fn convert(&mut self, a: Handle<Value>, to: Scalar) -> ir::Value {
        let (value, from) = match self.operand(a) {
            // Not negative where it was extended with zeros.
            Operand::Extended { wide, .. } => (wide, Some(Scalar::I64)),
            _ => (self.value(a), self.ty(a).scalar()),
        };
        match from {
            None => {
                self.fail("a pointer is converted");
                value
            }
            Some(from) => self.convert_scalar(value, from, to),
        }
    }

    /// The same of a scalar in a register.
    pub(super) fn convert_scalar(&mut self, value: ir::Value, from: Scalar, to: Scalar) -> ir::Value {
        match (from.is_float(), to.is_float()) {
            (true, true) => self.float_to_float(value, from, to),
            (true, false) => self.float_to_int(value, from, to),
            (false, true) => self.int_to_float(value, from, to),
            (false, false) => self.int_to_int(value, from, to),
        }
    }

    fn float_to_float(&mut self, value: ir::Value, from: Scalar, to: Scalar) -> ir::Value {
        match (from, to) {
            (Scalar::F32, Scalar::F64) => self.builder.ins().fpromote(types::F64, value),
            (Scalar::F64, Scalar::F32) => self.builder.ins().fdemote(types::F32, value),
            _ => value,
        }
    }

    /// Truncates or extends by the sign of the operand.
    pub(super) fn int_to_int(&mut self, value: ir::Value, from: Scalar, to: Scalar) -> ir::Value {
        let (from_type, to_type) = (scalar_type(from), scalar_type(to));
        if from_type == to_type {
            value
        } else if from_type.bits() > to_type.bits() {
            self.builder.ins().ireduce(to_type, value)
        } else if from.is_signed() {
            self.builder.ins().sextend(to_type, value)
        } else {
            self.builder.ins().uextend(to_type, value)
        }
    }

    /// Saturates; a NaN gives 0.
    fn float_to_int(&mut self, value: ir::Value, from: Scalar, to: Scalar) -> ir::Value {
        match to {
            Scalar::I128 => {
                let helper = if from == Scalar::F32 { Helper::F32ToI128 } else { Helper::F64ToI128 };
                let out = self.scratch();
                self.call_helper(helper, &[value, out]);
                self.load_scratch(out)
            }
            Scalar::I8 | Scalar::I16 => {
                let (low, high) = if to == Scalar::I8 {
                    (i64::from(i8::MIN), i64::from(i8::MAX))
                } else {
                    (i64::from(i16::MIN), i64::from(i16::MAX))
                };
                let wide = self.builder.ins().fcvt_to_sint_sat(types::I32, value);
                let (low, high) = (self.int(types::I32, low), self.int(types::I32, high));
                let wide = self.builder.ins().smax(wide, low);
                let wide = self.builder.ins().smin(wide, high);
                self.builder.ins().ireduce(scalar_type(to), wide)
            }
            Scalar::U8 | Scalar::U16 => {
                let wide = self.builder.ins().fcvt_to_uint_sat(types::I32, value);
                let high = if to == Scalar::U8 { i64::from(u8::MAX) } else { i64::from(u16::MAX) };
                let high = self.int(types::I32, high);
                let wide = self.builder.ins().umin(wide, high);
                self.builder.ins().ireduce(scalar_type(to), wide)
            }
            signed if signed.is_signed() => self.builder.ins().fcvt_to_sint_sat(scalar_type(signed), value),
            unsigned => self.builder.ins().fcvt_to_uint_sat(scalar_type(unsigned), value),
        }
    }

    /// Rounds to the nearest, ties to even.
    fn int_to_float(&mut self, value: ir::Value, from: Scalar, to: Scalar) -> ir::Value {
        let float = scalar_type(to);
        match from {
            Scalar::I128 => {
                let helper = if to == Scalar::F32 { Helper::I128ToF32 } else { Helper::I128ToF64 };
                let words = self.words(value);
                self.call_helper(helper, &words).unwrap_or(value)
            }
            Scalar::I8 | Scalar::I16 | Scalar::Bool | Scalar::U8 | Scalar::U16 => {
                let wide = self.int_to_int(value, from, Scalar::I32);
                self.builder.ins().fcvt_from_sint(float, wide)
            }
            Scalar::U32 => {
                let wide = self.builder.ins().uextend(types::I64, value);
                self.builder.ins().fcvt_from_sint(float, wide)
            }
            signed if signed.is_signed() => self.builder.ins().fcvt_from_sint(float, value),
            _ => self.builder.ins().fcvt_from_uint(float, value),
        }
    }
}
