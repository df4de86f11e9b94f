//! The tests of the engine: one program, since each links what takes longer to link than to compile.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails where its helpers do"
)]

mod common;
#[path = "common/grouped_rows.rs"]
mod grouped_rows;
#[path = "common/joined.rs"]
mod joined;
#[path = "common/plans.rs"]
mod plans;
#[path = "common/sides.rs"]
mod sides;
#[path = "common/texts.rs"]
mod texts;

mod aggregates;
mod algebra;
mod atomics;
mod batched_look_ups;
mod block_refill;
mod build_side;
mod calibration;
mod cancellation;
mod chunks;
mod clustered;
mod decimal_sums;
mod deferral;
mod dependent_keys;
mod distinct;
mod estimates;
mod failing;
mod first_rows;
mod group_texts;
mod grouping_sets;
mod groups;
mod identity;
mod init;
mod inner_sorts;
mod join_parts;
mod joins;
mod key_claims;
mod key_filters;
mod key_text_lanes;
mod lanes;
mod learned;
mod match_lanes;
mod meter;
mod models;
mod multi_column_distinct;
mod near_block;
mod ordered_rows;
mod part_delivery;
mod parts;
mod plan_files;
mod queries;
mod queue;
mod rank_index;
mod ranked;
mod rotation;
mod row_loops;
mod set_operations;
mod shapes;
mod shared_plans;
mod short;
mod sites;
mod sort_forms;
mod sorted_groups;
mod sorted_order;
mod sorting;
mod spaces;
mod spacings;
mod streaming;
mod strides;
mod text_extremes;
mod text_joins;
mod text_lanes;
mod text_runs;
mod text_search;
mod top_rows;
mod tuning;
mod value_codes;
mod variants;
