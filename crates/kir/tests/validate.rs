//! One case a rule of the validator: a text and the error that it must give.

use kelpie_kir::text::{parse, print};
use kelpie_kir::*;

fn verdict(text: &str) -> Result<ValidModule, String> {
    let module = parse(text).map_err(|error| format!("does not parse: {error}\n{text}"))?;
    validate(module).map_err(|error| error.to_string())
}

#[track_caller]
fn rejects(text: &str, expected: &str) {
    match verdict(text) {
        Ok(_) => panic!("accepted, expected: {expected}\n{text}"),
        Err(error) => assert!(error.contains(expected), "{error}\nexpected: {expected}\n{text}"),
    }
}

#[track_caller]
fn accepts(text: &str) {
    if let Err(error) = verdict(text) {
        panic!("{error}\n{text}");
    }
}

/// A kernel with some parameters and values to use: %0 i64, %1 global i64, %2 thread id, %3 true, %4 shared i64,
/// %5 block id, %6 thread-dependent bool, %7 uniform bool, %8 lane-dependent u32.
fn kernel(statements: &str) -> String {
    format!(
        "kernel k(n: i64, p: ptr<global, i64>, f: ptr<global, i8>) {{
           shared tile: [i64; 64]
           var v: i64
           var w: bool
           %0 = param n
           %1 = param p
           %2 = builtin thread_id
           %3 = const bool true
           %4 = shared tile
           %5 = builtin block_id
           %6 = eq %2, %5
           %7 = eq %0, %0
           %8 = builtin lane_id
           {statements}
         }}"
    )
}

#[test]
fn declarations() {
    let cases = [
        ("struct S { }", "struct S: a struct has at least one field"),
        ("struct S { a: i8, a: i8 }", "struct S: the name a is used twice"),
        ("struct S { a: i8 }\nstruct S { a: i8 }", "structs: the name S is used twice"),
        ("struct i32 { a: i8 }", "i32 is the name of a type"),
        ("struct ptr { a: i8 }", "ptr is the name of a type"),
        ("fn f() {}\nkernel f() {}", "functions: the name f is used twice"),
        ("kernel k() {}\nkernel k() {}", "functions: the name k is used twice"),
        ("kernel k(a: i8, a: i8) {}", "kernel k: the name a is used twice"),
        ("kernel k(a: i8) { var a: i8 }", "kernel k: the name a is used twice"),
        ("kernel k(a: i8) { shared a: [i8; 1] }", "kernel k: the name a is used twice"),
        ("kernel k(a: ptr<shared, i8>) {}", "parameter a of a kernel points to shared memory"),
        ("kernel k() { shared a: [i8; 0] }", "shared array a has no element"),
        ("kernel k() { shared a: [i64; 4294967295] }", "the shared arrays take more than"),
        ("fn f() { shared a: [i8; 1] }", "function f: only a kernel has shared arrays"),
    ];
    for (text, expected) in cases {
        rejects(text, expected);
    }
    accepts(
        "struct S { a: i8, next: ptr<global, i64> } fn f(s: ptr<shared, S>) {} kernel k(s: ptr<global, S>) {}",
    );
}

