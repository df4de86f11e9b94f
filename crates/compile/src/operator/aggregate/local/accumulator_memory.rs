//! Whose memory rows of direct-addressed groups are added up in (Karnagel et al., section 5.1): a thread's own table, that of a block (a
//! CPU: of a worker) or some copies of it, or the device's at once.

use std::fmt;

use kelpie_kir::builder::V;

use super::block_counts::{Spill, only_where};
use super::block_table::{BlockTable, LocalRow};
use super::cell_forms::CellForms;
use super::table_slices::{BlockForm, BlockTableRule, TableExtent, tables_fit};
use super::thread_tables::{ThreadCells, ThreadTables};
use crate::MicroModel;
use crate::calibration::Limit;
use crate::context::{Context, Unsupported};
use crate::operator::aggregate::functions::{CellOp, Cells};
use crate::operator::aggregate::keys::Input;
use crate::program::{Growth, States};
use crate::shape::LaunchShape;
use crate::variant::axes::{AccumulatorMemory, BlockSums, CountBytes, TableCopies, TableSlices};
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
/// Bytes of the threads' tables in the device's memory, at most.
const FAR_BYTES: u64 = 1 << 30;
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
    /// In a table of the block (a CPU: of the worker), of about so many bytes.
    Block { form: BlockForm, bytes: u64 },
    /// In a table of the thread, in its block's memory.
    Threads,
    /// In one in the device's memory, whose state has tables for so many threads.
    FarThreads { state: usize, threads: u64 },
}

impl fmt::Display for CellMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CellMemory::Device => "",
            CellMemory::Block { form: BlockForm { slices: TableSlices(2..), .. }, .. } => {
                ", in slices of blocks"
            }
            CellMemory::Block { form: BlockForm { copies: 1, .. }, .. } => ", in blocks",
            CellMemory::Block { .. } => ", in copies of blocks",
            CellMemory::Threads => ", in threads",
            CellMemory::FarThreads { .. } => ", in threads, of the device's memory",
        })
    }
}

