//! Expressions that fail where their values become indexes: as keys of groups, of DISTINCT and of joins, in sets and under sorts.
//! Whatever the micro model, the answer is the expression's error, and no kernel leaves its memory: the interpreter, which
//! checks every access, runs all of them.

use crate::common::*;
use kelpie_compile::context::Unsupported;
use kelpie_compile::expr::DatePart;
use kelpie_compile::types::Interval;

const ROWS: i64 = 400;
const CAST: QueryError = QueryError::CastOutOfRange;
const PARSE: QueryError = QueryError::CastParse;
const OVERFLOW: QueryError = QueryError::Overflow;
const MONEY: DataType = DataType::Decimal128 { precision: 4, scale: 2 };

/// Columns of the table of rows, of which one in a hundred makes the expressions over it fail. `fine` tells the others.
const COLUMNS: [Column; 7] = [
    ("fine", DataType::Boolean, false),
    ("big", DataType::Int64, true),
    ("tiny", DataType::Int8, false),
    ("by", DataType::Int8, false),
    ("money", MONEY, false),
    ("text", DataType::Utf8, true),
    ("date", DataType::Date32, false),
];

/// `large`: the values of `big` that fail.
fn table(large: i64) -> Arc<Table> {
    let fails = |row: i64| row % 100 == 37;
    let rows = 0..ROWS;
    let big = |row| (row % 9 != 4).then_some(if fails(row) { large } else { row % 50 });
    let text = |row: i64| match row {
        row if fails(row) => Some("9999".to_string()),
        row => (row % 9 != 4).then_some((row % 50).to_string()),
    };
    let pick = |row, failing, usual| if fails(row) { failing } else { usual };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(!fails(row))))),
        maybe_longs(rows.clone().map(big)),
        Arc::new(Int8Array::from_iter_values(rows.clone().map(|row| pick(row, -128, (row % 50) as i8)))),
        Arc::new(Int8Array::from_iter_values(rows.clone().map(|row| pick(row, -1, 1)))),
        decimals(
            rows.clone().map(|row| if fails(row) { 9_999 } else { i128::from(row % 50) * 100 + 5 }),
            4,
            2,
        ),
        maybe_texts(rows.clone().map(text)),
        Arc::new(Date32Array::from_iter_values(rows.map(|row| if fails(row) { 95_026_000 } else { 0 }))),
    ];
    table_of(&COLUMNS, columns)
}

const NUMBERS: [Column; 1] = [("n", DataType::Int64, false)];

/// The other side of joins: a key of every number near 0, so that its index is addressed directly.
fn numbers() -> Arc<Table> {
    table_of(&NUMBERS, vec![longs(-2_000..2_000)])
}

fn rows() -> Plan {
    scan_of(0, &COLUMNS)
}