#[test]
fn vectors_and_masks() {
    for (text, expected) in [
        ("struct i64x4 { a: i8 }", "i64x4 is the name of a type"),
        ("struct mask4 { a: i8 }", "mask4 is the name of a type"),
        ("struct S { a: i64x4 }", "field a is a vector or mask"),
        ("kernel k(a: i64x4) {}", "parameter a is a vector or mask"),
        ("fn f(a: mask4) {}", "parameter a is a vector or mask"),
        ("fn f() -> i64x4 { loop { } }", "the result is a vector or mask"),
        ("kernel k() { var a: mask4 }", "variable a is a mask"),
        ("kernel k() { var a: i64x3 }", "expected a type, found `i64x3`"),
        ("kernel k() { var a: boolx4 }", "expected a type, found `boolx4`"),
        ("kernel k() { var a: i128x2 }", "expected a type, found `i128x2`"),
    ] {
        rejects(text, expected);
    }
    let prelude = "%9 = splat 4 %0\n%10 = lt %9, %9\n%11 = iota f32x4";
    rejects(&kernel(prelude), "iota of f32");
    let prelude = "%9 = splat 4 %0\n%10 = lt %9, %9\n%11 = iota u8x2\n%12 = param f\n%13 = const i128 1\n";
    for (statement, expected) in [
        ("%14 = splat 3 %0", "no vector has 3 elements"),
        ("%14 = splat 32 %3", "no mask has 32 elements"),
        ("%14 = splat 2 %13", "no vector has elements of type i128"),
        ("%14 = splat 2 %9", "splat of"),
        ("%14 = add %9, %0", "operands are"),
        ("%14 = add %9, %11", "operands are"),
        ("%14 = add %10, %10", "Add of"),
        ("%14 = div %9, %9", "Div of"),
        ("%14 = shl %9, %9", "the distance of a vector's shift must be u32"),
        ("%14 = popcount %9", "Popcount of"),
        ("%14 = overflow.add %9, %9", "a scalar is needed"),
        ("%14 = eq %10, %10", "masks are not compared"),
        ("%14 = select %10, %10, %10", "masks are not selected"),
        ("%14 = select %3, %9, %9", "must be a mask of as many elements"),
        ("%14 = select %10, %11, %11", "must be a mask of as many elements"),
        ("%14 = select %10, %0, %0", "the condition of a select must be bool"),
        ("%14 = convert i128 %9", "no vector has elements of type i128"),
        ("%14 = convert i8 %10", "conversion of"),
        ("%14 = bitcast u64x2 %9", "bitcast of"),
        ("%14 = bitcast u64 %9", "bitcast of"),
        ("%14 = load_vector 4 %9", "are no vector"),
        ("%14 = load_vector 5 %1", "no vector has 5 elements"),
        ("%14 = load_vector 4 %1 align 4", "an array of i64 is not aligned to 4 bytes"),
        ("%14 = load_vector 4 %1 align 24", "an array of i64 is not aligned to 24 bytes"),
        ("%14 = lane %9, 4", "has no element 4"),
        ("%14 = lane %0, 0", "has no element 0"),
        ("%14 = reduce.any %9", "reduction Any of"),
        ("%14 = reduce.add %10", "reduction Add of"),
        ("%14 = mask_bits %9", "needs a mask"),
        ("%14 = bits_mask 4 %0", "needs u32"),
        ("%14 = first_lanes 3 %2", "no mask has 3 elements"),
        ("%14 = ballot %10", "needs bool"),
        ("%14 = shuffle.up %9, %2", "a scalar is needed"),
        ("%14 = offset %1, %9", "a scalar is needed"),
        ("store %1, %9", "the value must be i64, %9 is i64x4"),
        ("store_vector %1, %0", "%0 is no vector"),
        ("store_vector %1, %11", "the value must be i64x2, %11 is u8x2"),
        ("store_vector %1, %9 align 12", "an array of i64 is not aligned to 12 bytes"),
        ("compress %1, %9, %9", "the mask must be mask4, %9 is i64x4"),
        ("compress %12, %11, %10", "the value must be i8x2, %11 is u8x2"),
        ("if %10 { }", "the condition must be bool, %10 is mask4"),
        ("v = %9", "the value must be i64, %9 is i64x4"),
    ] {
        let text = kernel(&format!("{prelude}{statement}"));
        match parse(&text) {
            // The parser types expressions.
            Err(error) => assert!(error.to_string().contains(expected), "{error}\nexpected: {expected}"),
            Ok(_) => rejects(&text, expected),
        }
    }
    accepts(&kernel(
        "%9 = load_vector.ro 2 %1 align 64\n%10 = ne %9, %9\n%11 = compress %4, %9, %10\nstore_vector %4, %9 align 16",
    ));
}

