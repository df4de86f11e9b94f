use super::*;
use crate::simt;
use kelpie_kir::testing::{KERNEL, random_module};

const SEEDS: u64 = 300;
const WORKERS: u32 = 3;

fn input(seed: u64) -> Vec<i64> {
    let edges = [0, 1, -1, i64::MIN, i64::MAX, 255, -128, 1 << 31, 1 << 32];
    let mixed =
        (0..16).map(|index: u64| (seed + index).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64 >> (3 * index));
    edges.into_iter().chain(mixed).collect()
}

fn on_cpu(module: &ValidModule, input: &[i64]) -> (u32, Vec<i64>) {
    let compiled = compile(module).unwrap_or_else(|error| panic!("{error}"));
    let mut output = vec![0i64; WORKERS as usize];
    let slots = [address(input), (input.len() as u64).slot(), address_mut(&mut output)];
    let status = LaunchStatus::default();
    for worker in 0..WORKERS {
        run_worker_of(&compiled, KERNEL, &slots, &status, worker, WORKERS);
    }
    (status.code.into_inner(), output)
}

fn on_simt(module: &ValidModule, input: &[i64]) -> (u32, Vec<i64>) {
    let mut memory = simt::Memory::new();
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let source = memory.allocate(bytes.len());
    memory.data_mut(source).unwrap().copy_from_slice(&bytes);
    let output = memory.allocate(8 * WORKERS as usize);
    let arguments = [
        simt::Argument::Pointer(memory.address(source)),
        simt::Argument::Scalar(input.len() as i128),
        simt::Argument::Pointer(memory.address(output)),
    ];
    let config = simt::Config { lanes: 1, block_threads: 1, blocks: WORKERS, ..simt::Config::default() };
    let report = simt::Program::new(module, KERNEL)
        .and_then(|program| program.run(&arguments, &mut memory, &config, &|| false));
    let report = report.unwrap_or_else(|fault| panic!("{fault}"));
    let words = memory.data(output).unwrap().chunks_exact(8);
    (report.status, words.map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect())
}

/// Random modules give the interpreter's answer.
#[test]
fn random_modules_as_the_interpreter() {
    for seed in 0..SEEDS {
        for lane_operations in [false, true] {
            let module = valid(random_module(seed, lane_operations));
            let input = input(seed);
            let (cpu, simt) = (on_cpu(&module, &input), on_simt(&module, &input));
            assert_eq!(cpu, simt, "seed {seed}, lane operations {lane_operations}");
        }
    }
}
