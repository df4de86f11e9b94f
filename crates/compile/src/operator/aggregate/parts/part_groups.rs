//! The groups of one part in a block's memory.
//!
//! Rows that were brought into parts ([`partition`](crate::operator::partition)) come to a block part after part. The groups of a part lie side
//! by side in the table of all groups, so a block has a window over that table in its own memory: rows are added up there, without an
//! atomic on the device's memory, and what the window holds after a part's rows is added to the table of all, one group after the
//! other. (Karnagel et al., section 5.1, place whole tables so; parts make tables of any size fit.)
//!
//! A CPU's worker needs no window: a part's share of the table of all groups lies in its cache. But the rows of a part are all its
//! own, so it adds them up there without atomics.
//!
//! A row whose group lies outside of the window, since it found no place in its part, is added to the table of all as it comes. So
//! no answer depends on how rows were brought into parts, nor on how many groups the window was thought to need.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use crate::context::{Context, Unsupported};
use crate::operator::aggregate::block_loop::for_each;
use crate::operator::aggregate::functions::{Cells, is_used, word_pointer, write_cell};
use crate::operator::aggregate::keys::Facts;
use crate::operator::aggregate::local::{AddFar, BlockLayout, BlockTable, CellForms, KeyWindow, LocalRow};
use crate::operator::aggregate::tables::{GroupEmitter, GroupTable};
use crate::shape::LaunchShape;
use crate::variant::axes::PartMemory;

/// Bytes of a window over a hash table, of which it is not known how many slots a part has: two blocks should fit a multiprocessor of
/// an NVIDIA GPU.
const HASHED_BYTES: u64 = 100 << 10;
/// Bytes of a block's memory beside the window.
const BESIDE_BYTES: u64 = 10 << 10;
/// Places of a window that has keys.
const LEAST_PLACES: u64 = 64;
const MOST_PLACES: u64 = 1 << 16;
/// Bytes of the copies of a window, at most: threads of a warp would meet in so few groups.
const COPIES_BYTES: u64 = 24 << 10;
/// Copies, at most.
const MOST_COPIES: u32 = 8;

/// Where rows in parts are added up, but for the table of all groups as rows that come in any order are.
#[derive(Debug, Clone)]
pub(crate) enum PartPlace {
    /// In a block's memory.
    Window(PartGroups),
    /// In the table of all groups, by the one worker to whom all rows of a part come.
    Alone,
}

impl PartPlace {
    /// Bytes of a window in a block's memory.
    pub fn window_bytes(&self) -> Option<u64> {
        match self {
            PartPlace::Window(window) => Some(window.bytes()),
            PartPlace::Alone => None,
        }
    }

    /// Where rows in parts are added up; `None`: as rows that come in any order.
    pub fn plan(
        cells: &Cells,
        table: &dyn GroupTable,
        facts: &Facts<'_>,
        has_segments: bool,
    ) -> Result<Option<PartPlace>, Unsupported> {
        let Facts { input, table: known, .. } = facts;
        let Some(parts) = input.parts else { return Ok(None) };
        let bits = parts.0.ilog2();
        let layout = BlockLayout::plan(cells, input.row_bound, CellForms::PLAIN, input.shape);
        let most = window_bytes(input.shape, known.is_hashed);
        let (part_slots, slot_bytes) = (table.part_slots(bits), layout.bytes(1, 1));
        let places = (most / (KeyWindow::BYTES + slot_bytes)).clamp(LEAST_PLACES, MOST_PLACES);
        let memory = WindowFacts {
            facts,
            has_segments,
            most,
            // How many slots a hash table will have is known when it runs: a window has as many as there is room for.
            slots: part_slots.unwrap_or(most / slot_bytes.max(1)).max(1),
            places: 1 << places.ilog2(),
            layout,
        };
        // Groups are an estimate, slots of a direct-addressed table are not.
        let groups = input.groups.map_or(0, |groups| groups / parts.0).min(part_slots.unwrap_or(u64::MAX));
        let (rule, reason) = memory.rule(groups);
        let (slots, has_keys) = match input.site.choose((rule, &reason), |value| memory.why_not(value))? {
            PartMemory::Global => return Ok(None),
            PartMemory::Alone => return Ok(Some(PartPlace::Alone)),
            PartMemory::Block => (memory.slots, false),
            PartMemory::Keys => (memory.places, true),
        };
        let (slots, layout) = (u32::try_from(slots).unwrap_or(u32::MAX), memory.layout);
        let fits = |copies: &u32| layout.bytes(slots.into(), *copies) <= COPIES_BYTES.min(most);
        let copies = (1..=MOST_COPIES).rev().filter(|copies| copies.is_power_of_two()).find(fits);
        let copies = copies.unwrap_or(1);
        Ok(Some(PartPlace::Window(PartGroups { layout, slots, has_keys, copies, bits })))
    }
}

