//! IN and long lists.

use super::*;

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
