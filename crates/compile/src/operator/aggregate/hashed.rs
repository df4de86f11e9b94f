//! Groups found by hashing: a [`KeyTable`] whose keys have the cells of their group as words.

use std::borrow::Cow;
use std::fmt;

use kelpie_kir::Scope;
use kelpie_kir::builder::{V, Var};

use super::groups::{AtGroup, AtSlot, EachWord, GroupEmitter, GroupTable, Located, See};
use super::hash::{KeyTable, KeyWord, Probe};
use super::key_count::KeyCount;
use super::key_window::KeyWindow;
use super::near::NearTable;
use super::near_keys::{KeyArrays, Spot};
use super::tables::Strategy;
use super::{Cells, Input, declare, update_group, word_pointer};
use crate::choices::Choices;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::Flow;
use crate::shape::LaunchShape;
use crate::table::shared_keys::Found;
use crate::variant::axes::GroupForm;

/// Keys of any kind.
pub(super) struct HashedKeys<'k> {
    keys: &'k [ColumnInfo],
    /// Those that are stored with their group, with their places among all.
    carried: &'k [(usize, ColumnInfo)],
}

impl<'k> HashedKeys<'k> {
    pub(super) fn of(keys: &'k [ColumnInfo], carried: &'k [(usize, ColumnInfo)]) -> HashedKeys<'k> {
        HashedKeys { keys, carried }
    }
}

impl Strategy for HashedKeys<'_> {
    fn form(&self) -> GroupForm {
        GroupForm::Hash
    }

    fn lacks(&self) -> Option<String> {
        None
    }

    fn suits(&self, _row_bound: u64) -> Option<Cow<'static, str>> {
        Some("keys have no small dense domain".into())
    }

    fn plan(
        self: Box<Self>,
        cells: &mut Cells,
        input: &Input<'_>,
        _on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<Box<dyn GroupTable>, Unsupported> {
        let table = KeyTable::plan((self.keys, self.carried), cells.words(), input, states)?;
        let table = table.with_text_lanes(input)?;
        Ok(Box::new(HashGroups { table, row_bound: input.row_bound }))
    }
}

/// Groups in a hash table.
#[derive(Debug)]
pub struct HashGroups {
    pub table: KeyTable,
    /// Groups at most, by the rows.
    pub row_bound: u64,
}

impl fmt::Display for HashGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl GroupTable for HashGroups {
    fn class(&self) -> usize {
        self.table.class
    }

    fn zeroed(&self) -> Vec<usize> {
        self.table.zeroed()
    }

    fn grows(&self) -> Vec<usize> {
        vec![self.table.class]
    }

    fn count(&self) -> Option<usize> {
        Some(self.table.count)
    }

    fn row_bound(&self) -> u64 {
        self.row_bound
    }

    fn is_local(&self) -> bool {
        false
    }

    fn key_table(&self) -> Option<&KeyTable> {
        Some(&self.table)
    }

    fn shared_texts(&self, keys: &[Expr]) -> Option<Vec<usize>> {
        self.table.shared_texts(keys)
    }

    fn has_words(&self) -> bool {
        true
    }

    fn has_pointers(&self) -> bool {
        !self.table.is_packed()
    }

    fn has_carried(&self) -> bool {
        self.table.has_carried()
    }

    /// A probe loops.
    fn takes_flags(&self) -> bool {
        false
    }

    fn part(&self, cx: &mut Context<'_>, keys: &[Expr], bits: u32) -> Result<(V, Option<V>), Unsupported> {
        let values = keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
        self.table.part(cx, &values, bits)
    }

    /// Where hashes are not spread over the slots in their order, most groups lie elsewhere.
    fn part_start(&self, cx: &mut Context<'_>, part: V, bits: u32) -> V {
        self.table.part_start(cx, part, bits)
    }

    fn begin<'s>(&'s self, cx: &mut Context<'_>, cells: &'s Cells, _: u64) -> Box<dyn GroupEmitter + 's> {
        let count = self.table.begin(cx);
        Box::new(HashEmitter { table: &self.table, count, cells, near: None, window: None, alone: None })
    }

    fn present(&self, cx: &mut Context<'_>, _cells: &Cells, slot: V) -> Option<V> {
        Some(self.table.present(cx, slot))
    }

    fn words(&self, cx: &mut Context<'_>, _cells: &Cells, slot: V) -> V {
        self.table.words(cx, slot)
    }

    fn keys(&self, cx: &mut Context<'_>, _columns: &[ColumnInfo], slot: V) -> Vec<Lowered> {
        self.table.keys(cx, slot)
    }
}

/// The groups in one kernel. A slot below zero is a near copy ([`NearTable::below_slots`]), or a place in a window: -1 is the first one.
struct HashEmitter<'s> {
    table: &'s KeyTable,
    count: KeyCount,
    cells: &'s Cells,
    /// Copies that are found by keys.
    near: Option<NearTable>,
    /// The keys of a window.
    window: Option<KeyWindow>,
    /// Whether nobody else adds to the groups that rows come to now (`bool`).
    alone: Option<Var>,
}

