//! COPY says by the name of its file how that is written, as reading it does; and what its options leave open.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{TableWithJoins, Value};

use crate::corrections::{Which, write_out_columns};
use crate::syntax::{select_from, statement_of, table_named};
use crate::whole_writes::Overwrites;

/// The option by which what a file has is compressed.
const COMPRESSION: &str = "format.compression";
/// The option by which values are told apart.
const DELIMITER: &str = "format.delimiter";

/// Options that are one sign each.
const SIGNS: [&str; 3] = ["delimiter", "quote", "escape"];
/// Compressions of Parquet that have levels, and the level of who names none: what most writers take.
const LEVELS: [(&str, u8); 3] = [("zstd", 3), ("gzip", 6), ("brotli", 4)];

/// Adds to a COPY what the name of its file says and the statement does not: the format, the compression, tabs between values.
pub(crate) fn written_as_named(statement: &mut Statement) {
    match statement {
        Statement::CopyTo(copy) => {
            complete(copy);
            complete_options(copy);
        }
        Statement::Explain(explain) => written_as_named(&mut explain.statement),
        _ => {}
    }
}

/// What a COPY runs in whose files take the place of all that a folder has.
pub(crate) fn overwriting(state: &SessionState) -> Arc<TaskContext> {
    let mut state = state.clone();
    state.config_mut().set_extension(Arc::new(Overwrites));
    Arc::new(TaskContext::from(&state))
}

/// Spells the columns that a COPY partitions its files by as what it copies does.
pub(crate) async fn spell_partitions(state: &SessionState, statement: &mut Statement) {
    let Statement::CopyTo(copy) = statement else { return };
    if copy.partitioned_by.is_empty() {
        return;
    }
    let query = match &copy.source {
        CopyToSource::Query(query) => query.as_ref().clone(),
        CopyToSource::Relation(name) => {
            select_from(vec![TableWithJoins { relation: table_named(name.clone()), joins: vec![] }])
        }
    };
    let mut query = statement_of(query);
    // What cannot be planned is said where the statement is.
    if write_out_columns(state, &mut query, Which::Merged).await.is_err() {
        return;
    }
    let Ok(plan) = state.statement_to_plan(query).await else { return };
    let fields = plan.schema().fields();
    for name in &mut copy.partitioned_by {
        let spelled: Vec<&String> = fields
            .iter()
            .map(|field| field.name())
            .filter(|field| field.eq_ignore_ascii_case(name))
            .collect();
        if let [one] = spelled.as_slice() {
            name.clone_from(one);
        }
    }
}

fn complete(copy: &mut CopyToStatement) {
    let target = copy.target.to_lowercase();
    let (name, compression) = match target.rsplit_once('.') {
        Some((name, "gz")) => (name, Some("gzip")),
        Some((name, "zst")) => (name, Some("zstd")),
        Some((name, "bz2")) => (name, Some("bzip2")),
        Some((name, "xz")) => (name, Some("xz")),
        _ => (target.as_str(), None),
    };
    let ending = name.rsplit_once(['.', '/']).map_or("", |(_, ending)| ending);
    let (format, delimiter) = match ending {
        "csv" => ("csv", None),
        "tsv" | "tab" => ("csv", Some("\t")),
        "json" | "jsonl" | "ndjson" => ("json", None),
        "arrow" | "ipc" | "feather" if compression.is_none() => ("arrow", None),
        _ => return,
    };
    let stored_as = copy.stored_as.get_or_insert_with(|| format.into()).to_lowercase();
    if stored_as != format {
        return;
    }
    let chosen: Vec<String> = copy.options.iter().map(|(key, _)| key.to_lowercase()).collect();
    let mut add = |option: &str, value: Option<&str>| {
        let short = option.rsplit('.').next().unwrap_or(option);
        if let Some(value) = value
            && chosen.iter().all(|key| key.rsplit('.').next() != Some(short))
        {
            copy.options.push((option.into(), Value::SingleQuotedString(value.into())));
        }
    };
    add(COMPRESSION, compression);
    add(DELIMITER, delimiter);
}

/// Signs that are written as an escape, and compressions without their level.
fn complete_options(copy: &mut CopyToStatement) {
    let is_parquet = match &copy.stored_as {
        Some(format) => format.eq_ignore_ascii_case("parquet"),
        None => copy.target.to_lowercase().ends_with(".parquet"),
    };
    for (key, value) in &mut copy.options {
        let Value::SingleQuotedString(text) = value else { continue };
        let key = key.to_lowercase();
        let short = key.rsplit('.').next().unwrap_or(&key);
        if SIGNS.contains(&short) && is_tab(text) {
            *text = "\t".into();
        }
        // A column has its own behind its name.
        if is_parquet && short.split("::").next() == Some("compression") {
            let level = LEVELS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
            if let Some((name, level)) = level {
                *text = format!("{name}({level})");
            }
        }
    }
}

/// Whether a text is a tab as programs write it: `\t`, also in a text with escapes whose first quote is left of it.
fn is_tab(text: &str) -> bool {
    text.strip_prefix(['E', 'e']).and_then(|text| text.strip_prefix('\'')).unwrap_or(text) == "\\t"
}
