//! Equality of texts that the lanes of a warp compare together (push-down parallelism over characters; DogQC, section 3.4).
//!
//! Where each lane compares texts of its own, lanes whose texts are short, or differ early, wait for the others, and what a warp reads at a
//! time lies far apart. Here the words of a pair of texts are numbers of a range, which other lanes take
//! ([`expand`](super::expand)): neighbouring lanes read neighbouring words, and a vote tells whether one of them differs. Texts of
//! different lengths have no numbers: they are not equal.

use std::collections::BTreeSet;

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use super::Flow;
use super::key_texts::words_differ;
use super::roles::{Expansion, Next};
use crate::context::{Context, Lowered, Text, Unsupported};
use crate::expr::{CompareOp, Expr, ExprKind, columns_read, share_kept};
use crate::layout::ColumnInfo;
use crate::lower::{WORD_BYTES, can_fail, conjuncts, lower, lower_condition, text_of};
use crate::table::key_rows::Positions;
use crate::types::DataType;

/// An equality of two texts, and the conditions that a filter has besides.
#[derive(Debug)]
pub(crate) struct TextEquality {
    around: Around,
    left: Expr,
    right: Expr,
}

impl TextEquality {
    /// The first equality of texts without a dictionary that a filter's condition is, or is the AND of with others. `columns`: those
    /// before the filter. `is_stored`: whether a column is as it is stored; of others lanes would compute all of the text for a word of
    /// it, and may fail.
    pub(crate) fn of(
        condition: &Expr,
        columns: &[ColumnInfo],
        is_stored: &dyn Fn(usize) -> bool,
    ) -> Option<TextEquality> {
        let is_raw = |expr: &Expr| match expr.kind {
            ExprKind::Column(index) => columns.get(index).is_some_and(|info| info.dictionary.is_none()),
            ExprKind::Literal(_) => true,
            _ => false,
        };
        let sides = |condition: &Expr| match &condition.kind {
            ExprKind::Compare(CompareOp::Eq, left, right)
                if [left, right].into_iter().all(|side| side.data_type == DataType::Utf8 && is_raw(side)) =>
            {
                Some((Expr::clone(left), Expr::clone(right)))
            }
            _ => None,
        };
        let (around, (left, right)) = split(condition, columns, is_stored, &sides)?;
        Some(TextEquality { around, left, right })
    }

    /// The texts of the current row.
    fn sides(&self, cx: &mut Context<'_>) -> Result<[(Lowered, Text); 2], Unsupported> {
        let mut side = |expr| {
            let value = lower(cx, expr)?;
            let text = text_of(&value)?;
            Ok((value, text))
        };
        Ok([side(&self.left)?, side(&self.right)?])
    }
}

/// The conditions that a filter has besides the one that lanes decide together.
#[derive(Debug)]
pub(crate) struct Around {
    /// Those that are looked at before.
    before: Vec<Expr>,
    /// Those that are looked at behind, of rows for which it holds.
    behind: Vec<Expr>,
}

