//! Plans for one partition and for several: what is compiled, what stays DataFusion's and fits around it, and what is left
//! to DataFusion on purpose.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_compile::plan::Plan;
use kelpie_engine::Engine;
use kelpie_session::testing::{same, translate};
use kelpie_session::{KelpieExec, KelpieSession, SessionOptions, Stage, install};

/// Rows from a seed: keys with NULLs and skew, values, floats without NaN, texts.
fn batch(seed: u64, rows: usize) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut longs = |most: i64| -> ArrayRef {
        let value = |_| (random.u8(0..10) > 0).then(|| random.i64(0..most).min(random.i64(0..most)));
        Arc::new((0..rows).map(value).collect::<Int64Array>())
    };
    let (k, v, w) = (longs(12), longs(1000), longs(50));
    let mut random = fastrand::Rng::with_seed(seed + 1);
    let floats: Float64Array = (0..rows).map(|_| Some(f64::from(random.i32(-500..500)) / 8.0)).collect();
    let texts: StringArray = (0..rows).map(|_| Some(format!("text {}", random.u8(0..20)))).collect();
    let columns: Vec<(&str, ArrayRef)> =
        vec![("k", k), ("v", v), ("w", w), ("f", Arc::new(floats)), ("s", Arc::new(texts))];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

/// `t`, `u` and the empty `e`, in partitions of several batches.
fn add_tables(context: &SessionContext) {
    for (name, seed, partitions, rows) in [("t", 1, 3, 40), ("u", 100, 2, 15), ("e", 200, 2, 0)] {
        let batches =
            |partition: u64| vec![batch(seed + 10 * partition, rows), batch(seed + 10 * partition + 5, rows)];
        let data: Vec<_> = (0..partitions).map(batches).collect();
        let table = MemTable::try_new(data[0][0].schema(), data).unwrap();
        context.register_table(name, Arc::new(table)).unwrap();
    }
}

/// Settings under which DataFusion partitions whatever it can.
fn config(partitions: usize, hash_joins: bool) -> SessionConfig {
    SessionConfig::new()
        .with_target_partitions(partitions)
        .with_batch_size(16)
        .with_repartition_file_min_size(1)
        .set_usize("datafusion.optimizer.hash_join_single_partition_threshold", 0)
        .set_usize("datafusion.optimizer.hash_join_single_partition_threshold_rows", 0)
        .set_bool("datafusion.optimizer.prefer_hash_join", hash_joins)
}

fn contexts(partitions: usize, hash_joins: bool) -> (SessionContext, SessionContext) {
    let plain = SessionContext::new_with_config(config(partitions, hash_joins));
    let builder = SessionStateBuilder::new()
        .with_config(config(partitions, hash_joins).set_str("datafusion.catalog.information_schema", "true"))
        .with_default_features();
    let state = install(builder, Arc::new(Engine::new())).build();
    let kelpie = SessionContext::new_with_state(state);
    add_tables(&plain);
    add_tables(&kelpie);
    (plain, kelpie)
}

async fn physical(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let frame = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    frame.create_physical_plan().await.unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn compiled_parts(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let here = usize::from(plan.is::<KelpieExec>());
    here + plan.children().into_iter().map(compiled_parts).sum::<usize>()
}

/// What of a statement is compiled.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Compiled {
    Whole,
    Part,
    Nothing,
}

use Compiled::{Nothing, Part, Whole};

