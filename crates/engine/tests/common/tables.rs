//! Tables in memory, and plans that scan them.

use std::ops::Range;

use kelpie_engine::source::BatchConsumer;

use super::*;

/// Batches in memory, one a partition; at least one.
#[derive(Debug)]
pub struct Table(pub Vec<RecordBatch>);

impl TableSource for Table {
    fn name(&self) -> String {
        "t".into()
    }
    fn schema(&self) -> arrow::datatypes::SchemaRef {
        self.0[0].schema()
    }
    fn identity(&self) -> Option<String> {
        None
    }
    fn exact_rows(&self) -> Option<u64> {
        None
    }
    fn partitions(&self) -> usize {
        self.0.len()
    }
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        _: &CancelToken,
    ) -> Result<(), EngineError> {
        for (partition, batch) in self.0.iter().enumerate() {
            consumer(partition, batch.project(columns)?)?;
        }
        Ok(())
    }
}

/// A column of a table: its name, its type, and whether there may be NULLs.
pub type Column = (&'static str, DataType, bool);

pub fn fields_of(columns: &[Column]) -> Vec<Field> {
    let field = |(name, data_type, nullable): &Column| Field {
        name: (*name).into(),
        data_type: data_type.clone(),
        nullable: *nullable,
    };
    columns.iter().map(field).collect()
}

pub fn scan_of(source: usize, columns: &[Column]) -> Plan {
    let all = (0..columns.len()).collect();
    Plan::Scan(Scan { source, table: "t".into(), columns: all, fields: fields_of(columns) })
}

/// A column of such a table.
pub fn column_of(columns: &[Column], index: usize) -> Expr {
    let (_, data_type, nullable) = columns[index].clone();
    Expr::column(index, data_type, nullable)
}

pub fn batch_of(columns: &[Column], arrays: Vec<ArrayRef>) -> RecordBatch {
    let field = |((name, _, nullable), array): (&Column, &ArrayRef)| {
        ArrowField::new(*name, array.data_type().clone(), *nullable)
    };
    let schema = Schema::new(columns.iter().zip(&arrays).map(field).collect::<Vec<_>>());
    RecordBatch::try_new(Arc::new(schema), arrays).expect("a batch")
}

pub fn table_of(columns: &[Column], arrays: Vec<ArrayRef>) -> Arc<Table> {
    Arc::new(Table(vec![batch_of(columns, arrays)]))
}

/// A table, and the plan that scans it.
pub fn scanned(columns: Vec<(&'static str, DataType, bool, ArrayRef)>) -> (Arc<Table>, Plan) {
    let split = |(name, data_type, nullable, array)| ((name, data_type, nullable), array);
    let (columns, arrays): (Vec<Column>, Vec<ArrayRef>) = columns.into_iter().map(split).unzip();
    (table_of(&columns, arrays), scan_of(0, &columns))
}

/// A column of keys, the only one of its table.
pub const KEY: [Column; 1] = [("k", DataType::Int64, true)];

/// The table of such a column.
pub fn keys_alone(keys: impl IntoIterator<Item = i64>) -> Arc<Table> {
    table_of(&KEY, vec![maybe_longs(keys.into_iter().map(Some))])
}

/// So many rows in batches, each made of the numbers of its rows; where there are no rows, one batch of none.
pub fn in_batches(
    rows: usize,
    batches: usize,
    mut batch: impl FnMut(Range<usize>) -> RecordBatch,
) -> Arc<Table> {
    let length = rows.div_ceil(batches).max(1);
    let firsts = (0..rows.max(1)).step_by(length);
    Arc::new(Table(firsts.map(|first| batch(first..(first + length).min(rows))).collect()))
}

/// A column without NULLs, of 64-bit integers.
pub fn longs(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// A column of 64-bit integers.
pub fn maybe_longs(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(values))
}

/// A column without NULLs, of 32-bit integers.
pub fn ints(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

/// A column of 32-bit integers.
pub fn maybe_ints(values: impl IntoIterator<Item = Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from_iter(values))
}

/// A column without NULLs, of doubles.
pub fn doubles(values: impl IntoIterator<Item = f64>) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(values))
}

/// A column without NULLs, of texts.
pub fn texts(values: impl IntoIterator<Item = impl AsRef<str>>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

/// A column of texts.
pub fn maybe_texts(values: impl IntoIterator<Item = Option<impl AsRef<str>>>) -> ArrayRef {
    Arc::new(StringArray::from_iter(values))
}

/// A column of decimals.
pub fn decimals(
    values: impl IntoIterator<Item = impl Into<Option<i128>>>,
    precision: u8,
    scale: i8,
) -> ArrayRef {
    let array = Decimal128Array::from_iter(values.into_iter().map(Into::into));
    Arc::new(array.with_precision_and_scale(precision, scale).expect("decimals"))
}
