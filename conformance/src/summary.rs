//! What came of all files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::message::{Counts, Difference};
use crate::open::{Entry, OpenList, Statement};
use crate::pool::Outcome;

/// Files that are shown among those that took longest.
const SLOW_SHOWN: usize = 20;

/// With all files, no fewer statements than these are compared, compiled in part and compiled as a whole: a run that does nothing
/// must not hold.
const FLOORS: Counts = Counts {
    statements: 0,
    compared: 47_000,
    not_counted: 0,
    with_rows: 0,
    compiled: 6_000,
    whole: 5_700,
    fell_back: 0,
};

/// All differences, and whether each is one that SQL leaves open.
pub struct Summary {
    counts: Counts,
    differences: Vec<Difference>,
    /// Those that SQL leaves open, with their reasons.
    open: BTreeMap<Statement, String>,
    /// Files whose child did not survive: which statement, and why.
    deaths: Vec<String>,
    /// Statements of the list whose file ran and that do not differ, though they do in every run.
    stale: Vec<Statement>,
    not_counted: Vec<Difference>,
    seconds: Vec<(PathBuf, [f64; 2])>,
}

impl Summary {
    /// Judges the outcomes by the list.
    pub fn new(outcomes: Vec<Outcome>, list: OpenList) -> Summary {
        let mut summary = Summary {
            counts: Counts::default(),
            differences: Vec::new(),
            open: BTreeMap::new(),
            deaths: Vec::new(),
            stale: Vec::new(),
            not_counted: Vec::new(),
            seconds: Vec::new(),
        };
        let mut ran = BTreeSet::new();
        for Outcome { file, report } in outcomes {
            match report {
                Ok(report) => {
                    ran.extend(report.files);
                    summary.counts += report.counts;
                    summary.not_counted.extend(report.not_counted);
                    summary.seconds.push((file, report.seconds));
                    report.differences.into_iter().for_each(|found| summary.judge(found, &list));
                }
                Err((place, why)) => {
                    let session = if place.kelpie { "with Kelpie" } else { "in plain DataFusion" };
                    let (file, line, partitions) = (place.file, place.line, place.partitions);
                    summary.deaths.push(format!("{file}:{line}: {session}, {partitions} partitions: {why}"));
                }
            }
        }
        let is_stale = |(statement, entry): &(&Statement, &Entry)| {
            !entry.sometimes && ran.contains(&statement.0) && !summary.open.contains_key(*statement)
        };
        summary.stale = list.entries().filter(is_stale).map(|(statement, _)| statement.clone()).collect();
        summary
    }

    fn judge(&mut self, found: Difference, list: &OpenList) {
        let statement = (found.place.file.clone(), found.place.line);
        match list.reason(&statement) {
            Some(reason) => drop(self.open.insert(statement, reason.to_string())),
            None => self.differences.push(found),
        }
    }

    /// Whether nothing differs that must not; with all files, also whether enough was compared.
    pub fn holds(&self, complete: bool) -> bool {
        let enough = self.counts.compared >= FLOORS.compared
            && self.counts.compiled >= FLOORS.compiled
            && self.counts.whole >= FLOORS.whole;
        let clean = self.differences.is_empty() && self.deaths.is_empty() && self.stale.is_empty();
        clean && (enough || !complete)
    }

    /// For people.
    pub fn print(&self, timing: bool, not_counted: bool) {
        for Difference { place, sql, how } in self.not_counted.iter().filter(|_| not_counted) {
            let (first, error) =
                (sql.lines().next().unwrap_or_default(), how.lines().next().unwrap_or_default());
            println!(
                "not counted: {}:{}, {} partitions: {first}: {error}",
                place.file, place.line, place.partitions
            );
        }
        for Difference { place, sql, how } in &self.differences {
            println!("{}:{}, {} partitions: {how}", place.file, place.line, place.partitions);
            println!("{}\n", sql.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n"));
        }
        self.deaths.iter().for_each(|death| println!("{death}\n"));
        for (file, line) in &self.stale {
            println!("open.txt: {file}:{line} is listed and did not differ");
        }
        let counts = &self.counts;
        println!(
            "{} files, 1 and 4 partitions: {} statements, of which {} fail in plain DataFusion (they need data that is not \
             there) and {} were compared; of these {} give rows, {} compiled in part at least, {} as a whole, {} ran on DataFusion's \
             operators in the end",
            self.seconds.len() + self.deaths.len(),
            counts.statements,
            counts.not_counted,
            counts.compared,
            counts.with_rows,
            counts.compiled,
            counts.whole,
            counts.fell_back,
        );
        println!(
            "{} differ, {} files ended early; of {} statements SQL leaves the result open",
            self.differences.len(),
            self.deaths.len(),
            self.open.len(),
        );
        let sum = |which: usize| self.seconds.iter().fold(0.0, |sum, (_, seconds)| sum + seconds[which]);
        println!("{:.0} s in plain DataFusion, {:.0} s with Kelpie", sum(0), sum(1));
        if timing {
            self.print_slow();
        }
    }

    fn print_slow(&self) {
        let mut slow: Vec<_> = self.seconds.iter().collect();
        slow.sort_by(|(_, a), (_, b)| (b[0] + b[1]).total_cmp(&(a[0] + a[1])));
        for (file, [plain, kelpie]) in slow.into_iter().take(SLOW_SHOWN) {
            println!("{plain:7.1} s {kelpie:7.1} s  {}", file.display());
        }
    }
}
