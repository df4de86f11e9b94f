//! Generic plans of prepared statements: one plan for all values of the parameters, and the answers of planning with the values.

use std::fs;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::testing::worded;
use kelpie_session::{KelpieSession, Phase, QueryTiming, SessionOptions};

/// Kelpie beside DataFusion, which plans each time.
struct Both {
    kelpie: KelpieSession,
    plain: SessionContext,
}

/// An answer: columns, and rows in any order; or an error.
type Answer = Result<(SchemaRef, Vec<String>), String>;

fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let text = pretty_format_batches(batches).unwrap().to_string();
    let mut lines: Vec<String> = text.lines().skip(3).map(str::to_string).collect();
    lines.sort();
    lines
}

impl Both {
    async fn new(settings: &[(&str, &str)], statements: &[&str]) -> Both {
        // Whether the generic plan is worth it is not left to chance.
        let always = [("kelpie.device", "cpu"), ("kelpie.generic_plans", "always")];
        let mut options = SessionOptions::default();
        for (name, value) in always.iter().chain(settings) {
            options = options.with(*name, *value);
        }
        let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
        let both = Both { kelpie: KelpieSession::new(options).unwrap(), plain };
        for sql in statements {
            both.execute(sql).await;
        }
        both
    }

    async fn execute(&self, sql: &str) {
        self.kelpie.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        self.plain.sql(sql).await.unwrap().collect().await.unwrap();
    }

    async fn expected(&self, sql: &str) -> Answer {
        let answer = async {
            let frame = self.plain.sql(sql).await?;
            let schema = Arc::new(frame.schema().as_arrow().clone());
            Ok::<_, datafusion::error::DataFusionError>((schema, frame.collect().await?))
        };
        // In the words of a session of Kelpie.
        let state = self.kelpie.context().state();
        let error = |error| worded(error, sql, &state).strip_backtrace();
        let (schema, batches) = answer.await.map_err(error)?;
        Ok((schema, lines(&batches)))
    }

    /// Runs a statement on both, which give the same; Kelpie's timing where there are rows.
    async fn same(&self, sql: &str) -> Option<QueryTiming> {
        let expected = self.expected(sql).await;
        let result = self.kelpie.sql(sql).await;
        let (answer, timing) = match result {
            Ok(result) => (Ok((result.schema, lines(&result.batches))), Some(result.timing)),
            Err(error) => (Err(error.strip_backtrace()), None),
        };
        match (&answer, &expected) {
            (Ok((schema, rows)), Ok((expected_schema, expected_rows))) => {
                assert_eq!(rows, expected_rows, "{sql}");
                assert_eq!(schema.fields(), expected_schema.fields(), "{sql}");
            }
            _ => assert_eq!(answer, expected, "{sql}"),
        }
        timing
    }

    /// Runs a statement, which is not planned.
    async fn generic(&self, sql: &str) -> QueryTiming {
        let timing = self.same(sql).await.unwrap_or_else(|| panic!("{sql} fails"));
        assert!(timing.plan_kept, "{sql}: {timing:?}");
        for phase in [Phase::Statistics, Phase::JoinOrder, Phase::Physical, Phase::Rule] {
            assert_eq!(timing.split.of(phase), 0, "{sql}: {}", phase.name());
        }
        timing
    }

    /// Prepares a query, and executes it with sets of values of which two are planned for, and the third makes the generic
    /// plan: from the fourth on nothing is planned.
    async fn prepared(&self, query: &str, values: &[&str]) {
        self.execute(&format!("prepare p{query}")).await;
        for (index, values) in values.iter().enumerate() {
            let sql = format!("execute p({values})");
            match index {
                0..=2 => assert!(!self.same(&sql).await.unwrap().plan_kept, "{sql}"),
                _ => assert!(self.generic(&sql).await.compiled, "{sql}"),
            }
        }
        assert_eq!(self.kelpie.generic(), (1, 0), "{query}");
        self.execute("deallocate p").await;
        assert_eq!(self.kelpie.generic(), (0, 0));
    }

    /// The same of a query that has no generic plan: everything is as if there were none.
    async fn custom(&self, query: &str, values: &[&str]) {
        self.execute(&format!("prepare p{query}")).await;
        for values in values {
            self.same(&format!("execute p({values})")).await;
        }
        assert_eq!(self.kelpie.generic(), (0, 1), "{query}");
        self.execute("deallocate p").await;
        assert_eq!(self.kelpie.generic(), (0, 0));
    }
}

