//! Sorts digit by digit in every form: around the borders of tiles, by words that differ in all kinds of bits.

use kelpie_device::DeviceKind;

use super::*;

/// Bits in which words differ, by where they lie.
const MASKS: [(&str, u64); 12] = [
    ("the lowest", 1),
    ("the highest", 1 << 63),
    ("a digit across bytes", 0xff << 4),
    ("32 from the lowest", u32::MAX as u64),
    ("32 in the middle", (u32::MAX as u64) << 17),
    ("32 to the highest", (u32::MAX as u64) << 32),
    ("the ends of 32", 1 << 5 | 1 << 36),
    ("the ends of 33", 1 << 5 | 1 << 37),
    ("33", 0x1_ffff_ffff << 9),
    ("both ends", 1 << 63 | 1),
    ("every ninth", 0x8040_2010_0804_0201),
    ("all", u64::MAX),
];

/// Rows around the borders of the tiles of all forms.
fn sizes(primitives: &Primitives<'_>) -> Vec<u64> {
    let tile = match sweep::tile_rows(&primitives.shape) {
        0 => CPU_TILE,
        tile_rows => tile_rows,
    };
    vec![0, 1, 2, tile - 1, tile, tile + 1, 2 * tile, 3 * tile + 7]
}

#[test]
fn words_that_differ_in_some_bits_around_the_borders_of_tiles() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        let few = device.kind() == DeviceKind::Simt && primitives.shape.block_threads > 16;
        for rows in sizes(&primitives) {
            let masks = MASKS.iter().skip(rows as usize % 3).step_by(if few { 4 } else { 1 });
            for (name, mask) in masks {
                let mut next = random(rows ^ mask);
                // The bits that do not differ: nothing of them may get into a digit.
                let same = if rows.is_multiple_of(2) { 0x1234 } else { u64::MAX };
                // Half of the values come again.
                let word = (0..rows).map(|_| {
                    let value = next();
                    (if value.is_multiple_of(2) { value } else { value >> 62 | value << 59 }) & mask
                        | same & !mask
                });
                sorts_with(&mut primitives, rows as usize, name, &[word.collect()]);
            }
        }
    }
}

#[test]
fn several_words_of_different_widths_over_several_tiles() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        let rows = sizes(&primitives).into_iter().max().unwrap_or(0);
        let mut next = random(11);
        let mut column = |map: &dyn Fn(u64) -> u64| (0..rows).map(|_| map(next())).collect::<Vec<u64>>();
        let (bit, narrow, wide) =
            (column(&|x| x % 2), column(&|x| (x % 7) << 40), column(&|x| x >> (x % 64)));
        let (one, constant) = (column(&|x| u64::from(x % 64 == 0) << 63), vec![u64::MAX; rows as usize]);
        let lists = [
            ("narrow words", vec![bit.clone(), narrow.clone()]),
            ("wide before narrow", vec![wide.clone(), bit.clone()]),
            ("narrow before wide", vec![bit.clone(), constant.clone(), narrow, wide.clone()]),
            ("constant first", vec![constant.clone(), one]),
            ("constant alone", vec![constant.clone(), constant]),
            ("wide words", vec![wide.clone(), bit, wide]),
        ];
        for (name, words) in lists {
            sorts_with(&mut primitives, rows as usize, name, &words);
        }
    }
}

/// Rows that come in order, in the opposite one, and nearly so.
#[test]
fn rows_that_come_in_order() {
    for device in devices() {
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        let rows = sizes(&primitives).into_iter().max().unwrap_or(0);
        let column = |map: &dyn Fn(u64) -> u64| (0..rows).map(map).collect::<Vec<u64>>();
        let (rising, slow) = (column(&|row| row << 20), column(&|row| row / 3));
        let (falling, slow_fall) = (column(&|row| u64::MAX - row), column(&|row| (rows - row) / 2));
        let last = column(&|row| if row + 1 == rows { 0 } else { row + 1 });
        let inner = column(&|row| row % 3);
        let lists = [
            ("rising", vec![rising.clone()]),
            ("rising and staying", vec![slow.clone()]),
            ("falling", vec![falling.clone()]),
            ("falling and staying", vec![slow_fall.clone()]),
            ("but for the last", vec![last.clone()]),
            ("two words in order", vec![slow.clone(), inner.clone()]),
            ("two words, the second falls", vec![slow.clone(), falling.clone()]),
            ("three words", vec![slow, inner, rising.clone()]),
            ("falling, then anything", vec![falling, rising.clone()]),
            ("falling and staying, then anything", vec![slow_fall, last, rising]),
        ];
        for (name, words) in lists {
            sorts_with(&mut primitives, rows as usize, name, &words);
        }
    }
}

/// Blocks of less than a warp, of one warp, and of more threads than digits.
#[test]
fn sweeps_by_blocks_of_every_size() {
    for (lanes, threads) in [(1, 2), (2, 2), (8, 8), (16, 48), (32, 512)] {
        let device: Arc<dyn Device> = SimtDevice::new(lanes, threads, 2);
        let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
        let stream = Arc::clone(&device).begin_query().unwrap();
        let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
        assert!(sweep::tile_rows(&primitives.shape) > 0);
        let rows = sweep::tile_rows(&primitives.shape) + 5;
        let mut next = random(3);
        let word: Vec<u64> = (0..rows).map(|_| next() % 700).collect();
        sorts_with(&mut primitives, rows as usize, "few values", &[word]);
    }
}

#[test]
fn blocks_without_memory_do_not_sweep() {
    let shapes = [2 << 10, 8 << 10, 48 << 10, 227 << 10].map(|shared_bytes| {
        let target = kelpie_kir::Target::simt(32, 256, shared_bytes, 4);
        sweep::tile_rows(&LaunchShape::of(&target))
    });
    assert_eq!(shapes, [0, 0, 4096, 4096]);
    assert_eq!(sweep::tile_rows(&LaunchShape::of(&kelpie_kir::Target::cpu(2))), 0);
    // Such a block sorts by tiles, whatever is asked for.
    let device: Arc<dyn Device> = SimtDevice::new(8, 16, 2);
    let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
    let stream = Arc::clone(&device).begin_query().unwrap();
    let mut primitives = Primitives::new(stream.as_ref(), &cache, &cancel);
    primitives.shape.shared_bytes = 4 << 10;
    primitives.form = SortForm { passes: SortPasses::Sweep };
    let words: Vec<u8> = [5u64, 3, 9, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
    let word = upload(stream.as_ref(), &words);
    let sorted = primitives.radix_sort(&[word], 4).unwrap();
    assert_eq!(words_of(stream.as_ref(), &sorted.order, 4), [1, 3, 0, 2]);
}
