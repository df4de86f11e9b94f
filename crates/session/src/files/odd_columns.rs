//! Columns of Parquet files that readers do not take as they are meant: several of one name, which get numbers (`a`, `a_1`), UUIDs,
//! which are texts, intervals, whose months readers lose, and enumerations, which are texts too.
//!
//! Readers get the file's metadata with other names and with the bytes of intervals, and expressions make values of these.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, IntervalMonthDayNanoArray, StringArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, IntervalMonthDayNano, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::exec_err;
use datafusion::config::ParquetOptions;
use datafusion::datasource::file_format::parquet::{
    Int96Coercer, transform_binary_to_string, transform_schema_to_view,
};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::arrow::{ARROW_SCHEMA_META_KEY, parquet_to_arrow_schema};
use datafusion::parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use datafusion::parquet::errors::Result as ParquetResult;
use datafusion::parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader};
use datafusion::parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::error::in_metadata;

const UUID_BYTES: i32 = 16;
/// Months, days and milliseconds, of four bytes each.
const INTERVAL_BYTES: i32 = 12;
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

fn is_interval(column: &Type) -> bool {
    column.is_primitive()
        && column.get_basic_info().converted_type() == ConvertedType::INTERVAL
        && column.get_physical_type() == Physical::FIXED_LEN_BYTE_ARRAY
}

/// A text of which few are there: readers take it for bytes.
fn is_enum(column: &Type) -> bool {
    let info = column.get_basic_info();
    let says_so =
        info.converted_type() == ConvertedType::ENUM || info.logical_type_ref() == Some(&LogicalType::Enum);
    column.is_primitive() && says_so && column.get_physical_type() == Physical::BYTE_ARRAY
}

fn is_uuid(column: &Type) -> bool {
    column.is_primitive() && column.get_basic_info().logical_type_ref() == Some(&LogicalType::Uuid)
}

/// The columns of a file as a table has them.
pub(super) fn schema(path: &Path, options: &ParquetOptions) -> Result<SchemaRef> {
    let failed = |error: &dyn fmt::Display| in_metadata(path, error);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(|error| failed(&error))?;
    let own = metadata.file_metadata().schema_descr().root_schema().get_fields().to_vec();
    let metadata = as_read(Arc::new(metadata)).map_err(|error| failed(&error))?;
    let (of_file, pairs) =
        (metadata.file_metadata().schema_descr(), metadata.file_metadata().key_value_metadata());
    let mut schema = parquet_to_arrow_schema(of_file, pairs).map_err(|error| failed(&error))?;
    let unit = match options.coerce_int96.as_deref() {
        Some("ns") => Some(TimeUnit::Nanosecond),
        Some("ms") => Some(TimeUnit::Millisecond),
        Some("s") => Some(TimeUnit::Second),
        other => other.map(|_| TimeUnit::Microsecond),
    };
    if let Some(coerced) = unit.and_then(|unit| Int96Coercer::new(of_file, &schema, &unit).coerce()) {
        schema = coerced;
    }
    if options.binary_as_string {
        schema = transform_binary_to_string(&schema);
    }
    let fields = schema.fields().iter().zip(&own).map(|(field, own)| match own {
        own if is_interval(own) => retyped(field, INTERVAL),
        own if is_uuid(own) => retyped(field, DataType::Utf8),
        _ => Arc::clone(field),
    });
    let schema = Schema::new_with_metadata(fields.collect::<Vec<FieldRef>>(), schema.metadata().clone());
    Ok(Arc::new(if options.schema_force_view_types { transform_schema_to_view(&schema) } else { schema }))
}

/// A field that keeps nothing of what was said of its former type.
fn retyped(field: &Field, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

/// Metadata by which readers find all columns: with one name each, intervals as the bytes that they are, and enumerations as texts.
fn as_read(metadata: Arc<ParquetMetaData>) -> ParquetResult<Arc<ParquetMetaData>> {
    let of_file = metadata.file_metadata();
    let root = of_file.schema_descr().root_schema();
    let names = unique_names(root.get_fields());
    let columns = root.get_fields().iter().zip(&names).map(|(column, name)| as_read_column(column, name));
    let columns = columns.collect::<ParquetResult<Vec<TypePtr>>>()?;
    if columns.iter().zip(root.get_fields()).all(|(new, old)| Arc::ptr_eq(new, old)) {
        return Ok(metadata);
    }
    let root = Type::group_type_builder(root.name()).with_fields(columns).build()?;
    // What Arrow says of the columns beside is said of other names and types.
    let pairs = of_file.key_value_metadata().map(|pairs| {
        pairs.iter().filter(|pair| pair.key != ARROW_SCHEMA_META_KEY).cloned().collect::<Vec<_>>()
    });
    let of_file = FileMetaData::new(
        of_file.version(),
        of_file.num_rows(),
        of_file.created_by().map(str::to_string),
        pairs,
        Arc::new(SchemaDescriptor::new(Arc::new(root))),
        of_file.column_orders().cloned(),
    );
    Ok(Arc::new(ParquetMetaData::new(of_file, metadata.row_groups().to_vec())))
}

/// The names of columns: those that are there before get numbers.
fn unique_names(columns: &[TypePtr]) -> Vec<String> {
    let own: HashSet<&str> = columns.iter().map(|column| column.name()).collect();
    let mut seen = HashSet::new();
    let unique = columns.iter().map(|column| {
        let mut name = column.name().to_string();
        let mut number = 0;
        while !seen.insert(name.clone()) {
            // A number that is part of another column's own name is that column's.
            number += 1;
            while own.contains(format!("{}_{number}", column.name()).as_str()) {
                number += 1;
            }
            name = format!("{}_{number}", column.name());
        }
        name
    });
    unique.collect()
}

fn as_read_column(column: &TypePtr, name: &str) -> ParquetResult<TypePtr> {
    let (is_interval, is_enum) = (is_interval(column), is_enum(column));
    if column.name() == name && !is_interval && !is_enum {
        return Ok(Arc::clone(column));
    }
    let info = column.get_basic_info();
    let id = info.has_id().then(|| info.id());
    let (converted, logical) = match () {
        () if is_interval => (ConvertedType::NONE, None),
        () if is_enum => (ConvertedType::UTF8, Some(LogicalType::String)),
        () => (info.converted_type(), info.logical_type_ref().cloned()),
    };
    let renamed = match column.as_ref() {
        Type::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            Type::primitive_type_builder(name, *physical_type)
                .with_repetition(info.repetition())
                .with_converted_type(converted)
                .with_logical_type(logical)
                .with_length(*type_length)
                .with_precision(*precision)
                .with_scale(*scale)
                .with_id(id)
                .build()?
        }
        Type::GroupType { fields, .. } => Type::group_type_builder(name)
            .with_repetition(info.repetition())
            .with_converted_type(converted)
            .with_logical_type(logical)
            .with_fields(fields.clone())
            .with_id(id)
            .build()?,
    };
    Ok(Arc::new(renamed))
}

