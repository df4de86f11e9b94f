//! The tests of the workloads: one program, since each links DataFusion, which takes longer than to compile them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod answers;
mod common;
mod join_order;
mod models;
mod translate;
