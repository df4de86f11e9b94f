//! The session options `kelpie.*`.

use std::any::Any;
use std::collections::BTreeMap;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::config_err;
use datafusion::error::Result;
use kelpie_engine::variant::axes;
use kelpie_engine::{
    DeviceChoice, Dictionaries, MacroModel, MicroModel, Profile, QueryOptions, Resolution, Transfer,
};

/// `kelpie.fallback`: what happens to a plan that Kelpie does not compile as a whole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fallback {
    /// DataFusion's operators run the rest.
    #[default]
    Allow,
    /// An error that lists every reason.
    Deny,
}

/// Whether a prepared statement runs by a plan that serves all values of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenericPlanMode {
    /// While it takes no longer than planning with the values, and running that.
    Measured,
    /// Wherever there is one.
    Always,
    /// Values are planned for each time.
    Never,
}

/// The options of a session, set by `SET kelpie.<name> = '<value>'`.
#[derive(Debug, Clone)]
pub struct KelpieOptions {
    /// `enabled`: whether the rule does anything.
    pub enabled: bool,
    /// `fallback`.
    pub fallback: Fallback,
    /// All the others.
    pub query: QueryOptions,
    /// `join_order`: whether joins are ordered by cost.
    pub join_order: bool,
    /// `min_rows`: a query over tables of fewer rows, all known exactly, is left to DataFusion; `None` is `auto`.
    pub min_rows: Option<usize>,
    /// `infer_rows`: rows of each file from which the types of CSV and JSON are inferred; `None` is all.
    pub infer_rows: Option<usize>,
    /// `kept_plans`: plans that a session keeps, so that the same query is not planned again.
    pub kept_plans: usize,
    /// `generic_plans`: whether prepared statements run by one plan for all values of their parameters.
    pub generic_plans: GenericPlanMode,
    /// Set by the session while it plans an EXPLAIN: the rule then reports what stays DataFusion's.
    pub explaining: bool,
    /// Set by the session while it plans an EXPLAIN ANALYZE VERBOSE: kernels then count lanes, as with `profile = lanes`.
    pub counts_lanes: bool,
}

impl Default for KelpieOptions {
    fn default() -> Self {
        KelpieOptions {
            enabled: true,
            fallback: Fallback::Allow,
            query: QueryOptions::default(),
            join_order: true,
            min_rows: None,
            infer_rows: Some(INFERRED_ROWS),
            kept_plans: KEPT_PLANS,
            generic_plans: GenericPlanMode::Measured,
            explaining: false,
            counts_lanes: false,
        }
    }
}

/// `min_rows` by default: so many rows take DataFusion about as long as Kelpie takes to plan and start a query whose kernels
/// are compiled.
const MIN_ROWS: usize = 10_000;

/// `infer_rows` by default: they take about as long to look at as a query to plan and compile.
const INFERRED_ROWS: usize = 100_000;

/// `kept_plans` by default: a plan takes some 100 KB, and few programs have more statements that come again and again.
const KEPT_PLANS: usize = 256;

const NAMES: [&str; 20] = [
    "enabled",
    "device",
    "fallback",
    "micro_model",
    "resolution",
    "macro_model",
    "transfer",
    "dictionaries",
    "block_bytes",
    "memory_limit",
    "threads",
    "join_order",
    "simt_lanes",
    "host_sort_rows",
    "meter",
    "profile",
    "min_rows",
    "infer_rows",
    "kept_plans",
    "generic_plans",
];

/// What the options that force a variant begin with: `variant.<axis>`, or `variant.<operator or pipeline>.<axis>`.
const VARIANT: &str = "variant.";

/// The value of such an option that forces nothing.
const RULE: &str = "rule";

/// What sizes look like.
const SIZES: &str = "a number of bytes with an optional unit (B, KB, MB, GB, TB), or 0";

impl KelpieOptions {
    /// The options of a configuration; defaults where it has none.
    pub fn of(config: &ConfigOptions) -> KelpieOptions {
        config.extensions.get::<KelpieOptions>().cloned().unwrap_or_default()
    }

    /// `min_rows`, where it is `auto` too: who chose a device or denies DataFusion's operators wants Kelpie to run.
    pub(crate) fn least_rows(&self) -> usize {
        let chooses = self.query.device == DeviceChoice::Auto && self.fallback == Fallback::Allow;
        self.min_rows.unwrap_or(if chooses { MIN_ROWS } else { 0 })
    }

