//! A server with a few tables, and clients of it.

use std::fs;

use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightInfo, Ticket};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use kelpie_server::{Server, ServerOptions};
use tempfile::TempDir;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub type Client = FlightSqlServiceClient<Channel>;

/// A server, and the folder of its tables.
pub struct Fixture {
    pub server: Server,
    pub folder: TempDir,
}

/// A folder with the table `t` of three rows.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.csv"), "k,name,x\n1,ä,1.5\n2,,2.5\n3,\"b,c\",\n").unwrap();
    folder
}

/// A server over [`folder`], set up as a test wants it.
pub async fn fixture(set_up: impl FnOnce(&mut ServerOptions)) -> Fixture {
    let folder = folder();
    let mut options = ServerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        data: vec![folder.path().to_path_buf()],
        settings: vec![("kelpie.device".into(), "cpu".into())],
        log: false,
        ..ServerOptions::default()
    };
    set_up(&mut options);
    Fixture { server: Server::start(options).await.unwrap(), folder }
}

impl Fixture {
    pub async fn channel(&self) -> Channel {
        let address = format!("http://{}", self.server.address());
        Channel::from_shared(address).unwrap().connect().await.unwrap()
    }

    /// A client with a connection of its own.
    pub async fn client(&self) -> Client {
        FlightSqlServiceClient::new(self.channel().await)
    }
}

pub fn ticket(info: &FlightInfo) -> Ticket {
    info.endpoint[0].ticket.clone().unwrap()
}

/// The rows of a flight.
pub async fn rows_of(client: &mut Client, info: &FlightInfo) -> Result<Vec<RecordBatch>, Status> {
    let stream = client.do_get(ticket(info)).await.map_err(status)?;
    stream.try_collect().await.map_err(status)
}

/// The rows of a statement, a text a row with `|` between the values; `-` is NULL.
pub async fn query(client: &mut Client, sql: &str) -> Result<Vec<String>, Status> {
    let info = client.execute(sql.into(), None).await.map_err(status)?;
    Ok(texts(&rows_of(client, &info).await?))
}

pub fn texts(batches: &[RecordBatch]) -> Vec<String> {
    let text = |batch: &RecordBatch, row: usize| {
        let value = |column: &std::sync::Arc<dyn datafusion::arrow::array::Array>| match column.is_null(row) {
            true => "-".to_string(),
            false => array_value_to_string(column, row).unwrap(),
        };
        batch.columns().iter().map(value).collect::<Vec<_>>().join("|")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| text(batch, row))).collect()
}

/// The status of an error.
pub fn status(error: arrow_flight::error::FlightError) -> Status {
    match error {
        arrow_flight::error::FlightError::Tonic(status) => *status,
        other => Status::unknown(other.to_string()),
    }
}

/// Whether an error has a code and says something.
pub fn fails<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, text: &str) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(text), "{} does not say {text:?}", status.message());
}
