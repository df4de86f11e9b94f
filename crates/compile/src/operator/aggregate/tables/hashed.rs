//! Groups found by hashing: a [`KeyTable`] whose keys have the cells of their group as words.

use std::fmt;

use kelpie_kir::builder::{V, Var};

use super::group_table::{AtGroup, GroupEmitter, GroupTable, Located, add_alone};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::operator::Flow;
use crate::operator::aggregate::functions::Cells;
use crate::operator::aggregate::keys::{
    Input, KeyCount, KeySplit, KeyTable, KeyWord, Probe, ProbeKeys, RowKeys, See,
};
use crate::operator::aggregate::local::{KeyArrays, KeyWindow, PreaggregationTable, Spot};
use crate::program::States;
use crate::table::shared_keys::Found;

#[derive(Debug)]
pub struct HashGroups {
    table: KeyTable,
    /// Groups at most, by the rows.
    row_bound: u64,
}

impl HashGroups {
    pub fn plan(
        split: &KeySplit,
        cells: &Cells,
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<HashGroups, Unsupported> {
        let table = KeyTable::plan(&split.columns, &split.dependent, cells.words(), input, states)?;
        Ok(HashGroups { table: table.with_text_lanes(input)?, row_bound: input.row_bound })
    }
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

    fn key_table(&self) -> Option<&KeyTable> {
        Some(&self.table)
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

/// What happens where a group's slot (`i64`) in the table of all is known.
type AtSlot<'n> = dyn FnMut(&mut Context<'_>, V) + 'n;

/// The groups in one kernel. A slot below zero is a near copy ([`PreaggregationTable::below_slots`]), or a place in a window: -1 is the first one.
pub struct HashEmitter<'s> {
    table: &'s KeyTable,
    count: KeyCount,
    cells: &'s Cells,
    /// Copies that are found by keys.
    near: Option<PreaggregationTable>,
    window: Option<KeyWindow>,
    /// Whether nobody else adds to the groups that rows come to now (`bool`).
    alone: Option<Var>,
}

/// Where a row's group was looked for before the table of all.
#[derive(Clone, Copy)]
enum NearPlace<'n> {
    /// Among the copies of a worker.
    OfWorker(&'n PreaggregationTable, Spot),
    /// Among those of a block, by the words of its keys.
    InBlock(&'n PreaggregationTable, Spot, &'n [V]),
    /// In a window, at a place (`i64`) if it is there (`bool`).
    InWindow(Var, Var),
}

impl HashEmitter<'_> {
    /// The copy or the slot of keys, of which a copy is made where there is a place for one.
    fn locate_near(
        &self,
        cx: &mut Context<'_>,
        near: &PreaggregationTable,
        keys: ProbeKeys<'_>,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        if near.keys.is_none() {
            let own = self.table.own_words(cx, keys.values, keys.word)?;
            let first = self.table.first_of_places(cx, keys.word, near.copies);
            let spot = near.find_in_block(cx, self.cells, (&own, keys.word.hash), first);
            return self.go_on_near(cx, NearPlace::InBlock(near, spot, &own), keys, next);
        }
        let same = |cx: &mut Context<'_>, copies: &KeyArrays, copy: V| match self.table.is_packed() {
            true => Ok(cx.builder.bool(true)),
            false => {
                let slot = copies.slot(cx, copy);
                self.table.has_keys(cx, keys.values, slot)
            }
        };
        let spot = near.find_keys(cx, keys.word, &same)?;
        self.go_on_near(cx, NearPlace::OfWorker(near, spot), keys, next)
    }

    /// Merges a block's copies that were found by keys: each group looks for its slot now.
    fn merge_block(&self, cx: &mut Context<'_>, near: &PreaggregationTable) -> Result<(), Unsupported> {
        let mut merged = Ok(());
        near.each(cx, self.cells, |cx, taken, values| {
            let own = near.key_words(cx, taken.place);
            let probe = self.table.word_in_block(cx, own).and_then(|(own, word)| {
                let keys = ProbeKeys { values: &[], word, dependent: &[] };
                self.table.insert_words(cx, &self.count, &own, keys)
            });
            merged =
                probe.map(|probe| self.at_found(cx, &probe, &mut |cx, slot| self.add_far(cx, slot, values)));
        });
        merged
    }

    /// Goes on where a probe has found its keys.
    fn at_found(&self, cx: &mut Context<'_>, probe: &Probe<'_>, next: &mut AtSlot<'_>) {
        let found = cx.builder.read(probe.found);
        cx.begin_if(found);
        let slot = cx.builder.read(probe.slot);
        next(cx, slot);
        cx.end();
    }

    /// Goes on with the copy, or the place in a window, where there is one; else with the slot in the table of all, of which a copy is made
    /// where a worker has a place for one.
    fn go_on_near(
        &self,
        cx: &mut Context<'_>,
        at: NearPlace<'_>,
        keys: ProbeKeys<'_>,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let (place, is_near) = match at {
            NearPlace::OfWorker(_, spot) | NearPlace::InBlock(_, spot, _) => (spot.copy, spot.is_near),
            NearPlace::InWindow(place, is_there) => (place, is_there),
        };
        let near = cx.builder.read(is_near);
        let live = cx.builder.var_of("live", near);
        let zero = cx.builder.i64(0);
        let slot = cx.builder.var_of("group", zero);
        let is_far = cx.builder.not(near);
        cx.begin_if(is_far);
        let probe = match at {
            NearPlace::InBlock(_, _, own) => self.table.insert_words(cx, &self.count, own, keys)?,
            _ => self.table.insert(cx, &self.count, keys)?,
        };
        let found = cx.builder.read(probe.found);
        cx.begin_if(found);
        cx.builder.assign(live, found);
        let far = cx.builder.read(probe.slot);
        cx.builder.assign(slot, far);
        if let NearPlace::OfWorker(table, spot) = at {
            table.take(cx, spot, keys.word, far);
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
            NearPlace::InBlock(near, ..) => near.below_slots(cx, place),
            NearPlace::OfWorker(..) | NearPlace::InWindow(..) => cx.builder.not(place),
        };
        let slot = cx.builder.select(is_near, place, slot);
        next(cx, Located { slot: Some(slot), active: None, keys: Some(keys.values.to_vec()) })?;
        cx.end();
        Ok(())
    }

    /// Finds or makes the group of packed keys by their entry; `next` goes on with its slot in the table of all (`i64`).
    pub fn at_entry(&self, cx: &mut Context<'_>, entry: V, next: &mut AtSlot<'_>) -> Result<(), Unsupported> {
        let keys = ProbeKeys { values: &[], word: self.table.word_of(cx, entry), dependent: &[] };
        let probe = self.table.insert_words(cx, &self.count, &[], keys)?;
        self.at_found(cx, &probe, next);
        Ok(())
    }

    /// Whether the lanes of a warp can find groups together.
    pub fn finds_together(&self) -> bool {
        self.table.has_shared_texts() && self.near.is_none() && self.window.is_none()
    }

    /// Finds or makes the group of the keys of each lane's row, where there is one (`live`, `bool`), at uniform control flow of the warp.
    /// `mark`: the number of the first mark that lanes can come by.
    pub fn find_together(
        &self,
        cx: &mut Context<'_>,
        keys: &[Lowered],
        live: V,
        mark: u32,
    ) -> Result<Found, Unsupported> {
        self.table.insert_together(cx, &self.count, keys, live, mark)
    }

    /// `next` goes on with the group that was found for the current row.
    pub fn locate_found(
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

    pub fn word(&self, cx: &mut Context<'_>, keys: &[Lowered]) -> Result<KeyWord, Unsupported> {
        self.table.word(cx, keys)
    }

    /// The word of keys that are not one word, by their hash (`u64`).
    pub fn word_of_hash(&self, cx: &mut Context<'_>, hash: V) -> Option<KeyWord> {
        (!self.table.is_packed()).then(|| self.table.word_of_hash(cx, hash))
    }

    /// Emits looks at what searches will look at; not where near copies are looked for: they are near.
    pub fn unless_near(
        &self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut Context<'_>) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let Some(near) = &self.near else { return look(cx) };
        let far = near.is_off(cx);
        cx.begin_if(far);
        look(cx)?;
        cx.end();
        Ok(())
    }

    /// Looks at what the search for a word will look at; for the second time (`again`), at what it found there.
    pub fn look_ahead(&self, cx: &mut Context<'_>, word: KeyWord, again: bool, see: &mut See<'_>) {
        self.table.look_ahead(cx, word, &self.count, again, see);
    }

    /// Whether the table is known to be full, so that the rows that are left are not looked at (`bool`, the same for all threads of a warp).
    pub fn is_full(&self, cx: &mut Context<'_>) -> V {
        self.count.is_full(cx)
    }

    /// Adds contributions to the group in a slot of the table.
    fn add_far(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        let base = self.table.words(cx, slot);
        add_alone(cx, self.alone, |cx, scope| self.cells.update(cx, base, values, scope));
    }
}

