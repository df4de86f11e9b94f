//! Accesses to random places, by which a device's caches are measured: each thread goes from place to place of a working set, which has
//! a power of two of places.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Builtin, Module, Scalar, Scope, Type, TypeError};

/// Reads places, each of which depends on what the last one has.
pub const READS: &str = "random_reads";
/// Adds one to places.
pub const ATOMICS: &str = "random_atomics";
/// Places that a thread goes through side by side: what a processor does while one of them is waited for.
pub const CHAINS: u32 = 4;

/// Knuth's constants for a linear congruential generator of 64 bits, of which the upper ones are random.
const FACTOR: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;
/// Bits of a chain's number within its run.
const RUN_SHIFT: u64 = 40;
/// Bits that are not taken: what is left is a number of no sign.
const DROPPED_BITS: u64 = 33;

/// Both kernels: parameters `set` (`ptr<global, u32>`, all zeros, for reads, and `ptr<global, u64>` for atomics), `turns` (i64; a turn goes
/// to [`CHAINS`] places), `mask` (u64: the places less one), `stride` (i64: numbers of the set's type from place to place), `run` (u64:
/// below 2^24; in each run threads begin elsewhere, else a large set would be accessed where it was before), `out` (`ptr<global, u64>`, one
/// word).
pub fn module() -> Result<Module, TypeError> {
    let mut b = Builder::new();
    kernel(&mut b, (READS, Scalar::U32), |b, place| {
        let found = b.load_read_only(place);
        b.convert(found, Scalar::U64)
    });
    kernel(&mut b, (ATOMICS, Scalar::U64), |b, place| {
        let one = b.u64(1);
        b.atomic_discard(AtomicOp::Add, place, one, Scope::Device);
        b.u64(0)
    });
    b.finish()
}

/// A kernel over a set of such numbers that does `access` at each place; what that gives, a `u64`, is added to where the chain goes next.
fn kernel(b: &mut Builder, (name, number): (&str, Scalar), access: impl Fn(&mut Builder, V) -> V) {
    b.begin_kernel(name);
    let pointer = Type::global(Scalar::U64);
    let params = [
        ("set", Type::global(number)),
        ("turns", Type::I64),
        ("mask", Type::Scalar(Scalar::U64)),
        ("stride", Type::I64),
        ("run", Type::Scalar(Scalar::U64)),
        ("out", pointer),
    ];
    let [set, turns, mask, stride, run, out] = params.map(|(name, ty)| {
        let param = b.add_param(name, ty);
        b.param(param)
    });
    let chains = seeds(b, run);
    let zero = b.i64(0);
    let turn = b.var_of("turn", zero);
    b.begin_loop();
    let now = b.read(turn);
    let done = b.ge(now, turns);
    b.break_if(done);
    for chain in &chains {
        let state = b.read(*chain);
        let (factor, increment, dropped) = (b.u64(FACTOR), b.u64(INCREMENT), b.u64(DROPPED_BITS));
        let next = b.mul(state, factor);
        let next = b.add(next, increment);
        let place = b.binary(BinaryOp::Shr, next, dropped);
        // Whatever was read, the place is one of the set.
        let place = b.and(place, mask);
        let place = b.bitcast(place, Scalar::I64);
        let index = b.mul(place, stride);
        let address = b.offset(set, index);
        let found = access(b, address);
        let next = b.add(next, found);
        b.assign(*chain, next);
    }
    let one = b.i64(1);
    let next = b.add(now, one);
    b.assign(turn, next);
    b.end();
    // So that no compiler leaves the reads out.
    let mut total = b.u64(0);
    for chain in &chains {
        let state = b.read(*chain);
        total = b.add(total, state);
    }
    let never = b.u64(1);
    let found = b.eq(total, never);
    b.begin_if(found);
    b.store(out, total);
    b.end();
    b.end_kernel();
}

/// Where the chains of a thread begin: each thread elsewhere, and in each run.
fn seeds(b: &mut Builder, run: V) -> Vec<Var> {
    let [block, thread, threads] = [Builtin::BlockId, Builtin::ThreadId, Builtin::BlockDim].map(|builtin| {
        let value = b.builtin(builtin);
        b.convert(value, Scalar::U64)
    });
    let first = b.mul(block, threads);
    let own = b.add(first, thread);
    let chains = b.u64(CHAINS.into());
    let own = b.mul(own, chains);
    // There are fewer chains than that of one run.
    let shift = b.u64(RUN_SHIFT);
    let run = b.binary(BinaryOp::Shl, run, shift);
    let own = b.add(own, run);
    (0..CHAINS)
        .map(|chain| {
            let chain = b.u64(u64::from(chain) + 1);
            let number = b.add(own, chain);
            let spread = b.u64(0x9e37_79b9_7f4a_7c15);
            let seed = b.mul(number, spread);
            b.var_of("state", seed)
        })
        .collect()
}
