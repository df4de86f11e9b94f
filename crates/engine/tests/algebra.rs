//! Sorted relational algebra: every operator × width × output × partition × block join gives what plain loops over sorted vectors give, over
//! inputs of every kind, on the CPU and on interpreters of several shapes; page lists and dense arrays are the same.

use std::sync::Arc;

use kelpie_compile::algebra::{
    BlockJoin, Comparison, Description, Duplicates, Field, Operator, Outer, Output, Partition, Tuning,
    Tuples, Width,
};
use kelpie_device::Device;
use kelpie_device::cpu::CpuDevice;
use kelpie_device::simt::SimtDevice;
use kelpie_engine::algebra::{Algebra, Outcome, Relation, Stored};
use kelpie_kir::CompareOp;
use kelpie_kir::testing::sample::covering;

/// A sequence without a pattern (SplitMix64; Steele, Lea and Flood 2014).
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

fn devices() -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = vec![
        CpuDevice::new(Some(3)).unwrap(),
        SimtDevice::new(4, 8, 2),
        SimtDevice::new(32, 64, 2),
        SimtDevice::new(8, 8, 3),
    ];
    devices.extend(kelpie_device::cuda::CudaDevice::open(0).ok().map(|device| device as Arc<dyn Device>));
    devices
}

const OUTPUTS: [Output; 3] = [Output::Gather, Output::SinglePass, Output::Pages];
const PARTITIONS: [Partition; 2] = [Partition::BinarySearch, Partition::MergePath];

fn tuples(width: Width) -> Tuples {
    let (key_bits, value_bits) = match width {
        Width::W32 => (20, 12),
        Width::W64 => (40, 24),
        Width::W128 => (70, 28),
    };
    Tuples { width, key_bits, value_bits }
}

fn outer(left: bool, right: bool) -> Operator {
    Operator::Join(Outer { left, right })
}

fn operators() -> Vec<Operator> {
    let comparison = |shift, op, value| Comparison { field: Field { shift, bits: 10 }, op, value };
    vec![
        Operator::Select(vec![comparison(0, CompareOp::Lt, 700), comparison(12, CompareOp::Ne, 3)]),
        Operator::Select(vec![comparison(0, CompareOp::Lt, 1 << 40), comparison(2, CompareOp::Ne, 3)]),
        Operator::Select(Vec::new()),
        Operator::Intersect,
        Operator::Union,
        Operator::Difference,
        outer(false, false),
        outer(true, false),
        outer(false, true),
        outer(true, true),
    ]
}

/// What the keys of the inputs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Keys {
    Empty,
    LeftEmpty,
    RightEmpty,
    One,
    AllEqual,
    Disjoint,
    Interleaved,
    Identical,
    Skewed,
    Few,
    Unique,
    Extremes,
    Clusters,
}

const KEYS: [Keys; 13] = [
    Keys::Empty,
    Keys::LeftEmpty,
    Keys::RightEmpty,
    Keys::One,
    Keys::AllEqual,
    Keys::Disjoint,
    Keys::Interleaved,
    Keys::Identical,
    Keys::Skewed,
    Keys::Few,
    Keys::Unique,
    Keys::Extremes,
    Keys::Clusters,
];

/// The keys of the left and the right input, in order.
fn keys(kind: Keys, most: u128, random: &mut Random) -> [Vec<u128>; 2] {
    let range = |from: u128, to: u128, step: usize| (from..to).step_by(step).collect::<Vec<_>>();
    let mut drawn = |count: usize, of: u64| {
        let mut keys: Vec<u128> = (0..count).map(|_| u128::from(random.below(of))).collect();
        keys.sort_unstable();
        keys
    };
    match kind {
        Keys::Empty => [Vec::new(), Vec::new()],
        Keys::LeftEmpty => [Vec::new(), drawn(150, 90)],
        Keys::RightEmpty => [drawn(150, 90), Vec::new()],
        Keys::One => [vec![7], vec![7]],
        Keys::AllEqual => [vec![5; 45], vec![5; 70]],
        Keys::Disjoint => [range(0, 170, 1), range(200, 330, 1)],
        Keys::Interleaved => [range(0, 400, 2), range(1, 401, 2)],
        Keys::Identical => [range(0, 230, 1), range(0, 230, 1)],
        Keys::Skewed => {
            let mut left = drawn(60, 1000);
            left.extend(vec![500; 60]);
            left.sort_unstable();
            let mut right = drawn(50, 1000);
            right.extend(vec![500; 50]);
            right.sort_unstable();
            [left, right]
        }
        Keys::Few => [drawn(150, 40), drawn(170, 50)],
        Keys::Unique => {
            let mut keys = [drawn(300, 2000), drawn(260, 2000)];
            keys.iter_mut().for_each(|keys| keys.dedup());
            keys
        }
        Keys::Extremes => [
            [vec![0; 3], range(1, 90, 3), vec![most - 1], vec![most; 4]].concat(),
            [vec![0; 2], range(2, 90, 2), vec![most; 5]].concat(),
        ],
        Keys::Clusters => [
            [range(0, 60, 1), range(1000, 1060, 1), range(5000, 5040, 2)].concat(),
            [range(30, 50, 1), range(2000, 2100, 1), range(5000, 5040, 1)].concat(),
        ],
    }
}

