//! The roles that operators have in a pipeline: a source, steps, and a sink.
//!
//! What plays a role is a *plan*: it is made once, never changes, and can emit any number of kernels, also side by side.
//! What only the emission of one kernel needs (registers, shared memory, places in the code) is in an [`Emitter`], which is
//! made when the kernel begins and thrown away with it.
//!
//! Code is emitted in continuations (produce/consume, Neumann 2011): a step emits what it does to a row and calls `next` at
//! the place in the code where a row goes on; what it has opened (a branch, a loop over matches) it closes when `next` has
//! returned. So a step may let no, one or several rows go on, and can act once more when the row has gone through everything
//! behind it.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;

use super::Flow;
use super::key_texts::KeySearch;
use super::sort::BatchBound;
pub(crate) use super::step_forms::{BatchLookUps, BegunSearch, Expansion, RuntimeFilter};
use crate::context::{Context, RawTexts, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::program::{Counting, HostAction, RowCount, SketchStates};
use crate::shape::LaunchShape;
use crate::table::places::{Dense, DenseTarget};
use crate::table::shared_keys::Found;
use crate::variant::axes::WritePlaces;

/// What follows in a kernel: emits the rest of a row's way.
pub(crate) type Next<'n> = dyn FnMut(&mut Context<'_>, Flow) -> Result<(), Unsupported> + 'n;

/// Where the rows of a pipeline come from.
pub(crate) trait Source: fmt::Debug + fmt::Display + Send + Sync {
    /// How many rows, or places for rows, there are.
    fn rows(&self) -> RowCount;

    /// What is known of its columns.
    fn columns(&self) -> Vec<ColumnInfo>;

    /// The state (one `u64`) that has counted its rows when its pipeline begins, where there is one.
    fn counted(&self) -> Option<usize> {
        match self.rows() {
            RowCount::Counted(count) => Some(count),
            RowCount::Scan(_) | RowCount::Class(_) => None,
        }
    }

    /// Whether there is a row at every place.
    fn has_every_row(&self) -> bool {
        false
    }

    /// Whether what a row makes may be computed at places without a row too.
    fn is_speculative(&self) -> bool {
        false
    }

    /// Whether it is a table, whose column an expression over its columns may be pruned by.
    fn is_scan(&self) -> bool {
        false
    }

    /// A column's texts, where it is a table's and they are stored one behind the other, each row with its own.
    fn raw_texts(&self, _column: usize) -> Option<RawTexts> {
        None
    }

    /// Whether it is what the pipeline before it materialised.
    fn is_materialized(&self) -> bool {
        false
    }

    /// Whether there is a row at place `row` (`i64`), as a `bool`; `None`: at every place.
    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V>;

    /// Makes the row at place `row` (`i64`) the current one.
    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported>;

    /// Bytes of a row of which several can be loaded at once ([`Source::prefetch`]); 0 where none can.
    fn prefetched_bytes(&self) -> u32 {
        0
    }

    /// Loads what can be of the rows from place `row` (`i64`) on, as many as a wide row has, before they are bound one by one.
    fn prefetch(&self, _cx: &mut Context<'_>, _row: V) {}

    /// Adds the states that hold its `columns`, and those that decide which rows are live, to `states`.
    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>);

    /// Its rows in pieces of parts, where blocks of a GPU take these one after the other.
    fn parts(&self) -> Option<&dyn Parts> {
        None
    }