/// A plan whose readers of Parquet files find columns so.
pub(super) fn with_readers(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let config = plan.downcast_ref::<DataSourceExec>().map(DataSourceExec::data_source);
    let config = config.and_then(|source| source.downcast_ref::<FileScanConfig>());
    let parquet = config.and_then(|config| config.file_source().downcast_ref::<ParquetSource>());
    let (Some(config), Some(parquet)) = (config, parquet) else { return plan };
    let Some(inner) = parquet.parquet_file_reader_factory().cloned() else { return plan };
    let source = parquet.clone().with_parquet_file_reader_factory(Arc::new(OddReaders { inner }));
    let scan = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source)).build();
    DataSourceExec::from_data_source(scan)
}

#[derive(Debug)]
struct OddReaders {
    inner: Arc<dyn ParquetFileReaderFactory>,
}

impl ParquetFileReaderFactory for OddReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let inner = self.inner.create_reader(partition, file, hint, metrics)?;
        Ok(Box::new(OddReader { inner }))
    }
}

struct OddReader {
    inner: Box<dyn AsyncFileReader + Send>,
}

impl AsyncFileReader for OddReader {
    fn get_bytes(&mut self, range: std::ops::Range<u64>) -> BoxFuture<'_, ParquetResult<bytes::Bytes>> {
        self.inner.get_bytes(range)
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<std::ops::Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<bytes::Bytes>>> {
        self.inner.get_byte_ranges(ranges)
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move { as_read(self.inner.get_metadata(options).await?) }.boxed()
    }
}

/// Whether values of a table's column are made of the bytes of a file's.
pub(super) fn is_made_of(table: &DataType, file: &DataType) -> bool {
    match (table, file) {
        (DataType::Utf8 | DataType::Utf8View, DataType::FixedSizeBinary(UUID_BYTES)) => true,
        (table, DataType::FixedSizeBinary(INTERVAL_BYTES)) => *table == INTERVAL,
        _ => false,
    }
}

/// Bytes as the values that they stand for.
#[derive(Debug)]
pub(super) struct OfBytes {
    pub bytes: Arc<dyn PhysicalExpr>,
    pub data_type: DataType,
}

// What is derived moves the expression out: https://github.com/rust-lang/rust/issues/78808.
impl PartialEq for OfBytes {
    fn eq(&self, other: &OfBytes) -> bool {
        self.bytes.eq(&other.bytes) && self.data_type == other.data_type
    }
}

impl Eq for OfBytes {}

impl Hash for OfBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
        self.data_type.hash(state);
    }
}

impl fmt::Display for OfBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.data_type, self.bytes)
    }
}

impl PhysicalExpr for OfBytes {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.bytes.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let bytes = self.bytes.evaluate(batch)?.into_array(batch.num_rows())?;
        let Some(bytes) = bytes.as_fixed_size_binary_opt() else {
            return exec_err!("{} is no bytes, and a {}", bytes.data_type(), self.data_type);
        };
        let values: ArrayRef = match &self.data_type {
            data_type if *data_type == INTERVAL => Arc::new(intervals(bytes)),
            data_type => cast(&uuids(bytes), data_type)?,
        };
        Ok(ColumnarValue::Array(values))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.bytes]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        match (children.pop(), children.is_empty()) {
            (Some(bytes), true) => Ok(Arc::new(OfBytes { bytes, data_type: self.data_type.clone() })),
            _ => exec_err!("values are made of one column of bytes"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// UUIDs as they are written: `0b7751a5-334b-47da-a1aa-bea6f44472c8`.
fn uuids(bytes: &FixedSizeBinaryArray) -> StringArray {
    let text = |bytes: &[u8]| {
        let mut text = String::with_capacity(36);
        for (place, byte) in bytes.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('?');
            text.extend([digit(byte >> 4), digit(byte & 15)]);
        }
        text
    };
    bytes.iter().map(|bytes| bytes.map(text)).collect()
}

fn intervals(bytes: &FixedSizeBinaryArray) -> IntervalMonthDayNanoArray {
    let interval = |bytes: &[u8]| {
        let part = |at: usize| {
            let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
            part.map_or(0, u32::from_le_bytes)
        };
        // Parquet has no negative ones; what writers put there all the same are negative numbers.
        IntervalMonthDayNano::new(part(0) as i32, part(4) as i32, i64::from(part(8) as i32) * 1_000_000)
    };
    bytes.iter().map(|bytes| bytes.map(interval)).collect()
}
