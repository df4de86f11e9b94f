//! Merges of sorted runs, and the places of runs of equal keys.

use super::*;

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Primitives whose tiles are as short as these allow.
fn with_primitives(device: &Arc<dyn Device>, test: impl FnOnce(&mut Primitives<'_>)) {
    let (cache, cancel) = (ColumnCache::default(), CancelToken::default());
    let stream = Arc::clone(device).begin_query().unwrap();
    test(&mut Primitives::new(stream.as_ref(), &cache, &cancel));
}

/// Sorted runs of keys of `kinds` values, and their bounds.
fn runs(lengths: &[usize], kinds: u64) -> (Vec<u64>, Vec<u64>) {
    let mut next = random(kinds.wrapping_add(lengths.len() as u64));
    let (mut keys, mut bounds) = (Vec::new(), vec![0]);
    for length in lengths {
        let mut run: Vec<u64> =
            (0..*length).map(|_| if kinds == u64::MAX { next() } else { next() % kinds }).collect();
        run.sort_unstable();
        keys.extend(run);
        bounds.push(keys.len() as u64);
    }
    (keys, bounds)
}

/// Runs of all kinds: none, empty ones at every place, odd numbers of them, long beside short ones, all equal, all different.
#[test]
fn merges_runs() {
    let long = [3000, 17, 0, 2500, 1, 4000];
    let lengths: [&[usize]; 11] = [
        &[],
        &[0],
        &[1],
        &[0, 0, 5],
        &[7, 0],
        &[40, 40],
        &[1, 100],
        &[3, 0, 0, 0, 9, 2],
        &[33, 8, 64, 1, 70],
        &[1; 37],
        &long,
    ];
    for device in devices() {
        let is_slow = device.kind() == kelpie_device::DeviceKind::Simt;
        for lengths in lengths.iter().filter(|lengths| !is_slow || ***lengths != long) {
            for kinds in [1, 3, 50, u64::MAX] {
                let (keys, bounds) = runs(lengths, kinds);
                let what = format!("{} {lengths:?} of {kinds} keys", device.name());
                with_primitives(&device, |primitives| {
                    let buffer = upload(primitives.stream, &bytes_of(&keys));
                    let sorted = primitives.merge_runs(&buffer, &bounds).unwrap();
                    let mut expected: Vec<u32> = (0..keys.len() as u32).collect();
                    expected.sort_by_key(|row| keys[*row as usize]);
                    assert_eq!(words_of(primitives.stream, &sorted.order, keys.len()), expected, "{what}");
                    assert_eq!(sorted.first.is_some(), !keys.is_empty(), "{what}");
                    let Some(first) = sorted.first else { return };
                    let in_order: Vec<u64> = expected.iter().map(|row| keys[*row as usize]).collect();
                    assert_eq!(longs_of(primitives.stream, &first, keys.len()), in_order, "{what}");
                    // What was given stays.
                    assert_eq!(longs_of(primitives.stream, &buffer, keys.len()), keys, "{what}");
                });
            }
        }
    }
}

/// Two arrays: equal keys of the first come first, and values are whatever they are. Tiles are long and short.
#[test]
fn merges_two_arrays() {
    for device in devices() {
        for (count, other_count) in [(0, 0), (1, 0), (0, 3), (5, 5), (100, 1), (64, 77), (130, 200)] {
            for kinds in [1, 7, u64::MAX] {
                let (keys, _) = runs(&[count], kinds);
                let (other_keys, _) = runs(&[other_count], kinds);
                let values: Vec<u32> = (0..count as u32).map(|value| value * 3).collect();
                let other_values: Vec<u32> = (0..other_count as u32).map(|value| u32::MAX - value).collect();
                let all = keys.iter().zip(&values).chain(other_keys.iter().zip(&other_values));
                let mut expected: Vec<(u64, u32)> = all.map(|(key, value)| (*key, *value)).collect();
                expected.sort_by_key(|(key, _)| *key);
                let rows = expected.len();
                let what = format!("{} {count} and {other_count} of {kinds} keys", device.name());
                with_primitives(&device, |primitives| {
                    let stream = primitives.stream;
                    let numbers = |values: &[u32]| {
                        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                        upload(stream, &bytes)
                    };
                    let arrays = [upload(stream, &bytes_of(&keys)), upload(stream, &bytes_of(&other_keys))];
                    let payload = [numbers(&values), numbers(&other_values)];
                    let out = (upload(stream, &vec![0; rows * 8]), upload(stream, &vec![0; rows * 4]));
                    let two = ((&arrays[0], &payload[0]), (&arrays[1], &payload[1]), count as u64);
                    let bounds = [0, count as u64, rows as u64];
                    primitives.merge_pairs(two, &bounds, (&out.0, &out.1)).unwrap();
                    let found = longs_of(stream, &out.0, rows);
                    let found: Vec<(u64, u32)> =
                        found.into_iter().zip(words_of(stream, &out.1, rows)).collect();
                    assert_eq!(found, expected, "{what}");
                });
            }
        }
    }
}

/// Of runs that are in no order something comes out, and nothing beyond them is touched.
#[test]
fn runs_that_are_not_sorted() {
    for device in devices() {
        with_primitives(&device, |primitives| {
            let mut next = random(3);
            let keys: Vec<u64> = (0..200).map(|_| next()).collect();
            let buffer = upload(primitives.stream, &bytes_of(&keys));
            let sorted = primitives.merge_runs(&buffer, &[0, 70, 71, 150, 200]).unwrap();
            let found = words_of(primitives.stream, &sorted.order, keys.len());
            assert!(found.iter().all(|element| *element < 200), "{}: {found:?}", device.name());
        });
    }
}

/// The places of runs behind others that were there before.
#[test]
fn places_of_runs() {
    for device in devices() {
        for (rows, kinds) in [(1, 1), (2, 1), (2, 9), (77, 1), (300, 5), (300, 100), (500, u64::MAX)] {
            let (keys, _) = runs(&[rows], kinds);
            let what = format!("{} {rows} of {kinds} keys", device.name());
            with_primitives(&device, |primitives| {
                let stream = primitives.stream;
                let buffer = upload(stream, &bytes_of(&keys));
                let (places, count) = primitives.number_runs(&buffer, rows as u64).unwrap();
                let mut distinct = keys.clone();
                distinct.dedup();
                assert_eq!(count, distinct.len() as u64, "{what}");
                let base = 11;
                let run_keys = upload(stream, &bytes_of(&vec![7; base + distinct.len() + 1]));
                primitives.place_runs((&buffer, &places), rows as u64, base as u64, &run_keys).unwrap();
                let place = |key: &u64| (base + distinct.binary_search(key).unwrap()) as u32;
                let expected: Vec<u32> = keys.iter().map(place).collect();
                assert_eq!(words_of(stream, &places, rows), expected, "{what}");
                let expected: Vec<u64> = [vec![7; base], distinct.clone(), vec![7]].concat();
                assert_eq!(longs_of(stream, &run_keys, expected.len()), expected, "{what}");
            });
        }
    }
}
