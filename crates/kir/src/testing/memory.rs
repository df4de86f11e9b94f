//! Memory in random modules: the input, the thread's own element of the output, and shared memory.

use super::{Generator, KernelParts, MOST_BLOCK_THREADS};
use crate::builder::V;
use crate::module::*;
use crate::types::{Pointee, Scalar, Type};

impl Generator {
    /// Declares shared arrays, and initialises this thread's own elements of them and of the output.
    pub(super) fn kernel_memory(&mut self, output: V, thread_id: V) {
        let zero = self.builder.i64(0);
        self.builder.store(output, zero);
        let mut slots = Vec::new();
        for index in 0..1 + self.random.below(4) {
            let scalar = self.random.pick(&Scalar::ALL);
            let name = format!("slots_{index}");
            let array = self.builder.shared(&name, Pointee::Scalar(scalar), MOST_BLOCK_THREADS);
            let slot = self.builder.offset(array, thread_id);
            let value = self.literal(scalar);
            self.builder.store(slot, value);
            slots.push((slot, scalar));
        }
        self.vector_memory(thread_id);
        let exchange = self.builder.shared("exchange", Pointee::Scalar(Scalar::I64), MOST_BLOCK_THREADS);
        let pointee = self.record.map_or(Pointee::Scalar(Scalar::I64), Pointee::Struct);
        let records = self.builder.shared("records", pointee, MOST_BLOCK_THREADS);
        let record = self.builder.offset(records, thread_id);
        for (index, scalar) in self.record_fields.clone().into_iter().enumerate() {
            let field = self.builder.field(record, index as u32);
            let value = self.literal(scalar);
            self.builder.store(field, value);
        }
        self.kernel = Some(KernelParts { output, thread_id, slots, record, exchange });
    }

    /// The address of an element of the input that random values choose.
    pub(super) fn input_element(&mut self) -> Option<V> {
        let (pointer, length) = self.input?;
        let value = self.any_value();
        let value = self.as_i64(value);
        let value = self.builder.bitcast(value, Scalar::U64);
        let index = self.builder.rem(value, length);
        let element = match self.random.below(3) {
            0 => {
                let signed = self.builder.convert(index, Scalar::I64);
                self.builder.offset(pointer, signed)
            }
            1 => {
                // There and back, by indices of other types.
                let five = self.builder.int(Scalar::U8, 5);
                let back = self.builder.int(Scalar::I16, -5);
                let element = self.builder.offset(pointer, index);
                let beyond = self.builder.offset(element, five);
                self.builder.offset(beyond, back)
            }
            _ => self.builder.offset(pointer, index),
        };
        Some(element)
    }

    /// A value from memory; any value where the function has no memory.
    pub(super) fn memory_value(&mut self) -> V {
        match self.random.below(10) {
            0..3 if self.kernel.is_some() => self.own_value(),
            3..5 if self.cursor.is_some() => self.cursor_value(),
            5..7 => self.narrow_value(),
            _ => match self.input_element() {
                Some(element) => {
                    let reads = self.random.pick(&[Reads::Shared, Reads::ReadOnly]);
                    self.builder.value(Expr::Load { pointer: element, reads })
                }
                None => self.any_value(),
            },
        }
    }

    /// A load from what only this thread writes.
    fn own_value(&mut self) -> V {
        let Some(parts) = self.kernel.clone() else { return self.any_value() };
        let pointer = match self.random.below(3) {
            0 => parts.output,
            1 => self.random.pick(&parts.slots).0,
            _ => self.own_field(&parts).0,
        };
        self.builder.load(pointer)
    }

    fn own_field(&mut self, parts: &KernelParts) -> (V, Scalar) {
        let field = self.random.below(self.record_fields.len());
        (self.builder.field(parts.record, field as u32), self.record_fields[field])
    }

