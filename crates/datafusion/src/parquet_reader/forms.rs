//! In which of Arrow's forms a column is read: the cheapest that the engine stores it from.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::parquet::arrow::{ProjectionMask, parquet_to_arrow_schema};
use datafusion::parquet::basic::{Encoding, Type};
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

use super::integers::Integers;

/// A column of a table as it stands in a file.
#[derive(Debug, Clone)]
pub(super) struct FileColumn {
    pub(super) name: String,
    /// Which of the file's columns it is, at the top and among the leaves.
    root: usize,
    pub(super) leaf: usize,
    pub(super) read: Read,
    /// The table's type.
    data_type: DataType,
}

/// What reads a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    /// Its pages are: of integers.
    Pages(Integers),
    /// Arrow's reader; which of the columns that it gives.
    Arrow(usize),
}

/// The columns of a file.
#[derive(Debug, Clone)]
pub(super) struct FileColumns {
    /// As they are read where nothing is known of a row group.
    schema: SchemaRef,
    /// Those that are wanted, in the order in which they are.
    pub(super) wanted: Vec<FileColumn>,
}

impl FileColumns {
    /// Finds columns of a table in a file. `None` where one of them must be adapted: it has another name or is missing, or a
    /// type that is more than another form of the table's.
    pub(super) fn find(metadata: &ParquetMetaData, wanted: &[FieldRef]) -> Option<FileColumns> {
        let file = metadata.file_metadata();
        let parquet = file.schema_descr();
        let schema = parquet_to_arrow_schema(parquet, file.key_value_metadata()).ok()?;
        let find = |field: &FieldRef| {
            let mut named = schema.fields().iter().enumerate().filter(|(_, own)| own.name() == field.name());
            let (root, own) = named.next()?;
            if named.next().is_some() {
                return None;
            }
            let leaf = (0..parquet.num_columns()).find(|leaf| parquet.get_column_root_idx(*leaf) == root)?;
            let column = parquet.column(leaf);
            if column.max_rep_level() > 0 || !parquet.get_column_root(leaf).is_primitive() {
                return None;
            }
            let data_type = field.data_type().clone();
            let physical = column.physical_type();
            let read = Integers::of(&data_type, physical).map_or(Read::Arrow(0), Read::Pages);
            is_form_of(own.data_type(), &data_type, physical).then_some(FileColumn {
                name: own.name().clone(),
                root,
                leaf,
                read,
                data_type,
            })
        };
        let mut wanted = wanted.iter().map(find).collect::<Option<Vec<_>>>()?;
        // The reader gives each column once, in the order in which the file has them.
        let roots: BTreeSet<usize> = wanted.iter().filter_map(FileColumn::of_arrow).collect();
        for column in &mut wanted {
            if let Read::Arrow(place) = &mut column.read {
                *place = roots.range(..column.root).count();
            }
        }
        Some(FileColumns { schema: schema.into(), wanted })
    }

    /// The schema by which the reader reads a row group.
    pub(super) fn schema(&self, group: &RowGroupMetaData) -> SchemaRef {
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        for column in &self.wanted {
            if let Some(field) = fields.get_mut(column.root) {
                let form = cheapest(&column.data_type, group.column(column.leaf));
                *field = field.as_ref().clone().with_data_type(form).into();
            }
        }
        Schema::new_with_metadata(Fields::from(fields), self.schema.metadata().clone()).into()
    }

    /// What Arrow's reader reads of a file; `None` where that is no column.
    pub(super) fn projection(&self, metadata: &ParquetMetaData) -> Option<ProjectionMask> {
        let mut roots = self.wanted.iter().filter_map(FileColumn::of_arrow).peekable();
        roots.peek()?;
        Some(ProjectionMask::roots(metadata.file_metadata().schema_descr(), roots))
    }
}

impl FileColumn {
    /// Which of the file's columns it is, where Arrow's reader reads it.
    fn of_arrow(&self) -> Option<usize> {
        matches!(self.read, Read::Arrow(_)).then_some(self.root)
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        DataType::Dictionary(_, values) => is_text(values),
        _ => false,
    }
}

/// Whether a column of a file has the table's values as they are. Texts may be kept in another way.
fn is_form_of(own: &DataType, table: &DataType, physical: Type) -> bool {
    use DataType::Timestamp;
    match (own, table) {
        (own, table) if is_text(table) => physical == Type::BYTE_ARRAY && is_text(own),
        // The unit of an INT96 is the reader's choice.
        (Timestamp(TimeUnit::Nanosecond, None), Timestamp(_, _)) if physical == Type::INT96 => true,
        (own, table) => own == table && !table.is_nested() && !matches!(table, DataType::Dictionary(_, _)),
    }
}

/// The form of a table's type in which a column of a row group is read.
fn cheapest(table: &DataType, chunk: &ColumnChunkMetaData) -> DataType {
    match table {
        table if is_text(table) && has_dictionary(chunk) => {
            DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
        }
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        table => table.clone(),
    }
}

/// Whether all values of a column in a row group are entries of its dictionary. Where a file does not say how its pages are
/// encoded, one that has a dictionary is taken for it: what its other pages have is read all the same, only not as cheaply.
fn has_dictionary(chunk: &ColumnChunkMetaData) -> bool {
    match chunk.page_encoding_stats_mask() {
        Some(pages) => pages
            .encodings()
            .all(|encoding| matches!(encoding, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY)),
        None => chunk.dictionary_page_offset().is_some(),
    }
}
