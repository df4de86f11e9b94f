//! Text with statements and commands, cut into these as it comes: of a file, of the standard input, of a terminal.

use crate::statements;

/// Words that are commands without a dot before them, as people type them who look for the way out.
const BARE_COMMANDS: [&str; 3] = ["exit", "quit", "help"];

/// What a script has one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// A statement without its `;`, or a command.
    pub text: String,
    /// The line of the script that it begins in; the first is 1.
    pub line: usize,
    /// Whether it is a command of the shell: a line that begins with `.` or `\`, or one word such as `quit`.
    pub is_command: bool,
}

/// A text and how far it was taken. A command stands at the beginning of a line, where no statement is open.
#[derive(Debug)]
pub struct Script {
    text: String,
    at: usize,
    /// The line of `at`.
    line: usize,
    /// A statement is open, and what came last does not end it: no need to look.
    is_open: bool,
}

impl Script {
    /// A script that begins with this text.
    pub fn new(text: &str) -> Script {
        let mut script = Script { text: String::new(), at: 0, line: 1, is_open: false };
        script.push(statements::without_mark(text));
        script
    }

    /// Adds what follows.
    pub fn push(&mut self, more: &str) {
        self.is_open &= !more.contains(';');
        // What was taken is forgotten, but for the beginning of a line that goes on.
        let kept = self.text[..self.at].rfind('\n').map_or(0, |end| end + 1);
        self.text.drain(..kept);
        self.at -= kept;
        self.text.push_str(more);
    }

    /// Whether a statement has begun, or a comment that goes on.
    pub fn is_pending(&self) -> bool {
        let rest = &self.text[self.at..];
        !statements::is_blank(rest) || statements::is_open_comment(rest)
    }

    /// The next part that is complete; where the text is whole, also one without an end.
    pub fn next(&mut self, is_whole: bool) -> Option<Part> {
        if self.is_open && !is_whole {
            return None;
        }
        loop {
            let start = self.at + statements::blank(&self.text[self.at..]);
            let rest = &self.text[start..];
            if rest.is_empty() {
                return None;
            }
            let line_start = self.text[..start].rfind('\n').map_or(0, |end| end + 1);
            let line = rest.split('\n').next().unwrap_or_default();
            if self.text[line_start..start].trim().is_empty() && is_command(line) {
                if line.len() == rest.len() && !is_whole {
                    return None;
                }
                let (text, end) = (line.trim().to_string(), start + line.len());
                return Some(self.take(start, end, Part { text, line: 0, is_command: true }));
            }
            let end = match statements::end(rest) {
                Some(end) => start + end,
                None if is_whole => self.text.len(),
                None => {
                    self.is_open = true;
                    return None;
                }
            };
            let text = self.text[start..end].trim_end();
            let text = text.strip_suffix(';').unwrap_or(text).trim_end().to_string();
            let part = self.take(start, end, Part { text, line: 0, is_command: false });
            // A lone `;` is no statement.
            if !part.text.is_empty() {
                return Some(part);
            }
        }
    }

    fn take(&mut self, start: usize, end: usize, mut part: Part) -> Part {
        let lines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
        part.line = self.line + lines(&self.text[self.at..start]);
        self.line = part.line + lines(&self.text[start..end]);
        self.at = end;
        part
    }
}

/// Whether a line is a command, where no statement is open.
fn is_command(line: &str) -> bool {
    let line = line.trim();
    let dotted = line.strip_prefix('.').is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic()));
    let word = line.trim_end_matches(';').trim_end();
    dotted || line.starts_with('\\') || BARE_COMMANDS.iter().any(|bare| bare.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a text that comes in pieces, as `line: text`, with `!` before commands.
    fn parts(pieces: &[&str]) -> Vec<String> {
        let shown =
            |part: Part| format!("{}: {}{}", part.line, if part.is_command { "!" } else { "" }, part.text);
        let (mut script, mut found) = (Script::new(""), Vec::new());
        for piece in pieces {
            script.push(piece);
            found.extend(std::iter::from_fn(|| script.next(false)).map(shown));
        }
        found.extend(std::iter::from_fn(|| script.next(true)).map(shown));
        found
    }

    #[test]
    fn a_script_is_statements_and_commands_with_their_lines() {
        let text = "-- first; comment\nselect 1;\n.tables\n  \\d t \nselect\n.5\n, 2; select 3;;\nquit;\nHELP\nselect 'a\nb' as \"x;\"";
        let expected = [
            "2: select 1", "3: !.tables", "4: !\\d t", "5: select\n.5\n, 2", "7: select 3", "8: !quit;",
            "9: !HELP", "10: select 'a\nb' as \"x;\"",
        ];
        assert_eq!(parts(&[text]), expected);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        assert_eq!(parts(&lines), expected);
        assert_eq!(parts(&["select 1; .tables\n"]), ["1: select 1", "1: .tables"]);
        assert_eq!(parts(&["/* a;\n", "b */ select 1;", "-- end"]), ["2: select 1"]);
        assert_eq!(parts(&["", "\n", ";"]), Vec::<String>::new());
    }

    #[test]
    fn what_is_open_is_known() {
        for (text, pending) in [
            ("select 1;\n", false),
            ("select 1", true),
            (" -- x", false),
            ("/* x", true),
            ("a; /* b */", false),
        ] {
            let mut script = Script::new(text);
            while script.next(false).is_some() {}
            assert_eq!(script.is_pending(), pending, "{text}");
        }
    }
}
