//! What every table of groups does, wherever the groups are: one group without keys (`single`), direct-addressed (`direct`),
//! or found by hashing (`hashed`).

use std::fmt;

use kelpie_kir::builder::{V, Var};

use super::functions::Cells;
use super::hash::{KeyTable, KeyWord};
use super::key_window::KeyWindow;
use super::near::NearTable;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::shape::LaunchShape;
use crate::table::shared_keys::Found;

/// Where the groups are, planned.
pub trait GroupTable: fmt::Debug + fmt::Display + Send + Sync {
    /// The class of the slots.
    fn class(&self) -> usize;

    /// States to clear before each run.
    fn zeroed(&self) -> Vec<usize>;

    /// Classes that can be too small.
    fn grows(&self) -> Vec<usize> {
        Vec::new()
    }

    /// State that counts the groups, where one does.
    fn count(&self) -> Option<usize>;

    /// An upper bound of the groups.
    fn row_bound(&self) -> u64;

    /// Whether rows are added up by each thread or block before: other threads do not meet in a group.
    fn is_local(&self) -> bool;

    /// The keys' own hash table, where groups are found by one.
    fn key_table(&self) -> Option<&KeyTable> {
        None
    }

    /// The columns whose texts are looked at as keys, where lanes are to do it together ([`GroupEmitter::find_together`]).
    fn shared_texts(&self, _keys: &[Expr]) -> Option<Vec<usize>> {
        None
    }

    /// Whether a group is found by a word of its keys ([`KeyWord`](super::hash::KeyWord)): near copies may be too.
    fn has_words(&self) -> bool {
        false
    }

    /// Whether such a group's keys are compared with what the table points to.
    fn has_pointers(&self) -> bool {
        false
    }

    /// Whether keys are stored with a group that follow from its others: a row has to put it in.
    fn has_carried(&self) -> bool {
        false
    }

    /// Whether dead rows can be taken with their flag, without a branch.
    fn takes_flags(&self) -> bool;

    /// Of the current row: the highest `bits` bits, at least one, of where its group is in the table (`u32`); and the hash of its keys
    /// (`u64`), where they have one.
    fn part(&self, _cx: &mut Context<'_>, _keys: &[Expr], _bits: u32) -> Result<(V, Option<V>), Unsupported> {
        Err(Unsupported::internal("parts of a single group"))
    }

    /// The first slot (`i64`) of the groups of which `part` (`u32`) are those highest bits; behind the last slot where `part` is
    /// the number of parts. Slots from there on are those of the part's groups, but for a few.
    fn part_start(&self, cx: &mut Context<'_>, _part: V, _bits: u32) -> V {
        cx.impossible("parts of a single group");
        cx.builder.i64(0)
    }

    /// How many slots a part's groups have where parts have numbers of so many bits, if that does not depend on the rows.
    fn part_slots(&self, _bits: u32) -> Option<u64> {
        None
    }

    /// How many of the parts may have rows.
    fn parts_used(&self, bits: u32) -> u64 {
        1 << bits
    }

    /// Whether rows may be added as wide rows; or why not.
    fn takes_wide_rows(&self) -> Result<(), String> {
        Err("several rows at once are added to one group only".into())
    }

    /// Bytes of a block's memory that all of its threads work on, whatever their number.
    fn block_bytes(&self) -> u64 {
        0
    }

    /// Whether a block adds rows up near it, and adds what comes of that to the device's cells in the end.
    fn is_near(&self) -> bool {
        false
    }

    /// How many times it is brought all rows: each time it takes those of another slice of its groups.
    fn passes(&self) -> u32 {
        1
    }

    /// Whether rows can be added up in launches of a shape, in which no thread sees more than `thread_rows` rows, or what that
    /// lacks.
    fn admits(&self, _cells: &Cells, _shape: &LaunchShape, _thread_rows: u64) -> Result<(), String> {
        Ok(())
    }

    /// Emits what precedes the row loop. `thread_rows`: rows that one thread sees, at most.
    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        cells: &'s Cells,
        thread_rows: u64,
    ) -> Box<dyn GroupEmitter + 's>;

    /// Where the kernel leaves sums that another kernel reduces: their class and their state.
    fn partials(&self) -> Option<(usize, usize)> {
        None
    }

    /// The body of the kernel that reduces `rows` (`i64`) of those sums.
    fn reduce(&self, cx: &mut Context<'_>, _cells: &Cells, _rows: V) {
        cx.impossible("a reduction without sums of blocks");
    }

    /// Whether slot `slot` (`i64`) holds a group; `None`: every slot does.
    fn present(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> Option<V>;

    /// The first word of the cells in slot `slot`: `ptr<global, u64>`.
    fn words(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> V;

    /// The keys of the group in slot `slot`.
    fn keys(&self, cx: &mut Context<'_>, columns: &[ColumnInfo], slot: V) -> Vec<Lowered>;
}

/// The group of a row.
pub struct Located {
    /// Its slot, `i64`, where there are several. What it is says who gave it: it goes back to [`GroupEmitter::add`].
    pub slot: Option<V>,
    /// `bool`: the row is live; `None`: it is, or its slot is one that nobody looks at.
    pub active: Option<V>,
    /// The keys' values, where they were computed.
    pub keys: Option<Vec<Lowered>>,
}

/// What happens where a row's group is known.
pub type AtGroup<'n> = dyn FnMut(&mut Context<'_>, Located) -> Result<(), Unsupported> + 'n;

/// What happens where a group's slot (`i64`) in the table of all is known.
pub type AtSlot<'n> = dyn FnMut(&mut Context<'_>, V) + 'n;

