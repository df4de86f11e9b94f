//! Conversions by value and by bits.

use kelpie_kir::{Handle, Scalar, Type, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, Wide, arithmetic};
use crate::BackendError;

impl Printer<'_> {
    /// To another scalar type by value.
    pub fn convert(&mut self, a: Handle<Value>, to: Scalar) -> Result<Piece, BackendError> {
        let from = self.scalar(a);
        if from == to {
            return Ok(self.piece(a));
        }
        if from == Scalar::I128 && to.is_float() {
            let name = if to == Scalar::F32 { "f32_of_i128" } else { "f64_of_i128" };
            return self.helper(name, &[self.piece(a)]);
        }
        let operand = self.operand_register(a);
        Ok(match (from.is_float(), to.is_float()) {
            (true, true) => {
                let result = self.register(Class::of(to.into()));
                let rounding = if to == Scalar::F32 { ".rn" } else { "" };
                instruction!(
                    self,
                    "cvt{rounding}.{}.{} {result}, {operand}",
                    arithmetic(to),
                    arithmetic(from)
                );
                Piece::One(result)
            }
            (true, false) if to == Scalar::I128 => {
                let double = if from == Scalar::F32 { self.widened(operand) } else { operand };
                return self.helper("i128_of_f64", &[Piece::One(double)]);
            }
            (true, false) => Piece::One(self.saturated(from, to, operand)),
            (false, true) => {
                let (operand, from) = match from {
                    Scalar::Bool => (self.truth_as_word(operand), Scalar::U32),
                    _ => (operand, from),
                };
                let result = self.register(Class::of(to.into()));
                instruction!(self, "cvt.rn.{}.{} {result}, {operand}", arithmetic(to), arithmetic(from));
                Piece::One(result)
            }
            (false, false) => self.convert_integer(from, to, operand),
        })
    }

    fn widened(&mut self, single: Operand) -> Operand {
        let double = self.register(Class::Double);
        instruction!(self, "cvt.f64.f32 {double}, {single}");
        double
    }

    /// A truth value as 0 or 1.
    pub fn truth_as_word(&mut self, truth: Operand) -> Operand {
        let word = self.register(Class::Word);
        instruction!(self, "selp.b32 {word}, 1, 0, {truth}");
        word
    }

    /// A word as a truth value.
    pub fn word_as_truth(&mut self, word: Operand) -> Operand {
        let truth = self.register(Class::Predicate);
        instruction!(self, "setp.ne.b32 {truth}, {word}, 0");
        truth
    }

    /// The operand's lower half is given for 128 bits.
    fn convert_integer(&mut self, from: Scalar, to: Scalar, operand: Operand) -> Piece {
        let (operand, from) = match from {
            Scalar::Bool => (self.truth_as_word(operand), Scalar::U32),
            _ => (operand, from),
        };
        let is_long = from.bytes() >= 8;
        match to.bytes() {
            16 => {
                let low = if is_long { operand } else { self.extended(from, operand) };
                let high = if from.is_signed() { self.sign_of(low) } else { Operand::Integer(0) };
                Piece::Two(Wide { low, high })
            }
            8 if is_long => Piece::One(operand),
            8 => Piece::One(self.extended(from, operand)),
            _ => {
                let word = if is_long {
                    let word = self.register(Class::Word);
                    instruction!(self, "cvt.u32.u64 {word}, {operand}");
                    word
                } else {
                    operand
                };
                Piece::One(self.narrow(to, word))
            }
        }
    }

    /// The upper half of a signed number of 64 bits.
    fn sign_of(&mut self, low: Operand) -> Operand {
        let high = self.register(Class::Long);
        instruction!(self, "shr.s64 {high}, {low}, 63");
        high
    }

    /// Float to integer: the instruction truncates and saturates, to 32 bits at least; NaN gives 0.
    fn saturated(&mut self, from: Scalar, to: Scalar, operand: Operand) -> Operand {
        let (class, ty) = (Class::of(to.into()), arithmetic(to));
        let mut converted = self.register(class);
        instruction!(self, "cvt.rzi.{ty}.{} {converted}, {operand}", arithmetic(from));
        if to.bits() < 32 {
            let bits = to.bits() - u32::from(to.is_signed());
            let greatest = (1i64 << bits) - 1;
            let least = if to.is_signed() { -greatest - 1 } else { 0 };
            let (below, within) = (self.register(class), self.register(class));
            instruction!(self, "min.{ty} {below}, {converted}, {greatest}");
            instruction!(self, "max.{ty} {within}, {below}, {least}");
            converted = within;
        }
        let (number, result) = (self.register(Class::Predicate), self.register(class));
        let source = arithmetic(from);
        instruction!(self, "setp.num.{source} {number}, {operand}, {operand}");
        instruction!(self, "selp.{} {result}, {converted}, 0, {number}", class.ty());
        result
    }

    /// The same bits in another type.
    pub fn bitcast(&mut self, a: Handle<Value>, to: Type) -> Piece {
        let (from, piece) = (self.ty(a), self.piece(a));
        let target = match (to.lanes(), to.element()) {
            (Some(_), Some(element)) => element.into(),
            _ => to,
        };
        let (before, after) = (Class::of(from), Class::of(target));
        if before != after {
            let operand = self.in_register(piece.low(), before);
            let result = self.register(after);
            let width = if from.bytes() == 4 { "b32" } else { "b64" };
            instruction!(self, "mov.{width} {result}, {operand}");
            return Piece::One(result);
        }
        match target.scalar() {
            Some(scalar) if scalar.bits() < 32 => Piece::One(self.narrow(scalar, piece.low())),
            _ => piece,
        }
    }
}
