//! Random modules are valid, round-trip through the text form, and use the whole language.

use std::collections::BTreeMap;

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
        load.ro read shared param if loop break continue barrier fence store return call";
    let pairs = [
        "atomic add",
        "atomic min",
        "atomic max",
        "atomic or",
        "atomic exchange",
        "atomic cas",
        "atomic load",
    ];
    let lanes = "ballot any all shuffle.index shuffle.up shuffle.down shuffle.xor uniform_load";
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
