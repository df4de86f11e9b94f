//! Rows that come to a join in parts (radix joins: Shatdal et al. 1994, Manegold et al. 2002): rows that are looked up near each
//! other in the index come one after the other, so that the part of the index that they look at stays in a cache. The rows of the build
//! side may come to the store in the same parts: then the index is filled part after part, and the rows of a part lie together.
//!
//! The index is the one that there would be without parts, but that in a hash table the highest bits of a hash say where a key is.

use std::borrow::Cow;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::JoinOperator;
use super::index::Index;
use crate::choices::Choices;
use crate::context::{Context, Lowered, Unsupported, register_type};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::operator::partition::RowParts;
use crate::types::DataType;
use crate::variant::axes::JoinParts;
use crate::variant::{Variant, estimate};

/// Rows of the probe side from which on parts may pay on a GPU, and on a CPU.
const LEAST_ROWS: u64 = 4 << 20;
const LEAST_WORKER_ROWS: u64 = 1 << 20;
/// How many times as large as the last cache what is searched is, at least, for parts to pay.
const CACHES: u64 = 2;
/// Parts on a GPU, at least: threads of a block that count rows of few parts wait for each other.
const LEAST_PARTS: u64 = 64;
/// The share of the last cache of a GPU that a part of the index should take.
const PART_SHARE: u64 = 4;
/// Bytes of a key that is a text, without those of the text.
const TEXT_BYTES: u64 = 12;

/// Gives rows of a side of a join their parts.
#[derive(Debug)]
pub(crate) struct PartsOfSide {
    pub join: Arc<JoinOperator>,
    pub is_build: bool,
}

impl RowParts for PartsOfSide {
    fn keys(&self) -> &[Expr] {
        let JoinOperator { stored, probe_keys, .. } = &*self.join;
        match self.is_build {
            true => stored.get(..probe_keys.len()).unwrap_or(stored),
            false => probe_keys,
        }
    }

    fn part(&self, cx: &mut Context<'_>, bits: u32) -> Result<(V, Option<V>), Unsupported> {
        let JoinOperator { index, .. } = &*self.join;
        if !self.is_build {
            let keys = self.join.keys_of_probe(cx, &[])?;
            return Ok((index.part(cx, &keys, bits)?, None));
        }
        // As they will be in the store, and so in the index.
        self.join.push_stored(cx);
        let keys = index.keys_of_row(cx)?;
        cx.pop_layer();
        Ok((index.part(cx, &keys, bits)?, None))
    }
}

/// What is thought of the two sides of a join.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sides {
    pub probe_rows: u64,
    /// Rows of the build side, where that is foreseen well.
    pub build_rows: Option<u64>,
    /// Keys of the probe side are scattered: one is looked up far from the one before.
    pub are_scattered: bool,
}

impl JoinOperator {
    /// Whether keys that are looked up one after the other are far from each other, and none is frequent, by what is known of the probe
    /// side's columns.
    pub(crate) fn looks_up_scattered(&self, probe: &[ColumnInfo]) -> bool {
        self.probe_keys.iter().any(|key| column_of(key, probe).scattered.is_some_and(|own| own.are_even))
    }

    /// Bytes, about, that are looked at where rows are looked up among so many of the build side: at least.
    pub(super) fn bytes_searched(&self, build_rows: u64) -> u64 {
        let keys = &self.index.store.infos()[..self.probe_keys.len()];
        self.index.path.bytes_searched(build_rows, keys.iter().map(key_bytes).sum())
    }

    /// What is thought of the rows that are looked up, and of what is searched, for people.
    pub(crate) fn estimate_of_parts(&self, sides: &Sides) -> String {
        let probe = sides.probe_rows;
        match sides.build_rows {
            None => format!("about {probe} rows looked up among an unknown number"),
            Some(build) => {
                let searched = estimate::bytes(self.bytes_searched(build));
                format!("about {probe} rows looked up among {build} in {searched}")
            }
        }
    }

