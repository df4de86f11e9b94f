//! Aggregates of how often each value comes: the most frequent one, all of them, and how much there is to know.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray, UInt64Array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{sort_to_indices, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Int64Type};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};

use super::histograms::Histograms;

/// What is made of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    /// The most frequent value that is not NULL; of several the one that came first.
    Mode,
    /// A map of the values.
    Histogram,
    /// In bits.
    Entropy,
}

/// `mode`, `histogram` or `entropy`; of values, or of values that were counted before.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    name: &'static str,
    what: What,
    /// Behind a value stands how many rows have it.
    is_of_counts: bool,
    signature: Signature,
}

impl Counted {
    /// All of them. Nobody writes the names of those of counts, which stand in plans.
    pub fn all() -> [Counted; 5] {
        [
            ("mode", What::Mode, false),
            ("histogram", What::Histogram, false),
            ("entropy", What::Entropy, false),
            ("histogram of counts", What::Histogram, true),
            ("entropy of counts", What::Entropy, true),
        ]
        .map(|(name, what, is_of_counts)| {
            let arguments = 1 + usize::from(is_of_counts);
            Counted { name, what, is_of_counts, signature: Signature::any(arguments, Volatility::Immutable) }
        })
    }

    /// The same of values that were counted before.
    pub fn of_counts(&self) -> Option<Counted> {
        let is_it = |other: &Counted| !self.is_of_counts && other.is_of_counts && other.what == self.what;
        Counted::all().into_iter().find(is_it)
    }

    /// Whether it is the most frequent value.
    pub(crate) fn is_mode(&self) -> bool {
        self.what == What::Mode
    }
}

/// The entries of a histogram, and their columns.
pub(super) fn entries_of(values: &DataType) -> (FieldRef, Fields) {
    let fields: Fields =
        vec![Field::new("key", values.clone(), false), Field::new("value", DataType::UInt64, true)].into();
    (Arc::new(Field::new("entries", DataType::Struct(fields.clone()), false)), fields)
}

fn histogram_type(values: &DataType) -> DataType {
    DataType::Map(entries_of(values).0, false)
}

impl AggregateUDFImpl for Counted {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let value = match arguments {
            [value] if !self.is_of_counts => value,
            [value, DataType::Int64] if self.is_of_counts => value,
            _ => return plan_err!("{} takes one argument", self.name),
        };
        match self.what {
            What::Mode => Ok(value.clone()),
            What::Histogram if value.is_nested() => {
                plan_err!("histogram: values of type {value} have no order")
            }
            What::Histogram => Ok(histogram_type(value)),
            What::Entropy => Ok(DataType::Float64),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let Some(field) = arguments.expr_fields.first() else { return exec_err!("{} of nothing", self.name) };
        let data_type = field.data_type().clone();
        let is_distinct = arguments.is_distinct;
        Ok(Box::new(Counts { what: self.what, data_type, is_distinct, counts: HashMap::new(), bytes: 0 }))
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        let is_compared =
            |field: &FieldRef| RowConverter::supports_fields(&[SortField::new(field.data_type().clone())]);
        self.what == What::Histogram && arguments.expr_fields.first().is_some_and(is_compared)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let Some(field) = arguments.expr_fields.first() else { return exec_err!("{} of nothing", self.name) };
        Ok(Box::new(Histograms::new(field.data_type().clone(), arguments.is_distinct)))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let Some(field) = arguments.input_fields.first() else {
            return exec_err!("{} of nothing", self.name);
        };
        let list = |name: &str, data_type: DataType| {
            let element = Arc::new(Field::new_list_field(data_type, true));
            Arc::new(Field::new(format!("{} {name}", arguments.name), DataType::List(element), true))
        };
        Ok(vec![list("values", field.data_type().clone()), list("counts", DataType::Int64)])
    }
}

/// How often each value has come.
#[derive(Debug)]
struct Counts {
    what: What,
    /// The type of the values.
    data_type: DataType,
    /// Whether a value counts once.
    is_distinct: bool,
    counts: HashMap<ScalarValue, Count>,
    /// What the values take beside their places in the map.
    bytes: usize,
}

