//! `kelpie variants`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use kelpie_session::{Stage, axes};

use crate::args::VariantArguments;
use crate::explain;

pub async fn run(arguments: VariantArguments) -> Result<ExitCode> {
    if let Some(sql) = &arguments.sql {
        return explain::show(arguments.session, sql, Stage::Variants).await;
    }
    let mut out = std::io::stdout().lock();
    for axis in axes() {
        writeln!(
            out,
            "kelpie.variant.{} ({} level, {}): {}",
            axis.name, axis.level, axis.status, axis.about
        )?;
        writeln!(out, "  rule, {}", axis.values.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}
