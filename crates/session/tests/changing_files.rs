//! Files that change: one in another's place, one that gets shorter, what is no file, and more files than may be open.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::parquet::arrow::ArrowWriter;

use crate::people::{error, folder, rows, sessions, write};

fn parquet(path: &Path, values: Vec<i64>) {
    let column: ArrayRef = Arc::new(Int64Array::from(values));
    let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn another_file_of_the_same_size_and_time_is_another_file() {
    let folder = folder(&[("c.csv", "x\n1\n2\n"), ("j.json", "{\"x\": 3}\n")]);
    let place = folder.path();
    parquet(&place.join("p.parquet"), vec![1, 2]);
    let external =
        format!("create external table e stored as parquet location '{}/p.parquet'", place.display());
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let set_time = |path: &Path| File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    let sessions = sessions();
    for (round, expected) in
        [(0, ["3", "3", "3", "3"]), (1, ["7", "7", "7", "9"]), (2, ["11", "11", "11", "1"])]
    {
        let texts = [
            ("c.csv", ["x\n1\n2\n", "x\n3\n4\n", "x\n5\n6\n"]),
            ("j.json", ["{\"x\": 3}\n", "{\"x\": 9}\n", "{\"x\": 1}\n"]),
        ];
        for (name, states) in texts {
            // One way beside it and renamed, the other in its place.
            let beside = place.join(".beside");
            let to = if round == 1 { &beside } else { &place.join(name) };
            fs::write(to, states[round]).unwrap();
            set_time(to);
            if round == 1 {
                fs::rename(&beside, place.join(name)).unwrap();
            }
        }
        let beside = place.join(".beside");
        parquet(&beside, vec![2 * round as i64 + 1, 2 * round as i64 + 2]);
        set_time(&beside);
        fs::rename(&beside, place.join("p.parquet")).unwrap();
        for session in &sessions {
            if round == 0 {
                session.register_dir(place).await.unwrap();
                session.sql(&external).await.unwrap();
            }
            let path = place.display();
            for (sql, expected) in [
                ("select sum(x) from c".to_string(), expected[0]),
                ("select sum(x) from p".to_string(), expected[1]),
                ("select sum(x) from e".to_string(), expected[1]),
                (format!("select sum(x) from '{path}/p.parquet' where x > 0"), expected[2]),
                (format!("select sum(x) from '{path}/j.json'"), expected[3]),
            ] {
                assert_eq!(rows(session, &sql).await, [expected], "{round} {sql}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_gets_shorter_is_an_error() {
    use futures::StreamExt;

    use datafusion::physical_plan::execute_stream;

    let text = |rows: usize| (0..rows).map(|row| format!("{row}\n")).collect::<String>();
    let lines = |rows: usize| (0..rows).map(|row| format!("{{\"x\": {row}}}\n")).collect::<String>();
    let folder = folder(&[]);
    for session in sessions() {
        for (name, whole, part) in [
            ("c.csv", format!("x\n{}", text(400_000)), format!("x\n{}", text(300_000))),
            ("q.csv", format!("x,y\n{}", text(400_000).replace('\n', ",\"a\nb\"\n")), "x,y\n1,2\n".into()),
            ("j.jsonl", lines(200_000), lines(100_000)),
        ] {
            write(folder.path(), &[(name, &whole)]);
            let path = folder.path().join(name);
            let frame = session
                .context()
                .sql(&format!("select x from '{}' where x >= 0", path.display()))
                .await
                .unwrap();
            let plan = frame.create_physical_plan().await.unwrap();
            fs::write(&path, part).unwrap();
            let mut stream = execute_stream(plan, session.context().task_ctx()).unwrap();
            let mut failed = None;
            while let Some(batch) = stream.next().await {
                if let Err(error) = batch {
                    failed = Some(error.to_string());
                    break;
                }
            }
            let failed = failed.unwrap_or_else(|| panic!("{name} must fail"));
            assert!(failed.contains(name) && failed.contains("shorter"), "{failed}");
            // Read again, it is what it is now.
            assert_eq!(rows(&session, &format!("select min(x) from '{}'", path.display())).await.len(), 1);
        }
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn pipes_and_devices_are_refused() {
    let folder = folder(&[("d/a.csv", "x\n1\n")]);
    for name in ["p.csv", "p.parquet", "d/b.csv"] {
        let made = std::process::Command::new("mkfifo").arg(folder.path().join(name)).status();
        assert!(made.unwrap().success());
    }
    std::os::unix::fs::symlink("/dev/null", folder.path().join("null.json")).unwrap();
    let path = folder.path().display();
    for session in sessions() {
        // A pipe that a statement names is waited for.
        let places = ["d/", "null.json"].map(|name| format!("{path}/{name}"));
        for place in places.iter().map(String::as_str).chain(["/dev/null", "/dev/zero"]) {
            let text = error(&session, &format!("select * from '{place}'")).await;
            assert!(text.contains("a pipe, socket or device"), "{text}");
        }
        fs::write(folder.path().join("x.docx"), "x").unwrap();
        let text = error(&session, &format!("select * from '{path}/x.docx'")).await;
        assert!(text.contains("x.docx: no Parquet, CSV"), "{text}");
        let registered = session.register_data(folder.path()).await.unwrap();
        assert_eq!((registered.names.len(), registered.problems.len()), (1, 2), "{registered:?}");
        assert_eq!(session.unreadable_tables().await.len(), 1, "the folder with a pipe");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_files_of_writers_are_no_data_and_go() {
    let folder = folder(&[
        ("t/a.csv", "x\n1\n"),
        ("t/.b.csv.4194999-0.tmp", "x\n"),
        ("t/.c.csv.4194999-1.tmp", "x\n"),
    ]);
    let place = folder.path().join("t");
    let old = SystemTime::now() - Duration::from_secs(7200);
    let names = [
        "a.csv".to_string(),
        ".b.csv.4194999-0.tmp".into(),
        format!(".own.{}-0.tmp", std::process::id()),
        ".hidden.tmp".into(),
    ];
    for name in &names[1..] {
        let file = File::options().create(true).append(true).open(place.join(name)).unwrap();
        file.set_modified(old).unwrap();
    }
    let session = sessions().remove(0);
    session.register_path("t", &place).await.unwrap();
    assert_eq!(rows(&session, "select sum(x) from t").await, ["1"]);
    session.sql("insert into t values (2)").await.unwrap();
    assert_eq!(rows(&session, "select sum(x) from t").await, ["3"]);
    let left = |name: &str| place.join(name).exists();
    // Its writer is gone and it is old; the others are young, of a process that runs, or somebody else's.
    assert!(!left(&names[1]) && left(".c.csv.4194999-1.tmp") && left(&names[2]) && left(&names[3]));
}
