//! The threads of a block: a GPU's own, or a loop of a CPU's worker over as many.
//!
//! What a thread knows does not outlive a phase but in the block's memory, as a worker's next phase begins with the first thread again.

use kelpie_kir::builder::V;
use kelpie_kir::{Builder, Builtin, Scalar, Type};

use crate::primitives::for_range;
use crate::shape::LaunchShape;

/// Adds a parameter to the kernel; its value.
pub(super) fn param(b: &mut Builder, name: &str, ty: impl Into<Type>) -> V {
    let index = b.add_param(name, ty.into());
    b.param(index)
}

/// The threads of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    /// How many.
    pub threads: u32,
    /// Whether one worker is all of them.
    is_worker: bool,
}

impl Group {
    /// So many threads on a device whose launches have such a shape.
    pub fn new(shape: &LaunchShape, threads: u32) -> Group {
        Group { threads, is_worker: shape.is_serial() }
    }

    /// A phase: each of the first `count` threads does this with its number (`u32`). At uniform control flow.
    pub fn phase_of(&self, b: &mut Builder, count: u32, body: impl FnOnce(&mut Builder, V)) {
        match (self.is_worker, count) {
            (true, 1) => {
                let thread = b.u32(0);
                body(b, thread);
            }
            (true, _) => {
                let (first, end, one) = (b.u32(0), b.u32(count), b.u32(1));
                for_range(b, first, end, one, body);
            }
            (false, _) if count == self.threads => {
                let thread = b.builtin(Builtin::ThreadId);
                body(b, thread);
            }
            (false, _) => {
                let thread = b.builtin(Builtin::ThreadId);
                let takes_part = b.lt_int(thread, count);
                b.begin_if(takes_part);
                body(b, thread);
                b.end();
            }
        }
    }

    /// A phase of all threads.
    pub fn phase(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, V)) {
        self.phase_of(b, self.threads, body);
    }

    /// A phase in which the threads share out so many words, side by side.
    pub fn phase_over(&self, b: &mut Builder, count: u32, body: impl FnOnce(&mut Builder, V)) {
        if count <= self.threads {
            return self.phase_of(b, count, body);
        }
        let threads = self.threads;
        self.phase(b, |b, thread| {
            let (end, step) = (b.u32(count), b.u32(threads));
            for_range(b, thread, end, step, body);
        });
    }

    /// What the block's memory, and its own part of the device's, has been given before is seen by all threads behind.
    pub fn barrier(&self, b: &mut Builder) {
        if !self.is_worker {
            b.barrier();
        }
    }

    /// The parts of the work that are this block's, of so many (`u32`): `body` is given each. A grid may have any number of blocks; a
    /// worker's parts follow each other. At uniform control flow.
    pub fn for_parts(&self, b: &mut Builder, parts: V, body: impl FnOnce(&mut Builder, V)) {
        let (block, blocks) = (b.builtin(Builtin::BlockId), b.builtin(Builtin::GridDim));
        if !self.is_worker {
            return for_range(b, block, parts, blocks, body);
        }
        let share = div_up(b, parts, blocks);
        let (first, end) = share_of(b, (block, share), parts);
        let one = b.u32(1);
        for_range(b, first, end, one, body);
    }
}

/// `(a + by - 1) / by` of `u32`.
pub(super) fn div_up(b: &mut Builder, a: V, by: V) -> V {
    let less = b.sub_int(by, 1);
    let padded = b.add(a, less);
    b.div(padded, by)
}

/// Where part `number` begins and ends of what is cut into parts of `share` (`u32`).
pub(super) fn share_of(b: &mut Builder, (number, share): (V, V), all: V) -> (V, V) {
    let first = b.mul(number, share);
    let first = b.binary(kelpie_kir::BinaryOp::Min, first, all);
    let end = b.add(first, share);
    (first, b.binary(kelpie_kir::BinaryOp::Min, end, all))
}

/// Elements `0..count` (`u32`), with code for each where `unrolled`.
pub(super) fn repeat(b: &mut Builder, (count, unrolled): (u32, bool), mut body: impl FnMut(&mut Builder, V)) {
    if unrolled || count == 1 {
        for number in 0..count {
            let number = b.u32(number);
            body(b, number);
        }
        return;
    }
    let (first, end, one) = (b.u32(0), b.u32(count), b.u32(1));
    for_range(b, first, end, one, body);
}

/// The type of a bitmap's element of so many bits.
pub(super) fn element_scalar(bits: u32) -> Scalar {
    match bits {
        8 => Scalar::U8,
        16 => Scalar::U16,
        32 => Scalar::U32,
        _ => Scalar::U64,
    }
}
