//! Keys of a hash table: packed into one word where they fit, else stored beside the slot.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Pointee, Scalar, Space, Type};

use super::declare;
use super::functions::register_type;
use crate::context::{Argument, Case, Constant, Context, Lowered, Repr, Text, Unsupported};
use crate::pipeline::ColumnInfo;
use crate::types::DataType;

/// The bit of an entry that says that the slot is taken: an empty slot is a state, never a stolen key value.
pub const OCCUPIED: u64 = 1 << 63;

/// A key inside a packed word.
#[derive(Debug, Clone)]
pub struct PackedKey {
    min: i128,
    shift: u32,
    /// Bits, with the one of NULL (the highest) where nullable.
    bits: u32,
    nullable: bool,
}

/// The packing of the keys into 63 bits, if they fit.
pub fn pack(columns: &[ColumnInfo]) -> Option<Vec<PackedKey>> {
    let mut shift = 0;
    let mut packed = Vec::new();
    for column in columns {
        let (min, values) = match (column.dictionary, &column.data_type) {
            (Some((_, _, entries)), _) => (0, i128::from(entries)),
            (None, DataType::Boolean) => (0, 2),
            _ => {
                let range = column.range.or_else(|| column.data_type.full_range())?;
                (range.min, range.max.checked_sub(range.min)?.checked_add(1)?)
            }
        };
        let bits = i128::BITS - (values - 1).max(0).leading_zeros() + u32::from(column.nullable);
        packed.push(PackedKey { min, shift, bits, nullable: column.nullable });
        shift += bits;
    }
    (shift <= 63).then_some(packed)
}

impl PackedKey {
    /// This key's bits of the entry.
    pub fn encode(&self, cx: &mut Context<'_>, key: &Lowered) -> Result<V, Unsupported> {
        let index = match &key.repr {
            Repr::Text(text) => match text.code {
                Some(code) => cx.builder.convert(code.value, Scalar::U64),
                None => return Err(Unsupported("a dictionary column lost its codes".into())),
            },
            Repr::Scalar(value) => self.index(cx, *value),
        };
        let index = match key.valid {
            Some(valid) if self.nullable => {
                let null = cx.builder.u64(1 << (self.bits - 1));
                cx.builder.select(valid, index, null)
            }
            // The planner knows that it is never NULL (COALESCE with a constant): the flag is always set.
            Some(valid) => {
                let zero = cx.builder.u64(0);
                cx.builder.select(valid, index, zero)
            }
            None => index,
        };
        let shift = cx.builder.u64(u64::from(self.shift));
        Ok(cx.builder.binary(BinaryOp::Shl, index, shift))
    }

    fn index(&self, cx: &mut Context<'_>, value: V) -> V {
        if cx.builder.scalar(value) == Scalar::Bool {
            return cx.builder.convert(value, Scalar::U64);
        }
        let wide = cx.builder.convert(value, Scalar::I128);
        let wide = match self.min {
            0 => wide,
            min => {
                let min = cx.constant(Constant::Int(Scalar::I128, min));
                cx.builder.sub(wide, min)
            }
        };
        cx.builder.convert(wide, Scalar::U64)
    }

    /// The key of an entry.
    pub fn decode(&self, cx: &mut Context<'_>, entry: V, column: &ColumnInfo) -> Lowered {
        let b = &mut *cx.builder;
        let shift = b.u64(u64::from(self.shift));
        let field = b.binary(BinaryOp::Shr, entry, shift);
        let mask = b.u64(if self.bits == 0 { 0 } else { u64::MAX >> (64 - self.bits) });
        let field = b.and(field, mask);
        let valid = self.nullable.then(|| {
            let null = b.u64(1 << (self.bits - 1));
            let bit = b.and(field, null);
            let zero = b.u64(0);
            b.eq(bit, zero)
        });
        let index = match valid {
            Some(valid) => {
                let zero = b.u64(0);
                b.select(valid, field, zero)
            }
            None => field,
        };
        let repr = match column.dictionary {
            Some((scan, column, entries)) => {
                let value = cx.builder.convert(index, Scalar::U32);
                let code = crate::context::DictionaryCode { value, entries, scan, column };
                Repr::Text(cx.dictionary_entry(code))
            }
            None => Repr::Scalar(self.value(cx, index, column)),
        };
        Lowered { repr, valid, range: column.range.or_else(|| column.data_type.full_range()) }
    }

    fn value(&self, cx: &mut Context<'_>, index: V, column: &ColumnInfo) -> V {
        let register = register_type(&column.data_type, column.range);
        if register == Scalar::Bool {
            let zero = cx.builder.u64(0);
            return cx.builder.ne(index, zero);
        }
        let wide = cx.builder.convert(index, Scalar::I128);
        let wide = match self.min {
            0 => wide,
            min => {
                let min = cx.constant(Constant::Int(Scalar::I128, min));
                cx.builder.add(wide, min)
            }
        };
        cx.builder.convert(wide, register)
    }
}

