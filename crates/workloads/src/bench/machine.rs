//! On what a benchmark ran.

use serde::Serialize;

/// The machine, the build and the sources.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Its logical cores.
    pub cores: usize,
    /// Bytes of memory; 0 where unknown.
    pub memory_bytes: u64,
    /// `release` or `debug`.
    pub build: &'static str,
    /// The commit of Kelpie's sources, with `+` where they were changed.
    pub commit: &'static str,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        // Linux says both; elsewhere they are unknown.
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Machine {
            processor: field(&processors, "model name").unwrap_or("unknown").to_string(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: field(&memory, "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .unwrap_or_default()
                * 1024,
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
            commit: env!("KELPIE_COMMIT"),
        }
    }

    /// One line for people.
    pub fn description(&self) -> String {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let Machine { processor, cores, build, commit, .. } = self;
        format!("{processor}, {cores} cores, {gib:.0} GiB; {build} build of {commit}")
    }
}

/// The value of `name : value` in a file of such lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nMemTotal:       24689764 kB\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "MemTotal"), Some("24689764 kB"));
        let machine = Machine::here();
        assert!(machine.cores > 0 && !machine.commit.is_empty(), "{machine:?}");
    }
}
