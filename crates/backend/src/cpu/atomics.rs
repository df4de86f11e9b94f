//! Atomics, and the status word. Cranelift's atomics are sequentially consistent.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, AtomicRmwOp, BlockArg, InstBuilder, MemFlagsData, Type, types};
use kelpie_kir::{AtomicOp, Handle, Pointee, Scalar, Scope, Space, Value};

use super::LaunchStatus;
use super::function::Translator;
use super::helpers::Helper;
use super::types::{memory, scalar_type};

impl Translator<'_, '_> {
    /// Reads, modifies and writes; the old value. A worker is a block and has one thread, so what only the block sees
    /// needs no atomic instruction.
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        pointer: Handle<Value>,
        value: Handle<Value>,
        scope: Scope,
    ) -> ir::Value {
        let operand = self.value(value);
        let kelpie_kir::Type::Ptr(space, Pointee::Scalar(scalar)) = self.ty(pointer) else {
            self.fail("an atomic on something other than a scalar");
            return operand;
        };
        let comparand = match op {
            AtomicOp::CompareExchange(expected) => Some(self.value(expected)),
            _ => None,
        };
        if scope == Scope::Block || space == Space::Shared {
            let old = self.load_register(pointer, scalar);
            let new = self.modified(op, scalar, old, operand, comparand);
            self.store_value(pointer, new);
            return old;
        }
        let address = self.value(pointer);
        if scalar.is_float() {
            return self.atomic_float_add(scalar, address, operand);
        }
        if let Some(expected) = comparand {
            return self.builder.ins().atomic_cas(memory(), address, expected, operand);
        }
        let machine_op = match (op, scalar.is_signed()) {
            (AtomicOp::Add, _) => AtomicRmwOp::Add,
            (AtomicOp::Min, true) => AtomicRmwOp::Smin,
            (AtomicOp::Min, false) => AtomicRmwOp::Umin,
            (AtomicOp::Max, true) => AtomicRmwOp::Smax,
            (AtomicOp::Max, false) => AtomicRmwOp::Umax,
            (AtomicOp::Or, _) => AtomicRmwOp::Or,
            (AtomicOp::Xor, _) => AtomicRmwOp::Xor,
            (AtomicOp::Exchange | AtomicOp::CompareExchange(_), _) => AtomicRmwOp::Xchg,
        };
        self.builder.ins().atomic_rmw(scalar_type(scalar), memory(), machine_op, address, operand)
    }

    /// Reads what other workers may be writing.
    pub(super) fn atomic_load(&mut self, pointer: Handle<Value>, scope: Scope) -> ir::Value {
        let address = self.value(pointer);
        match self.ty(pointer) {
            kelpie_kir::Type::Ptr(Space::Global, Pointee::Scalar(scalar)) if scope == Scope::Device => {
                self.builder.ins().atomic_load(scalar_type(scalar), memory(), address)
            }
            kelpie_kir::Type::Ptr(_, Pointee::Scalar(scalar)) => self.load_register(pointer, scalar),
            _ => {
                self.fail("an atomic on something other than a scalar");
                address
            }
        }
    }

    /// Counts a thread, which is the only one of its warp.
    pub(super) fn tally(&mut self, counters: Handle<Value>) {
        let (address, one) = (self.value(counters), self.int(types::I64, 1));
        self.builder.ins().atomic_rmw(types::I64, memory(), AtomicRmwOp::Add, address, one);
    }

    fn modified(
        &mut self,
        op: AtomicOp,
        scalar: Scalar,
        old: ir::Value,
        operand: ir::Value,
        comparand: Option<ir::Value>,
    ) -> ir::Value {
        match (op, scalar.is_signed()) {
            (AtomicOp::Add, _) if scalar.is_float() => self.builder.ins().fadd(old, operand),
            (AtomicOp::Add, _) => self.builder.ins().iadd(old, operand),
            (AtomicOp::Min, true) => self.builder.ins().smin(old, operand),
            (AtomicOp::Min, false) => self.builder.ins().umin(old, operand),
            (AtomicOp::Max, true) => self.builder.ins().smax(old, operand),
            (AtomicOp::Max, false) => self.builder.ins().umax(old, operand),
            (AtomicOp::Or, _) => self.builder.ins().bor(old, operand),
            (AtomicOp::Xor, _) => self.builder.ins().bxor(old, operand),
            (AtomicOp::Exchange, _) => operand,
            (AtomicOp::CompareExchange(_), _) => {
                let expected = comparand.unwrap_or(old);
                let equal = self.builder.ins().icmp(IntCC::Equal, old, expected);
                self.builder.ins().select(equal, operand, old)
            }
        }
    }

    /// `old + operand`, tried until nobody wrote in between.
    fn atomic_float_add(&mut self, scalar: Scalar, address: ir::Value, operand: ir::Value) -> ir::Value {
        let float = scalar_type(scalar);
        let bits: Type = if scalar == Scalar::F32 { types::I32 } else { types::I64 };
        let (attempt, done) = (self.builder.create_block(), self.builder.create_block());
        let expected = self.builder.append_block_param(attempt, bits);
        let first = self.builder.ins().atomic_load(bits, memory(), address);
        self.builder.ins().jump(attempt, &[BlockArg::from(first)]);

        self.builder.switch_to_block(attempt);
        let old = self.builder.ins().bitcast(float, MemFlagsData::new(), expected);
        let new = self.builder.ins().fadd(old, operand);
        let new = self.builder.ins().bitcast(bits, MemFlagsData::new(), new);
        let found = self.builder.ins().atomic_cas(memory(), address, expected, new);
        let written = self.builder.ins().icmp(IntCC::Equal, found, expected);
        self.builder.ins().brif(written, done, &[], attempt, &[BlockArg::from(found)]);
        self.builder.seal_block(attempt);

        self.start(done);
        old
    }

    /// The status word. Where it is read a worker can also be told to give way: no kernel reads it while it holds a lock, or anything
    /// else that another worker of its launch waits for.
    pub(super) fn status(&mut self) -> ir::Value {
        const GIVE_WAY: i64 = std::mem::offset_of!(LaunchStatus, give_way) as i64;
        let offset = self.int(types::I64, GIVE_WAY);
        let asked = self.builder.ins().iadd(self.worker.status, offset);
        let asked = self.builder.ins().atomic_load(types::I32, memory(), asked);
        let (gives_way, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(gives_way);
        self.builder.ins().brif(asked, gives_way, &[], goes_on, &[]);

        self.start(gives_way);
        self.call_helper(Helper::GiveWay, &[self.worker.address]);
        self.builder.ins().jump(goes_on, &[]);

        self.start(goes_on);
        self.builder.ins().atomic_load(types::I32, memory(), self.worker.status)
    }

    /// Sets the status word unless one is set.
    pub(super) fn report(&mut self, code: Handle<Value>) {
        let code = self.value(code);
        let unset = self.int(types::I32, 0);
        self.builder.ins().atomic_cas(memory(), self.worker.status, unset, code);
    }
}
