//! In how many slices a block has a table of direct-addressed groups, and how many bytes its counts have: how often it looks at its rows.

use super::Input;
use super::functions::Cells;
use super::placement::tables_fit;
use crate::context::Unsupported;
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

/// Slots of a slice of so many groups, one of so many: its last one takes the dead rows.
pub(super) fn slice_slots(slots: u64, slices: TableSlices) -> u64 {
    slots.div_ceil(slices.0) + 1
}

/// The same of as many slices as the rule takes at most.
pub(super) fn least_slots(slots: u64) -> u64 {
    slice_slots(slots, TableSlices(MOST_SLICES))
}

/// Whether blocks of a GPU are thought to have direct-addressed groups all at once or slice by slice, of so many slots of which as few as a
/// slice may have take so many bytes, so that `expected` rows need not be brought into parts before.
pub(crate) fn suits_slices((slots, bytes): (u64, u64), expected: u64, shape: &LaunchShape) -> bool {
    bytes <= slice_limit(shape) && expected / SLICE_ROWS_A_SLOT >= slots
}

/// Bytes of a slice of a block's table by rule, at most.
fn slice_limit(shape: &LaunchShape) -> u64 {
    SLICE_BYTES.min(shape.table_bytes().into())
}

/// Why rows cannot come several times, for one slice of the groups each.
fn lacks_slices(cells: &Cells, input: &Input<'_>) -> Option<&'static str> {
    match () {
        () if input.is_serial => Some("a CPU's worker has its own cache"),
        () if input.parts.is_some() => Some("rows come in parts"),
        () if !cells.distinct.is_empty() => Some("a value would be new only the first time"),
        () if !cells.cells.iter().all(|cell| cell.op.is_plain()) => {
            Some("texts are compared with what a block holds")
        }
        () if !input.is_single => Some("a row becomes several"),
        () => None,
    }
}

/// Bytes of a block's table with counts of so many bytes that has one slice of so many.
type SliceBytes<'a> = dyn Fn(CountBytes, TableSlices) -> u64 + 'a;

/// How many bytes a block's table has for a count of rows.
pub(super) struct Counts<'a> {
    /// Whether there are counts that may have fewer than 4.
    has_counts: bool,
    bytes: &'a SliceBytes<'a>,
    /// Why there can be no more slices than one.
    lacks: Option<&'static str>,
    /// Bytes of a slice that the rule takes, at most.
    most: u64,
    /// The same of a table of all groups.
    limit: u64,
    /// Whether so many rows come to each slot that looking at all of them once more costs less than atomics in the device's table.
    comes_again: bool,
    /// Whether they are enough for counts of 1 byte.
    are_many: bool,
}

impl<'a> Counts<'a> {
    /// `slots` of all groups; `limit`: bytes of a table of them that the rule takes, at most.
    pub fn plan(
        (cells, slots, has_counts): (&Cells, u64, bool),
        (bytes, limit): (&'a SliceBytes<'a>, u64),
        (input, shape): (&Input<'_>, &LaunchShape),
    ) -> Counts<'a> {
        let a_slot = input.expected_rows / slots.max(1);
        Counts {
            has_counts,
            bytes,
            lacks: lacks_slices(cells, input),
            most: slice_limit(shape),
            limit,
            comes_again: !input.has_probes && a_slot >= SLICE_ROWS_A_SLOT,
            are_many: a_slot >= BYTE_ROWS_A_SLOT,
        }
    }

