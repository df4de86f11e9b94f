//! Names of columns in any case: files have `OrderKey`, and who asks for `orderkey` means it.

use std::fs;

use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

/// `Orders(OrderKey, Total, note)`, `Lines(OrderKey, Price)`, `plain(orderkey, id)` and `twins(Id, ID)`.
async fn session() -> (TempDir, KelpieSession) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("Orders.csv", "OrderKey,Total,note\n1,10,a\n2,30,b\n3,20,c\n"),
        ("Lines.csv", "OrderKey,Price\n1,5\n1,6\n3,7\n"),
        ("plain.csv", "orderkey,id\n1,100\n2,200\n"),
        ("twins.csv", "Id,ID\n1,2\n"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    session.register_dir(folder.path()).await.unwrap();
    (folder, session)
}

/// An answer: its columns' names, and its rows.
async fn answer(session: &KelpieSession, sql: &str) -> (Vec<String>, Vec<String>) {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {}", error.strip_backtrace()));
    let names = result.schema.fields().iter().map(|field| field.name().clone()).collect();
    let shown = datafusion::arrow::util::pretty::pretty_format_batches(&result.batches).unwrap().to_string();
    let rows = shown.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows =
        rows.map(|row| row.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" "));
    (names, rows.collect())
}

#[tokio::test]
async fn a_name_stands_for_the_column_that_differs_in_case() {
    let (_folder, session) = session().await;
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("select orderkey from orders order by ORDERKEY desc limit 1", &["OrderKey"], &["3"]),
        (
            "select OrderKey, TOTAL + 1 as more from Orders where total > 10 order by total",
            &["OrderKey", "more"],
            &["3 21", "2 31"],
        ),
        ("select o.orderkey, \"Total\" from orders o where o.Total = 30", &["OrderKey", "Total"], &["2 30"]),
        ("select orders.total from orders where Orders.orderkey = 1", &["Total"], &["10"]),
        (
            "select max(total), note from orders group by NOTE having min(total) > 25",
            &["max(orders.Total)", "note"],
            &["30 b"],
        ),
        // Subqueries, correlated ones too, and set operations.
        (
            "select s.total from (select orderkey, total from orders) s where s.orderkey = 2",
            &["Total"],
            &["30"],
        ),
        (
            "select total from orders o where exists (select 1 from lines l where l.orderkey = o.orderkey) order by 1",
            &["Total"],
            &["10", "20"],
        ),
        (
            "select total from orders where orderkey in (select orderkey from lines) order by total",
            &["Total"],
            &["10", "20"],
        ),
        ("select orderkey from orders except select orderkey from lines", &["OrderKey"], &["2"]),
        (
            "with c as (select orderkey k, sum(price) as p from lines group by orderkey) select p from c where K = 1",
            &["p"],
            &["11"],
        ),
        (
            "with c(orderkey, p) as (select orderkey, price from lines) select sum(p) as s from c where orderkey = 1",
            &["s"],
            &["11"],
        ),
        // Joins.
        (
            "select note, sum(price) as s from orders join lines using (orderkey) group by note order by note",
            &["note", "s"],
            &["a 11", "c 7"],
        ),
        (
            "select count(*) as n from (orders o join lines l on o.orderkey = l.orderkey) where l.price > 5",
            &["n"],
            &["2"],
        ),
        (
            "select note, id from orders o join plain p on o.orderkey = p.orderkey order by o.orderkey",
            &["note", "id"],
            &["a 100", "b 200"],
        ),
        // What the query names itself keeps its name, and hides the column where SQL says so.
        ("select -total as total from orders where orderkey < 3 order by total", &["total"], &["-30", "-10"]),
        ("select total as orderkey from orders where orderkey = 2", &["orderkey"], &["30"]),
        (
            "select total * 2 as t, t.x as orderkey from orders, (select 1 as x) t where total = 10",
            &["t", "orderkey"],
            &["20 1"],
        ),
        (
            "select sum(total) over (partition by orderkey) as s from orders order by s limit 1",
            &["s"],
            &["10"],
        ),
        ("select * exclude (total) from orders where orderkey = 1", &["OrderKey", "note"], &["1 a"]),
        (
            "select case when total > 15 then 'x' else Note end as c from orders where orderkey = 1",
            &["c"],
            &["a"],
        ),
        // In quotes a name is what it says; where it is there as it stands, it is that one.
        ("select \"orderkey\" from plain order by OrderKey limit 1", &["orderkey"], &["1"]),
        ("select \"Id\", \"ID\" from twins", &["Id", "ID"], &["1 2"]),
        ("select orderkey, value from orders, range(1) where orderkey = 3", &["OrderKey", "value"], &["3 0"]),
    ];
    for (sql, names, rows) in cases {
        let (found_names, found_rows) = answer(&session, sql).await;
        assert_eq!(found_rows, *rows, "{sql}");
        assert_eq!(found_names, *names, "{sql}");
    }
    // Views, tables made of queries, EXPLAIN, INSERT and prepared statements.
    session.sql("create view v as select orderkey, total from orders").await.unwrap();
    assert_eq!(answer(&session, "select sum(total) as s from v where orderkey > 1").await.1, ["50"]);
    session.sql("create table made as select orderkey, total from orders").await.unwrap();
    session.sql("insert into made (total, orderkey) values (70, 7)").await.unwrap();
    assert_eq!(answer(&session, "select total from made where orderkey = 7").await.1, ["70"]);
    session.sql("prepare p as select total from orders where orderkey = $1").await.unwrap();
    assert_eq!(answer(&session, "execute p(2)").await.1, ["30"]);
    assert!(answer(&session, "explain select orderkey from orders").await.1.join("").contains("OrderKey"));
}

#[tokio::test]
async fn a_name_that_may_be_two_columns_is_an_error_that_names_them() {
    let (_folder, session) = session().await;
    for (sql, parts) in [
        ("select id from twins", &["id may be \"ID\" or \"Id\"", "quotes"][..]),
        ("select t.id from twins t", &["\"ID\" or \"Id\""]),
        ("select orderkey from orders, lines", &["mbiguous"]),
        // In quotes nothing is guessed, but the right spelling is named.
        ("select \"orderkey\" from orders", &["orderkey", "OrderKey"]),
        ("select \"ORDERKEY\" from orders where orderkey = 1", &["ORDERKEY", "OrderKey"]),
        ("select nothing from orders where orderkey = 1", &["nothing"]),
        ("select orderkey as \"total\" from orders where total > 1 order by total", &["total", "Total"]),
    ] {
        let error = match session.sql(sql).await {
            Ok(result) => panic!("{sql}: {:?}", result.batches),
            Err(error) => error.strip_backtrace(),
        };
        assert!(parts.iter().all(|part| error.contains(part)), "{sql}: {error}");
    }
    // Where names are not folded, they are what they say.
    session.sql("set datafusion.sql_parser.enable_ident_normalization = false").await.unwrap();
    assert!(session.sql("select OrderKey from Orders").await.is_ok());
    assert!(session.sql("select orderkey from Orders").await.is_err());
}
