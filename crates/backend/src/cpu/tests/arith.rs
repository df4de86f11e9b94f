use super::*;
use kelpie_kir::{BinaryOp, CompareOp, OverflowOp, UnaryOp};

fn floats<T>(convert: impl Fn(f64) -> T) -> Vec<T> {
    let edges = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 1e9, -1e9, 1e20, 5e-324, 1e-40];
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE];
    edges.into_iter().chain(special).map(convert).collect()
}

macro_rules! edges {
    ($ty:ty) => {{
        let mut edges: Vec<$ty> = vec![0, 1, 2, 3, 7, 10, 100, <$ty>::MAX, <$ty>::MAX - 1, <$ty>::MIN];
        edges.extend([<$ty>::MIN + 1, <$ty>::MAX / 2, <$ty>::MAX / 2 + 1, <$ty>::MAX / 3, <$ty>::MIN / 2]);
        edges.extend([1, 2, 10].map(|x: $ty| (0 as $ty).wrapping_sub(x)));
        edges.extend([<$ty>::BITS - 1, <$ty>::BITS / 2, <$ty>::BITS].map(|bits| bits as $ty));
        edges
    }};
}

macro_rules! check_binary {
    ($ty:ty, $edges:expr, $($op:ident => $expected:expr;)*) => {$(
        let expected: fn($ty, $ty) -> $ty = $expected;
        check(&format!("{} {:?}", stringify!($ty), BinaryOp::$op), $edges, |b, x, y| b.binary(BinaryOp::$op, x, y), expected);
    )*};
}

macro_rules! check_compare {
    ($ty:ty, $edges:expr, $($op:ident => $operator:tt;)*) => {$(
        let what = format!("{} {:?}", stringify!($ty), CompareOp::$op);
        check(&what, $edges, |b, x, y| b.compare(CompareOp::$op, x, y), |x: $ty, y: $ty| x $operator y);
    )*};
}

macro_rules! integer_tests {
    ($($name:ident: $ty:ty;)*) => {$(
        #[test]
        fn $name() {
            let edges = edges!($ty);
            check_binary! { $ty, &edges,
                Add => |x, y| x.wrapping_add(y);
                Sub => |x, y| x.wrapping_sub(y);
                Mul => |x, y| x.wrapping_mul(y);
                Div => |x, y| if y == 0 { 0 } else { x.wrapping_div(y) };
                Rem => |x, y| if y == 0 { 0 } else { x.wrapping_rem(y) };
                And => |x, y| x & y;
                Or => |x, y| x | y;
                Xor => |x, y| x ^ y;
                Shl => |x, y| x.wrapping_shl(y as u32);
                Shr => |x, y| x.wrapping_shr(y as u32);
                Min => |x, y| x.min(y);
                Max => |x, y| x.max(y);
            }
            check_compare! { $ty, &edges, Eq => ==; Ne => !=; Lt => <; Le => <=; Gt => >; Ge => >=; }
            let ty = stringify!($ty);
            for (op, expected) in [
                (OverflowOp::Add, (|x, y| x.checked_add(y).is_none()) as fn($ty, $ty) -> bool),
                (OverflowOp::Sub, |x, y| x.checked_sub(y).is_none()),
                (OverflowOp::Mul, |x, y| x.checked_mul(y).is_none()),
            ] {
                check(&format!("{ty} overflows {op:?}"), &edges, |b, x, y| b.overflows(op, x, y), expected);
            }
            // Both results of one operation, in either order.
            check(&format!("{ty} checked"), &edges, |b, x, y| {
                let sum = b.add(x, y);
                let sum_overflows = b.overflows(OverflowOp::Add, x, y);
                let product_overflows = b.overflows(OverflowOp::Mul, x, y);
                let product = b.mul(x, y);
                let zero = b.zero(<$ty>::SCALAR);
                let sum = b.select(sum_overflows, zero, sum);
                let product = b.select(product_overflows, zero, product);
                b.binary(BinaryOp::Xor, sum, product)
            }, |x: $ty, y| x.checked_add(y).unwrap_or(0) ^ x.checked_mul(y).unwrap_or(0));
            check(&format!("{ty} neg"), &edges, |b, x, _| b.unary(UnaryOp::Neg, x), |x: $ty, _| x.wrapping_neg());
            check(&format!("{ty} not"), &edges, |b, x, _| b.not(x), |x: $ty, _| !x);
            check(&format!("{ty} select"), &edges, |b, x, y| {
                let less = b.lt(x, y);
                let greater = b.select(less, y, x);
                let smaller = b.select(less, x, y);
                b.sub(greater, smaller)
            }, |x: $ty, y| x.max(y).wrapping_sub(x.min(y)));
            // By a literal, which may become something other than a division.
            for divisor in edges.iter().copied() {
                let literal = divisor as i128;
                check(&format!("{ty} / {divisor}"), &edges, |b, x, _| {
                    let divisor = b.int(<$ty>::SCALAR, literal);
                    let quotient = b.div(x, divisor);
                    let remainder = b.rem(x, divisor);
                    b.binary(BinaryOp::Xor, quotient, remainder)
                }, |x: $ty, _| if divisor == 0 { 0 } else { x.wrapping_div(divisor) ^ x.wrapping_rem(divisor) });
            }
        }
    )*};
}

