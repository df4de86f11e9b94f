//! ORDER BY, LIMIT and OFFSET: DataFusion's answers, in its order where the keys decide it, whether the host or the
//! device's kernels order the rows.

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::testing::{Generated, Outcome, compare};
use kelpie_session::{KelpieSession, SessionOptions};

/// Each value several times; the columns repeat after different numbers of rows.
fn batch(rows: usize) -> RecordBatch {
    fn cycle<T: Clone>(values: &[T], step: usize, row: usize) -> T {
        values[row * step % values.len()].clone()
    }
    let integers = [Some(i64::MIN), Some(i64::MAX), None, Some(0), Some(-1), Some(1), Some(1 << 40)];
    let floats = [Some(0.0), Some(-0.0), Some(f64::NAN), None, Some(f64::INFINITY), Some(-1.5), Some(1e300)];
    let texts = [
        Some(""),
        Some("a"),
        Some("é"),
        None,
        Some("a long text, twice"),
        Some("a long text, twice!"),
        Some("a long text"),
        Some("Z"),
        Some("\u{10ffff}"),
        Some("zz"),
        Some("a\0"),
    ];
    let wide = 10i128.pow(37);
    let decimals = [Some(wide), Some(-wide), None, Some(0), Some(1)];
    let decimals = Decimal128Array::from_iter((0..rows).map(|row| cycle(&decimals, 3, row)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
        ("i", Arc::new(Int64Array::from_iter((0..rows).map(|row| cycle(&integers, 5, row))))),
        ("f", Arc::new(Float64Array::from_iter((0..rows).map(|row| cycle(&floats, 2, row))))),
        ("s", Arc::new(StringArray::from_iter((0..rows).map(|row| cycle(&texts, 7, row))))),
        ("d", Arc::new(decimals.with_precision_and_scale(38, 5).unwrap())),
        (
            "b",
            Arc::new(BooleanArray::from_iter(
                (0..rows).map(|row| cycle(&[Some(true), None, Some(false)], 1, row)),
            )),
        ),
        (
            "y",
            Arc::new(Date32Array::from_iter(
                (0..rows).map(|row| (row % 13 != 0).then_some(row as i32 % 17 - 8)),
            )),
        ),
    ];
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), *name != "id");
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    assert_eq!(schema.field(3).data_type(), &DataType::Utf8);
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap()
}

fn sessions(settings: &[(&str, &str)], rows: usize) -> (SessionContext, KelpieSession) {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    // DataFusion's order of the two zeros, which are one value in SQL, is what is compared with.
    let options = SessionOptions::default().with("kelpie.fallback", "allow");
    let mut options = options.with("kelpie.corrections", "false");
    for (name, value) in settings {
        options = options.with(*name, *value);
    }
    let kelpie = KelpieSession::new(options).unwrap();
    let batch = batch(rows);
    let table = Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap());
    plain.register_table("t", Arc::clone(&table) as _).unwrap();
    kelpie.context().register_table("t", table).unwrap();
    (plain, kelpie)
}

