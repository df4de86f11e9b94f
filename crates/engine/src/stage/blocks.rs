//! Blocks of a table that lies on the host (HorseQC, section 2.3; the strides of Karnagel et al., section 2.1).
//!
//! *Copy*: a block's columns go to one of three buffers each; while the kernel works on a block, the next two are on their
//! way. Kernels number rows as the table does, so a buffer is given to them as a window of the whole column. *Zero-copy*:
//! kernels read host memory over the link, and nothing is copied.
//!
//! Text whose address outlives the pipeline (in a table or a store) is never copied: kernels read it where it lies.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use kelpie_compile::context::{Argument, ColumnPart};
use kelpie_compile::layout::Storage;
use kelpie_compile::pipeline::{BlockRows, CompiledPipeline, PipelineVariant, RowCount};
use kelpie_device::{Buffer, CopyTicket, HostCopy, KernelArgument};

use super::arguments::part_of;
use super::launcher::PartName;
use super::setting::Setting;
use super::store::StateStore;
use crate::columns::ResidentColumn;
use crate::error::EngineError;
use crate::prune;
use crate::prune::Bounded;

/// Buffers of a column on the device: one is worked on, two are being filled.
const BUFFERS: usize = 3;
/// Bytes that a kernel loads at once, at most: columns begin at multiples of it (`kelpie_device::Device::allocate`).
const WIDEST_LOAD: u64 = 16;
/// Rows of a block, at least.
const LEAST_ROWS: u64 = 1 << 10;
/// The part of all rows that the first block of a trial has: one in so many.
const RAMP: u64 = 256;

/// The blocks of a pipeline's source.
pub(super) struct Blocks {
    ranges: Vec<Range<u64>>,
    streams: Vec<Streamed>,
    /// One a block whose copies were begun.
    tickets: Vec<CopyTicket>,
    /// Bytes that went over the link, or that kernels read over it at least.
    pub link_bytes: u64,
}

/// A part of a column on the host that a kernel asks for.
struct Streamed {
    name: PartName,
    source: Buffer,
    extent: Extent,
    /// None where kernels read the source itself.
    ring: Vec<Buffer>,
}

/// Where the bytes of a range of rows are.
enum Extent {
    /// So many bytes a row; `more` rows beyond the end are read.
    Fixed {
        width: u64,
        more: u64,
    },
    Bits,
    /// Between the offsets, of this width, in another buffer.
    Text {
        offsets: Buffer,
        width: usize,
    },
}

impl Streamed {
    fn new(column: &ResidentColumn, name: PartName) -> Option<Streamed> {
        let source = Arc::clone(part_of(column, name.2)?);
        let extent = match (name.2, column.layout.storage) {
            (ColumnPart::Validity, _) => Extent::Bits,
            (ColumnPart::Offsets, Storage::Text { offset }) => {
                Extent::Fixed { width: u64::from(offset.bytes()), more: 1 }
            }
            (ColumnPart::Data, Storage::Text { offset }) => {
                Extent::Text { offsets: Arc::clone(column.offsets.as_ref()?), width: offset.bytes() as usize }
            }
            (ColumnPart::Data, Storage::Fixed { scalar, .. } | Storage::Dictionary { code: scalar, .. }) => {
                Extent::Fixed { width: u64::from(scalar.bytes()), more: 0 }
            }
            _ => return None,
        };
        Some(Streamed { name, source, extent, ring: Vec::new() })
    }

    /// Bytes a row, about.
    fn width(&self, rows: u64) -> u64 {
        match &self.extent {
            Extent::Fixed { width, .. } => *width,
            Extent::Bits => 1,
            Extent::Text { .. } => (self.source.bytes() as u64).div_ceil(rows.max(1)),
        }
    }