#[test]
fn devices_without_vectors_reject_them() {
    let with = Target::cpu(1);
    let without = Target { vector_bytes: 0, ..with.clone() };
    let vectors = parse("kernel k() { var a: i64x4 }").unwrap();
    let message = validate_for(vectors.clone(), &without).map(|_| ()).unwrap_err().to_string();
    assert_eq!(message, "kernel k: uses vectors, which the device does not have");
    assert!(validate_for(vectors, &with).is_ok());
    assert!(validate_for(parse("kernel k() { }").unwrap(), &without).is_ok());
}

/// The result of a compression is as uniform as its mask, a load of what may be written is divergent.
#[test]
fn vectors_are_as_uniform_as_their_operands() {
    let use_it = "%20 = lt %11, %5\nif %20 { barrier }";
    let compress = |mask: &str| {
        kernel(
            &format!("{mask}\n%10 = iota i64x4\n%11 = compress %4, %10, %9\n{use_it}").replace("%20", "%12"),
        )
    };
    accepts(&compress("%9 = first_lanes 4 %5"));
    rejects(&compress("%9 = first_lanes 4 %2"), "barrier must be reached by all threads");
    let load = |word: &str| {
        kernel(&format!("%9 = {word} 2 %1\n%10 = lane %9, 0\n%11 = lt %0, %10\nif %11 {{ barrier }}"))
    };
    accepts(&load("load_vector.ro"));
    rejects(&load("load_vector"), "barrier must be reached by all threads");
}

#[test]
fn statements_and_scopes() {
    let cases = [
        ("if %3 { %9 = param n }\nstore %1, %9", "line 17 (`store %1, %9`): the scope of %9 has ended"),
        ("loop { %9 = param n\nbreak }\nv = %9", "the scope of %9 has ended"),
        ("if %3 { %9 = param n } else { v = %9 }", "the scope of %9 has ended"),
        ("break", "(`break`): stands in no loop"),
        ("if %3 { continue }", "(`continue`): stands in no loop"),
        ("loop { break\nv = %0 }", "(`v = %0`): stands after a jump"),
        ("loop { continue\nbreak }", "stands after a jump"),
        ("return\nfence", "stands after a jump"),
        ("%9 = const u32 1\ntrap %9\nloop { break }", "(`loop`): stands after a jump"),
        ("v = %3", "the value must be i64, %3 is bool"),
        ("store %0, %0", "needs a pointer to a scalar, %0 is i64"),
        ("store %1, %3", "the value must be i64, %3 is bool"),
        ("if %0 { }", "(`if %0`): the condition must be bool, %0 is i64"),
        ("return %0", "returns a value where there is no result"),
        ("report %0", "the code must be u32, %0 is i64"),
        ("trap %0", "the code must be u32, %0 is i64"),
        ("%9 = const u32 0\nreport %9", "the code must not be 0"),
        ("atomic add device %1, %3", "the value must be i64, %3 is bool"),
        ("atomic cas device %1, %3, %0", "the expected value must be i64, %3 is bool"),
        ("%9 = param f\n%10 = const i8 1\natomic add device %9, %10", "is not defined on i8"),
        ("%9 = param f\n%10 = atomic load device %9", "is not defined on i8"),
        (
            "%9 = bitcast ptr<global, f64> %1\n%10 = const f64 1\natomic max block %9, %10",
            "is not defined on f64",
        ),
        ("%9 = bitcast ptr<global, f64> %1\n%10 = atomic load block %9", "is not defined on f64"),
        ("%9 = uniform_load %1", "reads shared memory only"),
        ("tally %1", "counts in words of `u64` in global memory only"),
        ("tally %4", "counts in words of `u64` in global memory only"),
        ("tally %0", "counts in words of `u64` in global memory only"),
    ];
    for (statements, expected) in cases {
        rejects(&kernel(statements), expected);
    }
    for statements in [
        "if %3 { return } else { return }\nfence",
        "loop { }\nfence",
        "%9 = bitcast ptr<global, f64> %1\n%10 = const f64 1\natomic add block %9, %10",
        "%9 = atomic cas block %4, %0, %0",
        "%9 = atomic load block %4",
        "%9 = bitcast ptr<global, u64> %1\nif %6 { tally %9 }",
    ] {
        accepts(&kernel(statements));
    }
}

