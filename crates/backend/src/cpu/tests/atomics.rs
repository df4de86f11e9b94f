use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use kelpie_kir::{AtomicOp, Builtin, Pointee, Scope, Type};

const ROUNDS: u64 = 20_000;
const WORKERS: u32 = 2;

/// Runs kernel `k` on two threads at once.
fn run_together(module: &CpuModule, slots: &[Slot]) -> u32 {
    let status = LaunchStatus::default();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (slots, status) = (slots.to_vec(), &status);
            scope.spawn(move || run_worker(module, &slots, status, worker, WORKERS));
        }
    });
    status.code.into_inner()
}

/// Every round, each worker applies `op` to one word with the operand that `operand` makes of `round * 2 + worker`.
fn contended<T: Element>(word: &mut [T], op: AtomicOp, scope: Scope) {
    let module = kernel(|b| {
        let pointer = param(b, "word", Type::global(T::SCALAR));
        let n = param(b, "n", Type::Scalar(Scalar::U64));
        for_each(b, n, |b, round| {
            let worker = b.builtin(Builtin::BlockId);
            let worker = b.convert(worker, Scalar::U64);
            let two = b.u64(2);
            let number = b.mul(round, two);
            let number = b.add(number, worker);
            let operand = match op {
                AtomicOp::Add => b.u64(1),
                _ => number,
            };
            let operand = b.convert(operand, T::SCALAR);
            b.atomic_discard(op, pointer, operand, scope);
        });
    });
    let slots = [address_mut(word), ROUNDS.slot()];
    match scope {
        Scope::Device => assert_eq!(run_together(&module, &slots), 0),
        Scope::Block => assert_eq!(run(&module, &slots), 0),
    }
}

macro_rules! contended_tests {
    ($($ty:ty),*) => {$({
        let total = ROUNDS * u64::from(WORKERS);
        let mut word = [0 as $ty];
        contended(&mut word, AtomicOp::Add, Scope::Device);
        assert_eq!(word[0] as u64, total);
        contended(&mut word, AtomicOp::Add, Scope::Block);
        assert_eq!(word[0] as u64, total + ROUNDS);
        for (op, first, last) in [
            (AtomicOp::Max, <$ty>::MIN, (total - 1) as $ty),
            (AtomicOp::Min, <$ty>::MAX, 0),
        ] {
            for (scope, last) in [(Scope::Device, last), (Scope::Block, if last == 0 { 0 } else { last - 1 })] {
                let mut word = [first];
                contended(&mut word, op, scope);
                assert_eq!(word[0], last, "{op:?} {scope:?}");
            }
        }
        let mut word = [0 as $ty];
        contended(&mut word, AtomicOp::Or, Scope::Device);
        assert_eq!(word[0], (total.next_power_of_two() - 1) as $ty);
    })*};
}

#[test]
fn integers_from_two_threads() {
    contended_tests!(i32, u32, i64, u64);
}

#[test]
fn float_additions_from_two_threads() {
    let mut word = [0.5f32];
    contended(&mut word, AtomicOp::Add, Scope::Device);
    assert_eq!(word[0], 0.5 + (ROUNDS * 2) as f32);
    let mut word = [0.25f64];
    contended(&mut word, AtomicOp::Add, Scope::Device);
    contended(&mut word, AtomicOp::Add, Scope::Block);
    assert_eq!(word[0], 0.25 + (ROUNDS * 3) as f64);
}

/// The order of signed and unsigned minima differs.
#[test]
fn signs_of_minima() {
    for scope in [Scope::Device, Scope::Block] {
        let module = kernel(|b| {
            let signed = param(b, "signed", Type::global(Scalar::I32));
            let unsigned = param(b, "unsigned", Type::global(Scalar::U32));
            let minus_one = b.i32(-1);
            let largest = b.u32(u32::MAX);
            b.atomic_discard(AtomicOp::Min, signed, minus_one, scope);
            b.atomic_discard(AtomicOp::Min, unsigned, largest, scope);
        });
        let (mut signed, mut unsigned) = ([7i32], [7u32]);
        run(&module, &[address_mut(&mut signed), address_mut(&mut unsigned)]);
        assert_eq!((signed, unsigned), ([-1], [7]));
    }
}

