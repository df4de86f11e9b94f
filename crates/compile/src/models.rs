//! The execution models of the HorseQC paper that a session may ask for.

use kelpie_kir::named;

named! {
    /// `kelpie.micro_model`: how reductions are carried out inside a pipeline (HorseQC, Table 4).
    #[derive(Default)]
    pub enum MicroModel {
        /// One kernel an operator, materialised in between.
        OperatorAtATime = "operator_at_a_time",
        /// One pipeline, but reductions in kernels of their own (A1, B1, C1).
        MultiPass = "multi_pass",
        /// One atomic a row (A2, B2, C2).
        Pipelined = "pipelined",
        /// Local resolution, global propagation (A3, B3, C3).
        #[default]
        Resolution = "resolution",
    }
}

impl MicroModel {
    /// Whether places of rows are counted by a kernel before they are written by another (A1).
    pub fn counts_places(self) -> bool {
        matches!(self, MicroModel::OperatorAtATime | MicroModel::MultiPass)
    }
}

named! {
    /// `kelpie.resolution`: how a group of threads resolves positions and sums locally (HorseQC, appendix C).
    #[derive(Default)]
    pub enum Resolution {
        /// Within a warp, without barriers.
        #[default]
        Simd = "simd",
        /// Within a block, by a tree in shared memory.
        WorkEfficient = "work_efficient",
    }
}
