//! `kelpie explain`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use kelpie_session::{Stage, message};

use crate::args::{ExplainArguments, SessionArguments, StageName};
use crate::output::write_text;
use crate::statements;

pub async fn run(arguments: ExplainArguments) -> Result<ExitCode> {
    let stage = match arguments.stage {
        StageName::Plan => Stage::Plan,
        StageName::Variants => Stage::Variants,
        StageName::Pipelines => Stage::Pipelines,
        StageName::Kir => Stage::Kir,
        StageName::Code => Stage::Code,
    };
    show(arguments.session, &arguments.sql, stage).await
}

/// Shows a stage of each statement.
pub async fn show(session: SessionArguments, sql: &str, stage: Stage) -> Result<ExitCode> {
    let session = session.open().await?;
    let statements = statements::all(sql);
    if statements.is_empty() {
        bail!("there is no statement to explain");
    }
    for statement in statements {
        let text = session.explain(&statement, stage).await;
        let text = text.map_err(|error| anyhow!(message(&error)))?;
        match stage {
            Stage::Plan | Stage::Variants => write_text(text.trim_end())?,
            // Code is cut nowhere.
            Stage::Pipelines | Stage::Kir | Stage::Code => {
                writeln!(std::io::stdout(), "{}", text.trim_end())?
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
