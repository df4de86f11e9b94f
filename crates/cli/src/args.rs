//! The command line.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgMatches, Args, Parser, Subcommand, ValueEnum};
use kelpie_session::{Engine, KelpieOptions, KelpieSession, OPTIONS, SessionOptions};
use kelpie_workloads::Workload;
use kelpie_workloads::bench::{Once, PeerKind, Subject};
use kelpie_workloads::experiments::Experiment;

/// SQL over Parquet, CSV and Arrow files, compiled for the GPU or CPU at hand.
///
/// Without a command: runs the statements of -c and -f in the order given, or opens a shell.
#[derive(Debug, Parser)]
#[command(name = "kelpie", version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub query: QueryArguments,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the data of a benchmark as Parquet.
    Generate(GenerateArguments),
    /// Show how a query is compiled.
    Explain(ExplainArguments),
    /// List the axes of variants; with -c, those that a query chooses on, why, and what else is possible.
    Variants(VariantArguments),
    /// List the devices, or why they cannot be used; with --calibrate, measure them.
    Devices(DeviceArguments),
    /// Show what the tuner has learned, and why a query runs as it does.
    Tuner(TunerArguments),
    /// Show the compiled kernels that are kept on disk, or fill that cache before queries need it.
    Kernels(KernelArguments),
    /// Run a few queries on generated data, beside DataFusion's own operators.
    Demo(DemoArguments),
    /// Time the queries of a benchmark.
    Bench(BenchArguments),
    /// Repeat an experiment of a paper: times, bytes and a plot.
    Experiment(ExperimentArguments),
}

/// What every session takes.
#[derive(Debug, Args)]
pub struct SessionArguments {
    /// A table from a Parquet, CSV, JSON or Arrow file; or one from each file and folder of a folder, or from what matches a
    /// pattern. May be repeated.
    #[arg(long, value_name = "DIR|FILE")]
    pub data: Vec<PathBuf>,
    #[command(flatten)]
    pub settings: SettingArguments,
}

/// What `--help` says of options.
fn help_of_options() -> String {
    let mut help =
        String::from("Set an option, as `SET key = value` does. May be repeated. Options of a session:\n");
    let defaults = KelpieOptions::default();
    for option in OPTIONS {
        let (name, values, about) = (option.name, option.values, option.about);
        help += &format!("\n  kelpie.{name} = {}: {about} ({values})", option.value(&defaults));
    }
    help + "\n  kelpie.variant.<axis> = rule: forces a choice; `kelpie variants` lists the axes"
}

/// Settings of a session.
#[derive(Debug, Args)]
pub struct SettingArguments {
    /// Where compiled queries run: auto, cpu, cuda or simt.
    #[arg(long, value_enum, value_name = "D")]
    pub device: Option<DeviceName>,
    /// Set an option, as `SET key = value` does. May be repeated.
    #[arg(long, value_name = "key=value", value_parser = parse_setting, long_help = help_of_options())]
    pub set: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DeviceName {
    Auto,
    Cpu,
    Cuda,
    Simt,
}

#[derive(Debug, Args)]
pub struct TunerArguments {
    #[command(subcommand)]
    pub command: TunerCommand,
}

#[derive(Debug, Subcommand)]
pub enum TunerCommand {
    /// What was tried and chosen, stage by stage.
    Show,
    /// The choices of a query, each with its reason: a rule, what was learned, or that it is forced.
    Why {
        #[command(flatten)]
        session: SessionArguments,
        /// The query, or several.
        #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
        sql: String,
    },
    /// Write what was learned to a file, for another machine with the same device and the same build.
    Export {
        /// The file.
        file: PathBuf,
    },
    /// Take what another machine has learned, of stages of which less is known here.
    Import {
        /// The file.
        file: PathBuf,
    },
    /// Forget what was learned.
    Reset,
}

#[derive(Debug, Args)]
pub struct KernelArguments {
    #[command(subcommand)]
    pub command: KernelCommand,
}

#[derive(Debug, Subcommand)]
pub enum KernelCommand {
    /// How many kernels are kept, and where.
    Show,
    /// Run every query of a file or of a folder's .sql files once, and keep its kernels' best code.
    Prepare {
        #[command(flatten)]
        session: SessionArguments,
        /// The file or folder.
        #[arg(long, value_name = "FILE|DIR")]
        queries: PathBuf,
    },
}

#[derive(Debug, Args)]
pub struct QueryArguments {
    #[command(flatten)]
    pub session: SessionArguments,
    /// Run these statements, separated by `;`. May be repeated.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
    pub sql: Vec<String>,
    /// Run the statements of a file. May be repeated.
    #[arg(short = 'f', value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// How results are written. Where absent: as the name of --output says, else as a table.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Write results to a file instead of the standard output: .parquet, .arrow, .csv and .json say how, and .csv.gz and .json.gz
    /// are compressed. An old file stays until the new one is whole.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Rows of a table that are shown, the others are counted; 0 is all. Where absent: 40 on a terminal, else all.
    #[arg(long, value_name = "N")]
    pub maxrows: Option<usize>,
    /// Show on stderr how long each statement took.
    #[arg(long)]
    pub timing: bool,
}

/// A form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// Comma-separated with a header; NULL is empty, empty text is `""`, and so is a NULL that would be a blank line.
    Csv,
    /// One JSON object a row and line; NaN and infinities are texts.
    Json,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file.
    Arrow,
}

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
pub struct ExplainArguments {
    #[command(flatten)]
    pub session: SessionArguments,
    /// What to show.
    #[arg(long, value_enum, default_value_t = StageName::Plan)]
    pub stage: StageName,
    /// The query.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
    pub sql: String,
}

