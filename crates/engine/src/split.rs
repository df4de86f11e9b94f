//! Where the time of a query goes, so that the parts add up to the whole.
//!
//! What is split is *wall time*: each nanosecond between the beginning and the end of a query is charged to one phase, the one
//! that the query waits for. Where several threads work at once (readers, compilers of kernels), the wall time of all of them is
//! shared out in proportion to what each phase took in its thread. What runs beside something else that is waited for costs
//! nothing here: kernels that are compiled while columns are read are charged to reading.

use std::ops::AddAssign;

/// What several phases belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// From text to physical plan.
    Plan,
    /// From physical plan to kernels.
    Compile,
    /// From files or batches to columns on the device.
    Read,
    /// What the engine does itself, between kernels.
    Host,
    /// Kernels.
    Kernels,
    /// From the device to rows.
    Result,
    /// What is not Kelpie's.
    Around,
}

impl Group {
    /// All, in the order in which a query mostly goes through them.
    pub const ALL: [Group; 7] =
        [Group::Plan, Group::Compile, Group::Read, Group::Host, Group::Kernels, Group::Result, Group::Around];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Group::Plan => "plan",
            Group::Compile => "compile",
            Group::Read => "read",
            Group::Host => "host",
            Group::Kernels => "kernels",
            Group::Result => "result",
            Group::Around => "around",
        }
    }

    /// Its phases.
    pub fn phases(self) -> impl Iterator<Item = Phase> {
        Phase::ALL.into_iter().filter(move |phase| phase.group() == self)
    }
}

/// What a query's time goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Looking for a plan that is kept, and copying it.
    Find,
    /// Text to syntax tree.
    Parse,
    /// Syntax tree to optimized logical plan.
    Logical,
    /// Files of tables, and what is known of their columns.
    Statistics,
    /// The order of joins.
    JoinOrder,
    /// DataFusion's physical plan.
    Physical,
    /// What of it compiles.
    Rule,
    /// Plan to kernel IR.
    Generate,
    /// Kernel IR to CUDA C.
    Print,
    /// NVRTC, or Cranelift.
    Build,
    /// Loading kernels, from the disk too.
    Load,
    /// Until the first rows of a table come; also looking for columns that are there, and waiting for another query's.
    Open,
    /// Files to batches.
    Decode,
    /// Batches to columns as kernels read them.
    Encode,
    /// Columns to their places on the device.
    Upload,
    /// What the engine does between kernels: memory, arguments, counts, launches; handing rows from thread to thread.
    Host,
    /// Kernels.
    Kernels,
    /// The result to the host, and its order and limit there.
    Result,
    /// DataFusion's operators around what is compiled.
    Operators,
    /// Whoever takes the rows.
    Taking,
}

const PHASES: usize = 20;

impl Phase {
    /// All, in the order of their groups.
    pub const ALL: [Phase; PHASES] = [
        Phase::Find,
        Phase::Parse,
        Phase::Logical,
        Phase::Statistics,
        Phase::JoinOrder,
        Phase::Physical,
        Phase::Rule,
        Phase::Generate,
        Phase::Print,
        Phase::Build,
        Phase::Load,
        Phase::Open,
        Phase::Decode,
        Phase::Encode,
        Phase::Upload,
        Phase::Host,
        Phase::Kernels,
        Phase::Result,
        Phase::Operators,
        Phase::Taking,
    ];

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
            Phase::Open | Phase::Decode | Phase::Encode | Phase::Upload => Group::Read,
            Phase::Host => Group::Host,
            Phase::Kernels => Group::Kernels,
            Phase::Result => Group::Result,
            Phase::Operators | Phase::Taking => Group::Around,
        }
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Find => "find",
            Phase::Parse => "parse",
            Phase::Logical => "logical",
            Phase::Statistics => "statistics",
            Phase::JoinOrder => "join_order",
            Phase::Physical => "physical",
            Phase::Rule => "rule",
            Phase::Generate => "generate",
            Phase::Print => "print",
            Phase::Build => "build",
            Phase::Load => "load",
            Phase::Open => "open",
            Phase::Decode => "decode",
            Phase::Encode => "encode",
            Phase::Upload => "upload",
            Phase::Host => "host",
            Phase::Kernels => "kernels",
            Phase::Result => "result",
            Phase::Operators => "operators",
            Phase::Taking => "taking",
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
