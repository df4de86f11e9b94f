//! Tests of the column store, over tables in memory and the CPU device.

mod caching;
mod coded;
mod encoded;
mod glance;
mod placing;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use kelpie_compile::layout::Storage;
use kelpie_device::cpu::CpuDevice;
use kelpie_device::{Buffer, CancelToken, Device};
use kelpie_kir::Scalar;

use super::wish::LoadReport;
use super::*;
use crate::error::EngineError;
use crate::options::{Decoding, Dictionaries};
use crate::source::{BatchConsumer, ColumnKey, Expected, Lease, TableSource};

impl ColumnCache {
    /// As `load`, and nobody watches.
    fn load_all(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[usize],
        placement: Placement,
        cancel: &CancelToken,
    ) -> Result<(Vec<Arc<ResidentColumn>>, LoadReport), EngineError> {
        let wish = Wish { placement, dictionaries: Dictionaries::Auto, decoding: Decoding::Auto };
        self.load(device, source, columns, wish, &Watch { cancel, seen: &|_| () })
    }
}

/// A table in memory: batches by partition.
#[derive(Debug)]
struct TestTable {
    schema: SchemaRef,
    partitions: Vec<Vec<RecordBatch>>,
    identity: Option<String>,
    reads: AtomicUsize,
    /// Fails after this many batches of a partition.
    fail_after: Option<usize>,
    /// Cancels the query after the first batch.
    cancels: bool,
    /// What columns are kept under, where not as stored.
    keys: Vec<Option<ColumnKey>>,
    lease: Option<Lease>,
    /// How many it says that it has.
    rows: Option<u64>,
    /// What it says of its columns.
    expected: Vec<Option<Expected>>,
    /// How many rows it says that each partition has.
    partition_rows: Option<Vec<u64>>,
}

