//! What the current row contributes to a cell.

use super::cell::{Cell, Contribution, ContributionForm, Field};
use super::cells::CellOp;
use super::exact::upper_bits;
use super::extremes::pack_text;
use super::moments::of_pair;
use crate::context::{Context, Repr, Unsupported};
use crate::expr::Expr;
use crate::lower::lower;
use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

pub(crate) fn contribution(
    cx: &mut Context<'_>,
    cell: &Cell,
    active: Option<V>,
) -> Result<Vec<V>, Unsupported> {
    let Contribution { form, arguments } = &cell.contribution;
    match form {
        ContributionForm::Group { .. } if cx.wide().is_none() => {
            return group_contribution(cx, (cell.op, arguments), active);
        }
        ContributionForm::Packed { fields } if cx.wide().is_none() => {
            return Ok(vec![packed_contribution(cx, (fields, arguments), active)?]);
        }
        _ => {}
    }
    let argument = arguments.first().map(|argument| lower(cx, argument)).transpose()?;
    let live = both(cx, active, argument.as_ref().and_then(|argument| argument.valid));
    let scalar = match argument.as_ref().map(|argument| &argument.repr) {
        Some(Repr::Scalar(value)) => Some(*value),
        _ => None,
    };
    let no_text = || Unsupported("an aggregate of text".into());
    if let Some(rows) = cx.wide() {
        return wide_contribution(cx, cell, (scalar, live), rows);
    }
    let mut parts = match form {
        ContributionForm::Row | ContributionForm::Valid => vec![cx.builder.u64(1)],
        ContributionForm::Value => vec![addend(cx, cell.op, scalar.ok_or_else(no_text)?)],
        ContributionForm::UpperBits { shift } => {
            let bits = upper_bits(cx, scalar.ok_or_else(no_text)?, *shift);
            vec![addend(cx, cell.op, bits)]
        }
        ContributionForm::Key { key, complement } => {
            let key = key.encode(cx, scalar.ok_or_else(no_text)?);
            vec![if *complement { cx.builder.not(key) } else { key }]
        }
        ContributionForm::Bits { complement } => {
            let bits = cx.builder.convert(scalar.ok_or_else(no_text)?, Scalar::U64);
            vec![if *complement { cx.builder.not(bits) } else { bits }]
        }
        ContributionForm::Moments => {
            let value = cx.builder.convert(scalar.ok_or_else(no_text)?, Scalar::F64);
            let (one, zero) = (cx.builder.f64(1.0), cx.builder.f64(0.0));
            // No distance; of what is not finite NaN, also beside others.
            let squares = cx.builder.sub(value, value);
            vec![one, value, zero, squares]
        }
        ContributionForm::PairMoments => {
            let first = cx.builder.convert(scalar.ok_or_else(no_text)?, Scalar::F64);
            let [_, second] = arguments.as_slice() else {
                return Err(Unsupported::internal("a pair of other than two values"));
            };
            let Repr::Scalar(second) = lower(cx, second)?.repr else { return Err(no_text()) };
            let second = cx.builder.convert(second, Scalar::F64);
            of_pair(cx, (first, second))
        }
        ContributionForm::Square => vec![square(cx, cell, scalar.ok_or_else(no_text)?)],
        ContributionForm::Text => {
            let argument = argument.ok_or_else(no_text)?;
            vec![pack_text(cx, &argument.repr, live)?]
        }
        ContributionForm::Group { .. } | ContributionForm::Packed { .. } => {
            return Err(Unsupported::internal("several groups at once"));
        }
    };
    if let CellOp::Leading(_) = cell.op {
        // A row has one of several words.
        let nothing = cell.op.nothing(cx);
        parts.extend(nothing.iter().skip(parts.len()));
    }
    let Some(live) = live else { return Ok(parts) };
    let nothing = cell.op.nothing(cx);
    Ok(parts.iter().zip(nothing).map(|(part, nothing)| cx.builder.select(live, *part, nothing)).collect())
}

