//! How a pipeline's kernels are launched: threads of a block, rows of a thread, blocks. State does not depend on it, so each
//! pipeline chooses for itself, after its operators: what those keep in a block's memory has to fit.

use kelpie_kir::{Module, Target};

use super::Pipeline;
use super::kernel::Environment;
use super::row_loop::TurnRows;
use crate::context::Unsupported;
use crate::shape::{LaunchShape, ShapeChoices};
use crate::variant::axes::{BlockThreads, Blocks, ResidentBlocks, ThreadRows};
use crate::variant::{Site, Variant};

/// What a thread may bring to the sink beside the rows that the source gives it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MoreRows {
    /// One in each of so many turns.
    pub turns: u64,
    /// All that the other lanes of its warp have.
    pub of_warp: bool,
}

impl MoreRows {
    /// The same with those before the first row that is worked on: rows that are loaded together begin at multiples of their number.
    pub(super) fn and(self, rows: TurnRows) -> MoreRows {
        MoreRows { turns: self.turns + rows.asked().map_or(0, u64::from), ..self }
    }
}

impl Pipeline {
    /// An upper bound of the source's rows that one thread sees in launches of a shape, where its sums rely on one.
    pub(super) fn rows_of_thread(&self, shape: &LaunchShape) -> u64 {
        self.shared_out.map_or(u64::MAX, |rows| shape.rows_of_thread(rows))
    }

    /// An upper bound of the rows that one thread brings to the sink.
    pub(super) fn thread_bound(&self, shape: &LaunchShape, more: MoreRows) -> u64 {
        let Some(rows) = self.shared_out else { return self.bound };
        let own = shape.rows_of_thread(rows).saturating_add(more.turns);
        match more.of_warp {
            true => own.saturating_mul(shape.lanes.into()).min(self.bound),
            false => own,
        }
    }

    /// Whether its kernel can be launched in a shape; or why not.
    pub(super) fn fits(&self, target: &Target, choices: &ShapeChoices, more: MoreRows) -> Result<(), String> {
        let shape = LaunchShape::new(target, choices)?;
        self.sink.fits(&shape, self.thread_bound(&shape, more))
    }
}

/// Threads of an NVIDIA GPU's multiprocessor, on those since compute capability 8.0 that have fewest of them.
const MOST_RESIDENT_THREADS: u64 = 1536;

/// Threads of the largest block.
const LARGEST_BLOCK: u64 = 1024;

/// Threads that a multiprocessor of the NVIDIA GPUs for data centers has.
const RESIDENT_THREADS: u64 = 2048;

/// Chooses the shape of a pipeline's launches, in which a thread takes such rows in a turn, and may bring more. What is asked of the whole
/// program is no choice.
pub(super) fn choose(
    site: &Site<'_>,
    pipeline: &Pipeline,
    environment: &Environment<'_>,
    (rows, more): (TurnRows, MoreRows),
) -> Result<LaunchShape, Unsupported> {
    let Environment { target, shape: base, .. } = *environment;
    let asked =
        &ShapeChoices { thread_rows: rows.asked().or(environment.asked.thread_rows), ..*environment.asked };
    let (turn_rows, more_rows) = (rows, more.and(rows));
    // A kernel over rows of its own has one block's work or none of its shape.
    if pipeline.sink.own_rows().is_some() {
        return Ok(base.clone());
    }
    let mut chosen = *asked;
    let threads = BlockThreads(base.block_threads.into());
    if !base.is_serial() && asked.block_threads.is_none() && BlockThreads::ALL.contains(&threads) {
        let with = |threads: BlockThreads| ShapeChoices { block_threads: Some(threads.0 as u32), ..*asked };
        let fits = |threads: &BlockThreads| pipeline.fits(target, &with(*threads), more_rows).is_ok();
        let rule = threads_by_rule(base, pipeline, (threads, turn_rows), &fits);
        chosen = with(site.choose(rule, |threads| pipeline.fits(target, &with(threads), more_rows))?);
    }
    let rows = ThreadRows(base.rows_per_thread.into());
    if !base.is_serial()
        && turn_rows == TurnRows::Several
        && asked.thread_rows.is_none()
        && ThreadRows::ALL.contains(&rows)
    {
        let before = chosen;
        let with = |rows: ThreadRows| ShapeChoices { thread_rows: Some(rows.0 as u32), ..before };
        let rule = match pipeline.sink.thread_rows().map(ThreadRows) {
            Some(more) if pipeline.fits(target, &with(more), more_rows).is_ok() => {
                (more, "a block has more rows for each place that it writes to")
            }
            _ => (rows, "their loads hide each other's latency"),
        };
        chosen = with(site.choose(rule, |rows| pipeline.fits(target, &with(rows), more_rows))?);
    }
    if !base.is_serial() && asked.resident.is_none() {
        let rule = (ResidentBlocks(0), "the compiler weighs registers against threads");
        let blocks =
            site.choose(rule, |blocks| match chosen.block_threads.unwrap_or(base.block_threads) {
                threads if u64::from(threads) * blocks.0 > MOST_RESIDENT_THREADS => {
                    Err(format!("a multiprocessor has no more than {MOST_RESIDENT_THREADS} threads"))
                }
                _ => Ok(()),
            })?;
        chosen.resident = (blocks.0 > 0).then_some(blocks.0 as u32);
    }
    if asked.blocks.is_none() {
        let filling = LaunchShape::new(target, &chosen).map_err(Unsupported)?.most_blocks;
        let before = chosen;
        let with = |blocks: Blocks| ShapeChoices { blocks: Some(blocks_of(blocks, filling)), ..before };
        let fits = |blocks: Blocks| pipeline.fits(target, &with(blocks), more_rows).is_ok();
        let threads = chosen.block_threads.unwrap_or(base.block_threads);
        let rule = blocks_by_rule(base, pipeline.sink.block_bytes(), threads, &fits);
        chosen = with(site.choose(rule, |blocks| match blocks {
            Blocks::Double if base.is_serial() => Err("a CPU has no more workers".into()),
            _ => pipeline.fits(target, &with(blocks), more_rows),
        })?);
    }
    LaunchShape::new(target, &chosen).map_err(Unsupported)
}