impl GroupEmitter for HashEmitter<'_> {
    fn hashed(&self) -> Option<&HashEmitter<'_>> {
        Some(self)
    }

    fn take_near(&mut self, near: PreaggregationTable) {
        self.near = Some(near);
    }

    fn take_window(&mut self, keys: KeyWindow) {
        self.window = Some(keys);
    }

    fn take_alone(&mut self, alone: Var) {
        self.alone = Some(alone);
    }

    fn locate(
        &self,
        cx: &mut Context<'_>,
        keys: &RowKeys,
        word: Option<KeyWord>,
        _flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let values = keys.telling.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
        let word = match word {
            Some(word) => word,
            None => self.table.word(cx, &values)?,
        };
        let keys = ProbeKeys { values: &values, word, dependent: &keys.dependent };
        if let Some(near) = &self.near {
            return self.locate_near(cx, near, keys, next);
        }
        if let Some(window) = self.window {
            let (place, is_there) = window.find(cx, word);
            return self.go_on_near(cx, NearPlace::InWindow(place, is_there), keys, next);
        }
        let probe = self.table.insert(cx, &self.count, keys)?;
        let found = Found { slot: probe.slot, hit: probe.found };
        self.locate_found(cx, found, &mut |cx, located| {
            next(cx, Located { keys: Some(values.clone()), ..located })
        })
    }

    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return cx.impossible("a row without a slot") };
        let Some(near) = &self.near else { return self.add_far(cx, slot, values) };
        let is_near = cx.builder.lt_int(slot, 0);
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
        self.cells.current(cx, base, index)
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
