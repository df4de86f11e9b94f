//! The printed text of kernels, as snapshots.

use kelpie_kir::*;

use super::{Options, dynamic_shared_bytes, print, print_with};

/// Filter and sum: `if price >= limit { total += price * quantity }`, a warp's sum by shuffles, one atomic a warp.
pub fn filtered_sum() -> Module {
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
pub fn constructs(shared: u32) -> Module {
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

/// A filtered sum in vectors with wide loads, and what else is special about vectors.
pub const VECTORS: &str = "
    kernel vectors(x: ptr<global, i64>, y: ptr<global, i16>, v4_0: i64, out: ptr<global, i16>) {
      var sums: i64x4
      %0 = param x
      %1 = param y
      %2 = param v4_0
      %3 = param out
      %4 = load_vector.ro 4 %0 align 16
      %5 = load_vector.ro 4 %1 align 8
      %6 = load_vector 4 %3
      %7 = splat 4 %2
      %8 = lt %4, %7
      %9 = lt %5, %6
      %10 = and %8, %9
      %11 = convert i64 %5
      %12 = mul %4, %11
      %13 = const i64 0
      %14 = splat 4 %13
      %15 = select %10, %12, %14
      %16 = read sums
      %17 = add %16, %15
      sums = %17
      %18 = reduce.add %17
      %19 = reduce.min %5
      %20 = reduce.count %10
      %21 = mask_bits %10
      %22 = iota i16x4
      store_vector %3, %22 align 8
      %23 = compress %3, %5, %9
      %24 = offset %3, %23
      %25 = add %20, %21
      %26 = convert i16 %25
      %27 = convert i16 %18
      %28 = add %26, %27
      %29 = add %28, %19
      store %24, %29
    }";

#[test]
fn vectors_are_readable() {
    let module = validate(text::parse(VECTORS).unwrap()).unwrap();
    insta::assert_snapshot!("cuda_vectors", print(&module).unwrap());
}

#[test]
fn loads_stay_before_later_stores() {
    let text = include_str!("../../../device/tests/kir/load_bytes_before_store.kir");
    let text = print(&validate(text::parse(text).unwrap()).unwrap()).unwrap();
    let (load, store) = (text.find("v2 = "), text.find(" = v3;").or_else(|| text.find("= 9")));
    assert!(load.is_some() && store.is_some() && load < store, "{text}");
}

#[test]
fn vectors_are_cast_bit_by_bit() {
    let text = include_str!("../../../device/tests/kir/vector_bitcast_f64x4.kir");
    let text = print(&validate(text::parse(text).unwrap()).unwrap()).unwrap();
    assert_eq!(text.matches("= ::__double_as_longlong(").count(), 4, "{text}");
    assert_eq!(text.matches("= u64(::__double_as_longlong(").count(), 4, "{text}");
    assert_eq!(text.matches("::__longlong_as_double(").count(), 8, "{text}");
}

#[test]
fn filtered_sum_is_readable() {
    let module = validate(filtered_sum()).unwrap();
    insta::assert_snapshot!("cuda_filtered_sum", print(&module).unwrap());
}

#[test]
fn constructs_are_readable() {
    let module = validate(constructs(256)).unwrap();
    let options = Options { block_threads: Some(256), ..Options::default() };
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
