//! Prefix sum and radix sort by themselves, on the CPU and on interpreters of several shapes.

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
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel).unwrap();
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
    let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel).unwrap();
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
