//! Times of any year: comparisons, functions and casts do not go through nanoseconds, which hold the years 1677 to 2262.

use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Int64Array, RecordBatch, TimestampMicrosecondArray, TimestampMillisecondArray,
    TimestampNanosecondArray, TimestampSecondArray,
};
use datafusion::datasource::MemTable;
use datafusion::parquet::basic::Type as PhysicalType;
use datafusion::parquet::data_type::{Int96, Int96Type};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::types::Type;
use kelpie_session::KelpieSession;
use tempfile::TempDir;

use crate::answers::{answer, session_with};

const DAY: i64 = 86_400;
/// The first days of the years 1000, 1500, 1970, 2010, 2300, 3000 and 9999.
const DAYS: [i32; 7] = [-354_285, -171_664, 0, 14_610, 120_530, 376_200, 2_932_532];

/// `t`: `id`, the days as `d` and their times 01:02:03.5 as `s`, `ms`, `us` and, in UTC, `z`. `n`: times that nanoseconds hold.
fn sessions() -> Vec<(&'static str, KelpieSession)> {
    let ids = Int64Array::from_iter_values(0..DAYS.len() as i64 + 1);
    let times = |scale: i64| {
        let of_day = move |day: &i32| Some((i64::from(*day) * DAY + 3723) * scale + scale / 2);
        DAYS.iter().map(of_day).chain([None]).collect::<Vec<_>>()
    };
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(ids), false),
        ("d", Arc::new(DAYS.iter().copied().map(Some).chain([None]).collect::<Date32Array>()), true),
        ("s", Arc::new(TimestampSecondArray::from(times(1))), true),
        ("ms", Arc::new(TimestampMillisecondArray::from(times(1_000))), true),
        ("us", Arc::new(TimestampMicrosecondArray::from(times(1_000_000))), true),
        ("z", Arc::new(TimestampMicrosecondArray::from(times(1_000_000)).with_timezone("UTC")), true),
    ];
    let t = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let fine = [Some(3_723_500_000_000), Some(3_723_500_000_001), Some(-1), None];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..4))),
        ("n", Arc::new(TimestampNanosecondArray::from(fine.to_vec()))),
    ];
    let n = RecordBatch::try_from_iter(columns).unwrap();
    let session = |device: &'static str| {
        let session = session_with(&[("kelpie.device", device), ("kelpie.min_rows", "0")]);
        for (name, batch) in [("t", t.clone()), ("n", n.clone())] {
            let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap();
            session.context().register_table(name, Arc::new(table)).unwrap();
        }
        (device, session)
    };
    vec![session("cpu"), session("simt")]
}