#[test]
fn old_values_and_exchanges() {
    for scope in [Scope::Device, Scope::Block] {
        let module = kernel(|b| {
            let word = param(b, "word", Type::global(Scalar::I64));
            let out = param(b, "out", Type::global(Scalar::I64));
            let (five, six, seven) = (b.i64(5), b.i64(6), b.i64(7));
            let olds = [
                b.atomic(AtomicOp::Add, word, five, scope),     // 10 -> 15
                b.atomic(AtomicOp::Exchange, word, six, scope), // 15 -> 6
                b.atomic(AtomicOp::CompareExchange(five), word, seven, scope), // 6 stays
                b.atomic(AtomicOp::CompareExchange(six), word, seven, scope), // 6 -> 7
                b.atomic(AtomicOp::Or, word, six, scope),       // 7 stays
                b.atomic(AtomicOp::Min, word, six, scope),      // 7 -> 6
                b.atomic(AtomicOp::Max, word, seven, scope),    // 6 -> 7
                b.atomic(AtomicOp::Xor, word, five, scope),     // 7 -> 2
            ];
            for (index, old) in olds.into_iter().enumerate() {
                let index = b.u32(index as u32);
                let pointer = b.offset(out, index);
                b.store(pointer, old);
            }
        });
        let (mut word, mut out) = ([10i64], [0i64; 8]);
        run(&module, &[address_mut(&mut word), address_mut(&mut out)]);
        assert_eq!((word, out), ([2], [10, 15, 6, 6, 7, 7, 6, 7]), "{scope:?}");
    }
}

/// A worker that waits for what another one writes must read memory each time, in a loop of either shape.
#[test]
fn waiting_for_another_worker() {
    for test_first in [false, true] {
        let module = kernel(|b| {
            let flag = param(b, "flag", Type::global(Scalar::U32));
            let worker = b.builtin(Builtin::BlockId);
            let zero = b.u32(0);
            let waits = b.eq(worker, zero);
            b.begin_if(waits);
            b.begin_loop();
            if !test_first {
                b.fence();
            }
            let seen = b.load(flag);
            let set = b.ne(seen, zero);
            b.break_if(set);
            b.end();
            b.begin_else();
            // Long enough that the other worker waits.
            let n = b.u64(3_000_000);
            let counter = b.var("counter", Scalar::U32);
            for_each(b, n, |b, _| {
                let status = b.builtin(Builtin::Status);
                b.assign(counter, status);
            });
            let one = b.u32(1);
            b.fence();
            b.store(flag, one);
            b.end();
        });
        let mut flag = [0u32];
        assert_eq!(run_together(&module, &[address_mut(&mut flag)]), 0);
    }
}

/// A load after a fence is a load of its own: the compiler does not give it what the one before has found.
#[test]
fn a_fence_stops_the_compiler() {
    let module = kernel(|b| {
        let flag = param(b, "flag", Type::global(Scalar::U32));
        let stop = param(b, "stop", Type::global(Scalar::U32));
        let changes = param(b, "changes", Type::global(Scalar::U32));
        let worker = b.builtin(Builtin::BlockId);
        let (zero, one) = (b.u32(0), b.u32(1));
        let looks = b.eq(worker, zero);
        b.begin_if(looks);
        // Far more looks than it takes to see the other worker's write between two of them.
        let most = b.u32(4_000_000_000);
        let count = b.var_of("count", zero);
        b.begin_loop();
        let before = b.load(flag);
        b.fence();
        let after = b.load(flag);
        let changed = b.ne(before, after);
        b.begin_if(changed);
        b.store(changes, one);
        b.break_loop();
        b.end();
        let seen = b.read(count);
        let next = b.add(seen, one);
        b.assign(count, next);
        let done = b.ge(next, most);
        b.break_if(done);
        b.end();
        b.atomic_discard(AtomicOp::Exchange, stop, one, Scope::Device);
        b.begin_else();
        b.begin_loop();
        b.atomic_discard(AtomicOp::Add, flag, one, Scope::Device);
        let stopped = b.atomic_load(stop, Scope::Device);
        let stopped = b.ne(stopped, zero);
        b.break_if(stopped);
        b.end();
        b.end();
    });
    let (mut flag, mut stop, mut changes) = ([0u32], [0u32], [0u32]);
    let arguments = [address_mut(&mut flag), address_mut(&mut stop), address_mut(&mut changes)];
    assert_eq!(run_together(&module, &arguments), 0);
    assert_eq!(changes, [1], "a change between two loads is never seen");
}

