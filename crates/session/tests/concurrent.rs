//! Many queries at once, on few threads and in sessions that differ: all end, with their own answers.
//!
//! `KELPIE_SECONDS=3600 cargo test --test sql -- concurrent::` runs each of them again and again for an hour.

use std::fs::File;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::parquet::arrow::ArrowWriter;
use kelpie_engine::Engine;
use kelpie_session::{KelpieSession, RunningQuery, SessionOptions};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const ROWS: i64 = 3000;
const TABLES: i64 = 3;

/// A runtime of two threads, with so many for work that blocks.
fn runtime(blocking: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(2).max_blocking_threads(blocking).enable_all().build().unwrap()
}

/// Tables `t0`, `t1`, … with columns `a`, `b` and the text `s`: of Parquet, and the last of CSV.
fn data() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for table in 0..TABLES {
        let numbers = || (0..ROWS).map(move |row| row * (table + 1));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(Int64Array::from_iter_values(numbers()))),
            ("b", Arc::new(Int64Array::from_iter_values(numbers().map(|n| n % 7)))),
            ("s", Arc::new(StringArray::from_iter_values(numbers().map(|n| format!("text {}", n % 100))))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        if table == TABLES - 1 {
            write_csv(&folder.path().join(format!("t{table}.csv")), &batch);
            continue;
        }
        let file = File::create(folder.path().join(format!("t{table}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    folder
}

fn write_csv(path: &Path, batch: &RecordBatch) {
    let mut writer = datafusion::arrow::csv::Writer::new(File::create(path).unwrap());
    writer.write(batch).unwrap();
}

fn options(engine: &Arc<Engine>, device: &str) -> SessionOptions {
    let options = SessionOptions::default().with_engine(Arc::clone(engine));
    options.with("kelpie.device", device).with("kelpie.fallback", "deny")
}

async fn session(options: SessionOptions, folder: &Path) -> Arc<KelpieSession> {
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(folder).await.unwrap();
    Arc::new(session)
}

/// The one number of an answer.
async fn number(session: &KelpieSession, sql: &str) -> i64 {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    result.batches[0].column(0).as_primitive::<Int64Type>().value(0)
}

/// What ends within two minutes; a query that stands still never does.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(Duration::from_secs(120), work).await;
    ended.unwrap_or_else(|_| panic!("{what}: it stands still"))
}

/// At least so many rounds, and as many as there is time for where time is given.
fn rounds(least: usize) -> impl Iterator<Item = usize> {
    let given = std::env::var("KELPIE_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let (start, given) = (Instant::now(), Duration::from_secs(given.unwrap_or(0)));
    (0..).take_while(move |round| *round < least || start.elapsed() < given)
}

/// A query, and its answer. Columns of several tables are asked for in several combinations.
fn numbered(query: i64) -> (String, i64) {
    let (table, least) = (query % TABLES, query % 11);
    let sum = |value: fn(i64) -> i64| {
        let all = (0..ROWS).map(|row| row * (table + 1)).filter(|n| n % 7 < least);
        all.map(value).sum::<i64>()
    };
    match query % 4 {
        0 => (format!("select coalesce(sum(a), 0) from t{table} where b < {least}"), sum(|n| n)),
        1 => (format!("select count(*) from t{table} where b < {least}"), sum(|_| 1)),
        2 => (format!("select coalesce(sum(b), 0) from t{table} where b < {least}"), sum(|n| n % 7)),
        _ => (
            format!("select coalesce(sum(length(s)), 0) from t{table} where b < {least}"),
            sum(|n| 5 + (n % 100).to_string().len() as i64),
        ),
    }
}

async fn all_of(mut running: JoinSet<()>) {
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

fn many_at_once(device: &'static str, blocking: usize, queries: i64) {
    let folder = data();
    let runtime = runtime(blocking);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let session = session(options(&engine, device), folder.path()).await;
        for _ in rounds(2) {
            session.clear_columns();
            let mut running = JoinSet::new();
            for query in 0..queries {
                let session = Arc::clone(&session);
                let (sql, expected) = numbered(query);
                running.spawn(async move { assert_eq!(number(&session, &sql).await, expected, "{sql}") });
            }
            soon("many queries at once", all_of(running)).await;
        }
    });
    runtime.shutdown_background();
}

#[test]
fn two_hundred_queries_on_two_threads_end() {
    many_at_once("cpu", 2, 200);
}

#[test]
fn so_do_those_of_one_thread_for_work_that_blocks() {
    many_at_once("cpu", 1, 60);
}

#[test]
fn so_do_those_on_the_interpreter() {
    many_at_once("simt", 4, 200);
}

/// Answers of which nobody takes the rest keep no later query from its turn, however many there are.
#[test]
fn answers_that_nobody_takes_hold_up_nobody() {
    let folder = data();
    let runtime = runtime(2);
    runtime.block_on(soon("a query beside open answers", async {
        let engine = Arc::<Engine>::default();
        let options = options(&engine, "cpu").with("datafusion.execution.batch_size", "100");
        let session = session(options, folder.path()).await;
        let mut open: Vec<RunningQuery> = Vec::new();
        for number in 0..150 {
            let sql = format!("select a, s from t{} where a >= {}", number % TABLES, number % 5);
            let mut running = session.start(&sql).await.unwrap();
            assert!(running.next().await.unwrap().is_some());
            open.push(running);
        }
        let (sql, expected) = numbered(8);
        assert_eq!(number(&session, &sql).await, expected);
        // Those that go on get all of their rows.
        for running in open.iter_mut().step_by(50) {
            let mut rows = 100;
            while let Some(batch) = running.next().await.unwrap() {
                rows += batch.num_rows() as i64;
            }
            assert!(rows > ROWS - 10, "{rows}");
        }
    }));
    runtime.shutdown_background();
}

/// A plan of two compiled parts, of which the rows of one are wanted before those of the other.
#[test]
fn parts_of_one_plan_do_not_wait_for_each_other() {
    let folder = data();
    let runtime = runtime(2);
    runtime.block_on(soon("plans of several parts", async {
        let engine = Arc::<Engine>::default();
        let options = options(&engine, "cpu")
            .with("kelpie.fallback", "allow")
            .with("datafusion.execution.batch_size", "50");
        let session = session(options, folder.path()).await;
        let sql = "select count(*) from (select a, approx_median(a) over () c from t0 where b < 5) x \
                   join (select a, approx_median(b) over () c from t1 where b < 6) y on x.a = y.a";
        let expected = number(&session, sql).await;
        let mut running = JoinSet::new();
        for _ in 0..100 {
            let session = Arc::clone(&session);
            running.spawn(async move { assert_eq!(number(&session, sql).await, expected) });
        }
        all_of(running).await;
    }));
    runtime.shutdown_background();
}

/// Whoever waits for columns that another reads ends at once when nobody wants its answer.
#[test]
fn a_query_that_waits_for_another_can_be_cancelled() {
    let folder = data();
    let runtime = runtime(2);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let session = session(options(&engine, "cpu"), folder.path()).await;
        for round in rounds(20) {
            session.clear_columns();
            let mut running = JoinSet::new();
            for query in 0..20 {
                let (session, (sql, _)) = (Arc::clone(&session), numbered(query));
                running.spawn(async move { session.sql(&sql).await.map(|_| ()) });
            }
            tokio::time::sleep(Duration::from_millis(round as u64 % 5)).await;
            running.abort_all();
            while running.join_next().await.is_some() {}
            let (sql, expected) = numbered(round as i64);
            let answer = soon("a query after cancelled ones", number(&session, &sql)).await;
            assert_eq!(answer, expected);
        }
    });
    runtime.shutdown_background();
}

