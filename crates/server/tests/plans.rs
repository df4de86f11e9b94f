//! Plans of Substrait as statements.

use std::path::Path;

use arrow_flight::sql::{
    ActionCreatePreparedStatementResult, ActionCreatePreparedSubstraitPlanRequest, Any,
    CommandPreparedStatementQuery, CommandStatementSubstraitPlan, ProstMessageExt, SqlInfo, SubstraitPlan,
};
use arrow_flight::{Action, FlightDescriptor, FlightInfo, IpcMessage};
use datafusion::arrow::datatypes::Schema;
use futures::TryStreamExt;
use kelpie_session::{KelpieSession, SessionOptions};
use kelpie_substrait::Form;
use prost::Message;
use tonic::{Code, Request, Status};

use crate::setup::{Client, fails, fixture, query, rows_of, texts};

const SQL: &str = "SELECT k, x * 2 AS twice FROM t WHERE x > 1.6 ORDER BY k";

/// The plan of a statement over the tables of a folder.
async fn written(folder: &Path, sql: &str, form: Form) -> SubstraitPlan {
    let session = KelpieSession::new(SessionOptions::default()).unwrap();
    session.register_data(folder).await.unwrap();
    let plan = kelpie_substrait::write(&session, sql, form).await.unwrap();
    SubstraitPlan { plan: plan.into(), version: "0.63.0".into() }
}

async fn asked(client: &mut Client, command: impl ProstMessageExt) -> Result<FlightInfo, Status> {
    let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
    Ok(client.inner_mut().get_flight_info(Request::new(descriptor)).await?.into_inner())
}

async fn info(client: &mut Client, plan: SubstraitPlan) -> Result<FlightInfo, Status> {
    asked(client, CommandStatementSubstraitPlan { plan: Some(plan), transaction_id: None }).await
}

async fn prepared(
    client: &mut Client,
    plan: SubstraitPlan,
) -> Result<ActionCreatePreparedStatementResult, Status> {
    let request = ActionCreatePreparedSubstraitPlanRequest { plan: Some(plan), transaction_id: None };
    let body = request.as_any().encode_to_vec().into();
    let action = Action { r#type: "CreatePreparedSubstraitPlan".into(), body };
    let answer = client.inner_mut().do_action(Request::new(action)).await?.into_inner();
    let answer: Vec<arrow_flight::Result> = answer.try_collect().await?;
    Ok(Any::decode(answer[0].body.as_ref()).unwrap().unpack().unwrap().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_answered_as_statements_are() {
    let fixture = fixture(|_| {}).await;
    let client = &mut fixture.client().await;
    let expected = query(client, SQL).await.unwrap();
    assert_eq!(expected, ["2|5.0"]);
    for form in [Form::Binary, Form::Json] {
        let plan = written(fixture.folder.path(), SQL, form).await;
        let info = info(client, plan).await.unwrap();
        let told = Schema::try_from(IpcMessage(info.schema.clone())).unwrap();
        let rows = rows_of(client, &info).await.unwrap();
        assert_eq!(rows[0].schema().as_ref(), &told);
        assert_eq!(texts(&rows), expected);
    }
    let told = client.get_sql_info(vec![SqlInfo::FlightSqlServerSubstrait]).await.unwrap();
    assert_eq!(texts(&rows_of(client, &told).await.unwrap()), ["5|{bool_value=true}"]);
    // Nothing of them is left in the session.
    let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    assert_eq!(query(client, tables).await.unwrap(), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_prepared() {
    let fixture = fixture(|_| {}).await;
    let client = &mut fixture.client().await;
    let plan = written(fixture.folder.path(), SQL, Form::Binary).await;
    let made = prepared(client, plan).await.unwrap();
    let told = Schema::try_from(IpcMessage(made.dataset_schema)).unwrap();
    assert_eq!(told.fields().len(), 2);
    let handle = made.prepared_statement_handle;
    for _ in 0..2 {
        let command = CommandPreparedStatementQuery { prepared_statement_handle: handle.clone() };
        let info = asked(client, command.clone()).await.unwrap();
        assert_eq!(texts(&rows_of(client, &info).await.unwrap()), ["2|5.0"]);
        // Drivers of old ask for rows without asking for a ticket.
        let ticket = arrow_flight::Ticket { ticket: command.as_any().encode_to_vec().into() };
        let rows = client.do_get(ticket).await.unwrap();
        assert_eq!(texts(&rows.try_collect::<Vec<_>>().await.unwrap()), ["2|5.0"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_do_no_more_than_statements_may() {
    let fixture = fixture(|options| options.limits.statement_bytes = 4000).await;
    let client = &mut fixture.client().await;
    for (plan, code, says) in [
        (b"".to_vec(), Code::InvalidArgument, "empty"),
        (b"\xff\xff\xff".to_vec(), Code::InvalidArgument, "no plan of Substrait"),
        (vec![b' '; 5000], Code::ResourceExhausted, "4000 are the most"),
    ] {
        let plan = SubstraitPlan { plan: plan.into(), version: String::new() };
        fails(info(client, plan.clone()).await, code, says);
        fails(prepared(client, plan).await, code, says);
    }
    fails(asked(client, CommandStatementSubstraitPlan::default()).await, Code::InvalidArgument, "no plan");
    // A file that the server was not given.
    let other = crate::setup::folder();
    let path = other.path().join("t.csv");
    let sql = format!("SELECT * FROM '{}'", path.display());
    let plan = written(fixture.folder.path(), &sql, Form::Binary).await;
    fails(info(client, plan).await, Code::PermissionDenied, "only the files that it was given");
    assert_eq!(query(client, "SELECT 1").await.unwrap(), ["1"]);
}