#[test]
fn functions() {
    let cases = [
        ("fn f() -> i8 { }", "function f: a path ends without a return"),
        ("fn f(c: bool) -> bool { %0 = param c\nif %0 { return %0 } }", "a path ends without a return"),
        ("fn f(c: bool) -> bool { %0 = param c\nloop { if %0 { break } } }", "a path ends without a return"),
        ("fn f() -> i8 { return }", "line 2 (`return`): returns no value"),
        ("fn f() -> i8 { %0 = const i16 1\nreturn %0 }", "the value must be i8, %0 is i16"),
        ("fn f() { barrier }", "(`barrier`): is allowed only in a kernel"),
        ("fn f() { warp_barrier }", "(`warp_barrier`): is allowed only in a kernel"),
        ("fn f() { %0 = const u32 1\ntrap %0 }", "is allowed only in a kernel"),
        ("fn f() { %0 = const bool true\n%1 = any %0 }", "is allowed only in a kernel"),
        ("fn f(p: ptr<shared, i8>) { %0 = param p\n%1 = uniform_load %0 }", "is allowed only in a kernel"),
        ("fn f(a: i8) {}\nkernel k() { call f() }", "function f takes 1 arguments, not 0"),
        ("fn f(a: i8) {}\nkernel k() { %0 = const i16 1\ncall f(%0) }", "parameter a must be i8, %0 is i16"),
    ];
    for (text, expected) in cases {
        rejects(text, expected);
    }
    accepts("fn f(c: bool) -> bool { %0 = param c\nloop { if %0 { return %0 } } }");
    accepts("fn f(c: bool) -> bool { %0 = param c\nif %0 { return %0 } else { return %0 } }\nkernel k() { }");
    accepts("fn f() -> i8 { %0 = const i8 1\nreturn %0 }\nkernel k() { call f() }");
}

/// What the text form cannot say.
#[test]
fn built_by_hand() {
    let value = |ty: Type, expr: Expr| Value { ty, expr };
    let literal = Expr::Literal(Literal::Int(Scalar::I64, 1));
    let h = Handle::<Value>::from_index;
    let check = |values: Vec<Value>, body: Block, expected: &str| {
        let mut kernel = Function { name: "k".into(), body, ..Function::default() };
        for value in values {
            kernel.values.push(value);
        }
        let mut module = Module::default();
        module.kernels.push(kernel);
        let _ = print(&module);
        match validate(module) {
            Ok(_) => panic!("accepted, expected {expected}"),
            Err(error) => assert!(error.to_string().contains(expected), "{error}\nexpected {expected}"),
        }
    };
    let one = || vec![value(Type::I64, literal)];
    check(one(), vec![], "no statement defines %0");
    check(one(), vec![Stmt::Let(h(1))], "%1 does not exist");
    check(one(), vec![Stmt::Let(h(0)), Stmt::Let(h(0))], "%0 is defined twice");
    check(one(), vec![Stmt::Report { code: h(0) }, Stmt::Let(h(0))], "%0 is not defined here yet");
    check(one(), vec![Stmt::Return(Some(h(7)))], "%7 does not exist");
    check(vec![value(Type::U32, literal)], vec![Stmt::Let(h(0))], "%0 is stated as u32 but is i64");
    check(vec![value(Type::U32, Expr::Result)], vec![Stmt::Let(h(0))], "a result has no type of its own");
    check(vec![value(Type::U32, Expr::Param(0))], vec![Stmt::Let(h(0))], "parameter 0 does not exist");
    check(
        vec![value(Type::I64, Expr::Unary(UnaryOp::Neg, h(0)))],
        vec![Stmt::Let(h(0))],
        "%0 is not defined here yet",
    );
    let too_large = Expr::Literal(Literal::Int(Scalar::I8, 128));
    check(vec![value(Type::I64, too_large)], vec![Stmt::Let(h(0))], "128 does not fit i8");
    let foreign = Type::Ptr(Space::Global, Pointee::Struct(Handle::from_index(3)));
    let values = vec![
        value(Type::from(Scalar::U64), Expr::Literal(Literal::Int(Scalar::U64, 1))),
        value(foreign, Expr::Bitcast(h(0), foreign)),
    ];
    check(values, vec![Stmt::Let(h(0)), Stmt::Let(h(1))], "casts to a struct that does not exist");
    let call = Stmt::Call { function: Handle::from_index(0), args: vec![], result: None };
    check(vec![], vec![call], "the function does not exist");
    let assign = Stmt::Assign { var: Handle::from_index(0), value: h(0) };
    check(one(), vec![Stmt::Let(h(0)), assign], "the variable does not exist");
    let deep = (0..500).fold(Vec::new(), |inner, _| vec![Stmt::Loop(inner)]);
    check(vec![], deep, "nest deeper");
    let mut recursive = Module::default();
    let call = Stmt::Call { function: Handle::from_index(0), args: vec![], result: None };
    recursive.functions.push(Function { name: "f".into(), body: vec![call], ..Function::default() });
    let error = validate(recursive).expect_err("recursion");
    assert!(error.to_string().contains("function f does not stand before this one"), "{error}");
}

