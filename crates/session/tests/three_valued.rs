//! NULL through regular expressions and through IN of a subquery, and counts of distinct values: the same on every device and on
//! DataFusion's operators.

use kelpie_session::KelpieSession;

use crate::answers::{EVERYWHERE, answer, session_with};

async fn session(settings: &[(&str, &str)]) -> KelpieSession {
    let session = session_with(settings);
    for sql in [
        r"create table t as select column1 id, column2 s from (values (1, 'a'), (2, null), (3, ''), (4, 'a\b'), (5, 'ab'))",
        "create table few as select column1 k, column2 w from (values (1, 'a'), (null, null), (4, 'x'))",
        "create table sure as select column1 k from (values (1), (5))",
    ] {
        session.sql(sql).await.unwrap();
    }
    session
}

async fn check(cases: &[(&str, &[&str])]) {
    let mut wrong = Vec::new();
    for settings in EVERYWHERE {
        let session = session(settings).await;
        for (sql, expected) in cases {
            let found = answer(&session, sql).await;
            if found != *expected {
                wrong.push(format!("{settings:?}: {sql}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn null_through_regular_expressions() {
    check(&[
        ("select id from t where not (s ~ '.*') order by id", &[]),
        ("select id from t where not (s ~* '.*') or s !~ '.*' order by id", &[]),
        ("select id from t where (s ~ '.*') is null", &["2"]),
        ("select id from t where (s !~* '.*') is null", &["2"]),
        (
            "select id, s ~ '.*', s !~ '.*', regexp_like(s, '.*') from t where id < 4 order by id",
            &["1 true false true", "2 NULL NULL NULL", "3 true false true"],
        ),
        ("select count(*) from t where case when s ~ '.*' then false else id = 2 end", &["1"]),
        ("select count(*), count(s ~ '.*') from t", &["5 4"]),
        ("select s ~ null, null ~ '.*' from t where id = 1", &["NULL NULL"]),
    ])
    .await;
}

#[tokio::test]
async fn patterns_with_backslashes() {
    check(&[
        (r"select id from t where s ~ 'a\\b' order by id", &["4"]),
        (r"select id from t where s ~ '^a\\b$' order by id", &["4"]),
        (r"select id from t where s ~ '^a\\' order by id", &["4"]),
        (r"select id from t where s !~ '\\' order by id", &["1", "3", "5"]),
        (r"select id from t where regexp_like(s, '\x5c') order by id", &["4"]),
        (r"select id from t where s ~* 'A[\\]B' order by id", &["4"]),
        (r"select id from t where s ~ 'a\\b|^$' order by id", &["3", "4"]),
    ])
    .await;
}

#[tokio::test]
async fn null_through_in_of_a_subquery() {
    check(&[
        ("select id from t where (id in (select null)) is null order by id", &["1", "2", "3", "4", "5"]),
        ("select id from t where (id in (select null)) is not null", &[]),
        ("select id from t where (id in (select k from few)) is null order by id", &["2", "3", "5"]),
        ("select id from t where (id not in (select k from few)) is null order by id", &["2", "3", "5"]),
        ("select id from t where (s in (select 'a' union all select 'q')) is null", &["2"]),
        ("select id from t where (s in (select w from few where false)) is null", &[]),
        ("select id from t where not (id in (select k from few) or id = 3)", &[]),
        ("select id from t where id not in (select k from few) or id = 3", &["3"]),
        ("select id from t where id not in (select k from sure) or id = 1 order by id", &["1", "2", "3", "4"]),
        ("select id from t where id in (select k from few) is not true order by id", &["2", "3", "5"]),
        ("select id from t where case when id in (select k from few) then true else id = 2 end order by id", &["1", "2", "4"]),
        ("select id from t where coalesce(id in (select k from few), id > 3) order by id", &["1", "4", "5"]),
        ("select id, id in (select k from few), id not in (select k from sure) from t order by id", &[
            "1 true false", "2 NULL true", "3 NULL true", "4 true true", "5 NULL false",
        ]),
        ("select id in (select k from few) i, count(*) from t group by 1 order by 1", &["true 2", "NULL 3"]),
        ("select id, s in (select s from t where id in (1, 5)) from t order by id", &[
            "1 true", "2 NULL", "3 false", "4 false", "5 true",
        ]),
        // As ever: conditions of their own.
        ("select id from t where id in (select k from few) order by id", &["1", "4"]),
        ("select id from t where id not in (select k from few)", &[]),
        ("select id from t where id not in (select k from sure) and id > 2 order by id", &["3", "4"]),
        ("select id from t where id in (select k from sure) or s = 'ab' order by id", &["1", "5"]),
        ("select id from t a where exists (select 1 from few where k = a.id) order by id", &["1", "4"]),
    ])
    .await;
}

#[tokio::test]
async fn distinct_values_are_counted_alike() {
    let numbers =
        "select v % 7919 a, 'text ' || (v % 1201) s, v % 3 g from generate_series(1, 30000) as t(v)";
    let (mut answers, mut wrong) = (Vec::new(), Vec::new());
    for settings in EVERYWHERE {
        let session = session(settings).await;
        session.sql(&format!("create table n as {numbers}")).await.unwrap();
        let mut found = Vec::new();
        for sql in [
            "select approx_distinct(a), approx_distinct(s) from n",
            "select g, approx_distinct(a), count(*) from n group by g order by g",
            "select approx_distinct(s) filter (where g = 1) from n",
            "select approx_distinct(a) + 1 x, approx_distinct(a % 10), count(distinct a) from n where a > 100",
            "select approx_distinct(s) from n where false",
            "select g from n group by g having approx_distinct(s) > 1200 order by g",
            "select arrow_typeof(approx_distinct(s)) from n",
        ] {
            found.push(answer(&session, sql).await);
        }
        if settings[0].1 == "cpu" {
            assert_eq!(found[0], ["7919 1201"]);
            assert_eq!(found[6], ["UInt64"]);
        }
        answers.push(found);
    }
    for other in &answers[1..] {
        wrong.extend(answers[0].iter().zip(other).filter(|(a, b)| a != b));
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// NOT IN builds on its list where that is smaller, whatever NULLs there are on either side.
#[tokio::test]
async fn not_in_by_either_side() {
    let cases = [
        ("k not in (select k from sure)", "2 4"),
        ("k not in (select k from few)", ""),
        ("k not in (select k from few where k is not null)", "2"),
        ("k not in (select k from few where k > 100)", "1 2 4 NULL"),
        ("k not in (select k + 1 from few where w = 'a')", "1 4"),
        ("k + 0.5 not in (select k + 0.5 from sure)", "2 4"),
        ("not (k not in (select k from sure))", "1"),
        ("k not in (select k from sure) and w not in (select w from few where w is not null)", "4"),
        ("w not in (select w from few where k = 4)", "1 4"),
    ];
    let devices = [("cpu", "8"), ("simt", "32"), ("simt", "4")];
    for (device, lanes) in devices {
        for side in ["written", "other"] {
            let settings = [
                ("kelpie.device", device),
                ("kelpie.min_rows", "0"),
                ("kelpie.simt_lanes", lanes),
                ("kelpie.variant.build_side", side),
            ];
            let session = session(&settings).await;
            let left = "create table l as select * from (values (1, 'a'), (2, null), (4, 'b'), (null, 'x')) as v(k, w)";
            session.sql(left).await.unwrap();
            for (condition, expected) in cases {
                let sql = format!("select k from l where {condition} order by k nulls last");
                assert_eq!(answer(&session, &sql).await.join(" "), expected, "{settings:?}: {sql}");
            }
        }
    }
}
