//! What every table of groups does, wherever the groups are: one group without keys (`single`), direct-addressed (`direct`),
//! or found by hashing (`hashed`).

use std::fmt;

use kelpie_kir::Scope;
use kelpie_kir::builder::{V, Var};

use super::hashed::HashEmitter;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::aggregate::functions::Cells;
use crate::operator::aggregate::keys::{KeyTable, KeyWord, RowKeys, TableFacts};
use crate::operator::aggregate::local::{KeyWindow, PreaggregationTable};
use crate::shape::LaunchShape;

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
    fn count(&self) -> Option<usize> {
        None
    }

    /// An upper bound of the groups.
    fn row_bound(&self) -> u64;

    /// Whether rows are added up by each thread or block before: other threads do not meet in a group.
    fn is_local(&self) -> bool {
        false
    }

    /// The keys' own hash table, where groups are found by one.
    fn key_table(&self) -> Option<&KeyTable> {
        None
    }

    /// What choices that are made after that of the table go by.
    fn facts(&self) -> TableFacts {
        let keys = self.key_table();
        TableFacts {
            is_local: self.is_local(),
            is_hashed: keys.is_some(),
            compares_stored: keys.is_some_and(|keys| !keys.is_packed()),
            has_dependent: keys.is_some_and(KeyTable::has_dependent),
            words_in_block: keys.and_then(KeyTable::words_in_block),
        }
    }

    /// Whether dead rows can be taken with their flag, without a branch.
    fn takes_flags(&self) -> bool {
        false
    }

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

    /// How many times it is brought all rows: each time it takes those of another slice of its groups.
    fn passes(&self) -> u32 {
        1
    }

    /// Why rows cannot be added up in launches of a shape, in which no thread sees more than `thread_rows` rows, if they cannot.
    fn fits(&self, _cells: &Cells, _shape: &LaunchShape, _thread_rows: u64) -> Result<(), String> {
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

pub trait GroupEmitter {
    /// Takes over near copies that are found by keys.
    fn take_near(&mut self, _near: PreaggregationTable) {}

    /// Looks for groups in a window that has their keys first.
    fn take_window(&mut self, _keys: KeyWindow) {}

    /// Adds rows without atomics while nobody else adds to their groups (`bool`).
    fn take_alone(&mut self, _alone: Var) {}

    /// The groups that are found by hashing, where they are.
    fn hashed(&self) -> Option<&HashEmitter<'_>> {
        None
    }

    /// Finds or makes the group of the current row; `next` goes on there. `word`: the word of its keys, where it is known.
    fn locate(
        &self,
        cx: &mut Context<'_>,
        keys: &RowKeys,
        word: Option<KeyWord>,
        flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported>;

    /// Adds a row's contributions to the group in `slot`.
    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]);

    /// What cell `index`, of one part, of the group in `slot` holds where this thread adds up; `None` where it cannot be
    /// looked at.
    fn current(&self, cx: &mut Context<'_>, slot: Option<V>, index: usize) -> Option<V>;

    /// Before so many rows of a thread of which each is added once at most ([`Emitter::begin_rows`](crate::operator::roles::Emitter)).
    fn begin_rows(&self, _cx: &mut Context<'_>, _rows: u32) {}

    /// After these rows.
    fn end_rows(&self, _cx: &mut Context<'_>) {}

    /// Before the rows of a pass (`i64`), where rows come several times ([`GroupTable::passes`]).
    fn begin_pass(&self, _cx: &mut Context<'_>, _pass: V) {}

    /// After the rows of a pass.
    fn end_pass(&self, _cx: &mut Context<'_>) {}

    /// After the row loop.
    fn end(&self, _cx: &mut Context<'_>) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// Emits an addition to a group in the device's table: without atomics where and while a worker is `alone` with it (`bool`).
pub(super) fn add_alone(cx: &mut Context<'_>, alone: Option<Var>, add: impl Fn(&mut Context<'_>, Scope)) {
    let Some(alone) = alone else { return add(cx, Scope::Device) };
    let is_alone = cx.builder.read(alone);
    cx.begin_if(is_alone);
    add(cx, Scope::Block);
    cx.begin_else();
    add(cx, Scope::Device);
    cx.end();
}
