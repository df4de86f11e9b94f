use super::*;
use kelpie_kir::{Builtin, Expr, ShuffleMode};

/// Counts pairs (i, j), j <= i < n, with `continue` in the inner loop and `break` out of both.
fn nested(b: &mut Builder, bottom_tested: bool) {
    let out = param(b, "out", Type::global(Scalar::I64));
    let n = param(b, "n", Type::I64);
    let (zero, one) = (b.i64(0), b.i64(1));
    let outer = b.var("outer", Scalar::I64);
    let sum = b.var("sum", Scalar::I64);
    b.begin_loop();
    let i = b.read(outer);
    if bottom_tested {
        let goes_on = b.lt(i, n);
        b.begin_if(goes_on);
    } else {
        let done = b.ge(i, n);
        b.break_if(done);
    }
    let next = b.add(i, one);
    b.assign(outer, next);
    // Without the variable's zero at each turn, the second turn would see the first one's end.
    let inner = b.var_of("inner", zero);
    b.begin_loop();
    let j = b.read(inner);
    let next = b.add(j, one);
    b.assign(inner, next);
    let beyond = b.compare(kelpie_kir::CompareOp::Gt, j, i);
    b.break_if(beyond);
    let odd = b.and(j, one);
    let odd = b.ne(odd, zero);
    b.begin_if(odd);
    b.continue_loop();
    b.end();
    let product = b.mul(i, j);
    let total = b.read(sum);
    let total = b.add(total, product);
    b.assign(sum, total);
    let limit = b.i64(1000);
    let enough = b.ge(total, limit);
    b.break_if(enough);
    b.end();
    if bottom_tested {
        b.begin_else();
        b.break_loop();
        b.end();
    }
    b.end();
    let total = b.read(sum);
    b.store(out, total);
}

fn nested_reference(n: i64) -> i64 {
    let mut sum = 0;
    for i in 0..n {
        for j in (0..=i).filter(|j| j % 2 == 0) {
            sum += i * j;
            if sum >= 1000 {
                break;
            }
        }
    }
    sum
}

#[test]
fn nested_loops() {
    for bottom_tested in [false, true] {
        let module = kernel(|b| nested(b, bottom_tested));
        for n in [-1, 0, 1, 2, 5, 17, 40] {
            let mut out = [-1i64];
            run(&module, &[address_mut(&mut out), n.slot()]);
            assert_eq!(out[0], nested_reference(n), "n = {n}, bottom tested: {bottom_tested}");
        }
    }
}

/// The head of a loop loads read-only memory, and the body uses what the head computed after changing its variables.
#[test]
fn values_of_a_loops_head_in_its_body() {
    let module = kernel(|b| {
        let data = param(b, "data", Type::global(Scalar::I32));
        let out = param(b, "out", Type::global(Scalar::I64));
        let index = b.var("i", Scalar::U64);
        let sum = b.var("sum", Scalar::I64);
        b.begin_loop();
        let i = b.read(index);
        let value = b.element(data, i);
        let double = b.add(value, value);
        let overflows = b.overflows(kelpie_kir::OverflowOp::Add, value, value);
        let zero = b.i32(0);
        let end = b.eq(value, zero);
        b.break_if(end);
        let one = b.u64(1);
        let next = b.add(i, one);
        b.assign(index, next);
        b.begin_if(overflows);
        b.continue_loop();
        b.end();
        let factor = b.convert(i, Scalar::I64);
        let wide = b.convert(double, Scalar::I64);
        let product = b.mul(factor, wide);
        let old = b.read(sum);
        let new = b.add(old, product);
        b.assign(sum, new);
        b.end();
        let total = b.read(sum);
        b.store(out, total);
        let end = b.read(index);
        let end = b.convert(end, Scalar::I64);
        let one = b.u32(1);
        let second = b.offset(out, one);
        b.store(second, end);
    });
    let data = [3, i32::MAX, -5, 7, i32::MIN, 0, 9];
    let mut out = [0i64; 2];
    run(&module, &[address(&data), address_mut(&mut out)]);
    assert_eq!(out, [2 * -10 + 3 * 14, 5]);
}

