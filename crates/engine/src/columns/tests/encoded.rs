//! Columns of which a device decodes the pages: on interpreters of several shapes, and on a GPU where there is one.

use arrow::array::{Float64Array, Int32Array, Int64Array};
use kelpie_compile::types::Range;
use kelpie_device::simt::SimtDevice;

use super::*;
use crate::options::Decoding;
use crate::source::{ChunkConsumer, EncodedChunk, EncodedPage, EncodedValues, PageCodec, PageLevels};

/// How the pages of a chunk are written.
#[derive(Debug, Clone, Copy)]
struct Form {
    codec: PageCodec,
    is_dictionary: bool,
    levels: PageLevels,
    page_rows: usize,
}

/// What is wrong with a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    None,
    /// Its pages are cut off.
    Cut,
    /// Any byte of its pages is another.
    Flipped(usize),
    /// It says that it has fewer rows.
    Short,
    /// It is in another form.
    Unread,
}

/// A table of one column, which hands on pages of it, or batches.
#[derive(Debug)]
struct PagedTable {
    values: ArrayRef,
    form: Form,
    damage: Damage,
    range: Option<Range>,
    batches: AtomicUsize,
}

/// Rows of a row group.
const GROUP_ROWS: usize = 151;

impl TableSource for PagedTable {
    fn name(&self) -> String {
        "paged".into()
    }
    fn schema(&self) -> SchemaRef {
        let is_nullable = !matches!(self.form.levels, PageLevels::None);
        Arc::new(Schema::new(vec![Field::new("c", self.values.data_type().clone(), is_nullable)]))
    }
    fn identity(&self) -> Option<String> {
        None
    }
    fn exact_rows(&self) -> Option<u64> {
        Some(self.values.len() as u64)
    }
    fn partitions(&self) -> usize {
        1
    }
    fn partition_rows(&self) -> Option<Vec<u64>> {
        Some(vec![self.values.len() as u64])
    }
    fn expected(&self, _: usize) -> Option<Expected> {
        Some(Expected { range: self.range, has_nulls: self.values.null_count() > 0 })
    }
    fn read(&self, _: &[usize], consumer: &BatchConsumer<'_>, _: &CancelToken) -> Result<(), EngineError> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        consumer(0, RecordBatch::try_new(self.schema(), vec![Arc::clone(&self.values)])?)
    }
    fn are_encoded(&self, columns: &[usize]) -> Vec<bool> {
        vec![true; columns.len()]
    }
    fn read_encoded(
        &self,
        _: &[usize],
        consumer: &ChunkConsumer<'_>,
        _: &CancelToken,
    ) -> Result<(), EngineError> {
        for first in (0..self.values.len()).step_by(GROUP_ROWS) {
            let rows = GROUP_ROWS.min(self.values.len() - first);
            let mut chunk = encoded(&self.values.slice(first, rows), first, self.form);
            match self.damage {
                Damage::None => {}
                Damage::Cut => {
                    let pages = chunk.pages.iter_mut();
                    pages.for_each(|page| page.bytes -= page.bytes.min(3));
                }
                Damage::Flipped(at) => {
                    let mut bytes = chunk.bytes.to_vec();
                    let length = bytes.len();
                    bytes[at % length] ^= 0x55;
                    chunk.bytes = bytes.into();
                }
                Damage::Short => drop(chunk.pages.pop()),
                Damage::Unread => {
                    consumer(0, None)?;
                    continue;
                }
            }
            consumer(0, Some(chunk))?;
        }
        Ok(())
    }
}

/// Values as 64 bits, and the bytes of each in a page.
fn bits_of(values: &ArrayRef) -> (Vec<Option<i64>>, usize, EncodedValues) {
    if let Some(array) = values.as_any().downcast_ref::<Int32Array>() {
        return (array.iter().map(|value| value.map(i64::from)).collect(), 4, EncodedValues::I32);
    }
    if let Some(array) = values.as_any().downcast_ref::<Float64Array>() {
        return (
            array.iter().map(|value| value.map(|float| float.to_bits() as i64)).collect(),
            8,
            EncodedValues::F64,
        );
    }
    let array = values.as_any().downcast_ref::<Int64Array>().unwrap();
    (array.iter().collect(), 8, EncodedValues::I64)
}

fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Numbers as runs: equal ones where there are at least eight, else packed, at most 504 a run as writers do.
fn runs(numbers: &[u32], width: usize) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < numbers.len() {
        let equal = numbers[at..].iter().take_while(|number| **number == numbers[at]).count();
        if equal >= 8 {
            varint(&mut out, equal << 1);
            out.extend_from_slice(&numbers[at].to_le_bytes()[..width.div_ceil(8)]);
            at += equal;
            continue;
        }
        let mut count = 8;
        while count < 504 && at + count < numbers.len() {
            let next = &numbers[at + count..];
            if next.len() >= 8 && next[..8].iter().all(|number| *number == next[0]) {
                break;
            }
            count += 8;
        }
        let group: Vec<u32> =
            (at..at + count).map(|place| numbers.get(place).copied().unwrap_or(0)).collect();
        varint(&mut out, ((count / 8) << 1) | 1);
        let mut bits = vec![0u8; count / 8 * width];
        for (place, number) in group.iter().enumerate() {
            for bit in 0..width {
                let to = place * width + bit;
                bits[to / 8] |= ((number >> bit & 1) as u8) << (to % 8);
            }
        }
        out.extend(bits);
        at += count;
    }
    out
}

fn encoded(values: &ArrayRef, first_row: usize, form: Form) -> EncodedChunk {
    let (bits, size, scalar) = bits_of(values);
    let mut dictionary: Vec<i64> = bits.iter().flatten().copied().collect();
    dictionary.sort_unstable();
    dictionary.dedup();
    let width = (usize::BITS - dictionary.len().saturating_sub(1).leading_zeros()) as usize;
    let (mut bytes, mut pages) = (Vec::new(), Vec::new());
    for rows in bits.chunks(form.page_rows) {
        let levels: Vec<u32> = rows.iter().map(|row| u32::from(row.is_some())).collect();
        let levels = runs(&levels, 1);
        let there = rows.iter().flatten();
        let values: Vec<u8> = match form.is_dictionary {
            true => {
                let places: Vec<u32> =
                    there.map(|value| dictionary.binary_search(value).unwrap() as u32).collect();
                [vec![width as u8], runs(&places, width)].concat()
            }
            false => there.flat_map(|value| value.to_le_bytes()[..size].to_vec()).collect(),
        };
        let (plain, rest) = match form.levels {
            PageLevels::None => (Vec::new(), values),
            PageLevels::BehindLength => {
                let length = (levels.len() as u32).to_le_bytes().to_vec();
                (Vec::new(), [length, levels, values].concat())
            }
            PageLevels::Plain => (levels, values),
        };
        let compressed = match form.codec {
            PageCodec::Stored => rest.clone(),
            PageCodec::Snappy => snap::raw::Encoder::new().compress_vec(&rest).unwrap(),
            PageCodec::Lz4 => lz4_flex::block::compress(&rest),
        };
        // What stands between pages, such as their headers.
        bytes.extend([0xee; 5]);
        pages.push(EncodedPage {
            start: bytes.len(),
            bytes: plain.len() + compressed.len(),
            decompressed: plain.len() + rest.len(),
            plain_bytes: plain.len(),
            rows: rows.len(),
            codec: form.codec,
            is_dictionary: form.is_dictionary,
            levels: form.levels,
        });
        bytes.extend(plain);
        bytes.extend(compressed);
    }
    if !form.is_dictionary {
        dictionary.clear();
    }
    EncodedChunk { first_row: first_row as u64, values: scalar, bytes: bytes.into(), pages, dictionary }
}

fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for codec in [PageCodec::Stored, PageCodec::Snappy, PageCodec::Lz4] {
        for is_dictionary in [false, true] {
            for (levels, page_rows) in
                [(PageLevels::None, 100), (PageLevels::BehindLength, 70), (PageLevels::Plain, 333)]
            {
                forms.push(Form { codec, is_dictionary, levels, page_rows });
            }
        }
    }
    forms
}

fn loaded(device: &Arc<dyn Device>, table: &PagedTable, decoding: Decoding) -> Arc<ResidentColumn> {
    let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
    let wish = Wish { placement: Placement::Device, dictionaries: Dictionaries::Auto, decoding };
    let watch = Watch { cancel: &cancel, seen: &|_| () };
    cache.load(device, table, &[0], wish, &watch).unwrap().0.remove(0)
}

fn bytes_of(device: &Arc<dyn Device>, buffer: &Buffer, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    device.download(buffer, 0, &mut out).unwrap();
    out
}

/// That a column is the same whoever has decoded it, but for what stands under NULLs.
fn assert_alike(device: &Arc<dyn Device>, table: &PagedTable, what: &str) {
    let (own, host) = (loaded(device, table, Decoding::Device), loaded(device, table, Decoding::Host));
    assert_eq!(own.layout, host.layout, "{what}");
    let rows = table.values.len();
    let Storage::Fixed { scalar, .. } = own.layout.storage else { panic!("{what}: {:?}", own.layout) };
    let width = scalar.bytes() as usize;
    let values = [&own, &host].map(|column| bytes_of(device, &column.data, rows * width));
    for row in 0..rows {
        let at = row * width..(row + 1) * width;
        let is_same = values[0][at.clone()] == values[1][at];
        assert!(is_same || table.values.is_null(row), "{what}: row {row}");
    }
    if let (Some(own), Some(host)) = (&own.validity, &host.validity) {
        let bytes = [own, host].map(|bits| bytes_of(device, bits, rows / 8));
        assert!(bytes[0] == bytes[1], "{what}: validity");
    }
    assert_eq!(own.validity.is_some(), host.validity.is_some(), "{what}");
    assert_eq!((own.base, own.is_unique, own.order), (host.base, host.is_unique, host.order), "{what}");
    assert_eq!(own.spacing, host.spacing, "{what}");
}

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> =
        vec![SimtDevice::new(32, 64, 3), SimtDevice::new(8, 16, 2), SimtDevice::new(1, 2, 2)];
    devices.extend(kelpie_device::cuda::CudaDevice::open(0).ok().map(|device| device as Arc<dyn Device>));
    devices
}

fn table(values: ArrayRef, form: Form, range: Option<Range>) -> PagedTable {
    PagedTable { values, form, damage: Damage::None, range, batches: AtomicUsize::new(0) }
}

/// Values of several shapes with the bounds that a file would tell.
fn columns(rows: i64, has_nulls: bool) -> Vec<(&'static str, ArrayRef, Option<Range>)> {
    let valid = move |row: i64| !has_nulls || (row % 7 > 0 && !(90..140).contains(&row));
    let mixed = |row: i64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
    let long = |of: &dyn Fn(i64) -> i64| -> (ArrayRef, Option<Range>) {
        let values: Vec<Option<i64>> = (0..rows).map(|row| valid(row).then(|| of(row))).collect();
        let there = || values.iter().flatten();
        let range = Range::new(*there().min().unwrap(), *there().max().unwrap());
        (Arc::new(Int64Array::from(values)), Some(range))
    };
    let mut all = Vec::new();
    for (name, (array, range)) in [
        ("few", long(&|row| mixed(row).rem_euclid(7) * 100 - 300)),
        ("runs", long(&|row| row / 30 % 5)),
        ("ascending", long(&|row| row * 3 + 70_000)),
        ("descending", long(&|row| -row)),
        ("equal", long(&|_| 42)),
        ("wide", long(&|row| mixed(row))),
        ("far", long(&|row| (1 << 50) + row % 1000)),
    ] {
        all.push((name, array, range));
    }
    let narrow: Vec<Option<i32>> =
        (0..rows).map(|row| valid(row).then(|| (mixed(row) >> 40) as i32)).collect();
    let there = || narrow.iter().flatten();
    let range = Range::new(*there().min().unwrap(), *there().max().unwrap());
    all.push(("narrow", Arc::new(Int32Array::from(narrow.clone())), Some(range)));
    let floats: Vec<Option<f64>> = (0..rows)
        .map(|row| valid(row).then(|| if row % 11 == 0 { f64::NAN } else { (row % 97) as f64 / 8.0 - 3.0 }))
        .collect();
    all.push(("floats", Arc::new(Float64Array::from(floats)), None));
    all
}

