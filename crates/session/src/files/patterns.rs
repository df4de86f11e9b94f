//! Patterns of paths: `*`, `?`, `[ab]`, `{a,b}`, and `**` for folders of any depth.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use datafusion::error::Result;
use glob::{MatchOptions, Pattern};

use super::error::at;

pub(super) fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?', '[', '{'])
}

/// The paths that match a pattern, each once; hidden ones only where it says so.
pub(super) fn matches(pattern: &str) -> Result<Vec<PathBuf>> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for pattern in alternatives(pattern) {
        let mut paths = Vec::new();
        add_matches(&pattern, &mut paths)?;
        found.extend(paths.into_iter().filter(|path| seen.insert(path.clone())));
    }
    Ok(found)
}

/// Adds the paths that match a pattern without braces. The library of patterns goes through links between folders in circles, so
/// the folders that `**` stands for are found here.
fn add_matches(pattern: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let (before, after) = match pattern.split_once("/**/") {
        Some((before, after)) => (before, after.trim_start_matches("**/")),
        // All that is below.
        None => match pattern.strip_suffix("/**") {
            Some(before) => (before, "*"),
            None => return add_plain_matches(pattern, found),
        },
    };
    let mut bases = Vec::new();
    match before {
        "" => bases.push(PathBuf::from("/")),
        before => add_plain_matches(before, &mut bases)?,
    }
    for base in bases.iter().filter(|base| base.is_dir()) {
        let mut folders = Vec::new();
        add_folders(base, &mut HashSet::new(), &mut folders);
        for folder in folders {
            let folder = folder.to_str().ok_or_else(|| at(&folder, "a pattern must be Unicode"))?;
            add_matches(&format!("{}/{after}", Pattern::escape(folder.trim_end_matches('/'))), found)?;
        }
    }
    Ok(())
}

fn add_plain_matches(pattern: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
    let paths = glob::glob_with(pattern, options).map_err(|error| at(Path::new(pattern), error))?;
    for path in paths {
        found.push(path.map_err(|error| at(error.path(), error.error()))?);
    }
    Ok(())
}

/// Adds a folder and those below it, each once however many links lead there. One that nobody may look into has nothing.
fn add_folders(folder: &Path, seen: &mut HashSet<PathBuf>, folders: &mut Vec<PathBuf>) {
    let Ok(place) = folder.canonicalize() else { return };
    if !seen.insert(place) {
        return;
    }
    folders.push(folder.to_path_buf());
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_hidden =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let paths = entries.flatten().map(|entry| entry.path()).filter(|path| !is_hidden(path) && path.is_dir());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths.iter().for_each(|path| add_folders(path, seen, folders));
}

/// The patterns that one with `{a,b}` stands for, in the order of a shell; braces without a comma stand for themselves. The library of
/// patterns does not know them.
fn alternatives(pattern: &str) -> Vec<String> {
    let Some(open) = pattern.find('{') else { return vec![pattern.to_string()] };
    let (mut depth, mut cuts, mut close) = (0usize, vec![open], None);
    for (place, letter) in pattern[open..].char_indices().map(|(place, letter)| (open + place, letter)) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => cuts.push(place),
            _ => {}
        }
        if depth == 0 {
            close = Some(place);
            break;
        }
    }
    match close {
        Some(close) if cuts.len() > 1 => {
            cuts.push(close);
            let parts = cuts.windows(2).map(|cut| &pattern[cut[0] + 1..cut[1]]);
            let whole = parts.map(|part| format!("{}{part}{}", &pattern[..open], &pattern[close + 1..]));
            whole.flat_map(|pattern| alternatives(&pattern)).collect()
        }
        _ => {
            let rest = alternatives(&pattern[open + 1..]).into_iter();
            rest.map(|rest| format!("{}{rest}", &pattern[..=open])).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_written_out() {
        for (pattern, expected) in [
            ("a/*.csv", vec!["a/*.csv"]),
            ("{a,b}.csv", vec!["a.csv", "b.csv"]),
            ("x{,1}/{a,{b,ü}c}", vec!["x/a", "x/bc", "x/üc", "x1/a", "x1/bc", "x1/üc"]),
            ("{a}{b,c}", vec!["{a}b", "{a}c"]),
            ("a{b,c", vec!["a{b,c"]),
            ("{}", vec!["{}"]),
        ] {
            assert_eq!(alternatives(pattern), expected, "{pattern}");
        }
    }
}
