//! Row groups that filters leave out: by bounds of writers that are known to be sound, and by no others.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

const GROUPS: i64 = 4;
const ROWS: i64 = 100_000;

/// A file of more than 4 MiB: `k` counts up, `v` is like nothing.
fn file(writer: Option<&str>) -> Vec<u8> {
    let mut properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(Some(ROWS as usize));
    if let Some(writer) = writer {
        properties = properties.set_created_by(writer.into());
    }
    let rows = GROUPS * ROWS;
    let columns: [(&str, ArrayRef, bool); 2] = [
        ("k", Arc::new(Int64Array::from_iter_values(0..rows)), true),
        (
            "v",
            Arc::new(Int64Array::from_iter_values((0..rows).map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d)))),
            true,
        ),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Bytes of the footer get others, wherever they stand there.
fn replaced(bytes: &[u8], value: i64, instead: i64) -> Vec<u8> {
    let (value, instead) = (value.to_le_bytes(), instead.to_le_bytes());
    let mut bytes = bytes.to_vec();
    let end = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let mut found = 0;
    for at in end - length..end - value.len() {
        if bytes[at..].starts_with(&value) {
            bytes[at..at + value.len()].copy_from_slice(&instead);
            found += 1;
        }
    }
    assert!(found > 0, "the bound is not in the footer");
    bytes
}

pub(crate) async fn text(session: &KelpieSession, sql: &str) -> String {
    let result = session.sql(sql).await.unwrap();
    let rows = result.batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| (batch, row)));
    let shown = rows.map(|(batch, row)| {
        let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
        values.collect::<Vec<_>>().join("|")
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_leave_out_row_groups_by_bounds_that_are_sound() {
    let folder = TempDir::new().unwrap();
    let session = |enabled: &str| {
        let options = SessionOptions::default().with("kelpie.device", "cpu");
        KelpieSession::new(options.with("kelpie.enabled", enabled)).unwrap()
    };
    let (operators, compiled) = (session("false"), session("true"));
    let sound = file(None);
    assert!(sound.len() > 4 << 20);
    let (last, limit) = (GROUPS * ROWS - 1, ROWS - 1);
    let cases = [
        ("sound", sound.clone(), Some("1 matched")),
        ("spark", file(Some("parquet-mr version 1.13.1 (build x)")), Some("1 matched")),
        ("unknown", file(Some("somebody's writer")), None),
        ("old", file(Some("parquet-mr version 1.8.0")), None),
        // The least of a row group is greater than its greatest.
        ("reversed", replaced(&sound, limit, -7), None),
    ];
    for (name, bytes, matched) in cases {
        let path = folder.path().join(format!("{name}.parquet"));
        fs::write(&path, bytes).unwrap();
        let from = format!("from '{}' where k between 250000 and 250009", path.display());
        for session in [&operators, &compiled] {
            let counted = text(session, &format!("select count(*), count(v), min(k) {from}")).await;
            assert_eq!(counted, "10|10|250000", "{name}");
        }
        let shown = text(&operators, &format!("explain analyze select max(v) {from}")).await;
        let pruned =
            shown.contains(&format!("row_groups_pruned_statistics={GROUPS} total \u{2192} 1 matched"));
        assert_eq!(pruned, matched.is_some(), "{name}: {shown}");
        let shown = text(&compiled, &format!("explain analyze select max(v) {from}")).await;
        assert_eq!(shown.contains("100000 of 400000 rows"), matched.is_some(), "{name}: {shown}");
        // Nothing is answered by bounds, whoever wrote them.
        for session in [&operators, &compiled] {
            let extremes = text(session, &format!("select min(k), max(k) from '{}'", path.display())).await;
            assert_eq!(extremes, format!("0|{last}"), "{name}");
        }
    }
    // Bounds that lie without contradicting themselves are none of an answer either.
    let path = folder.path().join("lying.parquet");
    fs::write(&path, replaced(&sound, last, last + 5)).unwrap();
    let extremes = text(&operators, &format!("select max(k) from '{}'", path.display())).await;
    assert_eq!(extremes, last.to_string());
}

/// Rows in order of `n`, with a column of each type that follows it, and one row group whose values are all NULL.
fn clustered() -> RecordBatch {
    let rows = 0..GROUPS * ROWS;
    let each = |n: i64| (n / ROWS != 2).then_some(n);
    let decimal = rows.clone().map(|n| Some(i128::from(n - 150_000)));
    let decimal = decimal.collect::<Decimal128Array>().with_precision_and_scale(12, 2).unwrap();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("n", Arc::new(Int64Array::from_iter_values(rows.clone())), false),
        ("gap", Arc::new(rows.clone().map(each).collect::<Int64Array>()), true),
        ("day", Arc::new(Date32Array::from_iter_values(rows.clone().map(|n| (n / 1000 - 200) as i32))), true),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                rows.clone().map(|n| (n - 9_000) * 60_000_000),
            )),
            true,
        ),
        ("price", Arc::new(decimal), true),
        (
            "name",
            Arc::new(StringArray::from_iter_values(rows.clone().map(|n| format!("größe {:06}", n / 10)))),
            true,
        ),
        ("f", Arc::new(Float64Array::from_iter_values(rows.clone().map(|n| n as f64 / 4.0))), true),
        (
            "noise",
            Arc::new(Int64Array::from_iter_values(rows.map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d)))),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Two files, the second with the rows of the first and others behind them.
