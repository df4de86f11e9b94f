//! Columns that are constant on one side of an outer join are not constant in its rows: they are sorted, grouped and counted by, on every
//! device and on DataFusion's operators.

use crate::answers::{EVERYWHERE, answer, session_with};

#[tokio::test]
async fn constants_of_a_side_that_may_be_missing() {
    let cases: &[(&str, &[&str])] = &[
        (
            "select t.i, c from t left join (select i, 1 c from u) q on t.i = q.i order by c, t.i",
            &["1 1", "3 1", "2 NULL", "NULL NULL"],
        ),
        (
            "select c, count(*) from t left join (select i, 1 c from u) q on t.i = q.i group by c order by c",
            &["1 2", "NULL 2"],
        ),
        (
            "select t.i, n from t left join (select * from u where n = 'one') q on t.i = q.i order by n nulls first, t.i",
            &["2 NULL", "3 NULL", "NULL NULL", "1 one"],
        ),
        (
            "select t.i, c, d from (select i, 5 d from t where i > 1) t full join (select i, 1 c from u) q on t.i = q.i \
             order by d nulls first, c nulls first, t.i",
            &["NULL 1 NULL", "NULL 1 NULL", "2 NULL 5", "3 1 5"],
        ),
        (
            "select q.i, c, row_number() over (partition by c order by q.i) from (select i, 7 c from t) r right join u q \
             on r.i = q.i order by c, q.i",
            &["1 7 1", "3 7 2", "4 NULL 1"],
        ),
        (
            "select c, corr(t.i, c) from t left join (select i, 1 c from u where i < 3) q on t.i < q.i + 1 group by c order by c desc",
            &["NULL NULL", "1 NULL"],
        ),
        (
            "select distinct c from t left join (select i, 'x' c from u) q on t.i = q.i order by c nulls first",
            &["NULL", "x"],
        ),
    ];
    let mut wrong = Vec::new();
    for settings in EVERYWHERE {
        let session = session_with(settings);
        for sql in [
            "create table t as select column1 i from (values (1), (2), (3), (null))",
            "create table u as select column1 i, column2 n from (values (1, 'one'), (3, 'three'), (4, 'four'))",
        ] {
            session.sql(sql).await.unwrap();
        }
        for (sql, expected) in cases {
            let found = answer(&session, sql).await;
            if found != *expected {
                wrong.push(format!("{settings:?}: {sql}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `LEFT JOIN … WHERE key IS NULL` is an anti join, whichever conditions stand beside it and whichever columns are asked for.
#[tokio::test]
async fn rows_without_a_match() {
    let cases: &[(&str, &[&str])] = &[
        (
            "select t.i from t left join u on t.i = u.i where u.i is null order by 1 nulls first",
            &["NULL", "2"],
        ),
        (
            "select t.i, u.i, n from t left join u on t.i = u.i where u.i is null and t.i is not null",
            &["2 NULL NULL"],
        ),
        // A column that may be NULL itself tells nothing.
        (
            "select t.i from t left join u on t.i = u.i where n is null order by 1 nulls first",
            &["NULL", "2", "3"],
        ),
        // A condition of the join drops matches, and not rows.
        (
            "select t.i, n from t left join u on t.i = u.i and u.n = 'one' where u.i is null order by 1 nulls first",
            &["NULL NULL", "2 NULL", "3 NULL"],
        ),
        (
            "select t.i from t left join u on t.i = u.i and t.i < 3 where u.i is null order by 1 nulls first",
            &["NULL", "2", "3"],
        ),
        (
            "select u.i, t.i from t right join u on t.i = u.i where t.i is null order by 1",
            &["4 NULL", "4 NULL"],
        ),
        (
            "select count(*), count(u.i), max(n) from t left join u on t.i = u.i where u.i is null",
            &["2 0 NULL"],
        ),
        (
            "select t.i, coalesce(u.i, -1) from t left join u on t.i = u.i where u.i is null and coalesce(n, 'x') = 'x' \
             order by 1 nulls first",
            &["NULL -1", "2 -1"],
        ),
        (
            "select t.i from t left join u on t.i = u.i where u.i is null or t.i = 1 order by 1 nulls first",
            &["NULL", "1", "2"],
        ),
        (
            "select t.i, v.c from t left join u on t.i = u.i join (select 2 as i, 'c' as c) v on v.i = t.i where u.i is null",
            &["2 c"],
        ),
        (
            "select t.i from t left join u on t.i = u.i left join t s on s.i = t.i + 1 where u.i is null and s.i is null",
            &["NULL"],
        ),
        // NULLs that are equal, and a full join, have other rows without a match.
        (
            "select t.i from t left join u on t.i is not distinct from u.i where u.i is null order by 1 nulls first",
            &["NULL", "2"],
        ),
        (
            "select t.i, u.i from t full join u on t.i = u.i where u.i is null order by 1 nulls first",
            &["NULL NULL", "2 NULL"],
        ),
        (
            "select t.i from t left join (select i from u where false) u on t.i = u.i where u.i is null and t.i > 1",
            &["2", "3"],
        ),
        ("select u.i from (select i from t where false) t left join u on t.i = u.i where u.i is null", &[]),
    ];
    let mut wrong = Vec::new();
    for settings in EVERYWHERE {
        let session = session_with(settings);
        for sql in [
            "create table t as select column1 i from (values (1), (2), (3), (null))",
            "create table u as select column1 i, column2 n from (values (1, 'one'), (3, null), (4, 'four'), (4, 'five'))",
        ] {
            session.sql(sql).await.unwrap();
        }
        for (sql, expected) in cases {
            let mut found = answer(&session, sql).await;
            if !sql.contains("order by") {
                found.sort();
            }
            if found != *expected {
                wrong.push(format!("{settings:?}: {sql}: {found:?}, not {expected:?}"));
            }
        }
        let plan =
            answer(&session, "explain select t.i from t left join u on t.i = u.i where u.i is null").await;
        assert!(plan.join(" ").contains("Anti"), "{plan:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
