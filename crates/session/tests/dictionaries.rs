//! `kelpie.dictionaries`: texts without codes give DataFusion's answers, and what one form is read for the other does not get.

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_engine::Engine;
use kelpie_session::testing::{Generated, Outcome, compare};
use kelpie_session::{KelpieSession, SessionOptions};

const OFF: (&str, &str) = ("kelpie.dictionaries", "off");

/// Texts of which there are few: some NULL, some empty, some of several bytes a character.
fn word(row: usize) -> Option<String> {
    let words = [
        "ab",
        "",
        "zß",
        "é",
        "abc def",
        "a\u{1f600}b",
        "\u{0}",
        "ab ",
        "AB",
        "a longer one than the others é",
    ];
    (row % 11 != 5).then(|| words[row * 7 % words.len()].into())
}

fn texts(rows: usize, text: impl Fn(usize) -> Option<String>) -> ArrayRef {
    Arc::new((0..rows).map(text).collect::<StringArray>())
}

/// `w` has few texts, `v` and `a` too (Arrow's views and dictionaries), `s` many; `n` has only NULLs, `e` only empty texts.
fn facts(rows: usize) -> Arc<dyn TableProvider> {
    let arrow = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
    let words = |step: usize| texts(rows, move |row| word(row * step + 3));
    table(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
        ("w", words(1)),
        ("v", cast(&words(3), &DataType::Utf8View).unwrap()),
        ("a", cast(&words(7), &arrow).unwrap()),
        ("s", texts(rows, |row| (row % 23 != 1).then(|| format!("text é of row {row}")))),
        ("n", texts(rows, |_| None)),
        ("e", texts(rows, |_| Some(String::new()))),
    ])
}

fn table(columns: Vec<(&str, ArrayRef)>) -> Arc<dyn TableProvider> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    Arc::new(MemTable::try_new(schema, vec![vec![batch]]).unwrap())
}

/// The facts, a table of words with numbers, and one without rows.
fn tables(rows: usize) -> [(&'static str, Arc<dyn TableProvider>); 3] {
    let words = table(vec![
        (
            "w",
            texts(40, |row| {
                if row == 7 { None } else { word(row).map(|word| format!("{word}{}", "x".repeat(row / 13))) }
            }),
        ),
        ("x", Arc::new(Int32Array::from_iter_values(0..40))),
    ]);
    [("t", facts(rows)), ("u", words), ("z", facts(0))]
}

fn session(rows: usize, settings: &[(&str, &str)]) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.fallback", "deny");
    let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let kelpie = KelpieSession::new(options).unwrap();
    for (name, table) in tables(rows) {
        kelpie.context().register_table(name, table).unwrap();
    }
    kelpie
}

const QUERIES: [&str; 32] = [
    "SELECT * FROM t",
    "SELECT w, count(*), sum(id), min(s), max(v) FROM t GROUP BY w",
    "SELECT w, v, a, count(*) FROM t GROUP BY w, v, a",
    "SELECT w, n, e, count(*) FROM t GROUP BY w, n, e",
    "SELECT n, count(*), max(n), min(e), max(e) FROM t GROUP BY n",
    "SELECT min(w), max(w), min(v), max(a), min(n), max(e), count(n), count(e) FROM t",
    "SELECT id % 9, min(w), max(w), count(DISTINCT w), count(DISTINCT n) FROM t GROUP BY id % 9",
    "SELECT count(DISTINCT w), count(DISTINCT v), count(DISTINCT e) FROM t",
    "SELECT DISTINCT w, e FROM t",
    "SELECT t.id, t.w, u.x FROM t JOIN u ON t.w = u.w",
    "SELECT t.id, u.x FROM t LEFT JOIN u ON t.v = u.w AND u.x % 3 = 0",
    "SELECT t.id, u.x, u.w FROM t FULL JOIN u ON t.a = u.w",
    "SELECT count(*) FROM t JOIN t b ON t.w = b.a AND t.v = b.v AND t.id < b.id",
    "SELECT count(*) FROM t JOIN t b ON t.n = b.n",
    "SELECT count(*) FROM t JOIN z ON t.w = z.w",
    "SELECT t.w, z.s FROM t LEFT JOIN z ON t.w = z.w WHERE t.id < 9",
    "SELECT id FROM t WHERE w IN (SELECT w FROM u WHERE x > 3)",
    "SELECT id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.w = t.a)",
    "SELECT w FROM t WHERE w NOT IN (SELECT w FROM u WHERE w IS NOT NULL)",
    "SELECT w FROM t EXCEPT SELECT w FROM u",
    "SELECT w FROM t INTERSECT SELECT v FROM t",
    "SELECT w FROM t UNION SELECT n FROM t UNION SELECT e FROM z",
    "SELECT id, w FROM t WHERE w LIKE 'a%' OR w LIKE '%ß' OR v LIKE '%b%d%'",
    "SELECT count(*) FROM t WHERE a ILIKE 'AB%' AND w NOT LIKE '%_x' AND e LIKE ''",
    "SELECT id FROM t WHERE w = '' OR v = 'é' OR a IN ('ab', 'zß', 'none') OR n IS NOT NULL",
    "SELECT id, w < v, v >= a, w = a, w IS DISTINCT FROM a, n = w FROM t",
    "SELECT id, upper(left(w, 1)), length(v), w || v, substr(a, 2), CASE WHEN w = 'ab' THEN v ELSE a END FROM t WHERE w ~ '^[ -~]*$'",
    "SELECT coalesce(n, w, e), count(*) FROM t GROUP BY 1",
    "SELECT w, v, sum(id) FROM t GROUP BY GROUPING SETS ((w, v), (w), ())",
    "SELECT w, count(*) FROM z GROUP BY w",
    "SELECT count(*), min(w), max(e) FROM z WHERE w LIKE '%a%'",
    "SELECT max(id) FROM t GROUP BY w HAVING count(*) > 3 AND min(v) < 'b'",
];

