//! Aggregates through SQL: every function over every type, with DISTINCT, with FILTER, in groups by keys of every type and
//! in grouping sets, over many rows, one row and none: compiled as a whole, with DataFusion's answers.

use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use kelpie_session::testing::sample::covering;
use kelpie_session::testing::{
    Check, Generated, Outcome, Settings, check_all, compare, configurations, same, sessions, side_by_side,
    translate, uncompiled_reasons,
};
use kelpie_session::{KelpieExec, KelpieOptions, KelpieRule, KelpieSession};

pub const INTEGERS: [&str; 10] = ["i8", "i16", "i32", "i64", "w64", "u8", "u16", "u32", "u64", "nn"];
pub const FLOATS: [&str; 2] = ["f32", "f64"];
pub const DECIMALS: [&str; 3] = ["d5", "d15", "d38"];
const OTHERS: [&str; 6] = ["b", "dt", "ts", "tsn", "tss", "s"];

/// The aggregates of a column.
fn aggregates(column: &str, distinct: bool) -> Vec<String> {
    let mut functions = vec!["count", "min", "max"];
    if INTEGERS.contains(&column) {
        functions.extend(["sum", "avg", "bit_and", "bit_or", "bit_xor"]);
    } else if FLOATS.contains(&column) || DECIMALS.contains(&column) {
        functions.extend(["sum", "avg"]);
    } else if column == "b" {
        functions.extend(["bool_and", "bool_or"]);
    }
    let numeric = !OTHERS.contains(&column);
    if numeric && !distinct {
        functions.extend(["var_samp", "var_pop", "stddev", "stddev_pop"]);
    }
    let prefix = if distinct { "DISTINCT " } else { "" };
    functions.into_iter().map(|function| format!("{function}({prefix}{column})")).collect()
}