impl Around {
    /// Emits `body` for the current row where the conditions before hold.
    pub(super) fn begin(
        &self,
        cx: &mut Context<'_>,
        body: impl FnOnce(&mut Context<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        where_all(cx, &self.before, body)
    }

    /// Lets the current row, for which the condition between holds, go on where those behind hold.
    pub(crate) fn end(&self, cx: &mut Context<'_>, next: &mut Next<'_>) -> Result<(), Unsupported> {
        where_all(cx, &self.behind, |cx| next(cx, Flow::Branch))
    }

    /// The columns before the filter that the row needs where it goes on, and `behind` are read of it.
    pub(crate) fn kept(&self, behind: &BTreeSet<usize>) -> BTreeSet<usize> {
        behind.iter().copied().chain(self.behind.iter().flat_map(columns_read)).collect()
    }

    /// The share of rows for which the conditions before are thought to hold. `columns`: those before the filter.
    pub(super) fn share_before(&self, columns: &[ColumnInfo]) -> f64 {
        let range = |column: usize| columns.get(column).and_then(|info| info.range);
        self.before.iter().map(|condition| share_kept(condition, &range)).product()
    }
}

/// Emits `body` in an `if` for each of the conditions.
fn where_all(
    cx: &mut Context<'_>,
    conditions: &[Expr],
    body: impl FnOnce(&mut Context<'_>) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    for condition in conditions {
        let holds = lower_condition(cx, condition)?;
        cx.begin_if(holds);
    }
    body(cx)?;
    for _ in conditions {
        cx.end();
    }
    Ok(())
}

/// The first of the conditions that a filter's condition is the AND of which `wanted` takes, with those around it. None where
/// another column is read than those that are stored, or a condition may fail.
pub(super) fn split<T>(
    condition: &Expr,
    columns: &[ColumnInfo],
    is_stored: &dyn Fn(usize) -> bool,
    wanted: &dyn Fn(&Expr) -> Option<T>,
) -> Option<(Around, T)> {
    if !columns_read(condition).into_iter().all(is_stored) {
        return None;
    }
    let conditions = conjuncts(condition);
    let (place, found) =
        conditions.iter().enumerate().find_map(|(place, condition)| Some((place, wanted(condition)?)))?;
    let (before, behind) = (conditions.get(..place)?, conditions.get(place + 1..)?);
    let range = |column: usize| columns.get(column).and_then(|info| info.range);
    // Lowered as a whole, a condition is looked at where one before it is NULL, too.
    if conditions.iter().any(|condition| can_fail(condition, &range)) {
        return None;
    }
    let owned = |conditions: &[&Expr]| conditions.iter().copied().cloned().collect();
    Some((Around { before: owned(before), behind: owned(behind) }, found))
}

impl Expansion for TextEquality {
    /// A number for each word; one for empty texts, so that those without numbers are not equal.
    fn range(&self, cx: &mut Context<'_>, range: Positions) -> Result<(), Unsupported> {
        self.around.begin(cx, |cx| {
            let [(left, a), (right, b)] = self.sides(cx)?;
            let is_same = cx.builder.eq(a.length, b.length);
            let valid = left.valid.into_iter().chain(right.valid);
            let is_candidate = valid.fold(is_same, |all, valid| cx.builder.and(all, valid));
            let b = &mut *cx.builder;
            let (zero, one, width) = (b.u32(0), b.u32(1), b.u32(WORD_BYTES));
            let length = b.binary(BinaryOp::Max, a.length, one);
            let last = b.sub(length, one);
            let others = b.div(last, width);
            let words = b.add(others, one);
            let words = b.select(is_candidate, words, zero);
            b.assign(range.count, words);
            Ok(())
        })
    }

    fn most(&self) -> u64 {
        u64::from(u32::MAX / WORD_BYTES)
    }

    fn needed(&self, _behind: &BTreeSet<usize>) -> BTreeSet<usize> {
        [&self.left, &self.right].into_iter().flat_map(columns_read).collect()
    }

    /// Addresses and lengths change lanes: their lane has them already.
    fn loads_before(&self) -> bool {
        true
    }

    /// Goes on where the texts differ in a word.
    fn item(&self, cx: &mut Context<'_>, number: V, next: &mut Next<'_>) -> Result<(), Unsupported> {
        let [(_, a), (_, b)] = self.sides(cx)?;
        let differs = words_differ(cx, (&a, &b), number);
        cx.begin_if(differs);
        next(cx, Flow::Branch)?;
        cx.end();
        Ok(())
    }

    fn only_decides(&self) -> bool {
        true
    }

    fn kept(&self, behind: &BTreeSet<usize>) -> BTreeSet<usize> {
        self.around.kept(behind)
    }

    fn decided(
        &self,
        cx: &mut Context<'_>,
        (range, found): (Positions, V),
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let (words, zero) = (b.read(range.count), b.u32(0));
        let (is_candidate, same) = (b.ne(words, zero), b.not(found));
        let passes = b.and(is_candidate, same);
        cx.begin_if(passes);
        self.around.end(cx, next)?;
        cx.end();
        Ok(())
    }
}
