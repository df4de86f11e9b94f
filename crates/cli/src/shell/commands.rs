//! The commands of the shell.

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use kelpie_session::nearest;

use super::describe::describe;
use super::{Next, Shell, expanded, println};
use crate::args::Format;
use crate::version;

/// A command, as `.help` shows it.
pub struct Command {
    /// Its name, with the dot.
    pub name: &'static str,
    /// Names by which other programs know it.
    pub also: &'static [&'static str],
    /// What may follow it.
    pub argument: Argument,
    about: &'static str,
}

/// What may follow a command, for its help and for completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    Nothing,
    Switch,
    Number,
    Format,
    File,
    Table,
    Command,
    Text,
}

impl Argument {
    fn shown(self) -> &'static str {
        match self {
            Argument::Nothing => "",
            Argument::Switch => "[on|off]",
            Argument::Number => "[N]",
            Argument::Format => "[format]",
            Argument::File => "[file]",
            Argument::Table => "[table]",
            Argument::Command => "[command]",
            Argument::Text => "[text]",
        }
    }
}

/// All commands, in the order of their names.
pub const COMMANDS: [Command; 15] = [
    Command {
        name: ".bail",
        also: &[],
        argument: Argument::Switch,
        about: "whether an error ends a script on the standard input",
    },
    Command {
        name: ".help",
        also: &["\\?", "\\h", "help"],
        argument: Argument::Command,
        about: "this text, or what a command does",
    },
    Command {
        name: ".maxrows",
        also: &[],
        argument: Argument::Number,
        about: "rows of a table that are shown; 0 is all",
    },
    Command {
        name: ".maxwidth",
        also: &[".width"],
        argument: Argument::Number,
        about: "places that a table may be wide; 0 is any",
    },
    Command {
        name: ".mode",
        also: &[".format"],
        argument: Argument::Format,
        about: "how results are shown: table, line, csv, tsv, json, markdown",
    },
    Command { name: ".nullvalue", also: &[], argument: Argument::Text, about: "the text for NULL" },
    Command {
        name: ".output",
        also: &["\\o"],
        argument: Argument::File,
        about: "send results to a file, until the next .output",
    },
    Command {
        name: ".pager",
        also: &[],
        argument: Argument::Switch,
        about: "show what is longer than the screen in $PAGER, or less",
    },
    Command { name: ".print", also: &["\\echo"], argument: Argument::Text, about: "show a text" },
    Command {
        name: ".quit",
        also: &[".exit", "\\q", "quit", "exit"],
        argument: Argument::Nothing,
        about: "leave",
    },
    Command {
        name: ".read",
        also: &["\\i"],
        argument: Argument::File,
        about: "run the statements and commands of a file",
    },
    Command {
        name: ".schema",
        also: &["\\d", ".describe", ".columns"],
        argument: Argument::Table,
        about: "the columns of a table, or of all; \\d alone is .tables",
    },
    Command {
        name: ".tables",
        also: &["\\dt"],
        argument: Argument::Text,
        about: "the tables, or those whose name has the text",
    },
    Command {
        name: ".timing",
        also: &[".timer", "\\timing"],
        argument: Argument::Switch,
        about: "show how long statements take",
    },
    Command {
        name: ".version",
        also: &[],
        argument: Argument::Nothing,
        about: "the version, the build and the devices",
    },
];

/// Words for which people look that are none of the names, and what is meant.
const MEANT: [(&str, &str); 14] = [
    (".cat", ".read"),
    (".databases", ".tables"),
    (".desc", ".schema"),
    (".end", ".quit"),
    (".import", "select … from 'file'"),
    (".limit", ".maxrows"),
    (".open", "select … from 'file', or kelpie FILE"),
    (".rows", ".maxrows"),
    (".run", ".read"),
    (".show", ".tables"),
    (".source", ".read"),
    (".time", ".timing"),
    ("\\l", ".tables"),
    ("\\pset", ".mode"),
];

/// The command of a name.
pub fn command_named(name: &str) -> Option<&'static Command> {
    let is_one = |known: &str| known.eq_ignore_ascii_case(name);
    COMMANDS.iter().find(|command| is_one(command.name) || command.also.iter().any(|also| is_one(also)))
}

