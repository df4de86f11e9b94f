use super::*;
use kelpie_kir::{Pointee, Space};

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Row {
    flag: bool,
    small: i16,
    sum: i128,
    values: *const i32,
    ratio: f64,
}

const FIELDS: [(&str, Type); 5] = [
    ("flag", Type::BOOL),
    ("small", Type::Scalar(Scalar::I16)),
    ("sum", Type::Scalar(Scalar::I128)),
    ("values", Type::global(Scalar::I32)),
    ("ratio", Type::Scalar(Scalar::F64)),
];

#[test]
fn fields_of_structs() {
    let mut b = Builder::new();
    let row = b.add_struct("row", &FIELDS);
    b.begin_kernel("k");
    let rows = param(&mut b, "rows", Type::Ptr(Space::Global, Pointee::Struct(row)));
    let n = param(&mut b, "n", Type::Scalar(Scalar::U64));
    for_each(&mut b, n, |b, i| {
        let row = b.offset(rows, i);
        let values = b.value(kelpie_kir::Expr::LoadField { pointer: row, field: 3 });
        let small = b.value(kelpie_kir::Expr::LoadField { pointer: row, field: 1 });
        let value = b.element(values, small);
        let value = b.convert(value, Scalar::I128);
        let sum = b.field(row, 2);
        let old = b.load(sum);
        let new = b.add(old, value);
        b.store(sum, new);
        let flag = b.field(row, 0);
        let old = b.load(flag);
        let inverted = b.not(old);
        b.store(flag, inverted);
        let ratio = b.field(row, 4);
        let converted = b.convert(new, Scalar::F64);
        b.store(ratio, converted);
    });
    b.end_kernel();
    let module = compile_built(b);
    let values = [5, -6, 7];
    // The index is signed: it counts from the middle.
    let values = &values[1..];
    let row = |flag, small, sum| Row { flag, small, sum, values: values.as_ptr(), ratio: 0.0 };
    let mut rows = [row(true, -1, 1i128 << 80), row(false, 0, -1), row(false, 1, i128::MAX)];
    assert_eq!(run(&module, &[address_mut(&mut rows), 3u64.slot()]), 0);
    let sums = rows.map(|row| row.sum);
    assert_eq!(sums, [(1i128 << 80) + 5, -7, i128::MAX.wrapping_add(7)]);
    assert_eq!(rows.map(|row| row.flag), [false, true, true]);
    assert_eq!(rows.map(|row| row.ratio), sums.map(|sum| sum as f64));
}

/// Indices of every type; unsigned ones are extended with zeros, signed ones with their sign.
#[test]
fn indices_of_every_type() {
    let data: Vec<i32> = (0..70_000).collect();
    let middle = 300usize;
    let cases = [
        (Scalar::I8, -128i128),
        (Scalar::I16, -300),
        (Scalar::I32, -2),
        (Scalar::I64, -300),
        (Scalar::U8, 255),
        (Scalar::U16, 65_535),
        (Scalar::U32, 69_000),
        (Scalar::U64, 69_699),
    ];
    for (scalar, index) in cases {
        for mode in 0..3 {
            let module = kernel(|b| {
                let data = param(b, "data", Type::global(Scalar::I32));
                let out = param(b, "out", Type::global(Scalar::I32));
                let base = param(b, "index", Type::Scalar(scalar));
                let index = match mode {
                    0 => base,
                    // As a constant, and as the sum of a variable and a constant.
                    1 => b.int(scalar, index),
                    _ => {
                        let one = b.int(scalar, 1);
                        let less = b.sub(base, one);
                        b.add(less, one)
                    }
                };
                let value = b.element(data, index);
                b.store(out, value);
            });
            let mut out = [0i32];
            let mut slot = index.slot();
            slot.0[scalar.bytes() as usize..].fill(0xEE);
            run(&module, &[address(&data[middle..]), address_mut(&mut out), slot]);
            assert_eq!(i128::from(out[0]), middle as i128 + index, "{} mode {mode}", scalar.name());
        }
    }
}

/// Constant offsets beyond 32 bits, pointers in variables, comparisons and selections of pointers, casts.
#[test]
fn pointers_as_values() {
    let module = kernel(|b| {
        let data = param(b, "data", Type::global(Scalar::U64));
        let out = param(b, "out", Type::global(Scalar::U64));
        let far = b.i64(1 << 40);
        let back = b.i64(-(1 << 40) + 2);
        let there = b.offset(data, far);
        let third = b.offset(there, back);
        let cursor = b.var_of("cursor", third);
        let cursor = b.read(cursor);
        let two = b.i32(2);
        let third_again = b.offset(data, two);
        let equal = b.eq(cursor, third_again);
        let less = b.lt(data, cursor);
        let both = b.and(equal, less);
        let zero = b.i32(0);
        let first = b.offset(data, zero);
        let chosen = b.select(both, cursor, first);
        let value = b.load(chosen);
        b.store(out, value);
        let bits = b.bitcast(chosen, Scalar::U64);
        let pointer = b.bitcast(bits, Type::global(Scalar::U16));
        let three = b.u32(3);
        let top = b.offset(pointer, three);
        let top = b.load(top);
        let top = b.convert(top, Scalar::U64);
        let one = b.u32(1);
        let second = b.offset(out, one);
        b.store(second, top);
    });
    let data = [1u64, 2, 0xABCD_0000_0000_0003];
    let mut out = [0u64; 2];
    run(&module, &[address(&data), address_mut(&mut out)]);
    assert_eq!(out, [data[2], 0xABCD]);
}

#[test]
fn arguments_of_every_type() {
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::I128));
        for (index, scalar) in Scalar::ALL.into_iter().enumerate() {
            let value = param(b, scalar.name(), Type::Scalar(scalar));
            let value = b.convert(value, Scalar::I128);
            let index = b.u32(index as u32);
            let out = b.offset(out, index);
            b.store(out, value);
        }
    });
    let mut out = [0i128; 12];
    let slots = [
        address_mut(&mut out),
        true.slot(),
        (-1i8).slot(),
        (-2i16).slot(),
        (-3i32).slot(),
        (-4i64).slot(),
        i128::MIN.slot(),
        255u8.slot(),
        65_535u16.slot(),
        u32::MAX.slot(),
        u64::MAX.slot(),
        (-7.5f32).slot(),
        1e18f64.slot(),
    ];
    run(&module, &slots);
    let unsigned = [255, 65_535, i128::from(u32::MAX), i128::from(u64::MAX)];
    assert_eq!(out[..6], [1, -1, -2, -3, -4, i128::MIN]);
    assert_eq!(out[6..10], unsigned);
    assert_eq!(out[10..], [-7, 1_000_000_000_000_000_000]);
}
