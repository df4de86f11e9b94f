//! Memory of the interpreter: allocations at addresses that are far from each other, so that a stray access hits none.

use kelpie_kir::Scalar;

use super::races::Shadow;

/// Distance between allocations, and their alignment, in bytes.
const GAP: u64 = 256;
/// Addresses begin here: nothing is at small ones.
const FIRST_ADDRESS: u64 = 0x1_0000;

/// Names an allocation of a [`Memory`]: its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(u64);

#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) address: u64,
    pub(super) data: Vec<u8>,
    pub(super) shadow: Shadow,
}

/// Allocations in address order; addresses are never used again.
#[derive(Debug)]
pub struct Memory {
    allocations: Vec<Allocation>,
    next: u64,
    /// Where the last access was.
    hint: usize,
    bytes: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

/// A range of bytes in an allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) allocation: usize,
    pub(super) offset: usize,
}

impl Range {
    /// The upper half of 16 bytes.
    pub(super) fn high_half(self) -> Range {
        Range { offset: self.offset + 8, ..self }
    }
}

impl Allocation {
    /// Where `bytes` bytes at `address` are; `None` where not all of them are here.
    #[inline]
    fn offset(&self, address: u64, bytes: u32) -> Option<usize> {
        let offset = address.checked_sub(self.address)?;
        let rest = (self.data.len() as u64).checked_sub(offset)?;
        (u64::from(bytes) <= rest).then_some(offset as usize)
    }
}

impl Memory {
    /// No allocation.
    pub fn new() -> Memory {
        Memory { allocations: Vec::new(), next: FIRST_ADDRESS, hint: 0, bytes: 0 }
    }

    /// Zeroed memory of `bytes` bytes.
    pub fn allocate(&mut self, bytes: usize) -> AllocationId {
        let address = self.next;
        self.next = (address + bytes as u64 + GAP).next_multiple_of(GAP);
        self.bytes += bytes as u64;
        self.allocations.push(Allocation { address, data: vec![0; bytes], shadow: Shadow::default() });
        AllocationId(address)
    }

    /// Address of the first byte.
    pub fn address(&self, id: AllocationId) -> u64 {
        id.0
    }

    /// Bytes in all allocations.
    pub fn allocated_bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees an allocation; its addresses are out of bounds from now on. Nothing happens where it is freed already.
    pub fn free(&mut self, id: AllocationId) {
        if let Some(index) = self.index(id) {
            self.bytes -= self.allocations.remove(index).data.len() as u64;
        }
    }

    fn index(&self, id: AllocationId) -> Option<usize> {
        self.allocations.binary_search_by_key(&id.0, |allocation| allocation.address).ok()
    }

    /// The content of an allocation; `None` where it is freed.
    pub fn data(&self, id: AllocationId) -> Option<&[u8]> {
        Some(&self.allocations[self.index(id)?].data)
    }

    /// The content of an allocation, to be written by the host; `None` where it is freed.
    pub fn data_mut(&mut self, id: AllocationId) -> Option<&mut [u8]> {
        let index = self.index(id)?;
        Some(&mut self.allocations[index].data)
    }

    /// Forgets what the last launch accessed.
    pub(super) fn begin_launch(&mut self) {
        for allocation in &mut self.allocations {
            allocation.shadow = Shadow::default();
        }
    }

    /// The allocation that has all of `bytes` bytes at `address`.
    #[inline(always)]
    pub(super) fn find(&mut self, address: u64, bytes: u32) -> Option<Range> {
        let hinted = self.allocations.get(self.hint);
        match hinted.and_then(|allocation| allocation.offset(address, bytes)) {
            Some(offset) => Some(Range { allocation: self.hint, offset }),
            None => self.search(address, bytes),
        }
    }

    /// [`Self::find`] where the last access was to another allocation.
    #[cold]
    fn search(&mut self, address: u64, bytes: u32) -> Option<Range> {
        let after = self.allocations.partition_point(|allocation| allocation.address <= address);
        let index = after.checked_sub(1)?;
        let offset = self.allocations[index].offset(address, bytes)?;
        self.hint = index;
        Some(Range { allocation: index, offset })
    }

    /// The closest allocation at or below an address, in words for an error.
    pub(super) fn nearest(&self, address: u64) -> String {
        let after = self.allocations.partition_point(|allocation| allocation.address <= address);
        match after.checked_sub(1).map(|index| &self.allocations[index]) {
            Some(found) => {
                let bytes = found.data.len();
                format!(", {} bytes into an allocation of {bytes} bytes", address - found.address)
            }
            None => String::new(),
        }
    }

    pub(super) fn at(&mut self, range: Range) -> &mut Allocation {
        &mut self.allocations[range.allocation]
    }

    /// A scalar as slots have it; of an `i128` the low half.
    #[inline]
    pub(super) fn load(&self, range: Range, scalar: Scalar) -> u64 {
        let data = &self.allocations[range.allocation].data[range.offset..];
        match scalar {
            Scalar::Bool => u64::from(u8::from_le_bytes(first(data)) != 0),
            Scalar::I8 => i8::from_le_bytes(first(data)) as u64,
            Scalar::I16 => i16::from_le_bytes(first(data)) as u64,
            Scalar::I32 => i32::from_le_bytes(first(data)) as u64,
            Scalar::U8 => u64::from(u8::from_le_bytes(first(data))),
            Scalar::U16 => u64::from(u16::from_le_bytes(first(data))),
            Scalar::U32 | Scalar::F32 => u64::from(u32::from_le_bytes(first(data))),
            Scalar::I64 | Scalar::U64 | Scalar::F64 | Scalar::I128 => u64::from_le_bytes(first(data)),
        }
    }

    /// Writes the low bits of a slot as a scalar; of an `i128` the low half.
    #[inline]
    pub(super) fn store(&mut self, range: Range, scalar: Scalar, bits: u64) {
        let data = &mut self.allocations[range.allocation].data[range.offset..];
        match scalar.bytes() {
            1 => set_first(data, (bits as u8).to_le_bytes()),
            2 => set_first(data, (bits as u16).to_le_bytes()),
            4 => set_first(data, (bits as u32).to_le_bytes()),
            _ => set_first(data, bits.to_le_bytes()),
        }
    }
}

/// The first bytes of data that has as many, as [`Memory::find`] has seen.
fn first<const N: usize>(data: &[u8]) -> [u8; N] {
    data.first_chunk().copied().unwrap_or([0; N])
}

fn set_first<const N: usize>(data: &mut [u8], bytes: [u8; N]) {
    if let Some(first) = data.first_chunk_mut() {
        *first = bytes;
    }
}
