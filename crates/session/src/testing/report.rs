//! What a run of generated queries found.

use std::collections::BTreeMap;
use std::fmt;

use super::compare::Outcome;

/// What a run of generated queries found.
#[derive(Debug, Default)]
pub struct FuzzReport {
    /// Queries with equal answers.
    pub equal: usize,
    /// Of these, queries that Kelpie ran as a whole.
    pub compiled: usize,
    /// Of these, queries with nothing to compile: DataFusion plans a constant or a bare scan.
    pub trivial: usize,
    /// Queries that fail in both.
    pub both_failed: usize,
    /// Queries that fail in DataFusion only, by an operand that Kelpie does not need.
    pub only_plain_failed: usize,
    /// Queries that fail in Kelpie only, and only under its own order of joins.
    pub only_reordered_failed: usize,
    /// Queries that fail in Kelpie's kernels only, and that DataFusion's operators answered.
    pub answered_by_plain: usize,
    /// Queries that DataFusion answers in two ways.
    pub contradictions: usize,
    /// Queries on which DataFusion panics.
    pub plain_panicked: usize,
    /// Runs under random genomes, beside those by the rules, that do not differ.
    pub forced: usize,
    /// Genomes of which no value was possible in the end.
    pub impossible: usize,
    /// Queries that differ.
    pub different: Vec<Difference>,
    /// Why queries were not compiled: how often, and the first such query.
    pub reasons: BTreeMap<String, (usize, String)>,
    /// Errors of queries that fail in both: how often, and the first such query.
    pub errors: BTreeMap<String, (usize, String)>,
}

/// A query that Kelpie and DataFusion answer differently.
#[derive(Debug, Clone)]
pub struct Difference {
    /// Its seed and number.
    pub place: String,
    /// Its text.
    pub sql: String,
    /// How the answers differ.
    pub how: String,
    /// A smaller query, its tables and how its answers differ; empty where there is none.
    pub smaller: String,
}

impl FuzzReport {
    /// Queries that were run.
    pub fn run(&self) -> usize {
        self.equal
            + self.both_failed
            + self.only_plain_failed
            + self.only_reordered_failed
            + self.answered_by_plain
            + self.contradictions
            + self.plain_panicked
            + self.different.len()
    }

    /// Of the queries with equal answers and something to compile, how many were compiled as a whole.
    pub fn compiled_percent(&self) -> f64 {
        100.0 * self.compiled as f64 / (self.equal - self.trivial).max(1) as f64
    }

    /// All counts, as text.
    pub fn counts(&self) -> String {
        let mut text = String::new();
        for (what, counts) in [("fail in both", &self.errors), ("not compiled", &self.reasons)] {
            let mut counts: Vec<_> = counts.iter().collect();
            counts.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
            for (reason, (count, first)) in counts {
                text.push_str(&format!("  {what}, {count} times, first {first}: {reason}\n"));
            }
        }
        let (run, different, equal, compiled) = (self.run(), self.different.len(), self.equal, self.compiled);
        text.push_str(&format!(
            "{run} queries: {different} different; {equal} equal, {compiled} of them compiled as a whole ({:.1} %), \
             {} with nothing to compile; {} fail in both, {} in DataFusion only, {} by another order of joins only, {} in \
             kernels only; DataFusion contradicts itself in {} and panics in {}",
            self.compiled_percent(),
            self.trivial,
            self.both_failed,
            self.only_plain_failed,
            self.only_reordered_failed,
            self.answered_by_plain,
            self.contradictions,
            self.plain_panicked,
        ));
        if self.forced + self.impossible > 0 {
            let (forced, impossible) = (self.forced, self.impossible);
            text.push_str(&format!(
                "; {forced} runs more under random genomes, {impossible} genomes were impossible"
            ));
        }
        text
    }

    /// Counts a query.
    pub(super) fn add(&mut self, place: &str, sql: String, outcome: Outcome) {
        let count = |counts: &mut BTreeMap<String, (usize, String)>, what: String| {
            counts.entry(what).or_insert_with(|| (0, place.into())).0 += 1;
        };
        match outcome {
            Outcome::Equal { compiled, reasons } => {
                self.equal += 1;
                self.compiled += usize::from(compiled);
                self.trivial += usize::from(!compiled && reasons.is_empty());
                reasons.iter().for_each(|reason| count(&mut self.reasons, general(reason)));
            }
            Outcome::BothFailed(error) => {
                self.both_failed += 1;
                count(&mut self.errors, without_values(error.lines().next().unwrap_or_default()));
            }
            Outcome::OnlyPlainFailed => self.only_plain_failed += 1,
            Outcome::OnlyReorderedFailed => self.only_reordered_failed += 1,
            Outcome::AnsweredByPlain => self.answered_by_plain += 1,
            Outcome::PlainContradictsItself(how) => {
                self.contradictions += 1;
                let how: String = how.chars().take(60).collect();
                count(&mut self.errors, format!("DataFusion contradicts itself: {how}"));
            }
            Outcome::PlainPanicked(message) => {
                self.plain_panicked += 1;
                let message: String = message.lines().next().unwrap_or_default().chars().take(80).collect();
                count(&mut self.errors, format!("DataFusion panics: {message}"));
            }
            Outcome::Different(how) => {
                let place = place.into();
                self.different.push(Difference { place, sql, how, smaller: String::new() });
            }
        }
    }

