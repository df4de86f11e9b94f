//! Packages that are no default members are built with what the tests of these have built.
//!
//! Cargo unites the features of the packages that it builds together. A crate that has fewer features for `-p xtask` than for
//! `cargo test` is built twice, and so is every crate that uses it: for one feature of libc, all of Arrow and DataFusion were.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Packages that are no default members, and the crates of others that they have with other features on purpose.
const PACKAGES: [(&str, &str, &[&str]); 4] = [
    ("xtask", "xtask/Cargo.toml", &[]),
    ("kelpie-conformance", "conformance/Cargo.toml", &["datafusion"]),
    ("kelpie-python", "crates/python/Cargo.toml", &["mimalloc", "libmimalloc-sys"]),
    ("kelpie-server", "crates/server/Cargo.toml", &[]),
];

/// What is built for this machine's programs, and what only for proc-macros and build scripts (which cargo tree lists with the
/// rest).
const EDGES: [&str; 2] = ["normal,dev,no-proc-macro", "normal,build,dev"];

/// The features of each crate: several lists where it is built for several purposes.
type Features = BTreeMap<String, Vec<String>>;

/// What cargo resolves for a selection of packages; nothing is built, but sources that are not there yet are fetched.
fn features(selection: &[&str], edges: &str) -> Features {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges])
        .args(selection)
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parse(&String::from_utf8(output.stdout).unwrap())
}

/// Lines such as `libc v0.2.191|default,std (*)`. Ours, behind whose version stands a folder, are left out: what tests of crates
/// share is a feature of them.
fn parse(tree: &str) -> Features {
    let mut features = Features::new();
    for line in tree.lines() {
        let Some((package, list)) = line.trim_end_matches(" (*)").split_once('|') else { continue };
        if package.contains(" (/") {
            continue;
        }
        let lists = features.entry(package.trim_end_matches(" (proc-macro)").to_string()).or_default();
        if !lists.iter().any(|known| known == list) {
            lists.push(list.to_string());
        }
    }
    features
}

/// What is to be done about the crates of a package that the default members build with other features only.
fn differences(package: &Features, members: &Features, manifest: &str, except: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, lists) in package {
        let Some(known) = members.get(name) else { continue };
        let is_excepted = name.split(' ').next().is_some_and(|name| except.contains(&name));
        for list in lists.iter().filter(|list| !is_excepted && !known.contains(list)) {
            let known = known.join("] or [");
            found.push(format!(
                "{name} has [{list}]; for the default members [{known}]: {}",
                advice(list, &known, manifest)
            ));
        }
    }
    found
}

fn advice(list: &str, known: &str, manifest: &str) -> String {
    let words = |text: &str| text.split(|c| ",[] ".contains(c)).map(str::to_string).collect::<Vec<_>>();
    let (list, known) = (words(list), words(known));
    let missing = known.iter().filter(|word| !list.contains(word) && !matches!(word.as_str(), "or" | ""));
    let missing = missing.map(String::as_str).collect::<Vec<_>>().join(", ");
    match missing.is_empty() {
        false => format!("depend on it in {manifest} with {missing}"),
        true => "depend on it with these in crates/datafusion/Cargo.toml".to_string(),
    }
}

#[test]
fn other_packages_have_the_features_of_the_default_members() {
    let mut found = BTreeSet::new();
    for edges in EDGES {
        let members = features(&[], edges);
        assert!(members.len() > 200, "{}", members.len());
        for (name, manifest, except) in PACKAGES {
            let package = features(&["--package", name], edges);
            assert!(package.len() > 50, "{name}: {}", package.len());
            let differences = differences(&package, &members, manifest, except);
            found.extend(differences.into_iter().map(|difference| format!("{name}: {difference}")));
        }
    }
    let found = found.into_iter().collect::<Vec<_>>().join("\n");
    assert!(found.is_empty(), "these crates, and all that use them, are built twice:\n{found}");
}

#[test]
fn what_is_built_twice_is_told_with_what_to_do() {
    let members = parse(
        "libc v0.2.1|default,extra_traits,std\nserde v1.0.0|std (*)\nserde v1.0.0|rc,std\na v1.0.0 (/a)|x\n",
    );
    let other = parse("libc v0.2.1|default,std (*)\nserde v1.0.0|std\nmine v1.0.0|\na v1.0.0 (/a)|\n");
    assert_eq!(
        differences(&other, &members, "xtask/Cargo.toml", &[]),
        ["libc v0.2.1 has [default,std]; for the default members [default,extra_traits,std]: \
          depend on it in xtask/Cargo.toml with extra_traits"]
    );
    assert!(differences(&other, &members, "xtask/Cargo.toml", &["libc"]).is_empty());
    let more = parse("serde v1.0.0|derive,rc,std\n");
    assert!(differences(&more, &members, "", &[])[0].ends_with("crates/datafusion/Cargo.toml"));
}