    /// What its sums are called that can be beyond their type, by the number that they are reported with.
    fn sums(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Rows that lie in parts, which a block can take one after the other.
pub(crate) trait Parts {
    /// Into what pieces the rows of this launch fall.
    fn pieces(&self, cx: &mut Context<'_>) -> Pieces;

    /// The piece with a number (`u32`, the same in the block). A row is at each of its places.
    fn piece(&self, cx: &mut Context<'_>, pieces: &Pieces, number: V) -> Result<Piece, Unsupported>;
}

/// The pieces of a launch: of each part so many, then those of rows that these leave. All of it is the same in the grid.
pub(crate) struct Pieces {
    /// How many there are, `u32`.
    pub count: V,
    /// Pieces of a part, `u32`.
    pub shares: V,
    /// Pieces of the rows of parts, `u32`: those of one after those of another.
    pub of_parts: V,
    /// Pieces of the others, `u32`.
    pub of_others: V,
}

/// Rows that a block takes together.
pub(crate) struct Piece {
    /// Their part, `u32`; the number of parts where they may be of any.
    pub part: V,
    /// Whether no other piece has rows of the part, `bool`.
    pub is_alone: V,
    /// Whether its rows are of a part that has more of them than its pieces take, or are among those more; `bool`.
    pub is_crowded: V,
    /// The first place, `i64`.
    pub first: V,
    /// The end of the places, `i64`.
    pub end: V,
}

/// What happens to rows between the source and the sink.
pub(crate) trait Step: fmt::Debug + fmt::Display + Send + Sync {
    /// Emits the step. `speculative`: what it computes may be computed for rows that are not live.
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported>;

    /// What is known of the columns behind it, where it changes them.
    fn columns(&self, below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>>;

    /// The column before it that a column behind it is, where it is one unchanged.
    fn below(&self, column: usize) -> Option<usize>;

    /// Whether it also delivers, with NULLs, rows of its build side that no row met: to leave out rows before it makes more of them.
    fn keeps_unmatched(&self) -> bool {
        false
    }

    /// The columns before it that are read where those behind it in `columns` are; adds the states that it reads itself.
    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) -> BTreeSet<usize>;

    /// The condition, where it does nothing but keep the rows of which this is true.
    fn condition(&self) -> Option<&Expr> {
        None
    }

    /// The columns before it whose texts it finds in a hash table as keys, where lanes are to look at these together.
    fn shared_texts(&self) -> Option<Vec<usize>> {
        None
    }

    /// What finds the keys then.
    fn key_search(&self) -> Option<&dyn KeySearch> {
        None
    }

    /// As [`Step::consume`], where the row's keys have been looked for.
    fn consume_found(&self, _cx: &mut Context<'_>, _: Found, _: &mut Next<'_>) -> Result<(), Unsupported> {
        Err(Unsupported::internal("keys of a step that has none"))
    }

    /// The columns behind it, where it does nothing but compute them.
    fn projection(&self) -> Option<&[Expr]> {
        None
    }

    /// Whether it branches or loops whatever the flow is: threads are not together behind it.
    fn diverges(&self) -> bool {
        false
    }

    /// Whether it may drop a row.
    fn drops(&self) -> bool {
        self.condition().is_some()
    }

    /// Whether it may make several rows of one.
    fn expands(&self) -> bool {
        false
    }

    /// Its look-ups of a batch of rows of a CPU's worker, where it looks rows up.
    fn batch_look_ups(&self) -> Option<&dyn BatchLookUps> {
        None
    }

    /// Its form for many rows one after the other, where it is no more than a test of a column of the scan.
    fn runtime_filter(&self) -> Option<&dyn RuntimeFilter> {
        None
    }

    /// Its form in which other lanes take the rows that it makes of one, where it has one; or why not.
    fn expansion(&self) -> Result<&dyn Expansion, String> {
        Err("it makes one row of one".into())
    }
}

/// Where the rows of a pipeline go.
pub(crate) trait Sink: fmt::Debug + fmt::Display + Send + Sync {
    /// What the engine has to do for it.
    fn needs(&self) -> Needs;

    /// The columns that it reads, where later pipelines read `states`; adds the states that it reads itself.
    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize>;

    /// The array that it writes densely, where it does only that: its places may be counted before.
    fn target(&self) -> Option<DenseTarget> {
        None
    }

    /// The class of the arrays in which each row that comes takes a place, and whether rows may be left out.
    fn takes_places(&self) -> Option<(usize, bool)> {
        self.target().map(|target| (target.class, target.limit.is_some()))
    }

    /// Whether the rows that a worker has seen tell it which later ones are in vain: then it should see some of everywhere first.
    fn learns_from_rows(&self) -> bool {
        false
    }

    /// What writes its rows from a selection vector, where that is possible.
    fn staged(&self) -> Option<&dyn Dense> {
        None
    }

    /// Whether rows may come to it with a flag, not by branches. Asked only of a sink that does more than to write densely,
    /// with whether an expression over the row may be computed for rows that are not live.
    fn takes_flags(&self, _is_speculative: &dyn Fn(&Expr) -> bool) -> bool {
        false
    }

    /// Whether a row costs it more than to add to a place that is known, or to write: warps should come with many.
    fn is_costly(&self) -> bool {
        false
    }

    /// Whether rows may come to it as wide rows, with a mask; or why not.
    fn takes_wide_rows(&self) -> Result<(), String> {
        Err("only an aggregation without keys takes several rows at once".into())
    }

    /// Whether what it makes has addresses of text in it.
    fn keeps_text(&self) -> bool {
        true
    }

    /// How many rows or groups are thought to be made of so many rows; `None` where nothing is known of that.
    fn estimated_rows(&self, rows: u64) -> Option<u64> {
        Some(rows)
    }

    /// The rows that it works on, where these are not those of the source.
    fn own_rows(&self) -> Option<RowCount> {
        None
    }

    /// Whether rows of which several were loaded at once may come to it one by one, where they come with a flag.
    fn takes_prefetched(&self) -> bool {
        false
    }

    /// Whether the threads of a block wait for each other wherever one has had its rows.
    fn waits_in_blocks(&self) -> bool {
        false
    }

    /// Whether blocks, once they have no more rows, change the same few places of the device's memory under locks.
    fn waits_at_the_end(&self) -> bool {
        false
    }

    /// Bytes of a block's memory that all of its threads work on, whatever their number.
    fn block_bytes(&self) -> u64 {
        0
    }

    /// Rows that a thread should work on in one turn of the row loop, where that is not what the device's threads do.
    fn thread_rows(&self) -> Option<u64> {
        None
    }

    /// How many times it is brought all rows: it takes others of them each time.
    fn passes(&self) -> u32 {
        1
    }

    /// Whether it can be emitted for launches of a shape, in which no thread brings it more than `thread_rows` rows; or why not.
    fn fits(&self, _shape: &LaunchShape, _thread_rows: u64) -> Result<(), String> {
        Ok(())
    }

    /// The columns whose texts it finds in a hash table as keys, where lanes are to look at these together, and the sink's emitter may
    /// have what finds them ([`Emitter::key_search`]).
    fn shared_texts(&self) -> Option<Vec<usize>> {
        None
    }

    /// What estimates the sizes of its hash tables before any row comes to it, where something does.
    fn sketch(&self) -> Option<&dyn Sketch> {
        None
    }

    /// Emits a kernel that has no loop over the source's rows; whether this is one. `rows`: how many there are, `i64`.
    fn emit_alone(&self, _cx: &mut Context<'_>, _rows: V) -> Result<bool, Unsupported> {
        Ok(false)
    }

    /// Emits what precedes the loop over the rows, at uniform control flow.
    fn begin<'s>(&'s self, cx: &mut Context<'_>, job: &Job<'s>)
    -> Result<Box<dyn Emitter + 's>, Unsupported>;
}

/// What estimates the sizes of a sink's hash tables by some of the rows that come to it.
pub(crate) trait Sketch {
    /// Takes those rows.
    fn sink(&self) -> &dyn Sink;

    /// What the engine has to know.
    fn states(&self) -> &SketchStates;
}

/// A sink in one kernel. The methods are called in the order in which the code stands.
pub(crate) trait Emitter {
    /// Rows of a thread that come to [`Emitter::row`] one after the other before [`Emitter::end_round`].
    fn rows_at_once(&self) -> i64 {
        1
    }

    /// `bool`: no more rows are wanted; `None`: all are. The same in every lane of a warp.
    fn is_done(&self, _cx: &mut Context<'_>) -> Option<V> {
        None
    }

    /// What the rows of a batch must not all be beyond, by the rows that have come so far. `below`: where a column of the rows that come is
    /// in the source.
    fn batch_bound(&self, _below: &dyn Fn(usize) -> Option<usize>) -> Option<BatchBound> {
        None
    }

    /// Before the rows of pass `pass` (`i64`), at control flow that is uniform in the block, where rows come several times
    /// ([`Sink::passes`]).
    fn begin_pass(&mut self, _cx: &mut Context<'_>, _pass: V) {}

    /// After the rows of a pass, likewise.
    fn end_pass(&mut self, _cx: &mut Context<'_>) {}

    /// Before the rows of a piece, at control flow that is uniform in the block.
    fn begin_part(&mut self, _cx: &mut Context<'_>, _piece: &Piece) {}

    /// After the rows of a piece, at control flow that is uniform in the block.
    fn end_part(&mut self, _cx: &mut Context<'_>) -> Result<(), Unsupported> {
        Ok(())
    }

    /// Before rows of a thread that stand one after the other in the code, so many at most of which none becomes several, at uniform control
    /// flow: what one of them waits for may be looked at when all have come.
    fn begin_rows(&mut self, _cx: &mut Context<'_>, _rows: u32) {}

    /// After these rows, likewise.
    fn end_rows(&mut self, _cx: &mut Context<'_>) {}

    /// Before a thread's next rows of the source, at uniform control flow.
    fn begin_round(&mut self, _cx: &mut Context<'_>) {}

    /// Before a row of the source, once it is known that there is one.
    fn begin_row(&mut self, _cx: &mut Context<'_>) {}

    /// A row that has come through all steps, which was made of row `row` (`i64`) of the source.
    fn row(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<(), Unsupported>;

    /// What finds the keys of rows, where the lanes of a warp look at texts of keys together.
    fn key_search(&self) -> Option<&dyn KeySearch> {
        None
    }

    /// As [`Emitter::row`], in a branch, where the row's keys have been looked for.
    fn row_found(&mut self, _cx: &mut Context<'_>, _row: V, _found: Found) -> Result<(), Unsupported> {
        Err(Unsupported::internal("keys of a sink that has none"))
    }

    /// After everything that row `row` (`i64`) of the source became.
    fn end_row(&mut self, _cx: &mut Context<'_>, _row: V) {}

    /// After a thread's rows, at uniform control flow.
    fn end_round(&mut self, _cx: &mut Context<'_>) -> Result<(), Unsupported> {
        Ok(())
    }

    /// After the loop over the rows, at uniform control flow.
    fn end(&mut self, _cx: &mut Context<'_>) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// How rows come to a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Each in branches: those that were dropped do not come.
    Branches,
    /// The same, and none is dropped, of a table, nor left out by ranges.
    All,
    /// Each with a flag.
    Flags,
    /// Each with a flag, one by one, of several of a thread that were loaded at once.
    Prefetched,
    /// As wide rows, and as single ones where too few are left.
    Wide,
}

impl Arrival {
    /// The flow of a row that is there, before any step.
    pub(crate) fn flow(self) -> Flow {
        match self {
            Arrival::Branches | Arrival::All => Flow::Branch,
            Arrival::Flags | Arrival::Prefetched | Arrival::Wide => Flow::Flag { active: None },
        }
    }

    /// Whether rows come that are dead.
    pub(crate) fn has_flags(self) -> bool {
        matches!(self.flow(), Flow::Flag { .. })
    }
}

/// What an emitter is made for.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// Rows of the source, `i64`.
    pub rows: V,
    /// How the places of rows are found, where they are counted before.
    pub counting: Option<&'a Counting>,
    /// States that later pipelines read.
    pub needed: &'a BTreeSet<usize>,
    /// How rows come.
    pub arrival: Arrival,
    /// How rows find their places, where they are written densely.
    pub places: WritePlaces,
    /// Rows that come to one thread's [`Emitter::row`] in a launch, or in each of its passes, at most.
    pub thread_rows: u64,
}

/// What the engine has to do for a sink.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// States to clear before each run of its group: once for all pipelines that end in it.
    pub zeroed: Vec<usize>,
    /// State that counts what it has made.
    pub produced: Option<usize>,
    /// Everything else.
    pub around: Vec<HostAction>,
}