fn other() -> Plan {
    scan_of(1, &NUMBERS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

fn later(months: i32) -> Expr {
    let interval = Literal::Interval(Interval { months, days: 0, nanoseconds: 0 });
    arithmetic(ArithmeticOp::Add, column(6), Expr::literal(interval, DataType::Interval))
}

/// Expressions that fail for some rows, each with its error.
fn failing() -> Vec<(&'static str, Expr, QueryError)> {
    let number = |value, data_type| literal(value, data_type);
    let tens = || number(-1, DataType::Int64);
    let tiny = cast(column(1), DataType::Int8);
    let condition =
        ExprKind::Compare(CompareOp::Lt, Box::new(tiny.clone()), Box::new(number(7, DataType::Int8)));
    let condition = Expr { kind: condition, data_type: DataType::Boolean, nullable: true };
    let branches = vec![(condition, number(1, DataType::Int8))];
    let case = ExprKind::Case { branches, otherwise: Some(Box::new(tiny.clone())) };
    vec![
        ("to int8", tiny.clone(), CAST),
        ("to uint8", cast(column(1), DataType::UInt8), CAST),
        ("to decimal(3, 1)", cast(column(1), DataType::Decimal128 { precision: 3, scale: 1 }), CAST),
        ("int8 to uint64", cast(column(2), DataType::UInt64), CAST),
        ("text to int8", cast(column(5), DataType::Int8), PARSE),
        ("float to int8", cast(cast(column(1), DataType::Float64), DataType::Int8), CAST),
        ("decimal to decimal", cast(column(4), DataType::Decimal128 { precision: 3, scale: 1 }), CAST),
        ("ceil of a decimal", call(Function::Ceil, vec![column(4)], MONEY), OVERFLOW),
        ("round of an int8", call(Function::Round, vec![column(2), tens()], DataType::Int8), OVERFLOW),
        ("abs of an int8", call(Function::Abs, vec![column(2)], DataType::Int8), OVERFLOW),
        ("int8 / int8", arithmetic(ArithmeticOp::Divide, column(2), column(3)), OVERFLOW),
        ("int8 + int8", arithmetic(ArithmeticOp::Add, tiny.clone(), column(3)), CAST),
        ("month", call(Function::DatePart(DatePart::Month), vec![later(240)], DataType::Int32), OVERFLOW),
        ("coalesce", call(Function::Coalesce, vec![tiny, column(2)], DataType::Int8), CAST),
        ("case", Expr { kind: case, data_type: DataType::Int8, nullable: true }, CAST),
    ]
}

fn count(argument: Option<Expr>, is_distinct: bool) -> Aggregate {
    Aggregate { distinct: is_distinct, ..of_longs(AggregateFunction::Count, argument) }
}

fn first(plan: &Plan) -> Expr {
    crate::common::column(plan, 0)
}

fn join(build: Plan, probe: Plan, kind: JoinKind, keys: (Expr, Expr)) -> Plan {
    Plan::Join(Box::new(join_of(kind, build, probe, vec![keys])))
}

/// Plans in which a key's values decide where something lies.
fn plans(input: &Plan, key: &Expr) -> Vec<(&'static str, Plan)> {
    let projected = values_of(input.clone(), vec![key.clone(), column(2)]);
    let grouped = |plan: Plan| {
        let key = first(&plan);
        groups_of(plan, vec![key], vec![count(None, false)])
    };
    let integer = cast(key.clone(), DataType::Int64);
    let number = Expr::column(0, DataType::Int64, false);
    let united = vec![values_of(input.clone(), vec![key.clone()]), values_of(rows(), vec![key.clone()])];
    let fields = united[0].fields();
    let order = vec![sort_key(first(&projected), true, false)];
    let text = column(5);
    let mut plans = vec![
        ("group by", groups_of(input.clone(), vec![key.clone()], vec![count(None, false)])),
        ("group by two", groups_of(input.clone(), vec![key.clone(), text], vec![count(None, false)])),
        ("distinct", groups_of(input.clone(), vec![key.clone()], Vec::new())),
        ("group by a projection", grouped(projected.clone())),
        ("count distinct", groups_of(input.clone(), vec![column(3)], vec![count(Some(key.clone()), true)])),
        ("union", grouped(Plan::Union { inputs: united, fields })),
        ("sort", sorted(projected, order, Some(5))),
    ];
    for kind in [JoinKind::Inner, JoinKind::ProbeSemi, JoinKind::ProbeAnti, JoinKind::BuildSemi] {
        plans.push(("probe side", join(other(), input.clone(), kind, (number.clone(), integer.clone()))));
        plans.push(("build side", join(input.clone(), other(), kind, (integer.clone(), number.clone()))));
    }
    plans
}

fn run(
    engine: &Engine,
    plan: &Plan,
    rows: &Arc<Table>,
    options: &QueryOptions,
) -> Result<QueryOutput, EngineError> {
    try_run(engine, plan, &[Arc::clone(rows), numbers()], options)
}

/// A CPU, interpreters with warps of many lanes and of one, and a GPU where there is one.
fn devices() -> Vec<(DeviceChoice, u32)> {
    let own = [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 32), (DeviceChoice::Simt, 1)];
    own.into_iter().chain(gpu().map(|device| (device, 32))).collect()
}

fn every_shape_fails(large: i64) {
    let (engine, table, failing) = (Engine::new(), table(large), failing());
    let shapes = plans(&rows(), &failing[0].1).len();
    let cases = (0..failing.len()).flat_map(|name| (0..shapes).map(move |shape| (name, shape)));
    let options = every_model(&devices());
    let cases = cases.flat_map(|(name, shape)| options.iter().map(move |options| (name, shape, options)));
    let cases = covering(&format!("big = {large}"), cases, 60, |(name, shape, options)| {
        facets_and(options, &[name, shape, &(options.micro_model, options.device)])
    });
    for (name, shape, options) in cases {
        let (name, key, expected) = &failing[name];
        let (shape, plan) = plans(&rows(), key).swap_remove(shape);
        let what = format!("{shape} of {name} (big = {large}), {options:?}");
        match run(&engine, &plan, &table, options) {
            Err(EngineError::Query(error)) => assert_eq!(error, *expected, "{what}"),
            Err(error) => panic!("{what}: {error}"),
            Ok(output) => panic!("{what}: {} rows", output.batch.num_rows()),
        }
    }
}

#[test]
fn keys_that_fail_just_beyond_their_range() {
    every_shape_fails(300);
}

#[test]
fn keys_that_fail_at_the_ends_of_int64() {
    every_shape_fails(i64::MAX);
}

/// A defect of the compiler is no reason to run a query elsewhere.
#[test]
fn broken_invariants_are_internal_errors() {
    match EngineError::from(Unsupported::internal("a cell without parts")) {
        EngineError::Internal(what) => assert_eq!(what, "a cell without parts"),
        other => panic!("{other:?}"),
    }
    let reason = Unsupported("a column of intervals".into());
    assert!(matches!(EngineError::from(reason.clone()), EngineError::Unsupported(known) if known == reason));
}

/// Where a filter removes the rows that would fail, nothing does, and all devices and models agree.
#[test]
fn rows_that_are_filtered_out_do_not_fail() {
    let (engine, table) = (Engine::new(), table(i64::MIN));
    let input = keep(rows(), column(0));
    let options = every_model(&devices());
    let each = failing()
        .into_iter()
        .flat_map(|(name, key, _)| options.iter().map(move |options| (name, key.clone(), options)));
    for (name, key, options) in
        covering("filtered out", each, 50, |(name, _, options)| facets_and(options, &[name]))
    {
        let plan = groups_of(input.clone(), vec![key], vec![count(None, false)]);
        let output = match run(&engine, &plan, &table, options) {
            Ok(output) => output,
            Err(error) => panic!("{name}, {options:?}: {error}"),
        };
        let counts = output.batch.column(1).as_primitive::<arrow::datatypes::Int64Type>();
        let sum: i64 = counts.values().iter().sum();
        assert_eq!(sum, ROWS - ROWS / 100, "{name}, {options:?}");
        let groups = output.batch.num_rows();
        assert!(groups <= 51, "{name}, {options:?}: {groups} groups");
    }
}
