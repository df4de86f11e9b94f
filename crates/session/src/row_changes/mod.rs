//! Statements that change rows: UPDATE (with FROM), DELETE (with USING), MERGE INTO and TRUNCATE of tables in memory and of a database, and
//! INSERT … RETURNING. A query finds the rows, by their numbers, and their new values; what it gives takes the place of what the table had,
//! at once or, where anything fails, not at all. They are done when they are planned, as other statements that are no queries are.
//!
//! DataFusion has an UPDATE and a DELETE of its own, without queries in them and RETURNING. They run as soon as a plan is made, so
//! that EXPLAIN DELETE deletes; here EXPLAIN shows the query.

mod assignments;
mod insert;
mod merge;
mod on_conflict;
mod queries;
mod returning;
mod target;

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::{filter_record_batch, interleave};
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Delete, FromTable, ObjectName, Query, SetExpr, Statement as Sql, TableFactor, TableWithJoins, Truncate,
    Update, UpdateTableFromKind, With,
};

use assignments::Assignments;
pub(crate) use queries::{Queries, Relation};
use queries::{alone, query, rows};
use returning::{Returning, count};
use target::Target;
pub(crate) use target::Within;

use crate::syntax::reference_of;

/// A statement that changes rows, taken apart.
struct Change {
    statement: Sql,
    /// The queries that it names before.
    with: Option<With>,
}

/// What is known of a statement that was looked at.
pub(crate) enum Outcome {
    /// It is done, and answers this.
    Done(RecordBatch),
    /// It explains a query that knows some relations.
    Explains(Statement, Vec<Relation>),
    /// It is another one.
    Other,
}

/// The name of such a statement, in the words of plans, where it is one or explains one.
pub(crate) fn name_of_change(statement: &Statement) -> Option<&'static str> {
    let statement = match statement {
        Statement::Statement(statement) => statement,
        Statement::Explain(explain) => return name_of_change(&explain.statement),
        _ => return None,
    };
    let body = match statement.as_ref() {
        Sql::Query(query) => match query.body.as_ref() {
            SetExpr::Insert(inner)
            | SetExpr::Update(inner)
            | SetExpr::Delete(inner)
            | SetExpr::Merge(inner) => inner,
            _ => return None,
        },
        statement => statement,
    };
    match body {
        Sql::Update(_) => Some("Update"),
        Sql::Delete(_) => Some("Delete"),
        Sql::Merge(_) => Some("Merge"),
        Sql::Truncate(_) => Some("Truncate"),
        Sql::Insert(_) => Some("Insert"),
        _ => None,
    }
}

/// Takes a statement with the queries that stand before it apart.
fn taken_apart(statement: &Sql) -> Option<Change> {
    match statement {
        Sql::Query(query) => match query.body.as_ref() {
            SetExpr::Insert(inner)
            | SetExpr::Update(inner)
            | SetExpr::Delete(inner)
            | SetExpr::Merge(inner) => Some(Change { statement: inner.clone(), with: query.with.clone() }),
            _ => None,
        },
        Sql::Update(_) | Sql::Delete(_) | Sql::Merge(_) | Sql::Truncate(_) | Sql::Insert(_) => {
            Some(Change { statement: statement.clone(), with: None })
        }
        _ => None,
    }
}

