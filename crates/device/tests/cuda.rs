//! The CUDA device on a real GPU. Skipped, with a message, where there is none, unless `KELPIE_REQUIRE`
//! names `cuda`.

#![expect(unsafe_code, reason = "launches hand-written kernels")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use kelpie_device::cuda::CudaDevice;
use kelpie_device::disk_cache::DiskCache;
use kelpie_device::testing::skip;
use kelpie_device::{
    Buffer, CancelToken, Device, DeviceError, DeviceKind, Download, Kernel, KernelArgument, Launch,
    LaunchReport, QueryStream, nvrtc,
};
use kelpie_kir::*;
use parking_lot::{RwLock, RwLockReadGuard};

/// Written to by a test that no other may run beside.
static ALONE: RwLock<()> = RwLock::new(());

/// A device that tests share.
struct Gpu {
    device: Arc<CudaDevice>,
    _shared: RwLockReadGuard<'static, ()>,
}

impl std::ops::Deref for Gpu {
    type Target = CudaDevice;

    fn deref(&self) -> &CudaDevice {
        &self.device
    }
}

/// The first GPU, opened once; the disk cache is in a folder of this test run.
fn gpu() -> Option<Gpu> {
    static DEVICE: OnceLock<Option<Arc<CudaDevice>>> = OnceLock::new();
    let _shared = ALONE.read();
    let device = DEVICE.get_or_init(|| opened().map_err(|error| skip("cuda", &error)).ok());
    Some(Gpu { device: device.clone()?, _shared })
}

fn cache_folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

fn opened() -> Result<Arc<CudaDevice>, DeviceError> {
    CudaDevice::open_with_cache(0, DiskCache::at(cache_folder()))
}

fn run(
    device: &CudaDevice,
    kernel: &dyn Kernel,
    blocks: u32,
    arguments: &[KernelArgument],
) -> Result<LaunchReport, DeviceError> {
    let cancel = CancelToken::default();
    // SAFETY: callers give a kernel's arguments as it is made for; `wild` writes to memory of the GPU alone.
    device.launch(unsafe { Launch::new(kernel, blocks, arguments, &cancel) })
}

