//! Near copies of groups: sums of the groups that a block (a CPU: a worker) has met, in its own memory, which are merged into the
//! table of all groups at the end.
//!
//! A table of groups that does not fit near memory as a whole is the device's, where every row costs an atomic, and rows of one
//! group wait for each other: on a GPU a single address takes about a thousand million a second, a lock some thousand times
//! less. So a block keeps copies of some groups near: of those it meets first, which where keys are skewed are the heavy ones, and
//! where there are few groups are all of them (Karnagel et al., section 4: placement in shared memory; section 5: skew). A copy is
//! found by the group's slot, whatever the keys are, by a search of [`STEPS`] places; a row whose group has none goes to the table
//! of all as before. A thread that finds too few copies no longer looks.
//!
//! Rows that a warp or block has added up before ([`segments`](super::segments)) come here too.
//!
//! The copies of a hash table's groups can be found by their keys' entry instead, before anyone looks into the table of all: a row
//! whose group has a copy touches nothing that others write, and waits for one look-up less. So does a CPU's worker
//! ([`near_keys`](super::near_keys)), and a block may ([`near_block`](super::near_block)).

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope};

use super::cells::read_cell;
use super::functions::Cells;
use super::near_keys::KeyArrays;
use super::threads::{clear, for_each};
use super::{update_group, word_pointer};
use crate::MicroModel;
use crate::calibration::Limit;
use crate::choices::Choices;
use crate::context::{Context, Unsupported};
use crate::lower::hashing::GOLDEN;
use crate::shape::LaunchShape;
use crate::variant::axes::{NearGroups, NearSearch};
use crate::variant::estimate::{self, Rows};
use crate::variant::{Site, Variant};

/// Places that a copy may be at.
const STEPS: i32 = 4;
/// The same where cells are locked: a longer search costs less than to wait for the lock of a group that has no copy.
const LOCKED_STEPS: i32 = 64;
/// How the threads of a block find copies where both ways are possible, and why.
const BLOCK_SEARCH: (NearSearch, &str) =
    (NearSearch::Key, "a row whose group has a copy does not look at the table of all groups");
/// Rows from which on copies pay, at least: they are cleared and merged whatever comes.
pub(super) const LEAST_ROWS: u64 = 1 << 16;
/// Groups for each copy, at most, where it is known how many there are: each copy is merged at the end, which costs as much as a
/// row, and a block of a GPU may see few more rows than it has copies.
const GROUPS_A_COPY: u64 = 2;
/// Copies beside a window.
const BESIDE_WINDOW: NearGroups = NearGroups(256);
/// Most bytes of a SIMT block's copies: several blocks should fit a multiprocessor of an NVIDIA GPU.
const BLOCK_BYTES: u64 = 40 << 10;
/// The same where cells are locked: a group that has no copy has one lock on the device for all of its rows. On an H200 deviations in 1,009
/// groups, of which half have a copy in 40 kB, take 47 ms.
const LOCKED_BLOCK_BYTES: u64 = 112 << 10;
/// Rows of the input for each copy of a CPU's worker, at least: each is cleared and merged whatever comes.
const WORKER_ROWS_A_COPY: u64 = 64;
/// Copies of a CPU's worker where most groups have none: more would drive what else it needs out of the first-level cache.
const HEAVY: u64 = 1024;
/// A thread of a SIMT device looks for copies as long as its credit is not below zero. It begins with this, which is also the
/// most. There are many threads, so that each sees few rows.
const THREAD_CREDIT: i32 = 48;
/// The same of a CPU's worker.
pub(super) const WORKER_CREDIT: i32 = 1 << 12;
/// Credit for a row whose group has a copy; one that has none costs one.
pub(super) const GAIN: i32 = 16;
/// The same of a CPU's worker. What it loses by a search in vain is about what it gains by a copy: few workers wait for each other.
pub(super) const WORKER_GAIN: i32 = 1;

