//! A plan in parts of an operator in it that a hash of its keys chooses.
//!
//! The rows of the operator's inputs are brought to the host once, each with the number of its part. How many parts there are is found while
//! they are made: the first are as large as their rows alone allow, and where one does not fit, its rows are cut in two, and so are
//! those of all others that are as large, without being tried. So a budget half as large makes about twice as many parts, and what
//! is tried in vain is one part at each halving. Parts of about the same size are one program, as they are described by what holds
//! for all of them ([`CommonFacts`]).

use arrow::array::AsArray;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::{Expr, ExprKind, Function};
use kelpie_compile::plan::Plan;
use kelpie_compile::types::DataType;
use kelpie_device::DeviceError;

use super::parted::Parted;
use super::{known_columns, tried_in_vain};
use crate::delivery::Collected;
use crate::error::EngineError;
use crate::execution::Execution;
use crate::memory_fallback::MemoryFallback;
use crate::memory_source::MemorySource;
use crate::movement::Movement;
use crate::query::rows_of_a_stage;
use crate::result;
use crate::source::{CommonFacts, Expected};

/// Bits of the hash that chooses a part: there are no more parts than these tell apart.
pub(super) const PART_BITS: u32 = 16;
/// Bits by which rows are cut at first, at least.
const FIRST_BITS: u32 = 2;
/// Bytes of the batches whose rows of a part become one batch: then no text column of it has more than Arrow's offsets count.
const GATHERED_BYTES: usize = 1 << 30;
/// The greatest number of rows of a part is rounded up by at most two in so many, so that more parts are one program.
const SIZE_STEPS: u64 = 16;

/// Bits of the hash: of the `left` lowest ones, the upper `bits` choose a part, and those below have not been looked at.
#[derive(Debug, Clone, Copy)]
struct PartBits {
    left: u32,
    bits: u32,
}

impl PartBits {
    fn below(self) -> u32 {
        self.left - self.bits
    }

    fn part(self, chosen: i64) -> usize {
        (chosen >> self.below()) as usize & ((1 << self.bits) - 1)
    }
}

/// Parts that are being made.
struct Making<'p> {
    parted: &'p Parted<'p>,
    /// Of each input, what is known of each column.
    columns: Vec<Vec<Expected>>,
    /// The fewest bytes of rows of a part that did not fit.
    too_large: u64,
    parts: usize,
    in_vain: usize,
    rows: Vec<RecordBatch>,
}

impl Execution<'_> {
    /// Runs a plan for each part of the operator.
    pub(super) fn by_keys(&mut self, parted: &Parted<'_>) -> Result<Vec<RecordBatch>, EngineError> {
        let plan = parted.operator();
        let mut inputs = Vec::new();
        for (input, keys) in plan.inputs().into_iter().zip(parted.keys()) {
            let input = self.through_host(input)?;
            inputs.push(self.collect_stage(&with_part(&input, keys))?);
        }
        let parts = held_bytes(&inputs).div_ceil(self.device.memory().1.max(1));
        let bits = parts.next_power_of_two().trailing_zeros().clamp(FIRST_BITS, PART_BITS);
        let fields = plan.inputs().into_iter().map(|input| input.fields().len());
        let columns = inputs.iter().zip(fields).map(|(rows, count)| known_columns(rows, count)).collect();
        let (too_large, rows) = (u64::MAX, Vec::new());
        let mut making = Making { parted, columns, too_large, parts: 0, in_vain: 0, rows };
        self.cut(&inputs, PartBits { left: PART_BITS, bits }, &mut making)?;
        let Making { parts, in_vain, rows, .. } = making;
        let tried = tried_in_vain(in_vain);
        self.metrics.steps.push(format!("{parts} parts by keys{tried}"));
        Ok(rows)
    }

    /// Runs a plan for each part of some rows.
    fn cut(
        &mut self,
        inputs: &[Vec<RecordBatch>],
        bits: PartBits,
        making: &mut Making<'_>,
    ) -> Result<(), EngineError> {
        let divided = inputs.iter().map(|rows| Divided::new(rows, bits)).collect::<Result<Vec<_>, _>>()?;
        let common: Vec<CommonFacts> = divided
            .iter()
            .zip(&making.columns)
            .map(|(rows, columns)| CommonFacts { rows: rows.most_rows(), columns: columns.clone() })
            .collect();
        for part in 0..1 << bits.bits {
            let rows = divided.iter().map(|rows| rows.part(part)).collect::<Result<Vec<_>, _>>()?;
            if rows.iter().all(Vec::is_empty) {
                continue;
            }
            let bytes = held_bytes(&rows);
            if bytes < making.too_large || bits.below() == 0 {
                match self.run_part(making.parted, &rows, &common) {
                    Ok(rows) => {
                        making.parts += 1;
                        making.rows.extend(rows);
                        continue;
                    }
                    // Without rows to hold, less of them takes no less.
                    Err(EngineError::Device(DeviceError::OutOfMemory { .. }))
                        if bits.below() > 0 && bytes > 0 =>
                    {
                        making.in_vain += 1;
                        making.too_large = bytes;
                    }
                    Err(error) => return Err(error),
                }
            }
            let more = (bytes / making.too_large.max(1)).max(1).ilog2() + 1;
            let bits = PartBits { left: bits.below(), bits: more.min(bits.below()) };
            self.cut(&rows, bits, making)?;
        }
        Ok(())
    }

    /// Runs a plan where the inputs of the operator are such rows.
    fn run_part(
        &mut self,
        parted: &Parted<'_>,
        inputs: &[Vec<RecordBatch>],
        common: &[CommonFacts],
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let movement = Movement::of(MemoryFallback::Parts, &self.options, &self.device);
        let (first, pipelines) = (self.inputs.len(), self.metrics.pipelines.len());
        let mut scans = Vec::new();
        for (input, (rows, common)) in parted.operator().inputs().into_iter().zip(inputs.iter().zip(common)) {
            let fields = input.fields();
            let without_part: Vec<usize> = (0..fields.len()).collect();
            let rows = rows.iter().map(|batch| batch.project(&without_part));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            let source = MemorySource::new("rows", result::arrow_schema(&fields), rows);
            self.keep_source(source.with_common(common.clone()));
            scans.push(rows_of_a_stage(self.inputs.len() - 1, fields));
        }
        let plan = parted.over(scans);
        let mut out = Collected::default();
        let loaded = self.load(&plan, &movement);
        let outcome = loaded.and_then(|loaded| self.run_loaded(&plan, &loaded, movement, &mut out));
        self.inputs.truncate(first);
        if outcome.is_err() {
            self.metrics.pipelines.truncate(pipelines);
        }
        outcome.map(|()| out.batches)
    }
}

