//! Runs the `.plan` files of `tests/plans` on every device: tables, and plans over them with the answer or error that each gives and
//! what it compiles as. `docs/plan-files.md` is their reference.

#[path = "plan_files/file.rs"]
mod file;
#[path = "plan_files/tables.rs"]
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use kelpie_compile::plan::text::{parse, print};
use kelpie_engine::testing::gpu;
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, Forced, Query, QueryMetrics, QueryOptions, QueryOutput,
};

use self::file::{Answer, Case, Fact, File};
use self::tables::{batch, rows_of};

/// A device, and what files call it.
#[derive(Debug, Clone, Copy)]
struct On {
    name: &'static str,
    device: DeviceChoice,
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "plan"));
    files.sort();
    assert!(files.len() >= 25, "only {} files", files.len());
    files
}

/// Every file on a device; all that is wrong is said at once.
fn run_all(on: On) {
    let (files, next, wrong) = (files(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let engine = Engine::new();
    let work = || {
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = run_file(&engine, path, on) {
                wrong.lock().unwrap().push(error);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn run_file(engine: &Engine, path: &Path, on: On) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let file = File::parse(&text).map_err(|error| format!("{name}:{error}"))?;
    let mut wrong = Vec::new();
    for case in &file.cases {
        for lanes in case.lanes.iter().take(if on.name == "simt" { usize::MAX } else { 1 }) {
            if let Err(error) = run_case(engine, &file, case, (on, *lanes)) {
                wrong.push(format!(
                    "{name}:{}: {} on {} ({lanes} lanes): {error}",
                    case.line, case.title, on.name
                ));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn run_case(engine: &Engine, file: &File, case: &Case, (on, simt_lanes): (On, u32)) -> Result<(), String> {
    let text = print(&case.plan);
    if parse(&text, &[]).as_ref() != Ok(&case.plan) {
        return Err(format!("its plan is printed as another one:\n{text}"));
    }
    let mut variants = Forced::default();
    let is_here = |device: &Option<String>| device.as_ref().is_none_or(|device| *device == on.name);
    for forced in case.variants.iter().filter(|forced| is_here(&forced.device)) {
        variants.set(&forced.axis, &forced.value).map_err(|error| error.to_string())?;
    }
    // A sort of few rows is the host's unless that is forbidden.
    let host_sort_rows = Some(0);
    let (device, threads) = (on.device, Some(2));
    let options =
        QueryOptions { device, simt_lanes, threads, host_sort_rows, variants, ..QueryOptions::default() };
    let query = Query { plan: case.plan.clone(), sources: file.sources.clone(), options };
    let output = engine.execute(&query, &CancelToken::default());
    let metrics = check_answer(case, output)?;
    let Some(metrics) = metrics else { return Ok(()) };
    let forced = case.variants.iter().filter(|forced| is_here(&forced.device));
    let forced = forced.map(|forced| Fact::Choice { axis: forced.axis.clone(), value: forced.value.clone() });
    let facts = case.facts.iter().filter(|stated| is_here(&stated.device)).map(|stated| stated.fact.clone());
    forced.chain(facts).try_for_each(|fact| check_fact(&fact, &metrics))
}

/// What a query did that gave what it must; nothing where that is an error.
fn check_answer(
    case: &Case,
    output: Result<QueryOutput, EngineError>,
) -> Result<Option<QueryMetrics>, String> {
    match (&case.answer, output) {
        (Answer::Error(expected), Err(error)) if error.to_string().contains(expected) => Ok(None),
        (Answer::Error(expected), Err(error)) => Err(format!("error {error}, not {expected}")),
        (Answer::Error(expected), Ok(output)) => {
            Err(format!("no error: {expected}; its rows are\n{}", rows_of(&output.batch).join("\n")))
        }
        (Answer::Rows { .. }, Err(error)) => Err(error.to_string()),
        (Answer::Rows { rows, ordered }, Ok(output)) => {
            let expected = batch(&case.plan.fields(), rows);
            let types = |batch: &arrow::record_batch::RecordBatch| -> Vec<_> {
                batch.schema().fields().iter().map(|field| field.data_type().clone()).collect()
            };
            if types(&expected) != types(&output.batch) {
                return Err(format!("columns are {:?}, not {:?}", types(&output.batch), types(&expected)));
            }
            let (mut expected, mut found) = (rows_of(&expected), rows_of(&output.batch));
            if !ordered {
                expected.sort();
                found.sort();
            }
            match expected == found {
                true => Ok(Some(output.metrics)),
                false => Err(format!("expected\n{}\nfound\n{}", expected.join("\n"), found.join("\n"))),
            }
        }
    }
}

fn check_fact(fact: &Fact, metrics: &QueryMetrics) -> Result<(), String> {
    let names = || metrics.pipelines.iter().map(|pipeline| pipeline.name.as_str());
    let shown = || names().collect::<Vec<_>>().join("\n");
    match fact {
        Fact::Choice { axis, value } => {
            let chosen: Vec<_> = metrics.choices().filter(|choice| choice.axis.name == axis).collect();
            let is_chosen = chosen.iter().any(|choice| choice.value == value);
            let others: Vec<&str> = chosen.iter().map(|choice| choice.value).collect();
            if is_chosen { Ok(()) } else { Err(format!("{axis} is not {value} but {others:?}")) }
        }
        Fact::Pipelines(count) if names().count() == *count => Ok(()),
        Fact::Pipelines(count) => Err(format!("not {count} pipelines but\n{}", shown())),
        Fact::Pipeline { part, is_there } if names().any(|name| name.contains(part)) == *is_there => Ok(()),
        Fact::Pipeline { part, is_there: true } => Err(format!("no pipeline has {part}:\n{}", shown())),
        Fact::Pipeline { part, is_there: false } => Err(format!("a pipeline has {part}:\n{}", shown())),
    }
}

#[test]
fn every_file_on_the_cpu() {
    run_all(On { name: "cpu", device: DeviceChoice::Cpu });
}

#[test]
fn every_file_on_the_interpreter() {
    run_all(On { name: "simt", device: DeviceChoice::Simt });
}

#[test]
fn every_file_on_a_gpu() {
    if let Some(device) = gpu() {
        run_all(On { name: "cuda", device });
    }
}

#[test]
fn plans_of_other_tests_are_printed_and_read() {
    for (name, plan, _) in crate::plans::plans() {
        let text = print(&plan);
        let again = parse(&text, &[]).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        assert_eq!(again, plan, "{name}\n{text}");
        assert_eq!(print(&again), text, "{name}");
    }
}

/// A file that says nothing, or something that is not understood, is an error that says where.
#[test]
fn files_that_are_wrong_say_where() {
    let table = "table t\n  k: Int64?\n  1\n";
    for (rest, expected) in [
        ("", "1: a file has a plan"),
        ("plan: p\n  scan t\n", "4: a plan has an answer or an error"),
        ("plan: p\n  scan u\nanswer\n  k\n", "5:8: there is no table u"),
        ("plan: p\n  scan t\nanswer\n  k\n  'x'\n", "8:3: 'x' is no value of type Int64"),
        ("plan: p\n  scan t\nanswer\n  k\n  1, 2\n", "8:4: expected the end of the line, found `,`"),
        ("plan: p\n  scan t\nanswer\n  v\n", "7: the plan's columns are k"),
        ("plan: p\n  scan t\nanswers\n  k\n", "6: `answers` is nothing that a file has"),
        ("plan: p\n  scan t\nerror:\n", "6: an error has a text"),
        ("plan: p\n  scan t\nvariant: x\nerror: y\n", "6: an axis and its value are `axis = value`"),
    ] {
        let error = File::parse(&format!("{table}{rest}")).map(|_| ()).expect_err(rest);
        assert!(error.starts_with(expected), "{rest}: {error}");
    }
}