    /// The same of the rows that the index is filled with, in so many parts.
    pub(crate) fn estimate_of_build_parts(&self, sides: &Sides, parts: u64) -> Option<String> {
        let build = sides.build_rows?;
        let part = estimate::bytes(self.bytes_searched(build) / parts.max(1));
        Some(format!("about {build} rows, {} and {part} of the index a part", build / parts.max(1)))
    }

    /// The join, where rows come in parts.
    pub(crate) fn in_parts(mut self) -> JoinOperator {
        if let Some(hash) = self.index.path.hash_mut() {
            hash.table = hash.table.in_parts();
        }
        self
    }

    /// Into how many parts rows are brought before they are looked up; and why.
    pub(crate) fn rule_of_parts(
        &self,
        sides: &Sides,
        (is_serial, choices): (bool, &Choices<'_>),
    ) -> (JoinParts, Cow<'static, str>) {
        let off = |reason: &'static str| (JoinParts(1), reason.into());
        let Sides { probe_rows, build_rows: Some(build_rows), are_scattered: true } = *sides else {
            return off("not known to look up keys far from each other in a large table");
        };
        let keys = &self.index.store.infos()[..self.probe_keys.len()];
        let bytes = self.bytes_searched(build_rows);
        let cache = choices.calibration.index_cache(is_serial);
        let part =
            if is_serial { choices.calibration.worker_table().value } else { cache.value / PART_SHARE };
        let least = if is_serial { LEAST_WORKER_ROWS } else { LEAST_ROWS };
        let least_parts = if is_serial { 2 } else { LEAST_PARTS };
        let mut possible = JoinParts::ALL.iter().filter(|parts| parts.0 >= least_parts);
        let fewest = possible.find(|parts| bytes / parts.0 <= part);
        match fewest.or(JoinParts::ALL.last()) {
            _ if keys.iter().any(is_raw_text) => off("the bytes of texts lie far from each other"),
            _ if probe_rows < least => off("few rows"),
            _ if probe_rows < build_rows => off("fewer rows are looked up than the index has"),
            _ if bytes / CACHES <= cache.value => {
                (JoinParts(1), cache.reason("the last cache has room for most of the index"))
            }
            Some(parts) => (*parts, cache.reason("a part of the index stays in a cache")),
            None => off("there are no parts"),
        }
    }
}

impl Index {
    /// The part (`u32`) of a row with these keys, of which `bits` bits are the number: where its search begins, by the highest bits of that. It
    /// is about order alone: rows whose keys are NULL or beyond the range of the slots, which find nothing, may be of any part.
    fn part(&self, cx: &mut Context<'_>, keys: &[Lowered], bits: u32) -> Result<V, Unsupported> {
        match (self.path.hash(), self.path.dense(), keys) {
            (Some(hash), ..) => Ok(hash.table.part(cx, keys, &self.wide, bits)),
            (None, Some(dense), [key]) => dense.range.part(cx, key, bits),
            _ => Err(Unsupported::internal("parts of a join that has none")),
        }
    }

    /// Whether rows can come in parts by their keys: these have a hash, or slots.
    pub fn has_parts(&self) -> bool {
        self.path.hash().is_some() || self.path.dense().is_some()
    }

    /// How many of the parts may have rows; at least one.
    pub fn parts_used(&self, bits: u32) -> u64 {
        self.path.dense().map_or(1 << bits, |key| key.range.parts_used(bits))
    }
}

/// Whether a key is a text without a dictionary.
fn is_raw_text(key: &ColumnInfo) -> bool {
    key.data_type == DataType::Utf8 && key.dictionary.is_none()
}

/// Bytes of a key in the store.
fn key_bytes(key: &ColumnInfo) -> u64 {
    match key.data_type {
        DataType::Null => 0,
        DataType::Utf8 => TEXT_BYTES,
        _ => register_type(&key.data_type, key.range).bytes().into(),
    }
}