fn clustered_folder() -> TempDir {
    written_folder(false)
}

/// The same, by a writer that keeps dictionaries or not.
fn written_folder(dictionaries: bool) -> TempDir {
    let folder = TempDir::new().unwrap();
    let properties = || {
        let properties = WriterProperties::builder().set_dictionary_enabled(dictionaries);
        properties.set_max_row_group_row_count(Some(ROWS as usize)).build()
    };
    fs::create_dir(folder.path().join("log")).unwrap();
    let rows = clustered();
    for (name, rows) in
        [("a", rows.slice(0, 2 * ROWS as usize)), ("b", rows.slice(2 * ROWS as usize, 2 * ROWS as usize))]
    {
        let file = fs::File::create(folder.path().join(format!("log/{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties())).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }
    folder
}

async fn session_over(folder: &TempDir, settings: [(&str, &str); 2]) -> KelpieSession {
    let options = settings
        .into_iter()
        .fold(SessionOptions::default().with("kelpie.min_rows", "0"), |options, (name, value)| {
            options.with(name, value)
        });
    let session = KelpieSession::new(options).unwrap();
    session.register_path("t", folder.path().join("log")).await.unwrap();
    session
}

async fn compiled(folder: &TempDir, cache: &str) -> KelpieSession {
    session_over(folder, [("kelpie.device", "cpu"), ("kelpie.cache", cache)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_tables_give_what_whole_ones_do() {
    let folder = clustered_folder();
    let operators = session_over(&folder, [("kelpie.device", "cpu"), ("kelpie.enabled", "false")]).await;
    let mut sessions = Vec::new();
    for cache in ["auto", "all", "none"] {
        sessions.push(compiled(&folder, cache).await);
    }
    let conditions = [
        "n = 123456",
        "n between 99999 and 100000",
        "n < 10 or n > 399990",
        "n in (5, 250000)",
        "n > 400000",
        "n <> 7 and n < 9",
        "not n >= 5",
        "gap is null and n < 200010",
        "gap is not null and n > 299990",
        "gap > 250000",
        "coalesce(gap, 1) = 1",
        "day = date '1969-06-15'",
        "day < date '1969-06-20' and n % 2 = 0",
        "at < timestamp '1970-01-01'",
        "at >= timestamp '1970-09-01 12:00:00' and at < timestamp '1970-09-01 12:10:00'",
        "price = -0.01",
        "price > 2499.90 and name like 'größe 0399%'",
        "name = 'größe 012345'",
        "name >= 'größe 03999'",
        "name like 'größe 00000%'",
        "f = 100.25",
        "f < 1 and n < 1000",
        "noise = 0",
        "random() < 2 and n = 3",
        "n = (select max(n) - 7 from t)",
    ];
    for condition in conditions {
        for what in [
            "count(*), sum(n), min(name), max(price), count(gap)",
            "count(*)",
            "min(at), max(f), sum(noise % 1000)",
        ] {
            let sql = format!("select {what} from t where {condition}");
            let expected = text(&operators, &sql).await;
            for session in &sessions {
                assert_eq!(text(session, &sql).await, expected, "{sql}");
            }
        }
    }
    // Two parts of one table, and a part beside the whole.
    for sql in [
        "select count(*), sum(a.n), max(b.name) from t a join t b on a.n = b.n - 300000 where a.n < 50 and b.n > 300020",
        "select count(*), sum(b.n) from t a join t b on a.gap = b.n where a.n < 50",
        "select n, name from t where n > 399990 union all select n, name from t where n < 5 order by 1",
        "select day, count(*), sum(price) from t where day > date '1970-07-15' group by 1 order by 1",
        "select n, name from t where n between 100000 and 300000 order by noise limit 3",
        "select * from t where noise = 0",
        "select n, day, at, price, f from t where noise = 6364136223846793005 or noise = 0 and n < 5 order by n",
        "select day, name, price, f, gap from t where noise in (0, 6364136223846793005, 5, -7) order by name",
        "select count(*), max(name), min(day), max(f) from t where noise = 6364136223846793005 and f > 0",
        "select max(name), min(day), max(at) from t where noise = 6364136223846793005 and f < 0",
        "select a.name, b.name from t a join t b on a.n = b.n + 1 where b.noise = 6364136223846793005",
        "select name, count(*), sum(price) from t where noise = 6364136223846793005 and 1 / n = 0 group by 1",
    ] {
        let expected = text(&operators, sql).await;
        for session in &sessions {
            assert_eq!(text(session, sql).await, expected, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_read_until_the_whole_would_have_cost_as_much() {
    let folder = clustered_folder();
    let session = compiled(&folder, "auto").await;
    let read = async |session: &KelpieSession, condition: &str| {
        let shown =
            text(session, &format!("explain analyze select max(noise) from t where {condition}")).await;
        let line = shown.lines().find(|line| line.contains(" rows of log are read"));
        line.and_then(|line| line.split_once(" of ")?.0.rsplit(' ').next().map(str::to_string))
    };
    let part = Some("100000".to_string());
    for condition in ["n < 10", "n = 150000", "n < 20", "n > 399990", "n < 10", "n = 250000"] {
        assert_eq!(read(&session, condition).await, part, "{condition}");
    }
    // More than half is no part, and what is there is not read again.
    assert_eq!(read(&session, "n < 250000").await, None);
    assert_eq!(read(&session, "n < 10").await, None, "all rows are there");
    let session = compiled(&folder, "auto").await;
    for condition in ["n < 150000", "n > 250000"] {
        assert_eq!(read(&session, condition).await, Some("200000".into()), "{condition}");
    }
    assert_eq!(
        read(&session, "n between 150000 and 160000").await,
        None,
        "parts have had as many rows as there are"
    );
    let (all, none) = (compiled(&folder, "all").await, compiled(&folder, "none").await);
    for condition in ["n < 10", "n = 250000", "n < 10", "n = 150000", "n < 10", "n > 399990"] {
        assert_eq!(read(&all, condition).await, None);
        assert_eq!(read(&none, condition).await, part, "{condition}");
    }
    assert_eq!(read(&none, "n < 250000").await, Some("300000".into()));
}

/// A filter that leaves a row or none of unordered ones: of other columns only its rows are stored.
#[tokio::test(flavor = "multi_thread")]
async fn few_rows_of_wide_tables_are_read_alone() {
    let folder = clustered_folder();
    let session = compiled(&folder, "auto").await;
    let explained = async |session: &KelpieSession, sql: &str| {
        let shown = text(session, &format!("explain analyze {sql}")).await;
        shown.contains("of the 400000 rows of log only those are stored that its filters leave")
    };
    let wide =
        |noise: i64| format!("select max(name), min(day), max(at), sum(n) from t where noise = {noise}");
    // A fifth of the columns has to be read for it.
    for noise in 0..5 {
        assert!(explained(&session, &wide(noise)).await, "{noise}");
        assert!(explained(&session, &wide(noise)).await, "what is there is not read again");
    }
    assert!(!explained(&session, &wide(5)).await, "all rows were read as often as once");
    assert!(!explained(&session, &wide(0)).await, "all rows are there");
    let session = compiled(&folder, "auto").await;
    assert!(!explained(&session, "select max(name) from t where noise = 1").await, "one other column");
    assert!(!explained(&session, "select max(name), min(day), max(at) from t where noise > 1").await);
    assert!(!explained(&compiled(&folder, "all").await, &wide(0)).await);
}

/// A text that is asked for leaves few rows where the writer kept no dictionary of many values.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_one_text_of_many_are_read_alone() {
    for dictionaries in [false, true] {
        let folder = written_folder(dictionaries);
        let operators = session_over(&folder, [("kelpie.device", "cpu"), ("kelpie.enabled", "false")]).await;
        let session = compiled(&folder, "auto").await;
        for name in ["größe 000777", "größe 039999", "none"] {
            let sql = format!(
                "select count(*), min(n), min(day), max(at), sum(noise) from t where '{name}' = name"
            );
            let shown = text(&session, &format!("explain analyze {sql}")).await;
            let few =
                shown.contains("of the 400000 rows of log only those are stored that its filters leave");
            assert_eq!(few, !dictionaries, "{name}: {shown}");
            assert_eq!(text(&session, &sql).await, text(&operators, &sql).await, "{name}");
        }
    }
}
