//! INSERT that says what becomes of rows whose keys are there already: ON CONFLICT, OR REPLACE, OR IGNORE. Of new rows with the same key
//! the first one counts, as in DuckDB.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, ConflictTarget, DoUpdate, Expr, Ident, Insert, Merge,
    MergeAction, ObjectName, ObjectNamePart, OnConflictAction, OnInsert, SqliteOnConflict, Statement as Sql,
    TableAlias, TableObject,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::assignments::is_default;
use super::insert::write_rows;
use super::merge::merge_rows;
use super::queries::{all, all_of};
use super::returning::Returning;
use super::target::{Target, Within, alias_of};
use crate::constraints::checked_rows::scan_of;
use crate::constraints::declared::same;
use crate::constraints::keys::without_partners;
use crate::constraints::rules::{Key, Rules, listed};
use crate::syntax::{normal, quoted, visit_own};

/// What the rows to insert are called.
const EXCLUDED: &str = "excluded";

/// Whether an INSERT says what becomes of rows that are there already.
pub(super) fn says(insert: &Insert) -> bool {
    insert.on.is_some() || insert.or.is_some() || insert.replace_into || insert.ignore
}

/// Inserts rows, where the statement says what becomes of those that are there; nothing where that is left to DataFusion.
pub(super) async fn insert(insert: &Insert, within: &Within<'_>) -> Result<Option<RecordBatch>> {
    let (true, TableObject::TableName(name)) = (says(insert), &insert.table) else { return Ok(None) };
    let alias = insert.table_alias.as_ref().map(|alias| alias_of(alias.alias.clone()));
    let Some(target) = within.target(name, alias.as_ref()).await? else { return Ok(None) };
    let rules = target.rules();
    let keys = keys_of(insert, &rules, name)?;
    let update = update_of(insert, &keys, &target)?;
    let plain =
        Insert { on: None, or: None, replace_into: false, ignore: false, returning: None, ..insert.clone() };
    let statement = Statement::Statement(Box::new(Sql::Insert(plain)));
    let LogicalPlan::Dml(write) = within.queries.plan(statement, &[]).await? else {
        return plan_err!("ON CONFLICT is for INSERT that writes rows");
    };
    let mut rows = all_of(within.queries, &write.input).await?;
    let items = insert.returning.as_deref();
    match update {
        None => {
            let there = scan_of(std::slice::from_ref(&target.rows), &target.schema())?;
            for key in &keys {
                rows = without_partners(&rows, &key.columns, (&there, within.state)).await?;
            }
            rows = first_of_keys(rows, &keys)?;
            let answer = Returning::of(items, &target.alias, rows.clone()).answer(within.queries).await?;
            write_rows(write, rows, within).await?;
            Ok(Some(answer))
        }
        Some(update) => {
            rows = first_of_keys(rows, &keys)?;
            let merge = merge_of(&keys, update, &target.alias)?;
            let source = alias_of(Ident::new(EXCLUDED));
            merge_rows(&merge, &target, (source, rows), items, within).await.map(Some)
        }
    }
}

/// The keys that are looked at.
fn keys_of(insert: &Insert, rules: &Rules, table: &ObjectName) -> Result<Vec<Key>> {
    let there = || match rules.keys.as_slice() {
        [] => "it has none".to_string(),
        keys => keys.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    };
    let target = match &insert.on {
        Some(OnInsert::OnConflict(conflict)) => conflict.conflict_target.as_ref(),
        _ => None,
    };
    let found: Vec<Key> = match target {
        Some(ConflictTarget::Columns(columns)) => {
            let columns: Vec<String> = columns.iter().map(normal).collect();
            let wanted = |key: &&Key| {
                let own: Vec<String> = key.columns.iter().map(|column| column.to_lowercase()).collect();
                same(&own, &columns.iter().map(|column| column.to_lowercase()).collect::<Vec<_>>())
            };
            match rules.keys.iter().find(wanted) {
                Some(key) => vec![key.clone()],
                None => {
                    return plan_err!(
                        "ON CONFLICT ({}): {table} has no PRIMARY KEY or UNIQUE of these columns ({})",
                        listed(&columns),
                        there()
                    );
                }
            }
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let wanted = name.0.last().and_then(ObjectNamePart::as_ident).map(normal);
            match rules.keys.iter().find(|key| key.name.is_some() && key.name == wanted) {
                Some(key) => vec![key.clone()],
                None => return plan_err!("{table} has no key named {name} ({})", there()),
            }
        }
        None => rules.keys.clone(),
    };
    if found.is_empty() {
        return plan_err!(
            "{table} has no PRIMARY KEY or UNIQUE by which a new row would be one that is there"
        );
    }
    Ok(found)
}