/// Tuples with these keys and values of any kind, in order.
fn with_values(tuples: Tuples, keys: &[u128], random: &mut Random) -> Vec<u128> {
    let most = (1_u128 << tuples.value_bits) - 1;
    let mut value = || match random.below(8) {
        0 => 0,
        1 => most,
        _ => u128::from(random.next()) & most,
    };
    let mut all: Vec<u128> = keys.iter().map(|key| key << tuples.value_bits | value()).collect();
    all.sort_unstable();
    all
}

/// What an operator gives, by going through both inputs as they would be merged.
fn expected(description: &Description, left: &[u128], right: &[u128]) -> Vec<u128> {
    let Tuples { value_bits, .. } = description.tuples;
    let (key, value) = (|tuple: u128| tuple >> value_bits, |tuple: u128| tuple & ((1 << value_bits) - 1));
    let first = |all: &[u128], at: usize| {
        description.duplicates == Duplicates::Each || at == 0 || key(all[at - 1]) != key(all[at])
    };
    let matches = |all: &[u128], wanted: u128| -> Vec<u128> {
        all.iter().copied().filter(|tuple| key(*tuple) == wanted).collect()
    };
    let joined = |outer: Outer, of: u128, left: Option<u128>, right: Option<u128>| {
        let field = |tuple: Option<u128>, may_miss: bool| {
            let bits = value_bits + u32::from(may_miss);
            (tuple.map_or_else(|| 1 << (bits - 1), value), bits)
        };
        let ((left, left_bits), (right, right_bits)) = (field(left, outer.right), field(right, outer.left));
        (key(of) << left_bits | left) << right_bits | right
    };
    let mut results = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < left.len() || j < right.len() {
        if i < left.len() && (j >= right.len() || key(left[i]) <= key(right[j])) {
            let tuple = left[i];
            let found = matches(right, key(tuple));
            match &description.operator {
                Operator::Select(comparisons) => {
                    let holds = |comparison: &Comparison| {
                        let Field { shift, bits } = comparison.field;
                        let field = (tuple >> shift) as u64 & ((1 << bits) - 1);
                        match comparison.op {
                            CompareOp::Lt => field < comparison.value,
                            CompareOp::Ne => field != comparison.value,
                            other => panic!("{other:?}"),
                        }
                    };
                    results.extend((first(left, i) && comparisons.iter().all(holds)).then_some(tuple));
                }
                Operator::Intersect => results.extend((first(left, i) && !found.is_empty()).then_some(tuple)),
                Operator::Difference => results.extend((first(left, i) && found.is_empty()).then_some(tuple)),
                Operator::Union => results.extend(first(left, i).then_some(tuple)),
                Operator::Join(outer) => {
                    results
                        .extend(found.iter().map(|right| joined(*outer, tuple, Some(tuple), Some(*right))));
                    if found.is_empty() && outer.left {
                        results.push(joined(*outer, tuple, Some(tuple), None));
                    }
                }
            }
            i += 1;
        } else {
            let tuple = right[j];
            let is_alone = matches(left, key(tuple)).is_empty();
            match description.operator {
                Operator::Union => results.extend((is_alone && first(right, j)).then_some(tuple)),
                Operator::Join(outer) if outer.right && is_alone => {
                    results.push(joined(outer, tuple, None, Some(tuple)));
                }
                _ => {}
            }
            j += 1;
        }
    }
    results
}

/// The tuples of a result, by its links and as an array where it is in pages.
fn tuples_of(algebra: &Algebra, outcome: &Outcome) -> Vec<u128> {
    match &outcome.result {
        Stored::Dense(relation) => algebra.download(relation).unwrap(),
        Stored::Paged(paged) => {
            let linked = algebra.download_pages(paged).unwrap();
            let (dense, _) = algebra.to_dense(paged).unwrap();
            assert_eq!(algebra.download(&dense).unwrap(), linked, "a dense array of pages");
            linked
        }
    }
}

