//! What an engine has learned of queries and kept in a folder: the next one begins with it, in this process or another, and what is
//! there of other data or damaged changes no answer.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use crate::plans::{keyed, some_plans, table};
use crate::sides::{self, Condition, Spread};

/// Rows whose groups do not fit the table that a first run begins with.
const ROWS: i64 = 200_000;

/// The difference of two columns, of whose values nothing is known, is the key.
fn groups() -> (Plan, [Arc<Table>; 1]) {
    let columns: [Column; 2] = [("a", DataType::Int64, false), ("b", DataType::Int64, false)];
    let of_rows = |factor: i64| longs((0..ROWS).map(move |row| row * factor));
    let (a, b) = (column_of(&columns, 0), column_of(&columns, 1));
    let count = of_longs(AggregateFunction::Count, None);
    let key = arithmetic(ArithmeticOp::Subtract, a, b);
    (
        groups_of(scan_of(0, &columns), vec![key], vec![count]),
        [table_of(&columns, vec![of_rows(9), of_rows(2)])],
    )
}

/// How often rows were brought to their groups, and whether their number was estimated before.
fn fill(engine: &Engine) -> (u32, bool) {
    let (plan, tables) = groups();
    let forced = [("group_table", "hash"), ("computed_keys", "rows"), ("group_estimate", "none")];
    let output = run(engine, &plan, &tables, on(DeviceChoice::Cpu, &forced));
    assert_eq!(output.batch.num_rows() as i64, ROWS);
    (fillings(&output), output.metrics.pipelines.iter().any(|pipeline| pipeline.sketches > 0))
}

/// The pipelines that ran for a join whose build side has keys twice: those of an assumption that is wrong run too.
fn join(engine: &Engine) -> usize {
    let condition = Condition { keys: &[0], residual: false, null_equal: false };
    let (build, probe) =
        (sides::rows(40, Spread::SparseDuplicates, 2), sides::rows(60, Spread::SparseDuplicates, 1));
    let plan = sides::plan(JoinKind::Inner, condition, false);
    let tables = [&build, &probe].map(|rows| sides::table(rows));
    let output = run(engine, &plan, &tables, on(DeviceChoice::Cpu, &[("build_side", "written")]));
    let expected = sides::expected(JoinKind::Inner, condition, &build, &probe);
    assert_eq!(output.batch.num_rows(), expected.len());
    output.metrics.pipelines.len()
}

/// The only file of a folder.
fn file(folder: &Path) -> std::path::PathBuf {
    let entry = fs::read_dir(folder).expect("the folder is there").next().expect("a file in it");
    entry.expect("it can be looked at").path()
}

#[test]
fn an_engine_begins_with_what_the_one_before_has_learned() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::calibrated_from(folder.path());
    let (fillings, pipelines) = (fill(&engine).0, join(&engine));
    assert!(fillings > 1, "the table grows");
    assert_eq!(fill(&engine).0, 1);
    assert!(join(&engine) < pipelines, "the assumption is not made again");
    drop(engine);
    let engine = Engine::calibrated_from(folder.path());
    assert_eq!(fill(&engine).0, 1);
    assert!(join(&engine) < pipelines);
    // Others begin with nothing, and so does one whose file is damaged.
    assert_eq!((fill(&Engine::new()).0, join(&Engine::new())), (fillings, pipelines));
    drop(engine);
    let path = file(folder.path());
    let whole = fs::read(&path).expect("it can be read");
    for damaged in [&whole[..whole.len() / 2], b"", b"something else"] {
        fs::write(&path, damaged).expect("it can be written");
        let engine = Engine::calibrated_from(folder.path());
        assert_eq!((fill(&engine).0, join(&engine)), (fillings, pipelines));
    }
    assert_eq!(fill(&Engine::calibrated_from(folder.path())).0, 1, "it was replaced");
}

/// Set in the process that the test starts: the folder.
const FOLDER: &str = "KELPIE_TEST_LEARNED";

#[test]
fn a_process_begins_with_what_another_has_learned() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        fill(&Engine::calibrated_from(Path::new(&folder)));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().expect("this program");
    let own = "learned::a_process_begins_with_what_another_has_learned";
    let output = Command::new(program).args(["--exact", own]).env(FOLDER, folder.path()).output();
    let output = output.expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
    assert_eq!(fill(&Engine::calibrated_from(folder.path())).0, 1);
}

/// Tables of as many rows, and of values between the same bounds, whose keys are there other numbers of times.
#[test]
fn what_was_learned_of_other_data_changes_no_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let all = some_plans("learned of other data", 40);
    let devices = [DeviceChoice::Cpu, DeviceChoice::Simt];
    let earlier = [150, 60].map(table);
    let skewed = |rows: usize| {
        let key = |row: usize| (row % 7 != 3).then_some(if row < 50 { (row % 40) as i64 } else { 39 });
        keyed(rows, key, |row| (row % 11 != 5).then(|| format!("unique é {row}")))
    };
    let tables = [150, 60].map(skewed);
    let engine = Engine::calibrated_from(folder.path());
    for (_, plan, _) in &all {
        devices.iter().for_each(|device| drop(run(&engine, plan, &earlier, on(*device, &[]))));
    }
    drop(engine);
    let (taught, new) = (Engine::calibrated_from(folder.path()), Engine::new());
    for (name, plan, ordered) in &all {
        for device in devices {
            let rows = |engine| rows_of(&run(engine, plan, &tables, on(device, &[])).batch, *ordered);
            assert_eq!(rows(&taught), rows(&new), "{name} on {device:?}");
        }
    }
}
