//! Tests of plans of Substrait.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

mod common;
mod hostile;
mod producers;
mod statements;
mod workloads;
