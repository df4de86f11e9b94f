//! Expressions evaluated against values computed by hand: one module a topic, each a set of tables.

mod borders;
mod build;
mod casts;
mod dates;
mod gaps;
mod harness;
mod logic;
mod numbers;
mod nvrtc;
mod strings;