fn words(device: &CudaDevice, buffer: &Buffer) -> Vec<i64> {
    let mut bytes = vec![0u8; buffer.bytes()];
    device.download(buffer, 0, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn buffer_of(device: &CudaDevice, values: &[i64]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let buffer = device.allocate(bytes.len()).unwrap();
    device.upload(&buffer, 0, &bytes).unwrap();
    buffer
}

/// The thread's number in the grid.
fn global_thread(b: &mut Builder) -> Handle<Value> {
    let (block, width, thread) =
        (b.builtin(Builtin::BlockId), b.builtin(Builtin::BlockDim), b.builtin(Builtin::ThreadId));
    let first = b.mul(block, width);
    b.add(first, thread)
}

/// `out[i] = a[i] * factor + i` for `i < rows`; reports 5 where `a[i]` is negative.
fn scale(tag: i64) -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("scale");
    for (name, ty) in [
        ("a", Type::global(Scalar::I64)),
        ("out", Type::global(Scalar::I64)),
        ("factor", Type::I64),
        ("rows", Type::U32),
    ] {
        b.add_param(name, ty);
    }
    let (a, out, factor, rows) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let row = global_thread(&mut b);
    let inside = b.lt(row, rows);
    b.begin_if(inside);
    let value = b.element(a, row);
    let zero = b.i64(0);
    let negative = b.lt(value, zero);
    b.begin_if(negative);
    b.report(5);
    b.end();
    let product = b.mul(value, factor);
    let wide = b.convert(row, Scalar::I64);
    let sum = b.add(product, wide);
    let constant = b.i64(tag);
    let sum = b.add(sum, constant);
    let place = b.offset(out, row);
    b.store(place, sum);
    b.end();
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

#[test]
fn the_device_is_usable_or_says_why() {
    let _shared = ALONE.read();
    match opened() {
        Ok(device) => {
            assert_eq!(device.kind(), DeviceKind::Cuda);
            assert!(device.target().lanes == 32 && device.target().resident_blocks > 0);
            for (name, value) in device.properties() {
                println!("{name}: {value}");
                assert!(!value.is_empty());
            }
            let error = CudaDevice::open(1000).unwrap_err().to_string();
            assert!(error.contains("the driver sees"), "{error}");
        }
        Err(error @ DeviceError::NotUsable { .. }) => {
            let text = error.to_string();
            assert!(text.contains("cuda") && text.contains("is not usable"), "{text}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_kernels_of_these_tests_are_valid() {
    let modules = [scale(0), reverse(1), reverse(20_000), endless(), wild()];
    let nvrtc = match nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return skip("nvrtc", &error),
    };
    for module in modules {
        nvrtc.compile(&kelpie_backend::cuda::print(&module).unwrap(), "sm_90", "kernel").unwrap();
    }
}

#[test]
fn copies_of_every_size_come_back() {
    let Some(device) = gpu() else { return };
    for bytes in [0usize, 1, 7, 4096, (16 << 20) - 1, 16 << 20, (16 << 20) + 1, 70_000_001] {
        let data: Vec<u8> = (0..bytes).map(|at| (at * 31 + at / 253) as u8).collect();
        let buffer = device.allocate(bytes).unwrap();
        device.upload(&buffer, 0, &data).unwrap();
        let mut back = vec![0u8; bytes];
        device.download(&buffer, 0, &mut back).unwrap();
        assert!(data == back, "{bytes} bytes");
    }
    let buffer = device.allocate(100).unwrap();
    device.fill(&buffer, 0, 100, 0xee).unwrap();
    device.upload(&buffer, 10, &[1, 2, 3]).unwrap();
    device.fill(&buffer, 50, 2, 9).unwrap();
    let mut back = vec![0u8; 60];
    device.download(&buffer, 5, &mut back).unwrap();
    let mut expected = vec![0xee; 60];
    expected[5..8].copy_from_slice(&[1, 2, 3]);
    expected[45..47].copy_from_slice(&[9, 9]);
    assert_eq!(back, expected);
    for (offset, length) in [(98, 3), (101, 0), (usize::MAX, 2)] {
        assert!(device.upload(&buffer, offset, &vec![0; length]).is_err(), "{offset} {length}");
        assert!(device.fill(&buffer, offset, length, 0).is_err(), "{offset} {length}");
    }
}

#[test]
fn copies_from_many_threads_do_not_mix() {
    let Some(device) = gpu() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..4u8 {
                    let data = vec![thread * 16 + round; 20_000_000];
                    let buffer = device.allocate(data.len()).unwrap();
                    device.upload(&buffer, 0, &data).unwrap();
                    let mut back = vec![0u8; data.len()];
                    device.download(&buffer, 0, &mut back).unwrap();
                    assert!(data == back);
                }
            });
        }
    });
}

#[test]
fn a_kernel_runs_and_reports() {
    let Some(device) = gpu() else { return };
    let module = scale(0);
    let kernel = device.compile(&module, "scale").unwrap();
    let rows = 100_000i64;
    let input: Vec<i64> = (0..rows).map(|row| row * 7 % 1000).collect();
    let (a, out) = (buffer_of(&device, &input), device.allocate(rows as usize * 8).unwrap());
    let arguments = |factor: i64, rows: i64| {
        vec![
            KernelArgument::Buffer(a.clone(), 0),
            KernelArgument::Buffer(out.clone(), 0),
            KernelArgument::Scalar(Scalar::I64, factor.into()),
            KernelArgument::Scalar(Scalar::U32, rows.into()),
        ]
    };
    for factor in [3, -1, i64::MIN] {
        let report = run(&device, kernel.as_ref(), 391, &arguments(factor, rows)).unwrap();
        assert_eq!(report.status, 0);
        assert!(report.time_ns > 0 && report.time_ns < 1_000_000_000, "{report:?}");
        let expected: Vec<i64> =
            input.iter().zip(0i64..).map(|(a, i)| a.wrapping_mul(factor).wrapping_add(i)).collect();
        assert_eq!(words(&device, &out), expected);
    }
    device.upload(&a, 8 * 99_999, &(-1i64).to_le_bytes()).unwrap();
    assert_eq!(run(&device, kernel.as_ref(), 391, &arguments(1, rows)).unwrap().status, 5);
    assert_eq!(run(&device, kernel.as_ref(), 391, &arguments(1, rows - 1)).unwrap().status, 0);
    // Wrong launches are errors and leave the device usable.
    let wrong = [
        (0, arguments(1, rows)),
        (1, arguments(1, rows)[..3].to_vec()),
        (1, [&arguments(1, rows)[1..], &[KernelArgument::Scalar(Scalar::I64, 0)]].concat()),
    ];
    for (blocks, arguments) in wrong {
        assert!(matches!(run(&device, kernel.as_ref(), blocks, &arguments), Err(DeviceError::Failed { .. })));
    }
    assert!(device.compile(&module, "other").is_err());
    assert_eq!(run(&device, kernel.as_ref(), 391, &arguments(1, 10)).unwrap().status, 0);
}

