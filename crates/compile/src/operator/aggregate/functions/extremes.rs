//! Values of minima and maxima as cells keep them: unsigned keys in the value's order, of 64 or 128 bits, and texts as
//! packed references.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, Pointee, Scalar, Space, Type};

use super::cells::CellOp;
use crate::context::{Case, Context, Repr, Status, Text, Unsupported, register_of};
use crate::lower::{copied_text, plain_text, text_order};
use crate::types::{DataType, Range};

/// Bits of a packed reference that hold the length.
const LENGTH_BITS: u32 = 16;

/// How a value becomes a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OrderKey {
    /// `false` is 0, `true` is 1.
    Boolean,
    /// The sign bit is flipped.
    Signed,
    /// As it is.
    Unsigned,
    /// IEEE total order.
    Float,
    /// 128 bits, the sign bit flipped.
    Wide,
}

impl OrderKey {
    /// The key of values of a type within bounds; `None` where the type has none.
    pub fn of(data_type: &DataType, bounds: Option<Range>) -> Option<OrderKey> {
        match (data_type, bounds) {
            (DataType::Boolean, _) => Some(OrderKey::Boolean),
            (DataType::Float32 | DataType::Float64, _) => Some(OrderKey::Float),
            (_, Some(bounds)) if register_of(bounds) != Scalar::I128 => Some(OrderKey::Signed),
            (_, Some(bounds)) if bounds.within(Range::new(0, u64::MAX)) => Some(OrderKey::Unsigned),
            (_, Some(_)) => Some(OrderKey::Wide),
            (_, None) => None,
        }
    }

    /// The cell of a maximum.
    pub const fn op(self) -> CellOp {
        match self {
            OrderKey::Wide => CellOp::MaxWide,
            _ => CellOp::Max,
        }
    }

    /// Bounds of the keys of values within bounds, or of the keys' `complement`s; `None` where they are not known.
    pub fn bounds(self, values: Range, complement: bool) -> Option<Range> {
        let key = |value: i128| match self {
            OrderKey::Signed => i64::try_from(value).ok().map(|value| (value as u64) ^ (1 << 63)),
            OrderKey::Boolean | OrderKey::Unsigned => u64::try_from(value).ok(),
            OrderKey::Float | OrderKey::Wide => None,
        };
        let (least, greatest) = (key(values.min)?, key(values.max)?);
        Some(match complement {
            true => Range::new(!greatest, !least),
            false => Range::new(least, greatest),
        })
    }

    /// The key of a value.
    pub fn encode(self, cx: &mut Context<'_>, value: V) -> V {
        let b = &mut *cx.builder;
        match self {
            OrderKey::Boolean | OrderKey::Unsigned => b.convert(value, Scalar::U64),
            OrderKey::Signed => {
                let wide = b.convert(value, Scalar::I64);
                let top = b.i64(i64::MIN);
                let key = b.binary(BinaryOp::Xor, wide, top);
                b.bitcast(key, Scalar::U64)
            }
            OrderKey::Float => {
                let wide = b.convert(value, Scalar::F64);
                let bits = b.bitcast(wide, Scalar::I64);
                let sign = b.shr_int(bits, 63);
                let flip = b.or_int(sign, i64::MIN);
                let key = b.binary(BinaryOp::Xor, bits, flip);
                b.bitcast(key, Scalar::U64)
            }
            OrderKey::Wide => {
                let wide = b.convert(value, Scalar::I128);
                b.xor_int(wide, i128::MIN)
            }
        }
    }

    /// The value of a key as `register`: `bool`, a float, or an integer.
    pub fn decode(self, cx: &mut Context<'_>, key: V, register: Scalar) -> V {
        let b = &mut *cx.builder;
        match self {
            OrderKey::Boolean => b.ne_int(key, 0),
            OrderKey::Unsigned => b.convert(key, register),
            OrderKey::Signed => {
                let key = b.bitcast(key, Scalar::I64);
                let top = b.i64(i64::MIN);
                let value = b.binary(BinaryOp::Xor, key, top);
                b.convert(value, register)
            }
            OrderKey::Float => {
                let key = b.bitcast(key, Scalar::I64);
                let sign = b.shr_int(key, 63);
                let sign = b.not(sign);
                let flip = b.or_int(sign, i64::MIN);
                let bits = b.binary(BinaryOp::Xor, key, flip);
                let value = b.bitcast(bits, Scalar::F64);
                b.convert(value, register)
            }
            OrderKey::Wide => {
                let value = b.xor_int(key, i128::MIN);
                b.convert(value, register)
            }
        }
    }
}

