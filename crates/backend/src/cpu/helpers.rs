//! What Cranelift has no instruction for: functions that compiled code calls. They must not unwind.
//!
//! A 128-bit integer is passed as its two halves, low one first, and returned through a pointer.

use cranelift_codegen::ir::{AbiParam, Signature, Type, types};

use super::WorkerContext;

/// A function that compiled code may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Helper {
    DivI128,
    RemI128,
    MulOverflowsI128,
    I128ToF32,
    I128ToF64,
    F32ToI128,
    F64ToI128,
    FmodF32,
    FmodF64,
    GiveWay,
}

impl Helper {
    pub(super) const ALL: [Helper; 10] = [
        Helper::DivI128,
        Helper::RemI128,
        Helper::MulOverflowsI128,
        Helper::I128ToF32,
        Helper::I128ToF64,
        Helper::F32ToI128,
        Helper::F64ToI128,
        Helper::FmodF32,
        Helper::FmodF64,
        Helper::GiveWay,
    ];

    /// The symbol.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Helper::DivI128 => "kelpie_div_i128",
            Helper::RemI128 => "kelpie_rem_i128",
            Helper::MulOverflowsI128 => "kelpie_mul_overflows_i128",
            Helper::I128ToF32 => "kelpie_i128_to_f32",
            Helper::I128ToF64 => "kelpie_i128_to_f64",
            Helper::F32ToI128 => "kelpie_f32_to_i128",
            Helper::F64ToI128 => "kelpie_f64_to_i128",
            Helper::FmodF32 => "kelpie_fmod_f32",
            Helper::FmodF64 => "kelpie_fmod_f64",
            Helper::GiveWay => "kelpie_give_way",
        }
    }

    fn address(self) -> *const u8 {
        match self {
            Helper::DivI128 => div_i128 as *const u8,
            Helper::RemI128 => rem_i128 as *const u8,
            Helper::MulOverflowsI128 => mul_overflows_i128 as *const u8,
            Helper::I128ToF32 => i128_to_f32 as *const u8,
            Helper::I128ToF64 => i128_to_f64 as *const u8,
            Helper::F32ToI128 => f32_to_i128 as *const u8,
            Helper::F64ToI128 => f64_to_i128 as *const u8,
            Helper::FmodF32 => fmod_f32 as *const u8,
            Helper::FmodF64 => fmod_f64 as *const u8,
            Helper::GiveWay => give_way as *const u8,
        }
    }

    /// Adds parameters and results to an empty signature.
    pub(super) fn fill_signature(self, signature: &mut Signature) {
        const WIDE: [Type; 2] = [types::I64; 2];
        let (params, result): (Vec<Type>, Option<Type>) = match self {
            Helper::DivI128 | Helper::RemI128 => {
                ([WIDE, WIDE].concat().into_iter().chain([types::I64]).collect(), None)
            }
            Helper::MulOverflowsI128 => ([WIDE, WIDE].concat(), Some(types::I32)),
            Helper::I128ToF32 => (WIDE.to_vec(), Some(types::F32)),
            Helper::I128ToF64 => (WIDE.to_vec(), Some(types::F64)),
            Helper::F32ToI128 => (vec![types::F32, types::I64], None),
            Helper::F64ToI128 => (vec![types::F64, types::I64], None),
            Helper::FmodF32 => (vec![types::F32; 2], Some(types::F32)),
            Helper::FmodF64 => (vec![types::F64; 2], Some(types::F64)),
            Helper::GiveWay => (vec![types::I64], None),
        };
        signature.params.extend(params.into_iter().map(AbiParam::new));
        signature.returns.extend(result.map(AbiParam::new));
    }
}

/// The address of a helper's symbol.
pub(super) fn address(symbol: &str) -> Option<*const u8> {
    Helper::ALL.into_iter().find(|helper| helper.name() == symbol).map(Helper::address)
}

fn wide(low: u64, high: u64) -> i128 {
    ((u128::from(high) << 64) | u128::from(low)) as i128
}

fn write(out: *mut [u64; 2], value: i128) {
    // SAFETY: compiled code passes the address of a 16-byte stack slot of its frame, aligned to 8 bytes.
    unsafe { out.write([value as u64, (value >> 64) as u64]) }
}

extern "C" fn div_i128(a_low: u64, a_high: u64, b_low: u64, b_high: u64, out: *mut [u64; 2]) {
    let divisor = wide(b_low, b_high);
    write(out, if divisor == 0 { 0 } else { wide(a_low, a_high).wrapping_div(divisor) });
}

extern "C" fn rem_i128(a_low: u64, a_high: u64, b_low: u64, b_high: u64, out: *mut [u64; 2]) {
    let divisor = wide(b_low, b_high);
    write(out, if divisor == 0 { 0 } else { wide(a_low, a_high).wrapping_rem(divisor) });
}

extern "C" fn mul_overflows_i128(a_low: u64, a_high: u64, b_low: u64, b_high: u64) -> u32 {
    u32::from(wide(a_low, a_high).checked_mul(wide(b_low, b_high)).is_none())
}

extern "C" fn i128_to_f32(low: u64, high: u64) -> f32 {
    wide(low, high) as f32
}

extern "C" fn i128_to_f64(low: u64, high: u64) -> f64 {
    wide(low, high) as f64
}

extern "C" fn f32_to_i128(value: f32, out: *mut [u64; 2]) {
    write(out, value as i128);
}

extern "C" fn f64_to_i128(value: f64, out: *mut [u64; 2]) {
    write(out, value as i128);
}

extern "C" fn fmod_f32(a: f32, b: f32) -> f32 {
    a % b
}

extern "C" fn fmod_f64(a: f64, b: f64) -> f64 {
    a % b
}

extern "C" fn give_way(context: *const WorkerContext) {
    // SAFETY: compiled code passes the context that it was called with.
    let context = unsafe { &*context };
    (context.give_way)(context.caller);
}
