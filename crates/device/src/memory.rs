//! Host memory of the CPU device: aligned, on huge pages where large, under a budget, with a list of recently freed blocks.
#![expect(unsafe_code, reason = "device memory is raw memory that kernels write to")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::access::{Access, Reading};
use crate::{Buffer, DeviceError, Memory};

/// Alignment of every block, in bytes: a cache line.
pub(crate) const ALIGNMENT: usize = 64;
/// Bytes after a buffer's end that may be read, as the target says.
const PADDING: usize = kelpie_kir::MARGIN_BYTES as usize;
/// Blocks from this size on are mapped from the system, on huge pages: random reads are twice as fast there.
const MAPPED_BYTES: usize = 4 << 20;
/// Size of a huge page.
#[cfg(target_os = "linux")]
const HUGE_PAGE: usize = 2 << 20;
/// Granularity of mapped blocks.
const PAGE: usize = 4096;
/// Budget where the system does not say how much memory it has.
const FALLBACK_LIMIT: u64 = 8 << 30;

/// A block of initialised memory, aligned to 64 bytes.
pub(crate) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block owns its memory; who writes to it through `as_ptr` is answerable for races.
unsafe impl Send for Block {}
// SAFETY: as above: `&Block` only gives out the address.
unsafe impl Sync for Block {}

