//! What a child tells its parent, a line each.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// A line of a child's standard output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// A statement is about to run.
    At(Place),
    /// A file has run.
    Done(FileReport),
}

/// A statement in one of its runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file, from the folder of test files; one that is included stands for itself.
    pub file: String,
    /// The line where the record begins.
    pub line: u32,
    /// Partitions of the session.
    pub partitions: usize,
    /// Whether Kelpie is in the session.
    pub kelpie: bool,
}

/// What came of a file with all numbers of partitions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FileReport {
    /// How many statements.
    pub counts: Counts,
    /// The files that the statements stand in: this one, and those that it includes.
    pub files: BTreeSet<String>,
    /// Where Kelpie and plain DataFusion differ.
    pub differences: Vec<Difference>,
    /// What fails in plain DataFusion though the file expects otherwise.
    pub not_counted: Vec<Difference>,
    /// Seconds in plain DataFusion and with Kelpie.
    pub seconds: [f64; 2],
}

/// Numbers of statements.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Those that were run.
    pub statements: usize,
    /// Those that plain DataFusion executes, or refuses as the file expects: they are compared.
    pub compared: usize,
    /// Those that fail in plain DataFusion though the file expects otherwise: they are not.
    pub not_counted: usize,
    /// Those compared that give rows.
    pub with_rows: usize,
    /// Those compared of which something is compiled.
    pub compiled: usize,
    /// Those compared that are compiled as a whole.
    pub whole: usize,
    /// Those of which something compiled ran on DataFusion's operators in the end.
    pub fell_back: usize,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.statements += other.statements;
        self.compared += other.compared;
        self.not_counted += other.not_counted;
        self.with_rows += other.with_rows;
        self.compiled += other.compiled;
        self.whole += other.whole;
        self.fell_back += other.fell_back;
    }
}

/// A statement whose result is not plain DataFusion's, or not what the file expects.
#[derive(Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Which.
    pub place: Place,
    /// Its text.
    pub sql: String,
    /// How the results differ.
    pub how: String,
}