/// A column of each type, with extremes and NULLs.
const TYPES: &str = "create table t as select
    arrow_cast(column1, 'Int32') as i, column1 * 1000000000000 as l, arrow_cast(column2, 'Decimal128(12, 2)') as d,
    column3 as f, arrow_cast(column4, 'Date32') as day, arrow_cast(column5, 'Timestamp(Microsecond, None)') as ts,
    column6 as s, column7 as b
    from (values
        (1, 1.25, 0.5, '1998-09-02', '2024-02-29T12:00:00', 'Ärger', true),
        (2, -2.5, 'NaN'::double, '1970-01-01', '1969-12-31T23:59:59.999999', '', false),
        (3, 99999.99, '-Infinity'::double, '2000-02-29', '2024-02-29T12:00:00.000001', '日本語', true),
        (4, 0, -0.0, '1998-09-03', '2024-03-01', 'abc%', null),
        (5, 1.25, 1e300, '0001-01-01', '1970-01-01', 'ABC', false),
        (null, null, null, null, null, null, null))";

#[tokio::test]
async fn other_values_are_not_planned() {
    let both = Both::new(&[], &[TYPES]).await;
    both.execute("prepare p(int) as select i, l + $1 as sum, s from t where i >= $1 order by i").await;
    for value in [1, 2] {
        assert!(!both.same(&format!("execute p({value})")).await.unwrap().plan_kept);
    }
    let made = both.same("execute p(3)").await.unwrap();
    assert!(!made.plan_kept && made.compiled, "the generic plan is made for the third");
    for value in [3, 4, 5, 0, 1, -7, 1000] {
        let timing = both.generic(&format!("execute p({value})")).await;
        assert!(timing.compiled && timing.reasons.is_empty());
        // Another literal is another argument: the same kernels, and as many as the query has with the value in it.
        for phase in [Phase::Print, Phase::Build, Phase::Decode, Phase::Encode] {
            assert_eq!(timing.split.of(phase), 0, "{}: {timing:?}", phase.name());
        }
        let kernels = |timing: &QueryTiming| timing.parts[0].pipelines.len();
        let written = format!("select i, l + {value} as sum, s from t where i >= {value} order by i");
        assert_eq!(kernels(&timing), kernels(&both.same(&written).await.unwrap()));
    }
}

#[tokio::test]
async fn values_of_all_types() {
    let both = Both::new(&[], &[TYPES]).await;
    let list = [
        ("(int) as select i from t where i = $1", &["1", "2", "3", "4", "77", "-2147483648"][..]),
        ("(bigint) as select l, l - $1 as x from t where l > $1", &["1", "2", "3", "3000000000000", "-1"]),
        ("(decimal(12, 2)) as select d, d * $1 as x from t where d >= $1", &["1", "2", "3", "1.25", "-99.9"]),
        ("(double) as select f, f + $1 as x from t where f >= $1", &["1", "2", "3", "'NaN'", "0.0", "-0.0"]),
        ("(double) as select f from t where f = $1", &["1", "2", "3", "'NaN'", "'-Infinity'", "0.0", "-0.0"]),
        (
            "(date) as select day, $1 as given from t where day <= $1",
            &["'1998-09-02'", "'2000-01-01'", "'1900-01-01'", "'0001-01-01'", "date '2000-02-29'"],
        ),
        (
            "(timestamp) as select ts from t where ts < $1",
            &["'2024-02-29'", "'2024-03-01'", "'1970-01-01'", "'2024-02-29T12:00:00.000001'"],
        ),
        ("(varchar) as select s from t where s >= $1", &["'a'", "'b'", "'c'", "'日本語'", "'Ä'", "''"]),
        ("(varchar) as select i from t where s = $1", &["'a'", "'b'", "'c'", "'日本語'", "'Ärger'", "''"]),
        (
            "(int, varchar) as select count(*) as n from t where i > $1 or s = $2",
            &["1, 'a'", "2, ''", "9, 'ABC'", "5, ''"],
        ),
    ];
    for (query, values) in list {
        both.prepared(query, values).await;
    }
}

