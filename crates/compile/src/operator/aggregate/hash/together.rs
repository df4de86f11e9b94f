//! Keys of groups that the lanes of a warp put in together, where texts are among them.

use kelpie_kir::Expr as Kir;
use kelpie_kir::builder::{V, Var};

use super::super::Input;
use super::{KeyCount, KeyTable, Keys, Probe};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::lower::hashing::is_wide;
use crate::operator::key_texts::KeyTexts;
use crate::table::stored::StoredColumn;
use crate::table::together::{Found, Pairs, SharedKeys, choose};
use crate::types::DataType;
use crate::variant::axes::KeyTextLanes;

impl KeyTable {
    /// The same with a choice of who looks at the texts of keys that are put in.
    pub(in crate::operator::aggregate) fn with_text_lanes(
        self,
        input: &Input<'_>,
    ) -> Result<KeyTable, Unsupported> {
        let texts = match &self.keys {
            // Who finds a group for its lane stores what is carried, too.
            Keys::Stored(stored) if !input.is_serial && !self.has_carried() => choose(stored, input.site)?,
            Keys::Stored(_) | Keys::Packed(_) | Keys::Words(_) => KeyTextLanes::Lane,
        };
        Ok(KeyTable { texts, ..self })
    }

    /// The columns of the input whose texts are looked at as keys, where lanes are to do it together. Texts that are computed are not
    /// shared: they are in a thread's own memory.
    pub(in crate::operator::aggregate) fn shared_texts(&self, keys: &[Expr]) -> Option<Vec<usize>> {
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
    pub(in crate::operator::aggregate) fn has_shared_texts(&self) -> bool {
        self.texts != KeyTextLanes::Lane
    }

    /// As [`KeyTable::insert_word`] for the keys of each lane that is `live` (`bool`), at uniform control flow of the warp: the lanes look at
    /// texts together.
    pub(in crate::operator::aggregate) fn insert_together(
        &self,
        cx: &mut Context<'_>,
        count: &KeyCount,
        (values, live): (&[Lowered], V),
        mark: u32,
    ) -> Result<Found, Unsupported> {
        let Keys::Stored(columns) = &self.keys else {
            return Err(Unsupported::internal("texts in a word"));
        };
        let together = KeyTexts { mark };
        let wide: Vec<bool> = self.columns.iter().map(is_wide).collect();
        let keys = SharedKeys { columns, keys: values };
        let hash = keys.hash(cx, (&wide, self.hashing.function), live, &together)?;
        let entry = self.word_of_hash(cx, hash).entry;
        let probe = self.begin_probe(cx, hash, count.capacity);
        let no = cx.builder.bool(false);
        let (searching, refused) = (cx.builder.var_of("searching", live), cx.builder.var_of("refused", no));
        let pairs = Pairs::new(cx, keys);
        cx.begin_loop();
        let open = cx.builder.read(searching);
        let any = cx.builder.value(Kir::Any(open));
        let done = cx.builder.not(any);
        cx.builder.break_if(done);
        cx.begin_if(open);
        self.propose(cx, (&probe, count), (columns, values, entry), (&pairs, searching, refused))?;
        cx.end();
        let open = cx.builder.read(searching);
        let differ = pairs.differ(cx, open, &together)?;
        let b = &mut *cx.builder;
        let (other, same, before) = (b.and(open, differ), b.not(differ), b.read(probe.found));
        let is_found = b.and(open, same);
        let found = b.or(before, is_found);
        b.assign(probe.found, found);
        b.assign(searching, other);
        b.assign(refused, other);
        cx.end();
        Ok(Found { slot: probe.slot, hit: probe.found })
    }

    /// Goes on with a lane's search, from the next slot on where the last one was `refused` (`bool`), up to a slot whose keys may be the
    /// row's: then the lane is still `searching` (`bool`). Else the search has ended.
    fn propose(
        &self,
        cx: &mut Context<'_>,
        (probe, count): (&Probe, &KeyCount),
        (columns, values, entry): (&[StoredColumn], &[Lowered], V),
        (pairs, searching, refused): (&Pairs<'_>, Var, Var),
    ) -> Result<(), Unsupported> {
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        cx.builder.assign(searching, no);
        cx.begin_loop();
        let is_refused = cx.builder.read(refused);
        cx.begin_if(is_refused);
        cx.builder.assign(refused, no);
        self.advance(cx, probe, count);
        cx.end();
        self.look(cx, probe, count, (columns, values, &[]), entry, &mut |cx, slot| {
            let may_be = pairs.propose(cx, slot)?;
            cx.begin_if(may_be);
            cx.builder.assign(searching, yes);
            cx.builder.break_loop();
            cx.end();
            Ok(())
        })?;
        cx.end();
        Ok(())
    }
}
