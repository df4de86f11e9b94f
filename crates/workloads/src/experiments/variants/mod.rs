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

/// A figure or table of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// 2: selections by selectivity.
    SelectionMap,
    /// 3: how many selections are how much slower than the fastest.
    SelectionShares,
    /// 4: sums by unrolling, accumulators and vectors.
    SumMap,
    /// 5: one selection by threads of a block and elements of a thread.
    WorkMap,
    /// 6: how many sums are how much slower than the fastest.
    SumShares,
    /// 7: chunks by the size of the pool.
    Pools,
    /// 9 and 10: queries by the search between them, of selections.
    Search,
    /// The same of sums, of which fewer compete.
    SumSearch,
    /// Tables 1 and 2: the fastest selections.
    FastestSelections,
    /// Table 3: the fastest sums.
    FastestSums,
    /// Not in the paper: every variant's answer.
    All,
}

/// What is measured where a figure is a map: a line a row of it.
const RELATIVE: &str = "time, 1 is the fastest";
/// Positions on axes that double.
pub const POOL_SIZES: &str = "variants of the pool";

impl Figure {
    /// Every figure.
    pub const ALL: [Figure; 11] = [
        Figure::SelectionMap,
        Figure::SelectionShares,
        Figure::SumMap,
        Figure::WorkMap,
        Figure::SumShares,
        Figure::Pools,
        Figure::Search,
        Figure::SumSearch,
        Figure::FastestSelections,
        Figure::FastestSums,
        Figure::All,
    ];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Figure::SelectionMap => "variants-2",
            Figure::SelectionShares => "variants-3",
            Figure::SumMap => "variants-4",
            Figure::WorkMap => "variants-5",
            Figure::SumShares => "variants-6",
            Figure::Pools => "variants-7",
            Figure::Search => "variants-9",
            Figure::SumSearch => "variants-10",
            Figure::FastestSelections => "variants-table-1",
            Figure::FastestSums => "variants-table-3",
            Figure::All => "variants-all",
        }
    }

    /// What it shows.
    pub fn title(self) -> &'static str {
        match self {
            Figure::SelectionMap => "Selections: variants by selectivity",
            Figure::SelectionShares => "Selections: how many variants are how slow",
            Figure::SumMap => "Sums: variants by unrolling, accumulators and vectors",
            Figure::WorkMap => "Selections: threads of a block and elements of a thread",
            Figure::SumShares => "Sums: how many variants are how slow",
            Figure::Pools => "Selections: chunks by the size of the pool",
            Figure::Search => "Selections: search between queries",
            Figure::SumSearch => "Sums: search between queries",
            Figure::FastestSelections => "Selections: the fastest variants",
            Figure::FastestSums => "Sums: the fastest variants",
            Figure::All => "Every variant's answer",
        }
    }

    /// Where the paper has it.
    pub fn paper(self) -> &'static str {
        match self {
            Figure::SelectionMap => "Rosenfeld et al., section 2.1.3, figure 2",
            Figure::SelectionShares => "Rosenfeld et al., section 2.1.3, figure 3",
            Figure::SumMap => "Rosenfeld et al., section 2.2.3, figure 4",
            Figure::WorkMap => "Rosenfeld et al., section 2.1.3, figure 5",
            Figure::SumShares => "Rosenfeld et al., section 2.2.3, figure 6",
            Figure::Pools => "Rosenfeld et al., section 3.2, figure 7",
            Figure::Search => "Rosenfeld et al., section 3.5, figures 9 and 10",
            Figure::SumSearch => "none: section 3.5 for sums",
            Figure::FastestSelections => "Rosenfeld et al., section 2.1.3, tables 1 and 2",
            Figure::FastestSums => "Rosenfeld et al., section 2.2.3, table 3",
            Figure::All => "none",
        }
    }

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
