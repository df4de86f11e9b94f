//! `kelpie kernels`: the compiled kernels that processes of this user share.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use kelpie_session::{CACHE_LIMIT_VARIABLE, Engine, KelpieSession, message, units};

use crate::args::{KernelArguments, KernelCommand, SessionArguments};
use crate::{complain, statements};

/// Statements that change what others see begin with these words; none of them is run here.
const WRITING: [&str; 7] = ["alter", "copy", "delete", "drop", "insert", "truncate", "update"];

pub async fn run(arguments: KernelArguments) -> Result<ExitCode> {
    match arguments.command {
        KernelCommand::Show => show(),
        KernelCommand::Prepare { session, queries } => prepare(&session, &queries).await,
    }
}

fn show() -> Result<ExitCode> {
    let cache = Engine::kernel_cache();
    let (entries, bytes) = cache.size();
    let folder = cache.folder().map_or("no folder".into(), |folder| folder.display().to_string());
    let (bytes, limit) = (units::bytes(bytes), units::bytes(cache.limit()));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{entries} kernels, {bytes} of at most {limit} ({CACHE_LIMIT_VARIABLE}), in {folder}")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs every query of some files once, and waits until their best code is there: who runs them later waits for no compiler.
async fn prepare(session: &SessionArguments, queries: &Path) -> Result<ExitCode> {
    let files = files(queries)?;
    let session = session.open().await?;
    let (mut done, mut failed) = (0usize, 0usize);
    for file in &files {
        let name = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
        for statement in statements::all(statements::without_mark(&text)) {
            match run_one(&session, &statement).await {
                Ok(()) => done += 1,
                Err(error) => {
                    failed += 1;
                    complain(&format!("{name}: {error:#}"));
                }
            }
        }
    }
    session.engine().wait_for_compilers();
    println!("{done} statements of {} files ran and their kernels are kept; {failed} did not", files.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_one(session: &KelpieSession, statement: &str) -> Result<()> {
    let first = statement.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    if WRITING.contains(&first.as_str()) {
        bail!("a statement that writes is not run to prepare kernels: {first} …");
    }
    let result = session.sql(statement).await;
    result.map(|_| ()).map_err(|error| anyhow!(message(&error)))
}

/// A file, or the `.sql` files of a folder by name.
fn files(queries: &Path) -> Result<Vec<PathBuf>> {
    let what = || format!("cannot read {}", queries.display());
    if std::fs::metadata(queries).with_context(what)?.is_file() {
        return Ok(vec![queries.to_path_buf()]);
    }
    let entries = std::fs::read_dir(queries).with_context(what)?;
    let mut files =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().with_context(what)?;
    files.retain(|path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("sql")));
    files.sort();
    if files.is_empty() {
        bail!("{} has no .sql file", queries.display());
    }
    Ok(files)
}
