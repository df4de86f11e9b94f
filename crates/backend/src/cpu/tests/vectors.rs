//! Every operation on every vector, on this host and on the oldest one that has vectors, against the interpreter.

use super::*;
use crate::cpu::{finish, jit};
use crate::simt;
use kelpie_kir::{BinaryOp, CompareOp, LANE_COUNTS, ReduceOp};

const ELEMENTS: [Scalar; 10] = [
    Scalar::I8,
    Scalar::I16,
    Scalar::I32,
    Scalar::I64,
    Scalar::U8,
    Scalar::U16,
    Scalar::U32,
    Scalar::U64,
    Scalar::F32,
    Scalar::F64,
];
/// Bytes of what a kernel writes.
const OUTPUT: usize = 1 << 13;
/// Elements of each operand.
const OPERAND: usize = 64;

/// A kernel under construction that writes each of its results to a place of its own.
struct Results {
    b: Builder,
    out: V,
    next: u32,
    /// Name, first byte, element type and number of elements.
    written: Vec<(String, u32, Scalar, u32)>,
}

impl Results {
    fn place(&mut self, name: String, scalar: Scalar, count: u32) -> V {
        let at = self.next.next_multiple_of(16);
        self.next = at + scalar.bytes() * count;
        assert!((self.next as usize) < OUTPUT - 128, "the output is too small");
        self.written.push((name, at, scalar, count));
        let at = self.b.u32(at);
        let place = self.b.offset(self.out, at);
        self.b.bitcast(place, Type::global(scalar))
    }

    fn keep(&mut self, name: impl Into<String>, value: V) {
        let ty = self.b.ty(value);
        let value = match ty {
            // Through numbers, as the masks of queries go.
            Type::Mask(_) => self.b.mask_bits(value),
            _ => value,
        };
        let scalar = self.b.scalar(value);
        match self.b.ty(value).lanes() {
            Some(lanes) => {
                let place = self.place(name.into(), scalar, lanes.into());
                self.b.store_vector(place, value);
            }
            None => {
                let place = self.place(name.into(), scalar, 1);
                self.b.store(place, value);
            }
        }
    }
}

/// A kernel with everything that vectors of a type can do.
fn everything(scalar: Scalar, lanes: u8) -> (ValidModule, Vec<(String, u32, Scalar, u32)>) {
    let mut b = Builder::new();
    b.begin_kernel("k");
    let a = param(&mut b, "a", Type::global(scalar));
    let other = param(&mut b, "b", Type::global(scalar));
    let number = param(&mut b, "n", Type::U32);
    let out = param(&mut b, "out", Type::global(Scalar::U8));
    let mut r = Results { b, out, next: 0, written: Vec::new() };
    let vector = r.b.load_vector_read_only(a, lanes);
    let w = r.b.load_vector(other, lanes);
    let one = r.b.u32(1);
    let unaligned = r.b.offset(a, one);
    let unaligned = r.b.load_vector(unaligned, lanes);
    r.keep("unaligned", unaligned);
    operators(&mut r, scalar, vector, w, number);
    masks(&mut r, scalar, lanes, vector, w, number);
    for to in ELEMENTS {
        let converted = r.b.value(kelpie_kir::Expr::Convert(vector, to));
        r.keep(format!("convert to {}", to.name()), converted);
        if to.bits() == scalar.bits() {
            let cast = r.b.bitcast(vector, Type::Vector(to, lanes));
            r.keep(format!("bitcast to {}", to.name()), cast);
        }
    }
    let first = r.b.load(a);
    let splat = r.b.splat(first, lanes);
    r.keep("splat", splat);
    for lane in 0..lanes {
        let element = r.b.lane(vector, lane);
        r.keep(format!("lane {lane}"), element);
    }
    let Results { mut b, written, .. } = r;
    b.end_kernel();
    (valid(b.finish().unwrap()), written)
}

fn operators(r: &mut Results, scalar: Scalar, v: V, w: V, number: V) {
    use BinaryOp::*;
    let binary: &[BinaryOp] =
        if scalar.is_float() { &[Add, Sub, Mul, Div] } else { &[Add, Sub, Mul, And, Or, Xor, Min, Max] };
    for op in binary {
        let result = r.b.binary(*op, v, w);
        r.keep(format!("{op:?}"), result);
    }
    let negative = r.b.unary(kelpie_kir::UnaryOp::Neg, v);
    r.keep("neg", negative);
    let sum = r.b.reduce(ReduceOp::Add, v);
    r.keep("reduce.add", sum);
    if scalar.is_float() {
        return;
    }
    let not = r.b.not(v);
    r.keep("not", not);
    let constant = r.b.u32(scalar.bits() + 3);
    for (distance, what) in [(number, "by a value"), (constant, "by a literal")] {
        for op in [Shl, Shr] {
            let result = r.b.binary(op, v, distance);
            r.keep(format!("{op:?} {what}"), result);
        }
    }
    for op in [ReduceOp::Min, ReduceOp::Max] {
        let least = r.b.reduce(op, v);
        r.keep(format!("{op:?}"), least);
    }
    let lanes = r.b.ty(v).lanes().unwrap();
    let numbers = r.b.iota(scalar, lanes);
    r.keep("iota", numbers);
}