/// A stage of compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StageName {
    /// The physical plan: what is compiled, what is not, and why.
    Plan,
    /// The variants: what is chosen and why, and what else is possible.
    Variants,
    /// The pipelines.
    Pipelines,
    /// Their kernel IR.
    Kir,
    /// The code of the device: CUDA C or CLIF.
    Code,
}

#[derive(Debug, Args)]
pub struct VariantArguments {
    #[command(flatten)]
    pub session: SessionArguments,
    /// The query.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
    pub sql: Option<String>,
}

#[derive(Debug, Args)]
pub struct DeviceArguments {
    /// Measure caches, memory and atomics, and keep the findings in the cache folder, where later runs of this program find them.
    #[arg(long)]
    pub calibrate: bool,
    /// Only this device: cpu, cuda, simt; or auto, the one that queries take.
    #[arg(long, value_enum, value_name = "D")]
    pub device: Option<DeviceName>,
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

impl SettingArguments {
    /// The settings, `--device` first.
    pub fn settings(&self) -> Vec<(String, String)> {
        let device = self.device.and_then(|device| device.to_possible_value());
        let device = device.map(|value| ("kelpie.device".to_string(), value.get_name().to_string()));
        device.into_iter().chain(self.set.iter().cloned()).collect()
    }

    /// A session with these settings.
    pub fn session(&self) -> anyhow::Result<KelpieSession> {
        // What was measured of this machine is for its users; libraries decide everywhere alike.
        let engine = Some(Arc::new(Engine::calibrated()));
        Ok(KelpieSession::new(SessionOptions { engine, settings: self.settings() })?)
    }
}

impl SessionArguments {
    /// A session with these settings and tables.
    pub async fn open(&self) -> anyhow::Result<KelpieSession> {
        let session = self.settings.session()?;
        for path in &self.data {
            for problem in session.register_data(path).await?.problems {
                crate::complain(&format!("warning: {problem}"));
            }
        }
        Ok(session)
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

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().into(), value.trim().into())),
        _ => Err(format!("`{text}` is not of the form key=value")),
    }
}

/// Statements to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// `-c`.
    Sql(String),
    /// `-f`.
    File(PathBuf),
}

/// What `-c` and `-f` gave, in the order of the command line.
pub fn scripts(matches: &ArgMatches) -> Vec<Script> {
    fn indexed<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<(usize, T)> {
        let values = matches.get_many::<T>(name).into_iter().flatten().cloned();
        matches.indices_of(name).into_iter().flatten().zip(values).collect()
    }
    let sql = indexed::<String>(matches, "sql").into_iter().map(|(i, sql)| (i, Script::Sql(sql)));
    let files = indexed::<PathBuf>(matches, "file").into_iter().map(|(i, path)| (i, Script::File(path)));
    let mut scripts: Vec<(usize, Script)> = sql.chain(files).collect();
    scripts.sort_by_key(|(index, _)| *index);
    scripts.into_iter().map(|(_, script)| script).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn scripts_keep_their_order() {
        let line = ["kelpie", "-c", "a", "-f", "x.sql", "--timing", "-c", "b"];
        let matches = Arguments::command().try_get_matches_from(line).unwrap();
        let expected = [Script::Sql("a".into()), Script::File("x.sql".into()), Script::Sql("b".into())];
        assert_eq!(scripts(&matches), expected);
    }

    #[test]
    fn settings_are_keys_and_values() {
        assert_eq!(parse_setting("kelpie.threads = 2"), Ok(("kelpie.threads".into(), "2".into())));
        assert_eq!(parse_setting("a=b=c"), Ok(("a".into(), "b=c".into())));
        for bad in ["", "a", "=b"] {
            assert!(parse_setting(bad).is_err());
        }
    }
}
