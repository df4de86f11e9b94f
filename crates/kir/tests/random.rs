//! Random modules are valid, round-trip through the text form, and use the whole language.

use std::collections::BTreeMap;

use kelpie_kir::meter::metered;
use kelpie_kir::profile::{marks, profiled};
use kelpie_kir::testing::{KERNEL, random_module};
use kelpie_kir::text::{parse, print};
use kelpie_kir::{Block, Expr, Function, Module, Scalar, Stmt, Type, validate};

const SEEDS: u64 = 500;

fn modules() -> impl Iterator<Item = (u64, bool, Module)> {
    (0..SEEDS).flat_map(|seed| [false, true].map(|lanes| (seed, lanes, random_module(seed, lanes))))
}

#[test]
fn are_valid_and_have_the_kernel() {
    for (seed, lanes, module) in modules() {
        let text = print(&module);
        let module = validate(module).unwrap_or_else(|error| panic!("seed {seed}, {lanes}: {error}\n{text}"));
        let kernel = module.kernels.iter().find(|(_, kernel)| kernel.name == KERNEL);
        let (_, kernel) = kernel.unwrap_or_else(|| panic!("seed {seed}, {lanes}: no kernel"));
        let params: Vec<Type> = kernel.params.iter().map(|param| param.ty).collect();
        let input = Type::global(Scalar::I64);
        assert_eq!(params, [input, Type::I64, input]);
    }
}

/// A kernel that counts what it accesses is a kernel with one parameter more.
#[test]
fn are_valid_with_counters() {
    for (seed, lanes, module) in modules() {
        let counting = metered(&module);
        let text = print(&counting);
        let counting =
            validate(counting).unwrap_or_else(|error| panic!("seed {seed}, {lanes}: {error}\n{text}"));
        for ((_, kernel), (_, with_counters)) in module.kernels.iter().zip(counting.kernels.iter()) {
            assert_eq!(with_counters.params.len(), kernel.params.len() + 1);
        }
    }
}

/// A kernel that counts who comes by its marks is a kernel with one parameter more, and without marks.
#[test]
fn are_valid_with_tallies() {
    let mut tallies = 0;
    for (seed, lanes, module) in modules() {
        let counting = profiled(&module);
        let text = print(&counting);
        let counting =
            validate(counting).unwrap_or_else(|error| panic!("seed {seed}, {lanes}: {error}\n{text}"));
        for ((_, kernel), (_, with_tallies)) in module.kernels.iter().zip(counting.kernels.iter()) {
            assert_eq!(with_tallies.params.len(), kernel.params.len() + 1);
            assert_eq!(marks(with_tallies), 0);
            tallies += usize::from(marks(kernel) > 0);
        }
    }
    assert!(tallies > 10, "{tallies}");
}

#[test]
fn round_trip() {
    for (seed, lanes, module) in modules() {
        let text = print(&module);
        match parse(&text) {
            Ok(parsed) => {
                assert!(parsed == module && print(&parsed) == text, "seed {seed}, {lanes}:\n{text}")
            }
            Err(error) => panic!("seed {seed}, {lanes}: {error}\n{text}"),
        }
    }
}

#[test]
fn depend_on_the_seed_alone() {
    assert_eq!(random_module(7, true), random_module(7, true));
    assert_ne!(random_module(7, true), random_module(8, true));
    assert_ne!(random_module(7, true), random_module(7, false));
}

