//! `kelpie tuner`: what the tuner has learned, and why a query runs as it does.

use std::fs;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use kelpie_session::{Engine, Stage, TunedSummary, message};

use crate::args::{SessionArguments, TunerArguments, TunerCommand};
use crate::statements;

/// The option without which nothing that was learned is used.
const TUNER: &str = "kelpie.tuner";

pub async fn run(arguments: TunerArguments) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match arguments.command {
        TunerCommand::Show => show(&Engine::calibrated().tuned(), &mut out)?,
        TunerCommand::Why { session, sql } => {
            drop(out);
            why(session, &sql).await?;
        }
        TunerCommand::Export { file } => {
            let engine = Engine::calibrated();
            let what = || file.display().to_string();
            fs::write(&file, engine.export_tuned()).with_context(what)?;
            writeln!(out, "{} stages in {}", engine.tuned().len(), file.display())?;
        }
        TunerCommand::Import { file } => {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let taken = Engine::calibrated().import_tuned(&text);
            let taken = taken.map_err(|error| {
                anyhow!("{} is not what `kelpie tuner export` writes: {error}", file.display())
            })?;
            writeln!(out, "{taken} stages, of which less was known here")?;
        }
        TunerCommand::Reset => {
            writeln!(out, "{} stages forgotten", Engine::calibrated().forget_tuned())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The stages, the one that takes longest first.
fn show(stages: &[TunedSummary], out: &mut dyn Write) -> Result<()> {
    if stages.is_empty() {
        writeln!(
            out,
            "nothing was learned yet; `SET {TUNER} = genetic` lets stages that run again be tuned"
        )?;
    }
    for stage in stages {
        let TunedSummary { key, device, about, runs, time_ns, .. } = stage;
        writeln!(out, "stage {key} on {device}: {:.3} ms in the last of {runs} runs", *time_ns as f64 / 1e6)?;
        for pipeline in about {
            writeln!(out, "  {pipeline}")?;
        }
        match stage.beside_rules {
            _ if stage.chosen.is_empty() => writeln!(out, "  as the rules choose")?,
            Some((ratio, pairs)) => {
                writeln!(
                    out,
                    "  chosen, {ratio:.2} of the time of the rules' choice in {pairs} pairs of runs:"
                )?;
            }
            None => writeln!(out, "  chosen:")?,
        }
        for (name, value) in &stage.chosen {
            writeln!(out, "    kelpie.variant.{name} = {value}")?;
        }
        for trial in &stage.trials {
            writeln!(out, "  tried {trial}")?;
        }
        writeln!(out, "  lost to trials {:.2} runs, saved {:.2}", stage.lost, stage.saved)?;
    }
    Ok(())
}

/// Each choice of a query with its reason: a rule's, what was learned, or that it is forced.
async fn why(mut session: SessionArguments, sql: &str) -> Result<()> {
    if session.settings.set.iter().all(|(name, _)| name != TUNER) {
        session.settings.set.push((TUNER.into(), "genetic".into()));
    }
    let session = session.open().await?;
    for statement in statements::all(sql) {
        let text = session.explain(&statement, Stage::Variants).await;
        let text = text.map_err(|error| anyhow!(message(&error)))?;
        // What else would be possible is what `kelpie variants` shows.
        for line in text.lines().filter(|line| !line.starts_with("  ")) {
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}
