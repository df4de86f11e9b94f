//! The text form: what is printed is parsed to the same module, and errors name the place.

use kelpie_kir::text::{parse, print};

const EVERYTHING: &str = r#"struct Group { key: i64, count: u64, next: ptr<global, u32> }
struct Table { groups: ptr<global, Group>, tile: ptr<shared, Group> }
fn hash(k: i64) -> u64 {
  %0 = param k
  %1 = bitcast u64 %0
  return %1
}
fn nothing() {
}
kernel all_of_it(x: ptr<global, i32>, n: i64, table: ptr<global, Table>) {
  shared tile: [i64; 32]
  shared groups: [Group; 4]
  var acc_0: i64
  var pointer_1: ptr<global, Group>
  var vector_2: i64x2
  %0 = param x
  %2 = param n
  %1 = const i64 -9223372036854775808
  %3 = const i128 -170141183460469231731687303715884105728
  %4 = const f32 0x7fc00001
  %5 = const f32 -0.0
  %6 = const f64 1e300
  %7 = const f64 -inf
  %8 = const f64 inf
  %9 = const f64 0xfff8000000000123
  %10 = const bool true
  %11 = const f32 1e-45
  %12 = shared tile
  %13 = builtin thread_id
  %14 = convert i64 %13
  %15 = offset %12, %13
  %16 = param table
  %17 = load_field %16, groups
  pointer_1 = %17
  %18 = field %17, key
  %19 = load.ro %18
  %20 = load %15
  loop {
    %21 = lt %20, %1
    if %21 {
      break
    } else {
      continue
    }
  }
  if %10 {
  }
  %22 = read acc_0
  acc_0 = %22
  store %15, %22
  %23 = atomic add device %15, %22
  atomic cas block %15, %22, %1
  barrier
  warp_barrier
  fence
  mark 7
  tally %18
  %24 = uniform_load %12
  %25 = call hash(%24)
  call nothing()
  %26 = select %10, %1, %2
  %27 = ballot %10
  %28 = any %10
  %29 = all %28
  %30 = shuffle.up %26, %13
  %31 = shuffle.xor %26, %13
  %32 = overflow.mul %26, %1
  %33 = round_even %6
  %34 = mul_hi %26, %1
  %35 = builtin status
  %36 = atomic load block %15
  %37 = bitcast ptr<global, u8> %18
  %38 = load_bytes %37
  %39 = splat 2 %1
  %40 = load_vector 2 %15
  %41 = load_vector.ro 2 %15 align 16
  %42 = add %40, %41
  %43 = lt %42, %39
  %44 = select %43, %42, %39
  vector_2 = %44
  %45 = read vector_2
  store_bytes %37, %38
  store_vector %15, %45
  store_vector %15, %45 align 16
  %46 = compress %15, %44, %43
  compress %15, %44, %43
  %47 = lane %44, 1
  %48 = reduce.add %44
  %49 = reduce.count %43
  %50 = mask_bits %43
  %51 = bits_mask 16 %50
  %52 = first_lanes 4 %50
  %53 = not %52
  %54 = iota u8x16
  %55 = convert f32 %54
  %56 = bitcast u64x2 %44
  %57 = shl %56, %50
  report %35
  trap %35
  return
}
"#;

#[test]
fn the_whole_language_round_trips() {
    let module = parse(EVERYTHING).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(print(&module), EVERYTHING);
    assert_eq!(parse(&print(&module)), Ok(module));
}

#[test]
fn layout_and_comments_do_not_matter() {
    let text = "; head\r\nkernel k(n: i64,) { var v: i64 ; a variable\n\n %0=param n ; ø %1 }\nif\n %1 {} }";
    let text = &text.replace("if\n %1 {}", "v = %0");
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(print(&module), "kernel k(n: i64) {\n  var v: i64\n  %0 = param n\n  v = %0\n}\n");
    assert_eq!(parse(""), Ok(kelpie_kir::Module::default()));
    assert_eq!(parse("; only a comment"), Ok(kelpie_kir::Module::default()));
}

#[test]
fn other_forms_of_numbers_are_read() {
    let text =
        "kernel k() {\n%0 = const f64 nan\n%1 = const u8 0xff\n%2 = const f32 1\n%3 = const f64 2.5E+3\n}";
    let module = parse(text).unwrap_or_else(|error| panic!("{error}"));
    let printed = "kernel k() {\n  %0 = const f64 0x7ff8000000000000\n  %1 = const u8 255\n  \
                   %2 = const f32 1.0\n  %3 = const f64 2500.0\n}\n";
    assert_eq!(print(&module), printed);
}

