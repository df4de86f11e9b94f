//! The list of the options: name, values, meaning, and how each is read and set. EXPLAIN's help, `kelpie options`, the book's table and
//! the messages of errors come from here.

use std::time::Duration;

use kelpie_engine::{
    CacheMode, Decoding, DeviceChoice, Dictionaries, MacroModel, MicroModel, Profile, Resolution, Tier,
    Transfer, TunerMode,
};

use super::{Fallback, GenericPlanMode, KelpieOptions};

/// A session option, without `kelpie.`.
#[derive(Debug)]
pub struct SessionOption {
    /// `device`.
    pub name: &'static str,
    /// What it may be.
    pub values: &'static str,
    /// What it does.
    pub about: &'static str,
    value: fn(&KelpieOptions) -> String,
    /// `None`: the text, which is in lower case, is no value.
    set: fn(&mut KelpieOptions, &str) -> Option<()>,
}

impl SessionOption {
    /// The option of a name.
    pub(super) fn named(name: &str) -> Option<&'static SessionOption> {
        OPTIONS.iter().find(|option| option.name == name)
    }

    /// Its value by default, as text: of the option of this name, without `kelpie.`.
    pub fn default_of(name: &str) -> Option<String> {
        SessionOption::named(name).map(|option| option.value(&KelpieOptions::default()))
    }

    /// Its value, as text.
    pub fn value(&self, options: &KelpieOptions) -> String {
        (self.value)(options)
    }

    /// Sets it; `None`: the text, which is in lower case, is no value.
    pub(super) fn set(&self, options: &mut KelpieOptions, text: &str) -> Option<()> {
        (self.set)(options, text)
    }
}

/// The values of an option, each with its name.
type Named<T> = &'static [(&'static str, T)];

fn name_of<T: PartialEq>(all: Named<T>, value: &T) -> String {
    all.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name).into()
}

