//! A table with a row for each element of its lists (SQL's UNNEST).
//!
//! Lists do not compile. But the rows that UNNEST makes of a table's lists are the same each time, and where the elements are scalars or
//! texts they are rows like those of any table: they are made as the table is read, and their columns are kept.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, ListArray, RecordBatch, RecordBatchOptions, UInt64Array,
};
use datafusion::arrow::compute::{cast, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::NullHandling;
use datafusion::error::Result;
use kelpie_engine::EngineError;
use kelpie_engine::error::FallbackReason;

use crate::derived::Derived;

/// Rows are handed on in pieces of about so many.
const PIECE_ROWS: usize = 32_768;

/// Lists that become rows. Rows of several lists go side by side; the shorter ones are filled up with NULL.
#[derive(Debug, Clone)]
pub(crate) struct Unnested {
    /// Over the columns of the table's data.
    lists: Vec<Derived>,
    /// Columns of the data; the elements follow them.
    width: usize,
    /// What becomes of rows whose lists are NULL or empty.
    nulls: NullHandling,
}

impl Unnested {
    /// Lists over a table's columns, or why their elements are no columns.
    pub fn new(lists: Vec<Derived>, width: usize, nulls: NullHandling) -> Result<Unnested, String> {
        match lists.iter().find(|list| element(list.field().data_type()).is_none()) {
            Some(list) => Err(format!("{} is no list", list.field().name())),
            None => Ok(Unnested { lists, width, nulls }),
        }
    }

    /// Where the elements of a list are among the table's columns.
    pub fn place(&self, list: usize) -> usize {
        self.width + list
    }

    /// The elements as columns.
    pub fn fields(&self) -> impl Iterator<Item = FieldRef> {
        self.lists.iter().filter_map(|list| {
            let element = element(list.field().data_type())?;
            let name = format!("unnest({})", list.field().name());
            Some(Arc::new(Field::new(name, element.data_type().clone(), true)))
        })
    }

    /// What tells it from other lists over the same data; nothing where it is another for each query.
    pub fn key(&self) -> Option<String> {
        let lists = self.lists.iter().map(Derived::key).collect::<Option<Vec<_>>>()?;
        Some(format!("unnest {lists:?} {:?}", self.nulls))
    }

    /// The columns of the data, ascending, that are read for some of the table's.
    pub fn read_for(&self, columns: &[usize]) -> Vec<usize> {
        let own = columns.iter().filter(|column| **column < self.width);
        let mut read: Vec<usize> = own.chain(self.lists.iter().flat_map(Derived::columns)).copied().collect();
        read.sort_unstable();
        read.dedup();
        read
    }

    /// Hands on the rows that a batch of the columns `read` of the data becomes, with the table's `columns`.
    pub fn unnest(
        &self,
        batch: &RecordBatch,
        (read, columns): (&[usize], &[usize]),
        hand_on: &dyn Fn(RecordBatch) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let place = |column: &usize| {
            read.binary_search(column)
                .map_err(|_| EngineError::Internal(format!("column {column} was not read")))
        };
        let lists = self.lists.iter().map(|list| {
            let places = list.columns().iter().map(place).collect::<Result<Vec<_>, _>>()?;
            lists_of(list, &batch.project(&places)?)
        });
        let lists = lists.collect::<Result<Vec<ListArray>, EngineError>>()?;
        let lengths: Vec<usize> = (0..batch.num_rows()).map(|row| self.length(&lists, row)).collect();
        let schema = self.schema(batch, (read, columns), &lists)?;
        let mut first = 0;
        while first < lengths.len() {
            let piece = Piece::of(&lengths, first);
            let repeated = piece.repeated(&lengths);
            let values = columns.iter().map(|column| match column.checked_sub(self.width) {
                None => Ok(take(batch.column(place(column)?), &repeated, None)?),
                Some(list) => match lists.get(list) {
                    Some(list) => Ok(piece.elements(list, &lengths)?),
                    None => Err(EngineError::Internal(format!("no list gives column {column}"))),
                },
            });
            let values = values.collect::<Result<Vec<ArrayRef>, EngineError>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(piece.total));
            hand_on(RecordBatch::try_new_with_options(Arc::clone(&schema), values, &options)?)?;
            first = piece.rows.end;
        }
        Ok(())
    }

    /// Rows that a row becomes.
    fn length(&self, lists: &[ListArray], row: usize) -> usize {
        let (of_null, of_empty) = match self.nulls {
            NullHandling::Drop => (0, 0),
            NullHandling::Preserve => (1, 0),
            NullHandling::PreserveAndExpandEmpty => (1, 1),
        };
        let of = |list: &ListArray| match list.is_null(row) {
            true => of_null,
            false => (list.value_length(row) as usize).max(of_empty),
        };
        lists.iter().map(of).max().unwrap_or(0)
    }

    /// Of the batches that are handed on: columns come in the types that they were read in.
    fn schema(
        &self,
        batch: &RecordBatch,
        (read, columns): (&[usize], &[usize]),
        lists: &[ListArray],
    ) -> Result<SchemaRef, EngineError> {
        let own = batch.schema();
        let field = |column: &usize| match column.checked_sub(self.width) {
            None => read.binary_search(column).ok().map(|place| Arc::clone(&own.fields()[place])),
            Some(list) => {
                let data_type = lists.get(list)?.value_type();
                Some(Arc::new(Field::new(format!("element {list}"), data_type, true)))
            }
        };
        let fields = columns.iter().map(field).collect::<Option<Vec<_>>>();
        let fields = fields.ok_or_else(|| EngineError::Internal("a column was not read".into()))?;
        Ok(Arc::new(Schema::new(fields)))
    }
}