/// So many near copies, a power of two, and how a group's is found.
#[derive(Debug, Clone, Copy)]
pub(super) struct NearCopies {
    copies: u32,
    search: NearSearch,
    /// Words of a copy before its cells.
    head: u32,
}

/// What is known of an aggregation that may keep copies.
pub(super) struct Known {
    /// Rows at most.
    pub rows: u64,
    /// How many groups there are about, where all keys are columns, whose values are known.
    pub groups: Option<u64>,
    /// Groups are found by a word of their keys.
    pub has_words: bool,
    /// Keys are compared with what a slot points to.
    pub are_stored: bool,
    /// Words of a block's memory that tell a group's keys, where some do.
    pub key_words: Option<u32>,
    /// Keys are stored with a group that follow from its others.
    pub has_carried: bool,
    /// Nothing is added up: all that counts is which groups there are.
    pub is_set: bool,
    /// So many values a column of the keys has, about, where its sample shows many.
    pub at_least: Option<u64>,
    /// Rows come in parts, whose groups are one worker's.
    pub is_alone: bool,
    /// Rows that follow each other come to slots near each other.
    pub follows: bool,
    /// Bytes of a window over a part's groups, where there is one: copies are for rows beyond it.
    pub window: Option<u64>,
    /// Threads of a GPU that come to a group at once wait for each other.
    pub has_locks: bool,
}

impl Known {
    /// Whether groups are found by a word of their keys.
    fn lacks_word(&self) -> Result<(), &'static str> {
        if self.has_words { Ok(()) } else { Err("groups have no word of their keys") }
    }

    /// Whether all that is known of a group's keys can be in a block's memory.
    fn lacks_own_keys(&self) -> Result<(), &'static str> {
        match () {
            () if self.window.is_some() => Err("rows beyond their part have looked for their slot"),
            () if self.has_carried => {
                Err("keys that follow from others are stored in the table of all groups")
            }
            () if self.has_words && self.key_words.is_none() => {
                Err("keys that are no words are compared in the table of all groups")
            }
            () => self.lacks_word(),
        }
    }
}

impl NearCopies {
    /// The most copies that there may be.
    pub(super) const MOST: u64 = 1 << 14;

    /// Whether all groups are thought to have a copy, where there are so many about.
    pub fn holds(self, groups: Option<u64>) -> bool {
        groups.is_some_and(|groups| groups <= self.copies.into())
    }