/// Does what a statement says, where it changes rows of a table that can be. What DataFusion does by itself stays as it is, perhaps in
/// another form.
pub(crate) async fn carry_out(statement: &mut Statement, within: &Within<'_>) -> Result<Outcome> {
    match statement {
        Statement::Statement(inner) => {
            // It may have many rows, of which no other copy is made.
            if let Sql::Insert(insert) = inner.as_mut() {
                insert::complete(insert, None, within).await?;
                if let Some(answer) = on_conflict::insert(insert, within).await? {
                    return Ok(Outcome::Done(answer));
                }
                return match insert.returning.is_some() && !on_conflict::says(insert) {
                    true => insert::insert(insert, within).await.map(Outcome::Done),
                    false => Ok(Outcome::Other),
                };
            }
            let Some(mut change) = taken_apart(inner) else { return Ok(Outcome::Other) };
            if let Sql::Insert(insert) = &mut change.statement {
                insert::complete(insert, change.with.take(), within).await?;
            }
            match done(&change, within).await? {
                Some(rows) => Ok(Outcome::Done(rows)),
                None => {
                    if change.with.is_none() {
                        **inner = change.statement;
                    }
                    Ok(Outcome::Other)
                }
            }
        }
        Statement::Explain(explain) => {
            let Statement::Statement(inner) = explain.statement.as_ref() else { return Ok(Outcome::Other) };
            let Some(change) = taken_apart(inner) else { return Ok(Outcome::Other) };
            let Some((query, relations)) = explained(&change, within).await? else {
                return Ok(Outcome::Other);
            };
            if explain.options.analyze {
                return plan_err!(
                    "EXPLAIN ANALYZE of a statement that changes rows is not supported: EXPLAIN shows the query that finds them"
                );
            }
            *explain.statement = queries::statement(query);
            Ok(Outcome::Explains(statement.clone(), relations))
        }
        _ => Ok(Outcome::Other),
    }
}

