//! Keys and references: queries over the new rows and those of a table.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, BooleanArray, Int64Array, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches, filter_record_batch};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::{Column, JoinType};
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_aggregate::expr_fn::{count, min};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::physical_plan::collect;

use super::conditions::values_of;
use super::rules::{Key, Reference, violated};

/// The column of a row's number.
const ROW: &str = "kelpie: row";
/// The relations of new rows, and of those that are compared with them.
const NEW: &str = "new_rows";
const OTHERS: &str = "other_rows";

/// Rows that come into a table.
pub(crate) struct NewRows<'a> {
    pub table: &'a str,
    pub rows: &'a [RecordBatch],
    pub schema: SchemaRef,
    pub state: &'a SessionState,
}

impl NewRows<'_> {
    /// An error where a key has the values of another row.
    pub async fn are_new(&self, key: &Key, others: Option<&LogicalPlan>) -> Result<()> {
        if self.rows.iter().all(|rows| rows.num_rows() == 0) {
            return Ok(());
        }
        let of_key = self.numbered(&key.columns)?;
        if !are_rising(&of_key, key.columns.len())
            && let Some(found) = self.twice(&of_key, &key.columns).await?
        {
            return Err(violated(key, self.table, &format!("{found} comes twice")));
        }
        let Some(others) = others else { return Ok(()) };
        match self.of_join(&of_key, (&key.columns, &key.columns), (others, JoinType::LeftSemi)).await? {
            Some(found) => Err(violated(key, self.table, &format!("there is a row with {found} already"))),
            None => Ok(()),
        }
    }

    /// An error where a row names one that another table does not have.
    pub async fn are_there(&self, reference: &Reference, others: &LogicalPlan) -> Result<()> {
        let rows = self.numbered(&reference.columns)?;
        let columns = (reference.columns.as_slice(), reference.to.as_slice());
        match self.of_join(&rows, columns, (others, JoinType::LeftAnti)).await? {
            Some(found) => {
                let why = format!("there is no row of {} for {found}", reference.table);
                Err(violated(reference, self.table, &why))
            }
            None => Ok(()),
        }
    }

    /// The columns of a key, with the rows' numbers.
    fn numbered(&self, columns: &[String]) -> Result<Vec<RecordBatch>> {
        numbered(self.rows, &self.schema, columns)
    }

    /// The first values that come more than once.
    async fn twice(&self, rows: &[RecordBatch], columns: &[String]) -> Result<Option<String>> {
        let keys: Vec<Expr> = columns.iter().map(|column| of(NEW, column)).collect();
        let (times, first) = (count(lit(1)), min(of(NEW, ROW)));
        let groups = || -> Result<LogicalPlanBuilder> {
            scan(NEW, rows)?.filter(all_there(columns))?.aggregate(keys.clone(), [times.clone()])
        };
        // Few plans with two aggregates: which of them comes first is looked for where there is one.
        let times_of = Expr::Column(Column::from_name(times.schema_name().to_string()));
        let any = groups()?.filter(times_of.clone().gt(lit(1)))?.limit(0, Some(1))?.build()?;
        if first_row(self.state, &any).await?.is_none() {
            return Ok(None);
        }
        let first_of = Expr::Column(Column::from_name(first.schema_name().to_string()));
        let plan = scan(NEW, rows)?
            .filter(all_there(columns))?
            .aggregate(keys, [times, first])?
            .filter(times_of.gt(lit(1)))?
            .sort_with_limit([first_of.sort(true, false)], Some(1))?
            .build()?;
        let found = first_row(self.state, &plan).await?;
        found.map(|row| values_of(&row, &(0..columns.len()).collect::<Vec<_>>(), 0)).transpose()
    }

    /// The first row that has a partner among others, or that has none.
    async fn of_join(
        &self,
        rows: &[RecordBatch],
        (columns, to): (&[String], &[String]),
        (others, kind): (&LogicalPlan, JoinType),
    ) -> Result<Option<String>> {
        let plan = partners(scan(NEW, rows)?, (columns, to), (others, kind))?
            .sort_with_limit([of(NEW, ROW).sort(true, false)], Some(1))?
            .build()?;
        let found = first_row(self.state, &plan).await?;
        found.map(|row| values_of(&row, &(0..columns.len()).collect::<Vec<_>>(), 0)).transpose()
    }
}

/// Rows that have a partner among others, or none; those without a value have neither.
fn partners(
    rows: LogicalPlanBuilder,
    (columns, to): (&[String], &[String]),
    (others, kind): (&LogicalPlan, JoinType),
) -> Result<LogicalPlanBuilder> {
    let names = |columns: &[String], of: &str| -> Vec<Column> {
        columns.iter().map(|column| Column::new(Some(of), column)).collect()
    };
    let others = LogicalPlanBuilder::from(others.clone())
        .project(to.iter().map(|column| Expr::Column(Column::from_name(column))))?
        .alias(OTHERS)?
        .build()?;
    rows.filter(all_there(columns))?.join(others, kind, (names(columns, NEW), names(to, OTHERS)), None)
}

