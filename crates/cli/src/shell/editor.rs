//! The lines of a terminal: editing, history, colours.

use std::borrow::Cow;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};
use kelpie_session::KelpieSession;
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Helper, Hinter};

use super::completion::{Known, Words, complete};
use crate::script::Script;

const PROMPT: &str = "kelpie> ";
const HISTORY_ENTRIES: usize = 10_000;

const KEYWORD: &str = "\x1b[1;34m";
const TEXT: &str = "\x1b[32m";
const NUMBER: &str = "\x1b[36m";
const COMMENT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// What came from the keyboard.
pub enum Typed {
    /// Complete statements, or a command.
    Text(String),
    Interrupt,
    End,
}

/// Reads statements from a terminal, and keeps them for the next time.
pub struct Editor {
    editor: rustyline::Editor<Assistant, FileHistory>,
    history: Option<PathBuf>,
}

impl Editor {
    pub fn open(session: &Arc<KelpieSession>) -> Result<Editor> {
        let config = Config::builder().max_history_size(HISTORY_ENTRIES)?.auto_add_history(true);
        let config = config.completion_type(CompletionType::List).build();
        let mut editor = rustyline::Editor::with_config(config)?;
        let session = Arc::clone(session);
        let (known, files) = (RefCell::default(), FilenameCompleter::new());
        editor.set_helper(Some(Assistant { session, known, files, is_coloured: console::colors_enabled() }));
        let history = dirs::data_dir().map(|folder| folder.join("kelpie").join("history"));
        if let Some(path) = &history {
            // The first time there is none.
            let _ = editor.load_history(path);
        }
        Ok(Editor { editor, history })
    }

    /// The next statements, over as many lines as they take.
    pub fn read(&mut self) -> Result<Typed, ReadlineError> {
        if let Some(assistant) = self.editor.helper_mut() {
            // Statements change what there is.
            assistant.known.take();
        }
        match self.editor.readline(PROMPT) {
            Ok(text) => Ok(Typed::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(Typed::Interrupt),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error),
        }
    }

    /// Writes what was typed last behind the history, at once: the program may be ended in the middle of a query. What goes
    /// wrong is told once.
    pub fn keep_history(&mut self) -> Option<String> {
        let path = self.history.as_ref()?;
        let made = path.parent().map(std::fs::create_dir_all).transpose().map_err(ReadlineError::Io);
        let problem = made.and_then(|_| self.editor.append_history(path)).err()?;
        let problem = format!("the history is not kept: cannot write {}: {problem}", path.display());
        self.history = None;
        Some(problem)
    }
}

/// What helps who types: completion, colours, and the end of a statement.
#[derive(Helper, Hinter)]
struct Assistant {
    session: Arc<KelpieSession>,
    /// Names, from the first completion of a statement on.
    known: RefCell<Option<Known>>,
    files: FilenameCompleter,
    is_coloured: bool,
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let mut known = self.known.borrow_mut();
        let known = known.get_or_insert_with(|| {
            let runtime = tokio::runtime::Handle::current();
            tokio::task::block_in_place(|| runtime.block_on(Known::of(&self.session)))
        });
        match complete(line, position, known) {
            Words::Files => self.files.complete_path(line, position),
            Words::Some { start, words } => {
                let pair = |word: String| Pair { display: word.clone(), replacement: word };
                Ok((start, words.into_iter().map(pair).collect()))
            }
        }
    }
}

impl Validator for Assistant {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match is_complete(context.input()) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

/// Whether Enter runs it: all statements have their `;`, or it is a command.
fn is_complete(text: &str) -> bool {
    let mut script = Script::new(text);
    script.push("\n");
    while script.next(false).is_some() {}
    !script.is_pending()
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        match self.is_coloured {
            true => Cow::Owned(coloured(line)),
            false => Cow::Borrowed(line),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.is_coloured && kind != CmdKind::MoveCursor
    }
}

/// A statement with colours for keywords, texts, numbers and comments.
fn coloured(text: &str) -> String {
    let (mut tokens, dialect) = (Vec::<TokenWithSpan>::new(), GenericDialect {});
    let found = Tokenizer::new(&dialect, text).tokenize_with_location_into_buf(&mut tokens);
    let mut locations: Vec<Location> = tokens.iter().map(|token| token.span.start).collect();
    // What is no token yet begins there, such as a text that is still open.
    locations.extend(found.err().map(|error| error.location));
    let mut places = places(text, &locations);
    places.push(text.len());
    let mut shown = String::with_capacity(text.len() * 2);
    for (index, bounds) in places.windows(2).enumerate() {
        let part = text.get(bounds[0]..bounds[1]).unwrap_or_default();
        let colour = match tokens.get(index) {
            Some(token) => colour_of(&token.token),
            None => Some(TEXT),
        };
        match colour {
            Some(colour) => shown.extend([colour, part, PLAIN]),
            None => shown.push_str(part),
        }
    }
    shown
}

fn colour_of(token: &Token) -> Option<&'static str> {
    match token {
        Token::Word(word) if word.quote_style.is_none() && word.keyword != Keyword::NoKeyword => {
            Some(KEYWORD)
        }
        Token::Number(..) => Some(NUMBER),
        Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::DollarQuotedString(_)
        | Token::NationalStringLiteral(_)
        | Token::HexStringLiteral(_) => Some(TEXT),
        Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)) => {
            Some(COMMENT)
        }
        _ => None,
    }
}

/// The bytes at which locations of a text are, which come in order.
fn places(text: &str, locations: &[Location]) -> Vec<usize> {
    let (mut line, mut column, mut wanted) = (1, 1, locations.iter().peekable());
    let mut places = Vec::with_capacity(locations.len());
    for (position, letter) in text.char_indices() {
        while wanted.next_if(|location| (location.line, location.column) <= (line, column)).is_some() {
            places.push(position);
        }
        (line, column) = if letter == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    places.extend(wanted.map(|_| text.len()));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_runs_what_is_complete() {
        for (text, complete) in [
            ("select 1", false),
            ("select 1;", true),
            ("select ';", false),
            ("select 1; select", false),
            ("", true),
            ("-- nothing", true),
            ("/* open", false),
            (".tables", true),
            ("\\d t", true),
            ("quit", true),
            ("EXIT;", true),
            ("select\nquit", false),
        ] {
            assert_eq!(is_complete(text), complete, "{text}");
        }
    }

    #[test]
    fn colours_change_no_letter() {
        let marks = [KEYWORD, TEXT, NUMBER, COMMENT, PLAIN];
        for text in [
            "",
            "select 'ü', 1.5 -- x\nfrom \"t\" where a = 'op;en",
            "/* a */ 'x",
            "select \u{1F600}, é FROM t;",
            "  \\d",
        ] {
            let shown = coloured(text);
            let plain = marks.iter().fold(shown.clone(), |text, mark| text.replace(mark, ""));
            assert_eq!(plain, text);
        }
        assert_eq!(coloured("select 'a'"), format!("{KEYWORD}select{PLAIN} {TEXT}'a'{PLAIN}"));
        assert_eq!(coloured("x = 'a"), format!("x = {TEXT}'a{PLAIN}"));
    }
}