async fn answers(sessions: &[(&str, KelpieSession)], cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (device, session) in sessions {
        for (sql, expected) in cases {
            let shown = answer(session, sql).await.join(", ");
            if shown != *expected {
                wrong.push(format!("{device}: {sql}\n  {shown}\n  not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn literals_beyond_nanoseconds_are_compared() {
    let cases = [
        ("select id from t where us < timestamp '2011-01-01' order by id", "0, 1, 2, 3"),
        ("select id from t where us < timestamp '9999-12-31' order by id", "0, 1, 2, 3, 4, 5, 6"),
        ("select id from t where ms >= '2300-01-01 01:02:03.5' order by id", "4, 5, 6"),
        ("select id from t where s > timestamp '1000-01-01 01:02:03' order by id", "1, 2, 3, 4, 5, 6"),
        ("select id from t where s >= timestamp '1500-01-01 01:02:02.999' order by id", "1, 2, 3, 4, 5, 6"),
        (
            "select id from t where us between timestamp '1400-01-01' and '2999-12-31' order by id",
            "1, 2, 3, 4",
        ),
        (
            "select id from t where us in (timestamp '1000-01-01 01:02:03.5', '3000-01-01 01:02:03.5') order by id",
            "0, 5",
        ),
        ("select id from t where z < timestamptz '3000-01-01 01:02:04+00' order by id", "0, 1, 2, 3, 4, 5"),
        ("select id from t where z > '9999-01-01 02:02:03+01:00' order by id", "6"),
        (
            "select id from t where us <> timestamp '0001-01-01' and us is not null order by id",
            "0, 1, 2, 3, 4, 5, 6",
        ),
        ("select count(*) from n where n < timestamp '9999-12-31' and n > '1000-01-01'", "3"),
        ("select count(*) from n where n < date '3000-01-01' and n <> timestamp '2500-01-01'", "3"),
        ("select count(*) from n where n >= timestamp '3000-01-01'", "0"),
        ("select id from t where us = timestamp '2010-01-01 01:02:03.5000001'", "3"),
        (
            "select timestamp '9999-12-31 23:59:59.999999', timestamp '0001-01-01'",
            "9999-12-31T23:59:59.999999 0001-01-01T00:00:00",
        ),
        ("select count(*) from t where us < now()", "4"),
        ("select count(*) from t where us > now() - interval '2000 years'", "7"),
        ("select timestamp '2000-01-01' - interval '1000 years'", "1000-01-01T00:00:00"),
        ("select timestamp '2000-01-01 00:00:01' + interval '400000 days'", "3095-03-01T00:00:01"),
    ];
    answers(&sessions(), &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dates_and_times_of_unlike_units_are_compared() {
    let cases = [
        ("select count(*) from t where d < us and d <= ms and s >= d", "7"),
        ("select count(*) from t where us = d + interval '3723.5 seconds'", "7"),
        ("select id from t where d < timestamp '2300-01-01 00:00:01' order by id", "0, 1, 2, 3, 4"),
        ("select id from t where d >= timestamp '3000-01-01' order by id", "5, 6"),
        ("select count(*) from t a join t b on a.us = b.ms", "7"),
        ("select n.id, t.id from n join t on n.n = t.us", "0 2"),
        ("select n.id from n join t on n.n > t.us and t.id = 2", "1"),
        ("select n.id from n, t where n.n <= t.ms and t.id = 2 order by 1", "0, 2"),
        ("select n.id from n, t where n.n <> t.us and t.id = 2 order by 1", "1, 2"),
        ("select n.id from n, t where t.us < n.n and t.id = 1 order by 1", "0, 1, 2"),
        ("select n.id from n, t where t.us > n.n and t.id = 6 order by 1", "0, 1, 2"),
    ];
    answers(&sessions(), &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_of_times_know_all_years() {
    let cases = [
        (
            "select date_trunc('month', us) from t where id in (0, 4, 6) order by id",
            "1000-01-01T00:00:00, 2300-01-01T00:00:00, 9999-01-01T00:00:00",
        ),
        (
            "select date_trunc('week', ms) from t where id in (0, 3, 5) order by id",
            "0999-12-30T00:00:00, 2009-12-28T00:00:00, 2999-12-30T00:00:00",
        ),
        (
            "select date_trunc('quarter', z), date_trunc('year', s) from t where id = 1",
            "1500-01-01T00:00:00Z 1500-01-01T00:00:00",
        ),
        (
            "select date_trunc('year', d) from t where id > 4 order by id",
            "3000-01-01T00:00:00, 9999-01-01T00:00:00, NULL",
        ),
        ("select count(distinct date_trunc('year', us)) from t", "7"),
        (
            "select date_bin(interval '1 day', us) from t where id in (0, 2, 6) order by id",
            "1000-01-01T00:00:00, 1970-01-01T00:00:00, 9999-01-01T00:00:00",
        ),
        (
            "select date_bin(interval '3 months', ms), date_bin(interval '15 minutes', us) from t where id = 5",
            "3000-01-01T00:00:00 3000-01-01T01:00:00",
        ),
        (
            "select extract(year from us), extract(second from us), extract(dow from d) from t where id in (0, 6) order by id",
            "1000 3 3, 9999 3 5",
        ),
        (
            "select date_trunc('year', timestamp '3000-05-05 01:00:00'), date_part('month', timestamp '0900-05-05')",
            "3000-01-01T00:00:00 5",
        ),
        (
            "select cast(d as timestamp) from t where id in (0, 5) order by id",
            "1000-01-01T00:00:00, 3000-01-01T00:00:00",
        ),
        ("select us - timestamp '2000-01-01 01:02:03.5' from t where id = 3", "PT315619200S"),
        (
            "select coalesce(us, timestamp '9999-12-31') from t where id > 5 order by id",
            "9999-01-01T01:02:03.500, 9999-12-31T00:00:00",
        ),
        (
            "select case when id = 0 then us else timestamp '0900-01-01' end from t where id < 2 order by id",
            "1000-01-01T01:02:03.500, 0900-01-01T00:00:00",
        ),
    ];
    answers(&sessions(), &cases).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_date_and_a_part_of_a_day_are_a_time() {
    let cases = [
        ("select date '2024-01-31' - interval '1.5 second'", "2024-01-30T23:59:58.500"),
        (
            "select date '3000-01-01' - interval '1 minute', date '1000-01-01' + interval '36 hours'",
            "2999-12-31T23:59:00 1000-01-02T12:00:00",
        ),
        ("select interval '90 minutes' + date '2024-02-29'", "2024-02-29T01:30:00"),
        (
            "select d + interval '1 hour' from t where id in (1, 6) order by id",
            "1500-01-01T01:00:00, 9999-01-01T01:00:00",
        ),
        (
            "select date '2024-01-31' + interval '1 month', date '2024-01-31' - interval '24 hours'",
            "2024-02-29 2024-01-30",
        ),
        ("select count(*) from t where d > date '2010-01-02' - interval '1 second'", "3"),
    ];
    answers(&sessions(), &cases).await;
}

/// Times that the clocks of a zone skip, or show twice.
#[tokio::test(flavor = "multi_thread")]
async fn local_times_are_times_of_their_zone() {
    let cases = [
        ("select timestamp '2024-03-31 02:30:00' at time zone 'Europe/Berlin'", "2024-03-31T03:30:00+02:00"),
        ("select timestamp '2024-10-27 02:30:00' at time zone 'Europe/Berlin'", "2024-10-27T02:30:00+01:00"),
        ("select timestamp '2024-03-10 02:15:00' at time zone 'America/New_York'", "2024-03-10T03:15:00-04:00"),
        ("select timestamp '2024-11-03 01:15:00' at time zone 'America/New_York'", "2024-11-03T01:15:00-05:00"),
        ("select timestamp '2024-07-01 12:00:00' at time zone 'Australia/Lord_Howe'", "2024-07-01T12:00:00+10:30"),
        ("select timestamp '2024-10-06 02:10:00' at time zone 'Australia/Lord_Howe'", "2024-10-06T02:40:00+11:00"),
        ("select timestamp '2011-12-30 12:00:00' at time zone 'Pacific/Apia'", "2011-12-31T12:00:00+14:00"),
        ("select ms at time zone 'Asia/Kolkata' from t where id in (2, 3) order by id",
            "1970-01-01T01:02:03.500+05:30, 2010-01-01T01:02:03.500+05:30"),
        ("select count(*) from (values (timestamp '2024-03-31 02:30:00'), (timestamp '2024-03-31 03:30:00'), (null)) v(x)
          where x at time zone 'Europe/Berlin' = timestamptz '2024-03-31 01:30:00+00:00'", "2"),
    ];
    answers(&sessions(), &cases).await;
}

/// As DataFusion has it, where nobody mends it.
#[tokio::test(flavor = "multi_thread")]
async fn datafusion_as_it_is_fails() {
    for (device, session) in sessions() {
        session.set("kelpie.corrections", "off").unwrap();
        for sql in [
            "select count(*) from t where us < timestamp '9999-12-31'",
            "select count(*) from t where d <= us",
            "select date_trunc('month', us) from t",
        ] {
            assert!(session.sql(sql).await.is_err(), "{device}: {sql}");
        }
        assert_eq!(answer(&session, "select date '2024-01-31' - interval '1 second'").await, ["2024-01-31"]);
    }
}

/// INT96, the times of old writers: days of the Julian calendar, and nanoseconds of the day.
#[tokio::test(flavor = "multi_thread")]
async fn times_of_int96_are_of_any_year() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("old.parquet");
    let column = Type::primitive_type_builder("i", PhysicalType::INT96).build().unwrap();
    let schema = Type::group_type_builder("schema").with_fields(vec![Arc::new(column)]).build().unwrap();
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer =
        SerializedFileWriter::new(File::create(&path).unwrap(), Arc::new(schema), properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let value = |day: &i32| {
        let mut value = Int96::new();
        let nanoseconds = 3_723_500_000_000u64;
        value.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, (day + 2_440_588) as u32);
        value
    };
    let values: Vec<Int96> = DAYS.iter().map(value).collect();
    let levels = vec![1; values.len()];
    column.typed::<Int96Type>().write_batch(&values, Some(&levels), None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let from = format!("from '{}'", path.display());
    let cases = [
        (format!("select count(*) {from} where i < timestamp '2010-01-01 01:02:03.5'"), "3"),
        (format!("select min(i), max(i) {from}"), "1000-01-01T01:02:03.500 9999-01-01T01:02:03.500"),
        (
            format!("select date_trunc('year', i) {from} where i > '2999-01-01' order by 1"),
            "3000-01-01T00:00:00, 9999-01-01T00:00:00",
        ),
        (format!("select count(*) {from} where extract(year from i) = 1500"), "1"),
    ];
    let cases: Vec<(&str, &str)> = cases.iter().map(|(sql, expected)| (sql.as_str(), *expected)).collect();
    answers(&sessions(), &cases).await;
}
