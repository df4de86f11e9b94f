#![expect(unsafe_code, reason = "launches hand-written kernels")]

use super::*;

#[test]
fn memory_is_the_devices_own_and_bounded() {
    let (device, other) = (CpuDevice::new(Some(1)).unwrap(), CpuDevice::new(Some(1)).unwrap());
    device.set_memory_limit(Some(1 << 20));
    let buffer = device.allocate(1000).unwrap();
    device.upload(&buffer, 10, &[1, 2, 3]).unwrap();
    device.fill(&buffer, 11, 1, 9).unwrap();
    let mut back = [0; 3];
    device.download(&buffer, 10, &mut back).unwrap();
    assert_eq!(back, [1, 9, 3]);
    assert!(other.upload(&buffer, 0, &[1]).is_err());
    assert!(matches!(device.allocate(2 << 20), Err(DeviceError::OutOfMemory { .. })));
    let (used, limit) = device.memory();
    assert!((1000..2000).contains(&used) && limit == 1 << 20);
    assert!(device.properties().iter().any(|(name, value)| name == "workers" && value == "1"));
}

/// `out[block] += count` rows are taken from a shared counter by every worker; `Report`s, spins or uses shared memory.
fn morsel_kernel() -> ValidModule {
    use kelpie_kir::{AtomicOp, Builtin, Pointee, Scalar, Scope, Type};
    let mut b = kelpie_kir::Builder::new();
    b.begin_kernel("sum");
    let params = [
        b.add_param("counter", Type::global(Scalar::U64)),
        b.add_param("data", Type::global(Scalar::I32)),
        b.add_param("rows", Type::Scalar(Scalar::U64)),
        b.add_param("total", Type::global(Scalar::I64)),
    ];
    let [counter, data, rows, total] = params.map(|param| b.param(param));
    let own = b.shared("own", Pointee::Scalar(Scalar::I64), 1);
    let zero = b.i64(0);
    b.store(own, zero);
    b.begin_loop();
    let one = b.u64(1);
    let row = b.atomic(AtomicOp::Add, counter, one, Scope::Device);
    let end = b.ge(row, rows);
    b.break_if(end);
    let value = b.element(data, row);
    let value = b.convert(value, Scalar::I64);
    let sum = b.load(own);
    let sum = b.add(sum, value);
    b.store(own, sum);
    b.end();
    let sum = b.load(own);
    b.atomic_discard(AtomicOp::Add, total, sum, Scope::Device);
    b.end_kernel();
    b.begin_kernel("spin");
    b.begin_loop();
    let status = b.builtin(Builtin::Status);
    let zero = b.u32(0);
    let cancelled = b.ne(status, zero);
    b.break_if(cancelled);
    b.end();
    b.end_kernel();
    b.begin_kernel("report");
    b.report(17);
    b.end_kernel();
    kelpie_kir::validate(b.finish().unwrap()).unwrap()
}

fn upload(device: &CpuDevice, data: &[u8]) -> Buffer {
    let buffer = device.allocate(data.len()).unwrap();
    device.upload(&buffer, 0, data).unwrap();
    buffer
}

#[test]
fn a_kernel_takes_morsels_with_any_number_of_blocks() {
    use crate::{CancelToken, KernelArgument};
    use kelpie_kir::Scalar;
    let device = CpuDevice::new(Some(3)).unwrap();
    let module = morsel_kernel();
    let kernel = device.compile(&module, "sum").unwrap();
    assert!(kernel.compile_ns() > 0);
    assert_eq!(device.compile(&module, "sum").unwrap().compile_ns(), 0);
    assert!(device.compile(&module, "none").is_err());
    assert!(device.code(&module, BlockShape::of(device.target())).unwrap().contains("function"));
    let values: Vec<u8> = (0..10_000i32).flat_map(i32::to_le_bytes).collect();
    let data = upload(&device, &values);
    for blocks in [1, 3, 20] {
        let (counter, total) = (upload(&device, &[0; 8]), upload(&device, &[0; 16]));
        let rows = KernelArgument::Scalar(Scalar::U64, 10_000);
        let [counter, data, total] =
            [(&counter, 0), (&data, 0), (&total, 8)].map(|(b, o)| KernelArgument::Buffer(b.clone(), o));
        let arguments = [counter, data, rows, total.clone()];
        let cancel = CancelToken::default();
        // SAFETY: `sum` adds up `rows` values of `data`, and writes its counter and total, which have room.
        let launch = |blocks, arguments| unsafe { Launch::new(kernel.as_ref(), blocks, arguments, &cancel) };
        let report = device.launch(launch(blocks, &arguments)).unwrap();
        assert_eq!(report.status, 0);
        assert!(report.time_ns > 0);
        let KernelArgument::Buffer(total, _) = total else { unreachable!() };
        let mut back = [0; 8];
        device.download(&total, 8, &mut back).unwrap();
        assert_eq!(i64::from_le_bytes(back), 9_999 * 10_000 / 2);
        assert!(device.launch(launch(0, &arguments)).is_err());
        for wrong in [&arguments[..3], &[arguments[2].clone(), arguments[0].clone()]] {
            assert!(device.launch(launch(blocks, wrong)).is_err());
        }
    }
}

#[test]
fn launches_are_cancelled_and_report() {
    use crate::CancelToken;
    let device = CpuDevice::new(Some(2)).unwrap();
    let module = morsel_kernel();
    let (spin, report) =
        (device.compile(&module, "spin").unwrap(), device.compile(&module, "report").unwrap());
    let cancel = CancelToken::default();
    // SAFETY: the kernel accesses no memory.
    let launch = unsafe { Launch::new(spin.as_ref(), 5, &[], &cancel) };
    std::thread::scope(|scope| {
        let launched = scope.spawn(|| device.launch(launch));
        cancel.cancel();
        assert_eq!(launched.join().unwrap().unwrap().status, 1);
    });
    let cancel = CancelToken::default();
    // SAFETY: as above.
    let launch = unsafe { Launch::new(report.as_ref(), 2, &[], &cancel) };
    assert_eq!(device.launch(launch).unwrap().status, 17);
}
