//! IN lists, with SQL's NULLs: a chain of comparisons, or, where there are many constants, a binary search in their
//! sorted table, which is an argument of the kernel. Floats are compared by their bits, as DataFusion does here.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type};

use super::text::{count_up, function};
use super::value::{boolean, both, either, scalar, unsupported, wider};
use super::{compare, text};
use crate::context::{Case, Constant, Context, Lowered, Repr, Text, Unsupported, register_of};
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Literal, Range};

/// Constants from which on they are a table.
const TABLE_FROM: usize = 33;
/// Elements that are compared one after the other, at most.
const CHAIN_LIMIT: usize = 256;
/// Bytes of the texts of a table, at most: places in them are `u32`.
const TEXT_LIMIT_BYTES: usize = 1 << 30;

/// Lowers `input [NOT] IN (list)`.
pub(super) fn lower(
    cx: &mut Context<'_>,
    input: &Expr,
    list: &[Expr],
    negated: bool,
) -> Result<Lowered, Unsupported> {
    let value = cx.lower(input)?;
    let table = Table::of(list, &input.data_type)?;
    let chained: Vec<&Expr> = match &table {
        Some(_) => list.iter().filter(|element| !is_constant(element)).collect(),
        None => list.iter().collect(),
    };
    if chained.len() > CHAIN_LIMIT {
        return unsupported(format!("IN list with more than {CHAIN_LIMIT} elements that are not constant"));
    }
    let mut found: Option<V> = None;
    if let Some(table) = table {
        found = Some(table.contains(cx, &value)?);
    }
    let mut all_valid: Option<V> = None;
    for element in chained {
        let (equal, valid) = matches(cx, &value, element, &input.data_type)?;
        let equal = match valid {
            Some(valid) => cx.builder.and(equal, valid),
            None => equal,
        };
        found = either(cx, found, Some(equal));
        all_valid = both(cx, all_valid, valid);
    }
    let found = match found {
        Some(found) => found,
        None => cx.builder.bool(false),
    };
    // Not found is only known where no element is NULL.
    let known = all_valid.map(|valid| cx.builder.or(valid, found));
    let valid = both(cx, value.valid, known);
    Ok(boolean(if negated { cx.builder.not(found) } else { found }, valid))
}

/// A constant other than NULL.
fn is_constant(element: &Expr) -> bool {
    matches!(&element.kind, ExprKind::Literal(literal) if *literal != Literal::Null)
}

/// Whether the value equals an element, and the element's validity.
fn matches(
    cx: &mut Context<'_>,
    value: &Lowered,
    element: &Expr,
    data_type: &DataType,
) -> Result<(V, Option<V>), Unsupported> {
    if let (ExprKind::Literal(Literal::Int(literal)), Repr::Scalar(value)) = (&element.kind, &value.repr) {
        let (a, b) = compare::with_literal(cx, *value, *literal);
        return Ok((cx.builder.eq(a, b), None));
    }
    let element = cx.lower(element)?;
    let equal = match data_type {
        DataType::Utf8 => text::compare(cx, CompareOp::Eq, value, &element)?,
        DataType::Float32 | DataType::Float64 => {
            let bits = if *data_type == DataType::Float32 { Scalar::I32 } else { Scalar::I64 };
            let (a, b) = (scalar(value)?, scalar(&element)?);
            let (a, b) = (cx.builder.bitcast(a, bits), cx.builder.bitcast(b, bits));
            cx.builder.eq(a, b)
        }
        _ => compare::equal(cx, value, &element, data_type)?,
    };
    Ok((equal, element.valid))
}

/// The constants of a list, sorted.
enum Table {
    /// Integers, or the bits of floats.
    Integers { values: Vec<i128>, register: Scalar },
    /// Texts by their bytes.
    Texts(Vec<std::sync::Arc<str>>),
}

impl Table {
    /// The constants other than NULL, where they are many.
    fn of(list: &[Expr], data_type: &DataType) -> Result<Option<Table>, Unsupported> {
        let constants = list.iter().filter_map(|element| match &element.kind {
            ExprKind::Literal(literal) => Some(literal),
            _ => None,
        });
        let (mut integers, mut texts) = (Vec::new(), Vec::new());
        for constant in constants {
            match constant {
                Literal::Int(value) => integers.push(*value),
                Literal::Float(value) if *data_type == DataType::Float32 => {
                    integers.push((*value as f32).to_bits().cast_signed().into());
                }
                Literal::Float(value) => integers.push(value.to_bits().cast_signed().into()),
                Literal::Utf8(text) => texts.push(text.clone()),
                _ => {}
            }
        }
        if integers.len().max(texts.len()) < TABLE_FROM {
            return Ok(None);
        }
        if !texts.is_empty() {
            texts.sort_unstable();
            texts.dedup();
            return match texts.iter().map(|text| text.len()).sum::<usize>() <= TEXT_LIMIT_BYTES {
                true => Ok(Some(Table::Texts(texts))),
                false => unsupported("an IN list with more than 1 GiB of text"),
            };
        }
        integers.sort_unstable();
        integers.dedup();
        let range = Range { min: integers[0], max: integers[integers.len() - 1] };
        let register = match data_type {
            DataType::Float32 => Scalar::I32,
            DataType::Float64 => Scalar::I64,
            _ => register_of(range),
        };
        Ok(Some(Table::Integers { values: integers, register }))
    }

