//! Code for scalar expressions, one module a topic, and what is known of an expression before there is code.

mod arithmetic;
mod bits;
mod case;
mod cast;
mod civil;
mod columns;
mod compare;
mod date_part;
mod datetime;
mod decimal;
mod dictionary;
mod facts;
pub(crate) mod hashing;
mod inlist;
mod literal;
mod logic;
mod math;
mod operands;
mod part;
mod projection;
mod reciprocal;
mod text;
mod trunc;
mod value;
mod wide;

pub(crate) use columns::{of_expr as column_of, of_projection as columns_of};
pub use facts::{Facts, can_fail, check, facts, infer_range, is_cheap};
pub use logic::lower_condition;
pub use operands::alike;
pub(crate) use text::hashing::{
    hash as hash_text, hash_in_any_order as text_hash_in_any_order, hash_of_parts as text_hash_of_parts,
    part as text_hash_part,
};
pub(crate) use text::heap::{
    TextPart, copied as copied_text, copied_to_part, copy as copy_text, copy_exactly, lasting,
    make as make_text, plain as plain_text,
};
pub(crate) use text::matching::Matching;
pub(crate) use text::needle::{Finder, MORE_MARKS, NeedleCondition};
pub(crate) use text::order as text_order;
pub(crate) use text::run::WarpRows;
pub use text::text_equal;
pub(crate) use text::words::{WORD_BYTES, text_word};
pub(crate) use value::text as text_of;
pub(crate) use wide::{conjuncts, supports_wide_rows};

use self::value::unsupported;
use crate::context::{Case, Context, Lowered, Unsupported};
use crate::expr::{Expr, ExprKind, Function, Side};

/// Lowers `expr` over the context's current row.
///
/// An expression that [`can_fail`] is to be lowered only where the row is live: it reports errors
/// for what is not NULL. Others may be evaluated for rows that are discarded later.
pub fn lower(cx: &mut Context<'_>, expr: &Expr) -> Result<Lowered, Unsupported> {
    match dictionary::lower(cx, expr)? {
        Some(value) => Ok(value),
        None => lower_node(cx, expr),
    }
}

impl Context<'_> {
    /// As [`lower`]: by it expressions are lowered that stand inside others, so that no topic's file needs the one that knows all of them.
    pub(crate) fn lower(&mut self, expr: &Expr) -> Result<Lowered, Unsupported> {
        lower(self, expr)
    }
}

/// Lowers `expr` whatever it reads.
fn lower_node(cx: &mut Context<'_>, expr: &Expr) -> Result<Lowered, Unsupported> {
    operands::check(expr)?;
    match &expr.kind {
        ExprKind::Column(index) => cx.column(*index),
        ExprKind::Literal(value) => literal::lower(cx, value, &expr.data_type),
        ExprKind::Scalar(_) => unsupported("a scalar subquery without its value"),
        ExprKind::Arithmetic(op, left, right) => arithmetic::lower(cx, *op, left, right, &expr.data_type),
        ExprKind::Negate(input) => arithmetic::negate(cx, input, &expr.data_type),
        ExprKind::Compare(op, left, right) => compare::lower(cx, *op, left, right),
        ExprKind::Distinct(negated, left, right) => compare::distinct(cx, *negated, left, right),
        ExprKind::And(..) => logic::lower(cx, logic::Connective::And, expr),
        ExprKind::Or(..) => logic::lower(cx, logic::Connective::Or, expr),
        ExprKind::Not(input) => logic::not(cx, input),
        ExprKind::IsNull(input) => logic::is_null(cx, input, false),
        ExprKind::IsNotNull(input) => logic::is_null(cx, input, true),
        ExprKind::Case { branches, otherwise } => case::lower(cx, expr, branches, otherwise.as_deref()),
        ExprKind::Cast { input, safe } => cast::lower(cx, input, *safe, &expr.data_type),
        ExprKind::InList { input, list, negated } => inlist::lower(cx, input, list, *negated),
        ExprKind::Like { input, pattern, negated, case_insensitive } => {
            text::like::lower(cx, input, pattern, *negated, *case_insensitive)
        }
        ExprKind::Regex { input, regex, negated } => text::regex::lower(cx, input, regex, *negated),
        ExprKind::Function(function, arguments) => call(cx, expr, *function, arguments),
    }
}

