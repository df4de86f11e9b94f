//! What a client may take, how a statement is cancelled, and how a server ends.

use std::time::{Duration, Instant};

use arrow_flight::{Action, CancelFlightInfoRequest};
use datafusion::arrow::array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use crate::setup::{Client, Fixture, fails, fixture, query, rows_of, status, ticket};

/// Rows without end, for a test.
const LONG: &str =
    "SELECT a.value, b.value FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
const PATIENCE: Duration = Duration::from_secs(60);

/// What a page of the metrics' address answers.
async fn page(fixture: &Fixture, path: &str) -> String {
    let mut stream = TcpStream::connect(fixture.server.metrics_address().unwrap()).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn metric(fixture: &Fixture, name: &str) -> f64 {
    let text = page(fixture, "/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    line.unwrap_or(0.0)
}

/// Waits until a metric has a value.
async fn becomes(fixture: &Fixture, name: &str, value: f64) {
    let start = Instant::now();
    while metric(fixture, name).await != value {
        assert!(start.elapsed() < PATIENCE, "{name} is {}", metric(fixture, name).await);
        sleep(Duration::from_millis(20)).await;
    }
}

async fn measured(set_up: impl FnOnce(&mut kelpie_server::ServerOptions)) -> Fixture {
    fixture(|options| {
        options.metrics = Some("127.0.0.1:0".parse().unwrap());
        set_up(options);
    })
    .await
}

/// Starts a long query, and takes its first rows.
async fn begun(client: &mut Client) -> arrow_flight::decode::FlightRecordBatchStream {
    let info = client.execute(LONG.into(), None).await.unwrap();
    let mut rows = client.do_get(ticket(&info)).await.unwrap();
    assert!(rows.next().await.unwrap().unwrap().num_rows() > 0);
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_ends_its_query() {
    let fixture = measured(|_| {}).await;
    let mut client = fixture.client().await;
    let rows = begun(&mut client).await;
    becomes(&fixture, "kelpie_statements_running", 1.0).await;
    drop(rows);
    becomes(&fixture, "kelpie_statements_running", 0.0).await;
    becomes(&fixture, "kelpie_statements_total{outcome=\"cancelled\"}", 1.0).await;
    // With its connection too.
    let rows = begun(&mut client).await;
    becomes(&fixture, "kelpie_statements_running", 1.0).await;
    drop((rows, client));
    becomes(&fixture, "kelpie_statements_running", 0.0).await;
    becomes(&fixture, "kelpie_connections", 0.0).await;
    becomes(&fixture, "kelpie_sessions", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_cancelled_by_its_flight() {
    let fixture = measured(|_| {}).await;
    let (mut client, mut other) = (fixture.client().await, fixture.client().await);
    let info = client.execute(LONG.into(), None).await.unwrap();
    let mut rows = client.do_get(ticket(&info)).await.unwrap();
    rows.next().await.unwrap().unwrap();
    let body = CancelFlightInfoRequest { info: Some(info.clone()) }.encode_to_vec();
    let action = Action { r#type: "CancelFlightInfo".into(), body: body.into() };
    // It is nobody's else to cancel.
    fails(
        other.do_action(action.clone()).await.map(|_| ()).map_err(status),
        Code::NotFound,
        "no such statement",
    );
    let answer: Vec<_> = client.do_action(action.clone()).await.unwrap().try_collect().await.unwrap();
    // `CANCELLED`.
    assert_eq!(answer[0].body.as_ref(), [8, 1]);
    let rest: Result<Vec<RecordBatch>, _> = timeout(PATIENCE, rows.try_collect()).await.unwrap();
    fails(rest.map_err(status), Code::Cancelled, "cancelled");
    becomes(&fixture, "kelpie_statements_running", 0.0).await;
    fails(client.do_action(action).await.map(|_| ()).map_err(status), Code::NotFound, "no such statement");
    // One that was not begun.
    let info = client.execute(LONG.into(), None).await.unwrap();
    let body = CancelFlightInfoRequest { info: Some(info.clone()) }.encode_to_vec();
    client.do_action(Action { r#type: "CancelFlightInfo".into(), body: body.into() }).await.unwrap();
    fails(rows_of(&mut client, &info).await, Code::NotFound, "ticket");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_rows_loses_its_query() {
    let fixture = measured(|options| options.limits.stalled = Duration::from_millis(300)).await;
    let mut client = fixture.client().await;
    let rows = begun(&mut client).await;
    becomes(&fixture, "kelpie_statements_running", 1.0).await;
    becomes(&fixture, "kelpie_statements_running", 0.0).await;
    let taken = metric(&fixture, "kelpie_bytes_total").await;
    assert!(taken < 64e6, "{taken} bytes were made for nobody");
    // What was on its way comes, and then that it is not whole.
    let rest: Result<Vec<RecordBatch>, Status> = rows.map_err(status).try_collect().await;
    fails(rest, Code::Cancelled, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_have_a_size_and_a_time() {
    let fixture = measured(|options| {
        options.limits.statement_bytes = 100;
        options.limits.time = Some(Duration::from_millis(300));
    })
    .await;
    let mut client = fixture.client().await;
    let long = format!("SELECT '{}'", "ä".repeat(60));
    fails(query(&mut client, &long).await, Code::ResourceExhausted, "100 are the most");
    let update = client.execute_update(long.clone(), None).await.map_err(status);
    fails(update, Code::ResourceExhausted, "100 are the most");
    fails(
        client.prepare(long, None).await.map(drop).map_err(status),
        Code::ResourceExhausted,
        "100 are the most",
    );
    // A message beyond all bounds is not even read.
    let huge = "x".repeat(20 << 20);
    assert!(client.execute(huge, None).await.is_err());
    for set in ["SET kelpie.timeout = '1h'", "SET kelpie.timeout = '0'", "RESET kelpie.timeout"] {
        client.execute_update(set.into(), None).await.unwrap();
        let sql = "SELECT sum(value % 7) FROM generate_series(1, 100000000000)";
        fails(timeout(PATIENCE, query(&mut client, sql)).await.unwrap(), Code::DeadlineExceeded, "300ms");
    }
    assert_eq!(query(&mut client, "SELECT 1").await.unwrap(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_statements_are_counted() {
    let fixture = measured(|options| {
        options.limits.sessions = 2;
        options.limits.statements = 1;
    })
    .await;
    let (mut one, mut two) = (fixture.client().await, fixture.client().await);
    assert_eq!(query(&mut one, "SELECT 1").await.unwrap(), ["1"]);
    let rows = begun(&mut two).await;
    let mut three = fixture.client().await;
    fails(query(&mut three, "SELECT 1").await, Code::ResourceExhausted, "2 sessions are open");
    becomes(&fixture, "kelpie_refused_total{reason=\"sessions\"}", 1.0).await;
    // One that waits for its turn gets it.
    let waiting = tokio::spawn(async move { query(&mut one, "SELECT 2").await });
    sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    drop((rows, two));
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap(), ["2"]);
    // A session that nobody has any more makes place.
    assert_eq!(query(&mut three, "SELECT 3").await.unwrap(), ["3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_text_for_prometheus() {
    let fixture = measured(|_| {}).await;
    let mut client = fixture.client().await;
    query(&mut client, "SELECT * FROM t").await.unwrap();
    assert!(query(&mut client, "SELECT * FROM nowhere").await.is_err());
    becomes(&fixture, "kelpie_statements_total{outcome=\"done\"}", 1.0).await;
    becomes(&fixture, "kelpie_statements_total{outcome=\"failed\"}", 1.0).await;
    assert_eq!(metric(&fixture, "kelpie_rows_total").await, 3.0);
    assert_eq!(metric(&fixture, "kelpie_statement_seconds_count").await, 2.0);
    let text = page(&fixture, "/metrics").await;
    assert!(text.contains("application/openmetrics-text") && text.ends_with("# EOF\n"), "{text}");
    assert!(page(&fixture, "/health").await.ends_with("serving\n"));
    assert!(page(&fixture, "/").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_lets_statements_end() {
    let fixture = measured(|options| options.limits.drain = Duration::from_secs(60)).await;
    let mut client = fixture.client().await;
    let sql = "SELECT value FROM generate_series(1, 3000000)";
    let info = client.execute(sql.into(), None).await.unwrap();
    let waiting = client.execute(sql.into(), None).await.unwrap();
    let mut rows = client.do_get(ticket(&info)).await.unwrap();
    let mut found = rows.next().await.unwrap().unwrap().num_rows();
    let address = fixture.server.address();
    let stopping = tokio::spawn(fixture.server.stop());
    sleep(Duration::from_millis(300)).await;
    assert!(!stopping.is_finished());
    fails(query(&mut client, "SELECT 1").await, Code::Unavailable, "about to end");
    assert!(TcpStream::connect(address).await.is_err());
    // A ticket that is held is good.
    let late = rows_of(&mut client, &waiting).await.unwrap();
    assert_eq!(late.iter().map(RecordBatch::num_rows).sum::<usize>(), 3_000_000);
    while let Some(batch) = rows.next().await {
        found += batch.unwrap().num_rows();
    }
    assert_eq!(found, 3_000_000);
    timeout(Duration::from_secs(20), stopping).await.unwrap().unwrap();
    assert!(query(&mut client, "SELECT 1").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_does_not_wait_for_ever() {
    let fixture = measured(|options| options.limits.drain = Duration::from_millis(200)).await;
    let mut client = fixture.client().await;
    let rows = begun(&mut client).await;
    let stopping = timeout(Duration::from_secs(20), fixture.server.stop());
    let (stopped, rest) = tokio::join!(stopping, rows.map_err(status).try_collect::<Vec<RecordBatch>>());
    stopped.unwrap();
    assert!(rest.is_err(), "rows that are not whole end in an error");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once_get_their_own_rows() {
    let fixture = fixture(|_| {}).await;
    let clients = (0..32).map(|number| {
        let channel = fixture.channel();
        async move {
            let mut client = Client::new(channel.await);
            for round in 0..5 {
                let sql = format!("SELECT {number}, {round}, count(*) FROM t WHERE k > {}", number % 3);
                let expected = format!("{number}|{round}|{}", 3 - number % 3);
                assert_eq!(query(&mut client, &sql).await.unwrap(), [expected]);
            }
        }
    });
    futures::future::join_all(clients).await;
}
