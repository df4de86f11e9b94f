//! Files that use each other in a circle cannot be read, tested or changed one by one: no circle may be large.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a circle, at most.
const MOST: usize = 6;

/// Crates whose largest circle is larger still; none may grow: in `compile` the files of joins, and those of row loops.
const LARGER: [(&str, usize); 1] = [("compile", 22)];

/// The path of a module, from its crate's root.
type Module = Vec<String>;

/// The modules of a crate with what each of them uses, as paths from the root, the last name of each an item or a module.
struct Uses {
    all: BTreeMap<Module, Vec<Module>>,
    /// What a module exports that is another's: by the module and the name.
    exported: BTreeMap<(Module, String), Module>,
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn module_of(inside: &Path) -> Module {
    let mut module: Module =
        inside.with_extension("").iter().map(|part| part.to_str().unwrap().to_string()).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// A file's code without its comments and its tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths of `a::{b, c::{d, e}}`, one by one.
fn paths(list: &str) -> Vec<String> {
    let Some((before, inside)) = list.split_once('{') else {
        return vec![list.split(" as ").next().unwrap_or_default().trim().to_string()];
    };
    let inside = inside.trim_end().strip_suffix('}').unwrap_or(inside);
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, letter) in inside.char_indices().chain([(inside.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let path = inside[start..at].trim();
                found.extend(paths(path).into_iter().filter(|path| !path.is_empty()));
                start = at + 1;
            }
            _ => {}
        }
    }
    found.into_iter().map(|path| format!("{}{path}", before.trim())).collect()
}

/// A path as it is seen from the root; `None` where it leads out of the crate.
fn from_root(module: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut names: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut base = module.clone();
    match *names.first()? {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            while names.first() == Some(&"super") {
                base.pop();
                names.remove(0);
            }
            names.insert(0, "super");
        }
        name => {
            base.push(name.into());
            return modules.contains(&base).then(|| {
                base.extend(names.iter().skip(1).map(ToString::to_string));
                base
            });
        }
    }
    base.extend(names.into_iter().skip(1).map(String::from));
    Some(base)
}

fn uses_of(folder: &Path) -> Uses {
    let mut files = Vec::new();
    sources(folder, &mut files);
    let is_test = |module: &Module| module.iter().any(|name| name == "tests" || name == "testing");
    let named = files.iter().map(|file| (module_of(file.strip_prefix(folder).unwrap()), file));
    let files: BTreeMap<Module, &PathBuf> = named.filter(|(module, _)| !is_test(module)).collect();
    let modules: BTreeSet<Module> = files.keys().cloned().collect();
    let mut uses = Uses { all: BTreeMap::new(), exported: BTreeMap::new() };
    for (module, file) in files {
        let text = code(file);
        let mut own = Vec::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("use ") {
            let line = rest[..at].rsplit('\n').next().unwrap_or_default().trim();
            let (statement, after) = rest[at + 4..].split_once(';').unwrap_or((&rest[at + 4..], ""));
            let is_use = line.is_empty() || line.starts_with("pub");
            if !is_use {
                rest = &rest[at + 4..];
                continue;
            }
            for path in paths(statement).iter().filter_map(|path| from_root(&module, path, &modules)) {
                if line.starts_with("pub")
                    && let Some(name) = path.last()
                {
                    uses.exported.insert((module.clone(), name.clone()), path.clone());
                }
                own.push(path);
            }
            rest = after;
        }
        uses.all.insert(module, own);
    }
    uses
}

impl Uses {
    /// The module that has an item, found by way of those that only export it.
    fn owner(&self, path: &Module) -> Option<Module> {
        let mut path = path.clone();
        for _ in 0..8 {
            let length = (0..=path.len()).rev().find(|length| self.all.contains_key(&path[..*length]))?;
            let (module, rest) = (path[..length].to_vec(), &path[length..]);
            let Some(name) = rest.first() else { return Some(module) };
            match self.exported.get(&(module.clone(), name.clone())) {
                Some(further) => path = further.iter().chain(&rest[1..]).cloned().collect(),
                None => return Some(module),
            }
        }
        None
    }

    /// The modules that each uses, itself left out.
    fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |module: &Module, own: &[Module]| -> BTreeSet<Module> {
            own.iter().filter_map(|path| self.owner(path)).filter(|owner| owner != module).collect()
        };
        self.all.iter().map(|(module, own)| (module, of(module, own))).collect()
    }

    /// The largest set of modules each of which leads to all others.
    fn largest_circle(&self) -> Vec<Module> {
        let edges = self.edges();
        let reached = |from: &Module| -> BTreeSet<Module> {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.clone()]);
            while let Some(next) = open.pop() {
                for module in edges.get(&next).into_iter().flatten() {
                    if seen.insert(module.clone()) {
                        open.push(module.clone());
                    }
                }
            }
            seen
        };
        let reach: BTreeMap<&Module, BTreeSet<Module>> =
            edges.keys().map(|module| (*module, reached(module))).collect();
        let circle = |module: &Module| -> Vec<Module> {
            let leads_back = |other: &&Module| reach.get(*other).is_some_and(|all| all.contains(module));
            reach[module].iter().filter(leads_back).cloned().collect()
        };
        edges.keys().map(|module| circle(module)).max_by_key(Vec::len).unwrap_or_default()
    }
}

#[test]
fn files_use_each_other_in_small_circles_only() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let circle = uses_of(&entry.path().join("src")).largest_circle();
        let most = LARGER.iter().find(|(larger, _)| *larger == name).map_or(MOST, |(_, most)| *most);
        if circle.len() > most {
            let files: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
            wrong.push(format!("{name}: {} files in a circle: {}", files.len(), files.join(", ")));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn circles_are_found_through_lists_and_exports() {
    let paths_of = |list: &str| paths(list).join(" ");
    assert_eq!(
        paths_of("crate::a::{b, c::{d as e, f}, self}"),
        "crate::a::b crate::a::c::d crate::a::c::f crate::a::self"
    );
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod d;\npub use a::A;\n"),
        ("a.rs", "use crate::b::{B};\npub struct A;\n"),
        ("b.rs", "// use crate::d::D;\nuse super::c::C;\npub struct B;\n"),
        ("c.rs", "use crate::A;\npub struct C;\n"),
        ("d.rs", "use crate::c::C;\npub struct D;\n#[cfg(test)]\nmod tests {\nuse crate::d::D;\n}\n"),
    ] {
        fs::write(folder.path().join(file), text).unwrap();
    }
    let circle = uses_of(folder.path()).largest_circle();
    assert_eq!(circle, [["a"], ["b"], ["c"]]);
}