    /// A load through the pointer variable, which is moved or compared before.
    fn cursor_value(&mut self) -> V {
        let (Some(cursor), Some(element)) = (self.cursor, self.input_element()) else {
            return self.any_value();
        };
        let old = self.builder.read(cursor);
        match self.random.below(4) {
            0 => {
                let condition = self.value(Scalar::Bool);
                let chosen = self.builder.select(condition, old, element);
                self.builder.assign(cursor, chosen);
                self.builder.load(chosen)
            }
            1 => {
                let op = self.random.pick(&[CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Ge]);
                self.builder.compare(op, old, element)
            }
            2 => {
                let address = self.builder.bitcast(element, Scalar::U64);
                let pointer = self.builder.bitcast(address, Type::global(Scalar::I64));
                self.builder.assign(cursor, pointer);
                self.builder.load_read_only(pointer)
            }
            _ => self.builder.load(old),
        }
    }

    /// A part of an element of the input, as another type.
    fn narrow_value(&mut self) -> V {
        let Some(element) = self.input_element() else { return self.any_value() };
        let types = [
            Scalar::I8,
            Scalar::U8,
            Scalar::I16,
            Scalar::U16,
            Scalar::I32,
            Scalar::U32,
            Scalar::F32,
            Scalar::F64,
        ];
        if self.random.chance(20) {
            let bytes = self.builder.bitcast(element, Type::global(Scalar::U8));
            return self.builder.load_bytes(bytes);
        }
        let scalar = self.random.pick(&types);
        let part = self.random.below(8 / scalar.bytes() as usize);
        let pointer = self.builder.bitcast(element, Type::global(scalar));
        let index = self.builder.u32(part as u32);
        let pointer = self.builder.offset(pointer, index);
        self.builder.load_read_only(pointer)
    }

    /// A store or an atomic on what only this thread writes.
    pub(super) fn memory_effect(&mut self) {
        let Some(parts) = self.kernel.clone() else { return };
        let (pointer, scalar) = match self.random.below(4) {
            0 => (parts.output, Scalar::I64),
            1 => self.own_field(&parts),
            _ => self.random.pick(&parts.slots),
        };
        let value = self.value(scalar);
        let integer = matches!(scalar, Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64);
        if !(integer || scalar.is_float()) || self.random.chance(40) {
            return self.builder.store(pointer, value);
        }
        let scope = self.random.pick(&[Scope::Block, Scope::Device]);
        if integer && self.random.chance(15) {
            let loaded = self.builder.atomic_load(pointer, scope);
            return self.pool.push(loaded);
        }
        let expected = if self.random.chance(50) { self.builder.load(pointer) } else { self.value(scalar) };
        let ops = [
            AtomicOp::Add,
            AtomicOp::Min,
            AtomicOp::Max,
            AtomicOp::Or,
            AtomicOp::Xor,
            AtomicOp::Exchange,
            AtomicOp::CompareExchange(expected),
        ];
        let op = if integer { self.random.pick(&ops) } else { AtomicOp::Add };
        if self.random.chance(30) {
            return self.builder.atomic_discard(op, pointer, value, scope);
        }
        let old = self.builder.atomic(op, pointer, value, scope);
        self.pool.push(old);
    }

    /// Threads of the block exchange data: each writes its element, and reads another's or what all made together.
    pub(super) fn exchange(&mut self) -> Option<V> {
        let parts = self.kernel.clone()?;
        let value = self.value(Scalar::I64);
        let own = self.builder.offset(parts.exchange, parts.thread_id);
        self.builder.barrier();
        self.builder.store(own, value);
        self.builder.barrier();
        let threads = self.builder.builtin(Builtin::BlockDim);
        let distance = self.builder.u32(1 + self.random.below(40) as u32);
        let moved = self.builder.add(parts.thread_id, distance);
        let other = self.builder.rem(moved, threads);
        let result = if self.random.chance(50) {
            let pointer = self.builder.offset(parts.exchange, other);
            self.builder.load(pointer)
        } else {
            let distance = self.builder.rem(distance, threads);
            let pointer = self.builder.offset(parts.exchange, distance);
            let op =
                self.random.pick(&[AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::Or, AtomicOp::Xor]);
            self.builder.atomic_discard(op, pointer, value, Scope::Block);
            self.builder.barrier();
            self.builder.uniform_load(pointer)
        };
        self.builder.barrier();
        Some(result)
    }
}
