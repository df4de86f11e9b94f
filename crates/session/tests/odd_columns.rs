//! Columns of Parquet files that readers do not take as they are meant: several of one name, UUIDs, intervals; and logical types that they do.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type, Int64Type,
};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::parquet::file::writer::SerializedFileWriter;
use datafusion::parquet::schema::parser::parse_message_type;

use crate::people::{rows, sessions};

/// The values of a column, all of which are optional.
enum Values {
    Int(Vec<Option<i32>>),
    Long(Vec<Option<i64>>),
    Text(Vec<Option<&'static str>>),
    Bytes(Vec<Option<Vec<u8>>>),
}

fn write(path: &Path, schema: &str, columns: &[Values]) {
    let schema = Arc::new(parse_message_type(&format!("message schema {{ {schema} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for values in columns {
        match values {
            Values::Int(values) => add::<Int32Type>(&mut group, values),
            Values::Long(values) => add::<Int64Type>(&mut group, values),
            Values::Text(values) => {
                let values: Vec<_> = values.iter().map(|value| value.map(ByteArray::from)).collect();
                add::<ByteArrayType>(&mut group, &values);
            }
            Values::Bytes(values) => {
                let bytes = |value: &Vec<u8>| FixedLenByteArray::from(value.clone());
                let values: Vec<_> = values.iter().map(|value| value.as_ref().map(bytes)).collect();
                add::<FixedLenByteArrayType>(&mut group, &values);
            }
        }
    }
    group.close().unwrap();
    writer.close().unwrap();
}

fn add<T: DataType>(
    group: &mut datafusion::parquet::file::writer::SerializedRowGroupWriter<'_, File>,
    values: &[Option<T::T>],
) {
    let mut column = group.next_column().unwrap().unwrap();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.iter().flatten().cloned().collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None).unwrap();
    column.close().unwrap();
}

fn interval(months: i32, days: i32, millis: i32) -> Option<Vec<u8>> {
    Some([months, days, millis].into_iter().flat_map(i32::to_le_bytes).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_one_name_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.parquet");
    let schema = "optional int64 a; optional binary a (STRING); optional int64 a_1; optional int32 a;";
    let columns = [
        Values::Long(vec![Some(1), None, Some(3)]),
        Values::Text(vec![Some("x"), Some("y"), None]),
        Values::Long(vec![Some(10), Some(20), Some(30)]),
        Values::Int(vec![Some(7), Some(8), Some(9)]),
    ];
    write(&path, schema, &columns);
    let same = folder.path().join("same.parquet");
    let both = [Values::Long(vec![Some(1)]), Values::Long(vec![Some(2)])];
    write(&same, "optional int64 k; optional int64 k;", &both);
    let none = folder.path().join("none.parquet");
    let empty = [Values::Long(vec![]), Values::Text(vec![])];
    write(&none, "optional int64 k; optional binary k (STRING);", &empty);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let all = "select a, a_2, a_1, a_3 from twice order by a_1";
        assert_eq!(rows(&session, all).await, ["1 x 10 7", "y 20 8", "3 30 9"]);
        let sums = "select sum(a), max(a_2), sum(a_1), sum(a_3), count(*) from twice where a_3 > 7";
        assert_eq!(rows(&session, sums).await, ["3 y 50 17 2"]);
        assert_eq!(rows(&session, "select a_1 from twice where a_2 = 'y'").await, ["20"]);
        assert_eq!(rows(&session, "select k, k_1 from same").await, ["1 2"]);
        assert_eq!(rows(&session, "select count(*), count(k_1) from none").await, ["0 0"]);
        let call = format!("select sum(a_1) from read_parquet('{}')", path.display());
        assert_eq!(rows(&session, &call).await, ["60"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn uuids_are_texts_and_intervals_have_months() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("t")).unwrap();
    let schema = "optional int64 k; optional fixed_len_byte_array(16) u (UUID); \
                  optional fixed_len_byte_array(12) i (INTERVAL); optional fixed_len_byte_array(16) raw;";
    let uuid = |last: u8| Some([vec![0xab; 15], vec![last]].concat());
    let columns = |first: i64| {
        [
            Values::Long((first..first + 3).map(Some).collect()),
            Values::Bytes(vec![uuid(first as u8), None, uuid(255)]),
            Values::Bytes(vec![interval(14, 3, 1500), None, interval(0, 0, 0)]),
            Values::Bytes(vec![uuid(1), uuid(2), None]),
        ]
    };
    write(&folder.path().join("t/1.parquet"), schema, &columns(0));
    write(&folder.path().join("t/2.parquet"), schema, &columns(16));
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let first = "abababab-abab-abab-abab-ababababab";
        let all = "select u from t where u is not null order by k";
        let expected = ["00", "ff", "10", "ff"].map(|last| format!("{first}{last}"));
        assert_eq!(rows(&session, all).await, expected);
        let found = format!("select k from t where u = '{first}10'");
        assert_eq!(rows(&session, &found).await, ["16"]);
        let groups = "select u, count(*) from t group by u order by 2 desc, 1 limit 2";
        let groups = rows(&session, groups).await;
        assert!(groups.contains(&format!("{first}ff 2")), "{groups:?}");
        let added = "select date '2024-01-31' + i from t where k = 0";
        assert!(
            rows(&session, added).await[0].starts_with("2025-04-03"),
            "{:?}",
            rows(&session, added).await
        );
        assert_eq!(
            rows(&session, "select count(i), count(u), count(raw), count(*) from t").await,
            ["4 4 4 6"]
        );
        assert_eq!(rows(&session, "select date_part('month', i)::int from t where k = 16").await, ["2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_logical_types_are_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let schema = "optional binary e (ENUM); optional binary j (JSON); optional binary b (BSON); \
                  optional fixed_len_byte_array(2) h (FLOAT16); optional int32 ms (TIME(MILLIS,true)); \
                  optional int64 us (TIME(MICROS,true)); optional int64 ns (TIME(NANOS,true));";
    let columns = [
        Values::Text(vec![Some("red"), None]),
        Values::Text(vec![Some("{\"a\": 1}"), None]),
        Values::Text(vec![Some("abc"), None]),
        // 1.5
        Values::Bytes(vec![Some(vec![0x00, 0x3e]), None]),
        Values::Int(vec![Some(3_723_004), None]),
        Values::Long(vec![Some(3_723_000_005), None]),
        Values::Long(vec![Some(3_723_000_000_006), None]),
    ];
    write(&path, schema, &columns);
    for session in sessions() {
        session.register_path("t", &path).await.unwrap();
        for (sql, expected) in [
            ("select e, j ->> 'a', encode(b, 'hex') from t where e is not null", "red 1 616263"),
            ("select sum(h), count(h), count(*) from t", "1.5 1 2"),
            (
                "select ms, us, ns from t where ms is not null",
                "01:02:03.004 01:02:03.000005 01:02:03.000000006",
            ),
            ("select count(*) from t where ms < us", "0"),
        ] {
            assert_eq!(rows(&session, sql).await, [expected], "{sql}");
        }
    }
}
