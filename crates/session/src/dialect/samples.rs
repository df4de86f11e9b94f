//! Samples: `FROM t TABLESAMPLE 10%`, `FROM t WHERE … USING SAMPLE 100 ROWS`. A share of the rows is those that chance picks one by one, and a
//! number of them the first ones in an order by chance. USING SAMPLE takes them of the table in FROM, before WHERE, as DuckDB does.

use datafusion::common::{plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, Statement as Sql, TableFactor, TableSampleKind, TableSampleMethod, TableSampleUnit,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::words::{Change, Words};
use crate::syntax::{as_alias, last_name};

/// Clauses behind the tables of a FROM.
const CLAUSES: [&str; 11] = [
    "where", "group", "having", "window", "qualify", "using", "order", "limit", "union", "except",
    "intersect",
];

/// A column of numbers by chance.
const CHANCE: &str = "kelpie: chance";

/// A sample as it is written.
struct Sample {
    /// As the parser takes it.
    text: String,
    /// The place behind it.
    behind: usize,
}

/// Writes samples in the form that the parser takes, those of USING SAMPLE behind their table.
pub(super) fn changes(words: &Words<'_>, changes: &mut Vec<Change>) -> Result<()> {
    for place in 0..words.all.len() {
        let is_of_query = words.is(place, "using") && words.is(place + 1, "sample");
        let is_of_table = words.is(place, "tablesample");
        if !is_of_query && !is_of_table {
            continue;
        }
        let Some(sample) = Sample::of(words, place + 1 + usize::from(is_of_query))? else { continue };
        let (from, to) = (words.byte(place), words.byte(sample.behind));
        if is_of_table {
            changes.push(Change { from, to, text: sample.text });
            continue;
        }
        let at = words.byte(behind_table(words, place)?);
        if at < from {
            changes.push(Change { from: at, to: at, text: sample.text });
            changes.push(Change { from, to, text: String::new() });
        } else {
            changes.push(Change { from, to, text: sample.text });
        }
    }
    Ok(())
}

/// The place behind the only table of the FROM that a USING SAMPLE is of.
fn behind_table(words: &Words<'_>, using: usize) -> Result<usize> {
    let mut depth = 0_usize;
    let mut from = None;
    for place in (0..using).rev() {
        match words.token(place) {
            Some(Token::RParen) => depth += 1,
            Some(Token::LParen) if depth == 0 => break,
            Some(Token::LParen) => depth -= 1,
            _ if depth == 0 && words.is(place, "from") => {
                let is_comparison = place.checked_sub(1).is_some_and(|before| words.is(before, "distinct"));
                if !is_comparison {
                    from = Some(place);
                    break;
                }
            }
            _ => {}
        }
    }
    let Some(from) = from else { return plan_err!("USING SAMPLE without FROM") };
    let end = words.find(from + 1, |place| {
        words.is_any(place, &CLAUSES) || words.is(place, "join") || words.is_token(place, &Token::Comma)
    });
    if words.is(end, "join") || words.is_token(end, &Token::Comma) {
        return plan_err!(
            "USING SAMPLE of several tables is not supported: take the sample of a subquery, or of one table by TABLESAMPLE"
        );
    }
    Ok(end)
}

impl Sample {
    /// `10%`, `10 ROWS (reservoir)`, `reservoir(10 ROWS)`, `(10 PERCENT)`. Nothing where no number stands there, which the parser says
    /// better.
    fn of(words: &Words<'_>, from: usize) -> Result<Option<Sample>> {
        const METHODS: [&str; 5] = ["bernoulli", "system", "reservoir", "block", "row"];
        let mut place = from;
        let mut method = words.is_any(place, &METHODS).then(|| words.text(place).to_lowercase());
        place += usize::from(method.is_some());
        let is_enclosed = words.is_token(place, &Token::LParen);
        place += usize::from(is_enclosed);
        let Some(Token::Number(number, _)) = words.token(place) else { return Ok(None) };
        place += 1;
        let is_percent = words.is_token(place, &Token::Mod) || words.is(place, "percent");
        let has_unit = is_percent || words.is(place, "rows");
        place += usize::from(has_unit);
        if is_enclosed {
            if !words.is_token(place, &Token::RParen) {
                return Ok(None);
            }
            place += 1;
        }
        let mut has_seed = false;
        if !is_enclosed && words.is_token(place, &Token::LParen) && words.is_any(place + 1, &METHODS) {
            method = Some(words.text(place + 1).to_lowercase());
            has_seed = words.is_token(place + 2, &Token::Comma);
            place = words.closing(place).map_or(words.all.len(), |closing| closing + 1);
        }
        if has_seed || words.is_any(place, &["repeatable", "seed"]) {
            return plan_err!("a sample with a seed is not supported: no sample can be taken a second time");
        }
        let is_by_row = matches!(method.as_deref(), Some("bernoulli"));
        let is_share = is_percent || is_by_row && !has_unit;
        if is_by_row && !is_share {
            return plan_err!("a sample of a number of rows is taken by reservoir, not by bernoulli");
        }
        let method = if !is_share || method.as_deref() == Some("reservoir") { "ROW" } else { "BERNOULLI" };
        let unit = if is_share { "PERCENT" } else { "ROWS" };
        Ok(Some(Sample { text: format!(" TABLESAMPLE {method} ({number} {unit}) "), behind: place }))
    }
}

/// Writes a table with a sample as a query of the rows that it takes.
pub(super) fn write_out(factor: &mut TableFactor) -> Result<()> {
    let (kind, alias, name) = match &mut *factor {
        TableFactor::Table { sample, alias, name, .. } => (sample.take(), alias, last_name(name).cloned()),
        TableFactor::Derived { sample, alias, .. } => (sample.take(), alias, None),
        _ => return Ok(()),
    };
    let Some(kind) = kind else { return Ok(()) };
    let alias = alias.take();
    let alias = alias.or_else(|| name.map(as_alias));
    let (TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) = kind;
    let number = sample.quantity.as_ref().map(|quantity| quantity.value.to_string());
    let Some(number) = number.and_then(|number| number.parse::<f64>().ok()) else {
        return plan_err!("{sample}: a sample is of so many rows, or percent of them");
    };
    let is_share =
        sample.quantity.as_ref().is_some_and(|quantity| quantity.unit == Some(TableSampleUnit::Percent));
    let share = number / 100.0;
    if is_share && !(0.0..=1.0).contains(&share) {
        return plan_err!("a sample of {number} percent: there are from 0 to 100 of them");
    }
    let query = match (is_share, sample.name) {
        // A column to be sorted by: DataFusion sorts no rows without columns.
        (true, Some(TableSampleMethod::Row)) => format!(
            "SELECT * EXCLUDE (\"{CHANCE}\") FROM (SELECT *, random() AS \"{CHANCE}\" FROM sampled) AS sampled \
             QUALIFY row_number() OVER (ORDER BY \"{CHANCE}\") <= count(*) OVER () * {share}"
        ),
        (true, _) => format!("SELECT * FROM sampled WHERE random() < {share}"),
        (false, _) => format!("SELECT * FROM sampled ORDER BY random() LIMIT {}", number.trunc()),
    };
    let parsed = Parser::parse_sql(&GenericDialect, &query)?.pop();
    let Some(Sql::Query(mut subquery)) = parsed else {
        return Err(plan_datafusion_err!("a sample of {number} cannot be written as a query"));
    };
    if let Some(sampled) = innermost(&mut subquery) {
        std::mem::swap(sampled, factor);
    }
    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(())
}

/// The table that a query is of, or the query in its FROM.
fn innermost(query: &mut Query) -> Option<&mut TableFactor> {
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    match &mut select.from.first_mut()?.relation {
        TableFactor::Derived { subquery, .. } => innermost(subquery),
        table => Some(table),
    }
}
