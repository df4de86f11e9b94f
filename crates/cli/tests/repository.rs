//! Holds the shape of the repository: directions between crates, lengths of files, what code must not contain.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate and the crates of ours that it may use: `kir <- backend <- device <- engine`,
/// `kir <- compile <- engine`, `engine <- datafusion <- session <- {cli, python, server, workloads}`,
/// `session <- substrait <- server <- distributed`, `{distributed, server, substrait, workloads} <- cli`, and anything below these.
const MAY_USE: [(&str, &[&str]); 16] = [
    ("kelpie-kir", &[]),
    ("kelpie-tuner", &[]),
    ("kelpie-backend", &["kelpie-kir"]),
    ("kelpie-device", &["kelpie-backend", "kelpie-kir"]),
    ("kelpie-compile", &["kelpie-kir"]),
    ("kelpie-engine", BELOW_ENGINE),
    ("kelpie-datafusion", BELOW_DATAFUSION),
    ("kelpie-session", BELOW_SESSION),
    ("kelpie-workloads", BELOW_WORKLOADS),
    ("kelpie-substrait", BELOW_WORKLOADS),
    ("kelpie-server", BELOW_SERVER),
    ("kelpie-distributed", BELOW_DISTRIBUTED),
    ("kelpie", EVERYTHING),
    ("kelpie-python", BELOW_WORKLOADS),
    ("kelpie-conformance", BELOW_WORKLOADS),
    ("xtask", EVERYTHING),
];

/// From the highest down. `compile` stands beside the devices, not on them.
const EVERYTHING: &[&str] = &[
    "kelpie-distributed", "kelpie-server", "kelpie-workloads", "kelpie-substrait", "kelpie-session",
    "kelpie-datafusion", "kelpie-engine", "kelpie-compile", "kelpie-device", "kelpie-backend", "kelpie-kir",
    "kelpie-tuner",
];
const BELOW_DISTRIBUTED: &[&str] = EVERYTHING.split_at(1).1;
const BELOW_SERVER: &[&str] = EVERYTHING.split_at(3).1;
const BELOW_WORKLOADS: &[&str] = EVERYTHING.split_at(4).1;
const BELOW_SESSION: &[&str] = EVERYTHING.split_at(5).1;
const BELOW_DATAFUSION: &[&str] = EVERYTHING.split_at(6).1;
const BELOW_ENGINE: &[&str] = EVERYTHING.split_at(7).1;

/// What tests may use besides: the operators' tests run and print what they emit.
const TESTS_MAY_USE: [(&str, &[&str]); 2] =
    [("kelpie-compile", &["kelpie-backend", "kelpie-device"]), ("kelpie-substrait", &["kelpie-workloads"])];

/// Crates that may build DataFusion; every other one compiles in seconds.
const ON_DATAFUSION: [&str; 9] = [
    "kelpie-distributed", "kelpie-substrait", "kelpie-datafusion", "kelpie-session", "kelpie-server",
    "kelpie-workloads", "kelpie", "kelpie-python", "kelpie-conformance",
];

/// A file is better shorter than the first, and must be shorter than the second.
const LINES_WARNED: usize = 500;
const LINES_ALLOWED: usize = 700;

/// What must not stand in the code, cut in two so that it does not stand here.
const FORBIDDEN: [(&str, &str, &str); 8] = [
    ("to", "do!(", "finish it, or leave it out"),
    ("unimpl", "emented!(", "finish it, or leave it out"),
    ("FIX", "ME", "fix it"),
    ("XX", "X", "fix it"),
    ("db", "g!(", "a leftover"),
    ("#[al", "low(", "#[expect(lint, reason = …)]"),
    ("#![al", "low(", "#![expect(lint, reason = …)]"),
    ("#[ign", "ore]", "#[ignore = \"reason\"], and run it in .ci/run"),
];

