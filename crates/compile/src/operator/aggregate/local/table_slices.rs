//! In how many slices a block has a table of direct-addressed groups, and how many bytes its counts have: how often it looks at its rows.

use super::block_table::BlockLayout;
use super::cell_forms::CellForms;
use crate::context::Unsupported;
use crate::operator::aggregate::functions::Cells;
use crate::operator::aggregate::keys::Input;
use crate::shape::LaunchShape;
use crate::variant::axes::{CountBytes, TableSlices};
use crate::variant::{Variant, estimate};

/// Bytes of a slice of a block's table, at most, of which there are so many at most: each is a pass over the rows, and bringing them into
/// parts and adding these up takes about five.
const SLICE_BYTES: u64 = 160 << 10;
const MOST_SLICES: u64 = 4;
/// Rows that are thought to come to each slot of a table in slices, at least: each block adds all of its slots to the device's table.
const SLICE_ROWS_A_SLOT: u64 = 512;
/// The same of a table with counts of 1 byte, however small: it has more slots to clear and to add than others of its size.
const BYTE_ROWS_A_SLOT: u64 = 256;

/// Bytes of counts, from those on that take the fewest instructions.
const COUNT_BYTES: [CountBytes; 3] = [CountBytes(4), CountBytes(2), CountBytes(1)];
/// All groups at once.
const WHOLE: TableSlices = TableSlices(1);

/// Slots of a slice of so many groups, one of so many: its last one takes the dead rows.
fn slice_slots(slots: u64, slices: TableSlices) -> u64 {
    slots.div_ceil(slices.0) + 1
}

/// The same of as many slices as the rule takes at most.
pub(crate) fn least_slots(slots: u64) -> u64 {
    slice_slots(slots, TableSlices(MOST_SLICES))
}

/// Whether blocks of a GPU are thought to have direct-addressed groups all at once or slice by slice, of so many slots of which as few as a
/// slice may have take so many bytes, so that `expected` rows need not be brought into parts before.
pub(crate) fn fits_in_slices(slots: u64, slice_bytes: u64, expected: u64, shape: &LaunchShape) -> bool {
    slice_bytes <= slice_limit(shape) && expected / SLICE_ROWS_A_SLOT >= slots
}

/// Bytes of a slice of a block's table by rule, at most.
fn slice_limit(shape: &LaunchShape) -> u64 {
    SLICE_BYTES.min(shape.table_bytes().into())
}

/// Whether a block's tables fit its memory.
pub(super) fn tables_fit(bytes: u64, shape: &LaunchShape) -> Result<(), String> {
    let most = shape.table_bytes();
    match bytes <= most.into() {
        true => Ok(()),
        false => Err(format!("tables of {bytes} bytes do not fit a block's {most}")),
    }
}

/// How large a direct-addressed table is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableExtent {
    pub slots: u64,
    /// Rows that come to it, at most, and those that one thread sees.
    pub row_bound: u64,
    pub thread_rows: u64,
}

/// How a block has its table.
#[derive(Debug, Clone, Copy)]
pub struct BlockForm {
    pub copies: u32,
    /// It has one slice of the groups at a time.
    pub slices: TableSlices,
    pub cells: CellForms,
}

impl BlockForm {
    /// One table with counts of so many bytes.
    fn counting(counts: CountBytes, slices: TableSlices) -> BlockForm {
        BlockForm { copies: 1, slices, cells: CellForms::counting(counts) }
    }

    /// Slots of the block's table, of so many groups.
    pub fn slots(self, slots: u64) -> u64 {
        slice_slots(slots, self.slices)
    }

    /// Where cells are in it. A block has about its share of the rows where all blocks share them; where teams of blocks have a slice each, a
    /// team is more than half of its share of the blocks.
    pub fn layout(self, cells: &Cells, extent: TableExtent, shape: &LaunchShape) -> BlockLayout {
        let share = if self.slices == WHOLE { 1 } else { self.slices.0.saturating_mul(2) };
        let threads = shape.block_threads.div_ceil(self.copies.max(1));
        let rows = extent.thread_rows.saturating_mul(threads.into()).saturating_mul(share);
        BlockLayout::plan(cells, rows.min(extent.row_bound), self.cells, shape)
    }

    /// Bytes of the block's memory.
    pub fn bytes(self, cells: &Cells, extent: TableExtent, shape: &LaunchShape) -> u64 {
        self.layout(cells, extent, shape).bytes(self.slots(extent.slots), self.copies)
    }
}

/// What decides how many bytes a block's table has for a count of rows, and how many slices of its groups the block has one after the other.
pub(super) struct BlockTableRule<'a> {
    pub cells: &'a Cells,
    pub extent: TableExtent,
    pub input: &'a Input<'a>,
    /// Bytes of a table of all groups that the rule takes, at most.
    pub limit: u64,
}

