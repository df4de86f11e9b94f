//! Values at ranks of sorted groups, as a step behind the groups: a group knows the number of its first row and how many of its
//! rows have a rank, and the rows of a group follow each other in the order of the sort. So the row of a rank is one look into
//! that order, whatever the size of the group.
//!
//! Texts that are strung together are made by the step too, of all rows of a group, where they are wanted (`group_text`).
//!
//! What medians are of two rows follows DataFusion (`datafusion-functions-aggregate`, `calculate_median`), and percentiles DuckDB: their
//! weights have all digits.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, UnaryOp};

use super::group_text::GroupText;
use super::text_rows::{PlacedText, TextRows};
use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::expr::{Expr, ExprKind, columns_read, substitute};
use crate::layout::ColumnInfo;
use crate::lower::{column_of, lower};
use crate::operator::Flow;
use crate::operator::roles::{Next, Step};
use crate::operator::sort::SortOperator;
use crate::plan::Rank;
use crate::table::joined::{Joined, Made};
use crate::types::DataType;

/// A float times this has the upper half of its digits beyond what it may hold of the lower (Veltkamp).
const SPLIT: f64 = 134_217_729.0;

/// A value to be looked up.
#[derive(Debug)]
pub(crate) struct RankedColumn {
    pub rank: Rank,
    /// Over the columns of the sort.
    pub argument: Expr,
    /// The column before the step that says how many rows have a rank.
    pub count: usize,
    /// Of texts that all rows have strung together: where these are, and the column before the step that says how many rows have one.
    pub strung: Option<(TextRows, usize)>,
}

/// The columns of groups up to a number, and behind them values at ranks. The column before the step that follows the last of
/// those is the number of the group's first row.
#[derive(Debug)]
pub(crate) struct RankedValues {
    sort: Arc<SortOperator>,
    width: usize,
    values: Vec<RankedColumn>,
}

displayed!(RankedValues = "values at ranks");

/// A row of a group by its rank.
#[derive(Clone, Copy)]
struct RankedRow {
    /// Counted from the group's first row, `i64`.
    rank: V,
    /// Whether there is such a row, `bool`.
    present: V,
}

/// What of its group's rows a value is.
enum Found {
    /// Of one or two rows, each with the value there.
    Rows(RankedRows, Box<(Expr, Option<Expr>)>),
    /// Of all of them.
    Text(Rc<dyn Made>),
}

/// The rows that a value is made of.
struct RankedRows {
    low: RankedRow,
    /// The one after it, where there are two.
    high: Option<RankedRow>,
    /// Where the value lies between two, `f64`, where it need not be the middle.
    place: Option<V>,
}