/// Sessions of one engine that ask for other workers, lanes and memory.
#[test]
fn sessions_that_differ_do_not_disturb_each_other() {
    let folder = data();
    let runtime = runtime(4);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut sessions = Vec::new();
        // As many workers as there are by default are the same device, as are more than there can be.
        for threads in [0, cores, 1, 3, 1024, 2000] {
            let threads = threads.to_string();
            for limit in ["0", "2MB", "40MB"] {
                let own = options(&engine, "cpu").with("kelpie.threads", &threads);
                sessions.push(session(own.with("kelpie.memory_limit", limit), folder.path()).await);
            }
        }
        for lanes in ["4", "32"] {
            let own = options(&engine, "simt").with("kelpie.simt_lanes", lanes);
            sessions.push(session(own, folder.path()).await);
        }
        for _ in rounds(1) {
            let mut running = JoinSet::new();
            for (number_of, session) in sessions.iter().enumerate() {
                for round in 0..6 {
                    running.spawn(six_queries(Arc::clone(session), number_of as i64 * 7 + round * 3));
                }
            }
            soon("sessions that differ", all_of(running)).await;
        }
    });
    runtime.shutdown_background();
}

async fn six_queries(session: Arc<KelpieSession>, first: i64) {
    for query in first..first + 6 {
        let (sql, expected) = numbered(query);
        assert_eq!(number(&session, &sql).await, expected, "{sql}");
        if query % 5 == 0 {
            session.clear_columns();
        }
    }
}

/// Threads of this process that run blocks of launches.
#[cfg(target_os = "linux")]
fn workers() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = names.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("kelpie-worker")).count()
}

/// Sessions with limits of their own, however many, share the threads of the process: others that run at the same time too.
#[test]
#[cfg(target_os = "linux")]
fn threads_are_few_whatever_sessions_ask_for() {
    let folder = data();
    let runtime = runtime(4);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let mut running = JoinSet::new();
        for number_of in 0..200 {
            let threads = (number_of % 100 + 1).to_string();
            let limit = ["0", "3MB", "50MB", "1GB"][number_of as usize % 4];
            let own = options(&engine, "cpu").with("kelpie.threads", &threads);
            let session = session(own.with("kelpie.memory_limit", limit), folder.path()).await;
            running.spawn(async move {
                let (sql, expected) = numbered(number_of);
                assert_eq!(number(&session, &sql).await, expected, "{sql}");
            });
        }
        soon("sessions with limits of their own", all_of(running)).await;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=16.max(4 * cores)).contains(&workers()), "{} threads", workers());
    });
    runtime.shutdown_background();
}

