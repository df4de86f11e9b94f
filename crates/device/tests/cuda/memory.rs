//! Copies, and the budget of memory.

use super::*;

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
}