impl RankedRows {
    /// Of a group in which so many rows have a rank, `i64`.
    fn find(cx: &mut Context<'_>, rank: &Rank, ranks: V) -> Result<RankedRows, Unsupported> {
        let one = cx.builder.i64(1);
        let last = cx.builder.sub(ranks, one);
        let within = |cx: &mut Context<'_>, rank: V| {
            let (from, to) = (cx.builder.ge_int(rank, 0), cx.builder.lt(rank, ranks));
            RankedRow { rank, present: cx.builder.and(from, to) }
        };
        Ok(match rank {
            Rank::FromFirst(distance) => {
                let rank = constant(cx, distance, Scalar::I64)?;
                RankedRows { low: within(cx, rank), high: None, place: None }
            }
            Rank::FromLast(distance) => {
                let distance = constant(cx, distance, Scalar::I64)?;
                let rank = cx.builder.sub(last, distance);
                RankedRows { low: within(cx, rank), high: None, place: None }
            }
            Rank::Median => {
                let low = cx.builder.binary(BinaryOp::Shr, last, one);
                let high = cx.builder.binary(BinaryOp::Shr, ranks, one);
                RankedRows { low: within(cx, low), high: Some(within(cx, high)), place: None }
            }
            Rank::Percentile(share) => {
                let share = constant(cx, share, Scalar::F64)?;
                let last = cx.builder.convert(last, Scalar::F64);
                let place = cx.builder.mul(share, last);
                let (low, high) =
                    (cx.builder.unary(UnaryOp::Floor, place), cx.builder.unary(UnaryOp::Ceil, place));
                let (low, high) =
                    (cx.builder.convert(low, Scalar::I64), cx.builder.convert(high, Scalar::I64));
                RankedRows { low: within(cx, low), high: Some(within(cx, high)), place: Some(place) }
            }
            Rank::Discrete(share) => {
                let share = constant(cx, share, Scalar::F64)?;
                let all = cx.builder.convert(ranks, Scalar::F64);
                let part = cx.builder.mul(share, all);
                let behind = cx.builder.sub(all, part);
                let behind = cx.builder.unary(UnaryOp::Floor, behind);
                let behind = cx.builder.convert(behind, Scalar::I64);
                let rank = cx.builder.sub(last, behind);
                let zero = cx.builder.i64(0);
                let is_before = cx.builder.lt(rank, zero);
                let rank = cx.builder.select(is_before, zero, rank);
                RankedRows { low: within(cx, rank), high: None, place: None }
            }
            Rank::Texts { .. } => return Err(Unsupported::internal("texts of all rows at one rank")),
        })
    }
}

impl RankedValues {
    pub fn new(sort: Arc<SortOperator>, width: usize, values: Vec<RankedColumn>) -> RankedValues {
        RankedValues { sort, width, values }
    }

    /// What is known of the columns behind it, by those before it.
    pub fn columns_behind(&self, below: &[ColumnInfo]) -> Vec<ColumnInfo> {
        let stored = self.sort.infos();
        let value = |value: &RankedColumn| match value.rank {
            // It is in no dictionary.
            Rank::Texts { .. } => ColumnInfo::new(DataType::Utf8, true, None),
            _ => ColumnInfo {
                nullable: true,
                scattered: None,
                has_frequent: false,
                is_clustered: false,
                spacing: None,
                origin: None,
                ..column_of(&value.argument, &stored)
            },
        };
        below.iter().take(self.width).cloned().chain(self.values.iter().map(value)).collect()
    }

    /// The texts of a group that has so many rows from its first one on.
    fn text(
        &self,
        cx: &mut Context<'_>,
        value: &RankedColumn,
        (delimiter, distinct): (&Expr, bool),
        (first, rows): (V, V),
    ) -> Result<Rc<dyn Made>, Unsupported> {
        let Some((texts, present)) = &value.strung else {
            let text = GroupText::new(&self.sort, &value.argument, (delimiter, distinct), (first, rows))?;
            return Ok(Rc::new(text));
        };
        let present = scalar(&cx.column(*present)?)?;
        let present = cx.builder.convert(present, Scalar::I64);
        let (sort, texts) = (Arc::clone(&self.sort), texts.clone());
        Ok(Rc::new(PlacedText { sort, texts, first, rows, present }))
    }

    /// The stored columns that a value reads, of one of its rows, and the value over them where they begin at column `from`.
    fn columns_at(
        &self,
        cx: &mut Context<'_>,
        argument: &Expr,
        (row, first): (RankedRow, V),
        from: usize,
    ) -> (Vec<Joined>, Expr) {
        let b = &mut *cx.builder;
        let (number, zero) = (b.add(first, row.rank), b.i64(0));
        // Where there is no such row, that of the first can be read all the same.
        let number = b.select(row.present, number, zero);
        let read = columns_read(argument);
        let columns = self.sort.columns_at(cx, read.iter().copied(), number, Some(row.present));
        let moved = |expr: &Expr| match expr.kind {
            ExprKind::Column(column) => {
                let place = read.iter().position(|read| *read == column)?;
                Some(Expr::column(from + place, expr.data_type.clone(), true))
            }
            _ => None,
        };
        (columns, substitute(argument, &moved))
    }
}