/// Runs each query in every setting. The answers must be in the same order.
async fn agree(queries: &[String]) {
    let settings: [(&[(&str, &str)], usize); 3] = [
        (&[("kelpie.device", "cpu")], 900),
        (&[("kelpie.device", "cpu"), ("kelpie.host_sort_rows", "0")], 900),
        (&[("kelpie.device", "simt"), ("kelpie.simt_lanes", "32"), ("kelpie.host_sort_rows", "0")], 90),
    ];
    for (settings, rows) in settings {
        let (plain, kelpie) = sessions(settings, rows);
        for sql in queries {
            match compare(&plain, &kelpie, &Generated { sql: sql.clone(), ordered: true }).await {
                Outcome::Equal { compiled: true, .. } => {}
                other => panic!("{settings:?} {sql}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_every_direction() {
    let mut queries = Vec::new();
    for column in ["i", "f", "s", "d", "b", "y"] {
        for direction in ["ASC", "DESC", "ASC NULLS FIRST", "DESC NULLS LAST"] {
            queries.push(format!("SELECT * FROM t ORDER BY {column} {direction}, id DESC"));
            queries.push(format!("SELECT {column}, id FROM t ORDER BY {column} {direction}, id LIMIT 20"));
        }
    }
    agree(&queries).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_keys_and_expressions() {
    let queries = [
        "SELECT * FROM t ORDER BY s, i DESC, f, id",
        "SELECT * FROM t ORDER BY b DESC NULLS LAST, s DESC, id LIMIT 50",
        "SELECT id, s FROM t ORDER BY character_length(s) DESC, substr(s, 2), id",
        "SELECT id FROM t ORDER BY id % 7, -id",
        "SELECT id % 10 AS k, count(*) AS n FROM t GROUP BY id % 10 ORDER BY n DESC, k",
        "SELECT s, count(*) AS n, sum(id) AS x FROM t GROUP BY s ORDER BY x DESC LIMIT 3",
        "SELECT i + 0.5 AS x, id FROM t WHERE id > 10 ORDER BY x NULLS FIRST, id DESC LIMIT 33",
        "SELECT upper(substr(s, 1, 1)) AS u, id FROM t WHERE s < 'b' ORDER BY u, id",
        "SELECT a.id, b.id FROM t a JOIN t b ON a.id = b.id + 1 ORDER BY a.s, b.s DESC, a.id LIMIT 40",
        "SELECT CASE WHEN b THEN s END AS c, id FROM t ORDER BY c DESC, id",
    ];
    agree(&queries.map(String::from)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_offsets() {
    let queries = [
        "SELECT id FROM t ORDER BY id DESC LIMIT 5 OFFSET 3",
        "SELECT id FROM t ORDER BY id DESC LIMIT 5 OFFSET 88",
        "SELECT id FROM t ORDER BY id DESC LIMIT 5 OFFSET 100000",
        "SELECT id FROM t ORDER BY id OFFSET 80",
        "SELECT id FROM t ORDER BY id OFFSET 100000",
        "SELECT count(*) FROM (SELECT id + 1 FROM t WHERE id > 3 LIMIT 12)",
        "SELECT count(*) FROM (SELECT id + 1 FROM t WHERE id > 3 LIMIT 12 OFFSET 5)",
        "SELECT count(*) FROM (SELECT id + 1 FROM t WHERE id < 10 LIMIT 12 OFFSET 5)",
        "SELECT count(*) FROM (SELECT id + 1 FROM t WHERE id < 10 LIMIT 12 OFFSET 50)",
        "SELECT count(*), count(DISTINCT x) FROM (SELECT i + 1 AS x FROM t WHERE i < 5 LIMIT 7)",
    ];
    agree(&queries.map(String::from)).await;
}

/// DataFusion sorts below operators that keep the order, and drops the keys above the sort.
#[tokio::test(flavor = "multi_thread")]
async fn sorts_below_other_operators() {
    let queries = [
        "SELECT id FROM t WHERE id IN (SELECT id FROM t ORDER BY f, id LIMIT 9) ORDER BY s, id",
        "SELECT id FROM t WHERE id IN (SELECT i FROM t) ORDER BY s DESC, id DESC",
        "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM t u WHERE u.i = t.id) ORDER BY s, id LIMIT 30",
        "SELECT t.id, u.n FROM t JOIN (SELECT id % 5 AS k, count(*) AS n FROM t GROUP BY 1) u ON t.id = u.k ORDER BY t.s, t.id",
        "SELECT t.id FROM (SELECT DISTINCT b FROM t) u RIGHT JOIN t ON t.b = u.b ORDER BY t.f DESC, t.s, t.id",
        "SELECT u.id FROM (SELECT id, s, f FROM t ORDER BY s, id LIMIT 50) u WHERE u.f > 0 ORDER BY u.s, u.id",
        "SELECT id + 1 FROM t WHERE id > 20 ORDER BY s, y, id",
        "SELECT id FROM t WHERE id > (SELECT min(id) + 5 FROM t) ORDER BY s, id DESC LIMIT 25",
        "SELECT a.id FROM t a, (SELECT 1 AS one UNION ALL SELECT 2) x WHERE a.id % 3 < x.one ORDER BY a.y, a.id",
    ];
    agree(&queries.map(String::from)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sorts_inside() {
    let queries = [
        "SELECT sum(id) FROM (SELECT id FROM t ORDER BY s, id LIMIT 10)",
        "SELECT id FROM (SELECT id, i FROM t ORDER BY i DESC, id LIMIT 30) WHERE id % 2 = 0 ORDER BY id",
        "(SELECT id FROM t ORDER BY id LIMIT 3) UNION ALL (SELECT id FROM t ORDER BY id DESC LIMIT 3) ORDER BY id DESC",
        "SELECT id FROM t WHERE id = (SELECT id FROM t ORDER BY s DESC NULLS LAST, id LIMIT 1)",
        "SELECT x.id, x.n FROM (SELECT id % 9 AS id, count(*) AS n FROM t GROUP BY 1 ORDER BY n DESC, id LIMIT 4) x ORDER BY x.id LIMIT 2",
    ];
    agree(&queries.map(String::from)).await;
}
