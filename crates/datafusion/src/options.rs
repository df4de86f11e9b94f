//! The session options `kelpie.*`.

mod list;

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::config_err;
use datafusion::error::Result;
use kelpie_engine::variant::axes;
use kelpie_engine::{DeviceChoice, QueryOptions};

pub use self::list::{OPTIONS, SessionOption, options_as_markdown};

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
    /// `corrections`: whether statements mean what SQL says where DataFusion takes them otherwise (docs/corrections.md).
    pub corrections: bool,
    /// All the others.
    pub query: QueryOptions,
    /// `join_order`: whether joins are ordered by cost.
    pub join_order: bool,
    /// `min_rows`: a query over tables of fewer rows, all known exactly, is left to DataFusion; `None` is `auto`.
    pub min_rows: Option<usize>,
    /// `infer_rows`: rows of each file from which the types of CSV and JSON are inferred; `None` is all.
    pub infer_rows: Option<usize>,
    /// `timeout`: how long a statement may take.
    pub timeout: Option<Duration>,
    /// `kept_plans`: plans that a session keeps, so that the same query is not planned again.
    pub kept_plans: usize,
    /// `generic_plans`: whether prepared statements run by one plan for all values of their parameters.
    pub generic_plans: GenericPlanMode,
    /// Set by the session while it plans an EXPLAIN: the rule then reports what stays DataFusion's.
    pub explaining: bool,
    /// Set by a distributed session while it plans what is sent to workers: the rules leave everything for these to compile.
    pub for_workers: bool,
    /// Set by the session while it plans an EXPLAIN ANALYZE VERBOSE: kernels then count lanes, as with `profile = lanes`.
    pub counts_lanes: bool,
    /// Set by the session where DataFusion could not estimate rows by the bounds of columns: files then say nothing of them.
    pub without_bounds: bool,
}

impl Default for KelpieOptions {
    fn default() -> Self {
        KelpieOptions {
            enabled: true,
            fallback: Fallback::Allow,
            corrections: true,
            query: QueryOptions::default(),
            join_order: true,
            min_rows: None,
            infer_rows: Some(INFERRED_ROWS),
            timeout: None,
            kept_plans: KEPT_PLANS,
            generic_plans: GenericPlanMode::Measured,
            explaining: false,
            for_workers: false,
            counts_lanes: false,
            without_bounds: false,
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

/// What the options that force a variant begin with: `variant.<axis>`, or `variant.<operator or pipeline>.<axis>`.
const VARIANT: &str = "variant.";

/// The value of such an option that forces nothing.
const RULE: &str = "rule";

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
        if let Some(variant) = key.strip_prefix(VARIANT) {
            let set = self.query.variants.set(variant, &lower);
            return set.or_else(|error| config_err!("kelpie.{key}: {error}"));
        }
        let Some(option) = SessionOption::named(key) else {
            let names: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
            return config_err!(
                "unknown option kelpie.{key}; the options are kelpie.{}, and kelpie.variant.<axis>",
                names.join(", kelpie.")
            );
        };
        match option.set(self, &lower) {
            Some(()) => Ok(()),
            None => {
                config_err!("kelpie.{key}: '{value}' is not a valid value; allowed: {}", option.values)
            }
        }
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |option: &SessionOption| ConfigEntry {
            key: format!("{}.{}", KelpieOptions::PREFIX, option.name),
            value: Some(option.value(self)),
            description: option.about,
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
        OPTIONS.iter().map(entry).chain(axes).chain(of_one).collect()
    }
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
            ("compile", "best", "best"),
            ("dictionaries", "OFF", "off"),
            ("block_bytes", "2MB", "2097152"),
            ("memory_limit", "2GB", "2147483648"),
            ("memory_limit", "1.5 kib", "1536"),
            ("cache", "None", "none"),
            ("handover", "OFF", "off"),
            ("memory_limit", "", "0"),
            ("timeout", "1.5 S", "1500ms"),
            ("timeout", "2min", "120000ms"),
            ("timeout", "250ms", "250ms"),
            ("timeout", "0", "0"),
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
            ("shared_plans", "off", "false"),
            ("meter", "on", "true"),
            ("profile", "Lanes", "lanes"),
            ("tuner", "Genetic", "genetic"),
            ("tuner.pool", "4", "4"),
            ("tuner.pool", "Auto", "auto"),
            ("tuner.deterministic", "on", "true"),
        ] {
            options.set(key, value).unwrap();
            assert_eq!(SessionOption::named(key).unwrap().value(&options), shown, "{key}");
        }
        for (key, value, part) in [
            ("device", "tpu", "auto, cpu, cuda, simt"),
            ("fallback", "maybe", "allow, deny"),
            ("micro_model", "x", "multi_pass, pipelined, resolution"),
            ("resolution", "x", "simd, work_efficient"),
            ("macro_model", "x", "kernel_at_a_time, batch"),
            ("transfer", "x", "copy, zero_copy"),
            ("compile", "fast", "auto, quick, best"),
            ("dictionaries", "true", "auto, off"),
            ("cache", "some", "auto, all, none"),
            ("handover", "on", "auto, off"),
            ("block_bytes", "-1", "number of bytes"),
            ("memory_limit", "-3", "number of bytes"),
            ("memory_limit", "3 parsecs", "number of bytes"),
            ("timeout", "10", "with its unit"),
            ("timeout", "-1s", "with its unit"),
            ("timeout", "1e300h", "with its unit"),
            ("timeout", "inf s", "with its unit"),
            ("threads", "many", "one a core"),
            ("simt_lanes", "33", "1 to 32"),
            ("host_sort_rows", "-1", "number of rows"),
            ("min_rows", "few", "number of rows"),
            ("infer_rows", "auto", "0 for all"),
            ("kept_plans", "all", "number of plans"),
            ("generic_plans", "some", "measured, always, never"),
            ("enabled", "2", "true, false"),
            ("join_order", "", "true, false"),
            ("shared_plans", "", "true, false"),
            ("meter", "2", "true, false"),
            ("profile", "true", "off, lanes"),
            ("tuner", "on", "rules, greedy, genetic"),
            ("tuner.pool", "1", "2 to 64"),
            ("colour", "red", "kelpie.memory_limit"),
        ] {
            let error = options.set(key, value).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(&format!("kelpie.{key}")), "{error}");
        }
    }
}
