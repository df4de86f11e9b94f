//! In which of Arrow's forms a column is read: the cheapest that the engine stores it from.

use std::collections::BTreeSet;

use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::parquet::arrow::{ProjectionMask, parquet_to_arrow_schema};
use datafusion::parquet::basic::Type;
use datafusion::parquet::file::metadata::ParquetMetaData;

use super::integers::Integers;
use super::pages::PageValues;

/// A column of a table as it stands in a file.
#[derive(Debug, Clone)]
pub(super) struct FileColumn {
    pub(super) name: String,
    /// Which of the file's columns it is, at the top and among the leaves.
    root: usize,
    pub(super) leaf: usize,
    /// What its pages have, where they can be read.
    pages: Option<PageValues>,
    /// The table's type.
    data_type: DataType,
}

/// What reads a column of a row group.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    /// Its pages are, of such values.
    Pages(PageValues),
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
            let pages = match is_text(&data_type) {
                true => Some(PageValues::Texts),
                false => Integers::of(&data_type, physical).map(PageValues::Integers),
            };
            is_form_of(own.data_type(), &data_type, physical).then_some(FileColumn {
                name: own.name().clone(),
                root,
                leaf,
                pages,
                data_type,
            })
        };
        let wanted = wanted.iter().map(find).collect::<Option<Vec<_>>>()?;
        Some(FileColumns { schema: schema.into(), wanted })
    }

    /// What reads each column.
    pub(super) fn readers(&self) -> Vec<Read> {
        let of_arrow = self.wanted.iter().filter(|column| column.pages.is_none());
        // The reader gives each column once, in the order in which the file has them.
        let roots: BTreeSet<usize> = of_arrow.map(|column| column.root).collect();
        let arrow = |column: &FileColumn| Read::Arrow(roots.range(..column.root).count());
        self.wanted.iter().map(|column| column.pages.map_or_else(|| arrow(column), Read::Pages)).collect()
    }

    /// The schema by which Arrow's reader reads.
    pub(super) fn schema(&self) -> SchemaRef {
        let mut fields: Vec<_> = self.schema.fields().iter().cloned().collect();
        for column in &self.wanted {
            if let Some(field) = fields.get_mut(column.root) {
                *field = field.as_ref().clone().with_data_type(column.data_type.clone()).into();
            }
        }
        Schema::new_with_metadata(Fields::from(fields), self.schema.metadata().clone()).into()
    }

    /// What Arrow's reader reads of a row group; `None` where that is no column.
    pub(super) fn projection(&self, metadata: &ParquetMetaData, readers: &[Read]) -> Option<ProjectionMask> {
        let columns = self.wanted.iter().zip(readers);
        let of_arrow = columns.filter(|(_, read)| matches!(read, Read::Arrow(_)));
        let mut roots = of_arrow.map(|(column, _)| column.root).peekable();
        roots.peek()?;
        Some(ProjectionMask::roots(metadata.file_metadata().schema_descr(), roots))
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