pub fn columns() -> impl Iterator<Item = &'static str> {
    INTEGERS.into_iter().chain(FLOATS).chain(DECIMALS).chain(OTHERS)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_function_of_every_type() {
    let mut statements: Vec<String> = Vec::new();
    for column in columns() {
        let all = aggregates(column, false).join(", ");
        for table in ["t", "one", "none", "t WHERE nn < 0", &format!("t WHERE {column} IS NULL")] {
            statements.push(format!("SELECT {all} FROM {table}"));
        }
        statements.push(format!("SELECT k, {all} FROM t GROUP BY k"));
        statements.push(format!("SELECT i64 % 5, {all} FROM none GROUP BY 1"));
    }
    check_all("aggregates of every type", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn distinct_beside_other_aggregates() {
    let mut statements: Vec<String> = Vec::new();
    for column in columns() {
        let all = aggregates(column, true).join(", ");
        for table in ["t", "one", "none"] {
            statements.push(format!("SELECT count(*), {all} FROM {table}"));
        }
        // DataFusion cannot do an exclusive or of distinct values in groups.
        let mut grouped = aggregates(column, true);
        grouped.retain(|aggregate| !aggregate.starts_with("bit_xor"));
        let grouped = grouped.join(", ");
        statements.push(format!("SELECT k, count(*), sum(nn), {grouped} FROM t GROUP BY k"));
        statements
            .push(format!("SELECT count(DISTINCT {column}), count(DISTINCT k), sum(DISTINCT nn) FROM t"));
    }
    statements.extend([
        "SELECT count(DISTINCT fx), count(*) FROM t",
        "SELECT s, count(DISTINCT fx), count(DISTINCT f32), count(DISTINCT g) FROM t GROUP BY s",
        "SELECT count(DISTINCT k) FILTER (WHERE nn < 25), count(DISTINCT k), count(k) FILTER (WHERE b) FROM t",
        "SELECT g, sum(DISTINCT k) FILTER (WHERE b), avg(DISTINCT d15) FILTER (WHERE NOT b) FROM t GROUP BY g",
        "SELECT count(DISTINCT 1), count(*) FROM t",
        "SELECT count(DISTINCT k), count(DISTINCT nn + k), avg(DISTINCT k + 1) FROM t HAVING count(*) > 3",
    ].map(String::from));
    check_all("distinct values", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_type() {
    let mut statements: Vec<String> = Vec::new();
    for column in columns().chain(["fx", "nul"]) {
        for keys in [column.to_string(), format!("{column}, g"), format!("k, {column}")] {
            statements
                .push(format!("SELECT {keys}, count(*), sum(i64), min(s), max(d38) FROM t GROUP BY {keys}"));
        }
    }
    statements.extend(
        [
            "SELECT fx + 1, max(dt) FROM t GROUP BY 1",
            "SELECT -fx, count(b), bool_or(b) FROM t GROUP BY 1",
            "SELECT substr(s, 1, 2), count(*), max(s) FROM t GROUP BY 1",
            "SELECT CASE WHEN b THEN k END, count(*) FROM t GROUP BY 1",
            "SELECT k, b, g, count(*) FROM t GROUP BY k, b, g HAVING max(f64) > 0",
        ]
        .map(String::from),
    );
    check_all("keys of every type", configurations(), statements).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_and_grouping_sets() {
    let statements = [
        "SELECT count(*) FILTER (WHERE b), sum(d15) FILTER (WHERE k > 0), avg(i32) FILTER (WHERE b IS NULL) FROM t",
        "SELECT g, min(s) FILTER (WHERE nn > 40), stddev(f64) FILTER (WHERE b), count(*) FROM t GROUP BY g",
        "SELECT g, max(d38) FILTER (WHERE false), bool_and(b) FILTER (WHERE b IS NOT NULL) FROM t GROUP BY g",
        "SELECT k, g, count(*), sum(nn) FROM t GROUP BY ROLLUP (k, g)",
        "SELECT k, g, b, count(*), min(s), avg(d15) FROM t GROUP BY CUBE (k, g, b)",
        "SELECT k, g, count(*) FROM t GROUP BY GROUPING SETS ((k), (g), (k, g), (), (k))",
        "SELECT g, count(*), max(s) FROM none GROUP BY GROUPING SETS ((), (g), ())",
        "SELECT count(*), sum(nn) FROM t GROUP BY GROUPING SETS ((), ())",
        "SELECT count(*), sum(nn) FROM none GROUP BY GROUPING SETS (())",
        "SELECT k, count(DISTINCT g), count(DISTINCT nn) FROM t GROUP BY ROLLUP (k)",
        "SELECT k, g, count(*) FROM none GROUP BY ROLLUP (k, g)",
        "SELECT b, sum(nn) FROM t GROUP BY GROUPING SETS ((b), ()) HAVING sum(nn) > 100",
    ];
    check_all("filters and grouping sets", configurations(), statements).await.unwrap();
}

/// The groups of coarser sets are made of those of finer ones, of the rows, and by rule.
#[tokio::test(flavor = "multi_thread")]
async fn levels_of_grouping_sets() {
    let statements = [
        "SELECT k, g, b, s, count(*), count(nn), sum(nn), sum(d15), avg(d15), min(s), max(ts) FROM t GROUP BY ROLLUP (k, g, b, s)",
        "SELECT k, b, dt, grouping(k), grouping(b, dt), bool_and(b), bool_or(b), bit_and(i64), bit_or(u8), bit_xor(i32) FROM t \
         GROUP BY CUBE (k, b, dt)",
        "SELECT g, b, stddev(f64), var_pop(f64), avg(i32), sum(i8), sum(u64), min(d38), max(f32) FROM t GROUP BY GROUPING SETS ((g), (b), (g))",
        "SELECT k, g, sum(nn) FILTER (WHERE b), count(*) FILTER (WHERE nn > 40), max(s) FILTER (WHERE false) FROM t GROUP BY ROLLUP (k, g)",
        "SELECT k, s, grouping(k) + grouping(s), count(*) FROM t GROUP BY CUBE (k, s) HAVING count(*) > 3",
        "SELECT k, g, sum(nn), avg(d15), max(s), count(*) FROM none GROUP BY CUBE (k, g)",
        "SELECT substr(s, 1, 1), k % 3, count(*), sum(nn) FROM t GROUP BY ROLLUP (substr(s, 1, 1), k % 3)",
        "SELECT a.k, z.b, count(*), sum(a.nn) FROM t a JOIN t z ON a.nn = z.nn GROUP BY CUBE (a.k, z.b)",
        "SELECT k, g, count(*) FROM (SELECT * FROM t ORDER BY nn, k, g LIMIT 20) GROUP BY GROUPING SETS ((k), (g), (), ())",
        "SELECT n, count(*) FROM (SELECT k, g, count(*) AS n FROM t GROUP BY ROLLUP (k, g)) GROUP BY ROLLUP (n)",
        "SELECT k, g, count(DISTINCT nn), max(DISTINCT nn) FROM t GROUP BY ROLLUP (k, g)",
    ];
    for levels in ["direct", "upwards", "rule"] {
        let mut configurations = configurations();
        for settings in &mut configurations {
            settings.push(("kelpie.variant.grouping_levels", levels));
        }
        check_all(&format!("levels, {levels}"), configurations, statements).await.unwrap();
    }
}

/// Partial and final steps become one aggregate.
#[tokio::test(flavor = "multi_thread")]
async fn steps_of_many_partitions() {
    let settings = vec![
        ("kelpie.device", "cpu"),
        ("datafusion.execution.target_partitions", "4"),
        ("datafusion.optimizer.repartition_aggregations", "true"),
        ("datafusion.optimizer.enable_round_robin_repartition", "true"),
    ];
    let statements = [
        "SELECT k, sum(d15), avg(d15), min(s), stddev(f64), count(*) FROM t GROUP BY k",
        "SELECT count(DISTINCT k), count(DISTINCT g), sum(i64) FROM t",
        "SELECT bool_and(b), bit_xor(i32), var_pop(i32), max(d38) FROM t",
        "SELECT k, g, count(*), avg(i32) FROM t GROUP BY CUBE (k, g)",
    ];
    check_all("steps of many partitions", vec![settings], statements).await.unwrap();
}

/// Which step is Kelpie's where partial and final steps are apart, as in distributed plans.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kelpies {
    Partial,
    Final,
    Both,
    /// And one in between, that merges states to states.
    Three,
}

type Node = Arc<dyn ExecutionPlan>;

fn compiled(kelpie: &KelpieSession, node: Node) -> Result<Node> {
    let rule = KelpieRule::new(Arc::clone(kelpie.engine()));
    let plan = rule.optimize(node, kelpie.context().state().config_options())?;
    match plan.is::<KelpieExec>() {
        true => Ok(plan),
        false => plan_err!(
            "not compiled: {}",
            uncompiled_reasons(&plan, kelpie.engine(), &KelpieOptions::default()).join("; ")
        ),
    }
}

/// The rows of a node as a table, so that what reads them stands alone.
async fn table_of(node: Node, kelpie: &KelpieSession) -> Result<Node> {
    let schema = node.schema();
    let batches = collect(node, kelpie.context().task_ctx()).await?;
    Ok(MemorySourceConfig::try_new_exec(&[batches], schema, None)?)
}

/// A plan with its partial step replaced by the states that it makes; what is Kelpie's is compiled.
async fn apart(plan: &Node, kelpie: &KelpieSession, which: Kelpies) -> Result<Node> {
    let mut partial = Arc::clone(plan);
    while partial.downcast_ref::<AggregateExec>().is_none_or(|a| *a.mode() != AggregateMode::Partial) {
        let [below] = partial.children()[..] else { return plan_err!("no partial step") };
        partial = Arc::clone(below);
    }
    let step = match which {
        Kelpies::Final => Arc::clone(&partial),
        _ => compiled(kelpie, Arc::clone(&partial))?,
    };
    let mut states = table_of(step, kelpie).await?;
    if which == Kelpies::Three {
        let step = partial.downcast_ref::<AggregateExec>().unwrap();
        let merging = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            step.group_expr().as_final(),
            step.aggr_expr().to_vec(),
            vec![None; step.aggr_expr().len()],
            states,
            step.input_schema(),
        )?;
        states = table_of(compiled(kelpie, Arc::new(merging))?, kelpie).await?;
    }
    let replaced = Arc::clone(plan).transform_down(|node| match Arc::ptr_eq(&node, &partial) {
        true => Ok(Transformed::new(Arc::clone(&states), true, TreeNodeRecursion::Jump)),
        false => Ok(Transformed::no(node)),
    })?;
    match which {
        Kelpies::Partial => Ok(replaced.data),
        _ => compiled(kelpie, replaced.data),
    }
}

/// A statement of which one step is Kelpie's.
#[derive(Debug)]
struct Apart {
    sql: String,
    which: Kelpies,
}

impl Apart {
    /// How its answer differs from DataFusion's.
    async fn difference(&self, plain: &KelpieSession, kelpie: &KelpieSession) -> Result<Option<String>> {
        // A plan with a repartitioning runs once.
        let plan = async || plain.context().sql(&self.sql).await?.create_physical_plan().await;
        let expected = collect(plan().await?, plain.context().task_ctx()).await?;
        let plan = apart(&plan().await?, kelpie, self.which).await?;
        same(&expected, &collect(plan, kelpie.context().task_ctx()).await?, false)
    }
}

/// Either step by itself, over states that DataFusion made, and for DataFusion.
#[tokio::test(flavor = "multi_thread")]
async fn steps_apart() {
    let mut queries: Vec<String> = vec![
        "SELECT count(*), min(DISTINCT s), max(DISTINCT d15) FROM t".into(),
        "SELECT k, g, count(*), avg(f64), avg(d15) FROM t GROUP BY CUBE (k, g)".into(),
        "SELECT g, sum(nn) FILTER (WHERE b), count(*) FILTER (WHERE k > 1), avg(d5) FILTER (WHERE b) FROM t GROUP BY g".into(),
    ];
    for column in columns() {
        let mut all = aggregates(column, false);
        all.retain(|aggregate| !aggregate.starts_with("var") && !aggregate.starts_with("stddev"));
        // Its average is summed in 256 bits.
        all.retain(|aggregate| aggregate != "avg(d38)");
        let all = all.join(", ");
        queries.push(format!("SELECT {all} FROM t"));
        queries.push(format!("SELECT k, b, {all} FROM t GROUP BY k, b"));
        queries.push(format!("SELECT {all} FROM t WHERE nn < 0"));
        queries.push(format!("SELECT s, {all} FROM t WHERE {column} IS NULL OR nn < 9 GROUP BY s"));
    }
    let (_, kelpie) = sessions(11, &[("kelpie.device", "cpu")]).unwrap();
    let (_, plain) = sessions(
        11,
        &[
            ("kelpie.enabled", "false"),
            ("datafusion.execution.target_partitions", "4"),
            ("datafusion.optimizer.repartition_aggregations", "true"),
            ("datafusion.optimizer.enable_round_robin_repartition", "true"),
        ],
    )
    .unwrap();
    let cases = queries.into_iter().flat_map(|sql| {
        let steps = [Kelpies::Partial, Kelpies::Final, Kelpies::Both, Kelpies::Three];
        steps.map(|which| Apart { sql: sql.clone(), which })
    });
    let cases = covering("steps apart", cases, 0, |case| vec![case.sql.clone(), format!("{:?}", case.which)]);
    let sessions = (Arc::new(plain), Arc::new(kelpie));
    let run = |case: Apart| {
        let (plain, kelpie) = sessions.clone();
        async move {
            let difference = case.difference(&plain, &kelpie).await;
            difference
                .unwrap_or_else(|error| Some(error.strip_backtrace()))
                .map(|how| format!("{case:?}\n  {how}"))
        }
    };
    let wrong: Vec<String> = side_by_side(cases.into_iter().map(run)).await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// States that are not compiled are reasons.
#[tokio::test]
async fn states_that_are_not_compiled() {
    let (_, kelpie) = sessions(
        11,
        &[
            ("kelpie.enabled", "false"),
            ("datafusion.execution.target_partitions", "4"),
            ("datafusion.optimizer.repartition_aggregations", "true"),
            ("datafusion.optimizer.enable_round_robin_repartition", "true"),
        ],
    )
    .unwrap();
    for (aggregate, part) in [
        ("stddev(f64)", "the state of stddev between"),
        ("avg(d38)", "the state of avg between"),
        ("sum(DISTINCT nn), count(DISTINCT k)", "the state of sum of distinct values"),
    ] {
        let sql = format!("SELECT {aggregate} FROM t");
        let plan = kelpie.context().sql(&sql).await.unwrap().create_physical_plan().await.unwrap();
        assert!(translate(&plan).is_ok(), "{sql}: both steps are one aggregate");
        let states = plan.children()[0].children()[0];
        let reasons = translate(states).unwrap_err().join("\n");
        assert!(reasons.contains(part), "{sql}: {reasons}");
    }
}

/// DataFusion sums decimals for an average in 256 bits: where 128 do not hold the sum, its operators take over.
#[tokio::test(flavor = "multi_thread")]
async fn averages_of_sums_beyond_128_bits() {
    let (plain, kelpie) = sessions(11, &[("kelpie.device", "cpu")]).unwrap();
    for sql in [
        format!("SELECT avg({LARGE}) FROM t a CROSS JOIN t b"),
        format!("SELECT a.k, avg({LARGE}) FROM t a CROSS JOIN t b GROUP BY a.k"),
        format!("SELECT avg({LARGE}), avg({LARGE} * 1000) FROM t a"),
        format!("SELECT min({LARGE}), max({LARGE}) FROM t a CROSS JOIN t b"),
    ] {
        let query = Generated { sql, ordered: false };
        let outcome = compare(&plain, &kelpie, &query).await;
        assert!(
            matches!(outcome, Outcome::Equal { .. } | Outcome::BothFailed(_)),
            "{}: {outcome:?}",
            query.sql
        );
    }
}

/// Decimals up to 5e33, of 38 digits.
const LARGE: &str =
    "CAST(a.nn AS DECIMAL(38, 0)) * CAST('100000000000000000000000000000000' AS DECIMAL(33, 0))";

/// A sum of decimals beyond 38 digits is an error that names it: DataFusion's wraps around, so its operators do not
/// take over. One that is beyond only on the way is right.
#[tokio::test(flavor = "multi_thread")]
async fn sums_beyond_their_type() {
    let all = [("cpu", "1"), ("cpu", "4"), ("simt", "1"), ("simt", "4")].map(|(device, partitions)| {
        vec![("kelpie.device", device), ("datafusion.execution.target_partitions", partitions)]
    });
    for settings in covering("sums beyond their type", all, 2, Clone::clone) {
        let mut check = Check::new(&settings).unwrap();
        for sql in [
            format!("SELECT sum({LARGE}), sum(-({LARGE})), count(*) FROM t a"),
            format!("SELECT k, sum({LARGE}), sum(DISTINCT {LARGE}) FROM t a GROUP BY k"),
            format!(
                "SELECT sum(CASE WHEN b.k = 0 THEN 1000 ELSE -1000 END * ({LARGE})) FROM t a CROSS JOIN (SELECT DISTINCT k % 2 AS k FROM t WHERE k >= 0) b"
            ),
            format!("SELECT k, sum(1000 * ({LARGE})) FILTER (WHERE nn < 2) FROM t a GROUP BY ROLLUP (k)"),
        ] {
            check.query(&sql).await;
        }
        for sql in [
            format!("SELECT sum(1000 * ({LARGE})) AS total FROM t a"),
            format!("SELECT count(*), sum(-1000 * ({LARGE})) FROM t a"),
            format!("SELECT sum(1000 * ({LARGE})) FILTER (WHERE nn > 2) FROM t a"),
            format!("SELECT sum(DISTINCT 10000 * ({LARGE})) FROM t a"),
            format!("SELECT k % 1, sum(1000 * ({LARGE})) FROM t a GROUP BY 1"),
            format!("SELECT k, g, sum(1000 * ({LARGE})) FROM t a GROUP BY GROUPING SETS ((k, g), ())"),
            format!("SELECT 1 FROM t a HAVING sum(1000 * ({LARGE})) > 0"),
        ] {
            check.fails(&sql, &["sum(", "is beyond the range of its type"]).await;
        }
        check.finish();
    }
}

/// What counts values that are never NULL evaluates them all the same, where they may fail.
#[tokio::test(flavor = "multi_thread")]
async fn counted_values_that_fail() {
    for device in ["cpu", "simt"] {
        let (plain, kelpie) = sessions(11, &[("kelpie.device", device)]).unwrap();
        for sql in [
            "SELECT count(CAST(nn * 100 AS TINYINT)) FROM t",
            "SELECT k, count(CAST(nn * 100 AS TINYINT)), count(*) FROM t GROUP BY k",
            "SELECT k, count(100 / (nn - nn)) FROM t GROUP BY k",
        ] {
            let query = Generated { sql: sql.into(), ordered: false };
            let outcome = compare(&plain, &kelpie, &query).await;
            assert!(matches!(outcome, Outcome::BothFailed(_)), "{sql}: {outcome:?}");
        }
        let compiled = kelpie.sql("SELECT k, count(CAST(nn AS TINYINT)) FROM t GROUP BY k").await.unwrap();
        assert!(compiled.timing.compiled, "{:?}", compiled.timing.reasons);
    }
}

/// How many values there are about is how many there are, whatever lies between partial and final steps.
#[tokio::test(flavor = "multi_thread")]
async fn approximate_numbers_of_values_are_exact() {
    let columns: Vec<&str> = INTEGERS.into_iter().chain(FLOATS).chain(["b", "dt", "ts", "s"]).collect();
    let rows = ["", "WHERE nn < -5", "GROUP BY k"];
    let counted = columns.iter().flat_map(|column| rows.map(|of| (*column, of)));
    let cases = counted.flat_map(|(column, of)| {
        configurations().into_iter().map(move |settings| Counted { settings, column, of })
    });
    let facets =
        |case: &Counted| vec![format!("{:?}", case.settings), format!("{} {}", case.column, case.of)];
    let cases = covering("approximate numbers", cases, 0, facets);
    for settings in configurations() {
        let (plain, kelpie) = sessions(11, &settings).unwrap();
        kelpie.set("kelpie.corrections", "true").unwrap();
        for case in cases.iter().filter(|case| case.settings == settings) {
            case.check(&plain, &kelpie).await;
        }
    }
}

/// The numbers of a column's values, in groups or not.
struct Counted {
    settings: Settings,
    column: &'static str,
    of: &'static str,
}

impl Counted {
    async fn check(&self, plain: &SessionContext, kelpie: &KelpieSession) {
        let Counted { settings, column, of } = self;
        let keys = if of.starts_with("GROUP") { "k, " } else { "" };
        let select = |counts: [String; 2]| format!("SELECT {keys}{} FROM t {of}", counts.join(", "));
        let filters = ["", " FILTER (WHERE nn > 1)"];
        let about = select(filters.map(|filter| format!("approx_distinct({column}){filter}")));
        let count = |filter| format!("arrow_cast(count(DISTINCT {column}){filter}, 'UInt64')");
        let exact = plain.sql(&select(filters.map(count))).await.unwrap().collect().await.unwrap();
        let found = kelpie.sql(&about).await.unwrap();
        assert!(found.timing.compiled, "{about}: {:?}", found.timing.reasons);
        assert_eq!(same(&exact, &found.batches, false).unwrap(), None, "{settings:?}: {about}");
    }
}

/// The statistics of pairs.
const PAIRS: [&str; 12] = [
    "covar_samp", "covar_pop", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_avgx", "regr_avgy",
    "regr_sxx", "regr_syy", "regr_sxy", "regr_count",
];

#[tokio::test(flavor = "multi_thread")]
async fn statistics_of_pairs() {
    let mut statements: Vec<String> = Vec::new();
    let pairs = [("f64", "f32"), ("i32", "nn"), ("d5", "i8"), ("u8", "u8"), ("nul", "f64"), ("f32", "k * 0")];
    for (y, x) in pairs {
        let all = |y: &str, x: &str| PAIRS.map(|function| format!("{function}({y}, {x})")).join(", ");
        let both = all(y, x);
        for table in ["t", "one", "none", "t WHERE nn = 7", "t WHERE nn < 0"] {
            statements.push(format!("SELECT {both} FROM {table}"));
        }
        statements.push(format!("SELECT k, {both}, count(*) FROM t GROUP BY k"));
        statements.push(format!("SELECT k, {} FROM t GROUP BY k", all(x, y)));
        let over =
            "OVER (PARTITION BY k ORDER BY tsn, i64, d15, u32 ROWS BETWEEN 5 PRECEDING AND CURRENT ROW)";
        statements.push(format!(
            "SELECT nn, covar_pop({y}, {x}) OVER (PARTITION BY k), regr_count({y}, {x}) {over} FROM t"
        ));
        statements.push(format!("SELECT g, s, {both}, avg({y}), stddev({x}) FROM t GROUP BY g, s"));
        statements.push(format!("SELECT i16 % 300, {both} FROM t GROUP BY 1"));
        statements.push(format!("SELECT k, g, {both} FROM t GROUP BY ROLLUP (k, g)"));
        statements.push(format!("SELECT k, {both}, count(DISTINCT g), median(nn) FROM t GROUP BY k"));
        let filtered =
            PAIRS.map(|function| format!("{function}({y}, {x}) FILTER (WHERE nn > 20)")).join(", ");
        statements.push(format!("SELECT k, {filtered} FROM t GROUP BY k"));
        statements.push(format!("SELECT k, {both} FROM (SELECT k AS j, nn AS m FROM t WHERE nn < 5) b JOIN t a ON a.nn = b.m GROUP BY k"));
    }
    statements.push("SELECT k, corr(fx, f64), covar_pop(f64, CASE WHEN fx < 1e9 THEN fx END) FROM t WHERE NOT isnan(fx) AND abs(fx) < 1e9 GROUP BY k".into());
    statements.push("SELECT k, covar_pop(f32, nn), covar_samp(nn, f32), corr(nn, f32), regr_slope(nn, f32), regr_sxx(nn, f32), regr_r2(nn, f32) FROM t GROUP BY k".into());
    statements.push("SELECT corr('NaN'::double, f64), corr('NaN'::double, 'NaN'::double), corr(f64, 'NaN'::double) FROM t".into());
    // Values that are large beside their distances.
    statements.push("SELECT k, covar_samp(1e6 + f64, f64), regr_slope(f64, 1e6 + nn), corr(100 + f64, nn * 1e-6) FROM t GROUP BY k".into());
    check_all("statistics of pairs", configurations(), statements).await.unwrap();
}
