//! Addresses, loads and stores.

use kelpie_kir::{Handle, Pointee, Reads, Scalar, Space, Type, Value};

use super::printer::{Printer, instruction};
use super::registers::{Class, Operand, Piece, Wide, memory};

impl Printer<'_> {
    /// The name of the space that a pointer is into.
    pub fn space(&self, pointer: Handle<Value>) -> &'static str {
        match self.ty(pointer) {
            Type::Ptr(Space::Shared, _) => "shared",
            _ => "global",
        }
    }

    /// The scalar that a pointer points to.
    pub fn pointee(&self, pointer: Handle<Value>) -> Scalar {
        match self.ty(pointer) {
            Type::Ptr(_, Pointee::Scalar(scalar)) => scalar,
            _ => Scalar::U8,
        }
    }

    /// `pointer + index` elements.
    pub fn offset(&mut self, pointer: Handle<Value>, index: Handle<Value>) -> Piece {
        let Type::Ptr(_, pointee) = self.ty(pointer) else { return self.piece(pointer) };
        let bytes = pointee.bytes(&self.frame.module.structs);
        let (scalar, address) = (self.scalar(index), self.operand(pointer));
        let result = self.register(Class::Long);
        if let Operand::Integer(index) = self.operand(index) {
            instruction!(self, "add.s64 {result}, {address}, {}", index.wrapping_mul(i64::from(bytes)));
            return Piece::One(result);
        }
        let index = self.operand(index);
        match scalar.bytes() {
            8 if bytes == 1 => instruction!(self, "add.s64 {result}, {address}, {index}"),
            8 => instruction!(self, "mad.lo.s64 {result}, {index}, {bytes}, {address}"),
            _ => {
                let sign = if scalar.is_signed() { "s" } else { "u" };
                instruction!(self, "mad.wide.{sign}32 {result}, {index}, {bytes}, {address}");
            }
        }
        Piece::One(result)
    }

    /// Where a field of a struct begins, in bytes.
    fn field_offset(&self, pointer: Handle<Value>, field: u32) -> u32 {
        match self.ty(pointer) {
            Type::Ptr(_, Pointee::Struct(handle)) => self.frame.module.structs[handle].offset(field as usize),
            _ => 0,
        }
    }

    /// The address of a field.
    pub fn field(&mut self, pointer: Handle<Value>, field: u32) -> Piece {
        let (address, offset) = (self.operand(pointer), self.field_offset(pointer, field));
        let result = self.register(Class::Long);
        instruction!(self, "add.s64 {result}, {address}, {offset}");
        Piece::One(result)
    }

    /// A load through a pointer to a scalar.
    pub fn load(&mut self, pointer: Handle<Value>, reads: Reads) -> Piece {
        let way = match self.space(pointer) {
            "global" if reads.is_read_only() => "global.nc",
            space => space,
        };
        let (scalar, address) = (self.pointee(pointer), self.operand_register(pointer));
        self.load_from(way, scalar.into(), address, 0)
    }

    /// A load of a struct's field, which may be a pointer. Nobody writes there.
    pub fn load_field(&mut self, pointer: Handle<Value>, field: u32, ty: Type) -> Piece {
        let way = if self.space(pointer) == "global" { "global.nc" } else { "shared" };
        let offset = self.field_offset(pointer, field);
        let address = self.operand_register(pointer);
        self.load_from(way, ty, address, offset)
    }

    /// A load of a scalar or pointer in a way such as `global.nc`.
    pub fn load_from(&mut self, way: &str, ty: Type, address: Operand, offset: u32) -> Piece {
        let place = match offset {
            0 => format!("[{address}]"),
            _ => format!("[{address}+{offset}]"),
        };
        if ty == Type::Scalar(Scalar::I128) {
            let wide = self.wide_register();
            instruction!(self, "ld.{way}.v2.b64 {{{}, {}}}, {place}", wide.low, wide.high);
            return Piece::Two(wide);
        }
        let is_truth = ty == Type::BOOL;
        let class = if is_truth { Class::Word } else { Class::of(ty) };
        let result = self.register(class);
        instruction!(self, "ld.{way}.{} {result}, {place}", ty.scalar().map_or("b64", memory));
        Piece::One(if is_truth { self.word_as_truth(result) } else { result })
    }

    /// A store of a scalar in a space.
    pub fn store_to(&mut self, space: &str, scalar: Scalar, address: Operand, value: Piece) {
        match value {
            Piece::Two(Wide { low, high }) => {
                let low = self.in_register(low, Class::Long);
                let high = self.in_register(high, Class::Long);
                instruction!(self, "st.{space}.v2.b64 [{address}], {{{low}, {high}}}");
            }
            Piece::One(value) => {
                let value = match scalar {
                    Scalar::Bool => self.truth_as_word(value),
                    _ => self.in_register(value, Class::of(scalar.into())),
                };
                instruction!(self, "st.{space}.{} [{address}], {value}", stored(scalar));
            }
        }
    }

    /// Eight bytes at any address: of the two aligned words in which they are, the second one is read only where some of
    /// them are in it, so that both lie within the allocation.
    pub fn load_bytes(&mut self, pointer: Handle<Value>) -> Piece {
        let address = self.operand_register(pointer);
        let [aligned, low, high, lower, upper, result] = [(); 6].map(|()| self.register(Class::Long));
        let [byte, rest, shift, back] = [(); 4].map(|()| self.register(Class::Word));
        let crosses = self.register(Class::Predicate);
        instruction!(self, "and.b64 {aligned}, {address}, -8");
        instruction!(self, "cvt.u32.u64 {byte}, {address}");
        instruction!(self, "and.b32 {rest}, {byte}, 7");
        instruction!(self, "shl.b32 {shift}, {rest}, 3");
        instruction!(self, "setp.ne.u32 {crosses}, {shift}, 0");
        instruction!(self, "mov.b64 {high}, 0");
        instruction!(self, "ld.global.b64 {low}, [{aligned}]");
        instruction!(self, "@{crosses} ld.global.b64 {high}, [{aligned}+8]");
        // A shift by 64, where the bytes are aligned, gives 0.
        instruction!(self, "sub.u32 {back}, 64, {shift}");
        instruction!(self, "shr.u64 {lower}, {low}, {shift}");
        instruction!(self, "shl.b64 {upper}, {high}, {back}");
        instruction!(self, "or.b64 {result}, {lower}, {upper}");
        Piece::One(result)
    }

    /// Eight bytes to any address.
    pub fn store_bytes(&mut self, pointer: Handle<Value>, value: Handle<Value>) {
        let (address, value) = (self.operand_register(pointer), self.operand_register(value));
        for byte in 0..8 {
            let (moved, word) = (self.register(Class::Long), self.register(Class::Word));
            instruction!(self, "shr.u64 {moved}, {value}, {}", 8 * byte);
            instruction!(self, "cvt.u32.u64 {word}, {moved}");
            instruction!(self, "st.global.u8 [{address}+{byte}], {word}");
        }
    }
}

/// The type of a store: signs do not matter.
pub fn stored(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::I8 => "u8",
        Scalar::I16 => "u16",
        other => memory(other),
    }
}
