//! Which cases of a cross product a run of the tests covers.
//!
//! A test of every kind × side × device × size has more cases than a check that is run often has time for. It lists them all and runs
//! those that [`sample`] picks. The pick follows from a seed: the same in each run, unless `KELPIE_SEED` gives another (checks of a
//! commit take the commit's own). `KELPIE_MATRIX=whole` runs every case (`cargo run -p xtask -- matrix`). What is picked is always a part
//! of the whole, so that no seed fails where the whole holds.

use std::collections::HashSet;
use std::env;
use std::hash::Hash;

use super::Random;

/// Environment variable with the seed, which may be any text.
pub const SEED: &str = "KELPIE_SEED";
/// Environment variable that has every case run where it is `whole`.
pub const MATRIX: &str = "KELPIE_MATRIX";
/// The seed where none is given.
const DEFAULT_SEED: &str = "1";

/// Whether every case runs: what is counted over all cases ("each value is chosen somewhere") holds only then.
pub fn is_whole() -> bool {
    env::var(MATRIX).is_ok_and(|value| value == "whole")
}

/// At most so many of the cases, in their order; all where the whole matrix runs. `name` tells this list from others of the same
/// test, which are not to pick alike.
pub fn sample<T>(name: &str, cases: impl IntoIterator<Item = T>, most: usize) -> Vec<T> {
    covering(name, cases, most, |_| Vec::<()>::new())
}

/// The same, so that each facet that any case has is that of a picked one: there are as many cases more as that takes.
pub fn covering<T, F: Eq + Hash>(
    name: &str,
    cases: impl IntoIterator<Item = T>,
    most: usize,
    facets: impl Fn(&T) -> Vec<F>,
) -> Vec<T> {
    let cases: Vec<T> = cases.into_iter().collect();
    if is_whole() || cases.len() <= most {
        return cases;
    }
    let seed = env::var(SEED).ok().filter(|seed| !seed.is_empty()).unwrap_or_else(|| DEFAULT_SEED.into());
    let picked = pick(hash(&[&seed, name]), &cases, most, facets);
    tell(name, picked.iter().filter(|picked| **picked).count(), cases.len(), &seed);
    cases.into_iter().zip(picked).filter_map(|(case, picked)| picked.then_some(case)).collect()
}

/// For each case whether it is picked.
fn pick<T, F: Eq + Hash>(seed: u64, cases: &[T], most: usize, facets: impl Fn(&T) -> Vec<F>) -> Vec<bool> {
    let mut random = Random { state: seed };
    // Fisher and Yates: every order is as likely.
    let mut order: Vec<usize> = (0..cases.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, random.below(last + 1));
    }
    let mut picked = vec![false; cases.len()];
    let mut seen = HashSet::new();
    let mut count = 0;
    for index in &order {
        let mut is_new = false;
        for facet in facets(&cases[*index]) {
            is_new |= seen.insert(facet);
        }
        if is_new {
            picked[*index] = true;
            count += 1;
        }
    }
    for index in order {
        if count < most && !picked[index] {
            picked[index] = true;
            count += 1;
        }
    }
    picked
}

/// Says how the same cases run again. The output of a test is shown where it fails.
fn tell(name: &str, picked: usize, all: usize, seed: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let package = env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".into());
    println!(
        "{name}: {picked} of {all} cases; again: {SEED}={seed} cargo test -p {package} {test}; all: {MATRIX}=whole"
    );
}

/// Fowler, Noll and Vo's hash (FNV-1a, 64 bits): the same on every machine and in every build.
fn hash(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picked(seed: u64, most: usize) -> Vec<usize> {
        let cases: Vec<usize> = (0..60).collect();
        let picked = pick(seed, &cases, most, |case| vec![("tens", case / 10), ("units", case % 10)]);
        cases.into_iter().zip(picked).filter_map(|(case, picked)| picked.then_some(case)).collect()
    }

    #[test]
    fn each_facet_is_that_of_a_picked_case() {
        for seed in 0..50 {
            let cases = picked(seed, 4);
            for unit in 0..10 {
                assert!(cases.iter().any(|case| case % 10 == unit), "{unit}: {cases:?}");
            }
            for ten in 0..6 {
                assert!(cases.iter().any(|case| case / 10 == ten), "{ten}: {cases:?}");
            }
            assert!(cases.len() <= 16, "{cases:?}");
        }
    }

    #[test]
    fn a_seed_picks_the_same_and_seeds_differ() {
        assert_eq!(picked(3, 20), picked(3, 20));
        assert_eq!(picked(3, 20).len(), 20);
        assert_ne!(picked(3, 20), picked(4, 20));
    }

    #[test]
    fn all_cases_of_a_short_list_run() {
        assert_eq!(sample("a test of samples", 0..5, 8), [0, 1, 2, 3, 4]);
    }
}
