//! The first rows of wide tables in some order: what is not among them is not read.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

use crate::row_groups::text;

const ROWS: i64 = 400_000;

fn scattered(n: i64) -> i64 {
    n.wrapping_mul(0x5851_f42d_4c95_7f2d)
}

/// Keys of each kind, most with NULLs, ties and values at the ends of their order, and columns beside them.
fn rows() -> RecordBatch {
    let all = || 0..ROWS;
    let some = |n: i64| n % 7 != 3;
    let float = |n: i64| match n {
        11 => f64::NAN,
        12 => -f64::NAN,
        13 => f64::INFINITY,
        14 => f64::NEG_INFINITY,
        _ => (scattered(n) >> 20) as f64,
    };
    // The least positive ones are zeros of both signs.
    let zeros =
        |n: i64| if n % 100_000 == 5 { [0.0, -0.0][(n / 100_000 % 2) as usize] } else { 1.0 + n as f64 };
    let decimal = all().map(|n| Some(i128::from(scattered(n) % 1_000_000_000)));
    let decimal = decimal.collect::<Decimal128Array>().with_precision_and_scale(18, 2).unwrap();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(all())), false),
        ("k", Arc::new(all().map(|n| some(n).then_some(scattered(n))).collect::<Int64Array>()), true),
        ("few", Arc::new(all().map(|n| (n > 3).then_some(n % 10)).collect::<Int64Array>()), true),
        ("f", Arc::new(all().map(|n| some(n).then_some(float(n))).collect::<Float64Array>()), true),
        ("z", Arc::new(Float64Array::from_iter_values(all().map(zeros))), false),
        ("d", Arc::new(decimal), true),
        (
            "day",
            Arc::new(Date32Array::from_iter_values(all().map(|n| (scattered(n) % 500_000) as i32))),
            true,
        ),
        (
            "name",
            Arc::new(
                all().map(|n| some(n).then(|| format!("größe {:x}", scattered(n)))).collect::<StringArray>(),
            ),
            true,
        ),
        ("w1", Arc::new(Int64Array::from_iter_values(all().map(|n| scattered(n + 1)))), true),
        ("w2", Arc::new(Int64Array::from_iter_values(all().map(|n| scattered(n + 2)))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let rows = rows();
    for (table, count) in [("t", ROWS as usize), ("small", 40)] {
        let file = fs::File::create(folder.path().join(format!("{table}.parquet"))).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(150_000)).build();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
        writer.write(&rows.slice(0, count)).unwrap();
        writer.close().unwrap();
    }
    folder
}

async fn session(folder: &TempDir, settings: &[(&str, &str)]) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
    let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    for table in ["t", "small"] {
        session.register_path(table, folder.path().join(format!("{table}.parquet"))).await.unwrap();
    }
    session
}

const STEP: &str = "rows behind the first";
const FIRST_GROUPS: &str = "the first row groups have all rows that are wanted";

/// Each in a session that has read nothing, and where all is in memory.
#[tokio::test(flavor = "multi_thread")]
async fn first_rows_are_those_of_the_whole_table() {
    let folder = folder();
    let operators = session(&folder, &[("kelpie.cache", "all")]).await;
    // What is sorted, and whether other rows are left out.
    let cases = [
        ("order by k, n limit 3", true),
        ("order by k desc nulls last, n limit 5", true),
        ("where few < 3 order by n % 7, n limit 4", false),
        ("where w1 > 0 and k > 0 order by k limit 3", true),
        ("where length(name) > 7 order by day, n limit 2", true),
        ("order by f desc nulls last, n limit 2", false),
        ("order by f desc nulls last, n limit 5", true),
        ("where f <> 'NaN'::double order by f desc, n limit 3", true),
        ("order by f nulls last, n limit 3", true),
        ("order by z, n limit 3", true),
        ("where z < 3 order by z desc, n limit 2", true),
        ("order by z desc, n limit 2", true),
        ("order by d, n limit 4", true),
        ("order by day desc, n limit 4", true),
        ("order by name, n limit 3", true),
        ("order by name desc nulls last, n limit 3", true),
        // Most are as good as the last one that is wanted.
        ("order by k nulls first, n limit 3", false),
        ("order by few, n limit 3", false),
        // As many are NULL as are wanted, and one fewer.
        ("order by few nulls first, n limit 4", true),
        ("order by few nulls first, n limit 5", false),
        // Fewer than are wanted.
        ("where n in (5, 7, 399999) order by k limit 4", true),
        ("where w1 % 100000 = 5 order by k limit 40", false),
        ("where w1 = 7 and w2 % 3 = 5 order by k limit 4", false),
        // As many as there are pages.
        ("order by k limit 24", false),
    ];
    for (rest, narrowed) in cases {
        let sql = format!("select * from t {rest}");
        let expected = text(&operators, &sql).await;
        let compiled = session(&folder, &[]).await;
        for run in 0..2 {
            assert_eq!(text(&compiled, &sql).await, expected, "{sql}, run {run}");
        }
        let shown = text(&compiled, &format!("explain analyze {sql}")).await;
        assert_eq!(shown.contains(STEP), narrowed, "{sql}: {shown}");
    }
}

