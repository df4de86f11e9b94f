//! Dictionary columns of the current row: their codes, and the conditions on them that are computed once an entry.

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{Argument, Case, ColumnPart, Context, DictionaryCode, Joined, Layer, Lowered, Repr, Text};
use crate::expr::{Expr, ExprKind};
use crate::layout::Storage;

impl Context<'_> {
    /// Whether column `index` of the current row is an unchanged dictionary column, without evaluating it.
    pub(crate) fn is_dictionary(&self, index: usize) -> bool {
        self.dictionary_layer(self.current, index).is_some()
    }

    /// The layer and position that a dictionary column comes from.
    fn dictionary_layer(&self, layer: usize, index: usize) -> Option<(usize, usize)> {
        let has_code =
            |value: &Lowered| matches!(&value.repr, Repr::Text(Text { case: Case::Keep, code: Some(_), .. }));
        let found = match self.layers.get(layer)? {
            Layer::Values(values) => has_code(values.get(index)?),
            Layer::Joined(columns) => match columns.get(index)? {
                Joined::Below(below) => return self.dictionary_layer(layer.checked_sub(1)?, *below),
                Joined::Stored { column, .. } => column.info().dictionary.is_some(),
                Joined::Value(value) => has_code(value),
            },
            Layer::Scan { layouts, .. } => matches!(layouts.get(index)?.storage, Storage::Dictionary { .. }),
            Layer::Project(exprs) => match exprs.get(index)?.kind {
                ExprKind::Column(below) => return self.dictionary_layer(layer.checked_sub(1)?, below),
                _ => false,
            },
        };
        found.then_some((layer, index))
    }

    /// Code and validity of a dictionary column of the current row; the entry's text is not loaded.
    pub(crate) fn dictionary_code(&mut self, index: usize) -> Option<(DictionaryCode, Option<V>)> {
        let (layer, index) = self.dictionary_layer(self.current, index)?;
        let known = self.scopes.iter().flatten().any(|(l, c, _)| (*l, *c) == (layer, index));
        if let (false, Layer::Scan { scan, layouts, row, .. }) = (known, self.layers.get(layer)?) {
            let (scan, layout, row) = (*scan, layouts.get(index)?, *row);
            let Storage::Dictionary { code, entries } = layout.storage else { return None };
            let has_nulls = layout.has_nulls;
            let valid = has_nulls.then(|| self.load_validity((scan, index), row));
            return Some((self.load_code((scan, index), (code, entries), row), valid));
        }
        let current = std::mem::replace(&mut self.current, layer);
        let value = self.column(index);
        self.current = current;
        match value.ok()? {
            Lowered { repr: Repr::Text(text), valid, .. } => Some((text.code?, valid)),
            _ => None,
        }
    }

    pub(super) fn load_code(
        &mut self,
        (scan, column): (usize, usize),
        (code, entries): (Scalar, u32),
        row: V,
    ) -> DictionaryCode {
        let argument = Argument::Column { scan, column, part: ColumnPart::Data };
        let codes = self.argument("codes", Type::global(code), argument);
        let stored = self.builder.element(codes, row);
        let value = self.builder.convert(stored, Scalar::U32);
        DictionaryCode { value, entries, scan, column }
    }

    /// The number of a condition on a dictionary column.
    pub(crate) fn memo(&mut self, column: (usize, usize), condition: &Expr) -> usize {
        let known = self.memos.iter().position(|(of, known)| *of == column && known == condition);
        known.unwrap_or_else(|| {
            self.memos.push((column, condition.clone()));
            self.memos.len() - 1
        })
    }
}