    /// Slices of a table with counts of so many bytes.
    pub fn slices(&self, counts: CountBytes) -> Slices<'_> {
        Slices { table: self, counts }
    }

    /// Those that there may be.
    fn all(&self) -> impl Iterator<Item = CountBytes> {
        let is_one = !self.has_counts;
        COUNT_BYTES.into_iter().take(if is_one { 1 } else { COUNT_BYTES.len() })
    }

    /// Fewer bytes only where the block looks at the rows less often for it: an addition then waits for what was there before.
    fn bytes_by_rule(&self) -> CountBytes {
        let passes = |counts: &CountBytes| match self.slices(*counts).passes_by_rule() {
            _ if *counts == CountBytes(1) && !self.are_many => u64::MAX,
            passes => passes.map_or(u64::MAX, |slices| slices.0),
        };
        // The first of equal ones.
        self.all().min_by_key(passes).unwrap_or(CountBytes(4))
    }

    /// How many slices the rule takes, where it takes a block's table.
    pub fn passes_by_rule(&self) -> Option<TableSlices> {
        self.slices(self.bytes_by_rule()).passes_by_rule()
    }

    /// Bytes of the smallest table that there can be.
    pub fn smallest(&self) -> u64 {
        self.all().map(|counts| self.slices(counts).smallest()).min().unwrap_or(u64::MAX)
    }

    /// By the rule, or what is asked for.
    pub fn choose(&self, shape: &LaunchShape, input: &Input<'_>) -> Result<CountBytes, Unsupported> {
        let has_room = |counts| tables_fit(self.slices(counts).smallest(), shape);
        let rule = match self.bytes_by_rule() {
            CountBytes(4) if has_room(CountBytes(4)).is_ok() => {
                (CountBytes(4), "an addition does not look at what was there")
            }
            CountBytes(4) => {
                let most = self.all().find(|counts| has_room(*counts).is_ok());
                (most.unwrap_or(CountBytes(4)), "more groups fit a block's memory")
            }
            CountBytes(1) => (CountBytes(1), "more groups fit a block's memory, and each has many rows"),
            few => (few, "more groups fit a block's memory"),
        };
        let [four, two, one] =
            COUNT_BYTES.map(|counts| estimate::bytes((self.bytes)(counts, TableSlices(1))));
        let text = format!("a block's table in {one} with counts of 1 byte, {two} with 2, {four} with 4");
        let text = self.has_counts.then_some(text);
        input.site.choose_by((rule, text), |counts| match counts.0 {
            1 | 2 if shape.is_serial() => Err("a CPU's worker adds words without atomics".into()),
            1 | 2 if !self.has_counts => Err("no cell counts rows".into()),
            _ => has_room(counts),
        })
    }
}

/// How many slices of its groups a block may have one after the other.
pub(super) struct Slices<'a> {
    table: &'a Counts<'a>,
    counts: CountBytes,
}

impl Slices<'_> {
    /// Bytes of a block's table that has one slice of so many.
    fn bytes(&self, slices: TableSlices) -> u64 {
        (self.table.bytes)(self.counts, slices)
    }

    /// Bytes of the smallest slice that there can be.
    fn smallest(&self) -> u64 {
        let all = TableSlices::ALL.iter().filter(|slices| slices.0 == 1 || self.table.lacks.is_none());
        all.map(|slices| self.bytes(*slices)).min().unwrap_or(u64::MAX)
    }

    /// How many slices the rule takes, where it takes a block's table.
    fn passes_by_rule(&self) -> Option<TableSlices> {
        match self.bytes(TableSlices(1)) <= self.table.limit {
            true => Some(TableSlices(1)),
            false => self.by_rule(),
        }
    }

    /// The fewest slices of which the rule takes one at a time, where it does.
    fn by_rule(&self) -> Option<TableSlices> {
        let Counts { most, comes_again, lacks, .. } = *self.table;
        let fits =
            |slices: &TableSlices| slices.0 > 1 && slices.0 <= MOST_SLICES && self.bytes(*slices) <= most;
        let fewest = TableSlices::ALL.iter().copied().find(fits);
        fewest.filter(|_| comes_again && lacks.is_none())
    }

    /// By the rule, or what is asked for.
    pub fn choose(&self, shape: &LaunchShape, input: &Input<'_>) -> Result<TableSlices, Unsupported> {
        let has_room = |slices: TableSlices| tables_fit(self.bytes(slices), shape);
        let rule = match self.passes_by_rule().filter(|slices| slices.0 > 1) {
            Some(slices) => (slices, "all groups do not fit near memory at once, and rows are many"),
            None => {
                let fewest = TableSlices::ALL.iter().copied().find(|slices| has_room(*slices).is_ok());
                (fewest.unwrap_or(TableSlices(1)), "as few as fit a block's memory")
            }
        };
        let of_slice = |slices| estimate::bytes(self.bytes(slices));
        let mut text = format!("all groups of a block in {}", of_slice(TableSlices(1)));
        if rule.0.0 > 1 {
            text.push_str(&format!(", a slice of {} in {}", rule.0.0, of_slice(rule.0)));
        }
        input.site.choose_by((rule, Some(text)), |slices| match self.table.lacks {
            Some(lacks) if slices.0 > 1 => Err(lacks.into()),
            _ => has_room(slices),
        })
    }
}
