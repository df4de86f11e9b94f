//! The heap of a stage: memory for the text that its kernels make.

use std::sync::Arc;

use kelpie_compile::context::HeapPart;
use kelpie_device::{Buffer, Device, KernelArgument};
use kelpie_kir::Scalar;

use crate::columns::ColumnCache;
use crate::error::EngineError;

/// Bytes of new text a row that are expected.
const ROW_BYTES: u64 = 128;
/// Bytes of the first heap, at least and at most.
const INITIAL_BYTES: (u64, u64) = (1 << 16, 256 << 20);
/// How much larger the next heap is, at least: a launch that fails early has not asked for all that it needs.
const GROWTH: u64 = 4;

/// How much of a heap was taken at some time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HeapMark {
    capacity: u64,
    taken: u64,
}

/// Text that kernels make; its addresses hold while the stage runs.
#[derive(Debug)]
pub(crate) struct TextHeap {
    /// Bytes of the first heap, at most.
    most: u64,
    capacity: u64,
    /// The bytes, and how many of them are taken.
    current: Option<(Buffer, Buffer)>,
    /// Heaps that became too small: earlier pipelines' text is in them.
    outgrown: Vec<Buffer>,
}

impl TextHeap {
    /// A heap that is made when first asked for, of no more than `most` bytes at first where that is given.
    pub(crate) fn new(most: Option<u64>) -> TextHeap {
        let (least, usual) = INITIAL_BYTES;
        let most = most.map_or(usual, |most| most.clamp(least, usual));
        TextHeap { most, capacity: 0, current: None, outgrown: Vec::new() }
    }

    /// What a pipeline over `rows` rows is to be told.
    pub(crate) fn argument(
        &mut self,
        part: HeapPart,
        rows: u64,
        device: &Arc<dyn Device>,
        cache: &ColumnCache,
    ) -> Result<KernelArgument, EngineError> {
        let (bytes, cursor) = match &self.current {
            Some(current) => current,
            None => {
                let capacity = rows.saturating_mul(ROW_BYTES).clamp(INITIAL_BYTES.0, self.most);
                self.replace(capacity, device, cache)?
            }
        };
        Ok(match part {
            HeapPart::Bytes => KernelArgument::Buffer(Arc::clone(bytes), 0),
            HeapPart::Cursor => KernelArgument::Buffer(Arc::clone(cursor), 0),
            HeapPart::Capacity => KernelArgument::Scalar(Scalar::I64, i128::from(self.capacity)),
        })
    }

    /// Takes a larger heap if the last launch asked for more than there is.
    pub(crate) fn grow(
        &mut self,
        device: &Arc<dyn Device>,
        cache: &ColumnCache,
    ) -> Result<bool, EngineError> {
        let Some((_, cursor)) = &self.current else { return Ok(false) };
        let mut word = [0; 8];
        device.download(cursor, 0, &mut word)?;
        let asked = u64::from_le_bytes(word);
        if asked <= self.capacity {
            return Ok(false);
        }
        self.replace(asked.max(self.capacity).saturating_mul(GROWTH), device, cache)?;
        Ok(true)
    }

    /// Bytes that the last launch asked for in all, more than there are where it failed for that.
    pub(crate) fn asked(&self, device: &Arc<dyn Device>) -> Result<u64, EngineError> {
        Ok(self.mark(device)?.taken)
    }

    /// What is taken now.
    pub(crate) fn mark(&self, device: &Arc<dyn Device>) -> Result<HeapMark, EngineError> {
        let Some((_, cursor)) = &self.current else { return Ok(HeapMark::default()) };
        let mut word = [0; 8];
        device.download(cursor, 0, &mut word)?;
        Ok(HeapMark { capacity: self.capacity, taken: u64::from_le_bytes(word) })
    }

    /// Gives back what was taken since the mark: nobody reads that text any more.
    pub(crate) fn rewind(&self, mark: HeapMark, device: &Arc<dyn Device>) -> Result<(), EngineError> {
        let Some((_, cursor)) = &self.current else { return Ok(()) };
        // A larger heap, which came since, has nothing else in it.
        let taken = if mark.capacity == self.capacity { mark.taken } else { 0 };
        Ok(device.upload(cursor, 0, &taken.to_le_bytes())?)
    }

    fn replace(
        &mut self,
        capacity: u64,
        device: &Arc<dyn Device>,
        cache: &ColumnCache,
    ) -> Result<&(Buffer, Buffer), EngineError> {
        let size = usize::try_from(capacity).unwrap_or(usize::MAX);
        let bytes = cache.allocate(device, size)?;
        let cursor = cache.allocate(device, 16)?;
        device.fill(&cursor, 0, 16, 0)?;
        self.capacity = capacity;
        if let Some((bytes, _)) = self.current.take() {
            self.outgrown.push(bytes);
        }
        Ok(self.current.insert((bytes, cursor)))
    }
}
