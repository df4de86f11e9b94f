//! The command line.

mod cluster;
mod input;
mod server;
#[cfg(feature = "workloads")]
mod workloads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use kelpie_session::{Database, Engine, KelpieOptions, KelpieSession, OPTIONS, SessionOptions};

#[cfg(not(feature = "distributed"))]
pub use cluster::MISSING as NO_WORKERS;
pub use cluster::{ClusterArguments, WorkerArguments, WorkersArguments};
#[cfg(feature = "distributed")]
pub use cluster::{bytes, text};
pub use server::ServeArguments;
#[cfg(feature = "workloads")]
pub use workloads::{BenchArguments, DemoArguments, ExperimentArguments, GenerateArguments, thread_count};

/// SQL over Parquet, CSV and Arrow files, compiled for the GPU or CPU at hand.
///
/// Without a command: runs the statements of -c, -f and the arguments in the order given, or opens a shell.
#[derive(Debug, Parser)]
#[command(name = "kelpie", disable_version_flag = true, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// Show the version, the build and the devices.
    #[arg(short = 'V', long)]
    pub version: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub query: QueryArguments,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write the data of a benchmark as Parquet.
    #[cfg(feature = "workloads")]
    Generate(GenerateArguments),
    /// Show how a query is compiled.
    Explain(ExplainArguments),
    /// Write the plan of a query as a file of Substrait, for other engines, or for --plan.
    Plan(PlanArguments),
    /// List the axes of variants; with -c, those that a query chooses on, why, and what else is possible.
    Variants(VariantArguments),
    /// List the devices, or why they cannot be used; with --calibrate, measure them.
    Devices(DeviceArguments),
    /// Show what the tuner has learned, and why a query runs as it does.
    Tuner(TunerArguments),
    /// Show the compiled kernels that are kept on disk, or fill that cache before queries need it.
    Kernels(KernelArguments),
    /// Run a few queries on generated data, beside DataFusion's own operators.
    #[cfg(feature = "workloads")]
    Demo(DemoArguments),
    /// Answer clients of Arrow Flight SQL, such as ADBC and JDBC.
    Serve(ServeArguments),
    /// Run parts of the queries of other processes, which name this one with --workers.
    Worker(WorkerArguments),
    /// Ask workers how they are.
    Workers(WorkersArguments),
    /// Time the queries of a benchmark.
    #[cfg(feature = "workloads")]
    Bench(BenchArguments),
    /// Repeat an experiment of a paper: times, bytes and a plot.
    #[cfg(feature = "workloads")]
    Experiment(ExperimentArguments),
    /// Write what completes commands and options for a shell such as bash, to the standard output.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual as man pages.
    Man {
        /// The folder, for a page a command; where absent, one page goes to the standard output.
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

/// What every session takes.
#[derive(Debug, Args)]
pub struct SessionArguments {
    /// A table from a Parquet, CSV, JSON or Arrow file; or one from each file and folder of a folder, or from what matches a
    /// pattern. May be repeated.
    #[arg(long, value_name = "DIR|FILE")]
    pub data: Vec<PathBuf>,
    /// A folder whose tables, views and settings outlast the program: what CREATE TABLE, CREATE VIEW, INSERT, DROP and SET PERSIST make
    /// is kept there. It is made where there is none.
    #[arg(long, value_name = "DIR")]
    pub database: Option<PathBuf>,
    /// Write when everything happened (planning, compiling, reading, copies, kernels) to a file of trace events, which
    /// <https://ui.perfetto.dev> and chrome://tracing open.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub cluster: Box<ClusterArguments>,
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
    /// A file, folder or pattern that becomes a table as with --data; a file of statements (.sql) as with -f; or a statement, in
    /// quotes, as with -c.
    #[arg(value_name = "FILE|SQL")]
    pub inputs: Vec<PathBuf>,
    /// Run these statements, separated by `;`. May be repeated.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
    pub sql: Vec<String>,
    /// Run the statements of a file. May be repeated.
    #[arg(short = 'f', value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Run a plan of Substrait, as Protobuf or JSON. Its tables are those of --data, or files by their paths. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub plan: Vec<PathBuf>,
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
    /// Places that a table may be wide, for which long texts are cut and columns left out; 0 is any. Where absent: a terminal's
    /// width, else any.
    #[arg(long, value_name = "N")]
    pub maxwidth: Option<usize>,
    /// Run the statements and commands of this file first, in place of those of the start-up file.
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Do not read the start-up file of the shell: kelpie/init.sql in the folder of your configuration.
    #[arg(long)]
    pub no_init: bool,
    /// The first error ends the statements of the standard input too.
    #[arg(long)]
    pub bail: bool,
    /// Show on stderr how long each statement took.
    #[arg(long)]
    pub timing: bool,
}

/// A form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people. On a terminal as wide as that, with the types of columns; elsewhere as a whole.
    #[value(aliases = ["box", "duckbox", "column", "ascii"])]
    Table,
    /// A line a value, for rows of many columns.
    #[value(alias = "vertical")]
    Line,
    /// Comma-separated with a header; NULL is empty, empty text is `""`, and so is a NULL that would be a blank line.
    Csv,
    /// As csv, with tabs between the values.
    #[value(alias = "tabs")]
    Tsv,
    /// One JSON object a row and line; NaN and infinities are texts.
    #[value(aliases = ["jsonlines", "jsonl", "ndjson"])]
    Json,
    /// A table of Markdown.
    #[value(alias = "md")]
    Markdown,
    /// A Parquet file.
    Parquet,
    /// An Arrow IPC file.
    Arrow,
}

