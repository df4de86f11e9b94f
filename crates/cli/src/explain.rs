//! `kelpie explain`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use datafusion::error::DataFusionError;
use kelpie_session::{Stage, message};

use crate::args::{ExplainArguments, SessionArguments, StageName};
use crate::output::{ResultFile, write_text};
use crate::report::{Page, page};
use crate::statements;

pub async fn run(arguments: ExplainArguments) -> Result<ExitCode> {
    if arguments.analyze || arguments.html.is_some() {
        return analyze(&arguments).await;
    }
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
    let statements = statements_to_explain(sql)?;
    let session = session.open().await?;
    for statement in statements {
        let text = session.explain(&statement, stage).await.map_err(plain)?;
        match stage {
            Stage::Plan | Stage::Variants => write_text(text.trim_end())?,
            // Code is cut nowhere.
            _ => writeln!(std::io::stdout(), "{}", text.trim_end())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs each statement, and says what it did: as text, or on a page.
async fn analyze(arguments: &ExplainArguments) -> Result<ExitCode> {
    let statements = statements_to_explain(&arguments.sql)?;
    let mut file = arguments.html.as_deref().map(ResultFile::create).transpose()?;
    let session = arguments.session.open().await?;
    let mut pages = Vec::new();
    for statement in statements {
        let report = session.report(&statement).await.map_err(plain)?;
        if file.is_none() {
            write_text(report.to_text(true).trim_end())?;
            continue;
        }
        // What is no query has no plan to show, and what is not compiled no code.
        let plan = session.explain(&statement, Stage::Plan).await.ok();
        let code = session.explain(&statement, Stage::Code).await.ok();
        pages.push(Page { statement, report, plan, code });
    }
    if let Some(mut file) = file.take() {
        let mut out = file.begin()?;
        out.write_all(page(&pages).as_bytes())?;
        file.complete()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn statements_to_explain(sql: &str) -> Result<Vec<String>> {
    let statements = statements::all(sql);
    if statements.is_empty() {
        bail!("there is no statement to explain");
    }
    Ok(statements)
}

fn plain(error: DataFusionError) -> anyhow::Error {
    anyhow!(message(&error))
}
