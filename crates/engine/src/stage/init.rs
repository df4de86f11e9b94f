//! INIT: the states that are made empty before the first kernel of a run by a kernel, the page among them (`compile/pipeline/init`). Who clears one of them for the first time finds it empty.
//!
//! Large ones are left to fills of their own: those take as long as memory takes, and what runs before them may not need them.

use kelpie_compile::pipeline::InitStates;
use kelpie_compile::variant::axes::InitForm;

use super::run::Run;
use crate::error::EngineError;

/// Bytes of a state that is made empty with others, at most.
const MOST_BYTES: u64 = 1 << 20;
/// Bytes of all of them, at most.
const MOST_IN_ALL: u64 = 8 << 20;

impl Run<'_> {
    /// Makes states empty, before anything else is done. Where memory is short, they are made when they are needed.
    pub fn initialise(&mut self) -> Result<(), EngineError> {
        let InitStates { form, states } = &self.prepared.program.init;
        if *form == InitForm::Each || self.setting.movement.initial_bytes.is_some() {
            return Ok(());
        }
        let (mut chosen, mut all) = (Vec::new(), 0);
        for state in states.iter().copied().filter(|state| !self.store.page.has(*state)) {
            let bytes = self.store.bytes(state)? as u64;
            if bytes <= MOST_BYTES && all + bytes <= MOST_IN_ALL {
                chosen.push(state);
                all += bytes;
            }
        }
        if chosen.is_empty() {
            return Ok(());
        }
        let arrays = self.store.begin_empty(&chosen)?;
        let launches = self.primitives().init(&arrays)?;
        self.store.emptied(launches);
        Ok(())
    }
}
