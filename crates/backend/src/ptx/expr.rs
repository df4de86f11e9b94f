//! Expressions, but for arithmetic, conversions and memory.

use kelpie_kir::{Builtin, CompareOp, Expr, Handle, Literal, Scalar, Type, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, Wide, arithmetic};
use crate::BackendError;

impl Printer<'_> {
    /// Evaluates an expression of a scalar or pointer type here.
    pub fn expression(&mut self, expr: &Expr, ty: Type) -> Result<Piece, BackendError> {
        Ok(match *expr {
            Expr::Literal(value) => self.literal(value),
            Expr::Param(index) => self.frame.params[index as usize],
            Expr::Shared(array) => Piece::One(self.shared[array.index()]),
            Expr::Read(var) => {
                let (from, to) = (self.frame.vars[var.index()][self.lane], self.piece_for(ty));
                self.move_piece(to, from);
                to
            }
            Expr::Builtin(builtin) => Piece::One(self.builtin(builtin)),
            Expr::Unary(op, a) => self.unary(op, a),
            Expr::Binary(op, a, b) => self.binary(op, a, b)?,
            Expr::Overflows(op, a, b) => self.overflows(op, a, b)?,
            Expr::Compare(op, a, b) => Piece::One(self.compare(op, a, b)),
            Expr::Select { condition, accept, reject } => {
                let (condition, accept, reject) =
                    (self.operand(condition), self.piece(accept), self.piece(reject));
                self.select(condition, accept, reject, ty)
            }
            Expr::Convert(a, to) => self.convert(a, to)?,
            Expr::Bitcast(a, to) => self.bitcast(a, to),
            Expr::Offset { pointer, index } => self.offset(pointer, index),
            Expr::Field { pointer, field } => self.field(pointer, field),
            Expr::Load { pointer, reads } => self.load(pointer, reads),
            Expr::LoadBytes(pointer) => self.load_bytes(pointer),
            Expr::LoadField { pointer, field } => self.load_field(pointer, field, ty),
            Expr::Ballot(_) | Expr::Any(_) | Expr::All(_) | Expr::Shuffle { .. } => self.lane_operation(expr),
            Expr::Lane { vector, lane } => self.element(vector, lane),
            Expr::Reduce(op, a) => self.reduce(op, a),
            Expr::MaskBits(mask) => Piece::One(self.mask_bits(mask)),
            // Vectors, which are printed element by element.
            Expr::Splat { .. }
            | Expr::Iota(..)
            | Expr::LoadVector { .. }
            | Expr::BitsMask { .. }
            | Expr::FirstLanes { .. }
            | Expr::Result => Piece::One(Operand::Integer(0)),
        })
    }

    /// A literal: an immediate, or for a truth value a register.
    pub fn literal(&mut self, value: Literal) -> Piece {
        Piece::One(match value {
            Literal::Bool(value) => {
                let register = self.register(Class::Predicate);
                self.move_to(register, Operand::Integer(i64::from(value)));
                register
            }
            Literal::Int(Scalar::I128, value) => {
                let (low, high) = (Operand::Integer(value as i64), Operand::Integer((value >> 64) as i64));
                return Piece::Two(Wide { low, high });
            }
            Literal::Int(_, value) => Operand::Integer(value as i64),
            Literal::F32(bits) => Operand::Single(bits),
            Literal::F64(bits) => Operand::Double(bits),
        })
    }

    fn builtin(&mut self, builtin: Builtin) -> Operand {
        let register = self.register(Class::Word);
        match builtin {
            Builtin::ThreadId => instruction!(self, "mov.u32 {register}, %tid.x"),
            Builtin::BlockId => instruction!(self, "mov.u32 {register}, %ctaid.x"),
            Builtin::BlockDim => instruction!(self, "mov.u32 {register}, %ntid.x"),
            Builtin::GridDim => instruction!(self, "mov.u32 {register}, %nctaid.x"),
            // Blocks have one dimension, so that this is the lane; the special register is read more slowly.
            Builtin::LaneId => {
                let thread = self.register(Class::Word);
                instruction!(self, "mov.u32 {thread}, %tid.x");
                instruction!(self, "and.b32 {register}, {thread}, 31");
            }
            Builtin::Lanes => return Operand::Integer(32),
            Builtin::Status => instruction!(self, "ld.volatile.global.u32 {register}, [{}]", self.status),
        }
        register
    }

    fn compare(&mut self, op: CompareOp, a: Handle<Value>, b: Handle<Value>) -> Operand {
        let ty = self.ty(a);
        let (a, b) = (self.piece(a), self.piece(b));
        match ty {
            Type::Scalar(Scalar::Bool) => self.compare_truths(op, a.low(), b.low()),
            Type::Scalar(Scalar::I128) => self.compare_wide(op, a.wide(), b.wide()),
            _ => {
                let result = self.register(Class::Predicate);
                let suffix = ty.scalar().map_or("u64", arithmetic);
                // Of floats every comparison with a NaN is false but this one.
                let unordered =
                    if ty.scalar().is_some_and(Scalar::is_float) && op == CompareOp::Ne { "u" } else { "" };
                let (a, b) = (a.low(), b.low());
                instruction!(self, "setp.{}{unordered}.{suffix} {result}, {a}, {b}", name(op));
                result
            }
        }
    }

    fn compare_truths(&mut self, op: CompareOp, a: Operand, b: Operand) -> Operand {
        let differ = self.register(Class::Predicate);
        instruction!(self, "xor.pred {differ}, {a}, {b}");
        if op == CompareOp::Ne {
            return differ;
        }
        let result = self.register(Class::Predicate);
        instruction!(self, "not.pred {result}, {differ}");
        result
    }

    /// One of two values of a type.
    pub fn select(&mut self, condition: Operand, accept: Piece, reject: Piece, ty: Type) -> Piece {
        if let (Piece::Two(accept), Piece::Two(reject)) = (accept, reject) {
            let result = self.wide_register();
            instruction!(self, "selp.b64 {}, {}, {}, {condition}", result.low, accept.low, reject.low);
            instruction!(self, "selp.b64 {}, {}, {}, {condition}", result.high, accept.high, reject.high);
            return Piece::Two(result);
        }
        let (accept, reject) = (accept.low(), reject.low());
        let class = Class::of(ty);
        let result = self.register(class);
        if class != Class::Predicate {
            instruction!(self, "selp.{} {result}, {accept}, {reject}, {condition}", class.ty());
            return Piece::One(result);
        }
        let (first, second, not) = (self.register(class), self.register(class), self.register(class));
        instruction!(self, "and.pred {first}, {condition}, {accept}");
        instruction!(self, "not.pred {not}, {condition}");
        instruction!(self, "and.pred {second}, {not}, {reject}");
        instruction!(self, "or.pred {result}, {first}, {second}");
        Piece::One(result)
    }
}

/// A comparison's name.
pub fn name(op: CompareOp) -> &'static str {
    match op {
        CompareOp::Eq => "eq",
        CompareOp::Ne => "ne",
        CompareOp::Lt => "lt",
        CompareOp::Le => "le",
        CompareOp::Gt => "gt",
        CompareOp::Ge => "ge",
    }
}
