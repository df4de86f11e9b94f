//! Text as it is: comparison, patterns, functions, keys.

use super::Script;

const WORDS: [&str; 14] = [
    "''",
    "'a'",
    "'A'",
    "'ab'",
    "'abc'",
    "'b'",
    "'100%'",
    "'under_score'",
    "'naïve'",
    "'日本語'",
    "'straße'",
    "'exactly 12 b'",
    "'a longer text that no view keeps inline'",
    "'a longer text that no view keeps inline either'",
];

pub fn script() -> Script {
    let mut script = Script::new(
        "strings",
        "Text: comparisons, patterns, functions; kept as offsets, views and dictionary.",
    );
    let rows: Vec<String> = WORDS.iter().enumerate().map(|(i, w)| format!("{i}, {w}")).collect();
    let rows = [rows, vec!["14, NULL".into(), "15, 'abc'".into()]].concat();
    script.table("views", "n INT NOT NULL, s VARCHAR", &rows);
    script.statement("CREATE TABLE offsets AS SELECT n, arrow_cast(s, 'Utf8') AS s FROM views");
    script.statement(
        "CREATE TABLE dictionary AS SELECT n, arrow_cast(s, 'Dictionary(Int32, Utf8)') AS s FROM views",
    );
    for table in ["views", "offsets", "dictionary"] {
        script.comment(format!("{table}."));
        for pattern in [
            "a%", "%a", "%b%", "_b_", "", "%", "a_c", "%語", "_本%", "100\\%", "%\\_%", "na_ve",
            "%longer%inline", "%i%e%",
        ] {
            script.query(format!("SELECT n FROM {table} WHERE s LIKE '{pattern}'"));
            script.query(format!("SELECT n FROM {table} WHERE s NOT LIKE '{pattern}'"));
        }
        for condition in [
            "s = 'abc'",
            "s <> 'abc'",
            "s < 'ab'",
            "s >= 'b'",
            "s BETWEEN 'a' AND 'b'",
            "s IN ('a', '日本語', 'nowhere')",
            "s NOT IN ('a', '', 'straße')",
            "s IN ('a', NULL)",
            "s ILIKE 'A%'",
            "s = ''",
            "s IS NULL",
            "character_length(s) = 3",
            "octet_length(s) > 6",
            "substr(s, 2, 2) = 'bc'",
            "upper(s) = 'ABC'",
            "starts_with(s, 'a longer')",
            "s || 'x' = 'abx'",
            "s ~ '^a'",
            "s ~ 'b.$|_'",
            "s !~ '[aeiou]'",
            "regexp_like(s, '^[a-c]+$')",
        ] {
            script.query(format!("SELECT n FROM {table} WHERE {condition}"));
        }
        for value in [
            "upper(s)",
            "lower(s)",
            "substr(s, 2)",
            "substr(s, 2, 3)",
            "substr(s, 0, 2)",
            "substr(s, -1, 4)",
            "character_length(s)",
            "octet_length(s)",
            "s || '!'",
            "concat(s, '-', n)",
            "CASE WHEN s LIKE 'a%' THEN s ELSE 'other' END",
            "coalesce(s, 'none')",
            "nullif(s, 'abc')",
            "trim(s)",
            "replace(s, 'a', 'o')",
        ] {
            script.query(format!("SELECT n, {value} FROM {table}"));
        }
        script.query(format!("SELECT s, count(*) FROM {table} GROUP BY s"));
        script.query(format!("SELECT substr(s, 1, 1), count(*), min(s), max(s) FROM {table} GROUP BY 1"));
        script.query(format!("SELECT count(DISTINCT s), min(s), max(s) FROM {table}"));
        script.ordered(format!("SELECT s, n FROM {table} ORDER BY s, n DESC"));
        script.ordered(format!("SELECT s, n FROM {table} ORDER BY s DESC NULLS LAST, n LIMIT 5"));
        script.query(format!("SELECT a.n, b.n FROM {table} a JOIN {table} b ON a.s = b.s AND a.n < b.n"));
        script.query(format!("SELECT a.n, b.n FROM {table} a JOIN views b ON a.s = b.s WHERE a.n > 9"));
        script.query(format!(
            "SELECT a.n, b.n FROM {table} a JOIN offsets b ON upper(a.s) = upper(b.s) WHERE a.n < 6"
        ));
        script.query(format!(
            "SELECT a.n, b.n FROM {table} a JOIN dictionary b ON a.s < b.s WHERE b.n IN (1, 9)"
        ));
        script.query(format!("SELECT n FROM {table} WHERE s IN (SELECT s FROM offsets WHERE n > 11)"));
        script.query(format!("SELECT n FROM {table} WHERE s NOT IN (SELECT s FROM dictionary WHERE n < 12)"));
        script.query(format!("SELECT s FROM {table} INTERSECT SELECT s FROM views WHERE n > 12"));
        script.query(format!("SELECT s FROM {table} EXCEPT SELECT s FROM offsets WHERE n > 3"));
    }
    script
}
