//! Every printed kernel is accepted by NVRTC, and as PTX by the assembler, which need no GPU. Skipped, with a message, where they
//! are not installed, unless `KELPIE_REQUIRE` names `nvrtc` and `ptxas`.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use kelpie_backend::cuda::Options;
use kelpie_device::nvrtc::{self, Nvrtc};
use kelpie_kir::*;

const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90"];

fn compiler() -> Option<&'static Nvrtc> {
    match nvrtc::get() {
        Ok(nvrtc) => Some(nvrtc),
        Err(error) => {
            kelpie_device::testing::skip("nvrtc", &error);
            None
        }
    }
}

/// Both of a GPU's compilers accept a module.
fn accept_module(nvrtc: Option<&Nvrtc>, name: &str, module: &ValidModule) {
    let options = Options { block_threads: Some(256), ..Options::default() };
    accept_module_with(nvrtc, name, module, &options);
}

fn accept_module_with(nvrtc: Option<&Nvrtc>, name: &str, module: &ValidModule, options: &Options) {
    if let Some(nvrtc) = nvrtc {
        accept(nvrtc, name, &kelpie_backend::cuda::print_with(module, options).unwrap());
    }
    let Some(ptxas) = kelpie_device::testing::ptxas() else { return };
    for architecture in ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"] {
        let text = kelpie_backend::ptx::print_with(module, options, architecture).unwrap();
        if let Err(error) = kelpie_device::testing::assemble(&ptxas, &text, architecture) {
            let numbered: String =
                text.lines().enumerate().map(|(n, line)| format!("{:4} {line}\n", n + 1)).collect();
            panic!("{name} for {architecture}: {error}\n{numbered}");
        }
    }
}

fn accept(nvrtc: &Nvrtc, name: &str, source: &str) {
    for architecture in ARCHITECTURES {
        if let Err(error) = nvrtc.compile(source, architecture, name) {
            let numbered: String =
                source.lines().enumerate().map(|(n, line)| format!("{:4} {line}\n", n + 1)).collect();
            panic!("{name} for {architecture}: {error}\n{numbered}");
        }
    }
}

/// A kernel with every operation that is defined on `scalar`, each result stored.
fn operations(scalar: Scalar) -> Module {
    use UnaryOp::*;
    let mut b = Builder::new();
    b.begin_kernel("operations");
    let params: Vec<u32> =
        Scalar::ALL.iter().map(|s| b.add_param(&format!("out_{}", s.name()), Type::global(*s))).collect();
    let input = b.add_param("in", Type::global(scalar));
    let input = b.param(input);
    let thread = b.builtin(Builtin::ThreadId);
    let slot = b.offset(input, thread);
    let x = b.load(slot);
    let y = b.load_read_only(slot);
    let lane = b.builtin(Builtin::LaneId);
    let mut results = vec![x, y];
    for op in [Neg, Not, Popcount, Clz, Ffs, Floor, Ceil, Trunc, RoundEven, Abs, Sqrt] {
        results.extend(attempt(&mut b, Expr::Unary(op, x)));
    }
    {
        use BinaryOp::*;
        for op in [Add, Sub, Mul, Div, Rem, And, Or, Xor, Shl, Shr, Min, Max, MulHi] {
            results.extend(attempt(&mut b, Expr::Binary(op, x, y)));
            let seven = match scalar {
                Scalar::Bool => b.bool(true),
                Scalar::F32 => b.f32(7.0),
                Scalar::F64 => b.f64(7.0),
                integer => b.int(integer, 7),
            };
            results.extend(attempt(&mut b, Expr::Binary(op, x, seven)));
        }
    }
    for op in [OverflowOp::Add, OverflowOp::Sub, OverflowOp::Mul] {
        results.extend(attempt(&mut b, Expr::Overflows(op, x, y)));
    }
    for op in [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge] {
        results.extend(attempt(&mut b, Expr::Compare(op, x, y)));
    }
    for to in Scalar::ALL {
        results.extend(attempt(&mut b, Expr::Convert(x, to)));
        results.extend(attempt(&mut b, Expr::Bitcast(x, Type::Scalar(to))));
    }
    for mode in [ShuffleMode::Index, ShuffleMode::Up, ShuffleMode::Down, ShuffleMode::Xor] {
        results.extend(attempt(&mut b, Expr::Shuffle { mode, value: x, lane }));
    }
    let condition = b.eq(x, y);
    results.push(b.select(condition, x, y));
    for ballot in [Expr::Ballot(condition), Expr::Any(condition), Expr::All(condition)] {
        results.push(b.value(ballot));
    }
    for scope in [Scope::Block, Scope::Device] {
        let ops =
            [AtomicOp::Add, AtomicOp::Min, AtomicOp::Max, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Exchange];
        for op in ops.into_iter().chain([AtomicOp::CompareExchange(x)]) {
            if typing::atomic_accepts(op, scalar) {
                results.push(b.atomic(op, slot, y, scope));
                b.atomic_discard(op, input, y, scope);
            }
        }
        if typing::atomic_accepts(AtomicOp::Or, scalar) {
            results.push(b.atomic_load(slot, scope));
        }
    }
    for result in results {
        let to = b.scalar(result);
        let index = Scalar::ALL.iter().position(|s| *s == to).unwrap();
        let out = b.param(params[index]);
        let place = b.offset(out, thread);
        b.store(place, result);
    }
    b.end_kernel();
    b.finish().unwrap()
}