#[derive(Debug, Args)]
pub struct ExplainArguments {
    #[command(flatten)]
    pub session: SessionArguments,
    /// What to show.
    #[arg(long, value_enum, default_value_t = StageName::Plan)]
    pub stage: StageName,
    /// Run the query, and show what each pipeline did, what was chosen and why, and what was not compiled and why.
    #[arg(long, conflicts_with = "stage")]
    pub analyze: bool,
    /// As --analyze, with the code of the kernels, as a page for a browser: one file that needs nothing else.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stage", "analyze"])]
    pub html: Option<PathBuf>,
    /// The query.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true, required_unless_present = "plan")]
    pub sql: Option<String>,
    /// A plan of Substrait in place of the query.
    #[arg(long, value_name = "FILE", conflicts_with = "sql")]
    pub plan: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub session: SessionArguments,
    /// The query.
    #[arg(short = 'c', value_name = "SQL", allow_hyphen_values = true)]
    pub sql: String,
    /// The file: JSON where it ends in .json, else Protobuf. Where absent, JSON goes to the standard output.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
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
    /// Also show what was looked for of a device that cannot be used.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Measure caches, memory and atomics, and keep the findings in the cache folder, where later runs of this program find them.
    #[arg(long)]
    pub calibrate: bool,
    /// Only this device: cpu, cuda, simt; or auto, the one that queries take.
    #[arg(long, value_enum, value_name = "D")]
    pub device: Option<DeviceName>,
}

impl SettingArguments {
    /// The settings, `--device` first.
    pub fn settings(&self) -> Vec<(String, String)> {
        let device = self.device.and_then(|device| device.to_possible_value());
        let device = device.map(|value| ("kelpie.device".to_string(), value.get_name().to_string()));
        device.into_iter().chain(self.set.iter().cloned()).collect()
    }

    /// A session with these settings.
    #[cfg(feature = "workloads")]
    pub fn session(&self) -> anyhow::Result<KelpieSession> {
        Ok(KelpieSession::new(self.options())?)
    }

    fn options(&self) -> SessionOptions {
        // What was measured of this machine is for its users; libraries decide everywhere alike.
        SessionOptions::default().with_engine(Arc::new(Engine::calibrated())).with_settings(self.settings())
    }
}

