//! Aggregates that keep all values of many groups: lists in an order, lists of different values, histograms.

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use kelpie_session::{KelpieSession, SessionOptions};

/// Groups of no, one and many rows, with NULLs, ties, texts and floats.
const TABLE: &str = "create table t as select n, n * 7919 % 701 as g, \
    case when n % 11 = 3 then null else n * 104729 % 57 end as v, \
    case when n % 5 = 0 then null else concat('größe ', cast(n * 31 % 13 as varchar)) end as s, \
    cast(n % 17 as double) / 4 as f, n * 613 % 1009 as o \
    from (select unnest(generate_series(0, 3999)) as n)";

async fn kelpie() -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
    let session = KelpieSession::new(options).unwrap();
    session.sql(TABLE).await.unwrap();
    session
}

async fn shown(session: &KelpieSession, sql: &str) -> String {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    pretty_format_batches(&result.batches).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_those_of_datafusion() {
    let (session, reference) = (kelpie().await, SessionContext::new());
    reference.sql(TABLE).await.unwrap().collect().await.unwrap();
    let calls = [
        "array_agg(v order by o, n)",
        "array_agg(v order by o desc nulls last, n desc)",
        "array_agg(n order by v nulls first, n), array_agg(s order by v nulls first, n)",
        "array_agg(s order by f, s desc nulls first, n), count(*), sum(v)",
        "array_agg(distinct v order by v)",
        "array_agg(distinct v order by v desc nulls first)",
        "array_agg(distinct s order by s desc nulls last), array_agg(n order by n)",
        "array_agg(distinct f order by f), count(distinct v), min(s)",
        "array_agg(v order by n) filter (where v > 20), array_agg(distinct s order by s) filter (where f < 1)",
        "array_agg(v order by o, n) filter (where n < 0)",
        "array_agg(v + f order by o * 2, -n)",
        "array_agg([n, v] order by o, n)",
        "array_agg(n order by [v, o], n)",
    ];
    for call in calls {
        for sql in [
            format!("select g, {call} from t group by g order by g"),
            format!("select {call} from t"),
            format!("select {call} from t where n < 0"),
            format!("select g, {call} from t where n < 0 group by g"),
            format!("select g % 3 as r, {call} from t group by g % 3 order by r"),
            format!(
                "select g % 3 as r, g % 2 as q, {call} from t group by rollup(g % 3, g % 2) order by r, q"
            ),
        ] {
            let expected = reference.sql(&sql).await.unwrap().to_string().await.unwrap();
            assert_eq!(shown(&session, &sql).await, expected, "{sql}");
        }
    }
    // As windows, whose frames grow and move.
    for sql in [
        "select n, array_agg(v) over (partition by g order by o, n) from t where g < 30 order by n",
        "select n, array_agg(v) over (partition by g order by n rows between 1 preceding and current row) \
         from t where g < 30 order by n",
    ] {
        let expected = reference.sql(sql).await.unwrap().to_string().await.unwrap();
        assert_eq!(shown(&session, sql).await, expected, "{sql}");
    }
}

/// Lists without an order hold the same values, whatever order that is.
#[tokio::test(flavor = "multi_thread")]
async fn different_values_without_an_order_are_all_there() {
    let session = kelpie().await;
    let sorted = shown(
        &session,
        "select g, array_agg(distinct v order by v) as l, count(*) as c from t group by g order by g",
    )
    .await;
    let sql = "select g, array_sort(l) as l, c from \
               (select g, array_agg(distinct v) as l, count(*) as c from t group by g) order by g";
    let other = shown(&session, sql).await;
    let numbers = |text: &str| {
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines().skip(3).filter(|line| line.starts_with('|')) {
            let mut words: Vec<&str> =
                line.split([' ', ',', '[', ']']).filter(|word| !word.is_empty()).collect();
            words.sort_unstable();
            lines.push(words.join(" "));
        }
        lines
    };
    assert_eq!(numbers(&sorted), numbers(&other));
}

#[tokio::test(flavor = "multi_thread")]
async fn histograms_count_each_value_of_each_group() {
    let session = kelpie().await;
    for value in ["v", "s", "f", "o"] {
        let counted = format!(
            "select sum(c * k) from (select g, {value}, count(*) as c, g * 3 + 1 as k from t where {value} is not null group by g, {value})"
        );
        let maps = format!(
            "select sum(c * (g * 3 + 1)) from (select g, unnest(map_values(h)) as c from \
             (select g, histogram({value}) as h from t group by g))"
        );
        assert_eq!(table(&shown(&session, &maps).await), table(&shown(&session, &counted).await), "{value}");
        let entries = format!(
            "select count(*), count(distinct k) from (select g, unnest(map_keys(h)) as k from \
             (select g, histogram({value}) as h from t group by g))"
        );
        let groups = format!(
            "select count(*), count(distinct {value}) from (select distinct g, {value} from t where {value} is not null)"
        );
        assert_eq!(
            table(&shown(&session, &entries).await),
            table(&shown(&session, &groups).await),
            "{value}"
        );
    }
    let sql = "select histogram(v) filter (where n < 0) as h from t group by g limit 1";
    assert!(table(&shown(&session, sql).await).iter().all(String::is_empty));
    let one = shown(
        &session,
        "select histogram(s) from (values (1, 'b'), (1, 'a'), (1, null), (1, 'b')) as x(g, s) group by g",
    )
    .await;
    assert!(one.contains("{a: 1, b: 2}"), "{one}");
}

/// The cells of a table's rows.
fn table(text: &str) -> Vec<String> {
    let rows = text.lines().skip(3).filter(|line| line.starts_with('|'));
    rows.flat_map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string())).collect()
}
