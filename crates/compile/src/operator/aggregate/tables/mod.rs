//! The tables of groups.

mod choice;
mod dense_rule;
mod direct;
mod group_table;
mod hashed;
mod single;

pub(crate) use self::choice::choose;
pub(crate) use self::dense_rule::dense_slots;
pub(crate) use self::group_table::{AtGroup, GroupEmitter, GroupTable, Located};
pub(crate) use self::hashed::HashEmitter;