fn call(
    cx: &mut Context<'_>,
    expr: &Expr,
    function: Function,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    match (function, arguments) {
        (Function::Part(bits), _) => part::lower_part(cx, bits, arguments),
        (Function::Coalesce, _) => case::coalesce(cx, expr, arguments),
        (Function::NullIf, [a, b]) => case::null_if(cx, a, b),
        (Function::Pair, [a, b]) => case::pair(cx, a, b),
        (Function::Substr, _) => text::substring(cx, arguments),
        (Function::CharacterLength, [input]) => text::character_length(cx, input),
        (Function::OctetLength, [input]) => text::octet_length(cx, input),
        (Function::Upper, [input]) => text::letters::change_case(cx, input, Case::Upper),
        (Function::Lower, [input]) => text::letters::change_case(cx, input, Case::Lower),
        (Function::InitialCapitals, [input]) => text::letters::initial_capitals(cx, input),
        (Function::Translate, _) => text::letters::translate(cx, arguments),
        (Function::DatePart(part), [input]) => date_part::lower_part(cx, part, input, &expr.data_type),
        (Function::DateTrunc(granularity), [input]) => {
            date_part::lower_trunc(cx, granularity, input, &expr.data_type)
        }
        (Function::DateBin(bins), [input]) => date_part::lower_bins(cx, bins, input, &expr.data_type),
        (Function::ConcatOperator, _) => text::heap::concat_operator(cx, arguments),
        (Function::Concat, _) => text::heap::concat(cx, arguments),
        (Function::ConcatWithSeparator, _) => text::heap::concat_with_separator(cx, arguments),
        (Function::Trim(side), _) => text::slices::trim(cx, side, arguments),
        (Function::Left, _) => text::slices::ends(cx, Side::Left, arguments),
        (Function::Right, _) => text::slices::ends(cx, Side::Right, arguments),
        (Function::Search(what), _) => text::search::search(cx, what, arguments),
        (Function::Pad(side), _) => text::pad::pad(cx, side, arguments),
        (Function::SplitPart, _) => text::pad::split_part(cx, arguments),
        (Function::Replace, _) => text::search::replace(cx, arguments),
        (Function::Repeat, _) => text::search::repeat(cx, arguments),
        (Function::Reverse, [input]) => text::search::reverse(cx, input),
        (Function::OneNan, [input]) => math::one_nan(cx, input),
        (Function::Abs, [input]) => math::absolute(cx, input, &expr.data_type),
        (Function::Round, [input]) => math::round(cx, input, None, &expr.data_type),
        (Function::Round, [input, digits]) => math::round(cx, input, Some(digits), &expr.data_type),
        (Function::Floor, [input]) => math::floor_or_ceil(cx, input, false, &expr.data_type),
        (Function::Ceil, [input]) => math::floor_or_ceil(cx, input, true, &expr.data_type),
        (Function::Trunc, [input]) => trunc::truncate(cx, input, None, &expr.data_type),
        (Function::Trunc, [input, digits]) => trunc::truncate(cx, input, Some(digits), &expr.data_type),
        (Function::Bits(op), _) => bits::lower(cx, op, arguments, &expr.data_type),
        (Function::Greatest, _) => bits::extreme(cx, true, arguments, &expr.data_type),
        (Function::Least, _) => bits::extreme(cx, false, arguments, &expr.data_type),
        _ => unsupported(format!("{function:?} of {} arguments", arguments.len())),
    }
}