/// The expression's value where its types fit.
fn attempt(b: &mut Builder, expr: Expr) -> Option<Handle<Value>> {
    let probe = Module { structs: b.module().structs.clone(), ..Module::default() };
    let values = b.values().clone();
    let function = Function { values, ..Function::default() };
    typing::type_of(&probe, &function, &expr).ok()?;
    Some(b.value(expr))
}

#[test]
fn every_operation_of_every_type_is_accepted() {
    let nvrtc = compiler();
    for scalar in Scalar::ALL {
        let module = validate(operations(scalar)).unwrap();
        accept_module(nvrtc, &format!("operations_{}", scalar.name()), &module);
    }
}

/// A kernel with every operation on vectors of `scalar`, and accesses as wide as the alignment allows.
fn vectors(scalar: Scalar) -> Module {
    let mut b = Builder::new();
    b.begin_kernel("vectors");
    let input = b.add_param("in", Type::global(scalar));
    let bits = b.add_param("uint4", Type::Scalar(Scalar::U32));
    let (input, bits) = (b.param(input), b.param(bits));
    for lanes in LANE_COUNTS {
        for align in [1, 2, 4, 8, 16, 64] {
            let v = b.load_vector_aligned(input, lanes, align);
            b.store_vector_aligned(input, v, align);
        }
        let (v, w) = (b.load_vector(input, lanes), b.load_vector_read_only(input, lanes));
        let var = b.var_of("v1_0", v);
        let mut results = vec![b.read(var)];
        for op in [UnaryOp::Neg, UnaryOp::Not] {
            results.extend(attempt(&mut b, Expr::Unary(op, v)));
        }
        use BinaryOp::*;
        for op in [Add, Sub, Mul, Div, And, Or, Xor, Min, Max] {
            results.extend(attempt(&mut b, Expr::Binary(op, v, w)));
        }
        for op in [Shl, Shr] {
            results.extend(attempt(&mut b, Expr::Binary(op, v, bits)));
        }
        let mut masks = vec![b.bits_mask(bits, lanes), b.first_lanes(bits, lanes)];
        for op in [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge] {
            masks.push(b.compare(op, v, w));
        }
        let mut mask = masks[0];
        for (other, op) in masks.into_iter().zip([And, Or, Xor].into_iter().cycle()) {
            mask = b.binary(op, mask, other);
            results.push(b.select(mask, v, w));
        }
        for to in Scalar::ALL {
            let converted = attempt(&mut b, Expr::Convert(v, to));
            let cast = attempt(&mut b, Expr::Bitcast(v, Type::Vector(to, lanes)));
            for value in converted.into_iter().chain(cast) {
                let back = b.convert(value, scalar);
                results.push(back);
            }
        }
        for op in [ReduceOp::Add, ReduceOp::Min, ReduceOp::Max] {
            if let Some(sum) = attempt(&mut b, Expr::Reduce(op, v)) {
                results.push(b.splat(sum, lanes));
            }
        }
        for op in [ReduceOp::Any, ReduceOp::All, ReduceOp::Count] {
            let truth = b.reduce(op, mask);
            let truth = b.convert(truth, scalar);
            results.push(b.splat(truth, lanes));
        }
        let (numbers, truth) = (b.mask_bits(mask), b.lane(mask, 1));
        let (numbers, truth) = (b.convert(numbers, scalar), b.convert(truth, scalar));
        let count = b.compress(input, v, mask);
        let count = b.convert(count, scalar);
        results.extend([numbers, truth, count].map(|value| b.splat(value, lanes)));
        results.extend(attempt(&mut b, Expr::Iota(scalar, lanes)));
        for result in results {
            b.store_vector(input, result);
        }
    }
    b.end_kernel();
    b.finish().unwrap()
}