    /// The bytes of a range of rows.
    fn bytes(&self, setting: &Setting<'_>, rows: &Range<u64>) -> Result<Range<u64>, EngineError> {
        let bytes = match &self.extent {
            Extent::Fixed { width, more } => {
                // Kernels take whole columns to begin at multiples of the widest load, and so their windows.
                let start = rows.start * width;
                start - start % WIDEST_LOAD..(rows.end + more) * width
            }
            Extent::Bits => rows.start / 8..rows.end.div_ceil(8),
            Extent::Text { offsets, width } => {
                let offset = |row: u64| -> Result<u64, EngineError> {
                    let mut bytes = [0; 8];
                    setting.stream.device().download(offsets, row as usize * width, &mut bytes[..*width])?;
                    Ok(u64::from_le_bytes(bytes))
                };
                offset(rows.start)?..offset(rows.end)?
            }
        };
        Ok(bytes.start..bytes.end.min(self.source.bytes() as u64))
    }
}

impl Blocks {
    /// Cuts the rows of a pipeline's source into blocks; of those whose zones are not within the bounds, most are left out.
    pub fn plan(
        setting: &Setting<'_>,
        store: &StateStore<'_>,
        (pipeline, rows): (&CompiledPipeline, u64),
        (bounds, most_rows): (&[Bounded<'_>], Option<u64>),
    ) -> Result<Blocks, EngineError> {
        let mut streams = host_parts(setting, pipeline)?;
        let movement = &setting.movement;
        let widths: u64 = streams.iter().map(|stream| stream.width(rows)).sum();
        let block_rows = match streams.len() as u64 {
            0 if pipeline.blocks == BlockRows::Whole => u64::MAX,
            0 => movement.block_rows.unwrap_or(u64::MAX),
            // Of all columns together: narrow ones make the others' part of a block longer.
            columns => (movement.block_bytes.saturating_mul(columns) / widths.max(1)).max(LEAST_ROWS),
        };
        let block_rows = block_rows.min(most_rows.unwrap_or(u64::MAX)).max(1);
        let mut blocks = Vec::new();
        // What streams is cut anyhow.
        let most = if streams.is_empty() && most_rows.is_none() { prune::MOST_RANGES } else { usize::MAX };
        for range in prune::ranges(bounds, rows, most) {
            let count = (range.end - range.start).div_ceil(block_rows);
            let start = |index: u64| range.start + index * block_rows;
            let block = |index: u64| start(index)..range.end.min(start(index).saturating_add(block_rows));
            blocks.extend((0..count).map(block));
        }
        if blocks.is_empty() {
            // Every pipeline runs: what stands before and after its loop counts.
            blocks.push(0..0);
        }
        let ranges = blocks;
        let copies = movement.transfer.copies(setting.stream.device().kind());
        let mut link_bytes = 0;
        for stream in &mut streams {
            let mut most = 0;
            for range in &ranges {
                let bytes = stream.bytes(setting, range)?;
                most = most.max(bytes.end - bytes.start);
                link_bytes += bytes.end - bytes.start;
            }
            let stays = pipeline.keeps_text && matches!(stream.extent, Extent::Text { .. });
            if copies && !stays {
                let buffers = BUFFERS.min(ranges.len());
                stream.ring =
                    (0..buffers).map(|_| store.allocate(most as usize)).collect::<Result<_, _>>()?;
            }
        }
        streams.retain(|stream| !stream.ring.is_empty());
        Ok(Blocks { ranges, streams, tickets: Vec::new(), link_bytes })
    }

    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The rows of each.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether nothing is copied for a block, so that it may be cut in any other way.
    pub fn is_free(&self) -> bool {
        self.streams.is_empty()
    }

    /// Cuts a block and all after it into such of no more than `rows` rows; the rows of the first of them.
    pub fn shorten(&mut self, index: usize, rows: u64) -> Range<u64> {
        let rows = rows.max(1);
        let long = self.ranges.split_off(index.min(self.ranges.len()));
        for range in long {
            let mut start = range.start;
            while range.end - start > rows {
                self.ranges.push(start..start + rows);
                start += rows;
            }
            self.ranges.push(start..range.end);
        }
        self.ranges.get(index).cloned().unwrap_or(0..0)
    }

    /// Cuts the first block into such that each has no more rows than all before it, the first a small part of all rows.
    pub fn ramp(&mut self) {
        let all: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        let Some(long) = self.ranges.first().cloned().filter(|_| self.is_free()) else { return };
        let (mut start, mut rows) = (long.start, (all / RAMP).max(LEAST_ROWS));
        let mut short = Vec::new();
        while start < long.end {
            let end = long.end.min(start + rows);
            short.push(start..end);
            // The second has as many rows as the first, and from then on twice as many each.
            rows = end - long.start;
            start = end;
        }
        self.ranges.splice(..1, short);
    }

    /// Waits for a block, in the stream, and begins to fetch later ones; its rows, with where its columns are in `windows`. The
    /// kernels of all earlier blocks are done.
    pub fn begin(
        &mut self,
        index: usize,
        setting: &Setting<'_>,
        windows: &mut HashMap<PartName, KernelArgument>,
    ) -> Result<Range<u64>, EngineError> {
        let rows = self.ranges.get(index).cloned().unwrap_or(0..0);
        if self.streams.is_empty() {
            return Ok(rows);
        }
        while self.tickets.len() < self.ranges.len().min(index + BUFFERS) {
            self.fetch(self.tickets.len(), setting)?;
        }
        if let Some(ticket) = self.tickets.get(index) {
            setting.stream.after_copies(*ticket)?;
        }
        for stream in &self.streams {
            let first = stream.bytes(setting, &rows)?.start;
            if let Some(buffer) = stream.ring.get(index % BUFFERS) {
                windows.insert(stream.name, KernelArgument::Window(Arc::clone(buffer), first));
            }
        }
        Ok(rows)
    }

    fn fetch(&mut self, index: usize, setting: &Setting<'_>) -> Result<(), EngineError> {
        let Some(rows) = self.ranges.get(index) else { return Ok(()) };
        let mut copies = Vec::with_capacity(self.streams.len());
        for stream in &self.streams {
            let bytes = stream.bytes(setting, rows)?;
            let Some(target) = stream.ring.get(index % BUFFERS) else { continue };
            copies.push(HostCopy {
                source: &stream.source,
                source_offset: bytes.start as usize,
                target,
                target_offset: 0,
                bytes: (bytes.end - bytes.start) as usize,
            });
        }
        self.tickets.push(setting.stream.begin_copies(&copies)?);
        Ok(())
    }
}

/// The parts of columns on the host that a pipeline's kernel asks for.
fn host_parts(setting: &Setting<'_>, pipeline: &CompiledPipeline) -> Result<Vec<Streamed>, EngineError> {
    let RowCount::Scan(source) = pipeline.rows else { return Ok(Vec::new()) };
    let mut parts: Vec<Streamed> = Vec::new();
    for argument in
        pipeline.variants().flat_map(PipelineVariant::kernels).flat_map(|kernel| &kernel.arguments)
    {
        let Argument::Column { scan, column, part } = *argument else { continue };
        let name = (scan, column, part);
        let resident = setting.column(scan, column)?;
        if scan == source && resident.on_host && parts.iter().all(|known| known.name != name) {
            parts.extend(Streamed::new(resident, name));
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_trial_begin_short_and_have_all_rows() {
        let blocks = |ranges: Vec<Range<u64>>| Blocks {
            ranges,
            streams: Vec::new(),
            tickets: Vec::new(),
            link_bytes: 0,
        };
        let mut ramped = blocks(vec![0..1 << 20, 1 << 20..1 << 21]);
        ramped.ramp();
        let rows: Vec<u64> = ramped.ranges.iter().map(|range| range.end - range.start).collect();
        assert_eq!(rows[..4], [1 << 13, 1 << 13, 1 << 14, 1 << 15]);
        assert_eq!(rows.iter().sum::<u64>(), 1 << 21);
        assert!(ramped.ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        let mut few = blocks(std::iter::once(0..10).collect());
        few.ramp();
        assert_eq!((few.len(), few.ranges[0].end), (1, 10));
    }
}