/// `a < b` of 128 bits without a sign.
pub fn wide_less(cx: &mut Context<'_>, a: V, b: V) -> V {
    let builder = &mut *cx.builder;
    let top = builder.int(Scalar::I128, i128::MIN);
    let (a, b) = (builder.binary(BinaryOp::Xor, a, top), builder.binary(BinaryOp::Xor, b, top));
    builder.lt(a, b)
}

/// A text as one word: its address, and its length in the lower bits. What does not fit is reported where `live`: the
/// engine falls back.
pub fn pack_text(cx: &mut Context<'_>, value: &Repr, live: Option<V>) -> Result<V, Unsupported> {
    let Repr::Text(text) = value else { return Err(Unsupported("an extreme of what is not text".into())) };
    let text = plain_text(cx, text.clone(), live);
    cx.fence_text();
    let b = &mut *cx.builder;
    let address = b.bitcast(text.data, Scalar::U64);
    let (length_bits, address_bits) = (b.u32(LENGTH_BITS), b.u64(u64::from(u64::BITS - LENGTH_BITS)));
    let long = b.binary(BinaryOp::Shr, text.length, length_bits);
    let long = b.convert(long, Scalar::U64);
    let far = b.binary(BinaryOp::Shr, address, address_bits);
    let excess = b.or(long, far);
    let zero = b.u64(0);
    let misfit = b.ne(excess, zero);
    let misfit = match live {
        Some(live) => b.and(live, misfit),
        None => misfit,
    };
    b.begin_if(misfit);
    b.report(Status::Fallback as u32);
    b.end();
    let packed = b.shl_int(address, u64::from(LENGTH_BITS));
    let length = b.convert(text.length, Scalar::U64);
    let packed = b.or(packed, length);
    // It is not to be looked at.
    Ok(b.select(misfit, zero, packed))
}

/// The text of a packed reference; of nothing: no bytes.
pub fn unpack_text(cx: &mut Context<'_>, word: V) -> Text {
    let b = &mut *cx.builder;
    let address = b.shr_int(word, u64::from(LENGTH_BITS));
    let data = b.bitcast(address, Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8)));
    let mask = b.u64((1 << LENGTH_BITS) - 1);
    let length = b.and(word, mask);
    let length = b.convert(length, Scalar::U32);
    Text { data, length, case: Case::Keep, code: None }
}

/// What a cell takes of a text in scratch memory (`new`): a copy where it is better than what the cell holds (`old`), else
/// nothing. The cell compares again, as another thread may have been faster.
pub fn keep_better(cx: &mut Context<'_>, op: CellOp, old: V, new: V) -> Result<V, Unsupported> {
    let better = text_is_better(cx, op, old, new);
    let nothing = cx.builder.u64(0);
    let kept = cx.builder.var_of("kept", nothing);
    cx.begin_if(better);
    let text = unpack_text(cx, new);
    let copy = copied_text(cx, &text);
    let packed = pack_text(cx, &Repr::Text(copy), None)?;
    cx.builder.assign(kept, packed);
    cx.end();
    Ok(cx.builder.read(kept))
}

/// Whether a cell that holds the text `old` takes `new`; either may be nothing.
pub fn text_is_better(cx: &mut Context<'_>, op: CellOp, old: V, new: V) -> V {
    let (nothing, no) = (cx.builder.u64(0), cx.builder.bool(false));
    let is_better = cx.builder.var_of("is_better", no);
    let something = cx.builder.ne(new, nothing);
    cx.begin_if(something);
    cx.fence_text();
    let (old_text, new_text) = (unpack_text(cx, old), unpack_text(cx, new));
    let order = text_order(cx, &new_text, &old_text);
    let b = &mut *cx.builder;
    let equal = b.i32(0);
    let better = b.compare(if op == CellOp::MinText { CompareOp::Lt } else { CompareOp::Gt }, order, equal);
    let first = b.eq(old, nothing);
    let better = b.or(better, first);
    b.assign(is_better, better);
    cx.end();
    cx.builder.read(is_better)
}
