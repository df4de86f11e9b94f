//! Where the time of queries goes: the parts add up to the whole.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::time::{Duration, Instant};

use kelpie_session::{Group, KelpieSession, Phase, QueryTiming, SessionOptions};

/// A session with a table of so many rows in memory and one of Parquet.
async fn session(folder: &tempfile::TempDir) -> KelpieSession {
    let options = SessionOptions::default()
        .with("kelpie.device", "cpu")
        .with("datafusion.execution.target_partitions", "2");
    let session = KelpieSession::new(options).unwrap();
    let path = folder.path().join("t.parquet");
    let write = format!(
        "copy (select value as k, value % 97 as x, cast(value % 1000 as varchar) as s from generate_series(1, 400000) g(value))
         to '{}' stored as parquet",
        path.display()
    );
    session.sql(&write).await.unwrap();
    session.register_dir(folder.path()).await.unwrap();
    session
}

/// Nanoseconds since a moment.
fn since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// Runs a statement; its parts are all of its time, which begins and ends where it does as seen from outside.
async fn run(session: &KelpieSession, sql: &str) -> QueryTiming {
    let before = Instant::now();
    let mut query = session.start(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let (planned, planned_ns) = (Instant::now(), since(before));
    while query.next().await.unwrap_or_else(|error| panic!("{sql}: {error}")).is_some() {}
    let run_ns = since(planned);
    let timing = query.finish();
    let all_ns = since(before);
    assert_eq!(timing.split.total(), timing.total_ns, "{sql}: {timing:?}");
    assert!(run_ns <= timing.total_ns && timing.total_ns <= all_ns, "{sql}: {timing:?}");
    assert!(timing.plan_ns <= planned_ns, "{sql}: {timing:?}");
    assert_eq!(timing.plan_ns, timing.split.of_group(Group::Plan), "{sql}");
    timing
}

fn has(timing: &QueryTiming, phases: &[Phase]) {
    for phase in phases {
        assert!(timing.split.of(*phase) > 0, "{}: {timing:?}", phase.name());
    }
}

fn has_not(timing: &QueryTiming, phases: &[Phase]) {
    for phase in phases {
        assert_eq!(timing.split.of(*phase), 0, "{}: {timing:?}", phase.name());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder).await;
    let planning = [Phase::Parse, Phase::Logical, Phase::Statistics, Phase::Physical, Phase::Rule];
    let reading = [Phase::Open, Phase::Decode, Phase::Encode, Phase::Upload];
    let sql = "select x, count(*), sum(k), min(s) from t group by x";
    let first = run(&session, sql).await;
    assert!(first.compiled);
    has(&first, &planning);
    has(&first, &reading);
    has(&first, &[Phase::Generate, Phase::Build, Phase::Host, Phase::Kernels, Phase::Result]);
    has_not(&first, &[Phase::Operators, Phase::Print]);
    let hot = run(&session, sql).await;
    assert!(hot.plan_kept);
    has(&hot, &[Phase::Find, Phase::Host, Phase::Kernels, Phase::Result]);
    has_not(&hot, &planning);
    has_not(&hot, &[Phase::Build, Phase::Decode, Phase::Encode, Phase::Upload, Phase::Operators]);
    // A join, so that there is an order.
    let joined = run(&session, "select count(*) from t a join t b on a.k = b.k join t c on b.k = c.x").await;
    has(&joined, &[Phase::JoinOrder]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_add_up_where_datafusion_runs_too() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder).await;
    for sql in [
        // DataFusion's alone.
        "select approx_distinct(s), approx_median(k) from t",
        // Around a compiled part, and around two that run at once.
        "select approx_median(n) from (select x, count(*) as n from t group by x)",
        "select approx_median(n) from (select x, count(*) as n from t group by x union all select k % 91, sum(x) from t group by 1)",
    ] {
        for _ in 0..3 {
            let timing = run(&session, sql).await;
            assert!(!timing.compiled, "{sql}");
            has(&timing, &[Phase::Operators]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_the_rows_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder).await;
    let mut query = session.start("select k, x from t where x < 50 order by k").await.unwrap();
    while query.next().await.unwrap().is_some() {}
    // The engine is done: whatever time goes by is the taker's.
    let taken = Instant::now();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let waited_ns = since(taken);
    let timing = query.finish();
    assert!(timing.split.of(Phase::Taking) >= waited_ns, "{timing:?}");
    assert_eq!(timing.split.total(), timing.total_ns);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_tells_the_parts() {
    let folder = tempfile::tempdir().unwrap();
    let session = session(&folder).await;
    let result = session.sql("explain analyze select sum(k) from t where x > 3").await.unwrap();
    let text = datafusion::arrow::util::pretty::pretty_format_batches(&result.batches).unwrap().to_string();
    let line = text.lines().find(|line| line.contains("* time: plan=")).unwrap_or_else(|| panic!("{text}"));
    for part in [
        "parse=", "physical=", "rule=", "compile=", "generate=", "build=", "read=", "host=", "kernels=",
        "result=",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}