fn masks(r: &mut Results, scalar: Scalar, lanes: u8, v: V, w: V, number: V) {
    use CompareOp::*;
    for op in [Eq, Ne, Lt, Le, Gt, Ge] {
        let mask = r.b.compare(op, v, w);
        r.keep(format!("{op:?}"), mask);
        let chosen = r.b.select(mask, v, w);
        r.keep(format!("select where {op:?}"), chosen);
    }
    let mask = r.b.compare(Lt, v, w);
    let zero = r.b.zero_vector(scalar, lanes);
    let kept = r.b.select(mask, v, zero);
    r.keep("select or zero", kept);
    let bits = r.b.bits_mask(number, lanes);
    let first = r.b.first_lanes(number, lanes);
    let truth = r.b.bool(true);
    let truth = r.b.splat(truth, lanes);
    for (other, what) in [(bits, "bits_mask"), (first, "first_lanes"), (truth, "splat")] {
        r.keep(what, other);
        for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor] {
            let both = r.b.binary(op, mask, other);
            r.keep(format!("{op:?} with {what}"), both);
        }
        let chosen = r.b.select(other, v, w);
        r.keep(format!("select where {what}"), chosen);
        let not = r.b.not(other);
        for op in [ReduceOp::Any, ReduceOp::All, ReduceOp::Count] {
            for (mask, which) in [(mask, "compared"), (other, what), (not, "not that")] {
                let result = r.b.reduce(op, mask);
                r.keep(format!("{op:?} of {which}"), result);
            }
        }
    }
    // Masks meet elements of every width.
    for width in ELEMENTS {
        let other = r.b.value(kelpie_kir::Expr::Convert(v, width));
        let zero = r.b.zero_vector(width, lanes);
        let chosen = r.b.select(mask, other, zero);
        r.keep(format!("select of {}", width.name()), chosen);
        let other = r.b.compare(Ge, other, zero);
        let both = r.b.and(mask, other);
        r.keep(format!("and with a mask of {}", width.name()), both);
    }
    for lane in 0..lanes {
        let truth = r.b.lane(mask, lane);
        r.keep(format!("mask lane {lane}"), truth);
    }
    for (mask, what) in [(mask, "compared"), (bits, "bits"), (truth, "all")] {
        let place = r.place(format!("compress {what}"), scalar, lanes.into());
        let count = r.b.compress(place, v, mask);
        // What follows is undefined.
        let written = r.b.load_vector(place, lanes);
        let valid = r.b.first_lanes(count, lanes);
        let written = r.b.select(valid, written, zero);
        r.b.store_vector_aligned(place, written, 16);
        r.keep(format!("count of {what}"), count);
    }
}

/// Operands: the edges of the type among others; floats without infinities and NaN.
fn operand(scalar: Scalar, seed: u64) -> Vec<u8> {
    let mut bits = seed;
    let mut element = || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let choice = (bits >> 60) as usize;
        let floats = [0.0, -0.0, 1.5, -2.25, 1e10, -3.4e9, 5e-324, 1e38, -1e30, 127.5, 255.0, -129.0];
        let integers = [0, 1, u64::MAX, 1 << 63, i64::MAX as u64, 0x8000_0000, 0x7fff_ffff, 0x80, 0x7f7f];
        match scalar {
            Scalar::F32 => {
                (*floats.get(choice).unwrap_or(&((bits >> 30) as f64)) as f32).to_le_bytes().to_vec()
            }
            Scalar::F64 => floats.get(choice).unwrap_or(&((bits >> 3) as f64 * 1e-3)).to_le_bytes().to_vec(),
            integer => {
                let value = integers.get(choice).copied().unwrap_or(bits.rotate_left(31));
                value.to_le_bytes()[..integer.bytes() as usize].to_vec()
            }
        }
    };
    (0..OPERAND).flat_map(|_| element()).collect()
}

#[repr(C, align(16))]
struct Output([u8; OUTPUT]);

