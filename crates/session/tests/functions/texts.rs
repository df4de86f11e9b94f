//! Texts.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn text_functions_take_columns() {
    let expressions = [
        "split_part(s, '.', p)",
        "split_part(s, '.', -1)",
        "split_part(s, '.', -2)",
        "split_part(s, '.', q)",
        "split_part(s, 'aa', -2)",
        "split_part(s, '', -1)",
        "split_part(s, '', -2)",
        "split_part(s, o, 1)",
        "split_part(s, o, q)",
        "split_part(s, '.', -9223372036854775808)",
        "substr(s, z, p)",
        "left(s, z)",
        "right(s, z)",
        "lpad(s, p, o)",
        "rpad(s, p, o)",
        "repeat(s, z)",
        "replace(s, o, 'X')",
        "replace(s, '.', o)",
        "strpos(s, o)",
        "starts_with(s, o)",
        "btrim(s, o)",
    ];
    agree("w", &expressions, words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_of_number_zero_is_an_error() {
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        words(&plain, &kelpie);
        for sql in [
            "SELECT split_part(none, '.', 0) FROM w",
            "SELECT split_part(s, '.', 0) FROM w",
            "SELECT split_part(NULL, '.', 0)",
            "SELECT split_part(s, NULL, 0) FROM w",
            "SELECT split_part(s, '.', 0) FROM w WHERE id > 100",
            "SELECT split_part(s, '.', z) FROM w",
            "SELECT split_part(none, '.', z) FROM w",
        ] {
            same(&plain, &kelpie, sql).await;
        }
    }
}

/// Texts with letters of many alphabets, and texts that are numbers or nearly.
fn letters(plain: &SessionContext, kelpie: &KelpieSession) {
    let words = [
        "",
        "hi THOMAS, 2nd",
        "\u{e9}t\u{e9} CAF\u{c9}-bar_baz",
        "stra\u{df}e",
        "\u{130}stanbul \u{131}",
        "\u{fb03}x \u{1c4}\u{1c5}\u{1c6}",
        "\u{39f}\u{394}\u{39f}\u{3a3} \u{3a3}",
        "a\u{3a3}.b a\u{3a3}. b a\u{301}\u{3a3}\u{301}",
        "\u{1f600}\u{1d400}a\u{10400}\u{10428}",
        "\u{4e2d}\u{6587}abc\u{5b57}x",
        "\u{212a}elvin",
    ];
    let numbers = [
        "1", "-2.5", " 3e2 ", "x", "", "inf", "-Infinity", "nan", "+.5", "5.", "1e-300",
        "0.30000000000000004", "123456789.125", "-0", "1e400", "1_0", "-NaN", "16777217", "e",
    ];
    let rows = 40;
    let column = |list: &'static [&'static str], step: usize| {
        StringArray::from_iter((0..rows).map(|row| (row % 13 != 5).then(|| list[row * step % list.len()])))
    };
    // Leaked, as a test's few texts may be.
    let (words, numbers): (&'static [&str], &'static [&str]) =
        (Box::leak(Box::new(words)), Box::leak(Box::new(numbers)));
    register(
        plain,
        kelpie,
        "l",
        vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..rows as i64))),
            ("s", Arc::new(column(words, 1))),
            ("o", Arc::new(column(words, 3))),
            ("f", Arc::new(column(numbers, 1))),
            ("plain", Arc::new(column(&["1.5", "-2", "1e3", "0.1", "123.456"], 1))),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_beyond_ascii() {
    let expressions = [
        "upper(s)",
        "lower(s)",
        "initcap(s)",
        "lower(upper(s))",
        "upper(substr(s, 2))",
        "upper(s) || lower(o)",
        "CASE WHEN id % 2 = 0 THEN upper(s) ELSE o END",
        "CASE WHEN id % 2 = 0 THEN upper(s) ELSE lower(o) END",
        "CASE WHEN id % 3 = 0 THEN concat(s, 'x') WHEN id % 3 = 1 THEN upper(s) ELSE lower(o) END",
        "coalesce(upper(s), o)",
        "upper(s) = upper(o)",
        "upper(s) < lower(o)",
        "length(upper(s))",
        "upper(s) LIKE '%SS%'",
        "strpos(lower(s), '\u{3c3}')",
        "translate(s, 'a\u{e9}\u{3a3}', 'xy')",
        "translate(s, 'abc', '\u{1f600}')",
        "translate(s, 'ab', 'xy')",
        "translate(s, 'aba', 'xyz')",
        "translate(upper(s), 'ABC', 'cab!')",
        "translate(translate(s, 'ab', 'ba'), 'abc', '')",
        "length(translate(s, 'e', 'f'))",
        "translate(s, '', '') = s",
        "initcap(lower(s))",
    ];
    agree("l", &expressions, letters).await;
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        letters(&plain, &kelpie);
        for sql in [
            "SELECT upper(s) u, count(*), min(lower(o)), max(initcap(o)) FROM l GROUP BY 1",
            "SELECT count(DISTINCT lower(s)) FROM l",
            "SELECT lower(s) FROM l WHERE upper(o) LIKE '%A%' ORDER BY 1",
            "SELECT a.id FROM l a JOIN l b ON upper(a.s) = upper(b.o)",
        ] {
            let query = Generated { sql: sql.into(), ordered: false };
            match compare(&plain, &kelpie, &query).await {
                Outcome::Equal { compiled: true, .. } => {}
                other => panic!("{device:?} {sql}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn floats_from_text() {
    agree("l", &["cast(plain AS DOUBLE)", "cast(plain AS FLOAT)", "try_cast(plain AS DOUBLE) * 2"], letters)
        .await;
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        letters(&plain, &kelpie);
        for sql in [
            "SELECT id, try_cast(f AS DOUBLE) FROM l",
            "SELECT id, try_cast(f AS FLOAT) FROM l",
            "SELECT cast(f AS DOUBLE) FROM l",
            "SELECT sum(cast(f AS DOUBLE)) FROM l WHERE f IN ('1', '-2.5', '5.', ' 3e2 ')",
            "SELECT try_cast(f AS DOUBLE) IN ('NaN'::DOUBLE, 1, 2, 3) FROM l",
        ] {
            same(&plain, &kelpie, sql).await;
        }
    }
}