/// A log: its rows come in the order of their times, but for a few that come late.
fn log() -> RecordBatch {
    let late = |n: i64| n % 97 == 5;
    let time = |n: i64| 1_000_000 + (if late(n) { n - 900 } else { n }) / 3;
    let level = |n: i64| ["info", "warn", "error"][(scattered(n) as usize >> 7) % 3];
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(0..ROWS)), false),
        (
            "time",
            Arc::new((0..ROWS).map(|n| (n % 50_000 != 7).then(|| time(n))).collect::<Int64Array>()),
            true,
        ),
        ("level", Arc::new((0..ROWS).map(|n| Some(level(n))).collect::<StringArray>()), false),
        ("text", Arc::new((0..ROWS).map(|n| Some(format!("ligne {n}"))).collect::<StringArray>()), false),
        ("few", Arc::new(Int64Array::from_iter_values((0..ROWS).map(|n| n % 10))), false),
        (
            "peak",
            Arc::new(Int64Array::from_iter_values(
                (0..ROWS).map(|n| if n % 90_000 == 5 { n + 1_000 } else { n % 50 }),
            )),
            false,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_rows_of_a_log_are_in_its_first_row_groups() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log.parquet");
    let rows = log();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10_000)).build();
    let file = fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let session = async |cache: &str| {
        let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
        let session = KelpieSession::new(options.with("kelpie.cache", cache)).unwrap();
        session.register_path("log", &path).await.unwrap();
        session
    };
    let whole = session("all").await;
    let cases = [
        ("order by time, n limit 10", true),
        ("order by time desc nulls last, n limit 10 offset 3", true),
        ("where level = 'error' and text like '%7' order by time desc nulls last, n limit 5", true),
        ("where few in (3, 4) order by time, text limit 7", true),
        // NULLs come first, which row groups have beside other times.
        ("order by time desc, n limit 5", false),
        // These rows are not in the first eighth.
        ("where n between 200000 and 200010 order by time, n limit 5", false),
        ("where n > 399990 and text like '%9' order by time, n limit 5", false),
        ("where n < 0 order by time, n limit 5", false),
        // They are not clustered by these, whose greatest values are in few row groups.
        ("order by few, n limit 5", false),
        ("order by peak desc nulls last, n limit 5", false),
        ("where peak > 40 and level = 'warn' order by peak desc nulls last, n limit 5", false),
    ];
    for (rest, in_first) in cases {
        let sql = format!("select * from log {rest}");
        let expected = text(&whole, &sql).await;
        let compiled = session("auto").await;
        for run in 0..2 {
            assert_eq!(text(&compiled, &sql).await, expected, "{sql}, run {run}");
        }
        let shown = text(&compiled, &format!("explain analyze {sql}")).await;
        assert_eq!(shown.contains(FIRST_GROUPS), in_first, "{sql}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn first_rows_of_joins_are_those_of_the_whole_table() {
    let folder = folder();
    let operators = session(&folder, &[("kelpie.cache", "all")]).await;
    let columns = "t.n, t.k, t.few, t.f, t.z, t.d, t.day, t.name, t.w1, t.w2";
    let cases = [
        ("join small on t.few = small.n", true),
        ("left join small on t.few = small.n", true),
        ("full join small on t.few = small.n", false),
        // The key is of the side whose rows may be missing.
        ("right join small on t.n = small.n * 10000", false),
        ("where t.few in (select n from small where w1 > 0)", true),
        ("where not exists (select 1 from small where small.n = t.few and small.n > 4)", true),
        // The table is there twice, and all of the other one is looked at.
        ("join t as other on t.n = other.n + 1", true),
    ];
    for (rest, narrowed) in cases {
        let sql = format!("select {columns} from t {rest} order by t.k desc nulls last, t.n limit 3");
        let expected = text(&operators, &sql).await;
        let compiled = session(&folder, &[]).await;
        assert_eq!(text(&compiled, &sql).await, expected, "{sql}");
        let shown = text(&compiled, &format!("explain analyze {sql}")).await;
        assert_eq!(shown.contains(STEP), narrowed, "{sql}: {shown}");
    }
}

/// The whole table is read once its parts have taken as long.
#[tokio::test(flavor = "multi_thread")]
async fn whole_tables_are_read_in_the_end() {
    let folder = folder();
    let compiled = session(&folder, &[]).await;
    let mut narrowed = 0;
    for limit in 2..20 {
        let sql = format!("explain analyze select * from t order by k limit {limit}");
        let shown = text(&compiled, &sql).await;
        narrowed += usize::from(shown.contains("only those are stored"));
    }
    assert!((5..15).contains(&narrowed), "{narrowed}");
    let sql = "explain analyze select * from t order by k limit 1";
    assert!(!text(&compiled, sql).await.contains(STEP));
    let all = session(&folder, &[("kelpie.cache", "all")]).await;
    assert!(!text(&all, sql).await.contains(STEP));
}
