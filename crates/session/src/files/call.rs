//! Calls of functions that read files, such as `read_csv('x.csv', delim = '|')`, as tables: the call is the name of the table, so that all
//! that finds, keeps and renews tables of files by their names does so with these.

use std::path::Path;

use datafusion::common::plan_err;
use datafusion::error::Result;
use serde_json::Value;

use super::chosen::Chosen;
use super::footers::Shown;
use super::format::Kind;
use super::given::Given;
use super::source::Source;

/// A call as the name of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileCall {
    /// `read_csv`, `read_parquet`, `read_json` and the like.
    pub function: &'static str,
    pub paths: Vec<String>,
    /// Options by their names, in lower case.
    pub options: Vec<(String, Value)>,
}

/// The functions, by all of their names.
const FUNCTIONS: [(&str, &str); 11] = [
    ("read_csv", "read_csv"),
    ("read_csv_auto", "read_csv"),
    ("read_parquet", "read_parquet"),
    ("parquet_scan", "read_parquet"),
    ("read_json", "read_json"),
    ("read_json_auto", "read_json"),
    ("read_ndjson", "read_json"),
    ("read_ndjson_auto", "read_json"),
    ("read_arrow", "read_arrow"),
    ("parquet_metadata", "parquet_metadata"),
    ("parquet_schema", "parquet_schema"),
];

impl FileCall {
    /// The function of a name, where it reads files.
    pub fn function(name: &str) -> Option<&'static str> {
        FUNCTIONS.iter().find(|(other, _)| *other == name).map(|(_, function)| *function)
    }

    /// The name of its table.
    pub fn name(&self) -> String {
        let (paths, options) = (Value::from(self.paths.clone()), serde_json::to_string(&self.options));
        format!("{}({paths},{})", self.function, options.unwrap_or_default())
    }

    /// The call that a name of a table is.
    pub fn of_name(name: &str) -> Option<FileCall> {
        let (function, arguments) = name.strip_suffix(')')?.split_once('(')?;
        let function = FileCall::function(function)?;
        let (paths, options) = serde_json::from_str(&format!("[{arguments}]")).ok()?;
        Some(FileCall { function, paths, options })
    }

    fn kind(&self) -> Kind {
        match self.function {
            "read_parquet" | "parquet_metadata" | "parquet_schema" => Kind::Parquet,
            "read_json" => Kind::Json,
            "read_arrow" => Kind::Arrow,
            _ => Kind::Csv,
        }
    }

    /// What it shows of the footers of files, where it does not read their rows.
    pub(super) fn of_footers(&self) -> Option<Shown> {
        match self.function {
            "parquet_metadata" => Some(Shown::Metadata),
            "parquet_schema" => Some(Shown::Schema),
            _ => None,
        }
    }

    /// The paths that it names, without the scheme of local files.
    pub(super) fn local_paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(|path| Path::new(path.strip_prefix("file://").unwrap_or(path)))
    }

    /// What it reads, and how. An option that is not known is an error.
    pub(super) fn source(&self) -> Result<(Source, Given)> {
        if let (Some(_), Some((name, _))) = (self.of_footers(), self.options.first()) {
            return plan_err!("{} has no option {name}", self.function);
        }
        let given = Given::of(self.function, self.kind(), &self.options)?;
        if self.paths.is_empty() {
            return plan_err!("{} gets no file", self.function);
        }
        let mut parts = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let path = path.strip_prefix("file://").unwrap_or(path);
            if path.contains("://") {
                return plan_err!("{path}: only local files can be tables");
            }
            parts.push(Source::of(Path::new(path))?);
        }
        let is_relative = self.paths.iter().all(|path| Path::new(path).is_relative());
        let (kind, folders, filename) = (self.kind(), given.folders, given.filename.clone());
        Ok((Source::Chosen(Box::new(Chosen { parts, kind, folders, filename, is_relative })), given))
    }
}

#[cfg(test)]
mod tests {
    use super::FileCall;

    #[test]
    fn a_call_is_the_name_of_a_table_and_back() {
        let call = FileCall {
            function: "read_csv",
            paths: vec!["a \"b\"(1).csv".into(), "ä/*.csv".into()],
            options: vec![("delim".into(), "|)".into()), ("skip".into(), 2.into())],
        };
        assert_eq!(FileCall::of_name(&call.name()), Some(call));
        assert_eq!(FileCall::of_name("read_csv"), None);
        assert_eq!(FileCall::of_name("read_csv(x)"), None);
        assert_eq!(FileCall::of_name("other([\"x\"],[])"), None);
    }
}
