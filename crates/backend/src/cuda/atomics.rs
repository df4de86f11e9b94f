//! Atomics. CUDA's overloads cover `int`, `unsigned`, `unsigned long long` and the floats; `i64` goes through its bits,
//! but for minimum and maximum, where the sign matters and CUDA has `long long`.

use kelpie_kir::{AtomicOp, Handle, Pointee, Scalar, Scope, Type, Value};

use super::function::FunctionPrinter;
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
            AtomicOp::Exchange => "atomicExch",
            AtomicOp::CompareExchange(_) => "atomicCAS",
        };
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
        let used = result.is_some_and(|result| self.uses[result.index()] > 0);
        let code = if through_bits && used { format!("i64({call})") } else { call };
        self.effect(result, &code);
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