/// What decides where rows in parts are added up.
struct WindowFacts<'f> {
    facts: &'f Facts<'f>,
    /// Neighbours add up rows before.
    has_segments: bool,
    layout: BlockLayout,
    /// Bytes of a window, at most.
    most: u64,
    /// Slots of a window over the table of all groups, and of one that has keys.
    slots: u64,
    places: u64,
}

impl WindowFacts<'_> {
    fn bytes(&self, slots: u64) -> u64 {
        self.layout.bytes(slots, 1)
    }

    /// Why rows cannot be added up there.
    fn why_not(&self, memory: PartMemory) -> Result<(), String> {
        let Facts { input, table, are_plain, words, .. } = *self.facts;
        let is_serial = input.is_serial();
        Err(match memory {
            PartMemory::Global => return Ok(()),
            PartMemory::Alone if !is_serial => "threads of a block meet in its groups".into(),
            PartMemory::Alone if table.is_local => "the table of all groups has a copy in each worker".into(),
            PartMemory::Keys | PartMemory::Block if is_serial => {
                "a CPU's worker finds its parts in its cache".into()
            }
            _ if !are_plain => "texts are compared in the table of all groups".into(),
            PartMemory::Alone => return Ok(()),
            _ if self.has_segments => "neighbours add up rows in a block's memory before".into(),
            _ if table.is_local => "the table of all groups has a copy in each block".into(),
            PartMemory::Keys if !table.is_hashed => "groups are found without their keys".into(),
            PartMemory::Keys if table.compares_stored => {
                "keys of several words are compared in the table of all groups".into()
            }
            PartMemory::Keys if table.has_dependent => {
                "keys that follow from others are stored in the table of all groups".into()
            }
            PartMemory::Keys if self.places * (KeyWindow::BYTES + self.bytes(1)) > self.most => {
                "a block has no room for the keys of a part".into()
            }
            PartMemory::Block if words == 0 => "groups have nothing that is added up".into(),
            PartMemory::Block if self.bytes(self.slots) > self.most => {
                let (bytes, most) = (self.bytes(self.slots), self.most);
                format!("a part's groups take {bytes} bytes, where a block has {most}")
            }
            PartMemory::Keys | PartMemory::Block => return Ok(()),
        })
    }

    /// Where so many groups of a part are added up, and why.
    fn rule(&self, groups: u64) -> (PartMemory, String) {
        let is_possible = |memory| self.why_not(memory).is_ok();
        let (memory, reason) = match self.why_not(PartMemory::Block) {
            _ if is_possible(PartMemory::Alone) => {
                (PartMemory::Alone, "all rows of a part are one worker's, who needs no atomics")
            }
            _ if is_possible(PartMemory::Keys) && groups <= self.places / 4 * 3 => {
                (PartMemory::Keys, "a part's groups are found in a block's memory")
            }
            Err(why_not) => return (PartMemory::Global, why_not),
            Ok(()) if groups > self.slots => {
                (PartMemory::Global, "a block has no room for most groups of a part")
            }
            Ok(()) => (PartMemory::Block, "a part's groups fit a block's memory"),
        };
        (memory, reason.to_string())
    }
}

/// A window over the table of all groups, planned.
#[derive(Debug, Clone)]
pub(crate) struct PartGroups {
    layout: BlockLayout,
    slots: u32,
    /// The window has the keys of its groups, which are not where the table of all has them.
    has_keys: bool,
    /// Copies of each, of which neighbouring threads add to different ones.
    copies: u32,
    /// Bits of a part's number.
    bits: u32,
}

impl PartGroups {
    pub fn bytes(&self) -> u64 {
        let keys = if self.has_keys { KeyWindow::BYTES * u64::from(self.slots) } else { 0 };
        keys + self.layout.bytes(self.slots.into(), self.copies)
    }

    /// Clears the window.
    pub fn begin(&self, cx: &mut Context<'_>) -> PartWindow {
        let keys = self.has_keys.then(|| KeyWindow::begin(cx, self.slots, self.bits));
        let table = BlockTable::begin(cx, self.layout.clone(), self.slots.into(), self.copies);
        let nowhere = cx.builder.i64(i64::MAX);
        let first = cx.builder.var_of("window", nowhere);
        let no = cx.builder.bool(false);
        let is_alone = cx.builder.var_of("is_alone", no);
        PartWindow { slots: self.slots, bits: self.bits, keys, table, first, is_alone }
    }
}

/// Bytes that a window may have, over a hash table or a direct-addressed one.
pub(crate) fn window_bytes(shape: &LaunchShape, is_hashed: bool) -> u64 {
    let most = u64::from(shape.table_bytes()).saturating_sub(BESIDE_BYTES);
    if is_hashed { HASHED_BYTES.min(most) } else { most }
}

#[derive(Debug)]
pub(crate) struct PartWindow {
    slots: u32,
    /// Bits of a part's number.
    bits: u32,
    /// Where it has them: the keys of its groups.
    pub keys: Option<KeyWindow>,
    table: BlockTable,
    /// The first slot of the table of all groups that it is over, `i64`.
    first: Var,
    /// Whether nobody else adds to the groups that it is over.
    is_alone: Var,
}

