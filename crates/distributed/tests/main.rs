//! Stages on workers of this process, and on workers that are processes of their own.

mod common;
mod faults;
mod processes;
mod queries;
