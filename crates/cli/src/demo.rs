//! `kelpie demo`: a few queries over generated data, their answers and pipelines, and the time beside DataFusion's.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, QueryTiming};
use kelpie_workloads::bench::DataFusionPeer;
use kelpie_workloads::{Progress as RowProgress, Workload, tpch};

use crate::args::{DemoArguments, thread_count};
use crate::progress::Progress;
use crate::run::timing_text;

/// Measured runs of each query; the median counts.
const RUNS: usize = 5;

/// What is shown: a title and a query.
fn queries() -> [(&'static str, &'static str); 4] {
    [
        ("TPC-H query 1: sums and averages of most of a table, in groups", tpch::QUERIES[0]),
        ("TPC-H query 6: one sum behind a selective filter", tpch::QUERIES[5]),
        (
            "What ships how, and how late",
            "select l_shipmode, count(*) as lines, sum(l_quantity) as items,
       avg(case when l_receiptdate > l_commitdate then 1.0 else 0.0 end) as late_share
from lineitem
where l_shipinstruct <> 'NONE'
group by l_shipmode
order by lines desc",
        ),
        (
            "Large open orders, year by year",
            "select extract(year from o_orderdate) as year, o_orderpriority, count(*) as orders,
       max(o_totalprice) as largest
from orders
where o_totalprice > 300000 and o_orderstatus = 'O'
group by extract(year from o_orderdate), o_orderpriority
order by year, o_orderpriority
limit 10",
        ),
    ]
}

pub async fn run(arguments: DemoArguments) -> Result<ExitCode> {
    let data = data_folder(&arguments)?;
    let session = arguments.settings.session()?;
    session.register_dir(&data).await?;
    let spinner = Progress::spinner("loading the tables into DataFusion");
    let peer = DataFusionPeer::start(&data, &["lineitem", "orders"], thread_count(None), true).await?;
    drop(spinner);
    for (title, sql) in queries() {
        show(&session, &peer, title, sql).await?;
    }
    writeln!(std::io::stdout(), "Next: kelpie --data {}", data.display())?;
    Ok(ExitCode::SUCCESS)
}

/// The folder of the data, made at the first run.
fn data_folder(arguments: &DemoArguments) -> Result<PathBuf> {
    let parent = match &arguments.dir {
        Some(folder) => folder.clone(),
        None => cache_folder()?,
    };
    let folder = Workload::Tpch.folder(&parent, arguments.scale);
    if !folder.is_dir() {
        let place = folder.display();
        writeln!(std::io::stdout(), "making TPC-H data at scale {} in {place}", arguments.scale)?;
    }
    let bar = Progress::bar(0, "rows");
    let progress = |p: RowProgress| bar.set(p.rows_done, p.rows_expected);
    Workload::Tpch.generate_once(&parent, arguments.scale, thread_count(None), &progress)
}

/// Where data is kept that the user gave no folder for.
pub fn cache_folder() -> Result<PathBuf> {
    let folder = dirs::cache_dir().context("there is no cache folder: give one on the command line")?;
    Ok(folder.join("kelpie"))
}

/// A query: its text, its answer, its pipelines and its time.
async fn show(session: &KelpieSession, peer: &DataFusionPeer, title: &str, sql: &str) -> Result<()> {
    let first = session.sql(sql).await?;
    let answer = pretty_format_batches(&first.batches)?;
    let analyzed = session.sql(&format!("explain analyze {sql}")).await?;
    let (mut own, mut other) = (Vec::new(), Vec::new());
    // In turn, so that a disturbance meets both.
    for _ in 0..RUNS {
        own.push(session.sql(sql).await?.timing);
        other.push(peer.run(sql).await?.0);
    }
    own.sort_by_key(|timing| timing.total_ns);
    other.sort_unstable();
    let (own, other) = (&own[RUNS / 2], other[RUNS / 2]);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n== {title}\n\n{}\n\n{answer}\n", sql.trim_end().trim_end_matches(';'))?;
    writeln!(out, "{}\n", plan_text(&analyzed.batches)?)?;
    writeln!(out, "first run   {}", timing_text(&first.timing))?;
    writeln!(out, "hot         {}", timing_text(&without_reasons(own)))?;
    let (own_ms, other_ms) = (own.total_ns as f64 / 1e6, other as f64 / 1e6);
    writeln!(
        out,
        "DataFusion  time: {other_ms:.2} ms (tables in memory): Kelpie takes {:.2} of it\n",
        own_ms / other_ms
    )?;
    Ok(())
}

/// The reasons stand beside the first run already.
fn without_reasons(timing: &QueryTiming) -> QueryTiming {
    let mut timing = timing.clone();
    timing.reasons.clear();
    timing
}

/// The text of EXPLAIN ANALYZE: the last column of its rows.
fn plan_text(batches: &[RecordBatch]) -> Result<String> {
    let mut lines = Vec::new();
    for batch in batches {
        let column = batch.columns().last().ok_or_else(|| anyhow!("EXPLAIN ANALYZE shows nothing"))?;
        for row in 0..column.len() {
            lines.push(array_value_to_string(column, row)?.trim_end().to_string());
        }
    }
    Ok(lines.join("\n"))
}
