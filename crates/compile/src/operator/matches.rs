//! A match of a text that lanes can leave and come back to: a filter's condition, or one of those that it is the AND of.

use kelpie_kir::builder::Var;

use super::texts::{Around, split};
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::{Matching, lower, text_of};

/// LIKE or a regular expression over a column without a dictionary, and the conditions that a filter has besides.
#[derive(Debug)]
pub(crate) struct TextMatch {
    pub around: Around,
    text: Expr,
    pub matching: Matching,
}

impl TextMatch {
    /// The first match that takes steps, of a text without a dictionary, which a filter's condition is, or is the AND of with others.
    /// `columns`: those before the filter. `is_stored`: whether a column is as it is stored.
    pub(crate) fn of(
        condition: &Expr,
        columns: &[ColumnInfo],
        is_stored: &dyn Fn(usize) -> bool,
    ) -> Option<TextMatch> {
        let matching = |condition: &Expr| {
            let (text, matching) = Matching::of(condition)?;
            let ExprKind::Column(index) = text.kind else { return None };
            let is_raw = columns.get(index).is_some_and(|info| info.dictionary.is_none());
            is_raw.then(|| (text.clone(), matching))
        };
        let (around, (text, matching)) = split(condition, columns, is_stored, &matching)?;
        Some(TextMatch { around, text, matching })
    }

    /// The registers that the match of the current row begins with. `is_candidate` (`bool`, false before) says whether it is looked for.
    pub(crate) fn begin(&self, cx: &mut Context<'_>, is_candidate: Var) -> Result<Vec<Var>, Unsupported> {
        let mut begun = Vec::new();
        self.around.begin(cx, |cx| {
            let value = lower(cx, &self.text)?;
            let text = text_of(&value)?;
            if let Some(valid) = value.valid {
                cx.begin_if(valid);
            }
            let registers = self.matching.begin(cx, &text)?;
            begun = registers.into_iter().map(|register| cx.builder.var_of("match", register)).collect();
            let yes = cx.builder.bool(true);
            cx.builder.assign(is_candidate, yes);
            if value.valid.is_some() {
                cx.end();
            }
            Ok(())
        })?;
        Ok(begun)
    }
}
