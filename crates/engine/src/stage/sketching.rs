//! Sizes of hash tables by a sketch, before the first row of the first run comes to them: of keys of which nothing is known. Later
//! runs begin with the sizes that the first one has left.

use kelpie_compile::pipeline::{CompiledPipeline, Growth, SketchedTable, Sketching, Task, When};

use super::occasion::{Occasion, Verdict};
use super::run::Run;
use crate::error::EngineError;
use crate::sketch::{self, Seen};

/// The share of the device's memory that a table may take because of an estimate.
const MEMORY_SHARE: u64 = 4;

impl Run<'_> {
    /// Whether the sizes of a pipeline's hash tables are to be estimated before it is launched.
    pub fn wants_sketch(&self, at: &Occasion<'_>) -> bool {
        self.store.is_new()
            && !self.is_deferred()
            && !self.sketched.contains(&at.index)
            && has_sketch(at.pipeline)
    }

    /// Estimates the sizes of the hash tables into which the pipeline is about to put the first entries, and makes room. What makes
    /// the sketch fail would make the pipeline fail.
    pub fn sketch(&mut self, sketching: &Sketching, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        if !self.wants_sketch(at) || at.at_hand.rows < sketching.states.least_rows.max(1) {
            return Ok(Verdict::Done);
        }
        self.sketched.insert(at.index);
        let Some(kernel) = &self.prepared.kernels[at.index][at.turn].sketch else {
            return Err(EngineError::Internal("a sketch without a kernel".into()));
        };
        let kernel = kernel.get(self.setting.stream)?;
        let states = &sketching.states;
        self.store.clear(states.rows)?;
        for table in &states.tables {
            self.store.clear(table.registers)?;
        }
        let makes_text = sketching.kernel.makes_text();
        let mark = makes_text.then(|| self.store.heap_mark()).transpose()?;
        let rows = at.rows.clone();
        let (mut seen, mut looked_at) = (Vec::new(), 0);
        for half in at.at_hand.halves() {
            for piece in half {
                looked_at += piece.end - piece.start;
                at.rows = piece;
                if let Some(morsels) = states.morsels {
                    self.store.clear(morsels)?;
                }
                let verdict = self.launch_kernel((kernel.as_ref(), &sketching.kernel), at)?;
                at.metrics.sketches += 1;
                // Text that was made is not looked at any more.
                mark.map(|mark| self.store.rewind_heap(mark)).transpose()?;
                match verdict {
                    Verdict::Done => {}
                    // Too little memory for text: the pipeline makes room for its own, and its tables grow as they may.
                    Verdict::Grow => {
                        at.rows = rows;
                        return Ok(Verdict::Done);
                    }
                    other => return Ok(other),
                }
            }
            seen.push(self.seen(sketching)?);
        }
        at.rows = rows;
        self.make_room_for(sketching, (&seen, looked_at), at)?;
        Ok(Verdict::Done)
    }

    /// What was seen up to now, of each table.
    fn seen(&self, sketching: &Sketching) -> Result<Vec<Seen>, EngineError> {
        let rows = self.store.read_word(sketching.states.rows)?;
        let of = |table: &SketchedTable| {
            let mut bytes = vec![0; SketchedTable::REGISTERS as usize * 4];
            self.store.read_small(table.registers, &mut bytes)?;
            let (words, _) = bytes.as_chunks();
            let registers: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            Ok(Seen { rows, keys: sketch::keys(&registers) })
        };
        sketching.states.tables.iter().map(of).collect()
    }

    /// Gives tables the sizes that follow from what was seen of the first half of the rows that were looked at, and of all of them.
    fn make_room_for(
        &mut self,
        sketching: &Sketching,
        (seen, looked_at): (&[Vec<Seen>], u64),
        at: &mut Occasion<'_>,
    ) -> Result<(), EngineError> {
        let [half, whole] = seen else { return Ok(()) };
        for ((table, half), whole) in sketching.states.tables.iter().zip(half).zip(whole) {
            let Growth::Table(growth) = self.prepared.program.classes[table.class].growth else { continue };
            let share = at.at_hand.rows as f64 / looked_at.max(1) as f64;
            let rows = (whole.rows as f64 * share) as u64;
            let estimate = sketch::estimate(*half, *whole, rows);
            if at.pipeline.produced == Some(growth.count) {
                at.metrics.groups_estimated = Some(estimate.keys);
            }
            let most = self.setting.stream.device().memory().1 / MEMORY_SHARE;
            let slots = growth.fitting(estimate.at_most);
            // What is a power of two stays one.
            let fits = |slots: u64| slots.saturating_mul(self.store.element_bytes(table.class)) <= most;
            if slots > self.store.capacity(table.class) && fits(slots) {
                self.store.resize(table.class, slots);
                self.clear_again(table.class)?;
            }
        }
        Ok(())
    }
}

/// Whether the sizes of a pipeline's hash tables may be estimated before each of its launches.
fn has_sketch(pipeline: &CompiledPipeline) -> bool {
    pipeline.variant.tasks(When::BeforeLaunch).any(|task| matches!(task, Task::Sketch(_)))
}
