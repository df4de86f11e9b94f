//! Device functions for what C++ leaves undefined or lacks; only those that a module needs are printed.

use std::collections::BTreeMap;

use kelpie_kir::{BinaryOp, OverflowOp, Scalar, UnaryOp};

use super::types::{unsigned, wrapping};

/// The helpers that a module needs, by name.
/// What is done to 64 bits in shared memory half by half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HalfOp {
    Add,
    Or,
    Xor,
}

#[derive(Debug, Default)]
pub struct Helpers {
    texts: BTreeMap<String, String>,
}

impl Helpers {
    /// Adds a helper; `NAME` in the signature is its name. Gives the name.
    pub fn add(&mut self, name: String, signature: String, body: &str) -> String {
        self.texts.entry(name.clone()).or_insert_with(|| {
            let lines: String = body.lines().map(|line| format!("    {line}\n")).collect();
            let signature = signature.replace("NAME", &name);
            format!("static __device__ __forceinline__ {signature} {{\n{lines}}}\n")
        });
        name
    }

    /// Every helper's definition.
    pub fn text(&self) -> String {
        self.texts.values().map(|text| format!("{text}\n")).collect()
    }

    /// Total division or remainder.
    pub fn division(&mut self, op: BinaryOp, scalar: Scalar) -> String {
        let (ty, wide) = (scalar.name(), wrapping(scalar));
        let (word, body) = match (op, scalar.is_signed()) {
            (BinaryOp::Rem, true) => ("rem", "return b == 0 || b == -1 ? 0 : a % b;".to_string()),
            (BinaryOp::Rem, false) => ("rem", "return b == 0 ? 0 : a % b;".to_string()),
            (_, true) => {
                ("div", format!("return b == 0 ? {ty}(0) : b == -1 ? {ty}(-{wide}(a)) : {ty}(a / b);"))
            }
            (_, false) => ("div", "return b == 0 ? 0 : a / b;".to_string()),
        };
        self.add(format!("kelpie_{word}_{ty}"), format!("{ty} NAME({ty} a, {ty} b)"), &body)
    }

    /// The absolute value of a float or its negation, by the sign's bit: for NaN, PTX leaves open what its own instructions give,
    /// and the signs of NaN make different groups.
    pub fn sign(&mut self, op: UnaryOp, scalar: Scalar) -> String {
        let ty = scalar.name();
        let (bits, to_bits, to_float) = match scalar {
            Scalar::F32 => ("0x80000000u", "__float_as_uint", "__uint_as_float"),
            _ => ("0x8000000000000000ull", "__double_as_longlong", "__longlong_as_double"),
        };
        let (word, operation) = if op == UnaryOp::Abs { ("abs", "& ~") } else { ("neg", "^ ") };
        let body = format!("return ::{to_float}(::{to_bits}(a) {operation}{bits});");
        self.add(format!("kelpie_{word}_{ty}"), format!("{ty} NAME({ty} a)"), &body)
    }

    /// Minimum or maximum of 128 bits, for which CUDA has no overload.
    pub fn extremum_i128(&mut self, op: BinaryOp) -> String {
        let (word, compare) = if op == BinaryOp::Min { ("min", "<") } else { ("max", ">") };
        let body = format!("return a {compare} b ? a : b;");
        self.add(format!("kelpie_{word}_i128"), "i128 NAME(i128 a, i128 b)".into(), &body)
    }

    /// Whether an operation overflows.
    pub fn overflows(&mut self, op: OverflowOp, scalar: Scalar) -> String {
        let ty = scalar.name();
        let word = match op {
            OverflowOp::Add => "add",
            OverflowOp::Sub => "sub",
            OverflowOp::Mul => "mul",
        };
        let body =
            if scalar.is_signed() { signed_overflow(op, scalar) } else { unsigned_overflow(op, scalar) };
        self.add(format!("kelpie_{word}_overflows_{ty}"), format!("bool NAME({ty} a, {ty} b)"), &body)
    }