#[test]
fn errors_name_the_place_and_what_was_expected() {
    let body =
        |statements: &str| format!("kernel k(n: i64, p: ptr<global, i64>) {{\nvar v: i64\n{statements}\n}}");
    let whole = [
        ("kernle k() {}", "1:1: expected `struct`, `fn` or `kernel`, found `kernle`"),
        ("kernel k() {", "1:13: expected a statement or `}`, found the end of the text"),
        ("kernel k(n i64) {}", "1:12: expected `:`, found `i64`"),
        ("kernel k(n: i65) {}", "1:13: expected a type, found `i65`"),
        ("kernel k(n: ptr<local, i8>) {}", "1:17: expected `global` or `shared`, found `local`"),
        ("kernel k(n: ptr<global, T>) {}", "1:25: expected a scalar type or a struct that stands before"),
        ("kernel k(n: i64 m: i64) {}", "1:17: expected `,` or `)`, found `m`"),
        ("kernel k() -> i64 {}", "1:12: expected `{`, found `->`"),
        ("kernel a.b() {}", "1:8: expected a name, found `a.b`"),
        ("struct S { }\nstruct T { f: S }", "2:15: expected a type, found `S`"),
        ("kernel k() { shared t: [i64; -1] }", "1:30: expected a number of elements, found `-1`"),
        ("kernel k() { shared t: [i64] }", "1:28: expected `;`, found `]`"),
        ("ø", "1:1: the character 'ø' has no meaning here"),
        ("kernel k() {\n  %x = 3\n}", "2:3: expected a value's number after `%`"),
    ];
    let statements = [
        ("%0 = param m", "3:12: expected a parameter of this function, found `m`"),
        ("%0 = parm n", "3:6: expected an expression, found `parm`"),
        ("%0 = read n", "3:11: expected a variable of this function"),
        ("w = %0", "3:1: expected a variable of this function, found `w`"),
        ("%0 = shared t", "3:13: expected a shared array"),
        ("store %0, %0", "3:7: value %0 is not defined above"),
        ("%0 = param n\n%0 = param n", "4:1: value %0 is defined twice"),
        ("%1 = param n", "4:1: value %0 is never defined"),
        ("%999999999 = param n", "3:1: %999999999 is too high a number"),
        ("%99999999999 = param n", "3:1: expected a value's number"),
        ("%0 = param n\n%1 = popcount %0, %0", "4:17: expected a statement or `}`, found `,`"),
        ("%0 = const i8 128", "3:6: 128 does not fit i8"),
        ("%0 = const i8 x", "3:15: expected an integer, found `x`"),
        ("%0 = const bool 1", "3:17: expected `true` or `false`, found `1`"),
        ("%0 = const f64 1.2.3", "3:16: expected an f64, found `1.2.3`"),
        ("%0 = param n\n%1 = load %0", "4:6: load through"),
        ("%0 = param p\n%1 = load_bytes %0", "4:6: load_bytes through"),
        ("%0 = param p\n%1 = field %0, 0", "4:12: %0 is not a pointer to a struct"),
        ("%0 = param n\n%1 = atomic add device %0, %0", "4:28: %0 is not a pointer to a scalar"),
        ("%0 = param n\n%1 = atomic sub device %0, %0", "4:13: expected `add`, `min`"),
        ("%0 = param p\n%1 = param n\natomic add warp %0, %1", "5:12: expected `block` or `device`"),
        ("call f()", "3:6: no function `f` stands before this one"),
        ("frobnicate %0", "3:1: expected a statement or `}`, found `frobnicate`"),
        ("if %0 {", "3:4: value %0 is not defined above"),
        ("else {", "3:1: expected a statement"),
    ];
    let statements = statements.map(|(text, error)| (body(text), error));
    let whole = whole.map(|(text, error)| (text.to_string(), error));
    for (text, expected) in whole.into_iter().chain(statements) {
        match parse(&text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => {
                assert!(error.to_string().starts_with(expected), "{error}\nexpected {expected}\n{text}")
            }
        }
    }
}

#[test]
fn deep_nesting_is_an_error() {
    let text = format!("kernel k() {{ {} {} }}", "loop {".repeat(100_000), "}".repeat(100_000));
    let error = parse(&text).map_or_else(|error| error.to_string(), |_| String::new());
    assert!(error.contains("nest deeper"), "{error}");
    let text = format!("kernel k() {{ {} {} }}", "loop {".repeat(390), "}".repeat(390));
    assert!(parse(&text).is_ok_and(|module| parse(&print(&module)) == Ok(module)));
}

#[test]
fn damaged_texts_never_panic() {
    for start in (0..EVERYTHING.len()).step_by(3) {
        let _ = parse(&EVERYTHING[..start]);
        let _ = parse(&EVERYTHING[start..]);
        let mut damaged = EVERYTHING.to_string();
        damaged.remove(start);
        let _ = parse(&damaged).map(|module| print(&module));
    }
}