impl Step for RankedValues {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        _speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let first = scalar(&cx.column(self.width)?)?;
        let first = cx.builder.convert(first, Scalar::I64);
        let mut found = Vec::new();
        let mut columns: Vec<Joined> = (0..self.width).map(Joined::Below).collect();
        for value in &self.values {
            let ranks = scalar(&cx.column(value.count)?)?;
            let mut ranks = cx.builder.convert(ranks, Scalar::I64);
            if let Some(active) = flow.active() {
                let none = cx.builder.i64(0);
                ranks = cx.builder.select(active, ranks, none);
            }
            if let Rank::Texts { delimiter, distinct } = &value.rank {
                found.push(Found::Text(self.text(cx, value, (delimiter, *distinct), (first, ranks))?));
                continue;
            }
            let rows = RankedRows::find(cx, &value.rank, ranks)?;
            let mut at = |cx: &mut Context<'_>, row: RankedRow| {
                let (more, expr) = self.columns_at(cx, &value.argument, (row, first), columns.len());
                columns.extend(more);
                expr
            };
            let low = at(cx, rows.low);
            let high = rows.high.map(|row| at(cx, row));
            found.push(Found::Rows(rows, Box::new((low, high))));
        }
        cx.push_joined(columns);
        let mut columns: Vec<Joined> = (0..self.width).map(Joined::Below).collect();
        for found in found {
            let (rows, exprs) = match found {
                Found::Rows(rows, exprs) => (rows, exprs),
                Found::Text(text) => {
                    columns.push(Joined::Made(text));
                    continue;
                }
            };
            let (low, high) = *exprs;
            let low = lower(cx, &low)?;
            let value = match (rows.high, high) {
                (Some(row), Some(high)) => {
                    let high = lower(cx, &high)?;
                    let (a, b) = (scalar(&low)?, scalar(&high)?);
                    let between = match rows.place {
                        Some(place) => interpolated(cx, place, (a, b)),
                        None => mean(cx, a, b),
                    };
                    let is_one = cx.builder.eq(rows.low.rank, row.rank);
                    let value = cx.builder.select(is_one, a, between);
                    Lowered { repr: Repr::Scalar(value), ..low }
                }
                _ => low,
            };
            columns.push(Joined::Value(value));
        }
        cx.push_joined(columns);
        next(cx, flow)
    }

    fn columns(&self, below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        Some(self.columns_behind(below))
    }

    fn below(&self, column: usize) -> Option<usize> {
        (column < self.width).then_some(column)
    }

    /// Its values are always looked up, and what texts are made of is always there.
    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let looked_up = self.values.iter().flat_map(|value| columns_read(&value.argument));
        self.sort.read_columns(looked_up, states);
        let strung = self.values.iter().filter_map(|value| value.strung.as_ref());
        states.extend(strung.clone().flat_map(|(texts, _)| texts.states()));
        let counts = self.values.iter().map(|value| value.count);
        let counts = counts.chain(strung.map(|(_, present)| *present));
        columns
            .iter()
            .copied()
            .filter(|column| *column < self.width)
            .chain([self.width])
            .chain(counts)
            .collect()
    }
}

fn scalar(value: &Lowered) -> Result<V, Unsupported> {
    match value.repr {
        Repr::Scalar(value) => Ok(value),
        Repr::Text(_) => Err(Unsupported::internal("a text where a number of rows is expected")),
    }
}

fn constant(cx: &mut Context<'_>, expr: &Expr, register: Scalar) -> Result<V, Unsupported> {
    let value = lower(cx, expr)?;
    let value = scalar(&value)?;
    Ok(cx.builder.convert(value, register))
}

