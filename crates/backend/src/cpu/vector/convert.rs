//! Conversions by value between vectors.

use cranelift_codegen::ir::{self, InstBuilder, types};
use kelpie_kir::{Handle, Scalar, Value};

use super::super::function::Translator;
use super::{REGISTER, Registers, int_type, parts_of, register_type};

impl Translator<'_, '_> {
    /// As Rust's `as`, element by element.
    pub(super) fn vector_convert(&mut self, a: Handle<Value>, to: Scalar) -> Registers {
        use Scalar::{F32, F64, I64, U32, U64};
        let (from, _) = self.element_and_lanes(a);
        let registers = self.registers(a);
        match (from, to) {
            _ if from == to => registers,
            (F32, F64) => self.promoted(registers),
            (F64, F32) => self.demoted(registers),
            // Saturation, rounding of 64 bits to 24: as scalars.
            (F32 | F64, _) | (I64 | U64, F32) => self.converted_one_by_one(registers, from, to),
            (I64 | U64 | U32, F64) => {
                let mut registers = self.resized(registers, 8, from.is_signed());
                for part in &mut registers.parts {
                    *part = if from == I64 {
                        self.builder.ins().fcvt_from_sint(types::F64X2, *part)
                    } else {
                        self.builder.ins().fcvt_from_uint(types::F64X2, *part)
                    };
                }
                registers
            }
            (_, F64) => {
                let registers = self.resized(registers, 4, from.is_signed());
                self.doubles_of_words(registers)
            }
            (_, F32) => {
                let mut registers = self.resized(registers, 4, from.is_signed());
                for part in &mut registers.parts {
                    *part = if from == U32 {
                        self.builder.ins().fcvt_from_uint(types::F32X4, *part)
                    } else {
                        self.builder.ins().fcvt_from_sint(types::F32X4, *part)
                    };
                }
                registers
            }
            _ => self.resized(registers, to.bytes(), from.is_signed()),
        }
    }

    fn converted_one_by_one(&mut self, registers: Registers, from: Scalar, to: Scalar) -> Registers {
        let mut scalars = Vec::new();
        for lane in 0..registers.lanes {
            let scalar = self.element(&registers, lane);
            scalars.push(self.convert_scalar(scalar, from, to));
        }
        self.gathered(to, &scalars)
    }

    /// Integers of another width: extended, or cut off.
    fn resized(&mut self, mut registers: Registers, width: u32, signed: bool) -> Registers {
        while registers.width < width {
            registers = self.widened(registers, signed);
        }
        while registers.width > width {
            registers = self.narrowed(registers);
        }
        registers
    }

    /// Integers (or a mask) of twice the width.
    pub(super) fn widened(&mut self, registers: Registers, signed: bool) -> Registers {
        let Registers { parts, width, lanes } = registers;
        let count = parts_of(2 * width, lanes);
        let mut wide = Vec::with_capacity(count);
        for part in parts {
            wide.push(if signed {
                self.builder.ins().swiden_low(part)
            } else {
                self.builder.ins().uwiden_low(part)
            });
            // What does not fill a register has nothing in the upper half.
            if wide.len() < count {
                wide.push(if signed {
                    self.builder.ins().swiden_high(part)
                } else {
                    self.builder.ins().uwiden_high(part)
                });
            }
        }
        Registers { parts: wide, width: 2 * width, lanes }
    }

    /// Integers of half the width, the upper halves cut off.
    fn narrowed(&mut self, registers: Registers) -> Registers {
        let Registers { parts, width, lanes } = registers;
        let mut narrow = Vec::new();
        for pair in parts.chunks(2) {
            let (Some(&low), Some(&high)) = (pair.first(), pair.last()) else { continue };
            narrow.push(if width == 8 {
                let halves = self.shuffle_bytes(low, high, |byte| byte / 4 * 8 + byte % 4);
                self.as_register(types::I32X4, halves)
            } else {
                // The packing instruction saturates, so what it must not see is cleared.
                let kept = self.constant_of(width, |_| if width == 4 { 0xffff } else { 0xff });
                let (low, high) = (self.builder.ins().band(low, kept), self.builder.ins().band(high, kept));
                self.builder.ins().unarrow(low, high)
            });
        }
        debug_assert!(
            narrow.iter().all(|part| { self.builder.func.dfg.value_type(*part) == int_type(width / 2) })
        );
        Registers { parts: narrow, width: width / 2, lanes }
    }

    /// Each register with its lower half, and where there are more elements then its upper half at the lower place.
    fn halves(&mut self, registers: &Registers) -> Vec<ir::Value> {
        let count = parts_of(2 * registers.width, registers.lanes);
        let mut halves = Vec::with_capacity(count);
        for part in registers.parts.clone() {
            halves.push(part);
            if halves.len() < count {
                let upper = self.shifted_down(part, REGISTER / 2);
                halves.push(upper);
            }
        }
        halves
    }

    fn doubles_of_words(&mut self, registers: Registers) -> Registers {
        let mut parts = self.halves(&registers);
        for part in &mut parts {
            // Together one instruction.
            let wide = self.builder.ins().swiden_low(*part);
            *part = self.builder.ins().fcvt_from_sint(types::F64X2, wide);
        }
        Registers { parts, width: 8, lanes: registers.lanes }
    }

    fn promoted(&mut self, registers: Registers) -> Registers {
        let mut parts = self.halves(&registers);
        for part in &mut parts {
            *part = self.builder.ins().fvpromote_low(*part);
        }
        Registers { parts, width: 8, lanes: registers.lanes }
    }

    fn demoted(&mut self, registers: Registers) -> Registers {
        let mut parts = Vec::new();
        for pair in registers.parts.chunks(2) {
            let pair: Vec<ir::Value> = pair.iter().map(|part| self.builder.ins().fvdemote(*part)).collect();
            parts.push(match pair[..] {
                [low, high] => {
                    let both = self.shuffle_bytes(low, high, |byte| byte / 8 * 16 + byte % 8);
                    self.as_register(register_type(Scalar::F32), both)
                }
                _ => pair[0],
            });
        }
        Registers { parts, width: 4, lanes: registers.lanes }
    }
}
