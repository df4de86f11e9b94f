//! Stages on workers of this process, and on workers that are processes of their own.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where its helpers do")]

mod common;
mod faults;
mod processes;
mod queries;
