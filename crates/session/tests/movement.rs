//! How data moves changes no answer: every macro model, transfer, size of blocks, and budget of device memory down to where
//! state is made in parts.

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use kelpie_session::testing::sample::covering;
use kelpie_session::testing::{Generated, Outcome, Settings, compare, side_by_side};
use kelpie_session::{KelpieSession, SessionOptions};

/// `id` is the row; `k` some hundreds of keys, some NULL; `s` long texts, no two alike; `w` few words; `d` decimals.
fn facts(rows: usize) -> RecordBatch {
    let numbers = 0..rows as i64;
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(numbers.clone()))),
        (
            "k",
            Arc::new(Int32Array::from_iter(
                numbers.clone().map(|n| (n % 19 != 7).then_some((n * 7 % 501) as i32)),
            )),
        ),
        (
            "s",
            Arc::new(StringArray::from_iter(
                numbers.clone().map(|n| (n % 23 != 1).then(|| format!("text é of row {n} {}", n % 7))),
            )),
        ),
        (
            "w",
            Arc::new(StringArray::from_iter_values(
                numbers.clone().map(|n| ["ab", "", "zß"][n as usize % 3]),
            )),
        ),
        (
            "d",
            Arc::new(
                Decimal128Array::from_iter(
                    numbers.clone().map(|n| (n % 5 != 0).then_some(i128::from(n) * 1_000_003 - 7)),
                )
                .with_precision_and_scale(20, 2)
                .unwrap(),
            ),
        ),
        ("f", Arc::new(Float64Array::from_iter_values(numbers.map(|n| (n % 1000) as f64 / 4.0)))),
    ];
    batch(columns)
}

fn dimension() -> RecordBatch {
    let numbers = 0..600i32;
    batch(vec![
        (
            "k",
            Arc::new(Int32Array::from_iter(numbers.clone().map(|n| (n != 4).then_some(n / 2 * 2))))
                as ArrayRef,
        ),
        (
            "name",
            Arc::new(StringArray::from_iter_values(numbers.clone().map(|n| format!("name {}", n % 50)))),
        ),
        ("x", Arc::new(Int64Array::from_iter_values(numbers.map(|n| i64::from(n) - 300)))),
    ])
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap()
}

const QUERIES: [&str; 14] = [
    "SELECT count(*), sum(id), min(k), max(d), avg(f) FROM t WHERE f < 200",
    "SELECT *, id + 1 AS n FROM t",
    "SELECT s, id + 1, upper(w) FROM t WHERE k % 3 = 0 AND s LIKE '%1%'",
    "SELECT k, count(*), sum(d), max(id) FROM t GROUP BY k",
    "SELECT s, count(*), sum(f) FROM t GROUP BY s",
    "SELECT id, min(s), max(s) FROM t GROUP BY id",
    "SELECT w, count(DISTINCT k), count(DISTINCT s) FROM t GROUP BY w",
    "SELECT t.id, t.s, u.name FROM t JOIN u ON t.k = u.k WHERE u.x > 100",
    "SELECT a.s, b.d FROM t a LEFT JOIN t b ON a.id = b.id + 1 AND b.f > 10",
    "SELECT a.s FROM t a FULL JOIN (SELECT s FROM t WHERE id % 2 = 0) b ON a.s = b.s",
    "SELECT u.name, sum(q.n) FROM u JOIN (SELECT k, count(*) AS n FROM t GROUP BY k) q ON u.k = q.k GROUP BY u.name",
    "SELECT id FROM t WHERE k IN (SELECT k FROM u WHERE x < 0) UNION ALL SELECT x FROM u",
    "SELECT s FROM t WHERE k IS NOT NULL EXCEPT SELECT s FROM t WHERE id % 3 = 0",
    "SELECT count(*) FROM t WHERE k NOT IN (SELECT k FROM u WHERE k IS NOT NULL)",
];

const ORDERED: [&str; 3] = [
    "SELECT s, id FROM t ORDER BY s DESC NULLS LAST, id",
    "SELECT k, s, id FROM t ORDER BY k, f DESC, id LIMIT 77",
    "SELECT s, n FROM (SELECT s, count(*) AS n, max(id) AS m FROM t GROUP BY s) ORDER BY m DESC",
];

fn sessions(tables: &[(&str, RecordBatch)], settings: &[(&str, &str)]) -> (SessionContext, KelpieSession) {
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let options = SessionOptions::default().with("kelpie.fallback", "deny");
    let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let kelpie = KelpieSession::new(options).unwrap();
    for (name, batch) in tables {
        let table = Arc::new(MemTable::try_new(batch.schema(), vec![vec![batch.clone()]]).unwrap());
        plain.register_table(*name, Arc::clone(&table) as _).unwrap();
        kelpie.context().register_table(*name, table).unwrap();
    }
    (plain, kelpie)
}