#[test]
fn names_must_be_identifiers() {
    for name in ["", "1a", "a b", "a.b", "ø", "a\n", "a-b"] {
        let mut builder = Builder::new();
        builder.begin_kernel("k");
        builder.add_param(name, Type::I64);
        builder.end_kernel();
        let error = validate(builder.finish().expect("a module")).expect_err("a name");
        assert!(error.to_string().contains("is not an identifier"), "{error}");
    }
}

#[test]
fn divergence_is_rejected() {
    let block = "must be reached by all threads of a block together";
    let warp = "must be reached by all threads of a warp together";
    let cases = [
        (
            "if %6 { barrier }",
            "(`barrier`): a barrier must be reached by all threads of a block together, \
          but %6 may differ between threads of a block, as `%2 = builtin thread_id` does",
        ),
        ("if %6 { } else { barrier }", block),
        ("if %6 { return }\nbarrier", block),
        ("if %6 { %9 = const u32 1\ntrap %9 }\nbarrier", block),
        ("loop { if %6 { break }\nbarrier }", block),
        ("loop { barrier\nif %6 { break } }", block),
        ("loop { barrier\nif %6 { continue }\nbreak }", block),
        ("loop { barrier\nif %6 { return }\nif %7 { break } }", block),
        ("loop { loop { if %6 { return }\nbreak }\nbarrier }", block),
        ("loop { if %6 { break }\nv = %0 }\n%9 = read v\n%10 = eq %9, %0\nif %10 { barrier }", block),
        ("if %6 { w = %3 }\n%9 = read w\nif %9 { barrier }", "as `%2 = builtin thread_id` does"),
        ("loop { %9 = read w\nif %9 { barrier }\nw = %6\nif %7 { break } }", block),
        ("%9 = load %1\n%10 = eq %9, %0\nif %10 { barrier }", "as `%9 = load %1` does"),
        ("%9 = load %4\n%10 = eq %9, %0\nif %10 { barrier }", "as `%9 = load %4` does"),
        ("%9 = offset %1, %2\n%10 = load.ro %9\n%11 = eq %10, %0\nif %11 { barrier }", block),
        ("%9 = builtin status\n%10 = eq %9, %5\nif %10 { barrier }", "as `%9 = builtin status` does"),
        ("%9 = atomic add device %1, %0\n%10 = eq %9, %0\nif %10 { barrier }", "as `%9 = atomic add device"),
        ("%9 = atomic load device %1\n%10 = eq %9, %0\nif %10 { barrier }", "as `%9 = atomic load device"),
        ("%9 = any %6\nif %9 { barrier }", "between threads of a block: `%9 = any %6`"),
        ("loop { %9 = any %6\nif %9 { break }\nbarrier }", block),
        ("%9 = select %6, %0, %0\n%10 = eq %9, %0\nif %10 { barrier }", block),
        ("if %6 { warp_barrier }", warp),
        ("if %6 { %9 = any %3 }", warp),
        ("if %6 { %9 = ballot %3 }", warp),
        ("if %6 { %9 = shuffle.up %0, %2 }", warp),
        ("loop { %9 = any %3\nif %6 { break } }", warp),
        ("if %6 { return }\n%9 = all %3", warp),
        (
            "%9 = shuffle.xor %2, %5\n%10 = eq %9, %5\nif %10 { %11 = all %3 }",
            "as `%2 = builtin thread_id` does",
        ),
        ("%9 = shuffle.index %2, %8\n%10 = eq %9, %5\nif %10 { %11 = all %3 }", warp),
        ("if %6 { %9 = uniform_load %4 }", "a uniform load must be reached by all"),
        (
            "%9 = offset %4, %2\n%10 = uniform_load %9",
            "a uniform load needs one address in the block, but %9",
        ),
    ];
    for (statements, expected) in cases {
        rejects(&kernel(statements), expected);
    }
}

