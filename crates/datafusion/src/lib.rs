//! DataFusion's plans compiled by Kelpie: translation, optimizer rules, and the operator that runs what was compiled.
//!
//! [`KelpieRule`] replaces the largest sub-plans that Kelpie compiles by a [`KelpieExec`]; everything else stays DataFusion's.
//! [`JoinOrderRule`] orders joins before that. What a session of a user has beside plans (files, settings, kept plans, writes) is in
//! `kelpie-session`, which programs stand on. Values, types and errors are DataFusion's.

mod aggregates;
mod any_year;
mod bound_table;
pub mod byte_ranges;
mod call_rows;
pub mod clock;
mod constant_rows;
mod cores;
mod corrections;
mod csv_ranges;
mod decimals;
mod derived;
mod exec;
mod expected;
mod fallback_plan;
mod file_version;
mod function_methods;
mod join_bounds;
mod join_order;
mod kept_rules;
mod late_projections;
mod logical_rule;
mod memory_identity;
mod narrow_filters;
mod node;
mod node_methods;
mod options;
mod original;
mod outer_constants;
pub mod page_header;
pub mod parameters;
mod parquet_reader;
mod parts;
mod plain_source;
pub mod plan_copy;
mod reader_source;
mod received;
pub mod recursion_guard;
mod recursive_terms;
mod report;
mod row_group_pruning;
mod row_starts;
mod rule;
mod selection;
mod series;
mod skipped_rows;
mod source;
pub mod thrift;
mod top_rows;
mod translate;
mod types;
pub mod units;
mod unnested;
mod whole_files;
mod whole_rows;
mod window_filters;
mod window_functions;
mod window_keys;
mod window_report;
pub mod wire;
mod written_times;
mod zones;

pub use aggregates::{
    ArgMost, CountDistinctRows, Counted, GroupedArrayAgg, GroupedEnd, GroupedStringAgg, Median,
    PercentileCont, QuantileDisc,
};
pub use any_year::{AnyYear, date_of, first_of};
pub use call_rows::CallRows;
pub use constant_rows::ConstantRows;
pub use corrections::null_fields::with_null_fields;
pub use corrections::{CORRECTIONS, map_expressions, map_named};
pub use csv_ranges::CsvRanges;
pub use decimals::{check_computed_decimals, check_decimals};
pub use exec::{
    CannotRun, FellBack, KelpieExec, Run, for_each_compiled, into_datafusion, on_engine, panic_text,
};
pub use file_version::file_version;
pub use join_order::JoinOrderRule;
pub use kept_rules::keep_from_physical_rules;
pub use late_projections::LateProjections;
pub use logical_rule::LogicalRule;
pub use memory_identity::{MemoryIdentity, identify};
pub use options::{Fallback, GenericPlanMode, KelpieOptions, OPTIONS, SessionOption, options_as_markdown};
pub use original::Rest;
pub use outer_constants::OuterConstants;
pub use reader_source::{Batches, FileReader, ReaderSource, WantedColumns};
pub use received::ReceivedExec;
pub use recursive_terms::RecursiveTerms;
pub use row_starts::{ByteRange, OpenQuotes, Quoting, RowStarts};
pub use rule::{ANALYZED, KelpieRule, WholeQueryRule, note_reasons, noted_reasons, uncompiled_reasons};
pub use series::{Bounds, Series, SeriesTable};
pub use skipped_rows::SkippedRows;
pub use translate::{Translated, scanned, skips_nulls, translate};
pub use whole_files::whole_files;
pub use window_filters::WINDOW_FILTERS;
pub use window_functions::mended_window_function;
pub use window_keys::WINDOW_KEYS;
pub use written_times::WrittenTimes;
pub use zones::{Zone, ticks_of_second};