/// What a list has.
fn element(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => Some(field),
        _ => None,
    }
}

/// The lists of a batch. An error may be that of a row which the query does not ask for: DataFusion's operators decide.
fn lists_of(list: &Derived, inputs: &RecordBatch) -> Result<ListArray, EngineError> {
    let values = list.evaluate(inputs).map_err(|error| {
        let (expression, error) = (list.field().name().clone(), error.strip_backtrace());
        EngineError::from(FallbackReason::Derived { expression, error })
    })?;
    let plain = match element(values.data_type()) {
        Some(element) => cast(&values, &DataType::List(Arc::clone(element)))?,
        None => values,
    };
    match plain.as_list_opt::<i32>() {
        Some(lists) => Ok(lists.clone()),
        None => Err(EngineError::Internal(format!("{} gave no lists", list.field().name()))),
    }
}

/// Rows of a batch that are unnested together.
struct Piece {
    rows: Range<usize>,
    /// How many rows they become.
    total: usize,
}

impl Piece {
    /// From a row on.
    fn of(lengths: &[usize], first: usize) -> Piece {
        let (mut end, mut total) = (first, 0);
        for length in lengths.iter().skip(first) {
            if end > first && total + length > PIECE_ROWS {
                break;
            }
            total += length;
            end += 1;
        }
        Piece { rows: first..end, total }
    }

    fn lengths<'a>(&self, lengths: &'a [usize]) -> impl Iterator<Item = (usize, usize)> + 'a {
        self.rows.clone().zip(lengths.iter().skip(self.rows.start).copied())
    }

    /// Each row's number, as often as it has elements.
    fn repeated(&self, lengths: &[usize]) -> UInt64Array {
        let mut rows = Vec::with_capacity(self.total);
        for (row, length) in self.lengths(lengths) {
            rows.extend(std::iter::repeat_n(row as u64, length));
        }
        rows.into()
    }

    /// The elements of a list, with NULL where it has fewer than its row becomes rows.
    fn elements(&self, list: &ListArray, lengths: &[usize]) -> Result<ArrayRef, EngineError> {
        let offsets = list.value_offsets();
        let begin = |row: usize| offsets.get(row).map_or(0, |offset| *offset as usize);
        let own = |row: usize| if list.is_null(row) { 0 } else { begin(row + 1) - begin(row) };
        let is_whole = |(row, length)| length == begin(row + 1) - begin(row) && length == own(row);
        if self.lengths(lengths).all(is_whole) {
            return Ok(list.values().slice(begin(self.rows.start), self.total));
        }
        let mut places = Vec::with_capacity(self.total);
        for (row, length) in self.lengths(lengths) {
            let (first, own) = (begin(row), own(row));
            places.extend((0..length).map(|place| (place < own).then(|| (first + place) as u64)));
        }
        Ok(take(list.values(), &UInt64Array::from(places), None)?)
    }
}