#[test]
fn kernels_compile_side_by_side_and_are_cached() {
    let Some(device) = gpu() else { return };
    let modules: Vec<ValidModule> = (1..9).map(scale).collect();
    let one = Instant::now();
    device.compile(&scale(-7), "scale").unwrap();
    let one = one.elapsed();
    let all = Instant::now();
    std::thread::scope(|scope| {
        for module in &modules {
            let device = &device;
            scope.spawn(move || assert!(device.compile(module, "scale").unwrap().compile_ns() > 0));
        }
    });
    println!("one kernel {one:?}, eight side by side {:?}", all.elapsed());
    for module in &modules {
        assert_eq!(device.compile(module, "scale").unwrap().compile_ns(), 0, "in memory");
    }
    // Another device object has an empty cache in memory: it finds the code on disk.
    let second = opened().unwrap();
    for module in &modules {
        assert_eq!(second.compile(module, "scale").unwrap().compile_ns(), 0, "on disk");
    }
    // Damaged code is compiled again. (Other tests may be writing entries; they do not mind.)
    for entry in std::fs::read_dir(cache_folder()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap_or_default();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
            std::fs::write(&path, &bytes).unwrap();
        }
    }
    let third = opened().unwrap();
    for module in &modules {
        assert!(third.compile(module, "scale").unwrap().compile_ns() > 0, "damaged on disk");
    }
}

#[test]
fn a_cache_that_cannot_be_written_costs_only_time() {
    let Some(_gpu) = gpu() else { return };
    let file = tempfile::NamedTempFile::new().unwrap();
    for folder in [file.path(), Path::new("/dev/full")] {
        let device = CudaDevice::open_with_cache(0, DiskCache::at(folder)).unwrap();
        assert!(device.compile(&scale(30), "scale").unwrap().compile_ns() > 0);
        assert_eq!(device.compile(&scale(30), "scale").unwrap().compile_ns(), 0, "in memory");
    }
}

/// Every block reverses its 256 elements through shared memory of `spare` more words, and adds its sum to `total`.
fn reverse(spare: u32) -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("reverse");
    b.add_param("data", Type::global(Scalar::I64));
    b.add_param("total", Type::global(Scalar::I64));
    let before = b.shared("before", Pointee::Scalar(Scalar::I64), spare);
    let array = b.shared("array", Pointee::Scalar(Scalar::I64), 256);
    let (data, total) = (b.param(0), b.param(1));
    let thread = b.builtin(Builtin::ThreadId);
    let index = global_thread(&mut b);
    let place = b.offset(data, index);
    let value = b.load(place);
    let slot = b.offset(array, thread);
    b.store(slot, value);
    let zero = b.u32(0);
    let first = b.eq(thread, zero);
    b.begin_if(first);
    let nothing = b.i64(0);
    b.store(before, nothing);
    b.end();
    b.barrier();
    b.atomic_discard(AtomicOp::Add, before, value, Scope::Block);
    let last = b.u32(255);
    let mirrored = b.sub(last, thread);
    let other = b.offset(array, mirrored);
    let other = b.load(other);
    b.store(place, other);
    let sum = b.uniform_load(before);
    b.begin_if(first);
    b.atomic_discard(AtomicOp::Add, total, sum, Scope::Device);
    b.end();
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

