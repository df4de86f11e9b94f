//! A plan in two or four parts of an operator in it, each of which reads the inputs once more.
//!
//! To bring rows to the host by their parts takes as long as three times reading them ([`super::by_keys`]). Two parts that each read
//! everything and keep their half of the keys take at most twice the time of one. So that is the first step below what fits as a whole;
//! from more than four parts on, rows are brought to the host.

use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind, Function};
use kelpie_compile::plan::Plan;
use kelpie_compile::types::{DataType, Literal};
use kelpie_device::DeviceError;

use super::by_keys::PART_BITS;
use super::parted::Parted;
use super::tried_in_vain;
use crate::delivery::Collected;
use crate::error::EngineError;
use crate::execution::Execution;
use crate::memory_fallback::MemoryFallback;
use crate::movement::Movement;

/// Bits of the hash of keys by which inputs are cut while they are read again.
const SCAN_BITS: u32 = 2;

/// Keys of which the lowest `bits` of their hash are `number`.
#[derive(Debug, Clone, Copy)]
struct ScanPart {
    bits: u32,
    number: i64,
}

/// The parts of a plan so far.
#[derive(Default)]
struct Scanned {
    rows: Vec<RecordBatch>,
    parts: usize,
    in_vain: usize,
}

impl Execution<'_> {
    /// Runs a plan for each part of the operator, whose inputs are read for each; `None` where four parts are too few, or what is read
    /// again may not be the same rows.
    pub(super) fn by_scans(&mut self, parted: &Parted<'_>) -> Result<Option<Vec<RecordBatch>>, EngineError> {
        if !parted.operator().inputs().into_iter().all(is_the_same_again) {
            return Ok(None);
        }
        let mut scanned = Scanned::default();
        for number in 0..2 {
            if !self.scan_part(parted, ScanPart { bits: 1, number }, &mut scanned)? {
                return Ok(None);
            }
        }
        let tried = tried_in_vain(scanned.in_vain);
        self.metrics.steps.push(format!("{} parts by keys that each read the input{tried}", scanned.parts));
        Ok(Some(scanned.rows))
    }

    /// Runs a plan for a part, or for the two halves of it where it does not fit; whether all of it is done.
    fn scan_part(
        &mut self,
        parted: &Parted<'_>,
        part: ScanPart,
        scanned: &mut Scanned,
    ) -> Result<bool, EngineError> {
        let sides = parted.operator().inputs().into_iter().zip(parted.keys());
        let rows = |(input, keys): (&Plan, &Vec<Expr>)| Plan::Filter {
            input: Box::new(input.clone()),
            predicate: is_in(part, keys),
        };
        let of_part = parted.over(sides.map(rows).collect());
        let movement = Movement::of(MemoryFallback::Parts, &self.options, &self.device);
        let (pipelines, mut out) = (self.metrics.pipelines.len(), Collected::default());
        let loaded = self.load(&of_part, &movement);
        match loaded.and_then(|loaded| self.run_loaded(&of_part, &loaded, movement, &mut out)) {
            Ok(()) => {
                scanned.parts += 1;
                scanned.rows.append(&mut out.batches);
                Ok(true)
            }
            Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => {
                self.metrics.pipelines.truncate(pipelines);
                scanned.in_vain += 1;
                let ScanPart { bits, number } = part;
                // Where even the first part does not fit, others will not either.
                if bits == SCAN_BITS {
                    return Ok(false);
                }
                for number in [number, number + (1 << bits)] {
                    if !self.scan_part(parted, ScanPart { bits: bits + 1, number }, scanned)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a plan gives the same rows whenever it is run: sums of floats need not be the same to the last bit, nor are the rows of a limit.
fn is_the_same_again(plan: &Plan) -> bool {
    let is_plain = matches!(
        plan,
        Plan::Scan(_) | Plan::Filter { .. } | Plan::Project { .. } | Plan::Join(_) | Plan::Union { .. }
    );
    is_plain && plan.inputs().into_iter().all(is_the_same_again)
}

/// Whether the keys of a row are of a part.
fn is_in(part: ScanPart, keys: &[Expr]) -> Expr {
    let of = |kind, data_type| Expr { kind, data_type, nullable: false };
    let number = |value: i64| Box::new(Expr::literal(Literal::Int(value.into()), DataType::Int64));
    let hash = of(ExprKind::Function(Function::Part(PART_BITS), keys.to_vec()), DataType::Int64);
    // Parts are numbers from 0 on, so the remainder is what the lowest bits are.
    let lowest = ExprKind::Arithmetic(ArithmeticOp::Remainder, Box::new(hash), number(1 << part.bits));
    let lowest = Box::new(of(lowest, DataType::Int64));
    of(ExprKind::Compare(CompareOp::Eq, lowest, number(part.number)), DataType::Boolean)
}
