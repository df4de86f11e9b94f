//! Whether the hash table of a join's build side has a Bloom filter, which leaves out rows at the probe side's scan.

use std::borrow::Cow;

use super::JoinOperator;
use super::index::Index;
use crate::choices::Choices;
use crate::program::States;
use crate::types::DataType;
use crate::variant::axes::KeyFilter;
use crate::variant::estimate;

/// The share of rows that find a match up to which a filter pays: of more, those that pass cost as much as the others gain. (On a CPU, 4
/// million sparse keys among up to 2 million: at a half it took a quarter to a half off, at 0.7 it cost up to a third; docs/log/decisions.md.)
const MOST_PASSED: f64 = 0.5;

/// What is thought of the rows that a Bloom filter would be filled with and asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filtered {
    pub build_rows: u64,
    pub probe_rows: u64,
    /// The share of the probe side's rows that finds a match; `None` where the build side has all rows of its tables.
    pub share: Option<f64>,
}

impl JoinOperator {
    /// Whether the build side's keys are in a hash table, and rows of the probe side that match none may be left out.
    pub(crate) fn may_have_bloom(&self) -> bool {
        self.index.path.hash().is_some() && self.ignores_unmatched()
    }

    /// Why a Bloom filter can not be, beside columns of a scan.
    pub(crate) fn why_no_bloom(&self) -> Option<&'static str> {
        let mut keys = self.index.store.infos().into_iter().zip(&self.codes);
        // Bytes of texts would be hashed once more, and in a loop.
        let is_hashed_text = keys.any(|(key, codes)| key.data_type == DataType::Utf8 && codes.is_none());
        is_hashed_text.then_some("texts are hashed byte by byte")
    }

    pub(crate) fn rule_of_bloom(
        &self,
        rows: &Filtered,
        (is_serial, choices): (bool, &Choices<'_>),
    ) -> (KeyFilter, Cow<'static, str>) {
        let cache = choices.calibration.filter_cache(is_serial);
        // To set the bits of a row costs about what it spares to look up one.
        let left_out = |share: f64| (rows.probe_rows as f64 * (1.0 - share)) as u64;
        match rows.share {
            None => (KeyFilter::Off, "the build side has all rows of its table".into()),
            Some(share) if share > MOST_PASSED => {
                (KeyFilter::Off, "most rows are thought to find a match".into())
            }
            Some(share) if left_out(share) < rows.build_rows => {
                (KeyFilter::Off, "fewer rows would be left out than the filter would be filled with".into())
            }
            Some(_) if self.bytes_searched(rows.build_rows) > cache.value => {
                (KeyFilter::Bloom, cache.reason("rows that match nothing do not look beyond a cache"))
            }
            // Whether a row finds a match is hard to foresee, and a worker that has gone the wrong way begins anew.
            Some(_) if is_serial => {
                (KeyFilter::Bloom, cache.reason("rows that match nothing are left out without a branch"))
            }
            Some(_) => (KeyFilter::Off, cache.reason("a cache has room for the hash table")),
        }
    }

    /// What is thought of the rows, for people.
    pub(crate) fn estimate_of_bloom(&self, rows: &Filtered) -> String {
        let Filtered { build_rows, probe_rows, share } = *rows;
        let searched = estimate::bytes(self.bytes_searched(build_rows));
        let matched = share.map_or("an unknown share".into(), estimate::percent);
        format!("{matched} of about {probe_rows} rows find a match among {build_rows} in {searched}")
    }

    pub(crate) fn with_bloom(mut self, states: &mut States) -> JoinOperator {
        let Index { path, store, .. } = &mut self.index;
        if let Some(hash) = path.hash_mut() {
            hash.table = hash.table.with_bloom(store, states);
        }
        self
    }
}
