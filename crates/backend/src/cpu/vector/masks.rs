//! Masks: their width, what is made of them, and what they are made of.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, InstBuilder, types};
use kelpie_kir::{BinaryOp, Handle, ReduceOp, Value};

use super::super::function::Translator;
use super::{REGISTER, Registers, int_type, parts_of};

impl Translator<'_, '_> {
    /// A mask for elements of `width` bytes.
    pub(super) fn mask_of_width(&mut self, mask: Handle<Value>, width: u32) -> Registers {
        let mut registers = self.registers(mask);
        while registers.width < width {
            registers = self.widened(registers, true);
        }
        while registers.width > width {
            registers = self.narrowed_mask(registers);
        }
        registers
    }

    /// Half as wide. The packing instructions saturate, which keeps all ones and all zeros.
    fn narrowed_mask(&mut self, registers: Registers) -> Registers {
        let Registers { parts, width, lanes } = registers;
        let mut narrow = Vec::new();
        for pair in parts.chunks(2) {
            let (Some(&low), Some(&high)) = (pair.first(), pair.last()) else { continue };
            narrow.push(if width == 8 {
                // The even halves of both.
                let halves = self.shuffle_bytes(low, high, |byte| byte / 4 * 8 + byte % 4);
                self.as_register(types::I32X4, halves)
            } else {
                self.builder.ins().snarrow(low, high)
            });
        }
        Registers { parts: narrow, width: width / 2, lanes }
    }

    /// And, or, exclusive or: at the smaller of the two widths, where they take the fewest registers.
    pub(super) fn combined_masks(&mut self, op: BinaryOp, a: Handle<Value>, b: Handle<Value>) -> Registers {
        let width = self.registers(a).width.min(self.registers(b).width);
        let (mut left, right) = (self.mask_of_width(a, width), self.mask_of_width(b, width));
        for (part, other) in left.parts.iter_mut().zip(right.parts) {
            *part = match op {
                BinaryOp::And => self.builder.ins().band(*part, other),
                BinaryOp::Or => self.builder.ins().bor(*part, other),
                _ => self.builder.ins().bxor(*part, other),
            };
        }
        left
    }

    /// A mask as the low bits of an `i32`.
    pub(in super::super) fn mask_bits(&mut self, mask: Handle<Value>) -> ir::Value {
        let mut registers = self.registers(mask);
        while registers.parts.len() > 1 {
            registers = self.narrowed_mask(registers);
        }
        match registers.parts.first() {
            Some(&part) => self.bits_of_part(part, registers.lanes),
            None => self.int(types::I32, 0),
        }
    }

    /// The highest bits of the first elements of a register.
    pub(super) fn bits_of_part(&mut self, part: ir::Value, lanes: u32) -> ir::Value {
        let of_register = self.builder.func.dfg.value_type(part).lane_count();
        let bits = self.builder.ins().vhigh_bits(types::I32, part);
        if lanes == of_register {
            return bits;
        }
        let used = self.int(types::I32, (1 << lanes) - 1);
        self.builder.ins().band(bits, used)
    }

    pub(super) fn reduce_mask(&mut self, op: ReduceOp, mask: Handle<Value>) -> ir::Value {
        let (_, lanes) = self.element_and_lanes(mask);
        let bits = self.mask_bits(mask);
        match op {
            ReduceOp::Count => self.builder.ins().popcnt(bits),
            ReduceOp::All => {
                let all = self.int(types::I32, (1 << lanes) - 1);
                self.builder.ins().icmp(IntCC::Equal, bits, all)
            }
            _ => {
                let none = self.int(types::I32, 0);
                self.builder.ins().icmp(IntCC::NotEqual, bits, none)
            }
        }
    }

    /// Element i is bit i of a number.
    pub(super) fn bits_mask(&mut self, bits: Handle<Value>, lanes: u32) -> Registers {
        let bits = self.value(bits);
        // The widest elements with which all fit one register.
        let width = REGISTER / lanes;
        let ty = int_type(width);
        let copies = if lanes == 16 {
            // Eight copies of each of the two bytes.
            let both = self.builder.ins().ireduce(types::I16, bits);
            let both = self.builder.ins().splat(types::I16X8, both);
            self.shuffle_bytes(both, both, |byte| byte / 8)
        } else {
            let scalar = ty.lane_type();
            let bits = match scalar {
                types::I64 => self.builder.ins().uextend(types::I64, bits),
                types::I32 => bits,
                narrow => self.builder.ins().ireduce(narrow, bits),
            };
            self.builder.ins().splat(ty, bits)
        };
        let own = self.constant_of(width, |lane| 1 << (lane % 8));
        let set = self.builder.ins().band(copies, own);
        let mask = self.builder.ins().icmp(IntCC::Equal, set, own);
        Registers { parts: vec![mask; parts_of(width, lanes)], width, lanes }
    }

    /// Element i is whether i is below a number.
    pub(super) fn first_lanes(&mut self, count: Handle<Value>, lanes: u32) -> Registers {
        let count = self.value(count);
        let most = self.int(types::I32, i64::from(lanes));
        let count = self.builder.ins().umin(count, most);
        let width = REGISTER / lanes;
        let ty = int_type(width);
        let count = match ty.lane_type() {
            types::I64 => self.builder.ins().uextend(types::I64, count),
            types::I32 => count,
            narrow => self.builder.ins().ireduce(narrow, count),
        };
        let count = self.builder.ins().splat(ty, count);
        let numbers = self.constant_of(width, u64::from);
        let mask = self.builder.ins().icmp(IntCC::SignedGreaterThan, count, numbers);
        Registers { parts: vec![mask], width, lanes }
    }
}
