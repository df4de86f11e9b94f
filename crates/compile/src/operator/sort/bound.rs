//! What keeps rows that cannot be among the first of an order from being stored: on a CPU the heap of each worker ([`top`]). A GPU's threads
//! are too many to have one each.

use super::{SortOperator, top};
use crate::context::Unsupported;
use crate::shape::LaunchShape;
use crate::variant::Site;
use crate::variant::axes::TopBound;

impl SortOperator {
    /// Chooses what bounds the rows that are stored. `batches`: whether much is done with rows before, whose first key is known; or why not.
    pub(crate) fn with_bound(
        self,
        (site, shape): (Site<'_>, &LaunchShape),
        batches: Result<(), &'static str>,
    ) -> Result<SortOperator, Unsupported> {
        let Some(wanted) = self.fetch.filter(|wanted| *wanted > 0) else { return Ok(self) };
        let few = wanted <= top::MAX_ROWS;
        let rule = match shape.is_serial() && few {
            true if batches.is_ok() => {
                (TopBound::Batches, "what is done with rows costs more than a look at their keys")
            }
            true => (TopBound::Heap, "each worker knows the smallest words that it has seen"),
            false if few => (TopBound::Off, "threads are too many to have a heap each"),
            false => (TopBound::Off, "many rows are wanted"),
        };
        let chosen = site.choose(rule, |value| match value {
            TopBound::Off => Ok(()),
            _ if !shape.is_serial() => Err("threads are too many to have a heap each".into()),
            _ if !few => Err("the heap would leave a worker's cache".into()),
            TopBound::Heap => Ok(()),
            TopBound::Batches => batches.map_err(String::from),
        })?;
        let (has_heap, bounds_batches) = (chosen != TopBound::Off, chosen == TopBound::Batches);
        Ok(SortOperator { has_heap, bounds_batches, ..self })
    }
}
