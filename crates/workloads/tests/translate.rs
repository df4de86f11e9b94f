//! Every query of the benchmarks becomes a Kelpie plan: whatever is not compiled, the compiler says so.

use kelpie_session::testing::translate;
use kelpie_workloads::Workload;

use super::common::{data, session};

#[tokio::test(flavor = "multi_thread")]
async fn all_queries_translate() {
    for workload in [Workload::Tpch, Workload::Ssb, Workload::Shapes, Workload::Windows] {
        let data = data(workload, 0.001);
        let session = session(data.path(), &[("kelpie.enabled", "false")]).await;
        for (name, sql) in workload.queries() {
            let plan = session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            if let Err(reasons) = translate(&plan) {
                panic!("{} {name}:\n{}", workload.name(), reasons.join("\n"));
            }
        }
    }
}
