//! Expressions of random modules.

use super::Generator;
use crate::builder::V;
use crate::module::*;
use crate::types::{Scalar, Type};

impl Generator {
    /// A scalar value in scope, of any type.
    pub(super) fn any_value(&mut self) -> V {
        if self.pool.is_empty() || self.random.chance(5) {
            let scalar = self.random.pick(&Scalar::ALL);
            return self.literal(scalar);
        }
        // Later values more often: they depend on more.
        let (one, other) = (self.random.below(self.pool.len()), self.random.below(self.pool.len()));
        self.pool[one.max(other)]
    }

    /// A value of a type: one in scope, one converted, or a literal.
    pub(super) fn value(&mut self, scalar: Scalar) -> V {
        let mut found = Vec::new();
        for &value in &self.pool {
            if self.builder.ty(value) == Type::Scalar(scalar) {
                found.push(value);
            }
        }
        match self.random.below(100) {
            0..65 if !found.is_empty() => self.random.pick(&found),
            0..80 if scalar != Scalar::Bool => {
                let value = self.any_value();
                self.builder.convert(value, scalar)
            }
            0..80 => {
                let (a, b) = self.same_type(|_| true);
                let op = self.compare_op(a);
                self.builder.compare(op, a, b)
            }
            _ => self.literal(scalar),
        }
    }

    /// Two values of one type.
    fn same_type(&mut self, accepts: impl Fn(Scalar) -> bool) -> (V, V) {
        let preferred = self.any_value();
        let scalar = self.builder.scalar(preferred);
        if accepts(scalar) {
            // Not `value`, which may come back here.
            let other = self.any_value();
            let same = self.builder.scalar(other) == scalar;
            return (preferred, if same { other } else { self.literal(scalar) });
        }
        let accepted: Vec<Scalar> = Scalar::ALL.into_iter().filter(|&scalar| accepts(scalar)).collect();
        let scalar = self.random.pick(&accepted);
        let (a, b) = (self.value(scalar), self.value(scalar));
        (a, b)
    }

    fn compare_op(&mut self, operand: V) -> CompareOp {
        let ops = [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];
        let most = if self.builder.scalar(operand) == Scalar::Bool { 2 } else { 6 };
        self.random.pick(&ops[..most])
    }

    /// A literal; the edges of the type as often as others.
    pub(super) fn literal(&mut self, scalar: Scalar) -> V {
        let bits = self.random.next();
        match scalar {
            Scalar::Bool => self.builder.bool(bits & 1 == 1),
            Scalar::F32 => {
                let edges = [
                    0.0,
                    -0.0,
                    1.0,
                    -1.5,
                    3.0e9,
                    f32::MAX,
                    f32::MIN_POSITIVE,
                    1e-45,
                    f32::INFINITY,
                    f32::NAN,
                ];
                let edge = self.random.pick(&edges);
                let value = if self.random.chance(60) { edge } else { f32::from_bits(bits as u32) };
                self.builder.f32(value)
            }
            Scalar::F64 => {
                let edges = [
                    0.0,
                    -0.0,
                    1.0,
                    -2.5,
                    1e19,
                    f64::MAX,
                    f64::MIN_POSITIVE,
                    5e-324,
                    f64::NEG_INFINITY,
                    f64::NAN,
                ];
                let edge = self.random.pick(&edges);
                let value = if self.random.chance(60) { edge } else { f64::from_bits(bits) };
                self.builder.f64(value)
            }
            integer => {
                let wide = (i128::from(bits as i64) << 64) | i128::from(self.random.next());
                let small = i128::from(bits % 16);
                let value = match self.random.below(5) {
                    0 => -1,
                    1 => 1i128.checked_shl(integer.bits() - 1).unwrap_or(0),
                    2 => 1i128.checked_shl(integer.bits() - 1).unwrap_or(0).wrapping_sub(1),
                    3 => wide,
                    _ => small,
                };
                self.builder.int(integer, wrapped(integer, value))
            }
        }
    }

    /// A value as `i64` that is the same on every device.
    pub(super) fn as_i64(&mut self, value: V) -> V {
        match self.builder.scalar(value) {
            // A conversion would lose most of it.
            Scalar::F64 => {
                let bits = self.bits_of(value, Scalar::I64);
                self.builder.convert(bits, Scalar::I64)
            }
            Scalar::F32 => {
                let bits = self.bits_of(value, Scalar::I32);
                self.builder.convert(bits, Scalar::I64)
            }
            _ => self.builder.convert(value, Scalar::I64),
        }
    }

    /// The bits of a float, 0 for a NaN: which NaN it is, is the device's.
    fn bits_of(&mut self, float: V, integer: Scalar) -> V {
        let number = self.builder.eq(float, float);
        let bits = self.builder.bitcast(float, integer);
        let zero = self.builder.zero(integer);
        self.builder.select(number, bits, zero)
    }

