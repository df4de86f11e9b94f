use super::*;

fn check_conversion<T: Element, R: Element + Default>(operands: &[T], expected: impl Fn(T) -> R) {
    let pairs: Vec<(T, T)> = operands.iter().map(|&x| (x, x)).collect();
    let results: Vec<R> = apply(&pairs, |b, x, _| b.convert(x, R::SCALAR));
    for (&x, result) in operands.iter().zip(results) {
        let expected = expected(x);
        let (from, to) = (T::SCALAR.name(), R::SCALAR.name());
        assert!(result.same(expected), "{from} {x:?} as {to}: {result:?}, not {expected:?}");
    }
}

macro_rules! convert_to {
    ($from:ty, $edges:expr, $($to:ty),*) => {{
        let edges: Vec<$from> = $edges;
        $(check_conversion(&edges, |x: $from| x as $to);)*
    }};
}

macro_rules! convert_all {
    ($from:ty, $edges:expr) => {
        convert_to!($from, $edges, i8, i16, i32, i64, i128, u8, u16, u32, u64, f32, f64)
    };
}

/// Powers of two and their neighbours, of both signs: every edge of every narrower type, and every tie of rounding.
fn wide() -> Vec<i128> {
    let mut edges = vec![0, i128::MAX, i128::MIN, i128::MIN + 1, 0x5555_5555_5555_5555_5555_5555_5555_5555];
    for shift in 0..127 {
        let power = 1i128 << shift;
        edges.extend([power, power - 1, power + 1, -power, -power - 1, -power + 1, power + (power >> 24)]);
        edges.extend([power + (power >> 24) + 1, power + (power >> 53), power + (power >> 53) + 1]);
    }
    edges
}

#[test]
fn integers() {
    macro_rules! sources {
        ($($from:ty),*) => {$(convert_all!($from, wide().into_iter().map(|x| x as $from).collect());)*};
    }
    sources!(i8, i16, i32, i64, i128, u8, u16, u32, u64);
}

#[test]
fn floats() {
    let mut edges: Vec<f64> = wide().into_iter().map(|x| x as f64).collect();
    edges.extend([
        0.5, -0.5, 0.99, -0.99, 1.5, 127.9, 255.9, -128.9, -129.0, 65535.9, 1e30, -1e30, 1e300, -1e300,
    ]);
    edges.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 5e-324, f64::MAX, f64::MIN]);
    convert_all!(f64, edges.clone());
    convert_all!(f32, edges.into_iter().map(|x| x as f32).collect());
}

#[test]
fn booleans() {
    let edges = [false, true];
    macro_rules! targets {
        ($($to:ty),*) => {$(check_conversion(&edges, |x: bool| u8::from(x) as $to);)*};
    }
    targets!(i8, i16, i32, i64, i128, u8, u16, u32, u64, f32, f64);
}

#[test]
fn bits() {
    fn check_bits<T: Element, R: Element + Default>(operands: &[T], expected: impl Fn(T) -> R) {
        let pairs: Vec<(T, T)> = operands.iter().map(|&x| (x, x)).collect();
        let results: Vec<R> = apply(&pairs, |b, x, _| b.bitcast(x, R::SCALAR));
        for (&x, result) in operands.iter().zip(results) {
            assert!(result.same(expected(x)), "{x:?}: {result:?}");
        }
    }
    let floats = [0.0, -0.0, 1.5, f64::INFINITY, f64::MIN_POSITIVE, -1e300];
    check_bits(&floats, f64::to_bits);
    check_bits(&floats, |x: f64| x.to_bits() as i64);
    check_bits(&floats.map(|x| x as f32), f32::to_bits);
    check_bits(&[0, 1, u32::MAX, 0x7f80_0000], f32::from_bits);
    check_bits(&[0, 1, i64::MIN], |x: i64| f64::from_bits(x as u64));
    check_bits(&[-1, 5i8], |x: i8| x as u8);
    check_bits(&[-1, 5i64], |x: i64| x as u64);
}

/// A narrow integer is extended as it is loaded: by the type that it is converted from, not the one in memory.
#[test]
fn widening_after_a_bitcast() {
    let pairs = [(-1i8, 0), (-128, 0), (5, 0)];
    let results: Vec<i64> = apply(&pairs, |b, x, _| {
        let x = b.bitcast(x, Scalar::U8);
        b.convert(x, Scalar::I64)
    });
    assert_eq!(results, [255, 128, 5]);
    let pairs = [(u32::MAX, 0), (1 << 31, 0), (5, 0)];
    let results: Vec<i64> = apply(&pairs, |b, x, _| {
        let x = b.bitcast(x, Scalar::I32);
        b.convert(x, Scalar::I64)
    });
    assert_eq!(results, [-1, i64::from(i32::MIN), 5]);
}