fn on_cpu(compiled: &CpuModule, a: &[u8], b: &[u8], number: u32) -> Box<Output> {
    let mut output = Box::new(Output([0; OUTPUT]));
    let slots = [address(a), address(b), number.slot(), address_mut(&mut output.0)];
    assert_eq!(run(compiled, &slots), 0);
    output
}

fn on_simt(module: &ValidModule, a: &[u8], b: &[u8], number: u32) -> Vec<u8> {
    let mut memory = simt::Memory::new();
    let mut arguments = Vec::new();
    for content in [a, b] {
        let id = memory.allocate(content.len());
        memory.data_mut(id).unwrap().copy_from_slice(content);
        arguments.push(simt::Argument::Pointer(memory.address(id)));
    }
    arguments.push(simt::Argument::Scalar(number.into()));
    let output = memory.allocate(OUTPUT);
    arguments.push(simt::Argument::Pointer(memory.address(output)));
    let config = simt::Config { lanes: 1, block_threads: 1, ..simt::Config::default() };
    let program = simt::Program::new(module, "k").unwrap();
    program.run(&arguments, &mut memory, &config, &|| false).unwrap();
    memory.data(output).unwrap().to_vec()
}

/// Equal bits, or both not a number: which one is the machine's.
fn same(scalar: Scalar, a: &[u8], b: &[u8]) -> bool {
    match scalar {
        Scalar::F32 => {
            let value = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
            a == b || (value(a).is_nan() && value(b).is_nan())
        }
        Scalar::F64 => {
            let value = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
            a == b || (value(a).is_nan() && value(b).is_nan())
        }
        _ => a == b,
    }
}

#[test]
fn every_operation_on_every_vector() {
    for scalar in ELEMENTS {
        for lanes in LANE_COUNTS {
            let (module, written) = everything(scalar, lanes);
            let mut hosts = vec![("this host", compile(&module).unwrap())];
            #[cfg(target_arch = "x86_64")]
            hosts.push((
                "the oldest host",
                finish(jit::Session::with_isa(&module, jit::oldest_isa().unwrap()).unwrap()).unwrap(),
            ));
            for seed in 0..12u64 {
                let (a, b) = (operand(scalar, seed), operand(scalar, seed / 3 + 100));
                let number = [0, 1, 2, 5, 0xaaaa, 0xffff_ffff, 8, 16, 17, 63, 0x5a3c, 4][seed as usize];
                let expected = on_simt(&module, &a, &b, number);
                for (host, compiled) in &hosts {
                    let found = on_cpu(compiled, &a, &b, number);
                    for (name, at, of, count) in &written {
                        let bytes = of.bytes() as usize;
                        for element in 0..*count as usize {
                            let at = *at as usize + element * bytes;
                            let (found, expected) = (&found.0[at..at + bytes], &expected[at..at + bytes]);
                            assert!(
                                same(*of, found, expected),
                                "{}x{lanes} on {host}, seed {seed}: {name}, element {element}: {found:x?}, not {expected:x?}",
                                scalar.name()
                            );
                        }
                    }
                }
            }
        }
    }
}

/// A vector that is carried through a loop by a variable, in an inlined function too.
#[test]
fn variables_and_functions() {
    let text = "
        fn sum(p: ptr<global, i16>, n: u32) -> i32 {
          var row: u32
          var sums: i32x16
          %0 = param p
          %1 = param n
          %2 = const u32 16
          loop {
            %3 = read row
            %4 = ge %3, %1
            if %4 {
              break
            }
            %5 = offset %0, %3
            %6 = load_vector.ro 16 %5
            %7 = convert i32 %6
            %8 = read sums
            %9 = add %8, %7
            sums = %9
            %10 = add %3, %2
            row = %10
          }
          %11 = read sums
          %12 = reduce.add %11
          return %12
        }
        kernel k(x: ptr<global, i16>, n: u32, out: ptr<global, i32>) {
          %0 = param x
          %1 = param n
          %2 = param out
          %3 = call sum(%0, %1)
          %4 = call sum(%0, %1)
          %5 = add %3, %4
          store %2, %5
        }";
    let module = valid(kelpie_kir::text::parse(text).unwrap());
    let compiled = compile(&module).unwrap();
    let x: Vec<i16> = (0..160).map(|row| row * 7 - 300).collect();
    let mut out = [0i32];
    assert_eq!(run(&compiled, &[address(&x), 160u32.slot(), address_mut(&mut out)]), 0);
    assert_eq!(out[0], 2 * x.iter().map(|&x| i32::from(x)).sum::<i32>());
}

#[test]
fn this_host_has_vectors() {
    assert_eq!(crate::cpu::vector_bytes(), 16);
}
