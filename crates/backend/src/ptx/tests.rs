//! The printed text of kernels, as snapshots; and what the functions of `helpers.kir` compute.

use kelpie_kir::{text, validate};

use super::*;
use crate::cuda::tests::{VECTORS, constructs, filtered_sum};
use crate::simt::{Argument, Config, Memory, Program};

#[test]
fn filtered_sum_is_readable() {
    let module = validate(filtered_sum()).unwrap();
    insta::assert_snapshot!("ptx_filtered_sum", print_with(&module, &Options::default(), "sm_90").unwrap());
}

#[test]
fn constructs_are_readable() {
    let module = validate(constructs(256)).unwrap();
    let options = Options { block_threads: Some(256), resident_blocks: Some(2), kernel: Some("min".into()) };
    insta::assert_snapshot!("ptx_constructs", print_with(&module, &options, "sm_80").unwrap());
}

#[test]
fn vectors_are_readable() {
    let module = validate(text::parse(VECTORS).unwrap()).unwrap();
    insta::assert_snapshot!("ptx_vectors", print_with(&module, &Options::default(), "sm_90").unwrap());
}

#[test]
fn only_what_is_asked_for_is_printed() {
    let module = validate(constructs(6_121)).unwrap();
    let none = Options { kernel: Some("other".into()), ..Options::default() };
    assert!(!print_with(&module, &none, "sm_90").unwrap().contains(".entry"));
    // More shared memory than may be static is asked for by the launch.
    assert!(print_with(&module, &Options::default(), "sm_90").unwrap().contains(".extern .shared"));
}

/// What a helper gives for pairs of operands, on the interpreter: sixteen bytes each, of which a result may fill fewer.
fn computed(helper: &str, (operand, result): (&str, &str), operands: &[[u128; 2]]) -> Vec<u128> {
    let binary = helper.starts_with("divide") || helper.starts_with("rem") || helper.starts_with("multiply");
    let arguments = if binary { "%7, %8" } else { "%7" };
    let source = format!(
        "{}\nkernel apply(a: ptr<global, {operand}>, b: ptr<global, {operand}>, out: ptr<global, {result}>) {{
          %0 = param a
          %1 = param b
          %2 = param out
          %3 = builtin block_id
          %4 = offset %0, %3
          %5 = offset %1, %3
          %6 = offset %2, %3
          %7 = load %4
          %8 = load %5
          %9 = call {helper}({arguments})
          store %6, %9
        }}",
        include_str!("helpers.kir")
    );
    let module = validate(text::parse(&source).unwrap()).unwrap();
    let bytes = |ty: &str| match ty {
        "bool" => 1,
        "f32" => 4,
        "f64" => 8,
        _ => 16,
    };
    let (width, out_width) = (bytes(operand), bytes(result));
    let mut memory = Memory::new();
    let mut ids = Vec::new();
    for index in 0..2 {
        let id = memory.allocate(operands.len() * width);
        let content = operands.iter().flat_map(|pair| pair[index].to_le_bytes()[..width].to_vec());
        memory.data_mut(id).unwrap().copy_from_slice(&content.collect::<Vec<u8>>());
        ids.push(id);
    }
    ids.push(memory.allocate(operands.len() * out_width));
    let arguments: Vec<Argument> = ids.iter().map(|id| Argument::Pointer(memory.address(*id))).collect();
    let (blocks, step_limit) = (operands.len() as u32, 1 << 30);
    let config = Config { lanes: 1, block_threads: 1, blocks, seed: 0, step_limit, detect_races: false };
    let program = Program::new(&module, "apply").unwrap();
    program.run(&arguments, &mut memory, &config, &|| false).unwrap();
    let word = |bytes: &[u8]| {
        let mut word = [0u8; 16];
        word[..bytes.len()].copy_from_slice(bytes);
        u128::from_le_bytes(word)
    };
    memory.data(ids[2]).unwrap().chunks(out_width).map(word).collect()
}

