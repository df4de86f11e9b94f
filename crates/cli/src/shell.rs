//! The interactive shell. Without a terminal it reads statements from the standard input.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use kelpie_session::KelpieSession;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Context, Editor, Helper, Highlighter, Hinter, Validator};

use crate::run::{INTERRUPTED, Outcome, Runner};
use crate::{complain, message, statements};

const PROMPT: &str = "kelpie> ";
const CONTINUATION: &str = "   ...> ";
const HISTORY_LINES: usize = 10_000;

const HELP: &str = "\
Statements end with `;` and may span lines. Ctrl-C cancels a running statement, Ctrl-D leaves.
  .tables             the tables
  .schema [table]     the columns of a table, or of all
  .maxrows [N]        rows of a table that are shown; 0 is all
  .timing [on|off]    show how long statements take
  .help               this text
  .quit               leave
select … from 'file.parquet' reads a file; SET kelpie.device = 'cpu' sets an option; EXPLAIN shows the plan.
";

const DOT_COMMANDS: [&str; 6] = [".help", ".maxrows", ".quit", ".schema", ".tables", ".timing"];

const KEYWORDS: [&str; 56] = [
    "ALL",
    "AND",
    "ANALYZE",
    "AS",
    "ASC",
    "AVG",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COALESCE",
    "COUNT",
    "CREATE",
    "CROSS",
    "DATE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT",
    "FALSE",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MAX",
    "MIN",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "SELECT",
    "SET",
    "SHOW",
    "SUM",
    "THEN",
    "UNION",
    "WHEN",
    "WHERE",
    "WITH",
];

/// Whether the shell goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Continue,
    Leave,
}

/// The shell's state between lines.
struct Shell {
    runner: Runner,
    /// Lines of a statement that has no `;` yet.
    pending: String,
    failed: bool,
    /// A statement was cancelled: the end of a script, to a shell nothing.
    cancelled: bool,
}