impl Block {
    /// A zeroed block of at least `bytes` bytes, or `None` where the system has none.
    pub(crate) fn new(bytes: usize) -> Option<Block> {
        let bytes = Block::size_for(bytes)?;
        #[cfg(target_os = "linux")]
        if bytes >= MAPPED_BYTES {
            return map_huge(bytes).map(|start| Block { start, bytes });
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok()?;
        // SAFETY: `size_for` never gives 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Block { start, bytes })
    }

    /// A zeroed block whose pages are those of a file without a name in the folder for temporary files; `None` where
    /// neither disk nor system serve.
    #[cfg(target_os = "linux")]
    pub(crate) fn on_disk(bytes: usize) -> Option<Block> {
        use std::os::fd::AsRawFd;
        // Smaller blocks are never mapped.
        let bytes = Block::size_for(bytes.max(MAPPED_BYTES))?;
        let file = tempfile::tempfile().ok()?;
        // The space is taken now: a page that has no room later would kill the process.
        // SAFETY: the descriptor is open.
        if unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } != 0 {
            return None;
        }
        // SAFETY: a new mapping of our file at an address of the system's choice; the file outlives its descriptor.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        (start != libc::MAP_FAILED)
            .then(|| NonNull::new(start.cast()))
            .flatten()
            .map(|start| Block { start, bytes })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn on_disk(_: usize) -> Option<Block> {
        None
    }

    /// The size of a block that serves `bytes`: with padding, in units of cache lines or pages. `None` on overflow.
    fn size_for(bytes: usize) -> Option<usize> {
        let padded = bytes.checked_add(PADDING)?;
        let unit = if padded >= MAPPED_BYTES { PAGE } else { ALIGNMENT };
        let rounded = padded.checked_next_multiple_of(unit)?;
        (rounded <= isize::MAX as usize - (4 << 20)).then_some(rounded)
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if self.bytes >= MAPPED_BYTES {
            // SAFETY: exactly this range was mapped by `map_huge` and is not used any more.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
            return;
        }
        if let Ok(layout) = Layout::from_size_align(self.bytes, ALIGNMENT) {
            // SAFETY: allocated with this layout in `new`.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Maps fresh zeroed pages, aligned to a huge page, and asks for huge pages.
#[cfg(target_os = "linux")]
fn map_huge(bytes: usize) -> Option<NonNull<u8>> {
    let mapped = bytes.checked_add(HUGE_PAGE)?;
    // SAFETY: an anonymous private mapping at an address of the system's choice touches no existing memory.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    let base = base.cast::<u8>();
    let head = base.align_offset(HUGE_PAGE);
    let tail = mapped - head - bytes;
    // SAFETY: `head + bytes + tail` is the mapping; head and tail are whole pages (address, HUGE_PAGE and `bytes` are
    // multiples of a page), are unmapped once, and are never used. Advice cannot fail in a way that matters.
    unsafe {
        let start = base.add(head);
        if head > 0 {
            libc::munmap(base.cast(), head);
        }
        if tail > 0 {
            libc::munmap(start.add(bytes).cast(), tail);
        }
        libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE);
        NonNull::new(start)
    }
}

/// Asks the system for huge pages under the room of a vector that is about to be filled: a page costs more to touch for the first time
/// than the bytes that it takes to fill it, and a huge one costs less than the 512 that it stands for. Room of less than two of them stays
/// as it is.
pub fn prefer_huge_pages<T>(room: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        let spare = room.spare_capacity_mut();
        let bytes = std::mem::size_of_val(spare);
        let start = spare.as_mut_ptr().cast::<u8>();
        let head = start.align_offset(PAGE);
        if bytes < 2 * HUGE_PAGE || head > bytes {
            return;
        }
        let whole = (bytes - head) / PAGE * PAGE;
        // SAFETY: `head + whole` bytes are within the vector's room. Advice on how its pages are to be backed changes nothing of what is
        // in them, and cannot fail in a way that matters.
        unsafe { libc::madvise(start.add(head).cast(), whole, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = room;
}

/// A budget with the blocks that were freed recently.
pub(crate) struct HostPool {
    /// Tells it from every other pool and account.
    pub(crate) id: usize,
    device: String,
    default_limit: u64,
    state: Mutex<PoolState>,
}

/// A share of a pool's budget, for those who are to have no more.
#[derive(Debug)]
pub(crate) struct Account {
    /// As of a [`HostPool`].
    pub(crate) id: usize,
    limit: u64,
    used: AtomicU64,
}

/// A number that no pool or account had before.
fn next_id() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Account {
    pub(crate) fn new(limit: u64) -> Arc<Account> {
        Arc::new(Account { id: next_id(), limit, used: AtomicU64::new(0) })
    }

    /// Bytes in use and the limit.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.limit)
    }

    /// Takes so many bytes; what was in use where they are too many.
    fn charge(&self, bytes: u64) -> Result<(), u64> {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map(|_| ())
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

struct PoolState {
    limit: u64,
    /// Bytes of blocks that buffers own.
    used: u64,
    /// Bytes of blocks outside of the budget.
    unbudgeted: u64,
    /// Bytes of the blocks in `free`.
    idle: u64,
    /// Mapped blocks that were freed, by size: their pages need no new page faults.
    free: BTreeMap<usize, Vec<Block>>,
}

impl HostPool {
    pub(crate) fn new(device: impl Into<String>, limit: u64) -> Arc<HostPool> {
        let state = PoolState { limit, used: 0, unbudgeted: 0, idle: 0, free: BTreeMap::new() };
        Arc::new(HostPool {
            id: next_id(),
            device: device.into(),
            default_limit: limit,
            state: Mutex::new(state),
        })
    }

    /// Bytes in use and the budget.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.used, state.limit)
    }

    pub(crate) fn set_limit(&self, limit: Option<u64>) {
        let mut state = self.state.lock();
        state.limit = limit.unwrap_or(self.default_limit);
        let dropped = state.shrink_idle(0);
        drop(state);
        drop(dropped);
    }

    /// A buffer of `bytes` bytes with undefined (but initialised) content, which counts in an account too where one is given.
    pub(crate) fn allocate_from(
        self: &Arc<Self>,
        account: Option<&Arc<Account>>,
        bytes: usize,
    ) -> Result<Buffer, DeviceError> {
        let out_of = |(used, limit): (u64, u64)| DeviceError::OutOfMemory {
            device: self.device.clone(),
            requested: bytes as u64,
            used,
            limit,
        };
        let size = Block::size_for(bytes).ok_or_else(|| out_of(self.usage()))?;
        let mut state = self.state.lock();
        let reused = if size >= MAPPED_BYTES { state.take_idle(size) } else { None };
        let charged = reused.as_ref().map_or(size, Block::bytes) as u64;
        if state.used.checked_add(charged).is_none_or(|sum| sum > state.limit) {
            return Err(out_of((state.used, state.limit)));
        }
        if let Some(account) = account
            && let Err(used) = account.charge(charged)
        {
            state.put_back(reused);
            return Err(out_of((used, account.limit)));
        }
        state.used += charged;
        let dropped = state.shrink_idle(0);
        drop(state);
        drop(dropped);
        let is_new = reused.is_none();
        let Some(block) = reused.or_else(|| Block::new(bytes)) else {
            self.state.lock().used -= charged;
            account.inspect(|account| account.release(charged));
            return Err(out_of(self.usage()));
        };
        let mut memory = HostMemory::new(block, bytes, true, self);
        memory.is_zero = AtomicBool::new(is_new);
        memory.account = account.cloned();
        Ok(Arc::new(memory))
    }

    /// A buffer outside of the budget; beyond the device's default budget its pages are those of a file, so that the system
    /// can write them to disk.
    pub(crate) fn allocate_free(self: &Arc<Self>, bytes: usize) -> Result<Buffer, DeviceError> {
        let unbudgeted = self.state.lock().unbudgeted.saturating_add(bytes as u64);
        let block = if unbudgeted <= self.default_limit { Block::new(bytes) } else { Block::on_disk(bytes) };
        let block = block.ok_or_else(|| DeviceError::OutOfMemory {
            device: format!("{}: host memory", self.device),
            requested: bytes as u64,
            used: unbudgeted - bytes as u64,
            limit: self.default_limit,
        })?;
        self.state.lock().unbudgeted += block.bytes() as u64;
        Ok(Arc::new(HostMemory::new(block, bytes, false, self)))
    }

    fn release(&self, block: Block, account: Option<&Account>) {
        let bytes = block.bytes() as u64;
        account.inspect(|account| account.release(bytes));
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(bytes);
        let mut dropped = Vec::new();
        // What somebody may have little of is not kept beyond a share of that.
        let fits = account.is_none_or(|account| state.idle.saturating_add(bytes) <= account.limit / 4);
        if block.bytes() >= MAPPED_BYTES && state.idle_limit() >= bytes && fits {
            dropped = state.shrink_idle(bytes);
            state.put_back(Some(block));
        } else {
            dropped.push(block);
        }
        drop(state);
        // Unmapping is slow: outside the lock.
        drop(dropped);
    }
}

impl PoolState {
    /// Idle blocks may take a quarter of the budget, and never make the whole exceed it.
    fn idle_limit(&self) -> u64 {
        (self.limit / 4).min(self.limit.saturating_sub(self.used))
    }

    /// The smallest idle block of at least `size` bytes that wastes less than a quarter and stays in the budget.
    fn take_idle(&mut self, size: usize) -> Option<Block> {
        let most = size.saturating_add(size / 4);
        let room = self.limit.saturating_sub(self.used);
        let (&found, _) = self.free.range(size..=most).next().filter(|(bytes, _)| **bytes as u64 <= room)?;
        let blocks = self.free.get_mut(&found)?;
        let block = blocks.pop();
        if blocks.is_empty() {
            self.free.remove(&found);
        }
        self.idle -= block.as_ref().map_or(0, |block| block.bytes() as u64);
        block
    }

    /// Keeps a block for those to come.
    fn put_back(&mut self, block: Option<Block>) {
        if let Some(block) = block {
            self.idle += block.bytes() as u64;
            self.free.entry(block.bytes()).or_default().push(block);
        }
    }

    /// Removes the largest idle blocks until `more` bytes fit; the caller drops them.
    fn shrink_idle(&mut self, more: u64) -> Vec<Block> {
        let limit = self.idle_limit().saturating_sub(more);
        let mut dropped = Vec::new();
        while self.idle > limit {
            let Some((_, mut blocks)) = self.free.pop_last() else { break };
            self.idle -= blocks.iter().map(|block| block.bytes() as u64).sum::<u64>();
            dropped.append(&mut blocks);
        }
        dropped
    }
}

/// A buffer in host memory.
pub(crate) struct HostMemory {
    /// `Some` until dropped.
    block: Option<Block>,
    bytes: usize,
    /// It counts in the budget.
    is_charged: bool,
    pool: Arc<HostPool>,
    account: Option<Arc<Account>>,
    /// Held for their bytes by those who write from the host, and by all who read and by launches: so uploads and fills meet
    /// neither each other nor a kernel. What kernels of one launch do to each other is theirs to order, by atomics.
    access: Access,
    /// Nobody has written to it since the system gave it out: what sets it to zero would make its pages, one after the other, as workers do
    /// side by side.
    is_zero: AtomicBool,
}

impl HostMemory {
    fn new(block: Block, bytes: usize, is_charged: bool, pool: &Arc<HostPool>) -> HostMemory {
        let (block, pool) = (Some(block), Arc::clone(pool));
        let (access, is_zero) = (Access::default(), AtomicBool::new(false));
        HostMemory { block, bytes, is_charged, pool, account: None, access, is_zero }
    }

    /// Keeps uploads and fills of the host away from the memory of a launch. Once a buffer and in one order, so that no two
    /// launches wait for each other's writers.
    pub(crate) fn in_launch(mut memory: Vec<&HostMemory>) -> Vec<Reading<'_>> {
        memory.sort_unstable_by_key(|memory| memory.as_ptr() as usize);
        memory.dedup_by_key(|memory| memory.as_ptr() as usize);
        let reading: Vec<Reading<'_>> = memory.iter().map(|memory| memory.access.read()).collect();
        // Kernels may write what they read. A fill sees this, as it waits for the launch or came before it.
        memory.iter().for_each(|memory| memory.is_zero.store(false, Ordering::Relaxed));
        reading
    }

    /// The host memory behind a buffer of `pool`.
    pub(crate) fn of<'a>(buffer: &'a Buffer, pool: &Arc<HostPool>) -> Result<&'a HostMemory, DeviceError> {
        let memory = buffer.as_any().downcast_ref::<HostMemory>();
        memory.filter(|memory| Arc::ptr_eq(&memory.pool, pool)).ok_or_else(|| DeviceError::Failed {
            device: pool.device.clone(),
            operation: "access to a buffer".into(),
            message: "the buffer belongs to another device".into(),
        })
    }

    /// Address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.block.as_ref().map_or(std::ptr::null_mut(), Block::as_ptr)
    }

    fn check(&self, operation: &str, offset: usize, bytes: usize) -> Result<(), DeviceError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes && self.block.is_some() => Ok(()),
            _ => Err(DeviceError::Failed {
                device: self.pool.device.clone(),
                operation: operation.into(),
                message: format!("{bytes} bytes at {offset} of a buffer of {} bytes", self.bytes),
            }),
        }
    }

    pub(crate) fn upload(&self, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.check("upload", offset, data.len())?;
        let _alone = self.access.write(offset..offset + data.len());
        self.is_zero.store(false, Ordering::Relaxed);
        // SAFETY: checked against the block; `data` is borrowed, so it does not overlap memory that only pointers reach; the
        // lock keeps everybody else away from these bytes.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.as_ptr().add(offset), data.len()) };
        Ok(())
    }

    pub(crate) fn download(&self, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.check("download", offset, data.len())?;
        let _with_readers = self.access.read();
        // SAFETY: checked against the block, which was initialised by the system; see `upload` for overlap. Nobody uploads or
        // fills meanwhile, and no launch writes what its query reads before it has ended.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr().add(offset), data.as_mut_ptr(), data.len()) };
        Ok(())
    }

    pub(crate) fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.check("fill", offset, bytes)?;
        let _alone = self.access.write(offset..offset + bytes);
        if value == 0 && self.is_zero.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.is_zero.store(false, Ordering::Relaxed);
        // SAFETY: checked against the block; the lock keeps everybody else away from these bytes.
        unsafe { std::ptr::write_bytes(self.as_ptr().add(offset), value, bytes) };
        Ok(())
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} bytes at {:p})", self.bytes, self.as_ptr())
    }
}

