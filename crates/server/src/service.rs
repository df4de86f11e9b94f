//! The service of Flight: who calls, and which part answers.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest,
    HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status, Streaming};

use crate::actions;
use crate::state::State;
use crate::statements::{Rows, command, decoded};

/// How long a client may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// The service.
pub(crate) struct Service(pub Arc<State>);

type Stream<T> = BoxStream<'static, Result<T, Status>>;

fn one<T: Send + 'static>(item: T) -> Stream<T> {
    stream::iter([Ok(item)]).boxed()
}

#[tonic::async_trait]
impl FlightService for Service {
    type HandshakeStream = Stream<HandshakeResponse>;
    type ListFlightsStream = Stream<FlightInfo>;
    type DoGetStream = Rows;
    type DoPutStream = Stream<PutResult>;
    type DoActionStream = Stream<arrow_flight::Result>;
    type ListActionsStream = Stream<ActionType>;
    type DoExchangeStream = Stream<FlightData>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let (metadata, extensions, mut messages) = request.into_parts();
        let says_all = metadata.contains_key("authorization");
        let first = match says_all {
            true => None,
            false => match tokio::time::timeout(PATIENCE, messages.message()).await {
                Ok(first) => first?,
                Err(_) => return Err(Status::deadline_exceeded("the client did not say who it is")),
            },
        };
        let payload = first.as_ref().map(|message| message.payload.as_ref());
        let session = self.0.logged_in(&metadata, &extensions, payload)?;
        let payload = session.id.clone().into_bytes().into();
        let mut response = Response::new(one(HandshakeResponse { protocol_version: 0, payload }));
        if let Ok(token) = format!("Bearer {}", session.id).parse() {
            response.metadata_mut().insert("authorization", token);
        }
        Ok(response)
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        // There are none but those that statements ask for.
        Ok(caller.response(stream::empty().boxed()))
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        let descriptor = request.into_inner();
        let command = command(Some(&descriptor))?;
        Ok(caller.response(self.0.flight_info(&caller, command, descriptor).await?))
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        let descriptor = request.into_inner();
        let command = command(Some(&descriptor))?;
        // Rows come as they are made: there is nothing to wait for before.
        let info = self.0.flight_info(&caller, command, descriptor).await?;
        let progress = Some(1.0);
        Ok(caller.response(PollInfo {
            info: Some(info),
            flight_descriptor: None,
            progress,
            expiration_time: None,
        }))
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        let command = command(Some(request.get_ref()))?;
        let schema = self.0.schema(&caller, command).await?;
        Ok(caller.response(SchemaResult { schema }))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        let command = decoded(&request.get_ref().ticket)?;
        Ok(caller.response(self.0.rows(&caller, command).await?))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        let mut messages = request.into_inner();
        let first = match tokio::time::timeout(PATIENCE, messages.message()).await {
            Ok(first) => first?,
            Err(_) => return Err(Status::deadline_exceeded("the client did not say what it puts")),
        };
        let Some(first) = first else {
            return Err(Status::invalid_argument("nothing was put"));
        };
        let app_metadata = self.0.put(&caller, first, messages).await?;
        Ok(caller.response(one(PutResult { app_metadata })))
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        Ok(caller.response(stream::iter(actions::all()).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Result<Response<Self::DoActionStream>, Status> {
        let caller = self.0.caller(request.metadata(), request.extensions())?;
        let answer = self.0.act(&caller, request.into_inner()).await?;
        let answer = answer.map(|body| Ok(arrow_flight::Result { body }));
        Ok(caller.response(stream::iter(answer).boxed()))
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        self.0.caller(request.metadata(), request.extensions())?;
        Err(Status::unimplemented(
            "nothing is exchanged: statements are asked for by GetFlightInfo and DoGet",
        ))
    }
}