/// The value at a place (`f64`) between two, whose ranks are the whole numbers around it: `low * (1 - weight) + high * weight`, of
/// which the first product is not rounded by itself. No instruction of all devices does that, so that what the rounding has left out
/// is added in the end.
fn interpolated(cx: &mut Context<'_>, place: V, (low, high): (V, V)) -> V {
    let b = &mut *cx.builder;
    let scalar = b.scalar(low);
    let (whole, one) = (b.unary(UnaryOp::Floor, place), b.f64(1.0));
    let weight = b.sub(place, whole);
    let rest = b.sub(one, weight);
    let (low, high) = (b.convert(low, Scalar::F64), b.convert(high, Scalar::F64));
    let upper = b.mul(high, weight);
    let lower = b.mul(low, rest);
    let sum = b.add(lower, upper);
    let (cut, left) = (rounding_of_product(cx, (low, rest), lower), rounding_of_sum(cx, (lower, upper), sum));
    let b = &mut *cx.builder;
    let missing = b.add(cut, left);
    let exact = b.add(sum, missing);
    // Of what is not finite the rounding is no number; and where nothing is missing, -0.0 stays so.
    let (is_number, zero) = (b.eq(exact, exact), b.f64(0.0));
    let is_exact = b.eq(missing, zero);
    let value = b.select(is_number, exact, sum);
    let value = b.select(is_exact, sum, value);
    b.convert(value, scalar)
}

/// What a product of two floats lacks of the exact one (Dekker).
fn rounding_of_product(cx: &mut Context<'_>, (left, right): (V, V), product: V) -> V {
    let (left, right) = (halves(cx, left), halves(cx, right));
    let b = &mut *cx.builder;
    let upper = b.mul(left.upper, right.upper);
    let rest = b.sub(upper, product);
    let crossed = b.mul(left.upper, right.lower);
    let rest = b.add(rest, crossed);
    let crossed = b.mul(left.lower, right.upper);
    let rest = b.add(rest, crossed);
    let lower = b.mul(left.lower, right.lower);
    b.add(rest, lower)
}

/// What a sum of two floats lacks of the exact one (Knuth).
fn rounding_of_sum(cx: &mut Context<'_>, (left, right): (V, V), sum: V) -> V {
    let b = &mut *cx.builder;
    let of_right = b.sub(sum, left);
    let of_left = b.sub(sum, of_right);
    let (left, right) = (b.sub(left, of_left), b.sub(right, of_right));
    b.add(left, right)
}

/// A float as the sum of two with half of its digits each.
struct Halves {
    upper: V,
    lower: V,
}

fn halves(cx: &mut Context<'_>, value: V) -> Halves {
    let b = &mut *cx.builder;
    let split = b.f64(SPLIT);
    let scaled = b.mul(value, split);
    let beyond = b.sub(scaled, value);
    let upper = b.sub(scaled, beyond);
    let lower = b.sub(value, upper);
    Halves { upper, lower }
}

/// The mean of two values of one type: of floats the half of their sum; of integers inside, cut off towards zero, exact also where
/// their sum is beyond their type (the bits that both have, and half of those that one has).
fn mean(cx: &mut Context<'_>, left: V, right: V) -> V {
    let b = &mut *cx.builder;
    let scalar = b.scalar(left);
    if scalar.is_float() {
        let sum = b.add(left, right);
        let two = if scalar == Scalar::F32 { b.f32(2.0) } else { b.f64(2.0) };
        return b.div(sum, two);
    }
    let right = b.convert(right, scalar);
    let (both, one_of) = (b.and(left, right), b.binary(BinaryOp::Xor, left, right));
    let (one, sign) = (b.int(scalar, 1), b.int(scalar, scalar.bits() - 1));
    let half = b.binary(BinaryOp::Shr, one_of, one);
    let below = b.add(both, half);
    // That is rounded down.
    let negative = b.binary(BinaryOp::Shr, below, sign);
    let odd = b.and(one_of, one);
    let up = b.and(negative, odd);
    b.add(below, up)
}
