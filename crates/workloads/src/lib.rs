//! Workloads of Kelpie: TPC-H and Star Schema Benchmark data and queries, shapes and windows that these lack, reference answers, peers, the
//! benchmark and the experiments.

pub mod bench;
pub mod experiments;
mod folder;
pub mod output;
mod random;
pub mod shapes;
pub mod ssb;
pub mod tpch;
pub mod windows;

use std::str::FromStr;

use anyhow::Result;
pub use output::{GenerateOptions, Progress, WrittenTable};

/// A benchmark: its data and its queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// TPC-H: 8 tables, 22 queries.
    Tpch,
    /// The Star Schema Benchmark: 5 tables, 13 queries.
    Ssb,
    /// Groupings by keys of all kinds and numbers, and a star join with many dimensions ([`shapes`]).
    Shapes,
    /// Window functions over one table ([`windows`]).
    Windows,
}

impl Workload {
    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Tpch => "tpch",
            Workload::Ssb => "ssb",
            Workload::Shapes => "shapes",
            Workload::Windows => "windows",
        }
    }

    /// Names of its tables.
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Workload::Tpch => &tpch::TABLES,
            Workload::Ssb => &ssb::TABLES,
            Workload::Shapes => &shapes::TABLES,
            Workload::Windows => &windows::TABLES,
        }
    }

    /// Names and texts of its queries: `1` … `22`, `1.1` … `4.3`, what they group by, or what they compute.
    pub fn queries(self) -> Vec<(String, &'static str)> {
        match self {
            Workload::Tpch => {
                tpch::QUERIES.iter().enumerate().map(|(i, sql)| ((i + 1).to_string(), *sql)).collect()
            }
            Workload::Ssb => ssb::QUERIES.iter().map(|(name, sql)| ((*name).to_string(), *sql)).collect(),
            Workload::Shapes => {
                shapes::QUERIES.iter().map(|(name, sql)| ((*name).to_string(), *sql)).collect()
            }
            Workload::Windows => {
                windows::QUERIES.iter().map(|(name, sql)| ((*name).to_string(), *sql)).collect()
            }
        }
    }

    /// Writes its data as Parquet.
    pub fn generate(self, options: &GenerateOptions<'_>) -> Result<Vec<WrittenTable>> {
        match self {
            Workload::Tpch => tpch::generate(options),
            Workload::Ssb => ssb::generate(options),
            Workload::Shapes => shapes::generate(options),
            Workload::Windows => windows::generate(options),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "tpch" => Ok(Workload::Tpch),
            "ssb" => Ok(Workload::Ssb),
            "shapes" => Ok(Workload::Shapes),
            "windows" => Ok(Workload::Windows),
            _ => Err(format!("unknown workload `{name}`: tpch, ssb, shapes and windows are known")),
        }
    }
}
