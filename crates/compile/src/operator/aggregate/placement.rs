//! Whose memory rows of direct-addressed groups are added up in (Karnagel et al., section 4): a thread's own table, that of
//! a block (a CPU: of a worker) or some copies of it, or the device's at once.

use std::fmt;

use kelpie_kir::builder::V;

use super::block_counts::only_where;
use super::block_table::{BlockLayout, BlockTable, Spill};
use super::cell_forms::CellForms;
use super::cells::CellOp;
use super::table_slices::{Counts, slice_slots};
use super::threads::{ThreadCells, ThreadTables};
use super::{Cells, Input};
use crate::MicroModel;
use crate::calibration::Limit;
use crate::choices::Choices;
use crate::context::{Context, Unsupported};
use crate::shape::LaunchShape;
use crate::variant::axes::{BlockSums, CountBytes, Placement, TableCopies, TableSlices};
use crate::variant::{Variant, estimate};

/// Rows of the input for each slot of a CPU's worker's own table that is larger than half of its cache, at least: each slot is cleared
/// and merged whatever comes.
const WORKER_ROWS_A_SLOT: u64 = 8;
/// Most bytes of a SIMT block's table whatever the rows are: more is missed by the first-level cache, which has what joins look at.
const SMALL_TABLE_BYTES: u64 = 16 << 10;
/// Most bytes of a larger one, where there are some rows for each slot: two blocks should fit a multiprocessor of an NVIDIA GPU.
const BLOCK_TABLES_BYTES: u64 = 100 << 10;
const SOME_ROWS_A_SLOT: u64 = 128;
/// Rows of the input for each slot of a still larger one, at least: each block clears and merges all of its slots. On an H200 SSB 2.1
/// takes 0.40 ms with 7,000 groups, to which 70 rows each come, in the device's table, and 0.77 in those of blocks.
const BLOCK_ROWS_A_SLOT: u64 = 256;
/// A thread's table has so many slots at most: with more of them fewer threads are resident, and the atomics of a block's table, where
/// its threads meet in that many groups, take less time than is lost by that.
const THREAD_SLOTS: u64 = 4;
/// Threads of a warp wait for each other in a block's table with at most so many slots of at least so many words: there are copies.
const CONTENDED_SLOTS: u64 = 8;
const CONTENDED_WORDS: u32 = 5;
/// The same where cells are added to by a loop, which goes round as often as threads meet: on an H200 sums of `f64` in 7 groups, 60
/// million rows, take 3.5 ms in one table of a block.
const LOOPED_SLOTS: u64 = 256;
/// Most bytes of the copies of a block's table: as many blocks as ever fit a multiprocessor should.
const COPIES_BYTES: u64 = 16 << 10;
/// The same where cells are locked: threads that wait for a lock cost more than blocks that are missing. On an H200 deviations of 20 million
/// floats in a table of 128 slots take 16.4 ms in 2 copies, 8.7 in 4, 3.3 in 8 and 2.1 in 32, which leave a multiprocessor one block.
const LOCKED_COPIES_BYTES: u64 = 200 << 10;

/// Atomics of the device's table that take as long as a row of the source takes to be read, at least: where fewer come to it, it costs
/// less than the first-level cache that larger tables of blocks take from the tables of joins. On an H200 SSB 3.1 takes 0.43 ms with
/// 4,375 groups in the device's table, to which a thirtieth of the rows comes, and 0.79 in those of blocks.
const ROWS_AN_ATOMIC: u64 = 4;

/// Where rows are added up.
#[derive(Debug, Clone)]
pub enum CellMemory {
    /// In the device's table.
    Device,
    /// In a table of the block (a CPU: of the worker), of which there are so many copies, and about so many bytes. It has a slice of the
    /// groups at a time, one of so many.
    Block { copies: u32, forms: CellForms, bytes: u64, slices: u32 },
    /// In a table of the thread.
    Threads,
}

impl fmt::Display for CellMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CellMemory::Device => "",
            CellMemory::Block { slices: 2.., .. } => ", in slices of blocks",
            CellMemory::Block { copies: 1, .. } => ", in blocks",
            CellMemory::Block { .. } => ", in copies of blocks",
            CellMemory::Threads => ", in threads",
        })
    }
}

/// Whether a block's tables fit its memory.
pub(super) fn tables_fit(bytes: u64, shape: &LaunchShape) -> Result<(), String> {
    let most = shape.table_bytes();
    match bytes <= most.into() {
        true => Ok(()),
        false => Err(format!("tables of {bytes} bytes do not fit a block's {most}")),
    }
}