const ORDERED: [&str; 5] = [
    "SELECT w, v, id FROM t ORDER BY w DESC NULLS LAST, v, id",
    "SELECT a, n, e, id FROM t ORDER BY a NULLS FIRST, n, e, id DESC LIMIT 50",
    "SELECT w, count(*) FROM t GROUP BY w ORDER BY w",
    "SELECT q.w, count(*) FROM (SELECT w, id FROM t ORDER BY w, id LIMIT 99) q JOIN u ON q.w = u.w GROUP BY q.w ORDER BY q.w",
    "SELECT * FROM z ORDER BY w, id",
];

async fn agree(rows: usize, settings: &[(&str, &str)]) {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    for (name, table) in tables(rows) {
        plain.register_table(name, table).unwrap();
    }
    let kelpie = session(rows, &[settings, &[OFF]].concat());
    let all = QUERIES.map(|sql| (sql, false)).into_iter().chain(ORDERED.map(|sql| (sql, true)));
    for (sql, ordered) in all {
        match compare(&plain, &kelpie, &Generated { sql: sql.into(), ordered }).await {
            // What computes nothing is left to DataFusion.
            Outcome::Equal { compiled, reasons } if compiled || reasons.is_empty() => {}
            other => panic!("{rows} rows, {settings:?} {sql}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_without_dictionaries() {
    let (cpu, simt) = (("kelpie.device", "cpu"), ("kelpie.device", "simt"));
    for rows in [1, 700] {
        agree(rows, &[cpu]).await;
    }
    agree(700, &[cpu, ("kelpie.micro_model", "operator_at_a_time")]).await;
    agree(300, &[simt]).await;
    agree(1, &[simt]).await;
    agree(
        300,
        &[
            simt,
            ("kelpie.simt_lanes", "8"),
            ("kelpie.macro_model", "batch"),
            ("kelpie.transfer", "copy"),
            ("kelpie.block_bytes", "1KB"),
        ],
    )
    .await;
    agree(2000, &[cpu, ("kelpie.memory_limit", "600KB")]).await;
}

/// Bytes that a query of a session brought to the device, and what its joins compare texts as, with the reason.
async fn read_for(kelpie: &KelpieSession, sql: &str) -> (u64, Vec<String>) {
    let timing = kelpie.sql(sql).await.unwrap().timing;
    let choices = timing.parts.iter().flat_map(|part| part.choices());
    let joins = choices.filter(|choice| choice.axis.name == "text_join");
    (timing.transfer_bytes, joins.map(|choice| format!("{}: {}", choice.value, choice.reason)).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_was_read_in_one_form_is_not_used_for_the_other() {
    const JOIN: &str = "SELECT count(*), min(b.v) FROM t JOIN t b ON t.w = b.a";
    let engine = Arc::new(Engine::new());
    let table = facts(3000);
    let session = |dictionaries: &str| {
        let options = SessionOptions::default().with_engine(Arc::clone(&engine));
        let options = options.with("kelpie.device", "cpu").with("kelpie.dictionaries", dictionaries);
        let kelpie = KelpieSession::new(options).unwrap();
        kelpie.context().register_table("t", Arc::clone(&table)).unwrap();
        kelpie
    };
    let (auto, off) = (session("auto"), session("off"));
    let (codes, joins) = read_for(&auto, JOIN).await;
    assert!(codes > 0 && joins.iter().any(|join| join.starts_with("codes")), "{codes} {joins:?}");
    let (plain, joins) = read_for(&off, JOIN).await;
    assert!(plain > 2 * codes, "{plain} bytes of texts, {codes} of codes");
    assert_eq!(joins, ["texts: texts have no dictionaries"]);
    // Each finds its own again.
    for (session, value) in [(&auto, "codes"), (&off, "texts")] {
        let (bytes, joins) = read_for(session, JOIN).await;
        assert!(bytes == 0 && joins.iter().all(|join| join.starts_with(value)), "{bytes} {joins:?}");
    }
    // In between, in one session: the plan that was kept is not that of the other form.
    for (dictionaries, value) in [("off", "texts"), ("auto", "codes"), ("off", "texts")] {
        auto.sql(&format!("SET kelpie.dictionaries = '{dictionaries}'")).await.unwrap();
        let (bytes, joins) = read_for(&auto, JOIN).await;
        assert!(bytes == 0 && joins.iter().all(|join| join.starts_with(value)), "{dictionaries} {joins:?}");
    }
    // A column of numbers, and one of too many texts for a dictionary, is the same in both.
    const NUMBERS: &str = "SELECT max(id), min(s) FROM t";
    assert!(read_for(&auto, NUMBERS).await.0 > 0);
    auto.set("kelpie.dictionaries", "auto").unwrap();
    assert!(
        read_for(&auto, NUMBERS).await.0 > 0,
        "what a query without dictionaries read tells nothing of those"
    );
    assert_eq!(read_for(&off, NUMBERS).await.0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_explained_says_that_there_is_no_dictionary() {
    let kelpie = session(3000, &[("kelpie.device", "cpu"), OFF]);
    let explained = async |statement: &str| {
        let sql = format!("{statement} SELECT u.x, count(*) FROM u JOIN t ON t.w = u.w GROUP BY u.x");
        pretty_format_batches(&kelpie.sql(&sql).await.unwrap().batches).unwrap().to_string()
    };
    let text = explained("EXPLAIN ANALYZE VERBOSE").await;
    assert!(text.contains("texts have no dictionaries"), "{text}");
    // By the columns that lie in memory now.
    assert!(explained("EXPLAIN").await.contains("join0.text_join=texts"));
    kelpie.set("kelpie.dictionaries", "auto").unwrap();
    assert!(!explained("EXPLAIN").await.contains("text_join="));
    assert!(explained("EXPLAIN ANALYZE").await.contains("text_join=codes"));
    kelpie.set("kelpie.dictionaries", "off").unwrap();
    kelpie.set("kelpie.variant.join0.text_join", "codes").unwrap();
    let error = kelpie.sql("SELECT count(*) FROM u JOIN t ON t.w = u.w").await.unwrap_err().to_string();
    assert!(error.contains("texts have no dictionaries"), "{error}");
}

/// A table has more values than the keys of its columns' type tell apart, each batch of it fewer.
#[tokio::test]
async fn keys_that_are_too_small_for_all_rows_make_more_batches() {
    use datafusion::arrow::datatypes::{Int8Type, UInt8Type};
    let batch = |first: i64| {
        let texts: Vec<String> = (first..first + 100).map(|value| format!("text {value}")).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(Int64Array::from_iter_values(first..first + 100))),
            (
                "s",
                Arc::new(DictionaryArray::<Int8Type>::from_iter(
                    texts.iter().map(|text| Some(text.as_str())),
                )),
            ),
            (
                "u",
                Arc::new(DictionaryArray::<UInt8Type>::from_iter(
                    texts.iter().map(|text| Some(text.as_str())),
                )),
            ),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..7).map(|number| batch(number * 100)).collect();
    for device in ["cpu", "simt"] {
        let options = SessionOptions::default().with("kelpie.device", device).with("kelpie.fallback", "deny");
        let kelpie = KelpieSession::new(options).unwrap();
        let table = MemTable::try_new(batches[0].schema(), vec![batches.clone()]).unwrap();
        kelpie.context().register_table("t", Arc::new(table)).unwrap();
        for (sql, rows) in [
            ("select s, count(*) from t group by s", 700),
            ("select u, s, id from t where id <> 5 order by id desc", 699),
            ("select a.u from t a join t b on a.s = b.u", 700),
            ("select max(s), min(u) from t", 1),
            ("select distinct u from t where id < 300", 300),
        ] {
            let result = kelpie.sql(sql).await.unwrap_or_else(|error| panic!("{device}: {sql}: {error}"));
            assert!(result.timing.compiled, "{:?}", result.timing.reasons);
            assert_eq!(result.rows(), rows, "{device}: {sql}");
            let is_kept = |batch: &RecordBatch| batch.schema() == result.schema;
            assert!(result.batches.iter().all(is_kept), "{device}: {sql}");
        }
        let sorted = kelpie.sql("select s from t where s <> '' order by s").await.unwrap();
        let texts = sorted.batches.iter().map(|batch| cast(batch.column(0), &DataType::Utf8).unwrap());
        let texts: Vec<String> = texts
            .flat_map(|column| {
                column.as_string::<i32>().iter().map(|text| text.unwrap().to_string()).collect::<Vec<_>>()
            })
            .collect();
        assert!(texts.len() == 700 && texts.is_sorted(), "{device}");
    }
}