/// Where `unsafe` may stand: what handles raw memory and generated code, the one file that answers for launches, since only the
/// engine knows both a kernel and what its arguments must be, and the one that takes other Python packages' data out of capsules.
const UNSAFE_ALLOWED: [&str; 4] = [
    "crates/device/",
    "crates/backend/src/cpu",
    "crates/engine/src/launch.rs",
    "crates/python/src/capsules.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// Files of a kind in the repository, as paths from its root.
fn files(extension: &str) -> Vec<String> {
    fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                walk(&path, extension, found);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut found = Vec::new();
    for folder in ["conformance", "crates", "xtask"] {
        walk(&root.join(folder), extension, &mut found);
    }
    assert!(!found.is_empty());
    found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/")).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// What cargo knows of the packages of the workspace.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The crates of the workspace and what they depend on: name, and whether for tests only.
fn dependencies() -> BTreeMap<String, Vec<(String, bool)>> {
    let name = |value: &serde_json::Value| value["name"].as_str().unwrap().to_string();
    let uses = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().map(|d| (name(d), d["kind"] == "dev")).collect()
    };
    packages().iter().map(|p| (name(p), uses(p))).collect()
}

/// A package that is published says what it is and carries its licence; what stands on it asks for its version. Where its sources are
/// is left to whoever publishes it.
#[test]
fn packages_can_be_published_or_say_that_they_are_not() {
    let is_published = |package: &serde_json::Value| package["publish"].is_null();
    let published: Vec<serde_json::Value> = packages().into_iter().filter(is_published).collect();
    assert!(published.len() > 8, "{}", published.len());
    let names: Vec<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
    for package in &published {
        let name = package["name"].as_str().unwrap();
        for field in ["description", "license", "readme"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            let count = package[field].as_array().unwrap().len();
            assert!((1..=5).contains(&count), "{name} has {count} {field}");
        }
        assert!(package["repository"].is_null(), "{name} says where it is published");
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        assert_eq!(
            fs::read(folder.join("LICENSE")).unwrap(),
            fs::read(root().join("LICENSE")).unwrap(),
            "{name}"
        );
        for used in package["dependencies"].as_array().unwrap().iter().filter(|used| used["path"].is_string())
        {
            let of = used["name"].as_str().unwrap();
            // What a crate's own tests turn on in it is no part of its package.
            let is_itself = of == name && used["kind"] == "dev";
            assert!(is_itself || names.contains(&of), "{name} uses {of}, which is not published");
            assert!(is_itself || used["req"] != "*", "{name} asks for no version of {of}");
        }
    }
}

#[test]
fn crates_use_each_other_in_one_direction() {
    let dependencies = dependencies();
    let ours: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    assert_eq!(ours, known, "a new crate needs its arrows here");
    for (name, uses) in &dependencies {
        let (_, may_use) = MAY_USE.iter().find(|(known, _)| known == name).unwrap();
        let tests = TESTS_MAY_USE.iter().find(|(known, _)| known == name).map_or(&[][..], |(_, uses)| uses);
        for (used, for_tests) in uses.iter().filter(|(used, _)| ours.contains(used.as_str())) {
            // By itself, with what its tests share.
            let of_tests = *for_tests && (tests.contains(&used.as_str()) || used == name);
            let allowed = may_use.contains(&used.as_str()) || of_tests;
            assert!(allowed, "{name} must not use {used}");
        }
        let datafusion = uses.iter().any(|(used, _)| used == "datafusion" || used.starts_with("datafusion-"));
        assert!(!datafusion || ON_DATAFUSION.contains(&name.as_str()), "{name} must not use DataFusion");
    }
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for path in files("rs") {
        let lines = read(&path).lines().count();
        if lines > LINES_WARNED {
            println!("{path} has {lines} lines: is it one thing?");
        }
        if lines > LINES_ALLOWED {
            long.push(format!("{path}: {lines} lines"));
        }
    }
    assert!(long.is_empty(), "longer than {LINES_ALLOWED} lines:\n{}", long.join("\n"));
}

/// Cargo does not look for the tests of a crate that says which there are: a file that nothing names would not even be compiled.
#[test]
fn every_file_of_tests_is_part_of_a_program() {
    let mut looked_at = 0;
    for manifest in files("toml").into_iter().filter(|path| read(path).contains("autotests = false")) {
        let tests = manifest.replace("Cargo.toml", "tests/");
        let (programs, modules) = (read(&manifest), read(&format!("{tests}main.rs")));
        for path in files("rs") {
            let Some(file) = path.strip_prefix(&tests).filter(|file| !file.contains('/')) else { continue };
            let is_program = programs.contains(&format!("path = \"tests/{file}\""));
            let is_module = modules.contains(&format!("mod {};\n", file.trim_end_matches(".rs")));
            assert!(is_program || is_module, "{path} is in no program of tests");
            looked_at += 1;
        }
    }
    assert!(looked_at > 100, "{looked_at}");
}

#[test]
fn code_is_finished_and_unsafe_stays_at_the_bottom() {
    let mut found = Vec::new();
    for path in files("rs") {
        for (number, line) in read(&path).lines().enumerate() {
            let place = format!("{path}:{}", number + 1);
            for (first, second, instead) in FORBIDDEN {
                if line.contains(&format!("{first}{second}")) {
                    found.push(format!("{place}: `{first}{second}`: {instead}"));
                }
            }
            let code = line.split("//").next().unwrap_or_default();
            let is_unsafe =
                ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"].iter().any(|u| code.contains(u));
            let quoted = code.contains("\"unsafe");
            if is_unsafe && !quoted && !UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
                found.push(format!("{place}: unsafe code"));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn the_readme_names_the_commands_that_there_are() {
    let readme = read("README.md");
    for command in ["cargo run --release -- demo", "cargo test"] {
        assert!(readme.lines().any(|line| line.trim() == command), "README.md does not name `{command}`");
    }
}

/// Tables of documents that follow from the code. With `KELPIE_UPDATE_DOCS=1` this test writes them.
#[test]
fn tables_of_options_and_axes_are_those_of_the_code() {
    let tables = [
        ("docs/book/src/options.md", "options", kelpie_session::options_as_markdown()),
        ("docs/techniques.md", "axes", kelpie_session::axes_as_markdown()),
    ];
    for (document, what, table) in tables {
        let (text, begin, end) =
            (read(document), format!("<!-- {what} -->\n"), format!("<!-- end of {what} -->"));
        let from = text.find(&begin).unwrap_or_else(|| panic!("{document} has no {begin}")) + begin.len();
        let to = text.find(&end).unwrap_or_else(|| panic!("{document} has no {end}"));
        if text[from..to] != table {
            if std::env::var_os("KELPIE_UPDATE_DOCS").is_some() {
                fs::write(root().join(document), format!("{}{table}{}", &text[..from], &text[to..])).unwrap();
                continue;
            }
            panic!(
                "{document}: the table of {what} is not that of the code; run this test with KELPIE_UPDATE_DOCS=1"
            );
        }
    }
}

#[test]
fn the_code_map_names_every_crate_and_test_that_it_promises() {
    let text = read("ARCHITECTURE.md");
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(text.contains(&format!("crates/{name}")), "ARCHITECTURE.md does not name crates/{name}");
    }
    // Files are named as `path/to/file.rs`, as tests are beside what they hold: each file must be there.
    for document in ["ARCHITECTURE.md", "docs/testing.md"] {
        for word in read(document).split('`').filter(|w| w.ends_with(".rs") && w.contains('/')) {
            assert!(root().join(word).is_file(), "{document} names {word}, which is not there");
        }
    }
}

/// The documents that are kept up to date. Logs are as they were written.
fn documents() -> Vec<String> {
    let entries = fs::read_dir(root().join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let in_docs = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let of_root = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
    in_docs.chain(of_root.map(String::from)).collect()
}

#[test]
fn documents_name_files_that_there_are() {
    let sources = files("rs");
    let is_there =
        |path: &str| sources.iter().any(|source| source == path || source.ends_with(&format!("/{path}")));
    let mut missing = Vec::new();
    // The page of techniques has a test of its own, and says how a file would be added that is not there.
    for document in documents().into_iter().filter(|document| document != "docs/techniques.md") {
        let text = read(&document);
        let words =
            text.split('`').filter(|w| w.ends_with(".rs") && w.contains('/') && !w.contains([' ', '*']));
        let paths = words.flat_map(alternatives).filter(|path| !is_there(path));
        missing.extend(paths.map(|path| format!("{document} names {path}")));
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

#[test]
fn links_of_documents_lead_to_files_that_there_are() {
    let mut missing = Vec::new();
    for document in documents() {
        let (text, path) = (read(&document), root().join(&document));
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let files = links.filter(|link| !link.is_empty() && !link.contains("://"));
        let lost = files.filter(|file| !path.with_file_name(file).exists());
        missing.extend(lost.map(|file| format!("{document} has a link to {file}")));
    }
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

/// A path with alternatives in braces, written out.
fn alternatives(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?))) {
        Some((start, (names, end))) => names.split(',').map(|name| format!("{start}{name}{end}")).collect(),
        None => vec![path.to_string()],
    }
}

#[test]
fn the_page_of_techniques_names_files_and_axes_that_there_are() {
    let text = read("docs/techniques.md");
    let sources = files("rs");
    let there = |path: &str| match path.strip_suffix('/') {
        Some(folder) => sources.iter().any(|source| source.contains(&format!("/{folder}/"))),
        None => sources.iter().any(|source| source.ends_with(&format!("/{path}"))),
    };
    for row in text.lines().filter(|line| line.starts_with('|')) {
        for word in row.split('`').filter(|word| word.ends_with(".rs") || word.ends_with('/')) {
            for path in alternatives(word) {
                assert!(there(&path), "docs/techniques.md names {path}, which is not there");
            }
        }
    }
}
