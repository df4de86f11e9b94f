//! Every query of TPC-H and of the Star Schema Benchmark, written as a plan, read back and compiled.

use kelpie_substrait::Form;
use kelpie_workloads::Workload;

use crate::common::{add, file, is_compiled, text, there_and_back, with_workload};

async fn check(workload: Workload, queries: usize) {
    let (_folder, session) = with_workload(workload).await;
    let all = workload.queries();
    assert_eq!(all.len(), queries);
    let mut differences = Vec::new();
    for (name, sql) in all {
        let expected = text(&session.sql(sql).await.unwrap());
        match there_and_back(&session, sql).await {
            Ok(answer) if answer == expected => {}
            Ok(answer) => differences.push(format!("{name}:\n{expected}\n{answer}")),
            Err(error) => differences.push(format!("{name}: {}", kelpie_session::message(&error))),
        }
        let file = file("plan", &kelpie_substrait::write(&session, sql, Form::Binary).await.unwrap());
        let added = add(&session, &file.path).await;
        if !is_compiled(&session, &added.statement()).await {
            differences.push(format!("{name}: it is not compiled as a whole"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch() {
    check(Workload::Tpch, 22).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb() {
    check(Workload::Ssb, 13).await;
}
