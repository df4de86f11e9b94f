//! Every query of the benchmarks becomes a Kelpie plan: whatever is not compiled, the compiler says so.

use kelpie_datafusion::testing::translate;
use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload};

#[tokio::test(flavor = "multi_thread")]
async fn all_queries_translate() {
    for workload in [Workload::Tpch, Workload::Ssb, Workload::Shapes] {
        let folder = tempfile::tempdir().unwrap();
        let options = GenerateOptions {
            scale: 0.001,
            output: folder.path(),
            tables: &[],
            threads: 1,
            replace: false,
            progress: &|_| {},
        };
        workload.generate(&options).unwrap();
        let session = KelpieSession::new(SessionOptions::default().with("kelpie.enabled", "false")).unwrap();
        session.register_dir(folder.path()).await.unwrap();
        for (name, sql) in workload.queries() {
            let plan = session.context().sql(sql).await.unwrap().create_physical_plan().await.unwrap();
            if let Err(reasons) = translate(&plan) {
                panic!("{} {name}:\n{}", workload.name(), reasons.join("\n"));
            }
        }
    }
}
