//! `kelpie --version`: what was built, and what it can run on.

use kelpie_session::Engine;
use kelpie_workloads::bench::Machine;

/// The version, the build, and a line a device.
pub fn text() -> String {
    let Machine { build, commit, .. } = Machine::here();
    let mut text = format!("kelpie {} ({build} build of {commit})", env!("CARGO_PKG_VERSION"));
    for (kind, device) in Engine::new().devices() {
        let name = format!("{kind:?}").to_lowercase();
        let state = match device {
            Ok(device) => device.name().to_string(),
            Err(reason) => crate::devices::short(&reason.to_string()),
        };
        text.push_str(&format!("\n{name}: {state}"));
    }
    text
}
