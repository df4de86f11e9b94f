//! Arithmetic of at most 64 bits. Narrow integers are computed in 32 bits and extended again, so that a register always holds
//! the value itself.

use kelpie_kir::{BinaryOp, Expr, Handle, Literal, OverflowOp, Scalar, UnaryOp, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, arithmetic, bits};
use crate::BackendError;

impl Printer<'_> {
    /// Brings the result of 32-bit arithmetic back to a narrow type.
    pub fn narrow(&mut self, scalar: Scalar, word: Operand) -> Operand {
        let from = match scalar {
            Scalar::I8 => "s32.s8",
            Scalar::U8 => "u32.u8",
            Scalar::I16 => "s32.s16",
            Scalar::U16 => "u32.u16",
            _ => return word,
        };
        let (word, result) = (self.in_register(word, Class::Word), self.register(Class::Word));
        instruction!(self, "cvt.{from} {result}, {word}");
        result
    }

    /// The bits of a narrow integer, extended by zeros whatever its sign.
    fn zero_extended(&mut self, scalar: Scalar, word: Operand) -> Operand {
        match scalar {
            Scalar::I8 => self.narrow(Scalar::U8, word),
            Scalar::I16 => self.narrow(Scalar::U16, word),
            _ => word,
        }
    }

    /// An operator with one operand.
    pub fn unary(&mut self, op: UnaryOp, a: Handle<Value>) -> Piece {
        let scalar = self.scalar(a);
        if scalar == Scalar::I128 {
            return Piece::Two(self.unary_wide(op, self.piece(a).wide()));
        }
        let a = self.operand_register(a);
        if matches!(op, UnaryOp::Popcount | UnaryOp::Clz | UnaryOp::Ffs) {
            return Piece::One(self.count_bits(op, scalar, a));
        }
        if matches!(op, UnaryOp::Abs | UnaryOp::Neg) && scalar.is_float() {
            return Piece::One(self.sign(op, scalar, a));
        }
        let class = Class::of(scalar.into());
        let (result, ty) = (self.register(class), arithmetic(scalar));
        match op {
            UnaryOp::Not if scalar == Scalar::Bool => instruction!(self, "not.pred {result}, {a}"),
            UnaryOp::Not => instruction!(self, "not.{} {result}, {a}", bits(scalar)),
            UnaryOp::Floor => instruction!(self, "cvt.rmi.{ty}.{ty} {result}, {a}"),
            UnaryOp::Ceil => instruction!(self, "cvt.rpi.{ty}.{ty} {result}, {a}"),
            UnaryOp::Trunc => instruction!(self, "cvt.rzi.{ty}.{ty} {result}, {a}"),
            UnaryOp::RoundEven => instruction!(self, "cvt.rni.{ty}.{ty} {result}, {a}"),
            UnaryOp::Sqrt => instruction!(self, "sqrt.rn.{ty} {result}, {a}"),
            _ => instruction!(self, "neg.s{} {result}, {a}", &bits(scalar)[1..]),
        }
        Piece::One(self.narrow(scalar, result))
    }

    /// The absolute value of a float or its negation, by the sign's bit: for NaN the language leaves open what its own
    /// instructions give, and the signs of NaN make different groups.
    fn sign(&mut self, op: UnaryOp, scalar: Scalar, a: Operand) -> Operand {
        let (class, ty, sign) = match scalar {
            Scalar::F32 => (Class::Word, "b32", 0x8000_0000i64),
            _ => (Class::Long, "b64", i64::MIN),
        };
        let (before, after) = (self.register(class), self.register(class));
        instruction!(self, "mov.{ty} {before}, {a}");
        match op {
            UnaryOp::Abs if scalar == Scalar::F32 => {
                instruction!(self, "and.b32 {after}, {before}, {}", sign - 1)
            }
            UnaryOp::Abs => instruction!(self, "and.b64 {after}, {before}, {}", i64::MAX),
            _ => instruction!(self, "xor.{ty} {after}, {before}, {sign}"),
        }
        let result = self.register(Class::of(scalar.into()));
        instruction!(self, "mov.{ty} {result}, {after}");
        result
    }

    fn count_bits(&mut self, op: UnaryOp, scalar: Scalar, a: Operand) -> Operand {
        let a = self.zero_extended(scalar, a);
        let ty = bits(scalar);
        let result = self.register(Class::Word);
        match op {
            UnaryOp::Popcount => instruction!(self, "popc.{ty} {result}, {a}"),
            UnaryOp::Clz => {
                instruction!(self, "clz.{ty} {result}, {a}");
                if scalar.bits() < 32 {
                    let less = self.register(Class::Word);
                    instruction!(self, "sub.u32 {less}, {result}, {}", 32 - scalar.bits());
                    return less;
                }
            }
            _ => {
                let (reversed, zeros, next) = (
                    self.register(if ty == "b32" { Class::Word } else { Class::Long }),
                    self.register(Class::Word),
                    self.register(Class::Word),
                );
                let none = self.register(Class::Predicate);
                instruction!(self, "brev.{ty} {reversed}, {a}");
                instruction!(self, "clz.{ty} {zeros}, {reversed}");
                instruction!(self, "add.u32 {next}, {zeros}, 1");
                instruction!(self, "setp.eq.{ty} {none}, {a}, 0");
                instruction!(self, "selp.b32 {result}, 0, {next}, {none}");
            }
        }
        result
    }

    /// An operator with two operands of one type.
    pub fn binary(
        &mut self,
        op: BinaryOp,
        a: Handle<Value>,
        b: Handle<Value>,
    ) -> Result<Piece, BackendError> {
        let scalar = self.scalar(a);
        if scalar == Scalar::I128 {
            return self.binary_wide(op, a, b);
        }
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) {
            return self.divide(op, a, b);
        }
        if matches!(op, BinaryOp::Shl | BinaryOp::Shr) {
            let count = self.shift_count(scalar, b);
            let a = self.operand(a);
            return Ok(Piece::One(self.shift(op, scalar, a, count)));
        }
        let (a, b) = (self.operand(a), self.operand(b));
        Ok(Piece::One(self.combine(op, scalar, a, b)))
    }

    /// Two operands as one, but for division and shifts.
    pub fn combine(&mut self, op: BinaryOp, scalar: Scalar, a: Operand, b: Operand) -> Operand {
        let result = self.register(Class::of(scalar.into()));
        let ty = arithmetic(scalar);
        let (rounding, low) = if scalar.is_float() { (".rn", "") } else { ("", ".lo") };
        let logical = if scalar == Scalar::Bool { "pred" } else { bits(scalar) };
        match op {
            // With its rounding named, an operation is never fused with another.
            BinaryOp::Add => instruction!(self, "add{rounding}.{ty} {result}, {a}, {b}"),
            BinaryOp::Sub => instruction!(self, "sub{rounding}.{ty} {result}, {a}, {b}"),
            BinaryOp::Mul => instruction!(self, "mul{rounding}{low}.{ty} {result}, {a}, {b}"),
            BinaryOp::And => instruction!(self, "and.{logical} {result}, {a}, {b}"),
            BinaryOp::Or => instruction!(self, "or.{logical} {result}, {a}, {b}"),
            BinaryOp::Xor => instruction!(self, "xor.{logical} {result}, {a}, {b}"),
            BinaryOp::Min => instruction!(self, "min.{ty} {result}, {a}, {b}"),
            BinaryOp::Max => instruction!(self, "max.{ty} {result}, {a}, {b}"),
            _ => instruction!(self, "mul.hi.{ty} {result}, {a}, {b}"),
        }
        match op {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => self.narrow(scalar, result),
            _ => result,
        }
    }

    /// Shifts by a count that is below the width.
    pub fn shift(&mut self, op: BinaryOp, scalar: Scalar, a: Operand, count: Operand) -> Operand {
        let result = self.register(Class::of(scalar.into()));
        match op {
            BinaryOp::Shl => instruction!(self, "shl.{} {result}, {a}, {count}", bits(scalar)),
            _ => instruction!(self, "shr.{} {result}, {a}, {count}", arithmetic(scalar)),
        }
        self.narrow(scalar, result)
    }

    /// The distance of a shift modulo the width, in a word.
    pub fn shift_count(&mut self, scalar: Scalar, b: Handle<Value>) -> Operand {
        let mask = i64::from(scalar.bits() - 1);
        if let Expr::Literal(Literal::Int(_, count)) = self.frame.function.values[b].expr {
            return Operand::Integer(count as i64 & mask);
        }
        let operand = self.operand_register(b);
        let word = match Class::of(self.ty(b)) {
            Class::Long => {
                let word = self.register(Class::Word);
                instruction!(self, "cvt.u32.u64 {word}, {operand}");
                word
            }
            _ => operand,
        };
        let result = self.register(Class::Word);
        instruction!(self, "and.b32 {result}, {word}, {mask}");
        result
    }

    /// Whether arithmetic leaves the range of its type.
    pub fn overflows(
        &mut self,
        op: OverflowOp,
        a: Handle<Value>,
        b: Handle<Value>,
    ) -> Result<Piece, BackendError> {
        let scalar = self.scalar(a);
        if scalar == Scalar::I128 {
            return self.overflows_wide(op, self.piece(a).wide(), self.piece(b).wide());
        }
        let (a, b) = (self.operand(a), self.operand(b));
        Ok(Piece::One(match (scalar.bits(), scalar.is_signed()) {
            (64, true) => self.overflows_long(op, a, b),
            (64, false) => self.overflows_unsigned_long(op, a, b),
            _ => self.overflows_exactly(op, scalar, a, b),
        }))
    }

    /// Up to 32 bits: the exact result in 64 bits is not what its own lowest bits are.
    fn overflows_exactly(&mut self, op: OverflowOp, scalar: Scalar, a: Operand, b: Operand) -> Operand {
        let (a, b) = (self.extended(scalar, a), self.extended(scalar, b));
        let op = match op {
            OverflowOp::Add => BinaryOp::Add,
            OverflowOp::Sub => BinaryOp::Sub,
            OverflowOp::Mul => BinaryOp::Mul,
        };
        let exact = self.combine(op, Scalar::I64, a, b);
        let word = self.register(Class::Word);
        instruction!(self, "cvt.u32.u64 {word}, {exact}");
        let word = self.narrow(scalar, word);
        let again = self.extended(scalar, word);
        let result = self.register(Class::Predicate);
        instruction!(self, "setp.ne.s64 {result}, {exact}, {again}");
        result
    }

    /// An integer of at most 32 bits in 64 bits, by its sign.
    pub fn extended(&mut self, scalar: Scalar, word: Operand) -> Operand {
        let (word, long) = (self.in_register(word, Class::Word), self.register(Class::Long));
        let sign = if scalar.is_signed() { "s" } else { "u" };
        instruction!(self, "cvt.{sign}64.{sign}32 {long}, {word}");
        long
    }

    fn overflows_long(&mut self, op: OverflowOp, a: Operand, b: Operand) -> Operand {
        let result = self.register(Class::Predicate);
        if op == OverflowOp::Mul {
            let low = self.combine(BinaryOp::Mul, Scalar::I64, a, b);
            let high = self.combine(BinaryOp::MulHi, Scalar::I64, a, b);
            let sign = self.shift(BinaryOp::Shr, Scalar::I64, low, Operand::Integer(63));
            instruction!(self, "setp.ne.s64 {result}, {high}, {sign}");
            return result;
        }
        let op = if op == OverflowOp::Add { BinaryOp::Add } else { BinaryOp::Sub };
        let outcome = self.combine(op, Scalar::I64, a, b);
        let wrong = self.wrong_sign(op, (a, b), outcome);
        instruction!(self, "setp.lt.s64 {result}, {wrong}, 0");
        result
    }

    /// Negative where the sign of a sum or difference cannot be: both operands of a sum have the other one; those of a
    /// difference have different ones, and the outcome not the first one's.
    pub fn wrong_sign(&mut self, op: BinaryOp, (a, b): (Operand, Operand), outcome: Operand) -> Operand {
        let first = self.combine(BinaryOp::Xor, Scalar::I64, a, outcome);
        let second = match op {
            BinaryOp::Add => self.combine(BinaryOp::Xor, Scalar::I64, b, outcome),
            _ => self.combine(BinaryOp::Xor, Scalar::I64, a, b),
        };
        self.combine(BinaryOp::And, Scalar::I64, first, second)
    }

    fn overflows_unsigned_long(&mut self, op: OverflowOp, a: Operand, b: Operand) -> Operand {
        let result = self.register(Class::Predicate);
        match op {
            OverflowOp::Add => {
                let sum = self.combine(BinaryOp::Add, Scalar::U64, a, b);
                instruction!(self, "setp.lt.u64 {result}, {sum}, {a}");
            }
            OverflowOp::Sub => instruction!(self, "setp.lt.u64 {result}, {a}, {b}"),
            OverflowOp::Mul => {
                let high = self.combine(BinaryOp::MulHi, Scalar::U64, a, b);
                instruction!(self, "setp.ne.u64 {result}, {high}, 0");
            }
        }
        result
    }
}