/// Runs an operator over inputs of some kind.
fn compare(algebra: &Algebra, description: &Description, kind: Keys) -> Outcome {
    let mut random = Random { state: kind as u64 };
    let mut description = description.clone();
    if algebra.shape().is_serial() && description.tuning.items == 2 {
        // A worker's tile is what a thread's is, and has vectors.
        description.tuning.items = [2, 37][kind as usize % 2];
    }
    let description = &description;
    let most = (1_u128 << description.tuples.key_bits) - 1;
    let [left, right] =
        keys(kind, most, &mut random).map(|keys| with_values(description.tuples, &keys, &mut random));
    let right = if matches!(description.operator, Operator::Select(_)) { Vec::new() } else { right };
    let upload = |values: &[u128]| algebra.upload(description.tuples, values).unwrap();
    let context = format!("{kind:?}, {description:?}, {:?}", algebra.shape());
    let outcome = algebra.run(description, &upload(&left), &upload(&right));
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}: {context}"));
    let (found, wanted) = (tuples_of(algebra, &outcome), expected(description, &left, &right));
    let differs = (0..found.len().max(wanted.len())).find(|at| found.get(*at) != wanted.get(*at));
    if let Some(at) = differs {
        let (found, wanted) = (found.get(at), wanted.get(at));
        panic!("result {at} is {found:x?} and not {wanted:x?}: {context}");
    }
    outcome
}