/// How a block keeps cells in so many copies, whose threads see so many rows each where all blocks share them. Where teams of blocks have a
/// slice each, a team is more than half of its share of the blocks.
fn block_layout(
    (cells, row_bound): (&Cells, u64),
    ((copies, slices), forms): ((u32, u64), CellForms),
    (shape, thread_rows): (&LaunchShape, u64),
) -> BlockLayout {
    let share = if slices > 1 { slices.saturating_mul(2) } else { 1 };
    let rows = thread_rows.saturating_mul(shape.block_threads.div_ceil(copies.max(1)).into());
    let rows = rows.saturating_mul(share);
    BlockLayout::plan(cells, rows.min(row_bound), forms, shape)
}

/// Most bytes of a block's table, or of a CPU's worker's.
fn table_limit(
    slots: u64,
    cells: &Cells,
    (row_bound, input): (u64, &Input<'_>),
    (shape, choices): (&LaunchShape, &Choices<'_>),
) -> Limit {
    let most = u64::from(shape.table_bytes());
    if shape.is_serial() {
        // A worker's memory is what should stay in the second-level cache.
        return match row_bound / WORKER_ROWS_A_SLOT >= slots {
            true => Limit::fixed(most),
            false => choices.calibration.worker_table().min(most),
        };
    }
    let atomics = input.expected_rows.saturating_mul(cells.words().into());
    let few_come = atomics.saturating_mul(ROWS_AN_ATOMIC) <= input.row_bound;
    Limit::fixed(match () {
        () if input.has_probes && few_come => SMALL_TABLE_BYTES.min(most),
        () if input.expected_rows / BLOCK_ROWS_A_SLOT >= slots => most,
        () if input.expected_rows / SOME_ROWS_A_SLOT >= slots => BLOCK_TABLES_BYTES.min(most),
        () => SMALL_TABLE_BYTES.min(most),
    })
}

/// What is thought of a table of so many slots, which a block has in so many bytes, for people.
fn estimate_of_table(
    (slots, cells): (u64, &Cells),
    block_bytes: u64,
    input: &Input<'_>,
    choices: &Choices<'_>,
) -> String {
    let (rows, words) = (input.expected_rows, u64::from(cells.words()));
    let atomics = (rows.saturating_mul(words), slots.saturating_mul(8 * words));
    let time = estimate::atomics(&choices.calibration, atomics);
    let (table, a_slot) = (estimate::table(slots, block_bytes), rows / slots.max(1));
    format!("{} to a block's {table}, {a_slot} a slot{time}", input.rows_told())
}

impl CellMemory {
    /// By the rules, or what is asked for.
    pub fn plan(
        cells: &Cells,
        slots: u64,
        (row_bound, input): (u64, &Input<'_>),
        (shape, choices): (&LaunchShape, &Choices<'_>),
    ) -> Result<CellMemory, Unsupported> {
        let is_simt = !shape.is_serial();
        let limit = table_limit(slots, cells, (row_bound, input), (shape, choices));
        let (fits, fits_not) = ("the table fits near memory", "the table does not fit near memory");
        let (fits, fits_not) = (limit.reason(fits), limit.reason(fits_not));
        let threads = ThreadTables::plan(slots + 1, cells, input.thread_rows, shape);
        let layout = |slices: TableSlices, copies, forms| {
            block_layout((cells, row_bound), ((copies, slices.0), forms), (shape, input.thread_rows))
        };
        let bytes_of = |slices: TableSlices, copies, forms| {
            layout(slices, copies, forms).bytes(slice_slots(slots, slices), copies)
        };
        let bytes_counting = |counts, slices| bytes_of(slices, 1, CellForms::counting(counts));
        let has_counts = layout(TableSlices(1), 1, CellForms::NARROW).has_counts();
        let sizes = (&bytes_counting as &dyn Fn(_, _) -> _, limit.value);
        let counts = Counts::plan((cells, slots, has_counts), sizes, (input, shape));
        // Threads that count in the same group do so in one addition of a block's memory.
        let only_counts = has_counts && cells.words() == 1;
        let are_few = is_simt && slots <= THREAD_SLOTS && !only_counts;
        let rule = match choices.micro_model {
            MicroModel::Resolution if are_few && threads.bytes() <= limit.value => {
                (Placement::Thread, "so few groups that a block's threads would wait for each other")
            }
            MicroModel::Resolution => match counts.passes_by_rule() {
                Some(TableSlices(1)) => (Placement::Block, fits.as_ref()),
                Some(_) => (Placement::Block, "a slice of the table fits near memory"),
                None => (Placement::Global, fits_not.as_ref()),
            },
            _ => (Placement::Global, "the micro model has an atomic a row"),
        };
        let block_bytes = bytes_counting(CountBytes(4), TableSlices(1));
        let text = estimate_of_table((slots, cells), block_bytes, input, choices);
        let chosen = input.site.choose_by((rule, Some(text)), |value| match value {
            Placement::Thread if !is_simt => Err("a CPU's worker is one thread".into()),
            Placement::Thread => tables_fit(threads.bytes(), shape),
            Placement::Block => tables_fit(counts.smallest(), shape),
            Placement::Global => Ok(()),
        })?;
        Ok(match chosen {
            Placement::Thread => CellMemory::Threads,
            Placement::Block => {
                let chosen = counts.choose(shape, input)?;
                let slices = counts.slices(chosen).choose(shape, input)?;
                let bytes = |copies, sums| bytes_of(slices, copies, CellForms { sums, counts: chosen });
                let of_copies = |copies| bytes(copies, BlockSums::Words);
                let copies = CellMemory::copies((cells, chosen), slots, &of_copies, input, shape)?;
                let sums = CellMemory::sums(copies, &|sums| bytes(copies, sums), input, shape)?;
                let (bytes, forms) = (bytes(copies, sums), CellForms { sums, counts: chosen });
                CellMemory::Block { copies, forms, bytes, slices: slices.0 as u32 }
            }
            Placement::Global => CellMemory::Device,
        })
    }

    /// How many copies of a block's table there are, which take `bytes` bytes.
    fn copies(
        (cells, counts): (&Cells, CountBytes),
        slots: u64,
        bytes: &dyn Fn(u32) -> u64,
        input: &Input<'_>,
        shape: &LaunchShape,
    ) -> Result<u32, Unsupported> {
        let bytes = |copies: TableCopies| bytes(copies.0 as u32);
        let lacks = |copies: TableCopies| match copies.0 {
            1 => Ok(()),
            _ if shape.is_serial() => Err("a CPU's worker is one thread".to_string()),
            _ if counts.0 < 4 => Err("a table is made small, not large".into()),
            threads if threads > shape.block_threads.into() => Err("a block has fewer threads".into()),
            _ => tables_fit(bytes(copies), shape),
        };
        let has_loops = cells.cells.iter().any(|cell| cell.op.is_a_loop_in_blocks());
        let contended = match has_loops {
            true => slots <= LOOPED_SLOTS,
            false => slots <= CONTENDED_SLOTS && cells.words() >= CONTENDED_WORDS,
        };
        let has_locks = cells.have_locks();
        let most = if has_locks { LOCKED_COPIES_BYTES } else { COPIES_BYTES };
        let fitting = TableCopies::ALL.iter().copied();
        let fitting = fitting.filter(|copies| bytes(*copies) <= most && lacks(*copies).is_ok());
        let rule = match fitting.filter(|_| contended).max_by_key(|copies| copies.0) {
            Some(copies) if copies.0 > 1 => (copies, "threads of a warp would meet in few groups"),
            _ => (TableCopies(1), "threads seldom meet in a group, or a worker is one"),
        };
        Ok(input.site.choose(rule, lacks)?.0 as u32)
    }

    /// How so many copies of a block's table, which take `bytes` bytes, have large sums.
    fn sums(
        copies: u32,
        bytes: &dyn Fn(BlockSums) -> u64,
        input: &Input<'_>,
        shape: &LaunchShape,
    ) -> Result<BlockSums, Unsupported> {
        let lacks = |sums: BlockSums| match sums {
            BlockSums::Words => Ok(()),
            BlockSums::Digits if shape.is_serial() => {
                Err("a CPU's worker adds words without atomics".to_string())
            }
            BlockSums::Digits => tables_fit(bytes(sums), shape),
        };
        // A copy has fewer rows than a block, and so fewer digits.
        let rule = match copies > 1 && lacks(BlockSums::Digits).is_ok() {
            true => (BlockSums::Digits, "no carry is looked for"),
            false => (BlockSums::Words, "an addition to a word seldom has a carry, and digits are several"),
        };
        input.site.choose(rule, lacks)
    }

    /// Whether rows are added up nearer than in the device's table.
    pub fn is_local(&self) -> bool {
        !matches!(self, CellMemory::Device)
    }

    /// Bytes of the block's table.
    pub fn block_bytes(&self) -> u64 {
        match self {
            CellMemory::Block { bytes, .. } => *bytes,
            CellMemory::Device | CellMemory::Threads => 0,
        }
    }

    /// Whether rows that were added to the device's table may be taken from it again.
    pub fn takes_rows_back(&self) -> bool {
        matches!(self, CellMemory::Block { forms: CellForms { counts: CountBytes(1), .. }, .. })
    }

    /// How many slices of the groups blocks have, one at a time.
    pub fn slices(&self) -> u32 {
        match self {
            CellMemory::Block { slices, .. } => *slices,
            CellMemory::Device | CellMemory::Threads => 1,
        }
    }

    /// Whether threads of a shape that see so many rows each have room, or what that lacks. `slots`, and the rows of all threads at most.
    pub fn admits(
        &self,
        cells: &Cells,
        (slots, row_bound): (u64, u64),
        (shape, thread_rows): (&LaunchShape, u64),
    ) -> Result<(), String> {
        match self {
            CellMemory::Device => Ok(()),
            CellMemory::Threads => {
                tables_fit(ThreadTables::plan(slots + 1, cells, thread_rows, shape).bytes(), shape)
            }
            CellMemory::Block { copies, forms, slices, .. } => {
                let slices = TableSlices((*slices).into());
                let of = ((*copies, slices.0), *forms);
                let layout = block_layout((cells, row_bound), of, (shape, thread_rows));
                let slots = slice_slots(slots, slices);
                tables_fit(layout.bytes(slots, *copies), shape)
            }
        }
    }

    /// Clears what is nearer than the device's table; a table's last slot takes the dead rows. `slots`, and the rows of all threads at most.
    pub fn begin(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        (slots, row_bound): (u64, u64),
        thread_rows: u64,
    ) -> Option<Local> {
        let local = match self {
            CellMemory::Device => return None,
            CellMemory::Threads => {
                let tables = ThreadTables::plan(slots + 1, cells, thread_rows, &cx.shape);
                Local::Threads(tables.begin(cx))
            }
            CellMemory::Block { copies, forms, slices, .. } => {
                let slices = TableSlices((*slices).into());
                let of = ((*copies, slices.0), *forms);
                let layout = block_layout((cells, row_bound), of, (&cx.shape, thread_rows));
                let slots = slice_slots(slots, slices);
                Local::Block(BlockTable::begin(cx, layout, (slots, *copies)))
            }
        };
        cx.builder.barrier();
        Some(local)
    }
}

/// Where a kernel adds up what goes into the device's table at the end.
#[derive(Debug)]
pub enum Local {
    /// The block's table.
    Block(BlockTable),
    /// The threads' tables.
    Threads(ThreadCells),
}

impl Local {
    /// Adds a row's contributions to its group, if that is one of the table (`bool`; `None`: it is); `spill` takes what a count has no room
    /// for.
    pub fn add(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        (slot, is_here, values): (V, Option<V>, &[Vec<V>]),
        spill: &Spill<'_>,
    ) {
        match self {
            Local::Threads(tables) => only_where(cx, is_here, |cx| {
                for (index, (cell, value)) in cells.cells.iter().zip(values).enumerate() {
                    tables.update(cx, slot, cell.op, index, value);
                }
            }),
            Local::Block(table) => table.add(cx, cells, (slot, is_here, values), spill),
        }
    }

    /// What a cell holds now for this thread, where that is known and worth a look.
    pub fn current(&self, cx: &mut Context<'_>, op: CellOp, (slot, index): (V, usize)) -> Option<V> {
        match self {
            Local::Threads(tables) => tables.own(cx, slot, op, index)?.first().copied(),
            Local::Block(table) => table.current(cx, slot, index),
        }
    }

    /// A cell's total over the block's tables, as a contribution.
    pub fn total(&self, cx: &mut Context<'_>, cells: &Cells, (slot, index): (V, usize)) -> Option<Vec<V>> {
        let cell = cells.cells.get(index)?;
        match self {
            Local::Threads(tables) => Some(tables.total(cx, slot, cell.op, index)),
            Local::Block(table) => table.total(cx, cells, slot, index),
        }
    }
}
