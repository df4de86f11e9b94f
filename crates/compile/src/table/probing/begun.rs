//! A search in two parts, for batches of rows: where it begins is computed, and looked at, for all rows before the first goes on.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::{OpenTable, Start};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::table::rows::RowStore;

/// Where a search has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// The first slot, `u32`.
    pub slot: V,
    /// The tag of the keys, `u32`.
    pub tag: V,
}

impl OpenTable {
    /// Begins the search for keys; and what is in the first slot (`u32`).
    pub(crate) fn begin(&self, cx: &mut Context<'_>, keys: &[Lowered], wide: &[bool]) -> (Begun, V) {
        let hash = self.hash(cx, keys, wide);
        let start = self.start(cx, hash);
        let slot = cx.builder.read(start.slot);
        // A slot's number has fewer bits than a word, as a row's has.
        let slot = cx.builder.convert(slot, Scalar::U32);
        let words = cx.argument("slots", Type::global(Scalar::U32), Argument::State(self.words));
        (Begun { slot, tag: start.tag }, cx.builder.element(words, slot))
    }

    /// As [`OpenTable::find`], from where the search has begun.
    pub(crate) fn find_from(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, begun): (&[Lowered], Begun),
        cursor: Var,
        place: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Result<(), Unsupported> {
        let last = self.last(cx);
        let b = &mut *cx.builder;
        let (slot, mask) = (b.convert(begun.slot, Scalar::I64), b.convert(last, Scalar::U32));
        let start = Start { tag: begun.tag, slot: b.var_of("slot", slot), last, mask };
        self.find_at(cx, store, (keys, start), cursor, place)
    }
}
