//! What two pieces of work have to have in common to be the same: the [`Fingerprint`] of their structure.
//!
//! A stage's *data* are its plan without constants and what is known of its columns: what was learned about them, such as keys
//! that are not unique or the sizes of tables, is worth knowing whatever the constants are and however it is computed. Its *program* is also the
//! constants, the device, what was measured of it, and everything that was chosen or forced. A pipeline's *genome* is what was chosen for it: one
//! pipeline may have kernels of several genomes side by side. What a kernel's code is, its module says: there constants are
//! parameters, and devices keep code by the module itself.

use std::collections::BTreeSet;

use kelpie_compile::calibration::Calibration;
use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::Plan;
use kelpie_compile::variant::{Forced, Genome, Level};

use crate::learned::Fingerprint;
use crate::options::{Dictionaries, MacroModel, QueryOptions};

/// A stage: its plan, and its columns.
pub(crate) fn stage(plan: &Plan, infos: &[ScanInfo]) -> Fingerprint {
    Fingerprint::of(&(plan, infos))
}

/// What a stage runs over: its plan without constants, and its columns.
pub(crate) fn data(plan: &Plan, infos: &[ScanInfo]) -> Fingerprint {
    stage(&plan.without_constants(), infos)
}

/// What a stage's need of memory depends on.
pub(crate) fn memory_fallback(
    plan: &Plan,
    device: (&str, u64),
    (model, dictionaries): (MacroModel, Dictionaries),
) -> Fingerprint {
    Fingerprint::of(&(plan.without_constants(), device, model, dictionaries))
}

/// A program of a stage before its variants are chosen: everything that its code and its arguments follow from but what is forced.
pub(crate) fn program(
    stage: Fingerprint,
    (device, calibration): (&str, &Calibration),
    options: &QueryOptions,
    (direct_bytes, keeps_rows): (Option<u64>, bool),
    duplicates: &BTreeSet<usize>,
) -> Fingerprint {
    let QueryOptions { micro_model, resolution, host_sort_rows, meter, profile, shape, .. } = options;
    let choices = (micro_model, resolution, host_sort_rows, shape, direct_bytes, keeps_rows, duplicates);
    Fingerprint::of(&(stage, (device, calibration), (meter, profile), choices))
}

/// What the sizes that fit a program depend on: `alike`, the program by its data in place of its stage, what is forced, and the bytes
/// of memory that there are.
pub(crate) fn capacities(alike: Fingerprint, forced: &Forced, memory: u64) -> Fingerprint {
    Fingerprint::of(&(alike, forced, memory))
}

/// What pipeline `index` of a program has of the program's genome: what was chosen for operators, whose state its kernels
/// share, and what was chosen for itself; and what was chosen otherwise for one of its variants.
pub(crate) fn genome((genome, variant): (&Genome, &Genome), index: usize) -> Fingerprint {
    let site = format!("p{index}");
    let all = genome.0.iter().chain(&variant.0);
    let own = all.filter(|choice| choice.axis.level == Level::Plan || choice.site == site);
    let own: Vec<_> = own.map(|choice| (&choice.site, choice.axis.name, choice.value)).collect();
    Fingerprint::of(&own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_of_the_constants_that_it_was_made_under() {
        let of = |calibration: &Calibration| {
            let (options, duplicates) = (QueryOptions::default(), BTreeSet::new());
            program(Fingerprint::of(&0), ("cpu", calibration), &options, (None, false), &duplicates)
        };
        let nothing = Calibration::default();
        let measured = [1 << 20, 2 << 20].map(|cache| Calibration { core_cache: Some(cache), ..nothing });
        assert_eq!(of(&nothing), of(&Calibration::default()));
        assert!(of(&nothing) != of(&measured[0]) && of(&measured[0]) != of(&measured[1]));
    }
}