/// Numbers of all lengths, and the limits.
fn wide_pairs() -> Vec<[u128; 2]> {
    let mut random = fastrand::Rng::with_seed(11);
    let limits =
        [0, 1, 2, u128::MAX, 1 << 127, (1 << 127) - 1, u128::from(u64::MAX), 1 << 64, 10u128.pow(18)];
    let mut pairs: Vec<[u128; 2]> =
        limits.iter().flat_map(|a| limits.iter().map(move |b| [*a, *b])).collect();
    for _ in 0..300 {
        let mut number = || {
            let number = random.u128(..) >> random.u32(..128);
            if random.bool() { number.wrapping_neg() } else { number }
        };
        pairs.push([number(), number()]);
    }
    pairs
}

#[test]
fn wide_numbers_are_divided_and_multiplied() {
    let pairs = wide_pairs();
    let signed: Vec<(i128, i128)> = pairs.iter().map(|[a, b]| (*a as i128, *b as i128)).collect();
    let quotients = computed("divide_i128", ("i128", "i128"), &pairs);
    let rests = computed("remainder_i128", ("i128", "i128"), &pairs);
    let overflows = computed("multiply_overflows_i128", ("i128", "bool"), &pairs);
    for (index, (a, b)) in signed.into_iter().enumerate() {
        let quotient = if b == 0 { 0 } else { a.wrapping_div(b) };
        let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
        assert_eq!(quotients[index] as i128, quotient, "{a} / {b}");
        // A remainder by zero is 0, as a quotient is.
        assert_eq!(rests[index] as i128, rest, "{a} % {b}");
        assert_eq!(overflows[index] == 1, a.checked_mul(b).is_none(), "{a} * {b}");
    }
}

#[test]
fn wide_numbers_become_floats_and_back() {
    let pairs = wide_pairs();
    let doubles = computed("f64_of_i128", ("i128", "f64"), &pairs);
    let singles = computed("f32_of_i128", ("i128", "f32"), &pairs);
    for (index, [a, _]) in pairs.iter().enumerate() {
        assert_eq!(doubles[index] as u64, (*a as i128 as f64).to_bits(), "{a:#x}");
        assert_eq!(singles[index] as u32, (*a as i128 as f32).to_bits(), "{a:#x}");
    }
    let pairs = double_pairs();
    let wide = computed("i128_of_f64", ("f64", "i128"), &pairs);
    for (pair, wide) in pairs.iter().zip(wide) {
        let value = f64::from_bits(pair[0] as u64);
        assert_eq!(wide as i128, value as i128, "{value:e}");
    }
}

/// Doubles of all kinds, as bits.
fn double_pairs() -> Vec<[u128; 2]> {
    let mut random = fastrand::Rng::with_seed(5);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        3.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MAX,
        f64::MIN,
        f64::EPSILON,
        f64::MIN_POSITIVE,
        5e-324,
        -1.5e-310,
        9.3e18,
        -9.3e18,
        1.8e38,
        -1.7e38,
        1e17,
    ];
    let bits = |value: f64| u128::from(value.to_bits());
    let mut pairs: Vec<[u128; 2]> =
        special.iter().flat_map(|a| special.iter().map(move |b| [bits(*a), bits(*b)])).collect();
    for _ in 0..300 {
        let near = |random: &mut fastrand::Rng| random.f64() * 10f64.powi(random.i32(-30..40));
        pairs.push([u128::from(random.u64(..)), u128::from(random.u64(..))]);
        let (a, b) = (near(&mut random), near(&mut random));
        pairs.push([bits(a), bits(-b)]);
    }
    pairs
}

#[test]
fn remainders_of_floats_are_exact() {
    let pairs = double_pairs();
    let rests = computed("remainder_f64", ("f64", "f64"), &pairs);
    for (pair, rest) in pairs.iter().zip(rests) {
        let (a, b) = (f64::from_bits(pair[0] as u64), f64::from_bits(pair[1] as u64));
        let (rest, expected) = (f64::from_bits(rest as u64), a % b);
        let same = rest.to_bits() == expected.to_bits() || (rest.is_nan() && expected.is_nan());
        assert!(same, "{a:e} % {b:e} is {expected:e}, not {rest:e}");
    }
}
