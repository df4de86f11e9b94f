//! The programs of tests: built here by cargo, or packed for a machine that has no Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The list of what was packed, in the folder of the programs.
const LIST: &str = "programs.json";

/// Lets a stable compiler's programs take unstable options; where it is set, build scripts think that the compiler is unstable.
pub const BOOTSTRAP: &str = "RUSTC_BOOTSTRAP";

/// A program of tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The package and the target; `lib` and `bin` stand for the unit tests of a library and of a program.
    pub name: String,
    package: String,
    /// The package's folder, from the repository's root: where cargo runs tests.
    folder: PathBuf,
    executable: PathBuf,
}

/// A program that tests start: cargo tells them where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Started {
    name: String,
    executable: PathBuf,
}

/// The programs of the default members' tests, and what these start.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Programs {
    /// Those of tests.
    pub tests: Vec<Program>,
    started: Vec<Started>,
}

impl Programs {
    /// Has cargo build them with the features that `cargo test` has, so that nothing is built for this alone.
    pub fn build() -> Result<Programs> {
        let root = source_root()?;
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let output = Command::new(cargo)
            .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
            .current_dir(root)
            .env_remove(BOOTSTRAP)
            .stderr(Stdio::inherit())
            .output()
            .context("cargo cannot be run")?;
        ensure!(output.status.success(), "the tests do not build");
        Programs::of_messages(&String::from_utf8_lossy(&output.stdout), root)
    }

    /// From what cargo tells, a JSON object a line.
    fn of_messages(messages: &str, root: &Path) -> Result<Programs> {
        let mut programs = Programs::default();
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Value = serde_json::from_str(line).context("a message of cargo")?;
            let Some(executable) = message["executable"].as_str().map(PathBuf::from) else { continue };
            let target = text(&message["target"]["name"])?;
            let kind = text(&message["target"]["kind"][0])?;
            if message["profile"]["test"] == false {
                if kind == "bin" {
                    programs.started.push(Started { name: target.to_string(), executable });
                }
                continue;
            }
            let package = package_of(text(&message["package_id"])?)?;
            let manifest = Path::new(text(&message["manifest_path"])?);
            let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
            let folder = folder.with_context(|| format!("{} is not ours", manifest.display()))?.to_path_buf();
            let target = if matches!(kind, "lib" | "bin") { kind } else { target };
            programs.tests.push(Program {
                name: format!("{package}-{target}"),
                package: package.to_string(),
                folder,
                executable,
            });
        }
        programs.tests.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(programs)
    }

    /// Those that were packed into a folder.
    pub fn unpack(folder: &Path) -> Result<Programs> {
        let list = folder.join(LIST);
        let text = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
        let mut programs: Programs =
            serde_json::from_str(&text).with_context(|| list.display().to_string())?;
        let folder = folder.canonicalize()?;
        programs.executables().for_each(|executable| *executable = folder.join(&*executable));
        Ok(programs)
    }

    /// Copies them into a folder, without symbols, under their names; also this program, which runs them there.
    pub fn pack(mut self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        strip(&std::env::current_exe()?, &folder.join("xtask"))?;
        let names: Vec<String> = self.tests.iter().map(|test| test.name.clone()).collect();
        let names = names.into_iter().chain(self.started.iter().map(|started| started.name.clone()));
        for (name, executable) in names.collect::<Vec<_>>().iter().zip(self.executables()) {
            strip(executable, &folder.join(name))?;
            *executable = name.into();
        }
        let list = folder.join(LIST);
        fs::write(&list, serde_json::to_string_pretty(&self)?).with_context(|| list.display().to_string())
    }

    /// Keeps those whose names contain one of the filters.
    pub fn retain(&mut self, filters: &[String]) -> Result<()> {
        let names: Vec<_> = self.tests.iter().map(|test| test.name.clone()).collect();
        self.tests
            .retain(|test| filters.is_empty() || filters.iter().any(|filter| test.name.contains(filter)));
        if self.tests.is_empty() {
            bail!("no program is called so; there are {}", names.join(", "));
        }
        Ok(())
    }

    /// The command that runs a program of these as `cargo test` does, in the folder of its package. What tests ask at run time
    /// is where things are on this machine, which the paths that are compiled into them do not tell.
    pub fn command(&self, test: &Program, root: &Path) -> Command {
        let folder = root.join(&test.folder);
        let mut command = Command::new(&test.executable);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).env("CARGO_PKG_NAME", &test.package);
        command.env("INSTA_WORKSPACE_ROOT", root);
        for started in &self.started {
            command.env(format!("CARGO_BIN_EXE_{}", started.name), &started.executable);
        }
        command
    }

    fn executables(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let tests = self.tests.iter_mut().map(|test| &mut test.executable);
        tests.chain(self.started.iter_mut().map(|started| &mut started.executable))
    }
}

