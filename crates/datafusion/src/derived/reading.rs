//! Reading a table with derived columns: batches of stored columns become batches of the columns that are asked for.
//!
//! A table may be *narrowed* to the rows that some conditions hold for: those that a plan's filters let through anyway.
//! Expressions are then computed for these rows only, as DataFusion's own operators would do it, and fail on no other.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::error::Result;
use kelpie_engine::EngineError;
use kelpie_engine::error::FallbackReason;

use super::Derived;
use super::dictionaries::DictionaryValues;
use crate::source::ScanTable;

/// What is read of a table, and what is made of it.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    table: &'a ScanTable,
    /// The columns that are asked for, by position: the derived ones follow the stored ones.
    columns: &'a [usize],
    schema: SchemaRef,
    /// Positions of the stored columns that it takes, ascending.
    stored: Vec<usize>,
    dictionaries: DictionaryValues,
}

impl<'a> Reading<'a> {
    /// Reads columns of a table; `schema` has all that it has, the derived ones too.
    pub(crate) fn new(
        table: &'a ScanTable,
        schema: &SchemaRef,
        columns: &'a [usize],
    ) -> Result<Reading<'a>, EngineError> {
        let width = table.stored().fields().len();
        let schema = Arc::new(schema.project(columns)?);
        let of_columns = columns.iter().flat_map(|column| match column.checked_sub(width) {
            None => std::slice::from_ref(column),
            Some(derived) => table.derived().get(derived).map_or(&[][..], Derived::columns),
        });
        let of_conditions = table.conditions().iter().flat_map(Derived::columns);
        let mut stored: Vec<usize> = of_columns.chain(of_conditions).copied().collect();
        stored.sort_unstable();
        stored.dedup();
        Ok(Reading { table, columns, schema, stored, dictionaries: DictionaryValues::default() })
    }

    /// Whether what it takes may come in whatever form it is read: nothing is computed but of texts.
    pub(crate) fn takes_any_form(&self) -> bool {
        let width = self.table.stored().fields().len();
        let places = self.columns.iter().filter_map(|column| column.checked_sub(width));
        let mut derived = places.filter_map(|place| self.table.derived().get(place));
        self.table.conditions().is_empty() && derived.all(Derived::reads_texts)
    }

    /// Positions of the stored columns that it takes, ascending.
    pub(crate) fn stored(&self) -> &[usize] {
        &self.stored
    }

    /// The columns that are asked for, of the rows of a batch of the stored ones that the table is narrowed to.
    pub(crate) fn made_of(&self, mut batch: RecordBatch) -> Result<RecordBatch, EngineError> {
        for condition in self.table.conditions() {
            let holds = self.computed(condition, &batch, None)?;
            let holds = holds.as_boolean_opt().ok_or_else(|| {
                EngineError::Internal(format!("{} is not a condition", condition.field().name()))
            })?;
            batch = filter_record_batch(&batch, holds)?;
        }
        let width = self.table.stored().fields().len();
        let values = self.columns.iter().map(|column| match column.checked_sub(width) {
            None => Ok(Arc::clone(batch.column(self.place(*column)?))),
            Some(derived) => match self.table.derived().get(derived) {
                Some(expression) => self.computed(expression, &batch, Some(derived)),
                None => Err(EngineError::Internal(format!("{} has no such column", self.table.name()))),
            },
        });
        let values = values.collect::<Result<Vec<_>, EngineError>>()?;
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let fields = self.schema.fields().iter().zip(&values);
        let fields: Vec<_> = fields
            .map(|(field, values)| match values.data_type() == field.data_type() {
                true => Arc::clone(field),
                false => Arc::new(field.as_ref().clone().with_data_type(values.data_type().clone())),
            })
            .collect();
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), values, &rows)?)
    }

    /// The values of an expression over a batch of the stored columns, with its number where it is a column. An error may be that of a row
    /// which the query does not ask for: DataFusion's operators decide.
    fn computed(
        &self,
        derived: &Derived,
        batch: &RecordBatch,
        number: Option<usize>,
    ) -> Result<ArrayRef, EngineError> {
        let inputs = derived.columns().iter().map(|column| self.place(*column));
        let inputs = batch.project(&inputs.collect::<Result<Vec<_>, _>>()?)?;
        if let (Some(number), [column]) = (number, inputs.columns())
            && let Some(values) = self.dictionaries.evaluate((number, derived), column)?
        {
            return Ok(values);
        }
        derived.evaluate(&inputs).map_err(|error| {
            let reason = error.strip_backtrace();
            derived.failed(self.table.identity(), &reason);
            FallbackReason::Derived { expression: derived.field().name().clone(), error: reason }.into()
        })
    }

    /// Where a stored column is in the batches that are read.
    fn place(&self, column: usize) -> Result<usize, EngineError> {
        let missing = |_| EngineError::Internal(format!("column {column} was not read"));
        self.stored.binary_search(&column).map_err(missing)
    }
}
