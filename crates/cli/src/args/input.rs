//! What an argument without an option is: data, a file of statements, or a statement.

use std::path::Path;

use clap::CommandFactory;
use kelpie_session::nearest;

use super::Arguments;

/// What an argument is.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A data file, a folder or a pattern.
    Data,
    /// A file of statements.
    Script,
    /// Statements.
    Sql(String),
}

impl Input {
    /// What an argument is: a file where there is one; else by its looks.
    pub fn of(argument: &Path) -> Result<Input, String> {
        let is_script = argument.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("sql"));
        if argument.exists() {
            return Ok(if is_script && !argument.is_dir() { Input::Script } else { Input::Data });
        }
        let Some(text) = argument.to_str() else { return Ok(Input::Data) };
        let has_blanks = text.trim().contains(char::is_whitespace) || text.contains(';');
        let has_name = text.contains(['/', '*', '?', '[', '{']) || argument.extension().is_some();
        match (has_blanks, has_name) {
            // A path with blanks in it looks like a statement, but few statements end like a file.
            (true, true) if is_script => Ok(Input::Script),
            (true, _) => Ok(Input::Sql(text.to_string())),
            // Its reader says that there is no such file.
            (false, true) => Ok(if is_script { Input::Script } else { Input::Data }),
            (false, false) if text.starts_with(['.', '\\']) => Ok(Input::Sql(text.to_string())),
            (false, false) => Err(unknown(text)),
        }
    }
}

fn unknown(word: &str) -> String {
    let program = Arguments::command();
    let names: Vec<&str> = program.get_subcommands().map(clap::Command::get_name).collect();
    if names.contains(&word) {
        return format!("the command stands before its options: kelpie {word} …");
    }
    let meant =
        nearest(word, names.iter()).map_or(String::new(), |near| format!("; did you mean `kelpie {near}`?"));
    format!("`{word}` is neither a command nor a file, and no statement of SQL is one word{meant}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_what_it_looks_like() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let of = |text: &str| Input::of(Path::new(text));
        assert_eq!(Input::of(&file("select 1.csv")), Ok(Input::Data));
        assert_eq!(Input::of(&file("no ending")), Ok(Input::Data));
        assert_eq!(Input::of(&file("x.SQL")), Ok(Input::Script));
        assert_eq!(Input::of(folder.path()), Ok(Input::Data));
        assert_eq!(of("missing.parquet"), Ok(Input::Data));
        assert_eq!(of("data/*.parquet"), Ok(Input::Data));
        assert_eq!(of("missing.sql"), Ok(Input::Script));
        for sql in ["select 1", "select * from 'x.parquet'", "values(1);", ".tables", "from t\nselect a"] {
            assert_eq!(of(sql), Ok(Input::Sql(sql.into())), "{sql}");
        }
        assert!(of("bnech").unwrap_err().contains("`kelpie bench`"));
        assert!(of("bench").unwrap_err().contains("kelpie bench …"));
        assert!(!of("zzzzzzzz").unwrap_err().contains("mean"));
    }
}
