//! What `kelpie bench derived` prints for people.

use std::fmt::Write;

use super::derived::{DerivedReport, DerivedTime};
use super::report::Split;

impl DerivedReport {
    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let DerivedReport { machine, device, rows, threads, runs, cases } = self;
        let _ = writeln!(
            text,
            "group-bys on derived columns, {rows} rows, {threads} threads, medians of {runs} runs\n{}\nkelpie: {}\n",
            machine.description(),
            device.as_deref().unwrap_or("nothing was compiled"),
        );
        let _ = writeln!(
            text,
            "{:<8} {:>14} {:>10} {:>7} {:>12} {:>7} {:>10} {:>9} {:>7}",
            "case",
            "evaluation/ms",
            "first/ms",
            "ratio",
            "on disk/ms",
            "ratio",
            "hot/ms",
            "plain/ms",
            "ratio"
        );
        for case in cases {
            let DerivedTime { name, evaluation_ms, first, on_disk, derived, plain, .. } = case;
            let _ = write!(
                text,
                "{name:<8} {evaluation_ms:>14.2} {:>10.2} {:>7.2} {:>12.2} {:>7.2} {:>10.2} {:>9.2} {:>7.2}",
                first.total_ms,
                case.first_ratio,
                on_disk.total_ms,
                case.on_disk_ratio,
                derived.total_ms,
                plain.total_ms,
                case.hot_ratio
            );
            let note = match (&case.difference, case.compiled) {
                (Some(difference), _) => format!("  DIFFERENT: {difference}"),
                (None, false) => "  (not compiled as a whole)".into(),
                (None, true) => String::new(),
            };
            let _ = writeln!(text, "{note}");
        }
        text.push_str(
            "\nevaluation: DataFusion evaluates the expression alone, in a new process; first: the group-by in a new process \
             with no\nkernel compiled; on disk: with its kernels on disk; hot and plain: where it ran before, and on a plain \
             column; eval hot: the evaluation where it ran before\n\n",
        );
        let _ = writeln!(
            text,
            "{:<8} {:<8} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "case", "run", "total/ms", "plan", "compile", "transfer", "kernel", "result"
        );
        for case in cases {
            let runs = [
                ("first", &case.first),
                ("on disk", &case.on_disk),
                ("hot", &case.derived),
                ("plain", &case.plain),
            ];
            for (run, split) in runs {
                let Split { total_ms, plan_ms, compile_ms, transfer_ms, kernel_ms, result_ms, .. } = split;
                let _ = writeln!(
                    text,
                    "{:<8} {run:<8} {total_ms:>9.2} {plan_ms:>8.2} {compile_ms:>9.2} {transfer_ms:>9.2} {kernel_ms:>9.2} \
                     {result_ms:>9.2}",
                    case.name
                );
            }
            let _ = writeln!(text, "{:<8} {:<8} {:>9.2}", case.name, "eval hot", case.evaluation_hot_ms);
        }
        text
    }

    /// Whether all answers are DataFusion's.
    pub fn is_right(&self) -> bool {
        self.cases.iter().all(|case| case.difference.is_none())
    }
}
