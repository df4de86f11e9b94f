//! Results of aggregates, read from a group's cells.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, OverflowOp, Scalar, UnaryOp};

use super::cells::CellOp;
use super::exact::{UpperBits, wide_sum};
use super::extremes::{OrderKey, unpack_text};
use super::moments::statistic;
use crate::context::register_type;
use crate::context::{Context, Lowered, Repr, Status, Unsupported, register_of};
use crate::layout::ColumnInfo;
use crate::plan::PairStatistic;
use crate::types::{DataType, Field, Range};

/// How a result follows from cells.
#[derive(Debug, Clone, Copy)]
pub enum ResultForm {
    Count,
    /// The sum. `check`: it can be beyond its type.
    Sum {
        check: Option<SumCheck>,
    },
    /// The sum of floats over the count.
    Mean,
    /// The sum of integers over the count, cut towards zero.
    WholeMean,
    /// The sum of decimals of scale `from` over the count. `upper`: the sum can be beyond 128 bits.
    DecimalMean {
        from: i8,
        upper: Option<UpperBits>,
    },
    /// The value of a key, or of its complement.
    Extreme {
        key: OrderKey,
        complement: bool,
    },
    Text,
    /// The value of the last of a cell's keys, or of its complement; NULL where there is none.
    Bound {
        key: OrderKey,
        complement: bool,
    },
    /// Bits, or their complement.
    Bits {
        complement: bool,
    },
    /// Variance or deviation.
    Moments {
        form: MomentForm,
        grouped: bool,
    },
    /// A statistic of pairs.
    OfPairs(PairStatistic),
    /// The same of integers, or of decimals of a scale, by the sum and the sum of squares, which is another cell.
    ExactMoments {
        form: MomentForm,
        squares: usize,
        scale: u32,
    },
}

/// Which moment of its values a result is.
#[derive(Debug, Clone, Copy)]
pub struct MomentForm {
    /// The deviation, else its square, the variance.
    pub is_root: bool,
    /// Of a sample, else of a population.
    pub is_sample: bool,
}

/// How a sum of decimals is found to be beyond its type.
#[derive(Debug, Clone, Copy)]
pub struct SumCheck {
    /// Of the aggregate, which the error names.
    pub number: u32,
    /// The type's values.
    pub limits: Range,
    /// It can be beyond 128 bits too.
    pub upper: Option<UpperBits>,
}

/// How an aggregate's result is read from the cells.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The result's column.
    pub field: Field,
    /// The cell of the sum, extreme or count.
    pub value: usize,
    /// The cell that counts the rows that took part.
    pub count: usize,
    /// Whether a group (which has at least one row) can be without a row that took part.
    pub can_be_empty: bool,
    pub form: ResultForm,
    pub range: Option<Range>,
}

/// Reads a cell: its operation and parts.
pub type ReadCell<'a> = dyn FnMut(&mut Context<'_>, usize) -> (CellOp, Vec<V>) + 'a;

impl Reading {
    pub fn name(&self) -> &str {
        &self.field.name
    }

    /// What is known of the result.
    pub fn column(&self) -> ColumnInfo {
        let nullable = self.can_be_empty && !matches!(self.form, ResultForm::Count);
        ColumnInfo::new(self.field.data_type.clone(), nullable, self.range)
    }

