//! Numbers and dates.

use super::*;

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
async fn numbers_as_moments() {
    let mut expressions = Vec::new();
    for number in ["i % 1000000", "i8", "i32", "u8"] {
        for unit in ["seconds", "millis", "micros", "nanos"] {
            expressions.push(format!("to_timestamp_{unit}({number})"));
        }
    }
    expressions.push("to_timestamp_nanos(i)".into());
    expressions.push("date_trunc('minute', to_timestamp_seconds(i32))".into());
    expressions.push("extract(year from to_timestamp_millis(i32))".into());
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
