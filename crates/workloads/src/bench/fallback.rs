//! `kelpie bench fallback`: statements over TPC-H's tables that do not compile as a whole, in Kelpie's session and in a plain
//! one of the same process: what Kelpie adds to a session must not slow down what it leaves to DataFusion.

use std::fmt::Write;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use kelpie_session::{KelpieSession, SessionOptions};
use serde::Serialize;

use crate::Workload;

/// Name and text of every statement. Windows, ordered aggregates and `LIMIT` order their rows completely, so that there is one
/// right answer.
pub const STATEMENTS: [(&str, &str); 26] = [
    (
        "rank",
        "select n_name, s_name, rank() over (partition by s_nationkey order by s_acctbal desc, s_suppkey) as r from supplier join nation on s_nationkey = n_nationkey order by n_name, r, s_name limit 100",
    ),
    (
        "running sum",
        "select o_orderkey, sum(o_totalprice) over (order by o_orderdate, o_orderkey) as total from orders order by o_orderkey limit 100",
    ),
    (
        "row number",
        "select o_custkey, o_orderkey, rn from (select o_custkey, o_orderkey, row_number() over (partition by o_custkey order by o_orderdate, o_orderkey) as rn from orders) q where rn <= 2 order by 1, 2 limit 100",
    ),
    (
        "moving average",
        "select l_shipdate, avg(q) over (order by l_shipdate rows between 6 preceding and current row) from (select l_shipdate, sum(l_quantity) as q from lineitem group by l_shipdate) d order by 1 limit 100",
    ),
    (
        "lag",
        "select y, r, r - lag(r) over (order by y) from (select extract(year from o_orderdate) as y, sum(o_totalprice) as r from orders group by 1) q order by y",
    ),
    (
        "ntile",
        "select t, count(*), max(c_acctbal) from (select c_acctbal, ntile(10) over (order by c_acctbal, c_custkey) as t from customer) q group by t order by t",
    ),
    (
        "window over lines",
        "select l_orderkey, l_linenumber, l_extendedprice, sum(l_extendedprice) over (partition by l_orderkey order by l_linenumber) as s from lineitem order by 1, 2 limit 100",
    ),
    (
        "share of total",
        "select p_brand, q / sum(q) over () from (select p_brand, cast(sum(l_quantity) as double) as q from lineitem join part on l_partkey = p_partkey group by p_brand) b order by p_brand",
    ),
    (
        "first and last",
        "select distinct c_mktsegment, first_value(c_name) over w, last_value(c_name) over w from customer window w as (partition by c_mktsegment order by c_acctbal, c_custkey rows between unbounded preceding and unbounded following) order by 1",
    ),
    (
        "percent rank",
        "select s_suppkey, percent_rank() over (order by s_acctbal, s_suppkey) as p from supplier order by p, s_suppkey limit 100",
    ),
    (
        "median of distinct",
        "select l_shipmode, median(distinct l_quantity), count(distinct l_partkey) from lineitem group by 1 order by 1",
    ),
    (
        "array_agg",
        "select o_custkey, array_agg(o_orderkey order by o_orderkey) from orders where o_custkey < 1000 group by o_custkey order by o_custkey",
    ),
    (
        "string_agg",
        "select r_name, string_agg(n_name, ',' order by n_name) from nation join region on n_regionkey = r_regionkey group by r_name order by r_name",
    ),
    (
        "length of lists",
        "select n, count(*) from (select o_custkey, array_length(array_agg(o_orderkey)) as n from orders group by o_custkey) q group by n order by n",
    ),
    ("make_array", "select sum(array_element(make_array(l_quantity, l_discount, l_tax), 1)) from lineitem"),
    (
        "unnest",
        "select x, count(*) from (select unnest(make_array(l_returnflag, l_linestatus)) as x from lineitem) q group by x order by x",
    ),
    (
        "unnest of lists",
        "select count(*), sum(k) from (select unnest(ks) as k from (select array_agg(o_orderkey) as ks from orders group by o_custkey) q) r",
    ),
    (
        "struct",
        "select s, count(*) from (select named_struct('a', l_returnflag, 'b', l_linestatus) as s from lineitem) q group by s order by s['a'], s['b']",
    ),
    (
        "recursive",
        "with recursive r as (select 1 as n union all select n + 1 from r where n < 2000) select count(*), sum(n) from r",
    ),
    (
        "recursive join",
        "with recursive r as (select 1 as n union all select n + 1 from r where n < 50) select n, count(*) from r join lineitem on l_quantity = n group by n order by n",
    ),
    (
        "union of a window",
        "select 'a' as t, sum(rn) from (select row_number() over (order by o_orderkey) as rn from orders) q union all select 'b', sum(l_linenumber) from lineitem order by 1",
    ),
    (
        "string_agg of distinct",
        "select o_orderpriority, string_agg(distinct o_orderstatus, ',' order by o_orderstatus) from orders group by 1 order by 1",
    ),
    ("approx_median", "select approx_median(l_partkey) from lineitem"),
    ("cross join", "select sum(l_quantity) from lineitem, nation where l_shipdate < date '1993-01-01'"),
    (
        "join with limit",
        "select l_orderkey, o_orderdate from lineitem join orders on l_orderkey = o_orderkey limit 3",
    ),
    ("all columns", "select * from orders where o_comment like '%special%requests%' and random() >= 0"),
];