pub async fn run(runner: Runner) -> Result<ExitCode> {
    let mut shell = Shell { runner, pending: String::new(), failed: false, cancelled: false };
    if io::stdin().is_terminal() {
        shell.runner.interactive = true;
        shell.edit_lines().await?;
        shell.runner.output.complete()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut first = true;
    for line in io::stdin().lock().lines() {
        let line = line.context("cannot read the standard input")?;
        let line = if std::mem::take(&mut first) { statements::without_mark(&line) } else { &line };
        if shell.line(line).await == Next::Leave {
            break;
        }
        if shell.cancelled {
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    shell.finish().await;
    if shell.cancelled {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    shell.runner.output.complete()?;
    // An error ends no script, and is not forgotten.
    Ok(if shell.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Shell {
    /// Reads lines with editing, history and completion, until Ctrl-D or `.quit`.
    async fn edit_lines(&mut self) -> Result<()> {
        let config = Config::builder().max_history_size(HISTORY_LINES)?.auto_add_history(true).build();
        let mut editor: Editor<Completion, FileHistory> = Editor::with_config(config)?;
        editor.set_helper(Some(Completion { session: Arc::clone(&self.runner.session) }));
        let history = dirs::data_dir().map(|folder| folder.join("kelpie").join("history"));
        if let Some(path) = &history {
            // The first time there is none.
            let _ = editor.load_history(path);
        }
        println(&format!("Kelpie {}: .help for help, .quit to leave", env!("CARGO_PKG_VERSION")))?;
        loop {
            let prompt = if self.pending.is_empty() { PROMPT } else { CONTINUATION };
            match editor.readline(prompt) {
                Ok(line) => {
                    if self.line(&line).await == Next::Leave {
                        break;
                    }
                }
                Err(ReadlineError::Interrupted) => self.pending.clear(),
                Err(ReadlineError::Eof) => {
                    if !self.pending.is_empty() {
                        self.complain("the last statement did not run: it has no `;`");
                    }
                    break;
                }
                Err(error) => return Err(error).context("cannot read the terminal"),
            }
        }
        if let Some(path) = &history {
            let saved = path.parent().map(std::fs::create_dir_all).transpose().map_err(ReadlineError::Io);
            if let Err(error) = saved.and_then(|_| editor.save_history(path)) {
                self.complain(&format!("cannot write {}: {error}", path.display()));
            }
        }
        Ok(())
    }

    /// Takes a line: a dot command, or a part of a statement. Errors are told, and the shell goes on.
    async fn line(&mut self, line: &str) -> Next {
        if self.pending.is_empty() && line.trim_start().starts_with('.') {
            return match self.dot_command(line.trim()).await {
                Ok(next) => next,
                Err(error) => {
                    self.complain(&message(&error));
                    Next::Continue
                }
            };
        }
        self.pending.push_str(line);
        self.pending.push('\n');
        let text = std::mem::take(&mut self.pending);
        let (complete, rest) = statements::split(&text);
        if !statements::is_blank(rest) {
            self.pending = rest.to_string();
        }
        for statement in complete {
            if !self.statement(&statement).await {
                self.pending.clear();
                break;
            }
        }
        Next::Continue
    }

    /// Runs what the end of the input left without `;`.
    async fn finish(&mut self) {
        let rest = std::mem::take(&mut self.pending);
        for statement in statements::all(&rest) {
            if !self.statement(&statement).await {
                break;
            }
        }
    }

    /// Runs a statement; false where the user cancelled it, and with it what else stands on the line.
    async fn statement(&mut self, statement: &str) -> bool {
        match self.runner.run(statement).await {
            Ok(outcome) => {
                self.cancelled = outcome == Outcome::Cancelled;
                return !self.cancelled;
            }
            Err(error) => self.complain(&message(&error)),
        }
        true
    }

    fn complain(&mut self, text: &str) {
        self.failed = true;
        complain(&format!("error: {text}"));
    }

    async fn dot_command(&mut self, line: &str) -> Result<Next> {
        let mut words = line.trim_end_matches(';').split_whitespace();
        let (command, argument) = (words.next().unwrap_or_default(), words.next());
        if words.next().is_some() {
            bail!("{command} takes at most one argument");
        }
        match (command, argument) {
            (".quit" | ".exit", None) => return Ok(Next::Leave),
            (".help", None) => println(HELP.trim_end())?,
            (".tables", None) => {
                for table in self.runner.session.tables() {
                    println(&table)?;
                }
            }
            (".schema", table) => self.print_schema(table).await?,
            (".maxrows", rows) => self.set_max_rows(rows)?,
            (".timing", Some("on")) => self.set_timing(true)?,
            (".timing", Some("off")) => self.set_timing(false)?,
            (".timing", None) => self.set_timing(!self.runner.timing)?,
            _ => bail!("unknown command `{line}`: .help lists the commands"),
        }
        Ok(Next::Continue)
    }

    fn set_max_rows(&mut self, rows: Option<&str>) -> Result<()> {
        if let Some(rows) = rows {
            let number = rows.parse().with_context(|| format!(".maxrows {rows}: not a number of rows"))?;
            self.runner.output.max_rows = Some(number);
        }
        match self.runner.output.max_rows {
            Some(0) => println("tables are shown as a whole"),
            Some(rows) => println(&format!("{rows} rows of a table are shown")),
            None => println("40 rows of a table are shown on a terminal, elsewhere all"),
        }
    }

    fn set_timing(&mut self, on: bool) -> Result<()> {
        self.runner.timing = on;
        println(if on { "timing is on" } else { "timing is off" })
    }

    async fn print_schema(&self, table: Option<&str>) -> Result<()> {
        let session = &self.runner.session;
        let tables = session.tables();
        let chosen: Vec<&String> =
            tables.iter().filter(|t| table.is_none_or(|name| name.eq_ignore_ascii_case(t))).collect();
        if let (Some(name), true) = (table, chosen.is_empty()) {
            bail!("there is no table `{name}`: .tables lists the tables");
        }
        for name in chosen {
            let reference = datafusion::common::TableReference::bare(name.as_str());
            let provider = session.context().table_provider(reference).await?;
            println(name)?;
            for field in provider.schema().fields() {
                let null = if field.is_nullable() { "" } else { " not null" };
                println(&format!("  {} {}{null}", field.name(), field.data_type()))?;
            }
        }
        Ok(())
    }
}

fn println(text: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// Completes keywords, tables and dot commands.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Completion {
    session: Arc<KelpieSession>,
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let tables = self.session.tables();
        let (start, words) = complete(&line[..position], &tables);
        Ok((start, words.into_iter().map(|w| Pair { display: w.clone(), replacement: w }).collect()))
    }
}

/// Where the last word begins, and what it may become.
fn complete(before: &str, tables: &[String]) -> (usize, Vec<String>) {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut start =
        before.len() - before.chars().rev().take_while(|c| is_word(*c)).map(char::len_utf8).sum::<usize>();
    if before[..start].trim() == "." {
        start -= 1;
    }
    let word = &before[start..];
    if word.starts_with('.') {
        return (
            start,
            DOT_COMMANDS.iter().filter(|c| c.starts_with(word)).map(ToString::to_string).collect(),
        );
    }
    let lower = word.to_lowercase();
    let mut words: Vec<String> =
        tables.iter().filter(|t| t.to_lowercase().starts_with(&lower)).cloned().collect();
    if !word.is_empty() && !before.trim_start().starts_with('.') {
        let small = word.chars().all(|c| !c.is_uppercase());
        let keywords = KEYWORDS.iter().filter(|k| k.to_lowercase().starts_with(&lower));
        words.extend(keywords.map(|k| if small { k.to_lowercase() } else { k.to_string() }));
    }
    (start, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_completed() {
        let tables = ["lineitem".to_string(), "Orders".to_string()];
        for (before, start, expected) in [
            ("sel", 0, vec!["select"]),
            ("SEL", 0, vec!["SELECT"]),
            ("select * from li", 14, vec!["lineitem", "like", "limit"]),
            ("select * from ord", 14, vec!["Orders", "order"]),
            (".sch", 0, vec![".schema"]),
            ("  .t", 2, vec![".tables", ".timing"]),
            (".schema l", 8, vec!["lineitem"]),
            ("select 'ü', x.", 15, vec!["lineitem", "Orders"]),
        ] {
            let expected = expected.iter().map(ToString::to_string).collect();
            assert_eq!(complete(before, &tables), (start, expected), "{before}");
        }
    }
}
