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
