//! The execution models of the HorseQC paper that a session may ask for.

/// `kelpie.micro_model`: how reductions are carried out inside a pipeline (HorseQC, Table 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MicroModel {
    /// One kernel an operator, materialised in between.
    OperatorAtATime,
    /// One pipeline, but reductions in kernels of their own (A1, B1, C1).
    MultiPass,
    /// One atomic a row (A2, B2, C2).
    Pipelined,
    /// Local resolution, global propagation (A3, B3, C3).
    #[default]
    Resolution,
}

impl MicroModel {
    /// Every model.
    pub const ALL: [MicroModel; 4] =
        [MicroModel::OperatorAtATime, MicroModel::MultiPass, MicroModel::Pipelined, MicroModel::Resolution];

    /// Whether places of rows are counted by a kernel before they are written by another (A1).
    pub fn counts_places(self) -> bool {
        matches!(self, MicroModel::OperatorAtATime | MicroModel::MultiPass)
    }

    /// As `kelpie.micro_model` names it.
    pub fn name(self) -> &'static str {
        match self {
            MicroModel::OperatorAtATime => "operator_at_a_time",
            MicroModel::MultiPass => "multi_pass",
            MicroModel::Pipelined => "pipelined",
            MicroModel::Resolution => "resolution",
        }
    }
}

/// `kelpie.resolution`: how a group of threads resolves positions and sums locally (HorseQC, appendix C).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Within a warp, without barriers.
    #[default]
    Simd,
    /// Within a block, by a tree in shared memory.
    WorkEfficient,
}

impl Resolution {
    /// Both.
    pub const ALL: [Resolution; 2] = [Resolution::Simd, Resolution::WorkEfficient];

    /// As `kelpie.resolution` names it.
    pub fn name(self) -> &'static str {
        match self {
            Resolution::Simd => "simd",
            Resolution::WorkEfficient => "work_efficient",
        }
    }
}