impl SessionArguments {
    /// A session with these settings and tables.
    pub async fn open(&self) -> anyhow::Result<KelpieSession> {
        if let Some(path) = &self.trace {
            crate::trace::begin(path)?;
        }
        let options = self.cluster.joined(self.settings.options())?;
        let session = match &self.database {
            Some(folder) => in_database(options, folder).await?,
            None => KelpieSession::new(options)?,
        };
        register(&session, &self.data).await?;
        Ok(session)
    }
}

/// A session in a database. What cannot be brought back is a warning.
async fn in_database(options: SessionOptions, folder: &Path) -> anyhow::Result<KelpieSession> {
    let opened = KelpieSession::in_database(options, &Database::open(folder)?).await?;
    for problem in opened.problems {
        crate::complain(&format!("warning: {problem}"));
    }
    Ok(opened.session)
}

/// Makes tables of paths; gives their names. What cannot be read is a warning.
pub async fn register(session: &KelpieSession, paths: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for path in paths {
        let registered = session.register_data(path).await?;
        for problem in registered.problems {
            crate::complain(&format!("warning: {problem}"));
        }
        names.extend(registered.names);
    }
    Ok(names)
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().into(), value.trim().into())),
        _ => Err(format!("`{text}` is not of the form key=value")),
    }
}

/// Statements to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `-c`.
    Sql(String),
    /// `-f`.
    File(PathBuf),
    /// `--plan`.
    Plan(PathBuf),
}

/// What the command line gave to run, in its order, and what it names as tables without an option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Given {
    /// `-c`, `-f`, `--plan`, and arguments that are statements or files of these.
    pub sources: Vec<Source>,
    /// Arguments that are data.
    pub data: Vec<PathBuf>,
}

/// Takes apart what `-c`, `-f`, `--plan` and arguments gave. An argument that is none of what it may be is an error.
pub fn given(matches: &ArgMatches) -> Result<Given, clap::Error> {
    fn indexed<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> Vec<(usize, T)> {
        let values = matches.try_get_many::<T>(name).ok().flatten().into_iter().flatten().cloned();
        matches.indices_of(name).into_iter().flatten().zip(values).collect()
    }
    if matches.subcommand().is_some() {
        return Ok(Given::default());
    }
    let mut given = Given::default();
    let sql = indexed::<String>(matches, "sql").into_iter().map(|(i, sql)| (i, Source::Sql(sql)));
    let files = indexed::<PathBuf>(matches, "file").into_iter().map(|(i, path)| (i, Source::File(path)));
    let plans = indexed::<PathBuf>(matches, "plan").into_iter().map(|(i, path)| (i, Source::Plan(path)));
    let mut sources: Vec<(usize, Source)> = sql.chain(files).chain(plans).collect();
    for (index, input) in indexed::<PathBuf>(matches, "inputs") {
        match input::Input::of(&input) {
            Ok(input::Input::Data) => given.data.push(input),
            Ok(input::Input::Script) => sources.push((index, Source::File(input))),
            Ok(input::Input::Sql(sql)) => sources.push((index, Source::Sql(sql))),
            Err(problem) => return Err(Arguments::command().error(ErrorKind::InvalidValue, problem)),
        }
    }
    sources.sort_by_key(|(index, _)| *index);
    given.sources = sources.into_iter().map(|(_, source)| source).collect();
    Ok(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_given_keeps_its_order() {
        let line = [
            "kelpie", "-c", "a", "y.sql", "t.parquet", "-f", "x.sql", "--timing", "--plan", "p", "select 1",
            "-c", "b",
        ];
        let matches = Arguments::command().try_get_matches_from(line).unwrap();
        let (sql, file) = (|sql: &str| Source::Sql(sql.into()), |path: &str| Source::File(path.into()));
        let plan = Source::Plan("p".into());
        let sources = vec![sql("a"), file("y.sql"), file("x.sql"), plan, sql("select 1"), sql("b")];
        assert_eq!(given(&matches).unwrap(), Given { sources, data: vec!["t.parquet".into()] });
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
