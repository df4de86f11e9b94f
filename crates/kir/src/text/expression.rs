//! Text to expressions.

use super::lexer::Kind;
use super::names;
use super::parser::{Parser, Result};
use crate::arena::Handle;
use crate::module::*;
use crate::types::{Pointee, Scalar, Type};
use crate::typing;

impl Parser<'_> {
    /// A value that has been defined above in the text.
    pub(super) fn value(&mut self) -> Result<Handle<Value>> {
        let Kind::Value(index) = self.peek() else { return self.expected("a value") };
        if self.scope.defined.get(index as usize) != Some(&true) {
            return self.error(format!("value %{index} is not defined above"));
        }
        self.advance();
        Ok(Handle::from_index(index as usize))
    }

    pub(super) fn two_values(&mut self) -> Result<(Handle<Value>, Handle<Value>)> {
        let first = self.value()?;
        self.mark(',')?;
        Ok((first, self.value()?))
    }

    pub(super) fn variable(&mut self) -> Result<Handle<Variable>> {
        let word = self.peek_word();
        let found = self.scope.function.vars.find(|var| var.name == word);
        self.take("a variable of this function", found)
    }

    /// An expression, typed. The error of an ill-typed one stands at its operator.
    pub(super) fn expression(&mut self) -> Result<Value> {
        let start = self.position();
        let word = self.word("an expression")?;
        let expr = match self.operator(word)? {
            Some(expr) => expr,
            None => self.other_expression(word)?,
        };
        match typing::type_of(&self.module, &self.scope.function, &expr) {
            Ok(ty) => Ok(Value { ty, expr }),
            Err(error) => self.error_at(start, error.to_string()),
        }
    }

    /// The operators that are a word and one or two values.
    fn operator(&mut self, word: &str) -> Result<Option<Expr>> {
        Ok(Some(if let Some(op) = names::unary_of(word) {
            Expr::Unary(op, self.value()?)
        } else if let Some(op) = names::binary_of(word) {
            let (a, b) = self.two_values()?;
            Expr::Binary(op, a, b)
        } else if let Some(op) = names::overflow_of(word) {
            let (a, b) = self.two_values()?;
            Expr::Overflows(op, a, b)
        } else if let Some(op) = names::compare_of(word) {
            let (a, b) = self.two_values()?;
            Expr::Compare(op, a, b)
        } else if let Some(mode) = names::shuffle_of(word) {
            let (value, lane) = self.two_values()?;
            Expr::Shuffle { mode, value, lane }
        } else if let Some(op) = names::reduce_of(word) {
            Expr::Reduce(op, self.value()?)
        } else {
            return Ok(None);
        }))
    }

    fn other_expression(&mut self, word: &str) -> Result<Expr> {
        Ok(match word {
            "const" => Expr::Literal(self.literal()?),
            "param" => self.param()?,
            "shared" => self.shared()?,
            "read" => Expr::Read(self.variable()?),
            "builtin" => Expr::Builtin(self.lookup("the name of a builtin", names::builtin_of)?),
            "select" => {
                let (condition, accept) = self.two_values()?;
                self.mark(',')?;
                Expr::Select { condition, accept, reject: self.value()? }
            }
            "convert" => {
                let to = self.scalar()?;
                Expr::Convert(self.value()?, to)
            }
            "bitcast" => {
                let to = self.ty()?;
                Expr::Bitcast(self.value()?, to)
            }
            "offset" => {
                let (pointer, index) = self.two_values()?;
                Expr::Offset { pointer, index }
            }
            "field" => {
                let (pointer, field) = self.field()?;
                Expr::Field { pointer, field }
            }
            "load_field" => {
                let (pointer, field) = self.field()?;
                Expr::LoadField { pointer, field }
            }
            "load" => Expr::Load { pointer: self.value()?, reads: Reads::Shared },
            "load_bytes" => Expr::LoadBytes(self.value()?),
            "load.ro" => Expr::Load { pointer: self.value()?, reads: Reads::ReadOnly },
            "splat" => {
                let lanes = self.lanes()?;
                Expr::Splat { value: self.value()?, lanes }
            }
            "iota" => match self.ty()? {
                Type::Vector(scalar, lanes) => Expr::Iota(scalar, lanes),
                _ => return self.error_before("expected a vector type"),
            },
            "load_vector" => self.load_vector(Reads::Shared)?,
            "load_vector.ro" => self.load_vector(Reads::ReadOnly)?,
            "lane" => {
                let vector = self.value()?;
                self.mark(',')?;
                let lane = self.parsed("the number of an element", |text| text.parse().ok())?;
                Expr::Lane { vector, lane }
            }
            "mask_bits" => Expr::MaskBits(self.value()?),
            "bits_mask" => {
                let lanes = self.lanes()?;
                Expr::BitsMask { bits: self.value()?, lanes }
            }
            "first_lanes" => {
                let lanes = self.lanes()?;
                Expr::FirstLanes { count: self.value()?, lanes }
            }
            "ballot" => Expr::Ballot(self.value()?),
            "any" => Expr::Any(self.value()?),
            "all" => Expr::All(self.value()?),
            _ => return self.error_before(format!("expected an expression, found `{word}`")),
        })
    }

    /// How many elements a vector has.
    fn lanes(&mut self) -> Result<u8> {
        self.parsed("a number of elements", |text| text.parse().ok())
    }

    fn load_vector(&mut self, reads: Reads) -> Result<Expr> {
        let lanes = self.lanes()?;
        let pointer = self.value()?;
        Ok(Expr::LoadVector { pointer, lanes, reads, align: self.alignment(pointer)? })
    }

    fn param(&mut self) -> Result<Expr> {
        let word = self.peek_word();
        let found = self.scope.function.params.iter().position(|param| param.name == word);
        Ok(Expr::Param(self.take("a parameter of this function", found)? as u32))
    }

    fn shared(&mut self) -> Result<Expr> {
        let word = self.peek_word();
        let found = self.scope.function.shared.find(|array| array.name == word);
        Ok(Expr::Shared(self.take("a shared array of this kernel", found)?))
    }

    /// `%pointer, field`, the field by name or by number.
    fn field(&mut self) -> Result<(Handle<Value>, u32)> {
        let pointer = self.value()?;
        let Type::Ptr(_, Pointee::Struct(handle)) = self.scope.function.values[pointer].ty else {
            return self.error_before(format!("%{} is not a pointer to a struct", pointer.index()));
        };
        self.mark(',')?;
        let word = self.peek_word();
        let found = self.module.structs[handle].fields.iter().position(|field| field.name == word);
        let field = match self.peek() {
            Kind::Number(_) => self.parsed("a field", |text| text.parse().ok())?,
            _ => self.take("a field of the struct", found)? as u32,
        };
        Ok((pointer, field))
    }

    /// `type number`. A float is decimal, `inf`, `-inf`, `nan`, or its bits in hexadecimal.
    fn literal(&mut self) -> Result<Literal> {
        let scalar = self.scalar()?;
        Ok(match (scalar, self.peek()) {
            (Scalar::Bool, _) => {
                let value = self.lookup("`true` or `false`", |word| word.parse().ok())?;
                Literal::Bool(value)
            }
            (Scalar::F32, Kind::Word(_)) => {
                let value = self.lookup("a number", float_word)?;
                Literal::F32((value as f32).to_bits())
            }
            (Scalar::F64, Kind::Word(_)) => Literal::F64(self.lookup("a number", float_word)?.to_bits()),
            (Scalar::F32, _) => self.parsed("an f32", |text| match text.strip_prefix("0x") {
                Some(bits) => u32::from_str_radix(bits, 16).ok().map(Literal::F32),
                None => text.parse().ok().map(|value: f32| Literal::F32(value.to_bits())),
            })?,
            (Scalar::F64, _) => self.parsed("an f64", |text| match text.strip_prefix("0x") {
                Some(bits) => u64::from_str_radix(bits, 16).ok().map(Literal::F64),
                None => text.parse().ok().map(|value: f64| Literal::F64(value.to_bits())),
            })?,
            (integer, _) => self.parsed("an integer", |text| match text.strip_prefix("0x") {
                Some(bits) => i128::from_str_radix(bits, 16).ok().map(|value| Literal::Int(integer, value)),
                None => text.parse().ok().map(|value| Literal::Int(integer, value)),
            })?,
        })
    }
}

fn float_word(word: &str) -> Option<f64> {
    match word {
        "inf" => Some(f64::INFINITY),
        "nan" => Some(f64::NAN),
        _ => None,
    }
}