impl TestTable {
    /// A table of columns, each given as its arrays by partition and batch.
    fn new(columns: &[(&str, Vec<Vec<ArrayRef>>)]) -> TestTable {
        let fields = columns.iter().map(|(name, partitions)| {
            let array = partitions.iter().flatten().next().expect("an array, if only an empty one");
            Field::new(*name, array.data_type().clone(), true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let (_, first) = &columns[0];
        let batch = |p: usize, b: usize| {
            let arrays = columns.iter().map(|(_, partitions)| partitions[p][b].clone()).collect();
            RecordBatch::try_new(schema.clone(), arrays).unwrap()
        };
        let partitions = first.iter().enumerate();
        let partitions =
            partitions.map(|(p, batches)| (0..batches.len()).map(|b| batch(p, b)).collect()).collect();
        let identity = Some("table, version 1".to_string());
        TestTable {
            schema,
            partitions,
            identity,
            reads: AtomicUsize::new(0),
            fail_after: None,
            cancels: false,
            keys: Vec::new(),
            lease: None,
            rows: None,
            expected: Vec::new(),
            partition_rows: None,
        }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl TableSource for TestTable {
    fn name(&self) -> String {
        "test_table".into()
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn identity(&self) -> Option<String> {
        self.identity.clone()
    }

    fn column_key(&self, column: usize) -> Option<ColumnKey> {
        self.keys.get(column).copied().unwrap_or(Some(ColumnKey::Stored(column)))
    }

    fn lease(&self) -> Option<Lease> {
        self.lease.clone()
    }

    fn expected(&self, column: usize) -> Option<Expected> {
        self.expected.get(column).copied().flatten()
    }

    fn exact_rows(&self) -> Option<u64> {
        self.rows
    }

    fn partitions(&self) -> usize {
        self.partitions.len()
    }

    fn partition_rows(&self) -> Option<Vec<u64>> {
        self.partition_rows.clone()
    }

    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .partitions
                .iter()
                .enumerate()
                .map(|(partition, batches)| {
                    scope.spawn(move || {
                        for (index, batch) in batches.iter().enumerate() {
                            if self.fail_after == Some(index) {
                                let message = "damaged page".to_string();
                                return Err(EngineError::Source { table: self.name(), message });
                            }
                            consumer(partition, batch.project(columns)?)?;
                            if self.cancels {
                                cancel.cancel();
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })
    }
}

fn device() -> Arc<dyn Device> {
    CpuDevice::new(Some(1)).unwrap()
}

fn bytes_of(device: &Arc<dyn Device>, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes()];
    device.download(buffer, 0, &mut bytes).unwrap();
    bytes
}

/// The integers in a buffer.
fn integers(device: &Arc<dyn Device>, buffer: &Buffer, scalar: Scalar) -> Vec<i128> {
    let bytes = bytes_of(device, buffer);
    let widen = |chunk: &[u8]| {
        let negative = scalar.is_signed() && chunk.last().is_some_and(|byte| *byte >= 0x80);
        let mut wide = [if negative { 0xff } else { 0 }; 16];
        wide[..chunk.len()].copy_from_slice(chunk);
        i128::from_le_bytes(wide)
    };
    bytes.chunks(scalar.bytes() as usize).map(widen).collect()
}

fn validity(device: &Arc<dyn Device>, column: &ResidentColumn) -> Vec<bool> {
    assert_eq!(column.layout.has_nulls, column.validity.is_some());
    let Some(buffer) = &column.validity else { return vec![true; column.rows as usize] };
    let bits = bytes_of(device, buffer);
    (0..column.rows as usize).map(|row| bits[row / 8] >> (row % 8) & 1 == 1).collect()
}

/// The values of a column that is integers inside; every stored value, also under NULL, must lie in the range.
fn decoded(device: &Arc<dyn Device>, column: &ResidentColumn) -> Vec<Option<i128>> {
    let Storage::Fixed { scalar, has_base } = column.layout.storage else { panic!("{:?}", column.layout) };
    assert_eq!(has_base, column.base != 0);
    let range = column.layout.range.unwrap();
    let stored = integers(device, &column.data, scalar);
    assert_eq!(stored.len() as u64, column.rows);
    let value = |(stored, valid): (i128, bool)| {
        let value = stored + column.base;
        assert!(range.min <= value && value <= range.max, "{value} is outside {range:?}");
        valid.then_some(value)
    };
    stored.into_iter().zip(validity(device, column)).map(value).collect()
}

/// The texts of a column.
fn texts(device: &Arc<dyn Device>, column: &ResidentColumn) -> Vec<Option<String>> {
    let rows = column.rows as usize;
    let slices = |offsets: Vec<i128>, bytes: Vec<u8>| -> Vec<String> {
        assert_eq!(offsets[0], 0);
        assert_eq!(*offsets.last().unwrap(), bytes.len() as i128);
        let text =
            |pair: &[i128]| String::from_utf8(bytes[pair[0] as usize..pair[1] as usize].to_vec()).unwrap();
        offsets.windows(2).map(text).collect()
    };
    let values = match column.layout.storage {
        Storage::Text { offset } => {
            let offsets = integers(device, column.offsets.as_ref().unwrap(), offset);
            slices(offsets, bytes_of(device, &column.data))
        }
        Storage::Dictionary { code, entries } => {
            let (offsets, bytes) = column.dictionary.as_ref().unwrap();
            let dictionary = slices(integers(device, offsets, Scalar::U32), bytes_of(device, bytes));
            assert_eq!(dictionary.len(), entries as usize);
            let distinct: std::collections::HashSet<&String> = dictionary.iter().collect();
            assert_eq!(distinct.len(), dictionary.len());
            let codes = integers(device, &column.data, code);
            codes.iter().map(|code| dictionary[*code as usize].clone()).collect()
        }
        Storage::Fixed { .. } => panic!("{:?}", column.layout),
    };
    assert_eq!(values.len(), rows);
    values.into_iter().zip(validity(device, column)).map(|(text, valid)| valid.then_some(text)).collect()
}
