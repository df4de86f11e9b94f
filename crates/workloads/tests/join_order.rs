//! Orders of joins: the answers stay, and the orders are those that were reviewed.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use kelpie_session::KelpieSession;
use kelpie_workloads::Workload;

use super::common::{self, data};

/// A session on DataFusion's operators.
async fn session(data: &Path, settings: &[(&str, &str)]) -> KelpieSession {
    common::session(data, &[&[("kelpie.enabled", "false")], settings].concat()).await
}

/// The rows as text, sorted; floats to nine digits.
async fn answer(session: &KelpieSession, sql: &str) -> Vec<String> {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}\n{error}"));
    let mut rows = Vec::new();
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayRef| {
                let text = array_value_to_string(column, row).unwrap();
                match (column.data_type().is_floating(), text.parse::<f64>()) {
                    (true, Ok(value)) => format!("{value:.9e}"),
                    _ => text,
                }
            };
            rows.push(batch.columns().iter().map(cell).collect::<Vec<_>>().join("|"));
        }
    }
    rows.sort();
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_do_not_depend_on_the_order() {
    for workload in [Workload::Tpch, Workload::Ssb] {
        let data = data(workload, 0.01);
        let plain = session(data.path(), &[("kelpie.join_order", "false")]).await;
        let ordered = session(data.path(), &[]).await;
        let parallel = [
            ("datafusion.execution.target_partitions", "3"),
            ("datafusion.optimizer.repartition_joins", "true"),
            ("datafusion.optimizer.repartition_aggregations", "true"),
            ("datafusion.optimizer.enable_round_robin_repartition", "true"),
            ("datafusion.optimizer.enable_dynamic_filter_pushdown", "true"),
            ("datafusion.optimizer.hash_join_single_partition_threshold_rows", "100"),
        ];
        let parallel = session(data.path(), &parallel).await;
        for (name, sql) in workload.queries() {
            let expected = answer(&plain, sql).await;
            assert_eq!(answer(&ordered, sql).await, expected, "{} {name}", workload.name());
            assert_eq!(answer(&parallel, sql).await, expected, "{} {name}, parallel", workload.name());
        }
    }
}

/// The joins of a plan: `(build x probe)`, with the tables at the leaves.
fn order(plan: &Arc<dyn ExecutionPlan>) -> String {
    if plan.is::<DataSourceExec>() {
        let schema = plan.schema();
        let prefix = schema.fields().first().map(|field| field.name().split('_').next().unwrap().to_string());
        return prefix.unwrap_or_else(|| "?".into());
    }
    let children: Vec<String> = plan.children().into_iter().map(order).collect();
    let join = plan.downcast_ref::<HashJoinExec>().map(|join| match join.join_type().to_string().as_str() {
        "Inner" => "x".to_string(),
        other => other.to_string(),
    });
    let join = join
        .or_else(|| plan.is::<NestedLoopJoinExec>().then(|| "pairs".into()))
        .or_else(|| plan.is::<CrossJoinExec>().then(|| "cross".into()));
    match (join, children.as_slice()) {
        (Some(join), [build, probe]) => format!("({build} {join} {probe})"),
        (None, [child]) if plan.name() == "AggregateExec" => format!("group{}", wrapped(child)),
        (None, [child]) => child.clone(),
        _ => format!("{{{}}}", children.join("; ")),
    }
}

fn wrapped(text: &str) -> String {
    if text.starts_with('(') { text.into() } else { format!("({text})") }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_the_reviewed_ones() {
    let mut text = String::new();
    for workload in [Workload::Tpch, Workload::Ssb] {
        let data = data(workload, 0.01);
        // As reviewed: in one partition, on any machine.
        let session = session(data.path(), &[("datafusion.execution.target_partitions", "1")]).await;
        for (name, sql) in workload.queries() {
            let plan = session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            let order = order(&plan);
            if order.contains(' ') {
                text.push_str(&format!("{} {name}: {order}\n", workload.name()));
            }
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/join_orders.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "orders changed (UPDATE_SNAPSHOTS=1 writes them):\n{text}");
}
