//! Text: every expression gives DataFusion's answers, on columns with a dictionary and without, on CPU and interpreter.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::testing::{Generated, Outcome, compare};
use kelpie_session::{KelpieSession, SessionOptions, Stage};

/// Texts of many shapes; `?` stands for the column in the expressions below.
fn texts() -> Vec<Option<String>> {
    let plain = [
        "",
        "a",
        "A",
        "ab",
        "abc",
        "ABC",
        "abcabc",
        "xabcx",
        "abcdefgh",
        "abcdefghi",
        "the quick brown fox",
        "special requests",
        "x special y requests z",
        "requests special",
        "  padded ",
        "\t\n mixed \r",
        "\u{e9}",
        "\u{c9}t\u{e9}",
        "stra\u{df}e",
        "STRASSE",
        "\u{212a}elvin",
        "kelvin",
        "\u{1f600}",
        "a\u{1f600}b",
        "50%",
        "5_0",
        "back\\slash",
        "line\nbreak",
        "12-34",
        "+1-800-555-0100",
        "0012",
        "-7",
        "\u{3000}wide\u{3000}",
        "e\u{301}",
        "xyxyxy",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
        "null",
        "\u{0}zero",
        "'quoted'",
        "[a-z]",
        "a.c",
    ];
    let mut texts: Vec<Option<String>> = plain.iter().map(|text| Some((*text).into())).collect();
    texts.push(None);
    texts.push(Some("long ".repeat(60)));
    texts.push(Some(format!("{}needle", "hay ".repeat(50))));
    texts.push(None);
    texts
}

async fn sessions(device: &[(&str, &str)]) -> (SessionContext, KelpieSession) {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let mut options = SessionOptions::default().with("kelpie.fallback", "allow");
    for (name, value) in device {
        options = options.with(*name, *value);
    }
    let kelpie = KelpieSession::new(options).unwrap();
    let texts = texts();
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("o", DataType::Utf8, true),
    ]));
    // Each text twice, and beside another one.
    let rows = 2 * texts.len();
    let column =
        |step: usize| StringArray::from_iter((0..rows).map(|row| texts[row * step % texts.len()].clone()));
    let columns = vec![
        Arc::new(Int64Array::from_iter_values(0..rows as i64)) as _,
        Arc::new(column(1)) as _,
        Arc::new(column(7)) as _,
    ];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let table = Arc::new(MemTable::try_new(schema, vec![vec![batch]]).unwrap());
    plain.register_table("t", Arc::clone(&table) as _).unwrap();
    kelpie.context().register_table("t", table).unwrap();
    (plain, kelpie)
}

