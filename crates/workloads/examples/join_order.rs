//! Rows that come out of all joins of TPC-H's queries, on DataFusion's operators, in DataFusion's order of joins and in
//! Kelpie's: `cargo run --release -p kelpie-workloads --example join_order -- [SCALE] [FOLDER]`.
//!
//! Without a folder the data are made.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::{ExecutionPlan, collect};
use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload, tpch};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let scale: f64 = arguments.next().map_or(Ok(0.1), |scale| scale.parse())?;
    let folder = std::env::temp_dir().join(format!("kelpie-join-order-{}", std::process::id()));
    let data = match arguments.next() {
        Some(data) => data.into(),
        None => {
            let options = GenerateOptions {
                scale,
                output: &folder,
                tables: &[],
                threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                replace: true,
                progress: &|_| {},
            };
            Workload::Tpch.generate(&options)?;
            folder.clone()
        }
    };
    println!("| query | rows of joins before | after | ratio | planning before, ms | after, ms |");
    println!("|---|---|---|---|---|---|");
    for (i, sql) in tpch::QUERIES.iter().enumerate() {
        let (before, plan_before) = rows(&data, sql, "false").await?;
        let (after, plan_after) = rows(&data, sql, "true").await?;
        if before > 0 {
            let ratio = before as f64 / after.max(1) as f64;
            println!("| Q{} | {before} | {after} | {ratio:.1} | {plan_before:.2} | {plan_after:.2} |", i + 1);
        }
    }
    std::fs::remove_dir_all(&folder).ok();
    Ok(())
}

/// Rows of all joins, and the time of planning in milliseconds.
async fn rows(data: &std::path::Path, sql: &str, join_order: &str) -> Result<(usize, f64)> {
    let options =
        SessionOptions::default().with("kelpie.enabled", "false").with("kelpie.join_order", join_order);
    let session = KelpieSession::new(options)?;
    session.register_dir(data).await?;
    let context = session.context();
    let mut plan_ms = f64::INFINITY;
    let mut planned = None;
    for _ in 0..5 {
        let frame = context.sql(sql).await?;
        let logical = context.state().optimize(frame.logical_plan())?;
        let start = Instant::now();
        planned =
            Some(context.state().query_planner().create_physical_plan(&logical, &context.state()).await?);
        plan_ms = plan_ms.min(start.elapsed().as_secs_f64() * 1e3);
    }
    let plan = planned.context("planned")?;
    if std::env::var_os("SHOW").is_some() {
        println!("{}", datafusion::physical_plan::displayable(plan.as_ref()).indent(false));
    }
    collect(Arc::clone(&plan), context.task_ctx()).await?;
    Ok((join_rows(&plan), plan_ms))
}

fn join_rows(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let is_join = plan.is::<HashJoinExec>() || plan.is::<NestedLoopJoinExec>() || plan.is::<CrossJoinExec>();
    let own = plan.metrics().filter(|_| is_join).and_then(|metrics| metrics.output_rows()).unwrap_or(0);
    own + plan.children().into_iter().map(join_rows).sum::<usize>()
}
