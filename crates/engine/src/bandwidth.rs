//! What a device's memory and link can do, measured once a process: the floors that times of kernels are compared with.

use std::sync::Arc;
use std::time::Instant;

use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, CancelToken, Device, DeviceKind, HostCopy, KernelArgument, QueryStream, Tier};
use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Module, Scalar, Type, TypeError, ValidModule, validate};

use crate::error::EngineError;
use crate::launch::{block_shape, submit};

/// Bandwidths in bytes a nanosecond, which are GB a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Reading device memory.
    pub memory: f64,
    /// From pinned host memory to the device; where the device's memory is the host's, `memory`.
    pub link: f64,
    /// The device's memory is the host's.
    pub link_is_memory: bool,
}

const KERNEL: &str = "read_all";
/// Loads of a thread in one turn of its loop.
const UNROLL: i64 = 8;
/// The best of so many.
const RUNS: usize = 5;

/// Measures a device.
pub(crate) fn measure(device: &Arc<dyn Device>) -> Result<Rates, EngineError> {
    let stream = Arc::clone(device).begin_query()?;
    stream.set_tier(Tier::Best);
    let bytes = match device.kind() {
        // More than caches hold.
        DeviceKind::Cuda | DeviceKind::Cpu => 256 << 20,
        DeviceKind::Simt => 64 << 10,
    };
    let data = device.allocate(bytes)?;
    let memory = read(stream.as_ref(), &data, bytes)?;
    let link_is_memory = device.kind() != DeviceKind::Cuda;
    let link = if link_is_memory { memory } else { copy(stream.as_ref(), &data, bytes)? };
    Ok(Rates { memory, link, link_is_memory })
}

fn read(stream: &dyn QueryStream, data: &Buffer, bytes: usize) -> Result<f64, EngineError> {
    let device = stream.device();
    stream.fill(data, 0, bytes, 0)?;
    let internal = |error: String| EngineError::Internal(format!("the bandwidth's kernel: {error}"));
    let module: ValidModule = module()
        .map_err(|error| internal(error.to_string()))
        .and_then(|module| validate(module).map_err(|error| internal(error.to_string())))?;
    let shape = LaunchShape::of(device.target());
    let kernel = stream.compile_for(&module, KERNEL, block_shape(&shape))?;
    let out = device.allocate(16)?;
    let arguments = [
        KernelArgument::Buffer(Arc::clone(data), 0),
        KernelArgument::Scalar(Scalar::I64, bytes as i128 / 8),
        KernelArgument::Buffer(out, 0),
    ];
    let cancel = CancelToken::default();
    let blocks = shape.most_blocks;
    best(bytes, || Ok(submit(stream, kernel.as_ref(), blocks, &arguments, &cancel)?.time_ns))
}

fn copy(stream: &dyn QueryStream, data: &Buffer, bytes: usize) -> Result<f64, EngineError> {
    let source = stream.device().allocate_host(bytes)?;
    let copies = [HostCopy { source: &source, source_offset: 0, target: data, target_offset: 0, bytes }];
    best(bytes, || {
        let start = Instant::now();
        let ticket = stream.begin_copies(&copies)?;
        stream.after_copies(ticket)?;
        // Waits.
        stream.download(data, bytes - 8, &mut [0; 8])?;
        Ok(start.elapsed().as_nanos() as u64)
    })
}

fn best(bytes: usize, mut time_ns: impl FnMut() -> Result<u64, EngineError>) -> Result<f64, EngineError> {
    let mut least = u64::MAX;
    for _ in 0..=RUNS {
        least = least.min(time_ns()?);
    }
    Ok(bytes as f64 / least.max(1) as f64)
}

/// Each block reads a part of the words of its own; what is read decides whether something is written, so that no compiler
/// leaves it out.
fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    b.begin_kernel(KERNEL);
    let pointer = Type::global(Scalar::U64);
    let [data, words, out] = [("data", pointer), ("words", Type::I64), ("out", pointer)].map(|(name, ty)| {
        let param = b.add_param(name, ty);
        b.param(param)
    });
    let [block, blocks, thread, threads] =
        [Builtin::BlockId, Builtin::GridDim, Builtin::ThreadId, Builtin::BlockDim].map(|builtin| {
            let value = b.builtin(builtin);
            b.convert(value, Scalar::I64)
        });
    let unroll = b.i64(UNROLL);
    let step = b.mul(threads, unroll);
    let turns = ceil_div(&mut b, words, step);
    let own = ceil_div(&mut b, turns, blocks);
    let part = b.mul(own, step);
    let first = b.mul(block, part);
    let end = b.add(first, part);
    let end = b.binary(BinaryOp::Min, end, words);
    let zero = b.u64(0);
    let sum = b.var_of("sum", zero);
    let from = b.add(first, thread);
    let at = b.var_of("at", from);
    b.begin_loop();
    let place = b.read(at);
    let done = b.ge(place, end);
    b.break_if(done);
    let mut total = b.read(sum);
    for turn in 0..UNROLL {
        let turn = b.i64(turn);
        let distance = b.mul(turn, threads);
        let index = b.add(place, distance);
        // The last turn of a part may reach beyond: it reads the place again.
        let within = b.lt(index, end);
        let index = b.select(within, index, place);
        let address = b.offset(data, index);
        let word = b.load_read_only(address);
        total = b.add(total, word);
    }
    b.assign(sum, total);
    let next = b.add(place, step);
    b.assign(at, next);
    b.end();
    let total = b.read(sum);
    let never = b.u64(0x9e37_79b9_7f4a_7c15);
    let found = b.eq(total, never);
    b.begin_if(found);
    b.store(out, total);
    b.end();
    b.end_kernel();
    b.finish()
}

fn ceil_div(b: &mut Builder, value: V, by: V) -> V {
    let one = b.i64(1);
    let more = b.sub(by, one);
    let sum = b.add(value, more);
    b.div(sum, by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_cpu_and_the_interpreter() {
        let cpu: Arc<dyn Device> = kelpie_device::cpu::CpuDevice::new(None).unwrap();
        let simt: Arc<dyn Device> = kelpie_device::simt::SimtDevice::new(32, 64, 3);
        for device in [cpu, simt] {
            let rates = measure(&device).unwrap();
            assert!(rates.memory > 0.0 && rates.link > 0.0, "{}: {rates:?}", device.name());
            println!("{}: {rates:?}", device.name());
        }
    }
}
