//! Grouping sets within a subquery, for each of the values that it refers to.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, cast, lit};

use super::dependent::{OuterValues, all_of};

/// Keys of which all sets are looked at.
const MOST_OF_CUBE: usize = 12;

impl OuterValues {
    /// Each set gets the values as further keys, but for the one without keys: that has a row for every value, also for one without
    /// rows.
    pub(super) fn grouped_by_sets(
        &self,
        aggregate: &Aggregate,
        sets: &GroupingSet,
    ) -> Result<Option<LogicalPlan>> {
        let Some(sets) = sets_of(sets) else { return Ok(None) };
        let Some(input) = self.rows_of(&aggregate.input)? else { return Ok(None) };
        let calls = aggregate.aggr_expr.iter().map(|expr| self.inside_as_before(expr));
        let calls = calls.collect::<Result<Vec<Expr>>>()?;
        let (keyed, empty): (Vec<_>, Vec<_>) = sets.into_iter().partition(|set| !set.is_empty());
        let mut parts = Vec::new();
        if !keyed.is_empty() {
            // The values come first: the bits that tell which keys are left out stay the last ones.
            let with_values = keyed.into_iter().map(|set| {
                let keys = set.iter().map(|key| self.inside_as_before(key));
                self.values().map(Ok).chain(keys).collect::<Result<Vec<Expr>>>()
            });
            let sets = GroupingSet::GroupingSets(with_values.collect::<Result<_>>()?);
            let grouped = LogicalPlanBuilder::from(input.clone());
            let grouped = grouped.aggregate([Expr::GroupingSet(sets)], calls.clone())?.build()?;
            parts.push(self.as_before(aggregate, grouped)?);
        }
        for _ in &empty {
            let all = match calls.as_slice() {
                [] => self.plan(&self.qualifier)?,
                calls => {
                    let own = aggregate.aggr_expr.clone();
                    let keyless = Aggregate::try_new(Arc::clone(&aggregate.input), vec![], own)?;
                    let grouped = LogicalPlanBuilder::from(input.clone());
                    let grouped = grouped.aggregate(self.values().collect::<Vec<_>>(), calls.to_vec())?;
                    self.with_empty_ones(&keyless, grouped.build()?)?
                }
            };
            parts.push(self.without_keys(aggregate, all)?);
        }
        let Some(first) = parts.first() else { return Ok(None) };
        let names = first.schema().columns();
        all_of(parts, names).map(Some)
    }

    /// The columns of an aggregate and the values, of groups that have both.
    fn as_before(&self, aggregate: &Aggregate, grouped: LogicalPlan) -> Result<LogicalPlan> {
        let columns = aggregate.schema.iter().map(|(qualifier, field)| {
            let column = Expr::from((qualifier, field));
            // More keys may take a wider number to tell them.
            match field.name() == Aggregate::INTERNAL_GROUPING_ID {
                true => cast(column, field.data_type().clone()).alias(field.name()),
                false => column,
            }
        });
        let columns = columns.chain(self.values()).collect::<Vec<_>>();
        LogicalPlanBuilder::from(grouped).project(columns)?.build()
    }

    /// The same of groups without keys: these are NULL.
    fn without_keys(&self, aggregate: &Aggregate, grouped: LogicalPlan) -> Result<LogicalPlan> {
        let calls = aggregate.aggr_expr.len();
        let keys = aggregate.schema.fields().len().saturating_sub(calls + 1);
        let columns = aggregate.schema.iter().enumerate().map(|(place, (qualifier, field))| {
            let data_type = field.data_type();
            let value = match place {
                _ if place < keys => lit(ScalarValue::try_from(data_type)?),
                _ if field.name() == Aggregate::INTERNAL_GROUPING_ID => {
                    cast(lit((1_u64 << keys.min(63)) - 1), data_type.clone())
                }
                _ => return Ok(Expr::from((qualifier, field))),
            };
            Ok(value.alias_qualified(qualifier.cloned(), field.name()))
        });
        let columns = columns.chain(self.values().map(Ok)).collect::<Result<Vec<_>>>()?;
        LogicalPlanBuilder::from(grouped).project(columns)?.build()
    }
}

/// The sets that are written out or meant; nothing where they are too many.
fn sets_of(sets: &GroupingSet) -> Option<Vec<Vec<Expr>>> {
    Some(match sets {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Rollup(keys) => (0..=keys.len()).rev().map(|count| keys[..count].to_vec()).collect(),
        GroupingSet::Cube(keys) if keys.len() <= MOST_OF_CUBE => {
            let set = |bits: usize| {
                let keys = keys.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0);
                keys.map(|(_, key)| key.clone()).collect()
            };
            (0..1 << keys.len()).rev().map(set).collect()
        }
        GroupingSet::Cube(_) => return None,
    })
}
