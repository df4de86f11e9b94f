//! Prefix sum, radix sort and reductions by themselves, on the CPU and on interpreters of several shapes.

use kelpie_device::Device;
use kelpie_device::cpu::CpuDevice;
use kelpie_device::simt::SimtDevice;

use super::*;

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![
        CpuDevice::new(Some(3)).unwrap(),
        SimtDevice::new(32, 64, 3),
        SimtDevice::new(32, 32, 1),
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
            [(0, 8), (1, 8), (7, 8), (8, 8), (9, 8), (65, 8), (500, 8), (1000, 1), (777, 64)]
        {
            let mut next = random(rows as u64);
            let values: Vec<u32> = (0..rows).map(|_| next() as u32).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let buffer = upload(stream.as_ref(), &bytes);
            let tile_rows = if tile_rows == 1 { 2 } else { tile_rows };
            primitives.scan_tiles(&buffer, rows as u64, tile_rows).unwrap();
            let mut sum = 0u32;
            let mut before = |value: &u32| {
                let before = sum;
                sum = sum.wrapping_add(*value);
                before
            };
            let expected: Vec<u32> = values.iter().map(&mut before).collect();
            let found = words_of(stream.as_ref(), &buffer, rows);
            assert_eq!(found, expected, "{} rows {rows} tile {tile_rows}", device.name());
        }
    }
}

/// Sorts rows of words, and compares with a stable sort.
fn sorts(device: &Arc<dyn Device>, rows: usize, name: &str, words: &[Vec<u64>]) {
    let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
    let stream = Arc::clone(device).begin_query().unwrap();
    let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
    let bytes = |word: &Vec<u64>| word.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let buffers: Vec<Buffer> = words.iter().map(|word| upload(stream.as_ref(), &bytes(word))).collect();
    let sorted = primitives.sort(&buffers, rows as u64).unwrap();
    let mut expected: Vec<u32> = (0..rows as u32).collect();
    let key = |row: &u32| words.iter().map(|word| word[*row as usize]).collect::<Vec<u64>>();
    expected.sort_by_key(key);
    let found = words_of(stream.as_ref(), &sorted.order, rows);
    assert_eq!(found, expected, "{} {name} {rows}", device.name());
    let constant = words[0].iter().all(|word| Some(word) == words[0].first());
    assert_eq!(sorted.first.is_none(), constant, "{} {name} {rows}", device.name());
    if let Some(first) = sorted.first {
        let mut words = vec![0; rows * 8];
        stream.download(&first, 0, &mut words).unwrap();
        assert!(words.chunks_exact(8).is_sorted_by_key(|w| u64::from_le_bytes(w.try_into().unwrap())));
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
            sorts(&device, rows, "constant words", &[constant.clone(), extremes, constant, falling]);
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

    /// The keys of the runs of sorted keys, and the reductions of their values.
    fn reduce_segments(
        &mut self,
        (keys, values): (&Buffer, &Buffer),
        rows: u64,
        tile_rows: u64,
        (scalar, reduction): (Scalar, Reduction),
    ) -> (Vec<u64>, Vec<u64>) {
        let module = valid(segments::module(&self.shape, scalar, reduction)).unwrap();
        let (ends, run_keys) = (self.allocate(rows * 4).unwrap(), self.allocate(rows * 8).unwrap());
        let identity = (reduction.identity(scalar) as u64).to_le_bytes();
        let sums = upload(self.stream, &identity.repeat(rows as usize));
        let tiles = rows.div_ceil(tile_rows);
        let sizes = [integer(Scalar::I64, rows), integer(Scalar::I64, tile_rows)];
        let kernel =
            self.stream.device().compile_for(&module, segments::ENDS, block_shape(&self.shape)).unwrap();
        let own = [whole(keys), whole(&ends)];
        self.launch(kernel.as_ref(), tiles, &[sizes.as_slice(), &own].concat()).unwrap();
        self.exclusive_scan(&ends, rows).unwrap();
        let kernel =
            self.stream.device().compile_for(&module, segments::SUMS, block_shape(&self.shape)).unwrap();
        let own = [whole(keys), whole(&ends), whole(values), whole(&run_keys), whole(&sums)];
        self.launch(kernel.as_ref(), tiles, &[sizes.as_slice(), &own].concat()).unwrap();
        let runs = words_of(self.stream, &ends, rows as usize).last().map_or(0, |last| *last as usize + 1);
        (longs_of(self.stream, &run_keys, runs), longs_of(self.stream, &sums, runs))
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
fn reduces_arrays_and_segments() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        for of in REDUCTIONS {
            // Rows, rows a tile, elements a run at most: runs within a warp, over warps and tiles, and one for all.
            for (rows, tile_rows, run) in
                [(1, 8, 1), (9, 8, 3), (65, 8, 1), (200, 64, 5), (700, 64, 90), (700, 128, 700)]
            {
                let mut next = random(rows as u64 + run);
                let value = |bits: u64| match of.0 {
                    Scalar::F64 => ((bits % 2000) as f64 - 1000.0).to_bits(),
                    _ => bits,
                };
                let values: Vec<u64> = (0..rows).map(|_| value(next())).collect();
                let mut key = 7;
                let mut keys = Vec::new();
                while keys.len() < rows {
                    let length = if run >= 700 { rows } else { (next() % run) as usize + 1 };
                    keys.extend(std::iter::repeat_n(key, length.min(rows - keys.len())));
                    key += 1 + next() % 3;
                }
                let bytes =
                    |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
                let buffers = [&keys, &values].map(|words| upload(stream.as_ref(), &bytes(words)));
                let what =
                    format!("{} {of:?} {rows} rows, tiles of {tile_rows}, runs of {run}", device.name());
                let found = primitives.reduce(&buffers[1], rows as u64, tile_rows, of);
                assert_eq!(found, fold(of, &values), "{what}");
                let runs: Vec<&[u64]> = keys.chunk_by(|a, b| a == b).collect();
                let mut rest = values.as_slice();
                let mut expected = Vec::new();
                for run in &runs {
                    let (own, after) = rest.split_at(run.len());
                    expected.push(fold(of, own));
                    rest = after;
                }
                let pair = (&buffers[0], &buffers[1]);
                let found = primitives.reduce_segments(pair, rows as u64, tile_rows, of);
                let run_keys: Vec<u64> = runs.iter().map(|run| run[0]).collect();
                assert_eq!(found, (run_keys, expected), "{what}");
            }
        }
    }
}
