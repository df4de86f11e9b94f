//! The actions of Flight and Flight SQL.

use std::sync::Arc;

use arrow_flight::sql::{
    ActionCancelQueryRequest, ActionCancelQueryResult, ActionClosePreparedStatementRequest,
    ActionCreatePreparedStatementRequest, ActionCreatePreparedSubstraitPlanRequest, Any, Command,
    ProstMessageExt,
};
use arrow_flight::{
    Action, ActionType, CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo,
};
use prost::Message;
use prost::bytes::Bytes;
use tonic::Status;

use crate::errors::{of_input, of_query};
use crate::plans;
use crate::session_options::{self, CloseResult, CloseStatus, SetRequest};
use crate::state::{Caller, State};
use crate::statements::decoded;

/// The action of those who have plans.
const PREPARED_PLAN: &str = "CreatePreparedSubstraitPlan";

/// The actions that there are, and what they do.
const ACTIONS: [(&str, &str); 8] = [
    (
        "CreatePreparedStatement",
        "Prepares a statement: ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult",
    ),
    (
        PREPARED_PLAN,
        "Prepares a plan of Substrait: ActionCreatePreparedSubstraitPlanRequest, ActionCreatePreparedStatementResult",
    ),
    ("ClosePreparedStatement", "Forgets a prepared statement: ActionClosePreparedStatementRequest"),
    ("CancelFlightInfo", "Cancels a statement: CancelFlightInfoRequest, CancelFlightInfoResult"),
    (
        "CancelQuery",
        "As CancelFlightInfo, for older clients: ActionCancelQueryRequest, ActionCancelQueryResult",
    ),
    ("SetSessionOptions", "Sets options of the session: SetSessionOptionsRequest, SetSessionOptionsResult"),
    ("GetSessionOptions", "The options of the session: GetSessionOptionsRequest, GetSessionOptionsResult"),
    ("CloseSession", "Ends the session and all that runs in it: CloseSessionRequest, CloseSessionResult"),
];

/// The actions that there are.
pub(crate) fn all() -> Vec<Result<ActionType, Status>> {
    let described = |(name, what): &(&str, &str)| {
        Ok(ActionType { r#type: (*name).to_string(), description: (*what).to_string() })
    };
    ACTIONS.iter().filter(|(name, _)| plans::ARE_TAKEN || *name != PREPARED_PLAN).map(described).collect()
}

impl State {
    /// Does an action; gives what it answers, where it does.
    pub async fn act(self: &Arc<Self>, caller: &Caller, action: Action) -> Result<Option<Bytes>, Status> {
        match action.r#type.as_str() {
            "CreatePreparedStatement" => {
                let request: ActionCreatePreparedStatementRequest = packed(&action.body)?;
                if request.transaction_id.is_some_and(|id| !id.is_empty()) {
                    return Err(no_transactions());
                }
                let prepared = self.prepare(caller, request.query, None).await?;
                Ok(Some(prepared.as_any().encode_to_vec().into()))
            }
            PREPARED_PLAN => {
                let request: ActionCreatePreparedSubstraitPlanRequest = packed(&action.body)?;
                if request.transaction_id.is_some_and(|id| !id.is_empty()) {
                    return Err(no_transactions());
                }
                let plan = plans::bytes_of(request.plan)?;
                let prepared = self.prepare(caller, plans::name_of(&plan), Some(plan)).await?;
                Ok(Some(prepared.as_any().encode_to_vec().into()))
            }
            "ClosePreparedStatement" => {
                let request: ActionClosePreparedStatementRequest = packed(&action.body)?;
                caller.session.close_prepared(&request.prepared_statement_handle);
                Ok(None)
            }
            "CancelFlightInfo" => {
                let request = CancelFlightInfoRequest::decode(action.body).map_err(of_input)?;
                let status = cancelled(caller, request.info)? as i32;
                Ok(Some(CancelFlightInfoResult { status }.encode_to_vec().into()))
            }
            "CancelQuery" => {
                let request: ActionCancelQueryRequest = packed(&action.body)?;
                let info = FlightInfo::decode(request.info).map_err(of_input)?;
                // Both have the same numbers.
                let result = cancelled(caller, Some(info))? as i32;
                Ok(Some(ActionCancelQueryResult { result }.as_any().encode_to_vec().into()))
            }
            "SetSessionOptions" => {
                let request = SetRequest::decode(action.body).map_err(of_input)?;
                let (state, session) = (Arc::clone(self), Arc::clone(&caller.session));
                let setting = async move {
                    let open = session.open(&state.options).await.map_err(|error| of_query(&error))?;
                    Ok(session_options::set(open, request).await)
                };
                Ok(Some(self.on_queries(setting).await?.encode_to_vec().into()))
            }
            "GetSessionOptions" => {
                let (state, session) = (Arc::clone(self), Arc::clone(&caller.session));
                let getting = async move {
                    let open = session.open(&state.options).await.map_err(|error| of_query(&error))?;
                    Ok(session_options::get(open))
                };
                Ok(Some(self.on_queries(getting).await?.encode_to_vec().into()))
            }
            "CloseSession" => {
                self.sessions.close(&caller.session);
                Ok(Some(CloseResult { status: CloseStatus::Closed as i32 }.encode_to_vec().into()))
            }
            "BeginTransaction" | "EndTransaction" | "BeginSavepoint" | "EndSavepoint" => {
                Err(no_transactions())
            }
            "RenewFlightEndpoint" => Err(Status::unimplemented("tickets are good for once and not renewed")),
            other => {
                let name: String = other.chars().take(100).collect();
                Err(Status::unimplemented(format!("there is no action {name:?}")))
            }
        }
    }
}

/// What an action of Flight SQL asks.
fn packed<T: ProstMessageExt>(body: &Bytes) -> Result<T, Status> {
    let any = Any::decode(body.as_ref()).map_err(of_input)?;
    let wrong = || Status::invalid_argument(format!("the action wants a {}", T::type_url()));
    any.unpack().map_err(of_input)?.ok_or_else(wrong)
}

/// Cancels the statement of a flight, where it is one of the caller's.
fn cancelled(caller: &Caller, info: Option<FlightInfo>) -> Result<CancelStatus, Status> {
    let tickets = info.into_iter().flat_map(|info| info.endpoint).filter_map(|endpoint| endpoint.ticket);
    let mut any = false;
    for ticket in tickets {
        if let Command::TicketStatementQuery(ticket) = decoded(&ticket.ticket)? {
            any |= caller.session.cancel(std::str::from_utf8(&ticket.statement_handle).unwrap_or_default());
        }
    }
    match any {
        true => Ok(CancelStatus::Cancelled),
        false => Err(Status::not_found("no such statement runs or waits in this session")),
    }
}

fn no_transactions() -> Status {
    Status::unimplemented("there are no transactions: each statement is one")
}
