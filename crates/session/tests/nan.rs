//! NaN is one value, the greatest, whatever its sign and payload: in tables, files and expressions, on every device and on
//! DataFusion's operators.

use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::datasource::MemTable;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use kelpie_session::KelpieSession;
use tempfile::TempDir;

use crate::answers::{answer, session_with};

/// NaN without a sign, with one, and with payloads.
const NANS: [u64; 4] =
    [0x7ff8_0000_0000_0000, 0xfff8_0000_0000_0000, 0x7ff8_0000_0000_0001, 0xfff8_dead_beef_0000];

/// `id`; `x`: the four NaNs, 0.5, NULL, infinities, -0.5; `y`: 0 but for the last three; `f`: as `x`, narrow; `l`: a list of `x`.
fn rows() -> RecordBatch {
    let x = || {
        let numbers = [Some(0.5), None, Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(-0.5)];
        NANS.iter().map(|bits| Some(f64::from_bits(*bits))).chain(numbers)
    };
    let y = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 4.0];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(1..=9))),
        ("x", Arc::new(Float64Array::from_iter(x()))),
        ("y", Arc::new(Float64Array::from(y.to_vec()))),
        ("f", Arc::new(Float32Array::from_iter(x().map(|x| x.map(|x| x as f32))))),
        ("l", Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(x().map(|x| Some(vec![x]))))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The rows as a table `m` in memory, and as a file `p` of row groups of three rows.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let batch = rows();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
    let file = File::create(folder.path().join("p.parquet")).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    std::fs::write(folder.path().join("c.csv"), "id,x\n1,NaN\n2,-NaN\n3,2.5\n4,nan\n").unwrap();
    folder
}

async fn session(settings: &[(&str, &str)], folder: &TempDir) -> KelpieSession {
    let session = session_with(settings);
    session.register_dir(folder.path()).await.unwrap();
    let table = MemTable::try_new(rows().schema(), vec![vec![rows()]]).unwrap();
    session.context().register_table("m", Arc::new(table)).unwrap();
    session
}

const SETTINGS: [&[(&str, &str)]; 4] = [
    &[("kelpie.device", "cpu")],
    &[("kelpie.device", "simt")],
    &[("kelpie.enabled", "false")],
    &[("kelpie.device", "cpu"), ("kelpie.memory_limit", "20KB")],
];