/// The rows without those that have a partner, in their order.
pub(crate) async fn without_partners(
    rows: &RecordBatch,
    columns: &[String],
    (others, state): (&LogicalPlan, &SessionState),
) -> Result<RecordBatch> {
    let with_numbers = numbered(std::slice::from_ref(rows), &rows.schema(), columns)?;
    let plan =
        partners(scan(NEW, &with_numbers)?, (columns, columns), (others, JoinType::LeftSemi))?.build()?;
    let mut stays = vec![true; rows.num_rows()];
    for found in run(state, &plan).await? {
        let numbers = found.column(found.num_columns() - 1).as_primitive::<Int64Type>();
        for number in numbers.values().iter().filter_map(|number| usize::try_from(*number).ok()) {
            stays[number] = false;
        }
    }
    Ok(filter_record_batch(rows, &BooleanArray::from(stays))?)
}

/// Some columns of rows, that may be NULL, and the numbers of the rows behind them.
fn numbered(rows: &[RecordBatch], schema: &SchemaRef, columns: &[String]) -> Result<Vec<RecordBatch>> {
    let places = columns.iter().map(|column| Ok(schema.index_of(column)?));
    let places: Vec<usize> = places.collect::<Result<_>>()?;
    let fields = places.iter().map(|place| schema.field(*place).clone().with_nullable(true));
    let fields: Vec<Field> = fields.chain([Field::new(ROW, DataType::Int64, false)]).collect();
    let with_numbers = Arc::new(Schema::new(fields));
    let mut first = 0;
    let mut all = Vec::with_capacity(rows.len());
    for rows in rows {
        let last = first + rows.num_rows() as i64;
        let mut columns = Vec::with_capacity(places.len() + 1);
        for place in &places {
            columns.push(cast(rows.column(*place), schema.field(*place).data_type())?);
        }
        columns.push(Arc::new(Int64Array::from_iter_values(first..last)));
        all.push(RecordBatch::try_new(Arc::clone(&with_numbers), columns)?);
        first = last;
    }
    Ok(all)
}

/// Whether the values of a key that is one column of whole numbers rise from row to row, so that none comes twice.
fn are_rising(rows: &[RecordBatch], columns: usize) -> bool {
    let mut before = None;
    columns == 1
        && rows.iter().all(|rows| {
            let column = rows.column(0);
            if !column.data_type().is_signed_integer() || column.null_count() > 0 {
                return false;
            }
            let Ok(numbers) = cast(column, &DataType::Int64) else { return false };
            let numbers = numbers.as_primitive::<Int64Type>().values();
            let Some((first, last)) = numbers.first().zip(numbers.last()) else { return true };
            let goes_on = before.is_none_or(|before| before < *first);
            before = Some(*last);
            goes_on && numbers.is_sorted_by(|one, next| one < next)
        })
}

fn of(relation: &str, column: &str) -> Expr {
    Expr::Column(Column::new(Some(relation), column))
}

/// That all columns of a key have values.
fn all_there(columns: &[String]) -> Expr {
    let there = columns.iter().map(|column| of(NEW, column).is_not_null());
    there.reduce(Expr::and).unwrap_or_else(|| lit(true))
}

fn scan(name: &str, rows: &[RecordBatch]) -> Result<LogicalPlanBuilder> {
    let schema = rows.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    let table = MemTable::try_new(schema, vec![rows.to_vec()])?;
    LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(table)), None)
}

async fn run(state: &SessionState, plan: &LogicalPlan) -> Result<Vec<RecordBatch>> {
    let plan = state.create_physical_plan(plan).await?;
    collect(plan, Arc::new(TaskContext::from(state))).await
}

async fn first_row(state: &SessionState, plan: &LogicalPlan) -> Result<Option<RecordBatch>> {
    let rows = run(state, plan).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let all = concat_batches(&first.schema(), &rows).map_err(DataFusionError::from)?;
    Ok((all.num_rows() > 0).then(|| all.slice(0, 1)))
}

/// The first values by which rows name others that are not there.
pub(super) async fn lost(
    reference: &Reference,
    (rows, there): (&LogicalPlan, &LogicalPlan),
    state: &SessionState,
) -> Result<Option<String>> {
    let columns: Vec<Expr> =
        reference.columns.iter().map(|column| Expr::Column(Column::from_name(column))).collect();
    let rows = LogicalPlanBuilder::from(rows.clone()).project(columns)?.alias(NEW)?;
    let plan = partners(rows, (&reference.columns, &reference.to), (there, JoinType::LeftAnti))?;
    let found = first_row(state, &plan.limit(0, Some(1))?.build()?).await?;
    found.map(|row| values_of(&row, &(0..reference.columns.len()).collect::<Vec<_>>(), 0)).transpose()
}