/// The formats of `.mode`.
pub fn format_names() -> Vec<String> {
    let values = Format::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    values.map(|value| value.get_name().to_string()).collect()
}

impl Shell {
    /// Runs a command.
    pub(super) async fn command(&mut self, line: &str) -> Result<Next> {
        let words = words(line.trim_end_matches(';').trim_end())?;
        let (name, arguments) =
            words.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
        if name == "\\x" {
            let format = if self.runner.output.format() == Format::Line { "table" } else { "line" };
            self.set_format(Some(format))?;
            return Ok(Next::Continue);
        }
        let Some(command) = command_named(name) else { return unknown(name) };
        let rest = arguments.join(" ");
        let argument = match command.argument {
            Argument::Nothing if !arguments.is_empty() => bail!("{name} takes no argument"),
            Argument::Text => Some(rest.as_str()).filter(|_| !arguments.is_empty()),
            _ if arguments.len() > 1 => {
                bail!("{name} takes at most one argument; one with blanks is written in quotes")
            }
            _ => arguments.first().map(String::as_str),
        };
        match command.name {
            ".quit" => return Ok(Next::Leave),
            ".read" => {
                let Some(file) = argument else { bail!("{name} needs the name of a file") };
                return self.read_here(file).await;
            }
            ".schema" if name == "\\d" && argument.is_none() => self.print_tables(None)?,
            ".schema" => print_all(describe(&self.runner.session, argument).await?)?,
            ".tables" => self.print_tables(argument)?,
            ".help" => print_all(help(argument)?)?,
            ".version" => println(&version::text())?,
            ".print" => println(argument.unwrap_or_default())?,
            ".mode" => self.set_format(argument)?,
            ".output" => self.set_output(argument)?,
            ".maxrows" => self.set_max_rows(argument)?,
            ".maxwidth" => self.set_max_width(argument)?,
            ".nullvalue" => self.set_null(argument)?,
            ".bail" => self.bails = switch(name, "bail", argument, self.bails)?,
            ".pager" => {
                let output = &mut self.runner.output;
                output.has_pager = switch(name, "pager", argument, output.has_pager)?;
            }
            ".timing" => self.runner.timing = switch(name, "timing", argument, self.runner.timing)?,
            _ => return unknown(name),
        }
        Ok(Next::Continue)
    }

    /// Reads a file as a part of what is read now: its errors are told, and are an error here.
    async fn read_here(&mut self, file: &str) -> Result<Next> {
        match self.read(&expanded(file)).await? {
            Next::Stop if self.runner.interactive => Ok(Next::Continue),
            Next::Stop => bail!("{file} was not read to its end"),
            next => Ok(next),
        }
    }

    fn print_tables(&self, part: Option<&str>) -> Result<()> {
        let part = part.unwrap_or_default().trim_matches(['%', '*']).to_lowercase();
        let tables = self.runner.session.tables().into_iter();
        print_all(tables.filter(|table| table.to_lowercase().contains(&part)))
    }

    fn set_format(&mut self, name: Option<&str>) -> Result<()> {
        let names = format_names();
        if let Some(name) = name {
            let Ok(format) = Format::from_str(name, true) else {
                let meant = nearest(name, names.iter())
                    .map_or(".".to_string(), |near| format!("; did you mean {near}?"));
                bail!("there is no format `{name}`{meant} There are {}", names.join(", "));
            };
            return self.runner.output.set_format(format);
        }
        let now = self.runner.output.format().to_possible_value();
        let now = now.as_ref().map_or("", |value| value.get_name());
        println(&format!("results are shown as {now}; there are {}", names.join(", ")))
    }

