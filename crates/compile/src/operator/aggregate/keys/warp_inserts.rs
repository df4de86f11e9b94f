//! Keys of groups that the lanes of a warp put in together, where texts are among them.

use kelpie_kir::builder::V;

use super::input::Input;
use super::key_count::KeyCount;
use super::key_table::{KeyTable, ProbeKeys};
use super::slot_layout::Keys;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::lower::hashing::is_wide;
use crate::operator::key_texts::KeyTexts;
use crate::table::probing::search_together;
use crate::table::shared_keys::{Found, Pairs, SharedKeys, choose};
use crate::types::DataType;
use crate::variant::axes::KeyTextLanes;

impl KeyTable {
    /// The same with a choice of who looks at the texts of keys that are put in.
    pub(crate) fn with_text_lanes(self, input: &Input<'_>) -> Result<KeyTable, Unsupported> {
        let texts = match &self.slots.keys {
            // Who finds a group for its lane stores what follows from its keys, too.
            Keys::Stored(stored) if !input.is_serial() && !self.has_dependent() => {
                choose(stored, input.site)?
            }
            Keys::Stored(_) | Keys::Packed(_) | Keys::Words(_) => KeyTextLanes::Lane,
        };
        Ok(KeyTable { texts, ..self })
    }

    /// The columns of the input whose texts are looked at as keys, where lanes are to do it together. Texts that are computed are not
    /// shared: they are in a thread's own memory.
    pub(crate) fn shared_texts(&self, keys: &[Expr]) -> Option<Vec<usize>> {
        if self.texts == KeyTextLanes::Lane {
            return None;
        }
        let column = |key: &Expr| match key.kind {
            ExprKind::Column(index) => Some(index),
            _ => None,
        };
        keys.iter().filter(|key| key.data_type == DataType::Utf8).map(column).collect()
    }

    /// Whether lanes put keys in together.
    pub(crate) fn has_shared_texts(&self) -> bool {
        self.texts != KeyTextLanes::Lane
    }

    /// As [`KeyTable::insert`] for the keys of each lane that is `live` (`bool`), at uniform control flow of the warp: the lanes look at
    /// texts together.
    pub(crate) fn insert_together(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        values: &[Lowered],
        live: V,
        mark: u32,
    ) -> Result<Found, Unsupported> {
        let Keys::Stored(columns) = &self.slots.keys else {
            return Err(Unsupported::internal("texts in a word"));
        };
        let together = KeyTexts { mark };
        let wide: Vec<bool> = self.columns.iter().map(is_wide).collect();
        let hash =
            SharedKeys { columns, keys: values }.hash(cx, (&wide, self.hashing.function), live, &together)?;
        let keys = ProbeKeys { values, word: self.word_of_hash(cx, hash), dependent: &[] };
        let probe = self.begin_probe(cx, count, hash);
        let no = cx.builder.bool(false);
        let (searching, refused) = (cx.builder.var_of("searching", live), cx.builder.var_of("refused", no));
        let pairs = Pairs::new(cx, SharedKeys { columns, keys: values });
        let propose = &mut |cx: &mut Context<'_>| {
            let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
            cx.builder.assign(searching, no);
            cx.begin_loop();
            // From the next slot on where the last one had other keys.
            let is_refused = cx.builder.read(refused);
            cx.begin_if(is_refused);
            cx.builder.assign(refused, no);
            probe.advance(cx);
            cx.end();
            probe.look(cx, columns, keys, &mut |cx, slot| {
                let may_be = pairs.propose(cx, slot)?;
                cx.begin_if(may_be);
                cx.builder.assign(searching, yes);
                cx.builder.break_loop();
                cx.end();
                Ok(())
            })?;
            cx.end();
            Ok(())
        };
        let decide = &mut |cx: &mut Context<'_>, other, is_found| {
            let before = cx.builder.read(probe.found);
            let found = cx.builder.or(before, is_found);
            cx.builder.assign(probe.found, found);
            cx.builder.assign(refused, other);
        };
        search_together(cx, &pairs, searching, &together, (propose, decide))?;
        Ok(Found { slot: probe.slot, hit: probe.found })
    }
}
