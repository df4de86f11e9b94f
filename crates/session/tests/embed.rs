//! Kelpie inside a program: the example that the book shows, and rows as a stream.

use futures::{StreamExt, TryStreamExt};
use kelpie_session::{KelpieSession, SessionOptions};

#[path = "../examples/embed.rs"]
mod example;

#[test]
fn the_example_runs() {
    example::main().unwrap();
}

fn session() -> KelpieSession {
    KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_as_a_stream_that_knows_its_columns() {
    let session = session();
    for (sql, rows) in [("select 1 as a, 'x' as b", 1), ("select 1 as a, 'x' as b where false", 0)] {
        let stream = session.start(sql).await.unwrap().into_stream();
        let names: Vec<_> = stream.schema().fields().iter().map(|field| field.name().clone()).collect();
        assert_eq!(names, ["a", "b"], "{sql}");
        let batches: Vec<_> = stream.try_collect().await.unwrap();
        assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), rows, "{sql}");
        // The last of them says where the time went.
        assert!(session.last_metrics().is_some_and(|timing| timing.total_ns > 0), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_worded_and_ends_the_stream() {
    let sql = "select 1 / (v - 2) as q from (values (1), (2)) as t(v)";
    let mut stream = session().start(sql).await.unwrap().into_stream();
    let mut errors = 0;
    while let Some(next) = stream.next().await {
        if let Err(error) = next {
            assert!(kelpie_session::message(&error).contains("ivide by zero"), "{error}");
            errors += 1;
        }
    }
    assert_eq!(errors, 1);
}
