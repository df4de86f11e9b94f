//! The keys of a table as a source of later pipelines.

use kelpie_kir::builder::V;

use super::{KeyTable, Keys};
use crate::context::{Context, Lowered};
use crate::table::stored::StoredColumn;

impl KeyTable {
    /// Whether a slot holds a key.
    pub fn present(&self, cx: &mut Context<'_>, slot: V) -> V {
        let pointer = self.entry(cx, slot);
        let entry = cx.builder.load(pointer);
        let scalar = cx.builder.scalar(entry);
        let zero = cx.builder.zero(scalar);
        cx.builder.ne(entry, zero)
    }

    /// The key in a slot that holds one, with what is carried.
    pub fn keys(&self, cx: &mut Context<'_>, slot: V) -> Vec<Lowered> {
        let keys = match &self.keys {
            Keys::Packed(packed) => {
                let pointer = self.entry(cx, slot);
                let entry = cx.builder.load(pointer);
                let columns = packed.iter().zip(&self.columns);
                columns.map(|(key, column)| key.decode(cx, entry, column)).collect()
            }
            Keys::Words(words) => {
                let own = self.load_words(cx, *words, slot);
                words.decode(cx, &self.columns, &own)
            }
            Keys::Stored(stored) => stored.iter().map(|key| self.load(cx, key, slot)).collect(),
        };
        self.carried.join(keys, &mut |key| self.load(cx, key, slot))
    }

    /// A stored key. The code in a slot that is not taken may be that of no entry, and is looked up all the same where
    /// dead rows flow with a flag.
    fn load(&self, cx: &mut Context<'_>, key: &StoredColumn, slot: V) -> Lowered {
        let present = key.info().dictionary.map(|_| self.present(cx, slot));
        let loaded = key.load(cx, slot, present);
        let valid = loaded.valid.filter(|_| key.info().nullable);
        Lowered { valid, ..loaded }
    }
}
