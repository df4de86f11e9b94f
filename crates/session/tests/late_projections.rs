//! Expressions that the first rows of an order alone need, series that are made of constants, and recursive queries.

use kelpie_session::{KelpieSession, SessionOptions};

use crate::row_groups::text;

async fn session(enabled: &str) -> KelpieSession {
    let options = SessionOptions::default()
        .with("kelpie.device", "cpu")
        .with("kelpie.min_rows", "0")
        .with("kelpie.enabled", enabled);
    let session = KelpieSession::new(options).unwrap();
    session
        .sql(
            "create table t as select n, n * 7919 % 100003 as k, concat('größe ', cast(n as varchar)) as s, \
             case when n % 9 = 0 then null else n % 100 end as v, \
             timestamp '2024-01-01' + n * interval '7 minutes' as at \
             from (select unnest(generate_series(0, 29999)) as n)",
        )
        .await
        .unwrap();
    session.sql("create table tree as select n as id, n / 3 as parent from (select unnest(generate_series(1, 3000)) as n)").await.unwrap();
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn what_first_rows_need_is_computed_of_them() {
    let (compiled, operators) = (session("true").await, session("false").await);
    for sql in [
        "select md5(s) from t order by k limit 5",
        "select n, md5(s) as h, upper(s), v + 1 as w from t order by k desc limit 7",
        "select md5(s) as h, k from t order by h limit 5",
        "select md5(s) as s, k as n, n as k from t order by n limit 5 offset 3",
        "select * from (select md5(s) as h, reverse(s) as r, k from t order by k limit 100) where h < '8' order by r limit 4",
        "select a.h, b.n from (select md5(s) as h, n from t order by k limit 50) a join t b on a.n = b.n order by b.k limit 5",
        "select md5(s) || ':' || md5(s) as hh, v from t order by v nulls first, k limit 6",
        "select distinct md5(s), v from t where n < 100 order by v nulls last, 1 limit 4",
        "select md5(s), row_number() over (order by k) as r from t order by r limit 3",
        "select md5(max(s)), v from t group by v order by v nulls last limit 3",
        "select md5(s) from t order by k limit 0",
        "select md5(s), k from t where n < 0 order by k limit 3",
    ] {
        assert_eq!(text(&compiled, sql).await, text(&operators, sql).await, "{sql}");
        assert_eq!(text(&compiled, sql).await, text(&operators, sql).await, "{sql}, again");
    }
    let plan = text(&compiled, "explain select md5(s), n from t order by k limit 5").await;
    assert!(plan.contains("KelpieExec") && !plan.contains("not compiled"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn volatile_expressions_are_computed_for_each_row() {
    let compiled = session("true").await;
    let sql = "select count(distinct r) from (select random() as r, k from t order by k limit 50)";
    assert_eq!(text(&compiled, sql).await, "50");
}

#[tokio::test(flavor = "multi_thread")]
async fn series_are_joined_with_tables() {
    let (compiled, operators) = (session("true").await, session("false").await);
    for sql in [
        "select d::date, count(t.n), sum(t.v) from generate_series(timestamp '2024-01-01', timestamp '2024-01-09', \
         interval '1 day') g(d) left join t on t.at::date = d::date group by 1 order by 1",
        "select x, count(*) from t join (select unnest([1, 2, 2, null, 99]) as x) on v = x group by x order by x",
        "select count(*) from t where v in (select unnest(generate_series(0, 200, 10)))",
        "select x + 1, count(v) from (select unnest(generate_series(1, 50)) as x) left join t on v = x * 2 group by 1 order by 1",
        "select count(*) from t, (select unnest([1, 2, 3]) as a)",
        "select count(*) from t where v in (select unnest([]::int[]))",
        "select * from unnest([1, 2, (select sum(v) from t)]) as u(x) order by x",
        "select count(*) from t where v in (select unnest([1, (select min(v) from t), 7]))",
    ] {
        for run in 0..2 {
            assert_eq!(text(&compiled, sql).await, text(&operators, sql).await, "{sql}, run {run}");
        }
    }
    let plan = text(
        &compiled,
        "explain select x, count(t.n) from (select unnest(generate_series(1, 50)) as x) left join t on v = x group by 1",
    )
    .await;
    assert!(plan.contains("KelpieExec") && !plan.contains("not compiled"), "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn recursive_queries_keep_what_does_not_change() {
    let (compiled, operators) = (session("true").await, session("false").await);
    let uncorrected = session("true").await;
    uncorrected.sql("set kelpie.corrections = false").await.unwrap();
    for sql in [
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 500) select count(*), sum(n) from r",
        "with recursive r as (select id, parent, 0 as d from tree where id > 2900 union all \
         select tree.id, tree.parent, d + 1 from r join tree on tree.id = r.parent) \
         select d, count(*), sum(id) from r group by d order by d",
        "with recursive r as (select id, parent from tree where id = 1 union \
         select tree.id, tree.parent from tree join r on tree.parent = r.id) select count(*), max(id) from r",
        "with recursive r as (select 1 as id union all select tree.id from r, tree \
         where tree.parent = r.id and tree.id <> r.id and tree.id in (select n from t where n % 2 = 0 or n < 5)) \
         select count(*), sum(id) from r",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < (select max(v) from t)) select max(n) from r",
        "select sum(x) from (with recursive r(n) as (select 1 union all select n * 2 from r where n < 1000) \
         select n as x from r) join t on t.n = x",
    ] {
        for run in 0..2 {
            let expected = text(&operators, sql).await;
            assert_eq!(text(&compiled, sql).await, expected, "{sql}, run {run}");
            assert_eq!(text(&uncorrected, sql).await, expected, "{sql}, run {run} without corrections");
        }
    }
    let plan = text(
        &compiled,
        "explain with recursive r as (select id, parent from tree where id > 2900 union all \
         select tree.id, tree.parent from r join tree on tree.id = r.parent) select count(*) from r",
    )
    .await;
    assert!(plan.contains("KeptRowsExec"), "{plan}");
}
