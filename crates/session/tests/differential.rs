//! Generated queries: Kelpie's answers are DataFusion's, on every device and under every micro model.
//!
//! `cargo run -p xtask -- fuzz --queries N --seed S` runs any number of them.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use kelpie_engine::Engine;
use kelpie_session::testing::sample::{covering, is_whole};
use kelpie_session::testing::{FuzzReport, Generator, Piece, Scale, Settings, fuzz, has_cuda};
use kelpie_session::{KelpieSession, SessionOptions};

const SMALL: Generator = Generator::Relational(Scale::Small);
const RELATIONAL: Generator = Generator::Relational(Scale::Normal);
const CPU: (&str, &str) = ("kelpie.device", "cpu");
const SIMT: (&str, &str) = ("kelpie.device", "simt");
const PIPELINED: (&str, &str) = ("kelpie.micro_model", "pipelined");

/// All queries of some seeds. Half of all run as one partition and half as four, where exchanges stand between operators.
pub fn seeds(
    generator: Generator,
    seeds: Range<u64>,
    settings: &[(&'static str, &'static str)],
) -> Vec<Piece> {
    let numbers = 0..generator.queries_a_seed();
    seeds.map(|seed| piece(generator, seed, numbers.clone(), settings, seed.is_multiple_of(2))).collect()
}

fn piece(
    generator: Generator,
    seed: u64,
    numbers: Range<usize>,
    settings: &[(&'static str, &'static str)],
    is_partitioned: bool,
) -> Piece {
    let partitions = ("datafusion.execution.target_partitions", if is_partitioned { "4" } else { "1" });
    Piece { generator, seed, numbers, settings: [settings, &[partitions]].concat(), genomes: 0 }
}

/// So many queries over the one table of a seed, in pieces of a tenth.
fn single(queries: usize, seed: u64, settings: &[(&'static str, &'static str)]) -> Vec<Piece> {
    tenths(Generator::Single, queries, seed, settings)
}

fn tenths(
    generator: Generator,
    queries: usize,
    seed: u64,
    settings: &[(&'static str, &'static str)],
) -> Vec<Piece> {
    let size = queries / 10;
    let tenth = |part: usize| {
        let numbers = part * size..(part + 1) * size;
        piece(generator, seed, numbers, settings, seed.is_multiple_of(2) == (part < 5))
    };
    (0..10).map(tenth).collect()
}

/// Runs at most so many of the pieces, among which are all settings, and fails with every query that differs.
pub async fn agree(name: &str, pieces: Vec<Piece>, most: usize) -> FuzzReport {
    let settings = |piece: &Piece| -> Vec<Settings> { vec![piece.settings.clone()] };
    let report = fuzz(covering(name, pieces, most, settings)).await.unwrap();
    println!("{name}: {}", report.counts());
    assert!(report.different.is_empty(), "{report}");
    report
}

/// Queries over one table: what may be said of all of them together.
async fn single_agree(name: &str, pieces: Vec<Piece>, most: usize) {
    let report = agree(name, pieces, most).await;
    if is_whole() {
        assert!(
            report.compiled * 10 >= report.equal * 6,
            "too few queries are compiled as a whole: {report}"
        );
        assert!(report.only_plain_failed * 50 <= report.run(), "DataFusion alone fails too often: {report}");
        assert!(report.both_failed * 5 <= report.run(), "too many queries fail: {report}");
    }
}

