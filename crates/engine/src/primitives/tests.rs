//! Prefix sum, sorts and reductions by themselves, on the CPU and on interpreters of several shapes.

use kelpie_device::Device;
use kelpie_device::cpu::CpuDevice;
use kelpie_device::simt::SimtDevice;

use super::*;
use kelpie_compile::variant::Variant;
use kelpie_compile::variant::axes::SortPasses;

mod digits;
mod merge;

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![
        CpuDevice::new(Some(3)).unwrap(),
        SimtDevice::new(32, 64, 3),
        SimtDevice::new(32, 32, 1),
        SimtDevice::new(8, 16, 2),
        SimtDevice::new(4, 8, 2),
        SimtDevice::new(1, 2, 2),
    ];
    devices.extend(kelpie_device::cuda::CudaDevice::open(0).ok().map(|device| device as Arc<dyn Device>));
    devices
}

/// A sequence without a pattern.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }
}

fn upload(stream: &dyn QueryStream, bytes: &[u8]) -> Buffer {
    let buffer = stream.device().allocate(bytes.len().max(16)).unwrap();
    stream.upload(&buffer, 0, bytes).unwrap();
    buffer
}

fn words_of(stream: &dyn QueryStream, buffer: &Buffer, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    stream.download(buffer, 0, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn prefix_sums() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        // One tile, several, and several tiles of sums.
        for (rows, tile_rows) in
            [(0, 8), (1, 8), (7, 8), (8, 8), (9, 8), (65, 8), (500, 8), (1000, 1), (777, 64), (5000, 64)]
        {
            let mut next = random(rows as u64);
            let values: Vec<u32> = (0..rows).map(|_| next() as u32).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let buffer = upload(stream.as_ref(), &bytes);
            let tile_rows = if tile_rows == 1 { 2 } else { tile_rows };
            let again = upload(stream.as_ref(), &bytes);
            primitives.scan_tiles((&buffer, None), rows as u64, tile_rows).unwrap();
            match primitives.shape.is_serial() || rows == 0 {
                true => primitives.exclusive_scan(&again, rows as u64).unwrap(),
                false => primitives.scan_at_once((&again, None), rows as u64).unwrap(),
            }
            let mut sum = 0u32;
            let mut before = |value: &u32| {
                let before = sum;
                sum = sum.wrapping_add(*value);
                before
            };
            let expected: Vec<u32> = values.iter().map(&mut before).collect();
            let found = words_of(stream.as_ref(), &buffer, rows);
            assert_eq!(found, expected, "{} rows {rows} tile {tile_rows}", device.name());
            let found = words_of(stream.as_ref(), &again, rows);
            assert_eq!(found, expected, "{} rows {rows} tile {tile_rows}, chained", device.name());
        }
    }
}

/// The bits of a bitmap are counted as they are read: what the words' ranks are written to has anything before.
#[test]
fn ranks_of_words() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        for (rows, tile_rows) in [(0usize, 8), (1, 8), (8, 8), (9, 8), (500, 8), (777, 64), (5000, 64)] {
            let mut next = random(rows as u64 + 1);
            // No bit, one bit, all bits, and any.
            let words: Vec<u32> = (0..rows)
                .map(|row| match row % 5 {
                    0 => 0,
                    1 => 1 << (row % 32),
                    2 => u32::MAX,
                    _ => next() as u32,
                })
                .collect();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let bits = upload(stream.as_ref(), &bytes);
            let [first, second] = [(); 2].map(|()| upload(stream.as_ref(), &vec![0xa5; bytes.len()]));
            primitives.scan_tiles((&first, Some(&bits)), rows as u64, tile_rows).unwrap();
            match primitives.shape.is_serial() || rows == 0 {
                true => primitives.rank_words(&second, &bits, rows as u64).unwrap(),
                false => primitives.scan_at_once((&second, Some(&bits)), rows as u64).unwrap(),
            }
            let mut sum = 0;
            let mut before = |word: &u32| {
                let before = sum;
                sum += word.count_ones();
                before
            };
            let expected: Vec<u32> = words.iter().map(&mut before).collect();
            for ranks in [first, second] {
                let found = words_of(stream.as_ref(), &ranks, rows);
                assert_eq!(found, expected, "{} rows {rows} tile {tile_rows}", device.name());
            }
            assert_eq!(words_of(stream.as_ref(), &bits, rows), words);
        }
    }
}

