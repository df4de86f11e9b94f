//! What a finished build side leaves out of the probe side's scans: by bounds and a bitmap, which an index has anyway, or by a Bloom
//! filter of its hash table, which is made for that.

use super::Cut;
use super::open::OpenRows;
use crate::MicroModel;
use crate::context::Unsupported;
use crate::operator::join::{Filtered, JoinOperator};
use crate::program::Purpose;
use crate::variant::axes::{KeyFilter, Pruning};
use crate::variant::{Site, all_but};

impl Cut<'_> {
    /// Whether a finished build side leaves out rows of the probe side's scans: the join, with a Bloom filter where that is to do it.
    pub(super) fn filter_keys(
        &mut self,
        operator: JoinOperator,
        site: Site<'_>,
        build: &OpenRows,
        probe: &OpenRows,
    ) -> Result<(JoinOperator, bool), Unsupported> {
        let by_bloom = self.takes_bloom(&operator, site, build, probe)?;
        if !by_bloom && operator.filtering_keys().is_empty() {
            return Ok((operator, false));
        }
        let rule = (Pruning::On, "rows that are left out cost nothing");
        let prunes = site.choose(rule, |_| Ok(()))? == Pruning::On;
        let operator = match prunes && by_bloom {
            true => operator.with_bloom(self.states.of(Purpose::Table)),
            false => operator,
        };
        Ok((operator, prunes))
    }

    /// Whether a hash table is to have a Bloom filter.
    fn takes_bloom(
        &self,
        operator: &JoinOperator,
        site: Site<'_>,
        build: &OpenRows,
        probe: &OpenRows,
    ) -> Result<bool, Unsupported> {
        if !operator.may_have_bloom() {
            return Ok(false);
        }
        let of_scans =
            probe.branches.iter().any(|open| open.scan_columns(operator, &operator.probe_keys).is_some());
        let why_not = match of_scans {
            true => operator.why_no_bloom(),
            false => Some("keys are no columns of a table"),
        };
        let (is_narrowed, share) = build.narrowed();
        let rows = Filtered {
            build_rows: build.expected(),
            probe_rows: probe.expected(),
            share: is_narrowed.then_some(share),
        };
        let (filter, reason) = match why_not {
            Some(why_not) => (KeyFilter::Off, why_not.into()),
            None if self.choices.micro_model != MicroModel::Resolution => {
                (KeyFilter::Off, "the micro model looks up all rows".into())
            }
            None => operator.rule_of_bloom(&rows, (self.shape.is_serial(), self.choices)),
        };
        let rule = ((filter, &*reason), Some(operator.estimate_of_bloom(&rows)));
        let chosen = site.choose_by(rule, all_but(KeyFilter::Bloom, &why_not))?;
        Ok(chosen == KeyFilter::Bloom)
    }
}
