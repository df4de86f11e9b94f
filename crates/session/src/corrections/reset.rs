//! RESET of Kelpie's own options, which DataFusion knows of its own ones only: they are set to what they are by default.

use datafusion::sql::parser::{ResetStatement, Statement};
use datafusion::sql::sqlparser::ast::{Set, Statement as SqlStatement};
use kelpie_datafusion::SessionOption;

use crate::syntax::literal;

/// Makes `SET kelpie.<name> = <default>` of `RESET kelpie.<name>`.
pub(super) fn set_to_default(statement: &mut Statement) {
    let Statement::Reset(ResetStatement::Variable(variable)) = statement else { return };
    let name = variable.to_string().to_lowercase();
    let Some(name) = name.strip_prefix("kelpie.") else { return };
    // What a choice of variants is by default; of a name that is none, setting it says so.
    let value = SessionOption::default_of(name).unwrap_or_else(|| "rule".into());
    let set = Set::SingleAssignment {
        scope: None,
        hivevar: false,
        variable: variable.clone(),
        values: vec![literal(value)],
    };
    *statement = Statement::Statement(Box::new(SqlStatement::Set(set)));
}