    /// Adds the queries of another run.
    pub fn merge(&mut self, other: FuzzReport) {
        self.equal += other.equal;
        self.compiled += other.compiled;
        self.trivial += other.trivial;
        self.both_failed += other.both_failed;
        self.only_plain_failed += other.only_plain_failed;
        self.only_reordered_failed += other.only_reordered_failed;
        self.answered_by_plain += other.answered_by_plain;
        self.contradictions += other.contradictions;
        self.plain_panicked += other.plain_panicked;
        self.forced += other.forced;
        self.impossible += other.impossible;
        self.different.extend(other.different);
        for (mine, others) in [(&mut self.reasons, other.reasons), (&mut self.errors, other.errors)] {
            for (what, (count, first)) in others {
                mine.entry(what).or_insert((0, first)).0 += count;
            }
        }
    }
}

/// A report as lines, by which a process hands it to the one that started it.
impl FuzzReport {
    /// One line a count, reason, error and difference.
    pub fn to_lines(&self) -> Vec<String> {
        let counts = [
            self.equal, self.compiled, self.trivial, self.both_failed, self.only_plain_failed,
            self.only_reordered_failed, self.answered_by_plain, self.contradictions, self.plain_panicked,
            self.forced, self.impossible,
        ];
        let mut lines = vec![format!("counts\t{}", counts.map(|count| count.to_string()).join("\t"))];
        for (name, known) in [("reason", &self.reasons), ("error", &self.errors)] {
            let line = |(what, (count, first)): (&String, &(usize, String))| {
                format!("{name}\t{count}\t{}\t{}", escaped(first), escaped(what))
            };
            lines.extend(known.iter().map(line));
        }
        lines.extend(self.different.iter().map(|different| {
            let Difference { place, sql, how, smaller } = different;
            format!("different\t{}", [place, sql, how, smaller].map(|text| escaped(text)).join("\t"))
        }));
        lines
    }

    /// Adds what a line of [`FuzzReport::to_lines`] says; false where it is no such line.
    pub fn add_line(&mut self, line: &str) -> bool {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["counts", counts @ ..] => {
                let counts: Vec<usize> = counts.iter().filter_map(|count| count.parse().ok()).collect();
                if counts.len() != 11 {
                    return false;
                }
                let mine = [
                    &mut self.equal,
                    &mut self.compiled,
                    &mut self.trivial,
                    &mut self.both_failed,
                    &mut self.only_plain_failed,
                    &mut self.only_reordered_failed,
                    &mut self.answered_by_plain,
                    &mut self.contradictions,
                    &mut self.plain_panicked,
                    &mut self.forced,
                    &mut self.impossible,
                ];
                mine.into_iter().zip(counts).for_each(|(mine, count)| *mine += count);
            }
            [name @ ("reason" | "error"), count, first, what] => {
                let known = if *name == "reason" { &mut self.reasons } else { &mut self.errors };
                let entry = known.entry(unescaped(what)).or_insert_with(|| (0, unescaped(first)));
                entry.0 += count.parse().unwrap_or(0);
            }
            ["different", place, sql, how, smaller] => {
                let [place, sql, how, smaller] = [place, sql, how, smaller].map(|text| unescaped(text));
                self.different.push(Difference { place, sql, how, smaller });
            }
            _ => return false,
        }
        true
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r")
}

fn unescaped(text: &str) -> String {
    let (mut result, mut letters) = (String::new(), text.chars());
    while let Some(letter) = letters.next() {
        result.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                other => other.unwrap_or('\\'),
            },
            letter => letter,
        });
    }
    result
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { place, sql, how, smaller } = self;
        writeln!(f, "DIFFERENT, {place}: {how}\n  {sql}\n{smaller}")
    }
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.different.iter().try_for_each(|different| different.fmt(f))?;
        f.write_str(&self.counts())
    }
}

/// A reason without the expression that it names, to count alike ones.
fn general(reason: &str) -> String {
    match (reason.split_once(": "), reason.rsplit_once(": ")) {
        (Some((operator, _)), Some((_, why))) => format!("{operator}: {why}"),
        _ => reason.into(),
    }
}

/// The beginning of an error without its numbers and quoted texts: of several rows that fail, any may be the one that it names.
fn without_values(error: &str) -> String {
    let is_number = |word: &str| {
        let is_digit = |byte: u8| byte.is_ascii_digit();
        word.bytes().any(is_digit) && word.bytes().all(|byte| is_digit(byte) || b"-+.,".contains(&byte))
    };
    let unquoted: Vec<&str> = error.split('\'').step_by(2).collect();
    let unquoted = unquoted.join("''");
    let words = unquoted.split(' ').map(|word| if is_number(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ").chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_whatever_values_they_name() {
        let cast = |value| format!("Cannot cast string '{value}' to value of Decimal128(38, 2)");
        assert_eq!(without_values(&cast("a b")), cast(""));
        assert_eq!(
            without_values("Overflow happened on: -17 * 3, of Int64"),
            "Overflow happened on: # * # of Int64"
        );
    }

    #[test]
    fn a_report_survives_as_lines() {
        let mut report = FuzzReport::default();
        report.add(
            "seed 1 query 2",
            "select '\t\\n'".into(),
            Outcome::Different("row 1:\n 2, not 3\\".into()),
        );
        let reasons = vec!["window: not compiled".into()];
        report.add("seed 1 query 3", String::new(), Outcome::Equal { compiled: false, reasons });
        report.add("seed 1 query 4", String::new(), Outcome::BothFailed("Divide by zero".into()));
        report.add("seed 1 query 5", String::new(), Outcome::PlainPanicked("overflow".into()));
        let mut again = FuzzReport::default();
        assert!(report.to_lines().iter().all(|line| !line.contains('\n') && again.add_line(line)));
        assert_eq!(again.to_string(), report.to_string());
        assert!(!again.add_line("something else"));
    }
}