    /// Whether a block keeps copies of groups, how many, and how they are found.
    pub fn plan(
        cells: &Cells,
        known: &Known,
        site: Site<'_>,
        (shape, choices): (&LaunchShape, &Choices<'_>),
    ) -> Result<Option<NearCopies>, Unsupported> {
        // A worker keeps the entry of a group's keys and its slot.
        let head = if known.has_words && shape.is_serial() { 2 } else { 1 };
        let bytes_of = |copies: u64, head: u32| copies * u64::from(head + cells.words()) * 8;
        let bytes = |copies: u64| bytes_of(copies, head);
        let most = match shape.is_serial() {
            true => u64::from(shape.table_bytes()),
            false => {
                let left = u64::from(shape.table_bytes()).saturating_sub(known.window.unwrap_or(0));
                left.min(u64::from(shape.shared_bytes / 2))
            }
        };
        let lacks = |NearGroups(copies): NearGroups| match () {
            () if copies == 0 => Ok(()),
            () if !cells.cells.iter().all(|cell| cell.op.is_plain()) => {
                Err("texts are compared in the table of all groups".to_string())
            }
            () if bytes(copies) > most => Err(format!("{} bytes do not fit a block's {most}", bytes(copies))),
            () => Ok(()),
        };
        let all = NearGroups::ALL.iter().copied();
        let fitting = all.filter(|copies| copies.0 > 0 && lacks(*copies).is_ok());
        let rule = if choices.micro_model == MicroModel::Resolution {
            let has_locks = cells.have_locks();
            let block_bytes = if has_locks { LOCKED_BLOCK_BYTES } else { BLOCK_BYTES };
            NearCopies::rule(fitting.collect(), (&bytes, block_bytes), known, (shape, choices))
        } else {
            (NearGroups(0), Limit::fixed(0), "the micro model has an atomic a row")
        };
        let (copies, limit, reason) = rule;
        let groups = known.at_least.or(known.groups.filter(|groups| *groups <= known.rows));
        let mut text = estimate::rows_to_groups(Rows::Most(known.rows), groups);
        if copies.0 > 0 {
            text.push_str(&format!(", {} copies in {}", copies.0, estimate::bytes(bytes(copies.0))));
        }
        let NearGroups(copies) = site.choose_by(((copies, &limit.reason(reason)), Some(text)), lacks)?;
        let copies = u32::try_from(copies).map_err(Unsupported::internal)?;
        if copies == 0 {
            return Ok(None);
        }
        let (is_serial, words) = (shape.is_serial(), known.key_words.unwrap_or(0));
        let room = |head| {
            (bytes_of(copies.into(), head) <= most).then_some(()).ok_or("a block's memory has no room")
        };
        let key_lacks = if is_serial { known.lacks_word() } else { known.lacks_own_keys().and(room(words)) };
        let search = match key_lacks {
            Ok(()) if is_serial => (NearSearch::Key, "the table of all groups is not looked at"),
            Ok(()) => BLOCK_SEARCH,
            Err(lacks) => (NearSearch::Slot, lacks),
        };
        let search = site.choose(search, |value| match value {
            NearSearch::Slot => Ok(()),
            NearSearch::Key => key_lacks.map_err(String::from),
        })?;
        let head = match search {
            NearSearch::Slot => 1,
            NearSearch::Key if is_serial => 0,
            NearSearch::Key => words,
        };
        Ok(Some(NearCopies { copies, search, head }))
    }

    /// How many copies there should be, of the numbers that fit; how many bytes they may have, where that decides; and why.
    fn rule(
        fitting: Vec<NearGroups>,
        (bytes, block_bytes): (&dyn Fn(u64) -> u64, u64),
        known: &Known,
        (shape, choices): (&LaunchShape, &Choices<'_>),
    ) -> (NearGroups, Limit, &'static str) {
        let (off, any) = (NearGroups(0), Limit::fixed(u64::MAX));
        if known.rows < LEAST_ROWS {
            return (off, any, "few rows");
        }
        if known.is_alone {
            return (off, any, "the groups of a part are a worker's own");
        }
        if known.follows {
            return (off, any, "groups that a worker meets one after the other lie near each other");
        }
        if known.window.is_some() {
            return match fitting.contains(&BESIDE_WINDOW) {
                true => (BESIDE_WINDOW, any, "where many rows are beyond their part, they are of few groups"),
                false => (off, any, "a block's memory has no room"),
            };
        }
        let is_serial = shape.is_serial();
        // A worker's memory is what stays in the second-level cache; the columns' rows go through it too.
        let limit = match is_serial {
            true => choices.calibration.worker_copies(shape.table_bytes().into()),
            false => Limit::fixed(block_bytes),
        };
        // What copies are not taken is not touched. Half of a power of two to the next one lies in between on average.
        let groups = known.at_least.map_or(u64::MAX, |groups| groups / 4 * 3);
        let suits = |copies: &NearGroups| {
            bytes(copies.0.min(groups)) <= limit.value
                && (!is_serial || copies.0 * WORKER_ROWS_A_COPY <= known.rows)
        };
        let most = fitting.iter().copied().filter(suits).max_by_key(|copies| copies.0);
        let many = known.groups.max(known.at_least.filter(|_| !is_serial));
        let is_vain = |copies: NearGroups| many.is_some_and(|groups| groups > copies.0 * GROUPS_A_COPY);
        match most {
            Some(copies) if is_serial => {
                let (copies, reason) = NearCopies::of_worker(copies, known, is_vain(copies));
                (copies, limit, reason)
            }
            // One frequent group makes all of its rows wait, for microseconds each: copies cost far less where there is none.
            Some(copies) if is_vain(copies) && known.has_locks => {
                (copies, limit, "rows of a frequent group would wait for each other in the device's memory")
            }
            Some(copies) if is_vain(copies) => (off, limit, "a block meets few of so many groups twice"),
            Some(copies) => (copies, limit, "groups that a block meets often are added up near"),
            None => (off, limit, "a block's memory has no room"),
        }
    }

    /// How many copies a CPU's worker should have, where there is room for so many. `is_vain`: for groups of a domain that all has so many.
    fn of_worker(copies: NearGroups, known: &Known, is_vain: bool) -> (NearGroups, &'static str) {
        let few = NearGroups(HEAVY.min(copies.0));
        let are_many = known.at_least.is_some_and(|groups| groups > copies.0 * GROUPS_A_COPY);
        match () {
            // Workers do not wait for each other where they only look.
            () if known.is_set => (
                NearGroups(0),
                "a group that is there is found as soon in the table of all as in a copy of it",
            ),
            // A search for a copy that is not there is one more miss of a cache, and so is the text of one that is.
            () if known.are_stored => (few, "of keys that are compared in memory the heavy ones alone gain"),
            () if known.has_words && are_many => (few, "of so many groups the heavy ones alone gain"),
            // A domain that a table is addressed by is mostly taken; of hashed keys it says little how many groups there are.
            () if !known.has_words && is_vain => {
                (few, "among more groups than a worker has room for there may be heavy ones")
            }
            // Among the groups of a worker there may be heavy ones: it sees many rows, and no longer looks where there are none.
            () => (copies, "groups that a worker meets often are its own"),
        }
    }

    /// Clears them, before the row loop.
    pub fn begin(self, cx: &mut Context<'_>, cells: &Cells) -> NearTable {
        let is_by_key = self.search == NearSearch::Key;
        let keys = (is_by_key && cx.shape.is_serial()).then(|| KeyArrays::begin(cx, self.copies));
        let words = (self.copies * (self.head + cells.words())).max(1);
        let table = cx.builder.shared("near_groups", Pointee::Scalar(Scalar::U64), words);
        clear(cx, table, Scalar::U64, words);
        cx.builder.barrier();
        let most = if cx.shape.is_serial() { WORKER_CREDIT } else { THREAD_CREDIT };
        // A worker's may rise with every row.
        let credit = if keys.is_some() { cx.builder.i64(most.into()) } else { cx.builder.i32(most) };
        let has_locks = cells.have_locks();
        NearTable {
            copies: self.copies,
            steps: if has_locks && !cx.shape.is_serial() { LOCKED_STEPS } else { STEPS },
            head: self.head,
            table,
            is_by_key,
            keys,
            credit: cx.builder.var_of("credit", credit),
            most,
        }
    }
}

/// The copies in one kernel.
#[derive(Debug)]
pub(super) struct NearTable {
    pub(super) copies: u32,
    /// Places that a copy may be at.
    pub(super) steps: i32,
    /// Words of a copy before its cells, of which the first is 0 where the place is free: the group's slot + 1, or the words of its keys
    /// where a block finds it by these. None where a worker does.
    pub(super) head: u32,
    /// `ptr<shared, u64>`.
    table: V,
    /// Copies are found by keys, by whoever finds the groups.
    pub(super) is_by_key: bool,
    /// Where a worker finds copies by keys: what is known of these.
    pub(super) keys: Option<KeyArrays>,
    pub(super) credit: Var,
    /// The most credit.
    most: i32,
}

/// Where the search for bits (`u64`) among so many places, a power of two, begins (`i64`).
pub(super) fn first_place(cx: &mut Context<'_>, bits: V, places: u32) -> V {
    let b = &mut *cx.builder;
    let spread = b.u64(GOLDEN);
    let hash = b.mul(bits, spread);
    let shift = b.u64(u64::from(u64::BITS - places.ilog2()));
    let first = b.binary(BinaryOp::Shr, hash, shift);
    b.bitcast(first, Scalar::I64)
}

/// Looks for a tag, which is not 0, from the place in `place` (`i64`) on, at so many of all `places`, a power of two: a free one takes the
/// tag. `place` becomes where it was found, if it was (`found`, `bool`). `entry`: the address of a place's tag, 0 where it is free.
pub(super) fn search(
    cx: &mut Context<'_>,
    (places, most): (u32, i32),
    tag: V,
    (place, found): (Var, Var),
    entry: &dyn Fn(&mut Context<'_>, V) -> V,
) {
    let zero = cx.builder.i32(0);
    let steps = cx.builder.var_of("steps", zero);
    cx.begin_loop();
    let current = cx.builder.read(place);
    let entry = entry(cx, current);
    let seen = claim(cx, (entry, tag), None);
    let b = &mut *cx.builder;
    let same = b.eq(seen, tag);
    b.assign(found, same);
    b.break_if(same);
    let (steps_now, one) = (b.read(steps), b.i32(1));
    let next = b.add(steps_now, one);
    b.assign(steps, next);
    let most = b.i32(most);
    let done = b.ge(next, most);
    b.break_if(done);
    let (one, mask) = (b.i64(1), b.i64(i64::from(places) - 1));
    let following = b.add(current, one);
    let following = b.and(following, mask);
    b.assign(place, following);
    cx.end();
}

/// What an entry is, once it was claimed for a tag where it was free. `won`: what the one thread does that has claimed it.
pub(super) fn claim(cx: &mut Context<'_>, (entry, tag): (V, V), won: Option<&dyn Fn(&mut Context<'_>)>) -> V {
    let is_own = cx.shape.is_serial();
    let b = &mut *cx.builder;
    let current = if is_own { b.load(entry) } else { b.atomic_load(entry, Scope::Block) };
    let seen = b.var_of("seen", current);
    let zero = b.u64(0);
    let free = b.eq(current, zero);
    cx.begin_if(free);
    let b = &mut *cx.builder;
    if is_own {
        b.store(entry, tag);
        b.assign(seen, tag);
    } else {
        let old = b.atomic(AtomicOp::CompareExchange(zero), entry, tag, Scope::Block);
        let has_won = b.eq(old, zero);
        let now = b.select(has_won, tag, old);
        b.assign(seen, now);
        if let Some(won) = won {
            cx.begin_if(has_won);
            won(cx);
            cx.end();
        }
    }
    cx.end();
    cx.builder.read(seen)
}

/// A copy that a group has.
pub(super) struct TakenCopy {
    /// `i64`.
    copy: V,
    /// Where it begins: `ptr<shared, u64>`.
    pub(super) place: V,
    /// Its first word (`u64`), or the entry of its keys.
    first: V,
}

/// Adds contributions to the group in a slot of the table of all.
pub(super) type AddFar<'f> = dyn Fn(&mut Context<'_>, V, &[Vec<V>]) + 'f;

impl NearTable {
    /// Adds contributions to the copy of the group in `slot` (`i64`), or where there is none and no place for one, by `far`.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>], far: &AddFar<'_>) {
        let zero = cx.builder.i64(0);
        let copy = cx.builder.var_of("copy", zero);
        let no = cx.builder.bool(false);
        let found = cx.builder.var_of("is_near", no);
        let b = &mut *cx.builder;
        let (credit, none) = (b.read(self.credit), b.i32(0));
        let looks = b.ge(credit, none);
        cx.begin_if(looks);
        self.find(cx, cells, slot, (copy, found));
        cx.end();
        let is_near = cx.builder.read(found);
        cx.begin_if(is_near);
        let copy = cx.builder.read(copy);
        self.add_to_copy(cx, cells, copy, values);
        let gain = if cx.shape.is_serial() { WORKER_GAIN } else { GAIN };
        self.settle(cx, gain);
        cx.begin_else();
        far(cx, slot, values);
        self.settle(cx, -1);
        cx.end();
    }

