//! The book (`docs/book`): its pages are all there, its links lead somewhere, and what it shows is what the program does.
//!
//! In a page's `console` blocks, lines that begin with `$ ` are commands (`> ` goes on with one), and what follows each is its output;
//! its `sql` blocks are run by one session, and a `text` block behind one is what it gives. `…` within a line stands for any text, and
//! a line of `…` alone for any lines. With `KELPIE_UPDATE_DOCS=1` what differs and has no `…` is written anew. Python is run by the
//! package's own tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::Command;

use crate::program;

/// The largest picture, in bytes: every copy of the repository carries it.
const PICTURE_LIMIT_BYTES: u64 = 1_000_000;

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src")
}

fn read(page: &str) -> String {
    fs::read_to_string(source().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// What links of a page lead to, outside of its blocks of code.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let prose = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    let links = prose.flat_map(|line| line.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    links.filter(|link| !link.contains("://")).map(String::from).collect()
}

/// The pages of the table of contents, in its order.
fn pages() -> Vec<String> {
    let pages = links(&read("SUMMARY.md"));
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The anchor that a heading gets: lower case, blanks become hyphens, and what is neither a letter nor a digit goes.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let letters = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    letters.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_page_and_picture_is_used_and_every_link_leads_somewhere() {
    let pages = pages();
    let mut used: BTreeSet<String> = pages.iter().cloned().collect();
    let mut missing = Vec::new();
    for page in &pages {
        for link in links(&read(page)) {
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.as_str() } else { file };
            used.insert(target.to_string());
            // What stands outside of the folder is no part of a built book.
            let is_there = !target.contains("..") && source().join(target).is_file();
            let has_anchor = |text: &str| {
                fragment.is_empty() || text.lines().any(|l| l.starts_with('#') && anchor(l) == fragment)
            };
            if !is_there || (target.ends_with(".md") && !has_anchor(&read(target))) {
                missing.push(format!("{page} has a link to {link}"));
            }
        }
        for included in read(page).split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next()) {
            if !source().join(included).is_file() {
                missing.push(format!("{page} includes {included}"));
            }
        }
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
    let of_book = |entry: fs::DirEntry| {
        entry.path().strip_prefix(source()).unwrap().to_str().unwrap().replace('\\', "/")
    };
    for folder in [source(), source().join("pictures")] {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file())
        {
            let size = entry.metadata().unwrap().len();
            let name = of_book(entry);
            assert!(name == "SUMMARY.md" || used.contains(&name), "no page of the book leads to {name}");
            assert!(size <= PICTURE_LIMIT_BYTES, "{name} has {size} bytes");
        }
    }
}

/// A block of code of a page.
struct Block<'a> {
    language: &'a str,
    /// Of its first line, from 1.
    line: usize,
    lines: Vec<&'a str>,
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                blocks.push(Block { language, line: number + 2, lines: Vec::new() });
            }
        } else if is_open && let Some(block) = blocks.last_mut() {
            block.lines.push(line);
        }
    }
    blocks
}

/// Whether a line is what was expected, in which `…` stands for anything.
fn fits(expected: &str, line: &str) -> bool {
    let Some((beginning, rest)) = expected.split_once('…') else {
        return expected.trim_end() == line.trim_end();
    };
    let Some(left) = line.strip_prefix(beginning) else { return false };
    left.char_indices().map(|(at, _)| &left[at..]).chain([""]).any(|tail| fits(rest, tail))
}

/// Whether lines are what was expected, in which a line of `…` stands for any lines.
fn all_fit(expected: &[&str], lines: &[&str]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((&"…", rest)) => (0..=lines.len()).any(|skipped| all_fit(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, left)| fits(first, line) && all_fit(rest, left))
        }
    }
}

/// What stands in a page as the output of something.
#[cfg(unix)]
struct Shown<'a> {
    /// Of its first line, from 1.
    line: usize,
    lines: Vec<&'a str>,
}

/// A page whose outputs are compared.
#[cfg(unix)]
struct Page<'a> {
    name: &'a str,
    folder: tempfile::TempDir,
    /// With `KELPIE_UPDATE_DOCS=1`: what another output is written for.
    outdated: Vec<(Shown<'a>, String)>,
}

#[cfg(unix)]
impl<'a> Page<'a> {
    #[track_caller]
    fn hold(&mut self, what: &str, shown: Shown<'a>, output: String) {
        let lines: Vec<&str> = output.lines().collect();
        if all_fit(&shown.lines, &lines) {
            return;
        }
        let is_whole = !shown.lines.iter().any(|line| line.contains('…'));
        if std::env::var_os("KELPIE_UPDATE_DOCS").is_some() && is_whole {
            self.outdated.push((shown, output));
            return;
        }
        let (name, line, lines) = (self.name, shown.line, shown.lines.join("\n"));
        panic!("{name}:{line}: for {what} the page has\n{lines}\nand the program gives\n{output}");
    }

    /// Writes the outputs of today.
    fn update(self, text: &str) {
        let mut lines: Vec<&str> = text.lines().collect();
        for (shown, output) in self.outdated.iter().rev() {
            let from = shown.line - 1;
            lines.splice(from..from + shown.lines.len(), output.lines());
        }
        if !self.outdated.is_empty() {
            fs::write(source().join(self.name), lines.join("\n") + "\n").unwrap();
        }
    }
}

