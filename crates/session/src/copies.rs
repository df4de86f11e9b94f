//! COPY says by the name of its file how that is written, as reading it does.

use datafusion::sql::parser::{CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::Value;

/// The option by which what a file has is compressed.
const COMPRESSION: &str = "format.compression";
/// The option by which values are told apart.
const DELIMITER: &str = "format.delimiter";

/// Adds to a COPY what the name of its file says and the statement does not: the format, the compression, tabs between values.
pub(crate) fn written_as_named(statement: &mut Statement) {
    match statement {
        Statement::CopyTo(copy) => complete(copy),
        Statement::Explain(explain) => written_as_named(&mut explain.statement),
        _ => {}
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
