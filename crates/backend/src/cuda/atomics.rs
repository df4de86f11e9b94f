//! Atomics. CUDA's overloads cover `int`, `unsigned`, `unsigned long long` and the floats; `i64` goes through its bits,
//! but for minimum and maximum, where the sign matters and CUDA has `long long`.
//!
//! Multiprocessors add 32 bits in shared memory with an instruction, and 64 bits with a loop of compare-and-swaps, which goes round
//! as often as threads meet. What is added to 64 bits whose old value nobody asks for, or bits of them that are set or turned, is so
//! half by half ([`Helpers::halves_in_shared`]).
//!
//! [`Helpers::halves_in_shared`]: super::helpers::Helpers::halves_in_shared

use kelpie_kir::{AtomicOp, Handle, Pointee, Scalar, Scope, Space, Type, Value};

use super::function::FunctionPrinter;
use super::helpers::HalfOp;
use super::types;

impl FunctionPrinter<'_> {
    /// Prints an atomic statement.
    pub fn atomic(
        &mut self,
        op: AtomicOp,
        pointer: Handle<Value>,
        value: Handle<Value>,
        scope: Scope,
        result: Option<Handle<Value>>,
    ) {
        let name = match op {
            AtomicOp::Add => "atomicAdd",
            AtomicOp::Min => "atomicMin",
            AtomicOp::Max => "atomicMax",
            AtomicOp::Or => "atomicOr",
            AtomicOp::Xor => "atomicXor",
            AtomicOp::Exchange => "atomicExch",
            AtomicOp::CompareExchange(_) => "atomicCAS",
        };
        let used = result.is_some_and(|result| self.uses[result.index()] > 0);
        let by_halves = match op {
            AtomicOp::Add => Some(HalfOp::Add),
            AtomicOp::Or => Some(HalfOp::Or),
            AtomicOp::Xor => Some(HalfOp::Xor),
            _ => None,
        };
        if let Some(op) = by_halves.filter(|_| !used && self.is_shared_word(pointer)) {
            let name = self.helpers.halves_in_shared(op);
            let code = format!("{name}((u64*){}, u64({}))", self.operand(pointer), self.text(value));
            return self.effect(None, &code);
        }
        let suffix = match scope {
            Scope::Block => "_block",
            Scope::Device => "",
        };
        let through_bits =
            self.pointee(pointer) == Some(Scalar::I64) && !matches!(op, AtomicOp::Min | AtomicOp::Max);
        let bits = |text: &str| if through_bits { format!("u64({text})") } else { text.to_string() };
        let mut arguments = vec![if through_bits {
            format!("(u64*){}", self.operand(pointer))
        } else {
            self.text(pointer).to_string()
        }];
        if let AtomicOp::CompareExchange(expected) = op {
            arguments.push(bits(self.text(expected)));
        }
        arguments.push(bits(self.text(value)));
        let call = format!("::{name}{suffix}({})", arguments.join(", "));
        let code = if through_bits && used { format!("i64({call})") } else { call };
        self.effect(result, &code);
    }

    /// Whether a pointer is to 64 bits of an integer in shared memory.
    fn is_shared_word(&self, pointer: Handle<Value>) -> bool {
        let word = |pointee| matches!(pointee, Pointee::Scalar(Scalar::U64 | Scalar::I64));
        matches!(self.ty(pointer), Type::Ptr(Space::Shared, pointee) if word(pointee))
    }

    /// Prints a relaxed read: PTX defines a volatile load as a relaxed one of system scope.
    pub fn atomic_load(&mut self, pointer: Handle<Value>, result: Handle<Value>) {
        let ty = types::name(self.module, self.ty(result));
        let code = format!("*(volatile {ty}*){}", self.operand(pointer));
        self.define(result, &code);
    }

    /// The scalar that a pointer points to.
    pub fn pointee(&self, pointer: Handle<Value>) -> Option<Scalar> {
        match self.ty(pointer) {
            Type::Ptr(_, Pointee::Scalar(scalar)) => Some(scalar),
            _ => None,
        }
    }
}
