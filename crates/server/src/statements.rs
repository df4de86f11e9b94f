//! Statements: planned for a ticket, run for its rows, or run for what they change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::{
    ActionCreatePreparedStatementResult, Command, DoPutPreparedStatementResult, DoPutUpdateResult,
    ProstMessageExt, TicketStatementQuery,
};
use arrow_flight::{FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use datafusion::common::ParamValues;
use datafusion::error::DataFusionError;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use prost::Message;
use prost::bytes::Bytes;
use tonic::Status;

use crate::errors::of_query;
use crate::metadata;
use crate::metrics::Outcome;
use crate::sessions::{ClientSession, Held, Prepared, Work, secret};
use crate::state::{Caller, State};
use crate::streams::{Beginning, Place, Sending, rows};
use crate::{parameters, plans, wire};

/// Rows for a client, encoded.
pub(crate) type Rows = BoxStream<'static, Result<FlightData, Status>>;

/// A statement, and where the values of its parameters come from.
struct Asked {
    sql: String,
    /// A plan of Substrait that came in place of SQL.
    plan: Option<Bytes>,
    parameters: Option<ParamValues>,
}

impl Asked {
    /// With the values that it was given, of which a query takes one set.
    fn of(prepared: &Prepared) -> Result<Asked, Status> {
        let (sql, plan) = (prepared.sql.clone(), prepared.plan.clone());
        Ok(Asked { sql, plan, parameters: single(prepared)? })
    }
}

impl State {
    /// What a command will give, and the ticket for it.
    pub async fn flight_info(
        self: &Arc<Self>,
        caller: &Caller,
        command: Command,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let (ticket, schema) = if metadata::is_metadata(&command) {
            let batch = self.metadata(caller, command.clone()).await?;
            (command.into_any(), Some(batch.schema()))
        } else {
            let asked = self.asked(caller, command)?;
            let (held, schema) = self.planned(caller, asked).await?;
            let statement_handle = caller.session.hold(held)?.into();
            (TicketStatementQuery { statement_handle }.as_any(), schema)
        };
        let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket.encode_to_vec()));
        let mut info = FlightInfo::new().with_descriptor(descriptor).with_endpoint(endpoint);
        // Of statements that are no queries the rows say it.
        if let Some(schema) = schema {
            info.schema = wire::schema_bytes(&schema)?;
        }
        Ok(info)
    }

    /// The columns that a command will give.
    pub async fn schema(self: &Arc<Self>, caller: &Caller, command: Command) -> Result<Bytes, Status> {
        let schema = match metadata::is_metadata(&command) {
            true => Some(self.metadata(caller, command).await?.schema()),
            false => self.planned(caller, self.asked(caller, command)?).await?.1,
        };
        match schema {
            Some(schema) => wire::schema_bytes(&schema),
            None => Err(Status::invalid_argument("the statement is no query: it gives no columns")),
        }
    }

    /// The statement of a command.
    fn asked(&self, caller: &Caller, command: Command) -> Result<Asked, Status> {
        let asked = match command {
            Command::CommandStatementQuery(command) => {
                no_transaction(command.transaction_id.as_ref())?;
                Asked { sql: command.query, plan: None, parameters: None }
            }
            Command::CommandStatementSubstraitPlan(command) => {
                no_transaction(command.transaction_id.as_ref())?;
                let plan = plans::bytes_of(command.plan)?;
                self.check_bytes(plan.len())?;
                Asked { sql: plans::name_of(&plan), plan: Some(plan), parameters: None }
            }
            Command::CommandPreparedStatementQuery(command) => {
                let prepared = caller.session.prepared(&command.prepared_statement_handle)?;
                Asked::of(&prepared)?
            }
            other => return Err(unknown(&other)),
        };
        self.check(&asked.sql)?;
        Ok(asked)
    }

    /// Plans a statement, where it is a query. Others are done when their ticket is used: SET is done by planning it.
    async fn planned(
        self: &Arc<Self>,
        caller: &Caller,
        asked: Asked,
    ) -> Result<(Held, Option<SchemaRef>), Status> {
        let report = self.report(caller, &asked.sql);
        let (state, session) = (Arc::clone(self), Arc::clone(&caller.session));
        let planning = async move {
            let planned = planned(&state, &session, asked).await;
            planned.map_err(|error| of_query(&error))
        };
        let planned = self.on_queries(planning).await;
        match &planned {
            // It is one line in the log, when it has run.
            Ok(_) => report.forget(),
            Err(status) => report.fail(status),
        }
        planned
    }

    /// The answer to a command of metadata.
    async fn metadata(self: &Arc<Self>, caller: &Caller, command: Command) -> Result<RecordBatch, Status> {
        let (state, session) = (Arc::clone(self), Arc::clone(&caller.session));
        self.on_queries(async move {
            let open = session.open(&state.options).await.map_err(|error| of_query(&error))?;
            metadata::answer(command, open, state.options.allow_writes).await
        })
        .await
    }

    /// The rows of a ticket.
    pub async fn rows(self: &Arc<Self>, caller: &Caller, command: Command) -> Result<Rows, Status> {
        match command {
            Command::TicketStatementQuery(ticket) => {
                let ticket = std::str::from_utf8(&ticket.statement_handle).unwrap_or_default();
                let held = caller.session.take(ticket)?;
                Ok(self.sent(caller, ticket, held))
            }
            Command::CommandPreparedStatementQuery(command) => {
                let prepared = caller.session.prepared(&command.prepared_statement_handle)?;
                self.check(&prepared.sql)?;
                let held = match prepared.plan {
                    Some(_) => self.planned(caller, Asked::of(&prepared)?).await?.0,
                    None => Held { sql: prepared.sql.clone(), work: Work::Unplanned(single(&prepared)?) },
                };
                Ok(self.sent(caller, &secret()?, held))
            }
            command if metadata::is_metadata(&command) => {
                let batch = self.metadata(caller, command).await?;
                let encoder = FlightDataEncoderBuilder::new().with_schema(batch.schema());
                let messages = encoder.build(futures::stream::iter([Ok(batch)]));
                Ok(messages
                    .map(|message| message.map_err(|error| Status::internal(error.to_string())))
                    .boxed())
            }
            other => Err(unknown(&other)),
        }
    }

    /// The rows of a statement that was held for a ticket.
    fn sent(self: &Arc<Self>, caller: &Caller, ticket: &str, held: Held) -> Rows {
        let report = self.report(caller, &held.sql);
        let (state, session) = (Arc::clone(self), Arc::clone(&caller.session));
        let begin: Beginning = match held.work {
            Work::Planned(query) => Box::pin(async move { query.start() }),
            Work::Unplanned(parameters) => Box::pin(async move {
                session.open(&state.options).await?.start_with(&held.sql, parameters).await
            }),
        };
        let (places, stalled) = (Arc::clone(&self.places), self.options.limits.stalled);
        let (rows, task) = rows(&self.queries, Sending { begin, report, places, stalled });
        caller.session.note_running(ticket, task);
        rows.boxed()
    }

    /// Prepares a statement, or a plan of Substrait in place of it.
    pub async fn prepare(
        self: &Arc<Self>,
        caller: &Caller,
        sql: String,
        plan: Option<Bytes>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        self.check_bytes(plan.as_ref().map_or(sql.len(), Bytes::len))?;
        let report = self.report(caller, &sql);
        let (state, session) = (Arc::clone(self), Arc::clone(&caller.session));
        let prepared = self
            .on_queries(async move {
                let open = session.open(&state.options).await.map_err(|error| of_query(&error))?;
                let described = match &plan {
                    Some(plan) => plans::describe(open, plan.clone()).await,
                    None => open.describe(&sql).await,
                };
                let described = described.map_err(|error| of_query(&error))?;
                Ok(Prepared { sql, plan, described, bound: Mutex::default() })
            })
            .await;
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(status) => {
                report.fail(&status);
                return Err(status);
            }
        };
        report.forget();
        // Drivers take a statement with columns for a query.
        let columns = match prepared.described.is_query {
            true => wire::schema(&prepared.described.schema),
            false => Arc::new(datafusion::arrow::datatypes::Schema::empty()),
        };
        let dataset_schema = wire::schema_bytes(&columns)?;
        let parameter_schema = wire::schema_bytes(&wire::parameter_schema(&prepared.described.parameters))?;
        let prepared_statement_handle = caller.session.keep(prepared)?.into();
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle,
            dataset_schema,
            parameter_schema,
        })
    }

    /// What a client puts: values for a prepared statement, or a statement that changes something. Gives what is told of it.
    pub async fn put(
        self: &Arc<Self>,
        caller: &Caller,
        first: FlightData,
        rest: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
    ) -> Result<Bytes, Status> {
        let command = command(first.flight_descriptor.as_ref())?;
        // A first message without a schema has only the command.
        let head = (!first.data_header.is_empty()).then_some(Ok(first));
        let values = futures::stream::iter(head).chain(rest);
        match command {
            Command::CommandStatementUpdate(command) => {
                no_transaction(command.transaction_id.as_ref())?;
                self.check(&command.query)?;
                self.update(caller, command.query, vec![None]).await
            }
            Command::CommandPreparedStatementUpdate(command) => {
                let prepared = caller.session.prepared(&command.prepared_statement_handle)?;
                self.check(&prepared.sql)?;
                if prepared.plan.is_some() {
                    return Err(Status::invalid_argument(
                        "a plan of Substrait is a query, and changes nothing",
                    ));
                }
                let bound = self.received(values, &prepared).await?;
                // An earlier message may have brought them.
                let bound =
                    if bound.is_empty() { std::mem::take(&mut *prepared.bound.lock()) } else { bound };
                let all = match bound.is_empty() {
                    true => vec![None],
                    false => bound.into_iter().map(Some).collect(),
                };
                self.update(caller, prepared.sql.clone(), all).await
            }
            Command::CommandPreparedStatementQuery(command) => {
                let prepared = caller.session.prepared(&command.prepared_statement_handle)?;
                let bound = self.received(values, &prepared).await?;
                *prepared.bound.lock() = bound;
                let handle = Some(command.prepared_statement_handle);
                Ok(DoPutPreparedStatementResult { prepared_statement_handle: handle }.encode_to_vec().into())
            }
            Command::CommandStatementIngest(_) => Err(Status::unimplemented(
                "rows cannot be put into tables at once: write a file, or INSERT INTO … VALUES",
            )),
            other => Err(unknown(&other)),
        }
    }

    async fn received(
        &self,
        values: impl Stream<Item = Result<FlightData, Status>> + Send + 'static,
        prepared: &Arc<Prepared>,
    ) -> Result<Vec<ParamValues>, Status> {
        let prepared = Arc::clone(prepared);
        // What is not Arrow may break down whoever reads it.
        let receiving = async move { parameters::received(values, &prepared.described.parameters).await };
        let receiving = self.on_queries(receiving);
        match tokio::time::timeout(self.options.limits.stalled, receiving).await {
            Ok(values) => values,
            Err(_) => Err(Status::deadline_exceeded("the values did not come in time")),
        }
    }

    /// Runs a statement for each of several sets of values; gives how many rows it has changed.
    async fn update(
        self: &Arc<Self>,
        caller: &Caller,
        sql: String,
        all: Vec<Option<ParamValues>>,
    ) -> Result<Bytes, Status> {
        let report = Arc::new(self.report(caller, &sql));
        let (state, session, noted) = (Arc::clone(self), Arc::clone(&caller.session), Arc::clone(&report));
        let updating = async move {
            let _place = Place::of(Arc::clone(&state.places), &state.metrics).await;
            let mut changed = 0;
            for parameters in all {
                changed +=
                    changed_by(&state, &session, &sql, parameters).await.map_err(|error| of_query(&error))?;
                noted.rows.store(changed.unsigned_abs(), Ordering::Relaxed);
            }
            Ok(changed)
        };
        match self.on_queries(updating).await {
            Ok(record_count) => {
                report.note(Outcome::Done);
                Ok(DoPutUpdateResult { record_count }.encode_to_vec().into())
            }
            Err(status) => {
                report.fail(&status);
                Err(status)
            }
        }
    }
}