/// Blocks that never end normally, loops without an end but `return`, statements after a jump.
#[test]
fn leaving_early() {
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::I32));
        let n = param(b, "n", Type::Scalar(Scalar::I32));
        let count = b.var("count", Scalar::I32);
        b.begin_loop();
        let c = b.read(count);
        let one = b.i32(1);
        let c = b.add(c, one);
        b.assign(count, c);
        b.store(out, c);
        let done = b.ge(c, n);
        b.begin_if(done);
        b.return_void();
        b.begin_else();
        b.continue_loop();
        b.end();
        b.end();
    });
    for n in [0, 1, 9] {
        let mut out = [-1i32];
        run(&module, &[address_mut(&mut out), n.slot()]);
        assert_eq!(out[0], n.max(1));
    }
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::I32));
        b.begin_loop();
        b.begin_loop();
        b.break_loop();
        b.end();
        b.break_loop();
        b.end();
        let one = b.i32(1);
        b.store(out, one);
    });
    let mut out = [0i32];
    run(&module, &[address_mut(&mut out)]);
    assert_eq!(out[0], 1);
}

/// `f(a, b, n)`: early returns, a loop, variables that start at zero at each call; `size` statements more.
fn define_function(b: &mut Builder, size: usize) -> kelpie_kir::Handle<kelpie_kir::Function> {
    let wide = Type::Scalar(Scalar::I128);
    let name = format!("f{size}");
    b.begin_function(&name, &[("a", wide), ("b", wide), ("n", Type::U32)], Some(wide));
    let (a, other, n) = (b.param(0), b.param(1), b.param(2));
    let zero = b.u32(0);
    let none = b.eq(n, zero);
    b.begin_if(none);
    b.report(5);
    b.return_value(a);
    b.end();
    let sum = b.var("sum", Scalar::I128);
    let turns = b.convert(n, Scalar::U64);
    for_each(b, turns, |b, _| {
        let old = b.read(sum);
        let new = b.add(old, other);
        b.assign(sum, new);
        let limit = b.int(Scalar::I128, 1i128 << 70);
        let large = b.ge(new, limit);
        b.begin_if(large);
        b.return_value(limit);
        b.end();
    });
    let mut result = b.read(sum);
    for _ in 0..size {
        let one = b.int(Scalar::I128, 1);
        result = b.add(result, one);
    }
    b.return_value(result);
    b.end_function()
}

#[test]
fn functions_inlined_and_called() {
    for size in [0usize, 300] {
        let mut b = Builder::new();
        let inner = define_function(&mut b, size);
        let wide = Type::Scalar(Scalar::I128);
        b.begin_function("twice", &[("a", wide), ("n", Type::U32)], Some(wide));
        let (a, n) = (b.param(0), b.param(1));
        let first = b.call(inner, &[a, a, n]);
        let second = b.call(inner, &[first, a, n]);
        let total = b.add(first, second);
        b.return_value(total);
        let twice = b.end_function();
        b.begin_kernel("k");
        let out = param(&mut b, "out", Type::global(Scalar::I128));
        let a = param(&mut b, "a", wide);
        let n = param(&mut b, "n", Type::U32);
        let turns = b.u64(3);
        for_each(&mut b, turns, |b, i| {
            let result = b.call(twice, &[a, n]);
            let index = b.convert(i, Scalar::I128);
            let result = b.add(result, index);
            let out = b.offset(out, i);
            b.store(out, result);
        });
        b.end_kernel();
        let module = compile_built(b);
        let limit = 1i128 << 70;
        for (a, n) in [(3, 4u32), (-1i128 << 64, 2), (1i128 << 69, 5), (9, 0)] {
            let once = |a: i128, first: i128| match n {
                0 => first,
                _ if a * i128::from(n) >= limit => limit,
                _ => a * i128::from(n) + size as i128,
            };
            let first = once(a, a);
            let expected = first + once(a, first);
            let mut out = [0i128; 3];
            let status = run(&module, &[address_mut(&mut out), a.slot(), n.slot()]);
            assert_eq!(status, if n == 0 { 5 } else { 0 });
            assert_eq!(out, [0, 1, 2].map(|turn| expected + turn), "a = {a}, n = {n}, size {size}");
        }
    }
}

