//! What a session may do where its statements come from others than its owner.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, Statement as LogicalStatement};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectType, Statement as Sql};

use crate::row_changes::name_of_change;

/// Settings that are not of the session alone: among them is the folder for temporary files, which would be made.
const OF_THE_PROCESS: &str = "datafusion.runtime.";

/// What the statements of a session may do. By default all that there is.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Whether only queries run, and what concerns nobody but the session: its settings and its prepared statements.
    pub only_reads: bool,
    /// The files that queries may name, as in `FROM 'file.parquet'` and `read_csv`: these, and those below these folders, given as
    /// absolute paths. All files where absent. Tables that were registered are read wherever they are.
    pub files: Option<Vec<PathBuf>>,
    /// The longest that a statement may take, whatever `kelpie.timeout` says.
    pub most_time: Option<Duration>,
}

/// A statement wants more than its session may do. It comes as a [`DataFusionError::External`].
#[derive(Debug)]
pub struct Refused(String);

impl Refused {
    pub(crate) fn error(text: impl Into<String>) -> DataFusionError {
        DataFusionError::External(Box::new(Refused(text.into())))
    }

    /// Whether an error is one.
    pub fn is(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::External(inner) if inner.is::<Refused>())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Access {
    /// That of a session; one without bounds where nothing was said.
    pub(crate) fn of(state: &SessionState) -> Access {
        state.config().get_extension::<Access>().map(|access| access.as_ref().clone()).unwrap_or_default()
    }

    /// An error where a statement is none that the session may run. Macros never become plans, and what changes rows need not.
    pub(crate) fn check_statement(&self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::Statement(statement) if matches!(statement.as_ref(), Sql::CreateMacro { .. }) => {
                self.check_write("CREATE MACRO")
            }
            Statement::Statement(statement) if matches!(statement.as_ref(), Sql::AlterTable(_)) => {
                self.check_write("ALTER TABLE")
            }
            Statement::Statement(statement) if is_of_names(statement) => {
                self.check_write("a statement that makes, drops or describes")
            }
            _ => name_of_change(statement).map_or(Ok(()), |what| self.check_write(what)),
        }
    }

    /// An error where a plan does what the session may not, in whatever part of it.
    pub(crate) fn check_plan(&self, plan: &LogicalPlan) -> Result<()> {
        if !self.only_reads {
            return Ok(());
        }
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::Ddl(change) => self.check_write(change.name())?,
                LogicalPlan::Dml(change) => self.check_write(&change.op.to_string())?,
                LogicalPlan::Copy(_) => self.check_write("COPY")?,
                LogicalPlan::Statement(LogicalStatement::SetVariable(set)) => {
                    self.check_setting(&set.variable)?
                }
                LogicalPlan::Statement(LogicalStatement::ResetVariable(reset)) => {
                    self.check_setting(&reset.variable)?;
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }

    fn check_write(&self, what: &str) -> Result<()> {
        match self.only_reads {
            true => Err(Refused::error(format!("this session only reads, and does not run {what}"))),
            false => Ok(()),
        }
    }

    /// An error where a setting is not the session's own.
    pub(crate) fn check_setting(&self, name: &str) -> Result<()> {
        match self.only_reads && name.to_lowercase().starts_with(OF_THE_PROCESS) {
            true => Err(Refused::error(format!("this session only reads, and does not set {name}"))),
            false => Ok(()),
        }
    }

    /// An error where a query may not name a path.
    pub(crate) fn check_file(&self, path: &Path) -> Result<()> {
        match self.may_read(path) {
            true => Ok(()),
            // Whether there is such a file is not for everyone to know.
            false => Err(Refused::error(format!(
                "{}: this session reads only the files that it was given",
                path.display()
            ))),
        }
    }

    fn may_read(&self, path: &Path) -> bool {
        let Some(given) = &self.files else { return true };
        let Ok(path) = std::path::absolute(path) else { return false };
        // A path leads out of a folder by `..`, which patterns also write as `.?`, `.*` or `.{.,x}`.
        let leads_on = |part: Component<'_>| match part {
            Component::Normal(name) => {
                let name = name.as_encoded_bytes();
                !name.starts_with(b".") && !name.contains(&b'{')
            }
            _ => false,
        };
        let is_in =
            |given: &PathBuf| path.strip_prefix(given).is_ok_and(|rest| rest.components().all(leads_on));
        given.iter().any(is_in)
    }

    /// How long a statement may take of which the session's options say so much.
    pub(crate) fn timeout(&self, set: Option<Duration>) -> Option<Duration> {
        set.into_iter().chain(self.most_time).min()
    }
}

/// Whether a statement makes, drops or describes what is no plan of DataFusion's: sequences, types, indexes, comments.
fn is_of_names(statement: &Sql) -> bool {
    match statement {
        Sql::CreateSequence { .. } | Sql::CreateType { .. } | Sql::CreateIndex(_) | Sql::Comment { .. } => {
            true
        }
        Sql::Drop { object_type, .. } => {
            matches!(object_type, ObjectType::Sequence | ObjectType::Type | ObjectType::Index)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_nowhere_but_to_what_was_given() {
        let access = Access { files: Some(vec!["/data".into(), "/one/ä.csv".into()]), ..Access::default() };
        for path in
            ["/data", "/data/x.csv", "/data/a/b/*.parquet", "/data/a..b.csv", "/one/ä.csv", "/data/./x.csv"]
        {
            assert!(access.may_read(Path::new(path)), "{path}");
        }
        for path in [
            "/etc/passwd", "/database/x.csv", "/data/../etc/passwd", "/data/.?/etc/passwd",
            "/data/.{.,x}/etc/passwd", "/data/{../../etc/passwd,x}", "/data/.hidden/x.csv", "/one/b.csv",
            "/one/ä.csv/../b.csv", "/", "", "x.csv",
        ] {
            assert!(!access.may_read(Path::new(path)), "{path}");
        }
        assert!(Access::default().may_read(Path::new("/etc/passwd")));
        assert!(!Access { files: Some(vec![]), ..Access::default() }.may_read(Path::new("/data/x.csv")));
    }

    #[test]
    fn the_shorter_time_counts() {
        let seconds = Duration::from_secs;
        let access = Access { most_time: Some(seconds(5)), ..Access::default() };
        assert_eq!(access.timeout(None), Some(seconds(5)));
        assert_eq!(access.timeout(Some(seconds(2))), Some(seconds(2)));
        assert_eq!(access.timeout(Some(seconds(9))), Some(seconds(5)));
        assert_eq!(Access::default().timeout(None), None);
    }
}