    fn set_output(&mut self, file: Option<&str>) -> Result<()> {
        let file = file.filter(|file| *file != "stdout").map(expanded);
        self.runner.output.redirect(file)
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

    fn set_max_width(&mut self, width: Option<&str>) -> Result<()> {
        if let Some(width) = width {
            let number =
                width.parse().with_context(|| format!(".maxwidth {width}: not a number of places"))?;
            self.runner.output.max_width = Some(number);
        }
        match self.runner.output.max_width {
            Some(0) => println("tables are as wide as their rows"),
            Some(width) => println(&format!("tables are at most {width} places wide")),
            None => println("tables are at most as wide as the terminal, elsewhere as wide as their rows"),
        }
    }

    fn set_null(&mut self, text: Option<&str>) -> Result<()> {
        Ok(self.runner.session.set("datafusion.format.null", text.unwrap_or_default())?)
    }
}

/// The other state, or the one that is asked for.
fn switch(name: &str, what: &str, argument: Option<&str>, is_on: bool) -> Result<bool> {
    let is_on = match argument {
        None => !is_on,
        Some("on" | "1" | "true") => true,
        Some("off" | "0" | "false") => false,
        Some(other) => bail!("`{name} {other}`: on or off is meant"),
    };
    println(&format!("{what} is {}", if is_on { "on" } else { "off" }))?;
    Ok(is_on)
}

fn unknown(name: &str) -> Result<Next> {
    let names = || COMMANDS.iter().flat_map(|command| [&command.name].into_iter().chain(command.also));
    let lower = name.to_lowercase();
    let meant = MEANT.iter().find(|(word, _)| *word == lower).map(|(_, meant)| (*meant).to_string());
    let meant = meant.or_else(|| nearest(name, names()).map(|near| format!("`{near}`")));
    let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
    bail!(
        "unknown command `{name}`{meant}{} .help lists the commands",
        if meant.is_empty() { ":" } else { "" }
    )
}

fn print_all<T: AsRef<str>>(lines: impl IntoIterator<Item = T>) -> Result<()> {
    lines.into_iter().try_for_each(|line| println(line.as_ref()))
}

/// The lines of `.help`.
fn help(name: Option<&str>) -> Result<Vec<String>> {
    if let Some(name) = name {
        let dotted = format!(".{name}");
        let Some(command) = command_named(name).or_else(|| command_named(&dotted)) else {
            return unknown(name).map(|_| Vec::new());
        };
        let also = if command.also.is_empty() {
            String::new()
        } else {
            format!(" (also {})", command.also.join(", "))
        };
        return Ok(vec![format!("{} {}: {}{also}", command.name, command.argument.shown(), command.about)]);
    }
    let mut lines =
        vec!["Statements end with `;`. Ctrl-C cancels a running statement, Ctrl-D leaves.".to_string()];
    for command in &COMMANDS {
        let usage = format!("{} {}", command.name, command.argument.shown());
        lines.push(format!("  {usage:<17} {}", command.about));
    }
    lines.push("\\?, \\d, \\dt, \\i, \\o, \\q, \\timing and \\x (a line a value) are as in psql.".into());
    lines.push("select … from 'file.parquet' reads a file. SHOW ALL lists the options.".into());
    Ok(lines)
}

/// The words of a command; quotes hold together what has blanks.
fn words(line: &str) -> Result<Vec<String>> {
    let (mut words, mut rest) = (Vec::new(), line.trim_start());
    while let Some(first) = rest.chars().next() {
        let quoted = Some(first).filter(|first| matches!(first, '\'' | '"'));
        let (word, after) = match quoted {
            Some(quote) => match rest[1..].split_once(quote) {
                Some(parts) => parts,
                None => bail!("`{line}`: a quote has no end"),
            },
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        words.push(word.to_string());
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_one_name_each() {
        let names: Vec<&str> = COMMANDS
            .iter()
            .flat_map(|command| [&command.name].into_iter().chain(command.also))
            .copied()
            .collect();
        for name in &names {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
            assert!(MEANT.iter().all(|(word, _)| word != name), "{name}");
        }
        assert!(COMMANDS.is_sorted_by_key(|command| command.name));
        assert!(help(None).unwrap().iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words(".read  'my file.sql' x").unwrap(), [".read", "my file.sql", "x"]);
        assert_eq!(words(".nullvalue \"\"").unwrap(), [".nullvalue", ""]);
        assert!(words(".read 'x").is_err());
    }
}