    fn value(&self, name: &str) -> String {
        match name {
            "enabled" => self.enabled.to_string(),
            "device" => match self.query.device {
                DeviceChoice::Auto => "auto",
                DeviceChoice::Cpu => "cpu",
                DeviceChoice::Cuda => "cuda",
                DeviceChoice::Simt => "simt",
            }
            .into(),
            "fallback" => match self.fallback {
                Fallback::Allow => "allow",
                Fallback::Deny => "deny",
            }
            .into(),
            "micro_model" => self.query.micro_model.name().into(),
            "resolution" => self.query.resolution.name().into(),
            "macro_model" => match self.query.macro_model {
                MacroModel::Auto => "auto",
                MacroModel::RunToFinish => "run_to_finish",
                MacroModel::KernelAtATime => "kernel_at_a_time",
                MacroModel::Batch => "batch",
            }
            .into(),
            "transfer" => match self.query.transfer {
                Transfer::Auto => "auto",
                Transfer::Copy => "copy",
                Transfer::ZeroCopy => "zero_copy",
            }
            .into(),
            "dictionaries" => match self.query.dictionaries {
                Dictionaries::Auto => "auto",
                Dictionaries::Off => "off",
            }
            .into(),
            "block_bytes" => self.query.block_bytes.unwrap_or(0).to_string(),
            "memory_limit" => self.query.memory_limit.unwrap_or(0).to_string(),
            "threads" => self.query.threads.unwrap_or(0).to_string(),
            "join_order" => self.join_order.to_string(),
            "simt_lanes" => self.query.simt_lanes.to_string(),
            "meter" => self.query.meter.to_string(),
            "profile" => match self.query.profile {
                Profile::Off => "off",
                Profile::Lanes => "lanes",
            }
            .into(),
            "min_rows" => self.min_rows.map_or("auto".into(), |rows| rows.to_string()),
            "infer_rows" => self.infer_rows.unwrap_or(0).to_string(),
            "kept_plans" => self.kept_plans.to_string(),
            "generic_plans" => match self.generic_plans {
                GenericPlanMode::Measured => "measured",
                GenericPlanMode::Always => "always",
                GenericPlanMode::Never => "never",
            }
            .into(),
            _ => self.query.host_sort_rows.map_or("auto".into(), |rows| rows.to_string()),
        }
    }
}

fn description(name: &str) -> &'static str {
    match name {
        "enabled" => "Whether Kelpie compiles anything: true | false",
        "device" => "Where compiled queries run: auto | cpu | cuda | simt",
        "fallback" => "What happens to plans that Kelpie does not compile: allow | deny",
        "micro_model" => {
            "How pipelines become kernels: operator_at_a_time | multi_pass | pipelined | resolution"
        }
        "resolution" => "Where a reduction is resolved locally: simd (a warp) | work_efficient (a block)",
        "macro_model" => "How data moves to the device: auto | run_to_finish | kernel_at_a_time | batch",
        "transfer" => "How kernels get at data on the host: auto | copy | zero_copy",
        "dictionaries" => "Whether a column of few texts is stored as codes of a dictionary: auto | off",
        "block_bytes" => "Bytes of a column of a block in batch, on average, such as 2MB; 0 is the default",
        "memory_limit" => "Budget of device memory, such as 512MB or 2GB; 0 is the device's default",
        "threads" => "Workers of the CPU device; 0 is one a core",
        "join_order" => "Whether joins are ordered by cost, also those that stay DataFusion's: true | false",
        "simt_lanes" => "Lanes of the SIMT interpreter: 1 to 32",
        "min_rows" => {
            "Queries over tables of fewer rows are left to DataFusion: a number, or auto, which is 10000 where device is \
             auto and fallback is allow, else 0"
        }
        "infer_rows" => {
            "Rows of each file from which the types of CSV and JSON files are inferred; 0 is all of them"
        }
        "kept_plans" => "Plans that are kept, so that the same query is not planned again; 0 is none",
        "generic_plans" => {
            "Whether prepared statements run by one plan for all values of their parameters, after two that were planned for: \
             measured (while that takes no longer) | always | never"
        }
        "meter" => "Whether kernels count the bytes that they access, and are slower for it: true | false",
        "profile" => {
            "Whether kernels count the lanes of warps that have rows at each step, and are slower for it: off | lanes"
        }
        _ => "Rows up to which a sort's order is computed on the host: auto, or a number",
    }
}

impl ConfigExtension for KelpieOptions {
    const PREFIX: &'static str = "kelpie";
}