#[tokio::test]
async fn types_come_from_columns_or_values() {
    let both = Both::new(&[], &[TYPES]).await;
    both.prepared(" as select i from t where i < $1", &["1", "2", "3", "4", "arrow_cast(5, 'Int8')"]).await;
    both.prepared(
        " as select s from t where day > $1",
        &["'1998-09-02'", "'1999-01-01'", "'1970-01-01'", "'1998-01-01'"],
    )
    .await;
    // What the types do not tell, values do: each type has a plan of its own.
    both.execute("prepare q as select i, $1 as given from t where i > 2").await;
    for _ in 0..2 {
        for value in ["1", "2", "3", "1.5", "2.5", "3.5", "'x'", "'y'", "'z'"] {
            both.same(&format!("execute q({value})")).await;
        }
    }
}

#[tokio::test]
async fn nulls_and_truth_values_are_parts_of_a_plan() {
    let both = Both::new(&[], &[TYPES]).await;
    both.execute(
        "prepare p(int, boolean) as select i, coalesce(i, $1) as x, $1 as y from t where $2 or i > $1",
    )
    .await;
    let values =
        ["1, false", "2, false", "3, false", "null, true", "null, false", "4, null", "null, null", "1, true"];
    for _ in 0..4 {
        for values in values {
            both.same(&format!("execute p({values})")).await;
        }
    }
    for values in ["7, false", "8, false"] {
        both.generic(&format!("execute p({values})")).await;
    }
}

#[tokio::test]
async fn what_hangs_on_parameters_alone_is_computed_once() {
    let both = Both::new(&[], &[TYPES]).await;
    let list = [
        (
            "(interval) as select i from t where day >= date '1998-09-02' - $1",
            &["interval '1 day'", "interval '2 day'", "interval '3 month'", "interval '365 day'"][..],
        ),
        ("(varchar) as select s from t where s > upper($1) || 'b'", &["'a'", "'b'", "'c'", "'Á'"]),
        (
            "(varchar) as select i from t where day = cast($1 as date)",
            &["'1998-09-02'", "'1970-01-01'", "'1998-09-03'", "'1998-09-02'"],
        ),
        ("(varchar) as select i from t where s like $1", &["'A%'", "'%c%'", "'_本_'", "'abc\\%'", "'%'"]),
        ("(int) as select i from t where i in ($1)", &["1", "2", "3", "4"]),
        ("(int, int) as select i from t where i between $1 and $2", &["1, 2", "2, 3", "2, 2", "3, 1"]),
        ("(int, int) as select i from t where i in ($1, $2, 5)", &["1, 2", "2, 3", "2, 2", "3, 1"]),
        ("(int) as select i % $1 as k, sum(d * $1) as x from t group by i % $1", &["1", "2", "3", "4"]),
        ("(int) as select i, case when i > $1 then 'more' else s end as x from t", &["1", "2", "3", "4"]),
        (
            "(int) as select t.i, u.s from t join t u on t.i = u.i and t.l + u.l > $1 where t.i <> $1",
            &["1", "2", "3", "4"],
        ),
        (
            "(int) as select i from t where l > (select avg(l) from t u where u.i <> $1)",
            &["1", "2", "3", "4"],
        ),
        (
            "(int) as select i from t where exists (select 1 from t u where u.i = t.i and u.i > $1)",
            &["1", "2", "3", "4"],
        ),
        ("(int) as select i from t where i > $1 order by i limit 2", &["0", "1", "2", "3"]),
    ];
    for (query, values) in list {
        both.prepared(query, values).await;
    }
}

#[tokio::test]
async fn where_a_value_must_be_known_there_is_no_generic_plan() {
    let both = Both::new(&[], &[TYPES]).await;
    let numbers = &["1", "2", "3", "4", "5"][..];
    for (query, values) in [
        ("(int) as select i, column1 from t join (values ($1), (2)) v on i = column1", numbers),
        ("(varchar) as select date_trunc($1, ts) as x from t", &["'day'", "'year'", "'month'", "'hour'"]),
        ("(varchar) as select i from t where s ~ $1", &["'^A'", "'c'", "'本'", "'x'"]),
        ("(int) as select i, now() > ts as x from t where i > $1", numbers),
    ] {
        both.custom(query, values).await;
    }
    // A limit is no expression: another one is another plan.
    both.execute("prepare p(int, int) as select i from t where i > $1 order by i limit $2").await;
    for limit in [1, 3] {
        for value in 0..3 {
            assert!(!both.same(&format!("execute p({value}, {limit})")).await.unwrap().plan_kept);
        }
        both.generic(&format!("execute p(-1, {limit})")).await;
    }
}

