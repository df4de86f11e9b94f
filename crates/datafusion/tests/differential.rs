//! Generated queries: Kelpie's answers are DataFusion's, on every device and under every micro model.
//!
//! `cargo run -p xtask -- fuzz --queries N --seed S` runs any number of them.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use kelpie_datafusion::testing::{
    Conditions, FuzzReport, QUERIES_A_SEED, Scale, fuzz, fuzz_relational, has_cuda,
};
use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_engine::Engine;

/// Half of all run as one partition and half as four, where exchanges stand between operators.
fn partitions(number: u64) -> (&'static str, &'static str) {
    ("datafusion.execution.target_partitions", if number.is_multiple_of(2) { "4" } else { "1" })
}

/// Runs queries of a seed and fails with every query that differs.
async fn agree(queries: usize, seed: u64, settings: &[(&str, &str)]) {
    let mut report = FuzzReport::default();
    for (half, numbers) in [(0, 0..queries / 2), (1, queries / 2..queries)] {
        let settings = [settings, &[partitions(seed + half)]].concat();
        let conditions = Conditions::by_rules(&settings);
        report.merge(fuzz(numbers, seed, conditions, &|_, _, _| {}).await.unwrap());
    }
    println!("seed {seed}, {settings:?}: {report}");
    assert!(report.different.is_empty(), "{report}");
    assert!(report.compiled * 10 >= report.equal * 6, "too few queries are compiled as a whole: {report}");
    assert!(report.only_plain_failed * 50 <= queries, "DataFusion alone fails too often: {report}");
    assert!(report.both_failed * 5 <= queries, "too many queries fail: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_resolution() {
    agree(220, 1, &[("kelpie.device", "cpu"), ("kelpie.micro_model", "resolution")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_pipelined() {
    agree(220, 2, &[("kelpie.device", "cpu"), ("kelpie.micro_model", "pipelined")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simt_resolution() {
    let device = [("kelpie.device", "simt"), ("kelpie.simt_lanes", "8")];
    agree(100, 3, &[device[0], device[1], ("kelpie.micro_model", "resolution")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simt_pipelined() {
    agree(100, 4, &[("kelpie.device", "simt"), ("kelpie.micro_model", "pipelined")]).await;
}

/// Runs the queries of some seeds over random tables and fails with every query that differs.
async fn relational(seeds: std::ops::Range<u64>, scale: Scale, settings: &[(&str, &str)]) {
    let engine = Arc::new(Engine::default());
    let mut report = FuzzReport::default();
    for seed in seeds.clone() {
        let settings = [settings, &[partitions(seed)]].concat();
        let conditions = Conditions::by_rules(&settings);
        let found = fuzz_relational(seed, 0..QUERIES_A_SEED, scale, conditions, &engine, &|_, _, _| {});
        report.merge(found.await.unwrap());
    }
    println!("seeds {seeds:?}, {settings:?}: {}", report.counts());
    assert!(report.different.is_empty(), "{report}");
    assert!(report.compiled_percent() >= 90.0, "too few queries are compiled as a whole: {report}");
    assert!(report.both_failed * 20 <= report.run(), "too many queries fail: {report}");
    assert!(report.only_plain_failed * 50 <= report.run(), "DataFusion alone fails too often: {report}");
}

/// 1,000 queries with joins, subqueries and set operations, in two halves.
#[tokio::test(flavor = "multi_thread")]
async fn relational_resolution() {
    let settings = [("kelpie.device", "cpu"), ("kelpie.micro_model", "resolution")];
    relational(1..21, Scale::Normal, &settings).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn relational_pipelined() {
    let settings = [("kelpie.device", "cpu"), ("kelpie.micro_model", "pipelined"), ("kelpie.threads", "3")];
    relational(21..41, Scale::Normal, &settings).await;
}

/// Operators that hand their rows on through memory, also block by block.
#[tokio::test(flavor = "multi_thread")]
async fn relational_through_memory() {
    let single = ("kelpie.micro_model", "operator_at_a_time");
    let multi = ("kelpie.micro_model", "multi_pass");
    let (cpu, batch) = (("kelpie.device", "cpu"), ("kelpie.macro_model", "batch"));
    relational(41..46, Scale::Normal, &[cpu, single]).await;
    relational(46..51, Scale::Normal, &[cpu, multi]).await;
    relational(51..54, Scale::Normal, &[cpu, single, batch, ("kelpie.block_bytes", "4KB")]).await;
}

/// Few rows on the interpreter, which finds races and divergent barriers.
#[tokio::test(flavor = "multi_thread")]
async fn relational_simt() {
    relational(1001..1003, Scale::Small, &[("kelpie.device", "simt")]).await;
    relational(1003..1005, Scale::Small, &[("kelpie.device", "simt"), ("kelpie.simt_lanes", "4")]).await;
    for (option, value) in [
        ("kelpie.micro_model", "multi_pass"),
        ("kelpie.micro_model", "operator_at_a_time"),
        ("kelpie.resolution", "work_efficient"),
    ] {
        relational(1005..1006, Scale::Small, &[("kelpie.device", "simt"), (option, value)]).await;
    }
}

/// Texts of which there are few are keys, values and operands without codes too.
#[tokio::test(flavor = "multi_thread")]
async fn without_dictionaries() {
    let off = ("kelpie.dictionaries", "off");
    agree(60, 6, &[("kelpie.device", "cpu"), off]).await;
    agree(20, 7, &[("kelpie.device", "simt"), off]).await;
    relational(61..64, Scale::Normal, &[("kelpie.device", "cpu"), off]).await;
    relational(1006..1007, Scale::Small, &[("kelpie.device", "simt"), off]).await;
}

/// Where there is a GPU; `KELPIE_REQUIRE=cuda` makes its absence an error.
#[tokio::test(flavor = "multi_thread")]
async fn cuda() {
    if !has_cuda(&Engine::default()) {
        return;
    }
    for model in ["resolution", "pipelined"] {
        let settings = [("kelpie.device", "cuda"), ("kelpie.micro_model", model)];
        agree(60, 5, &settings).await;
        relational(2001..2005, Scale::Normal, &settings).await;
    }
}

/// Several executions of one stage find at the same time that the build side's keys are not unique.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_stage_many_times_at_once() {
    let setup = "CREATE TABLE t AS SELECT value % 50 AS k, value AS v FROM generate_series(0, 99)";
    for round in 0..10i64 {
        let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
        session.sql(setup).await.unwrap();
        let session = Arc::new(session);
        let run = |_| {
            let session = Arc::clone(&session);
            let sql = format!("SELECT count(*) FROM t a JOIN t b ON a.k = b.k AND a.v >= {round}");
            tokio::spawn(async move { session.sql(&sql).await })
        };
        // Of 100 rows each key has two: those from `round` on meet both rows of their key.
        let expected = 2 * (100 - round);
        for task in (0..6).map(run).collect::<Vec<_>>() {
            let result = task.await.unwrap().unwrap();
            assert!(result.timing.compiled, "{:?}", result.timing.reasons);
            assert_eq!(result.batches[0].column(0).as_primitive::<Int64Type>().value(0), expected);
        }
    }
}

/// The order of joins makes a filter between columns of one name of two tables; it is not taken for one of a single table.
#[tokio::test(flavor = "multi_thread")]
async fn columns_of_one_name_stay_apart() {
    let mut counts = Vec::new();
    for join_order in ["true", "false"] {
        let options =
            SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.join_order", join_order);
        let session = KelpieSession::new(options).unwrap();
        for sql in [
            "CREATE TABLE a AS SELECT CAST(value % 5 AS INT) AS k, 7 AS g FROM generate_series(1, 84)",
            "CREATE TABLE b AS SELECT CAST(value AS INT) AS k, 7 AS g FROM generate_series(1, 30)",
            "CREATE TABLE c AS SELECT CAST(value AS INT) AS z FROM generate_series(1, 5)",
        ] {
            session.sql(sql).await.unwrap();
        }
        let sql = "SELECT a.k FROM a JOIN b ON a.g = b.g JOIN (SELECT 5 AS five FROM c) c \
                   ON b.k + 1 = five AND a.k + 1 = five WHERE a.g = (SELECT max(g) FROM a)";
        counts.push(session.sql(sql).await.unwrap().rows());
    }
    assert_eq!(counts, [85, 85]);
}

/// Many more, from the environment: `KELPIE_FUZZ_SEEDS=100..110 cargo test --test sql differential -- --ignored`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: .ci/run runs it"]
async fn more_seeds() {
    let seeds = std::env::var("KELPIE_FUZZ_SEEDS").unwrap_or("100..104".into());
    let (first, last) = seeds.split_once("..").expect("FIRST..LAST");
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        agree(200, seed, &[("kelpie.device", "cpu")]).await;
    }
}