    pub fn result(&self, cx: &mut Context<'_>, read: &mut ReadCell<'_>) -> Result<Lowered, Unsupported> {
        let (op, parts) = read(cx, self.value);
        let value = first(&parts)?;
        let (_, count) = read(cx, self.count);
        let count = first(&count)?;
        let tells_itself = matches!(
            self.form,
            ResultForm::Moments { .. }
                | ResultForm::ExactMoments { .. }
                | ResultForm::OfPairs(_)
                | ResultForm::Bound { .. }
        );
        let counted = self.can_be_empty && !tells_itself;
        let valid = counted.then(|| {
            let zero = cx.builder.u64(0);
            cx.builder.ne(count, zero)
        });
        let range = self.range.or_else(|| self.field.data_type.full_range());
        // Where no row took part, any value will do: it is NULL.
        let value = match self.form {
            ResultForm::Count => {
                let register = self.range.map_or(Scalar::I64, register_of);
                let value = cx.builder.convert(value, register);
                return Ok(Lowered { repr: Repr::Scalar(value), valid: None, range: self.range });
            }
            ResultForm::Text => {
                let text = unpack_text(cx, value);
                return Ok(Lowered { repr: Repr::Text(text), valid, range: None });
            }
            ResultForm::Bound { key, complement } => {
                let last = parts.last().copied().unwrap_or(value);
                let none = cx.builder.u64(0);
                let valid = Some(cx.builder.ne(last, none));
                let value = if complement { cx.builder.not(last) } else { last };
                let value = key.decode(cx, value, register_type(&self.field.data_type, range));
                let range = range.filter(|_| !self.field.data_type.is_float());
                return Ok(Lowered { repr: Repr::Scalar(value), valid, range });
            }
            ResultForm::Moments { form, grouped } => return Ok(moments(cx, &parts, form, grouped)),
            ResultForm::OfPairs(of) => return Ok(statistic(cx, &parts, of)),
            ResultForm::ExactMoments { form, squares, scale } => {
                let (of_squares, parts) = read(cx, squares);
                let squares = first(&parts)?;
                let (sum, squares) = (wide_sum(cx, op, value), wide_sum(cx, of_squares, squares));
                return Ok(exact_moments(cx, (count, sum, squares), form, scale));
            }
            ResultForm::Sum { check: None } => self.sum(cx, op, value, range),
            ResultForm::Sum { check: Some(check) } => {
                let sum = wide_sum(cx, op, value);
                let mut fits = within(cx, sum, check.limits);
                if let Some(upper) = check.upper {
                    let whole = is_whole(cx, upper, sum, read)?;
                    fits = cx.builder.and(fits, whole);
                }
                let beyond = cx.builder.not(fits);
                report_if(cx, beyond, valid, Status::sum_overflow(check.number));
                // What is reported is within its range all the same.
                let zero = cx.builder.zero(Scalar::I128);
                let sum = cx.builder.select(fits, sum, zero);
                cx.builder.convert(sum, range.map_or(Scalar::I128, register_of))
            }
            ResultForm::Mean => {
                let count = cx.builder.convert(count, Scalar::F64);
                cx.builder.div(value, count)
            }
            ResultForm::WholeMean => {
                let sum = self.integer(cx, value, None);
                let count = cx.builder.convert(count, Scalar::I64);
                cx.builder.div(sum, count)
            }
            ResultForm::DecimalMean { from, upper } => {
                let sum = wide_sum(cx, op, value);
                if let Some(upper) = upper {
                    let whole = is_whole(cx, upper, sum, read)?;
                    let beyond = cx.builder.not(whole);
                    report_if(cx, beyond, None, Status::Fallback as u32);
                }
                self.decimal_mean(cx, sum, count, valid, from)?
            }
            ResultForm::Extreme { key, complement } => {
                let value = if complement { cx.builder.not(value) } else { value };
                key.decode(cx, value, register_type(&self.field.data_type, range))
            }
            ResultForm::Bits { complement } => {
                let bits = if complement { cx.builder.not(value) } else { value };
                self.integer(cx, bits, range)
            }
        };
        let range = range.filter(|_| !self.field.data_type.is_float());
        Ok(Lowered { repr: Repr::Scalar(value), valid, range })
    }

    fn sum(&self, cx: &mut Context<'_>, op: CellOp, sum: V, range: Option<Range>) -> V {
        match op {
            CellOp::AddFloat => {
                let scalar =
                    if self.field.data_type == DataType::Float32 { Scalar::F32 } else { Scalar::F64 };
                cx.builder.convert(sum, scalar)
            }
            CellOp::AddWide => cx.builder.convert(sum, range.map_or(Scalar::I128, register_of)),
            _ => self.integer(cx, sum, range),
        }
    }

    /// A word as an integer of the result's type.
    fn integer(&self, cx: &mut Context<'_>, word: V, range: Option<Range>) -> V {
        let b = &mut *cx.builder;
        let register = range.map_or(Scalar::I64, register_of);
        let value = match self.field.data_type {
            DataType::UInt64 => word,
            _ => b.bitcast(word, Scalar::I64),
        };
        b.convert(value, register)
    }

