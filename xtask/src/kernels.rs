//! Compiles kernels with both of a GPU's compilers, CUDA C with NVRTC and PTX with the assembler where there is one: snapshots, file tests, the kernels of the test queries, and random modules without and with
//! counters of what they access, or of who comes by their marks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use kelpie_backend::ptx;
use kelpie_device::nvrtc::{self, Nvrtc};
use kelpie_kir::ValidModule;
use kelpie_kir::meter::metered;
use kelpie_kir::profile::profiled;

use crate::programs::source_root;

/// What to compile.
#[derive(Debug)]
pub struct Request {
    /// Generated queries whose kernels are compiled.
    pub queries: u64,
    pub random: u64,
    pub seed: u64,
    pub architectures: Vec<String>,
    pub verbose: bool,
    pub files: Vec<PathBuf>,
}

/// What came out.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Accepted,
    Rejected,
    NoCompiler(String),
}

/// A translation unit.
#[derive(Debug)]
struct Unit {
    kind: &'static str,
    name: String,
    source: String,
    /// As PTX for each architecture; none of a snapshot.
    ptx: Vec<String>,
}

/// One line of the table.
#[derive(Debug, Default)]
struct Row {
    kind: &'static str,
    name: String,
    /// For each architecture: bytes of code, or the compiler's words.
    results: Vec<Result<usize, String>>,
    time_ms: u128,
    /// Time of the assembler.
    assembly_ms: u128,
}

/// Compiles all and prints a table.
pub fn check(request: &Request) -> Result<Outcome> {
    let nvrtc = match nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return Ok(Outcome::NoCompiler(error.to_string())),
    };
    let units = units(request)?;
    let (major, minor) = nvrtc.version();
    println!("NVRTC {major}.{minor}, {}: {} sources", request.architectures.join(" and "), units.len());
    let rows = compile(nvrtc, &units, &request.architectures);
    print_table(request, &rows);
    let rejected = rows.iter().filter(|row| row.results.iter().any(Result::is_err)).count();
    for kind in ["snapshot", "file", "random"] {
        let count = rows.iter().filter(|row| row.kind == kind).count();
        println!("{kind:>10}: {count}");
    }
    let sum = |time: fn(&Row) -> u128| rows.iter().map(time).sum::<u128>();
    let (nvrtc_ms, assembler_ms) = (sum(|row| row.time_ms), sum(|row| row.assembly_ms));
    println!("{:>10}: {nvrtc_ms} ms in NVRTC, {assembler_ms} ms in the assembler", "time");
    println!("{:>10}: {rejected}", "rejected");
    if units.is_empty() {
        bail!("found nothing to compile");
    }
    Ok(if rejected == 0 { Outcome::Accepted } else { Outcome::Rejected })
}

/// Compiles on every core.
fn compile(nvrtc: &Nvrtc, units: &[Unit], architectures: &[String]) -> Vec<Row> {
    let next = AtomicUsize::new(0);
    let ptxas = kelpie_device::testing::ptxas();
    let rows: Mutex<Vec<(usize, Row)>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(unit) = units.get(index) else { break };
                    let row = compile_unit((nvrtc, ptxas.as_deref()), unit, architectures);
                    if let Ok(mut rows) = rows.lock() {
                        rows.push((index, row));
                    }
                }
            });
        }
    });
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn compile_unit((nvrtc, ptxas): (&Nvrtc, Option<&Path>), unit: &Unit, architectures: &[String]) -> Row {
    let start = Instant::now();
    let mut results: Vec<Result<usize, String>> = architectures
        .iter()
        .map(|architecture| {
            let compiled = nvrtc.compile(&unit.source, architecture, &unit.name);
            compiled.map(|cubin| cubin.len()).map_err(|error| error.to_string())
        })
        .collect();
    let time_ms = start.elapsed().as_millis();
    for ((result, text), architecture) in results.iter_mut().zip(&unit.ptx).zip(architectures) {
        let assembled = ptxas.map(|ptxas| kelpie_device::testing::assemble(ptxas, text, architecture));
        if let Some(Err(error)) = assembled {
            *result = Err(format!("as PTX: {error}"));
        }
    }
    let assembly_ms = start.elapsed().as_millis() - time_ms;
    Row { kind: unit.kind, name: unit.name.clone(), results, time_ms, assembly_ms }
}

/// A module as PTX for each architecture.
fn as_ptx(module: &ValidModule, architectures: &[String]) -> Result<Vec<String>> {
    let options = kelpie_backend::cuda::Options::default();
    let print = |architecture: &String| ptx::print_with(module, &options, architecture);
    Ok(architectures.iter().map(print).collect::<Result<_, _>>()?)
}

fn print_table(request: &Request, rows: &[Row]) {
    let shown = |row: &&Row| request.verbose || row.results.iter().any(Result::is_err);
    for row in rows.iter().filter(shown) {
        let cells: Vec<String> = row
            .results
            .iter()
            .map(|result| match result {
                Ok(bytes) => format!("{bytes:>8} B"),
                Err(_) => format!("{:>10}", "REJECTED"),
            })
            .collect();
        let (time, assembly) = (row.time_ms, row.assembly_ms);
        println!("{:>10}  {}  {time:>5} ms {assembly:>5} ms  {}", row.kind, cells.join("  "), row.name);
    }
    for row in rows {
        for (architecture, result) in request.architectures.iter().zip(&row.results) {
            if let Err(error) = result {
                println!("\n{} for {architecture}:\n{error}", row.name);
            }
        }
    }
}