/// Statements, and what of them is compiled at any number of partitions. Those that order all of their columns are compared
/// in order.
const STATEMENTS: [(&str, bool, Compiled); 40] = [
    ("SELECT k, sum(v), count(*), avg(f) FROM t GROUP BY k", false, Whole),
    ("SELECT k, stddev(f), var_pop(f) FROM t GROUP BY k", false, Whole),
    ("SELECT stddev(f), count(DISTINCT s) FROM t WHERE v > 100", false, Whole),
    ("SELECT k, count(DISTINCT w), sum(DISTINCT v) FROM t GROUP BY k", false, Whole),
    ("SELECT avg(cast(v AS decimal(38, 4))) FROM t", false, Whole),
    ("SELECT DISTINCT k, s FROM t", false, Whole),
    ("SELECT k, v, w, s FROM t WHERE v > 500 ORDER BY k DESC, v, w, s", true, Whole),
    ("SELECT k, v, w FROM t ORDER BY v DESC NULLS LAST, k, w LIMIT 7 OFFSET 3", true, Whole),
    ("SELECT k, sum(v) AS x FROM t GROUP BY k ORDER BY x DESC, k LIMIT 3", true, Whole),
    ("SELECT k, max(v) AS x FROM t GROUP BY k ORDER BY x DESC LIMIT 1", true, Whole),
    ("SELECT t.k, t.v, u.v FROM t JOIN u ON t.k = u.k AND t.w = u.w", false, Whole),
    ("SELECT t.k, t.v, u.v FROM t LEFT JOIN u ON t.v = u.v", false, Whole),
    ("SELECT t.k, t.v, u.v FROM t FULL JOIN u ON t.w = u.w AND t.k < u.k", false, Whole),
    ("SELECT k, v FROM t WHERE v IN (SELECT v FROM u)", false, Whole),
    ("SELECT k, v FROM t WHERE v NOT IN (SELECT v FROM u WHERE v IS NOT NULL)", false, Whole),
    ("SELECT k FROM t INTERSECT SELECT k FROM u", false, Whole),
    ("SELECT k, w FROM t EXCEPT SELECT k, w FROM u", false, Whole),
    ("SELECT k, s FROM t UNION SELECT k, s FROM u", false, Whole),
    ("SELECT s, k, sum(v), grouping(s) FROM t GROUP BY CUBE (s, k)", false, Whole),
    ("SELECT v FROM t WHERE v > (SELECT avg(v) FROM u)", false, Whole),
    ("SELECT k, sum(v) FROM e GROUP BY k", false, Whole),
    ("SELECT t.k, e.v FROM t LEFT JOIN e ON t.k = e.k", false, Whole),
    (
        "SELECT k, x, CAST(row_number() OVER (ORDER BY k) AS BIGINT) FROM (SELECT k, sum(v) AS x FROM t GROUP BY k) q",
        false,
        Whole,
    ),
    ("SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v, w, s, f) FROM t WHERE v > 3", false, Whole),
    ("SELECT k, v, lag(v) OVER (ORDER BY v, k, w, s, f) FROM t ORDER BY v, k, w, s, f", false, Whole),
    // The rest has something that is not compiled, above, below or beside something that is.
    (
        "SELECT k, x, CAST(cardinality(array_agg(x) OVER (ORDER BY k)) AS DOUBLE) FROM (SELECT k, sum(v) AS x FROM t GROUP BY k) q",
        false,
        Part,
    ),
    (
        "SELECT k, CAST(cardinality(array_agg(x) OVER (PARTITION BY k ORDER BY w)) AS DOUBLE) FROM (SELECT k, w, count(*) AS x FROM t GROUP BY k, w) q",
        false,
        Part,
    ),
    (
        "SELECT q.k, CAST(cardinality(array_agg(v)) AS DOUBLE) FROM (SELECT t.k, u.v FROM t JOIN u ON t.k = u.k) q GROUP BY q.k",
        false,
        Part,
    ),
    (
        "SELECT a.k, a.x, b.m FROM (SELECT k, sum(v) AS x FROM t GROUP BY k) a JOIN (SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE) AS m FROM t GROUP BY k) b ON a.k = b.k",
        false,
        Part,
    ),
    (
        "SELECT k, x FROM (SELECT k, sum(v) AS x FROM t GROUP BY k UNION ALL SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE) FROM u GROUP BY k) q",
        false,
        Part,
    ),
    (
        "SELECT DISTINCT k, x FROM (SELECT k, sum(v) AS x FROM t GROUP BY k UNION ALL SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE) FROM u GROUP BY k) q",
        false,
        Part,
    ),
    (
        "SELECT a, k, CAST(cardinality(array_agg(k) OVER (PARTITION BY a ORDER BY k)) AS DOUBLE) FROM (SELECT 1 AS a, k FROM t GROUP BY k UNION ALL SELECT 2, k FROM u GROUP BY k) q",
        false,
        Part,
    ),
    (
        "SELECT count(DISTINCT x), array_agg(x ORDER BY x) FROM (SELECT t.v + u.v AS x FROM t JOIN u ON t.k = u.k) q JOIN \
         (SELECT CAST(cardinality(array_agg(v)) AS DOUBLE) AS m FROM t) r ON q.x < r.m",
        false,
        Part,
    ),
    ("SELECT array_agg(x ORDER BY x) FROM (SELECT k, sum(v) AS x FROM t GROUP BY k) q", false, Part),
    (
        "SELECT k, x FROM (SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE) AS x FROM t GROUP BY k) q ORDER BY k, x",
        true,
        Nothing,
    ),
    (
        "SELECT k, v, CAST(cardinality(array_agg(v) OVER (PARTITION BY k ORDER BY v, w, s, f)) AS DOUBLE) FROM t WHERE v > 3",
        false,
        Nothing,
    ),
    (
        "SELECT k, v, CAST(cardinality(array_agg(v) OVER (ORDER BY v, k, w, s, f)) AS DOUBLE) FROM t ORDER BY v, k",
        false,
        Nothing,
    ),
    ("SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE), sum(w) FROM t GROUP BY k", false, Nothing),
    ("SELECT k, unnest(range(0, w % 3)) FROM t", false, Nothing),
    (
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r",
        false,
        Nothing,
    ),
];

