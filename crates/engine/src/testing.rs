//! What tests share that run wherever there is a GPU.

use kelpie_device::DeviceKind;

use crate::Engine;

/// Whether there is a GPU to test on.
///
/// # Panics
/// Where there is none though the environment variable `KELPIE_REQUIRE` names `cuda`.
pub fn has_cuda(engine: &Engine) -> bool {
    let devices = engine.devices();
    match devices.iter().find(|(kind, _)| *kind == DeviceKind::Cuda) {
        Some((_, Ok(_))) => return true,
        Some((_, Err(error))) => kelpie_device::testing::skip("cuda", error),
        None => kelpie_device::testing::skip("cuda", &"the engine does not know it"),
    }
    false
}
