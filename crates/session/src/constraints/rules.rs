//! What a table says of its rows.
//!
//! They stand among the defaults of the table's columns, under a name that no column has: so they go where the table goes, by whatever name
//! it is found, and come back with it where a transaction is rolled back.

use std::collections::BTreeMap;
use std::fmt;

use datafusion::catalog::TableProvider;
use datafusion::common::plan_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, lit};
use datafusion::sql::sqlparser::ast::Ident;
use serde::{Deserialize, Serialize};

/// The name of the rules among the defaults of columns.
pub(crate) const RULES: &str = "kelpie: rules";

/// What a table says of its rows, and of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Rules {
    pub keys: Vec<Key>,
    pub checks: Vec<Check>,
    pub references: Vec<Reference>,
    /// The values of columns where nothing is said, in SQL.
    pub defaults: BTreeMap<String, String>,
    /// Columns whose values are those of a type that is named.
    pub types: BTreeMap<String, Values>,
    /// What COMMENT ON says of the table, and of its columns.
    pub comment: Option<String>,
    pub comments: BTreeMap<String, String>,
}

/// Columns by whose values rows are told apart. A row that has NULL there is like no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    pub name: Option<String>,
    pub columns: Vec<String>,
    pub kind: KeyKind,
}

/// What has made a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KeyKind {
    /// PRIMARY KEY, whose columns are NOT NULL.
    Primary,
    /// UNIQUE.
    Unique,
    /// CREATE UNIQUE INDEX.
    Index,
}

/// A condition that is false for no row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    pub name: Option<String>,
    /// The condition in DataFusion's SQL, with the columns' names in quotes.
    pub condition: String,
    /// As it was written.
    pub shown: String,
}

/// Columns whose values another table has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reference {
    pub name: Option<String>,
    pub columns: Vec<String>,
    /// The other table, and its columns there.
    pub table: String,
    pub to: Vec<String>,
}

/// The values of a type that CREATE TYPE … AS ENUM has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Values {
    pub of: String,
    pub values: Vec<String>,
}

impl Rules {
    /// Those of a table.
    pub fn of(table: &dyn TableProvider) -> Rules {
        table.get_column_default(RULES).map(Rules::from_default).unwrap_or_default()
    }

    /// Those that stand among the defaults of columns.
    pub fn among(defaults: &[(String, Expr)]) -> Rules {
        let found = defaults.iter().find(|(name, _)| name == RULES);
        found.map(|(_, rules)| Rules::from_default(rules)).unwrap_or_default()
    }

    fn from_default(rules: &Expr) -> Rules {
        let Expr::Literal(text, _) = rules else { return Rules::default() };
        text.try_as_str().flatten().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// As one of the defaults of a table's columns.
    pub fn as_default(&self) -> Result<Expr> {
        let text = serde_json::to_string(self).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(lit(text))
    }

    pub fn is_empty(&self) -> bool {
        *self == Rules::default()
    }

    /// Whether rows are compared with other rows.
    pub fn compare_rows(&self) -> bool {
        !self.keys.is_empty() || !self.references.is_empty()
    }

    pub fn primary_key(&self) -> Option<&Key> {
        self.keys.iter().find(|key| key.kind == KeyKind::Primary)
    }
}

/// Names of columns, as they stand in SQL.
pub(crate) fn listed(columns: &[String]) -> String {
    columns.iter().map(|column| shown(column)).collect::<Vec<_>>().join(", ")
}

/// A name as it stands in SQL: in quotes where it has to.
pub(crate) fn shown(name: &str) -> String {
    let is_plain = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if is_plain { name.to_string() } else { Ident::with_quote('"', name).to_string() }
}

/// Named constraints begin with their names.
fn named(f: &mut fmt::Formatter<'_>, name: Option<&String>) -> fmt::Result {
    match name {
        Some(name) => write!(f, "{}, ", shown(name)),
        None => Ok(()),
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(f, self.name.as_ref())?;
        match self.kind {
            KeyKind::Primary => f.write_str("PRIMARY KEY")?,
            KeyKind::Unique => f.write_str("UNIQUE")?,
            KeyKind::Index => f.write_str("UNIQUE INDEX")?,
        }
        write!(f, " ({})", listed(&self.columns))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(f, self.name.as_ref())?;
        write!(f, "CHECK ({})", self.shown)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        named(f, self.name.as_ref())?;
        let (columns, table, to) = (listed(&self.columns), shown(&self.table), listed(&self.to));
        write!(f, "FOREIGN KEY ({columns}) REFERENCES {table} ({to})")
    }
}

/// The error of rows that are not as a table says.
pub(crate) fn violated(constraint: &dyn fmt::Display, table: &str, why: &str) -> DataFusionError {
    DataFusionError::Execution(format!("constraint violated: {constraint} of {}: {why}", shown(table)))
}

/// The error of a constraint that cannot be one.
pub(crate) fn refused(why: impl fmt::Display) -> DataFusionError {
    plan_datafusion_err!("{why}")
}
