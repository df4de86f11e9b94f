//! Device memory: an arena of small blocks, and a pool of freed ones by size class, under a budget.
//!
//! Every operation of this device waits until it is done, or its query holds the buffer until it is. So a buffer that is
//! dropped is in use nowhere, and its block can be given out again at once.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use parking_lot::{Mutex, MutexGuard};

use super::arena::Arena;
use super::driver::Context;
use super::stream::Pinned;
use crate::{DeviceError, Memory};

/// Readable bytes after every buffer.
const PADDING: usize = 64;
/// The driver's own alignment.
const SMALLEST: usize = 512;
/// Blocks up to this size come from the arena, while it has room: columns are larger, and most tables that rows are looked up in are not.
const LARGEST_OF_ARENA: usize = 8 << 20;
/// Bytes of the arena, but no more than this share of the budget.
const ARENA_BYTES: u64 = 512 << 20;
const ARENA_SHARE: u64 = 16;

/// The pool of one device.
#[derive(Debug)]
pub struct Pool {
    pub context: Arc<Context>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of the blocks that buffers hold.
    used: u64,
    /// Bytes of the blocks that wait in `free`, and of the arena's free ranges.
    retained: u64,
    limit: u64,
    default_limit: u64,
    /// Freed blocks by size.
    free: BTreeMap<usize, Vec<CUdeviceptr>>,
    /// Of which small blocks are cut; its free bytes are among those that wait.
    arena: Option<Arena>,
    /// Bytes of pinned buffers.
    pinned: u64,
}

/// A buffer of device memory, or of pinned host memory, which kernels address too.
#[derive(Debug)]
pub struct CudaMemory {
    pool: Arc<Pool>,
    pointer: CUdeviceptr,
    bytes: usize,
    place: Place,
    /// Held by who accesses memory of the host from the host.
    access: Mutex<()>,
}

#[derive(Debug)]
enum Place {
    /// A block of this size of the pool.
    Device(usize),
    Host(Pinned),
}

impl Memory for CudaMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CudaMemory {
    /// The device address.
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// The bytes at `offset`, where they are the host's.
    pub fn on_host(&self, offset: usize) -> Option<*mut u8> {
        match &self.place {
            Place::Device(_) => None,
            Place::Host(pinned) => Some(pinned.address().wrapping_add(offset)),
        }
    }

    /// Keeps other threads of the host away from memory of the host.
    pub fn lock(&self) -> MutexGuard<'_, ()> {
        self.access.lock()
    }

    /// Whether it is memory of this pool's device.
    pub fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        match self.place {
            Place::Device(block) => {
                state.used -= block as u64;
                state.retained += block as u64;
                state.give(self.pointer, block);
            }
            Place::Host(_) => state.pinned -= self.bytes as u64,
        }
    }
}

/// The size of the block for a buffer: an eighth of a power of two, so that at most an eighth is wasted and freed
/// blocks are found again.
fn block_size(bytes: usize) -> Option<usize> {
    let wanted = bytes.checked_add(PADDING)?.max(SMALLEST);
    let step = (wanted.checked_next_power_of_two()? / 16).max(SMALLEST);
    wanted.checked_next_multiple_of(step)
}

impl Pool {
    /// A pool with a budget of nine tenths of the memory that is free now.
    pub fn new(context: Arc<Context>) -> Result<Pool, DeviceError> {
        context.enter()?;
        let (free, _) = context.check("asking for free memory", result::mem_get_info())?;
        let limit = free as u64 / 10 * 9;
        let state = State { limit, default_limit: limit, ..State::default() };
        Ok(Pool { context, state: Mutex::new(state) })
    }

