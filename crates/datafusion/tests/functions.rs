//! Functions and operators that are compiled, one by one, against plain DataFusion; and that only DataFusion's own
//! implementations are taken for what their names say.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{DataType, Field, Int8Type, Schema};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udaf, create_udf};
use datafusion::physical_plan::Accumulator;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use kelpie_datafusion::testing::{Generated, Outcome, compare};
use kelpie_datafusion::{KelpieSession, SessionOptions, Stage};

fn pair(device: &[(&str, &str)]) -> (SessionContext, KelpieSession) {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let mut options = SessionOptions::default().with("kelpie.fallback", "allow");
    for (name, value) in device {
        options = options.with(*name, *value);
    }
    (plain, KelpieSession::new(options).unwrap())
}

const DEVICES: [&[(&str, &str)]; 2] =
    [&[("kelpie.device", "cpu")], &[("kelpie.device", "simt"), ("kelpie.simt_lanes", "32")]];

fn register(plain: &SessionContext, kelpie: &KelpieSession, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
    let table = Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap());
    plain.register_table(name, Arc::clone(&table) as _).unwrap();
    kelpie.context().register_table(name, table).unwrap();
}

/// Columns of many types with their extremes and NULLs.
fn numbers(plain: &SessionContext, kelpie: &KelpieSession) {
    let longs = [0, 1, -1, 7, -8, i64::MAX, i64::MIN, 1 << 40, 63, 64, 65, -65];
    let long = |step: usize| -> Vec<Option<i64>> {
        (0..36).map(|row| (row % 11 != 3).then(|| longs[row * step % longs.len()])).collect()
    };
    let (i, j) = (long(1), long(5));
    let floats = [0.0, -0.0, 1.5, -2.25, f64::NAN, -f64::NAN, f64::INFINITY, -1e300, 123.456, -0.5, 1e-300];
    let float = |step: usize| -> Vec<Option<f64>> {
        (0..36).map(|row| (row % 7 != 2).then(|| floats[row * step % floats.len()])).collect()
    };
    let (f, g) = (float(1), float(3));
    let decimal = |step: usize, precision, scale| {
        let values = (0..36).map(|row| (row % 5 != 1).then(|| ((row * step) as i128 - 50) * 98_765_431));
        Decimal128Array::from_iter(values).with_precision_and_scale(precision, scale).unwrap()
    };
    let days = (0..36).map(|row| (row % 9 != 4).then(|| row * 157 - 2000));
    register(
        plain,
        kelpie,
        "n",
        vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..36))),
            ("i", Arc::new(Int64Array::from(i.clone()))),
            ("j", Arc::new(Int64Array::from(j.clone()))),
            ("i8", Arc::new(Int8Array::from_iter(i.iter().map(|v| v.map(|v| v as i8))))),
            ("j8", Arc::new(Int8Array::from_iter(j.iter().map(|v| v.map(|v| v as i8))))),
            ("u8", Arc::new(UInt8Array::from_iter(i.iter().map(|v| v.map(|v| v as u8))))),
            ("u64", Arc::new(UInt64Array::from_iter(i.iter().map(|v| v.map(|v| v as u64))))),
            ("v64", Arc::new(UInt64Array::from_iter(j.iter().map(|v| v.map(|v| v as u64))))),
            ("i32", Arc::new(Int32Array::from_iter(i.iter().map(|v| v.map(|v| v as i32))))),
            ("f", Arc::new(Float64Array::from(f.clone()))),
            ("g", Arc::new(Float64Array::from(g))),
            ("f32", Arc::new(Float32Array::from_iter(f.iter().map(|v| v.map(|v| v as f32))))),
            ("d", Arc::new(decimal(3, 20, 4))),
            ("e", Arc::new(decimal(7, 20, 4))),
            ("day", Arc::new(Date32Array::from_iter(days.clone()))),
            (
                "b",
                Arc::new(BooleanArray::from_iter((0..36).map(|row| (row % 4 != 1).then_some(row % 3 == 0)))),
            ),
            (
                "ts",
                Arc::new(TimestampMicrosecondArray::from_iter(
                    days.map(|day| day.map(|day| i64::from(day) * 86_400_000_000 + 12_345_678)),
                )),
            ),
        ],
    );
}