    /// Float to integer: truncates, saturates, NaN gives 0. The hardware's conversion differs for NaN in 64 bits and
    /// has no narrow types, so the limits are compared first.
    pub fn saturating(&mut self, from: Scalar, to: Scalar) -> String {
        let (source, ty) = (from.name(), to.name());
        let name = format!("kelpie_{source}_to_{ty}");
        let signature = format!("{ty} NAME({source} x)");
        if to == Scalar::I128 {
            return self.add("kelpie_f64_to_i128".into(), "i128 NAME(f64 x)".into(), FLOAT_TO_I128);
        }
        let bits = to.bits() - u32::from(to.is_signed());
        let power = format!("{}.0{}", 1u128 << bits, if from == Scalar::F32 { "f" } else { "" });
        let all = format!("{ty}({}(-1){})", unsigned(to), if to.is_signed() { " >> 1" } else { "" });
        let body = if to.is_signed() {
            let least = format!("{ty}({}(1) << {bits})", unsigned(to));
            format!("return x >= {power} ? {all} : x < -{power} ? {least} : x == x ? {ty}(x) : {ty}(0);")
        } else {
            format!("return x >= {power} ? {all} : x > {source}(0) ? {ty}(x) : {ty}(0);")
        };
        self.add(name, signature, &body)
    }

    /// `i128` to float, rounded to the nearest, ties to even.
    pub fn float_of_i128(&mut self, to: Scalar) -> String {
        let (ty, convert) =
            if to == Scalar::F32 { ("f32", "__ull2float_rn") } else { ("f64", "__ull2double_rn") };
        let scale = if to == Scalar::F32 { "::ldexpf" } else { "::ldexp" };
        let body = I128_TO_FLOAT.replace("FLOAT", ty).replace("CONVERT", convert).replace("SCALE", scale);
        self.add(format!("kelpie_i128_to_{ty}"), format!("{ty} NAME(i128 x)"), &body)
    }

    /// Combines a value with 64 bits in shared memory, half by half. Whoever reads the word meanwhile may miss a half, or a carry.
    pub fn halves_in_shared(&mut self, op: HalfOp) -> String {
        let (name, body) = match op {
            HalfOp::Add => ("add", ADD_SHARED.to_string()),
            HalfOp::Or => ("or", BITS_SHARED.replace("ATOMIC", "atomicOr_block")),
            HalfOp::Xor => ("xor", BITS_SHARED.replace("ATOMIC", "atomicXor_block")),
        };
        self.add(format!("kelpie_{name}_shared"), "void NAME(u64* word, u64 value)".into(), &body)
    }

    /// Counts the threads of a warp that execute it together.
    pub fn tally(&mut self) -> String {
        self.add("kelpie_tally".into(), "void NAME(u64* counters)".into(), TALLY)
    }

    /// Eight bytes at any address.
    pub fn load_bytes(&mut self) -> String {
        self.add("kelpie_load_bytes".into(), "u64 NAME(const u8* pointer)".into(), LOAD_BYTES)
    }

    /// Eight bytes to any address.
    pub fn store_bytes(&mut self) -> String {
        self.add("kelpie_store_bytes".into(), "void NAME(u8* pointer, u64 word)".into(), STORE_BYTES)
    }

    /// A read-only load of 128 bits.
    pub fn load_i128(&mut self) -> String {
        self.add("kelpie_load_i128".into(), "i128 NAME(const i128* pointer)".into(), LOAD_I128)
    }
}

fn unsigned_overflow(op: OverflowOp, scalar: Scalar) -> String {
    let ty = scalar.name();
    match op {
        OverflowOp::Add => format!("return {ty}(a + b) < a;"),
        OverflowOp::Sub => "return a < b;".into(),
        OverflowOp::Mul if scalar == Scalar::U64 => "return ::__umul64hi(a, b) != 0;".into(),
        OverflowOp::Mul => format!("return u64(a) * u64(b) > u64({ty}(-1));"),
    }
}

fn signed_overflow(op: OverflowOp, scalar: Scalar) -> String {
    let (ty, wide) = (scalar.name(), wrapping(scalar));
    let sign = match op {
        OverflowOp::Add => "+",
        OverflowOp::Sub => "-",
        OverflowOp::Mul => "*",
    };
    match (scalar, op) {
        (Scalar::I8 | Scalar::I16 | Scalar::I32, _) => {
            format!("const i64 exact = i64(a) {sign} i64(b);\nreturn exact != i64({ty}(exact));")
        }
        (Scalar::I128, OverflowOp::Mul) => I128_MUL_OVERFLOWS.into(),
        (_, OverflowOp::Mul) => "return ::__mul64hi(a, b) != (i64(u64(a) * u64(b)) >> 63);".into(),
        // The sign of the result is wrong.
        (_, OverflowOp::Add) => {
            format!("const {ty} sum = {ty}({wide}(a) + {wide}(b));\nreturn ((a ^ sum) & (b ^ sum)) < 0;")
        }
        (_, OverflowOp::Sub) => {
            format!(
                "const {ty} difference = {ty}({wide}(a) - {wide}(b));\nreturn ((a ^ b) & (a ^ difference)) < 0;"
            )
        }
    }
}

