//! The state buffers of a running stage: their capacities, how they grow, and reading them.

use std::sync::Arc;

use kelpie_compile::pipeline::{CompiledPipeline, Growth, Program};
use kelpie_device::{Buffer, DeviceError, Download};

use super::Movement;
use super::run::Run;
use crate::error::{EngineError, FallbackReason};

/// Elements that a state keeps free a CPU worker, beside a quarter of what it held: a worker may leave a part of a chunk of
/// places unused (`table::rows`).
const FITTING_SLACK: u64 = 1 << 10;

impl Run<'_> {
    /// Gives the classes their size that follow from what ran before.
    pub fn size(&mut self, pipeline: &CompiledPipeline) -> Result<(), EngineError> {
        for &class in &pipeline.sizes {
            if let Growth::Sized(counter) = self.prepared.program.classes[class].growth {
                let slots = self.read_word(counter)?.saturating_mul(2).max(16).next_power_of_two();
                self.resize(class, slots);
            }
        }
        Ok(())
    }

    pub fn resize(&mut self, class: usize, capacity: u64) {
        if self.capacities[class] == capacity {
            return;
        }
        self.capacities[class] = capacity;
        for (state, declared) in self.prepared.program.states.iter().enumerate() {
            if declared.class == class {
                self.buffers[state] = None;
            }
        }
    }

    /// The capacities that the state in use needs, with room for a different order of the same rows. Those of classes that
    /// follow from others stay.
    pub fn fitting(&self) -> Result<Vec<u64>, EngineError> {
        let mut capacities = self.capacities.clone();
        let target = self.device.target();
        let workers = if target.block_threads == 1 { u64::from(target.resident_blocks) } else { 0 };
        let slack = (workers + 1) * FITTING_SLACK;
        for (class, capacity) in self.prepared.program.classes.iter().zip(&mut capacities) {
            let fits = match class.growth {
                Growth::Fixed | Growth::Sized(_) => continue,
                Growth::Table(counter) => {
                    self.read_word(counter)?.saturating_mul(4).max(64).checked_next_power_of_two()
                }
                Growth::Counted(counter) => {
                    let used = self.read_word(counter)?;
                    Some(used.saturating_add(used / 4).saturating_add(slack))
                }
            };
            *capacity = fits.map_or(*capacity, |fits| fits.min(*capacity));
        }
        Ok(capacities)
    }

    pub fn clear(&mut self, states: &[usize]) -> Result<(), EngineError> {
        for state in states {
            let buffer = self.buffer(*state)?;
            self.setting.stream.fill(&buffer, 0, self.state_bytes(*state)?, 0)?;
        }
        Ok(())
    }

    /// Takes a larger heap for text where the last launch asked for more than there is; whether it did. A kernel asks only
    /// where its own text passes the end: no launch begins with a heap that is overdrawn.
    pub fn grow_heap(&mut self) -> Result<bool, EngineError> {
        self.heap.grow(self.device, self.setting.cache)
    }

    /// Makes room after a launch that lacked it; `blocks`: how many may want as much of it as the one that ran.
    pub fn grow(&mut self, pipeline: &CompiledPipeline, blocks: usize) -> Result<(), EngineError> {
        let mut grown = self.grow_heap()?;
        // Later blocks want room too; workers of a CPU have stopped when there was none.
        let is_partial = blocks > 1 || self.device.target().block_threads == 1;
        for &class in &pipeline.grows {
            let capacity = self.capacities[class];
            let needed = match self.prepared.program.classes[class].growth {
                Growth::Fixed | Growth::Sized(_) => continue,
                // Another table of the pipeline may be the one that is full.
                Growth::Table(count) if self.read_word(count)? < capacity / 2 => continue,
                Growth::Table(_) => capacity.saturating_mul(4),
                Growth::Counted(counter) => match self.read_word(counter)? {
                    counted if counted > capacity && is_partial => counted.max(capacity.saturating_mul(2)),
                    counted => counted,
                },
            };
            if needed > capacity {
                self.resize(class, needed);
                grown = true;
            }
        }
        match grown {
            true => Ok(()),
            false => {
                Err(EngineError::Internal(format!("{} asks for more state, but has enough", pipeline.name)))
            }
        }
    }

    pub fn state_bytes(&self, state: usize) -> Result<usize, EngineError> {
        let declared = &self.prepared.program.states[state];
        self.capacities[declared.class]
            .checked_mul(u64::from(declared.element_bytes))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| {
                let (used, limit) = self.device.memory();
                let device = format!("{}: state {}", self.device.name(), declared.name);
                DeviceError::OutOfMemory { device, requested: u64::MAX, used, limit }.into()
            })
    }

    pub fn buffer(&mut self, state: usize) -> Result<Buffer, EngineError> {
        if let Some(buffer) = &self.buffers[state] {
            return Ok(Arc::clone(buffer));
        }
        let buffer = self.allocate(self.state_bytes(state)?)?;
        self.buffers[state] = Some(Arc::clone(&buffer));
        Ok(buffer)
    }

    /// The first bytes of each of several states, with one wait.
    pub fn read_states(&self, parts: &[(usize, usize)]) -> Result<Vec<Vec<u8>>, EngineError> {
        let read = parts.iter().map(|(_, bytes)| Run::host_bytes(*bytes));
        let mut read = read.collect::<Result<Vec<_>, _>>()?;
        let mut downloads = Vec::new();
        for ((state, _), data) in parts.iter().zip(&mut read) {
            if let Some(buffer) = &self.buffers[*state] {
                downloads.push(Download { buffer, offset: 0, data });
            }
        }
        self.setting.stream.download_many(&mut downloads)?;
        Ok(read)
    }

    /// Host memory for a part of a state.
    fn host_bytes(bytes: usize) -> Result<Vec<u8>, EngineError> {
        let what = "a state that is brought to the host";
        let mut data: Vec<u8> = Vec::new();
        data.try_reserve_exact(bytes)
            .map_err(|_| FallbackReason::HostMemory { bytes: bytes as u64, what })?;
        data.extend(std::iter::repeat_n(0, bytes));
        Ok(data)
    }

    pub fn read_word(&self, state: usize) -> Result<u64, EngineError> {
        let mut bytes = [0; 8];
        if let Some(buffer) = &self.buffers[state] {
            self.setting.stream.download(buffer, 0, &mut bytes)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    /// Device memory.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, EngineError> {
        Ok(self.setting.cache.allocate(self.device, bytes.max(16))?)
    }
}