/// The answer of a statement that is done; nothing where it is left to DataFusion.
async fn done(change: &Change, within: &Within<'_>) -> Result<Option<RecordBatch>> {
    let with = change.with.as_ref();
    match &change.statement {
        Sql::Update(statement) => match updated_table(statement, within).await? {
            Some(target) => update(statement, target, (with, within)).await.map(Some),
            None => Ok(None),
        },
        Sql::Delete(statement) => match deleted_from(statement, within).await? {
            Some(target) => delete(statement, target, (with, within)).await.map(Some),
            None => Ok(None),
        },
        Sql::Merge(statement) => {
            let target = match &statement.table {
                TableFactor::Table { name, alias, args: None, .. } => {
                    within.target(name, alias.as_ref()).await?
                }
                _ => None,
            };
            match target {
                Some(target) => merge::merge(statement, target, (with, within)).await.map(Some),
                None => Ok(None),
            }
        }
        Sql::Truncate(statement) => truncate(statement, within).await,
        Sql::Insert(statement) if on_conflict::says(statement) => {
            on_conflict::insert(statement, within).await
        }
        Sql::Insert(statement) if statement.returning.is_some() => {
            insert::insert(statement, within).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// The query that finds the rows which a statement changes.
async fn explained(change: &Change, within: &Within<'_>) -> Result<Option<(Query, Vec<Relation>)>> {
    let with = change.with.as_ref();
    let found = match &change.statement {
        Sql::Update(statement) => match updated_table(statement, within).await? {
            Some(target) => Some((update_query(statement, &target, with)?.1, target)),
            None => None,
        },
        Sql::Delete(statement) => {
            let target = deleted_from(statement, within).await?;
            target.map(|target| (delete_query(statement, &target, with), target))
        }
        Sql::Merge(_) => return plan_err!("EXPLAIN of MERGE INTO is not supported"),
        _ => None,
    };
    found.map(|(query, target)| Ok((query, vec![target.relation()?]))).transpose()
}

/// The table of UPDATE.
async fn updated_table(update: &Update, within: &Within<'_>) -> Result<Option<Target>> {
    let TableFactor::Table { name, alias, args: None, .. } = &update.table.relation else { return Ok(None) };
    let Some(target) = within.target(name, alias.as_ref()).await? else { return Ok(None) };
    let what = match () {
        () if !update.table.joins.is_empty() => "UPDATE of a join: UPDATE … FROM",
        () if !update.order_by.is_empty() || update.limit.is_some() => "ORDER BY and LIMIT of UPDATE",
        () if update.or.is_some() => "UPDATE OR …",
        () if update.output.is_some() => "OUTPUT of UPDATE: RETURNING",
        () => return Ok(Some(target)),
    };
    plan_err!("{what} is not supported")
}

/// The table of DELETE.
async fn deleted_from(delete: &Delete, within: &Within<'_>) -> Result<Option<Target>> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    let [TableWithJoins { relation: TableFactor::Table { name, alias, args: None, .. }, joins }] =
        from.as_slice()
    else {
        return Ok(None);
    };
    let Some(target) = within.target(name, alias.as_ref()).await? else { return Ok(None) };
    let what = match () {
        () if !joins.is_empty() || !delete.tables.is_empty() => "DELETE of a join: DELETE FROM t USING …",
        () if !delete.order_by.is_empty() || delete.limit.is_some() => "ORDER BY and LIMIT of DELETE",
        () if delete.output.is_some() => "OUTPUT of DELETE: RETURNING",
        () => return Ok(Some(target)),
    };
    plan_err!("{what} is not supported")
}

fn update_query(update: &Update, target: &Target, with: Option<&With>) -> Result<(Assignments, Query)> {
    let assignments = Assignments::of(&update.assignments, target)?;
    let others = match &update.from {
        Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) => from.clone(),
        None => vec![],
    };
    let from = [alone(target.factor())].into_iter().chain(others).collect();
    let columns = [target.number()].into_iter().chain(assignments.values.clone()).collect();
    Ok((assignments, query(columns, from, update.selection.clone(), with)))
}

async fn update(
    update: &Update,
    target: Target,
    (with, within): (Option<&With>, &Within<'_>),
) -> Result<RecordBatch> {
    let (assignments, query) = update_query(update, &target, with)?;
    let fields = assignments.fields(&target);
    let found = rows(within.queries, (query, &[target.relation()?]), (1, &fields)).await?;
    let mut changes = Changes::of(&target);
    // Of several partners of a row, the last one is taken.
    changes.update(&assignments.places, &found)?;
    let changed = changes.updated()?;
    let new = changes.marked(&changed)?;
    let turn = target.check(&new, &changes.untouched()?, within).await?;
    let answer =
        Returning::of(update.returning.as_deref(), &target.alias, new).answer(within.queries).await?;
    target.replace(changed, within).await?;
    drop(turn);
    Ok(answer)
}

fn delete_query(delete: &Delete, target: &Target, with: Option<&With>) -> Query {
    let others = delete.using.clone().unwrap_or_default();
    let from = [alone(target.factor())].into_iter().chain(others).collect();
    query(vec![target.number()], from, delete.selection.clone(), with)
}

async fn delete(
    delete: &Delete,
    target: Target,
    (with, within): (Option<&With>, &Within<'_>),
) -> Result<RecordBatch> {
    let query = delete_query(delete, &target, with);
    let found = rows(within.queries, (query, &[target.relation()?]), (1, &[])).await?;
    let mut changes = Changes::of(&target);
    changes.delete(&found)?;
    let returning = Returning::of(delete.returning.as_deref(), &target.alias, changes.removed()?);
    let turn = target.check(&target.rows.slice(0, 0), &changes.untouched()?, within).await?;
    let answer = returning.answer(within.queries).await?;
    target.replace(changes.kept(target.rows.columns())?, within).await?;
    drop(turn);
    Ok(answer)
}

async fn truncate(truncate: &Truncate, within: &Within<'_>) -> Result<Option<RecordBatch>> {
    let [table] = truncate.table_names.as_slice() else {
        return plan_err!("TRUNCATE takes one table");
    };
    let target = match within.target(&table.name, None).await? {
        Some(target) => target,
        None if truncate.if_exists && !exists(&table.name, within).await? => return count(0).map(Some),
        None => return Ok(None),
    };
    let none = target.rows.slice(0, 0);
    let turn = target.check(&none, &none, within).await?;
    target.replace(none.columns().to_vec(), within).await?;
    drop(turn);
    count(target.rows.num_rows()).map(Some)
}

async fn exists(name: &ObjectName, within: &Within<'_>) -> Result<bool> {
    let Some(reference) = reference_of(name) else { return Ok(false) };
    match within.state.schema_for_ref(reference.clone()) {
        Ok(schema) => Ok(schema.table(reference.table()).await?.is_some()),
        Err(_) => Ok(false),
    }
}

/// What becomes of the rows of a table.
struct Changes<'a> {
    target: &'a Target,
    columns: Vec<NewValues>,
    updated: Vec<bool>,
    deleted: Vec<bool>,
}

/// New values of a column.
#[derive(Clone, Default)]
struct NewValues {
    arrays: Vec<ArrayRef>,
    /// For each row the one that it takes, if any; empty where no row does.
    taken: Vec<Option<Taken>>,
}

/// A value among those of a column.
#[derive(Clone, Copy)]
struct Taken {
    array: usize,
    row: usize,
}

impl NewValues {
    /// The column with them.
    fn over(&self, before: &ArrayRef) -> Result<ArrayRef> {
        if self.taken.is_empty() {
            return Ok(Arc::clone(before));
        }
        let arrays: Vec<&dyn Array> = [before].into_iter().chain(&self.arrays).map(AsRef::as_ref).collect();
        let place = |(row, taken): (usize, &Option<Taken>)| match taken {
            Some(taken) => (taken.array + 1, taken.row),
            None => (0, row),
        };
        let places: Vec<(usize, usize)> = self.taken.iter().enumerate().map(place).collect();
        Ok(interleave(&arrays, &places)?)
    }
}

impl<'a> Changes<'a> {
    fn of(target: &'a Target) -> Changes<'a> {
        let count = target.rows.num_rows();
        let columns = vec![NewValues::default(); target.rows.num_columns()];
        Changes { target, columns, updated: vec![false; count], deleted: vec![false; count] }
    }

    /// Takes values of columns at some places. The first column that was found has the numbers of the rows, the others the values.
    fn update(&mut self, places: &[usize], found: &RecordBatch) -> Result<()> {
        let numbers = numbers_of(found)?;
        for (place, values) in places.iter().zip(found.columns().iter().skip(1)) {
            let column = &mut self.columns[*place];
            column.taken.resize(self.updated.len(), None);
            let array = column.arrays.len();
            for (row, number) in numbers.iter().enumerate() {
                column.taken[*number] = Some(Taken { array, row });
            }
            column.arrays.push(Arc::clone(values));
        }
        numbers.iter().for_each(|number| self.updated[*number] = true);
        Ok(())
    }

    fn delete(&mut self, found: &RecordBatch) -> Result<()> {
        numbers_of(found)?.iter().for_each(|number| self.deleted[*number] = true);
        Ok(())
    }

    /// Whether a row has been changed before.
    fn is_changed(&self, number: usize) -> bool {
        self.updated[number] || self.deleted[number]
    }

    /// All columns with their new values, those of rows that go as well.
    fn updated(&self) -> Result<Vec<ArrayRef>> {
        let columns = self.target.rows.columns().iter().zip(&self.columns);
        columns.map(|(before, new)| new.over(before)).collect()
    }

    /// The rows that were updated, of all columns.
    fn marked(&self, columns: &[ArrayRef]) -> Result<RecordBatch> {
        let all = RecordBatch::try_new(self.target.unchecked_schema(), columns.to_vec())?;
        Ok(filter_record_batch(&all, &BooleanArray::from(self.updated.clone()))?)
    }

    /// The rows that stay as they are.
    fn untouched(&self) -> Result<RecordBatch> {
        let stays = (0..self.updated.len()).map(|number| Some(!self.is_changed(number)));
        Ok(filter_record_batch(&self.target.rows, &BooleanArray::from_iter(stays))?)
    }

    fn removed(&self) -> Result<RecordBatch> {
        Ok(filter_record_batch(&self.target.rows, &BooleanArray::from(self.deleted.clone()))?)
    }

    /// The columns of the rows that stay.
    fn kept(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let stays = BooleanArray::from_iter(self.deleted.iter().map(|deleted| Some(!deleted)));
        let all = RecordBatch::try_new(self.target.unchecked_schema(), columns.to_vec())?;
        Ok(filter_record_batch(&all, &stays)?.columns().to_vec())
    }
}

/// The numbers of rows, which stand in the first column.
fn numbers_of(found: &RecordBatch) -> Result<Vec<usize>> {
    let numbers = found.column(0).as_primitive_opt::<Int64Type>();
    let numbers =
        numbers.map(|numbers| numbers.iter().flatten().map(|number| usize::try_from(number).ok()).collect());
    match numbers {
        Some(Some(numbers)) => Ok(numbers),
        _ => plan_err!("the rows to change have no numbers"),
    }
}
