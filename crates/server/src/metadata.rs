//! What a server tells of itself and its tables: the answers to Flight SQL's commands of metadata.

use std::sync::{Arc, LazyLock};

use arrow_flight::error::FlightError;
use arrow_flight::sql::metadata::{
    SqlInfoData, SqlInfoDataBuilder, XdbcTypeInfo, XdbcTypeInfoData, XdbcTypeInfoDataBuilder,
};
use arrow_flight::sql::{
    Command, CommandGetCatalogs, CommandGetDbSchemas, CommandGetTables, Nullable, Searchable, SqlInfo,
    SqlNullOrdering, SqlSupportedCaseSensitivity, SqlSupportedTransaction, XdbcDataType,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::logical_expr::TableType;
use kelpie_session::KelpieSession;
use tonic::Status;

use crate::errors::of_query;
use crate::{plans, wire};

/// The version of Arrow that rows are written by.
const ARROW_VERSION: &str = "59.3";
/// What tables are called, as JDBC calls them.
const TYPES: [&str; 3] = ["TABLE", "VIEW", "LOCAL TEMPORARY"];

/// Whether a command asks for metadata.
pub(crate) fn is_metadata(command: &Command) -> bool {
    matches!(
        command,
        Command::CommandGetCatalogs(_)
            | Command::CommandGetDbSchemas(_)
            | Command::CommandGetTables(_)
            | Command::CommandGetTableTypes(_)
            | Command::CommandGetSqlInfo(_)
            | Command::CommandGetXdbcTypeInfo(_)
            | Command::CommandGetPrimaryKeys(_)
            | Command::CommandGetExportedKeys(_)
            | Command::CommandGetImportedKeys(_)
            | Command::CommandGetCrossReference(_)
    )
}

/// The answer to a command of metadata.
pub(crate) async fn answer(
    command: Command,
    session: &KelpieSession,
    allows_writes: bool,
) -> Result<RecordBatch, Status> {
    let batch = match command {
        Command::CommandGetCatalogs(command) => catalogs(command, session),
        Command::CommandGetDbSchemas(command) => schemas(command, session),
        Command::CommandGetTables(command) => return tables(command, session).await,
        Command::CommandGetTableTypes(command) => {
            let mut builder = command.into_builder();
            TYPES.iter().for_each(|name| builder.append(name));
            builder.build()
        }
        Command::CommandGetSqlInfo(command) => {
            let known = if allows_writes { &WRITING_INFO } else { &READING_INFO };
            match known.as_ref() {
                Some(infos) => command.into_builder(infos).build(),
                None => return Err(Status::internal("the server cannot tell what it is")),
            }
        }
        Command::CommandGetXdbcTypeInfo(command) => match XDBC_TYPES.as_ref() {
            Some(types) => command.into_builder(types).build(),
            None => return Err(Status::internal("the server cannot tell its types")),
        },
        Command::CommandGetPrimaryKeys(_) => Ok(RecordBatch::new_empty(Arc::new(primary_keys()))),
        // Tables of files have no keys.
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => Ok(RecordBatch::new_empty(Arc::new(foreign_keys()))),
        _ => return Err(Status::invalid_argument("the command is none of metadata")),
    };
    batch.map_err(failed)
}

fn failed(error: FlightError) -> Status {
    match error {
        // A pattern that is none.
        FlightError::Arrow(error @ (ArrowError::InvalidArgumentError(_) | ArrowError::ComputeError(_))) => {
            Status::invalid_argument(error.to_string())
        }
        error => Status::internal(error.to_string()),
    }
}

type Built = Result<RecordBatch, FlightError>;

fn catalogs(command: CommandGetCatalogs, session: &KelpieSession) -> Built {
    let mut builder = command.into_builder();
    let state = session.context().state();
    state.catalog_list().catalog_names().into_iter().for_each(|name| builder.append(name));
    builder.build()
}

fn schemas(command: CommandGetDbSchemas, session: &KelpieSession) -> Built {
    let mut builder = command.into_builder();
    let state = session.context().state();
    for catalog in state.catalog_list().catalog_names() {
        let Some(known) = state.catalog_list().catalog(&catalog) else { continue };
        known.schema_names().into_iter().for_each(|schema| builder.append(&catalog, schema));
    }
    builder.build()
}

async fn tables(command: CommandGetTables, session: &KelpieSession) -> Result<RecordBatch, Status> {
    let mut builder = command.into_builder();
    let state = session.context().state();
    for catalog in state.catalog_list().catalog_names() {
        let Some(known) = state.catalog_list().catalog(&catalog) else { continue };
        for schema in known.schema_names() {
            let Some(provider) = known.schema(&schema) else { continue };
            for name in provider.table_names() {
                let kind = provider.table_type(&name).await.map_err(|error| of_query(&error))?;
                let kind = match kind {
                    Some(TableType::View) => TYPES[1],
                    Some(TableType::Temporary) => TYPES[2],
                    _ => TYPES[0],
                };
                // A table that cannot be read is there all the same; who asks for its columns finds none.
                let columns = match builder.include_schema() {
                    true => match provider.table(&name).await {
                        Ok(Some(table)) => wire::schema(&table.schema()),
                        _ => Arc::new(Schema::empty()),
                    },
                    false => Arc::new(Schema::empty()),
                };
                builder.append(&catalog, &schema, &name, kind, &columns).map_err(failed)?;
            }
        }
    }
    builder.build().map_err(failed)
}

fn text(name: &str, nullable: bool) -> Field {
    Field::new(name, DataType::Utf8, nullable)
}

fn primary_keys() -> Schema {
    Schema::new(vec![
        text("catalog_name", true),
        text("db_schema_name", true),
        text("table_name", false),
        text("column_name", false),
        text("key_name", true),
        Field::new("key_sequence", DataType::Int32, false),
    ])
}

fn foreign_keys() -> Schema {
    let mut fields = Vec::new();
    for side in ["pk", "fk"] {
        for (name, nullable) in
            [("catalog_name", true), ("db_schema_name", true), ("table_name", false), ("column_name", false)]
        {
            fields.push(text(&format!("{side}_{name}"), nullable));
        }
    }
    fields.extend([
        Field::new("key_sequence", DataType::Int32, false),
        text("fk_key_name", true),
        text("pk_key_name", true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]);
    Schema::new(fields)
}

static READING_INFO: LazyLock<Option<SqlInfoData>> = LazyLock::new(|| info(true));
static WRITING_INFO: LazyLock<Option<SqlInfoData>> = LazyLock::new(|| info(false));

fn info(only_reads: bool) -> Option<SqlInfoData> {
    let mut infos = SqlInfoDataBuilder::new();
    infos.append(SqlInfo::FlightSqlServerName, "Kelpie");
    infos.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    infos.append(SqlInfo::FlightSqlServerArrowVersion, ARROW_VERSION);
    infos.append(SqlInfo::FlightSqlServerReadOnly, only_reads);
    infos.append(SqlInfo::FlightSqlServerSql, true);
    infos.append(SqlInfo::FlightSqlServerSubstrait, plans::ARE_TAKEN);
    infos.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    infos.append(SqlInfo::FlightSqlServerCancel, true);
    infos.append(SqlInfo::FlightSqlServerBulkIngestion, false);
    infos.append(SqlInfo::FlightSqlServerIngestTransactionsSupported, false);
    infos.append(SqlInfo::FlightSqlServerStatementTimeout, 0);
    infos.append(SqlInfo::FlightSqlServerTransactionTimeout, 0);
    infos.append(SqlInfo::SqlDdlCatalog, false);
    infos.append(SqlInfo::SqlDdlSchema, !only_reads);
    infos.append(SqlInfo::SqlDdlTable, !only_reads);
    infos.append(SqlInfo::SqlIdentifierCase, SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i64);
    infos.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    infos.append(
        SqlInfo::SqlQuotedIdentifierCase,
        SqlSupportedCaseSensitivity::SqlCaseSensitivityCaseInsensitive as i64,
    );
    infos.append(SqlInfo::SqlAllTablesAreSelectable, true);
    infos.append(SqlInfo::SqlNullOrdering, SqlNullOrdering::SqlNullsSortedHigh as i64);
    infos.append(SqlInfo::SqlSearchStringEscape, "\\");
    infos.append(SqlInfo::SqlSupportsColumnAliasing, true);
    infos.append(SqlInfo::SqlNullPlusNullIsNull, true);
    infos.append(SqlInfo::SqlSupportsTableCorrelationNames, true);
    infos.append(SqlInfo::SqlSupportsExpressionsInOrderBy, true);
    infos.append(SqlInfo::SqlSupportsOrderByUnrelated, true);
    infos.append(SqlInfo::SqlSupportsLikeEscapeClause, true);
    infos.append(SqlInfo::SqlSupportsNonNullableColumns, true);
    infos.append(SqlInfo::SqlSchemaTerm, "schema");
    infos.append(SqlInfo::SqlCatalogTerm, "catalog");
    infos.append(SqlInfo::SqlCatalogAtStart, true);
    infos.append(SqlInfo::SqlCorrelatedSubqueriesSupported, true);
    infos.append(SqlInfo::SqlTransactionsSupported, false);
    infos.append(SqlInfo::SqlBatchUpdatesSupported, false);
    infos.append(SqlInfo::SqlSavepointsSupported, false);
    infos.append(SqlInfo::SqlNamedParametersSupported, true);
    infos.build().ok()
}

static XDBC_TYPES: LazyLock<Option<XdbcTypeInfoData>> = LazyLock::new(|| {
    let mut types = XdbcTypeInfoDataBuilder::new();
    use XdbcDataType::*;
    let numbers = [
        ("TINYINT", XdbcTinyint, 3),
        ("SMALLINT", XdbcSmallint, 5),
        ("INTEGER", XdbcInteger, 10),
        ("BIGINT", XdbcBigint, 19),
        ("REAL", XdbcReal, 7),
        ("DOUBLE", XdbcDouble, 15),
        ("DECIMAL", XdbcDecimal, 76),
    ];
    let others = [
        ("BOOLEAN", XdbcBit, 1),
        ("VARCHAR", XdbcVarchar, i32::MAX),
        ("BYTEA", XdbcVarbinary, i32::MAX),
        ("DATE", XdbcDate, 10),
        ("TIME", XdbcTime, 18),
        ("TIMESTAMP", XdbcTimestamp, 29),
        ("INTERVAL", XdbcInterval, 38),
    ];
    let all = numbers.map(|known| (known, true)).into_iter().chain(others.map(|known| (known, false)));
    for ((name, data_type, size), is_number) in all {
        let (is_text, is_decimal) = (data_type == XdbcVarchar, data_type == XdbcDecimal);
        types.append(XdbcTypeInfo {
            type_name: name.into(),
            data_type,
            column_size: Some(size),
            literal_prefix: (!is_number).then(|| "'".into()),
            literal_suffix: (!is_number).then(|| "'".into()),
            create_params: is_decimal.then(|| vec!["precision".into(), "scale".into()]),
            nullable: Nullable::NullabilityNullable,
            case_sensitive: is_text,
            searchable: if is_text { Searchable::Full } else { Searchable::Basic },
            unsigned_attribute: is_number.then_some(false),
            fixed_prec_scale: is_decimal,
            auto_increment: is_number.then_some(false),
            local_type_name: Some(name.into()),
            minimum_scale: is_decimal.then_some(0),
            maximum_scale: is_decimal.then_some(76),
            sql_data_type: data_type,
            datetime_subcode: None,
            num_prec_radix: is_number.then_some(10),
            interval_precision: None,
        });
    }
    types.build().ok()
});
