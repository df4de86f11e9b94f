use std::fs;

use kelpie_device::cpu::CpuDevice;
use kelpie_device::simt::SimtDevice;

use super::measure::{Extent, measure_so_much};
use super::*;

fn simt() -> Arc<dyn Device> {
    SimtDevice::new(32, 64, 3)
}

#[test]
fn the_interpreter_checks_each_access_of_the_measurement() {
    let measured = measure(&simt()).unwrap();
    let sizes = |points: &[Point]| points.iter().map(|point| point.bytes).collect::<Vec<_>>();
    assert_eq!(sizes(&measured.reads), [16 << 10, 32 << 10, 64 << 10]);
    assert_eq!(sizes(&measured.atomics), [64, 64 * 64, 64 << 10]);
    let mut points = measured.reads.iter().chain(&measured.page_reads).chain(&measured.atomics);
    assert!(points.all(|point| point.per_second > 0.0), "{measured:?}");
    assert!(measured.memory > 0.0 && measured.link > 0.0);
}

#[test]
fn a_processor_is_measured() {
    let device: Arc<dyn Device> = CpuDevice::new(Some(2)).unwrap();
    let extent = Extent { most_bytes: 4 << 20, launch_ns: 100_000, runs: 3 };
    let measured = measure_so_much(&device, extent).unwrap();
    assert_eq!(measured.reads.len(), 9);
    // 256 and 512 pages: 1,024 with a line between each two are more than there is memory.
    assert_eq!(measured.page_reads.len(), 2);
    println!("{measured:#?}");
}

fn folder_of(device: &Arc<dyn Device>, measured: &Measured) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    file::write(folder.path(), &device.identity(), measured).unwrap();
    folder
}

#[test]
fn an_engine_uses_what_is_kept_where_it_is_told_to() {
    let device = simt();
    let measured = Measured { memory: 1.0, link: 1.0, core_cache: Some(1 << 20), ..Measured::default() };
    let folder = folder_of(&device, &measured);
    let engine = Engine::calibrated_from(folder.path());
    assert_eq!(engine.constants(&device).core_cache, Some(1 << 20));
    // It is read once.
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(engine.constants(&device), measured.constants());
    assert_eq!(Engine::new().constants(&device), Calibration::default());
    assert_eq!(Engine::calibrated_from(folder.path()).constants(&device), Calibration::default());
}

#[test]
fn what_is_measured_is_kept_and_used_from_then_on() {
    let device = simt();
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::calibrated_from(folder.path());
    assert!(matches!(engine.calibration(&device), Calibrated::Assumed));
    let (measured, kept) = engine.calibrate(&device).unwrap();
    assert!(kept.is_ok_and(|path| path.starts_with(folder.path())));
    for engine in [engine, Engine::calibrated_from(folder.path())] {
        match engine.calibration(&device) {
            Calibrated::Measured(known) => assert_eq!(*known, *measured),
            other => panic!("{other:?}"),
        }
    }
    // Without a folder it is known to this engine alone.
    let engine = Engine::new();
    assert!(engine.calibrate(&device).unwrap().1.is_err());
    assert!(matches!(engine.calibration(&device), Calibrated::Measured(_)));
}

#[test]
fn sizes_follow_from_the_curve_and_from_what_the_driver_tells() {
    let curve = |rates: &[f64]| {
        let point =
            |(index, rate): (usize, &f64)| Point { bytes: 16 << (10 + index), per_second: *rate * 1e9 };
        rates.iter().enumerate().map(point).collect::<Vec<_>>()
    };
    let sizes = |reads: Vec<Point>, kind, told| {
        let mut measured = Measured { reads, ..Measured::default() };
        measured.derive(kind, told);
        (measured.core_cache, measured.last_cache)
    };
    let nothing = Attributes::default();
    // First level 32 KiB, second 1 MiB, third 16 MiB.
    let cpu = [9.0, 8.9, 6.0, 5.5, 5.4, 5.3, 5.2, 3.0, 2.2, 2.0, 1.9, 0.9, 0.6, 0.55, 0.5];
    assert_eq!(sizes(curve(&cpu), DeviceKind::Cpu, nothing), (Some(1 << 20), Some(16 << 20)));
    assert_eq!(sizes(curve(&cpu[..7]), DeviceKind::Cpu, nothing), (None, None));
    // First level 128 KiB, second 32 MiB for one half of the multiprocessors.
    let gpu = [9.0, 8.9, 9.0, 8.8, 6.0, 5.3, 5.2, 5.2, 5.2, 5.0, 4.9, 4.8, 2.0, 1.1, 1.0];
    let told = Attributes { last_cache: Some(50 << 20), ..nothing };
    assert_eq!(sizes(curve(&gpu), DeviceKind::Cuda, told), (Some(128 << 10), Some(32 << 20)));
    assert_eq!(sizes(curve(&gpu[..8]), DeviceKind::Cuda, told), (Some(128 << 10), Some(50 << 20)));
    let told = Attributes { last_cache: Some(6 << 20), ..nothing };
    assert_eq!(sizes(curve(&gpu), DeviceKind::Cuda, told).1, Some(6 << 20));
}

#[test]
fn rates_of_atomics_are_those_within_the_last_cache_and_far_beyond_it() {
    let points = [(64, 1.0), (4096, 2.0), (1 << 16, 8.0), (1 << 20, 9.0), (1 << 24, 7.0), (1 << 28, 3.0)];
    let points = points.map(|(bytes, per_second)| Point { bytes, per_second });
    let rates = |cache| atomic_rates(&points, cache).map(|rates| (rates.cached, rates.beyond));
    assert_eq!(rates(32 << 20), Some((7, 3)));
    assert_eq!(rates(4 << 20), Some((9, 3)));
    // Nothing lies far beyond, or within.
    assert_eq!((rates(1 << 28), rates(1 << 10)), (None, None));
}
