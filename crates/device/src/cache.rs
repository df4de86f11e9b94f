//! A cache of compiled modules in memory.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use kelpie_kir::Module;
use parking_lot::Mutex;

use crate::DeviceError;

/// Compiled forms of the modules used last. Equal modules share one, which is made once even where several threads
/// ask at the same time; different modules are compiled side by side.
#[derive(Debug)]
pub(crate) struct ModuleCache<T> {
    capacity: usize,
    state: Mutex<State<T>>,
}

type Slot<T> = Arc<OnceLock<Result<Arc<T>, DeviceError>>>;

#[derive(Debug)]
struct State<T> {
    entries: HashMap<Arc<Module>, (Slot<T>, u64)>,
    /// Counts uses; the entry with the smallest is evicted first.
    clock: u64,
}

impl<T> ModuleCache<T> {
    pub(crate) fn new(capacity: usize) -> ModuleCache<T> {
        ModuleCache { capacity, state: Mutex::new(State { entries: HashMap::new(), clock: 0 }) }
    }

    /// The compiled form of `module`; made by `compile` where it is not cached. Errors are not kept.
    pub(crate) fn get_or_compile(
        &self,
        module: &Module,
        compile: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<Arc<T>, DeviceError> {
        let slot = self.slot(module);
        let result = slot.get_or_init(|| compile().map(Arc::new)).clone();
        if result.is_err() {
            let mut state = self.state.lock();
            if state.entries.get(module).is_some_and(|(known, _)| Arc::ptr_eq(known, &slot)) {
                state.entries.remove(module);
            }
        }
        result
    }

    fn slot(&self, module: &Module) -> Slot<T> {
        let mut state = self.state.lock();
        state.clock += 1;
        let now = state.clock;
        if let Some((slot, used)) = state.entries.get_mut(module) {
            *used = now;
            return slot.clone();
        }
        while state.entries.len() >= self.capacity {
            let oldest = state.entries.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            state.entries.remove(&oldest);
        }
        let slot = Slot::default();
        state.entries.insert(Arc::new(module.clone()), (slot.clone(), now));
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(name: &str) -> Module {
        let mut module = Module::default();
        let kernel = kelpie_kir::Function { name: name.into(), ..Default::default() };
        module.kernels.push(kernel);
        module
    }

    #[test]
    fn equal_modules_are_compiled_once_and_the_oldest_is_evicted() {
        let cache = ModuleCache::new(2);
        let compiled = |name: &str| {
            let mut fresh = false;
            let value = cache.get_or_compile(&module(name), || {
                fresh = true;
                Ok(name.to_string())
            });
            assert_eq!(*value.unwrap(), name);
            fresh
        };
        assert_eq!(
            ["a", "b", "a", "c", "a", "b", "c"].map(compiled),
            [true, true, false, true, false, true, true]
        );
    }

    #[test]
    fn errors_are_not_kept() {
        let cache = ModuleCache::<u32>::new(2);
        let error = || DeviceError::NotUsable { device: "test".into(), reason: "no".into() };
        assert!(cache.get_or_compile(&module("a"), || Err(error())).is_err());
        assert_eq!(*cache.get_or_compile(&module("a"), || Ok(7)).unwrap(), 7);
    }
}
