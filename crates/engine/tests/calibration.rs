//! What was measured of a device changes what rules choose, which say so; it changes no answer.

use std::fs;
use std::path::Path;

use crate::common::*;
use crate::plans::{some_plans, table};
use kelpie_device::disk_cache::file_name;
use kelpie_engine::{Calibrated, Device, DeviceKind};

/// The device of a kind that queries of a choice run on, as far as files tell it from others.
fn device(kind: DeviceKind) -> Arc<dyn Device> {
    let devices = Engine::new().devices();
    let found = devices.into_iter().find(|(own, _)| *own == kind).expect("the engine knows it");
    found.1.expect("it is usable")
}

/// Writes the file of a device that has such caches.
fn write(folder: &Path, kind: DeviceKind, core_cache: u64, last_cache: u64) {
    let identity = device(kind).identity();
    let point = |bytes: u64, per_second: f64| serde_json::json!({"bytes": bytes, "per_second": per_second});
    let measured = serde_json::json!({
        "memory": 20.0, "link": 20.0, "reads": [], "page_reads": [], "took_ms": 1,
        "atomics": [point(64, 1e8), point(last_cache / 2, 2e9), point(last_cache * 4, 5e8)],
        "core_cache": core_cache, "last_cache": last_cache, "tlb_reach": null,
    });
    let content = serde_json::json!({"version": 1, "device": identity, "measured": measured});
    let path = folder.join(format!("{}.json", file_name(&identity)));
    fs::write(path, content.to_string()).expect("the folder is there");
}

/// The reasons that rest on something measured.
fn measured(output: &QueryOutput) -> Vec<String> {
    let choices = output.metrics.choices().filter(|choice| choice.reason.contains("(measured)"));
    choices.map(ToString::to_string).collect()
}

#[test]
fn caches_of_any_size_change_no_answer() {
    let sources = [150, 60].map(table);
    let kinds = [(DeviceKind::Cpu, DeviceChoice::Cpu), (DeviceKind::Simt, DeviceChoice::Simt)];
    let mut seen = BTreeSet::new();
    for (core, last) in [(4 << 10, 32 << 10), (16 << 20, 1 << 30)] {
        let folder = tempfile::tempdir().expect("a folder");
        kinds.iter().for_each(|(kind, _)| write(folder.path(), *kind, core, last));
        let (plain, calibrated) = (Engine::new(), Engine::calibrated_from(folder.path()));
        for (name, plan, ordered) in some_plans(&format!("a cache of {last} bytes"), 12) {
            for (kind, choice) in kinds {
                let own = run(&calibrated, &plan, &sources, on(choice, &[]));
                let other = run(&plain, &plan, &sources, on(choice, &[]));
                let rows = |output: &QueryOutput| rows_of(&output.batch, ordered);
                assert_eq!(rows(&own), rows(&other), "{name} on {kind:?}");
                assert_eq!(measured(&other), [""; 0], "{name}");
                seen.extend(measured(&own));
            }
        }
        let known = calibrated.calibration(&device(DeviceKind::Simt));
        assert!(matches!(known, Calibrated::Measured(_)), "{known:?}");
    }
    for place in ["placement = block (", "placement = global ("] {
        let is_seen = seen.iter().any(|reason| reason.contains(place));
        assert!(is_seen || !is_whole(), "{place}: {seen:#?}");
    }
}
