//! Dictionary columns of the current row: their codes, and the conditions on them that are computed once an entry.

use std::rc::Rc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{Argument, Case, ColumnPart, Context, DictionaryCode, Lowered, Origin, Repr, Text};
use crate::expr::Expr;

impl Context<'_> {
    /// Whether column `index` of the current row is an unchanged dictionary column, without evaluating it.
    pub(crate) fn is_dictionary(&self, index: usize) -> bool {
        self.dictionary_layer(self.row.current, index).is_some()
    }

    /// The layer and position that a dictionary column comes from.
    fn dictionary_layer(&self, layer: usize, index: usize) -> Option<(usize, usize)> {
        let this = self.row.layers.get(layer)?;
        let found = match this.origin(index)? {
            Origin::Below(below) => return self.dictionary_layer(layer.checked_sub(1)?, below),
            Origin::Value(value) => {
                matches!(&value.repr, Repr::Text(Text { case: Case::Keep, code: Some(_), .. }))
            }
            Origin::Memory => this.has_codes(index),
            Origin::Computed(_) => false,
        };
        found.then_some((layer, index))
    }

    /// Code and validity of a dictionary column of the current row; the entry's text is not loaded.
    pub(crate) fn dictionary_code(&mut self, index: usize) -> Option<(DictionaryCode, Option<V>)> {
        let (layer, index) = self.dictionary_layer(self.row.current, index)?;
        if self.known(layer, index).is_none() {
            let this = Rc::clone(self.row.layers.get(layer)?);
            if let Some(code) = this.load_code(self, index) {
                return Some(code);
            }
        }
        match self.layer_column(layer, index).ok()? {
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
        let stored = self.prefetched_value((scan, column, false)).unwrap_or_else(|| {
            let pointer = self.builder.offset(codes, row);
            self.builder.load_read_only(pointer)
        });
        let value = self.builder.convert(stored, Scalar::U32);
        DictionaryCode { value, entries, scan, column }
    }

    /// The words that the kernel has in a block's memory for a condition on a dictionary column.
    pub(crate) fn near_memo(&self, column: (usize, usize), condition: &Expr) -> Option<V> {
        let mut memos = self.memos.near.iter();
        memos.find(|(of, known, _)| *of == column && known == condition).map(|(.., memo)| *memo)
    }

    /// How many such conditions there are.
    pub(crate) fn near_memos(&self) -> usize {
        self.memos.near.len()
    }

    /// Notes such words.
    pub(crate) fn keep_near_memo(&mut self, column: (usize, usize), condition: &Expr, memo: V) {
        self.memos.near.push((column, condition.clone(), memo));
    }

    /// The number of a condition on a dictionary column.
    pub(crate) fn memo(&mut self, column: (usize, usize), condition: &Expr) -> usize {
        let known = self.memos.all.iter().position(|(of, known)| *of == column && known == condition);
        known.unwrap_or_else(|| {
            self.memos.all.push((column, condition.clone()));
            self.memos.all.len() - 1
        })
    }
}
