//! What tests share that need something optional: a GPU, or NVRTC.

use std::fmt::Display;

/// Environment variable that names what must be there for tests: `cuda`, `nvrtc`, or both with a comma between them.
const REQUIRE: &str = "KELPIE_REQUIRE";

/// Says that a test leaves out something optional, `cuda` or `nvrtc`, and why.
///
/// # Panics
/// Where `KELPIE_REQUIRE` names it: on a machine that has a GPU, a test must not pass because it did not find it.
pub fn skip(what: &str, reason: &dyn Display) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == what), "{REQUIRE} names {what}, but: {reason}");
    eprintln!("skipped: without {what}: {reason}");
}
