//! What DESCRIBE, SHOW and PRAGMA tell, as queries: `FROM (DESCRIBE t)`, `FROM (SHOW TABLES)`, `PRAGMA table_info('t')`.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::{Column, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::sql::sqlparser::ast::TableFactor;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::names_of_types::name_of_type;
use super::words::{Change, Words, has};

/// The alias of a subquery that is described.
const DESCRIPTION: &str = "kelpie: description";

const TABLES: &str =
    "SELECT table_name AS name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views()";
const ALL_TABLES: &str = "SELECT database_name AS database, schema_name AS schema, table_name AS name, \
    array_agg(column_name ORDER BY column_index) AS column_names, \
    array_agg(data_type ORDER BY column_index) AS column_types, false AS temporary \
    FROM duckdb_columns() GROUP BY database_name, schema_name, table_name";
const DATABASES: &str = "SELECT DISTINCT catalog_name AS database_name FROM information_schema.schemata";
const SCHEMAS: &str = "SELECT catalog_name AS database_name, schema_name FROM information_schema.schemata \
    WHERE schema_name <> 'information_schema'";

/// Whether a text may have one of these.
pub(super) fn may_change(sql: &str) -> bool {
    ["describe", "(desc", "show", "pragma"].iter().any(|word| has(sql, word))
}

/// Writes them as queries, where they stand in parentheses, and those that are no statements of the parser's.
pub(super) fn changes(words: &Words<'_>, first: usize, changes: &mut Vec<Change>) {
    for place in 0..words.all.len() {
        let is_within = place.checked_sub(1).is_some_and(|open| words.is_token(open, &Token::LParen));
        if is_within && words.is_any(place, &["describe", "desc"]) && names_something(words, place + 1) {
            describe(words, place, changes);
        }
        let ends = |at: usize| matches!(words.token(at), None | Some(Token::RParen | Token::SemiColon));
        if !words.is(place, "show") || !is_within && place != first {
            continue;
        }
        let shown = match () {
            // As a statement it is DataFusion's.
            () if is_within && words.is(place + 1, "tables") && ends(place + 2) => TABLES,
            () if words.is(place + 1, "all") && words.is(place + 2, "tables") && ends(place + 3) => {
                ALL_TABLES
            }
            () if words.is(place + 1, "databases") && ends(place + 2) => DATABASES,
            () if words.is(place + 1, "schemas") && ends(place + 2) => SCHEMAS,
            () => continue,
        };
        let end = words.find(place, |_| false);
        changes.push(Change { from: words.byte(place), to: words.byte(end), text: shown.into() });
    }
    if words.is(first, "describe") && words.is(first + 1, "table") && names_something(words, first + 2) {
        let (from, to) = (words.byte(first + 1), words.byte(first + 2));
        changes.push(Change { from, to, text: String::new() });
    }
    if words.is(first, "pragma") {
        pragma(words, first, changes);
    }
}

fn names_something(words: &Words<'_>, place: usize) -> bool {
    matches!(words.token(place), Some(Token::Word(_) | Token::SingleQuotedString(_) | Token::LParen))
        && !words.is_any(place, &["as", "from", "where", "order", "limit", "join", "cross", "left", "inner"])
}

fn describe(words: &Words<'_>, place: usize, changes: &mut Vec<Change>) {
    let what = place + 1 + usize::from(words.is(place + 1, "table"));
    let is_query =
        words.is_any(what, &["select", "with", "from", "values"]) || words.is_token(what, &Token::LParen);
    let opening = if is_query { "SELECT * FROM (" } else { "SELECT * FROM (SELECT * FROM " };
    let end = words.byte(words.find(what, |_| false));
    changes.push(Change { from: words.byte(place), to: words.byte(what), text: opening.into() });
    changes.push(Change { from: end, to: end, text: format!("\n) AS \"{DESCRIPTION}\" ") });
}

fn pragma(words: &Words<'_>, first: usize, changes: &mut Vec<Change>) {
    let query = match () {
        () if words.is(first + 1, "show_tables") => TABLES.to_string(),
        () if words.is(first + 1, "table_info") && words.is_token(first + 2, &Token::LParen) => {
            let name = words.text(first + 3).trim_matches('\'').replace('\'', "''");
            format!("SELECT * FROM pragma_table_info('{name}')")
        }
        () if words.is(first + 1, "database_list") => {
            format!(
                "SELECT row_number() OVER (ORDER BY database_name) - 1 AS seq, database_name AS name, NULL::VARCHAR AS file FROM ({DATABASES}) AS d"
            )
        }
        () => return,
    };
    let end = words.find(first, |_| false);
    changes.push(Change { from: words.byte(first), to: words.byte(end), text: query });
}

/// Plans the subqueries that DESCRIBE is written as.
#[derive(Debug)]
pub(super) struct Descriptions;

impl RelationPlanner for Descriptions {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            TableFactor::Derived { lateral, subquery, alias: Some(alias), sample }
                if alias.name.value == DESCRIPTION =>
            {
                let plan = context.plan(TableFactor::Derived { lateral, subquery, alias: None, sample })?;
                let plan = description(&plan)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation { plan, alias: None })))
            }
            relation => Ok(RelationPlanning::Original(Box::new(relation))),
        }
    }
}

/// A row for each column of a plan.
fn description(plan: &LogicalPlan) -> Result<LogicalPlan> {
    let nothing = || lit(ScalarValue::Utf8(None));
    let row = |field: &FieldRef| {
        let null = if field.is_nullable() { "YES" } else { "NO" };
        vec![
            lit(field.name().as_str()),
            lit(name_of_type(field.data_type())),
            lit(null),
            nothing(),
            nothing(),
            nothing(),
        ]
    };
    let rows: Vec<Vec<Expr>> = plan.schema().fields().iter().map(row).collect();
    let names = ["column_name", "column_type", "null", "key", "default", "extra"].into_iter();
    let columns = names.enumerate().map(|(place, name)| {
        Expr::Column(Column::new_unqualified(format!("column{}", place + 1))).alias(name)
    });
    LogicalPlanBuilder::values(rows)?.project(columns)?.build()
}
