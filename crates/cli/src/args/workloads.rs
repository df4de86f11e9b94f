//! The command line of benchmarks and experiments.

use std::path::PathBuf;

use clap::Args;
use kelpie_workloads::Workload;
use kelpie_workloads::bench::{Once, PeerKind, Subject};
use kelpie_workloads::experiments::Experiment;

use super::SettingArguments;

#[derive(Debug, Args)]
pub struct GenerateArguments {
    /// tpch, ssb or shapes.
    #[arg(value_parser = parse::<Workload>)]
    pub workload: Workload,
    /// Scale factor: 1 is about 1 GB of text.
    #[arg(long, allow_negative_numbers = true)]
    pub scale: f64,
    /// The folder to write to.
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Only these tables.
    #[arg(long, value_name = "TABLE", value_delimiter = ',')]
    pub tables: Vec<String>,
    /// Threads; one a core where absent.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Replace tables that are there already.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct DemoArguments {
    #[command(flatten)]
    pub settings: SettingArguments,
    /// Scale factor of the TPC-H data.
    #[arg(long, default_value_t = 0.1)]
    pub scale: f64,
    /// Folder for the data; the user's cache folder where absent.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct BenchArguments {
    /// tpch, ssb; shapes: groupings by keys of all kinds and numbers, and star joins; fallback: statements over TPC-H's tables that
    /// do not compile as a whole, beside plain DataFusion; derived: group-bys on expressions that DataFusion evaluates, first and
    /// hot; or crowd: TPC-H's queries by many clients at once.
    #[arg(value_parser = parse::<Subject>)]
    pub subject: Subject,
    /// The folder that `generate` wrote; for `derived` one that its table is made in, if it is not there yet.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Only these queries: `1,6` or `1.1,4.3`.
    #[arg(long, value_delimiter = ',')]
    pub queries: Vec<String>,
    #[command(flatten)]
    pub settings: SettingArguments,
    /// Measured runs of each query, after one that warms up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    /// Engines to run in turn with Kelpie: duckdb, datafusion.
    #[arg(long, value_delimiter = ',', value_parser = parse::<PeerKind>)]
    pub against: Vec<PeerKind>,
    /// Forget cached columns before each run; the peers then read the files too.
    #[arg(long)]
    pub cold: bool,
    /// Threads of every engine; one a core where absent.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Rows of the table of `derived`.
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub rows: u64,
    /// Numbers of clients of `crowd`.
    #[arg(long, value_delimiter = ',', default_value = "1,8,48")]
    pub clients: Vec<usize>,
    /// Seconds for each number of clients of `crowd`.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// What a process that `derived` starts runs once.
    #[arg(long, hide = true, value_parser = parse::<Once>)]
    pub once: Option<Once>,
    /// Write the findings to a file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ExperimentArguments {
    /// horseqc-1 to horseqc-6, single-aggregate, table-1, table-3; groupby-4 and others that begin so, or groupby for all of these;
    /// dogqc-8 to dogqc-15 and dogqc-text, or dogqc for all of these; algebra-9 and others that begin so, or algebra;
    /// variants-2 and others that begin so, or variants; several as `dogqc-8,dogqc-13`.
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: ExperimentNames,
    /// Folder of the data, in folders such as `ssb-sf1`, which are made where they are missing; the user's cache folder where
    /// absent.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Scale factor of the data; several, such as `1,2,4`, for horseqc-5; 1 is 335 million rows for groupby, 10 million for
    /// dogqc-8 and dogqc-13, 4 million for dogqc-text, 64 million at most for algebra, and 32 million for variants.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = parse_scale, allow_negative_numbers = true)]
    pub scale: Vec<f64>,
    /// Only these queries or positions: `1.1,4.3`, `16,64`.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    #[command(flatten)]
    pub settings: SettingArguments,
    /// Measured runs of each point, after one that warms up.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub runs: u16,
    /// Seconds after which a run is given up.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub time_limit: u32,
    /// Engines beside Kelpie in horseqc-6 and dogqc-15: duckdb, datafusion.
    #[arg(long, value_delimiter = ',', default_value = "duckdb,datafusion", value_parser = parse::<PeerKind>)]
    pub against: Vec<PeerKind>,
    /// Threads of every engine; one a core where absent.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Folder for the findings: `<experiment>.json` and `<experiment>.svg`, and `<experiment>-lanes.svg` where lanes are counted.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub output: PathBuf,
}

/// The experiments that a name stands for.
#[derive(Debug, Clone)]
pub struct ExperimentNames(pub Vec<Experiment>);

impl std::str::FromStr for ExperimentNames {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = name.split(',').map(Experiment::named).collect::<Result<Vec<_>, _>>()?;
        Ok(ExperimentNames(named.concat()))
    }
}

/// Threads to use: the user's number, or one a core.
pub fn thread_count(chosen: Option<usize>) -> usize {
    chosen.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

fn parse<T: std::str::FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse()
}

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if f64::is_finite(scale) && scale > 0.0 { Ok(scale) } else { Err(format!("`{text}` is not above 0")) }
}