/// The repository's root on the machine that built this program.
pub fn source_root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's folder")
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a message of cargo has no such text")
}

/// The name in a package's identifier, which leaves out what equals the name of the package's folder:
/// `path+file:///repository/crates/kir#kelpie-kir@0.1.0`, `path+file:///repository/xtask#0.1.0`.
fn package_of(identifier: &str) -> Result<&str> {
    let (place, version) = identifier.split_once('#').context("a package without a version")?;
    match version.split_once('@') {
        Some((name, _)) => Ok(name),
        None => place.rsplit('/').next().context("a package without a name"),
    }
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("strip").arg("-o").args([to, from]).status();
    let status = status.context("strip, which comes with the C compiler, cannot be run")?;
    ensure!(status.success(), "strip fails on {}", from.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = concat!(
        r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/kir#kelpie-kir@0.1.0","manifest_path":"/r/crates/kir/Cargo.toml","target":{"kind":["lib"],"name":"kelpie_kir"},"profile":{"test":false},"executable":null}"#,
        "\nwarning: no message\n",
        r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/kir#kelpie-kir@0.1.0","manifest_path":"/r/crates/kir/Cargo.toml","target":{"kind":["test"],"name":"validate"},"profile":{"test":true},"executable":"/t/deps/validate-1"}"#,
        "\n",
        r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/kir#kelpie-kir@0.1.0","manifest_path":"/r/crates/kir/Cargo.toml","target":{"kind":["lib"],"name":"kelpie_kir"},"profile":{"test":true},"executable":"/t/deps/kelpie_kir-2"}"#,
        "\n",
        r#"{"reason":"compiler-artifact","package_id":"path+file:///r/crates/cli#kelpie@0.1.0","manifest_path":"/r/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"kelpie"},"profile":{"test":false},"executable":"/t/kelpie"}"#,
        "\n",
        r#"{"reason":"build-finished","success":true}"#,
    );

    #[test]
    fn programs_are_what_cargo_says_is_executable() {
        let programs = Programs::of_messages(MESSAGES, Path::new("/r")).unwrap();
        let tests: Vec<_> =
            programs.tests.iter().map(|test| (test.name.as_str(), &*test.executable)).collect();
        let expected = [
            ("kelpie-kir-lib", Path::new("/t/deps/kelpie_kir-2")),
            ("kelpie-kir-validate", Path::new("/t/deps/validate-1")),
        ];
        assert_eq!(tests, expected);
        assert!(programs.tests.iter().all(|test| test.folder == Path::new("crates/kir")));
        assert_eq!(programs.started, [Started { name: "kelpie".into(), executable: "/t/kelpie".into() }]);
    }

    #[test]
    fn a_package_has_the_name_of_its_folder_where_none_stands_there() {
        assert_eq!(package_of("path+file:///r/crates/kir#kelpie-kir@0.1.0").unwrap(), "kelpie-kir");
        assert_eq!(package_of("path+file:///r/xtask#0.1.0").unwrap(), "xtask");
    }

    #[test]
    fn filters_are_parts_of_names_and_must_find_something() {
        let mut programs = Programs::of_messages(MESSAGES, Path::new("/r")).unwrap();
        programs.retain(&["valid".into(), "none".into()]).unwrap();
        assert_eq!(programs.tests.len(), 1);
        let error = programs.retain(&["none".into()]).unwrap_err();
        assert!(error.to_string().contains("kelpie-kir-validate"), "{error}");
    }

    #[test]
    fn what_was_packed_is_found_where_it_is_now() {
        let mut programs = Programs::of_messages(MESSAGES, Path::new("/r")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        programs.executables().for_each(|executable| *executable = "/bin/sh".into());
        programs.pack(folder.path()).unwrap();
        let moved = folder.path().join("..").join(folder.path().file_name().unwrap());
        let unpacked = Programs::unpack(&moved).unwrap();
        let command = unpacked.command(&unpacked.tests[1], Path::new("/elsewhere"));
        let executable = folder.path().canonicalize().unwrap().join("kelpie-kir-validate");
        assert_eq!(command.get_program(), executable);
        assert!(executable.is_file());
        assert_eq!(command.get_current_dir(), Some(Path::new("/elsewhere/crates/kir")));
        let program = command.get_envs().find(|(name, _)| *name == "CARGO_BIN_EXE_kelpie");
        assert_eq!(program.unwrap().1.unwrap(), executable.with_file_name("kelpie"));
    }
}
