//! `kelpie devices`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use kelpie_datafusion::{KelpieSession, SessionOptions};

pub fn run() -> Result<ExitCode> {
    let session = KelpieSession::new(SessionOptions::default())?;
    let mut out = std::io::stdout().lock();
    for (kind, device) in session.engine().devices() {
        let kind = format!("{kind:?}").to_lowercase();
        match device {
            Ok(device) => {
                writeln!(out, "{kind}: {}", device.name())?;
                for (name, value) in device.properties() {
                    writeln!(out, "  {name}: {value}")?;
                }
            }
            Err(reason) => writeln!(out, "{kind}: not usable: {reason}")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}