/// Numbers of threads above the device's up to that at which the blocks that fit a multiprocessor's memory have all of its threads,
/// where each block needs so many bytes. On an H200 16,384 groups take 0.25 ms in blocks of 1,024 threads, and 5.9 in those of 64.
fn sharing(base: &LaunchShape, bytes: u64, least: BlockThreads) -> Vec<BlockThreads> {
    let blocks = u64::from(base.shared_bytes).checked_div(bytes).unwrap_or(u64::MAX).max(1);
    let wanted = RESIDENT_THREADS.div_ceil(blocks).next_power_of_two();
    BlockThreads::ALL.iter().copied().filter(|threads| threads.0 > least.0 && threads.0 <= wanted).collect()
}

/// How many threads the rule gives a block, of those that fit, where a device's has so many.
fn threads_by_rule(
    base: &LaunchShape,
    pipeline: &Pipeline,
    (threads, turn_rows): (BlockThreads, TurnRows),
    fits: &dyn Fn(&BlockThreads) -> bool,
) -> (BlockThreads, &'static str) {
    let bytes = pipeline.sink.block_bytes();
    if pipeline.sink.waits_at_the_end() {
        let most = BlockThreads::ALL.iter().rev().find(|threads| fits(threads));
        if let Some(most) = most.filter(|most| most.0 > threads.0) {
            return (*most, "blocks wait for each other's locks at the end: there are few");
        }
    }
    if let Some(more) = sharing(base, bytes, threads).into_iter().rev().find(fits) {
        return (more, "as few blocks as a multiprocessor has the memory for have all of its threads");
    }
    // Registers for several rows leave fewer warps to hide how long a table is cleared and added up.
    let largest = BlockThreads(LARGEST_BLOCK);
    if turn_rows == TurnRows::Prefetched && bytes > 0 && threads.0 < largest.0 && fits(&largest) {
        return (largest, "the tables of fewer blocks are cleared and added up");
    }
    (threads, "the device's")
}

/// How many blocks the rule launches, of so many threads and bytes each, of those that fit.
fn blocks_by_rule(
    base: &LaunchShape,
    bytes: u64,
    threads: u32,
    fits: &dyn Fn(Blocks) -> bool,
) -> (Blocks, &'static str) {
    match fewer_blocks(base, bytes, threads).filter(|fewer| fits(*fewer)) {
        Some(fewer) => (fewer, "as many as multiprocessors have the memory for"),
        None => (Blocks::Fill, "as many as run at a time"),
    }
}

/// How many of the blocks that fill a GPU by their threads have room for so many bytes each in the multiprocessors' memory, where it is half
/// of them or fewer. More would clear their tables, and add them up, when the others are through. Of small blocks there are always fewer.
fn fewer_blocks(base: &LaunchShape, bytes: u64, threads: u32) -> Option<Blocks> {
    if bytes == 0 || base.is_serial() || u64::from(threads) < RESIDENT_THREADS / 8 {
        return None;
    }
    let by_memory = (u64::from(base.shared_bytes) / bytes).max(1);
    let by_threads = RESIDENT_THREADS / u64::from(threads);
    let shares = [(Blocks::Half, 2), (Blocks::Quarter, 4), (Blocks::Eighth, 8)];
    shares.into_iter().rfind(|(_, share)| by_memory * share <= by_threads).map(|(blocks, _)| blocks)
}

fn blocks_of(blocks: Blocks, filling: u32) -> u32 {
    match blocks {
        Blocks::One => 1,
        Blocks::SixtyFourth => filling.div_ceil(64),
        Blocks::ThirtySecond => filling.div_ceil(32),
        Blocks::Sixteenth => filling.div_ceil(16),
        Blocks::Eighth => filling.div_ceil(8),
        Blocks::Quarter => filling.div_ceil(4),
        Blocks::Half => filling.div_ceil(2),
        Blocks::Fill => filling,
        Blocks::Double => filling.saturating_mul(2),
    }
}

/// Shared memory of a module's kernels, in bytes: the most that one takes.
pub(super) fn shared_bytes(module: &Module) -> u64 {
    let of = |kernel: &kelpie_kir::Function| kernel.shared_layout(&module.structs).bytes;
    module.kernels.iter().map(|(_, kernel)| of(kernel)).max().unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_blocks_as_memory_has_room_for() {
        let gpu = LaunchShape::of(&Target::simt(32, 256, 227 << 10, 1056));
        for (kilobytes, threads, expected) in [
            (0, 1024, None),
            (60, 1024, None),
            (114, 1024, Some(Blocks::Half)),
            (200, 1024, Some(Blocks::Half)),
            (70, 512, None),
            (100, 512, Some(Blocks::Half)),
            (200, 512, Some(Blocks::Quarter)),
            (200, 256, Some(Blocks::Eighth)),
            (200, 64, None),
        ] {
            assert_eq!(
                fewer_blocks(&gpu, kilobytes << 10, threads),
                expected,
                "{kilobytes} KB, {threads} threads"
            );
        }
        assert_eq!(fewer_blocks(&LaunchShape::of(&Target::cpu(2)), 1 << 20, 1), None);
    }
}
