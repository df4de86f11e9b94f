//! Selection by rank against a plain sort, on the CPU and on interpreters of several shapes.

use std::sync::Arc;

use kelpie_compile::operator::sort::words::EXACT_TEXT_BYTES;
use kelpie_compile::shape::LaunchShape;
use kelpie_device::cpu::CpuDevice;
use kelpie_device::simt::SimtDevice;
use kelpie_device::{Buffer, CancelToken, Device, KernelArgument, QueryStream};
use kelpie_kir::{AtomicOp, Builder, Scalar, Scope, Type, validate};

use super::*;
use crate::columns::ColumnCache;
use crate::launch::{block_shape, submit};

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![
        CpuDevice::new(Some(3)).unwrap(),
        SimtDevice::new(32, 64, 3),
        SimtDevice::new(4, 8, 2),
        SimtDevice::new(1, 2, 2),
    ];
    devices.extend(kelpie_device::cuda::CudaDevice::open(0).ok().map(|device| device as Arc<dyn Device>));
    devices
}

/// A number without a pattern.
fn mixed(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

fn upload(stream: &dyn QueryStream, bytes: &[u8]) -> Buffer {
    let buffer = stream.device().allocate(bytes.len().max(16)).unwrap();
    stream.upload(&buffer, 0, bytes).unwrap();
    buffer
}

fn u64s(stream: &dyn QueryStream, words: &[u64]) -> Buffer {
    upload(stream, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
}

/// The address of device memory, as kernels see it.
fn address_of(stream: &dyn QueryStream, buffer: &Buffer) -> u64 {
    let mut b = Builder::new();
    b.begin_kernel("address");
    let (data, out) =
        (b.add_param("data", Type::global(Scalar::U8)), b.add_param("out", Type::global(Scalar::U64)));
    let (data, out) = (b.param(data), b.param(out));
    let address = b.bitcast(data, Scalar::U64);
    b.atomic_discard(AtomicOp::Exchange, out, address, Scope::Device);
    b.end_kernel();
    let module = validate(b.finish().unwrap()).unwrap();
    let shape = block_shape(&LaunchShape::of(stream.device().target()));
    let kernel = stream.compile_for(&module, "address", shape).unwrap();
    let out = stream.device().allocate(16).unwrap();
    let arguments = [buffer, &out].map(|buffer| KernelArgument::Buffer(Arc::clone(buffer), 0));
    submit(stream, kernel.as_ref(), 1, &arguments, &CancelToken::default()).unwrap();
    let mut address = [0; 8];
    stream.download(&out, 0, &mut address).unwrap();
    u64::from_le_bytes(address)
}

/// The ranks to ask for of so many rows.
fn ranges(rows: u64) -> Vec<Range<u64>> {
    let ranges =
        [0..1, 0..10, 5..8, rows / 2..rows / 2 + 7, rows - 1..rows, 0..rows, rows / 3..rows / 3 + 40];
    ranges.into_iter().filter(|range| range.end <= rows && !range.is_empty()).collect()
}

#[test]
fn words_by_rank() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let rows = if device.kind() == kelpie_device::DeviceKind::Cpu { 70_000 } else { 400 };
        let column = |map: &dyn Fn(u64) -> u64| (0..rows).map(|row| map(mixed(row))).collect::<Vec<u64>>();
        let (all, few) = (column(&|x| x), column(&|x| x % 3));
        let (high, constant) = (column(&|x| (x % 7) << 61), vec![42; rows as usize]);
        let skewed = column(&|x| if x % 10 == 0 { x } else { 1 << 40 });
        let extremes = column(&|x| [0, u64::MAX, 1 << 63, 255, 256][(x % 5) as usize]);
        let lists = [
            vec![&all],
            vec![&few],
            vec![&constant],
            vec![&few, &all],
            vec![&high, &constant, &skewed],
            vec![&skewed, &extremes],
            vec![&extremes],
        ];
        for (number, words) in lists.iter().enumerate() {
            let buffers: Vec<Buffer> = words.iter().map(|word| u64s(stream.as_ref(), word)).collect();
            let key = |row: &u32| words.iter().map(|word| word[*row as usize]).collect::<Vec<u64>>();
            let mut expected: Vec<Vec<u64>> = (0..rows as u32).map(|row| key(&row)).collect();
            expected.sort();
            for range in ranges(rows) {
                let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
                let host_rows = (range.end - range.start).max(5);
                let (primitives, words) = (&mut primitives, &buffers);
                let mut selector = Selector { primitives, words, texts: &[], host_rows, steps: 0 };
                let picked = selector.select(rows, range.clone()).unwrap().unwrap();
                let what = format!("{} list {number} {range:?}", device.name());
                assert_eq!(picked.start, range.start, "{what}");
                let found: Vec<Vec<u64>> = picked.places.iter().map(key).collect();
                assert_eq!(found, expected[range.start as usize..range.end as usize], "{what}");
                let mut places = picked.places.clone();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), found.len(), "{what}");
            }
        }
    }
}

