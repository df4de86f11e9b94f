//! The device's sort by itself: its time by the number of keys, the bits in which they differ, and the order in which they come.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use kelpie_session::{Arrival, Device, DeviceKind, Engine, SortSample};

use super::point::Point;
use super::{ExperimentOptions, Findings, Listener};

/// Bits of keys.
const WIDTHS: [u32; 4] = [16, 32, 48, 64];
/// Rows at scale factor 1.
const ROWS: [u64; 5] = [1 << 16, 1 << 20, 10_000_000, 30_000_000, 100_000_000];

/// The device that is asked for, as a query would take it.
fn device(engine: &Engine, settings: &[(String, String)]) -> Result<Arc<dyn Device>> {
    let name = settings.iter().rev().find(|(name, _)| name == "kelpie.device");
    let name = name.map_or("auto", |(_, value)| value.as_str());
    let wanted: &[DeviceKind] = match name {
        "cpu" => &[DeviceKind::Cpu],
        "cuda" => &[DeviceKind::Cuda],
        "simt" => &[DeviceKind::Simt],
        _ => &[DeviceKind::Cuda, DeviceKind::Cpu],
    };
    let devices = engine.devices();
    let usable = |kind: &DeviceKind| {
        let found = devices.iter().find(|(own, device)| own == kind && device.is_ok());
        found.and_then(|(_, device)| device.as_ref().ok().cloned())
    };
    wanted.iter().find_map(usable).ok_or_else(|| anyhow!("the device {name} cannot be used"))
}

/// Adds the points: a series a width and order, a position a number of rows.
pub(super) fn measure(
    options: &ExperimentOptions,
    findings: &mut Findings,
    listener: &dyn Listener,
) -> Result<()> {
    let engine = Engine::new();
    let device = device(&engine, &options.settings)?;
    let scale = options.scales.first().copied().unwrap_or(1.0);
    listener.step(&device.name());
    for rows in ROWS.map(|rows| ((rows as f64 * scale).round() as u64).max(1)) {
        let position = rows.to_string();
        if !options.only.is_empty() && !options.only.contains(&position) {
            continue;
        }
        for bits in WIDTHS {
            for arrival in Arrival::ALL {
                let series = format!("{bits} bits, {}", arrival.name());
                listener.step(&format!("{rows} rows of {series}"));
                let mut point = Point::new(&series, &position, Some(rows as f64));
                point.rows = usize::try_from(rows).ok();
                match engine.time_sort(&device, SortSample { rows, bits, arrival }, options.runs) {
                    Ok(times) => {
                        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
                        let kernels: Vec<f64> = times.iter().map(|time| ms(time.kernels)).collect();
                        let whole: Vec<f64> = times.iter().map(|time| ms(time.whole)).collect();
                        point.set_kernels(&kernels);
                        point.set_totals(&whole);
                    }
                    Err(error) => point.note = Some(error.to_string()),
                }
                findings.add(point, None);
            }
        }
    }
    Ok(())
}