fn named<T: Copy>(all: Named<T>, text: &str) -> Option<T> {
    all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// An option whose values have names.
macro_rules! choice {
    ($name:literal, $values:literal, $about:literal, $($field:ident).+, $all:expr) => {
        SessionOption {
            name: $name,
            values: $values,
            about: $about,
            value: |options| name_of($all, &options.$($field).+),
            set: |options, text| named($all, text).map(|value| options.$($field).+ = value),
        }
    };
}

/// A switch.
macro_rules! switch {
    ($name:literal, $about:literal, $($field:ident).+) => {
        SessionOption {
            name: $name,
            values: "true, false",
            about: $about,
            value: |options| options.$($field).+.to_string(),
            set: |options, text| switched(text).map(|on| options.$($field).+ = on),
        }
    };
}

fn switched(text: &str) -> Option<bool> {
    match text {
        "true" | "on" | "1" => Some(true),
        "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// A size in bytes, of which 0 is the default.
macro_rules! size {
    ($name:literal, $about:literal, $($field:ident).+) => {
        SessionOption {
            name: $name,
            values: "a number of bytes with an optional unit (B, KB, MB, GB, TB), or 0",
            about: $about,
            value: |options| options.$($field).+.unwrap_or(0).to_string(),
            set: |options, text| bytes(text).map(|bytes| options.$($field).+ = (bytes > 0).then_some(bytes)),
        }
    };
}

/// A number of rows, or `auto`.
macro_rules! rows {
    ($name:literal, $about:literal, $($field:ident).+) => {
        SessionOption {
            name: $name,
            values: "auto, or a number of rows",
            about: $about,
            value: |options| options.$($field).+.map_or("auto".into(), |rows| rows.to_string()),
            set: |options, text| {
                options.$($field).+ = if text == "auto" { None } else { Some(text.parse().ok()?) };
                Some(())
            },
        }
    };
}

const DEVICES: Named<DeviceChoice> = &[
    ("auto", DeviceChoice::Auto),
    ("cpu", DeviceChoice::Cpu),
    ("cuda", DeviceChoice::Cuda),
    ("simt", DeviceChoice::Simt),
];
const FALLBACKS: Named<Fallback> = &[("allow", Fallback::Allow), ("deny", Fallback::Deny)];
const MICRO_MODELS: Named<MicroModel> = &[
    ("operator_at_a_time", MicroModel::OperatorAtATime),
    ("multi_pass", MicroModel::MultiPass),
    ("pipelined", MicroModel::Pipelined),
    ("resolution", MicroModel::Resolution),
];
const RESOLUTIONS: Named<Resolution> =
    &[("simd", Resolution::Simd), ("work_efficient", Resolution::WorkEfficient)];
const MACRO_MODELS: Named<MacroModel> = &[
    ("auto", MacroModel::Auto),
    ("run_to_finish", MacroModel::RunToFinish),
    ("kernel_at_a_time", MacroModel::KernelAtATime),
    ("batch", MacroModel::Batch),
];
const TIERS: Named<Tier> = &[("auto", Tier::Auto), ("quick", Tier::Quick), ("best", Tier::Best)];
const TRANSFERS: Named<Transfer> =
    &[("auto", Transfer::Auto), ("copy", Transfer::Copy), ("zero_copy", Transfer::ZeroCopy)];
const HANDOVER: Named<bool> = &[("auto", true), ("off", false)];
const CACHE: Named<CacheMode> =
    &[("auto", CacheMode::Auto), ("all", CacheMode::All), ("none", CacheMode::None)];
const DECODING: Named<Decoding> =
    &[("auto", Decoding::Auto), ("host", Decoding::Host), ("device", Decoding::Device)];
const DICTIONARIES: Named<Dictionaries> = &[("auto", Dictionaries::Auto), ("off", Dictionaries::Off)];
const TUNERS: Named<TunerMode> = &[
    ("off", TunerMode::Off),
    ("rules", TunerMode::Rules),
    ("greedy", TunerMode::Greedy),
    ("genetic", TunerMode::Genetic),
];
const PROFILES: Named<Profile> = &[("off", Profile::Off), ("lanes", Profile::Lanes)];
const GENERIC_PLANS: Named<GenericPlanMode> = &[
    ("measured", GenericPlanMode::Measured),
    ("always", GenericPlanMode::Always),
    ("never", GenericPlanMode::Never),
];

/// Every option but those that force variants.
pub static OPTIONS: &[SessionOption] = &[
    switch!("enabled", "whether Kelpie compiles anything", enabled),
    choice!(
        "device",
        "auto, cpu, cuda, simt",
        "where compiled queries run; auto takes a GPU where one is usable, simt is an interpreter that checks everything",
        query.device,
        DEVICES
    ),
    choice!(
        "fallback",
        "allow, deny",
        "deny makes a plan that is not compiled as a whole an error that lists the reasons",
        fallback,
        FALLBACKS
    ),
    switch!(
        "corrections",
        "whether statements and files mean what SQL and their data say where DataFusion takes them otherwise (docs/corrections.md)",
        corrections
    ),
    choice!(
        "micro_model",
        "operator_at_a_time, multi_pass, pipelined, resolution",
        "how pipelines become kernels (docs/execution-models.md)",
        query.micro_model,
        MICRO_MODELS
    ),
    choice!(
        "resolution",
        "simd, work_efficient",
        "where resolution resolves reductions locally: in a warp or a block",
        query.resolution,
        RESOLUTIONS
    ),
    choice!(
        "macro_model",
        "auto, run_to_finish, kernel_at_a_time, batch",
        "how data gets to the device",
        query.macro_model,
        MACRO_MODELS
    ),
    choice!(
        "transfer",
        "auto, copy, zero_copy",
        "how kernels get at data that lies on the host; with zero_copy they also write results there",
        query.transfer,
        TRANSFERS
    ),
    choice!(
        "compile",
        "auto, quick, best",
        "which code a GPU's kernels get: quick is assembled by the driver, best is compiled by NVRTC and waited for; auto starts with \
         what is there first and goes on with the best code, which is compiled behind the queries",
        query.compile,
        TIERS
    ),
    choice!(
        "dictionaries",
        "auto, off",
        "whether texts of a column become codes where there are few of them; off stores all texts one behind the other, and keeps \
         such columns beside those with codes",
        query.dictionaries,
        DICTIONARIES
    ),
    choice!(
        "decoding",
        "auto, host, device",
        "who decodes the pages of Parquet files: a GPU where a table is large, the host, or the device where it is no CPU",
        query.decoding,
        DECODING
    ),
    choice!(
        "handover",
        "auto, off",
        "whether the first run of a query is the CPU's where a GPU would take longer to open and to get its code",
        query.handover,
        HANDOVER
    ),
    choice!(
        "cache",
        "auto, all, none",
        "what of a table is read and kept: the part that filters may find rows in, until such parts together would have cost as much as \
         all of it, then all; always all rows of the columns that are asked for; or as little as a query needs, of which nothing is \
         kept once it has ended",
        query.cache,
        CACHE
    ),
    size!(
        "block_bytes",
        "size of a column of a block that streams, on average, such as 2MB; 0 is the default",
        query.block_bytes
    ),
    size!(
        "memory_limit",
        "budget of device memory, such as 512MB or 2GB; 0 is the device's default. Less than a query wants makes it slower, not fail. \
         On the CPU it is that of the sessions with this limit together, and changes nothing for others",
        query.memory_limit
    ),
    SessionOption {
        name: "timeout",
        values: "a time with its unit (ms, s, min, h), or 0",
        about: "how long a statement may take, from its text to its last row, such as 500ms or 2min; then it is cancelled, and an error \
                says so. 0 is no limit",
        value: |options| options.timeout.map_or("0".into(), |time| format!("{}ms", time.as_millis())),
        set: |options, text| {
            let time = time(text)?;
            options.timeout = (!time.is_zero()).then_some(time);
            Some(())
        },
    },
    SessionOption {
        name: "threads",
        values: "0 (one a core) to 4096",
        about: "workers that a query has on the CPU at once; the threads are those of the process, at most 4 a core or 16",
        value: |options| options.query.threads.unwrap_or(0).to_string(),
        set: |options, text| {
            let threads = text.parse().ok().filter(|threads: &usize| *threads <= 4096)?;
            options.query.threads = (threads > 0).then_some(threads);
            Some(())
        },
    },
    switch!(
        "join_order",
        "whether joins are ordered by cost, also those on DataFusion's operators",
        join_order
    ),
    switch!(
        "shared_plans",
        "whether what a query has several times (views, WITH, subqueries) is run once",
        query.shared_plans
    ),
    rows!(
        "min_rows",
        "queries over tables of fewer rows, where all are known exactly, are left to DataFusion; auto is 10000 where device is auto and \
         fallback is allow, else 0",
        min_rows
    ),
    SessionOption {
        name: "infer_rows",
        values: "a number of rows, or 0 for all",
        about: "rows of each file from which the types of CSV and JSON files are inferred",
        value: |options| options.infer_rows.unwrap_or(0).to_string(),
        set: |options, text| {
            let rows = text.parse().ok()?;
            options.infer_rows = (rows > 0).then_some(rows);
            Some(())
        },
    },
    SessionOption {
        name: "kept_plans",
        values: "a number of plans",
        about: "plans that a session keeps, so that the same query over unchanged tables, options and functions is not planned again; 0 \
                is none",
        value: |options| options.kept_plans.to_string(),
        set: |options, text| text.parse().ok().map(|plans| options.kept_plans = plans),
    },
    choice!(
        "generic_plans",
        "measured, always, never",
        "whether prepared statements run by one plan for all values of their parameters, after two sets of values that were planned \
         for: while that takes no longer, wherever there is one, or never",
        generic_plans,
        GENERIC_PLANS
    ),
    SessionOption {
        name: "simt_lanes",
        values: "1 to 32",
        about: "lanes of the interpreter",
        value: |options| options.query.simt_lanes.to_string(),
        set: |options, text| {
            let lanes = text.parse().ok().filter(|lanes| (1..=32).contains(lanes))?;
            options.query.simt_lanes = lanes;
            Some(())
        },
    },
    rows!(
        "host_sort_rows",
        "rows up to which the order of a sort is computed on the host",
        query.host_sort_rows
    ),
    switch!(
        "meter",
        "kernels count the bytes that they access, for EXPLAIN ANALYZE; they are slower then",
        query.meter
    ),
    choice!(
        "profile",
        "off, lanes",
        "kernels count how many lanes of a warp have rows at each step, for EXPLAIN ANALYZE; they are slower then",
        query.profile,
        PROFILES
    ),
    choice!(
        "tuner",
        "off, rules, greedy, genetic",
        "whether stages that run again are tried in other variants, and keep what was faster (docs/tuning.md); rules keeps the times of \
         the rules' choices and tries nothing, the others name the search for variants",
        query.tuner.mode,
        TUNERS
    ),
    SessionOption {
        name: "tuner.pool",
        values: "auto, or 2 to 64",
        about: "variants that are tried before slow ones are replaced by others; auto goes by how many of them compete",
        value: |options| options.query.tuner.pool.map_or("auto".into(), |pool| pool.to_string()),
        set: |options, text| {
            let pool = match text {
                "auto" => None,
                _ => Some(text.parse().ok().filter(|pool| (2..=64).contains(pool))?),
            };
            options.query.tuner.pool = pool;
            Some(())
        },
    },
    switch!(
        "tuner.deterministic",
        "times are made of the names of variants, so that the tuner does the same in every run; for tests",
        query.tuner.deterministic
    ),
];

/// The options as a table of Markdown: the book's page of options has it.
pub fn options_as_markdown() -> String {
    let defaults = KelpieOptions::default();
    let mut table = String::from("| option | values | default | meaning |\n|---|---|---|---|\n");
    for option in OPTIONS {
        let SessionOption { name, values, about, .. } = option;
        table += &format!("| `kelpie.{name}` | {values} | {} | {about} |\n", option.value(&defaults));
    }
    table
        + "| `kelpie.variant.<axis>`, `kelpie.variant.<operator or pipeline>.<axis>` | rule, or a value | rule | forces a choice everywhere or \
           at one place; `kelpie variants` lists the axes, `kelpie variants -c SQL` the choices of a query |\n"
}

/// The time of `500ms`, `1.5 s`, `2min`; `0` needs no unit.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.trim().parse().ok()?;
    let seconds = match unit.trim() {
        "ms" => number / 1000.0,
        "s" => number,
        "min" => number * 60.0,
        "h" => number * 3600.0,
        "" if number == 0.0 => 0.0,
        _ => return None,
    };
    // Less than a millisecond is not told from none.
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    let longest = Duration::from_secs(u32::MAX.into());
    (time <= longest && (time.is_zero() || time >= Duration::from_millis(1))).then_some(time)
}

/// Bytes of `512`, `2GB`, `1.5 MiB`; units are powers of 1024. Empty is 0.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.is_empty() {
        return Some(0);
    }
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    let bytes = number * (1u64 << shift) as f64;
    (bytes >= 0.0 && bytes < u64::MAX as f64).then_some(bytes as u64)
}
