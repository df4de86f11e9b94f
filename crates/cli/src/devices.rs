//! `kelpie devices`: what there is, what is known of it, and with `--calibrate` its measurement.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use kelpie_session::{Calibrated, Device, DeviceKind, Engine, Measured, Point};

use crate::args::{DeviceArguments, DeviceName};

pub fn run(arguments: &DeviceArguments) -> Result<ExitCode> {
    let engine = Engine::calibrated();
    let mut devices = engine.devices();
    let is_usable = |kind| devices.iter().any(|(own, device)| *own == kind && device.is_ok());
    let kind = match arguments.device {
        None => None,
        Some(DeviceName::Cpu) => Some(DeviceKind::Cpu),
        Some(DeviceName::Cuda) => Some(DeviceKind::Cuda),
        Some(DeviceName::Simt) => Some(DeviceKind::Simt),
        // What a query would take.
        Some(DeviceName::Auto) if is_usable(DeviceKind::Cuda) => Some(DeviceKind::Cuda),
        Some(DeviceName::Auto) => Some(DeviceKind::Cpu),
    };
    devices.retain(|(own, _)| kind.is_none_or(|kind| kind == *own));
    let mut out = std::io::stdout().lock();
    for (own, device) in &devices {
        let name = format!("{own:?}").to_lowercase();
        match device {
            // How fast the interpreter is interests nobody who does not ask for it.
            Ok(_) if arguments.calibrate && kind.is_none() && *own == DeviceKind::Simt => {}
            Ok(device) if arguments.calibrate => {
                writeln!(out, "{name}: {}", device.name())?;
                calibrate(&engine, device, &mut out)?;
            }
            Ok(device) => {
                writeln!(out, "{name}: {}", device.name())?;
                for (name, value) in device.properties() {
                    writeln!(out, "  {name}: {value}")?;
                }
                write_known(&engine.calibration(device), &mut out)?;
            }
            Err(reason) if arguments.calibrate && kind.is_some() => {
                return Err(anyhow!("{name} is not usable: {reason}"));
            }
            Err(reason) if arguments.verbose => writeln!(out, "{name}: not usable: {reason}")?,
            Err(reason) => writeln!(out, "{name}: {}", short(&reason.to_string()))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Why a device cannot be used, on one line: what was looked for, and where, is for who asks.
pub fn short(reason: &str) -> String {
    let reason = reason.split("; looked for ").next().unwrap_or(reason);
    let reason = reason.rsplit(" is not usable: ").next().unwrap_or(reason);
    format!("not usable: {}", reason.lines().next().unwrap_or_default())
}

/// Measures a device, and shows and keeps what it found.
fn calibrate(engine: &Engine, device: &Arc<dyn Device>, out: &mut dyn Write) -> Result<()> {
    if let Calibrated::Ignored(note) = engine.calibration(device) {
        writeln!(out, "  {note}")?;
    }
    let (measured, kept) = engine.calibrate(device)?;
    write_points(&measured, out)?;
    write_measured(&measured, out)?;
    match kept {
        Ok(path) => writeln!(out, "  kept in {}", path.display())?,
        Err(reason) => return Err(anyhow!("what was measured is not kept: {reason}")),
    }
    Ok(())
}

/// What is known of a device.
fn write_known(known: &Calibrated, out: &mut dyn Write) -> Result<()> {
    match known {
        Calibrated::Measured(measured) => write_measured(measured, out),
        Calibrated::Assumed => {
            writeln!(out, "  caches: assumed; `kelpie devices --calibrate` measures them")?;
            Ok(())
        }
        Calibrated::Ignored(note) => {
            writeln!(out, "  caches: assumed; {note}")?;
            Ok(())
        }
    }
}

/// What rules and people may want to know of what was measured.
fn write_measured(measured: &Measured, out: &mut dyn Write) -> Result<()> {
    let size = |size: Option<u64>, without: &str| {
        size.map_or(without.to_string(), |size| format!("{} (measured)", bytes(size)))
    };
    writeln!(out, "  reads memory at: {:.1} GB/s (measured)", measured.memory)?;
    writeln!(out, "  link: {:.1} GB/s (measured)", measured.link)?;
    let assumed = "assumed, as the reads do not show it";
    writeln!(out, "  cache of a core or multiprocessor: {}", size(measured.core_cache, assumed))?;
    writeln!(out, "  last cache: {}", size(measured.last_cache, assumed))?;
    let reach = size(measured.tlb_reach, "more than was measured");
    writeln!(out, "  reach of address translation: {reach}")?;
    writeln!(out, "  measured in: {:.1} s", measured.took_ms as f64 / 1e3)?;
    Ok(())
}

/// The rates, a line a working set.
fn write_points(measured: &Measured, out: &mut dyn Write) -> Result<()> {
    let Measured { reads, page_reads, atomics, .. } = measured;
    let mut sizes: Vec<u64> = reads.iter().chain(atomics).map(|point| point.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    writeln!(out, "  {:>12} {:>12} {:>12} {:>12}", "working set", "reads", "page a read", "atomics")?;
    for size in sizes {
        let of = |points: &[Point]| {
            let point = points.iter().find(|point| point.bytes == size);
            point.map_or(String::new(), |point| rate(point.per_second))
        };
        let columns =
            format!("  {:>12} {:>12} {:>12} {:>12}", bytes(size), of(reads), of(page_reads), of(atomics));
        writeln!(out, "{}", columns.trim_end())?;
    }
    Ok(())
}

/// A power of two, or nearly.
fn bytes(size: u64) -> String {
    match size {
        0..0x400 => format!("{size} B"),
        0x400..0x10_0000 => format!("{} KiB", size >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", size >> 20),
        _ => format!("{} GiB", size >> 30),
    }
}

/// Accesses a second.
fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e9 => format!("{:.2} G/s", rate / 1e9),
        rate => format!("{:.1} M/s", rate / 1e6),
    }
}