#[derive(Debug)]
struct Count {
    rows: i64,
    /// How many others were there before.
    place: usize,
}

impl Counts {
    fn add(&mut self, values: &dyn Array, rows: impl Fn(usize) -> i64) -> Result<()> {
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let mut value = ScalarValue::try_from_array(values, row)?;
            value.compact();
            let place = self.counts.len();
            if let Some(known) = self.counts.get_mut(&value) {
                known.rows = if self.is_distinct { 1 } else { known.rows + rows(row) };
            } else {
                self.bytes += value.size() - size_of::<ScalarValue>();
                self.counts
                    .insert(value, Count { rows: if self.is_distinct { 1 } else { rows(row) }, place });
            }
        }
        Ok(())
    }

    fn mode(&self) -> Result<ScalarValue> {
        let most = self.counts.iter().max_by_key(|(_, count)| (count.rows, std::cmp::Reverse(count.place)));
        match most {
            Some((value, _)) => Ok(value.clone()),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    /// The values in their order, each with how often it has come.
    fn histogram(&self) -> Result<ScalarValue> {
        if self.counts.is_empty() {
            return ScalarValue::try_from(&histogram_type(&self.data_type));
        }
        let keys = ScalarValue::iter_to_array(self.counts.keys().cloned())?;
        let counts: UInt64Array = self.counts.values().map(|count| count.rows as u64).collect();
        let order = sort_to_indices(&keys, None, None)?;
        let columns = vec![take(&keys, &order, None)?, take(&counts, &order, None)?];
        let (entries, fields) = entries_of(&self.data_type);
        let columns = StructArray::try_new(fields, columns, None)?;
        let lengths = OffsetBuffer::from_lengths([columns.len()]);
        Ok(ScalarValue::Map(Arc::new(MapArray::try_new(entries, lengths, columns, None, false)?)))
    }

    fn entropy(&self) -> ScalarValue {
        let rows: i64 = self.counts.values().map(|count| count.rows).sum();
        let part = |count: &Count| count.rows as f64 / rows as f64;
        let mut parts: Vec<f64> = self.counts.values().map(part).collect();
        // One order of the sum, whatever the map's is.
        parts.sort_by(f64::total_cmp);
        ScalarValue::from(parts.into_iter().map(|part| -part * part.log2()).sum::<f64>() + 0.0)
    }

    fn in_order(&self) -> Vec<(&ScalarValue, &Count)> {
        let mut all: Vec<_> = self.counts.iter().collect();
        all.sort_by_key(|(_, count)| count.place);
        all
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values] => self.add(values, |_| 1),
            [values, rows] => {
                let rows = rows.as_primitive::<Int64Type>();
                self.add(values, |row| rows.value(row))
            }
            _ => exec_err!("an aggregate of one argument has {}", values.len()),
        }
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        match self.what {
            What::Mode => self.mode(),
            What::Histogram => self.histogram(),
            What::Entropy => Ok(self.entropy()),
        }
    }

    fn size(&self) -> usize {
        let entry = size_of::<ScalarValue>() + size_of::<Count>();
        size_of_val(self) + self.counts.capacity() * entry + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.in_order();
        let values: Vec<ScalarValue> = all.iter().map(|(value, _)| (*value).clone()).collect();
        let counts: Vec<ScalarValue> = all.iter().map(|(_, count)| ScalarValue::from(count.rows)).collect();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.data_type)),
            ScalarValue::List(ScalarValue::new_list_nullable(&counts, &DataType::Int64)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else { return exec_err!("counts of values have two states") };
        let (values, counts) = (values.as_list::<i32>(), counts.as_list::<i32>());
        for (values, counts) in values.iter().zip(counts.iter()) {
            if let (Some(values), Some(counts)) = (values, counts) {
                let counts = counts.as_primitive::<Int64Type>();
                self.add(values.as_ref(), |row| counts.value(row))?;
            }
        }
        Ok(())
    }
}
