//! What two pieces of work have to have in common to be the same: 128 bits of hash of their structure.
//!
//! A stage's *data* are its plan without constants and what is known of its columns: what was learned about them, such as keys
//! that are not unique or the sizes of tables, is worth knowing whatever the constants are and however it is computed. Its *program* is also the
//! constants, the device, what was measured of it, and everything that was chosen or forced. A pipeline's *genome* is what was chosen for it: one
//! pipeline may have kernels of several genomes side by side. What a kernel's code is, its module says: there constants are
//! parameters, and devices keep code by the module itself.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use kelpie_compile::calibration::Calibration;
use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::Plan;
use kelpie_compile::variant::{Genome, Level};

use crate::{Dictionaries, MacroModel, QueryOptions};

/// The hash of a structure. Different structures have different ones for all practical purposes (`docs/log/decisions.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digest(u64, u64);

impl Digest {
    /// That of a value: all that its `Hash` looks at.
    pub(crate) fn of(value: &impl Hash) -> Digest {
        let mut hasher = Twice::new();
        value.hash(&mut hasher);
        Digest(hasher.0.finish(), hasher.1.finish())
    }
}

/// Two hashes of the same bytes, the second behind bytes of its own, so that they are independent.
struct Twice(DefaultHasher, DefaultHasher);

impl Twice {
    fn new() -> Twice {
        let mut second = DefaultHasher::new();
        second.write(b"second hash");
        Twice(DefaultHasher::new(), second)
    }
}

impl Hasher for Twice {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// A stage: its plan, and its columns.
pub(crate) fn stage(plan: &Plan, infos: &[ScanInfo]) -> Digest {
    Digest::of(&(plan, infos))
}

/// What a stage runs over: its plan without constants, and its columns.
pub(crate) fn data(plan: &Plan, infos: &[ScanInfo]) -> Digest {
    stage(&plan.without_constants(), infos)
}

/// What a stage's need of memory depends on.
pub(crate) fn effort(
    plan: &Plan,
    device: (&str, u64),
    (model, dictionaries): (MacroModel, Dictionaries),
) -> Digest {
    Digest::of(&(plan.without_constants(), device, model, dictionaries))
}

/// A program of a stage before its variants are chosen: everything that its code and its arguments follow from but what is forced.
pub(crate) fn program(
    stage: Digest,
    (device, calibration): (&str, &Calibration),
    options: &QueryOptions,
    (direct_bytes, keeps_rows): (Option<u64>, bool),
    duplicates: &BTreeSet<usize>,
) -> Digest {
    let QueryOptions { micro_model, resolution, host_sort_rows, meter, profile, shape, .. } = options;
    let choices = (micro_model, resolution, host_sort_rows, shape, direct_bytes, keeps_rows, duplicates);
    Digest::of(&(stage, (device, calibration), (meter, profile), choices))
}

/// What pipeline `index` of a program has of the program's genome: what was chosen for operators, whose state its kernels
/// share, and what was chosen for itself.
pub(crate) fn genome(genome: &Genome, index: usize) -> Digest {
    let site = format!("p{index}");
    let own = genome.0.iter().filter(|choice| choice.axis.level == Level::Plan || choice.site == site);
    let own: Vec<_> = own.map(|choice| (&choice.site, choice.axis.name, choice.value)).collect();
    Digest::of(&own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_look_at_everything() {
        let values = [("a", 1), ("a", 2), ("b", 1), ("", 1), ("a1", 0)];
        for (index, value) in values.iter().enumerate() {
            assert_eq!(Digest::of(value), Digest::of(&value.clone()));
            for other in &values[..index] {
                let (a, b) = (Digest::of(value), Digest::of(other));
                assert!(a.0 != b.0 && a.1 != b.1 && a.0 != b.1, "{value:?} {other:?}");
            }
        }
        assert!(Digest::of(&1).0 != Digest::of(&1).1);
    }

    #[test]
    fn a_program_is_of_the_constants_that_it_was_made_under() {
        let of = |calibration: &Calibration| {
            let (options, duplicates) = (QueryOptions::default(), BTreeSet::new());
            program(Digest::of(&0), ("cpu", calibration), &options, (None, false), &duplicates)
        };
        let nothing = Calibration::default();
        let measured = [1 << 20, 2 << 20].map(|cache| Calibration { core_cache: Some(cache), ..nothing });
        assert_eq!(of(&nothing), of(&Calibration::default()));
        assert!(of(&nothing) != of(&measured[0]) && of(&measured[0]) != of(&measured[1]));
    }
}
