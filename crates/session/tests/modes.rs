//! `mode`, `quantile_disc` and `quantile_cont` through SQL: compiled as a whole, with the answers of their accumulators on DataFusion's operators.

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, SessionOptions};

/// Rows of several types with NULLs; in no group of `k` do two values of a column come equally often and most often, but in that of 5.
const TABLE: &str = "CREATE TABLE t AS SELECT i, nullif(i % 6, 4) AS k, 'group ' || (i % 3) AS g, \
    CASE WHEN i % 6 = 3 OR i % 13 = 0 THEN NULL ELSE sqrt((i * 7919) % 97)::int END AS n, \
    CASE WHEN i % 11 = 2 THEN NULL ELSE 'text ' || sqrt((i * 7919 + i / 100) % 90)::int END AS s, \
    CASE WHEN i % 17 = 0 THEN 'NaN'::double ELSE (i * 7 % 23) / 4.0 END AS f, \
    (i * 31 % 101)::decimal(7, 2) AS d, DATE '1960-01-01' + ((i * 37) % 20000)::int AS day \
    FROM generate_series(0, 2999) AS g(i)";

const STATEMENTS: [&str; 17] = [
    "SELECT k, quantile_disc(n, 0.5), quantile_disc(n, 0), quantile_disc(n, 1) FROM t GROUP BY k ORDER BY k",
    "SELECT g, quantile_disc(s, 0.25), quantile_disc(f, 0.9), quantile_disc(d, 0.333), quantile_disc(day, 0.01) FROM t GROUP BY g ORDER BY g",
    "SELECT percentile_disc(0.7) WITHIN GROUP (ORDER BY d), count(*), sum(n), median(f) FROM t",
    "SELECT quantile_disc(n, 0.5) FILTER (WHERE i % 2 = 0), quantile_disc(s, 0.5) FROM t WHERE i < 0",
    "SELECT k, quantile_disc(d, 0.5) FILTER (WHERE i % 2 = 0), quantile_disc(d, 0.5), min(d) FROM t GROUP BY k ORDER BY k",
    "SELECT k, quantile_cont(n, 0.7), percentile_cont(d, 0.123), median(s), median(i % 5 = 0) FROM t GROUP BY k ORDER BY k",
    "SELECT quantile_cont(f, 0.7), quantile_cont(n / 7.0, 0.777), percentile_cont(0.3) WITHIN GROUP (ORDER BY i / 3.0 DESC) FROM t",
    "SELECT quantile_cont(f, 0.7), median(s) FROM t WHERE i < 0",
    "SELECT k, mode(n), mode(s) FROM t WHERE k IS DISTINCT FROM 5 GROUP BY k ORDER BY k",
    "SELECT mode() WITHIN GROUP (ORDER BY s), mode(g) FILTER (WHERE i % 3 <> 1 OR i < 100), count(*), max(d) FROM t WHERE i <> 2999",
    "SELECT g, mode(s), median(f), sum(n), first_value(i ORDER BY day, i), mode(n) FROM t GROUP BY g ORDER BY g",
    "SELECT mode(n), mode(s), count(n) FROM t WHERE i < 0",
    "SELECT k, mode(n) FROM t WHERE n IS NULL GROUP BY k ORDER BY k",
    "SELECT mode(s) FROM t WHERE i = 7",
    "SELECT k, g, mode(s), grouping(g) FROM t WHERE i % 5 <> 3 GROUP BY ROLLUP (k, g) HAVING count(*) > 100000 ORDER BY 1, 2",
    "SELECT m, count(*) FROM (SELECT k, mode(s) AS m FROM t GROUP BY k) GROUP BY m ORDER BY m",
    "SELECT a.k, mode(b.s) FROM t a JOIN t b ON a.i = b.i + 1 GROUP BY a.k ORDER BY a.k",
];

async fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let all = settings.iter().fold(SessionOptions::default(), |all, &(name, value)| all.with(name, value));
    let session = KelpieSession::new(all.with("kelpie.min_rows", "0")).unwrap();
    session.sql(TABLE).await.unwrap();
    session
}

async fn answer(session: &KelpieSession, sql: &str) -> String {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&result.batches).unwrap().to_string()
}

const DEVICES: [&[(&str, &str)]; 2] = [
    &[("kelpie.device", "cpu"), ("kelpie.fallback", "deny")],
    &[("kelpie.device", "simt"), ("kelpie.fallback", "deny")],
];

#[tokio::test(flavor = "multi_thread")]
async fn compiled_ones_are_those_of_their_accumulators() {
    let plain = session(&[("kelpie.enabled", "false")]).await;
    for settings in DEVICES {
        let session = session(settings).await;
        for sql in STATEMENTS {
            assert_eq!(answer(&session, sql).await, answer(&plain, sql).await, "{settings:?}: {sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_values_that_come_equally_often_the_least_is_the_mode() {
    for settings in DEVICES {
        let session = session(settings).await;
        let sql = "SELECT mode(x), mode(-x), mode(y) FROM (SELECT i % 4 AS x, 's' || (9 - i % 10) AS y FROM t WHERE i < 2000)";
        let found = answer(&session, sql).await;
        let row: Vec<&str> = found.lines().nth(3).unwrap().split('|').map(str::trim).collect();
        assert_eq!(row, ["", "0", "-3", "s0", ""], "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_fraction_is_an_error() {
    for settings in DEVICES {
        let session = session(settings).await;
        for sql in ["SELECT quantile_disc(n, 1.5) FROM t", "SELECT quantile_disc(n, d / 100) FROM t"] {
            assert!(session.sql(sql).await.is_err(), "{sql}");
        }
    }
}
