//! A filter whose text, a table's, the lanes of a warp match together: those of its rows as one run of bytes ([`Needle::match_of_warp`]).

use kelpie_kir::builder::{V, Var};

use super::roles::Source;
use super::texts::{Around, split};
use crate::context::{Context, RawTexts, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::{NeedleCondition, WarpRows};

/// LIKE with a needle over a column of the table that a pipeline scans, and the conditions that a filter has besides.
#[derive(Debug)]
pub(crate) struct TextRun {
    pub around: Around,
    condition: NeedleCondition,
    texts: RawTexts,
    /// The share of the table's rows whose texts are thought to be asked for.
    pub share: f64,
}

impl TextRun {
    /// The first LIKE with a needle that a filter's condition is, or is the AND of with others. `columns`: those before the filter, behind steps
    /// that leave a row of the table one row, and a `share` of the rows; `is_stored`: whether a column is as it is stored.
    pub(crate) fn of(
        condition: &Expr,
        columns: &[ColumnInfo],
        (source, share): (&dyn Source, f64),
        is_stored: &dyn Fn(usize) -> bool,
    ) -> Option<TextRun> {
        let wanted = |condition: &Expr| {
            let condition = NeedleCondition::of(condition)?.ok()?;
            let (_, column) = columns.get(condition.column)?.origin?;
            Some((source.raw_texts(column)?, condition))
        };
        let (around, (texts, condition)) = split(condition, columns, is_stored, &wanted)?;
        let share = share * around.share_before(columns);
        Some(TextRun { around, condition, texts, share })
    }

    /// Sets `is_wanted` (`bool`, false before) where the text of the current row, of a number in the table, is to be matched.
    pub(crate) fn begin(&self, cx: &mut Context<'_>, row: V, is_wanted: Var) -> Result<(), Unsupported> {
        self.around.begin(cx, |cx| {
            let valid = cx.raw_text_validity(&self.texts, row);
            let valid = valid.unwrap_or_else(|| cx.builder.bool(true));
            cx.builder.assign(is_wanted, valid);
            Ok(())
        })
    }

    /// Whether the texts of the warp's rows are as they should be (`bool`). At uniform control flow of the warp.
    pub(crate) fn passes(&self, cx: &mut Context<'_>, rows: &WarpRows) -> V {
        let matches = self.condition.needle.match_of_warp(cx, &self.texts, rows);
        let b = &mut *cx.builder;
        let holds = if self.condition.negated { b.not(matches) } else { matches };
        b.and(holds, rows.is_wanted)
    }
}
