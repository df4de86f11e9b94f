//! What the program says of itself: its version, its man pages, and what completes its command line.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::Arguments;
use crate::version;

/// The version, the build and the devices.
pub fn version() -> Result<ExitCode> {
    writeln!(std::io::stdout(), "{}", version::text())?;
    Ok(ExitCode::SUCCESS)
}

/// What completes commands and options in a shell.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "kelpie", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The manual: a page a command in a folder, or the program's own page.
pub fn pages(folder: Option<&Path>) -> Result<ExitCode> {
    // The version is that of the package; on the command line an option shows more of it.
    let program = Arguments::command().version(env!("CARGO_PKG_VERSION")).disable_version_flag(true);
    match folder {
        Some(folder) => {
            let failed = || format!("cannot write to {}", folder.display());
            std::fs::create_dir_all(folder).with_context(failed)?;
            clap_mangen::generate_to(program, folder).with_context(failed)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(program).render(&mut page)?;
            std::io::stdout().write_all(&page)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
