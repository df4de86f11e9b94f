//! Which generator's queries run, here or side by side.

use std::ops::Range;
use std::sync::Arc;

use datafusion::error::Result;
use kelpie_engine::Engine;

use super::adversarial::fuzz_adversarial;
use super::check::{Settings, side_by_side};
use super::reference::fuzz_reference;
use super::relational::fuzz_relational;
use super::{Conditions, FuzzReport, Observer, QueryGenerator, Seeded, fuzz_single};

/// How many rows the tables of generated queries have, and how many a query may see on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Hundreds, and thousands here and there.
    Normal,
    /// Up to 60: for the interpreter.
    Small,
}

/// Who makes queries.
#[derive(Debug, Clone, Copy)]
pub enum Generator {
    /// Over one table with a column of every type: its expressions are the richest.
    Single,
    /// Over the same table, with window functions.
    Windows,
    /// With joins, subqueries and set operations over random tables.
    Relational(Scale),
    /// With extremes, expressions that fail, and expressions as keys of everything.
    Adversarial(Scale),
    /// With SQL's answers, by an evaluator of their own, over small tables.
    Reference,
}

impl Generator {
    /// By its name on a command line.
    pub fn of_name(name: &str) -> Option<Generator> {
        Some(match name {
            "single" => Generator::Single,
            "windows" => Generator::Windows,
            "relational" => Generator::Relational(Scale::Normal),
            "relational-small" => Generator::Relational(Scale::Small),
            "adversarial" => Generator::Adversarial(Scale::Normal),
            "adversarial-small" => Generator::Adversarial(Scale::Small),
            "reference" => Generator::Reference,
            _ => return None,
        })
    }

    /// How many queries share the tables of a seed.
    pub fn queries_a_seed(self) -> usize {
        match self {
            Generator::Single | Generator::Windows => 200,
            _ => super::QUERIES_A_SEED,
        }
    }

    /// Runs queries of a seed on both: those of the given numbers.
    pub async fn run(
        self,
        seed: u64,
        numbers: Range<usize>,
        conditions: Conditions<'_>,
        engine: &Arc<Engine>,
        observer: &Observer<'_>,
    ) -> Result<FuzzReport> {
        let queries = Seeded { seed, numbers };
        match self {
            Generator::Single => {
                fuzz_single(QueryGenerator::query, queries, conditions, engine, observer).await
            }
            Generator::Windows => {
                fuzz_single(QueryGenerator::window_query, queries, conditions, engine, observer).await
            }
            Generator::Relational(scale) => {
                fuzz_relational(queries, scale, conditions, engine, observer).await
            }
            Generator::Adversarial(scale) => {
                fuzz_adversarial(queries, scale, conditions, engine, observer).await
            }
            Generator::Reference => fuzz_reference(queries, conditions, engine, observer).await,
        }
    }
}

/// Queries of a seed, and how they run.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Who makes them.
    pub generator: Generator,
    /// What they and their tables follow from.
    pub seed: u64,
    /// Which of the seed's.
    pub numbers: Range<usize>,
    /// Options of Kelpie's session.
    pub settings: Settings,
    /// Random genomes under which each query runs besides.
    pub genomes: usize,
}

/// Runs pieces on all cores; what they find is added up in their order.
pub async fn fuzz(pieces: Vec<Piece>) -> Result<FuzzReport> {
    let engine = Arc::new(Engine::default());
    let run = |piece: Piece| {
        let engine = Arc::clone(&engine);
        async move {
            let conditions = Conditions { settings: &piece.settings, genomes: piece.genomes };
            piece.generator.run(piece.seed, piece.numbers, conditions, &engine, &|_, _, _| {}).await
        }
    };
    let mut report = FuzzReport::default();
    for found in side_by_side(pieces.into_iter().map(run)).await {
        report.merge(found?);
    }
    Ok(report)
}