#[tokio::test]
async fn plans_of_any_partitions_fit_together_and_give_the_same_rows() {
    for (partitions, hash_joins) in [(1, true), (4, true), (4, false)] {
        let (plain, kelpie) = contexts(partitions, hash_joins);
        kelpie.sql("SET kelpie.device = 'cpu'").await.unwrap().collect().await.unwrap();
        for (sql, ordered, expected) in STATEMENTS {
            let plan = physical(&kelpie, sql).await;
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            let found = match (plan.is::<KelpieExec>(), compiled_parts(&plan)) {
                (true, _) => Whole,
                (false, 0) => Nothing,
                (false, _) => Part,
            };
            assert_eq!(found, expected, "{partitions} partitions: {sql}\n{shown}");
            let checked = SanityCheckPlan::new().optimize(Arc::clone(&plan), kelpie.state().config_options());
            checked.unwrap_or_else(|error| panic!("{partitions} partitions: {sql}: {error}\n{shown}"));
            let answer = collect(plan, kelpie.task_ctx()).await;
            let answer =
                answer.unwrap_or_else(|error| panic!("{partitions} partitions: {sql}: {error}\n{shown}"));
            let reference = plain.sql(sql).await.unwrap().collect().await.unwrap();
            let difference = same(&reference, &answer, ordered).unwrap();
            assert_eq!(difference, None, "{partitions} partitions: {sql}\n{shown}");
        }
    }
}

#[tokio::test]
async fn what_stays_is_as_datafusion_planned_it() {
    let (plain, kelpie) = contexts(4, true);
    kelpie.sql("SET kelpie.device = 'cpu'").await.unwrap().collect().await.unwrap();
    // Nothing of these is compiled: the plans are the same, to the letter.
    for sql in [
        "SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE), sum(w) FROM t GROUP BY k",
        "SELECT k, v, CAST(cardinality(array_agg(v) OVER (PARTITION BY k ORDER BY v)) AS DOUBLE) FROM t WHERE v > 3 ORDER BY k, v",
    ] {
        let plans = [physical(&plain, sql).await, physical(&kelpie, sql).await];
        let [expected, found] = plans.map(|plan| displayable(plan.as_ref()).indent(true).to_string());
        assert_eq!(found, expected, "{sql}");
    }
    // A compiled side of a partitioned join is dealt out as DataFusion planned it.
    let sql = "SELECT a.k, a.x, b.m FROM (SELECT k, sum(v) AS x FROM t GROUP BY k) a JOIN \
               (SELECT k, CAST(cardinality(array_agg(v)) AS DOUBLE) AS m FROM t GROUP BY k) b ON a.k = b.k";
    let shown = displayable(physical(&kelpie, sql).await.as_ref()).indent(false).to_string();
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    let place = lines.iter().position(|line| *line == "KelpieExec").unwrap_or_else(|| panic!("{shown}"));
    assert!(lines[place - 1].starts_with("RepartitionExec: partitioning=Hash([k@0], 4)"), "{shown}");
}

