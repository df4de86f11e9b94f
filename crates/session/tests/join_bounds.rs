//! Large tables whose rows lie in order of a join's key: what the other side has no keys for is not read.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

use crate::row_groups::text;

const ROWS: i64 = 540_000;
const ROWS_A_DAY: i64 = 1_000;

const STEP: &str = "row groups without keys of the other sides of joins are not read";

fn scattered(n: i64) -> i64 {
    (n.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 33) & 0xffff
}

/// Sales, a thousand a day but for some that come late or have no day.
fn sales() -> RecordBatch {
    let all = || 0..ROWS;
    let day = |n: i64| if n % 5_003 == 7 { n / ROWS_A_DAY - 1 } else { n / ROWS_A_DAY };
    let known_day = |n: i64| (n % 4_001 != 11).then(|| day(n) as i32);
    let amount = all().map(|n| Some(i128::from(scattered(n)))).collect::<Decimal128Array>();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(all())), false),
        ("day", Arc::new(all().map(known_day).collect::<Int32Array>()), true),
        ("date", Arc::new(Date32Array::from_iter_values(all().map(|n| day(n) as i32 - 100))), false),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(all().map(|n| day(n) * 3_600_000_000))),
            false,
        ),
        ("item", Arc::new(Int64Array::from_iter_values(all().map(|n| scattered(n) % 500))), false),
        ("qty", Arc::new(Int64Array::from_iter_values(all().map(|n| scattered(n + 1) % 10))), false),
        ("amount", Arc::new(amount.with_precision_and_scale(12, 2).unwrap()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Days in other order than the sales', with some before the first and behind the last of these, and one without a number.
fn days() -> RecordBatch {
    let all = || (0..640i64).map(|n| n * 77 % 640 - 50);
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("day", Arc::new(all().map(|day| (day != 250).then_some(day)).collect::<Int64Array>()), true),
        ("date", Arc::new(Date32Array::from_iter_values(all().map(|day| day as i32 - 100))), false),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(all().map(|day| day * 3_600_000_000))),
            false,
        ),
        ("year", Arc::new(Int64Array::from_iter_values(all().map(|day| (day + 50) / 100))), false),
        ("name", Arc::new(all().map(|day| Some(format!("jour {day}"))).collect::<StringArray>()), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn items() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("item", Arc::new(Int64Array::from_iter_values(0..500)), false),
        ("kind", Arc::new(Int64Array::from_iter_values((0..500).map(|item| item % 7))), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn write(path: &Path, rows: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(20_000)).build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    for (table, rows) in [("sales", sales()), ("days", days()), ("items", items())] {
        write(&folder.path().join(format!("{table}.parquet")), &rows);
    }
    folder
}

async fn session(folder: &TempDir, cache: &str) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
    let session = KelpieSession::new(options.with("kelpie.cache", cache)).unwrap();
    for table in ["sales", "days", "items"] {
        session.register_path(table, folder.path().join(format!("{table}.parquet"))).await.unwrap();
    }
    session
}

const SUMS: &str = "select count(*), sum(s.amount), sum(s.qty), max(s.n), min(s.item)";

/// Each in a session that has read nothing, and again.
#[tokio::test(flavor = "multi_thread")]
async fn joined_rows_are_those_of_whole_tables() {
    let folder = folder();
    let whole = session(&folder, "all").await;
    let all_of = "select day, item, qty, amount, n from sales";
    // What is joined, and whether rows are left out.
    let cases = [
        ("from sales s join days d on s.day = d.day where d.year = 2".to_string(), true),
        ("from sales s join days d on s.date = d.date where d.year in (1, 4)".into(), true),
        ("from sales s join days d on s.at = d.at where d.name like '%7'".into(), false),
        ("from sales s join days d on s.at = d.at where d.name = 'jour 77'".into(), true),
        ("from sales s, days d, items i where s.day = d.day and s.item = i.item and year = 3 and kind = 2".into(), true),
        // Rows that filters of the table's own leave.
        ("from sales s join days d on s.day = d.day where d.year = 2 and s.qty > 3".into(), true),
        ("from sales s join days d on s.date = d.date where d.name < 'jour 2' and s.qty > 3 and s.item < 400".into(), true),
        ("from sales s join days d on s.date = d.date where d.day between 210 and 230 and s.qty > 3 and s.item < 400".into(), true),
        ("from sales s join days d on s.day = d.day where d.year = 2 and s.qty > 3 and s.day between 190 and 230".into(), true),
        // None, and none but those outside of the table's.
        ("from sales s join days d on s.day = d.day where d.year = 99".into(), true),
        ("from sales s join days d on s.day = d.day where d.day < 0".into(), true),
        // Without the key there is nothing to match.
        ("from sales s join days d on s.day = d.day where d.day is null".into(), true),
        ("from sales s join days d on s.day is not distinct from d.day where d.year = 2".into(), false),
        // The side that is kept, and the other one.
        ("from sales s left join days d on s.day = d.day and d.year = 2".into(), false),
        ("from days d left join sales s on s.day = d.day where d.year = 2".into(), true),
        ("from sales s full join days d on s.day = d.day and d.year = 2".into(), false),
        ("from sales s where s.day in (select day from days where year = 1)".into(), true),
        ("from sales s where s.day not in (select day from days where year = 1 and day is not null)".into(), false),
        ("from sales s where not exists (select 1 from days d where d.day = s.day and d.year <> 5)".into(), false),
        ("from sales s join items i on s.item = i.item where i.kind = 3".into(), false),
        // Keys that another query tells.
        ("from sales s join days d on s.day = d.day where d.year = (select max(year) - 5 from days)".into(), true),
        ("from sales s join days d on s.day = d.day join days e on e.year = d.year where e.day = 120".into(), true),
        // What lies between.
        (format!("from ({all_of} union all {all_of}) s join days d on s.day = d.day where d.year = 0"), true),
        ("from (select day, sum(amount) amount, max(qty) qty, max(n) n, min(item) item from sales group by day) s \
          join days d on s.day = d.day where d.year = 2".into(), true),
        (format!("from ({all_of} order by item, n limit 1000) s join days d on s.day = d.day where d.year = 2"), false),
        ("from (select *, row_number() over (partition by item order by n) place from sales) s \
          join days d on s.day = d.day where d.year = 2 and s.place < 1000".into(), false),
    ];
    for (rest, narrowed) in cases {
        let sql = format!("{SUMS} {rest}");
        let expected = text(&whole, &sql).await;
        let compiled = session(&folder, "auto").await;
        for run in 0..3 {
            assert_eq!(text(&compiled, &sql).await, expected, "{sql}, run {run}");
        }
        let shown = text(&compiled, &format!("explain analyze {sql}")).await;
        assert_eq!(shown.contains(STEP), narrowed, "{sql}: {shown}");
    }
}

/// A table that is used twice is narrowed for each use by itself, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn uses_of_a_table_do_not_narrow_each_other() {
    let folder = folder();
    let whole = session(&folder, "all").await;
    let cases = [
        "with t as (select day, sum(amount) a, max(n) n, min(item) i from sales where qty > 0 group by day)
         select 1 as part, count(*), sum(a), max(n), min(i) from t join days using (day) where year = 2
         union all select 2, count(*), sum(a), max(n), min(i) from t order by part",
        "with t as (select day, sum(amount) a, max(n) n, min(item) i, sum(qty) q from sales group by day)
         select d.year, x.a, y.a, x.n, y.i, x.q from t x join t y on y.day = x.day + 100 join days d on d.day = x.day
         where d.year = 2 order by x.a, y.a, x.n limit 7",
        "select count(*), sum(s.amount), sum(o.qty), max(s.item) from sales s join days d on s.day = d.day
         join sales o on o.n = s.n + 250000 where d.year = 1",
        "select d.day, count(*), (select count(*) + sum(qty) + max(item) + max(n) from sales) from sales s
         join days d on s.day = d.day where d.year = 4 and s.qty + s.item + s.n > 5 group by d.day order by d.day limit 5",
    ];
    for sql in cases {
        let expected = text(&whole, sql).await;
        let compiled = session(&folder, "auto").await;
        for run in 0..2 {
            assert_eq!(text(&compiled, sql).await, expected, "{sql}, run {run}");
        }
    }
}

/// What was found for some values says nothing of others.
#[tokio::test(flavor = "multi_thread")]
async fn other_values_have_other_row_groups() {
    let folder = folder();
    let (whole, compiled) = (session(&folder, "all").await, session(&folder, "auto").await);
    for year in [2, 3, 0, 2, 99, 5, 4, 1, 3] {
        let sql = format!("{SUMS} from sales s join days d on s.day = d.day where d.year = {year}");
        assert_eq!(text(&compiled, &sql).await, text(&whole, &sql).await, "{sql}");
    }
    // Other rows in the file of the other side.
    let sql = format!("{SUMS} from sales s join days d on s.day = d.day where d.year = 2");
    let before = text(&compiled, &sql).await;
    write(&folder.path().join("days.parquet"), &days().slice(100, 300));
    let after = text(&session(&folder, "all").await, &sql).await;
    assert_ne!(before, after);
    assert_eq!(text(&compiled, &sql).await, after);
}
