//! Fields of a struct that is NULL are NULL, whatever Arrow keeps in them: in Arrow files and streams, tables in memory, and what is made of them.

use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::arrow::ipc::writer::{FileWriter, StreamWriter};
use datafusion::datasource::MemTable;
use kelpie_session::KelpieSession;
use tempfile::TempDir;

use crate::answers::{answer, session_with};

/// `i`: 1 to 4; `st`: structs of `a`, the number, and `b`, a text, of which the second is NULL and the fourth has a NULL `a`; `n`: structs
/// of `st`, of which the third is NULL; `l`: lists of the first two `st` and of the others.
fn rows() -> RecordBatch {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), None]));
    let b: ArrayRef = Arc::new(StringArray::from(vec!["w", "x", "y", "z"]));
    let fields: Fields =
        vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8, true)].into();
    let nulls = NullBuffer::from(vec![true, false, true, true]);
    let st: ArrayRef = Arc::new(StructArray::new(fields, vec![a, b], Some(nulls)));
    let within = Field::new("st", st.data_type().clone(), true);
    let nulls = NullBuffer::from(vec![true, true, false, true]);
    let n = StructArray::new(vec![within].into(), vec![Arc::clone(&st)], Some(nulls));
    let element = Arc::new(Field::new("item", st.data_type().clone(), true));
    let l = ListArray::new(element, OffsetBuffer::from_lengths([2, 0, 1, 1]), Arc::clone(&st), None);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int64Array::from_iter_values(1..=4))),
        ("st", st),
        ("n", Arc::new(n)),
        ("l", Arc::new(l)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// The rows as a file `f` and a stream `s`, and as no rows `e`.
fn folder() -> TempDir {
    let (folder, batch) = (tempfile::tempdir().unwrap(), rows());
    let file = |name: &str| File::create(folder.path().join(name)).unwrap();
    for (name, batch) in [("f.arrow", batch.clone()), ("e.arrow", batch.slice(0, 0))] {
        let mut writer = FileWriter::try_new(file(name), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    }
    let mut writer = StreamWriter::try_new(file("s.arrows"), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    folder
}

async fn session(settings: &[(&str, &str)], folder: &TempDir) -> KelpieSession {
    let session = session_with(settings);
    let table = MemTable::try_new(rows().schema(), vec![vec![rows()]]).unwrap();
    session.context().register_table("m", Arc::new(table)).unwrap();
    session.register_dir(folder.path()).await.unwrap();
    answer(&session, "create table t as select * from f").await;
    session
}

#[tokio::test]
async fn fields_of_null_structs_are_null() {
    let cases: &[(&str, &[&str])] = &[
        (
            "select i, st.a, st.a is null, st.b from {t} order by i",
            &["1 1 false w", "2 NULL true NULL", "3 3 false y", "4 NULL true z"],
        ),
        ("select i from {t} where st.a > 1", &["3"]),
        ("select st.a from {t} where st is null", &["NULL"]),
        ("select count(st.a), sum(st.a), max(st['b']) from {t}", &["2 4 z"]),
        ("select st.a, count(*) from {t} group by st.a order by 1", &["1 1", "3 1", "NULL 2"]),
        (
            "select i, n.st.a, n.st.b is null from {t} order by i",
            &["1 1 false", "2 NULL true", "3 NULL true", "4 NULL false"],
        ),
        ("select l[2].a is null, l[1].a from {t} where i = 1", &["true 1"]),
        ("select count(x.a) from (select unnest(l) x from {t}) q", &["2"]),
        ("select a.i from {t} a join {t} b on a.st.a = b.st.a order by 1", &["1", "3"]),
    ];
    let (folder, mut wrong) = (folder(), Vec::new());
    let settings: [&[(&str, &str)]; 3] = [
        &[("kelpie.device", "cpu"), ("kelpie.min_rows", "0")],
        &[("kelpie.device", "simt")],
        &[("kelpie.enabled", "false")],
    ];
    for settings in settings {
        let session = session(settings, &folder).await;
        for (sql, expected) in cases {
            for table in ["f", "s", "m", "t"] {
                let sql = sql.replace("{t}", table);
                let found = answer(&session, &sql).await;
                if found != *expected {
                    wrong.push(format!("{settings:?}: {sql}: {found:?}, not {expected:?}"));
                }
            }
        }
        let empty = answer(&session, "select count(*), count(st.a) from e").await;
        assert_eq!(empty, ["0 0"]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
