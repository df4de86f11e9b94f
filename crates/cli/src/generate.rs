//! `kelpie generate`.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use kelpie_session::units;
use kelpie_workloads::GenerateOptions;
use std::io::Write;

use crate::args::{GenerateArguments, thread_count};
use crate::progress::Progress;

pub fn run(arguments: &GenerateArguments) -> Result<ExitCode> {
    let start = Instant::now();
    let bar = Progress::bar(0, "rows");
    let written = arguments.workload.generate(&GenerateOptions {
        scale: arguments.scale,
        output: &arguments.output,
        tables: &arguments.tables,
        threads: thread_count(arguments.threads),
        replace: arguments.force,
        progress: &|p| bar.set(p.rows_done, p.rows_expected),
    })?;
    drop(bar);
    let mut out = std::io::stdout().lock();
    for table in &written {
        let files = if table.files == 1 { "1 file".into() } else { format!("{} files", table.files) };
        let (rows, bytes) = (units::count(table.rows), units::bytes(table.bytes));
        writeln!(out, "{:<10} {rows:>15} rows {bytes:>10} in {files}", table.name)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    writeln!(out, "written to {} in {seconds:.1} s", arguments.output.display())?;
    Ok(ExitCode::SUCCESS)
}
