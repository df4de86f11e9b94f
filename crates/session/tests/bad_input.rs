//! Bad files, names and options: each a clear error that names the thing, and the session goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

fn batch(rows: i64) -> RecordBatch {
    let schema =
        Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("s", DataType::Utf8, false)]);
    let numbers = Int64Array::from_iter((0..rows).map(|i| (i % 7 != 0).then_some(i * 7919 % 10_007)));
    let words = StringArray::from_iter_values((0..rows).map(|i| format!("word {}", i % 100)));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(words)]).unwrap()
}

fn parquet(path: &Path, rows: i64) {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(1000))
        .build();
    let batch = batch(rows);
    let mut writer =
        ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

struct Fixture {
    folder: TempDir,
    session: KelpieSession,
}

impl Fixture {
    async fn new() -> Fixture {
        let folder = TempDir::new().unwrap();
        parquet(&folder.path().join("good.parquet"), 5000);
        let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
        session.register_path("good", folder.path().join("good.parquet")).await.unwrap();
        Fixture { folder, session }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn sum(&self, table: &str) -> Result<i64, String> {
        let sql = format!("SELECT sum(a) + count(s) FROM {table}");
        let result = self.session.sql(&sql).await.map_err(|error| error.to_string())?;
        assert!(result.timing.compiled, "{:?}", result.timing);
        let column = result.batches[0].column(0);
        Ok(column.as_any().downcast_ref::<Int64Array>().unwrap().value(0))
    }

    async fn fails(&self, sql: &str, parts: &[&str]) {
        let error = match self.session.sql(sql).await {
            Ok(result) => panic!("{sql}: {:?}", result.batches),
            Err(error) => error.to_string(),
        };
        for part in parts {
            assert!(error.contains(part), "{sql}: {error}");
        }
        // The session goes on.
        assert!(self.sum("good").await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_every_format_are_tables() {
    let f = Fixture::new().await;
    let expected = f.sum("good").await.unwrap();
    let data = batch(5000);
    let mut writer =
        FileWriter::try_new(fs::File::create(f.path("ipc.arrow")).unwrap(), &data.schema()).unwrap();
    writer.write(&data).unwrap();
    writer.finish().unwrap();
    let mut csv = String::from("a,s\n");
    for row in 0..5000i64 {
        let value = if row % 7 == 0 { String::new() } else { (row * 7919 % 10_007).to_string() };
        csv.push_str(&format!("{value},\"word {}\"\n", row % 100));
    }
    fs::write(f.path("text.csv"), csv).unwrap();
    fs::create_dir(f.path("parts")).unwrap();
    let half = batch(5000);
    for (name, start, rows) in [("1.parquet", 0, 2000), ("2.parquet", 2000, 3000)] {
        let file = fs::File::create(f.path("parts").join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, half.schema(), None).unwrap();
        writer.write(&half.slice(start, rows)).unwrap();
        writer.close().unwrap();
    }
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    let mut names = session.register_dir(f.folder.path()).await.unwrap();
    names.sort();
    assert_eq!(names, ["good", "ipc", "parts", "text"]);
    assert_eq!(session.tables(), names);
    let g = Fixture { folder: f.folder, session };
    for name in names {
        assert_eq!(g.sum(&name).await.unwrap(), expected, "{name}");
    }
    for name in ["good.parquet", "ipc.arrow", "text.csv", "parts"] {
        let quoted = format!("'{}'", g.path(name).display());
        assert_eq!(g.sum(&quoted).await.unwrap(), expected, "{name}");
    }
    // The second run reads nothing; a changed file is another table.
    assert_eq!(g.session.last_metrics().map(|m| m.compiled), Some(true));
    g.sum("good").await.unwrap();
    assert_eq!(g.session.last_metrics().map(|m| m.transfer_bytes), Some(0));
    g.session.clear_columns();
    g.sum("good").await.unwrap();
    assert!(g.session.last_metrics().is_some_and(|m| m.transfer_bytes > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_parquet_is_named() {
    let f = Fixture::new().await;
    fs::write(f.path("garbage.parquet"), vec![0x5a; 4096]).unwrap();
    let good = fs::read(f.path("good.parquet")).unwrap();
    fs::write(f.path("cut.parquet"), &good[..good.len() - 20]).unwrap();
    fs::write(f.path("empty.parquet"), b"").unwrap();
    for name in ["garbage", "cut", "empty", "missing"] {
        let path = f.path(&format!("{name}.parquet"));
        let error = f.session.register_path(name, &path).await.unwrap_err().to_string();
        assert!(error.contains(&format!("{name}.parquet")), "{error}");
        f.fails(&format!("SELECT count(a) FROM '{}'", path.display()), &[name]).await;
    }
    // The footer is whole, a page is not.
    let mut page = good.clone();
    for byte in &mut page[40..1400] {
        *byte ^= 0xa5;
    }
    fs::write(f.path("page.parquet"), page).unwrap();
    f.session.register_path("page", f.path("page.parquet")).await.unwrap();
    f.fails("SELECT sum(a), count(s) FROM page", &["page.parquet"]).await;
    f.fails("SELECT * FROM page", &["page.parquet"]).await;
    // A file that vanishes after it was registered.
    parquet(&f.path("gone.parquet"), 100);
    f.session.register_path("gone", f.path("gone.parquet")).await.unwrap();
    fs::remove_file(f.path("gone.parquet")).unwrap();
    f.fails("SELECT sum(a) FROM gone", &["gone"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_damaged_file_of_many_is_named() {
    let f = Fixture::new().await;
    let folder = f.path("many");
    fs::create_dir(&folder).unwrap();
    for number in 10..50 {
        parquet(&folder.join(format!("{number}.parquet")), 5000);
    }
    let from = format!("'{}'", folder.display());
    // Many footers are looked at side by side, and the files stay in their order.
    assert_eq!(f.sum(&from).await.unwrap(), 40 * f.sum("good").await.unwrap());
    for number in [47, 23, 31] {
        fs::write(folder.join(format!("{number}.parquet")), b"PAR1 and no more, PAR1").unwrap();
    }
    f.fails(&format!("SELECT sum(a) FROM {from}"), &["23.parquet"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_csv_types_are_named() {
    let f = Fixture::new().await;
    let mut text = String::from("a,s\n");
    // More rows than types are inferred from.
    for row in 0..100_001 {
        text.push_str(&format!("{row},x\n"));
    }
    text.push_str("not a number,x\n");
    fs::write(f.path("wrong.csv"), text).unwrap();
    f.session.register_path("wrong", f.path("wrong.csv")).await.unwrap();
    f.fails("SELECT sum(a) FROM wrong", &["wrong.csv", "not a number"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_names_and_options_are_named() {
    let f = Fixture::new().await;
    f.fails("SELECT a FROM nowhere", &["nowhere"]).await;
    f.fails("SELECT nothing FROM good", &["nothing"]).await;
    f.fails("SELECT a FROM 'https://example.org/x.parquet'", &["only local files"]).await;
    f.fails("SET kelpie.device = 'abacus'", &["kelpie.device", "abacus", "cpu"]).await;
    f.fails("SET kelpie.colour = 'red'", &["kelpie.colour", "kelpie.memory_limit"]).await;
    f.fails("SELEC a FROM good", &["SELEC"]).await;
    let error = KelpieSession::new(SessionOptions::default().with("kelpie.simt_lanes", "99")).unwrap_err();
    assert!(error.to_string().contains("kelpie.simt_lanes"), "{error}");
    f.fails("SELECT 1 / (a - a) FROM good", &["Divide by zero"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_without_tables_and_names_that_clash() {
    let f = Fixture::new().await;
    fs::create_dir(f.path("nothing")).unwrap();
    fs::write(f.path("notes.md"), "x").unwrap();
    let error = f.session.register_dir(f.path("nothing")).await.unwrap_err().to_string();
    assert!(error.contains("nothing"), "{error}");
    let error = f.session.register_dir(f.path("notes.md")).await.unwrap_err().to_string();
    assert!(error.contains("notes.md"), "{error}");
    fs::write(f.path("good.csv"), "a\n1\n").unwrap();
    let error = f.session.register_dir(f.folder.path()).await.unwrap_err().to_string();
    assert!(error.contains("good.csv") && error.contains("good.parquet"), "{error}");
    assert!(f.sum("good").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn too_little_memory_is_an_error_with_its_numbers() {
    let f = Fixture::new().await;
    f.session.sql("SET kelpie.memory_limit = '4KB'").await.unwrap();
    assert!(f.sum("good").await.is_ok(), "its column may stay on the host");
    f.session.sql("SET kelpie.macro_model = 'run_to_finish'").await.unwrap();
    let error = f.sum("good").await.unwrap_err();
    assert!(error.contains("memory") && error.contains("4096"), "{error}");
    f.session.sql("SET kelpie.memory_limit = '0'").await.unwrap();
    assert!(f.sum("good").await.is_ok());
}
