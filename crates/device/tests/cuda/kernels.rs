//! What the tests run.

use super::*;

/// The thread's number in the grid.
pub fn global_thread(b: &mut Builder) -> Handle<Value> {
    let (block, width, thread) =
        (b.builtin(Builtin::BlockId), b.builtin(Builtin::BlockDim), b.builtin(Builtin::ThreadId));
    let first = b.mul(block, width);
    b.add(first, thread)
}

/// `out[i] = a[i] * factor + i` for `i < rows`; reports 5 where `a[i]` is negative.
pub fn scale(tag: i64) -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("scale");
    for (name, ty) in [
        ("a", Type::global(Scalar::I64)),
        ("out", Type::global(Scalar::I64)),
        ("factor", Type::I64),
        ("rows", Type::U32),
    ] {
        b.add_param(name, ty);
    }
    let (a, out, factor, rows) = (b.param(0), b.param(1), b.param(2), b.param(3));
    let row = global_thread(&mut b);
    let inside = b.lt(row, rows);
    b.begin_if(inside);
    let value = b.element(a, row);
    let zero = b.i64(0);
    let negative = b.lt(value, zero);
    b.begin_if(negative);
    b.report(5);
    b.end();
    let product = b.mul(value, factor);
    let wide = b.convert(row, Scalar::I64);
    let sum = b.add(product, wide);
    let constant = b.i64(tag);
    let sum = b.add(sum, constant);
    let place = b.offset(out, row);
    b.store(place, sum);
    b.end();
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

/// Every block reverses its 256 elements through shared memory of `spare` more words, and adds its sum to `total`.
pub fn reverse(spare: u32) -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("reverse");
    b.add_param("data", Type::global(Scalar::I64));
    b.add_param("total", Type::global(Scalar::I64));
    let before = b.shared("before", Pointee::Scalar(Scalar::I64), spare);
    let array = b.shared("array", Pointee::Scalar(Scalar::I64), 256);
    let (data, total) = (b.param(0), b.param(1));
    let thread = b.builtin(Builtin::ThreadId);
    let index = global_thread(&mut b);
    let place = b.offset(data, index);
    let value = b.load(place);
    let slot = b.offset(array, thread);
    b.store(slot, value);
    let zero = b.u32(0);
    let first = b.eq(thread, zero);
    b.begin_if(first);
    let nothing = b.i64(0);
    b.store(before, nothing);
    b.end();
    b.barrier();
    b.atomic_discard(AtomicOp::Add, before, value, Scope::Block);
    let last = b.u32(255);
    let mirrored = b.sub(last, thread);
    let other = b.offset(array, mirrored);
    let other = b.load(other);
    b.store(place, other);
    let sum = b.uniform_load(before);
    b.begin_if(first);
    b.atomic_discard(AtomicOp::Add, total, sum, Scope::Device);
    b.end();
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

/// Runs until the status word is set. Each thread adds 1 to `count` when it starts and when it ends.
pub fn endless() -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("endless");
    b.add_param("count", Type::global(Scalar::I64));
    let count = b.param(0);
    let one = b.i64(1);
    b.atomic_discard(AtomicOp::Add, count, one, Scope::Device);
    b.begin_loop();
    let status = b.builtin(Builtin::Status);
    let zero = b.u32(0);
    let stopped = b.ne(status, zero);
    b.break_if(stopped);
    b.end();
    b.atomic_discard(AtomicOp::Add, count, one, Scope::Device);
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

/// Writes where nothing is.
pub fn wild() -> ValidModule {
    let mut b = Builder::new();
    b.begin_kernel("wild");
    b.add_param("address", Scalar::U64.into());
    let address = b.param(0);
    let pointer = b.bitcast(address, Type::global(Scalar::U64));
    b.store(pointer, address);
    b.end_kernel();
    validate(b.finish().unwrap()).unwrap()
}

#[test]
fn the_kernels_of_these_tests_are_valid() {
    let modules = [scale(0), reverse(1), reverse(20_000), endless(), wild()];
    let nvrtc = match nvrtc::get() {
        Ok(nvrtc) => nvrtc,
        Err(error) => return skip("nvrtc", &error),
    };
    for module in modules {
        nvrtc.compile(&kelpie_backend::cuda::print(&module).unwrap(), "sm_90", "kernel").unwrap();
    }
}
