//! Expressions that Kelpie does not compile are columns of the table that they read: DataFusion's values, at any number of
//! partitions, computed once, and only where that is right.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::arrow::array::{
    ArrayRef, AsArray, DictionaryArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray,
    StructArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::{DataFusionError, exec_err};
use datafusion::datasource::MemTable;
use datafusion::logical_expr::{ColumnarValue, ScalarUDF, Volatility, create_udf};
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::testing::uncompiled_reasons;
use kelpie_session::{KelpieOptions, KelpieSession, SessionOptions};

const ROWS: i64 = 3_000;

/// `t(id, url, moment, d, s, l, x)`: texts with NULLs, seconds before and after 1970, a dictionary, a struct, a list, floats
/// with NaN and -0.0.
fn table() -> Arc<MemTable> {
    let every = |n: i64, row: i64| row % n == 0;
    let urls = (0..ROWS).map(|row| match every(11, row) {
        true => None,
        false => Some(format!("http://www.sité{}.com/päth/{}?q={row}", row % 17, row % 5)),
    });
    let names =
        (0..ROWS).map(|row| (!every(7, row)).then_some(["alpha", "beta", "", "ünï"][row as usize % 4]));
    let moments = (0..ROWS).map(|row| (!every(13, row)).then_some((row - 1_500) * 37));
    let floats = (0..ROWS).map(|row| match row % 5 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(-0.0),
        _ => Some(row as f64 / 3.0),
    });
    let dictionary: DictionaryArray<Int32Type> = names.clone().collect();
    let inner = [
        ("a", Arc::new(names.collect::<StringArray>()) as ArrayRef),
        ("b", Arc::new((0..ROWS).map(|row| row % 9).collect::<Int64Array>()) as ArrayRef),
    ];
    let inner = inner
        .into_iter()
        .map(|(name, array)| (Arc::new(Field::new(name, array.data_type().clone(), true)), array));
    let lists = (0..ROWS)
        .map(|row| (!every(10, row)).then(|| (0..row % 4).map(|i| Some(row % 6 + i)).collect::<Vec<_>>()));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new((0..ROWS).collect::<Int64Array>())),
        ("url", Arc::new(urls.collect::<StringArray>())),
        ("moment", Arc::new(moments.collect::<Int64Array>())),
        ("d", Arc::new(dictionary)),
        ("s", Arc::new(StructArray::from(inner.collect::<Vec<_>>()))),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ("x", Arc::new(floats.collect::<Float64Array>())),
    ];
    of_columns(columns, 700)
}