    /// Whether a value is in the table.
    fn contains(&self, cx: &mut Context<'_>, value: &Lowered) -> Result<V, Unsupported> {
        match (self, &value.repr) {
            (Table::Integers { values, register }, Repr::Scalar(value)) => {
                Ok(contains_integer(cx, values, *register, *value))
            }
            (Table::Texts(texts), Repr::Text(value)) => Ok(contains_text(cx, texts, value)),
            _ => unsupported("an IN list of another type"),
        }
    }
}

fn contains_integer(cx: &mut Context<'_>, values: &[i128], register: Scalar, value: V) -> V {
    let value = match cx.builder.scalar(value) {
        Scalar::F32 => cx.builder.bitcast(value, Scalar::I32),
        Scalar::F64 => cx.builder.bitcast(value, Scalar::I64),
        _ => value,
    };
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes().into_iter().take(register.bytes() as usize))
        .collect();
    let table = cx.bytes(&bytes);
    let table = cx.builder.bitcast(table, Type::global(register));
    let count = cx.constant(Constant::Int(Scalar::U32, values.len() as i128));
    let wide = wider(cx.builder.scalar(value), register);
    let value = cx.builder.convert(value, wide);
    let function = integer_function(cx, register, wide);
    cx.builder.call(function, &[table, count, value])
}

fn contains_text(cx: &mut Context<'_>, texts: &[std::sync::Arc<str>], value: &Text) -> V {
    let mut end = 0u32;
    let mut offsets = end.to_le_bytes().to_vec();
    for text in texts {
        end += text.len() as u32;
        offsets.extend(end.to_le_bytes());
    }
    let mut bytes = texts.concat().into_bytes();
    // No buffer is empty.
    bytes.push(0);
    let (bytes, offsets) = (cx.bytes(&bytes), cx.bytes(&offsets));
    let offsets = cx.builder.bitcast(offsets, Type::global(Scalar::U32));
    let count = cx.constant(Constant::Int(Scalar::U32, texts.len() as i128));
    let function = text_function(cx, value.case);
    cx.builder.call(function, &[bytes, offsets, count, value.data, value.length])
}

/// Looks in a sorted table: halves the places `low..high` until none is left. `order` gives -1, 0 or 1 (`i32`) as what
/// is looked for is less than, equal to or greater than the element at a place.
fn search(b: &mut Builder, count: V, order: impl FnOnce(&mut Builder, V) -> V) {
    let zero = b.u32(0);
    let (low, high) = (b.var_of("low", zero), b.var_of("high", count));
    // More steps than a table of `u32` places can take.
    let steps = b.u32(33);
    count_up(b, steps, |b, _| {
        let (from, to) = (b.read(low), b.read(high));
        let empty = b.ge(from, to);
        text::return_bool_if(b, empty, false);
        let (width, one) = (b.sub(to, from), b.u32(1));
        let half = b.binary(BinaryOp::Shr, width, one);
        let middle = b.add(from, half);
        let order = order(b, middle);
        let zero = b.i32(0);
        let found = b.eq(order, zero);
        text::return_bool_if(b, found, true);
        let below = b.lt(order, zero);
        let next = b.add(middle, one);
        narrow(b, (low, high), below, (from, to), (next, middle));
    });
    let missing = b.bool(false);
    b.return_value(missing);
}

/// Goes on in the lower half, or in the upper one.
fn narrow(
    b: &mut Builder,
    (low, high): (Var, Var),
    below: V,
    (from, to): (V, V),
    (above_middle, middle): (V, V),
) {
    let from = b.select(below, from, above_middle);
    let to = b.select(below, middle, to);
    b.assign(low, from);
    b.assign(high, to);
}

fn integer_function(cx: &mut Context<'_>, element: Scalar, value: Scalar) -> Handle<Function> {
    let name = format!("in_table_{}_{}", element.name(), value.name());
    let params = [("table", Type::global(element)), ("count", Type::U32), ("value", Type::Scalar(value))];
    function(cx, &name, &params, Scalar::Bool, |b| {
        let [table, count, wanted] = [0, 1, 2].map(|index| b.param(index));
        search(b, count, |b, place| {
            let element = b.offset(table, place);
            let element = b.load_read_only(element);
            let element = b.convert(element, value);
            text::sign(b, wanted, element)
        });
    })
}

fn text_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let order = text::order_function(cx, case, Case::Keep);
    let params = [
        ("bytes", Type::global(Scalar::U8)),
        ("offsets", Type::global(Scalar::U32)),
        ("count", Type::U32),
        ("text", Type::global(Scalar::U8)),
        ("length", Type::U32),
    ];
    function(cx, &format!("text_in_table{}", text::case_name(case)), &params, Scalar::Bool, |b| {
        let [bytes, offsets, count, data, length] = [0, 1, 2, 3, 4].map(|index| b.param(index));
        search(b, count, |b, place| {
            let next = b.add_int(place, 1);
            let (start, end) = (b.element(offsets, place), b.element(offsets, next));
            let (element, width) = (b.offset(bytes, start), b.sub(end, start));
            b.call(order, &[data, length, element, width])
        });
    })
}
