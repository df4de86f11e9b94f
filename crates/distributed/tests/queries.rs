//! Answers of workers against those of one process.

use kelpie_session::KelpieSession;
use kelpie_session::testing::same;
use kelpie_workloads::Workload;

use crate::common::{Team, alone, data};

async fn plan(session: &KelpieSession, sql: &str) -> String {
    let rows = session.sql(&format!("EXPLAIN {sql}")).await.unwrap();
    datafusion::arrow::util::pretty::pretty_format_batches(&rows.batches).unwrap().to_string()
}

async fn assert_same_answers(workload: Workload) {
    let (team, data) = (Team::of(3).await, data(workload));
    let (one, session) = (alone(data).await, team.session(data).await);
    let mut wrong = Vec::new();
    for (name, sql) in workload.queries() {
        let expected = one.sql(sql).await.unwrap();
        let got = match session.sql(sql).await {
            Ok(got) => got,
            Err(error) => {
                wrong.push(format!("{name}: {error}"));
                continue;
            }
        };
        if let Some(difference) = same(&expected.batches, &got.batches, false).unwrap() {
            wrong.push(format!("{name}: {difference}"));
        }
        let plan = plan(&session, sql).await;
        if !plan.contains("ClusterExec") || !plan.contains("KelpieExec") {
            wrong.push(format!("{name}: not on workers, or not compiled:\n{plan}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_on_workers() {
    assert_same_answers(Workload::Tpch).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_on_workers() {
    assert_same_answers(Workload::Ssb).await;
}