impl ExtensionOptions for KelpieOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let lower = value.trim().to_ascii_lowercase();
        let bad =
            |allowed: &str| config_err!("kelpie.{key}: '{value}' is not a valid value; allowed: {allowed}");
        match key {
            "enabled" | "join_order" | "meter" => {
                let on = match lower.as_str() {
                    "true" | "on" | "1" => true,
                    "false" | "off" | "0" => false,
                    _ => return bad("true, false"),
                };
                match key {
                    "enabled" => self.enabled = on,
                    "meter" => self.query.meter = on,
                    _ => self.join_order = on,
                }
            }
            "device" => {
                self.query.device = match lower.as_str() {
                    "auto" => DeviceChoice::Auto,
                    "cpu" => DeviceChoice::Cpu,
                    "cuda" => DeviceChoice::Cuda,
                    "simt" => DeviceChoice::Simt,
                    _ => return bad("auto, cpu, cuda, simt"),
                }
            }
            "fallback" => {
                self.fallback = match lower.as_str() {
                    "allow" => Fallback::Allow,
                    "deny" => Fallback::Deny,
                    _ => return bad("allow, deny"),
                }
            }
            "micro_model" => {
                let found = MicroModel::ALL.into_iter().find(|model| model.name() == lower);
                match found {
                    Some(model) => self.query.micro_model = model,
                    None => return bad(&MicroModel::ALL.map(MicroModel::name).join(", ")),
                }
            }
            "resolution" => {
                let found = Resolution::ALL.into_iter().find(|resolution| resolution.name() == lower);
                match found {
                    Some(resolution) => self.query.resolution = resolution,
                    None => return bad(&Resolution::ALL.map(Resolution::name).join(", ")),
                }
            }
            "macro_model" => {
                self.query.macro_model = match lower.as_str() {
                    "auto" => MacroModel::Auto,
                    "run_to_finish" => MacroModel::RunToFinish,
                    "kernel_at_a_time" => MacroModel::KernelAtATime,
                    "batch" => MacroModel::Batch,
                    _ => return bad("auto, run_to_finish, kernel_at_a_time, batch"),
                }
            }
            "transfer" => {
                self.query.transfer = match lower.as_str() {
                    "auto" => Transfer::Auto,
                    "copy" => Transfer::Copy,
                    "zero_copy" => Transfer::ZeroCopy,
                    _ => return bad("auto, copy, zero_copy"),
                }
            }
            "dictionaries" => {
                self.query.dictionaries = match lower.as_str() {
                    "auto" => Dictionaries::Auto,
                    "off" => Dictionaries::Off,
                    _ => return bad("auto, off"),
                }
            }
            "profile" => {
                self.query.profile = match lower.as_str() {
                    "off" => Profile::Off,
                    "lanes" => Profile::Lanes,
                    _ => return bad("off, lanes"),
                }
            }
            "block_bytes" => match parse_bytes(&lower) {
                Some(bytes) => self.query.block_bytes = (bytes > 0).then_some(bytes),
                None => return bad(SIZES),
            },
            "memory_limit" => match parse_bytes(&lower) {
                Some(bytes) => self.query.memory_limit = (bytes > 0).then_some(bytes),
                None => return bad(SIZES),
            },
            "threads" => match lower.parse::<usize>() {
                Ok(threads) if threads <= 4096 => self.query.threads = (threads > 0).then_some(threads),
                _ => return bad("0 (one a core) to 4096"),
            },
            "simt_lanes" => match lower.parse::<u32>() {
                Ok(lanes) if (1..=32).contains(&lanes) => self.query.simt_lanes = lanes,
                _ => return bad("1 to 32"),
            },
            "min_rows" => match (lower.as_str(), lower.parse()) {
                ("auto", _) => self.min_rows = None,
                (_, Ok(rows)) => self.min_rows = Some(rows),
                _ => return bad("auto, or a number of rows"),
            },
            "infer_rows" => match lower.parse::<usize>() {
                Ok(rows) => self.infer_rows = (rows > 0).then_some(rows),
                Err(_) => return bad("a number of rows, or 0 for all"),
            },
            "kept_plans" => match lower.parse::<usize>() {
                Ok(plans) => self.kept_plans = plans,
                Err(_) => return bad("a number of plans"),
            },
            "generic_plans" => {
                self.generic_plans = match lower.as_str() {
                    "measured" => GenericPlanMode::Measured,
                    "always" => GenericPlanMode::Always,
                    "never" => GenericPlanMode::Never,
                    _ => return bad("measured, always, never"),
                }
            }
            "host_sort_rows" => match (lower.as_str(), lower.parse()) {
                ("auto", _) => self.query.host_sort_rows = None,
                (_, Ok(rows)) => self.query.host_sort_rows = Some(rows),
                _ => return bad("auto, or a number of rows"),
            },
            _ if key.starts_with(VARIANT) => {
                let set = self.query.variants.set(&key[VARIANT.len()..], &lower);
                return set.or_else(|error| config_err!("kelpie.{key}: {error}"));
            }
            _ => {
                return config_err!(
                    "unknown option kelpie.{key}; the options are kelpie.{}, and kelpie.variant.<axis>",
                    NAMES.join(", kelpie.")
                );
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |name: &&str| ConfigEntry {
            key: format!("{}.{name}", KelpieOptions::PREFIX),
            value: Some(self.value(name)),
            description: description(name),
        };
        let variant = |name: &str, value: &str, description| ConfigEntry {
            key: format!("{}.{VARIANT}{name}", KelpieOptions::PREFIX),
            value: Some(value.into()),
            description,
        };
        let forced: BTreeMap<&str, &str> = self.query.variants.iter().collect();
        let axes = axes::ALL
            .iter()
            .map(|axis| variant(axis.name, forced.get(axis.name).copied().unwrap_or(RULE), axis.about));
        let of_one = forced.iter().filter(|(name, _)| name.contains('.'));
        let of_one =
            of_one.map(|(name, value)| variant(name, value, "The variant of one operator or pipeline"));
        NAMES.iter().map(entry).chain(axes).chain(of_one).collect()
    }
}