async fn planned(
    state: &State,
    session: &ClientSession,
    asked: Asked,
) -> Result<(Held, Option<SchemaRef>), DataFusionError> {
    let open = session.open(&state.options).await?;
    let Asked { sql, plan, parameters } = asked;
    if let Some(plan) = plan {
        let query = plans::plan(open, plan, parameters).await?;
        let schema = wire::schema(&query.schema());
        return Ok((Held { sql, work: Work::Planned(Box::new(query)) }, Some(schema)));
    }
    // What is no statement at all is told by planning it, in better words.
    let is_query = open.needs(&sql).await.map_or(true, |needs| needs.is_query);
    if !is_query {
        return Ok((Held { sql, work: Work::Unplanned(parameters) }, None));
    }
    let query = open.plan(&sql, parameters).await?;
    let schema = wire::schema(&query.schema());
    Ok((Held { sql, work: Work::Planned(Box::new(query)) }, Some(schema)))
}

/// Runs a statement; gives how many rows it says that it has changed.
async fn changed_by(
    state: &State,
    session: &ClientSession,
    sql: &str,
    parameters: Option<ParamValues>,
) -> Result<i64, DataFusionError> {
    let mut query = session.open(&state.options).await?.start_with(sql, parameters).await?;
    let schema = query.schema();
    let counts = matches!(schema.fields().first(), Some(field)
        if schema.fields().len() == 1 && field.name() == "count" && *field.data_type() == DataType::UInt64);
    let mut changed = 0;
    while let Some(batch) = query.next().await? {
        if counts {
            let numbers = batch.column(0).as_primitive::<UInt64Type>();
            changed += numbers.iter().flatten().sum::<u64>() as i64;
        }
    }
    query.finish();
    Ok(changed)
}