/// Counts statements, expressions, and operators by the first words of their text.
fn count(module: &Module) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in print(module).lines() {
        let statement = line.trim().split_once(" = ").map_or(line.trim(), |(_, right)| right);
        let mut words = statement.split([' ', ',']);
        let first = words.next().unwrap_or_default();
        let key = match first {
            "atomic" | "builtin" | "const" => format!("{first} {}", words.next().unwrap_or_default()),
            _ => first.to_string(),
        };
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

#[test]
fn use_the_whole_language() {
    let mut counts: [BTreeMap<String, usize>; 2] = Default::default();
    for (_, lanes, module) in modules() {
        for (key, number) in count(&module) {
            *counts[usize::from(lanes)].entry(key).or_insert(0) += number;
        }
    }
    let both = "neg not popcount clz ffs floor ceil trunc round_even abs sqrt add sub mul div rem and or xor shl shr min \
        max mul_hi overflow.add overflow.sub overflow.mul eq ne lt le gt ge select convert bitcast offset field load \
        load.ro load_bytes read shared param if loop break continue barrier fence mark store return call splat iota load_vector \
        load_vector.ro store_vector compress lane reduce.add reduce.min reduce.max reduce.any reduce.all reduce.count \
        mask_bits bits_mask first_lanes";
    let pairs = [
        "atomic add", "atomic min", "atomic max", "atomic or", "atomic exchange", "atomic cas", "atomic load",
    ];
    let lanes = "warp_barrier ballot any all shuffle.index shuffle.up shuffle.down shuffle.xor uniform_load";
    for key in both.split_whitespace().chain(pairs) {
        for (counts, what) in counts.iter().zip(["without", "with"]) {
            assert!(
                counts.get(key).is_some_and(|&number| number >= 5),
                "{key} {what} lane operations: {counts:?}"
            );
        }
    }
    for key in lanes.split_whitespace().chain(["builtin lane_id", "builtin lanes"]) {
        assert!(counts[1].get(key).is_some_and(|&number| number >= 5), "{key}");
        assert!(!counts[0].contains_key(key), "{key} without lane operations");
    }
    for scalar in Scalar::ALL {
        assert!(counts[0].get(&format!("const {}", scalar.name())).is_some_and(|&number| number >= 50));
    }
}

/// Without lane operations a thread learns of its place in the grid only through its number.
#[test]
fn without_lane_operations_threads_are_alike() {
    fn positions(function: &Function, block: &Block, found: &mut usize) {
        for stmt in block {
            match stmt {
                Stmt::Let(value) => {
                    *found += usize::from(matches!(function.values[*value].expr, Expr::Builtin(_)))
                }
                Stmt::If { accept, reject, .. } => {
                    positions(function, accept, found);
                    positions(function, reject, found);
                }
                Stmt::Loop(body) => positions(function, body, found),
                _ => {}
            }
        }
    }
    for seed in 0..SEEDS {
        let module = random_module(seed, false);
        let mut found = 0;
        for (_, function) in module.functions.iter().chain(module.kernels.iter()) {
            positions(function, &function.body, &mut found);
        }
        // block_id, block_dim and thread_id, once each at the start.
        assert_eq!(found, 3, "seed {seed}");
    }
}

/// A text with one line deleted, doubled or swapped with another, or one value's number changed.
fn mutated(text: &str, mut bits: u64) -> String {
    let mut below = |limit: usize| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 33) as usize % limit.max(1)
    };
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let (one, other) = (below(lines.len()), below(lines.len()));
    match below(5) {
        0 => drop(lines.remove(one)),
        1 => lines.insert(one, lines[other].clone()),
        2 => lines.swap(one, other),
        _ => {
            // Operands stand after the first number of a definition.
            let from = lines[one].find(" = ").unwrap_or(0);
            if let Some(at) = lines[one][from..].find('%').map(|at| from + at) {
                let digits = lines[one][at + 1..].bytes().take_while(u8::is_ascii_digit).count();
                lines[one].replace_range(at + 1..at + 1 + digits, &below(40).to_string());
            }
        }
    }
    lines.join("\n")
}

#[test]
fn mutations_are_rejected_or_round_trip() {
    let (mut valid, mut invalid) = (0, 0);
    for seed in 0..SEEDS {
        let text = print(&random_module(seed, seed % 2 == 0));
        for round in 0..6 {
            let Ok(module) = parse(&mutated(&text, seed * 6 + round)) else { continue };
            match validate(module.clone()) {
                Ok(_) => {
                    valid += 1;
                    assert_eq!(parse(&print(&module)), Ok(module));
                }
                Err(error) => {
                    invalid += 1;
                    assert!(!error.place.is_empty() && !error.message.is_empty());
                }
            }
        }
    }
    assert!(valid >= 100 && invalid >= 100, "{valid} valid, {invalid} invalid");
}