integer_tests! {
    int8: i8;
    int16: i16;
    int32: i32;
    int64: i64;
    int128: i128;
    uint8: u8;
    uint16: u16;
    uint32: u32;
    uint64: u64;
}

macro_rules! bit_tests {
    ($($ty:ty),*) => {$({
        let edges = edges!($ty);
        check("popcount", &edges, |b, x, _| b.unary(UnaryOp::Popcount, x), |x: $ty, _| x.count_ones());
        check("clz", &edges, |b, x, _| b.unary(UnaryOp::Clz, x), |x: $ty, _| x.leading_zeros());
        check("ffs", &edges, |b, x, _| b.unary(UnaryOp::Ffs, x), |x: $ty, _| {
            if x == 0 { 0 } else { x.trailing_zeros() + 1 }
        });
    })*};
}

#[test]
fn bits() {
    bit_tests!(i8, i16, i32, i64, u8, u16, u32, u64);
}

#[test]
fn upper_half_of_a_product() {
    fn build(b: &mut Builder, x: V, y: V) -> V {
        b.binary(BinaryOp::MulHi, x, y)
    }
    check("i32", &edges!(i32), build, |x, y| ((i64::from(x) * i64::from(y)) >> 32) as i32);
    check("u32", &edges!(u32), build, |x, y| ((u64::from(x) * u64::from(y)) >> 32) as u32);
    check("i64", &edges!(i64), build, |x, y| ((i128::from(x) * i128::from(y)) >> 64) as i64);
    check("u64", &edges!(u64), build, |x, y| ((u128::from(x) * u128::from(y)) >> 64) as u64);
}

macro_rules! float_tests {
    ($ty:ty, $edges:expr) => {{
        let edges = $edges;
        check_binary! { $ty, &edges,
            Add => |x, y| x + y;
            Sub => |x, y| x - y;
            Mul => |x, y| x * y;
            Div => |x, y| x / y;
            Rem => |x, y| x % y;
        }
        check_compare! { $ty, &edges, Eq => ==; Ne => !=; Lt => <; Le => <=; Gt => >; Ge => >=; }
        for (op, expected) in [
            (UnaryOp::Neg, (|x| -x) as fn($ty) -> $ty),
            (UnaryOp::Floor, <$ty>::floor),
            (UnaryOp::Ceil, <$ty>::ceil),
            (UnaryOp::Trunc, <$ty>::trunc),
            (UnaryOp::RoundEven, <$ty>::round_ties_even),
            (UnaryOp::Abs, <$ty>::abs),
            (UnaryOp::Sqrt, <$ty>::sqrt),
        ] {
            check(&format!("{op:?}"), &edges, |b, x, _| b.unary(op, x), |x, _| expected(x));
        }
        check(
            "select",
            &edges,
            |b, x, y| {
                let less = b.lt(x, y);
                b.select(less, x, y)
            },
            |x: $ty, y| if x < y { x } else { y },
        );
        check(
            "negated comparison",
            &edges,
            |b, x, y| {
                let less = b.lt(x, y);
                b.not(less)
            },
            |x: $ty, y| !(x < y),
        );
    }};
}

#[test]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN is the point")]
fn float() {
    float_tests!(f32, floats(|x| x as f32));
    float_tests!(f64, floats(|x| x));
}

#[test]
fn boolean() {
    let edges = [false, true];
    check_binary! { bool, &edges, And => |x, y| x & y; Or => |x, y| x | y; Xor => |x, y| x ^ y; }
    check_compare! { bool, &edges, Eq => ==; Ne => !=; }
    check("not", &edges, |b, x, _| b.not(x), |x: bool, _| !x);
    check("select", &edges, |b, x, y| b.select(x, y, x), |x: bool, y| x & y);
}

/// Two conditions that the optimiser could merge into one minimum of `i128`, and comparisons with constants.
#[test]
fn wide_selection_of_compared_operands() {
    let edges = edges!(i128);
    check(
        "clamp",
        &edges,
        |b, x, y| {
            let low = b.int(Scalar::I128, -5);
            let less = b.lt(x, low);
            let x = b.select(less, low, x);
            let greater = b.ge(x, y);
            b.select(greater, y, x)
        },
        |x: i128, y| x.max(-5).min(y),
    );
}