/// The aligned words in which the bytes are: there is always a byte of the array in each, so that both lie within the
/// (aligned) allocation.
const LOAD_BYTES: &str = "\
const u64 address = u64(pointer);
const u64* words = (const u64*)(address & ~u64(7));
const u32 shift = u32(address & 7) * 8;
if (shift == 0) return words[0];
return (words[0] >> shift) | (words[1] << (64 - shift));";

const STORE_BYTES: &str = "\
for (u32 index = 0; index < 8; index += 1) pointer[index] = u8(word >> (8 * index));";

/// The lowest of the lanes that are there adds for all of them.
const TALLY: &str = "\
const u32 together = ::__activemask();
if ((threadIdx.x & 31u) == u32(::__ffs(i32(together)) - 1)) ::atomicAdd(counters + ::__popc(together) - 1, 1ull);";

/// The old lower half tells whether this addition carries, whoever is between: the sum of all carries is right.
const ADD_SHARED: &str = "\
u32* halves = (u32*)word;
const u32 low = u32(value);
u32 high = u32(value >> 32);
if (low != 0) high += u32(::atomicAdd_block(halves, low) > 0xffffffffu - low);
if (high != 0) ::atomicAdd_block(halves + 1, high);";

const BITS_SHARED: &str = "\
u32* halves = (u32*)word;
if (u32(value) != 0) ::ATOMIC(halves, u32(value));
if (u32(value >> 32) != 0) ::ATOMIC(halves + 1, u32(value >> 32));";

const LOAD_I128: &str = "\
const ulonglong2 halves = ::__ldg((const ulonglong2*)pointer);
return i128((u128(halves.y) << 64) | halves.x);";

/// Schoolbook multiplication of the magnitudes; at most one of the high halves may be nonzero.
const I128_MUL_OVERFLOWS: &str = "\
const bool negative = (a < 0) != (b < 0);
const u128 x = a < 0 ? -u128(a) : u128(a);
const u128 y = b < 0 ? -u128(b) : u128(b);
const u64 x_low = u64(x), x_high = u64(x >> 64), y_low = u64(y), y_high = u64(y >> 64);
if (x_high != 0 && y_high != 0) return true;
const u128 cross = u128(x_high) * y_low + u128(x_low) * y_high;
if ((cross >> 64) != 0) return true;
const u128 low = u128(x_low) * y_low;
const u128 product = low + (cross << 64);
const u128 limit = (u128(1) << 127) - (negative ? 0 : 1);
return product < low || product > limit;";

/// The top 64 bits with a sticky bit below round once, as the whole number would; the scaling is exact.
const I128_TO_FLOAT: &str = "\
const u128 magnitude = x < 0 ? -u128(x) : u128(x);
FLOAT result;
if (u64(magnitude >> 64) == 0) {
    result = ::CONVERT(u64(magnitude));
} else {
    const int zeros = ::__clzll(i64(u64(magnitude >> 64)));
    const u128 shifted = magnitude << zeros;
    const u64 top = u64(shifted >> 64) | (u64(shifted) != 0 ? 1 : 0);
    result = SCALE(::CONVERT(top), 64 - zeros);
}
return x < 0 ? -result : result;";

/// A number of at least 2^63 is its 53-bit mantissa shifted left, exactly.
const FLOAT_TO_I128: &str = "\
if (x != x) return 0;
const f64 magnitude = ::fabs(x);
if (magnitude < 9223372036854775808.0) return i128(i64(x));
const i128 least = i128(u128(1) << 127);
if (magnitude >= 170141183460469231731687303715884105728.0) return x < 0 ? least : i128(~u128(least));
const u64 bits = u64(::__double_as_longlong(magnitude));
const u64 mantissa = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
const u128 whole = u128(mantissa) << (u32(bits >> 52) - 1075u);
return x < 0 ? i128(-whole) : i128(whole);";
