//! Arithmetic of 128 bits, in halves of 64.

use kelpie_kir::{BinaryOp, CompareOp, Handle, OverflowOp, Scalar, UnaryOp, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, Wide};
use crate::BackendError;

impl Printer<'_> {
    /// An operator with one operand.
    pub fn unary_wide(&mut self, op: UnaryOp, a: Wide) -> Wide {
        let result = self.wide_register();
        match op {
            UnaryOp::Not => {
                instruction!(self, "not.b64 {}, {}", result.low, a.low);
                instruction!(self, "not.b64 {}, {}", result.high, a.high);
            }
            _ => {
                instruction!(self, "sub.cc.u64 {}, 0, {}", result.low, a.low);
                instruction!(self, "subc.u64 {}, 0, {}", result.high, a.high);
            }
        }
        result
    }

    /// An operator with two operands.
    pub fn binary_wide(
        &mut self,
        op: BinaryOp,
        a: Handle<Value>,
        b: Handle<Value>,
    ) -> Result<Piece, BackendError> {
        let (left, right) = (self.piece(a).wide(), self.piece(b).wide());
        Ok(Piece::Two(match op {
            BinaryOp::Add | BinaryOp::Sub => self.add_wide(op, left, right),
            BinaryOp::Mul => self.multiply_wide(left, right),
            BinaryOp::Div => return self.helper("divide_i128", &[Piece::Two(left), Piece::Two(right)]),
            BinaryOp::Rem => return self.helper("remainder_i128", &[Piece::Two(left), Piece::Two(right)]),
            BinaryOp::Shl | BinaryOp::Shr => {
                let count = self.wide_shift_count(right);
                if op == BinaryOp::Shl { self.shift_left(left, count) } else { self.shift_right(left, count) }
            }
            BinaryOp::Min | BinaryOp::Max => {
                let order = if op == BinaryOp::Min { CompareOp::Lt } else { CompareOp::Gt };
                let first = self.compare_wide(order, left, right);
                return Ok(self.select(first, Piece::Two(left), Piece::Two(right), Scalar::I128.into()));
            }
            _ => Wide {
                low: self.combine(op, Scalar::I64, left.low, right.low),
                high: self.combine(op, Scalar::I64, left.high, right.high),
            },
        }))
    }

    fn add_wide(&mut self, op: BinaryOp, a: Wide, b: Wide) -> Wide {
        let result = self.wide_register();
        let word = if op == BinaryOp::Add { "add" } else { "sub" };
        instruction!(self, "{word}.cc.u64 {}, {}, {}", result.low, a.low, b.low);
        instruction!(self, "{word}c.u64 {}, {}, {}", result.high, a.high, b.high);
        result
    }

    fn multiply_wide(&mut self, a: Wide, b: Wide) -> Wide {
        let low = self.combine(BinaryOp::Mul, Scalar::U64, a.low, b.low);
        let carried = self.combine(BinaryOp::MulHi, Scalar::U64, a.low, b.low);
        let (first, high) = (self.register(Class::Long), self.register(Class::Long));
        instruction!(self, "mad.lo.u64 {first}, {}, {}, {carried}", a.low, b.high);
        instruction!(self, "mad.lo.u64 {high}, {}, {}, {first}", a.high, b.low);
        Wide { low, high }
    }

    fn wide_shift_count(&mut self, count: Wide) -> Operand {
        if let Operand::Integer(count) = count.low {
            return Operand::Integer(count & 127);
        }
        let (word, result) = (self.register(Class::Word), self.register(Class::Word));
        instruction!(self, "cvt.u32.u64 {word}, {}", count.low);
        instruction!(self, "and.b32 {result}, {word}, 127");
        result
    }

    /// `64 - count` and `count - 64`. Whichever is negative is a large unsigned number, by which a shift gives 0.
    fn distances(&mut self, count: Operand) -> (Operand, Operand) {
        let (rest, beyond) = (self.register(Class::Word), self.register(Class::Word));
        instruction!(self, "sub.u32 {rest}, 64, {count}");
        instruction!(self, "sub.u32 {beyond}, {count}, 64");
        (rest, beyond)
    }

    fn shift_left(&mut self, a: Wide, count: Operand) -> Wide {
        let (rest, beyond) = self.distances(count);
        let low = self.shift(BinaryOp::Shl, Scalar::U64, a.low, count);
        let own = self.shift(BinaryOp::Shl, Scalar::U64, a.high, count);
        let carried = self.shift(BinaryOp::Shr, Scalar::U64, a.low, rest);
        let moved = self.shift(BinaryOp::Shl, Scalar::U64, a.low, beyond);
        let high = self.combine(BinaryOp::Or, Scalar::U64, own, carried);
        Wide { low, high: self.combine(BinaryOp::Or, Scalar::U64, high, moved) }
    }

    fn shift_right(&mut self, a: Wide, count: Operand) -> Wide {
        let (rest, beyond) = self.distances(count);
        let own = self.shift(BinaryOp::Shr, Scalar::U64, a.low, count);
        let carried = self.shift(BinaryOp::Shl, Scalar::U64, a.high, rest);
        let near = self.combine(BinaryOp::Or, Scalar::U64, own, carried);
        let far = self.shift(BinaryOp::Shr, Scalar::I64, a.high, beyond);
        let (is_far, low) = (self.register(Class::Predicate), self.register(Class::Long));
        instruction!(self, "setp.ge.u32 {is_far}, {count}, 64");
        instruction!(self, "selp.b64 {low}, {far}, {near}, {is_far}");
        Wide { low, high: self.shift(BinaryOp::Shr, Scalar::I64, a.high, count) }
    }

    /// Compares signed numbers.
    pub fn compare_wide(&mut self, op: CompareOp, a: Wide, b: Wide) -> Operand {
        let result = self.register(Class::Predicate);
        if matches!(op, CompareOp::Eq | CompareOp::Ne) {
            let low = self.combine(BinaryOp::Xor, Scalar::U64, a.low, b.low);
            let high = self.combine(BinaryOp::Xor, Scalar::U64, a.high, b.high);
            let differ = self.combine(BinaryOp::Or, Scalar::U64, low, high);
            instruction!(self, "setp.{}.s64 {result}, {differ}, 0", super::expr::name(op));
            return result;
        }
        let (strict, word) = match op {
            CompareOp::Lt | CompareOp::Le => ("lt", super::expr::name(op)),
            _ => ("gt", super::expr::name(op)),
        };
        let [high, same, low, both] = [(); 4].map(|()| self.register(Class::Predicate));
        instruction!(self, "setp.{strict}.s64 {high}, {}, {}", a.high, b.high);
        instruction!(self, "setp.eq.s64 {same}, {}, {}", a.high, b.high);
        instruction!(self, "setp.{word}.u64 {low}, {}, {}", a.low, b.low);
        instruction!(self, "and.pred {both}, {same}, {low}");
        instruction!(self, "or.pred {result}, {high}, {both}");
        result
    }

    /// Whether arithmetic leaves the range.
    pub fn overflows_wide(&mut self, op: OverflowOp, a: Wide, b: Wide) -> Result<Piece, BackendError> {
        let op = match op {
            OverflowOp::Add => BinaryOp::Add,
            OverflowOp::Sub => BinaryOp::Sub,
            OverflowOp::Mul => {
                return self.helper("multiply_overflows_i128", &[Piece::Two(a), Piece::Two(b)]);
            }
        };
        let outcome = self.add_wide(op, a, b);
        let wrong = self.wrong_sign(op, (a.high, b.high), outcome.high);
        let result = self.register(Class::Predicate);
        instruction!(self, "setp.lt.s64 {result}, {wrong}, 0");
        Ok(Piece::One(result))
    }
}