async fn check(cases: &[(&str, &[&str])]) {
    let (folder, mut wrong) = (folder(), Vec::new());
    for settings in SETTINGS {
        let session = session(settings, &folder).await;
        for (sql, expected) in cases {
            for table in ["p", "m"] {
                let sql = sql.replace("{t}", table);
                let found = answer(&session, &sql).await;
                if found != *expected {
                    wrong.push(format!("{settings:?}: {sql}: {found:?}, not {expected:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn columns_with_any_nan() {
    check(&[
        ("select x, count(*) from {t} group by x order by x", &[
            "-inf 1", "-0.5 1", "0.5 1", "inf 1", "NaN 4", "NULL 1",
        ]),
        ("select f, count(*) from {t} group by f order by f desc nulls last", &[
            "NaN 4", "inf 1", "0.5 1", "-0.5 1", "-inf 1", "NULL 1",
        ]),
        ("select count(distinct x), count(distinct f) from {t}", &["5 5"]),
        ("select distinct x from {t} where x > 0.5 order by 1", &["inf", "NaN"]),
        ("select count(*) from {t} where x > 1e300", &["5"]),
        ("select count(*) from {t} where x >= 'inf'::double", &["5"]),
        ("select count(*) from {t} where x < 0", &["2"]),
        ("select count(*) from {t} where not x < 0", &["6"]),
        ("select count(*) from {t} where x = 'NaN'::double", &["4"]),
        ("select count(*) from {t} where x <> 0.5", &["7"]),
        ("select count(*) from {t} where x in ('NaN'::double, 0.5)", &["5"]),
        ("select count(*) from {t} where x between 0 and 'NaN'::double", &["6"]),
        ("select min(x), max(x), min(f), max(f) from {t}", &["-inf NaN -inf NaN"]),
        ("select min(x), max(x) from {t} where id < 5", &["NaN NaN"]),
        ("select count(*) from {t} a join {t} b on a.x = b.x", &["20"]),
        ("select count(*) from {t} a join {t} b on a.f = b.f and a.id <= b.id", &["14"]),
        ("select count(*) from {t} a where a.x in (select b.x from {t} b where b.id = 2)", &["4"]),
        ("select id from {t} order by x desc nulls last, id limit 5", &["1", "2", "3", "4", "7"]),
        ("select count(*) from (select x from {t} intersect select x from {t} where id = 3)", &["1"]),
        ("select count(*) from (select x from {t} union select x from {t})", &["6"]),
        ("select id, rank() over (order by x) from {t} where id in (2, 3, 5) order by id", &["2 2", "3 2", "5 1"]),
        ("select id, count(*) over (partition by x) from {t} where id < 4 order by id", &["1 3", "2 3", "3 3"]),
        ("select x is distinct from 'NaN'::double from {t} where id = 4", &["false"]),
        ("select greatest(x, 1), least(x, 1) from {t} where id = 2", &["NaN 1.0"]),
        ("select count(*) from (select unnest(l) u from {t}) where u > 1", &["5"]),
        ("select u, count(*) from (select unnest(l) u from {t}) group by u order by u desc nulls last limit 1", &["NaN 4"]),
    ])
    .await;
}

#[tokio::test]
async fn expressions_that_make_nan() {
    check(&[
        ("select 0.0::double / 0.0 > 1, -('NaN'::double) > 1, 'inf'::double - 'inf'::double > 1 from {t} limit 1", &["true true true"]),
        ("select 0.0::double / 0.0 = 'NaN'::double, '-NaN'::double = 'NaN'::double from {t} limit 1", &["true true"]),
        ("select count(*) from {t} where y / y > 1", &["6"]),
        ("select y / y q, count(*) from {t} group by 1 order by 1", &["1.0 3", "NaN 6"]),
        ("select y / y q, count(*) from {t} group by rollup(y / y) order by 1, 2", &["1.0 3", "NaN 6", "NULL 9"]),
        ("select min(y / y), max(y / y), count(distinct y / y) from {t}", &["1.0 NaN 2"]),
        ("select count(*) from {t} where -x > 1", &["5"]),
        ("select max(-x), min(-x) from {t} where id < 6", &["NaN -0.5"]),
        ("select count(*) from {t} a join {t} b on a.y / a.y = -b.x", &["24"]),
        ("select id from {t} order by y % y desc, id limit 2", &["1", "2"]),
        ("select count(*) from {t} where x - x > 0", &["6"]),
        ("select count(*) from {t} where x * 0 is distinct from 'NaN'::double", &["3"]),
        ("select sum(x) > 1, avg(x) > 1 from {t}", &["true true"]),
        ("select y > 0 g, sum(x) s, avg(-x) a from {t} group by 1 having sum(x) > 1e308 and avg(-x) > 0 order by s, g", &["false NaN NaN", "true NaN NaN"]),
        ("select count(*) from (select sum(x) s from {t} where id in (8, 7) group by y > 5 union select -x from {t} where id = 1)", &["1"]),
        ("select id, sum(x) over (order by id rows between 1 preceding and current row) > 1 from {t} where id in (7, 8) order by id", &["7 true", "8 true"]),
        ("select case when id > 3 then y / y else 1 end > 2 c, count(*) from {t} group by 1 order by 1", &["false 6", "true 3"]),
        ("select max(q) from (select coalesce(y / y, 1) q from {t})", &["NaN"]),
        ("select count(*) from {t} where sqrt(y / y) > 1 and power(x, 2) >= 0", &["5"]),
        ("select stddev(x) > 1, var_pop(x) > 1 from {t} where id in (1, 5, 9)", &["true true"]),
    ])
    .await;
}

#[tokio::test]
async fn files_of_text_and_tables_that_are_made() {
    let folder = folder();
    for settings in SETTINGS {
        let session = session(settings, &folder).await;
        let csv = answer(&session, "select x::double d, count(*) from c group by d order by d").await;
        assert_eq!(csv, ["2.5 1", "NaN 3"], "{settings:?}");
        session.sql("create table made as select id, x, -x as y, sum(x) over () s from m").await.unwrap();
        let made = answer(&session, "select count(distinct x), max(y), max(s) from made where y > 1").await;
        assert_eq!(made, ["2 NaN NaN"], "{settings:?}");
    }
}

/// Names and types of results are the ones that they were.
#[tokio::test]
async fn names_stay() {
    let folder = folder();
    let with = session(&[], &folder).await;
    let without = session(&[("kelpie.corrections", "false")], &folder).await;
    for sql in [
        "select x / y, -x, sum(x), avg(x / y) from p group by x / y, -x",
        "select sum(x), min(y), count(*) from p",
        "select * from (select x * y, id from p) where id > 1",
        "select sum(x) over (partition by y), x + 1 as z from p",
        "select x / y, sum(f) from p group by cube(x / y, id)",
        "select exp(a.x), a.x / b.y from p a join p b on a.id = b.id order by 1",
    ] {
        let schemas = [with.sql(sql).await.unwrap().schema, without.sql(sql).await.unwrap().schema];
        assert_eq!(schemas[0], schemas[1], "{sql}");
    }
}

/// Columns that are compared as they are stay so: they compile, and files are pruned by them.
#[tokio::test]
async fn plain_columns_stay_as_they_are() {
    let folder = folder();
    let session = session(&[("kelpie.device", "cpu")], &folder).await;
    for sql in [
        "explain select count(*) from p where x < 0 and f = 1 and id > 1",
        "explain select x, sum(y) from p group by x",
        "explain select sum(x * y + 1) from p where y > x",
        "explain select count(*) from p a join p b on a.x = b.x",
    ] {
        let plan = answer(&session, sql).await.join("\n");
        assert!(plan.contains("KelpieExec"), "{plan}");
        let columns = plan.lines().filter(|line| line.contains("one_nan") && !line.contains("sum("));
        assert_eq!(columns.count(), 0, "{plan}");
    }
}
