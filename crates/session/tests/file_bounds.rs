//! Conditions on columns of Parquet files, whose least and greatest values DataFusion estimates rows by: by those of differences of dates,
//! casts and quotients it does so wrongly, or not at all.

use std::path::Path;

use kelpie_session::KelpieSession;
use tempfile::TempDir;

use crate::answers::{EVERYWHERE, answer, session_with};

/// Two dates, a float and a time.
const ROWS: &str = "select * from (values
    (1, date '2024-01-03', date '2024-01-01', 0.9::double, timestamp '2024-01-03 05:00:00'),
    (2, date '2024-01-10', date '2024-01-01', 2.9, timestamp '2024-01-02 23:59:59'),
    (3, date '2024-02-01', date '2024-01-31', 2.1, timestamp '2023-12-31 23:59:59'),
    (4, null, date '2024-01-01', 2.2, null),
    (5, date '2023-12-30', date '2024-01-01', -3.1, timestamp '2024-01-03 00:00:01')) v(i, d, e, f, t)";

/// Sessions with these rows as a file `r` and as a table `m`, and files of one row (`o`) and of none (`n`).
async fn sessions(folder: &Path) -> Vec<KelpieSession> {
    let mut sessions = Vec::new();
    for settings in EVERYWHERE {
        let session = session_with(&[settings, &[("kelpie.min_rows", "0")]].concat());
        let copy = async |name: &str, condition: &str| {
            let path = folder.join(format!("{name}.parquet"));
            let copied = format!("copy ({ROWS} where {condition}) to '{}'", path.display());
            session.sql(&copied).await.unwrap();
            session.register_path(name, &path).await.unwrap();
        };
        for (name, condition) in [("r", "true"), ("o", "i = 2"), ("n", "i > 9")] {
            copy(name, condition).await;
        }
        session.sql(&format!("create table m as {ROWS}")).await.unwrap();
        sessions.push(session);
    }
    sessions
}

/// Statements, which have `r` for each of the tables, with what DuckDB answers.
async fn answers(cases: &[(&str, &[&str])]) {
    let folder = TempDir::new().unwrap();
    let mut wrong = Vec::new();
    for session in sessions(folder.path()).await {
        for (sql, rows) in cases {
            for table in ["from r", "from m"] {
                let sql = sql.replace("from r", table);
                let given = answer(&session, &sql).await;
                if given != *rows {
                    wrong.push(format!("{sql}\n{given:?} instead of {rows:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_of_dates() {
    answers(&[
        ("select i from r where datediff('day', e, d) > 3", &["2"]),
        ("select i from r where d - e > 1 order by i", &["1", "2"]),
        ("select i from r where (d - e) + 0 > 1 order by i", &["1", "2"]),
        ("select i from r where d - e < i order by i", &["3", "5"]),
        ("select i from r where datediff('day', e, d) <= i::double order by i", &["3", "5"]),
        ("select i from r where d - date '2024-01-01' = 2", &["1"]),
        ("select i from r where date '2024-01-12' - d between 2 and 9 order by i", &["1", "2"]),
        ("select i from r where case when d - e > 3 then true else i = 3 end order by i", &["2", "3"]),
        ("select i from r where 2 * (d - e) - 1 > i and t is not null order by i", &["1", "2"]),
        ("select e, count(*) from r group by e having max(d) - e > 3", &["2024-01-01 4"]),
        ("select i from (select i, d - e as n from r) q where n > 1 and n < 9", &["1"]),
        ("select x.i, y.i from r x join r y on x.d - y.e > 20 and y.i < 3 order by 2", &["3 1", "3 2"]),
        ("select i from r where d - e > (select min(d - e) + 3 from r) order by i", &["1", "2"]),
        ("select i from r where datediff('day', d, current_date) < 0", &[]),
        ("with q as (select d, e from r where i < 3) select count(*) from q where d - e > 3", &["1"]),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn casts_that_cut() {
    answers(&[
        ("select i from r where d - 2 <= t::date order by i", &["1", "5"]),
        ("select i from r where t::date - d >= 0 order by i", &["1", "5"]),
        ("select i from r where t::date < d - 1 order by i", &["2", "3"]),
        ("select count(*) from r where f::int >= i - 2", &["4"]),
        ("select count(*) from r where t::date >= d - 100 and f > -9", &["4"]),
    ])
    .await;
}

/// What several values become tells nothing of their order.
#[tokio::test(flavor = "multi_thread")]
async fn columns_that_become_a_constant_are_sorted() {
    answers(&[
        ("select f from r where f::bigint = 2 order by f desc", &["2.9", "2.2", "2.1"]),
        ("select f from r where f::int = 2 and i > 0 order by f limit 1", &["2.1"]),
        (
            "select t from r where t::date + i * 0 = date '2024-01-03' order by t",
            &["2024-01-03T00:00:01", "2024-01-03T05:00:00"],
        ),
        ("select i from r where i / 2 = 1 order by i desc", &["3", "2"]),
        ("select i, rank() over (order by i desc) from r where i / 2 = 1 order by i", &["2 2", "3 1"]),
        ("select min(f), max(f) from r where f::bigint = 2", &["2.1 2.9"]),
    ])
    .await;
}

/// The same in other files, prepared, in views and explained.
#[tokio::test(flavor = "multi_thread")]
async fn differences_of_dates_anywhere() {
    let folder = TempDir::new().unwrap();
    for session in sessions(folder.path()).await {
        let of = async |sql: &str| answer(&session, sql).await;
        assert_eq!(of("select i from o where d - e > 3").await, ["2"]);
        assert_eq!(of("select i from o where d - e > 30").await, [""; 0]);
        assert_eq!(of("select i from n where d - e > 3").await, [""; 0]);
        assert_eq!(of("select count(*) from n where d - e > 3 or t::date < d").await, ["0"]);
        of("prepare p as select i from r where d - e > $1 order by i").await;
        assert_eq!(of("execute p(3)").await, ["2"]);
        assert_eq!(of("execute p(1)").await, ["1", "2"]);
        of("create view w as select i, datediff('day', e, d) as days from r").await;
        assert_eq!(of("select i from w where days > 3").await, ["2"]);
        of("create table k as select i from r where d - e > 3").await;
        assert_eq!(of("select * from k").await, ["2"]);
        let plan = of("explain select i from r where d - e > 3").await.join("\n");
        assert!(!plan.contains("physical_plan_error"), "{plan}");
        let plan = of("explain analyze select i from r where d - e > 3").await.join("\n");
        assert!(!plan.contains("Internal error"), "{plan}");
    }
}
