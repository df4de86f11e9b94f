//! `kelpie --version`: what was built, and what it can run on.

use kelpie_session::Engine;

/// What kind of build it is, and of which sources where the benchmarks are in it, which have to say.
#[cfg(feature = "workloads")]
fn build() -> String {
    let machine = kelpie_workloads::bench::Machine::here();
    format!("{} build of {}", machine.build, machine.commit)
}

#[cfg(not(feature = "workloads"))]
fn build() -> String {
    format!("{} build", if cfg!(debug_assertions) { "debug" } else { "release" })
}

/// The version, the build, and a line a device.
pub fn text() -> String {
    let mut text = format!("kelpie {} ({})", env!("CARGO_PKG_VERSION"), build());
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
