//! Runs statements and commands: those of `-c` and `-f`, of the standard input, or typed into a terminal.

mod commands;
mod completion;
mod describe;
mod editor;

use std::future::Future;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use kelpie_session::with_lines_from;

use crate::args::{QueryArguments, Source};
use crate::plan;
use crate::run::{INTERRUPTED, Outcome, Runner};
use crate::script::Script;
use crate::{complain, is_broken_pipe, message};
use editor::{Editor, Typed};

/// Files that read each other, at most: one may read itself.
const MOST_FILES: usize = 32;

/// How reading goes on after a statement or a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    /// The user leaves.
    Leave,
    /// An error that ends what is read.
    Stop,
    /// The user cancelled a statement, and with it what else is read.
    Cancelled,
}

/// Where statements come from.
struct Origin<'a> {
    /// What errors say before the line; nothing for what was typed.
    name: Option<&'a str>,
    /// Whether the first error ends it. What comes down a pipe goes on, as in other programs.
    ends_at_errors: bool,
}

/// A session with its output, and how errors are dealt with.
pub struct Shell {
    runner: Runner,
    failed: bool,
    /// Whether the first error is the last, also of the standard input.
    bails: bool,
    files_open: usize,
}

/// Runs what the command line says, in its order; without any of it, what is typed or comes down a pipe.
pub async fn run(mut runner: Runner, arguments: &QueryArguments, sources: Vec<Source>) -> Result<ExitCode> {
    let is_typed = sources.is_empty() && io::stdin().is_terminal();
    // A table alone, to a file or a pipe, is written there: who wants a shell looks at it.
    let wants_rows = arguments.output.is_some() || arguments.format.is_some() || !io::stdout().is_terminal();
    let is_typed = is_typed && (runner.named_tables.is_empty() || !wants_rows);
    runner.interactive = is_typed;
    if is_typed {
        for problem in runner.session.unreadable_tables().await {
            complain(&format!("warning: {problem}"));
        }
    }
    let mut shell = Shell { runner, failed: false, bails: arguments.bail, files_open: 0 };
    let next = match shell.start_up(arguments, is_typed).await? {
        Next::Continue if is_typed => shell.typed().await?,
        Next::Continue if sources.is_empty() => shell.standard_input().await?,
        Next::Continue => shell.sources(sources).await?,
        next => next,
    };
    match next {
        Next::Cancelled => return Ok(ExitCode::from(INTERRUPTED)),
        Next::Stop => return Ok(ExitCode::FAILURE),
        Next::Continue | Next::Leave => shell.runner.output.complete()?,
    }
    // An error ends no standard input, and is not forgotten.
    Ok(if shell.failed && !is_typed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Shell {
    /// Runs the file of `--init`; where people type, else that of their configuration, if there is one.
    async fn start_up(&mut self, arguments: &QueryArguments, is_typed: bool) -> Result<Next> {
        let usual = || dirs::config_dir().map(|folder| folder.join("kelpie").join("init.sql"));
        let file = match &arguments.init {
            Some(file) => file.clone(),
            None if is_typed && !arguments.no_init => match usual().filter(|file| file.is_file()) {
                Some(file) => file,
                None => return Ok(Next::Continue),
            },
            None => return Ok(Next::Continue),
        };
        match self.read(&file).await {
            // A mistake in one's own configuration must not lock one out.
            Ok(Next::Stop) if arguments.init.is_none() => Ok(Next::Continue),
            Err(error) if arguments.init.is_none() && !is_broken_pipe(&error) => {
                complain(&format!("warning: {}", message(&error)));
                Ok(Next::Continue)
            }
            next => next,
        }
    }

    async fn sources(&mut self, sources: Vec<Source>) -> Result<Next> {
        for source in sources {
            let next = match source {
                Source::Sql(sql) => {
                    let origin = Origin { name: None, ends_at_errors: true };
                    self.take(&mut Script::new(&sql), &origin, true).await?
                }
                Source::File(path) => self.read(&path).await?,
                Source::Plan(path) => self.plan(&path).await?,
            };
            if next != Next::Continue {
                return Ok(next);
            }
        }
        Ok(Next::Continue)
    }

    /// Runs a file. Boxed, as a file may read another one.
    fn read<'a>(&'a mut self, path: &'a Path) -> Pin<Box<dyn Future<Output = Result<Next>> + 'a>> {
        Box::pin(async move {
            let name = path.display().to_string();
            if self.files_open >= MOST_FILES {
                bail!("{name} is not read: {MOST_FILES} files that read each other are open");
            }
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            self.files_open += 1;
            let origin = Origin { name: Some(&name), ends_at_errors: true };
            let next = self.take(&mut Script::new(&text), &origin, true).await;
            self.files_open -= 1;
            next
        })
    }

    /// Runs a plan of Substrait.
    async fn plan(&mut self, path: &Path) -> Result<Next> {
        let added = plan::added(&self.runner.session, path).await?;
        let next = self.statement(&added.statement()).await;
        self.runner.session.remove_plan(added).await?;
        next.with_context(|| path.display().to_string())
    }

    /// Reads what comes down a pipe. Where nothing does, the rows of the tables that were named are what is wanted.
    async fn standard_input(&mut self) -> Result<Next> {
        let (mut script, mut line, mut is_empty) = (None::<Script>, String::new(), true);
        let origin = Origin { name: Some("stdin"), ends_at_errors: false };
        // A terminal is asked for nothing here: the results go elsewhere.
        while !io::stdin().is_terminal() {
            line.clear();
            if io::stdin().lock().read_line(&mut line).context("cannot read the standard input")? == 0 {
                break;
            }
            is_empty &= line.trim().is_empty();
            let script = match &mut script {
                Some(script) => {
                    script.push(&line);
                    script
                }
                None => script.insert(Script::new(&line)),
            };
            let next = self.take(script, &origin, false).await?;
            if next != Next::Continue {
                return Ok(next);
            }
        }
        match script {
            Some(mut script) if !is_empty => self.take(&mut script, &origin, true).await,
            _ => {
                let tables = std::mem::take(&mut self.runner.named_tables).into_iter();
                let all = tables.map(|name| format!("SELECT * FROM \"{}\"", name.replace('"', "\"\"")));
                self.sources(all.map(Source::Sql).collect()).await
            }
        }
    }

    /// Reads lines with editing, history and completion, until Ctrl-D or `.quit`.
    async fn typed(&mut self) -> Result<Next> {
        let mut editor = Editor::open(&self.runner.session)?;
        println(&format!("Kelpie {}: .help for help, .quit to leave", env!("CARGO_PKG_VERSION")))?;
        if !self.runner.named_tables.is_empty() {
            println(&format!("tables: {}", self.runner.named_tables.join(", ")))?;
        }
        let origin = Origin { name: None, ends_at_errors: false };
        loop {
            match editor.read() {
                Ok(Typed::Text(text)) => {
                    if let Some(problem) = editor.keep_history() {
                        complain(&format!("warning: {problem}"));
                    }
                    if self.take(&mut Script::new(&text), &origin, true).await? == Next::Leave {
                        return Ok(Next::Leave);
                    }
                }
                Ok(Typed::Interrupt) => {}
                Ok(Typed::End) => return Ok(Next::Leave),
                Err(error) => return Err(error).context("cannot read the terminal"),
            }
        }
    }

    /// Runs the parts of a script that are complete. Errors are told with the place that they are of.
    async fn take(&mut self, script: &mut Script, origin: &Origin<'_>, is_whole: bool) -> Result<Next> {
        while let Some(part) = script.next(is_whole) {
            let next = match part.is_command {
                true => self.command(&part.text).await,
                false => self.statement(&part.text).await,
            };
            match next {
                Ok(Next::Continue) => {}
                Ok(next) => return Ok(next),
                Err(error) if is_broken_pipe(&error) => return Err(error),
                Err(error) => {
                    self.failed = true;
                    let text = message(&error);
                    complain(&format!(
                        "error: {}",
                        origin.name.map_or(text.clone(), |name| placed(&text, name, part.line))
                    ));
                    if origin.ends_at_errors || (self.bails && !self.runner.interactive) {
                        return Ok(Next::Stop);
                    }
                }
            }
        }
        Ok(Next::Continue)
    }

    async fn statement(&mut self, statement: &str) -> Result<Next> {
        Ok(match self.runner.run(statement).await? {
            Outcome::Done => Next::Continue,
            Outcome::Cancelled => Next::Cancelled,
        })
    }
}

/// An error with the file and the line that it is of: that within the statement which the error shows, else the statement's first.
fn placed(text: &str, name: &str, first_line: usize) -> String {
    let (text, line) = with_lines_from(text, first_line);
    format!("{name}:{}: {text}", line.unwrap_or(first_line))
}

fn println(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// A path as a user writes it: `~` is the home folder.
fn expanded(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), dirs::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}
