//! Loads, stores, and the store of chosen elements.

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, types};
use kelpie_kir::{Handle, Scalar, Value};

use super::super::function::Translator;
use super::{REGISTER, Registers, parts_of, register_type};

/// For each set of the four words of a register, the bytes of those words one after the other.
static WORDS: Orders<16> = orders(4);
/// The same for the two double words.
static DOUBLE_WORDS: Orders<4> = orders(8);

/// Orders of the bytes of a register.
#[repr(align(16))]
struct Orders<const N: usize>([[u8; 16]; N]);

const fn orders<const N: usize>(width: usize) -> Orders<N> {
    let mut orders = [[0; 16]; N];
    let mut set = 0;
    while set < N {
        let (mut lane, mut byte) = (0, 0);
        while lane < 16 / width {
            let mut of_lane = 0;
            while set >> lane & 1 == 1 && of_lane < width {
                orders[set][byte] = (lane * width + of_lane) as u8;
                byte += 1;
                of_lane += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    Orders(orders)
}

fn flags(align: u32) -> MemFlagsData {
    let flags = MemFlagsData::new().with_notrap();
    if align >= REGISTER { flags.with_aligned() } else { flags }
}

/// The integer of so many bytes.
fn word(bytes: u32) -> ir::Type {
    match bytes {
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

impl Translator<'_, '_> {
    pub(super) fn load_vector(
        &mut self,
        pointer: Handle<Value>,
        element: Scalar,
        lanes: u32,
        read_only: bool,
        align: u32,
    ) -> Registers {
        let (base, offset) = self.address(pointer);
        let flags = if read_only { flags(align).with_readonly() } else { flags(align) };
        let (ty, width) = (register_type(element), element.bytes());
        let bytes = width * lanes;
        let mut parts = Vec::new();
        if bytes < REGISTER {
            let loaded = self.builder.ins().load(word(bytes), flags, base, offset);
            let (loaded, of) = match bytes {
                2 => (self.builder.ins().uextend(types::I32, loaded), types::I32X4),
                4 => (loaded, types::I32X4),
                _ => (loaded, types::I64X2),
            };
            let register = self.builder.ins().scalar_to_vector(of, loaded);
            parts.push(self.as_register(ty, register));
        } else {
            for part in 0..parts_of(width, lanes) {
                let (base, offset) = self.part_address(base, offset, part);
                parts.push(self.builder.ins().load(ty, flags, base, offset));
            }
        }
        Registers { parts, width, lanes }
    }

    /// The address of a part of a vector.
    fn part_address(&mut self, base: ir::Value, offset: i32, part: usize) -> (ir::Value, i32) {
        let bytes = part as i32 * REGISTER as i32;
        match offset.checked_add(bytes) {
            Some(offset) => (base, offset),
            None => (self.materialise(base, offset), bytes),
        }
    }

    /// Writes a vector.
    pub(in super::super) fn store_vector(
        &mut self,
        pointer: Handle<Value>,
        value: Handle<Value>,
        align: u32,
    ) {
        let registers = self.registers(value);
        let (base, offset) = self.address(pointer);
        for (index, &part) in registers.parts.iter().enumerate() {
            let (base, offset) = self.part_address(base, offset, index);
            self.store_part(&registers, part, flags(align), (base, offset));
        }
    }

    /// Writes the elements of one register.
    fn store_part(
        &mut self,
        registers: &Registers,
        part: ir::Value,
        flags: MemFlagsData,
        (base, offset): (ir::Value, i32),
    ) {
        let bytes = registers.lanes_of_part() * registers.width;
        let stored = match bytes {
            REGISTER => part,
            2 => {
                let words = self.as_register(types::I16X8, part);
                self.builder.ins().extractlane(words, 0)
            }
            4 => {
                let words = self.as_register(types::I32X4, part);
                self.builder.ins().extractlane(words, 0)
            }
            _ => {
                let words = self.as_register(types::I64X2, part);
                self.builder.ins().extractlane(words, 0)
            }
        };
        self.builder.ins().store(flags, stored, base, offset);
    }

    /// Writes the elements whose mask is set one after the other; their number.
    pub(in super::super) fn compress(
        &mut self,
        pointer: Handle<Value>,
        value: Handle<Value>,
        mask: Handle<Value>,
    ) -> ir::Value {
        let (element, _) = self.element_and_lanes(value);
        let registers = self.registers(value);
        let (base, offset) = self.address(pointer);
        let start = self.materialise(base, offset);
        match element.bytes() {
            1 | 2 => self.compress_one_by_one(&registers, start, mask),
            _ => self.compress_registers(element, &registers, start, mask),
        }
    }

    /// Moves the chosen elements of each register to its front, by a table, and writes all of it: what follows the chosen
    /// elements is overwritten by the next register's, or undefined.
    fn compress_registers(
        &mut self,
        element: Scalar,
        registers: &Registers,
        start: ir::Value,
        mask: Handle<Value>,
    ) -> ir::Value {
        let masks = self.mask_of_width(mask, element.bytes());
        let table =
            if element.bytes() == 4 { WORDS.0.as_ptr() as i64 } else { DOUBLE_WORDS.0.as_ptr() as i64 };
        let table = self.builder.ins().iconst(types::I64, table);
        let mut count = None;
        for (&part, &mask) in registers.parts.iter().zip(&masks.parts) {
            let set = self.bits_of_part(mask, registers.lanes_of_part());
            let wide = self.builder.ins().uextend(types::I64, set);
            let four = self.int(types::I64, 4);
            let row = self.builder.ins().ishl(wide, four);
            let row = self.builder.ins().iadd(table, row);
            let row_flags = MemFlagsData::trusted().with_readonly();
            let order = self.builder.ins().load(types::I8X16, row_flags, row, 0);
            let bytes = self.as_register(types::I8X16, part);
            let front = if cfg!(target_arch = "x86_64") {
                self.builder.ins().x86_pshufb(bytes, order)
            } else {
                self.builder.ins().swizzle(bytes, order)
            };
            let address = self.element_address(start, count, element.bytes());
            self.store_part(registers, front, flags(1), (address, 0));
            let chosen = self.builder.ins().popcnt(set);
            count = Some(match count {
                Some(before) => self.builder.ins().iadd(before, chosen),
                None => chosen,
            });
        }
        match count {
            Some(count) => count,
            None => self.int(types::I32, 0),
        }
    }

    /// Without branches: each element is written where the next chosen one belongs.
    fn compress_one_by_one(
        &mut self,
        registers: &Registers,
        start: ir::Value,
        mask: Handle<Value>,
    ) -> ir::Value {
        let bits = self.mask_bits(mask);
        let one = self.int(types::I32, 1);
        let mut count = None;
        for lane in 0..registers.lanes {
            let element = self.element(registers, lane);
            let address = self.element_address(start, count, registers.width);
            self.builder.ins().store(flags(1), element, address, 0);
            let distance = self.int(types::I32, i64::from(lane));
            let bit = self.builder.ins().ushr(bits, distance);
            let bit = self.builder.ins().band(bit, one);
            count = Some(match count {
                Some(before) => self.builder.ins().iadd(before, bit),
                None => bit,
            });
        }
        match count {
            Some(count) => count,
            None => self.int(types::I32, 0),
        }
    }

    fn element_address(&mut self, start: ir::Value, count: Option<ir::Value>, width: u32) -> ir::Value {
        let Some(count) = count else { return start };
        let wide = self.builder.ins().uextend(types::I64, count);
        let shift = self.int(types::I64, i64::from(width.trailing_zeros()));
        let bytes = self.builder.ins().ishl(wide, shift);
        self.builder.ins().iadd(start, bytes)
    }
}
