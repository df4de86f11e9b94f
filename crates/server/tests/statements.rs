//! Queries, prepared statements and what changes something.

use std::sync::Arc;

use arrow_flight::sql::{Any, CommandPreparedStatementUpdate, CommandStatementQuery, ProstMessageExt};
use arrow_flight::{Action, FlightDescriptor, IpcMessage};
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Schema};
use prost::Message;
use tonic::{Code, Request};

use crate::setup::{fails, fixture, query, rows_of, status, texts, ticket};

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_those_of_the_query() {
    let fixture = fixture(|_| {}).await;
    let client = &mut fixture.client().await;
    let rows = query(client, "SELECT k, name, x FROM t ORDER BY k").await.unwrap();
    assert_eq!(rows, ["1|ä|1.5", "2|-|2.5", "3|b,c|-"]);
    assert_eq!(query(client, "SELECT count(*) FROM t WHERE k > 9").await.unwrap(), ["0"]);
    assert!(query(client, "SELECT * FROM t WHERE k > 9").await.unwrap().is_empty());
    let many = query(client, "SELECT sum(value) FROM generate_series(1, 300000)").await.unwrap();
    assert_eq!(many, ["45000150000"]);
    let info =
        client.execute("SELECT value, 'v' || value FROM generate_series(1, 300000)".into(), None).await;
    let rows = rows_of(client, &info.unwrap()).await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 300_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_are_told_before_and_are_those_of_the_rows() {
    let fixture = fixture(|_| {}).await;
    let client = &mut fixture.client().await;
    let sql = "SELECT k, name, arrow_cast(name, 'Utf8View') AS v, arrow_cast(name, 'Dictionary(Int32, Utf8)') AS d FROM t";
    let info = client.execute(sql.into(), None).await.unwrap();
    let told = Schema::try_from(IpcMessage(info.schema.clone())).unwrap();
    let rows = rows_of(client, &info).await.unwrap();
    assert_eq!(rows[0].schema().as_ref(), &told);
    assert!(told.fields().iter().skip(1).all(|field| *field.data_type() == DataType::Utf8), "{told}");
    let command = CommandStatementQuery { query: sql.into(), transaction_id: None };
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    let schema = client.inner_mut().get_schema(Request::new(descriptor.clone())).await.unwrap().into_inner();
    assert_eq!(Schema::try_from(&schema).unwrap(), told);
    let polled = client.inner_mut().poll_flight_info(Request::new(descriptor)).await.unwrap().into_inner();
    assert_eq!(polled.flight_descriptor, None);
    assert_eq!(texts(&rows_of(client, &polled.info.unwrap()).await.unwrap()).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_say_what_is_wrong() {
    let fixture = fixture(|_| {}).await;
    let client = &mut fixture.client().await;
    fails(query(client, "SELEKT 1").await, Code::InvalidArgument, "SELEKT");
    fails(query(client, "").await, Code::InvalidArgument, "");
    fails(query(client, "SELECT nam FROM t").await, Code::InvalidArgument, "name");
    fails(query(client, "SELECT * FROM nowhere").await, Code::InvalidArgument, "nowhere");
    fails(query(client, "SELECT 1 / (k - k) FROM t").await, Code::InvalidArgument, "zero");
    fails(query(client, "SELECT 1; SELECT 2").await, Code::Unimplemented, "single SQL statement");
    assert_eq!(query(client, "SELECT 1").await.unwrap(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_is_good_for_once_and_for_its_session() {
    let fixture = fixture(|_| {}).await;
    let (mut client, mut other) = (fixture.client().await, fixture.client().await);
    let info = client.execute("SELECT 1".into(), None).await.unwrap();
    fails(rows_of(&mut other, &info).await, Code::NotFound, "ticket");
    assert_eq!(texts(&rows_of(&mut client, &info).await.unwrap()), ["1"]);
    fails(rows_of(&mut client, &info).await, Code::NotFound, "used before");
    let mut forged = ticket(&info);
    forged.ticket = b"x".to_vec().into();
    assert_eq!(status(client.do_get(forged).await.unwrap_err()).code(), Code::InvalidArgument);
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn numbers(values: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_take_values() {
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    let mut prepared = client.prepare("SELECT name FROM t WHERE k = ?".into(), None).await.unwrap();
    let parameters = prepared.parameter_schema().unwrap();
    assert_eq!(parameters.field(0).name(), "$1");
    assert_eq!(parameters.field(0).data_type(), &DataType::Int64);
    assert_eq!(prepared.dataset_schema().unwrap().field(0).name(), "name");
    for (k, expected) in [(1, "ä"), (3, "b,c"), (2, "-")] {
        prepared.set_parameters(batch(vec![("0", numbers(&[k]))])).unwrap();
        let info = prepared.execute().await.unwrap();
        assert_eq!(texts(&rows_of(&mut client, &info).await.unwrap()), [expected]);
    }
    prepared.set_parameters(batch(vec![("0", numbers(&[1, 2]))])).unwrap();
    fails(prepared.execute().await.map_err(status), Code::InvalidArgument, "2 sets of values");
    prepared.set_parameters(batch(vec![("0", numbers(&[1])), ("1", numbers(&[1]))])).unwrap();
    fails(prepared.execute().await.map_err(status), Code::InvalidArgument, "2 values");
    prepared.close().await.unwrap();

    let mut named = client.prepare("SELECT $b::VARCHAR || $a::VARCHAR AS both".into(), None).await.unwrap();
    let text = |text: &str| Arc::new(StringArray::from(vec![text])) as ArrayRef;
    named.set_parameters(batch(vec![("a", text("ä")), ("b", text("o"))])).unwrap();
    let info = named.execute().await.unwrap();
    assert_eq!(texts(&rows_of(&mut client, &info).await.unwrap()), ["oä"]);

    let mut without = client.prepare("SELECT count(*) FROM t".into(), None).await.unwrap();
    let info = without.execute().await.unwrap();
    assert_eq!(texts(&rows_of(&mut client, &info).await.unwrap()), ["3"]);
    fails(
        client.prepare("SELECT * FROM nowhere".into(), None).await.map(drop).map_err(status),
        Code::InvalidArgument,
        "nowhere",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_counted_where_they_are_allowed() {
    let fixture = fixture(|options| options.allow_writes = true).await;
    let mut client = fixture.client().await;
    let mut update = async |sql: &str| client.execute_update(sql.into(), None).await;
    assert_eq!(update("CREATE TABLE own (a BIGINT, b VARCHAR)").await.unwrap(), 0);
    assert_eq!(update("INSERT INTO own VALUES (1, 'x'), (2, 'y')").await.unwrap(), 2);
    let mut prepared = client.prepare("INSERT INTO own VALUES (?, ?)".into(), None).await.unwrap();
    assert!(prepared.dataset_schema().unwrap().fields().is_empty());
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("z"), None, Some("ä")]));
    prepared.set_parameters(batch(vec![("0", numbers(&[3, 4, 5])), ("1", texts)])).unwrap();
    assert_eq!(prepared.execute_update().await.unwrap(), 3);
    let rows = query(&mut client, "SELECT a, b FROM own ORDER BY a").await.unwrap();
    assert_eq!(rows, ["1|x", "2|y", "3|z", "4|-", "5|ä"]);
    let path = fixture.folder.path().join("written.parquet");
    let copy = format!("COPY (SELECT * FROM own) TO '{}'", path.display());
    assert_eq!(client.execute_update(copy, None).await.unwrap(), 5);
    assert!(path.is_file());
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_break_nothing() {
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    let any =
        |url: &str, value: &[u8]| Any { type_url: url.into(), value: value.to_vec().into() }.encode_to_vec();
    let base = "type.googleapis.com/arrow.flight.protocol.sql.";
    let query_url = format!("{base}CommandStatementQuery");
    for command in [
        Vec::new(),
        b"\xff\xff\xff\xff".to_vec(),
        any("", b""),
        any("no/command", b"x"),
        any(&query_url, b"\xff\xff"),
        any(&query_url, b"\x0a\x02\xc3\x28"),
        any(&format!("{base}CommandStatementSubstraitPlan"), b""),
        any(&format!("{base}CommandPreparedStatementQuery"), b"\x0a\x01x"),
    ] {
        let descriptor = FlightDescriptor::new_cmd(command.clone());
        let info = client.inner_mut().get_flight_info(Request::new(descriptor)).await;
        let code = info.unwrap_err().code();
        let expected = [Code::InvalidArgument, Code::Unimplemented, Code::NotFound];
        assert!(expected.contains(&code), "{command:?}: {code:?}");
        let ticket = arrow_flight::Ticket { ticket: command.into() };
        assert!(client.inner_mut().do_get(Request::new(ticket)).await.is_err());
    }
    let path = FlightDescriptor::new_path(vec!["t".into()]);
    let info = client.inner_mut().get_flight_info(Request::new(path)).await;
    fails(info.map(|_| ()), Code::InvalidArgument, "commands of Flight SQL");
    for name in [
        "CreatePreparedStatement", "CancelQuery", "CancelFlightInfo", "SetSessionOptions", "", "Ä",
        "BeginTransaction",
    ] {
        let action = Action { r#type: name.into(), body: b"\xff\x00\x01".to_vec().into() };
        assert!(client.inner_mut().do_action(Request::new(action)).await.is_err(), "{name}");
    }
    // Values that are no Arrow.
    let prepared = client.prepare("SELECT k FROM t WHERE k = ?".into(), None).await;
    drop(prepared);
    for header in [vec![0xff; 40], vec![0; 4], vec![16, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]] {
        let command = CommandPreparedStatementUpdate { prepared_statement_handle: b"x".to_vec().into() };
        let message = arrow_flight::FlightData {
            flight_descriptor: Some(FlightDescriptor::new_cmd(command.as_any().encode_to_vec())),
            data_header: header.into(),
            data_body: vec![1; 100].into(),
            ..Default::default()
        };
        let put = client.inner_mut().do_put(Request::new(futures::stream::iter([message]))).await;
        assert!(put.is_err());
    }
    let empty = client.inner_mut().do_put(Request::new(futures::stream::empty())).await;
    fails(empty.map(|_| ()), Code::InvalidArgument, "nothing was put");
    assert_eq!(query(&mut client, "SELECT 1").await.unwrap(), ["1"]);
}