#[tokio::test]
async fn an_execution_is_explained_as_by_datafusion() {
    let both = Both::new(&[], &[TYPES]).await;
    both.execute("prepare p(int) as select i from t where i > $1").await;
    for value in 0..5 {
        both.same(&format!("execute p({value})")).await;
        both.same(&format!("explain execute p({value})")).await;
    }
}

#[tokio::test]
async fn errors_are_those_of_planning_with_the_values() {
    let both = Both::new(&[], &[TYPES]).await;
    for (query, good, bad) in [
        ("(int) as select i / $1 as x from t", ["1", "2", "3", "4"], "0"),
        ("(int) as select 12 / $1 + i as x from t", ["1", "2", "3", "4"], "0"),
        ("(int) as select arrow_cast(i * $1, 'Int16') as x from t", ["1", "2", "3", "4"], "32767"),
        ("(varchar) as select i from t where i > cast($1 as int)", ["'1'", "'2'", "'3'", "'4'"], "'x'"),
        ("(bigint) as select i from t where i >= $1", ["1", "2", "3", "4"], "'x'"),
        ("(bigint) as select cast(l + $1 as int) as x from t where i < 1", ["1", "2", "3", "4"], "'x'"),
    ] {
        both.execute(&format!("prepare p{query}")).await;
        for value in good {
            both.same(&format!("execute p({value})")).await;
        }
        for _ in 0..2 {
            assert!(both.same(&format!("execute p({bad})")).await.is_none(), "{query} of {bad} must fail");
        }
        // One value that fails says nothing of others.
        assert_eq!(both.kelpie.generic(), (1, 0), "{query}");
        both.generic(&format!("execute p({})", good[0])).await;
        both.execute("deallocate p").await;
    }
    // Planned with a value that makes the condition false, nothing is divided; whatever a generic plan divides, that is so.
    both.execute("prepare q(int) as select i from t where $1 > 5 and 1 / (i - 1) >= 0").await;
    for value in [1, 2, 3, 4, 9, 5, 9, 1] {
        assert_eq!(both.same(&format!("execute q({value})")).await.is_none(), value == 9);
    }
    both.execute("prepare p(int) as select i from t where i > $1").await;
    for sql in ["execute p", "execute p(1, 2)", "execute p(i)", "execute nobody(1)"] {
        assert!(both.same(sql).await.is_none(), "{sql}");
    }
}

#[tokio::test]
async fn changes_are_seen() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("x.csv", "k,v\n1,10\n2,20\n3,30\n");
    let both = Both::new(&[], &[]).await;
    both.kelpie.register_path("x", folder.path().join("x.csv")).await.unwrap();
    let kelpie = &both.kelpie;
    let run = async |sql: &str| {
        let result = kelpie.sql(sql).await.unwrap();
        (lines(&result.batches).concat(), result.timing.plan_kept)
    };
    run("create view w as select k, v from x where v < 30").await;
    run("prepare p(int) as select sum(v) as s from x where k > $1").await;
    run("prepare w(int) as select sum(v) as s from w where k > $1").await;
    for k in [0, 1, 2] {
        assert!(!run(&format!("execute p({k})")).await.1);
        run(&format!("execute w({k})")).await;
    }
    let (rows, is_kept) = run("execute p(1)").await;
    assert!(rows.contains("50") && is_kept, "{rows}");
    write("x.csv", "k,v\n1,10\n2,20\n3,30\n4,400\n");
    let (rows, is_kept) = run("execute p(1)").await;
    assert!(rows.contains("450") && !is_kept, "{rows}");
    assert!(run("execute w(1)").await.0.contains("20"));
    for k in [1, 0, 3] {
        run(&format!("execute p({k})")).await;
    }
    assert!(run("execute p(2)").await.0.contains("430"));
    // Options are a part of all plans; another statement of the name is another one.
    kelpie.set("kelpie.min_rows", "0").unwrap();
    assert_eq!(run("execute p(2)").await.0, run("execute p(2)").await.0);
    for k in [0, 1, 2] {
        run(&format!("execute p({k})")).await;
    }
    assert!(run("execute p(3)").await.1);
    run("deallocate p").await;
    run("prepare p(int) as select max(v) as s from x where k < $1").await;
    assert!(run("execute p(3)").await.0.contains("20"));
    // And one that somebody else prepares.
    for statement in ["deallocate p", "prepare p(int) as select min(v) as s from x where k < $1"] {
        kelpie.context().sql(statement).await.unwrap();
    }
    assert!(run("execute p(3)").await.0.contains("10"));
}