#[test]
fn uniform_control_flow_is_accepted() {
    for statements in [
        "barrier",
        "if %7 { barrier } else { barrier }",
        "if %7 { return }\nbarrier",
        "loop { if %7 { break }\nbarrier\nif %7 { continue } }\nbarrier",
        "if %6 { v = %0 }\nbarrier",
        "loop { if %6 { break } }\nbarrier\n%9 = any %6",
        "loop { if %6 { continue }\nbreak }\nbarrier",
        "if %6 { %9 = const u32 1\nreport %9 }\nbarrier",
        "loop { %9 = any %6\nif %9 { break } }\nbarrier",
        "%9 = any %6\nif %9 { warp_barrier\n%10 = ballot %6 }",
        "%9 = builtin lanes\n%10 = div %2, %9\n%11 = eq %10, %5\nif %11 { %12 = all %6 }",
        "%9 = shuffle.index %2, %5\n%10 = eq %9, %5\nif %10 { %11 = all %3 }",
        "%9 = shuffle.down %5, %2\n%10 = eq %9, %5\nif %10 { barrier }",
        "%9 = load.ro %1\n%10 = eq %9, %0\nif %10 { barrier }",
        "%9 = uniform_load %4\n%10 = eq %9, %0\nif %10 { barrier }",
        "loop { %9 = read v\n%10 = lt %9, %0\nif %10 { } else { break }\nbarrier\n%11 = add %9, %0\nv = %11 }",
    ] {
        accepts(&kernel(statements));
    }
}

#[test]
fn results_of_calls_are_as_uniform_as_function_and_arguments() {
    let module = |function: &str, argument: &str| {
        format!(
            "fn f(a: u32) -> bool {{ %0 = param a\n{function} }}
             kernel k() {{ %0 = builtin {argument}\n%1 = call f(%0)\nif %1 {{ barrier }} }}"
        )
    };
    let constant = "%1 = eq %0, %0\nreturn %1";
    let own = "%1 = builtin thread_id\n%2 = eq %0, %1\nreturn %2";
    let path = "%1 = builtin thread_id\n%2 = eq %0, %1\n%3 = const bool true\n%4 = const bool false\n\
                if %2 { return %3 }\nreturn %4";
    accepts(&module(constant, "block_id"));
    for (function, argument) in [(constant, "lane_id"), (own, "block_id"), (path, "block_id")] {
        rejects(&module(function, argument), "a barrier must be reached");
    }
}

#[test]
fn back_ends_can_ask_for_uniformity() {
    let module = verdict(&kernel("%9 = any %6")).unwrap_or_else(|error| panic!("{error}"));
    let level = |index| module.uniformity(Handle::from_index(0), Handle::from_index(index));
    let levels = [
        (0, Uniformity::Block),
        (2, Uniformity::Divergent),
        (9, Uniformity::Warp),
        (99, Uniformity::Divergent),
    ];
    for (index, expected) in levels {
        assert_eq!(level(index), expected, "%{index}");
    }
}

#[test]
fn deep_but_allowed_nesting_is_checked_without_overflow() {
    let text = format!("kernel k() {{ {} {} }}", "loop {".repeat(390), "}".repeat(390));
    accepts(&text);
}
