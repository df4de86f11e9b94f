//! First looks of several rows at once: where their searches begin is computed for all of them, then all of these slots are looked at, then
//! the keys of the rows that slots with their tags have, without a branch. Half of the slots are empty, so that most searches end there.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Scalar, Type};

use super::{Begun, OpenTable, advance, keys_equal, split};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::table::rows::RowStore;

/// What a search sees in its first slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FirstSlot {
    /// Whether it is empty (`bool`): then the search has ended.
    pub empty: V,
    /// Whether it is not, and has the tag of the keys (`bool`).
    pub alike: V,
    /// Its number, `u32`.
    pub number: V,
}

impl OpenTable {
    /// Where the search for keys begins.
    pub(crate) fn first_slot(&self, cx: &mut Context<'_>, keys: &[Lowered], wide: &[bool]) -> Begun {
        let hash = self.hash(cx, keys, wide);
        let start = self.start(cx, hash);
        let slot = cx.builder.read(start.slot);
        // A slot's number has fewer bits than a word, as a row's has.
        let slot = cx.builder.convert(slot, Scalar::U32);
        Begun { slot, tag: start.tag }
    }

    /// The word of a slot (`u32`) of a table that nothing writes any more.
    pub(crate) fn word_at(&self, cx: &mut Context<'_>, slot: V) -> V {
        let words = cx.argument("slots", Type::global(Scalar::U32), Argument::State(self.words));
        cx.builder.element(words, slot)
    }

    /// What a word is to the keys of a tag (`u32` each).
    pub(crate) fn see(&self, cx: &mut Context<'_>, tag: V, word: V) -> FirstSlot {
        let last = self.last(cx);
        let mask = cx.builder.convert(last, Scalar::U32);
        let (same, number) = split(cx, (tag, mask), word);
        let b = &mut *cx.builder;
        let zero = b.u32(0);
        let (empty, taken) = (b.eq(word, zero), b.ne(word, zero));
        FirstSlot { empty, alike: b.and(taken, same), number }
    }

    /// Whether the row at a place (`i64`) has the keys (`bool`).
    pub(crate) fn has_keys(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        keys: &[Lowered],
        place: V,
    ) -> Result<V, Unsupported> {
        keys_equal(cx, store, keys, place)
    }

    /// As [`OpenTable::find`], behind the first slot.
    pub(crate) fn find_behind_first(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, wide): (&[Lowered], &[bool]),
        cursor: Var,
        place: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Result<(), Unsupported> {
        let hash = self.hash(cx, keys, wide);
        let start = self.start(cx, hash);
        let first = cx.builder.read(start.slot);
        advance(cx, start, first);
        self.find_at(cx, store, (keys, start), cursor, place)
    }
}