impl PartWindow {
    /// Puts it over the groups of a part (`u32`), to which no other block adds if it `is_alone`.
    pub fn open(&self, cx: &mut Context<'_>, table: &dyn GroupTable, part: V, is_alone: V) {
        let first = table.part_start(cx, part, self.bits);
        cx.builder.assign(self.first, first);
        cx.builder.assign(self.is_alone, is_alone);
        // What cleared it must be done.
        cx.builder.barrier();
    }

    /// Adds contributions to the group in `slot` (`i64`): of the table of all, or below zero of a window that has keys. By `far` where it
    /// is outside of the window.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>], far: &AddFar<'_>) {
        let b = &mut *cx.builder;
        let place = match self.keys {
            Some(_) => b.not(slot),
            None => {
                let first = b.read(self.first);
                b.sub(slot, first)
            }
        };
        let (unsigned, slots) = (b.bitcast(place, Scalar::U64), b.u64(self.slots.into()));
        let inside = b.lt(unsigned, slots);
        cx.begin_if(inside);
        let impossible =
            |cx: &mut Context<'_>, _: (V, usize), _: V| cx.impossible("counts of few bytes in a window");
        let row = LocalRow { slot: place, is_here: None, values };
        self.table.add(cx, cells, row, &impossible);
        cx.begin_else();
        far(cx, slot, values);
        cx.end();
    }

    /// Adds what it holds to the table of all groups, one thread a group, and clears it.
    pub fn close(&self, cx: &mut Context<'_>, all: &AllGroups<'_>) -> Result<(), Unsupported> {
        cx.builder.barrier();
        let mut closed = Ok(());
        for_each(cx, self.slots, |cx, place| closed = self.close_group(cx, all, place));
        closed?;
        cx.builder.barrier();
        self.table.clear(cx);
        if let Some(keys) = &self.keys {
            keys.clear(cx);
        }
        Ok(())
    }

    /// The same of one place (`i64`).
    fn close_group(&self, cx: &mut Context<'_>, all: &AllGroups<'_>, place: V) -> Result<(), Unsupported> {
        if let Some(keys) = &self.keys {
            let (entry, free) = (keys.entry(cx, place), cx.builder.u64(0));
            let used = cx.builder.ne(entry, free);
            cx.begin_if(used);
            let totals = self.totals(cx, all.cells, place)?;
            let hashed =
                all.groups.hashed().ok_or_else(|| Unsupported::internal("a window of other groups"))?;
            hashed.at_entry(cx, entry, &mut |cx, slot| self.hand_over(cx, all, slot, &totals))?;
            cx.end();
            return Ok(());
        }
        let totals = self.totals(cx, all.cells, place)?;
        let used: Vec<V> = totals.iter().filter_map(|parts| is_used(cx, parts)).collect();
        let used = used.into_iter().reduce(|a, b| cx.builder.binary(BinaryOp::Or, a, b));
        let used = used.ok_or_else(|| Unsupported::internal("groups without cells"))?;
        cx.begin_if(used);
        let first = cx.builder.read(self.first);
        let slot = cx.builder.add(first, place);
        self.hand_over(cx, all, slot, &totals);
        cx.end();
        Ok(())
    }

    /// What a group's cells hold.
    fn totals(&self, cx: &mut Context<'_>, cells: &Cells, place: V) -> Result<Vec<Vec<V>>, Unsupported> {
        let total = |index| self.table.total(cx, cells, place, index);
        let totals = (0..cells.cells.len()).map(total).collect::<Option<_>>();
        totals.ok_or_else(|| Unsupported::internal("a window without a cell"))
    }

    /// Adds the totals of a group to its slot (`i64`): nothing is there where nobody else adds to it.
    fn hand_over(&self, cx: &mut Context<'_>, all: &AllGroups<'_>, slot: V, totals: &[Vec<V>]) {
        // Who adds a group's first row may have to count it.
        if all.table.count().is_some() && all.table.key_table().is_none() {
            return (all.far)(cx, slot, totals);
        }
        let is_alone = cx.builder.read(self.is_alone);
        cx.begin_if(is_alone);
        let base = all.table.words(cx, all.cells, slot);
        for (cell, parts) in all.cells.cells.iter().zip(totals) {
            let pointer = word_pointer(cx, base, cell.word);
            write_cell(cx, cell.op, pointer, parts);
        }
        cx.begin_else();
        (all.far)(cx, slot, totals);
        cx.end();
    }
}

/// The table of all groups, to which a window's are added.
pub(crate) struct AllGroups<'a> {
    pub cells: &'a Cells,
    pub table: &'a dyn GroupTable,
    pub groups: &'a dyn GroupEmitter,
    /// Adds contributions to a group there.
    pub far: &'a AddFar<'a>,
}