#[test]
fn the_first_report_stays() {
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::U32));
        let traps = param(b, "traps", Type::BOOL);
        let before = b.builtin(Builtin::Status);
        b.store(out, before);
        b.report(7);
        b.report(8);
        let after = b.builtin(Builtin::Status);
        b.store(out, after);
        b.begin_if(traps);
        b.trap(9);
        b.end();
        let reached = b.u32(100);
        b.store(out, reached);
    });
    for (traps, first, expected) in [(false, 0, (7, 100)), (true, 0, (7, 7)), (true, 3, (3, 3))] {
        let mut out = [0u32];
        let status = LaunchStatus { code: AtomicU32::new(first), ..LaunchStatus::default() };
        run_worker(&module, &[address_mut(&mut out), traps.slot()], &status, 0, 1);
        assert_eq!((status.code.load(Ordering::Relaxed), out[0]), expected);
    }
}

#[test]
fn a_worker_that_is_asked_gives_way_where_it_reads_the_status_word() {
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::U32));
        let status = b.builtin(Builtin::Status);
        b.store(out, status);
    });
    let mut out = [9u32];
    let status = LaunchStatus { code: AtomicU32::new(3), give_way: AtomicU32::new(1) };
    run_worker(&module, &[address_mut(&mut out)], &status, 0, 1);
    // It was called, and the kernel went on.
    assert_eq!((status.give_way.into_inner(), status.code.into_inner(), out), (0, 3, [3]));
}

#[test]
fn shared_memory_of_a_worker() {
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::I64));
        let bytes = b.shared("bytes", Pointee::Scalar(Scalar::U8), 3);
        let wide = b.shared("wide", Pointee::Scalar(Scalar::I128), 2);
        let sums = b.shared("sums", Pointee::Scalar(Scalar::I64), 4);
        let n = b.u64(4);
        let zero = b.i64(0);
        for_each(b, n, |b, i| {
            let sum = b.offset(sums, i);
            b.store(sum, zero);
        });
        b.barrier();
        let rows = b.u64(10);
        for_each(b, rows, |b, i| {
            let mask = b.u64(3);
            let group = b.and(i, mask);
            let sum = b.offset(sums, group);
            let i = b.convert(i, Scalar::I64);
            b.atomic_discard(AtomicOp::Add, sum, i, Scope::Device);
        });
        let last = b.int(Scalar::U8, 2);
        let byte = b.offset(bytes, last);
        let value = b.int(Scalar::U8, 200);
        b.store(byte, value);
        let second = b.int(Scalar::I8, 1);
        let word = b.offset(wide, second);
        let large = b.int(Scalar::I128, 1i128 << 100);
        b.store(word, large);
        b.barrier();
        for_each(b, n, |b, i| {
            let sum = b.offset(sums, i);
            let sum = b.uniform_load(sum);
            let byte = b.load(byte);
            let byte = b.convert(byte, Scalar::I64);
            let large = b.load(word);
            let shift = b.int(Scalar::I128, 98);
            let large = b.binary(kelpie_kir::BinaryOp::Shr, large, shift);
            let large = b.convert(large, Scalar::I64);
            let total = b.add(sum, byte);
            let total = b.add(total, large);
            let out = b.offset(out, i);
            b.store(out, total);
        });
    });
    assert_eq!(module.kernel("k").unwrap().shared_bytes(), 16 + 32 + 32);
    let mut out = [0i64; 4];
    run(&module, &[address_mut(&mut out)]);
    assert_eq!(out, [12, 15, 8, 10].map(|sum| sum + 204));
}
