//! `count(DISTINCT …)` of rows and lists beside other aggregates.
//!
//! DataFusion's keeps each value as an array of its own, and adds up what all of them take with every batch. Here a value is the bytes that
//! Arrow compares rows by.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

/// How many different values there are that are not NULL. Nobody writes its name, which stands in plans.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct CountDistinctRows {
    signature: Signature,
}

impl Default for CountDistinctRows {
    fn default() -> Self {
        CountDistinctRows { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl CountDistinctRows {
    /// Whether values of a type are counted so.
    pub(crate) fn counts(data_type: &DataType) -> bool {
        data_type.is_nested() && RowConverter::supports_fields(&[SortField::new(data_type.clone())])
    }
}

impl AggregateUDFImpl for CountDistinctRows {
    fn name(&self) -> &str {
        "count of distinct rows"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(0)))
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(field) = arguments.expr_fields.first() else { return exec_err!("a count of nothing") };
        let converter = RowConverter::new(vec![SortField::new(field.data_type().clone())])?;
        Ok(Box::new(DistinctRows { converter, known: HashSet::new(), bytes: 0 }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let element = Arc::new(Field::new_list_field(DataType::Binary, true));
        Ok(vec![Arc::new(Field::new(format!("{} rows", arguments.name), DataType::List(element), true))])
    }
}

#[derive(Debug)]
struct DistinctRows {
    converter: RowConverter,
    known: HashSet<Box<[u8]>>,
    /// What they take beside their places.
    bytes: usize,
}

impl DistinctRows {
    fn add(&mut self, row: &[u8]) {
        if !self.known.contains(row) {
            self.bytes += row.len();
            self.known.insert(row.into());
        }
    }
}

impl Accumulator for DistinctRows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let [values] = values else { return exec_err!("a count of one argument has {}", values.len()) };
        let rows = self.converter.convert_columns(std::slice::from_ref(values))?;
        let nulls = values.logical_nulls();
        for (place, row) in rows.iter().enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(place)) {
                self.add(row.as_ref());
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.known.len() as i64)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.known.capacity() * size_of::<Box<[u8]>>() + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let rows: Vec<ScalarValue> =
            self.known.iter().map(|row| ScalarValue::Binary(Some(row.to_vec()))).collect();
        Ok(vec![ScalarValue::List(ScalarValue::new_list_nullable(&rows, &DataType::Binary))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [rows] = states else { return exec_err!("distinct rows have one state") };
        for rows in rows.as_list::<i32>().iter().flatten() {
            let rows: &BinaryArray = rows.as_binary();
            rows.iter().flatten().for_each(|row| self.add(row));
        }
        Ok(())
    }
}