    /// Bytes in use and the budget.
    pub fn memory(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.used, state.limit)
    }

    /// Sets the budget; `None` for the default, which is also the most.
    pub fn set_limit(&self, limit: Option<u64>) {
        let mut state = self.state.lock();
        state.limit = limit.unwrap_or(u64::MAX).min(state.default_limit);
    }

    /// A buffer with undefined content.
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Result<CudaMemory, DeviceError> {
        self.context.enter()?;
        let mut state = self.state.lock();
        let block = match block_size(bytes) {
            Some(block) if state.used.saturating_add(block as u64) <= state.limit => block,
            _ => return Err(self.out_of_memory(bytes, &state)),
        };
        let (pointer, block) = match self.cut(bytes, &mut state).or_else(|| state.take(block)) {
            Some(taken) => taken,
            None => (self.allocate_block(block, bytes, &mut state)?, block),
        };
        state.used += block as u64;
        let access = Mutex::default();
        Ok(CudaMemory { pool: self.clone(), pointer, bytes, place: Place::Device(block), access })
    }

    /// A block of the arena with its size, for small buffers while there is room. The context is current.
    fn cut(&self, bytes: usize, state: &mut State) -> Option<(CUdeviceptr, usize)> {
        let block =
            Arena::block_size(bytes.checked_add(PADDING)?).filter(|block| *block <= LARGEST_OF_ARENA)?;
        if state.arena.is_none() {
            let all = ARENA_BYTES.min(state.limit / ARENA_SHARE) as usize;
            if all < LARGEST_OF_ARENA || state.used + state.retained + all as u64 > state.limit {
                return None;
            }
            // SAFETY: the context is current.
            let start = unsafe { result::malloc_sync(all) }.ok()?;
            state.arena = Some(Arena::new(start, all));
            state.retained += all as u64;
        }
        let pointer = state.arena.as_mut()?.take(block)?;
        state.retained -= block as u64;
        Some((pointer, block))
    }

    /// A buffer of pinned host memory, outside of the budget.
    pub fn allocate_host(self: &Arc<Self>, bytes: usize) -> Result<CudaMemory, DeviceError> {
        let limit = crate::memory::default_limit();
        let pinned = self.state.lock().pinned;
        if pinned.saturating_add(bytes as u64) > limit {
            return Err(self.no_host_memory(bytes, pinned, limit));
        }
        self.context.enter()?;
        // What the driver says is that pages are short, in one way or another.
        let memory = Pinned::new(&self.context, bytes.saturating_add(PADDING).max(SMALLEST))
            .map_err(|_| self.no_host_memory(bytes, pinned, limit))?;
        self.state.lock().pinned += bytes as u64;
        let pointer = memory.address() as CUdeviceptr;
        let access = Mutex::default();
        Ok(CudaMemory { pool: self.clone(), pointer, bytes, place: Place::Host(memory), access })
    }

    fn no_host_memory(&self, bytes: usize, used: u64, limit: u64) -> DeviceError {
        let device = format!("{}: pinned host memory", self.context.name);
        DeviceError::OutOfMemory { device, requested: bytes as u64, used, limit }
    }

    fn allocate_block(
        &self,
        block: usize,
        bytes: usize,
        state: &mut State,
    ) -> Result<CUdeviceptr, DeviceError> {
        if state.used + state.retained + block as u64 > state.limit {
            self.release_free(state);
        }
        // SAFETY: the context is current.
        if let Ok(pointer) = unsafe { result::malloc_sync(block) } {
            return Ok(pointer);
        }
        // Others may use the device as well; give back what waits before giving up.
        self.release_free(state);
        // SAFETY: the context is current.
        match unsafe { result::malloc_sync(block) } {
            Ok(pointer) => Ok(pointer),
            Err(error) if error.0 == cudarc::driver::sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(self.out_of_memory(bytes, state))
            }
            Err(error) => self.context.check("an allocation", Err(error)),
        }
    }

    fn out_of_memory(&self, bytes: usize, state: &State) -> DeviceError {
        DeviceError::OutOfMemory {
            device: self.context.name.clone(),
            requested: bytes as u64,
            used: state.used,
            limit: state.limit,
        }
    }

    /// Gives every freed block back to the driver, and the arena if nothing is in it. The context is current.
    fn release_free(&self, state: &mut State) {
        for pointer in std::mem::take(&mut state.free).into_values().flatten() {
            // SAFETY: the block came from `malloc_sync`, and no buffer holds it.
            let _ = unsafe { result::free_sync(pointer) };
        }
        state.retained = 0;
        if let Some(arena) = state.arena.take_if(|arena| arena.is_empty()) {
            // SAFETY: as above; no buffer holds a block of it.
            let _ = unsafe { result::free_sync(arena.start()) };
        }
        state.retained = state.arena.as_ref().map_or(0, |arena| arena.free_bytes() as u64);
    }
}

impl State {
    /// A freed block of exactly this class, with its size.
    fn take(&mut self, block: usize) -> Option<(CUdeviceptr, usize)> {
        let blocks = self.free.get_mut(&block)?;
        let pointer = blocks.pop()?;
        if blocks.is_empty() {
            self.free.remove(&block);
        }
        self.retained -= block as u64;
        Some((pointer, block))
    }

    /// Takes a block back.
    fn give(&mut self, pointer: CUdeviceptr, block: usize) {
        match self.arena.as_mut().filter(|arena| arena.has(pointer)) {
            Some(arena) => arena.give(pointer, block),
            None => self.free.entry(block).or_default().push(pointer),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            let mut state = std::mem::take(self.state.get_mut());
            self.release_free(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_waste_at_most_an_eighth_beyond_the_padding() {
        for bytes in (0..40)
            .map(|shift| 1usize << shift)
            .flat_map(|power| [power - 1, power, power + 1, power * 5 / 4])
        {
            let block = block_size(bytes).unwrap();
            assert!(block >= bytes + PADDING && block.is_multiple_of(SMALLEST), "{bytes}");
            assert!(block <= (bytes + PADDING + SMALLEST) * 9 / 8, "{bytes}: {block}");
            assert_eq!(block_size(block - PADDING), Some(block), "a class holds itself");
        }
        assert_eq!(block_size(usize::MAX), None);
    }
}