/// A session that may have little memory takes none from others, and what others have keeps it from none of its own.
#[test]
fn a_limit_of_memory_is_its_sessions_own() {
    let folder = data();
    let runtime = runtime(4);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let sql = "SELECT sum(n * a) FROM (SELECT a, count(*) AS n FROM t GROUP BY a)";
        let (free, rows) = (session(options(&engine, "cpu"), folder.path()).await, 400_000);
        let small = options(&engine, "cpu").with("kelpie.memory_limit", "4MB");
        let small = session(small.with("kelpie.fallback", "allow"), folder.path()).await;
        for session in [&free, &small] {
            session.sql(&format!("CREATE TABLE t AS SELECT value AS a FROM range({rows})")).await.unwrap();
        }
        let expected = rows * (rows - 1) / 2;
        let mut running = JoinSet::new();
        for session in [&free, &small] {
            for _ in 0..4 {
                let session = Arc::clone(session);
                running.spawn(async move {
                    for _ in 0..3 {
                        assert_eq!(number(&session, sql).await, expected);
                    }
                });
            }
        }
        soon("sessions with limits and without", all_of(running)).await;
        // Whoever has no limit of his own was never short of memory.
        let parts = free.sql(sql).await.unwrap().timing.parts;
        let steps: Vec<String> = parts.into_iter().flat_map(|part| part.steps).collect();
        assert!(steps.is_empty(), "{steps:?}");
    });
    runtime.shutdown_background();
}

/// A nested loop that goes on for minutes keeps the workers from nobody, and one that ends gives the right answer though others had
/// its workers in between.
#[test]
fn long_queries_hold_up_no_short_ones() {
    let folder = data();
    let runtime = runtime(4);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let session = session(options(&engine, "cpu"), folder.path()).await;
        session.sql("CREATE TABLE big AS SELECT value AS v FROM range(2000000)").await.unwrap();
        session.sql("CREATE TABLE small AS SELECT value AS v FROM range(6000)").await.unwrap();
        let endless = "SELECT count(*) FROM big a, big b WHERE a.v + b.v < 0";
        let mut endless = session.start(endless).await.unwrap();
        let mut first = std::pin::pin!(endless.next());
        let waits = tokio::time::timeout(Duration::from_millis(500), first.as_mut()).await;
        assert!(waits.is_err(), "a nested loop over 2,000,000 rows has ended");
        let mut running = JoinSet::new();
        for client in 0..63 {
            let session = Arc::clone(&session);
            running.spawn(async move {
                for query in 0..4 {
                    let (sql, expected) = numbered(client + query);
                    assert_eq!(number(&session, &sql).await, expected, "{sql}");
                }
            });
        }
        for rest in 0..2 {
            let session = Arc::clone(&session);
            running.spawn(async move {
                let sql = format!("SELECT count(*) FROM small a, small b WHERE (a.v + b.v) % 3 = {rest}");
                // 6,000 numbers, a third with each remainder.
                assert_eq!(number(&session, &sql).await, 3 * 2000 * 2000, "{sql}");
            });
        }
        soon("short queries beside a nested loop", all_of(running)).await;
    });
    runtime.shutdown_background();
}

/// Queries whose states fit the budget alone, and not beside each other: they wait for each other, and what they are short of then
/// is not taken for what they need alone.
#[test]
fn memory_that_neighbours_hold_is_waited_for() {
    let folder = data();
    let runtime = runtime(4);
    runtime.block_on(async {
        let engine = Arc::<Engine>::default();
        let own = options(&engine, "cpu").with("kelpie.memory_limit", "40MB");
        let session = session(own, folder.path()).await;
        session.sql("CREATE TABLE t AS SELECT value AS a FROM range(600000)").await.unwrap();
        // Different statements, so that each has a program and capacities of its own.
        let sql =
            |n: i64| format!("SELECT sum(n * (a + {n})) FROM (SELECT a, count(*) AS n FROM t GROUP BY a)");
        let expected = |n: i64| (0..600_000).map(|a| a + n).sum::<i64>();
        let alone = session.sql(&sql(0)).await.unwrap().timing.parts;
        assert!(alone.iter().all(|part| part.steps.is_empty()), "{alone:?}");
        for _ in rounds(1) {
            let mut running = JoinSet::new();
            for n in 0..12 {
                let session = Arc::clone(&session);
                running.spawn(async move {
                    for _ in 0..2 {
                        assert_eq!(number(&session, &sql(n)).await, expected(n));
                    }
                });
            }
            soon("queries that share a budget", all_of(running)).await;
        }
        for n in 0..12 {
            let parts = session.sql(&sql(n)).await.unwrap().timing.parts;
            let steps: Vec<&String> = parts.iter().flat_map(|part| &part.steps).collect();
            assert!(steps.is_empty(), "{steps:?}");
        }
    });
    runtime.shutdown_background();
}