/// Where capacities start: at what is known to fit, else at what the program says, but no more bytes than the movement
/// allows where less may do.
pub fn initial(program: &Program, movement: &Movement, learned: Option<Vec<u64>>) -> Vec<u64> {
    if let Some(learned) = learned {
        return learned;
    }
    let element_bytes = |class: usize| {
        let of_class = program.states.iter().filter(|state| state.class == class);
        of_class.map(|state| u64::from(state.element_bytes)).sum::<u64>().max(1)
    };
    let classes = program.classes.iter().enumerate();
    let initial = classes.map(|(index, class)| match (class.growth, movement.initial_bytes) {
        (Growth::Counted(_), Some(most)) => class.initial.min(most / element_bytes(index)).max(1),
        (Growth::Table(_), Some(most)) => {
            let slots = (most / element_bytes(index)).max(64);
            class.initial.min(slots.next_power_of_two() / 2).max(64)
        }
        _ => class.initial,
    });
    initial.collect()
}

#[cfg(test)]
mod tests {
    use super::{EngineError, FallbackReason, Run};

    #[test]
    fn what_the_host_has_no_memory_for_is_a_reason_to_fall_back() {
        assert_eq!(Run::host_bytes(3).expect("three bytes"), [0; 3]);
        let error = Run::host_bytes(isize::MAX as usize).expect_err("no host has this");
        assert!(matches!(error, EngineError::Fallback(FallbackReason::HostMemory { .. })), "{error}");
    }
}
