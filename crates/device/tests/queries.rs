//! A query's operations run in order on every device that is present.

#![expect(unsafe_code, reason = "launches hand-written kernels")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use kelpie_device::cpu::CpuDevice;
use kelpie_device::cuda::CudaDevice;
use kelpie_device::disk_cache::DiskCache;
use kelpie_device::simt::SimtDevice;
use kelpie_device::{Buffer, CancelToken, Device, Download, HostCopy, KernelArgument, Launch, QueryStream};
use kelpie_kir::*;

const WORDS: usize = 512;

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> =
        vec![CpuDevice::new(Some(2)).unwrap(), SimtDevice::new(32, 64, 3), SimtDevice::new(4, 8, 2)];
    let folder = tempfile::tempdir().unwrap();
    match CudaDevice::open_with_cache(0, DiskCache::at(folder.path())) {
        Ok(device) => devices.push(device),
        Err(error) => kelpie_device::testing::skip("cuda", &error),
    }
    devices
}

/// Every thread adds `more` to its word.
fn increment() -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("increment");
    b.add_param("words", Type::global(Scalar::I64));
    b.add_param("more", Type::I64);
    let (words, more) = (b.param(0), b.param(1));
    let (block, width, thread) =
        (b.builtin(Builtin::BlockId), b.builtin(Builtin::BlockDim), b.builtin(Builtin::ThreadId));
    let before = b.mul(block, width);
    let row = b.add(before, thread);
    let place = b.offset(words, row);
    let word = b.load(place);
    let sum = b.add(word, more);
    b.store(place, sum);
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