    /// Adds contributions to a copy (`i64`).
    pub fn add_to_copy(&self, cx: &mut Context<'_>, cells: &Cells, copy: V, values: &[Vec<V>]) {
        let entry = self.entry(cx, cells, copy);
        let base = word_pointer(cx, entry, self.head);
        update_group(cx, cells, base, values, Scope::Block);
    }

    /// Looks for the copy of a group, and makes it where there is a place.
    fn find(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, (copy, found): (Var, Var)) {
        let b = &mut *cx.builder;
        let bits = b.bitcast(slot, Scalar::U64);
        let one = b.u64(1);
        let tag = b.add(bits, one);
        let start = first_place(cx, bits, self.copies);
        cx.builder.assign(copy, start);
        search(cx, (self.copies, self.steps), tag, (copy, found), &|cx, place| self.entry(cx, cells, place));
    }

    /// The thread's credit after a row.
    fn settle(&self, cx: &mut Context<'_>, change: i32) {
        let change = cx.builder.i32(change);
        self.change_credit(cx, change);
    }

    /// The same of a SIMT block's thread, or where copies are not found by keys. `change`: `i32`.
    pub(super) fn change_credit(&self, cx: &mut Context<'_>, change: V) {
        let b = &mut *cx.builder;
        let credit = b.read(self.credit);
        let (least, most) = (b.i32(-1), b.i32(self.most));
        let credit = b.add(credit, change);
        let credit = b.binary(BinaryOp::Max, credit, least);
        let credit = b.binary(BinaryOp::Min, credit, most);
        b.assign(self.credit, credit);
    }