/// Each expression as a result, and the number of rows in which it is not NULL, on every device.
async fn agree(table: &str, expressions: &[&str], setup: fn(&SessionContext, &KelpieSession)) {
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        setup(&plain, &kelpie);
        for expression in expressions {
            let sql = format!("SELECT id, {expression} FROM {table}");
            match compare(&plain, &kelpie, &Generated { sql: sql.clone(), ordered: false }).await {
                Outcome::Equal { compiled: true, .. } => {}
                other => panic!("{device:?} {sql}: {other:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bit_operators() {
    let mut expressions = Vec::new();
    for operator in ["&", "|", "^", "<<", ">>"] {
        for (a, b) in [
            ("i", "j"),
            ("i8", "j8"),
            ("u64", "v64"),
            ("u8", "arrow_cast(id, 'UInt8')"),
            ("i32", "arrow_cast(id, 'Int32')"),
            ("i", "3"),
            ("i8", "9"),
        ] {
            expressions.push(format!("{a} {operator} {b}"));
        }
        expressions.push(format!("i8 {operator} i"));
        expressions.push(format!("i {operator} NULL"));
        expressions.push(format!("5 {operator} j"));
    }
    let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
    agree("n", &expressions, numbers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn greatest_least_and_trunc() {
    let expressions = [
        "greatest(i, j)",
        "least(i, j, 5)",
        "greatest(f, g)",
        "least(f, g)",
        "greatest(f32, g)",
        "least(d, e)",
        "greatest(d, i)",
        "greatest(day, DATE '1970-01-01')",
        "least(ts, TIMESTAMP '1970-01-01')",
        "greatest(b, i > 0)",
        "least(b, false)",
        "greatest(i, NULL)",
        "greatest(i)",
        "least(u64, v64)",
        "greatest(i32, i8, u8)",
        "trunc(f)",
        "trunc(f32)",
        "trunc(f, 1)",
        "trunc(f32, 2)",
        "trunc(f, -2)",
        "trunc(f, 400)",
        "trunc(d)",
        "trunc(d, 2)",
        "trunc(d, -3)",
        "trunc(d, 40)",
        "trunc(i)",
        "trunc(f, NULL)",
    ];
    agree("n", &expressions, numbers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_dates() {
    let mut expressions = Vec::new();
    let parts =
        ["isoyear", "isodow", "week", "year", "dow", "doy", "quarter", "epoch", "mon", "min", "hrs", "secs"];
    for part in parts {
        for column in ["day", "ts"] {
            expressions.push(format!("date_part('{part}', {column})"));
        }
    }
    expressions.push("extract(isodow from day)".into());
    expressions.push("datepart('ISOYEAR', ts)".into());
    let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
    agree("n", &expressions, numbers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists() {
    let numbers_of = |count: i64| (0..count).map(|i| (i * 3 - 90).to_string()).collect::<Vec<_>>().join(", ");
    let words = (0..300).map(|i| format!("'{i}'")).collect::<Vec<_>>().join(", ");
    let floats = (0..50).map(|i| format!("{i}.5")).collect::<Vec<_>>().join(", ");
    let expressions = [
        format!("i IN ({})", numbers_of(1000)),
        format!("i NOT IN ({}, 64, -9223372036854775808)", numbers_of(100)),
        format!("i8 IN ({})", numbers_of(60)),
        format!(
            "u64 IN ({}, 18446744073709551615)",
            (0..70).map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
        ),
        format!("i IN ({}, NULL)", numbers_of(40)),
        format!("i IN ({}, j)", numbers_of(40)),
        format!("d IN ({}, -493827.1550)", numbers_of(40)),
        format!("cast(i AS VARCHAR) IN ({words})"),
        format!("f IN ({floats}, 'NaN'::DOUBLE, -0.0)"),
        "f IN ('NaN'::DOUBLE, 1.5, 2, 3)".into(),
        "f IN ('-NaN'::DOUBLE, 1.5, 2, 3)".into(),
        "f IN (0.0, 1.5, 2, 3)".into(),
        "f IN (-0.0, 1.5, 2, 3)".into(),
        "i IN (1, NULL)".into(),
        "i NOT IN (1, 7, NULL, 8, 9)".into(),
        format!(
            "day IN ({})",
            (10..60).map(|i| format!("DATE '1970-01-{:02}'", i % 28 + 1)).collect::<Vec<_>>().join(", ")
        ),
    ];
    let expressions: Vec<&str> = expressions.iter().map(String::as_str).collect();
    agree("n", &expressions, numbers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sign_of_a_nan_matters_to_in() {
    let table = "SELECT * FROM (VALUES (1, 1.2, 2.3), (2, 2.1, 'NaN'::double), (3, NULL, '-NaN'::double), \
                 (4, 'NaN'::double, 'NaN'::double), (5, '-NaN'::double, 6.2)) v (id, a, b)";
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        let batches = plain.sql(table).await.unwrap().collect().await.unwrap();
        let memory = Arc::new(MemTable::try_new(batches[0].schema(), vec![batches]).unwrap());
        plain.register_table("t", Arc::clone(&memory) as _).unwrap();
        kelpie.context().register_table("t", memory).unwrap();
        for list in
            ["a, a + 1, a + 2, a + 3", "a, b, 2.1, NULL", "a, a - b, a * 2, -a", "1.5, 'NaN'::double, 3, 4"]
        {
            for input in ["'NaN'::double", "'-NaN'::double", "a", "b", "-a"] {
                same(&plain, &kelpie, &format!("SELECT id FROM t WHERE {input} IN ({list})")).await;
                same(&plain, &kelpie, &format!("SELECT id, {input} NOT IN ({list}) FROM t")).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn grouping_identifiers_and_very_long_lists_are_compiled() {
    let many = (0..20_000).map(|i| (i * 7).to_string()).collect::<Vec<_>>().join(", ");
    let queries = [
        "SELECT b, i8, grouping(b), grouping(i8), grouping(b, i8), count(*) FROM n GROUP BY ROLLUP (b, i8)"
            .to_string(),
        "SELECT b, i8, sum(i) FROM n GROUP BY CUBE (b, i8) HAVING grouping(b) + grouping(i8) < 2".to_string(),
        format!("SELECT id, i FROM n WHERE i IN ({many})"),
        format!("SELECT count(*) FROM n WHERE cast(i AS VARCHAR) NOT IN ('{}')", many.replace(", ", "', '")),
    ];
    let (plain, kelpie) = pair(DEVICES[0]);
    numbers(&plain, &kelpie);
    for sql in queries {
        let shown = &sql[..sql.len().min(100)];
        match compare(&plain, &kelpie, &Generated { sql: sql.clone(), ordered: false }).await {
            Outcome::Equal { compiled: true, .. } => {}
            other => panic!("{shown}: {other:?}"),
        }
    }
}

/// What a query gives on both, or that both fail.
async fn same(plain: &SessionContext, kelpie: &KelpieSession, sql: &str) {
    let query = Generated { sql: sql.into(), ordered: false };
    match compare(plain, kelpie, &query).await {
        Outcome::Equal { .. } | Outcome::BothFailed(_) => {}
        other => panic!("{sql}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lowest_integer_is_negated_alike() {
    let (plain, kelpie) = pair(DEVICES[0]);
    numbers(&plain, &kelpie);
    for sql in [
        "SELECT -i FROM n",
        "SELECT -(SELECT min(i) FROM n) FROM n",
        "SELECT -(SELECT max(i) FROM n) FROM n",
        "SELECT - (SELECT min(i8) FROM n), count(*) FROM n",
        "SELECT -min(i) FROM n",
    ] {
        same(&plain, &kelpie, sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operands_of_different_scale_are_left_to_datafusion() {
    for device in DEVICES {
        let (plain, kelpie) = pair(device);
        numbers(&plain, &kelpie);
        for expression in [
            "CASE WHEN id = 7 THEN round(d, 1) ELSE d END",
            "CASE WHEN id = 7 THEN d ELSE round(d, 1) END",
            "CASE id WHEN 7 THEN round(d, 1) ELSE e END",
            "coalesce(round(d, 1), e)",
            "nullif(round(d, 1), e)",
            "greatest(round(d, 1), e)",
            "round(d, 1) IN (1.5, e, 2, 3)",
            "CASE round(d, 1) WHEN d THEN 1 ELSE 2 END",
        ] {
            same(&plain, &kelpie, &format!("SELECT id, {expression} FROM n")).await;
            same(&plain, &kelpie, &format!("SELECT {expression} k, count(*) FROM n GROUP BY 1")).await;
        }
    }
}

fn words(plain: &SessionContext, kelpie: &KelpieSession) {
    let words = [Some("a.b.c"), None, Some(""), Some("..."), Some("x"), Some("\u{e9}.z"), Some("aaa")];
    let word = |step: usize| StringArray::from_iter((0..21).map(|row| words[row * step % words.len()]));
    register(
        plain,
        kelpie,
        "w",
        vec![
            ("id", Arc::new(Int64Array::from_iter_values(0..21))),
            ("s", Arc::new(word(1))),
            ("o", Arc::new(word(2))),
            ("p", Arc::new(Int64Array::from_iter((0..21).map(|row| (row % 5 != 2).then_some(row % 4 + 1))))),
            (
                "q",
                Arc::new(Int64Array::from_iter((0..21).map(|row| (row % 5 != 2).then_some(-(row % 4) - 1)))),
            ),
            ("z", Arc::new(Int64Array::from_iter((0..21).map(|row| Some(row - 10))))),
            ("none", Arc::new(StringArray::new_null(21))),
        ],
    );
}

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
        "1",
        "-2.5",
        " 3e2 ",
        "x",
        "",
        "inf",
        "-Infinity",
        "nan",
        "+.5",
        "5.",
        "1e-300",
        "0.30000000000000004",
        "123456789.125",
        "-0",
        "1e400",
        "1_0",
        "-NaN",
        "16777217",
        "e",
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

/// Adds all values and a thousand.
#[derive(Debug, Default)]
struct Thousand(i64);

impl Accumulator for Thousand {
    fn update_batch(&mut self, values: &[ArrayRef]) -> datafusion::error::Result<()> {
        self.0 += values[0].len() as i64;
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> datafusion::error::Result<()> {
        let counts = states[0].as_any().downcast_ref::<Int64Array>().unwrap();
        self.0 += counts.iter().flatten().sum::<i64>();
        Ok(())
    }
    fn evaluate(&mut self) -> datafusion::error::Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.0 + 1000)))
    }
    fn state(&mut self) -> datafusion::error::Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Int64(Some(self.0))])
    }
    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_own_functions_are_not_datafusions() {
    let (plain, kelpie) = pair(DEVICES[0]);
    words(&plain, &kelpie);
    for context in [&plain, kelpie.context()] {
        let text = |arguments: &[ColumnarValue]| Ok(arguments[0].clone());
        context.register_udf(create_udf(
            "split_part",
            vec![DataType::Utf8, DataType::Utf8, DataType::Int64],
            DataType::Utf8,
            Volatility::Immutable,
            Arc::new(text),
        ));
        for name in ["upper", "lower", "reverse"] {
            let arguments = vec![DataType::Utf8];
            context.register_udf(create_udf(
                name,
                arguments,
                DataType::Utf8,
                Volatility::Immutable,
                Arc::new(text),
            ));
        }
        for name in ["avg", "sum", "count", "bit_and"] {
            context.register_udaf(create_udaf(
                name,
                vec![DataType::Int64],
                Arc::new(DataType::Int64),
                Volatility::Immutable,
                Arc::new(|_| Ok(Box::new(Thousand::default()))),
                Arc::new(vec![DataType::Int64]),
            ));
        }
    }
    for (call, name) in [
        ("upper(s)", "upper"),
        ("lower(s)", "lower"),
        ("reverse(s)", "reverse"),
        ("split_part(s, '.', 1)", "split_part"),
        ("avg(z)", "avg"),
        ("sum(z)", "sum"),
        ("count(z)", "count"),
        ("bit_and(z)", "bit_and"),
    ] {
        let sql = format!("SELECT {call} FROM w");
        let query = Generated { sql: sql.clone(), ordered: false };
        match compare(&plain, &kelpie, &query).await {
            Outcome::Equal { compiled: false, reasons } => {
                let wanted = format!("{name} is the session's own");
                assert!(reasons.iter().any(|reason| reason.contains(&wanted)), "{sql}: {reasons:?}");
            }
            other => panic!("{sql}: {other:?}"),
        }
        let plan = kelpie.explain(&sql, Stage::Plan).await.unwrap();
        assert!(plan.contains("the session's own"), "{plan}");
    }
    // Others of DataFusion's are still taken, also by their aliases.
    let result =
        kelpie.sql("SELECT max(z), stddev_samp(z), bit_or(z), char_length(max(s)) FROM w").await.unwrap();
    assert!(result.timing.compiled, "{:?}", result.timing);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_whatever_the_columns_are() {
    let folder = tempfile::TempDir::new().unwrap();
    let lists = ListArray::from_iter_primitive::<Int8Type, _, _>((0..5).map(|i| Some(vec![Some(i)])));
    let batches = [
        ("only.arrow", vec![("list", Arc::new(lists.clone()) as ArrayRef)]),
        (
            "first.arrow",
            vec![("list", Arc::new(lists) as ArrayRef), ("a", Arc::new(Int64Array::from_iter_values(0..5)))],
        ),
        ("time.arrow", vec![("time", Arc::new(Time64NanosecondArray::from_iter_values(0..7)) as ArrayRef)]),
        ("null.arrow", vec![("null", Arc::new(NullArray::new(3)) as ArrayRef)]),
    ];
    let (plain, kelpie) = pair(DEVICES[0]);
    for (file, columns) in batches {
        let fields: Vec<Field> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        let path = folder.path().join(file);
        let mut writer = FileWriter::try_new(std::fs::File::create(&path).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let name = file.trim_end_matches(".arrow");
        kelpie.register_path(name, &path).await.unwrap();
        let options = datafusion::execution::options::ArrowReadOptions::default();
        plain.register_arrow(name, path.to_str().unwrap(), options).await.unwrap();
    }
    for name in ["only", "first", "time", "null"] {
        for sql in [
            format!("SELECT count(*) FROM {name}"),
            format!("SELECT 1 FROM {name}"),
            format!("SELECT count(*) FROM {name} a, {name} b"),
        ] {
            same(&plain, &kelpie, &sql).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_of_dictionaries_runs_on_datafusions_operators() {
    let values = StringArray::from(vec!["a", "b", "c"]);
    let inner =
        DictionaryArray::<Int8Type>::try_new(Int8Array::from(vec![2, 1, 0]), Arc::new(values)).unwrap();
    let keys = Int8Array::from(vec![Some(0), None, Some(2), Some(0)]);
    let outer = DictionaryArray::<Int8Type>::try_new(keys, Arc::new(inner)).unwrap();
    let (plain, kelpie) = pair(DEVICES[0]);
    let columns = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..4)) as ArrayRef),
        ("d", Arc::new(outer) as ArrayRef),
    ];
    register(&plain, &kelpie, "t", columns);
    let result = kelpie.sql("SELECT d FROM t WHERE id > 0").await.unwrap();
    assert!(!result.timing.compiled);
    assert!(result.timing.reasons.iter().any(|reason| reason.contains("Dictionary")), "{:?}", result.timing);
    assert_eq!(result.rows(), 3);
    same(&plain, &kelpie, "SELECT count(*), max(id) FROM t").await;
}
