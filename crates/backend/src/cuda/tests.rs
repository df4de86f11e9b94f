//! The printed text of kernels, as snapshots.

use kelpie_kir::*;

use super::{Options, dynamic_shared_bytes, print, print_with};

/// Filter and sum: `if price >= limit { total += price * quantity }`, a warp's sum by shuffles, one atomic a warp.
fn filtered_sum() -> Module {
    let mut b = Builder::new();
    b.begin_kernel("filtered_sum");
    b.add_param("price", Type::global(Scalar::I64));
    b.add_param("quantity", Type::global(Scalar::I32));
    b.add_param("rows", Scalar::U32.into());
    b.add_param("limit", Type::I64);
    b.add_param("total", Type::global(Scalar::I64));
    let (price, quantity, rows, limit, total) = (b.param(0), b.param(1), b.param(2), b.param(3), b.param(4));
    let (block, width, thread, grid) = (
        b.builtin(Builtin::BlockId),
        b.builtin(Builtin::BlockDim),
        b.builtin(Builtin::ThreadId),
        b.builtin(Builtin::GridDim),
    );
    let first = b.mul(block, width);
    let first = b.add(first, thread);
    let step = b.mul(grid, width);
    let row = b.var_of("row", first);
    let sum = b.var("sum", Scalar::I64);
    b.begin_loop();
    let current = b.read(row);
    let past = b.ge(current, rows);
    b.break_if(past);
    let value = b.element(price, current);
    let selected = b.ge(value, limit);
    b.begin_if(selected);
    let count = b.element(quantity, current);
    let count = b.convert(count, Scalar::I64);
    let product = b.mul(value, count);
    let overflow = b.overflows(OverflowOp::Mul, value, count);
    b.begin_if(overflow);
    b.report(2);
    b.end();
    let before = b.read(sum);
    let after = b.add(before, product);
    b.assign(sum, after);
    b.end();
    let next = b.add(current, step);
    b.assign(row, next);
    b.end();
    for distance in [16, 8, 4, 2, 1] {
        let own = b.read(sum);
        let lane = b.u32(distance);
        let other = b.value(Expr::Shuffle { mode: ShuffleMode::Down, value: own, lane });
        let both = b.add(own, other);
        b.assign(sum, both);
    }
    let lane = b.builtin(Builtin::LaneId);
    let zero = b.u32(0);
    let leader = b.eq(lane, zero);
    b.begin_if(leader);
    let warp = b.read(sum);
    b.atomic_discard(AtomicOp::Add, total, warp, Scope::Device);
    b.end();
    b.end_kernel();
    b.finish().unwrap()
}

/// Structs, device functions that report, shared memory, names that C++ reserves.
fn constructs(shared: u32) -> Module {
    let mut b = Builder::new();
    let pointer = Type::global(Scalar::I128);
    let fields = [("int", Type::I64), ("sum", Scalar::I128.into()), ("set", Type::BOOL), ("data", pointer)];
    let state = b.add_struct("class", &fields);
    b.begin_function("max", &[("float", Type::I64)], Some(Type::I64));
    let float = b.param(0);
    let zero = b.i64(0);
    let negative = b.lt(float, zero);
    b.begin_if(negative);
    b.report(7);
    b.end();
    let three = b.i64(3);
    let third = b.div(float, three);
    let rest = b.rem(float, third);
    b.return_value(rest);
    let max = b.end_function();

    b.begin_kernel("min");
    b.add_param("state", Type::Ptr(Space::Global, Pointee::Struct(state)));
    b.add_param("threadIdx", Type::global(Scalar::Bool));
    let numbers = b.shared("numbers", Pointee::Scalar(Scalar::I64), shared);
    let states = b.shared("states", Pointee::Struct(state), 4);
    let (pointer, flags) = (b.param(0), b.param(1));
    let thread = b.builtin(Builtin::ThreadId);
    let own = b.offset(pointer, thread);
    let number = b.value(Expr::LoadField { pointer: own, field: 0 });
    let data = b.value(Expr::LoadField { pointer: own, field: 3 });
    let wide = b.load_read_only(data);
    let slot = b.offset(numbers, thread);
    b.store(slot, number);
    b.barrier();
    let uniform = b.uniform_load(numbers);
    let called = b.call(max, &[uniform]);
    let sum = b.field(states, 1);
    let float = b.convert(called, Scalar::F64);
    let whole = b.convert(float, Scalar::I128);
    let total = b.add(whole, wide);
    b.store(sum, total);
    let status = b.builtin(Builtin::Status);
    let zero = b.u32(0);
    let stopped = b.ne(status, zero);
    b.begin_if(stopped);
    b.return_void();
    b.begin_else();
    let flag = b.offset(flags, thread);
    let value = b.load(flag);
    let value = b.not(value);
    b.store(flag, value);
    b.end();
    b.end_kernel();
    b.finish().unwrap()
}

#[test]
fn filtered_sum_is_readable() {
    let module = validate(filtered_sum()).unwrap();
    insta::assert_snapshot!("cuda_filtered_sum", print(&module).unwrap());
}

#[test]
fn constructs_are_readable() {
    let module = validate(constructs(256)).unwrap();
    let options = Options { block_threads: Some(256), kernel: None };
    insta::assert_snapshot!("cuda_constructs", print_with(&module, &options).unwrap());
}

#[test]
fn large_shared_arrays_are_dynamic() {
    for (count, expected) in [(256, 0), (6_000, 0), (6_120, 0), (6_121, 49_168), (20_000, 160_192)] {
        let module = validate(constructs(count)).unwrap();
        let (_, kernel) = module.kernels.iter().next().unwrap();
        assert_eq!(dynamic_shared_bytes(&module, kernel), expected, "{count}");
        assert_eq!(print(&module).unwrap().contains("extern __shared__"), expected > 0, "{count}");
    }
}