/// Runs each query under one of the settings, all of which are seen, and where the whole matrix runs under every one of them.
async fn agree(name: &str, rows: usize, all: &[Settings], is_asked: fn(&Settings, &str) -> bool) {
    let tables = Arc::new([("t", facts(rows)), ("u", dimension())]);
    let queries = QUERIES.into_iter().chain(ORDERED);
    let cases = queries.flat_map(|sql| all.iter().map(move |settings| (settings, sql)));
    let cases = cases.filter(|(settings, sql)| is_asked(settings, sql));
    let cases = covering(name, cases, 0, |(settings, sql)| vec![format!("{settings:?}"), sql.to_string()]);
    let run = |settings: &Settings| {
        let mine = cases.iter().filter(|(other, _)| *other == settings).map(|(_, sql)| *sql);
        let (mine, settings, tables) = (mine.collect::<Vec<_>>(), settings.clone(), Arc::clone(&tables));
        async move {
            let (plain, kelpie) = sessions(&*tables, &settings);
            for sql in mine {
                let query = Generated { sql: sql.to_string(), ordered: ORDERED.contains(&sql) };
                match compare(&plain, &kelpie, &query).await {
                    Outcome::Equal { compiled: true, .. } => {}
                    other => panic!("{settings:?} {sql}: {other:?}"),
                }
            }
        }
    };
    side_by_side(all.iter().map(run)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn macro_models_and_transfers() {
    let all = [
        ("run_to_finish", "auto", "0"),
        ("batch", "auto", "0"),
        ("batch", "copy", "20KB"),
        ("batch", "zero_copy", "9KB"),
        ("kernel_at_a_time", "copy", "30KB"),
    ];
    let all = all.map(|(macro_model, transfer, block_bytes)| {
        vec![
            ("kelpie.device", "cpu"),
            ("kelpie.macro_model", macro_model),
            ("kelpie.transfer", transfer),
            ("kelpie.block_bytes", block_bytes),
        ]
    });
    agree("macro models and transfers", 20_000, &all, |_, _| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_and_little_memory_on_the_interpreter() {
    let simt = ("kelpie.device", "simt");
    let mut all = vec![vec![simt, ("kelpie.memory_limit", "300KB")]];
    for transfer in ["copy", "zero_copy"] {
        let blocks = ("kelpie.block_bytes", "8KB");
        all.push(vec![simt, ("kelpie.macro_model", "batch"), ("kelpie.transfer", transfer), blocks]);
    }
    agree("blocks and memory of the interpreter", 2_500, &all, |_, _| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn less_and_less_memory() {
    let all = [("2MB", "copy"), ("600KB", "auto")].map(|(limit, transfer)| {
        vec![("kelpie.device", "cpu"), ("kelpie.memory_limit", limit), ("kelpie.transfer", transfer)]
    });
    // The distinct values of few groups are in no parts that could be made by themselves.
    let is_asked = |settings: &Settings, sql: &str| {
        settings.iter().any(|(_, value)| *value == "2MB") || !sql.contains("DISTINCT")
    };
    agree("less and less memory", 20_000, &all, is_asked).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_shown() {
    let settings = [("kelpie.device", "cpu"), ("kelpie.memory_limit", "600KB")];
    let (_, kelpie) = sessions(&[("t", facts(30_000))], &settings);
    let shown = kelpie.sql("EXPLAIN ANALYZE SELECT id, min(s) FROM t GROUP BY id").await.unwrap();
    let shown = datafusion::arrow::util::pretty::pretty_format_batches(&shown.batches).unwrap().to_string();
    for part in ["batch: the inputs stream", "smaller blocks", "parts by keys", "blocks=", "link="] {
        assert!(shown.contains(part), "{part} is missing: {shown}");
    }
    kelpie.sql("SET kelpie.macro_model = 'run_to_finish'").await.unwrap();
    let error = kelpie.sql("SELECT id, min(s) FROM t GROUP BY id").await.unwrap_err().to_string();
    assert!(error.contains("out of memory") && error.contains("614400"), "{error}");
}

/// About as many rows are read in the time that a launch takes.
const ROWS_OF_LAUNCH: u64 = 200;

/// What a query does where memory is so short that its state is made in parts, from one budget to half of it.
struct Halvings {
    query: &'static str,
    /// In kB, each half of the one before.
    limits: &'static [u64],
}

/// What a query costs is counted: the rows that all of its pipelines read, and its launches.
#[tokio::test(flavor = "multi_thread")]
async fn each_halving_of_little_memory_costs_at_most_twice() {
    let all = [
        Halvings {
            query: "select k % 18001 g, sum(v) from g group by k % 18001",
            limits: &[256, 128, 64, 32, 16],
        },
        Halvings { query: "select distinct t from g", limits: &[2048, 1024, 512, 256, 128, 64, 32] },
        Halvings {
            query: "select g.v, h.w from g join h on g.v * 61 + g.k % 61 = h.k",
            limits: &[512, 256, 128, 64, 32],
        },
        Halvings {
            query: "select k, row_number() over (partition by k % 7001 order by v) r from g",
            limits: &[1024, 512, 256, 128, 64],
        },
    ];
    side_by_side(all.into_iter().map(costs_at_most_twice)).await;
}

async fn costs_at_most_twice(halvings: Halvings) {
    let number =
        |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    let mut before: Option<u64> = None;
    for limit in halvings.limits {
        let session = KelpieSession::new(SessionOptions::default()).unwrap();
        session.set("kelpie.device", "cpu").unwrap();
        session.set("kelpie.memory_limit", &format!("{limit}KB")).unwrap();
        for table in [
            "create table g as select value k, value % 977 v, 'text ' || (value * 7 % 50021) t \
             from generate_series(1, 60000)",
            "create table h as select value * 3 % 60013 k, value % 1000 w from generate_series(1, 40000)",
        ] {
            session.sql(table).await.unwrap();
        }
        let query = halvings.query;
        let shown = session.sql(&format!("explain analyze {query}")).await.unwrap();
        let shown =
            datafusion::arrow::util::pretty::pretty_format_batches(&shown.batches).unwrap().to_string();
        let all = |what: &str| shown.split(what).skip(1).map(number).sum::<u64>();
        let (rows, launches) = (all("rows_in="), all("launches="));
        assert!(shown.contains("parts by keys"), "{limit} kB: {query}: {shown}");
        let cost = rows + ROWS_OF_LAUNCH * launches;
        assert!(
            before.is_none_or(|before| cost <= 2 * before),
            "{limit} kB: {query}: {rows} rows and {launches} launches, and before {before:?} in all"
        );
        before = Some(cost);
    }
}
