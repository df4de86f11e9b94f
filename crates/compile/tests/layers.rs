//! The modules of this crate are layers: each uses only those below it, and itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The layers from the lowest up, each with its modules. Modules of one layer do not use each other.
const LAYERS: [&[&str]; 14] = [
    &["types", "unsupported", "models", "calibration"],
    &["layout", "variant"],
    &["shape"],
    &["choices", "primitives"],
    &["algebra", "spaces"],
    &["expr"],
    &["plan", "program"],
    &["context"],
    &["lower"],
    &["table"],
    &["operator"],
    &["check"],
    &["pipeline"],
    &["lib"],
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What a file uses of this crate: whatever follows `crate::`, also in braces.
fn used(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        // Comments may point upwards, and the name of another crate may end so.
        let line = text[..at].rsplit('\n').next().unwrap_or_default();
        if line.trim_start().starts_with("//") || line.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &text[at + "crate::".len()..];
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or(list).split(',').map(str::trim).collect(),
            None => vec![rest],
        };
        for name in list {
            let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
            names.push(name[..end].to_string());
        }
    }
    names
}

#[test]
fn modules_use_only_what_lies_below_them() {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("src");
    let mut level = BTreeMap::new();
    for (height, modules) in LAYERS.iter().enumerate() {
        modules.iter().for_each(|module| assert!(level.insert(*module, height).is_none(), "{module} twice"));
    }
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&root).expect("a file of this crate");
        let first = inside.iter().next().and_then(|part| part.to_str()).expect("a name");
        let module = first.strip_suffix(".rs").unwrap_or(first);
        let Some(own) = level.get(module) else {
            wrong.push(format!("{}: module {module} is in no layer", inside.display()));
            continue;
        };
        let text = fs::read_to_string(&file).expect("a source");
        for name in used(&text) {
            // Types that the crate exports stand in the layer of the module that they come from.
            let name = match name.as_str() {
                "MicroModel" | "Resolution" => "models",
                name => name,
            };
            match level.get(name) {
                _ if name == module => {}
                Some(below) if below < own => {}
                Some(_) => {
                    wrong.push(format!("{} uses {name}, which does not lie below it", inside.display()))
                }
                None => wrong.push(format!("{} uses {name}, which is in no layer", inside.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
