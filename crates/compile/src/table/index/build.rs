//! Building an index: rows are added by their keys, counted into buckets, and filled into them.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::{Index, KeyEncoding, Kind, SlotRows, code_of, offset_from, scalar_of};
use crate::context::{Constant, Context, Lowered, Unsupported};
use crate::table::bounds::Bounds;
use crate::table::probing::Known;
use crate::table::rows::RowStore;
use crate::table::slots::Slots;

impl Index {
    /// Before the row loop.
    pub fn begin(&self, cx: &mut Context<'_>) -> Option<Bounds> {
        self.bounds.map(|bounds| bounds.begin(cx))
    }

    /// After the row loop.
    pub fn end(&self, cx: &mut Context<'_>, bounds: Option<Bounds>) {
        if let (Some(state), Some(bounds)) = (self.bounds, bounds) {
            state.end(cx, bounds);
        }
    }

    /// Adds the row at `place` (`i64`), whose keys are the first columns of the current row, or counts it into its bucket.
    /// Rows with a NULL key are left out unless NULLs are equal.
    pub fn insert(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        place: V,
        bounds: Option<Bounds>,
    ) -> Result<(), Unsupported> {
        let keys = self.keys_of_row(cx)?;
        let opened = self.leave_out(cx, &keys)?;
        if let ([key], Some(bounds)) = (keys.as_slice(), bounds) {
            bounds.widen(cx, key)?;
        }
        match self.kind {
            Kind::All => {}
            Kind::Direct { min, slots, .. } => {
                let value = scalar_of(&keys[0])?;
                let slot = offset_from(cx, value, min);
                slots.insert(cx, slot, place, self.broken);
            }
            Kind::Hashed { table, rows } => {
                let known = self.known(rows);
                let slot = table.claim(cx, store, (&keys, &self.wide), place, known)?;
                if let SlotRows::Buckets(buckets) = rows {
                    let slot = cx.builder.read(slot);
                    buckets.count(cx, slot, place);
                }
            }
        }
        if opened {
            cx.end();
        }
        Ok(())
    }

    /// What becomes of a row whose keys another has put in.
    pub(super) fn known(&self, rows: SlotRows) -> Known {
        match (rows, self.broken) {
            (SlotRows::One, Some(broken)) => Known::Report(broken),
            (SlotRows::One | SlotRows::Buckets(_), _) => Known::LeaveOut,
            (SlotRows::Chained(next), _) => Known::Chain(next),
        }
    }

    /// Puts the row at `place` (`i64`), which is the current row, at the rank of its key, once all ranks are known; or counts it into its
    /// bucket.
    pub fn number(&self, cx: &mut Context<'_>, place: V) -> Result<(), Unsupported> {
        let Kind::Direct { min, slots: Slots::Ranked(ranks), .. } = self.kind else {
            return Err(Unsupported::internal("an index without ranks"));
        };
        let keys = self.keys_of_row(cx)?;
        let opened = self.leave_out(cx, &keys)?;
        let value = scalar_of(&keys[0])?;
        let slot = offset_from(cx, value, min);
        ranks.number(cx, slot, place);
        if opened {
            cx.end();
        }
        Ok(())
    }

    /// Puts the row at `place` (`i64`), which is the current row and is counted, into its bucket; `each` is told its position there
    /// (`i64`).
    pub fn fill(
        &self,
        cx: &mut Context<'_>,
        place: V,
        each: &mut dyn FnMut(&mut Context<'_>, V) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let buckets = self.buckets().ok_or_else(|| Unsupported::internal("an index without buckets"))?;
        let keys = self.keys_of_row(cx)?;
        let opened = self.leave_out(cx, &keys)?;
        match self.kind {
            Kind::Direct { min, .. } => {
                let slot = match buckets.noted_slot(cx, place) {
                    Some(rank) => rank,
                    None => {
                        let value = scalar_of(&keys[0])?;
                        offset_from(cx, value, min)
                    }
                };
                let (_, _, position) = buckets.put(cx, slot, place);
                each(cx, position)?;
            }
            Kind::Hashed { table, .. } => {
                let slot = buckets.noted_slot(cx, place);
                let slot = slot.ok_or_else(|| Unsupported::internal("a bucket's slot"))?;
                let (begin, is_first, position) = buckets.put(cx, slot, place);
                each(cx, position)?;
                // From now on the slot leads to the bucket.
                cx.begin_if(is_first);
                let one = cx.builder.u32(1);
                let number = cx.builder.add(begin, one);
                table.renumber(cx, slot, number);
                cx.end();
            }
            Kind::All => cx.impossible("buckets of an index without keys"),
        }
        if opened {
            cx.end();
        }
        Ok(())
    }

    /// Opens `if` a search may be for the keys. Whether it has opened one.
    fn leave_out(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<bool, Unsupported> {
        let all = self.may_be_found(cx, keys)?;
        if let Some(all) = all {
            cx.begin_if(all);
        }
        Ok(all.is_some())
    }

    /// Whether a search may be for the keys (`bool`; `None`: it always may): none is NULL, unless NULLs are equal to each other, and texts that
    /// were looked up are entries of the dictionary.
    pub(super) fn may_be_found(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
    ) -> Result<Option<V>, Unsupported> {
        let finds_nulls = self.null_equal && !matches!(self.kind, Kind::Direct { .. });
        let valid = if finds_nulls { None } else { self.all_valid(cx, keys) };
        let mut all: Vec<V> = valid.into_iter().collect();
        for (key, encoding) in keys.iter().zip(&self.encodings) {
            let KeyEncoding::LookedUp(entries) = encoding else { continue };
            let value = scalar_of(key)?;
            let value = cx.builder.convert(value, Scalar::I32);
            let end = cx.constant(Constant::Int(Scalar::I32, (*entries).into()));
            let mut is_entry = cx.builder.lt(value, end);
            if let (Some(valid), true) = (key.valid, finds_nulls) {
                let null = cx.builder.not(valid);
                is_entry = cx.builder.or(null, is_entry);
            }
            all.push(is_entry);
        }
        Ok(all.into_iter().reduce(|all, one| cx.builder.and(all, one)))
    }

    /// The keys of a row of the store, which are its first columns.
    pub(crate) fn keys_of_row(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        let key_of = |(number, encoding): (usize, &KeyEncoding)| {
            let key = cx.column(number)?;
            match encoding {
                KeyEncoding::Code => code_of(cx, &key),
                KeyEncoding::Value | KeyEncoding::LookedUp(_) => Ok(key),
            }
        };
        self.encodings.iter().enumerate().map(key_of).collect()
    }
}