/// What a wide row contributes: of rows that are counted their number, else a vector. Dead rows are taken out before a value is
/// made longer.
fn wide_contribution(
    cx: &mut Context<'_>,
    cell: &Cell,
    (argument, live): (Option<V>, Option<V>),
    rows: u8,
) -> Result<Vec<V>, Unsupported> {
    let argument = argument.map(|argument| cx.each_row(argument));
    let value = match (&cell.contribution.form, argument) {
        (ContributionForm::Row | ContributionForm::Valid, _) => {
            return Ok(vec![cx.count_rows(live, rows, Scalar::U64)]);
        }
        (ContributionForm::Value, Some(value)) if cell.op == CellOp::Add => {
            let zero = cx.builder.scalar(value);
            let zero = cx.builder.zero(zero);
            let value = live.map_or(value, |live| cx.builder.select(live, value, zero));
            return Ok(vec![addend(cx, cell.op, value)]);
        }
        (ContributionForm::UpperBits { shift }, Some(value)) => {
            let bits = upper_bits(cx, value, *shift);
            addend(cx, cell.op, bits)
        }
        (ContributionForm::Key { key, complement }, Some(value)) => {
            let key = key.encode(cx, value);
            if *complement { cx.builder.not(key) } else { key }
        }
        (ContributionForm::Bits { complement }, Some(value)) => {
            let bits = cx.builder.convert(value, Scalar::U64);
            if *complement { cx.builder.not(bits) } else { bits }
        }
        _ => return Err(Unsupported("a contribution of several rows at once".into())),
    };
    let zero = cx.builder.zero(Scalar::U64);
    Ok(vec![live.map_or(value, |live| cx.builder.select(live, value, zero))])
}

/// What a group contributes to a cell of a coarser group: what its own cell holds.
pub(crate) fn group_contribution(
    cx: &mut Context<'_>,
    (op, columns): (CellOp, &[Expr]),
    active: Option<V>,
) -> Result<Vec<V>, Unsupported> {
    let mut parts = Vec::with_capacity(columns.len());
    for (column, scalar) in columns.iter().zip(op.parts()) {
        let Repr::Scalar(value) = lower(cx, column)?.repr else {
            return Err(Unsupported::internal("a part of a cell that is no number"));
        };
        let (b, nothing) = (&mut *cx.builder, *scalar);
        let value = match scalar {
            Scalar::U64 => {
                let value = b.convert(value, Scalar::I64);
                b.bitcast(value, Scalar::U64)
            }
            _ => b.convert(value, *scalar),
        };
        parts.push(match active {
            Some(active) => {
                let nothing = b.zero(nothing);
                b.select(active, value, nothing)
            }
            None => value,
        });
    }
    Ok(parts)
}

/// What the current row adds to a word (`u64`): nothing where `active` is false.
pub(crate) fn packed_contribution(
    cx: &mut Context<'_>,
    (fields, arguments): (&[Field], &[Expr]),
    active: Option<V>,
) -> Result<V, Unsupported> {
    let mut word: Option<V> = None;
    for field in fields {
        let own = field.argument.map(|index| arguments.get(index).cloned());
        let arguments =
            own.map(|own| own.ok_or_else(|| Unsupported::internal("a field without its argument")));
        let arguments = arguments.into_iter().collect::<Result<_, _>>()?;
        let cell = Cell {
            op: CellOp::Add,
            contribution: Contribution { form: field.form.clone(), arguments },
            distinct: None,
            word: 0,
            bounds: None,
            is_sparse: false,
        };
        let parts = contribution(cx, &cell, active)?;
        let &[value] = parts.as_slice() else {
            return Err(Unsupported::internal("a field of several parts"));
        };
        let b = &mut *cx.builder;
        let shift = b.u64(field.shift.into());
        let value = if field.shift == 0 { value } else { b.binary(BinaryOp::Shl, value, shift) };
        word = Some(match word {
            Some(word) => b.add(word, value),
            None => value,
        });
    }
    word.ok_or_else(|| Unsupported::internal("a word without fields"))
}

pub(super) fn both(cx: &mut Context<'_>, a: Option<V>, b: Option<V>) -> Option<V> {
    match (a, b) {
        (Some(a), Some(b)) => Some(cx.builder.and(a, b)),
        (one, other) => one.or(other),
    }
}

/// A value as what the cell adds.
pub(crate) fn addend(cx: &mut Context<'_>, op: CellOp, value: V) -> V {
    let b = &mut *cx.builder;
    match op {
        CellOp::Add => {
            let wide = b.convert(value, Scalar::I64);
            b.bitcast(wide, Scalar::U64)
        }
        CellOp::AddFloat => b.convert(value, Scalar::F64),
        _ => b.convert(value, Scalar::I128),
    }
}

/// A value times itself, as the cell adds it.
fn square(cx: &mut Context<'_>, cell: &Cell, value: V) -> V {
    let fits = cell.bounds.is_some_and(|bounds| bounds.max <= i64::MAX.into());
    let value = cx.builder.convert(value, if fits { Scalar::I64 } else { Scalar::I128 });
    let square = cx.builder.mul(value, value);
    addend(cx, cell.op, square)
}