/// Bytes of `512`, `2GB`, `1.5 MiB`; units are powers of 1024. Empty is 0.
fn parse_bytes(text: &str) -> Option<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_when_they_are_set() {
        let mut options = KelpieOptions::default();
        for (key, value, shown) in [
            ("device", "CUDA", "cuda"),
            ("fallback", "deny", "deny"),
            ("micro_model", "pipelined", "pipelined"),
            ("micro_model", "Operator_at_a_time", "operator_at_a_time"),
            ("resolution", "work_efficient", "work_efficient"),
            ("macro_model", "batch", "batch"),
            ("transfer", "zero_copy", "zero_copy"),
            ("dictionaries", "OFF", "off"),
            ("block_bytes", "2MB", "2097152"),
            ("memory_limit", "2GB", "2147483648"),
            ("memory_limit", "1.5 kib", "1536"),
            ("memory_limit", "", "0"),
            ("threads", "3", "3"),
            ("simt_lanes", "4", "4"),
            ("host_sort_rows", "0", "0"),
            ("host_sort_rows", "AUTO", "auto"),
            ("min_rows", "500", "500"),
            ("min_rows", "auto", "auto"),
            ("infer_rows", "0", "0"),
            ("infer_rows", "7", "7"),
            ("kept_plans", "0", "0"),
            ("generic_plans", "Always", "always"),
            ("enabled", "false", "false"),
            ("join_order", "off", "false"),
            ("meter", "on", "true"),
            ("profile", "Lanes", "lanes"),
        ] {
            options.set(key, value).unwrap();
            assert_eq!(options.value(key), shown, "{key}");
        }
        for (key, value, part) in [
            ("device", "tpu", "auto, cpu, cuda, simt"),
            ("fallback", "maybe", "allow, deny"),
            ("micro_model", "x", "multi_pass, pipelined, resolution"),
            ("resolution", "x", "simd, work_efficient"),
            ("macro_model", "x", "kernel_at_a_time, batch"),
            ("transfer", "x", "copy, zero_copy"),
            ("dictionaries", "true", "auto, off"),
            ("block_bytes", "-1", "number of bytes"),
            ("memory_limit", "-3", "number of bytes"),
            ("memory_limit", "3 parsecs", "number of bytes"),
            ("threads", "many", "one a core"),
            ("simt_lanes", "33", "1 to 32"),
            ("host_sort_rows", "-1", "number of rows"),
            ("min_rows", "few", "number of rows"),
            ("infer_rows", "auto", "0 for all"),
            ("kept_plans", "all", "number of plans"),
            ("generic_plans", "some", "measured, always, never"),
            ("enabled", "2", "true, false"),
            ("join_order", "", "true, false"),
            ("meter", "2", "true, false"),
            ("profile", "true", "off, lanes"),
            ("colour", "red", "kelpie.memory_limit"),
        ] {
            let error = options.set(key, value).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(&format!("kelpie.{key}")), "{error}");
        }
    }
}
