//! What drivers ask of a server before they send statements.

use arrow_flight::sql::{
    CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, SqlInfo,
};
use arrow_flight::{Action, FlightInfo, IpcMessage};
use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Schema;
use futures::TryStreamExt;
use tonic::Code;

use crate::setup::{Client, fails, fixture, query, rows_of, status, texts};

async fn answers(client: &mut Client, info: FlightInfo) -> Vec<String> {
    let rows = rows_of(client, &info).await.unwrap();
    let told = Schema::try_from(IpcMessage(info.schema)).unwrap();
    assert!(rows.iter().all(|batch| batch.schema().as_ref() == &told));
    texts(&rows)
}

fn tables(pattern: Option<&str>, types: &[&str]) -> CommandGetTables {
    CommandGetTables {
        table_name_filter_pattern: pattern.map(String::from),
        table_types: types.iter().map(|name| (*name).to_string()).collect(),
        ..CommandGetTables::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_and_where_they_are_can_be_listed() {
    let fixture = fixture(|options| options.allow_writes = true).await;
    let mut client = fixture.client().await;
    client.execute_update("CREATE VIEW \"Ä view\" AS SELECT k FROM t".into(), None).await.unwrap();
    let info = client.get_catalogs().await.unwrap();
    assert_eq!(answers(&mut client, info).await, ["datafusion"]);
    let info = client.get_db_schemas(CommandGetDbSchemas::default()).await.unwrap();
    assert_eq!(answers(&mut client, info).await, ["datafusion|public"]);
    for (pattern, types, expected) in [
        (None, &[][..], &["datafusion|public|t|TABLE", "datafusion|public|Ä view|VIEW"][..]),
        (Some("t"), &[], &["datafusion|public|t|TABLE"]),
        (Some("%view"), &[], &["datafusion|public|Ä view|VIEW"]),
        (Some("T"), &[], &[]),
        (None, &["VIEW"], &["datafusion|public|Ä view|VIEW"]),
        (None, &["OTHER"], &[]),
    ] {
        let info = client.get_tables(tables(pattern, types)).await.unwrap();
        assert_eq!(answers(&mut client, info).await, expected, "{pattern:?} {types:?}");
    }
    let with_columns = CommandGetTables { include_schema: true, ..tables(Some("t"), &[]) };
    let info = client.get_tables(with_columns).await.unwrap();
    let rows = rows_of(&mut client, &info).await.unwrap();
    let bytes = rows[0].column(4).as_binary::<i32>().value(0).to_vec();
    let columns = Schema::try_from(IpcMessage(bytes.into())).unwrap();
    let names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["k", "name", "x"]);
    let nowhere = CommandGetDbSchemas { catalog: Some("other".into()), ..Default::default() };
    let info = client.get_db_schemas(nowhere).await.unwrap();
    assert!(answers(&mut client, info).await.is_empty());
    let info = client.get_table_types().await.unwrap();
    assert_eq!(answers(&mut client, info).await, ["LOCAL TEMPORARY", "TABLE", "VIEW"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_answered_with_none() {
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    let primary = CommandGetPrimaryKeys { table: "t".into(), ..Default::default() };
    let info = client.get_primary_keys(primary).await.unwrap();
    assert!(answers(&mut client, info).await.is_empty());
    let exported = CommandGetExportedKeys { table: "t".into(), ..Default::default() };
    let info = client.get_exported_keys(exported).await.unwrap();
    assert!(answers(&mut client, info).await.is_empty());
    let imported = CommandGetImportedKeys { table: "t".into(), ..Default::default() };
    let info = client.get_imported_keys(imported).await.unwrap();
    assert!(answers(&mut client, info).await.is_empty());
    let crossed =
        CommandGetCrossReference { pk_table: "t".into(), fk_table: "t".into(), ..Default::default() };
    let info = client.get_cross_reference(crossed).await.unwrap();
    assert!(answers(&mut client, info).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_tells_what_it_is() {
    for (allow_writes, read_only) in [(false, "{bool_value=true}"), (true, "{bool_value=false}")] {
        let fixture = fixture(|options| options.allow_writes = allow_writes).await;
        let mut client = fixture.client().await;
        let asked = vec![SqlInfo::FlightSqlServerName, SqlInfo::FlightSqlServerReadOnly];
        let info = client.get_sql_info(asked).await.unwrap();
        let found = answers(&mut client, info).await;
        assert_eq!(found, ["0|{string_value=Kelpie}".to_string(), format!("3|{read_only}")]);
        let info = client.get_sql_info(vec![]).await.unwrap();
        assert!(answers(&mut client, info).await.len() > 20);
        let info = client.get_xdbc_type_info(CommandGetXdbcTypeInfo { data_type: None }).await.unwrap();
        assert_eq!(answers(&mut client, info).await.len(), 14);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_no_transactions_and_that_is_said() {
    let fixture = fixture(|_| {}).await;
    let mut client = fixture.client().await;
    fails(client.begin_transaction().await.map_err(status), Code::Unimplemented, "no transactions");
    let within = client.execute("SELECT 1".into(), Some(b"id".to_vec().into())).await;
    fails(within.map_err(status), Code::Unimplemented, "no transactions");
    let actions: Vec<_> = client
        .inner_mut()
        .list_actions(arrow_flight::Empty {})
        .await
        .unwrap()
        .into_inner()
        .try_collect()
        .await
        .unwrap();
    assert!(actions.iter().any(|action| action.r#type == "CloseSession"), "{actions:?}");
    let unknown = client.do_action(Action { r#type: "Fly".into(), body: Vec::new().into() }).await;
    fails(unknown.map(|_| ()).map_err(status), Code::Unimplemented, "\"Fly\"");
    assert_eq!(query(&mut client, "SELECT 1").await.unwrap(), ["1"]);
}