impl Memory for HostMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        match self.block.take() {
            Some(block) if self.is_charged => self.pool.release(block, self.account.as_deref()),
            Some(block) => {
                let mut state = self.pool.state.lock();
                state.unbudgeted = state.unbudgeted.saturating_sub(block.bytes() as u64);
            }
            None => {}
        }
    }
}

impl fmt::Debug for HostPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = self.usage();
        write!(f, "HostPool({used} of {limit} bytes)")
    }
}

/// Physical memory that this process may use, in bytes: the machine's, or its control group's where that is less.
pub(crate) fn physical_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    machine.into_iter().chain(group).min()
}

/// The budget where none is set: 70 % of physical memory.
pub(crate) fn default_limit() -> u64 {
    physical_bytes().map_or(FALLBACK_LIMIT, |bytes| bytes / 10 * 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HostPool {
        fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Buffer, DeviceError> {
            self.allocate_from(None, bytes)
        }
    }

    #[test]
    fn buffers_are_aligned_and_padded() {
        let pool = HostPool::new("test", 1 << 30);
        for bytes in [0, 1, 63, 64, 4095, 4096, (4 << 20) - 64, 4 << 20, (4 << 20) + 1, 9_999_999] {
            let buffer = pool.allocate(bytes).unwrap();
            let memory = HostMemory::of(&buffer, &pool).unwrap();
            assert_eq!(memory.bytes(), bytes);
            assert_eq!(memory.as_ptr() as usize % ALIGNMENT, 0);
            if bytes >= 4 << 20 {
                assert_eq!(memory.as_ptr() as usize % (2 << 20), 0);
            }
            // SAFETY: 64 bytes past the end are promised to be readable.
            let past = unsafe { memory.as_ptr().add(bytes + 63).read() };
            assert_eq!(past, 0);
            memory.fill(0, bytes, 0xa5).unwrap();
            let mut back = vec![0; bytes];
            memory.download(0, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == 0xa5));
        }
        assert_eq!(pool.usage().0, 0);
    }

    #[test]
    fn accesses_outside_are_errors() {
        let pool = HostPool::new("test", 1 << 20);
        let buffer = pool.allocate(10).unwrap();
        let memory = HostMemory::of(&buffer, &pool).unwrap();
        assert!(memory.upload(8, &[1, 2]).is_ok());
        for (offset, bytes) in [(8, 3), (11, 0), (usize::MAX, 1), (usize::MAX, 0)] {
            assert!(memory.fill(offset, bytes, 0).is_err(), "{bytes} at {offset}");
        }
        assert!(HostMemory::of(&buffer, &HostPool::new("other", 1)).is_err());
    }

    #[test]
    fn zeros_are_written_where_something_else_was() {
        let pool = HostPool::new("test", 64 << 20);
        let is_zero = |buffer: &Buffer| {
            let mut back = vec![1; 5 << 20];
            HostMemory::of(buffer, &pool).unwrap().download(0, &mut back).unwrap();
            back.iter().all(|byte| *byte == 0)
        };
        for change in ["upload", "fill", "launch"] {
            let buffer = pool.allocate(5 << 20).unwrap();
            let memory = HostMemory::of(&buffer, &pool).unwrap();
            memory.fill(0, 5 << 20, 0).unwrap();
            assert!(is_zero(&buffer), "{change}");
            match change {
                "upload" => memory.upload(4 << 20, &[7; 9]).unwrap(),
                "fill" => memory.fill(3, 4 << 20, 9).unwrap(),
                _ => drop(HostMemory::in_launch(vec![memory])),
            }
            // SAFETY: within the block, which nobody else has.
            unsafe { memory.as_ptr().add(77).write(5) };
            assert!(!is_zero(&buffer), "{change}");
            memory.fill(0, 5 << 20, 0).unwrap();
            assert!(is_zero(&buffer), "{change}");
            // The next buffer has this block's memory.
            memory.fill(9, 7, 1).unwrap();
        }
    }

    /// Each upload and fill is seen as a whole, whoever else writes and reads.
    #[test]
    fn uploads_and_fills_of_one_buffer_do_not_mix() {
        let pool = HostPool::new("test", 1 << 20);
        let buffer = pool.allocate(1 << 12).unwrap();
        let memory = HostMemory::of(&buffer, &pool).unwrap();
        memory.fill(0, 1 << 12, 0).unwrap();
        std::thread::scope(|scope| {
            for value in 1..4 {
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        memory.fill(0, 1 << 12, value).unwrap();
                        memory.upload(0, &[value + 10; 1 << 12]).unwrap();
                    }
                });
            }
            let mut seen = [0; 1 << 12];
            for _ in 0..2_000 {
                memory.download(0, &mut seen).unwrap();
                assert!(seen.iter().all(|byte| *byte == seen[0]));
            }
        });
    }

    #[test]
    fn a_launch_keeps_writers_away() {
        let pool = HostPool::new("test", 1 << 20);
        let buffer = pool.allocate(8).unwrap();
        let memory = HostMemory::of(&buffer, &pool).unwrap();
        memory.fill(0, 8, 1).unwrap();
        let launch = HostMemory::in_launch(vec![memory, memory]);
        // Once a buffer. That readers keep writers away is tested where they meet.
        assert_eq!(memory.access.readers(), 1);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| memory.fill(0, 8, 2));
            drop(launch);
            writer.join().unwrap().unwrap();
        });
        assert_eq!(memory.access.readers(), 0);
        let mut seen = [0; 8];
        memory.download(0, &mut seen).unwrap();
        assert_eq!(seen, [2; 8]);
    }

    #[test]
    fn memory_outside_of_the_budget_goes_to_disk_where_it_is_much() {
        let pool = HostPool::new("test", 8 << 20);
        pool.set_limit(Some(1 << 20));
        let buffers: Vec<_> = (0..4).map(|_| pool.allocate_free(3 << 20).unwrap()).collect();
        assert_eq!(pool.usage(), (0, 1 << 20));
        for (index, buffer) in buffers.iter().enumerate() {
            let memory = HostMemory::of(buffer, &pool).unwrap();
            assert_eq!(memory.as_ptr() as usize % ALIGNMENT, 0);
            memory.fill(1, (3 << 20) - 1, index as u8 + 1).unwrap();
        }
        for (index, buffer) in buffers.iter().enumerate() {
            let mut ends = [9; 2];
            let memory = HostMemory::of(buffer, &pool).unwrap();
            memory.download((3 << 20) - 2, &mut ends).unwrap();
            assert_eq!(ends, [index as u8 + 1; 2]);
        }
        drop(buffers);
        assert_eq!(pool.state.lock().unbudgeted, 0);
        assert!(pool.allocate_free(usize::MAX).is_err());
    }

    #[test]
    fn an_account_has_its_share_and_takes_nothing_from_others() {
        let pool = HostPool::new("test", 64 << 20);
        let (small, other) = (Account::new(8 << 20), Account::new(8 << 20));
        let buffer = pool.allocate_from(Some(&small), 6 << 20).unwrap();
        let error = pool.allocate_from(Some(&small), 6 << 20).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfMemory { limit, .. } if limit == 8 << 20), "{error}");
        let beside = (pool.allocate_from(Some(&other), 6 << 20).unwrap(), pool.allocate(40 << 20).unwrap());
        // The pool's own budget counts for all of them.
        let (second, third) = (Account::new(1 << 30), pool.usage().0);
        assert!(pool.allocate_from(Some(&second), 20 << 20).is_err());
        assert_eq!((second.usage().0, pool.usage().0), (0, third));
        drop(buffer);
        assert_eq!(small.usage(), (0, 8 << 20));
        let again = pool.allocate_from(Some(&small), 7 << 20).unwrap();
        drop((again, beside));
        assert_eq!((small.usage().0, other.usage().0, pool.usage().0), (0, 0, 0));
    }

    #[test]
    fn the_budget_is_kept_and_freed_blocks_come_back() {
        let pool = HostPool::new("test", 64 << 20);
        let first = pool.allocate(10 << 20).unwrap();
        let address = HostMemory::of(&first, &pool).unwrap().as_ptr() as usize;
        let error = pool.allocate(60 << 20).unwrap_err().to_string();
        assert!(error.contains("out of memory"), "{error}");
        assert!(pool.allocate(usize::MAX).is_err());
        drop(first);
        assert_eq!(pool.usage().0, 0);
        let again = pool.allocate(10 << 20).unwrap();
        assert_eq!(HostMemory::of(&again, &pool).unwrap().as_ptr() as usize, address, "from the free list");
        drop(again);
        let large = pool.allocate(60 << 20).unwrap();
        assert_eq!(pool.state.lock().idle, 0, "idle blocks make room");
        pool.set_limit(Some(1 << 20));
        assert!(pool.allocate(1).is_err());
        drop(large);
        assert_eq!(pool.state.lock().idle, 0);
        pool.set_limit(None);
        assert_eq!(pool.usage(), (0, 64 << 20));
    }
}
