//! A result that leaves the device while the stage still runs: how it is cut into blocks, and when its rows go out.

use std::time::Instant;

use kelpie_compile::context::Status;
use kelpie_compile::pipeline::{CompiledPipeline, Growth, Purpose};
use kelpie_device::DeviceKind;
use kelpie_kir::{Expr, Function, Literal, Module, Stmt, uses};

use super::drained::Draining;
use super::occasion::Occasion;
use super::run::Run;
use crate::delivery::{Collected, RowReceiver, take_cut};
use crate::error::EngineError;
use crate::result::{Dictionary, Reading, ResultReader};

/// Rows of a block of the source of a result that is made in blocks, at first: at least and at most.
const BLOCK_ROWS: (u64, u64) = (1 << 12, 1 << 18);
/// The same on a GPU, at most, where a launch has to fill the device. On an H200 a projection of 60 million rows takes 3.5 ms in blocks of
/// 2^18 rows, and 0.8 at once; where blocks bring 64 MB at a time, the host takes longer to take them than that spares.
const GPU_BLOCK_ROWS: u64 = 1 << 20;
/// Rows of such a block, at least, where each makes many.
const LEAST_BLOCK_ROWS: u64 = 64;

impl Run<'_> {
    /// Whether a chain's last pipeline appends to the result, in any order and without an end.
    pub(super) fn appends(&self, chain: &[CompiledPipeline]) -> bool {
        let program = &self.prepared.program;
        let is_ordered = program.is_ordered();
        let delivers = chain.last().is_some_and(|last| last.produced == Some(program.output.count));
        delivers && !is_ordered && program.output.limit.is_none()
    }

    /// Brings the rows of the result that are complete to the host, or out.
    pub(super) fn drain(&mut self, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        let rows = std::mem::take(&mut self.drained.waiting);
        self.drained.rows += rows;
        match self.drained.draining {
            Draining::Check => {}
            Draining::Deliver => self.drained.reading += self.read_result(rows, out)?,
            Draining::Hold => {
                let mut held = Collected::default();
                let reading = self.read_result(rows, &mut held)?;
                self.drained.reading += reading;
                self.drained.held_bytes += reading.bytes;
                self.drained.parts.append(&mut held.batches);
                if self.drained.held_bytes > out.batches().held_bytes {
                    self.release(out)?;
                }
            }
        }
        Ok(())
    }

    /// Holds no more rows: they go out where nothing after them can ask for DataFusion's own operators, else they are
    /// dropped until that is known. Errors of the query itself are no reason to wait: there is no other answer.
    fn release(&mut self, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        if self.group.len() == 1 && self.group.iter().all(|pipeline| !may_fall_back(pipeline)) {
            self.drained.draining = Draining::Deliver;
            return self.hand_over(out);
        }
        self.drained.draining = Draining::Check;
        self.drained.parts.clear();
        Ok(())
    }

    /// Hands the rows that are held to `out`.
    pub(super) fn hand_over(&mut self, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        for part in std::mem::take(&mut self.drained.parts) {
            if out.is_full() {
                break;
            }
            take_cut(out, part)?;
        }
        Ok(())
    }

    /// Hands the first `rows` rows of the result that lie on the device to `out`.
    fn read_result(&self, rows: u64, out: &mut dyn RowReceiver) -> Result<Reading, EngineError> {
        self.with_reader(|reader| reader.deliver(rows, out))
    }

    fn with_reader<R>(&self, read: impl FnOnce(ResultReader<'_>) -> R) -> R {
        read(ResultReader {
            layout: &self.prepared.program.output,
            schema: &self.drained.schema,
            read: &|parts| self.store.read_ranges(parts),
            bytes: &|state| self.store.existing_bytes(state),
            dictionary: &|scan, column| self.dictionary(scan, column),
            is_far: self.setting.stream.device().kind() != DeviceKind::Cpu,
        })
    }

    /// The offsets and bytes of a dictionary's entries.
    fn dictionary(&self, scan: usize, column: usize) -> Result<Dictionary, EngineError> {
        let resident = self.setting.column(scan, column)?;
        let missing = || EngineError::Internal(format!("column {column} has no dictionary"));
        let (offsets, bytes) = resident.dictionary.as_ref().ok_or_else(missing)?;
        let (mut ends, mut texts) = (vec![0; offsets.bytes() & !3], vec![0; bytes.bytes()]);
        // Not in this query's stream: a dictionary may lie in memory of the host.
        let device = self.setting.stream.device();
        device.download(offsets, 0, &mut ends)?;
        device.download(bytes, 0, &mut texts)?;
        Ok(Dictionary::new(ends, texts))
    }

    /// Hands all that is left of the result to `out`.
    pub(super) fn finish(&mut self, out: &mut dyn RowReceiver) -> Result<Reading, EngineError> {
        self.hand_over(out)?;
        if self.drained.is_decided {
            out.come_in_order();
        }
        if self.drained.left_out > 0 {
            // Whoever takes the rows is told once: a stage that comes to something else than was foreseen runs again.
            self.settle()?;
        }
        out.leave_out(self.drained.left_out);
        if let Some(wanted) = out.kept() {
            let start = Instant::now();
            if let Some(rows) = self.keep(&wanted)? {
                self.kept = rows.rows;
                out.take_kept(rows);
                let time_ns = start.elapsed().as_nanos() as u64;
                return Ok(Reading { time_ns, ..Reading::default() });
            }
        }
        let mut reading = self.with_reader(|reader| reader.deliver_all(out))?;
        reading += self.drained.reading;
        Ok(reading)
    }

    /// Room after a launch of the last pipeline of a group, whose rows are all to be made again. Whether so much of it is
    /// needed that the result is made in blocks: then there is no more room than before.
    pub(super) fn grow_or_cut(
        &mut self,
        at: &mut Occasion<'_>,
        blocks: usize,
        (appends, frees_text): (bool, bool),
    ) -> Result<(), EngineError> {
        let before = self.store.capacities().to_vec();
        let cuts = appends && self.drained.block_rows.is_none();
        let asks_much = cuts && frees_text && self.asks_for_much_text()?;
        if !asks_much {
            self.grow(at, blocks)?;
        }
        if asks_much || (cuts && self.result_bytes() > self.drained.most_bytes) {
            let rows = self.result_class().map_or(0, |class| before[class]);
            let is_on_gpu = self.setting.stream.device().kind() == DeviceKind::Cuda;
            let (rows, most) = if is_on_gpu { (rows, GPU_BLOCK_ROWS) } else { (rows / 4, BLOCK_ROWS.1) };
            self.drained.block_rows = Some(rows.clamp(BLOCK_ROWS.0, most));
            self.restore_result(&before);
        }
        Ok(())
    }

    /// Whether the heap that the last launch asked for is larger than a result may be.
    fn asks_for_much_text(&self) -> Result<bool, EngineError> {
        Ok(self.store.heap_asked()? > self.drained.most_bytes)
    }

    /// As [`Self::grow_or_cut`], for one block whose rows have no room even where no others are. Gives the rows of smaller
    /// blocks, where there should be such.
    pub(super) fn grow_or_shorten(
        &mut self,
        at: &mut Occasion<'_>,
        frees_text: bool,
    ) -> Result<Option<u64>, EngineError> {
        let before = self.store.capacities().to_vec();
        let shorter = (at.rows.end - at.rows.start) / 4;
        let is_long = shorter >= LEAST_BLOCK_ROWS;
        let asks_much = is_long && frees_text && self.asks_for_much_text()?;
        if !asks_much {
            self.grow(at, 1)?;
        }
        if !asks_much && (!is_long || self.result_bytes() <= self.drained.most_bytes) {
            return Ok(None);
        }
        self.restore_result(&before);
        self.drained.block_rows = Some(shorter);
        Ok(Some(shorter))
    }

    /// Bytes of the states of the result, as large as they are to be.
    fn result_bytes(&self) -> u64 {
        let states = self.prepared.program.states.iter();
        let states = states.filter(|state| state.purpose == Purpose::Output);
        states
            .map(|state| self.store.capacity(state.class).saturating_mul(u64::from(state.element_bytes)))
            .sum()
    }

    fn restore_result(&mut self, capacities: &[u64]) {
        let states = &self.prepared.program.states;
        let of_result = states.iter().filter(|state| state.purpose == Purpose::Output);
        let classes: Vec<usize> = of_result.map(|state| state.class).collect();
        classes.into_iter().for_each(|class| self.store.resize(class, capacities[class]));
    }

    /// The class of the result's rows.
    fn result_class(&self) -> Option<usize> {
        let count = self.prepared.program.output.count;
        self.prepared.program.classes.iter().position(|class| class.growth == Growth::Counted(count))
    }

    /// Rows of the result for which there is room.
    pub(super) fn result_capacity(&self) -> u64 {
        self.result_class().map_or(u64::MAX, |class| self.store.capacity(class))
    }
}

/// Whether a pipeline's kernels may report anything but that they need more room or that the query fails.
fn may_fall_back(pipeline: &CompiledPipeline) -> bool {
    pipeline.variants().any(|variant| variant.counting().is_some() || reports_other(&variant.kernel.module))
}

fn reports_other(module: &Module) -> bool {
    let mut functions = module.functions.iter().chain(module.kernels.iter());
    functions.any(|(_, function)| uses::any_stmt(&function.body, &mut |stmt| reports_such(function, stmt)))
}

fn reports_such(function: &Function, stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Report { code } | Stmt::Trap { code } => {
            let Expr::Literal(Literal::Int(_, code)) = function.values[*code].expr else { return true };
            let status = u32::try_from(code).ok().and_then(Status::from_code);
            matches!(status, None | Some(Status::Fallback | Status::NotUnique))
        }
        _ => false,
    }
}