    /// As DataFusion's `DecimalAverager`: the sum scaled up to the result's scale, divided towards zero. It has 256 bits
    /// for the product where they are needed; here whole and rest are divided one after the other.
    fn decimal_mean(
        &self,
        cx: &mut Context<'_>,
        sum: V,
        count: V,
        valid: Option<V>,
        from: i8,
    ) -> Result<V, Unsupported> {
        let DataType::Decimal128 { precision, scale: to } = self.field.data_type else {
            return Err(Unsupported(format!("average of type {}", self.field.data_type)));
        };
        let digits = u32::try_from(to - from)
            .map_err(|_| Unsupported(format!("average of type {}", self.field.data_type)))?;
        let limits = self.field.data_type.full_range();
        let b = &mut *cx.builder;
        let count = b.convert(count, Scalar::I128);
        let factor = b.int(Scalar::I128, 10i128.pow(digits));
        let (whole, rest) = (b.div(sum, count), b.rem(sum, count));
        let mut overflow = b.overflows(OverflowOp::Mul, whole, factor);
        let whole = b.mul(whole, factor);
        let rest = b.mul(rest, factor);
        let rest = b.binary(BinaryOp::Div, rest, count);
        let mean = b.add(whole, rest);
        if let Some(limits) = limits.filter(|_| precision >= 38) {
            let (min, max) = (b.int(Scalar::I128, limits.min), b.int(Scalar::I128, limits.max));
            let (low, high) = (b.lt(mean, min), b.compare(CompareOp::Gt, mean, max));
            overflow = b.or(overflow, low);
            overflow = b.or(overflow, high);
        }
        report_if(cx, overflow, valid, Status::Overflow as u32);
        Ok(cx.builder.convert(mean, limits.map_or(Scalar::I128, register_of)))
    }
}

/// The first part of a cell.
fn first(parts: &[V]) -> Result<V, Unsupported> {
    parts.first().copied().ok_or_else(|| Unsupported::internal("a cell without parts"))
}

/// Whether a sum (`i128`) is all that its rows add up to.
fn is_whole(
    cx: &mut Context<'_>,
    upper: UpperBits,
    sum: V,
    read: &mut ReadCell<'_>,
) -> Result<V, Unsupported> {
    let (op, parts) = read(cx, upper.cell);
    let bits = wide_sum(cx, op, first(&parts)?);
    Ok(upper.are_those_of(cx, bits, sum))
}

/// Whether a value (`i128`) is within limits.
fn within(cx: &mut Context<'_>, value: V, limits: Range) -> V {
    let b = &mut *cx.builder;
    let (min, max) = (b.int(Scalar::I128, limits.min), b.int(Scalar::I128, limits.max));
    let (low, high) = (b.ge(value, min), b.compare(CompareOp::Le, value, max));
    b.and(low, high)
}

fn report_if(cx: &mut Context<'_>, condition: V, valid: Option<V>, status: u32) {
    let condition = match valid {
        Some(valid) => cx.builder.and(condition, valid),
        None => condition,
    };
    cx.begin_if(condition);
    cx.builder.report(status);
    cx.end();
}

fn moments(cx: &mut Context<'_>, parts: &[V], form: MomentForm, grouped: bool) -> Lowered {
    let &[count, .., squares] = parts else {
        let zero = cx.builder.f64(0.0);
        return Lowered { repr: Repr::Scalar(zero), valid: None, range: None };
    };
    let b = &mut *cx.builder;
    let (zero, one) = (b.f64(0.0), b.f64(1.0));
    let divisor = if form.is_sample { b.sub(count, one) } else { count };
    let valid = b.compare(CompareOp::Gt, divisor, zero);
    let mut value = b.div(squares, divisor);
    if !form.is_sample && !grouped {
        // Even of a single NaN or infinity, as in DataFusion, whose accumulator for groups gives NaN there.
        let single = b.eq(count, one);
        value = b.select(single, zero, value);
    }
    if form.is_root {
        value = b.unary(UnaryOp::Sqrt, value);
    }
    Lowered { repr: Repr::Scalar(value), valid: Some(valid), range: None }
}

/// The result from the number of rows (`u64`), the sum and the sum of squares (both `i128`): NULL where the divisor is not positive.
fn exact_moments(
    cx: &mut Context<'_>,
    (count, sum, squares): (V, V, V),
    form: MomentForm,
    scale: u32,
) -> Lowered {
    let b = &mut *cx.builder;
    let rows = b.convert(count, Scalar::I128);
    let (all, own) = (b.mul(rows, squares), b.mul(sum, sum));
    let distance = b.sub(all, own);
    let distance = b.convert(distance, Scalar::F64);
    let rows = b.convert(count, Scalar::F64);
    let (zero, one) = (b.f64(0.0), b.f64(1.0));
    let divisor = if form.is_sample { b.sub(rows, one) } else { rows };
    let valid = b.compare(CompareOp::Gt, divisor, zero);
    let distance = b.div(distance, rows);
    let unit = b.f64(10f64.powi(2 * scale as i32));
    let distance = b.div(distance, unit);
    let mut value = b.div(distance, divisor);
    if form.is_root {
        value = b.unary(UnaryOp::Sqrt, value);
    }
    Lowered { repr: Repr::Scalar(value), valid: Some(valid), range: None }
}