impl BlockTableRule<'_> {
    /// Bytes of a block's table.
    pub fn bytes(&self, form: BlockForm) -> u64 {
        form.bytes(self.cells, self.extent, self.input.shape)
    }

    /// The same of one with counts of so many bytes that has one slice of so many.
    pub fn bytes_counting(&self, counts: CountBytes, slices: TableSlices) -> u64 {
        self.bytes(BlockForm::counting(counts, slices))
    }

    /// Whether there are counts that may have fewer than 4 bytes.
    pub fn has_counts(&self) -> bool {
        let narrow = BlockForm { cells: CellForms::NARROW, ..BlockForm::counting(CountBytes(1), WHOLE) };
        narrow.layout(self.cells, self.extent, self.input.shape).has_counts()
    }

    /// Rows that are thought to come to a slot.
    fn rows_a_slot(&self) -> u64 {
        self.input.expected_rows / self.extent.slots.max(1)
    }

    /// Why rows cannot come several times, for one slice of the groups each.
    fn why_no_slices(&self) -> Option<&'static str> {
        match () {
            () if self.input.is_serial() => Some("a CPU's worker has its own cache"),
            () if self.input.parts.is_some() => Some("rows come in parts"),
            () if !self.cells.distinct.is_empty() => Some("a value would be new only the first time"),
            () if !self.cells.are_plain() => Some("texts are compared with what a block holds"),
            () if !self.input.is_single => Some("a row becomes several"),
            () => None,
        }
    }

    /// The bytes that counts may have.
    fn count_bytes(&self) -> impl Iterator<Item = CountBytes> {
        COUNT_BYTES.into_iter().take(if self.has_counts() { COUNT_BYTES.len() } else { 1 })
    }

    /// How many slices the rule takes of a table with such counts, where it takes one: looking at all rows once more is to cost less than
    /// atomics in the device's table.
    fn slices_by_rule(&self, counts: CountBytes) -> Option<TableSlices> {
        if self.bytes_counting(counts, WHOLE) <= self.limit {
            return Some(WHOLE);
        }
        let comes_again = !self.input.has_probes && self.rows_a_slot() >= SLICE_ROWS_A_SLOT;
        let most = slice_limit(self.input.shape);
        let fits = |slices: &TableSlices| {
            (2..=MOST_SLICES).contains(&slices.0) && self.bytes_counting(counts, *slices) <= most
        };
        let fewest = TableSlices::ALL.iter().copied().find(fits);
        fewest.filter(|_| comes_again && self.why_no_slices().is_none())
    }

    /// Fewer bytes only where the block looks at the rows less often for it: an addition then waits for what was there before.
    fn bytes_by_rule(&self) -> CountBytes {
        let are_many = self.rows_a_slot() >= BYTE_ROWS_A_SLOT;
        let passes = |counts: &CountBytes| match self.slices_by_rule(*counts) {
            Some(slices) if *counts != CountBytes(1) || are_many => slices.0,
            _ => u64::MAX,
        };
        // The first of equal ones.
        self.count_bytes().min_by_key(passes).unwrap_or(CountBytes(4))
    }

    /// How many slices the rule takes, where it takes a block's table.
    pub fn passes(&self) -> Option<TableSlices> {
        self.slices_by_rule(self.bytes_by_rule())
    }

    /// Bytes of the smallest table with such counts that there can be.
    fn smallest_of(&self, counts: CountBytes) -> u64 {
        let all =
            TableSlices::ALL.iter().filter(|slices| **slices == WHOLE || self.why_no_slices().is_none());
        all.map(|slices| self.bytes_counting(counts, *slices)).min().unwrap_or(u64::MAX)
    }

    /// Bytes of the smallest table that there can be.
    pub fn smallest(&self) -> u64 {
        self.count_bytes().map(|counts| self.smallest_of(counts)).min().unwrap_or(u64::MAX)
    }

    /// How many bytes counts have, by the rule, or what is asked for.
    pub fn choose_count_bytes(&self) -> Result<CountBytes, Unsupported> {
        let shape = self.input.shape;
        let has_room = |counts| tables_fit(self.smallest_of(counts), shape);
        let rule = match self.bytes_by_rule() {
            CountBytes(4) if has_room(CountBytes(4)).is_ok() => {
                (CountBytes(4), "an addition does not look at what was there")
            }
            CountBytes(4) => {
                let most = self.count_bytes().find(|counts| has_room(*counts).is_ok());
                (most.unwrap_or(CountBytes(4)), "more groups fit a block's memory")
            }
            CountBytes(1) => (CountBytes(1), "more groups fit a block's memory, and each has many rows"),
            few => (few, "more groups fit a block's memory"),
        };
        let [four, two, one] = COUNT_BYTES.map(|counts| estimate::bytes(self.bytes_counting(counts, WHOLE)));
        let text = format!("a block's table in {one} with counts of 1 byte, {two} with 2, {four} with 4");
        let text = self.has_counts().then_some(text);
        self.input.site.choose_by((rule, text), |counts| match counts.0 {
            1 | 2 if shape.is_serial() => Err("a CPU's worker adds words without atomics".into()),
            1 | 2 if !self.has_counts() => Err("no cell counts rows".into()),
            _ => has_room(counts),
        })
    }

    /// How many slices a table with such counts has, by the rule, or what is asked for.
    pub fn choose_slices(&self, counts: CountBytes) -> Result<TableSlices, Unsupported> {
        let bytes = |slices| self.bytes_counting(counts, slices);
        let has_room = |slices| tables_fit(bytes(slices), self.input.shape);
        let rule = match self.slices_by_rule(counts).filter(|slices| *slices != WHOLE) {
            Some(slices) => (slices, "all groups do not fit near memory at once, and rows are many"),
            None => {
                let fewest = TableSlices::ALL.iter().copied().find(|slices| has_room(*slices).is_ok());
                (fewest.unwrap_or(WHOLE), "as few as fit a block's memory")
            }
        };
        let mut text = format!("all groups of a block in {}", estimate::bytes(bytes(WHOLE)));
        if rule.0 != WHOLE {
            text.push_str(&format!(", a slice of {} in {}", rule.0.0, estimate::bytes(bytes(rule.0))));
        }
        self.input.site.choose_by((rule, Some(text)), |slices| match self.why_no_slices() {
            Some(why_not) if slices != WHOLE => Err(why_not.into()),
            _ => has_room(slices),
        })
    }
}