#[test]
fn pages_of_all_forms_are_decoded_as_the_host_decodes_them() {
    for device in devices() {
        let is_gpu = device.kind() == kelpie_device::DeviceKind::Cuda;
        let rows = if is_gpu { 200_000 } else { 211 };
        for form in forms() {
            let has_nulls = !matches!(form.levels, PageLevels::None);
            // What lanes do is the same for all values.
            let few = device.target().lanes < 32;
            for (name, values, range) in columns(rows, has_nulls).into_iter().take(if few { 2 } else { 9 }) {
                let table = table(values, form, range);
                let what = format!("{}: {name}, {form:?}", device.name());
                assert_alike(&device, &table, &what);
                // The host has read it once, to be compared.
                assert_eq!(table.batches.load(Ordering::Relaxed), 1, "{what}");
            }
        }
    }
}

#[test]
fn columns_of_several_zones_are_known_as_the_host_knows_them() {
    let device: Arc<dyn Device> = SimtDevice::new(32, 64, 3);
    let form =
        Form { codec: PageCodec::Stored, is_dictionary: true, levels: PageLevels::None, page_rows: 9_970 };
    for (name, values, range) in
        columns(18_000, false).into_iter().filter(|(name, ..)| ["few", "ascending"].contains(name))
    {
        assert_alike(&device, &table(values, form, range), name);
    }
}

#[test]
fn what_is_damaged_or_not_as_promised_is_read_by_the_host() {
    let device: Arc<dyn Device> = SimtDevice::new(8, 16, 2);
    for form in forms() {
        let has_nulls = !matches!(form.levels, PageLevels::None);
        let (_, values, range) = columns(200, has_nulls).swap_remove(0);
        for damage in [Damage::Cut, Damage::Short, Damage::Unread] {
            let table = PagedTable { damage, ..table(Arc::clone(&values), form, range) };
            assert_alike(&device, &table, &format!("{damage:?} {form:?}"));
            assert_eq!(table.batches.load(Ordering::Relaxed), 2, "{damage:?} {form:?}");
        }
        // Bounds that the values are not in.
        let table = table(Arc::clone(&values), form, Some(Range::new(-200, 300)));
        let own = loaded(&device, &table, Decoding::Device);
        assert_eq!(own.layout.range, Some(Range::new(-300, 300)), "{form:?}");
        assert_eq!(table.batches.load(Ordering::Relaxed), 1, "{form:?}");
    }
}

/// Whatever the bytes are, kernels keep to their buffers, which the interpreter looks at.
#[test]
fn bytes_that_are_damaged_in_any_place_do_no_harm() {
    let device: Arc<dyn Device> = SimtDevice::new(8, 16, 2);
    for form in forms() {
        let has_nulls = !matches!(form.levels, PageLevels::None);
        let (_, values, range) = columns(60, has_nulls).swap_remove(0);
        for at in (0..1_000).step_by(83) {
            let table = PagedTable { damage: Damage::Flipped(at), ..table(Arc::clone(&values), form, range) };
            let own = loaded(&device, &table, Decoding::Device);
            assert_eq!(own.rows, 60, "{at} {form:?}");
        }
    }
}