/// A command of a shell, run where the program is `kelpie` and no GPU is seen, so that a page shows the same everywhere.
#[cfg(unix)]
fn run(folder: &Path, command: &str) -> String {
    let ours = program::program(&[]);
    let programs = Path::new(ours.get_program()).parent().unwrap().to_str().unwrap();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(folder).env("PATH", path);
    shell
        .envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("CUDA_VISIBLE_DEVICES", "");
    program::finished(shell.output().unwrap()).out
}

/// The commands of a block, each with the output that follows it.
#[cfg(unix)]
fn commands<'a>(block: &Block<'a>) -> Vec<(String, Shown<'a>)> {
    let mut commands: Vec<(String, Shown)> = Vec::new();
    for (number, line) in block.lines.iter().enumerate() {
        let after = block.line + number + 1;
        match (line.strip_prefix("$ "), line.strip_prefix("> "), commands.last_mut()) {
            (Some(command), ..) => commands.push((command.into(), Shown { line: after, lines: Vec::new() })),
            (None, Some(more), Some((command, output))) if output.lines.is_empty() => {
                command.push('\n');
                command.push_str(more);
                output.line = after;
            }
            (None, _, Some((_, output))) => output.lines.push(line),
            (None, _, None) => panic!("line {}: a block of a console begins with a command", block.line),
        }
    }
    commands
}

/// Runs all `sql` blocks of a page in one session, in the folder that its commands have left, and compares what each gives with the
/// `text` block that follows it.
#[cfg(unix)]
fn hold_statements<'a>(page: &mut Page<'a>, blocks: &[Block<'a>]) {
    const MARK: &str = "-- the next block --\n";
    let of_sql = |block: &Block| block.language == "sql";
    let mut script = String::new();
    for block in blocks.iter().filter(|block| of_sql(block)) {
        let statements = block.lines.join("\n");
        let end = if statements.trim_end().ends_with(';') { "" } else { ";" };
        script.push_str(&format!("{statements}{end}\n.print {MARK}"));
    }
    if script.is_empty() {
        return;
    }
    fs::write(page.folder.path().join("statements-of-the-page.sql"), script).unwrap();
    let output = run(page.folder.path(), "kelpie -f statements-of-the-page.sql");
    let mut outputs = output.split(MARK);
    for (number, block) in blocks.iter().enumerate().filter(|(_, block)| of_sql(block)) {
        let output = outputs.next().unwrap_or_else(|| panic!("{}:{}: {output}", page.name, block.line));
        match blocks.get(number + 1).filter(|next| next.language == "text") {
            Some(shown) => {
                let shown = Shown { line: shown.line, lines: shown.lines.clone() };
                page.hold("the statements", shown, output.to_string());
            }
            None => assert!(!output.contains("error: "), "{}:{}: {output}", page.name, block.line),
        }
    }
}

#[cfg(unix)]
fn hold_page(name: &str) {
    let text = read(name);
    let blocks = blocks(&text);
    let mut page = Page { name, folder: tempfile::tempdir().unwrap(), outdated: Vec::new() };
    // Pages that do not make the data of the quickstart have it.
    if !text.contains("--output tpch") {
        std::os::unix::fs::symlink(program::tpch(), page.folder.path().join("tpch")).unwrap();
    }
    // Statements read the files that commands have made.
    for block in blocks.iter().filter(|block| block.language == "console") {
        for (command, shown) in commands(block) {
            let output = run(page.folder.path(), &command);
            page.hold(&format!("`{command}`"), shown, output);
        }
    }
    // Its examples run over tables of their own: crates/session/tests/dialect.
    if name != "sql.md" {
        hold_statements(&mut page, &blocks);
    }
    page.update(&text);
}

#[cfg(unix)]
#[test]
fn what_the_pages_show_is_what_the_program_does() {
    std::thread::scope(|scope| {
        for page in pages() {
            scope.spawn(move || hold_page(&page));
        }
    });
}

/// What the README shows is a part of the quickstart, whose examples run.
#[test]
fn the_readme_shows_what_the_quickstart_does() {
    let readme = fs::read_to_string(source().join("../../../README.md")).unwrap();
    let quickstart = read("quickstart.md");
    let shown = blocks(&readme).into_iter().filter(|block| block.language == "console");
    let shown: Vec<String> = shown.map(|block| block.lines.join("\n")).collect();
    assert!(!shown.is_empty());
    for shown in shown {
        assert!(quickstart.contains(&shown), "the quickstart does not have\n{shown}");
    }
}

#[test]
fn output_is_compared_but_for_what_is_left_out() {
    assert!(fits("a … c", "a b c") && fits("a…", "a") && fits("… c", "b c c") && !fits("a … c", "a b"));
    assert!(all_fit(&["a", "…", "d"], &["a", "b", "c", "d"]) && all_fit(&["…"], &[]));
    assert!(!all_fit(&["a"], &["a", "b"]) && !all_fit(&["a", "…", "d"], &["a", "b"]));
    assert_eq!(anchor("## What holds, and why: `x`"), "what-holds-and-why-x");
}
