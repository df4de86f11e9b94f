//! Kelpie as a server: Arrow Flight SQL over gRPC.
//!
//! [`Server::start`] listens; clients are the drivers of Flight SQL (ADBC, JDBC, ODBC) and `pyarrow.flight`. Each client has a session
//! of its own, and all sessions one engine. Rows are made as they are taken, and a client that goes away ends its query.

mod actions;
mod connection;
mod credentials;
mod errors;
mod metadata;
mod metrics;
mod options;
mod parameters;
mod plans;
mod server;
mod service;
mod session_options;
mod sessions;
mod state;
mod statements;
mod streams;
mod wire;

pub use credentials::Credentials;
pub use errors::ServerError;
pub use options::{Limits, ServerOptions, Tls};
pub use server::Server;