/// Rows with the number of their part as a last column.
fn with_part(input: &Plan, keys: &[Expr]) -> Plan {
    let fields = input.fields();
    let columns = fields.iter().enumerate();
    let columns = columns.map(|(index, field)| Expr::column(index, field.data_type.clone(), field.nullable));
    let kind = ExprKind::Function(Function::Part(PART_BITS), keys.to_vec());
    let part = Expr { kind, data_type: DataType::Int64, nullable: false };
    let exprs = columns.chain([part]).collect();
    let names = fields.into_iter().map(|field| field.name).chain(["part".into()]).collect();
    Plan::Project { input: Box::new(input.clone()), exprs, names }
}

/// Bytes of the rows that state is made of: those of the first input, which is the build side of a join. The others stream.
fn held_bytes(inputs: &[Vec<RecordBatch>]) -> u64 {
    let bytes = inputs.first().into_iter().flatten().map(RecordBatch::get_array_memory_size);
    bytes.fold(0, |all, more| all + more as u64)
}

/// Rows of an input by the part that they belong to.
struct Divided<'a> {
    runs: Vec<Run<'a>>,
}

/// Batches that follow each other, whose rows of a part become one batch.
struct Run<'a> {
    batches: Vec<&'a RecordBatch>,
    /// By part: of each row the batch, and its place there.
    places: Vec<Vec<(usize, usize)>>,
}

impl<'a> Divided<'a> {
    /// Divides rows by the number of their part, their last column.
    fn new(rows: &'a [RecordBatch], bits: PartBits) -> Result<Divided<'a>, EngineError> {
        let mut runs: Vec<Run<'a>> = Vec::new();
        let mut bytes = usize::MAX;
        for batch in rows {
            let chosen = batch.columns().last().and_then(|column| column.as_primitive_opt::<Int64Type>());
            let chosen =
                chosen.ok_or_else(|| EngineError::Internal("rows without the number of a part".into()))?;
            let more = batch.get_array_memory_size();
            if bytes.saturating_add(more) > GATHERED_BYTES {
                runs.push(Run { batches: Vec::new(), places: vec![Vec::new(); 1 << bits.bits] });
                bytes = 0;
            }
            bytes += more;
            let Some(run) = runs.last_mut() else { continue };
            let number = run.batches.len();
            run.batches.push(batch);
            for (row, chosen) in chosen.values().iter().enumerate() {
                run.places[bits.part(*chosen)].push((number, row));
            }
        }
        Ok(Divided { runs })
    }

    /// Rows of its greatest part, rounded up.
    fn most_rows(&self) -> u64 {
        let parts = self.runs.first().map_or(0, |run| run.places.len());
        let rows = |part: usize| self.runs.iter().map(|run| run.places[part].len() as u64).sum();
        let most: u64 = (0..parts).map(rows).max().unwrap_or(0);
        most.next_multiple_of((most / SIZE_STEPS).max(1).next_power_of_two())
    }

    /// The rows of a part.
    fn part(&self, part: usize) -> Result<Vec<RecordBatch>, EngineError> {
        let runs = self.runs.iter().filter(|run| !run.places[part].is_empty());
        let rows = runs.map(|run| interleave_record_batch(&run.batches, &run.places[part]));
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
