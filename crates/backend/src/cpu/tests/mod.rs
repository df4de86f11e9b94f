//! Every operator on every type with edge operands, against Rust; and everything else a kernel can do.

mod arith;
mod atomics;
mod convert;
mod flow;
mod fuzz;
mod memory;
mod vectors;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builder, Module, Scalar, Type, ValidModule, validate};

use super::{CpuModule, LaunchStatus, Slot, WorkerContext, clif, compile};

/// A scalar of Rust that is one of KIR.
trait Element: Copy + std::fmt::Debug {
    const SCALAR: Scalar;
    /// Equal bits, or both not a number.
    fn same(self, other: Self) -> bool;
    fn slot(self) -> Slot;
}

macro_rules! elements {
    ($($ty:ty: $scalar:ident, $same:expr;)*) => {$(
        impl Element for $ty {
            const SCALAR: Scalar = Scalar::$scalar;
            fn same(self, other: Self) -> bool {
                let same: fn($ty, $ty) -> bool = $same;
                same(self, other)
            }
            fn slot(self) -> Slot {
                let mut slot = Slot::default();
                let bytes = self.to_le_bytes();
                slot.0[..bytes.len()].copy_from_slice(&bytes);
                slot
            }
        }
    )*};
}

elements! {
    i8: I8, |a, b| a == b;
    i16: I16, |a, b| a == b;
    i32: I32, |a, b| a == b;
    i64: I64, |a, b| a == b;
    i128: I128, |a, b| a == b;
    u8: U8, |a, b| a == b;
    u16: U16, |a, b| a == b;
    u32: U32, |a, b| a == b;
    u64: U64, |a, b| a == b;
    f32: F32, |a, b| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    f64: F64, |a, b| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
}

impl Element for bool {
    const SCALAR: Scalar = Scalar::Bool;
    fn same(self, other: Self) -> bool {
        self == other
    }
    fn slot(self) -> Slot {
        u8::from(self).slot()
    }
}

fn address<T>(data: &[T]) -> Slot {
    (data.as_ptr() as u64).slot()
}

fn address_mut<T>(data: &mut [T]) -> Slot {
    (data.as_mut_ptr() as u64).slot()
}

fn valid(module: Module) -> ValidModule {
    validate(module).unwrap_or_else(|error| panic!("{error}"))
}

/// Builds a module of one kernel `k`.
fn kernel(build: impl FnOnce(&mut Builder)) -> CpuModule {
    let mut b = Builder::new();
    b.begin_kernel("k");
    build(&mut b);
    b.end_kernel();
    compile_built(b)
}

fn compile_built(b: Builder) -> CpuModule {
    let module = valid(b.finish().unwrap());
    compile(&module).unwrap_or_else(|error| panic!("{error}\n{}", clif(&module).unwrap()))
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct SharedLine([u8; 64]);

/// Runs kernel `k` as worker `block_id` of `grid_dim`; the status word.
fn run_worker(module: &CpuModule, slots: &[Slot], status: &LaunchStatus, block_id: u32, grid_dim: u32) {
    run_worker_of(module, "k", slots, status, block_id, grid_dim);
}

fn run_worker_of(
    module: &CpuModule,
    name: &str,
    slots: &[Slot],
    status: &LaunchStatus,
    block_id: u32,
    grid_dim: u32,
) {
    let kernel = module.kernel(name).unwrap();
    let mut shared = vec![SharedLine([0xAA; 64]); kernel.shared_bytes().div_ceil(64) as usize];
    let shared = shared.as_mut_ptr().cast();
    /// No worker is asked again.
    extern "C" fn give_way(status: *const std::ffi::c_void) {
        // SAFETY: `caller` below.
        let status = unsafe { &*status.cast::<LaunchStatus>() };
        status.give_way.store(0, std::sync::atomic::Ordering::Relaxed);
    }
    let caller = std::ptr::from_ref(status).cast();
    let context =
        WorkerContext { slots: slots.as_ptr(), shared, status, block_id, grid_dim, give_way, caller };
    // SAFETY: the tests pass one slot a parameter, and addresses that live through this call.
    unsafe { kernel.run(&context) }
}

fn param(b: &mut Builder, name: &str, ty: Type) -> V {
    let index = b.add_param(name, ty);
    b.param(index)
}

fn run(module: &CpuModule, slots: &[Slot]) -> u32 {
    let status = LaunchStatus::default();
    run_worker(module, slots, &status, 0, 1);
    status.code.into_inner()
}

/// `for i in 0..n { … }` over an index of 64 bits.
fn for_each(b: &mut Builder, n: V, body: impl FnOnce(&mut Builder, V)) {
    let zero = b.u64(0);
    let index: Var = b.var_of("i", zero);
    b.begin_loop();
    let i = b.read(index);
    let done = b.ge(i, n);
    b.break_if(done);
    body(b, i);
    let one = b.u64(1);
    let next = b.add(i, one);
    b.assign(index, next);
    b.end();
}

/// Applies an expression of two operands to pairs, in one kernel.
fn apply<T: Element, R: Element + Default>(
    pairs: &[(T, T)],
    build: impl FnOnce(&mut Builder, V, V) -> V,
) -> Vec<R> {
    let module = kernel(|b| {
        let left = param(b, "left", Type::global(T::SCALAR));
        let right = param(b, "right", Type::global(T::SCALAR));
        let out = param(b, "out", Type::global(R::SCALAR));
        let n = param(b, "n", Type::Scalar(Scalar::U64));
        for_each(b, n, |b, i| {
            let left = b.element(left, i);
            let right = b.element(right, i);
            let result = build(b, left, right);
            let out = b.offset(out, i);
            b.store(out, result);
        });
    });
    let left: Vec<T> = pairs.iter().map(|pair| pair.0).collect();
    let right: Vec<T> = pairs.iter().map(|pair| pair.1).collect();
    let mut out = vec![R::default(); pairs.len()];
    let slots = [address(&left), address(&right), address_mut(&mut out), (pairs.len() as u64).slot()];
    assert_eq!(run(&module, &slots), 0);
    out
}

/// Every pair of operands.
fn cross<T: Copy>(operands: &[T]) -> Vec<(T, T)> {
    operands.iter().flat_map(|&a| operands.iter().map(move |&b| (a, b))).collect()
}

/// Checks an expression of two operands against Rust.
fn check<T: Element, R: Element + Default>(
    what: &str,
    operands: &[T],
    build: impl FnOnce(&mut Builder, V, V) -> V,
    expected: impl Fn(T, T) -> R,
) {
    let pairs = cross(operands);
    let results: Vec<R> = apply(&pairs, build);
    for ((a, b), result) in pairs.into_iter().zip(results) {
        let expected = expected(a, b);
        assert!(result.same(expected), "{what} {a:?}, {b:?}: {result:?}, not {expected:?}");
    }
}