/// Statements whose answer SQL leaves open: only the number of rows is compared.
const OPEN: [&str; 1] = ["join with limit"];

/// What `kelpie bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The queries of a workload.
    Queries(Workload),
    /// What does not compile as a whole.
    Fallback,
    /// Group-bys on expressions that DataFusion evaluates.
    Derived,
    /// TPC-H's queries by many clients at once.
    Crowd,
}

impl FromStr for Subject {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        match name {
            "fallback" => Ok(Subject::Fallback),
            "derived" => Ok(Subject::Derived),
            "crowd" => Ok(Subject::Crowd),
            _ => name
                .parse()
                .map(Subject::Queries)
                .map_err(|error| format!("{error}; `fallback`, `derived` and `crowd` are known too")),
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct FallbackOptions<'a> {
    /// The folder of TPC-H's tables, one Parquet file or folder each.
    pub data: &'a Path,
    /// Names of statements; all where empty.
    pub queries: &'a [String],
    /// Measured runs of each statement, after one that warms up.
    pub runs: usize,
    /// Threads and partitions of both sessions.
    pub threads: usize,
    /// Settings of Kelpie's session.
    pub settings: &'a [(String, String)],
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct FallbackReport {
    /// DataFusion's version.
    pub datafusion: &'static str,
    /// Threads and partitions of both.
    pub threads: usize,
    /// Measured runs of each statement.
    pub runs: usize,
    /// Every statement.
    pub statements: Vec<FallbackTime>,
}

/// A statement's times.
#[derive(Debug, Clone, Serialize)]
pub struct FallbackTime {
    /// Its name.
    pub name: &'static str,
    /// Kelpie's session: the median in milliseconds.
    pub kelpie_ms: f64,
    /// The plain session.
    pub datafusion_ms: f64,
    /// The first by the second.
    pub ratio: f64,
    /// Parts that were compiled.
    pub compiled_parts: usize,
    /// Whether no part is DataFusion's: the statement then does not belong here.
    pub compiled: bool,
    /// How the answers differ.
    pub difference: Option<String>,
}

/// Runs every statement in both sessions in turn; `progress` hears of each.
pub async fn run(options: &FallbackOptions<'_>, progress: &(dyn Fn(&str) + Sync)) -> Result<FallbackReport> {
    let statements: Vec<_> = STATEMENTS
        .into_iter()
        .filter(|(name, _)| options.queries.is_empty() || options.queries.iter().any(|query| query == name))
        .collect();
    if let Some(unknown) =
        options.queries.iter().find(|query| STATEMENTS.iter().all(|(name, _)| name != query))
    {
        let names = STATEMENTS.map(|(name, _)| name).join(", ");
        bail!("fallback has no statement `{unknown}`: its statements are {names}");
    }
    let (kelpie, plain) = sessions(options).await?;
    let mut report = FallbackReport {
        datafusion: datafusion::DATAFUSION_VERSION,
        threads: options.threads,
        runs: options.runs,
        statements: Vec::new(),
    };
    for (name, sql) in statements {
        progress(name);
        let time = measure(&kelpie, &plain, options.runs, name, sql).await;
        report.statements.push(time.with_context(|| format!("statement `{name}`"))?);
    }
    Ok(report)
}

async fn sessions(options: &FallbackOptions<'_>) -> Result<(KelpieSession, SessionContext)> {
    let threads = options.threads.to_string();
    let mut settings = SessionOptions::default()
        // DataFusion alone plans each time, and what is compared is how statements run.
        .with("kelpie.kept_plans", "0")
        .with("kelpie.threads", &threads)
        .with("datafusion.execution.target_partitions", &threads);
    settings.settings.extend(options.settings.iter().cloned());
    let kelpie = KelpieSession::new(settings)?;
    let plain = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(options.threads));
    for table in Workload::Tpch.tables() {
        let path = super::table_path(options.data, table);
        kelpie.register_path(table, &path).await?;
        let path = path.to_str().context("the path of the data is not UTF-8")?;
        plain.register_parquet(*table, path, ParquetReadOptions::default()).await?;
    }
    Ok((kelpie, plain))
}

async fn measure(
    kelpie: &KelpieSession,
    plain: &SessionContext,
    runs: usize,
    name: &'static str,
    sql: &str,
) -> Result<FallbackTime> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut compiled, mut compiled_parts, mut difference) = (false, 0, None);
    for round in 0..=runs {
        // Whoever runs second finds warm files: they take turns.
        let (mut answer, mut expected) = (None, None);
        for first in [round % 2 == 0, round % 2 != 0] {
            let start = Instant::now();
            if first {
                let result = kelpie.sql(sql).await?;
                ours.push(start.elapsed().as_secs_f64() * 1e3);
                (compiled, compiled_parts) = (result.timing.compiled, result.timing.parts.len());
                answer = Some(result.batches);
            } else {
                expected = Some(plain.sql(sql).await?.collect().await?);
                theirs.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        if let (Some(answer), Some(expected)) = (answer, expected) {
            difference = difference.or(differs(&expected, &answer, OPEN.contains(&name))?);
        }
    }
    // The first round warms up.
    let (kelpie_ms, datafusion_ms) = (median(&mut ours[1..]), median(&mut theirs[1..]));
    let ratio = kelpie_ms / datafusion_ms;
    Ok(FallbackTime { name, kelpie_ms, datafusion_ms, ratio, compiled_parts, compiled, difference })
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The first difference of two answers as multisets of rows; floats may differ by 1e-9, relatively.
fn differs(expected: &[RecordBatch], answer: &[RecordBatch], open: bool) -> Result<Option<String>> {
    let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    if rows(expected) != rows(answer) {
        return Ok(Some(format!("{} rows, not {}", rows(answer), rows(expected))));
    }
    if open || rows(expected) == 0 {
        return Ok(None);
    }
    let (expected, answer) = (texts(expected)?, texts(answer)?);
    let same = |(a, b): (&Vec<Value>, &Vec<Value>)| a.iter().zip(b).all(|(a, b)| a.is_close(b));
    let differing = expected.iter().zip(&answer).find(|(a, b)| !same((a, b)));
    Ok(differing.map(|(expected, answer)| format!("{answer:?}, not {expected:?}")))
}

#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Value {
    Text(String),
    Float(f64),
}

impl Value {
    fn is_close(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()),
            (a, b) => a == b,
        }
    }
}

