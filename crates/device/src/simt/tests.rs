#![expect(unsafe_code, reason = "launches hand-written kernels")]

use kelpie_kir::{AtomicOp, Builtin, Scalar, Scope};

use super::*;
use crate::CancelToken;

/// `counts[0] += 1` by every thread, atomically or not; a store outside; an endless loop.
fn module() -> ValidModule {
    let mut b = kelpie_kir::Builder::new();
    for (name, is_atomic) in [("count", true), ("race", false)] {
        b.begin_kernel(name);
        let param = b.add_param("counts", Type::global(Scalar::U32));
        let (counts, one) = (b.param(param), b.u32(1));
        if is_atomic {
            b.atomic_discard(AtomicOp::Add, counts, one, Scope::Device);
        } else {
            let old = b.load(counts);
            let new = b.add(old, one);
            b.store(counts, new);
        }
        b.end_kernel();
    }
    b.begin_kernel("outside");
    let param = b.add_param("counts", Type::global(Scalar::U32));
    let (counts, thread) = (b.param(param), b.builtin(Builtin::ThreadId));
    let place = b.offset(counts, thread);
    b.store(place, thread);
    b.end_kernel();
    b.begin_kernel("spin");
    b.begin_loop();
    let status = b.builtin(Builtin::Status);
    let zero = b.u32(0);
    let cancelled = b.ne(status, zero);
    b.break_if(cancelled);
    b.end();
    b.end_kernel();
    kelpie_kir::validate(b.finish().unwrap()).unwrap()
}

fn launch(
    device: &SimtDevice,
    kernel: &str,
    arguments: &[KernelArgument],
    cancel: &CancelToken,
) -> Result<LaunchReport, DeviceError> {
    let kernel = device.compile(&module(), kernel).unwrap();
    // SAFETY: the interpreter checks every access.
    device.launch(unsafe { Launch::new(kernel.as_ref(), 3, arguments, cancel) })
}

#[test]
fn kernels_run_and_faults_are_errors() {
    for lanes in [4, 32] {
        let device = SimtDevice::new(lanes, 64, 2);
        let buffer = device.allocate(4 * 40).unwrap();
        let mut back = [0; 4];
        device.download(&buffer, 4, &mut back).unwrap();
        assert_eq!(back, [FRESH_BYTE; 4], "fresh memory is not zero");
        device.fill(&buffer, 0, 160, 0).unwrap();
        let arguments = [KernelArgument::Buffer(buffer.clone(), 8)];
        let cancel = CancelToken::default();
        let report = launch(&device, "count", &arguments, &cancel).unwrap();
        device.download(&buffer, 8, &mut back).unwrap();
        assert_eq!((report.status, u32::from_le_bytes(back)), (0, 3 * 64));
        let activity = report.activity.unwrap();
        assert_eq!(activity.lane_steps, activity.warp_steps * u64::from(lanes));
        let race = launch(&device, "race", &arguments, &cancel).unwrap_err().to_string();
        assert!(race.contains("kernel race") && race.contains("data race"), "{race}");
        let outside = launch(&device, "outside", &arguments, &cancel).unwrap_err().to_string();
        assert!(outside.contains("out of bounds"), "{outside}");
        assert!(launch(&device, "count", &[], &cancel).is_err());
    }
    let tolerant = SimtDevice::with_race_detection(32, 32, 1, false);
    let buffer = tolerant.allocate(4).unwrap();
    let arguments = [KernelArgument::Buffer(buffer, 0)];
    launch(&tolerant, "race", &arguments, &CancelToken::default()).unwrap();
}

/// What fresh memory holds.
const FRESH_BYTE: u8 = 0xa5;

#[test]
fn launches_are_cancelled() {
    let (device, cancel) = (SimtDevice::new(32, 32, 1), CancelToken::default());
    std::thread::scope(|scope| {
        let launched = scope.spawn(|| launch(&device, "spin", &[], &cancel));
        cancel.cancel();
        assert_eq!(launched.join().unwrap().unwrap().status, 1);
    });
}

#[test]
fn the_budget_is_kept() {
    let device = SimtDevice::new(32, 32, 1);
    device.set_memory_limit(Some(100));
    let buffer = device.allocate(60).unwrap();
    assert!(matches!(device.allocate(60), Err(DeviceError::OutOfMemory { used: 60, limit: 100, .. })));
    assert!(device.allocate(usize::MAX).is_err());
    assert!(device.upload(&buffer, 59, &[1, 2]).is_err());
    assert!(device.fill(&buffer, usize::MAX, 2, 0).is_err());
    drop(buffer);
    assert_eq!(device.memory(), (0, 100));
    assert!(SimtDevice::new(4, 32, 1).upload(&device.allocate(4).unwrap(), 0, &[1]).is_err());
}