#[test]
fn shared_memory_static_and_dynamic() {
    let Some(device) = gpu() else { return };
    let input: Vec<i64> = (0..256 * 300).map(|i| i * i % 1013 - 500).collect();
    let expected: Vec<i64> = input.chunks(256).flat_map(|block| block.iter().rev().copied()).collect();
    for spare in [1, 5000, 12_000, 20_000] {
        let kernel = device.compile(&reverse(spare), "reverse").unwrap();
        let (data, total) = (buffer_of(&device, &input), buffer_of(&device, &[0]));
        let arguments = [KernelArgument::Buffer(data.clone(), 0), KernelArgument::Buffer(total.clone(), 0)];
        assert_eq!(run(&device, kernel.as_ref(), 300, &arguments).unwrap().status, 0);
        assert_eq!(words(&device, &data), expected, "{spare}");
        assert_eq!(words(&device, &total), [input.iter().sum::<i64>()], "{spare}");
    }
    let error = device.compile(&reverse(200_000), "reverse").unwrap_err().to_string();
    assert!(error.contains("shared memory"), "{error}");
}

/// Runs until the status word is set. Each thread adds 1 to `count` when it starts and when it ends.
fn endless() -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("endless");
    b.add_param("count", Type::global(Scalar::I64));
    let count = b.param(0);
    let one = b.i64(1);
    b.atomic_discard(AtomicOp::Add, count, one, Scope::Device);
    b.begin_loop();
    let status = b.builtin(Builtin::Status);
    let zero = b.u32(0);
    let stopped = b.ne(status, zero);
    b.break_if(stopped);
    b.end();
    b.atomic_discard(AtomicOp::Add, count, one, Scope::Device);
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

#[test]
fn a_cancelled_kernel_leaves() {
    let Some(device) = gpu() else { return };
    let kernel = device.compile(&endless(), "endless").unwrap();
    let count = buffer_of(&device, &[0]);
    let arguments = [KernelArgument::Buffer(count.clone(), 0)];
    let cancel = CancelToken::default();
    let begun = Instant::now();
    // SAFETY: the kernel adds to the word that it is given.
    let launch = || unsafe { Launch::new(kernel.as_ref(), 20, &arguments, &cancel) };
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            cancel.cancel();
        });
        device.launch(launch())
    });
    assert_eq!(report.unwrap().status, 1);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(words(&device, &count), [2 * 20 * 256]);
    // Cancelled before it starts: it does not run.
    assert_eq!(device.launch(launch()).unwrap().status, 1);
    assert_eq!(words(&device, &count), [2 * 20 * 256]);
    // The lane's next launch does not see the cancellation.
    let module = scale(0);
    let kernel = device.compile(&module, "scale").unwrap();
    let out = device.allocate(8).unwrap();
    let arguments = [
        KernelArgument::Buffer(count, 0),
        KernelArgument::Buffer(out, 0),
        KernelArgument::Scalar(Scalar::I64, 1),
        KernelArgument::Scalar(Scalar::U32, 1),
    ];
    assert_eq!(run(&device, kernel.as_ref(), 1, &arguments).unwrap().status, 0);
}

#[test]
fn the_budget_holds_and_freed_memory_is_used_again() {
    // A device of its own: the budget is the device's.
    let Some(_gpu) = gpu() else { return };
    let device = opened().unwrap();
    let (used, limit) = device.memory();
    assert!(used == 0 && limit > 1 << 28, "{used} of {limit}");
    device.set_memory_limit(Some(64 << 20));
    let first = device.allocate(40 << 20).unwrap();
    match device.allocate(40 << 20).unwrap_err() {
        DeviceError::OutOfMemory { requested, used, limit, .. } => {
            assert_eq!((requested, limit), (40 << 20, 64 << 20));
            assert!((40 << 20..46 << 20).contains(&used), "{used}");
        }
        other => panic!("{other}"),
    }
    drop(first);
    assert_eq!(device.memory().0, 0);
    for bytes in [40usize << 20, 50 << 20, 10 << 20, 1, 0, 40 << 20] {
        drop(device.allocate(bytes).unwrap());
    }
    device.set_memory_limit(None);
    assert_eq!(device.memory().1, limit);
    // More than there is, in one piece and in many.
    assert!(matches!(device.allocate(usize::MAX), Err(DeviceError::OutOfMemory { .. })));
    assert!(matches!(device.allocate(limit as usize + 1), Err(DeviceError::OutOfMemory { .. })));
    let mut held = Vec::new();
    let error = loop {
        match device.allocate((limit / 16) as usize) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DeviceError::OutOfMemory { .. }) && held.len() >= 10, "{error}");
    held.clear();
    assert_eq!(device.memory().0, 0);
    let begun = Instant::now();
    for _ in 0..1000 {
        drop(device.allocate(256 << 20).unwrap());
    }
    println!("allocate and free 256 MB: {:?}", begun.elapsed() / 1000);
}

