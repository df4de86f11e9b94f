//! Compiled kernels of the CPU device, and how they are called.
#![expect(unsafe_code, reason = "calls compiled kernels")]

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use kelpie_backend::cpu::{self, CpuModule, LaunchStatus, Slot, WorkerContext};
use kelpie_kir::{Type, ValidModule};

use super::DEVICE;
use super::workers::{BlockRun, BlockTask, launch_failed};
use crate::memory::{HostMemory, HostPool};
use crate::{Buffer, DeviceError, Kernel, KernelArgument};

/// Compiles a module.
pub(super) fn compile(module: &ValidModule) -> Result<CpuModule, DeviceError> {
    cpu::compile(module).map_err(|error| compile_error(module, &error))
}

/// The CLIF of a module.
pub(super) fn code_text(module: &ValidModule) -> Result<String, DeviceError> {
    cpu::clif(module).map_err(|error| compile_error(module, &error))
}

fn compile_error(module: &ValidModule, error: &kelpie_backend::BackendError) -> DeviceError {
    let names: Vec<&str> = module.kernels.iter().map(|(_, kernel)| kernel.name.as_str()).collect();
    DeviceError::Compile { device: DEVICE.into(), kernel: names.join(", "), message: error.to_string() }
}

/// A kernel with the code that it is part of.
#[derive(Debug)]
pub(super) struct LoadedKernel {
    code: Arc<CpuModule>,
    name: String,
    params: Vec<Type>,
    shared_bytes: u32,
    compile_ns: u64,
}

impl LoadedKernel {
    pub(super) fn new(
        code: Arc<CpuModule>,
        module: &ValidModule,
        name: &str,
        compile_ns: u64,
    ) -> Result<LoadedKernel, DeviceError> {
        let params = crate::kernel_params(DEVICE, module, name)?;
        let shared_bytes = code.kernel(name).map(|kernel| kernel.shared_bytes());
        let shared_bytes = shared_bytes.ok_or_else(|| launch_failed(DEVICE, name, "it has no code"))?;
        Ok(LoadedKernel { code, name: name.into(), params, shared_bytes, compile_ns })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_bytes(&self) -> usize {
        self.shared_bytes as usize
    }

    /// What a worker runs for one block of a launch with these arguments.
    pub(super) fn bind(
        &self,
        pool: &Arc<HostPool>,
        arguments: &[KernelArgument],
        blocks: u32,
        status: Arc<LaunchStatus>,
    ) -> Result<BlockTask, DeviceError> {
        crate::check_arguments(DEVICE, &self.name, &self.params, arguments)?;
        let (mut slots, mut buffers) = (Vec::new(), Vec::<Buffer>::new());
        for argument in arguments {
            if let KernelArgument::Scalar(_, bits) = argument {
                slots.push(Slot(bits.to_le_bytes()));
            }
            if let Some((buffer, offset)) = argument.buffer() {
                let start = HostMemory::of(buffer, pool)?.as_ptr() as u64;
                buffers.push(buffer.clone());
                slots.push(Slot(u128::from(start.wrapping_add(offset)).to_le_bytes()));
            }
        }
        let (code, name) = (self.code.clone(), self.name.clone());
        Ok(Box::new(move |run| {
            let _alive = &buffers;
            let context = WorkerContext {
                slots: slots.as_ptr(),
                shared: run.shared,
                status: Arc::as_ptr(&status),
                block_id: run.block,
                grid_dim: blocks,
                give_way,
                caller: std::ptr::from_ref(run).cast(),
            };
            if let Some(kernel) = code.kernel(&name) {
                // SAFETY: `check_arguments` gave one slot of the right type a parameter; the worker's shared memory is
                // aligned to 64 bytes and at least `shared_bytes` long; status, code and buffers are held by this
                // closure, and `give_way` takes what `caller` is. That a kernel stays inside its buffers, and that what it calls read-only is not written
                // meanwhile, is what the compiler of the plan promises of the modules that it makes.
                unsafe { kernel.run(&context) };
            }
        }))
    }
}

/// What a kernel calls that is asked to give way.
extern "C" fn give_way(run: *const c_void) {
    // SAFETY: a kernel passes the `caller` of its context, which outlives it.
    let run = unsafe { &*run.cast::<BlockRun<'_>>() };
    run.give_way();
}

impl Kernel for LoadedKernel {
    fn compile_ns(&self) -> u64 {
        self.compile_ns
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
