//! The experiments of Rosenfeld et al. (“The Operator Variant Selection Problem on Heterogeneous Hardware”, ADMS 2015): two small operators
//! as thousands of kernels, and how the fastest is found while it is used.
//!
//! The scale factor 1 is a column of 32 million integers, as in the paper; chunks have 16 MB, and a query 1,024 of them. Each variant's first answer is compared with that of a
//! plain loop.

mod bench;
mod check;
mod maps;
mod queries;
mod replay;
mod universe;

use anyhow::Result;
use kelpie_session::Engine;

use self::bench::Bench;
use super::algebra::{Measured, Settings, Shown};
use super::figures::figures;

figures! {
    /// A figure or table of the paper.
    {
        SelectionMap: "variants-2", "Selections: variants by selectivity",
            "Rosenfeld et al., section 2.1.3, figure 2";
        SelectionShares: "variants-3", "Selections: how many variants are how slow",
            "Rosenfeld et al., section 2.1.3, figure 3";
        SumMap: "variants-4", "Sums: variants by unrolling, accumulators and vectors",
            "Rosenfeld et al., section 2.2.3, figure 4";
        WorkMap: "variants-5", "Selections: threads of a block and elements of a thread",
            "Rosenfeld et al., section 2.1.3, figure 5";
        SumShares: "variants-6", "Sums: how many variants are how slow",
            "Rosenfeld et al., section 2.2.3, figure 6";
        Pools: "variants-7", "Selections: chunks by the size of the pool",
            "Rosenfeld et al., section 3.2, figure 7";
        Search: "variants-9", "Selections: search between queries",
            "Rosenfeld et al., section 3.5, figures 9 and 10";
        SumSearch: "variants-10", "Sums: search between queries", "none: section 3.5 for sums";
        FastestSelections: "variants-table-1", "Selections: the fastest variants",
            "Rosenfeld et al., section 2.1.3, tables 1 and 2";
        FastestSums: "variants-table-3", "Sums: the fastest variants",
            "Rosenfeld et al., section 2.2.3, table 3";
        All: "variants-all", "Every variant's answer", "none";
    }
}

/// What is measured where a figure is a map: a line a row of it.
const RELATIVE: &str = "time, 1 is the fastest";
/// Positions on axes that double.
pub const POOL_SIZES: &str = "variants of the pool";

impl Figure {
    /// What is measured.
    pub fn measured(self) -> &'static str {
        match self {
            Figure::SelectionMap | Figure::SumMap | Figure::WorkMap => RELATIVE,
            Figure::SelectionShares | Figure::SumShares => "variants, %",
            Figure::Pools | Figure::Search | Figure::SumSearch => {
                "time of a chunk, 1 is that of the fastest variant"
            }
            Figure::FastestSelections | Figure::FastestSums => "kernel time, ms",
            Figure::All => "variants",
        }
    }

    /// What the positions of its points are.
    pub fn positions(self) -> &'static str {
        match self {
            Figure::SelectionMap => "selectivity",
            Figure::SelectionShares | Figure::SumShares => "time, 1 is the fastest",
            Figure::SumMap => "elements of a vector",
            Figure::WorkMap => "threads of a block",
            Figure::Pools => POOL_SIZES,
            Figure::Search | Figure::SumSearch => "query",
            Figure::FastestSelections | Figure::FastestSums => "variant",
            Figure::All => "operator",
        }
    }

    /// Whether its plot is a map, of which each series is a row.
    pub fn is_map(self) -> bool {
        matches!(self, Figure::SelectionMap | Figure::SumMap | Figure::WorkMap)
    }
}

/// What is measured once for several figures: a device with a column, and what its variants take.
pub struct Kept(Bench);

/// Measures a figure; what others need too stays in `kept`.
pub fn measure(figure: Figure, settings: &Settings<'_>, kept: &mut Option<Kept>) -> Result<Measured> {
    let Kept(bench) = match kept {
        Some(kept) => kept,
        None => kept.insert(Kept(open(settings)?)),
    };
    let shown: Vec<Shown> = match figure {
        Figure::SelectionMap => maps::selections(bench, settings),
        Figure::SelectionShares => maps::selection_shares(bench, settings),
        Figure::SumMap => maps::sums(bench, settings),
        Figure::WorkMap => maps::work(bench, settings),
        Figure::SumShares => maps::sum_shares(bench, settings),
        Figure::FastestSelections => maps::fastest_selections(bench, settings),
        Figure::FastestSums => maps::fastest_sums(bench, settings),
        Figure::Pools => queries::pools(bench, settings),
        Figure::Search => queries::search(bench, settings, true),
        Figure::SumSearch => queries::search(bench, settings, false),
        Figure::All => check::all(bench, settings),
    }?;
    Ok(Measured { device: bench.device.clone(), shown })
}

fn open(settings: &Settings<'_>) -> Result<Bench> {
    Bench::new(&Engine::new(), &settings.options(), settings)
}
