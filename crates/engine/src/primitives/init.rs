//! INIT by a kernel (`compile::primitives::init`).

use std::sync::Arc;

use kelpie_compile::primitives::init;
use kelpie_device::KernelArgument;
use kelpie_kir::Scalar;

use super::{Array, Family, Primitives, integer};
use crate::error::EngineError;

/// Words of an array that a thread sets to zero, where the grid has threads enough.
const WORDS_PER_THREAD: u64 = 4;
/// Arrays of a launch, at most.
const MOST_ARRAYS: usize = init::ARRAYS[init::ARRAYS.len() - 1];

impl Primitives<'_> {
    /// Sets arrays of so many bytes, which have room for whole words of 8, to zero; how many launches that took.
    pub(crate) fn init(&mut self, arrays: &[(Array, u64)]) -> Result<u64, EngineError> {
        let mut launches = 0;
        for arrays in arrays.chunks(MOST_ARRAYS) {
            let Some(any) = arrays.first() else { continue };
            let least = init::ARRAYS.into_iter().find(|places| *places >= arrays.len());
            let places = least.unwrap_or(MOST_ARRAYS);
            let mut arguments = Vec::with_capacity(2 * places);
            for number in 0..places {
                let (array, bytes) = arrays.get(number).map_or((&any.0, 0), |(array, bytes)| (array, *bytes));
                arguments.push(KernelArgument::Buffer(Arc::clone(&array.0), array.1 as u64));
                arguments.push(integer(Scalar::I64, bytes.div_ceil(8)));
            }
            let kernel = self.kernel_of(Family::Init(places), init::name(places).into())?;
            let longest = arrays.iter().map(|(_, bytes)| bytes.div_ceil(8)).max().unwrap_or(0);
            let of_block = u64::from(self.shape.block_threads).max(1) * WORDS_PER_THREAD;
            self.launch(kernel.as_ref(), longest.div_ceil(of_block), &arguments)?;
            launches += 1;
        }
        Ok(launches)
    }
}
