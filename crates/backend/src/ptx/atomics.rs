//! Atomics. Multiprocessors add 32 bits in shared memory with an instruction, and 64 bits with a loop of compare-and-swaps, which
//! goes round as often as threads meet. What is added to 64 bits whose old value nobody asks for, or bits of them that are set or
//! turned, is so half by half, as the CUDA back end does it.

use kelpie_kir::{AtomicOp, Handle, Scalar, Scope, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, arithmetic, bits};

impl Printer<'_> {
    /// Prints an atomic statement.
    pub fn atomic(
        &mut self,
        op: AtomicOp,
        pointer: Handle<Value>,
        value: Handle<Value>,
        scope: Scope,
        result: Option<Handle<Value>>,
    ) {
        let used = result.filter(|result| self.frame.uses[result.index()] > 0);
        let (space, scalar) = (self.space(pointer), self.pointee(pointer));
        let (address, value) = (self.operand_register(pointer), self.operand_register(value));
        let is_long_integer = matches!(scalar, Scalar::I64 | Scalar::U64);
        if used.is_none() && space == "shared" && is_long_integer {
            match op {
                AtomicOp::Add => return self.add_halves(address, value),
                AtomicOp::Or => return self.bits_by_halves("or", address, value),
                AtomicOp::Xor => return self.bits_by_halves("xor", address, value),
                _ => {}
            }
        }
        let scope = scope_name(scope);
        let (name, ty) = match op {
            AtomicOp::Add if scalar.is_float() => ("add", arithmetic(scalar)),
            AtomicOp::Add if scalar.bytes() == 8 => ("add", "u64"),
            AtomicOp::Add => ("add", "u32"),
            AtomicOp::Min => ("min", arithmetic(scalar)),
            AtomicOp::Max => ("max", arithmetic(scalar)),
            AtomicOp::Or => ("or", bits(scalar)),
            AtomicOp::Xor => ("xor", bits(scalar)),
            AtomicOp::Exchange => ("exch", bits(scalar)),
            AtomicOp::CompareExchange(_) => ("cas", bits(scalar)),
        };
        let expected = match op {
            AtomicOp::CompareExchange(expected) => format!("{}, ", self.operand_register(expected)),
            _ => String::new(),
        };
        let has_reduction = !matches!(op, AtomicOp::Exchange | AtomicOp::CompareExchange(_));
        if used.is_none() && has_reduction {
            instruction!(self, "red.relaxed.{scope}.{space}.{name}.{ty} [{address}], {value}");
            return;
        }
        let old = self.register(Class::of(scalar.into()));
        instruction!(self, "atom.relaxed.{scope}.{space}.{name}.{ty} {old}, [{address}], {expected}{value}");
        if let Some(result) = used {
            self.frame.values[result.index()] = vec![Piece::One(old)];
        }
    }

    /// The lower and upper half of 64 bits.
    fn halves(&mut self, value: Operand) -> (Operand, Operand) {
        let (low, high) = (self.register(Class::Word), self.register(Class::Word));
        instruction!(self, "mov.b64 {{{low}, {high}}}, {value}");
        (low, high)
    }

    /// The old lower half tells whether this addition carries, whoever is between: the sum of all carries is right.
    fn add_halves(&mut self, address: Operand, value: Operand) {
        let (low, high) = self.halves(value);
        let [old, room, carried, sum] = [(); 4].map(|()| self.register(Class::Word));
        let [some, carries, upper] = [(); 3].map(|()| self.register(Class::Predicate));
        instruction!(self, "setp.ne.u32 {some}, {low}, 0");
        instruction!(self, "mov.b32 {old}, 0");
        instruction!(self, "@{some} atom.relaxed.cta.shared.add.u32 {old}, [{address}], {low}");
        instruction!(self, "not.b32 {room}, {low}");
        instruction!(self, "setp.gt.u32 {carries}, {old}, {room}");
        instruction!(self, "selp.b32 {carried}, 1, 0, {carries}");
        instruction!(self, "add.u32 {sum}, {high}, {carried}");
        instruction!(self, "setp.ne.u32 {upper}, {sum}, 0");
        instruction!(self, "@{upper} red.relaxed.cta.shared.add.u32 [{address}+4], {sum}");
    }

    fn bits_by_halves(&mut self, name: &str, address: Operand, value: Operand) {
        let (low, high) = self.halves(value);
        for (half, offset) in [(low, 0), (high, 4)] {
            let some = self.register(Class::Predicate);
            instruction!(self, "setp.ne.u32 {some}, {half}, 0");
            instruction!(self, "@{some} red.relaxed.cta.shared.{name}.b32 [{address}+{offset}], {half}");
        }
    }

    /// A relaxed read.
    pub fn atomic_load(&mut self, pointer: Handle<Value>, result: Handle<Value>) {
        let way = format!("volatile.{}", self.space(pointer));
        let address = self.operand_register(pointer);
        let piece = self.load_from(&way, self.pointee(pointer).into(), address, 0);
        self.frame.values[result.index()] = vec![piece];
    }

    /// Sets the status word unless it is set. It lies in the host's memory; the scope is the device's, as over PCIe the host takes
    /// no part in an atomic of system scope: where a cancellation and a report meet, either may win, and the launch has failed
    /// in any case.
    pub fn report(&mut self, code: Handle<Value>) {
        let (code, old) = (self.operand_register(code), self.register(Class::Word));
        let zero = self.in_register(Operand::Integer(0), Class::Word);
        instruction!(self, "atom.relaxed.gpu.global.cas.b32 {old}, [{}], {zero}, {code}", self.status);
    }
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Block => "cta",
        Scope::Device => "gpu",
    }
}
