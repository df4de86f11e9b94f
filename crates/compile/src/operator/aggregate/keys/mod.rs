//! How the keys of a group are found: by their values where these are dense, or in a hash table.

mod dense_places;
mod dependent;
mod distinct_sets;
mod domain;
mod facts;
mod input;
mod key_count;
mod key_table;
mod probes;
mod sketch;
mod slot_layout;
mod warp_inserts;
mod word_keys;

pub(crate) use self::dense_places::{place_of_key, value_of};
pub(crate) use self::dependent::{KeySplit, KnownKeys, RowKeys, are_stored_beside};
pub(crate) use self::distinct_sets::{DistinctSet, GroupRow, insert_values};
pub(crate) use self::domain::{
    DenseKey, are_clustered, dense_domain, groups_known, key_values, scattered_groups, values_of,
};
pub(crate) use self::facts::{Facts, KeyFacts, TableFacts};
pub(crate) use self::input::{Input, TableChoices};
pub(crate) use self::key_count::KeyCount;
pub(crate) use self::key_table::{KeyTable, KeyWord, ProbeKeys, See};
pub(crate) use self::probes::Probe;
pub(crate) use self::sketch::GroupSketch;