/// Takes what was looked at ahead of a search, `u64`.
pub type See<'s> = dyn FnMut(&mut Context<'_>, V) + 's;

/// What is done for the word of each row's keys.
pub type Look<'l> = dyn FnMut(&mut Context<'_>, KeyWord) + 'l;

/// Calls a look for the word of each row's keys.
pub type EachWord<'e> = dyn FnMut(&mut Context<'_>, &mut Look<'_>) -> Result<(), Unsupported> + 'e;

/// A table of groups in one kernel.
pub trait GroupEmitter {
    /// Takes over near copies that are found by keys.
    fn take_near(&mut self, _near: NearTable) {}

    /// Looks for groups in a window that has their keys first.
    fn take_window(&mut self, _keys: KeyWindow) {}

    /// Adds rows without atomics while nobody else adds to their groups (`bool`).
    fn take_alone(&mut self, _alone: Var) {}

    /// Finds or makes the group of packed keys by their entry; `next` goes on with its slot in the table of all (`i64`).
    fn at_entry(&self, cx: &mut Context<'_>, _entry: V, _next: &mut AtSlot<'_>) -> Result<(), Unsupported> {
        cx.impossible("groups that are not found by a word of their keys");
        Ok(())
    }

    /// The word of keys, where groups are found by such.
    fn word(&self, _cx: &mut Context<'_>, _keys: &[Lowered]) -> Result<Option<KeyWord>, Unsupported> {
        Ok(None)
    }

    /// The word of keys that are not one word, by their hash (`u64`).
    fn word_of_hash(&self, _cx: &mut Context<'_>, _hash: V) -> Option<KeyWord> {
        None
    }

    /// Looks at what a search for the groups of rows will look at; for the second time (`again`), at what it found there. What was
    /// looked at goes to `see` (`u64`). `each` calls a look for the word of each row's keys.
    fn look_ahead(
        &self,
        _cx: &mut Context<'_>,
        _again: bool,
        _see: &mut See<'_>,
        _each: &mut EachWord<'_>,
    ) -> Result<(), Unsupported> {
        Ok(())
    }

    /// Finds or makes the group of the current row; `next` goes on there. `word`: the word of its keys, where it is known.
    fn locate(
        &self,
        cx: &mut Context<'_>,
        keys: (&[Expr], &[Expr], Option<KeyWord>),
        flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported>;

    /// Whether the lanes of a warp can find groups together.
    fn finds_together(&self) -> bool {
        false
    }

    /// Finds or makes the group of the keys of each lane's row, where there is one (`bool`), at uniform control flow of the warp. `mark`: the
    /// number of the first mark that lanes can come by.
    fn find_together(
        &self,
        _cx: &mut Context<'_>,
        _keys: (&[Lowered], V),
        _mark: u32,
    ) -> Result<Found, Unsupported> {
        Err(Unsupported::internal("groups that are not found by their keys"))
    }

    /// `next` goes on with the group that was found for the current row.
    fn locate_found(
        &self,
        _cx: &mut Context<'_>,
        _found: Found,
        _next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        Err(Unsupported::internal("groups that are not found by their keys"))
    }

    /// Adds a row's contributions to the group in `slot`.
    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]);

    /// What cell `index`, of one part, of the group in `slot` holds where this thread adds up; `None` where it cannot be
    /// looked at.
    fn current(&self, cx: &mut Context<'_>, slot: Option<V>, index: usize) -> Option<V>;

    /// Whether the table is known to be full, so that the rows that are left are not looked at (`bool`, the same for all threads
    /// of a warp).
    fn is_full(&self, _cx: &mut Context<'_>) -> Option<V> {
        None
    }

    /// Before so many rows of a thread of which each is added once at most ([`Emitter::begin_rows`](crate::operator::roles::Emitter)).
    fn begin_rows(&self, _cx: &mut Context<'_>, _rows: u32) {}

    /// After these rows.
    fn end_rows(&self, _cx: &mut Context<'_>) {}

    /// Before the rows of a pass (`i64`), where rows come several times ([`GroupTable::passes`]).
    fn begin_pass(&self, _cx: &mut Context<'_>, _pass: V) {}

    /// After the rows of a pass.
    fn end_pass(&self, _cx: &mut Context<'_>) {}

    /// After the row loop.
    fn end(&self, cx: &mut Context<'_>) -> Result<(), Unsupported>;
}
