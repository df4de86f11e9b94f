//! INIT as a kernel: several arrays are set to zero by one launch, whatever their sizes are.
//!
//! The kernel [`name`] takes, for each of so many arrays, `array: u64[words]` (written) and `words: i64`. The threads of the grid
//! go through one array after the other, neighbours through neighbouring words.

use kelpie_kir::{Builder, Builtin, Module, Scalar, TypeError};

use super::{array, for_range, param, wide};

/// Arrays of a launch, for which there are kernels: those that are not there have no words.
pub const ARRAYS: [usize; 3] = [4, 8, 16];

/// The name of the kernel for so many arrays.
pub fn name(arrays: usize) -> String {
    format!("init_{arrays}")
}

/// The kernel for so many arrays.
pub fn module(arrays: usize) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    b.begin_kernel(&name(arrays));
    let all: Vec<_> = (0..arrays)
        .map(|number| {
            let array = array(&mut b, &format!("array_{number}"), Scalar::U64);
            (array, param(&mut b, &format!("words_{number}"), Scalar::I64))
        })
        .collect();
    let (block, threads) = (wide(&mut b, Builtin::BlockId), wide(&mut b, Builtin::BlockDim));
    let (blocks, thread) = (wide(&mut b, Builtin::GridDim), wide(&mut b, Builtin::ThreadId));
    let before = b.mul(block, threads);
    let (own, step) = (b.add(before, thread), b.mul(blocks, threads));
    let empty = b.u64(0);
    for (array, words) in all {
        for_range(&mut b, own, words, step, |b, word| {
            let pointer = b.offset(array, word);
            b.store(pointer, empty);
        });
    }
    b.end_kernel();
    b.finish()
}