/// The command of a descriptor.
pub(crate) fn command(descriptor: Option<&FlightDescriptor>) -> Result<Command, Status> {
    let by_command = arrow_flight::flight_descriptor::DescriptorType::Cmd as i32;
    match descriptor {
        Some(descriptor) if descriptor.r#type == by_command => decoded(&descriptor.cmd),
        _ => Err(Status::invalid_argument(
            "the server answers commands of Flight SQL, and the message has none",
        )),
    }
}

/// The command that bytes are.
pub(crate) fn decoded(bytes: &[u8]) -> Result<Command, Status> {
    let any = arrow_flight::sql::Any::decode(bytes).map_err(crate::errors::of_input)?;
    Command::try_from(any).map_err(crate::errors::of_input)
}

fn unknown(command: &Command) -> Status {
    let name = command.type_url().rsplit('.').next().unwrap_or_default();
    let name: String = name.chars().take(100).collect();
    match command {
        Command::Unknown(_) => Status::invalid_argument(format!("{name:?} is no command of Flight SQL")),
        _ => Status::unimplemented(format!("the server does not do {name}")),
    }
}

/// The values for a query, of which one set is wanted.
fn single(prepared: &Prepared) -> Result<Option<ParamValues>, Status> {
    match prepared.bound.lock().as_slice() {
        [] => Ok(None),
        [ParamValues::List(none)] if none.is_empty() => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => Err(Status::invalid_argument(format!(
            "{} sets of values: a query is run with one",
            several.len()
        ))),
    }
}

fn no_transaction(id: Option<&Bytes>) -> Result<(), Status> {
    match id {
        Some(id) if !id.is_empty() => {
            Err(Status::unimplemented("there are no transactions: each statement is one"))
        }
        _ => Ok(()),
    }
}
