//! The join methods, one file each.

mod direct_index;
mod existence;
mod hash_index;
mod nested_loop;
mod placed_rows;
mod rank_index;
mod sorted_order;

pub(super) use self::direct_index::Direct;
pub(super) use self::hash_index::{Hash, HashIndex};
pub(super) use self::nested_loop::NestedLoop;
pub(super) use self::placed_rows::Placed;
pub(super) use self::rank_index::Ranked;
pub(super) use self::sorted_order::Sorted;
pub(crate) use self::sorted_order::SortedOrder;
