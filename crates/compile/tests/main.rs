//! The tests of the compiler that have no snapshots: one program, since each links what takes longer to link than to compile.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails where its helpers do")]

mod algebra;
mod block_refill;
mod build_side;
mod calibration;
mod cells;
mod common;
mod dependent_keys;
mod distinct;
mod estimates;
mod facts;
mod join_parts;
mod key_filters;
mod key_texts;
mod layers;
mod locks;
mod look_ups;
mod match_lanes;
mod near_copies;
mod operands;
mod parts;
mod plan_text;
mod ranked;
mod ranks;
mod sets;
mod sketch;
mod spaces;
mod text_joins;
mod text_search;
mod value_codes;
mod window_rows;
