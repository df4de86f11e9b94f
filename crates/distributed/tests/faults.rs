//! Workers that are lost, are not there, or refuse.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use kelpie_distributed::{ConnectionOptions, Worker, WorkerOptions};
use kelpie_server::Credentials;
use kelpie_workloads::Workload;

use crate::common::{Team, cluster_of, data, session_of};

const QUERY: &str = "SELECT l_returnflag, count(*), sum(l_quantity) FROM lineitem GROUP BY 1 ORDER BY 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_query_runs_again_without_a_worker_that_is_gone() {
    let mut team = Team::of(3).await;
    let session = team.session(data(Workload::Tpch)).await;
    let before = session.sql(QUERY).await.unwrap();
    team.workers.remove(1).stop().await;
    let after = session.sql(QUERY).await.unwrap();
    assert_eq!(before.batches, after.batches);
    assert_eq!(
        team.cluster.health().await.unwrap().iter().filter(|health| health.answer.is_err()).count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_worker_the_error_names_one() {
    let team = Team::of(2).await;
    let session = team.session(data(Workload::Tpch)).await;
    let Team { workers, .. } = team;
    for worker in workers {
        worker.stop().await;
    }
    let error = session.sql(QUERY).await.unwrap_err().to_string();
    assert!(error.contains("worker http://127.0.0.1:") && error.contains("was lost"), "{error}");
}

/// One that takes connections and says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_worker_is_left_out_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let worker = Worker::start(WorkerOptions::default()).await.unwrap();
    let connections =
        ConnectionOptions { silence: Duration::from_millis(500), ..ConnectionOptions::default() };
    let workers = format!("{},{}", worker.address(), silent.local_addr().unwrap());
    let cluster = kelpie_distributed::Cluster::new(kelpie_distributed::ClusterOptions {
        workers: workers.parse().unwrap(),
        connections,
    });
    let session = session_of(&cluster.unwrap(), data(Workload::Tpch)).await;
    let start = Instant::now();
    let rows = session.sql(QUERY).await.unwrap().rows();
    assert_eq!(rows, 3);
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_needed_where_a_worker_asks_for_one() {
    let mut workers = Vec::new();
    for _ in 0..2 {
        let mut credentials = Credentials::default();
        credentials.add_tokens("s3cret").unwrap();
        let connections = ConnectionOptions { token: Some("s3cret".into()), ..ConnectionOptions::default() };
        let options = WorkerOptions { credentials, connections, ..WorkerOptions::default() };
        workers.push(Worker::start(options).await.unwrap());
    }
    let with = |token: Option<&str>| ConnectionOptions {
        token: token.map(String::from),
        ..ConnectionOptions::default()
    };
    let data = data(Workload::Tpch);
    let session = session_of(&cluster_of(&workers, with(Some("s3cret"))), data).await;
    assert_eq!(session.sql(QUERY).await.unwrap().rows(), 3);
    for token in [None, Some("other")] {
        let session = session_of(&cluster_of(&workers, with(token)), data).await;
        let error = session.sql(QUERY).await.unwrap_err().to_string();
        assert!(error.contains("refuses this process"), "{error}");
    }
}
