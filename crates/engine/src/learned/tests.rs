use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use kelpie_device::disk_cache::DiskCache;

use super::disk::DiskStore;
use super::memory::{LIMIT, MemoryStore};
use super::*;

fn about(number: usize) -> Fingerprint {
    Fingerprint::of(&number)
}

fn capacities(number: usize) -> Record {
    Record::Capacities(vec![number as u64, 64, u64::MAX])
}

fn joins(joins: &[usize]) -> Record {
    Record::Duplicates(joins.iter().copied().collect())
}

fn at(folder: &Path) -> DiskStore {
    DiskStore::new(DiskCache::at(folder))
}

/// The only file of a folder.
fn file(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// The numbers below `until` of which there are capacities in a folder.
fn known(folder: &Path, until: usize) -> BTreeSet<usize> {
    let store = at(folder);
    let is_known = |number: &usize| store.get(Kind::Capacities, about(*number)) == Some(capacities(*number));
    (0..until).filter(is_known).collect()
}

#[test]
fn a_record_is_found_by_its_kind_and_what_it_is_about() {
    let folder = tempfile::tempdir().unwrap();
    let stores: [Box<dyn Store>; 2] = [Box::new(MemoryStore::default()), Box::new(at(folder.path()))];
    for store in stores {
        assert!(Kind::ALL.into_iter().all(|kind| store.is_empty(kind)));
        let memory_fallback = Record::MemoryFallback(MemoryFallback::Blocks);
        let rates = Record::Rates(Rates { memory: 2.0, link: 1.0, link_is_memory: false });
        let records = [joins(&[1, 3]), capacities(1), memory_fallback, rates, Record::Data(about(2))];
        for (kind, record) in Kind::ALL.into_iter().zip(&records) {
            assert_eq!(store.get(kind, about(0)), None);
            store.put(about(0), record.clone());
        }
        for (kind, record) in Kind::ALL.into_iter().zip(&records) {
            assert_eq!(store.get(kind, about(0)).as_ref(), Some(record));
            assert_eq!(store.get(kind, about(1)), None);
            assert!(!store.is_empty(kind));
        }
        store.put(about(0), joins(&[2]));
        assert_eq!(store.get(Kind::Duplicates, about(0)), Some(joins(&[2])));
    }
}

#[test]
fn joins_of_several_runs_are_added() {
    let learned = Learned::default();
    assert!(learned.duplicates(about(0)).is_empty());
    for join in [3, 1, 3] {
        learned.add_duplicates(about(0), &BTreeSet::from([join]));
    }
    assert_eq!(learned.duplicates(about(0)), BTreeSet::from([1, 3]));
}

#[test]
fn what_a_stage_runs_over_is_found_once() {
    let learned = Learned::default();
    assert_eq!(learned.data(about(0), || about(1)), about(1));
    assert_eq!(learned.data(about(0), || about(2)), about(1));
    assert_eq!(learned.memory_fallback(|| panic!("no fallback is known, and nothing is hashed")), None);
}

#[test]
fn a_later_engine_begins_with_what_outlives_an_engine() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("new");
    let store = at(&folder);
    store.put(about(0), joins(&[1, 3]));
    store.put(about(0), capacities(7));
    store.put(about(0), Record::MemoryFallback(MemoryFallback::Parts));
    store.put(about(0), Record::Data(about(1)));
    drop(store);
    let store = at(&folder);
    assert_eq!(store.get(Kind::Duplicates, about(0)), Some(joins(&[1, 3])));
    assert_eq!(store.get(Kind::Capacities, about(0)), Some(capacities(7)));
    assert!(
        store.is_empty(Kind::MemoryFallback) && store.is_empty(Kind::Data) && store.is_empty(Kind::Rates)
    );
    // Who learns nothing new writes nothing.
    fs::remove_dir_all(&folder).unwrap();
    store.put(about(0), capacities(7));
    store.put(about(1), Record::MemoryFallback(MemoryFallback::Parts));
    drop(store);
    assert!(!folder.exists());
}

#[test]
fn what_was_learned_is_written_while_the_engine_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(folder.path());
    for number in 0..2 {
        store.put(about(number), capacities(number));
        let begun = std::time::Instant::now();
        while !known(folder.path(), 2).contains(&number) {
            assert!(begun.elapsed().as_secs() < 60, "it is written");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    assert_eq!(known(folder.path(), 2).len(), 2);
}

#[test]
fn every_damaged_byte_and_every_truncation_is_as_good_as_no_file() {
    let folder = tempfile::tempdir().unwrap();
    at(folder.path()).put(about(0), capacities(0));
    let path = file(folder.path());
    let whole = fs::read(&path).unwrap();
    for place in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x10;
        for content in [&damaged, &whole[..place]] {
            fs::write(&path, content).unwrap();
            assert_eq!(known(folder.path(), 1), BTreeSet::new(), "byte {place}");
        }
    }
    // The next write replaces it.
    at(folder.path()).put(about(1), capacities(1));
    assert_eq!(known(folder.path(), 2), BTreeSet::from([1]));
    file(folder.path());
}

