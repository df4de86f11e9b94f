//! Queries beside each other, and after a context is lost.

use super::*;

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
    // A kernel whose better code comes while another one runs is loaded by its next launch, and loading waits for what runs.
    device.finish_compiling();
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
        let (second, count, work, cancelled) = (&second, &count, &work, &cancel);
        scope.spawn(move || {
            let mut started = [0; 8];
            while started == [0; 8] && !cancelled.is_cancelled() {
                second.download(count, 0, &mut started).unwrap();
            }
            (0..10).for_each(|_| work());
            done.send(()).unwrap();
        });
        // Where the second query waits for the first, neither ends: after a minute the first one is cancelled.
        let finished = finished.recv_timeout(Duration::from_secs(60));
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

/// A wild pointer loses the context for the whole process, so this is run alone:
/// `cargo test --test cuda -- --ignored`.
#[test]
#[ignore = "loses the process's CUDA context: .ci/run runs it, alone"]
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
