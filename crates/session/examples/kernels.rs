//! Writes the GPU kernels of the test queries as `.kir` files: generated queries, TPC-H Q1 and Q6, and text. Called by
//! `cargo run -p xtask -- kernels`. Arguments: FOLDER QUERIES.

use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use kelpie_engine::{Engine, MicroModel, Resolution};
use kelpie_kir::profile::profiled;
use kelpie_kir::{Target, text};
use kelpie_session::testing::{QueryGenerator, sessions, translated};
use kelpie_session::{KelpieExec, KelpieSession};

/// Columns as TPC-H has them: enough to plan Q1 and Q6.
const LINEITEM: &str = "create table lineitem (l_quantity decimal(15,2), l_extendedprice decimal(15,2), \
    l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag varchar, l_linestatus varchar, l_shipdate date)";

/// Expressions over text, of which generated queries have few.
const TEXT: [&str; 12] = [
    "l_returnflag like '%a%b_' and substr(l_linestatus, 2) like 'x%y%z'",
    "substr(l_returnflag, 1) ~* 'a[b-d]+$' or l_linestatus ~ '\\bcat'",
    "substr(l_returnflag, 1) < l_linestatus and l_linestatus || 'x' = concat_ws('-', l_returnflag, l_linestatus)",
    "upper(trim(l_returnflag)) = lower(rtrim(l_linestatus, l_returnflag))",
    "left(l_returnflag, -2) <> right(l_linestatus, 3)",
    "strpos(l_returnflag, l_linestatus) > 1 and not ends_with(l_returnflag, l_linestatus)",
    "contains(substr(l_returnflag, 1), l_linestatus) or starts_with(substr(l_returnflag, 1), l_linestatus)",
    "replace(l_returnflag, l_linestatus, 'x') = repeat(l_linestatus, 3)",
    "reverse(l_returnflag) = lpad(l_linestatus, 5, 'xy')",
    "split_part(l_returnflag, '-', 2) = rpad(l_linestatus, 7)",
    "l_quantity::varchar || l_shipdate::varchar = l_returnflag || (l_tax > 1)::varchar",
    "length(substr(l_returnflag, 1)) in (select length(l_linestatus || 'x') from lineitem)",
];

/// Aggregates over sorted groups, which generated queries have few of.
const RANKED: [&str; 4] = [
    "select l_returnflag, median(l_tax), sum(l_tax), percentile_cont(l_tax, 0.3) from lineitem group by 1",
    "select median(l_quantity::double), percentile_cont(l_quantity::float, 0.9), count(*) from lineitem",
    "select l_shipdate, first_value(l_returnflag order by l_tax desc, l_linestatus), nth_value(l_tax, -2 order by l_tax desc, l_linestatus) from lineitem group by 1",
    "select l_quantity, last_value(l_tax order by l_shipdate) filter (where l_tax > 0) from lineitem group by 1",
];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(folder), Some(Ok(queries))) = (arguments.first(), arguments.get(1).map(|n| n.parse::<usize>()))
    else {
        eprintln!("usage: kernels FOLDER QUERIES");
        return ExitCode::from(2);
    };
    match write_all(Path::new(folder), queries).await {
        Ok(count) => {
            println!("{count} kernels of {queries} queries");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn write_all(folder: &Path, queries: usize) -> Result<usize> {
    let (_, kelpie) = sessions(1, &[("kelpie.min_rows", "0")])?;
    kelpie.context().sql(LINEITEM).await?.collect().await?;
    let mut known = HashSet::new();
    // Queries are planned and compiled on every core, and written in their order.
    let kelpie = Arc::new(kelpie);
    let tasks: Vec<_> = all_queries(queries)
        .into_iter()
        .map(|query| {
            let kelpie = Arc::clone(&kelpie);
            tokio::spawn(async move { (modules(&kelpie, &query.sql).await, query) })
        })
        .collect();
    for task in tasks {
        let (modules, query) = task.await.map_err(|error| DataFusionError::External(error.into()))?;
        if query.compiles && modules.is_empty() {
            return Err(DataFusionError::Execution(format!("not compiled: {}", query.sql)));
        }
        for module in modules {
            if known.insert(module.clone()) {
                std::fs::write(folder.join(format!("query_{}.kir", known.len())), module)?;
            }
        }
    }
    Ok(known.len())
}

/// A query whose kernels are written.
struct Query {
    sql: String,
    /// Whether it must have some; generated queries may fail to plan.
    compiles: bool,
}

fn all_queries(generated: usize) -> Vec<Query> {
    let mut generator = QueryGenerator::new(1);
    let generated = (0..generated).map(|_| Query { sql: generator.query().sql, compiles: false });
    let texts = TEXT.map(|condition| {
        format!(
            "select l_returnflag || 'x', count(*), max(upper(l_linestatus)) from lineitem where {condition} group by 1"
        )
    });
    let tpch = [
        include_str!("../../workloads/queries/tpch/q01.sql"),
        include_str!("../../workloads/queries/tpch/q06.sql"),
    ];
    let written = tpch.into_iter().chain(RANKED).map(str::to_string).chain(texts);
    generated.chain(written.map(|sql| Query { sql, compiles: true })).collect()
}

/// The kernels of a query, printed; none where it fails to plan, as some generated queries must.
async fn modules(kelpie: &KelpieSession, sql: &str) -> Vec<String> {
    let Ok(plan) = plan(kelpie, sql).await else { return Vec::new() };
    let target = Target::simt(32, 256, 227 << 10, 1056);
    let marking = Target { counts_marks: true, ..target.clone() };
    let mut printed = Vec::new();
    let mut stack = vec![plan];
    while let Some(node) = stack.pop() {
        if let Some(exec) = node.downcast_ref::<KelpieExec>() {
            // As `kelpie.profile = lanes` has them.
            let models = (MicroModel::default(), Resolution::default());
            let marked = Engine::modules(&translated(exec).plan, &marking, models).unwrap_or_default();
            printed.extend(marked.iter().map(|module| text::print(&profiled(module))));
            for micro_model in MicroModel::ALL {
                for resolution in Resolution::ALL {
                    let models = (micro_model, resolution);
                    let modules =
                        Engine::modules(&translated(exec).plan, &target, models).unwrap_or_default();
                    printed.extend(modules.iter().map(text::print));
                }
            }
        }
        stack.extend(node.children().into_iter().map(Arc::clone));
    }
    printed
}

async fn plan(kelpie: &KelpieSession, sql: &str) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
    kelpie.context().sql(sql.trim().trim_end_matches(';')).await?.create_physical_plan().await
}
