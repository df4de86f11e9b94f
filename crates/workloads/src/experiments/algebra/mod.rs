//! The experiments of Diamos et al. (“Relational Algorithms for Multi-Bulk-Synchronous Processors”, 2012): the skeletons of sorted relational
//! algebra by themselves, over relations in the device's memory. Each is a figure or table of the paper, but the last.
//!
//! The scale factor 1 is relations of up to 64 million tuples, each of 32 bits: a key of 28 bits and two bits of value, so that what a join
//! gives has 32 bits too.

mod cases;
mod data;

use anyhow::{Context, Result};
use kelpie_session::algebra::{Algebra, Outcome, Relation, Tuples, Width};
use kelpie_session::{DeviceChoice, Engine, QueryOptions};

use self::cases::{Case, Made};
use self::data::Keys;
use super::figures::figures;

figures! {
    /// A figure or table of the paper.
    {
        Operators: "algebra-9", "Sorted algebra: operators by size", "Diamos et al., section 5, figure 9";
        Sections: "algebra-10", "Sorted algebra: sizes of sections",
            "Diamos et al., section 5.1, figures 10 to 12";
        Dropped: "algebra-13", "Sorted algebra: tuples that partitioning leaves out",
            "Diamos et al., section 5.1, figure 13";
        Partition: "algebra-14", "Sorted algebra: time of partitioning",
            "Diamos et al., section 5.1, figure 14";
        Skipped: "algebra-15", "Sorted algebra: tuples that blocks skip",
            "Diamos et al., section 5.1, figure 15";
        Streaming: "algebra-16", "Sorted algebra: the main kernel by distribution",
            "Diamos et al., section 5.1, figure 16";
        BlockJoins: "algebra-table-3", "Sorted algebra: joins within a block",
            "Diamos et al., section 5.2, table 3";
        Stages: "algebra-stages", "Sorted algebra: shares of a join's stages", "Diamos et al., section 5.1";
        Pages: "algebra-pages", "Sorted algebra: arrays to pages and back",
            "Diamos et al., sections 4.3 and 6.1";
    }
}

/// The positions of relations, and of pages, by how many tuples they have.
pub const RELATION_TUPLES: &str = "tuples of a relation";
pub const PAGE_TUPLES: &str = "tuples of a page";

/// Tuples of the largest relations at scale factor 1.
const MOST_TUPLES: f64 = (64 << 20) as f64;
/// Those of the smallest.
const LEAST_TUPLES: u32 = 8 << 10;
/// The tuples.
const TUPLES: Tuples = Tuples { width: Width::W32, key_bits: 28, value_bits: 2 };

impl Figure {
    /// What is measured.
    pub fn measured(self) -> &'static str {
        match self {
            Figure::Operators | Figure::Streaming | Figure::Pages => {
                "GB/s, each byte of input and output once"
            }
            Figure::Sections => "tuples of a section",
            Figure::Dropped | Figure::Skipped => "tuples, %",
            Figure::Partition => "kernel time, ms",
            Figure::BlockJoins => "time of the main kernel for a result, ps",
            Figure::Stages => "share of the time, %",
        }
    }

    /// What the positions of its points are.
    pub fn positions(self) -> &'static str {
        match self {
            Figure::Sections => "sections, %",
            Figure::BlockJoins => "block join",
            Figure::Stages => "stage",
            Figure::Pages => PAGE_TUPLES,
            _ => RELATION_TUPLES,
        }
    }
}

/// The device, and what lies on it.
struct Bench<'a> {
    algebra: Algebra,
    engine: &'a Engine,
    options: QueryOptions,
    settings: &'a Settings<'a>,
    /// Tuples of the largest relations.
    most: u32,
}

/// How it is measured.
pub struct Settings<'a> {
    /// `auto`, `cpu`, `cuda` or `simt`.
    pub device: &'a str,
    /// Workers of a CPU.
    pub threads: usize,
    /// Of the largest relations' size.
    pub scale: f64,
    /// Measured runs of each point.
    pub runs: usize,
    /// Positions that are wanted; all where empty.
    pub only: &'a [String],
    /// Hears of every step.
    pub step: &'a dyn Fn(&str),
}

impl Settings<'_> {
    /// Where it runs.
    pub fn options(&self) -> QueryOptions {
        let device = match self.device {
            "cpu" => DeviceChoice::Cpu,
            "cuda" => DeviceChoice::Cuda,
            "simt" => DeviceChoice::Simt,
            _ => DeviceChoice::Auto,
        };
        QueryOptions { device, threads: Some(self.threads), ..QueryOptions::default() }
    }
}

/// What is shown of a series at a position.
pub struct Shown {
    pub series: String,
    pub x: String,
    pub position: Option<f64>,
    pub figure: f64,
}

/// What was measured.
pub struct Measured {
    /// The device's name, and GB/s that it reads of its memory and over its link.
    pub device: (String, f64, f64),
    pub shown: Vec<Shown>,
}

/// Measures a figure.
pub fn measure(figure: Figure, settings: &Settings<'_>) -> Result<Measured> {
    let engine = Engine::new();
    let options = settings.options();
    let most = (MOST_TUPLES * settings.scale).clamp(f64::from(LEAST_TUPLES), MOST_TUPLES * 8.0) as u32;
    let algebra = Algebra::of(&engine, &options, None)?;
    let device = algebra.device_rates()?;
    let bench = Bench { algebra, engine: &engine, options, settings, most };
    Ok(Measured { device, shown: cases::run(figure, &bench)? })
}

impl Bench<'_> {
    /// The sizes of relations.
    fn sizes(&self) -> Vec<u32> {
        let sizes = std::iter::successors(Some(LEAST_TUPLES), |size| size.checked_mul(4));
        let mut sizes: Vec<u32> = sizes.take_while(|size| *size < self.most).collect();
        sizes.push(self.most);
        sizes
    }

    fn wants(&self, x: &str) -> bool {
        self.settings.only.is_empty() || self.settings.only.iter().any(|only| only == x)
    }

    /// Two relations.
    fn relations(&self, keys: Keys, count: u32) -> Result<Made> {
        let make = |number: u64| -> Result<Relation> {
            let keys = keys.make(count, 1 << TUPLES.key_bits, number);
            let tuple =
                |(index, key): (usize, u64)| u128::from(key) << TUPLES.value_bits | (index % 4) as u128;
            let mut tuples: Vec<u128> = keys.into_iter().enumerate().map(tuple).collect();
            tuples.sort_unstable();
            Ok(self.algebra.upload(TUPLES, &tuples)?)
        };
        Ok(Made { left: make(1)?, right: make(2)? })
    }

    /// A case several times, after one that warms up; each outcome.
    fn outcomes(&self, algebra: &Algebra, case: &Case, made: &Made) -> Result<Vec<Outcome>> {
        let run = || algebra.run(&case.description, &made.left, &made.right);
        run().with_context(|| case.name.clone())?;
        (0..self.settings.runs.max(1)).map(|_| Ok(run()?)).collect()
    }
}

/// The median of times in nanoseconds.
fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default().max(1) as f64
}

/// What is shown of a series at a position.
pub fn point(series: &str, x: &str, position: Option<f64>, figure: f64) -> Shown {
    Shown { series: series.into(), x: x.into(), position, figure }
}