#[test]
fn launches_from_many_threads() {
    let Some(device) = gpu() else { return };
    std::thread::scope(|scope| {
        for thread in 0..8i64 {
            let device = &device;
            scope.spawn(move || {
                let kernel = device.compile(&scale(0), "scale").unwrap();
                let input: Vec<i64> = (0..5000).map(|i| i + thread).collect();
                let (a, out) = (buffer_of(device, &input), device.allocate(40_000).unwrap());
                let arguments = [
                    KernelArgument::Buffer(a, 0),
                    KernelArgument::Buffer(out.clone(), 0),
                    KernelArgument::Scalar(Scalar::I64, 2),
                    KernelArgument::Scalar(Scalar::U32, 5000),
                ];
                let expected: Vec<i64> = input.iter().zip(0i64..).map(|(a, i)| a * 2 + i).collect();
                for _ in 0..50 {
                    assert_eq!(run(device, kernel.as_ref(), 20, &arguments).unwrap().status, 0);
                }
                assert_eq!(words(device, &out), expected);
            });
        }
    });
}

/// Adds row numbers to `input` in a query: everything that a query does.
fn add_rows(
    query: &dyn QueryStream,
    kernel: &dyn Kernel,
    input: &Buffer,
    out: &Buffer,
    rows: i64,
) -> [Vec<u8>; 2] {
    let arguments = [
        KernelArgument::Buffer(input.clone(), 0),
        KernelArgument::Buffer(out.clone(), 0),
        KernelArgument::Scalar(Scalar::I64, 1),
        KernelArgument::Scalar(Scalar::U32, rows.into()),
    ];
    // The row after the last stays as it is filled.
    query.fill(out, 0, out.bytes(), 0xee).unwrap();
    let cancel = CancelToken::default();
    // SAFETY: input and output have that many rows.
    let launch = unsafe { Launch::new(kernel, 20, &arguments, &cancel) };
    assert_eq!(query.launch(launch).unwrap().status, 0);
    let [mut head, mut tail] = [vec![0; rows as usize * 8], vec![0; 8]];
    let (first, last) = (
        Download { buffer: out, offset: 0, data: &mut head },
        Download { buffer: out, offset: rows as usize * 8, data: &mut tail },
    );
    query.download_many(&mut [first, last]).unwrap();
    [head, tail]
}

