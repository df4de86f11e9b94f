//! The shape of a kernel's launches: how many threads a block has, how many blocks there are, and so how many rows a thread
//! sees. Code is generated for one shape, and what it proves from the shape holds in launches of that shape only: a thread's
//! sum has 4 bytes where so many rows cannot exceed them. So the shape is a value that is made once, goes with the code, and
//! is what the engine launches by: no other code knows how many blocks there are.

use kelpie_kir::Target;

/// Rows that a thread works on before it goes on to the grid's next rows: their loads hide each other's latency.
const ROWS_PER_THREAD: u32 = 4;
/// Rows that a CPU's worker should have, at least, for its start to pay.
const WORKER_ROWS: u64 = 16 << 10;
/// Bytes of shared memory that are left to counters of hash tables, eight a table.
const COUNTER_BYTES: u32 = 512;
/// Threads of a block, at most.
const MOST_THREADS: u32 = 1024;

/// What is asked of shapes. What is not asked follows from the target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ShapeChoices {
    /// Threads of a block.
    pub block_threads: Option<u32>,
    /// Blocks of a launch, at most.
    pub blocks: Option<u32>,
    /// Rows that a thread works on in one turn of the row loop, at most.
    pub thread_rows: Option<u32>,
    /// Blocks that are to be resident on a multiprocessor: the compiler uses no more registers than that leaves.
    pub resident: Option<u32>,
}

/// The shape of a kernel's launches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchShape {
    /// Threads of a block; a CPU's block is one worker.
    pub block_threads: u32,
    /// Threads that run in lock step: those of a warp, or all of a block that is smaller.
    pub lanes: u32,
    /// Rows that a thread works on in one turn of the row loop, at most.
    pub rows_per_thread: u32,
    /// Blocks of a launch, at most: as many as fill the device.
    pub most_blocks: u32,
    /// Rows for each block that is launched, but for the last one: fewer would not pay.
    pub block_rows: u64,
    /// Shared memory that a block may use, in bytes.
    pub shared_bytes: u32,
    /// Blocks that are to be resident on a multiprocessor, where the compiler is not free to choose.
    pub resident: Option<u32>,
}

impl LaunchShape {
    /// Bytes of shared memory for tables of an operator: some are left to counters of hash tables beside them.
    pub fn table_bytes(&self) -> u32 {
        self.shared_bytes - (self.shared_bytes / 16).min(COUNTER_BYTES)
    }

    /// The shape that suits most kernels of a device.
    pub fn of(target: &Target) -> LaunchShape {
        LaunchShape::with_threads(target, target.block_threads.max(1))
    }

    /// The shape of a device's launches that is asked for, or why there is no such shape.
    pub fn new(target: &Target, choices: &ShapeChoices) -> Result<LaunchShape, String> {
        let threads = choices.block_threads.unwrap_or(target.block_threads);
        let is_cpu = LaunchShape::of(target).is_serial();
        let is_whole = threads < target.lanes || threads.is_multiple_of(target.lanes.max(1));
        let reason = match threads {
            _ if is_cpu && threads != 1 => "a block of a CPU is one worker".to_string(),
            // What is generated for blocks of one thread is a CPU's worker.
            _ if !is_cpu && !(2..=MOST_THREADS).contains(&threads) => format!("not 2 to {MOST_THREADS}"),
            _ if !is_whole => format!("neither whole warps of {} nor less than one", target.lanes),
            _ => {
                let shape = LaunchShape::with_threads(target, threads);
                let most_blocks = choices.blocks.unwrap_or(shape.most_blocks).max(1);
                let rows_per_thread = choices.thread_rows.unwrap_or(shape.rows_per_thread).max(1);
                let resident = choices.resident;
                return Ok(LaunchShape { most_blocks, rows_per_thread, resident, ..shape });
            }
        };
        Err(format!("blocks of {threads} threads: {reason}"))
    }

    fn with_threads(target: &Target, threads: u32) -> LaunchShape {
        // As many threads as fill the device, in blocks of this size.
        let filling = u64::from(target.resident_blocks.max(1)) * u64::from(target.block_threads.max(1));
        LaunchShape {
            block_threads: threads,
            lanes: target.lanes.clamp(1, threads),
            rows_per_thread: ROWS_PER_THREAD,
            most_blocks: u32::try_from(filling / u64::from(threads)).unwrap_or(u32::MAX).max(1),
            block_rows: if threads == 1 { WORKER_ROWS } else { u64::from(threads) },
            shared_bytes: target.shared_bytes,
            resident: None,
        }
    }

    /// Whether a block is one thread: a CPU's worker, which takes rows as it comes to them.
    pub fn is_serial(&self) -> bool {
        self.block_threads == 1
    }

    /// Workers that take rows as they come to them: none where the grid strides over the rows.
    pub fn workers(&self) -> u32 {
        if self.is_serial() { self.most_blocks } else { 0 }
    }

    /// Warps of a block.
    pub fn warps(&self) -> u32 {
        self.block_threads.div_ceil(self.lanes)
    }