/// A key that is stored beside its slot.
#[derive(Debug, Clone)]
pub struct StoredKey {
    scalar: Option<Scalar>,
    /// State of the values: the scalar, or the address of the text.
    values: usize,
    /// State of the text's lengths.
    lengths: Option<usize>,
    /// State of one byte a slot.
    validity: Option<usize>,
}

impl StoredKey {
    /// Declares the states of a key.
    pub fn plan(
        column: &ColumnInfo,
        class: usize,
        states: &mut declare::States,
    ) -> Result<StoredKey, Unsupported> {
        let validity = column.nullable.then(|| states.state("key_validity", 1, class));
        if column.data_type == DataType::Utf8 {
            let values = states.state("key_text", 8, class);
            let lengths = Some(states.state("key_lengths", 4, class));
            return Ok(StoredKey { scalar: None, values, lengths, validity });
        }
        if matches!(column.data_type, DataType::Null | DataType::Interval) {
            return Err(Unsupported(format!("grouping by {}", column.data_type)));
        }
        let scalar = match register_type(&column.data_type, column.range) {
            Scalar::Bool => Scalar::U8,
            other => other,
        };
        let values = states.state("key", scalar.bytes(), class);
        Ok(StoredKey { scalar: Some(scalar), values, lengths: None, validity })
    }

    fn address(cx: &mut Context<'_>, state: usize, scalar: Scalar, slot: V) -> V {
        let array = cx.argument("keys", Type::global(scalar), Argument::State(state));
        cx.builder.offset(array, slot)
    }

    /// 64 bits that are equal for equal keys; mixed by the caller.
    pub fn hash(&self, cx: &mut Context<'_>, key: &Lowered) -> Result<V, Unsupported> {
        let bits = match (&key.repr, self.scalar) {
            (Repr::Text(text), None) => text_hash(cx, text),
            (Repr::Scalar(value), Some(scalar)) => {
                let value = self.stored(cx, *value, scalar);
                let b = &mut *cx.builder;
                match scalar {
                    Scalar::F32 => {
                        let bits = b.bitcast(value, Scalar::U32);
                        b.convert(bits, Scalar::U64)
                    }
                    Scalar::F64 => b.bitcast(value, Scalar::U64),
                    Scalar::I128 => {
                        let low = b.convert(value, Scalar::U64);
                        let shift = b.int(Scalar::I128, 64);
                        let high = b.binary(BinaryOp::Shr, value, shift);
                        let high = b.convert(high, Scalar::U64);
                        let high = mix(cx, high);
                        cx.builder.binary(BinaryOp::Xor, low, high)
                    }
                    _ => b.convert(value, Scalar::U64),
                }
            }
            _ => return Err(Unsupported("a key changed its representation".into())),
        };
        Ok(match key.valid {
            Some(valid) => {
                let null = cx.builder.u64(0x9e37_79b9_7f4a_7c15);
                cx.builder.select(valid, bits, null)
            }
            None => bits,
        })
    }

    /// The value as it is stored: -0.0 is 0.0, which is one group with it, as in DataFusion.
    fn stored(&self, cx: &mut Context<'_>, value: V, scalar: Scalar) -> V {
        let value = cx.builder.convert(value, scalar);
        if !scalar.is_float() {
            return value;
        }
        let zero = cx.builder.zero(scalar);
        let is_zero = cx.builder.eq(value, zero);
        cx.builder.select(is_zero, zero, value)
    }

    /// Writes the current row's key into a slot.
    pub fn store(&self, cx: &mut Context<'_>, key: &Lowered, slot: V) {
        if let Some(state) = self.validity {
            let pointer = Self::address(cx, state, Scalar::U8, slot);
            // Declared nullable, but this pipeline's rows may never be NULL.
            let valid = match key.valid {
                Some(valid) => cx.builder.convert(valid, Scalar::U8),
                None => cx.builder.int(Scalar::U8, 1),
            };
            cx.builder.store(pointer, valid);
        }
        match (&key.repr, self.scalar, self.lengths) {
            (Repr::Scalar(value), Some(scalar), _) => {
                let pointer = Self::address(cx, self.values, scalar, slot);
                let value = self.stored(cx, *value, scalar);
                cx.builder.store(pointer, value);
            }
            (Repr::Text(text), _, Some(lengths)) => {
                let pointer = Self::address(cx, self.values, Scalar::U64, slot);
                let address = cx.builder.bitcast(text.data, Scalar::U64);
                cx.builder.store(pointer, address);
                let pointer = Self::address(cx, lengths, Scalar::U32, slot);
                cx.builder.store(pointer, text.length);
            }
            _ => {}
        }
    }