#[test]
fn a_query_does_not_wait_for_another_and_streams_are_used_again() {
    if gpu().is_none() {
        return;
    }
    // The driver may hold up one thread's allocations until another's kernel has ended.
    let _alone = ALONE.write();
    let device = opened().unwrap();
    let begin = || Arc::clone(&device).begin_query().unwrap();
    let endless = device.compile(&endless(), "endless").unwrap();
    let scale = device.compile(&scale(0), "scale").unwrap();
    assert_eq!(device.query_streams(), 0);
    let (first, second) = (begin(), begin());
    assert_eq!(device.query_streams(), 2);
    let rows = 5000i64;
    let values: Vec<i64> = (0..rows).map(|row| row * 3).collect();
    // A column of the cache, say: copied by the device, used by any query.
    let input = buffer_of(&device, &values);
    let out = device.allocate((rows as usize + 1) * 8).unwrap();
    let count = buffer_of(&device, &[0]);
    let expected: Vec<u8> = (0..rows).flat_map(|row| (row * 4).to_le_bytes()).collect();
    let work = || {
        let [head, tail] = add_rows(second.as_ref(), scale.as_ref(), &input, &out, rows);
        assert!(head == expected && tail == [0xee; 8]);
    };
    // Makes what the device makes when first needed.
    work();
    let cancel = CancelToken::default();
    let arguments = [KernelArgument::Buffer(count.clone(), 0)];
    // SAFETY: the kernel adds to the word that it is given, which only the GPU's copies read.
    let launch = unsafe { Launch::new(endless.as_ref(), 4, &arguments, &cancel) };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| first.launch(launch));
        let (done, finished) = mpsc::channel();
        let (second, count, work) = (&second, &count, &work);
        scope.spawn(move || {
            let mut started = [0; 8];
            let begun = Instant::now();
            while started == [0; 8] && begun.elapsed() < Duration::from_secs(5) {
                second.download(count, 0, &mut started).unwrap();
            }
            assert_ne!(started, [0; 8], "the first query's kernel does not start");
            (0..10).for_each(|_| work());
            done.send(()).unwrap();
        });
        let finished = finished.recv_timeout(Duration::from_secs(10));
        let still_running = !running.is_finished();
        cancel.cancel();
        assert_eq!(running.join().unwrap().unwrap().status, 1);
        assert!(finished.is_ok() && still_running, "the second query waited for the first");
    });
    assert_eq!(words(&device, &count), [2 * 4 * 256]);
    // A query that ends with work in its stream, and one whose launch was cancelled: both streams come back.
    second.fill(&out, 0, 100, 1).unwrap();
    drop((first, second));
    for _ in 0..3 {
        let (first, second) = (begin(), begin());
        assert!(add_rows(first.as_ref(), scale.as_ref(), &input, &out, rows)[0] == expected);
        assert!(add_rows(second.as_ref(), scale.as_ref(), &input, &out, rows)[0] == expected);
    }
    assert_eq!(device.query_streams(), 2);
    // A wrong launch, of a query or not, leaves no stream in doubt.
    assert!(run(&device, scale.as_ref(), 1, &[]).is_err());
    let query = begin();
    // SAFETY: it lacks arguments, so it is refused.
    let launch = unsafe { Launch::new(scale.as_ref(), 1, &[], &cancel) };
    assert!(query.launch(launch).is_err());
    assert!(add_rows(query.as_ref(), scale.as_ref(), &input, &out, rows)[0] == expected);
}

/// Writes where nothing is.
fn wild() -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("wild");
    b.add_param("address", Scalar::U64.into());
    let address = b.param(0);
    let pointer = b.bitcast(address, Type::global(Scalar::U64));
    b.store(pointer, address);
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

/// A wild pointer loses the context for the whole process, so this is run alone:
/// `cargo test -p kelpie-device --test cuda -- --ignored`.
#[test]
#[ignore = "loses the process's CUDA context"]
fn a_lost_context_is_an_error_and_not_the_end() {
    let Ok(device) = opened() else { return };
    let kernel = device.compile(&wild(), "wild").unwrap();
    let buffer = device.allocate(8).unwrap();
    let arguments = [KernelArgument::Scalar(Scalar::U64, 0x10)];
    assert!(!device.is_lost());
    let error = run(&device, kernel.as_ref(), 1, &arguments).unwrap_err();
    assert!(matches!(error, DeviceError::Failed { .. }), "{error}");
    assert!(device.is_lost());
    let error = device.download(&buffer, 0, &mut [0u8; 8]).unwrap_err().to_string();
    assert!(error.contains("its context is lost since kernel wild"), "{error}");
    assert!(device.allocate(8).is_err() && run(&device, kernel.as_ref(), 1, &arguments).is_err());
    // What is held is in the way: its memory would go with the context.
    drop((device, kernel));
    let error = opened().unwrap_err().to_string();
    assert!(error.contains("its context is lost since kernel wild"), "{error}");
    drop(buffer);
    // Whether the driver gives a new one is up to it: the one of an H200 (13.0) does not.
    let device = match opened() {
        Ok(device) => device,
        Err(error) => return assert!(error.to_string().contains("no context"), "{error}"),
    };
    let scale = device.compile(&scale(3), "scale").unwrap();
    let (a, out) = (buffer_of(&device, &[1, 2, 3]), buffer_of(&device, &[0; 3]));
    let arguments = [
        KernelArgument::Buffer(a, 0),
        KernelArgument::Buffer(out.clone(), 0),
        KernelArgument::Scalar(Scalar::I64, 10),
        KernelArgument::Scalar(Scalar::U32, 3),
    ];
    assert_eq!(run(&device, scale.as_ref(), 1, &arguments).unwrap().status, 0);
    assert_eq!(words(&device, &out), [13, 24, 35]);
}