fn of_columns(columns: Vec<(&str, ArrayRef)>, rows_of_a_batch: usize) -> Arc<MemTable> {
    let columns = columns.into_iter().map(|(name, array)| (name, array, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let parts = (0..batch.num_rows()).step_by(rows_of_a_batch);
    let parts = parts.map(|start| batch.slice(start, rows_of_a_batch.min(batch.num_rows() - start)));
    Arc::new(MemTable::try_new(batch.schema(), vec![parts.collect()]).unwrap())
}

struct Pair {
    plain: SessionContext,
    kelpie: KelpieSession,
}

impl Pair {
    fn new(partitions: usize) -> Pair {
        let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
        let options = SessionOptions::default()
            .with("kelpie.device", "cpu")
            .with("kelpie.corrections", "false")
            .with("kelpie.fallback", "allow")
            .with("datafusion.execution.target_partitions", partitions.to_string());
        let pair = Pair { plain, kelpie: KelpieSession::new(options).unwrap() };
        pair.add("t", table());
        let codes: Vec<(&str, ArrayRef)> = vec![
            ("k", Arc::new(Int64Array::from(vec![0, 1, 2, 3, 4, 5]))),
            (
                "name",
                Arc::new(StringArray::from(vec![
                    Some("zero"),
                    Some("one"),
                    None,
                    Some(""),
                    Some("4"),
                    Some("5"),
                ])),
            ),
        ];
        pair.add("u", of_columns(codes, 6));
        pair
    }

    fn add(&self, name: &str, table: Arc<MemTable>) {
        self.plain.register_table(name, Arc::clone(&table) as _).unwrap();
        self.kelpie.context().register_table(name, table).unwrap();
    }

    fn add_function(&self, function: &ScalarUDF) {
        self.plain.register_udf(function.clone());
        self.kelpie.context().register_udf(function.clone());
    }

    /// The rows of both, and why something ran on DataFusion's operators.
    async fn run(&self, sql: &str) -> (Vec<String>, Vec<String>) {
        let expected = self.plain.sql(sql).await.unwrap().collect().await.unwrap();
        let found = self.kelpie.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let expected = rows(&expected);
        assert!(!expected.is_empty(), "{sql}: no rows prove nothing");
        assert_eq!(rows(&found.batches), expected, "{sql}");
        (expected, found.timing.reasons)
    }

    /// Both give the same, and all of it is compiled.
    async fn compiled(&self, sql: &str) {
        let (_, reasons) = self.run(sql).await;
        assert!(reasons.is_empty(), "{sql}: {reasons:#?}");
    }

    /// Both give the same, and this is among the reasons why not all of it is compiled.
    async fn refused(&self, sql: &str, reason: &str) {
        let (_, reasons) = self.run(sql).await;
        assert!(reasons.iter().any(|found| found.contains(reason)), "{sql}: {reasons:#?}");
    }

    async fn explain(&self, sql: &str) -> String {
        let shown = self.kelpie.sql(&format!("EXPLAIN {sql}")).await.unwrap();
        pretty_format_batches(&shown.batches).unwrap().to_string()
    }
}

/// Every row as text, sorted.
fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let shown = pretty_format_batches(batches).unwrap().to_string();
    let mut rows: Vec<String> =
        shown.lines().skip(3).filter(|line| !line.starts_with('+')).map(Into::into).collect();
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_arguments_and_conditions_are_columns() {
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        for sql in [
            "SELECT regexp_replace(url, '^http://(?:www\\.)?([^/]+)/.*$', '\\1') k, count(*), sum(id) FROM t GROUP BY 1",
            "SELECT date_bin(interval '7 minutes', to_timestamp_seconds(moment)) m, count(*) FROM t GROUP BY m",
            "SELECT date_trunc('minute', to_timestamp_seconds(moment / 2.0)) m, count(*) FROM t GROUP BY m",
            "SELECT max(translate(url, 'abc', 'xyz')), min(length(regexp_replace(url, 'p.*', ''))) AS least FROM t",
            "SELECT count(*) FROM t WHERE regexp_replace(url, '[0-9]', '', 'g') LIKE '%?q='",
            "SELECT count(*), sum(id) FROM t WHERE to_hex(id) > 'a' AND id % 3 = 1",
            "SELECT id FROM t WHERE id % 2 <> 1 ORDER BY md5(url), id",
            "SELECT sum(id) FILTER (WHERE to_hex(id % 20) = 'f') FROM t",
            "SELECT upper(regexp_replace(url, '(.).*', '\\1')) || '!' k, count(*) FROM t GROUP BY 1",
            "SELECT count(DISTINCT md5(url)) FROM t",
            "SELECT md5(d) k, count(*), count(k2) FROM (SELECT d, to_hex(id % 2) k2 FROM t) GROUP BY 1",
            "SELECT count(*) FROM t WHERE isnan(x) OR signum(x) > 0.5",
        ] {
            pair.compiled(sql).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_nested_values_are_columns() {
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        for sql in [
            "SELECT s['a'] k, count(*), sum(s['b']) FROM t GROUP BY 1",
            "SELECT l[1] k, count(*) FROM t GROUP BY 1",
            "SELECT count(*), sum(id) FROM t WHERE array_length(l) = 2",
            "SELECT count(*) FROM t WHERE s['b'] > 4 AND id < 2000",
            "SELECT sum(id) FROM t WHERE l IS NULL",
        ] {
            pair.compiled(sql).await;
        }
        // The rows that reach the result are DataFusion's.
        pair.run("SELECT id, s, l FROM t WHERE id < 30").await;
        pair.run("SELECT s, count(*) FROM t GROUP BY s").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_hand_them_up() {
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        for sql in [
            "SELECT regexp_replace(url, 'p.*', '') k, name, count(*) FROM t JOIN u ON id % 6 = k GROUP BY 1, 2",
            "SELECT to_hex(k) h, sum(id) FROM t JOIN u ON id % 6 = k GROUP BY 1",
            "SELECT count(*) FROM t JOIN u ON md5(url) = md5(name) OR id = k",
            "SELECT md5(name) m, count(*) FROM t LEFT JOIN u ON id = k GROUP BY 1",
            "SELECT md5(url) m, count(name) c FROM t LEFT JOIN u ON id % 8 = k AND name <> '' GROUP BY 1 HAVING count(*) > 0",
            "SELECT regexp_replace(url, '.*q=', '') q, sum(id) FROM t WHERE id % 8 IN (SELECT k FROM u WHERE name <> '') GROUP BY 1",
            "SELECT count(*) FROM t a JOIN t b ON md5(a.url) = md5(b.url) AND a.id <= b.id",
        ] {
            pair.run(sql).await;
        }
        pair.compiled("SELECT to_hex(k) h, sum(id) FROM t JOIN u ON id % 6 = k GROUP BY 1").await;
        pair.compiled("SELECT md5(name) m, count(*) FROM t LEFT JOIN u ON id = k GROUP BY 1").await;
        let joined = "SELECT count(*) FROM t a JOIN t b ON md5(a.url) = md5(b.url) AND a.id <= b.id";
        pair.compiled(joined).await;
        // NULL becomes a value, which the rows that the join fills do not have below it.
        let filled = "SELECT coalesce(md5(name), to_hex(coalesce(k, 77))) m, count(*) FROM t LEFT JOIN u ON id = k GROUP BY 1";
        pair.run(filled).await;
    }
}

/// A function that counts the rows that it is called for.
fn counting(name: &str, volatility: Volatility, calls: Arc<AtomicUsize>) -> ScalarUDF {
    let function = move |arguments: &[ColumnarValue]| {
        let values = ColumnarValue::values_to_arrays(arguments)?;
        let Some(values) = values.first().and_then(|values| values.as_primitive_opt::<Int64Type>()) else {
            return exec_err!("an integer is expected");
        };
        calls.fetch_add(values.len(), Ordering::Relaxed);
        let doubled: Int64Array = values.iter().map(|value| value.map(|value| value * 2 % 10)).collect();
        Ok(ColumnarValue::Array(Arc::new(doubled)))
    };
    create_udf(name, vec![DataType::Int64], DataType::Int64, volatility, Arc::new(function))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_function_is_called_once_a_row_and_not_again() {
    let pair = Pair::new(1);
    let calls = Arc::new(AtomicUsize::new(0));
    let function = counting("doubled", Volatility::Immutable, Arc::clone(&calls));
    pair.kelpie.context().register_udf(function.clone());
    let sql = "SELECT doubled(id) k, count(*) FROM t GROUP BY 1";
    for _ in 0..3 {
        assert_eq!(pair.kelpie.sql(sql).await.unwrap().rows(), 5);
        assert_eq!(calls.load(Ordering::Relaxed), ROWS as usize);
    }
    pair.plain.register_udf(function);
    pair.compiled(sql).await;
    // Another function of the same name is another column.
    let other = Arc::new(AtomicUsize::new(0));
    pair.kelpie.context().register_udf(counting("doubled", Volatility::Immutable, Arc::clone(&other)));
    pair.compiled(sql).await;
    assert_eq!(other.load(Ordering::Relaxed), ROWS as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_differs_from_call_to_call_is_left_to_datafusion() {
    let pair = Pair::new(1);
    for (name, volatility, reason) in [
        ("now_and_then", Volatility::Volatile, "is volatile"),
        ("today", Volatility::Stable, "differs from query to query"),
    ] {
        pair.add_function(&counting(name, volatility, Arc::default()));
        pair.refused(&format!("SELECT {name}(id) k, count(*) FROM t GROUP BY 1"), reason).await;
    }
    // The value of now() is no part of a column that is kept.
    let shown = pair.explain("SELECT count(*) FROM t WHERE date_bin(interval '7 seconds', to_timestamp_seconds(moment), now()) < now()").await;
    assert!(shown.contains("for this query only"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_that_fails_on_rows_that_are_filtered_out_does_not_fail_the_query() {
    let fails_on_five = |calls: Arc<AtomicUsize>| {
        let function = move |arguments: &[ColumnarValue]| {
            calls.fetch_add(1, Ordering::Relaxed);
            let values = ColumnarValue::values_to_arrays(arguments)?;
            let values = values[0].as_primitive::<Int64Type>();
            match values.iter().any(|value| value == Some(5)) {
                true => exec_err!("five is not a number"),
                false => Ok(ColumnarValue::Array(Arc::new(values.clone()))),
            }
        };
        create_udf(
            "choosy",
            vec![DataType::Int64],
            DataType::Int64,
            Volatility::Immutable,
            Arc::new(function),
        )
    };
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        let calls = Arc::new(AtomicUsize::new(0));
        pair.add_function(&fails_on_five(Arc::clone(&calls)));
        let sql = "SELECT choosy(id) % 3 k, count(*) FROM t WHERE id <> 5 GROUP BY 1";
        let (_, reasons) = pair.run(sql).await;
        // What the rule found when it planned, and what happened: nobody has asked the rule again.
        assert_eq!(reasons.len(), 1, "{reasons:#?}");
        assert!(reasons[0].contains("computed for every row, fails: Execution error: five is not a number"));
        // It is known now: DataFusion's operators are planned at once.
        let shown = pair.explain(sql).await;
        assert!(shown.contains("computed for every row, it fails") && !shown.contains("derived:"), "{shown}");
        pair.refused(sql, "computed for every row, it fails").await;
        // Where it is computed for few rows only, it fails on none of the others.
        pair.compiled("SELECT choosy(id) % 3 k, count(*) FROM t WHERE id BETWEEN 2900 AND 2950 GROUP BY 1")
            .await;
        // Where the row is asked for, the error is DataFusion's.
        let sql = "SELECT choosy(id) % 3 k, count(*) FROM t GROUP BY 1";
        let error = pair.kelpie.sql(sql).await.unwrap_err();
        let shown = error.to_string();
        assert!(matches!(error.find_root(), DataFusionError::Execution(_)), "{shown}");
        assert!(shown.contains("five is not a number"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_few_rows_need_is_computed_for_those_and_kept_for_them() {
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        let calls = Arc::new(AtomicUsize::new(0));
        pair.kelpie.context().register_udf(counting("doubled", Volatility::Immutable, Arc::clone(&calls)));
        pair.plain.register_udf(counting("doubled", Volatility::Immutable, Arc::default()));
        let sql = "SELECT doubled(id) k, count(*), sum(x) FROM t WHERE id BETWEEN 100 AND 199 GROUP BY 1";
        for _ in 0..2 {
            pair.compiled(sql).await;
            assert_eq!(calls.load(Ordering::Relaxed), 100, "{partitions} partitions");
        }
        let shown = pair.explain(sql).await;
        let line = "derived: doubled(id@0) of memory where id@0 >= 100 AND id@0 <= 199";
        assert!(shown.contains(line) && !shown.contains("for this query only"), "{shown}");
        pair.compiled(&sql.replace("199", "149")).await;
        assert_eq!(calls.load(Ordering::Relaxed), 150, "rows of other conditions are others");
        // Columns of all rows are others, and neither is taken for the other.
        for sql in [
            "SELECT doubled(id) k, count(*) FROM t GROUP BY 1",
            sql,
            "SELECT sum(x), count(*), sum(id) FROM t",
            "SELECT doubled(a.id) k, count(*) FROM t a JOIN t b ON a.id = b.id % 70 WHERE a.id BETWEEN 1 AND 50 GROUP BY 1",
            "SELECT doubled(id) k FROM t WHERE id = 9 UNION ALL SELECT doubled(id) FROM t WHERE id = 2990",
        ] {
            pair.run(sql).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_several_parts_of_the_rows_need_is_computed_for_all() {
    let pair = Pair::new(2);
    let calls = Arc::new(AtomicUsize::new(0));
    pair.kelpie.context().register_udf(counting("tripled", Volatility::Immutable, Arc::clone(&calls)));
    pair.plain.register_udf(counting("tripled", Volatility::Immutable, Arc::default()));
    let part =
        |rows: usize| format!("SELECT tripled(id) k, count(*), sum(x) FROM t WHERE id < {rows} GROUP BY 1");
    for _ in 0..4 {
        pair.compiled(&part(1100)).await;
        assert_eq!(calls.load(Ordering::Relaxed), 1100, "a part is kept");
    }
    pair.compiled(&part(1000)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2100);
    // Nobody knows which parts come.
    for rows in [1200, 900, 1200] {
        pair.compiled(&part(rows)).await;
        assert_eq!(calls.load(Ordering::Relaxed), 2100 + ROWS as usize, "it is computed for all");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_that_leave_few_rows_are_followed_down_to_the_table() {
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        for sql in [
            "SELECT md5(url) k, count(*) FROM t WHERE id = 30 GROUP BY 1",
            "SELECT md5(u2) k, count(*) FROM (SELECT id + 1 i, url || '!' u2 FROM t) WHERE i BETWEEN 20 AND 40 GROUP BY 1",
            "SELECT md5(url) k, count(*) FROM t WHERE id BETWEEN 0 AND 90 AND to_hex(id) LIKE '%f' GROUP BY 1",
            "SELECT md5(url) m, name, sum(id) FROM t JOIN u ON id = k WHERE id BETWEEN 1 AND 50 GROUP BY 1, 2",
            "SELECT md5(url) k, count(name) FROM t LEFT JOIN u ON id = k WHERE id BETWEEN 1 AND 99 GROUP BY 1",
        ] {
            pair.compiled(sql).await;
            assert!(pair.explain(sql).await.contains(" where "), "{sql}");
        }
        // A join that takes most rows away is no filter of the table.
        let joined = "SELECT md5(url) m, count(*) FROM t JOIN u ON id = k GROUP BY 1";
        pair.refused(joined, "less than a tenth of the table's rows come to it").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_as_far_as_the_filter_needs_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.parquet");
    let pair = Pair::new(1);
    pair.plain.sql("SET datafusion.execution.parquet.max_row_group_size = 500").await.unwrap();
    let copy = format!("COPY (SELECT id, url, x FROM t ORDER BY id) TO '{}'", path.display());
    pair.plain.sql(&copy).await.unwrap().collect().await.unwrap();
    pair.kelpie.register_path("f", &path).await.unwrap();
    for condition in [
        "id BETWEEN 1200 AND 1300",
        // Rows of NaN are not left out, though it is greater than the greatest value that the file tells of.
        "x > 1e9 AND id BETWEEN 0 AND 1000",
    ] {
        let sql =
            |table| format!("SELECT md5(url) k, count(*), sum(id) FROM {table} WHERE {condition} GROUP BY 1");
        let shown = pair.explain(&sql("f")).await;
        assert!(shown.contains(" where ") && !shown.contains("not compiled"), "{shown}");
        let found = pair.kelpie.sql(&sql("f")).await.unwrap();
        let expected = pair.plain.sql(&sql("t")).await.unwrap().collect().await.unwrap();
        assert!(found.rows() > 10 && found.timing.reasons.is_empty(), "{condition}");
        assert_eq!(rows(&found.batches), rows(&expected), "{condition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_files_are_computed_of_their_dictionaries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts.parquet");
    let pair = Pair::new(1);
    pair.plain.sql("SET datafusion.execution.parquet.max_row_group_size = 500").await.unwrap();
    // Few texts, some NULL; as many as rows; and columns of other types beside them.
    let columns = "id, url, cast(d AS varchar) AS d, x, cast(id AS decimal(12, 2)) AS m, to_timestamp_seconds(moment) AS at";
    let copy = format!("COPY (SELECT {columns} FROM t ORDER BY id) TO '{}'", path.display());
    pair.plain.sql(&copy).await.unwrap().collect().await.unwrap();
    pair.kelpie.register_path("f", &path).await.unwrap();
    pair.plain.register_parquet("f", path.to_str().unwrap(), Default::default()).await.unwrap();
    for sql in [
        "SELECT md5(d) k, count(*), sum(m), max(at), count(x) FROM f GROUP BY 1",
        "SELECT coalesce(md5(d), 'none') k, count(d), sum(id) FROM f GROUP BY 1",
        "SELECT md5(url) k, max(d), sum(m) FROM f GROUP BY 1",
        "SELECT md5(concat(d, '-', url)) k, count(*), count(x) FROM f GROUP BY 1",
        "SELECT md5(d) k, md5(url) u, md5(cast(id % 3 AS varchar)) i, count(at) FROM f GROUP BY 1, 2, 3",
        "SELECT length(md5(d)) k, count(*) FROM f WHERE md5(url) > '8' GROUP BY 1",
    ] {
        pair.compiled(sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_the_result_needs_is_left_to_datafusion() {
    let pair = Pair::new(1);
    pair.refused("SELECT id, md5(url) FROM t WHERE id % 2 = 0", "the function md5 is not compiled").await;
    // What few rows need is computed of these, and no reason.
    pair.compiled("SELECT md5(url) m, x FROM t ORDER BY x DESC, id LIMIT 3").await;
    pair.refused("SELECT md5(m) FROM (SELECT max(url) m FROM t)", "md5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_are_those_of_the_rule() {
    let pair = Pair::new(1);
    let reasons = async |sql: &str| {
        let plan = pair.plain.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let options = KelpieOptions::of(pair.kelpie.context().state().config_options());
        uncompiled_reasons(&plan, pair.kelpie.engine(), &options)
    };
    // No code is generated for a regular expression of so many states: it is a column.
    let many_states = "SELECT count(*), sum(id) FROM t WHERE url ~ '(s|i).{18}(p|q)'";
    assert!(pair.explain(many_states).await.contains("derived: "));
    pair.compiled(many_states).await;
    assert_eq!(reasons(&format!("{many_states} AND id >= 0")).await, [""; 0]);
    let random = "SELECT md5(url) k, count(*) FROM t WHERE random() < 2 GROUP BY 1";
    let (_, ran) = pair.run(random).await;
    assert!(!ran.is_empty());
    assert_eq!(reasons(random).await, ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_expression_is_a_column_of_its_own() {
    let pair = Pair::new(1);
    let sql =
        |pattern: &str| format!("SELECT regexp_replace(url, {pattern}, '') k, count(*) FROM t GROUP BY 1");
    // What shows alike is told apart.
    for pattern in ["'/.*'", "'[0-9]+'", "'[0-9]+, '", "'/.*'"] {
        pair.compiled(&sql(pattern)).await;
    }
    let bytes = pair.kelpie.sql(&sql("'/.*'")).await.unwrap().timing.transfer_bytes;
    assert_eq!(bytes, 0, "it is cached");
    let bytes = pair.kelpie.sql(&sql("'/[^/]*$'")).await.unwrap().timing.transfer_bytes;
    assert!(bytes > 0, "another is not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_written_again_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("texts.csv");
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.fallback", "allow");
    for (round, text) in ["first", "second one"].into_iter().enumerate() {
        let lines: String = (0..500).map(|i| format!("{i},{text}{}\n", i % 3)).collect();
        std::fs::write(&path, format!("a,b\n{lines}")).unwrap();
        let kelpie = KelpieSession::new(options.clone()).unwrap();
        kelpie.register_path("texts", &path).await.unwrap();
        let plain = SessionContext::new();
        plain.register_csv("texts", path.to_str().unwrap(), Default::default()).await.unwrap();
        for sql in [
            "SELECT regexp_replace(b, '[0-9]', '#') k, count(*), sum(a) FROM texts GROUP BY 1",
            "SELECT count(*) FROM texts",
            "SELECT count(*) FROM texts WHERE to_hex(a) < '5'",
        ] {
            let found = kelpie.sql(sql).await.unwrap();
            let expected = plain.sql(sql).await.unwrap().collect().await.unwrap();
            assert_eq!(rows(&found.batches), rows(&expected), "{round} {sql}");
            assert!(found.timing.reasons.is_empty(), "{sql}: {:#?}", found.timing.reasons);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_names_them() {
    let pair = Pair::new(1);
    let shown = pair.explain("SELECT regexp_replace(url, '/.*', '') k, count(*) FROM t GROUP BY 1").await;
    assert!(shown.contains("derived: regexp_replace(url@"), "{shown}");
    assert!(!shown.contains("for this query only") && !shown.contains("not compiled"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_without_columns_counts_whatever_the_types_are() {
    for partitions in [1, 4] {
        let pair = Pair::new(partitions);
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Null, true)]));
        let nulls = datafusion::arrow::array::new_null_array(&DataType::Null, 5);
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![nulls]).unwrap();
        pair.add("nulls", Arc::new(MemTable::try_new(schema, vec![vec![batch]]).unwrap()));
        pair.run("SELECT count(*) FROM nulls").await;
        pair.run("SELECT sum(id) FROM t, nulls").await;
        pair.run("SELECT count(*) FROM nulls a, nulls b, u").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_memory_is_kept_until_it_changes() {
    let pair = Pair::new(1);
    let kelpie = &pair.kelpie;
    let bytes = async |sql: &str| kelpie.sql(sql).await.unwrap().timing.transfer_bytes;
    let sum = async |sql: &str| {
        let result = kelpie.sql(sql).await.unwrap();
        result.batches[0].column(0).as_primitive::<Int64Type>().value(0)
    };
    let sql = "SELECT sum(v + w) FROM m WHERE v > 0";
    kelpie.sql("CREATE TABLE m AS SELECT id v, id % 5 w FROM t").await.unwrap();
    assert!(bytes(sql).await > 0);
    assert_eq!(bytes(sql).await, 0, "it is cached");
    let before = sum(sql).await;
    kelpie.sql("INSERT INTO m VALUES (100000, 1)").await.unwrap();
    assert_eq!(sum(sql).await, before + 100_001);
    assert_eq!(bytes(sql).await, 0, "it is cached again");
    kelpie.sql("DROP TABLE m").await.unwrap();
    kelpie.sql("CREATE TABLE m AS SELECT id v, id % 7 w FROM t").await.unwrap();
    assert!(bytes(sql).await > 0, "another table of the same name");
    // A table of equal content is another table.
    kelpie.sql("CREATE TABLE n AS SELECT v, w FROM m WHERE v >= 0").await.unwrap();
    assert_eq!(sum("SELECT sum(v + w) FROM n WHERE v > 0").await, sum(sql).await);
}