/// Files that are whole, and have not what is expected in them.
#[test]
fn what_another_version_or_program_has_written_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskCache::at(folder.path());
    let own = disk::key();
    for content in [
        "",
        "[]",
        "{}",
        r#"{"records":[{"about":"0","record":{"colours":[1]}}]}"#,
        r#"{"records":[{"about":"x","record":{"capacities":[1]}}]}"#,
        r#"{"records":[{"about":"0","record":{"capacities":[-1]}}]}"#,
        r#"{"records":[{"about":"0","record":{"memory_fallback":"Parts"}}]}"#,
        r#"{"records":[{"about":"0","record":{"capacities":[1]},"more":1}]}"#,
    ] {
        assert!(cache.write(&own, content.as_bytes()));
        let store = at(folder.path());
        assert!(Kind::ALL.into_iter().all(|kind| store.is_empty(kind)), "{content}");
        store.put(about(0), capacities(0));
        drop(store);
        assert_eq!(known(folder.path(), 1), BTreeSet::from([0]), "{content}");
    }
    // Another version has another file, and both stay.
    let other = own.replace(char::is_numeric, "x");
    assert!(other != own && cache.write(&other, b"what a later version writes"));
    at(folder.path()).put(about(1), capacities(1));
    assert_eq!(known(folder.path(), 2), BTreeSet::from([0, 1]));
    assert_eq!(cache.read(&other).as_deref(), Some(&b"what a later version writes"[..]));
}

#[test]
fn a_folder_that_cannot_be_written_costs_nothing_but_what_it_would_keep() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("file");
    fs::write(&blocked, "not a folder").unwrap();
    let store = at(&blocked);
    store.put(about(0), capacities(0));
    assert_eq!(store.get(Kind::Capacities, about(0)), Some(capacities(0)));
    drop(store);
    assert_eq!(known(&blocked, 1), BTreeSet::new());
}

#[test]
fn of_each_kind_the_records_used_last_stay() {
    let folder = tempfile::tempdir().unwrap();
    let store = at(folder.path());
    store.put(about(0), joins(&[1]));
    for number in 0..5 * LIMIT {
        store.put(about(number), capacities(number));
        // The first one is used all the time.
        assert!(store.get(Kind::Capacities, about(0)).is_some(), "{number}");
    }
    drop(store);
    let left = known(folder.path(), 5 * LIMIT);
    assert!(left.contains(&0) && left.contains(&(5 * LIMIT - 1)), "the first and the last");
    assert!((LIMIT / 2..=LIMIT).contains(&left.len()), "{}", left.len());
    assert!(!left.contains(&1) && !left.contains(&LIMIT), "what was used longest ago");
    // Another kind has room of its own.
    assert_eq!(at(folder.path()).get(Kind::Duplicates, about(0)), Some(joins(&[1])));
    assert!(fs::metadata(file(folder.path())).unwrap().len() < 1 << 20);
}

#[test]
fn a_file_keeps_what_others_have_learned_and_no_more_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (at(folder.path()), at(folder.path()));
    // Both have read the file before either writes.
    assert!(one.is_empty(Kind::Capacities) && other.is_empty(Kind::Capacities));
    (0..LIMIT / 2).for_each(|number| one.put(about(number), capacities(number)));
    (LIMIT / 2..LIMIT + 10).for_each(|number| other.put(about(number), capacities(number)));
    drop(one);
    drop(other);
    let left = known(folder.path(), LIMIT + 10);
    assert_eq!(left, (10..LIMIT + 10).collect(), "the last ones of both");
}

#[test]
fn engines_that_write_at_the_same_time_leave_a_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let (folder, barrier) = (folder.path(), &barrier);
            scope.spawn(move || {
                for turn in 0..10 {
                    let store = at(folder);
                    let number = writer * 10 + turn;
                    store.put(about(number), capacities(number));
                    barrier.wait();
                    drop(store);
                    // Somebody's is there, and all that is there is whole.
                    assert!(!known(folder, 80).is_empty());
                }
            });
        }
    });
    assert!(known(folder.path(), 80).iter().any(|number| number % 10 == 9));
    file(folder.path());
}
