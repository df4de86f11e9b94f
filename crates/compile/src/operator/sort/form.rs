//! How the device's radix sort goes about a sort: chosen where the sort is planned, and handed to the engine with it
//! ([`primitives::radix`](crate::primitives::radix), [`primitives::sweep`](crate::primitives::sweep)).

use crate::context::Unsupported;
use crate::primitives::sweep;
use crate::program::SortForm;
use crate::shape::LaunchShape;
use crate::variant::Site;
use crate::variant::axes::SortPasses;

/// How a SIMT device comes from one digit to the next (`docs/log/performance.md`, "Sweeps of the device's sort").
const PASSES: (SortPasses, &str) = (SortPasses::Sweep, "a digit takes one pass over the rows");

impl SortForm {
    /// Notes the choice of a sort at its site.
    pub(crate) fn choose(site: Site<'_>, shape: &LaunchShape) -> Result<SortForm, Unsupported> {
        let is_cpu = shape.is_serial();
        let lacks = match sweep::tile_rows(shape) {
            _ if is_cpu => Some("a CPU's worker would wait for the workers before it"),
            0 => Some("a block has no memory for its rows"),
            _ => None,
        };
        let rule = match lacks {
            _ if is_cpu => (
                SortPasses::Leading,
                "a few digits tell most rows apart, and a worker puts the others in order",
            ),
            Some(lacks) => (SortPasses::Tiles, lacks),
            None => PASSES,
        };
        let passes = site.choose(rule, |value| match (value, lacks) {
            (SortPasses::Sweep, Some(lacks)) => Err(lacks.into()),
            (SortPasses::Leading, _) if !is_cpu => Err("runs are put in order by single threads".into()),
            _ => Ok(()),
        })?;
        Ok(SortForm { passes })
    }
}