    /// The key in a slot.
    pub fn load(&self, cx: &mut Context<'_>, column: &ColumnInfo, slot: V) -> Lowered {
        let valid = self.validity.map(|state| {
            let pointer = Self::address(cx, state, Scalar::U8, slot);
            let byte = cx.builder.load(pointer);
            let zero = cx.builder.zero(Scalar::U8);
            cx.builder.ne(byte, zero)
        });
        let repr = match (self.scalar, self.lengths) {
            (Some(scalar), _) => {
                let pointer = Self::address(cx, self.values, scalar, slot);
                let value = cx.builder.load(pointer);
                Repr::Scalar(match column.data_type {
                    DataType::Boolean => {
                        let zero = cx.builder.zero(scalar);
                        cx.builder.ne(value, zero)
                    }
                    _ => value,
                })
            }
            (None, lengths) => {
                let pointer = Self::address(cx, self.values, Scalar::U64, slot);
                let address = cx.builder.load(pointer);
                let data = cx.builder.bitcast(address, Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8)));
                let pointer = Self::address(cx, lengths.unwrap_or(self.values), Scalar::U32, slot);
                let length = cx.builder.load(pointer);
                Repr::Text(Text { data, length, case: Case::Keep, code: None })
            }
        };
        let range = if column.data_type.is_float() { None } else { column.range };
        Lowered { repr, valid, range: range.or_else(|| column.data_type.full_range()) }
    }

    /// Whether a slot's key is the current row's; NULL equals NULL.
    pub fn equals(
        &self,
        cx: &mut Context<'_>,
        column: &ColumnInfo,
        key: &Lowered,
        slot: V,
    ) -> Result<V, Unsupported> {
        let stored = self.load(cx, column, slot);
        let same = match (&key.repr, &stored.repr, self.scalar) {
            (Repr::Scalar(value), Repr::Scalar(other), Some(scalar)) => {
                let value = self.stored(cx, *value, scalar);
                let other = self.stored(cx, *other, scalar);
                match scalar {
                    Scalar::F32 | Scalar::F64 => {
                        let bits = if scalar == Scalar::F32 { Scalar::U32 } else { Scalar::U64 };
                        let (value, other) =
                            (cx.builder.bitcast(value, bits), cx.builder.bitcast(other, bits));
                        cx.builder.eq(value, other)
                    }
                    _ => cx.builder.eq(value, other),
                }
            }
            (Repr::Text(text), Repr::Text(other), None) => text_equal(cx, text, other, stored.valid),
            _ => return Err(Unsupported("a key changed its representation".into())),
        };
        Ok(match (key.valid, stored.valid) {
            (Some(a), Some(b)) => {
                let both_or_neither = cx.builder.eq(a, b);
                let null = cx.builder.not(a);
                let same = cx.builder.or(same, null);
                cx.builder.and(both_or_neither, same)
            }
            // Declared nullable, but this pipeline's rows never are: every stored key is valid too.
            _ => same,
        })
    }
}

/// The finalizer of MurmurHash3: every bit of the input reaches every bit of the output.
pub fn mix(cx: &mut Context<'_>, value: V) -> V {
    let b = &mut *cx.builder;
    let mut value = value;
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        let shift = b.u64(33);
        let high = b.binary(BinaryOp::Shr, value, shift);
        value = b.binary(BinaryOp::Xor, value, high);
        let factor = b.u64(factor);
        value = b.mul(value, factor);
    }
    let shift = b.u64(33);
    let high = b.binary(BinaryOp::Shr, value, shift);
    b.binary(BinaryOp::Xor, value, high)
}

/// FNV-1a over the bytes.
fn text_hash(cx: &mut Context<'_>, text: &Text) -> V {
    let basis = cx.builder.u64(0xcbf2_9ce4_8422_2325);
    let hash = cx.builder.var_of("hash", basis);
    let zero = cx.builder.u32(0);
    let position = cx.builder.var_of("position", zero);
    cx.begin_loop();
    let current = cx.builder.read(position);
    let done = cx.builder.ge(current, text.length);
    cx.builder.break_if(done);
    let byte = cx.builder.element(text.data, current);
    let b = &mut *cx.builder;
    let byte = b.convert(byte, Scalar::U64);
    let old = b.read(hash);
    let mixed = b.binary(BinaryOp::Xor, old, byte);
    let prime = b.u64(0x0000_0100_0000_01b3);
    let new = b.mul(mixed, prime);
    b.assign(hash, new);
    let one = b.u32(1);
    let next = b.add(current, one);
    b.assign(position, next);
    cx.end();
    cx.builder.read(hash)
}

/// Whether two texts have the same bytes. `other` is read only where `readable` (if given) is true.
fn text_equal(cx: &mut Context<'_>, text: &Text, other: &Text, readable: Option<V>) -> V {
    let same_length = cx.builder.eq(text.length, other.length);
    let start = match readable {
        Some(readable) => cx.builder.and(same_length, readable),
        None => same_length,
    };
    let equal = cx.builder.var_of("equal", start);
    cx.begin_if(start);
    let zero = cx.builder.u32(0);
    let position = cx.builder.var_of("position", zero);
    cx.begin_loop();
    let current = cx.builder.read(position);
    let done = cx.builder.ge(current, text.length);
    cx.builder.break_if(done);
    let (a, b) = (cx.builder.element(text.data, current), cx.builder.element(other.data, current));
    let differs = cx.builder.ne(a, b);
    cx.begin_if(differs);
    let no = cx.builder.bool(false);
    cx.builder.assign(equal, no);
    cx.builder.break_loop();
    cx.end();
    let one = cx.builder.u32(1);
    let next = cx.builder.add(current, one);
    cx.builder.assign(position, next);
    cx.end();
    cx.end();
    cx.builder.read(equal)
}