    /// An expression of any kind.
    pub(super) fn expression(&mut self) -> V {
        match self.random.below(100) {
            0..15 => self.unary(),
            15..45 => self.binary(),
            45..50 => {
                let (a, b) = self.same_type(Scalar::is_integer);
                let op = self.random.pick(&[OverflowOp::Add, OverflowOp::Sub, OverflowOp::Mul]);
                self.builder.overflows(op, a, b)
            }
            50..58 => {
                let (a, b) = self.same_type(|_| true);
                let op = self.compare_op(a);
                self.builder.compare(op, a, b)
            }
            58..65 => {
                let condition = self.value(Scalar::Bool);
                let (accept, reject) = self.same_type(|_| true);
                self.builder.select(condition, accept, reject)
            }
            65..72 => {
                let value = self.any_value();
                let to = self.random.pick(&Scalar::ALL[1..]);
                self.builder.value(Expr::Convert(value, to))
            }
            72..76 => self.bitcast(),
            76..80 if !self.vars.is_empty() => {
                let (var, _) = self.random.pick(&self.vars);
                self.builder.read(var)
            }
            80..84 if self.may_call() => self.call(),
            84..86 if self.lane_operations && self.kernel.is_some() => {
                let builtins = [Builtin::ThreadId, Builtin::LaneId, Builtin::Lanes, Builtin::BlockDim];
                let builtin = self.random.pick(&builtins);
                self.builder.builtin(builtin)
            }
            _ => self.memory_value(),
        }
    }

    fn unary(&mut self) -> V {
        use UnaryOp::*;
        let ops = [Neg, Not, Popcount, Clz, Ffs, Floor, Ceil, Trunc, RoundEven, Abs, Sqrt];
        let op = self.random.pick(&ops);
        let (operand, _) = self.same_type(|scalar| match op {
            Neg => scalar != Scalar::Bool,
            Not => !scalar.is_float(),
            Popcount | Clz | Ffs => scalar.is_integer() && scalar != Scalar::I128,
            Floor | Ceil | Trunc | RoundEven | Abs | Sqrt => scalar.is_float(),
        });
        self.builder.unary(op, operand)
    }

    fn binary(&mut self) -> V {
        use BinaryOp::*;
        let ops = [Add, Sub, Mul, Div, Rem, And, Or, Xor, Shl, Shr, Min, Max, MulHi];
        let op = self.random.pick(&ops);
        let (a, b) = self.same_type(|scalar| match op {
            Add | Sub | Mul | Div | Rem => scalar != Scalar::Bool,
            And | Or | Xor => !scalar.is_float(),
            Shl | Shr | Min | Max => scalar.is_integer(),
            MulHi => matches!(scalar, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64),
        });
        self.builder.binary(op, a, b)
    }

    fn bitcast(&mut self) -> V {
        let (value, _) = self.same_type(|scalar| scalar != Scalar::Bool);
        let from = self.builder.scalar(value);
        let same_width = |to: &Scalar| to.bits() == from.bits() && *to != from;
        let targets: Vec<Scalar> = Scalar::ALL.into_iter().filter(same_width).collect();
        match (from, targets.as_slice()) {
            (_, []) => value,
            (Scalar::F32, _) => self.bits_of(value, Scalar::U32),
            (Scalar::F64, _) => self.bits_of(value, Scalar::U64),
            (_, targets) => {
                let to = self.random.pick(targets);
                self.builder.bitcast(value, to)
            }
        }
    }

    /// Calls in nested loops would multiply the time that a kernel takes.
    fn may_call(&self) -> bool {
        !self.functions.is_empty() && self.open_loops <= usize::from(self.kernel.is_some())
    }

    fn call(&mut self) -> V {
        let callee = self.functions[self.random.below(self.functions.len())].clone();
        let mut args = Vec::new();
        for ty in &callee.params {
            let arg = match (ty, self.input) {
                (Type::Scalar(scalar), _) => self.value(*scalar),
                (Type::Ptr(..), Some((pointer, length))) => {
                    args.push(pointer);
                    self.builder.bitcast(length, Scalar::I64)
                }
                // A function without the input cannot call one with it.
                (Type::Ptr(..), None) | (Type::Vector(..) | Type::Mask(_), _) => return self.any_value(),
            };
            args.push(arg);
        }
        // The length was given with the pointer.
        if matches!(callee.params.first(), Some(Type::Ptr(..))) {
            args.remove(2);
        }
        self.builder.call(callee.handle, &args)
    }
}

/// The value of an integer type with the low bits of `value`.
fn wrapped(scalar: Scalar, value: i128) -> i128 {
    let unused = 128 - scalar.bits();
    let shifted = value.wrapping_shl(unused);
    if scalar.is_signed() { shifted >> unused } else { ((shifted as u128) >> unused) as i128 }
}
