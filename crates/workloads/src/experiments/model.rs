//! What experiments are made of: queries, the models that they run under, the data that they run on, and what is measured.

use crate::Workload;

/// What an experiment runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// The files of a benchmark.
    Workload(Workload),
    /// The table of [`grouping::table`](super::grouping::table), in memory.
    Grouping,
    /// The tables of [`dogqc::tables`](super::dogqc::tables), in memory.
    Joins,
    /// Those of [`dogqc::text_tables`](super::dogqc::text_tables).
    Texts,
}

impl Data {
    /// Whether it has no files.
    pub fn is_in_memory(self) -> bool {
        !matches!(self, Data::Workload(_))
    }
}

/// The positions of texts by their length.
pub(super) const TEXT_BYTES: &str = "longest text, bytes";

/// The options that force variants begin so.
const VARIANT: &str = "kelpie.variant.";

/// An execution model, or variants: a name and the settings that force it.
#[derive(Debug, Clone)]
pub struct Model {
    pub name: String,
    pub settings: Vec<(String, String)>,
    /// In which form it has columns, where others of the experiment have them in another.
    pub columns: &'static str,
    /// Whether its transfers are measured too: the bytes of its columns, and a run in which they stream.
    pub transfers: bool,
}

/// The option of texts without codes, and how columns without are called.
const NO_DICTIONARIES: (&str, &str) = ("kelpie.dictionaries", "off");
const AS_TEXTS: &str = "no dictionaries";
/// What leaves rows out before they come to a join: HorseQC's engine has nothing like it, and what a kernel does not read is no bandwidth.
const ALL_ROWS: [(&str, &str); 3] = [("pruning", "off"), ("key_filter", "off"), ("runtime_filters", "off")];
/// Columns come over the link in each run.
pub(super) const STREAMED: [(&str, &str); 2] = [("kelpie.macro_model", "batch"), ("kelpie.transfer", "copy")];

impl Model {
    /// `resolution:simd`, or a micro model without a resolution.
    pub fn micro(name: &str) -> Model {
        let (model, resolution) = name.split_once(':').unwrap_or((name, "simd"));
        let settings = [("kelpie.micro_model", model), ("kelpie.resolution", resolution)];
        Model::new(name, &settings).with_all_rows()
    }

    /// Without what leaves rows out before they come to a join.
    fn with_all_rows(mut self) -> Model {
        self.settings.extend(Model::variants("", &ALL_ROWS).settings);
        self
    }

    /// Values of axes.
    pub fn variants(name: &str, values: &[(&str, &str)]) -> Model {
        let settings = values.iter().map(|(axis, value)| (format!("{VARIANT}{axis}"), (*value).into()));
        Model { name: name.into(), settings: settings.collect(), columns: "", transfers: false }
    }

    /// The same over texts that are no codes.
    pub fn without_dictionaries(mut self) -> Model {
        let (option, value) = NO_DICTIONARIES;
        self.settings.push((option.into(), value.into()));
        self.columns = AS_TEXTS;
        self.name = format!("{}, {AS_TEXTS}", self.name);
        self
    }

    /// The same with transfers apart.
    pub fn with_transfers(self) -> Model {
        Model { transfers: true, ..self }
    }

    fn new(name: &str, settings: &[(&str, &str)]) -> Model {
        let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Model { name: name.into(), settings: settings.collect(), columns: "", transfers: false }
    }

    /// The batch macro model with blocks of a size.
    pub fn blocks(size: &str) -> Model {
        let settings =
            [("kelpie.macro_model", "batch"), ("kelpie.transfer", "copy"), ("kelpie.block_bytes", size)];
        Model::new(&format!("blocks of {size}"), &settings).with_all_rows()
    }

    pub fn macro_model(name: &str) -> Model {
        Model::new(&format!("kelpie {name}"), &[("kelpie.macro_model", name)])
    }
}

/// A position of an experiment: a query.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name.
    pub label: String,
    /// Its place on a numeric axis, where it has one.
    pub position: Option<f64>,
    /// The query.
    pub sql: String,
    /// What is set for it.
    pub settings: Vec<(String, String)>,
    /// What tells it apart from other cases at its position.
    pub series: Option<String>,
    /// What is compared of it, where that is not what the experiment compares everywhere.
    pub models: Vec<Model>,
    /// The pipeline that is measured, where not all are: what its name has, and no other's.
    pub pipeline: Option<&'static str>,
}

impl Case {
    /// A query without settings.
    pub fn new(label: impl ToString, position: Option<f64>, sql: String) -> Case {
        Case {
            label: label.to_string(),
            position,
            sql,
            settings: Vec::new(),
            series: None,
            models: Vec::new(),
            pipeline: None,
        }
    }
}

/// What is measured of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Time of all kernels.
    Kernels,
    /// Time of one pipeline's kernel.
    Pipeline,
    /// Time from SQL to rows.
    Total,
    /// Bytes accessed in memory to bytes of input and output.
    Passes,
    /// What else the experiment is about, as it says itself.
    Figure,
}
