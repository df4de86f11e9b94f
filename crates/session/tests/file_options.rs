//! Options of a session that decide how files are read: they hold for tables of paths too, also where they change later.

use std::fs::File;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use datafusion::parquet::arrow::ArrowWriter;

use crate::people::{folder, rows, sessions};

#[tokio::test(flavor = "multi_thread")]
async fn options_of_parquet_hold_for_paths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let columns: [(&str, ArrayRef); 2] = [
        ("b", Arc::new(BinaryArray::from(vec![b"abc".as_slice()]))),
        ("s", Arc::new(StringArray::from(vec!["x"]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    // Without the types of Arrow in the footer.
    let properties =
        datafusion::parquet::arrow::arrow_writer::ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    let file = File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, batch.schema(), properties).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    for session in sessions() {
        session.register_path("t", &path).await.unwrap();
        let types = "select arrow_typeof(b), arrow_typeof(s) from t";
        for (option, value, expected) in [
            ("datafusion.execution.parquet.schema_force_view_types", "true", "BinaryView Utf8View"),
            ("datafusion.execution.parquet.binary_as_string", "true", "Utf8View Utf8View"),
            ("datafusion.execution.parquet.schema_force_view_types", "false", "Utf8 Utf8"),
            ("datafusion.execution.parquet.binary_as_string", "false", "Binary Utf8"),
        ] {
            session.sql(&format!("set {option} = {value}")).await.unwrap();
            assert_eq!(rows(&session, types).await, [expected], "{option} = {value}");
            let path = format!("select arrow_typeof(b), arrow_typeof(s) from '{}'", path.display());
            assert_eq!(rows(&session, &path).await, [expected], "{option} = {value}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_is_there_or_not_as_the_session_says() {
    let folder = folder(&[
        ("t.csv", "1,2\n3,4\n"),
        ("h.csv", "a,b\n1,2\n"),
        ("d/1.csv", "1,2\n3,4\n"),
        ("d/2.csv", "5,6\n"),
    ]);
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let path = folder.path().display();
        let headed = format!("select \"1\", \"2\" from read_csv('{path}/t.csv', header = true)");
        assert_eq!(rows(&session, &headed).await, ["3 4"]);
        session.sql("set datafusion.catalog.has_header = false").await.unwrap();
        assert_eq!(rows(&session, "select column0, column1 from t").await, ["1 2", "3 4"]);
        assert_eq!(rows(&session, "select column0, column1 from h").await, ["a b", "1 2"]);
        assert_eq!(rows(&session, "select sum(column0), sum(column1) from d").await, ["9 12"]);
        assert_eq!(rows(&session, &format!("select sum(column1) from '{path}/d/*.csv'")).await, ["12"]);
        session.sql("insert into d values (10, 20)").await.unwrap();
        assert_eq!(rows(&session, "select sum(column0), count(*) from d").await, ["19 4"]);
        // What a session says unasked is held against the files.
        session.sql("set datafusion.catalog.has_header = true").await.unwrap();
        assert_eq!(rows(&session, "select count(*), sum(column1) from t").await, ["2 6"]);
        assert_eq!(rows(&session, "select sum(a), sum(b) from h").await, ["1 2"]);
        std::fs::read_dir(folder.path().join("d"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.ends_with("1.csv") && !path.ends_with("2.csv"))
            .for_each(|path| std::fs::remove_file(path).unwrap());
    }
}