/// A chain of functions that each call the one before twice must not grow without bound.
#[test]
fn a_chain_of_doubling_functions() {
    let mut b = Builder::new();
    b.begin_function("f0", &[("x", Type::I64)], Some(Type::I64));
    let x = b.param(0);
    let one = b.i64(1);
    let next = b.add(x, one);
    b.return_value(next);
    let mut function = b.end_function();
    for depth in 1..20 {
        b.begin_function(&format!("f{depth}"), &[("x", Type::I64)], Some(Type::I64));
        let x = b.param(0);
        let x = b.call(function, &[x]);
        let x = b.call(function, &[x]);
        b.return_value(x);
        function = b.end_function();
    }
    b.begin_kernel("k");
    let out = param(&mut b, "out", Type::global(Scalar::I64));
    let zero = b.i64(0);
    let x = b.call(function, &[zero]);
    b.store(out, x);
    b.end_kernel();
    let module = compile_built(b);
    assert!(module.code_bytes() < 1 << 16, "{} bytes", module.code_bytes());
    let mut out = [0i64];
    run(&module, &[address_mut(&mut out)]);
    assert_eq!(out[0], 1 << 19);
}

#[test]
fn one_lane() {
    let module = kernel(|b| {
        let out = param(b, "out", Type::global(Scalar::U32));
        let mut values = [
            Builtin::ThreadId,
            Builtin::BlockId,
            Builtin::BlockDim,
            Builtin::GridDim,
            Builtin::LaneId,
            Builtin::Lanes,
        ]
        .map(|builtin| b.builtin(builtin))
        .to_vec();
        for condition in [true, false] {
            let condition = b.bool(condition);
            values.push(b.value(Expr::Ballot(condition)));
            let any = b.value(Expr::Any(condition));
            let all = b.value(Expr::All(condition));
            values.push(b.convert(any, Scalar::U32));
            values.push(b.convert(all, Scalar::U32));
        }
        let value = b.u32(42);
        for mode in [ShuffleMode::Index, ShuffleMode::Up, ShuffleMode::Down, ShuffleMode::Xor] {
            let lane = b.u32(1);
            values.push(b.value(Expr::Shuffle { mode, value, lane }));
        }
        for (index, value) in values.into_iter().enumerate() {
            let index = b.u32(index as u32);
            let out = b.offset(out, index);
            b.store(out, value);
        }
    });
    let mut out = [9u32; 16];
    let status = LaunchStatus::default();
    run_worker(&module, &[address_mut(&mut out)], &status, 3, 8);
    assert_eq!(out, [0, 3, 1, 8, 0, 1, 1, 1, 1, 0, 0, 0, 42, 42, 42, 42]);
}

#[test]
fn printed_code_is_the_same_each_time() {
    let build = || {
        let mut b = Builder::new();
        let function = define_function(&mut b, 300);
        b.begin_kernel("k");
        let out = param(&mut b, "out", Type::global(Scalar::I128));
        let a = b.load(out);
        let n = b.u32(2);
        let result = b.call(function, &[a, a, n]);
        let result = b.div(result, a);
        b.store(out, result);
        b.end_kernel();
        clif(&valid(b.finish().unwrap())).unwrap()
    };
    let text = build();
    assert_eq!(text, build());
    for part in ["; function f300", "; kernel k", "kelpie_div_i128", "sdiv"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn an_empty_module_and_an_unknown_kernel() {
    let module = compile(&valid(Module::default())).unwrap();
    assert!(module.kernel("k").is_none());
    assert_eq!(module.code_bytes(), 0);
    fn shared_between_threads<T: Send + Sync>(_: &T) {}
    shared_between_threads(&module);
}
