//! Compiled kernels of the CPU device.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use kelpie_kir::ValidModule;

use super::DEVICE;
use super::workers::BlockTask;
use crate::memory::HostPool;
use crate::{DeviceError, Kernel, KernelArgument};

/// The machine code of a module.
#[derive(Debug)]
pub(super) struct CpuCode {}

fn missing() -> DeviceError {
    DeviceError::NotUsable { device: DEVICE.into(), reason: "the back end is not built yet".into() }
}

impl CpuCode {
    pub(super) fn compile(module: &ValidModule) -> Result<CpuCode, DeviceError> {
        let _ = module;
        Err(missing())
    }
}

/// The CLIF of a module.
pub(super) fn code_text(module: &ValidModule) -> Result<String, DeviceError> {
    let _ = module;
    Err(missing())
}

/// A kernel with the code that it is part of.
#[derive(Debug)]
pub(super) struct LoadedKernel {
    code: Arc<CpuCode>,
    name: String,
    compile_ns: u64,
}

impl LoadedKernel {
    pub(super) fn new(
        code: Arc<CpuCode>,
        module: &ValidModule,
        name: &str,
        compile_ns: u64,
    ) -> Result<LoadedKernel, DeviceError> {
        let _ = module;
        Ok(LoadedKernel { code, name: name.into(), compile_ns })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn shared_bytes(&self) -> usize {
        0
    }

    pub(super) fn bind(
        &self,
        pool: &Arc<HostPool>,
        arguments: &[KernelArgument],
        blocks: u32,
        status: Arc<AtomicU32>,
    ) -> Result<BlockTask, DeviceError> {
        let _ = (pool, arguments, blocks, status, &self.code);
        Err(missing())
    }
}

impl Kernel for LoadedKernel {
    fn compile_ns(&self) -> u64 {
        self.compile_ns
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