/// Rows in an order of their own.
fn texts(batches: &[RecordBatch]) -> Result<Vec<Vec<Value>>> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let batch = concat_batches(&first.schema(), batches)?;
    let mut rows = vec![Vec::new(); batch.num_rows()];
    for column in batch.columns() {
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
        let floats = match column.data_type() {
            DataType::Float32 | DataType::Float64 => Some(cast(column, &DataType::Float64)?),
            _ => None,
        };
        for (row, values) in rows.iter_mut().enumerate() {
            values.push(match &floats {
                Some(floats) if floats.is_valid(row) => {
                    Value::Float(floats.as_primitive::<Float64Type>().value(row))
                }
                _ => Value::Text(formatter.value(row).try_to_string()?),
            });
        }
    }
    rows.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    Ok(rows)
}

impl FallbackReport {
    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "DataFusion {} with Kelpie and without, {} threads, {} runs\n",
            self.datafusion, self.threads, self.runs
        );
        let _ = writeln!(
            text,
            "{:<20} {:>10} {:>14} {:>6} {:>6}",
            "statement", "Kelpie/ms", "DataFusion/ms", "ratio", "parts"
        );
        for time in &self.statements {
            let FallbackTime { name, kelpie_ms, datafusion_ms, ratio, compiled_parts, .. } = time;
            let _ = write!(
                text,
                "{name:<20} {kelpie_ms:>10.1} {datafusion_ms:>14.1} {ratio:>6.2} {compiled_parts:>6}"
            );
            let note = match (&time.difference, time.compiled) {
                (Some(difference), _) => format!("  DIFFERENT: {difference}"),
                (None, true) => "  (compiles as a whole)".into(),
                (None, false) => String::new(),
            };
            let _ = writeln!(text, "{note}");
        }
        let worst = self.statements.iter().map(|time| time.ratio).fold(f64::NAN, f64::max);
        let logs: f64 = self.statements.iter().map(|time| time.ratio.ln()).sum();
        let mean = (logs / self.statements.len().max(1) as f64).exp();
        let _ = writeln!(text, "\ngeometric mean {mean:.2}, worst {worst:.2}");
        text
    }

    /// Whether all answers are the same.
    pub fn is_right(&self) -> bool {
        self.statements.iter().all(|time| time.difference.is_none())
    }
}