fn units(request: &Request) -> Result<Vec<Unit>> {
    let mut units = Vec::new();
    if request.files.is_empty() {
        let root = source_root()?;
        let mut files = Vec::new();
        for folder in ["crates", "xtask"] {
            collect(&root.join(folder), &mut files)?;
        }
        files.sort();
        let folder = tempfile::tempdir().context("a folder for the kernels of queries")?;
        if request.queries > 0 {
            query_kernels(folder.path(), request.queries)?;
            collect(folder.path(), &mut files)?;
        }
        for file in files {
            let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
            let is_kernel_test = file.extension().is_some_and(|extension| extension == "kir");
            if is_kernel_test || is_cuda_snapshot(&file) {
                units.extend(unit_of(&file, name, &request.architectures)?);
            }
        }
    } else {
        for file in &request.files {
            units.extend(unit_of(file, file.display().to_string(), &request.architectures)?);
        }
    }
    for seed in request.seed..request.seed.saturating_add(request.random) {
        let module = kelpie_kir::testing::random_module(seed, seed % 2 == 0);
        let module = kelpie_kir::validate(module).with_context(|| format!("random module {seed}"))?;
        let counting = kelpie_kir::validate(metered(&module)).context("with counters")?;
        let tallying = kelpie_kir::validate(profiled(&module)).context("with tallies")?;
        for (module, what) in [
            (module, "random module"),
            (counting, "metered random module"),
            (tallying, "profiled random module"),
        ] {
            let source = kelpie_backend::cuda::print(&module)?;
            let ptx = as_ptx(&module, &request.architectures)?;
            units.push(Unit { kind: "random", name: format!("{what} {seed}"), source, ptx });
        }
    }
    Ok(units)
}

/// Has the example of `kelpie-session` write the kernels of the test queries: xtask itself stays without DataFusion.
fn query_kernels(folder: &Path, queries: u64) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let status = std::process::Command::new(cargo)
        .args(["run", "--quiet", "--example", "kernels", "--"])
        .arg(folder)
        .arg(queries.to_string())
        .status()
        .context("cargo cannot be run")?;
    if !status.success() {
        bail!("the kernels of the test queries could not be written");
    }
    Ok(())
}

/// Every file below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// A snapshot of insta whose name says `cuda`.
fn is_cuda_snapshot(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    name.ends_with(".snap") && name.contains("cuda")
}

/// The translation unit of a file; `None` where a .kir file is a test of errors.
fn unit_of(file: &Path, name: String, architectures: &[String]) -> Result<Option<Unit>> {
    let text = fs::read_to_string(file).with_context(|| name.clone())?;
    let extension = file.extension().unwrap_or_default().to_string_lossy().to_string();
    Ok(match extension.as_str() {
        "snap" => {
            Some(Unit { kind: "snapshot", name, source: snapshot_body(&text).to_string(), ptx: Vec::new() })
        }
        "kir" => match kernel_test(&text).with_context(|| name.clone())? {
            Some(module) => Some(Unit {
                kind: "file",
                source: kelpie_backend::cuda::print(&module)?,
                ptx: as_ptx(&module, architectures)?,
                name,
            }),
            None => None,
        },
        _ => Some(Unit { kind: "file", name, source: text, ptx: Vec::new() }),
    })
}

/// A snapshot without its header, which stands between two lines of dashes.
fn snapshot_body(text: &str) -> &str {
    let header_end = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
    header_end.map_or(text, |(_, body)| body)
}

/// The module of a .kir file. A file that is not valid tests exactly that, and has an `error:` line.
fn kernel_test(text: &str) -> Result<Option<ValidModule>> {
    let expects_error =
        text.lines().any(|line| line.trim_start_matches([';', '/', '#', ' ']).starts_with("error:"));
    let has_counters = text.lines().any(|line| line.starts_with("; metered:"));
    let module = kelpie_kir::text::parse(text).map_err(anyhow::Error::from);
    let module = module.map(|module| if has_counters { metered(&module) } else { module });
    match module.and_then(|module| Ok(kelpie_kir::validate(module)?)) {
        Ok(module) => Ok(Some(module)),
        Err(_) if expects_error => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_snapshot_is_not_compiled() {
        for (text, body) in [
            ("---\nsource: a\nexpression: b\n---\nint x;\n---\n", "int x;\n---\n"),
            ("int x;\n", "int x;\n"),
            ("---\nno end\n", "---\nno end\n"),
        ] {
            assert_eq!(snapshot_body(text), body);
        }
    }

    #[test]
    fn only_cuda_snapshots_are_compiled() {
        for (name, expected) in [
            ("a/snapshots/x__cuda_filter.snap", true),
            ("a/snapshots/x__q1_CUDA.snap", true),
            ("a/snapshots/x__clif_filter.snap", false),
            ("a/cuda/mod.rs", false),
        ] {
            assert_eq!(is_cuda_snapshot(Path::new(name)), expected, "{name}");
        }
    }
}