/// A limit that DataFusion pushes into a scan, a filter or a join counts for each partition. Over files that are declared as
/// sorted the rows that it needs are not the first ones of the table, nor those of another order of the same files.
#[tokio::test]
async fn limits_of_sorted_partitions_are_those_of_each() {
    let folder = tempfile::tempdir().unwrap();
    let (writer, _) = contexts(1, true);
    for (file, first, other) in [("a", 7, 10), ("b", 4, 40), ("c", 1, 70)] {
        let path = folder.path().join(format!("{file}.parquet"));
        let rows = format!(
            "SELECT {first} + v AS x, {other} + v AS y FROM generate_series(0, 2) AS s(v) ORDER BY x"
        );
        let sql = format!("COPY ({rows}) TO '{}' STORED AS PARQUET", path.display());
        writer.sql(&sql).await.unwrap().collect().await.unwrap();
    }
    let create = format!(
        "CREATE EXTERNAL TABLE s (x BIGINT, y BIGINT) STORED AS PARQUET WITH ORDER (x ASC) WITH ORDER (y ASC) \
         LOCATION '{}/'",
        folder.path().display()
    );
    for partitions in [1, 2, 3] {
        let (plain, kelpie) = contexts(partitions, true);
        for set in ["SET kelpie.device = 'cpu'", "SET kelpie.join_order = false"] {
            kelpie.sql(set).await.unwrap().collect().await.unwrap();
        }
        for context in [&plain, &kelpie] {
            for sql in ["SET datafusion.execution.parquet.pushdown_filters = true", create.as_str()] {
                context.sql(sql).await.unwrap().collect().await.unwrap();
            }
        }
        for sql in [
            "SELECT x, y FROM s ORDER BY x LIMIT 3",
            "SELECT x, y FROM s ORDER BY y LIMIT 3",
            "SELECT x, y FROM s ORDER BY y LIMIT 2 OFFSET 1",
            "SELECT x FROM s WHERE y % 2 = 0 ORDER BY x LIMIT 2",
            "SELECT x FROM s WHERE abs(y) % 2 = 0 ORDER BY y LIMIT 2",
            "SELECT count(*), min(z) FROM (SELECT x + y AS z FROM s ORDER BY x LIMIT 4) q",
            "SELECT s.x, s.y FROM s JOIN (SELECT DISTINCT k FROM t) d ON d.k = s.x ORDER BY s.x LIMIT 3",
        ] {
            let plan = physical(&kelpie, sql).await;
            assert!(compiled_parts(&plan) > 0, "{sql}");
            let shown = displayable(plan.as_ref()).indent(false).to_string();
            let answer = collect(plan, kelpie.task_ctx()).await.unwrap();
            let reference = plain.sql(sql).await.unwrap().collect().await.unwrap();
            let difference = same(&reference, &answer, true).unwrap();
            assert_eq!(difference, None, "{partitions} partitions: {sql}\n{shown}");
        }
    }
}

fn sorts(plan: &Plan) -> usize {
    usize::from(matches!(plan, Plan::Sort { .. })) + plan.inputs().into_iter().map(sorts).sum::<usize>()
}