fn words(query: &dyn QueryStream, buffer: &Buffer) -> Vec<i64> {
    let mut bytes = vec![0; WORDS * 8];
    query.download(buffer, 0, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn operations_run_in_the_order_asked() {
    for device in devices() {
        let query = Arc::clone(&device).begin_query().unwrap();
        assert!(Arc::ptr_eq(query.device(), &device), "the device is told from others by its address");
        let kernel = device.compile(&increment(), "increment").unwrap();
        let blocks = WORDS as u32 / device.target().block_threads;
        let (buffer, cancel) = (device.allocate(WORDS * 8).unwrap(), CancelToken::default());
        let increment = |more| {
            let arguments =
                [KernelArgument::Buffer(buffer.clone(), 0), KernelArgument::Scalar(Scalar::I64, more)];
            // SAFETY: there is a word for each thread of the grid.
            let launch = unsafe { Launch::new(kernel.as_ref(), blocks, &arguments, &cancel) };
            query.launch(launch).unwrap().status
        };
        for round in 0..20 {
            query.fill(&buffer, 0, WORDS * 8, 0xff).unwrap();
            query.fill(&buffer, 8, 8, 0).unwrap();
            assert_eq!(increment(round), 0);
            query.upload(&buffer, 16, &7i64.to_le_bytes()).unwrap();
            assert_eq!(increment(1), 0);
            let mut expected = vec![round as i64; WORDS];
            (expected[1], expected[2]) = (round as i64 + 1, 8);
            assert!(words(query.as_ref(), &buffer) == expected, "{} round {round}", device.name());
        }
        cancel.cancel();
        query.fill(&buffer, 0, WORDS * 8, 1).unwrap();
        assert_eq!(increment(5), 1, "cancelled");
        query.fill(&buffer, 0, WORDS * 8, 0).unwrap();
        assert!(words(query.as_ref(), &buffer) == vec![0; WORDS], "{}", device.name());
    }
}

#[test]
fn many_parts_come_back_at_once() {
    let bytes: Vec<u8> = (0..(18usize << 20)).map(|at| (at * 13 + at / 251) as u8).collect();
    let source = |length: usize, seed: usize| &bytes[seed..seed + length];
    for device in devices() {
        let query = Arc::clone(&device).begin_query().unwrap();
        query.download_many(&mut []).unwrap();
        // Around the size of a staging buffer (16 MiB), and what a result has: many small parts.
        let lengths = [0, 1, 100, (16 << 20) - 50, 0, 7, (16 << 20) + 9, 4096, 3];
        let buffers: Vec<Buffer> = lengths
            .iter()
            .enumerate()
            .map(|(seed, length)| {
                let buffer = device.allocate(length + 5).unwrap();
                query.upload(&buffer, 5, source(*length, seed)).unwrap();
                buffer
            })
            .collect();
        let mut back: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        let mut parts: Vec<Download<'_>> = buffers
            .iter()
            .zip(&mut back)
            .map(|(buffer, data)| Download { buffer, offset: 5, data })
            .collect();
        query.download_many(&mut parts).unwrap();
        for (seed, data) in back.iter().enumerate() {
            assert!(*data == source(data.len(), seed), "{} part {seed}", device.name());
        }
        let mut data = [0; 2];
        let beyond = Download { buffer: &buffers[1], offset: 5, data: &mut data };
        assert!(query.download_many(&mut [beyond]).is_err());
        assert!(query.fill(&buffers[1], 0, 7, 0).is_err() && query.upload(&buffers[1], 6, &[1]).is_err());
    }
}

#[test]
fn memory_of_a_fill_goes_to_nobody_else_before_it_is_done() {
    for device in devices() {
        let bytes = 2 << 20;
        for round in 0..8u8 {
            let query = Arc::clone(&device).begin_query().unwrap();
            let dropped = device.allocate(bytes).unwrap();
            query.fill(&dropped, 0, bytes, 0xaa).unwrap();
            drop(dropped);
            // The next owner may be given the same memory.
            let next = device.allocate(bytes).unwrap();
            device.upload(&next, 0, &vec![round; bytes]).unwrap();
            drop(query);
            let mut back = vec![0; bytes];
            device.download(&next, 0, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == round), "{}", device.name());
        }
    }
}

#[test]
fn a_query_takes_no_memory_of_another_device() {
    let devices = devices();
    for (one, other) in devices.iter().zip(devices.iter().skip(1)) {
        let (query, buffer) = (Arc::clone(one).begin_query().unwrap(), other.allocate(8).unwrap());
        assert!(query.fill(&buffer, 0, 8, 0).is_err() && query.upload(&buffer, 0, &[1]).is_err());
        assert!(query.download(&buffer, 0, &mut [0; 8]).is_err());
    }
}

/// Blocks of an array on the host, through three buffers on the device that a kernel addresses as the whole array.
#[test]
fn blocks_stream_through_windows() {
    for device in devices() {
        let query = Arc::clone(&device).begin_query().unwrap();
        let cancel = CancelToken::default();
        let kernel = device.compile(&increment_from(), "increment_from").unwrap();
        let block = device.target().block_threads as usize;
        let (blocks, bytes) = (20, block * 8);
        let host = device.allocate_host(blocks * bytes).unwrap();
        let used = device.memory().0;
        let values: Vec<u8> =
            (0..(blocks * block) as i64).flat_map(|value| (value * 3).to_le_bytes()).collect();
        device.upload(&host, 0, &values).unwrap();
        let ring: Vec<Buffer> = (0..3).map(|_| device.allocate(bytes).unwrap()).collect();
        assert!(device.memory().0 >= used + 3 * bytes as u64, "the host's memory is not charged");
        let begin = |index: usize| {
            let target = &ring[index % 3];
            let copy =
                HostCopy { source: &host, source_offset: index * bytes, target, target_offset: 0, bytes };
            query.begin_copies(&[copy]).unwrap()
        };
        let mut tickets: Vec<_> = (0..3).map(begin).collect();
        for index in 0..blocks {
            query.after_copies(tickets[index]).unwrap();
            let window = KernelArgument::Window(ring[index % 3].clone(), (index * bytes) as u64);
            let first = KernelArgument::Scalar(Scalar::I64, (index * block) as i128);
            let arguments = [window, KernelArgument::Buffer(host.clone(), 0), first];
            // SAFETY: a block of threads reads as many words from `first` on, which the window holds, and writes them to
            // the host's memory, which holds all.
            let launch = unsafe { Launch::new(kernel.as_ref(), 1, &arguments, &cancel) };
            assert_eq!(query.launch(launch).unwrap().status, 0);
            if index + 3 < blocks {
                tickets.push(begin(index + 3));
            }
        }
        let mut back = vec![0; blocks * bytes];
        query.download(&host, 0, &mut back).unwrap();
        let expected: Vec<u8> =
            (0..(blocks * block) as i64).flat_map(|value| (value * 3 + 1).to_le_bytes()).collect();
        assert!(back == expected, "{}", device.name());
        let copy = HostCopy {
            source: &host,
            source_offset: 8,
            target: &ring[0],
            target_offset: 0,
            bytes: bytes + 1,
        };
        assert!(query.begin_copies(&[copy]).is_err());
    }
}

/// `to[first + thread] = from[first + thread] + 1`.
fn increment_from() -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("increment_from");
    b.add_param("from", Type::global(Scalar::I64));
    b.add_param("to", Type::global(Scalar::I64));
    b.add_param("first", Type::I64);
    let (from, to, first) = (b.param(0), b.param(1), b.param(2));
    let thread = b.builtin(Builtin::ThreadId);
    let thread = b.convert(thread, Scalar::I64);
    let row = b.add(first, thread);
    let source = b.offset(from, row);
    let value = b.load(source);
    let one = b.i64(1);
    let value = b.add(value, one);
    let target = b.offset(to, row);
    b.store(target, value);
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}
