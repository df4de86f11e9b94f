//! Launches, their reports and errors, and the caches of kernels.

use super::*;

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
        assert!(report.time_ns > 0, "{report:?}");
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
    std::thread::scope(|scope| {
        for module in &modules {
            let device = &device;
            scope.spawn(move || assert!(device.compile(module, "scale").unwrap().compile_ns() > 0));
        }
    });
    for module in &modules {
        assert_eq!(device.compile(module, "scale").unwrap().compile_ns(), 0, "in memory");
    }
    // Another device object has an empty cache in memory: it finds the code on disk.
    let second = opened().unwrap();
    for module in &modules {
        assert_eq!(second.compile(module, "scale").unwrap().compile_ns(), 0, "on disk");
    }
    // Nobody writes entries again while they are damaged.
    device.finish_compiling();
    second.finish_compiling();
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

#[test]
fn a_cancelled_kernel_leaves() {
    let Some(device) = gpu().map(|gpu| Arc::clone(&gpu.device)) else { return };
    // A module that another test loads, or memory that it frees, waits until the GPU is idle, and what this test
    // downloads while its kernel runs waits behind that: it runs alone.
    let _alone = ALONE.write();
    let kernel = device.compile(&endless(), "endless").unwrap();
    let count = buffer_of(&device, &[0]);
    let arguments = [KernelArgument::Buffer(count.clone(), 0)];
    let (cancel, watching) = (CancelToken::default(), Arc::clone(&device).begin_query().unwrap());
    // SAFETY: the kernel adds to the word that it is given, which only the GPU's copies read.
    let launch = || unsafe { Launch::new(kernel.as_ref(), 20, &arguments, &cancel) };
    let report = std::thread::scope(|scope| {
        let launched = scope.spawn(|| device.launch(launch()));
        // All threads have come.
        let mut come = [0; 8];
        while i64::from_le_bytes(come) < 20 * 256 && !launched.is_finished() {
            watching.download(&count, 0, &mut come).unwrap();
        }
        cancel.cancel();
        launched.join().unwrap()
    });
    assert_eq!(report.unwrap().status, 1);
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
