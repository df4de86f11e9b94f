//! A report as text. Its lines are short where names are; whoever shows it cuts those that are not to its width.

use std::fmt::Write;

use kelpie_datafusion::units::{share, time};

use super::{Fact, PipelineFacts, QueryReport};

/// Where the facts of a pipeline begin: below its name.
const INDENT: &str = "             ";

impl QueryReport {
    /// The pipelines with their shares of time, what was done besides, and what was not compiled and why; `is_verbose`: with every
    /// choice and its reason.
    pub fn to_text(&self, is_verbose: bool) -> String {
        let mut out = String::new();
        if self.pipelines.is_empty() {
            out.push_str("nothing was compiled\n");
        } else {
            let (kernels, all) = (self.kernel_ns(), self.total_ns);
            let devices = self.devices.join(", ");
            let of_all = share(kernels, all);
            let _ = writeln!(out, "kernels took {} of {} ({of_all}) on {devices}", time(kernels), time(all));
        }
        let phases: Vec<String> =
            self.phases().map(|(name, time_ns)| format!("{name} {}", time(time_ns))).collect();
        if !phases.is_empty() {
            let _ = writeln!(out, "time: {}", phases.join(", "));
        }
        for (number, pipeline) in self.pipelines.iter().enumerate() {
            write_pipeline(&mut out, number, pipeline);
        }
        if is_verbose {
            for decision in &self.decisions {
                let _ = writeln!(out, "{} = {}: {}", decision.name, decision.value, decision.why);
            }
        }
        for step in &self.steps {
            let _ = writeln!(out, "also: {step}");
        }
        for reason in &self.fell_back {
            let _ = writeln!(out, "not compiled: {reason}");
        }
        out
    }
}

fn write_pipeline(out: &mut String, number: usize, pipeline: &PipelineFacts) {
    let inputs: Vec<String> = pipeline.inputs.iter().map(usize::to_string).collect();
    let after = if inputs.is_empty() { String::new() } else { format!(" (after {})", inputs.join(", ")) };
    let _ = writeln!(out, "{number:>3} {:>7}  {}{after}", pipeline.share, pipeline.name);
    let facts = |names: &[&str]| {
        let known = pipeline.facts.iter().filter(|fact| names.contains(&fact.name));
        let shown = |Fact { name, value, note }: &Fact| match note {
            Some(note) => format!("{name} {value} ({note})"),
            None => format!("{name} {value}"),
        };
        known.map(shown).collect::<Vec<_>>().join(", ")
    };
    let first = ["rows in", "rows out", "estimate"];
    let others: Vec<&str> =
        pipeline.facts.iter().map(|fact| fact.name).filter(|name| !first.contains(name)).collect();
    for line in [facts(&first), facts(&others)] {
        let _ = writeln!(out, "{INDENT}{line}");
    }
}