/// The words of a text that is not NULL, and of a number after it.
fn words_of(text: &[u8], descending: bool) -> [u64; 2] {
    let mut bytes = [0; 16];
    let exact = EXACT_TEXT_BYTES as usize;
    bytes[..text.len().min(exact)].copy_from_slice(&text[..text.len().min(exact)]);
    let number = u128::from_be_bytes(bytes) >> 1 | text.len().min(exact + 1) as u128;
    let number = if descending { !number & (u128::MAX >> 1) } else { number };
    [(number >> 64) as u64, number as u64]
}

/// What makes texts of numbers, and its name.
type Maker = (&'static str, Box<dyn Fn(u64) -> String>);

#[test]
fn texts_by_rank() {
    const LONG: &str = "http://www.example.com/the/same/beginning/of/all/";
    let makers: Vec<Maker> = vec![
        ("equal", Box::new(|_| "the same text, longer than its words".into())),
        ("long prefix", Box::new(|x| format!("{LONG}{:04}", x % 3000))),
        ("prefixes", Box::new(|x| "abcdefghij".repeat((x % 9) as usize))),
        ("zeros", Box::new(|x| format!("fifteen bytes: {}", "\0".repeat((x % 5) as usize)))),
        ("ends and goes on", Box::new(|x| format!("{LONG}{}", "é\u{10ffff}".repeat((x % 4) as usize)))),
        ("mixed", Box::new(|x| if x % 4 == 0 { format!("{x:x}") } else { format!("{LONG}{}", x % 11) })),
    ];
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let is_cpu = device.kind() == kelpie_device::DeviceKind::Cpu;
        let rows: u64 = if is_cpu { 5000 } else { 300 };
        for (name, maker) in &makers {
            let texts: Vec<String> = (0..rows).map(|row| maker(mixed(row))).collect();
            let heap = upload(stream.as_ref(), texts.concat().as_bytes());
            let mut address = address_of(stream.as_ref(), &heap);
            let next = |text: &String| {
                address += text.len() as u64;
                address - text.len() as u64
            };
            let addresses: Vec<u64> = texts.iter().map(next).collect();
            let lengths: Vec<u8> = texts.iter().flat_map(|text| (text.len() as u32).to_le_bytes()).collect();
            let stored = (u64s(stream.as_ref(), &addresses), upload(stream.as_ref(), &lengths));
            // The number after the text, with few values.
            let numbers: Vec<u64> = (0..rows).map(|row| mixed(row + rows) % 5).collect();
            for descending in [false, true] {
                let words: Vec<[u64; 2]> = texts.iter().map(|t| words_of(t.as_bytes(), descending)).collect();
                let columns = [
                    words.iter().map(|w| w[0]).collect(),
                    words.iter().map(|w| w[1]).collect(),
                    numbers.clone(),
                ];
                let buffers: Vec<Buffer> =
                    columns.iter().map(|c: &Vec<u64>| u64s(stream.as_ref(), c)).collect();
                let key = |row: &u32| (texts[*row as usize].as_str(), numbers[*row as usize]);
                let compare = |a: &u32, b: &u32| {
                    let (a, b) = (key(a), key(b));
                    let text = if descending { b.0.cmp(a.0) } else { a.0.cmp(b.0) };
                    text.then(a.1.cmp(&b.1))
                };
                let mut expected: Vec<u32> = (0..rows as u32).collect();
                expected.sort_by(compare);
                let expected: Vec<_> = expected.iter().map(key).collect();
                for range in ranges(rows) {
                    let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
                    let key_texts = [KeyText { word: 1, descending, stored: Some(stored.clone()) }];
                    let host_rows = (range.end - range.start).max(3);
                    let mut selector = Selector {
                        primitives: &mut primitives,
                        words: &buffers,
                        texts: &key_texts,
                        host_rows,
                        steps: 0,
                    };
                    let what = format!("{} {name} {range:?} {descending}", device.name());
                    let picked =
                        selector.select(rows, range.clone()).unwrap().unwrap_or_else(|| panic!("{what}"));
                    if picked.is_decided {
                        assert_eq!(
                            (picked.start, picked.places.len() as u64),
                            (range.start, range.end - range.start),
                            "{what}"
                        );
                        assert!(picked.places.is_sorted_by(|a, b| compare(a, b).is_le()), "{what}");
                    }
                    // No more than what the host may put in order comes beside the wanted rows.
                    let end = picked.start + picked.places.len() as u64;
                    assert!(picked.start <= range.start && end >= range.end, "{what}");
                    assert!(
                        range.start - picked.start <= host_rows && end - range.end <= host_rows,
                        "{what}"
                    );
                    let mut places = picked.places.clone();
                    places.sort_by(compare);
                    let found: Vec<_> = places.iter().map(key).collect();
                    assert_eq!(found, expected[picked.start as usize..end as usize], "{what}");
                    places.dedup();
                    assert_eq!(places.len(), picked.places.len(), "{what}");
                }
            }
        }
    }
}