#[test]
fn every_operation_on_vectors_is_accepted() {
    let nvrtc = compiler();
    for scalar in Scalar::ALL.into_iter().filter(|scalar| Type::Vector(*scalar, 2).is_possible()) {
        let module = validate(vectors(scalar)).unwrap();
        accept_module(nvrtc, &format!("vectors_{}", scalar.name()), &module);
    }
}

/// Structs, device functions, shared memory, loops, traps, and names that C++ reserves.
fn constructs(shared: u32) -> Module {
    let mut b = Builder::new();
    let inner = Type::Ptr(Space::Global, Pointee::Scalar(Scalar::I128));
    let state = b.add_struct(
        "class",
        &[("int", Type::I64), ("sum", Scalar::I128.into()), ("set", Type::BOOL), ("p", inner)],
    );
    b.begin_function("max", &[("float", Type::I64)], Some(Type::I64));
    let float = b.param(0);
    let zero = b.i64(0);
    let negative = b.lt(float, zero);
    b.begin_if(negative);
    b.report(7);
    b.return_value(zero);
    b.end();
    let status = b.builtin(Builtin::Status);
    let status = b.convert(status, Scalar::I64);
    b.return_value(status);
    let min = b.end_function();

    b.begin_kernel("min");
    b.add_param("state", Type::Ptr(Space::Global, Pointee::Struct(state)));
    b.add_param("threadIdx", Type::global(Scalar::Bool));
    b.add_param("wide", Scalar::I128.into());
    let numbers = b.shared("shared", Pointee::Scalar(Scalar::I64), shared);
    let states = b.shared("states", Pointee::Struct(state), 4);
    let (pointer, flags, wide) = (b.param(0), b.param(1), b.param(2));
    let thread = b.builtin(Builtin::ThreadId);
    let own = b.offset(pointer, thread);
    let number = b.value(Expr::LoadField { pointer: own, field: 0 });
    let flag = b.value(Expr::LoadField { pointer: own, field: 2 });
    let address = b.value(Expr::LoadField { pointer: own, field: 3 });
    b.store(address, wide);
    let in_shared = b.offset(numbers, thread);
    b.store(in_shared, number);
    b.barrier();
    let uniform = b.uniform_load(numbers);
    let field = b.field(states, 1);
    b.store(field, wide);
    let called = b.call(min, &[uniform]);
    let counter = b.var_of("while", called);
    b.begin_loop();
    let count = b.read(counter);
    let one = b.i64(1);
    let next = b.add(count, one);
    b.assign(counter, next);
    let limit = b.i64(100);
    let done = b.ge(next, limit);
    b.break_if(done);
    b.begin_if(flag);
    b.continue_loop();
    b.begin_else();
    b.trap(9);
    b.end();
    b.end();
    b.fence();
    let flag_place = b.offset(flags, thread);
    b.store(flag_place, flag);
    let bits = b.bitcast(pointer, Scalar::U64);
    let back = b.bitcast(bits, Type::global(Scalar::U64));
    b.store(back, bits);
    b.end_kernel();
    b.finish().unwrap()
}

#[test]
fn every_construct_is_accepted() {
    let nvrtc = compiler();
    for (shared, dynamic) in [(256, false), (20_000, true)] {
        let module = validate(constructs(shared)).unwrap();
        for resident_blocks in [None, Some(2)] {
            let options = Options { block_threads: Some(256), resident_blocks, kernel: None };
            let source = kelpie_backend::cuda::print_with(&module, &options).unwrap();
            assert_eq!(source.contains("extern __shared__"), dynamic);
            accept_module_with(nvrtc, "constructs", &module, &options);
        }
    }
}

/// The file tests that are valid modules; those that are not test the validator.
#[test]
fn every_file_test_is_accepted() {
    let nvrtc = compiler();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kir");
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let module = text::parse(&text).ok().and_then(|module| validate(module).ok());
        if let Some(module) = module {
            accept_module(nvrtc, &path.display().to_string(), &module);
        }
    }
}

#[test]
fn random_modules_are_accepted() {
    let nvrtc = compiler();
    for seed in 0..20 {
        let module = validate(testing::random_module(seed, seed % 2 == 0)).unwrap();
        accept_module(nvrtc, &format!("random module {seed}"), &module);
    }
}

#[test]
fn a_rejected_source_gives_the_compilers_words() {
    let Some(nvrtc) = compiler() else { return };
    let error = nvrtc.compile("void f() { nonsense; }", "sm_90", "broken").unwrap_err().to_string();
    assert!(error.contains("nonsense") && error.contains("broken"), "{error}");
    let error = nvrtc.compile("", "sm_1", "x").unwrap_err().to_string();
    assert!(error.contains("invalid option"), "{error}");
}
