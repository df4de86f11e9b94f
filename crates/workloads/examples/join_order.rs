//! Rows that come out of all joins of TPC-H's queries and go into all aggregates, on DataFusion's operators, in
//! DataFusion's order of joins and in Kelpie's: `cargo run --release -p kelpie-workloads --example join_order -- [SCALE] [FOLDER]`.
//!
//! Without a folder the data are made.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::{ExecutionPlan, collect};
use kelpie_session::{JoinOrderRule, KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload, tpch};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let scale: f64 = arguments.next().map_or(Ok(0.1), |scale| scale.parse())?;
    let folder = std::env::temp_dir().join(format!("kelpie-join-order-{}", std::process::id()));
    let data = match arguments.next() {
        Some(data) => PathBuf::from(data),
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
    println!(
        "| query | rows of joins before | after | ratio | rows into aggregates before | after | rule, us |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (i, sql) in tpch::QUERIES.iter().enumerate() {
        let before = rows(&data, sql, "false").await?;
        let after = rows(&data, sql, "true").await?;
        let ratio = before.0 as f64 / after.0.max(1) as f64;
        let rule_us = rule_us(&data, sql).await?;
        println!(
            "| Q{} | {} | {} | {ratio:.1} | {} | {} | {rule_us:.0} |",
            i + 1,
            before.0,
            after.0,
            before.1,
            after.1
        );
    }
    std::fs::remove_dir_all(&folder).ok();
    Ok(())
}

async fn session(data: &Path, join_order: &str) -> Result<KelpieSession> {
    let options =
        SessionOptions::default().with("kelpie.enabled", "false").with("kelpie.join_order", join_order);
    let session = KelpieSession::new(options)?;
    session.register_dir(data).await?;
    Ok(session)
}

/// Rows that come out of all joins, and that go into all aggregates.
async fn rows(data: &Path, sql: &str, join_order: &str) -> Result<(usize, usize)> {
    let session = session(data, join_order).await?;
    let context = session.context();
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    collect(Arc::clone(&plan), context.task_ctx()).await?;
    Ok((rows_where(&plan, &is_join), rows_where(&plan, &feeds_aggregate)))
}

/// The shortest time of the rule in microseconds, on the plan that it gets.
async fn rule_us(data: &Path, sql: &str) -> Result<f64> {
    let session = session(data, "true").await?;
    let rules = PhysicalOptimizer::new().rules.into_iter();
    let rules = rules.take_while(|rule| rule.name() != "LimitedDistinctAggregation").collect();
    let state = session.context().state();
    let state = SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules).build();
    let rule = JoinOrderRule::new(state.runtime_env());
    let plan = state.create_physical_plan(&state.create_logical_plan(sql).await?).await?;
    let mut best_us = f64::INFINITY;
    for _ in 0..20 {
        let (plan, start) = (Arc::clone(&plan), Instant::now());
        rule.optimize(plan, state.config_options())?;
        best_us = best_us.min(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(best_us)
}

type Node = Arc<dyn ExecutionPlan>;

fn is_join(node: &Node) -> Vec<Node> {
    let join = node.is::<HashJoinExec>() || node.is::<NestedLoopJoinExec>() || node.is::<CrossJoinExec>();
    if join { vec![Arc::clone(node)] } else { vec![] }
}

/// The first node below an aggregate that counts its rows.
fn feeds_aggregate(node: &Node) -> Vec<Node> {
    if !node.is::<AggregateExec>() {
        return vec![];
    }
    let mut below = Arc::clone(node.children()[0]);
    while below.metrics().and_then(|metrics| metrics.output_rows()).is_none() {
        match below.children().first() {
            Some(child) => below = Arc::clone(child),
            None => return vec![],
        }
    }
    vec![below]
}

/// Output rows of the nodes that `chosen` gives for each node.
fn rows_where(plan: &Node, chosen: &dyn Fn(&Node) -> Vec<Node>) -> usize {
    let rows = |node: &Node| node.metrics().and_then(|metrics| metrics.output_rows()).unwrap_or(0);
    let own: usize = chosen(plan).iter().map(rows).sum();
    own + plan.children().into_iter().map(|child| rows_where(child, chosen)).sum::<usize>()
}