/// Sorts rows of words, and compares with a stable sort.
fn sorts(device: &Arc<dyn Device>, rows: usize, name: &str, words: &[Vec<u64>]) {
    let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
    let stream = Arc::clone(device).begin_query().unwrap();
    sorts_with(&mut Primitives::new(stream.as_ref(), &cache, &cancel), rows, name, words);
}

/// How rows may be sorted by digits, and the rule.
fn forms(primitives: &Primitives<'_>) -> Vec<(String, Option<SortForm>)> {
    let mut forms = vec![("the rule".to_string(), None)];
    for passes in SortPasses::ALL {
        let fits = match passes {
            SortPasses::Tiles => true,
            SortPasses::Sweep => sweep::tile_rows(&primitives.shape) > 0,
            SortPasses::Leading => primitives.shape.is_serial(),
        };
        if fits {
            let form = SortForm { passes: *passes };
            forms.push((format!("{form:?}"), Some(form)));
        }
    }
    forms
}

fn sorts_with(primitives: &mut Primitives<'_>, rows: usize, name: &str, words: &[Vec<u64>]) {
    let stream = primitives.stream;
    let device = stream.device();
    let bytes = |word: &Vec<u64>| word.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let buffers: Vec<Buffer> = words.iter().map(|word| upload(stream, &bytes(word))).collect();
    let mut expected: Vec<u32> = (0..rows as u32).collect();
    let key = |row: &u32| words.iter().map(|word| word[*row as usize]).collect::<Vec<u64>>();
    expected.sort_by_key(key);
    let constant = words[0].iter().all(|word| Some(word) == words[0].first());
    for (by, form) in forms(primitives) {
        let what = format!("{} {name} {rows} by {by}", device.name());
        let sorted = match form {
            Some(form) => {
                primitives.form = form;
                primitives.radix_sort(&buffers, rows as u64).unwrap()
            }
            None => primitives.sort(&buffers, rows as u64).unwrap(),
        };
        assert_eq!(words_of(stream, &sorted.order, rows), expected, "{what}");
        assert!(sorted.first.is_some() || constant, "{what}");
        if let Some(first) = sorted.first {
            let first = longs_of(stream, &first, rows);
            let in_order = expected.iter().map(|row| words[0][*row as usize]);
            assert!(first.into_iter().eq(in_order), "{what}");
        }
    }
}