/// Where a row's group was looked for before the table of all.
#[derive(Clone, Copy)]
enum NearPlace<'n> {
    /// Among the copies of a worker.
    OfWorker(&'n NearTable, Spot),
    /// Among those of a block, by the words of its keys.
    InBlock(&'n NearTable, &'n [V]),
    InWindow,
}

impl HashEmitter<'_> {
    /// The copy or the slot of keys, of which a copy is made where there is a place for one.
    fn locate_near(
        &self,
        cx: &mut Context<'_>,
        near: &NearTable,
        (values, word, carried): (Vec<Lowered>, KeyWord, &[Expr]),
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        if near.keys.is_none() {
            let own = self.table.own_words(cx, (&values, word))?;
            let first = self.table.first_of_places(cx, word, near.copies);
            let spot = near.find_in_block(cx, self.cells, (&own, word.hash), first);
            let (found, place) = ((spot.copy, spot.is_near), NearPlace::InBlock(near, &own));
            return self.go_on_near(cx, found, place, (values, word, carried), next);
        }
        let same = |cx: &mut Context<'_>, keys: &KeyArrays, copy: V| match self.table.is_packed() {
            true => Ok(cx.builder.bool(true)),
            false => {
                let slot = keys.slot(cx, copy);
                self.table.has_keys(cx, &values, slot)
            }
        };
        let spot = near.find_keys(cx, word, &same)?;
        let (found, place) = ((spot.copy, spot.is_near), NearPlace::OfWorker(near, spot));
        self.go_on_near(cx, found, place, (values, word, carried), next)
    }

    /// Merges a block's copies that were found by keys: each group looks for its slot now.
    fn merge_block(&self, cx: &mut Context<'_>, near: &NearTable) -> Result<(), Unsupported> {
        let mut merged = Ok(());
        near.each(cx, self.cells, |cx, taken, values| {
            let own = near.key_words(cx, taken.place);
            let probe = self.table.word_in_block(cx, own);
            let probe = probe.and_then(|(own, word)| self.table.insert_words(cx, &self.count, (&own, word)));
            merged =
                probe.map(|probe| self.at_found(cx, &probe, &mut |cx, slot| self.add_far(cx, slot, values)));
        });
        merged
    }

    /// Goes on where a probe has found its keys.
    fn at_found(&self, cx: &mut Context<'_>, probe: &Probe, next: &mut AtSlot<'_>) {
        let found = cx.builder.read(probe.found);
        cx.begin_if(found);
        let slot = cx.builder.read(probe.slot);
        next(cx, slot);
        cx.end();
    }

    /// Goes on with the copy, or the place in a window, where there `is_near` one; else with the slot in the table of all, of which a copy
    /// is made where a worker has a place for one.
    fn go_on_near(
        &self,
        cx: &mut Context<'_>,
        (place, is_near): (Var, Var),
        at: NearPlace<'_>,
        (values, word, carried): (Vec<Lowered>, KeyWord, &[Expr]),
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let near = cx.builder.read(is_near);
        let live = cx.builder.var_of("live", near);
        let zero = cx.builder.i64(0);
        let slot = cx.builder.var_of("group", zero);
        let is_far = cx.builder.not(near);
        cx.begin_if(is_far);
        let probe = match at {
            NearPlace::InBlock(_, own) => self.table.insert_words(cx, &self.count, (own, word))?,
            _ => self.table.insert_word(cx, &self.count, (&values, word), carried)?,
        };
        let found = cx.builder.read(probe.found);
        cx.begin_if(found);
        cx.builder.assign(live, found);
        let far = cx.builder.read(probe.slot);
        cx.builder.assign(slot, far);
        if let NearPlace::OfWorker(table, spot) = at {
            table.take(cx, spot, (word, far));
        }
        cx.end();
        if let NearPlace::OfWorker(table, spot) = at {
            table.lose_credit(cx, spot);
        }
        cx.end();
        let live = cx.builder.read(live);
        cx.begin_if(live);
        let b = &mut *cx.builder;
        let (place, is_near, slot) = (b.read(place), b.read(is_near), b.read(slot));
        let place = match at {
            NearPlace::InBlock(near, _) => near.below_slots(cx, place),
            NearPlace::OfWorker(..) | NearPlace::InWindow => cx.builder.not(place),
        };
        let slot = cx.builder.select(is_near, place, slot);
        next(cx, Located { slot: Some(slot), active: None, keys: Some(values) })?;
        cx.end();
        Ok(())
    }

    /// Adds contributions to the group in a slot of the table.
    fn add_far(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        let base = self.table.words(cx, slot);
        let Some(alone) = self.alone else {
            return update_group(cx, self.cells, base, values, Scope::Device);
        };
        let is_alone = cx.builder.read(alone);
        cx.begin_if(is_alone);
        // Of a worker's own memory: no atomics.
        update_group(cx, self.cells, base, values, Scope::Block);
        cx.begin_else();
        update_group(cx, self.cells, base, values, Scope::Device);
        cx.end();
    }
}

