//! Groups of rows that come in parts, of which each is added up as a whole.

mod part_groups;
mod part_rule;
mod scattered;

pub(crate) use self::part_groups::{AllGroups, PartGroups, PartPlace, PartWindow};
pub(crate) use self::part_rule::{TableSize, most_worker_parts, rule_of_parts};
pub(crate) use self::scattered::scattered_table;
