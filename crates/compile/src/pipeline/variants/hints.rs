//! What the caches of a GPU are told of a pipeline's accesses: which bytes are not wanted again soon.
//!
//! A column is read once at the scan and a result written once, while tables that rows are looked up in are read again and again. By itself
//! a cache keeps what came last, so columns push out tables where both together are larger than it is.

use super::Facts;
use crate::context::Unsupported;
use crate::variant::axes::CacheHints;
use crate::variant::estimate;

/// What the rule takes where tables that are looked up and the last cache are of about one size: the one line to change once a gain
/// has been measured.
const BESIDE_TABLES: CacheHints = CacheHints::None;
/// The last cache holds so many times such tables at most, and they it at most.
const ABOUT: u64 = 4;

impl Facts<'_> {
    /// What caches are told of columns and results.
    pub(super) fn hints(&self) -> Result<CacheHints, Unsupported> {
        let (reads, writes) = (self.pipeline.source.is_scan(), self.pipeline.sink.staged().is_some());
        if !self.is_simt || !(reads || writes) {
            return Ok(CacheHints::None);
        }
        let tables = self.pipeline.steps.iter().map(|step| step.bytes_searched());
        let tables = tables.fold(0, u64::saturating_add);
        let cache = self.environment.calibration.index_cache(false);
        let is_near = (cache.value / ABOUT..=cache.value.saturating_mul(ABOUT)).contains(&tables);
        let rule = match () {
            () if reads && is_near => {
                (BESIDE_TABLES, "columns go through the cache that tables of its size are looked up in")
            }
            () => (CacheHints::None, "no table of about the size of the last cache is looked up"),
        };
        let sizes =
            format!("{} of tables, {} of cache", estimate::bytes(tables), estimate::bytes(cache.value));
        let rule = ((rule.0, &*cache.reason(rule.1)), Some(sizes));
        self.environment.chooser.choose_by(self.site, rule, |value| match value {
            CacheHints::Loads | CacheHints::All if !reads => Err("no table is scanned".into()),
            CacheHints::Stores | CacheHints::All if !writes => Err("no result is written".into()),
            _ => Ok(()),
        })
    }
}