fn descriptions() -> Vec<Description> {
    let mut all = Vec::new();
    for operator in operators() {
        for width in Width::ALL {
            for output in OUTPUTS {
                for partition in PARTITIONS {
                    for block_join in BlockJoin::ALL {
                        for (duplicates, buffer) in
                            [(Duplicates::First, 0), (Duplicates::Each, 24), (Duplicates::First, 64)]
                        {
                            let tuning =
                                Tuning { items: 2, blocking: 2, buffer, unroll: 2, page: 16, sections: 8 };
                            let new = Description::new(operator.clone(), tuples(width));
                            all.push(Description {
                                duplicates,
                                output,
                                partition,
                                block_join,
                                tuning,
                                ..new
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

fn facets((_, description, kind): &(usize, Description, Keys)) -> Vec<String> {
    let Description { operator, tuples, output, partition, block_join, .. } = description;
    vec![
        format!("{operator:?} {kind:?}"),
        format!("{:?} {output:?} {partition:?}", tuples.width),
        format!("{operator:?} {output:?} {partition:?}"),
        format!("{operator:?} {block_join:?}"),
        format!("{block_join:?} {kind:?}"),
    ]
}

#[test]
fn operators_give_what_plain_loops_give() {
    let devices: Vec<Algebra> = devices().iter().map(|device| Algebra::on(device, None).unwrap()).collect();
    let all = descriptions();
    let cases = (0..devices.len()).flat_map(|device| {
        all.iter().flat_map(move |description| KEYS.map(|kind| (device, description.clone(), kind)))
    });
    for (device, description, kind) in covering("sorted algebra", cases, 250, facets) {
        compare(&devices[device], &description, kind);
    }
}

/// Tuning changes no result.
#[test]
fn tuning_changes_nothing() {
    let device: Arc<dyn Device> = SimtDevice::new(4, 8, 2);
    for threads in [4, 16] {
        let algebra = Algebra::on(&device, Some(threads)).unwrap();
        for (items, blocking, unroll) in [(1, 1, 1), (5, 3, 4), (0, 8, 3)] {
            for block_join in BlockJoin::ALL {
                let tuning = Tuning { items, blocking, unroll, ..Tuning::default() };
                let new = Description::new(outer(true, false), tuples(Width::W64));
                let description = Description { block_join, tuning, ..new };
                compare(&algebra, &description, Keys::Few);
            }
        }
    }
}

/// Results that are more than was expected are made in a second attempt; those that are more than there may be are an error.
#[test]
fn results_of_any_number() {
    let device: Arc<dyn Device> = CpuDevice::new(Some(2)).unwrap();
    let algebra = Algebra::on(&device, None).unwrap();
    for output in OUTPUTS {
        let tuning = Tuning { page: 64, ..Tuning::default() };
        let new = Description::new(outer(false, false), tuples(Width::W32));
        let description = Description { output, tuning, ..new };
        let outcome = compare(&algebra, &description, Keys::AllEqual);
        assert_eq!(outcome.repeats, 1, "{output:?}");
        let many = algebra.upload(description.tuples, &vec![5 << 12; 70_000]).unwrap();
        let error = algebra.run(&description, &many, &many).unwrap_err().to_string();
        assert!(error.contains("4900000000 tuples"), "{output:?}: {error}");
    }
}

/// Where tuples without a match are in no result, sections that have no keys in common are left out.
#[test]
fn sections_that_cannot_overlap_are_dropped() {
    let device: Arc<dyn Device> = SimtDevice::new(4, 8, 2);
    let algebra = Algebra::on(&device, None).unwrap();
    for (operator, drops) in
        [(Operator::Intersect, true), (outer(false, false), true), (Operator::Union, false)]
    {
        let tuning = Tuning { items: 2, sections: 4, ..Tuning::default() };
        for output in OUTPUTS {
            let new = Description::new(operator.clone(), tuples(Width::W32));
            let description = Description { output, partition: Partition::BinarySearch, tuning, ..new };
            let outcome = compare(&algebra, &description, Keys::Disjoint);
            assert_eq!((outcome.dropped, outcome.skipped), if drops { (300, 0) } else { (0, 0) });
            let one = Tuning { sections: 1, ..tuning };
            let outcome = compare(&algebra, &Description { tuning: one, ..description }, Keys::Clusters);
            assert_eq!(outcome.skipped > 0, drops, "{output:?}");
            let in_sections: u64 = outcome.sections.iter().map(|(l, r)| u64::from(*l) + u64::from(*r)).sum();
            assert_eq!(in_sections + outcome.dropped, 140 + 160);
        }
    }
}

#[test]
fn projections_products_and_pages() {
    for device in devices() {
        let algebra = Algebra::on(&device, None).unwrap();
        let mut random = Random { state: 1 };
        for width in Width::ALL {
            let tuples = Tuples { width, key_bits: 16, value_bits: 8 };
            let keys: Vec<u128> = (0..200).collect();
            let left = with_values(tuples, &keys, &mut random);
            let relation = algebra.upload(tuples, &left).unwrap();
            let to = Tuples { width: Width::W32, key_bits: 8, value_bits: 4 };
            let fields = [Field { shift: 8, bits: 8 }, Field { shift: 2, bits: 4 }];
            let (projected, _) = algebra.project(&relation, &fields, to).unwrap();
            let expected: Vec<u128> =
                left.iter().map(|tuple| (tuple >> 8 & 0xff) << 4 | tuple >> 2 & 0xf).collect();
            assert_eq!(algebra.download(&projected).unwrap(), expected, "{device:?}");
            let few = algebra.upload(tuples, &left[..7]).unwrap();
            let (product, _) = algebra.product(&few, &relation).unwrap();
            let expected: Vec<u128> = left[..7]
                .iter()
                .flat_map(|left_one| left.iter().map(move |right| left_one << 24 | right))
                .collect();
            assert_eq!(algebra.download(&product).unwrap(), expected, "{device:?}");
            for page in [1, 16, 200, 1000] {
                let (paged, _) = algebra.to_pages(&relation, page).unwrap();
                assert_eq!(algebra.download_pages(&paged).unwrap(), left);
                let (dense, _) = algebra.to_dense(&paged).unwrap();
                assert_eq!(algebra.download(&dense).unwrap(), left);
            }
            let none = algebra.upload(tuples, &[]).unwrap();
            let (paged, _) = algebra.to_pages(&none, 16).unwrap();
            assert_eq!(algebra.download_pages(&paged).unwrap(), []);
            assert_eq!(algebra.product(&none, &relation).unwrap().0.rows, 0);
            algebra.copy(&relation).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_done_says_why() {
    let device: Arc<dyn Device> = CpuDevice::new(Some(1)).unwrap();
    let algebra = Algebra::on(&device, None).unwrap();
    let of = tuples(Width::W32);
    let why = |result: Result<Relation, kelpie_engine::EngineError>| result.unwrap_err().to_string();
    assert!(why(algebra.upload(of, &[5 << 12, 4 << 12])).contains("order"));
    assert!(why(algebra.upload(of, &[1 << 32])).contains("more than 32 bits"));
    let few = algebra.upload(of, &[1 << 12]).unwrap();
    let description = Description::new(Operator::Union, tuples(Width::W64));
    assert!(algebra.run(&description, &few, &few).unwrap_err().to_string().contains("other tuples"));
    let field = Field { shift: 30, bits: 8 };
    assert!(algebra.project(&few, &[field], Tuples { key_bits: 8, value_bits: 0, ..of }).is_err());
    assert!(algebra.to_pages(&few, 0).is_err());
    assert!(Algebra::on(&device, Some(64)).is_err());
    let cancel = kelpie_engine::CancelToken::default();
    cancel.cancel();
    let cancelled = Algebra::on(&device, None).unwrap().cancelled_by(cancel);
    let description = Description::new(Operator::Union, of);
    assert!(matches!(cancelled.run(&description, &few, &few), Err(kelpie_engine::EngineError::Cancelled)));
}
