//! `kelpie explain`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use datafusion::error::DataFusionError;
use kelpie_session::{KelpieSession, Stage, message};

use crate::args::{ExplainArguments, SessionArguments, StageName};
use crate::output::{ResultFile, write_text};
use crate::report::{Page, page};
use crate::{plan, statements};

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
    let session = arguments.session.open().await?;
    let statements = statements_to_explain(&session, &arguments).await?;
    show_stage(&session, statements, stage).await
}

/// Shows a stage of each statement.
pub async fn show(session: SessionArguments, sql: &str, stage: Stage) -> Result<ExitCode> {
    let statements = some_statements(sql)?;
    show_stage(&session.open().await?, statements, stage).await
}

async fn show_stage(session: &KelpieSession, statements: Vec<String>, stage: Stage) -> Result<ExitCode> {
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
    let session = arguments.session.open().await?;
    let statements = statements_to_explain(&session, arguments).await?;
    let mut file = arguments.html.as_deref().map(ResultFile::create).transpose()?;
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

/// The statements of the command line, or the one that runs its plan.
async fn statements_to_explain(session: &KelpieSession, arguments: &ExplainArguments) -> Result<Vec<String>> {
    match &arguments.plan {
        Some(path) => Ok(vec![plan::added(session, path).await?.statement()]),
        None => some_statements(arguments.sql.as_deref().unwrap_or_default()),
    }
}

fn some_statements(sql: &str) -> Result<Vec<String>> {
    let statements = statements::all(sql);
    if statements.is_empty() {
        bail!("there is no statement to explain");
    }
    Ok(statements)
}

fn plain(error: DataFusionError) -> anyhow::Error {
    anyhow!(message(&error))
}