#[test]
fn sorts_by_words() {
    for device in devices() {
        let sizes: &[usize] = match device.kind() {
            kelpie_device::DeviceKind::Simt => &[1, 33, 300],
            _ => &[1, 2, 1000, 200_000],
        };
        for &rows in sizes {
            let mut next = random(7);
            let mut column = |map: &dyn Fn(u64) -> u64| (0..rows).map(|_| map(next())).collect::<Vec<u64>>();
            let all = column(&|x| x);
            let few = column(&|x| x % 5);
            let high = column(&|x| x << 61);
            let extremes = column(&|x| [0, u64::MAX, 1 << 63, 255, 256][(x % 5) as usize]);
            let constant = vec![42; rows];
            let rising: Vec<u64> = (0..rows as u64).collect();
            let falling: Vec<u64> = (0..rows as u64).rev().collect();
            sorts(&device, rows, "all bits", std::slice::from_ref(&all));
            sorts(&device, rows, "few", std::slice::from_ref(&few));
            sorts(&device, rows, "high", std::slice::from_ref(&high));
            sorts(&device, rows, "extremes", std::slice::from_ref(&extremes));
            sorts(&device, rows, "constant", std::slice::from_ref(&constant));
            sorts(&device, rows, "rising", &[rising]);
            sorts(&device, rows, "falling", std::slice::from_ref(&falling));
            sorts(&device, rows, "three words", &[few, high, all.clone()]);
            // Runs that the leading digits leave: long ones of one key, of keys that few or all rows have, and ties that words behind decide.
            let mut heavy = all.clone();
            heavy.iter_mut().step_by(2).for_each(|key| *key = 7 << 40);
            let mut outlier = column(&|x| x >> 44);
            outlier[rows / 2] = u64::MAX;
            let pairs = column(&|x| (x % (rows as u64 / 2 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let last = column(&|x| x >> 7);
            sorts(&device, rows, "a heavy key", std::slice::from_ref(&heavy));
            sorts(&device, rows, "a heavy key and a word", &[heavy, last.clone()]);
            sorts(&device, rows, "an outlier", &[outlier.clone()]);
            sorts(&device, rows, "an outlier and a word", &[outlier, last.clone()]);
            sorts(&device, rows, "pairs", std::slice::from_ref(&pairs));
            sorts(&device, rows, "pairs and two words", &[constant.clone(), pairs, column(&|x| x % 2), last]);
            sorts(&device, rows, "constant words", &[constant.clone(), extremes, constant, falling]);
        }
    }
}

/// Columns of words, by name: several of them with ties that only later ones, or none, decide.
fn word_lists(rows: usize) -> Vec<(&'static str, Vec<Vec<u64>>)> {
    let mut next = random(rows as u64 + 3);
    let mut column = |map: &dyn Fn(u64) -> u64| (0..rows).map(|_| map(next())).collect::<Vec<u64>>();
    let (all, few) = (column(&|x| x), column(&|x| x % 3));
    // Words of all bits are those of places without a row.
    let full = vec![u64::MAX; rows];
    let mostly_full = column(&|x| if x % 4 == 0 { x } else { u64::MAX });
    let (rising, falling) = ((0..rows as u64).collect(), (0..rows as u64).rev().collect());
    let many = (0..block_sort::MOST_WORDS).map(|_| few.clone());
    let many: Vec<Vec<u64>> = many.skip(1).chain([all.clone()]).collect();
    vec![
        ("random", vec![all.clone()]),
        ("few", vec![few.clone()]),
        ("equal", vec![vec![7; rows]]),
        ("full", vec![full.clone()]),
        ("mostly full", vec![mostly_full.clone(), full.clone(), mostly_full.clone()]),
        ("rising", vec![rising]),
        ("falling", vec![falling]),
        ("three words", vec![few.clone(), mostly_full, all]),
        ("as many words as there may be", many.clone()),
        ("more words", [many, vec![few]].concat()),
    ]
}

/// What one block sorts, up to as many rows as it has room for, and one beyond.
#[test]
fn few_rows_by_one_block() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        for (shared_bytes, most) in [(1 << 10, 64), (13, 1), (11, 0), (1 << 20, 4096)] {
            let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
            primitives.shape.shared_bytes = shared_bytes;
            let most = if primitives.shape.is_serial() { 0 } else { most };
            assert_eq!(block_sort::most_rows(&primitives.shape), most, "{}", device.name());
            for (rows, words) in [(most, 1), (most + 1, 1), (most, 0), (most, block_sort::MOST_WORDS + 1)] {
                let fits = rows == most && words == 1;
                assert_eq!(primitives.fits_block(rows, words), fits, "{rows} rows, {words} words");
            }
        }
        for rows in [0, 1, 2, 3, 31, 63, 64, 65, 100] {
            for (name, words) in word_lists(rows) {
                let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
                if device.kind() == kelpie_device::DeviceKind::Simt {
                    primitives.shape.shared_bytes = 1 << 10;
                }
                sorts_with(&mut primitives, rows, name, &words);
            }
        }
    }
}

#[test]
fn as_many_rows_as_fit_a_block() {
    let device: Arc<dyn Device> = SimtDevice::new(32, 256, 1);
    for rows in [4096, 4097] {
        let mut next = random(5);
        let first: Vec<u64> = (0..rows).map(|_| next() % 1000).collect();
        let second = (0..rows).map(|_| next() % 5).collect();
        sorts(&device, rows, "the limit", &[first, second]);
    }
}

/// The host does not know how many rows there are, only how many there may be.
#[test]
fn rows_that_the_device_counted() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        if primitives.shape.is_serial() {
            continue;
        }
        let room = 90;
        for (name, words) in word_lists(room).into_iter().take(8) {
            let bytes =
                |word: &Vec<u64>| word.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
            let buffers: Vec<Buffer> =
                words.iter().map(|word| upload(stream.as_ref(), &bytes(word))).collect();
            for (count, most, wanted) in
                [(0, 90, 90), (1, 64, 90), (50, 90, u64::MAX), (50, 50, 10), (90, 90, 0), (1 << 40, 70, 80)]
            {
                let rows = (count as usize).min(most as usize);
                let mut expected: Vec<u32> = (0..rows as u32).collect();
                expected.sort_by_key(|row| words.iter().map(|word| word[*row as usize]).collect::<Vec<_>>());
                expected.truncate(wanted.min(room as u64) as usize);
                let delivered = expected.len();
                // What is not written stays as it was.
                expected.resize(room, u32::MAX);
                let order = upload(stream.as_ref(), &[u8::MAX; 90 * 4]);
                let first = upload(stream.as_ref(), &[u8::MAX; 90 * 8]);
                let page = upload(stream.as_ref(), &[0, count, u64::MAX].map(u64::to_le_bytes).concat());
                let place = |offset| (Arc::clone(&page), offset);
                let counted = Counted { rows: place(8), most, wanted, delivered: place(16) };
                let keeps_first = wanted != 10;
                let out = (&order, keeps_first.then_some(&first));
                primitives.sort_counted(&buffers, out, &counted).unwrap();
                let what = format!("{} {name}: {count} rows, at most {most}, {wanted} wanted", device.name());
                assert_eq!(words_of(stream.as_ref(), &order, room), expected, "{what}");
                assert_eq!(longs_of(stream.as_ref(), &page, 3), [0, count, delivered as u64], "{what}");
                let word = |row: &u32| words[0].get(*row as usize).copied().filter(|_| keeps_first);
                let in_order: Vec<u64> = expected.iter().map(|row| word(row).unwrap_or(u64::MAX)).collect();
                assert_eq!(longs_of(stream.as_ref(), &first, room), in_order, "{what}");
            }
        }
    }
}

