//! What of a session decides how files are read.

use std::sync::Arc;

use datafusion::common::config::{ConfigOptions, CsvOptions, ParquetOptions, TableParquetOptions};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;

use kelpie_datafusion::KelpieOptions;

use super::given::Given;

/// An error where a reader would panic over the value of an option.
pub(crate) fn check_setting(name: &str, value: &str) -> Result<()> {
    const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];
    let is_unit = UNITS.contains(&value.to_lowercase().as_str());
    match name.to_lowercase().ends_with("coerce_int96") && !is_unit {
        true => {
            plan_err!("{name} is '{value}', and may be {}: what times of INT96 are read as", UNITS.join(", "))
        }
        false => Ok(()),
    }
}

/// Bytes from the end of a local file that are read before it is known how long its footer is. DataFusion takes half a megabyte, for
/// stores that are slow to answer; here a footer that is longer takes another read.
const FOOTER_BYTES: usize = 64 << 10;

/// The options that a table of files is made with: where they change, it is made anew.
#[derive(Debug, Clone)]
pub(super) struct ReadOptions {
    /// Those of the session, by which most statements see that nothing has changed.
    session: Arc<ConfigOptions>,
    /// Rows of each file that types come from; all where absent.
    pub infer_rows: Option<usize>,
    /// Whether lines of text begin with the names of their columns; found out where nobody says it.
    pub has_header: Option<bool>,
    pub csv: Arc<CsvOptions>,
    pub parquet: Arc<TableParquetOptions>,
    /// What the statement says that names the files.
    pub given: Arc<Given>,
}

impl ReadOptions {
    pub fn of(state: &SessionState) -> ReadOptions {
        let session = Arc::clone(state.config().options());
        let mut tables = state.default_table_options();
        let hint = &mut tables.parquet.global.metadata_size_hint;
        if *hint == ParquetOptions::default().metadata_size_hint {
            *hint = Some(FOOTER_BYTES);
        }
        ReadOptions {
            infer_rows: KelpieOptions::of(&session).infer_rows,
            // That there are headers is what a session says unasked.
            has_header: tables.csv.has_header.or((!session.catalog.has_header).then_some(false)),
            csv: Arc::new(tables.csv),
            parquet: Arc::new(tables.parquet),
            given: Arc::default(),
            session,
        }
    }

    /// These, but for what a statement says otherwise.
    pub fn with(mut self, given: &Arc<Given>) -> ReadOptions {
        self.given = Arc::clone(given);
        self.has_header = given.header.or(self.has_header);
        self.infer_rows = given.sample.unwrap_or(self.infer_rows);
        let mut csv = self.csv.as_ref().clone();
        csv.delimiter = given.delimiter.unwrap_or(csv.delimiter);
        csv.quote = given.quote.unwrap_or(csv.quote);
        csv.escape = given.escape.or(csv.escape);
        csv.comment = given.comment.or(csv.comment);
        if given.may_be_short {
            csv.truncated_rows = Some(true);
        }
        self.csv = Arc::new(csv);
        self
    }

    /// Whether files are read by them as a session's state says, and what a statement says.
    pub fn are_those_of(&self, state: &SessionState) -> bool {
        Arc::ptr_eq(&self.session, state.config().options())
            || *self == ReadOptions::of(state).with(&self.given)
    }
}

/// Whatever else is an option of the session does not matter.
impl PartialEq for ReadOptions {
    fn eq(&self, other: &ReadOptions) -> bool {
        self.infer_rows == other.infer_rows
            && self.has_header == other.has_header
            && self.csv == other.csv
            && self.parquet == other.parquet
            && self.given == other.given
    }
}
