//! What the tests of answers share.

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload, shapes, ssb, tpch};
use tempfile::TempDir;

/// Generated data.
pub fn data(workload: Workload, scale: f64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        scale,
        output: folder.path(),
        tables: &[],
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        replace: false,
        progress: &|_| {},
    };
    workload.generate(&options).unwrap();
    folder
}

/// A session on it.
pub async fn session(data: &TempDir, settings: &[(&str, &str)]) -> KelpieSession {
    let options = settings.iter().fold(SessionOptions::default(), |o, (name, value)| o.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(data.path()).await.unwrap();
    session
}

/// Runs queries and compares their answers.
pub async fn check(
    session: &KelpieSession,
    scale: f64,
    queries: impl IntoIterator<Item = usize>,
    what: &str,
) {
    for query in queries {
        let result = session.sql(tpch::QUERIES[query - 1]).await;
        let result = result.unwrap_or_else(|error| panic!("query {query}, {what}: {error}"));
        if let Err(difference) = tpch::check_answer(scale, query, &result.batches) {
            panic!("query {query}, {what}: {difference}");
        }
    }
}

/// The conditions that leave no row at small scales, and wider ones.
const WIDER: [(&str, &str); 5] = [
    ("c_nation = 'UNITED STATES'", "c_region = 'AMERICA'"),
    ("s_nation = 'UNITED STATES'", "s_region = 'AMERICA'"),
    ("(c_city = 'UNITED KI1' or c_city = 'UNITED KI5')", "c_region = 'EUROPE'"),
    ("(s_city = 'UNITED KI1' or s_city = 'UNITED KI5')", "s_region = 'EUROPE'"),
    ("p_category = 'MFGR#14'", "p_mfgr = 'MFGR#1'"),
];

/// SSB as Kelpie and as DataFusion's operators answer it: every query is ordered. A query without rows at this scale shows
/// little: it runs with wider conditions too, and must have rows then.
pub async fn check_ssb(data: &TempDir, settings: &[(&str, &str)]) {
    let compiled = session(data, settings).await;
    let reference = session(data, &[("kelpie.enabled", "false")]).await;
    let text = |batches: &[_]| pretty_format_batches(batches).unwrap().to_string();
    for (name, sql) in ssb::QUERIES {
        let (mut rows, mut sql) = (0, sql.to_string());
        for round in 0..2 {
            let result = compiled.sql(&sql).await;
            let result = result.unwrap_or_else(|error| panic!("{name}, {settings:?}: {error}"));
            let expected = reference.sql(&sql).await.unwrap();
            assert_eq!(text(&result.batches), text(&expected.batches), "{name}, {settings:?}: {sql}");
            rows = expected.rows();
            if rows > 0 || round == 1 {
                break;
            }
            sql = WIDER.iter().fold(sql, |sql, (narrow, wide)| sql.replace(narrow, wide));
        }
        assert!(rows > 0, "{name} has no rows: {sql}");
    }
}

/// The shapes as Kelpie and as DataFusion's operators answer them: rows that are several are ordered.
pub async fn check_shapes(data: &TempDir, settings: &[(&str, &str)]) {
    let compiled = session(data, settings).await;
    let reference = session(data, &[("kelpie.enabled", "false")]).await;
    let text = |batches: &[_]| pretty_format_batches(batches).unwrap().to_string();
    for (name, sql) in shapes::QUERIES {
        let expected = reference.sql(sql).await.unwrap();
        assert!(expected.rows() > 0, "{name} has no rows");
        for round in 0..2 {
            let result = compiled.sql(sql).await;
            let result = result.unwrap_or_else(|error| panic!("{name}, {settings:?}: {error}"));
            assert_eq!(text(&result.batches), text(&expected.batches), "{name}, {settings:?}, run {round}");
        }
    }
}
