//! The CPU back end: KIR to machine code of this host, through Cranelift.
//!
//! A kernel becomes `extern "C" fn(*const WorkerContext)`. A block of the grid is a worker with one thread and one
//! lane, so lane operations and barriers fold away, shared memory is the worker's own, and atomics in it, or of scope
//! `Block`, are plain reads and writes. Device functions are inlined where they are small.

#![expect(unsafe_code, reason = "calls compiled code and frees its memory")]

mod arith;
mod atomics;
mod convert;
mod expr;
mod function;
mod helpers;
mod int128;
mod jit;
mod memory;
mod stmt;
#[cfg(test)]
mod tests;
mod types;
mod vector;

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use cranelift_jit::JITModule;
use kelpie_kir::ValidModule;

use crate::BackendError;

/// An argument: the bits of a scalar (little-endian, `bool` as 0 or 1), or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(16))]
pub struct Slot(pub [u8; 16]);

/// What the workers of a launch, and those who watch it, tell each other.
#[derive(Debug, Default)]
#[repr(C)]
pub struct LaunchStatus {
    /// The status word.
    pub code: AtomicU32,
    /// Not 0 where a worker of the launch is asked to let others have its thread for a while: one that reads the status word calls
    /// [`WorkerContext::give_way`].
    pub give_way: AtomicU32,
}

/// What a kernel is called with.
#[derive(Debug)]
#[repr(C)]
pub struct WorkerContext {
    /// One a parameter.
    pub slots: *const Slot,
    /// The worker's shared memory, aligned to 64 bytes; at least [`CpuKernel::shared_bytes`].
    pub shared: *mut u8,
    /// The launch's status word, and whether it is asked to give way.
    pub status: *const LaunchStatus,
    /// Which worker this is.
    pub block_id: u32,
    /// How many workers there are.
    pub grid_dim: u32,
    /// Called with [`Self::caller`] where a worker is asked to give way; the kernel goes on once it returns. It must not unwind.
    pub give_way: extern "C" fn(*const c_void),
    /// Whatever `give_way` knows the worker by.
    pub caller: *const c_void,
}

type Entry = unsafe extern "C" fn(*const WorkerContext);

struct KernelCode {
    entry: Entry,
    shared_bytes: u32,
}

/// The machine code of a module. Its memory is freed with it.
pub struct CpuModule {
    kernels: HashMap<String, KernelCode>,
    code_bytes: usize,
    // The mutex makes it `Sync`; nothing but `drop` touches it.
    jit: ManuallyDrop<Mutex<JITModule>>,
}

impl fmt::Debug for CpuModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<&String> = self.kernels.keys().collect();
        names.sort();
        f.debug_struct("CpuModule").field("kernels", &names).field("code_bytes", &self.code_bytes).finish()
    }
}

/// Compiles every kernel of a module for this host.
pub fn compile(module: &ValidModule) -> Result<CpuModule, BackendError> {
    finish(jit::Session::new(module)?)
}

fn finish(session: jit::Session<'_>) -> Result<CpuModule, BackendError> {
    let (jit, kernels, code_bytes) = session.compile()?;
    let kernels = kernels
        .into_iter()
        .map(|kernel| {
            // SAFETY: `Session` compiled this address with exactly the signature of `Entry`.
            let entry = unsafe { std::mem::transmute::<*const u8, Entry>(kernel.address) };
            (kernel.name, KernelCode { entry, shared_bytes: kernel.shared_bytes })
        })
        .collect();
    Ok(CpuModule { kernels, code_bytes, jit: ManuallyDrop::new(Mutex::new(jit)) })
}

/// Bytes of a vector register of this host: 0 where the back end has no vectors for it.
pub fn vector_bytes() -> u32 {
    if jit::has_vectors() { kelpie_kir::VECTOR_BYTES } else { 0 }
}

/// The Cranelift IR of every kernel, before optimisation: for snapshots and explanations.
pub fn clif(module: &ValidModule) -> Result<String, BackendError> {
    jit::Session::new(module)?.print_all()
}

impl CpuModule {
    /// A kernel by its name.
    pub fn kernel(&self, name: &str) -> Option<CpuKernel<'_>> {
        self.kernels.get(name).map(|code| CpuKernel { code })
    }

    /// Size of the machine code in bytes.
    pub fn code_bytes(&self) -> usize {
        self.code_bytes
    }
}

impl Drop for CpuModule {
    fn drop(&mut self) {
        // SAFETY: this is the only place that takes it out, and `self` is not used afterwards.
        let jit = unsafe { ManuallyDrop::take(&mut self.jit) };
        let jit = jit.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: kernels borrow the module, so none runs or can be called any more.
        unsafe { jit.free_memory() }
    }
}

/// A kernel of a [`CpuModule`].
#[derive(Clone, Copy)]
pub struct CpuKernel<'a> {
    code: &'a KernelCode,
}

impl CpuKernel<'_> {
    /// Bytes of shared memory that a worker needs.
    pub fn shared_bytes(&self) -> u32 {
        self.code.shared_bytes
    }

    /// Runs the kernel as one worker.
    ///
    /// # Safety
    ///
    /// `slots` holds one slot a parameter of the kernel, of the parameter's type; `shared` is aligned to 64 bytes, at
    /// least [`Self::shared_bytes`] long and this worker's alone; `status` is valid, and `give_way` may be called with `caller`. Every address that the kernel
    /// computes from its arguments is valid and aligned for the access it makes, and memory that it reads as
    /// read-only, or reads or writes without atomics, is not written by anybody else meanwhile.
    pub unsafe fn run(&self, context: &WorkerContext) {
        // SAFETY: the caller vouches for the context; the code lives as long as the module that `self` borrows.
        unsafe { (self.code.entry)(context) }
    }
}

impl fmt::Debug for CpuKernel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuKernel").field("shared_bytes", &self.code.shared_bytes).finish()
    }
}
