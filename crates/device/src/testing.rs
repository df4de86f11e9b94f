//! What tests share that need something optional: a GPU, NVRTC, or an assembler.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Environment variable that names what must be there for tests: `cuda`, `nvrtc`, `ptxas`, with commas between them.
const REQUIRE: &str = "KELPIE_REQUIRE";

/// Says that a test leaves out something optional (`cuda`, `nvrtc`, `ptxas`), and why.
///
/// # Panics
/// Where `KELPIE_REQUIRE` names it: on a machine that has a GPU, a test must not pass because it did not find it.
pub fn skip(what: &str, reason: &dyn Display) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    assert!(!required.split(',').any(|name| name.trim() == what), "{REQUIRE} names {what}, but: {reason}");
    eprintln!("skipped: without {what}: {reason}");
}

/// The environment variable that names `ptxas`, NVIDIA's assembler as a program, which needs no GPU.
const PTXAS: &str = "KELPIE_PTXAS";

/// The assembler, where there is one; else a test says that it leaves it out.
pub fn ptxas() -> Option<PathBuf> {
    let found = std::env::var_os(PTXAS).map(PathBuf::from).filter(|path| path.is_file());
    if found.is_none() {
        skip("ptxas", &format!("{PTXAS} names no file"));
    }
    found
}

/// Assembles a text for an architecture such as `sm_90`, and gives what the assembler says of registers and memory.
///
/// # Errors
/// The assembler's words, where it rejects the text.
pub fn assemble(ptxas: &Path, text: &str, architecture: &str) -> Result<String, String> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("kelpie-{}-{number}.ptx", std::process::id()));
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let output = Command::new(ptxas)
        .arg(format!("--gpu-name={architecture}"))
        .args(["--verbose", "--output-file", "/dev/null"])
        .arg(&file)
        .output();
    let _ = std::fs::remove_file(&file);
    let output = output.map_err(|error| format!("{}: {error}", ptxas.display()))?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(words) } else { Err(words) }
}
