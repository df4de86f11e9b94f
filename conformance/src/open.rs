//! The statements whose result SQL leaves open.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// A statement: its file and line.
pub type Statement = (String, u32);

/// The list with the reason of each.
#[derive(Debug, Default)]
pub struct OpenList {
    entries: BTreeMap<Statement, Entry>,
}

/// What is known of a statement.
#[derive(Debug)]
pub struct Entry {
    /// Why its result is open.
    pub reason: String,
    /// Whether it does not differ in every run.
    pub sometimes: bool,
}

/// Stands behind a statement that does not differ in every run: threads race, or hashes are seeded anew.
const SOMETIMES: &str = "sometimes";

impl OpenList {
    /// The list of this package.
    pub fn read() -> Result<OpenList> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("open.txt");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        OpenList::parse(&text).with_context(|| path.display().to_string())
    }

    /// A reason is a line, and the statements that have it are indented lines below it: `file.slt:line`, and `sometimes` behind
    /// it. `#` begins a comment.
    fn parse(text: &str) -> Result<OpenList> {
        let mut list = OpenList::default();
        let mut reason: Option<&str> = None;
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            if !line.starts_with(' ') {
                reason = Some(line.trim());
                continue;
            }
            let sometimes = line.ends_with(SOMETIMES);
            let entry = line.trim_end_matches(SOMETIMES).trim();
            let Some((file, number)) = entry.rsplit_once(':') else { bail!("'{entry}' is not file:line") };
            let number = number.parse().with_context(|| format!("'{entry}' is not file:line"))?;
            let reason = reason.with_context(|| format!("{entry} has no reason above it"))?;
            let found = Entry { reason: reason.to_string(), sometimes };
            let before = list.entries.insert((file.to_string(), number), found);
            ensure!(before.is_none(), "{entry} stands there twice");
        }
        Ok(list)
    }

    /// Why the result of a statement is open.
    pub fn reason(&self, statement: &Statement) -> Option<&str> {
        self.entries.get(statement).map(|entry| entry.reason.as_str())
    }

    /// All of them.
    pub fn entries(&self) -> impl Iterator<Item = (&Statement, &Entry)> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_above_their_statements() -> Result<()> {
        let list =
            OpenList::parse("# about\nTies.\n  a.slt:3\n  b/c.slt:4\n\nRandom.\n  a.slt:9 sometimes\n")?;
        assert_eq!(list.reason(&("b/c.slt".into(), 4)), Some("Ties."));
        assert_eq!(list.reason(&("a.slt".into(), 9)), Some("Random."));
        assert_eq!(list.reason(&("a.slt".into(), 4)), None);
        let lines: Vec<_> = list.entries().map(|(statement, entry)| (statement.1, entry.sometimes)).collect();
        assert_eq!(lines, [(3, false), (9, true), (4, false)]);
        Ok(())
    }

    #[test]
    fn what_is_no_entry_is_an_error() {
        for (text, part) in [
            ("  a.slt:3\n", "no reason"),
            ("Ties.\n  a.slt\n", "not file:line"),
            ("Ties.\n  a.slt:x\n", "not file:line"),
            ("Ties.\n  a.slt:3\nOthers.\n  a.slt:3\n", "twice"),
        ] {
            let error = OpenList::parse(text).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
