//! Expressions: which instruction each becomes.

use cranelift_codegen::ir::{self, InstBuilder, types};
use kelpie_kir::{Builtin, Expr, Handle, Literal, Scalar, Type, Value};

use super::function::{Operand, Translator};
use super::types::{float_condition, int_condition, is_signed, value_type};

impl Translator<'_, '_> {
    /// Evaluates a value where its `Let` stands.
    pub(super) fn let_value(&mut self, handle: Handle<Value>) {
        let Some(value) = self.frame.function.values.get(handle) else {
            return self.fail(format!("value %{} does not exist", handle.index()));
        };
        if value.ty.lanes().is_some() {
            return self.let_vector(handle, value.expr, value.ty);
        }
        let operand = self.expr(value.expr, value.ty);
        self.set(handle, operand);
    }

    fn expr(&mut self, expr: Expr, ty: Type) -> Operand {
        let value = match expr {
            Expr::Literal(literal) => self.literal_value(literal),
            Expr::Param(index) => match self.frame.params.get(index as usize) {
                Some(&param) => return param,
                None => return self.poison(ty, format!("parameter {index} does not exist")),
            },
            Expr::Shared(array) => match self.frame.shared_offsets.get(array.index()) {
                Some(&offset) => return self.shifted_address(self.worker.shared, i64::from(offset)),
                None => return self.poison(ty, "a shared array does not exist"),
            },
            Expr::Read(var) => match self.frame.vars.get(var.index()) {
                Some(variables) => match variables.first().copied() {
                    Some(variable) => self.builder.use_var(variable),
                    None => return self.poison(ty, "a variable without a register"),
                },
                None => return self.poison(ty, "a variable does not exist"),
            },
            Expr::Builtin(builtin) => self.builtin(builtin),
            Expr::Unary(op, a) => self.unary(op, a),
            Expr::Binary(op, a, b) => self.binary(op, a, b),
            Expr::Overflows(op, a, b) => self.overflows(op, a, b),
            Expr::Compare(op, a, b) => {
                let operand_type = self.ty(a);
                let (a, b) = (self.value(a), self.value(b));
                if operand_type.scalar().is_some_and(Scalar::is_float) {
                    self.builder.ins().fcmp(float_condition(op), a, b)
                } else {
                    self.builder.ins().icmp(int_condition(op, is_signed(operand_type)), a, b)
                }
            }
            Expr::Select { condition, accept, reject } => {
                let condition = self.value(condition);
                let (accept, reject) = (self.value(accept), self.value(reject));
                self.select(condition, accept, reject)
            }
            Expr::Convert(a, to) => self.convert(a, to),
            Expr::Bitcast(a, to) => return self.bitcast(a, to),
            Expr::Offset { pointer, index } => return self.offset_address(pointer, index),
            Expr::Field { pointer, field } => return self.field_address(pointer, field),
            Expr::Load { pointer, reads } => return self.load(pointer, ty, reads.is_read_only()),
            Expr::LoadBytes(pointer) => return self.load_bytes(pointer),
            Expr::LoadField { pointer, field } => return self.load_field(pointer, field, ty),
            // One lane: every lane operation sees only this thread.
            Expr::Ballot(a) => {
                let a = self.value(a);
                self.builder.ins().uextend(types::I32, a)
            }
            Expr::Any(a) | Expr::All(a) | Expr::Shuffle { value: a, .. } => return self.operand(a),
            Expr::Lane { vector, lane } => self.lane(vector, lane),
            Expr::Reduce(op, a) => self.reduce(op, a),
            Expr::MaskBits(mask) => self.mask_bits(mask),
            Expr::Splat { .. }
            | Expr::Iota(..)
            | Expr::LoadVector { .. }
            | Expr::BitsMask { .. }
            | Expr::FirstLanes { .. } => return self.poison(ty, "a vector is no scalar"),
            Expr::Result => return self.poison(ty, "a result is evaluated by a let"),
        };
        Operand::Value(value)
    }

    fn poison(&mut self, ty: Type, message: impl Into<String>) -> Operand {
        self.fail(message);
        Operand::Value(self.zero(ty))
    }

    fn literal_value(&mut self, literal: Literal) -> ir::Value {
        match literal {
            Literal::Bool(value) => self.int(types::I8, i64::from(value)),
            Literal::Int(Scalar::I128, value) => self.int128(value),
            Literal::Int(scalar, value) => self.int(value_type(scalar.into()), value as i64),
            Literal::F32(bits) => self.builder.ins().f32const(f32::from_bits(bits)),
            Literal::F64(bits) => self.builder.ins().f64const(f64::from_bits(bits)),
        }
    }

    fn builtin(&mut self, builtin: Builtin) -> ir::Value {
        match builtin {
            Builtin::ThreadId | Builtin::LaneId => self.int(types::I32, 0),
            Builtin::BlockDim | Builtin::Lanes => self.int(types::I32, 1),
            Builtin::BlockId => self.worker.block_id,
            Builtin::GridDim => self.worker.grid_dim,
            Builtin::Status => self.status(),
        }
    }

    /// `condition ? accept : reject` in registers. An `i128` goes by halves: Cranelift's optimiser would turn a
    /// `select` of the operands of its own comparison into a minimum, which does not exist at that width.
    pub(super) fn select(&mut self, condition: ir::Value, accept: ir::Value, reject: ir::Value) -> ir::Value {
        if self.builder.func.dfg.value_type(accept) != types::I128 {
            return self.builder.ins().select(condition, accept, reject);
        }
        let (accept_low, accept_high) = self.builder.ins().isplit(accept);
        let (reject_low, reject_high) = self.builder.ins().isplit(reject);
        let low = self.builder.ins().select(condition, accept_low, reject_low);
        let high = self.builder.ins().select(condition, accept_high, reject_high);
        self.builder.ins().iconcat(low, high)
    }
}
