//! Tests of the server, by the client of `arrow-flight`.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

mod access;
mod limits;
mod metadata;
#[cfg(feature = "substrait")]
mod plans;
mod sessions;
mod setup;
mod statements;
