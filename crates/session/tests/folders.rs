//! Files of one folder whose columns differ, and folders that name columns.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema};
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::parquet::arrow::ArrowWriter;
use kelpie_session::KelpieSession;

use crate::people::{error, folder, rows, sessions, write};

/// The columns of a file.
type Columns = Vec<(&'static str, ArrayRef)>;

fn batch(columns: Columns) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn write_typed(path: &Path, columns: Columns) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let (file, batch) = (File::create(path).unwrap(), batch(columns));
    match path.extension().unwrap().to_str().unwrap() {
        "parquet" => {
            let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
        }
        "arrow" => {
            let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        _ => {
            let mut writer = StreamWriter::try_new(file, &batch.schema()).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
    }
}

async fn type_of(session: &KelpieSession, table: &str, column: &str) -> String {
    rows(session, &format!("select arrow_typeof({column}) from {table} limit 1")).await.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_text_meet_by_name() {
    let folder = folder(&[
        ("order/1.csv", "id,name,price\n1,one,1.5\n2,two,2\n"),
        ("order/2.csv", "price,id,name\n30,3,three\n"),
        ("order/3.csv", "NAME,Id,Price\nfour,4,4\n"),
        ("some/1.csv", "a,b\n1,x\n"),
        ("some/2.csv", "b,c\ny,2020-02-29\n"),
        ("types/1.csv", "n,d,t\n007,2020-01-01,1\n"),
        ("types/2.csv", "n,d,t\nabc,2020-01-02T10:00:00,2.5\n"),
        ("lines/1.jsonl", "{\"id\": 1, \"name\": \"one\"}\n"),
        ("lines/2.jsonl", "{\"ID\": 2.5, \"more\": [1]}\n{\"ID\": 3}\n"),
        ("kinds/1.json", "{\"k\": 1}\n"),
        ("kinds/2.json", "[{\"k\": \"x\"}, {\"k\": true}]"),
        ("kinds/3.json", "{\"k\": {\"z\": 1,\n \"a\": [2]}}"),
    ]);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let all = rows(&session, "select id, name, price from \"order\" order by id").await;
        assert_eq!(all, ["1 one 1.5", "2 two 2.0", "3 three 30.0", "4 four 4.0"]);
        assert_eq!(rows(&session, "select sum(id), sum(price) from \"order\"").await, ["10 37.5"]);
        assert_eq!(rows(&session, "select count(*) from \"order\"").await, ["4"]);
        let some = "select coalesce(cast(a as varchar), '-'), b, coalesce(cast(c as varchar), '-') from some order by b";
        assert_eq!(rows(&session, some).await, ["1 x -", "- y 2020-02-29"]);
        assert_eq!(rows(&session, "select count(a), count(b), count(c) from some").await, ["1 2 1"]);
        let types = rows(&session, "select n, d, t from types order by t").await;
        assert_eq!(types, ["007 2020-01-01T00:00:00 1.0", "abc 2020-01-02T10:00:00 2.5"]);
        assert_eq!(rows(&session, "select sum(id), count(name), count(more) from lines").await, ["6.5 1 1"]);
        let kinds = rows(&session, "select k from kinds order by k").await;
        assert_eq!(kinds, ["1", "true", "x", "{\"z\":1,\"a\":[2]}"]);
    }
}

/// Two files with one column of these values; the type that holds both, and what is in it, in order.
fn meeting() -> Vec<(&'static str, ArrayRef, ArrayRef, &'static str, [&'static str; 2])> {
    let dates: ArrayRef = Arc::new(Date32Array::from(vec![0]));
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![86_400_000_001]));
    let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1]));
    let decimal = |value, precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap())
    };
    let longs = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
    let ints = |value: i32| -> ArrayRef { Arc::new(Int32Array::from(vec![value])) };
    let texts = |value: &str| -> ArrayRef { Arc::new(StringArray::from(vec![value])) };
    vec![
        ("widths", ints(7), longs(1 << 40), "Int64", ["7", "1099511627776"]),
        (
            "signs",
            Arc::new(UInt64Array::from(vec![u64::MAX])),
            longs(-1),
            "Decimal128(20, 0)",
            ["-1", "18446744073709551615"],
        ),
        ("floats", longs(2), Arc::new(Float64Array::from(vec![2.5])), "Float64", ["2.0", "2.5"]),
        (
            "halves",
            Arc::new(Int16Array::from(vec![1])),
            Arc::new(Float32Array::from(vec![1.5])),
            "Float32",
            ["1.0", "1.5"],
        ),
        ("scales", decimal(150, 5, 2), decimal(15_125, 9, 4), "Decimal128(9, 4)", ["1.5000", "1.5125"]),
        ("points", decimal(150, 5, 2), longs(3), "Decimal128(21, 2)", ["1.50", "3.00"]),
        (
            "times",
            millis,
            Arc::clone(&micros),
            "Timestamp(µs)",
            ["1970-01-01T00:00:00.001", "1970-01-02T00:00:00.000001"],
        ),
        ("days", dates, micros, "Timestamp(µs)", ["1970-01-01T00:00:00", "1970-01-02T00:00:00.000001"]),
        ("words", ints(10), texts("x"), "Utf8View", ["10", "x"]),
        ("bytes", Arc::new(BinaryArray::from(vec![b"a".as_slice()])), texts("b"), "BinaryView", ["61", "62"]),
        ("truths", Arc::new(BooleanArray::from(vec![true])), ints(5), "Int32", ["1", "5"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_unlike_types_have_one_that_holds_both() {
    let folder = tempfile::tempdir().unwrap();
    for (name, one, other, _, _) in meeting() {
        for (kind, ending) in [("p", "parquet"), ("a", "arrow"), ("s", "arrows")] {
            let place = folder.path().join(format!("{kind}_{name}"));
            write_typed(&place.join(format!("1.{ending}")), vec![("x", Arc::clone(&one))]);
            write_typed(
                &place.join(format!("2.{ending}")),
                vec![("y", Arc::clone(&other)), ("X", Arc::clone(&other))],
            );
        }
    }
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        for (name, _, _, data_type, values) in meeting() {
            for kind in ["p", "a", "s"] {
                let table = format!("{kind}_{name}");
                assert_eq!(type_of(&session, &table, "x").await, data_type, "{table}");
                assert_eq!(
                    rows(&session, &format!("select x from {table} order by x")).await,
                    values,
                    "{table}"
                );
                let extremes = format!("select min(x), max(x), count(y) from {table}");
                assert_eq!(
                    rows(&session, &extremes).await,
                    [format!("{} {} 1", values[0], values[1])],
                    "{table}"
                );
                let filter = format!("select count(*) from {table} where x > (select min(x) from {table})");
                assert_eq!(rows(&session, &filter).await, ["1"], "{table}");
            }
        }
        assert_eq!(rows(&session, "select x from p_words where x = '10'").await, ["10"]);
        assert_eq!(rows(&session, "select x from p_widths where x < 10").await, ["7"]);
        assert_eq!(rows(&session, "select x from p_signs where x < 0").await, ["-1"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_type_holds_names_the_file_and_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let list: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)])]));
    let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let day: ArrayRef = Arc::new(Date32Array::from(vec![1]));
    let field = Arc::new(Field::new("b", DataType::Int64, true));
    let object: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&number))]));
    for (name, one, other) in [
        ("lists", &list, &number),
        ("days", &number, &day),
        ("objects", &object, &number),
        ("both", &list, &object),
    ] {
        for ending in ["parquet", "arrow"] {
            let place = folder.path().join(format!("{name}_{ending}"));
            write_typed(
                &place.join(format!("1.{ending}")),
                vec![("same", Arc::clone(&number)), ("odd", Arc::clone(one))],
            );
            write_typed(&place.join(format!("2.{ending}")), vec![("odd", Arc::clone(other))]);
            for session in sessions() {
                let text = error(&session, &format!("select * from '{}/'", place.display())).await;
                for part in [
                    format!("2.{ending}"),
                    format!("1.{ending}"),
                    "column odd".into(),
                    "no type holds both".into(),
                ] {
                    assert!(text.contains(&part), "{text}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_a_header_are_told_apart() {
    let folder = folder(&[
        ("twice.csv", "a,a,b,a_1,\n1,2,3,4,5\n"),
        ("blank.csv", "\"\",x,\n1,2,3\n"),
        ("cased.csv", "a,A\n1,2\n"),
        ("mark.csv", "\u{feff}id,n\n1,2\n"),
        ("mark_quoted.csv", "\u{feff}\"id\",n\n1,2\n"),
    ]);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let twice = "select a, a_2, b, a_1, column4 from twice";
        assert_eq!(rows(&session, twice).await, ["1 2 3 4 5"]);
        assert_eq!(rows(&session, "select column0, x, column2 from blank").await, ["1 2 3"]);
        assert_eq!(rows(&session, "select a, \"A\" from cased").await, ["1 2"]);
        assert_eq!(rows(&session, "select sum(id + n) from mark").await, ["3"]);
        assert_eq!(rows(&session, "select sum(id + n) from mark_quoted").await, ["3"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_of_arrow_files_are_told_apart_too() {
    let folder = tempfile::tempdir().unwrap();
    let field = |name| Field::new(name, DataType::Int64, true);
    let schema = Arc::new(Schema::new(vec![field("a"), field("b"), field("a")]));
    let column = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
    let batch = RecordBatch::try_new(schema, vec![column(1), column(2), column(3)]).unwrap();
    let create = |name: &str| File::create(folder.path().join(name)).unwrap();
    let mut writer = FileWriter::try_new(create("twice.arrow"), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new(create("stream.arrows"), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        for table in ["twice", "stream"] {
            assert_eq!(rows(&session, &format!("select * from {table}")).await, ["1 2 3"]);
            assert_eq!(rows(&session, &format!("select sum(a_1), max(b) from {table}")).await, ["3 2"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_name_null_and_what_cannot_stand_in_a_name() {
    let folder = folder(&[
        ("t/year=2024/k=a%20b%2Fc/1.csv", "x\n1\n"),
        ("t/year=__HIVE_DEFAULT_PARTITION__/k=100%25/1.csv", "x\n2\n"),
        ("t/year=2023/k=__HIVE_DEFAULT_PARTITION__/1.csv", "x\n4\n"),
        ("t/year=2023/k=5% off/1.csv", "x\n8\n"),
        ("u/d=2024-02-29/1.csv", "x\n1\n"),
        ("u/d=__HIVE_DEFAULT_PARTITION__/1.csv", "x\n2\n"),
        ("all/n%20m=__HIVE_DEFAULT_PARTITION__/1.csv", "x\n2\n"),
    ]);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let path = folder.path().display();
        for table in ["t".to_string(), format!("'{path}/t/year=*/k=*/*.csv'")] {
            let all = format!("select coalesce(year, 0), coalesce(k, '-'), x from {table} order by x");
            assert_eq!(rows(&session, &all).await, ["2024 a b/c 1", "0 100% 2", "2023 - 4", "2023 5% off 8"]);
            for (filter, sum) in [
                ("year is null", 2),
                ("year > 2000", 13),
                ("k is not null", 11),
                ("k = 'a b/c'", 1),
                ("year = 2023 and k is null", 4),
            ] {
                let sql = format!("select sum(x) from {table} where {filter}");
                assert_eq!(rows(&session, &sql).await, [sum.to_string()], "{sql}");
            }
            assert_eq!(rows(&session, &format!("select count(*), count(year) from {table}")).await, ["4 3"]);
        }
        assert_eq!(rows(&session, "select arrow_typeof(d), count(*) from u group by 1").await, ["Date32 2"]);
        assert_eq!(rows(&session, "select x, \"n m\" is null from \"all\"").await, ["2 true"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_a_table_without_a_slash() {
    let folder = folder(&[("data/1.csv", "x\n1\n"), ("data/2.csv", "x\n2\n"), ("empty/readme.md", "x")]);
    let session = sessions().remove(0);
    let path = folder.path().display();
    assert_eq!(rows(&session, &format!("select sum(x) from '{path}/data'")).await, ["3"]);
    assert!(error(&session, &format!("select sum(x) from '{path}/empty'")).await.contains("no Parquet, CSV"));
    // The folder of the sources of this crate's tests: a plain name of a folder without data is an unknown table.
    assert!(error(&session, "select 1 from tests").await.contains("not found"));
    write(folder.path(), &[("data/3.txt", "for people")]);
    assert_eq!(rows(&session, &format!("select sum(x) from '{path}/data'")).await, ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_columns_meet_by_the_names_within() {
    let folder = tempfile::tempdir().unwrap();
    let longs = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![value])) };
    let floats = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
    let object = |columns: Vec<(&str, ArrayRef)>| -> ArrayRef {
        let field = |(name, array): (&str, ArrayRef)| {
            (Arc::new(Field::new(name, array.data_type().clone(), true)), array)
        };
        Arc::new(StructArray::from(columns.into_iter().map(field).collect::<Vec<_>>()))
    };
    let list = |value: i32| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(value)])]))
    };
    let floating = |value: f64| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<datafusion::arrow::datatypes::Float64Type, _, _>([Some(
            vec![Some(value)],
        )]))
    };
    for ending in ["parquet", "arrow"] {
        let place = folder.path().join(ending);
        let first = object(vec![("a", longs(1)), ("b", longs(2))]);
        let second = object(vec![("c", longs(3)), ("a", floats(1.5))]);
        write_typed(&place.join(format!("1.{ending}")), vec![("o", first), ("l", list(1))]);
        write_typed(&place.join(format!("2.{ending}")), vec![("L", floating(2.5)), ("o", second)]);
    }
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        for table in ["parquet", "arrow"] {
            let sums = format!("select sum(o['a']), sum(o['b']), sum(o['c']), sum(l[1]) from {table}");
            assert_eq!(rows(&session, &sums).await, ["2.5 2 3 3.5"], "{table}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_folder_are_each_read_as_they_are_written() {
    let folder = folder(&[
        ("d/1.csv", "a;b\n1;2\n"),
        ("d/2.csv", "b,a\n20,10\n"),
        ("d/3.csv", "a,b\n"),
        ("d/4.csv", ""),
        ("j/1.json", "{\"a\": 1}\n"),
        ("j/2.json", "[{\"a\": 10, \"b\": 2.5}]"),
        ("j/3.json", ""),
        ("j/4.ndjson", "[]"),
    ]);
    let place = folder.path().display();
    for session in sessions() {
        session.sql(&format!("copy (select 100 as a, 200 as b) to '{place}/d/5.csv.gz'")).await.unwrap();
        session.sql(&format!("copy (select 100 as a) to '{place}/j/5.json.zst'")).await.unwrap();
        assert_eq!(
            rows(&session, &format!("select sum(a), sum(b), count(*) from '{place}/d'")).await,
            ["111 222 3"]
        );
        assert_eq!(
            rows(&session, &format!("select sum(a), sum(b), count(*) from '{place}/j'")).await,
            ["111 2.5 3"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_have_the_name_of_a_folder() {
    let folder = folder(&[
        ("alike/1.csv", "a\n1\n2\n"),
        ("mixed/1.csv", "a\n1\n"),
        ("mixed/2.json", "{\"a\": 2}\n"),
        ("view/1.csv", "a\n1\n"),
    ]);
    let name = |table: &str| format!("\"{}\"", folder.path().join(table).display());
    for session in sessions() {
        for table in ["alike", "mixed"] {
            let table = name(table);
            session.sql(&format!("create table {table} as select 7 as b")).await.unwrap();
            assert_eq!(rows(&session, &format!("select b from {table}")).await, ["7"]);
            // Now there is a table of that name.
            assert!(
                error(&session, &format!("create table {table} as select 8 as b")).await.contains("exists")
            );
            session.sql(&format!("create table if not exists {table} as select 8 as b")).await.unwrap();
            assert_eq!(rows(&session, &format!("select b from {table}")).await, ["7"]);
        }
        let view = name("view");
        session.sql(&format!("create view {view} as select a + 1 as c from {view}")).await.unwrap();
        assert_eq!(rows(&session, &format!("select c from {view}")).await, ["2"]);
        session.sql(&format!("drop view {view}")).await.unwrap();
        let copy = name("alike");
        session.sql(&format!("drop table {copy}")).await.unwrap();
        session
            .sql(&format!("create table if not exists {copy} as select a * 10 as d from {copy}"))
            .await
            .unwrap();
        assert_eq!(rows(&session, &format!("select d from {copy} order by d")).await, ["10", "20"]);
    }
}