#[tokio::test]
async fn datafusions_operators_have_generic_plans_too() {
    let settings = [("kelpie.min_rows", "1000000"), ("datafusion.execution.target_partitions", "4")];
    let both = Both::new(&settings, &[TYPES]).await;
    both.execute("prepare p(int) as select s, l + $1 as x from t where i > $1 and l % 7 <> $1 + 1").await;
    for value in 0..6 {
        let timing = both.same(&format!("execute p({value})")).await.unwrap();
        assert_eq!((timing.plan_kept, timing.compiled), (value > 2, false));
    }
    assert_eq!(both.kelpie.generic(), (1, 0));
    both.generic("execute p(2147483647)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn values_never_mix() {
    let both =
        Both::new(&[], &["create table n as select value as k from generate_series(1, 2000) g(value)"]).await;
    both.execute("prepare p(bigint, bigint) as select count(*) as c, min(k) + $1 as a, max(k) as b from n where k between $1 and $2")
        .await;
    let both = Arc::new(both);
    let tasks = (0..8i64).map(|task| {
        let both = Arc::clone(&both);
        tokio::spawn(async move {
            for round in 0..40i64 {
                let (from, to) =
                    (1 + (task * 131 + round * 17) % 900, 1000 + (task * 37 + round * 101) % 1000);
                let result = both.kelpie.sql(&format!("execute p({from}, {to})")).await.unwrap();
                let rows = lines(&result.batches).concat();
                let words: Vec<i64> =
                    rows.split(['|', '+', '-', ' ']).filter_map(|word| word.parse().ok()).collect();
                assert_eq!(words, [to - from + 1, 2 * from, to]);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(both.kelpie.generic(), (1, 0));
}

#[tokio::test]
async fn what_is_prepared_need_be_no_query() {
    let both = Both::new(&[], &["create table n (x bigint, y varchar)"]).await;
    both.execute("prepare p(bigint, varchar) as insert into n values ($1, $2)").await;
    for value in 0..5 {
        both.execute(&format!("execute p({value}, 'Nr {value}')")).await;
    }
    both.execute("prepare q(bigint) as insert into n select x + $1, y from n where x = $1").await;
    for value in 0..5 {
        both.execute(&format!("execute q({value})")).await;
    }
    both.same("select * from n").await;
    both.execute("prepare r as select count(*) as n from n").await;
    for _ in 0..4 {
        both.same("execute r").await;
    }
    assert_eq!(both.kelpie.generic().0, 0);
}

#[tokio::test]
async fn no_more_are_kept_than_may_be() {
    let both = Both::new(&[("kelpie.kept_plans", "2")], &[TYPES]).await;
    for statement in 0..4 {
        both.execute(&format!(
            "prepare p{statement}(int) as select i + {statement} as x from t where i > $1"
        ))
        .await;
        for value in 0..4 {
            both.same(&format!("execute p{statement}({value})")).await;
        }
    }
    assert_eq!(both.kelpie.generic(), (2, 0));
    both.kelpie.set("kelpie.generic_plans", "never").unwrap();
    for value in 0..4 {
        both.same(&format!("execute p3({value})")).await;
    }
    assert_eq!(both.kelpie.generic(), (0, 0));
    // Data that is changed is not kept alive.
    both.kelpie.set("kelpie.generic_plans", "measured").unwrap();
    for value in 4..8 {
        both.same(&format!("execute p3({value})")).await;
    }
    assert_eq!(both.kelpie.generic(), (1, 0));
    both.execute("insert into t select * from t where i = 1").await;
    both.execute("deallocate p0").await;
    assert_eq!(both.kelpie.generic(), (0, 0));
}