/// A key that is constant in each partition, but not in all of them together, is left out of the sorts below a merge.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_constant_in_each_partition() {
    for partitions in [1, 3] {
        let (_, kelpie) = contexts(partitions, true);
        kelpie.sql("SET kelpie.device = 'cpu'").await.unwrap().collect().await.unwrap();
        for (sql, expected) in [
            (
                "SELECT -k AS a, 1.5 AS b FROM t UNION ALL SELECT k, 0.5 FROM t ORDER BY 2, 1 LIMIT 3",
                "SELECT k AS a, 0.5 AS b FROM t ORDER BY 1 LIMIT 3",
            ),
            (
                "SELECT -k AS a, 'x' AS b FROM t UNION ALL SELECT k, 'a' FROM t ORDER BY 2, 1 LIMIT 4 OFFSET 2",
                "SELECT k AS a, 'a' AS b FROM t ORDER BY 1 LIMIT 4 OFFSET 2",
            ),
        ] {
            let plan = physical(&kelpie, sql).await;
            assert!(compiled_parts(&plan) > 0, "{sql}");
            let answer = collect(plan, kelpie.task_ctx()).await.unwrap();
            let expected = kelpie.sql(expected).await.unwrap().collect().await.unwrap();
            assert_eq!(same(&expected, &answer, true).unwrap(), None, "{partitions} partitions: {sql}");
        }
    }
}

/// DataFusion sorts the partitions of a join's probe side and merges what comes out; Kelpie's joins keep no order.
#[tokio::test]
async fn what_is_sorted_at_the_end_is_not_sorted_below_a_join() {
    let (plain, _) = contexts(4, true);
    let sql = "SELECT b.k, b.v FROM (SELECT k, sum(v) AS s FROM t GROUP BY k) a JOIN t b ON a.k = b.k \
               WHERE a.s = (SELECT max(v) FROM t) ORDER BY b.k";
    let planned = physical(&plain, sql).await;
    let shown = displayable(planned.as_ref()).indent(false).to_string();
    let (join, sort) = (shown.find("HashJoinExec"), shown.find("SortExec"));
    assert!(join.is_some() && join < sort, "{shown}");
    let translated = translate(&planned).unwrap_or_else(|reasons| panic!("{reasons:?}"));
    assert_eq!(sorts(&translated.plan), 1, "{:?}", translated.plan);
}

fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let mut options = SessionOptions::default();
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    KelpieSession::new(options).unwrap()
}