/// What becomes of a row whose key is there; nothing where it stays as it is.
fn update_of(insert: &Insert, keys: &[Key], target: &Target) -> Result<Option<DoUpdate>> {
    let replaces = insert.replace_into || matches!(insert.or, Some(SqliteOnConflict::Replace));
    let ignores = insert.ignore || matches!(insert.or, Some(SqliteOnConflict::Ignore));
    let update = match &insert.on {
        Some(OnInsert::OnConflict(conflict)) => match &conflict.action {
            OnConflictAction::DoNothing => return Ok(None),
            OnConflictAction::DoUpdate(update) => update.clone(),
        },
        Some(_) => return plan_err!("ON DUPLICATE KEY UPDATE is not supported: ON CONFLICT … DO UPDATE SET"),
        None if ignores => return Ok(None),
        None if replaces => DoUpdate { assignments: replacing(insert, keys, target)?, selection: None },
        None => return plan_err!("INSERT OR … has REPLACE and IGNORE"),
    };
    match keys {
        [_] => Ok(Some(update)),
        _ => plan_err!(
            "a row may be there by several keys ({}): say which one is meant, by ON CONFLICT (…) DO UPDATE",
            keys.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        ),
    }
}

/// The columns that are named, or all, but for the key, get the new values.
fn replacing(insert: &Insert, keys: &[Key], target: &Target) -> Result<Vec<Assignment>> {
    let schema = target.schema();
    let named: Vec<usize> = match insert.columns.is_empty() {
        true => (0..schema.fields().len()).collect(),
        false => insert.columns.iter().map(|column| target.place(column)).collect::<Result<_>>()?,
    };
    let names: Vec<&String> = named.iter().map(|place| schema.field(*place).name()).collect();
    let is_key = |name: &String| keys.iter().any(|key| key.columns.contains(name));
    let mut set: Vec<&String> = names.iter().copied().filter(|name| !is_key(name)).collect();
    if set.is_empty() {
        // A row that is its key is what it was.
        set.extend(keys.first().and_then(|key| key.columns.first()));
    }
    let assigned = |name: &String| {
        let column = ObjectName(vec![ObjectNamePart::Identifier(quoted(name))]);
        Assignment { target: AssignmentTarget::ColumnName(column), value: excluded(name) }
    };
    Ok(set.into_iter().map(assigned).collect())
}

fn excluded(column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![Ident::new(EXCLUDED), quoted(column)])
}

/// The MERGE that updates what is there and inserts the rest.
fn merge_of(keys: &[Key], update: DoUpdate, alias: &TableAlias) -> Result<Merge> {
    let DoUpdate { mut assignments, selection: mut condition } = update;
    let form =
        "MERGE INTO t USING s ON true WHEN MATCHED THEN UPDATE SET a = 0 WHEN NOT MATCHED THEN INSERT ROW";
    let Some(Sql::Merge(mut merge)) = Parser::parse_sql(&GenericDialect, form)?.pop() else {
        return plan_err!("ON CONFLICT is not supported");
    };
    let equal = |column: &String| Expr::BinaryOp {
        left: Box::new(Expr::CompoundIdentifier(vec![alias.name.clone(), quoted(column)])),
        op: BinaryOperator::Eq,
        right: Box::new(excluded(column)),
    };
    if let Some(on) = all(keys.iter().flat_map(|key| &key.columns).map(equal)) {
        merge.on = Box::new(on);
    }
    for assignment in assignments.iter_mut().filter(|assignment| !is_default(&assignment.value)) {
        of_table(&mut assignment.value, alias);
    }
    if let Some(condition) = &mut condition {
        of_table(condition, alias);
    }
    if let Some(matched) = merge.clauses.first_mut() {
        matched.predicate = condition;
        if let MergeAction::Update(update) = &mut matched.action {
            update.assignments = assignments;
        }
    }
    Ok(merge)
}

/// Columns without a table are those of the row that is there.
fn of_table(expr: &mut Expr, alias: &TableAlias) {
    let _ = visit_own(expr, &mut |expr| {
        if let Expr::Identifier(name) = expr {
            *expr = Expr::CompoundIdentifier(vec![alias.name.clone(), name.clone()]);
        }
        ControlFlow::Continue(())
    });
}

/// The rows of which none before has one of these keys. One without a value is like no other.
fn first_of_keys(rows: RecordBatch, keys: &[Key]) -> Result<RecordBatch> {
    let schema = rows.schema();
    let mut stays = vec![true; rows.num_rows()];
    let mut of_keys = Vec::with_capacity(keys.len());
    for key in keys {
        let columns = key.columns.iter().map(|column| Ok(rows.column(schema.index_of(column)?).clone()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let values = RowConverter::new(fields)?.convert_columns(&columns)?;
        of_keys.push((columns, values));
    }
    let mut seen: Vec<HashSet<_>> = keys.iter().map(|_| HashSet::new()).collect();
    for (row, stays) in stays.iter_mut().enumerate() {
        let is_there = |columns: &[ArrayRef]| columns.iter().all(|column| column.is_valid(row));
        let mut with_value = of_keys.iter().zip(&seen).filter(|((columns, _), _)| is_there(columns));
        *stays = with_value.all(|((_, values), seen)| !seen.contains(&values.row(row)));
        if *stays {
            for ((columns, values), seen) in of_keys.iter().zip(&mut seen) {
                if is_there(columns) {
                    seen.insert(values.row(row));
                }
            }
        }
    }
    Ok(filter_record_batch(&rows, &BooleanArray::from(stays))?)
}