/// Reductions of arrays: not yet part of what queries run.
impl Primitives<'_> {
    /// The reduction of `rows` 8-byte elements, at least one, by passes over tiles of `tile_rows`.
    fn reduce(&mut self, data: &Buffer, rows: u64, tile_rows: u64, of: (Scalar, Reduction)) -> u64 {
        let module = valid(reduce::module(&self.shape, of.0, of.1)).unwrap();
        let kernel =
            self.stream.device().compile_for(&module, reduce::TILES, block_shape(&self.shape)).unwrap();
        let (mut data, mut rows) = (Arc::clone(data), rows);
        loop {
            let tiles = rows.div_ceil(tile_rows);
            let sums = self.allocate(tiles * 8).unwrap();
            let arguments =
                [whole(&data), integer(Scalar::I64, rows), integer(Scalar::I64, tile_rows), whole(&sums)];
            self.launch(kernel.as_ref(), tiles, &arguments).unwrap();
            if tiles == 1 {
                return longs_of(self.stream, &sums, 1)[0];
            }
            (data, rows) = (sums, tiles);
        }
    }
}

fn longs_of(stream: &dyn QueryStream, buffer: &Buffer, count: usize) -> Vec<u64> {
    let words = words_of(stream, buffer, count * 2);
    words.chunks_exact(2).map(|pair| u64::from(pair[0]) | u64::from(pair[1]) << 32).collect()
}

/// What a reduction gives, computed plainly. Floats are whole numbers here, so that sums are exact in any order.
fn fold((scalar, reduction): (Scalar, Reduction), values: &[u64]) -> u64 {
    let values = values.iter().copied();
    match (scalar, reduction) {
        (Scalar::F64, _) => values.map(f64::from_bits).sum::<f64>().to_bits(),
        (_, Reduction::Sum) => values.fold(0, u64::wrapping_add),
        (Scalar::I64, Reduction::Least) => values.map(|value| value as i64).min().unwrap() as u64,
        (Scalar::I64, Reduction::Greatest) => values.map(|value| value as i64).max().unwrap() as u64,
        (_, Reduction::Least) => values.min().unwrap(),
        (_, Reduction::Greatest) => values.max().unwrap(),
    }
}

const REDUCTIONS: [(Scalar, Reduction); 5] = [
    (Scalar::U64, Reduction::Sum),
    (Scalar::F64, Reduction::Sum),
    (Scalar::I64, Reduction::Least),
    (Scalar::I64, Reduction::Greatest),
    (Scalar::U64, Reduction::Greatest),
];

#[test]
fn reduces_arrays() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        for of in REDUCTIONS {
            // Rows, and rows a tile.
            for (rows, tile_rows) in [(1, 8), (9, 8), (65, 8), (200, 64), (700, 64), (700, 128)] {
                let mut next = random(rows as u64);
                let value = |bits: u64| match of.0 {
                    Scalar::F64 => ((bits % 2000) as f64 - 1000.0).to_bits(),
                    _ => bits,
                };
                let values: Vec<u64> = (0..rows).map(|_| value(next())).collect();
                let bytes =
                    |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
                let buffer = upload(stream.as_ref(), &bytes(&values));
                let what = format!("{} {of:?} {rows} rows, tiles of {tile_rows}", device.name());
                let found = primitives.reduce(&buffer, rows as u64, tile_rows, of);
                assert_eq!(found, fold(of, &values), "{what}");
            }
        }
    }
}
