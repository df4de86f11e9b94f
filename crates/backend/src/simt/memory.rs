//! Memory of the interpreter: allocations at addresses that are far from each other, so that a stray access hits none.

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
    pub(super) fn find(&mut self, address: u64, bytes: u32) -> Option<Range> {
        let within = |allocation: &Allocation| {
            let offset = address.checked_sub(allocation.address)?;
            let end = offset.checked_add(u64::from(bytes))?;
            (end <= allocation.data.len() as u64).then_some(offset as usize)
        };
        if let Some(offset) = self.allocations.get(self.hint).and_then(within) {
            return Some(Range { allocation: self.hint, offset });
        }
        let after = self.allocations.partition_point(|allocation| allocation.address <= address);
        let index = after.checked_sub(1)?;
        let offset = within(&self.allocations[index])?;
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

    /// Little-endian bits of `bytes` bytes: 1, 2, 4, 8 or 16.
    pub(super) fn load(&self, range: Range, bytes: u32) -> u128 {
        let data = &self.allocations[range.allocation].data[range.offset..];
        match bytes {
            1 => data.first().map_or(0, |byte| u128::from(*byte)),
            2 => data.first_chunk().map_or(0, |chunk| u128::from(u16::from_le_bytes(*chunk))),
            4 => data.first_chunk().map_or(0, |chunk| u128::from(u32::from_le_bytes(*chunk))),
            8 => data.first_chunk().map_or(0, |chunk| u128::from(u64::from_le_bytes(*chunk))),
            _ => data.first_chunk().map_or(0, |chunk| u128::from_le_bytes(*chunk)),
        }
    }

    pub(super) fn store(&mut self, range: Range, bytes: u32, bits: u128) {
        let data = &mut self.allocations[range.allocation].data[range.offset..][..bytes as usize];
        data.copy_from_slice(&bits.to_le_bytes()[..bytes as usize]);
    }
}