async fn run(session: &KelpieSession, sql: &str) {
    session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

#[tokio::test]
async fn queries_over_few_rows_are_left_unless_one_says_otherwise() {
    let session = session(&[]);
    run(&session, "CREATE TABLE few AS SELECT value AS x FROM generate_series(1, 9000)").await;
    run(&session, "CREATE TABLE many AS SELECT value AS x FROM generate_series(1, 11000)").await;
    let sql = "SELECT x % 7, sum(x) FROM few GROUP BY 1";
    let result = session.sql(sql).await.unwrap();
    assert!(!result.timing.compiled && result.timing.device.is_none());
    assert_eq!(result.timing.reasons.len(), 1);
    assert!(result.timing.reasons[0].contains("9000 rows"), "{:?}", result.timing.reasons);
    let plan = session.explain(sql, Stage::Plan).await.unwrap();
    assert!(plan.contains("kelpie.min_rows is 10000") && !plan.contains("KelpieExec"), "{plan}");
    assert!(session.sql(&sql.replace("few", "many")).await.unwrap().timing.compiled);
    assert!(
        session.sql("SELECT count(*) FROM few JOIN many ON few.x = many.x").await.unwrap().timing.compiled
    );
    for (name, value) in [("kelpie.min_rows", "9000"), ("kelpie.device", "cpu"), ("kelpie.fallback", "deny")]
    {
        session.set(name, value).unwrap();
        assert!(session.sql(sql).await.unwrap().timing.compiled, "{name}");
        session.set(name, if name == "kelpie.fallback" { "allow" } else { "auto" }).unwrap();
    }
    session.set("kelpie.min_rows", "12000").unwrap();
    assert!(!session.sql(&sql.replace("few", "many")).await.unwrap().timing.compiled);
    // Where rows are not known exactly, Kelpie runs.
    assert!(session.sql("SELECT sum(x) FROM (SELECT x FROM few WHERE x > 5 LIMIT 100000) q").await.is_ok());
}

/// Compilers take longer for a kernel of many aggregates than rows save, where these are few.
#[tokio::test]
async fn many_aggregates_of_few_rows_are_left() {
    let session = session(&[("kelpie.device", "cpu")]);
    run(&session, "CREATE TABLE t AS SELECT value AS x, value % 7 AS k FROM generate_series(1, 20000)").await;
    let sums = |count: i32| (1..=count).map(|n| format!("sum(x + {n})")).collect::<Vec<_>>().join(", ");
    for keys in ["", " GROUP BY k"] {
        let few = session.sql(&format!("SELECT {} FROM t{keys}", sums(30))).await.unwrap();
        assert!(few.timing.compiled, "{:?}", few.timing.reasons);
        let sql = format!("SELECT {} FROM t WHERE x > 5{keys}", sums(300));
        let many = session.sql(&sql).await.unwrap();
        assert!(!many.timing.compiled, "{:?}", many.timing);
        let reasons = many.timing.reasons.join("; ");
        assert!(reasons.contains("a kernel of 300 aggregates takes longer than its rows"), "{reasons}");
    }
}

#[tokio::test]
async fn what_stops_early_and_pairs_of_rows_are_left() {
    let session = session(&[("kelpie.device", "cpu")]);
    run(&session, "CREATE TABLE big AS SELECT value AS x, value % 1000 AS k FROM generate_series(1, 200000)")
        .await;
    run(&session, "CREATE TABLE dim AS SELECT value AS k, value * 2 AS y FROM generate_series(0, 999)").await;
    run(&session, "CREATE TABLE mid AS SELECT x FROM big WHERE x <= 20000").await;
    for (sql, reason) in [
        ("SELECT x, y FROM big JOIN dim ON big.k = dim.k LIMIT 3", "a limit without a sort"),
        ("SELECT x + 1 FROM big WHERE k = 7 LIMIT 3", "a limit without a sort"),
        ("SELECT DISTINCT k FROM big LIMIT 3", "a limit without a sort"),
        ("SELECT x * 2 AS y FROM big", "every row is a part of the result"),
        (
            "SELECT x || 'a' FROM big UNION ALL SELECT k || 'b' FROM big LIMIT 350000",
            "every row is a part of the result",
        ),
        ("SELECT sum(x) FROM big, dim", "200000 pairs of rows without an equality"),
        (
            "SELECT count(*) FROM big JOIN dim ON big.k <> dim.k WHERE dim.y < 10",
            "of rows without an equality",
        ),
        ("SELECT count(*) FROM big FULL JOIN dim ON big.x < 5", "of rows without an equality"),
        ("SELECT m.x FROM mid m JOIN dim ON m.x < dim.k LIMIT 3", "of rows without an equality"),
    ] {
        let plan = session.explain(sql, Stage::Plan).await.unwrap();
        assert!(plan.contains("! left to DataFusion: "), "{sql}\n{plan}");
        assert!(plan.contains(reason) || plan.contains("pairs of rows"), "{sql}\n{plan}");
        assert!(!plan.contains("KelpieExec"), "{sql}\n{plan}");
    }
    for sql in [
        "SELECT x, y FROM big JOIN dim ON big.k = dim.k ORDER BY x, y LIMIT 3",
        "SELECT k, sum(x) FROM big GROUP BY k LIMIT 3",
        "SELECT count(*) FROM dim a, dim b WHERE a.k <> b.k",
        "SELECT count(*) FROM big JOIN dim ON big.k < dim.k WHERE dim.y < 10",
        "SELECT count(*) FROM big JOIN dim ON abs(big.x - dim.y) <= 5",
        "SELECT m.x FROM mid m JOIN dim ON m.x < dim.k ORDER BY m.x LIMIT 3",
        "SELECT k, y FROM dim WHERE y > 3 LIMIT 3",
        "SELECT k * 2, y FROM dim",
        "SELECT x * 2 FROM big WHERE k = 7",
        "SELECT x * 2 AS y FROM big ORDER BY y LIMIT 3",
        "SELECT x, y FROM big JOIN dim ON big.k = dim.k LIMIT 150000",
        "SELECT sum(x) FROM big, (SELECT max(y) AS y FROM dim) q WHERE x < y",
    ] {
        let result = session.sql(sql).await.unwrap();
        assert!(result.timing.compiled, "{sql}: {:?}", result.timing.reasons);
    }
    // Below what is left, parts are compiled.
    let sql = "SELECT count(*) FROM big JOIN (SELECT k, sum(x) AS y FROM big GROUP BY k) q ON big.x <> q.y";
    let plan = session.explain(sql, Stage::Plan).await.unwrap();
    assert!(plan.contains("left to DataFusion") && plan.contains("KelpieExec"), "{plan}");
    // A join that would hand on most of what it reads is DataFusion's, like what is above; what reduces is compiled.
    for (sql, compiled) in [
        (
            "SELECT CAST(cardinality(array_agg(x)) AS DOUBLE) FROM (SELECT x, y FROM big JOIN dim ON big.k = dim.k) q",
            false,
        ),
        (
            "SELECT CAST(cardinality(array_agg(x)) AS DOUBLE) FROM (SELECT x, y FROM big JOIN dim ON big.k = dim.k WHERE big.x < 4) q",
            true,
        ),
        (
            "SELECT CAST(cardinality(array_agg(n) OVER (ORDER BY n)) AS DOUBLE) FROM (SELECT k, count(*) AS n FROM big GROUP BY k) q",
            true,
        ),
        // A filter is a part where it leaves few rows.
        ("SELECT CAST(cardinality(array_agg(x) OVER (ORDER BY x)) AS DOUBLE) FROM big WHERE k = 3", true),
        ("SELECT CAST(cardinality(array_agg(x) OVER (ORDER BY x)) AS DOUBLE) FROM big WHERE k <> 3", false),
    ] {
        let plan = session.explain(sql, Stage::Plan).await.unwrap();
        assert_eq!(plan.contains("KelpieExec"), compiled, "{sql}\n{plan}");
    }
    session.set("kelpie.fallback", "deny").unwrap();
    assert!(
        session.sql("SELECT x FROM big JOIN dim ON big.k = dim.k LIMIT 3").await.unwrap().timing.compiled
    );
}

/// However DataFusion deals files out to partitions, their columns are the same columns.
#[tokio::test]
async fn columns_of_files_are_cached_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let writer = session(&[]);
    let sql =
        "COPY (SELECT value AS x, value % 10 AS k FROM generate_series(1, 100000)) TO '{}' STORED AS PARQUET";
    run(&writer, &sql.replace("{}", path.to_str().unwrap())).await;
    let session = session(&[
        ("kelpie.device", "cpu"),
        ("datafusion.execution.target_partitions", "4"),
        ("datafusion.optimizer.repartition_file_min_size", "1"),
    ]);
    session.register_path("t", &path).await.unwrap();
    let first = session.sql("SELECT k, sum(x) FROM t GROUP BY k").await.unwrap();
    assert!(first.timing.compiled && first.timing.transfer_bytes > 0);
    for (partitions, sql) in [
        ("4", "SELECT max(x) - min(x) FROM t WHERE k = 3"),
        ("3", "SELECT k, sum(x) FROM t GROUP BY k"),
        ("1", "SELECT x, k FROM t WHERE x > 99990 ORDER BY x"),
    ] {
        session.set("datafusion.execution.target_partitions", partitions).unwrap();
        let timing = session.sql(sql).await.unwrap().timing;
        assert!(timing.compiled, "{:?}", timing.reasons);
        assert_eq!(timing.transfer_bytes, 0, "{partitions} partitions: {sql}");
    }
}
