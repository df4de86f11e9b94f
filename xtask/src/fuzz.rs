//! Generated queries compared with DataFusion.

use std::process::{Command, ExitCode};

use clap::{Args, ValueEnum};

/// Who makes the queries.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Generator {
    /// One table with a column of every type.
    Single,
    /// The same table, with window functions.
    Windows,
    /// Random tables: joins, subqueries, set operations.
    Relational,
    /// Extremes in every column, and expressions that fail as keys of everything.
    Adversarial,
    /// Small tables, and SQL's answers by an evaluator of their own.
    Reference,
}

/// The arguments of `fuzz`.
#[derive(Debug, Args)]
pub struct Request {
    /// How many.
    #[arg(long, default_value_t = 1000)]
    queries: u64,
    /// The first seed; every 25 queries (200 of a single table) take the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Who makes the queries.
    #[arg(long, value_enum, default_value_t = Generator::Relational)]
    generator: Generator,
    /// Kelpie's device: cpu, cuda, or simt (whose tables have few rows).
    #[arg(long)]
    device: Option<String>,
    /// Partitions of Kelpie's session; DataFusion's own has one.
    #[arg(long)]
    partitions: Option<usize>,
    /// Other session options, such as kelpie.micro_model=pipelined.
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    settings: Vec<String>,
    /// Run each query under so many random genomes besides: every variant that its pipelines leave open may be forced.
    #[arg(long, default_value_t = 0)]
    variants: usize,
    /// Build for speed: worth it for many thousands.
    #[arg(long)]
    release: bool,
}

impl Request {
    /// The generator's name for the example.
    fn generator(&self) -> &'static str {
        let small = self.device.as_deref() == Some("simt");
        match (self.generator, small) {
            (Generator::Single, _) => "single",
            (Generator::Windows, _) => "windows",
            (Generator::Relational, false) => "relational",
            (Generator::Relational, true) => "relational-small",
            (Generator::Adversarial, false) => "adversarial",
            (Generator::Adversarial, true) => "adversarial-small",
            (Generator::Reference, _) => "reference",
        }
    }

    fn settings(&self) -> Vec<String> {
        let device = self.device.iter().map(|device| format!("kelpie.device={device}"));
        let partitions = self.partitions.iter();
        let partitions = partitions.map(|n| format!("datafusion.execution.target_partitions={n}"));
        device.chain(partitions).chain(self.settings.iter().cloned()).collect()
    }
}

/// Runs the example of `kelpie-session`: without a dependency on it, the other commands build in seconds.
pub fn fuzz(request: &Request) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--example", "fuzz"])
        .args(request.release.then_some("--release"))
        .args(["--", request.generator(), &request.queries.to_string(), &request.seed.to_string()])
        .arg(format!("--variants={}", request.variants))
        .args(request.settings())
        .status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: cargo cannot be run: {error}");
            ExitCode::from(1)
        }
    }
}
