//! Workloads of Kelpie: TPC-H and Star Schema Benchmark data and queries, reference answers, peers, the benchmark and
//! the experiments.

pub mod bench;
pub mod experiments;
mod folder;
pub mod output;
pub mod ssb;
pub mod tpch;

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
}

impl Workload {
    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Tpch => "tpch",
            Workload::Ssb => "ssb",
        }
    }

    /// Names of its tables.
    pub fn tables(self) -> &'static [&'static str] {
        match self {
            Workload::Tpch => &tpch::TABLES,
            Workload::Ssb => &ssb::TABLES,
        }
    }

    /// Names and texts of its queries: `1` … `22`, or `1.1` … `4.3`.
    pub fn queries(self) -> Vec<(String, &'static str)> {
        match self {
            Workload::Tpch => {
                tpch::QUERIES.iter().enumerate().map(|(i, sql)| ((i + 1).to_string(), *sql)).collect()
            }
            Workload::Ssb => ssb::QUERIES.iter().map(|(name, sql)| ((*name).to_string(), *sql)).collect(),
        }
    }

    /// Writes its data as Parquet.
    pub fn generate(self, options: &GenerateOptions<'_>) -> Result<Vec<WrittenTable>> {
        match self {
            Workload::Tpch => tpch::generate(options),
            Workload::Ssb => ssb::generate(options),
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "tpch" => Ok(Workload::Tpch),
            "ssb" => Ok(Workload::Ssb),
            _ => Err(format!("unknown workload `{name}`: tpch and ssb are known")),
        }
    }
}
