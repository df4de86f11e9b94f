//! The tests of SQL, from statements to rows: one program, since each links DataFusion, which takes longer than to compile them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails where its helpers do")]

mod adversarial;
mod aggregates;
mod answers;
mod bad_input;
mod changing_files;
mod concurrent;
mod csv;
mod damaged;
mod derived;
mod dictionaries;
mod differential;
mod external_tables;
mod file_options;
mod files;
mod first_rows;
mod folders;
mod functions;
mod install;
mod join_order;
mod lying;
mod movement;
mod names;
mod nan;
mod outer_joins;
mod parameters;
mod partitions;
mod people;
mod plan_cache;
mod prepared;
mod row_groups;
mod rule;
mod sorted_groups;
mod sorting;
mod sqllogictest;
mod statistics;
mod streaming;
mod string_agg;
mod strings;
mod text_files;
mod three_valued;
mod times;
mod translate;
mod whole_queries;
mod whole_writes;