    /// The first word of a copy (`i64`).
    pub(super) fn entry(&self, cx: &mut Context<'_>, cells: &Cells, copy: V) -> V {
        let stride = cx.builder.i64(i64::from(self.head + cells.words()));
        let index = cx.builder.mul(copy, stride);
        cx.builder.offset(self.table, index)
    }

    /// Merges the copies into the table of all groups by `far`, after the row loop: one thread a copy.
    pub fn end(&self, cx: &mut Context<'_>, cells: &Cells, far: &AddFar<'_>) {
        self.each(cx, cells, |cx, taken, values| {
            let slot = match &self.keys {
                Some(keys) => keys.slot(cx, taken.copy),
                None => {
                    let one = cx.builder.u64(1);
                    let slot = cx.builder.sub(taken.first, one);
                    cx.builder.bitcast(slot, Scalar::I64)
                }
            };
            far(cx, slot, values);
        });
    }

    /// Takes each copy that there is with what was added up in it, after the row loop: one thread a copy.
    pub(super) fn each(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        take: impl FnOnce(&mut Context<'_>, &TakenCopy, &[Vec<V>]),
    ) {
        cx.builder.barrier();
        for_each(cx, self.copies, |cx, copy| {
            let entry = self.entry(cx, cells, copy);
            let first = match &self.keys {
                Some(keys) => keys.entry(cx, copy),
                None => cx.builder.load(entry),
            };
            let zero = cx.builder.u64(0);
            let taken = cx.builder.ne(first, zero);
            cx.begin_if(taken);
            let base = word_pointer(cx, entry, self.head);
            let values: Vec<Vec<V>> = cells
                .cells
                .iter()
                .map(|cell| {
                    let pointer = word_pointer(cx, base, cell.word);
                    read_cell(cx, cell.op, pointer)
                })
                .collect();
            take(cx, &TakenCopy { copy, place: entry, first }, &values);
            cx.end();
        });
    }
}