/// Most bytes of a block's table of so many slots, or of a CPU's worker's.
fn table_limit(slots: u64, cells: &Cells, input: &Input<'_>) -> Limit {
    let most = u64::from(input.shape.table_bytes());
    if input.is_serial() {
        // A worker's memory is what should stay in the second-level cache.
        return match input.row_bound / WORKER_ROWS_A_SLOT >= slots {
            true => Limit::fixed(most),
            false => input.choices.calibration.worker_table().min(most),
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
fn estimate_of_table(slots: u64, cells: &Cells, block_bytes: u64, input: &Input<'_>) -> String {
    let (rows, words) = (input.expected_rows, u64::from(cells.words()));
    let atomics = (rows.saturating_mul(words), slots.saturating_mul(8 * words));
    let time = estimate::atomics(&input.choices.calibration, atomics);
    let (table, a_slot) = (estimate::table(slots, block_bytes), rows / slots.max(1));
    format!("{} to a block's {table}, {a_slot} a slot{time}", input.rows_told())
}

/// Tables of the threads, with a slot for the dead rows. `state` has them, if the device's memory does.
fn thread_tables(
    cells: &Cells,
    extent: TableExtent,
    shape: &LaunchShape,
    state: Option<usize>,
) -> ThreadTables {
    ThreadTables::plan(extent.slots + 1, cells, extent.thread_rows, shape, state)
}

/// Threads of the largest launch of a shape.
fn all_threads(shape: &LaunchShape) -> u64 {
    u64::from(shape.most_blocks) * u64::from(shape.block_threads)
}

/// The tables of all threads in the device's memory, whose state is declared.
fn far_threads(cells: &Cells, extent: TableExtent, shape: &LaunchShape, states: &mut States) -> CellMemory {
    let bytes = thread_tables(cells, extent, shape, Some(0)).bytes();
    let class = states.class(bytes / 8 * u64::from(shape.most_blocks), Growth::Fixed);
    CellMemory::FarThreads { state: states.state("thread_tables", 8, class), threads: all_threads(shape) }
}

/// How many copies of a block's table with such counts there are.
fn choose_copies(
    rule: &BlockTableRule<'_>,
    slices: TableSlices,
    counts: CountBytes,
) -> Result<u32, Unsupported> {
    let (shape, cells, slots) = (rule.input.shape, rule.cells, rule.extent.slots);
    let bytes = |copies: TableCopies| {
        rule.bytes(BlockForm { copies: copies.0 as u32, slices, cells: CellForms::counting(counts) })
    };
    let why_not = |copies: TableCopies| match copies.0 {
        1 => Ok(()),
        _ if shape.is_serial() => Err("a CPU's worker is one thread".to_string()),
        _ if counts.0 < 4 => Err("a table is made small, not large".into()),
        threads if threads > shape.block_threads.into() => Err("a block has fewer threads".into()),
        _ => tables_fit(bytes(copies), shape),
    };
    let has_loops = cells.cells.iter().any(|cell| cell.op.is_a_loop_in_blocks());
    let is_contended = match has_loops {
        true => slots <= LOOPED_SLOTS,
        false => slots <= CONTENDED_SLOTS && cells.words() >= CONTENDED_WORDS,
    };
    let most = if cells.have_locks() { LOCKED_COPIES_BYTES } else { COPIES_BYTES };
    let fitting = TableCopies::ALL.iter().copied();
    let fitting = fitting.filter(|copies| is_contended && bytes(*copies) <= most && why_not(*copies).is_ok());
    let rule_copies = match fitting.max_by_key(|copies| copies.0) {
        Some(copies) if copies.0 > 1 => (copies, "threads of a warp would meet in few groups"),
        _ => (TableCopies(1), "threads seldom meet in a group, or a worker is one"),
    };
    Ok(rule.input.site.choose(rule_copies, why_not)?.0 as u32)
}

/// How a block's table has large sums.
fn choose_sums(rule: &BlockTableRule<'_>, form: BlockForm) -> Result<BlockSums, Unsupported> {
    let shape = rule.input.shape;
    let why_not = |sums: BlockSums| match sums {
        BlockSums::Words => Ok(()),
        BlockSums::Digits if shape.is_serial() => {
            Err("a CPU's worker adds words without atomics".to_string())
        }
        BlockSums::Digits => {
            tables_fit(rule.bytes(BlockForm { cells: CellForms { sums, ..form.cells }, ..form }), shape)
        }
    };
    // A copy has fewer rows than a block, and so fewer digits.
    let by_rule = match form.copies > 1 && why_not(BlockSums::Digits).is_ok() {
        true => (BlockSums::Digits, "no carry is looked for"),
        false => (BlockSums::Words, "an addition to a word seldom has a carry, and digits are several"),
    };
    rule.input.site.choose(by_rule, why_not)
}

impl CellMemory {
    /// Of so many slots, by the rules, or what is asked for.
    pub fn plan(
        cells: &Cells,
        slots: u64,
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<CellMemory, Unsupported> {
        let (shape, is_simt) = (input.shape, !input.is_serial());
        let limit = table_limit(slots, cells, input);
        let extent = TableExtent { slots, row_bound: input.row_bound, thread_rows: input.thread_rows };
        let threads = thread_tables(cells, extent, shape, None);
        let far =
            thread_tables(cells, extent, shape, Some(0)).bytes().saturating_mul(shape.most_blocks.into());
        let block = BlockTableRule { cells, extent, input, limit: limit.value };
        // Threads that count in the same group do so in one addition of a block's memory.
        let only_counts = block.has_counts() && cells.words() == 1;
        let are_few = is_simt && slots <= THREAD_SLOTS && !only_counts;
        let (fits, fits_not) = ("the table fits near memory", "the table does not fit near memory");
        let (fits, fits_not) = (limit.reason(fits), limit.reason(fits_not));
        let rule = match (input.choices.micro_model, block.passes()) {
            (MicroModel::Resolution, _) if are_few && threads.bytes() <= limit.value => {
                (AccumulatorMemory::Thread, "so few groups that a block's threads would wait for each other")
            }
            (MicroModel::Resolution, Some(TableSlices(1))) => (AccumulatorMemory::Block, fits.as_ref()),
            (MicroModel::Resolution, Some(_)) => {
                (AccumulatorMemory::Block, "a slice of the table fits near memory")
            }
            (MicroModel::Resolution, None) => (AccumulatorMemory::Global, fits_not.as_ref()),
            _ => (AccumulatorMemory::Global, "the micro model has an atomic a row"),
        };
        let block_bytes = block.bytes_counting(CountBytes(4), TableSlices(1));
        let text = estimate_of_table(slots, cells, block_bytes, input);
        let chosen = input.site.choose_by((rule, Some(text)), |value| match value {
            AccumulatorMemory::Thread | AccumulatorMemory::ThreadGlobal if !is_simt => {
                Err("a CPU's worker is one thread".into())
            }
            AccumulatorMemory::ThreadGlobal if far > FAR_BYTES => {
                Err(format!("the threads' tables take {}", estimate::bytes(far)))
            }
            AccumulatorMemory::ThreadGlobal => Ok(()),
            AccumulatorMemory::Thread => tables_fit(threads.bytes(), shape),
            AccumulatorMemory::Block => tables_fit(block.smallest(), shape),
            AccumulatorMemory::Global => Ok(()),
        })?;
        Ok(match chosen {
            AccumulatorMemory::Thread => CellMemory::Threads,
            AccumulatorMemory::ThreadGlobal => far_threads(cells, extent, shape, states),
            AccumulatorMemory::Block => {
                let counts = block.choose_count_bytes()?;
                let slices = block.choose_slices(counts)?;
                let copies = choose_copies(&block, slices, counts)?;
                let form = BlockForm { copies, slices, cells: CellForms::counting(counts) };
                let cells = CellForms { sums: choose_sums(&block, form)?, counts };
                let form = BlockForm { cells, ..form };
                CellMemory::Block { form, bytes: block.bytes(form) }
            }
            AccumulatorMemory::Global => CellMemory::Device,
        })
    }

    /// Whether rows are added up nearer than in the device's table.
    pub fn is_local(&self) -> bool {
        !matches!(self, CellMemory::Device)
    }

    pub fn block_bytes(&self) -> u64 {
        match self {
            CellMemory::Block { bytes, .. } => *bytes,
            CellMemory::Device | CellMemory::Threads | CellMemory::FarThreads { .. } => 0,
        }
    }

    /// Whether rows that were added to the device's table may be taken from it again.
    pub fn takes_rows_back(&self) -> bool {
        matches!(self, CellMemory::Block { form, .. } if form.cells.counts == CountBytes(1))
    }

    /// How many slices of the groups blocks have, one at a time.
    pub fn slices(&self) -> u32 {
        match self {
            CellMemory::Block { form, .. } => form.slices.0 as u32,
            CellMemory::Device | CellMemory::Threads | CellMemory::FarThreads { .. } => 1,
        }
    }

    /// Why blocks of a shape have no room, if they have not.
    pub fn fits(&self, cells: &Cells, extent: TableExtent, shape: &LaunchShape) -> Result<(), String> {
        match self {
            CellMemory::Device => Ok(()),
            CellMemory::Threads => tables_fit(thread_tables(cells, extent, shape, None).bytes(), shape),
            CellMemory::FarThreads { threads, .. } if all_threads(shape) > *threads => {
                Err("the threads' tables are for fewer threads".into())
            }
            CellMemory::FarThreads { .. } => Ok(()),
            CellMemory::Block { form, .. } => tables_fit(form.bytes(cells, extent, shape), shape),
        }
    }

    /// Clears what is nearer than the device's table; a table's last slot takes the dead rows.
    pub fn begin(&self, cx: &mut Context<'_>, cells: &Cells, extent: TableExtent) -> Option<Local> {
        let local = match self {
            CellMemory::Device => return None,
            CellMemory::Threads => Local::Threads(thread_tables(cells, extent, &cx.shape, None).begin(cx)),
            CellMemory::FarThreads { state, .. } => {
                Local::Threads(thread_tables(cells, extent, &cx.shape, Some(*state)).begin(cx))
            }
            CellMemory::Block { form, .. } => {
                let layout = form.layout(cells, extent, &cx.shape);
                Local::Block(BlockTable::begin(cx, layout, form.slots(extent.slots), form.copies))
            }
        };
        cx.builder.barrier();
        Some(local)
    }
}

/// Where a kernel adds up what goes into the device's table at the end.
#[derive(Debug)]
pub enum Local {
    Block(BlockTable),
    Threads(ThreadCells),
}

impl Local {
    /// Adds a row's contributions to its group; `spill` takes what a count has no room for.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, row: LocalRow<'_>, spill: &Spill<'_>) {
        match self {
            Local::Threads(tables) => only_where(cx, row.is_here, |cx| {
                for (index, (cell, value)) in cells.cells.iter().zip(row.values).enumerate() {
                    tables.update(cx, row.slot, cell.op, index, value);
                }
            }),
            Local::Block(table) => table.add(cx, cells, row, spill),
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
            Local::Threads(tables) => tables.total(cx, slot, cell.op, index),
            Local::Block(table) => table.total(cx, cells, slot, index),
        }
    }
}
