//! CSV files whose later rows do not fit what the first ones promised: the error says where.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

/// On Kelpie and on DataFusion's operators, whose readers each take a range of a large file.
fn sessions() -> Vec<KelpieSession> {
    let options = SessionOptions::default().with("datafusion.execution.target_partitions", "4");
    let options = options.with("kelpie.device", "cpu");
    let options = options.with("datafusion.optimizer.repartition_file_min_size", "1000");
    let plain = options.clone().with("kelpie.enabled", "false");
    [options, plain].map(|options| KelpieSession::new(options).unwrap()).into()
}

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

async fn error(session: &KelpieSession, sql: &str) -> String {
    match session.sql(sql).await {
        Ok(_) => panic!("{sql} must fail"),
        Err(error) => error.strip_backtrace(),
    }
}

async fn shown(session: &KelpieSession, sql: &str) -> String {
    pretty_format_batches(&session.sql(sql).await.unwrap().batches).unwrap().to_string()
}

/// So many rows of three columns, the first of which is no number in some of them, counted from 0.
fn rows(rows: usize, misfits: &[usize], end: &str) -> String {
    let mut text = format!("id,amount,note{end}");
    for row in 0..rows {
        match misfits.contains(&row) {
            true => write!(text, "{row},about {row},x{end}").unwrap(),
            false => write!(text, "{row},{},a longer text that fills the file {row}{end}", row % 7).unwrap(),
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misfit_is_named_by_its_true_line() {
    let folder = tempfile::tempdir().unwrap();
    // 9 MB: several ranges of bytes, of which later ones meet misfits too.
    let path = file(&folder, "t.csv", &rows(200_000, &[150_000, 190_000], "\n"));
    for session in sessions() {
        session.register_path("t", &path).await.unwrap();
        for sql in ["select sum(amount) from t", "select * from t", "select count(*) from t where amount > 3"]
        {
            let error = error(&session, sql).await;
            // The header is line 1, row 0 is line 2.
            let place = format!("{}: line 150002, column amount: 'about 150000' is no Int64", path.display());
            assert!(error.contains(&place) && error.contains("kelpie.infer_rows = 0"), "{sql}\n{error}");
            assert!(error.contains("'amount': 'VARCHAR'"), "{error}");
        }
        assert!(shown(&session, "select max(id), count(*) from t").await.contains("| 199999 "));
        // What the error proposes.
        session.sql("set kelpie.infer_rows = 0").await.unwrap();
        let types = "select arrow_typeof(id), arrow_typeof(amount), count(*) from t group by 1, 2";
        let types = shown(&session, types).await;
        assert!(
            types.contains("| Int64 ") && types.contains("| Utf8 ") && types.contains("| 200000 "),
            "{types}"
        );
        let declared = format!(
            "create external table d (id bigint, amount varchar, note varchar) stored as csv location '{}' \
             options ('format.has_header' 'true')",
            path.display()
        );
        session.sql(&declared).await.unwrap();
        let found = shown(&session, "select id from d where amount like 'about%' order by id").await;
        assert!(found.contains("| 150000 |\n| 190000 |"), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_are_counted_as_an_editor_does() {
    let folder = tempfile::tempdir().unwrap();
    let crlf = file(&folder, "crlf.csv", &rows(100_010, &[100_005], "\r\n"));
    // Two lines in a value, and an empty one between rows.
    let text = rows(100_010, &[100_005], "\n").replacen("fills the file 3\n", "fills the file 3\n\n", 1);
    let text = text.replacen("0,0,a longer text that fills the file 0", "0,0,\"two\nlines\"", 1);
    let quoted = file(&folder, "quoted.csv", &text);
    let tabs = file(&folder, "tabs.tsv", &rows(100_010, &[100_005], "\n").replace(',', "\t"));
    for session in sessions() {
        session.sql("set datafusion.catalog.newlines_in_values = true").await.unwrap();
        for (path, line) in [(&crlf, 100_007), (&quoted, 100_009), (&tabs, 100_007)] {
            let place = format!("{}: line {line}, column amount: 'about 100005'", path.display());
            let error = error(&session, &format!("select sum(amount) from '{}'", path.display())).await;
            assert!(error.contains(&place), "{place}\n{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_files_the_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("t")).unwrap();
    file(&folder, "t/a.csv", &rows(10, &[], "\n"));
    let bad = file(&folder, "t/b.csv", &rows(100_010, &[100_005], "\n"));
    file(&folder, "t/c.csv", &rows(10, &[], "\n"));
    for session in sessions() {
        session.register_dir(folder.path()).await.unwrap();
        let error = error(&session, "select sum(amount) from t").await;
        assert!(error.contains(&format!("{}: line 100007, column amount", bad.display())), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_another_shape_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut short = rows(100_010, &[], "\n");
    short.push_str("1,2\n3,4,x\n");
    let short = file(&folder, "short.csv", &short);
    let bytes = [rows(100_010, &[], "\n").as_bytes(), b"1,2,\xff\xfe\n"].concat();
    let odd = folder.path().join("odd.csv");
    fs::write(&odd, bytes).unwrap();
    for session in sessions() {
        let found = error(&session, &format!("select sum(amount) from '{}'", short.display())).await;
        let place = format!("{}: line 100012 has 2 values, and the table 3 columns", short.display());
        assert!(found.contains(&place), "{found}");
        let found = error(&session, &format!("select sum(amount) from '{}'", odd.display())).await;
        let place = format!("{}: line 100012, column note: the text is not UTF-8", odd.display());
        assert!(found.contains(&place), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_query_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "t.csv", &rows(100, &[], "\n"));
    for session in sessions() {
        let error = error(&session, &format!("select to_timestamp(note) from '{}'", path.display())).await;
        assert!(error.contains("timestamp") && !error.contains("line"), "{error}");
    }
}

/// DataFusion takes files below 10 MB in one piece, so that line feeds inside of quotes are no ends of rows.
#[tokio::test(flavor = "multi_thread")]
async fn line_feeds_in_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from("id,note\n");
    for i in 0..100_000 {
        writeln!(text, "{i},\"first line\n1,second line of {i}\"").unwrap();
    }
    let path = file(&folder, "notes.csv", &text);
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    session.register_path("notes", &path).await.unwrap();
    let sql = "SELECT count(*) AS n, sum(id) AS s, count(DISTINCT note) AS d FROM notes";
    let answer = shown(&session, sql).await;
    assert!(answer.contains("| 100000 | 4999950000 | 100000 |"), "{answer}");
}

#[tokio::test]
async fn a_quote_that_is_never_closed_is_an_error() {
    let folder = TempDir::new().unwrap();
    let open = file(&folder, "open.csv", "id,note\n1,\"one\"\n2,\"two\n3,three\n4,four");
    let much = format!("{}8,\"no end\n", "7,\"a\nb\"\n".repeat(2000));
    let much = file(&folder, "much.csv", &format!("id,note\n{much}"));
    let within = file(&folder, "within.csv", "id,note\n1,5\" pipe\n2,\"a \"\"b\"\"\"\n3,\"\"\n");
    for session in sessions() {
        for path in [&open, &much] {
            for sql in ["select count(*) from", "select max(note) from", "select * from"] {
                let said = error(&session, &format!("{sql} '{}'", path.display())).await;
                assert!(said.contains("never closed") && said.contains(path.to_str().unwrap()), "{said}");
            }
        }
        let read = shown(&session, &format!("select note from '{}' order by id", within.display())).await;
        assert!(read.contains("5\" pipe") && read.contains("a \"b\""), "{read}");
        let as_it_is = format!("select note from read_csv('{}', quote = '') where id = 2", open.display());
        assert!(shown(&session, &as_it_is).await.contains("\"two"));
    }
}