/// Runs each expression as a result and, where it is a condition, as a filter; over the stored column and over one that
/// is computed, which has no dictionary.
async fn agree(expressions: &[&str], conditions: bool) {
    for device in [&[("kelpie.device", "cpu")][..], &[("kelpie.device", "simt"), ("kelpie.simt_lanes", "32")]]
    {
        let (plain, kelpie) = sessions(device).await;
        for expression in expressions {
            for column in ["s", "substr(s, 1)"] {
                let expression = expression.replace('?', column);
                let mut queries = vec![format!("SELECT id, {expression} FROM t")];
                if conditions {
                    queries.push(format!("SELECT id, s FROM t WHERE {expression}"));
                    queries.push(format!("SELECT count(*) FROM t WHERE NOT ({expression}) OR id % 7 = 0"));
                }
                for sql in queries {
                    match compare(&plain, &kelpie, &Generated { sql: sql.clone(), ordered: false }).await {
                        Outcome::Equal { compiled: true, .. } => {}
                        other => panic!("{device:?} {sql}: {other:?}"),
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns() {
    let patterns = [
        "? LIKE '%special%requests%'", "? NOT LIKE '%abc%'", "? LIKE 'a%'", "? LIKE '%c'", "? LIKE '_'",
        "? LIKE 'a_c'", "? LIKE '%\u{e9}%'", "? LIKE ''", "? LIKE '%\\%'", "? LIKE '5\\_0'",
        "? LIKE '%needle'", "? LIKE '%aaab'", "? ILIKE '%ABC%'", "? ILIKE '\u{e9}t_'", "? NOT ILIKE 'k%'",
        "? ILIKE 'strasse'", "? ILIKE '%S'",
    ];
    agree(&patterns, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn regular_expressions() {
    let expressions = [
        "? ~ 'a.*c'",
        "? ~* 'A[A-Z]C'",
        "? !~ '^a'",
        "? !~* 'b$'",
        "regexp_like(?, '[0-9]+-[0-9]+')",
        "regexp_like(?, 'STRA(SS|\u{df})E', 'i')",
        "? ~ '^$'",
        "? ~ '.'",
        "regexp_like(?, '^.$', 's')",
        "? ~ '\\s'",
        "? ~ '^\\w+$'",
        "regexp_like(?, '(?m)^break')",
        "? ~ '[^ -~]'",
        "? ~ '(xy){3}'",
        "regexp_like(?, ' a b c ', 'x')",
        "? ~ '\\.'",
        "? ~ '[0-9]{4}$'",
        "? ~ '\u{1f600}'",
        "regexp_like(?, 'x', NULL)",
    ];
    agree(&expressions, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons() {
    let expressions = [
        "? = 'abc'",
        "? <> 'abc'",
        "? < 'b'",
        "? >= '\u{e9}'",
        "? IN ('a', 'abc', '50%', '')",
        "? NOT IN ('a', '\u{e9}')",
        "substr(?, 1, 2) IN ('ab', 'th')",
        "? = o",
        "? < o",
        "? IS DISTINCT FROM o",
        "? = 'abcdefgh'",
        "? > 'abcdefgh'",
        "? BETWEEN 'a' AND 'b'",
        "character_length(?) > 5",
        "octet_length(?) <> character_length(?)",
        "coalesce(?, 'none') = 'none'",
        "CASE WHEN ? IS NULL THEN true ELSE ? LIKE 'a%' END",
        "? IS NOT NULL AND ? < 'c'",
    ];
    agree(&expressions, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_text() {
    let expressions = [
        "? || 'x'", "'<' || ? || '>' || o", "concat(?, o)", "concat(?, NULL, '-', o, '')",
        "concat_ws(', ', ?, o, 'end')", "concat_ws(o, ?, ?)", "concat_ws(NULL, ?, 'a')",
        "character_length(? || o)", "substr(? || o, 2, 3)",
    ];
    agree(&expressions, false).await;
    agree(&["? || o = 'aabc'", "(? || o) LIKE '%special%'", "concat(?, o) < 'm'"], true).await;
}

/// The heap of a stage becomes too small several times; text in the outgrown ones is still read.
#[tokio::test(flavor = "multi_thread")]
async fn heaps_grow() {
    for device in [&[("kelpie.device", "cpu")][..], &[("kelpie.device", "simt")]] {
        let (plain, kelpie) = sessions(device).await;
        for sql in [
            "SELECT sum(octet_length(a.s || b.s || 'x')), min(a.s || b.s), max(concat(b.s, a.s)) \
             FROM (SELECT s FROM t UNION ALL SELECT s FROM t) a, t b",
            "SELECT a.s || b.s || a.o || b.o FROM t a JOIN t b ON a.id % 11 = b.id % 11",
        ] {
            let query = Generated { sql: sql.into(), ordered: false };
            let outcome = compare(&plain, &kelpie, &query).await;
            assert!(matches!(outcome, Outcome::Equal { .. }), "{device:?} {sql}: {outcome:?}");
        }
        let long = ["s"; 40].join(" || ");
        for sql in [
            &format!("SELECT {long}, o FROM t"),
            &format!("SELECT max({long}), sum(octet_length({long})), min({long} || o) FROM t"),
            "SELECT min(s || o), max(concat(s, '!')) FROM t",
            "SELECT id % 5, max(s || o) FROM t GROUP BY id % 5",
        ] {
            let outcome = compare(&plain, &kelpie, &Generated { sql: sql.into(), ordered: false }).await;
            assert!(
                matches!(outcome, Outcome::Equal { compiled: true, .. }),
                "{device:?} {sql}: {outcome:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_on_dictionaries_are_computed_once_an_entry() {
    let (_, kelpie) = sessions(&[("kelpie.device", "cpu")]).await;
    let memos = async |condition: &str| {
        let sql = format!("SELECT count(*) FROM t WHERE {condition}");
        let text = kelpie.explain(&sql, Stage::Kir).await.unwrap();
        let kernel = text.lines().find(|line| line.starts_with("kernel")).unwrap_or_default();
        kernel.matches("memo_").count()
    };
    for (condition, expected) in [
        ("s LIKE '%a%b%'", 1),
        ("s LIKE 'a%' OR s ~ 'b.*c' OR s = 'c'", 1),
        ("s LIKE 'a%' AND o LIKE 'b%'", 2),
        ("substr(s, 1) LIKE 'a%'", 1),
        ("s || o LIKE 'a%'", 0),
        ("s IS NOT NULL", 0),
        ("id = 1", 0),
    ] {
        assert_eq!(memos(condition).await, expected, "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn functions() {
    let expressions = [
        "trim(?)", "ltrim(?)", "rtrim(?, 'cx')", "btrim(?, 'a\u{e9}\u{1f600}')", "trim(BOTH o FROM ?)",
        "left(?, 2)", "left(?, -2)", "right(?, 3)", "right(?, -3)", "right(?, id)", "strpos(?, 'b')",
        "position('\u{1f600}' IN ?)", "strpos(?, o)", "replace(?, 'a', 'xyz')", "replace(?, o, '-')",
        "repeat(?, 3)", "repeat(?, id - 5)", "reverse(?)", "reverse(? || o)", "lpad(?, 5, 'xy')",
        "rpad(?, 4)", "lpad(?, id, o)", "split_part(?, ' ', 2)", "split_part(?, o, 1)",
        "character_length(trim(?))", "left(?, 1) || 'x'",
    ];
    agree(&expressions, false).await;
    agree(
        &["starts_with(?, o)", "ends_with(?, o)", "contains(?, o)", "ends_with(?, 'c')", "contains(?, 'ab')"],
        true,
    )
    .await;
}

/// New text is a key like any other.
#[tokio::test(flavor = "multi_thread")]
async fn new_text_is_a_key() {
    for device in [&[("kelpie.device", "cpu")][..], &[("kelpie.device", "simt"), ("kelpie.simt_lanes", "32")]]
    {
        let (plain, kelpie) = sessions(device).await;
        let ascii = "CREATE TABLE a AS SELECT * FROM t WHERE s ~ '^[ -~]*$' AND o ~ '^[ -~]*$'";
        plain.sql(ascii).await.unwrap().collect().await.unwrap();
        kelpie.sql(ascii).await.unwrap();
        for sql in [
            "SELECT s || 'x', count(*), min(o) FROM t GROUP BY s || 'x'",
            "SELECT concat(s, o), upper(o), count(*) FROM a GROUP BY 1, 2",
            "SELECT upper(s), lower(o), max(upper(o)), min(lower(s || o)) FROM a GROUP BY 1, 2",
            "SELECT lower(x.s), upper(y.o) FROM a x JOIN a y ON upper(x.s) = upper(y.o)",
            "SELECT DISTINCT substr(s, 2) || left(o, 1) FROM t",
            "SELECT a.id, b.id FROM t a JOIN t b ON a.s || '-' = b.s || '-'",
            "SELECT a.id, b.id FROM t a JOIN t b ON substr(a.s, 1) = reverse(reverse(b.o))",
            "SELECT count(DISTINCT concat(s, id % 3 = 0)) FROM t",
            "SELECT id FROM t WHERE s || 'x' IN (SELECT o || 'x' FROM t WHERE id < 9)",
            "SELECT s || o AS k, id FROM t ORDER BY k DESC NULLS FIRST, id",
        ] {
            let ordered = sql.contains("ORDER BY");
            match compare(&plain, &kelpie, &Generated { sql: sql.into(), ordered }).await {
                Outcome::Equal { compiled: true, .. } => {}
                other => panic!("{device:?} {sql}: {other:?}"),
            }
        }
    }
}

/// Of so many rows that some wait for each other, and that workers take memory for text again and again: what is kept of a row is not
/// overwritten by what the next ones make.
#[tokio::test(flavor = "multi_thread")]
async fn new_text_of_many_rows() {
    let (plain, kelpie) = sessions(&[("kelpie.device", "cpu")]).await;
    let rows = "CREATE TABLE many AS SELECT value AS id, value * 7919 % 100003 AS n, \
                CASE WHEN value % 10 = 3 THEN NULL ELSE 'k' || reverse(CAST(value % 5000 AS varchar)) || '\u{e9}' END AS s \
                FROM generate_series(1, 300000)";
    plain.sql(rows).await.unwrap().collect().await.unwrap();
    kelpie.sql(rows).await.unwrap();
    for sql in [
        "SELECT s || '-', count(*), min(n), max(lpad(CAST(n AS varchar), 9, 'x')) FROM many GROUP BY 1",
        "SELECT CAST(n AS varchar) || reverse(s), count(*) FROM many GROUP BY 1",
        "SELECT rpad(CAST(n AS varchar), 12, 'ab'), sum(id) FROM many WHERE CAST(id AS varchar) LIKE '%7%' GROUP BY 1",
        "SELECT n % 7, count(DISTINCT upper(s) || n) FROM many GROUP BY 1",
        "SELECT count(DISTINCT replace(s, 'k', 'key')), sum(character_length(s || s)) FROM many",
        "SELECT count(*), max(a.s || b.s) FROM many a JOIN t b ON left(a.s, 2) || '!' = left(reverse(b.s), 2) || '!'",
        "SELECT substr(a.s, 1, 3) || b.id, count(*), min(a.s || b.o) FROM many a, t b \
         WHERE a.id < 4000 AND a.s || 'x' LIKE '%1%' AND a.n % 8 = b.id % 8 GROUP BY 1",
        "SELECT id, s || n FROM many WHERE s || n LIKE '%99%' ORDER BY s || n, id LIMIT 50",
        "SELECT a.id FROM many a JOIN many b ON a.s || a.n = b.s || b.n WHERE b.id % 1000 = 1",
        "SELECT CAST(id AS varchar) || ':' || CAST(n AS varchar) FROM many WHERE id % 17 = 0",
    ] {
        let ordered = sql.contains("ORDER BY");
        match compare(&plain, &kelpie, &Generated { sql: sql.into(), ordered }).await {
            Outcome::Equal { compiled: true, .. } => {}
            other => panic!("{sql}: {other:?}"),
        }
    }
}