/// The same of queries over random tables.
async fn relational_agree(name: &str, pieces: Vec<Piece>, most: usize) {
    let report = agree(name, pieces, most).await;
    if is_whole() {
        assert!(report.compiled_percent() >= 90.0, "too few queries are compiled as a whole: {report}");
        assert!(report.both_failed * 20 <= report.run(), "too many queries fail: {report}");
        assert!(report.only_plain_failed * 50 <= report.run(), "DataFusion alone fails too often: {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_table_on_the_cpu() {
    let mut pieces = single(220, 1, &[CPU]);
    pieces.extend(single(220, 2, &[CPU, PIPELINED]));
    pieces.extend((100..104).flat_map(|seed| single(200, seed, &[CPU])));
    pieces.extend(single(60, 6, &[CPU, ("kelpie.dictionaries", "off")]));
    single_agree("one table on the CPU", pieces, 14).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_table_on_the_interpreter() {
    let mut pieces = single(100, 3, &[SIMT, ("kelpie.simt_lanes", "8")]);
    pieces.extend(single(100, 4, &[SIMT, PIPELINED]));
    pieces.extend(single(20, 7, &[SIMT, ("kelpie.dictionaries", "off")]));
    single_agree("one table on the interpreter", pieces, 12).await;
}

/// Window functions over every kind of frame.
#[tokio::test(flavor = "multi_thread")]
async fn windows() {
    let mut pieces = tenths(Generator::Windows, 200, 1, &[CPU]);
    pieces.extend((2..6).flat_map(|seed| tenths(Generator::Windows, 200, seed, &[CPU])));
    pieces.extend(tenths(Generator::Windows, 100, 6, &[CPU, ("kelpie.micro_model", "operator_at_a_time")]));
    // By parts, and on DataFusion's operators where all rows are one partition.
    pieces.extend(tenths(Generator::Windows, 40, 8, &[CPU, ("kelpie.memory_limit", "64KB")]));
    pieces.extend(tenths(Generator::Windows, 40, 7, &[SIMT, ("kelpie.simt_lanes", "8")]));
    let report = agree("windows", pieces, 14).await;
    if is_whole() {
        assert!(report.compiled_percent() >= 90.0, "too few queries are compiled as a whole: {report}");
    }
}

/// Joins, subqueries and set operations.
#[tokio::test(flavor = "multi_thread")]
async fn relational_on_the_cpu() {
    let mut pieces = seeds(RELATIONAL, 1..21, &[CPU]);
    pieces.extend(seeds(RELATIONAL, 21..41, &[CPU, PIPELINED, ("kelpie.threads", "3")]));
    pieces.extend(seeds(RELATIONAL, 61..64, &[CPU, ("kelpie.dictionaries", "off")]));
    relational_agree("relational on the CPU", pieces, 6).await;
}

/// Operators that hand their rows on through memory, also block by block.
#[tokio::test(flavor = "multi_thread")]
async fn relational_through_memory() {
    let single = ("kelpie.micro_model", "operator_at_a_time");
    let multi = ("kelpie.micro_model", "multi_pass");
    let batch = [("kelpie.macro_model", "batch"), ("kelpie.block_bytes", "4KB")];
    let mut pieces = seeds(RELATIONAL, 41..46, &[CPU, single]);
    pieces.extend(seeds(RELATIONAL, 46..51, &[CPU, multi]));
    pieces.extend(seeds(RELATIONAL, 51..54, &[CPU, single, batch[0], batch[1]]));
    relational_agree("relational through memory", pieces, 6).await;
}

/// Few rows on the interpreter, which finds races and divergent barriers.
#[tokio::test(flavor = "multi_thread")]
async fn relational_on_the_interpreter() {
    let mut pieces = seeds(SMALL, 1001..1003, &[SIMT]);
    pieces.extend(seeds(SMALL, 1003..1005, &[SIMT, ("kelpie.simt_lanes", "4")]));
    for option in [
        ("kelpie.micro_model", "multi_pass"),
        ("kelpie.micro_model", "operator_at_a_time"),
        ("kelpie.resolution", "work_efficient"),
    ] {
        pieces.extend(seeds(SMALL, 1005..1006, &[SIMT, option]));
    }
    pieces.extend(seeds(SMALL, 1006..1007, &[SIMT, ("kelpie.dictionaries", "off")]));
    relational_agree("relational on the interpreter", pieces, 6).await;
}

/// Where there is a GPU; `KELPIE_REQUIRE=cuda` makes its absence an error.
#[tokio::test(flavor = "multi_thread")]
async fn cuda() {
    if !has_cuda(&Engine::default()) {
        return;
    }
    for model in ["resolution", "pipelined"] {
        let settings = [("kelpie.device", "cuda"), ("kelpie.handover", "off"), ("kelpie.micro_model", model)];
        single_agree("one table on a GPU", single(60, 5, &settings), 10).await;
        relational_agree("relational on a GPU", seeds(RELATIONAL, 2001..2005, &settings), 4).await;
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

/// SQL's own answers, by an evaluator that shares nothing with DataFusion.
#[tokio::test(flavor = "multi_thread")]
async fn the_answers_of_sql() {
    let pieces =
        [seeds(Generator::Reference, 1..13, &[CPU]), seeds(Generator::Reference, 13..17, &[SIMT])].concat();
    agree("answers of SQL", pieces, 16).await;
}