    /// Blocks of a launch over rows: as many as the rows can use, no more than fill the device.
    pub fn blocks(&self, rows: u64) -> u32 {
        let useful = rows.div_ceil(self.block_rows).max(1);
        u32::try_from(useful).unwrap_or(u32::MAX).min(self.most_blocks)
    }

    /// Rows that one thread of a launch of so many blocks over so many rows sees, at most.
    pub fn rows_seen(&self, rows: u64, blocks: u32) -> u64 {
        if self.is_serial() {
            return rows;
        }
        let at_once = u64::from(self.rows_per_thread);
        let turn =
            u64::from(blocks.max(1)).saturating_mul(u64::from(self.block_threads)).saturating_mul(at_once);
        rows.div_ceil(turn).max(1).saturating_mul(at_once)
    }

    /// Rows that one thread of any launch over no more than so many rows sees, at most.
    pub fn rows_of_thread(&self, rows: u64) -> u64 {
        // With fewer blocks than fill the device, each has `block_rows` at most.
        let few = self.rows_seen(rows.min(self.block_rows), 1);
        few.max(self.rows_seen(rows, self.most_blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows that a thread sees in a loop like that of a kernel, `per_turn` rows of a thread at a time: of all threads
    /// the most.
    fn most_seen(shape: &LaunchShape, rows: u64, blocks: u32, per_turn: u64) -> u64 {
        let (threads, blocks) = (u64::from(shape.block_threads), u64::from(blocks));
        let mut seen = vec![0; (threads * blocks) as usize];
        for row in 0..rows {
            // Blocks take pieces of `threads * per_turn` rows in turn; in a piece the threads stand side by side.
            let piece = row / (threads * per_turn);
            seen[((piece % blocks) * threads + row % threads) as usize] += 1;
        }
        seen.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn no_thread_sees_more_rows_than_is_promised() {
        for (lanes, threads, blocks) in [(1, 2, 1), (4, 8, 3), (4, 2, 5), (32, 64, 2), (32, 8, 7), (3, 9, 4)]
        {
            let target = Target::simt(lanes, lanes.max(2), 1 << 10, 4);
            let choices = ShapeChoices {
                block_threads: Some(threads),
                blocks: Some(blocks),
                ..ShapeChoices::default()
            };
            let shape = LaunchShape::new(&target, &choices).expect("a shape");
            for most in [0, 1, 7, 64, 100, 257, 1000] {
                let promised = shape.rows_of_thread(most);
                for rows in 0..=most {
                    let blocks = shape.blocks(rows);
                    assert!((1..=shape.most_blocks).contains(&blocks));
                    let bound = shape.rows_seen(rows, blocks);
                    assert!(bound <= promised, "{shape:?}: {rows} of {most} rows");
                    for per_turn in [1, u64::from(shape.rows_per_thread)] {
                        assert!(most_seen(&shape, rows, blocks, per_turn) <= bound, "{shape:?}: {rows} rows");
                    }
                }
            }
        }
    }

    #[test]
    fn the_bound_is_reached() {
        let target = Target::simt(4, 8, 1 << 10, 2);
        let shape = LaunchShape::of(&target);
        // 2 blocks of 8 threads of 4 rows: 64 rows a turn.
        assert_eq!((shape.rows_of_thread(640), most_seen(&shape, 640, 2, 4)), (40, 40));
        assert_eq!(shape.rows_of_thread(641), 44);
    }

    #[test]
    fn a_worker_may_see_all_rows() {
        let shape = LaunchShape::of(&Target::cpu(3));
        assert_eq!((shape.workers(), shape.rows_of_thread(1_000_000)), (3, 1_000_000));
        assert_eq!([0, 1, 16 << 10, (16 << 10) + 1, 1 << 30].map(|rows| shape.blocks(rows)), [1, 1, 1, 2, 3]);
    }

    #[test]
    fn blocks_fill_the_device_whatever_their_size() {
        let target = Target::simt(32, 256, 48 << 10, 1056);
        for (threads, lanes, warps, blocks) in
            [(8, 8, 1, 33_792), (32, 32, 1, 8448), (64, 32, 2, 4224), (256, 32, 8, 1056), (1024, 32, 32, 264)]
        {
            let choices = ShapeChoices { block_threads: Some(threads), ..ShapeChoices::default() };
            let shape = LaunchShape::new(&target, &choices).expect("a shape");
            assert_eq!((shape.lanes, shape.warps(), shape.most_blocks), (lanes, warps, blocks), "{threads}");
        }
    }

    #[test]
    fn shapes_that_there_are_not_say_why() {
        let why = |target: &Target, threads| {
            let choices = ShapeChoices { block_threads: Some(threads), ..ShapeChoices::default() };
            LaunchShape::new(target, &choices)
        };
        let (cpu, gpu) = (Target::cpu(2), Target::simt(32, 256, 48 << 10, 8));
        assert!(why(&cpu, 32).is_err_and(|why| why.contains("one worker")));
        assert!(why(&gpu, 1).is_err_and(|why| why.contains("not 2 to 1024")));
        assert!(why(&gpu, 2048).is_err());
        assert!(why(&gpu, 48).is_err_and(|why| why.contains("warps of 32")));
        assert!(why(&gpu, 24).is_ok());
    }
}