impl GroupEmitter for HashEmitter<'_> {
    fn take_near(&mut self, near: NearTable) {
        self.near = Some(near);
    }

    fn take_window(&mut self, keys: KeyWindow) {
        self.window = Some(keys);
    }

    fn take_alone(&mut self, alone: Var) {
        self.alone = Some(alone);
    }

    fn at_entry(&self, cx: &mut Context<'_>, entry: V, next: &mut AtSlot<'_>) -> Result<(), Unsupported> {
        let word = self.table.word_of(cx, entry);
        let probe = self.table.insert_word(cx, &self.count, (&[], word), &[])?;
        self.at_found(cx, &probe, next);
        Ok(())
    }

    fn finds_together(&self) -> bool {
        self.table.has_shared_texts() && self.near.is_none() && self.window.is_none()
    }

    fn find_together(
        &self,
        cx: &mut Context<'_>,
        keys: (&[Lowered], V),
        mark: u32,
    ) -> Result<Found, Unsupported> {
        self.table.insert_together(cx, &self.count, keys, mark)
    }

    fn locate_found(
        &self,
        cx: &mut Context<'_>,
        found: Found,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let is_there = cx.builder.read(found.hit);
        cx.begin_if(is_there);
        let slot = cx.builder.read(found.slot);
        next(cx, Located { slot: Some(slot), active: None, keys: None })?;
        cx.end();
        Ok(())
    }

    fn word(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<Option<KeyWord>, Unsupported> {
        self.table.word(cx, keys).map(Some)
    }

    fn word_of_hash(&self, cx: &mut Context<'_>, hash: V) -> Option<KeyWord> {
        (!self.table.is_packed()).then(|| self.table.word_of_hash(cx, hash))
    }

    /// Not where near copies are looked for: they are near.
    fn look_ahead(
        &self,
        cx: &mut Context<'_>,
        again: bool,
        see: &mut See<'_>,
        each: &mut EachWord<'_>,
    ) -> Result<(), Unsupported> {
        let far = self.near.as_ref().map(|near| near.is_off(cx));
        if let Some(far) = far {
            cx.begin_if(far);
        }
        let capacity = self.count.capacity;
        each(cx, &mut |cx, word| self.table.look_ahead(cx, (word, capacity), again, see))?;
        if far.is_some() {
            cx.end();
        }
        Ok(())
    }

    fn locate(
        &self,
        cx: &mut Context<'_>,
        (keys, carried, word): (&[Expr], &[Expr], Option<KeyWord>),
        _flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let values = keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
        let word = match word {
            Some(word) => word,
            None => self.table.word(cx, &values)?,
        };
        if let Some(near) = &self.near {
            return self.locate_near(cx, near, (values, word, carried), next);
        }
        if let Some(window) = self.window {
            let found = window.find(cx, word);
            return self.go_on_near(cx, found, NearPlace::InWindow, (values, word, carried), next);
        }
        let probe = self.table.insert_word(cx, &self.count, (&values, word), carried)?;
        let found = Found { slot: probe.slot, hit: probe.found };
        self.locate_found(cx, found, &mut |cx, located| {
            next(cx, Located { keys: Some(values.clone()), ..located })
        })
    }

    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return cx.impossible("a row without a slot") };
        let Some(near) = &self.near else { return self.add_far(cx, slot, values) };
        let zero = cx.builder.i64(0);
        let is_near = cx.builder.lt(slot, zero);
        cx.begin_if(is_near);
        let copy = near.below_slots(cx, slot);
        near.add_to_copy(cx, self.cells, copy, values);
        if near.keys.is_some() {
            near.gain_credit(cx);
        }
        cx.begin_else();
        self.add_far(cx, slot, values);
        cx.end();
    }

    fn current(&self, cx: &mut Context<'_>, slot: Option<V>, index: usize) -> Option<V> {
        let base = self.table.words(cx, slot?);
        let pointer = word_pointer(cx, base, self.cells.cells.get(index)?.word);
        Some(cx.builder.atomic_load(pointer, Scope::Device))
    }

    fn is_full(&self, cx: &mut Context<'_>) -> Option<V> {
        Some(self.count.is_full(cx))
    }

    fn end(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        match &self.near {
            Some(near) if near.keys.is_none() => self.merge_block(cx, near)?,
            Some(near) => near.end(cx, self.cells, &|cx, slot, values| self.add_far(cx, slot, values)),
            None => {}
        }
        self.count.end(cx);
        Ok(())
    }
}
