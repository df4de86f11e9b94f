//! Where the time of a query goes, so that the parts add up to the whole.
//!
//! What is split is *wall time*: each nanosecond between the beginning and the end of a query is charged to one phase, the one
//! that the query waits for. Where several threads work at once (readers, compilers of kernels), the wall time of all of them is
//! shared out in proportion to what each phase took in its thread. What runs beside something else that is waited for costs
//! nothing here: kernels that are compiled while columns are read are charged to reading.

use std::ops::AddAssign;

use kelpie_kir::named;

named! {
    /// What several phases belong to.
    #[derive(PartialOrd, Ord)]
    pub enum Group {
        /// From text to physical plan.
        Plan = "plan",
        /// From physical plan to kernels.
        Compile = "compile",
        /// From files or batches to columns on the device.
        Read = "read",
        /// What the engine does itself, between kernels.
        Host = "host",
        /// Kernels.
        Kernels = "kernels",
        /// From the device to rows.
        Result = "result",
        /// What is not Kelpie's.
        Around = "around",
    }
}

impl Group {
    /// Its phases.
    pub fn phases(self) -> impl Iterator<Item = Phase> {
        Phase::ALL.into_iter().filter(move |phase| phase.group() == self)
    }
}

named! {
    /// What a query's time goes to.
    pub enum Phase {
        /// Looking for a plan that is kept, and copying it.
        Find = "find",
        /// Text to syntax tree.
        Parse = "parse",
        /// Syntax tree to optimized logical plan.
        Logical = "logical",
        /// Files of tables, and what is known of their columns.
        Statistics = "statistics",
        /// The order of joins.
        JoinOrder = "join_order",
        /// DataFusion's physical plan.
        Physical = "physical",
        /// What of it compiles.
        Rule = "rule",
        /// Plan to kernel IR.
        Generate = "generate",
        /// Kernel IR to CUDA C.
        Print = "print",
        /// NVRTC, or Cranelift.
        Build = "build",
        /// Loading kernels, from the disk too.
        Load = "load",
        /// Until the first rows of a table come; also looking for columns that are there, and waiting for another query's.
        Open = "open",
        /// Files to batches.
        Decode = "decode",
        /// Files to columns, by the device; beside what the host decodes it counts from the end of that.
        Pages = "pages",
        /// Batches to columns as kernels read them.
        Encode = "encode",
        /// Columns to their places on the device.
        Upload = "upload",
        /// What the engine does between kernels: memory, arguments, counts, launches; handing rows from thread to thread.
        Host = "host",
        /// Kernels.
        Kernels = "kernels",
        /// The result to the host, and its order and limit there.
        Result = "result",
        /// DataFusion's operators around what is compiled.
        Operators = "operators",
        /// Whoever takes the rows.
        Taking = "taking",
    }
}

const PHASES: usize = Phase::ALL.len();

impl Phase {
    /// What it belongs to.
    pub fn group(self) -> Group {
        match self {
            Phase::Find
            | Phase::Parse
            | Phase::Logical
            | Phase::Statistics
            | Phase::JoinOrder
            | Phase::Physical
            | Phase::Rule => Group::Plan,
            Phase::Generate | Phase::Print | Phase::Build | Phase::Load => Group::Compile,
            Phase::Open | Phase::Decode | Phase::Pages | Phase::Encode | Phase::Upload => Group::Read,
            Phase::Host => Group::Host,
            Phase::Kernels => Group::Kernels,
            Phase::Result => Group::Result,
            Phase::Operators | Phase::Taking => Group::Around,
        }
    }
}

/// Nanoseconds of wall time by phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split([u64; PHASES]);

impl Split {
    /// Charges time to a phase.
    pub fn add(&mut self, phase: Phase, time_ns: u64) {
        self.0[phase as usize] += time_ns;
    }

    /// The time of a phase.
    pub fn of(&self, phase: Phase) -> u64 {
        self.0[phase as usize]
    }

    /// The time of a group's phases.
    pub fn of_group(&self, group: Group) -> u64 {
        group.phases().map(|phase| self.of(phase)).sum()
    }

    /// What belongs to one group.
    pub fn only(&self, group: Group) -> Split {
        let mut only = Split::default();
        group.phases().for_each(|phase| only.add(phase, self.of(phase)));
        only
    }

    /// All of it.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Charges time to phases in proportion to what they took in their threads; to `otherwise` where they took nothing.
    pub fn share(&mut self, time_ns: u64, weights: &Split, otherwise: Phase) {
        let shared = weights.scaled_to(time_ns);
        *self += shared;
        self.add(otherwise, time_ns.saturating_sub(shared.total()));
    }

    /// The same proportions, adding up to `total_ns`, but for what is lost by rounding down; nothing where all is 0.
    pub fn scaled_to(&self, total_ns: u64) -> Split {
        let total = u128::from(self.total());
        if total == 0 {
            return Split::default();
        }
        Split(self.0.map(|part| (u128::from(part) * u128::from(total_ns) / total) as u64))
    }
}

impl AddAssign for Split {
    fn add_assign(&mut self, other: Split) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, part)| *sum += part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_has_its_place_and_its_group() {
        let mut split = Split::default();
        for (place, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, place);
            split.add(phase, 1 << place);
        }
        assert_eq!(split.total(), (1 << PHASES) - 1);
        assert_eq!(Group::ALL.into_iter().map(|group| split.of_group(group)).sum::<u64>(), split.total());
    }

    #[test]
    fn what_is_shared_out_adds_up() {
        let mut weights = Split::default();
        weights.add(Phase::Decode, 300);
        weights.add(Phase::Encode, 100);
        let mut split = Split::default();
        split.share(1001, &weights, Phase::Open);
        assert_eq!((split.of(Phase::Decode), split.of(Phase::Encode), split.of(Phase::Open)), (750, 250, 1));
        split.share(9, &Split::default(), Phase::Load);
        assert_eq!((split.of(Phase::Load), split.total()), (9, 1010));
    }
}
