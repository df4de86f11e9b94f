//! Expressions that fail where their values become indexes: as keys of groups, of DISTINCT and of joins, in sets and under sorts.
//! Whatever the micro model, the answer is the expression's error, and no kernel leaves its memory: the interpreter, which
//! checks every access, runs all of them.

use std::sync::Arc;

use crate::common::Table;
use crate::common::cases::{covering, facets_and};
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::context::Unsupported;
use kelpie_compile::expr::{ArithmeticOp, CompareOp, DatePart, Expr, ExprKind, Function};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan, SortKey};
use kelpie_compile::types::{DataType, Field, Interval, Literal};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, MicroModel, Query, QueryError, QueryOptions, QueryOutput,
    Resolution, TableSource,
};

const ROWS: i64 = 400;
const CAST: QueryError = QueryError::CastOutOfRange;
const PARSE: QueryError = QueryError::CastParse;
const OVERFLOW: QueryError = QueryError::Overflow;
const MONEY: DataType = DataType::Decimal128 { precision: 4, scale: 2 };

/// Columns of the table of rows, of which one in a hundred makes the expressions over it fail. `fine` tells the others.
const FIELDS: [(&str, DataType, bool); 7] = [
    ("fine", DataType::Boolean, false),
    ("big", DataType::Int64, true),
    ("tiny", DataType::Int8, false),
    ("by", DataType::Int8, false),
    ("money", MONEY, false),
    ("text", DataType::Utf8, true),
    ("date", DataType::Date32, false),
];

fn fields(of: &[(&str, DataType, bool)]) -> Vec<Field> {
    let field = |(name, data_type, nullable): &(&str, DataType, bool)| Field {
        name: (*name).into(),
        data_type: data_type.clone(),
        nullable: *nullable,
    };
    of.iter().map(field).collect()
}

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
    let money = Decimal128Array::from_iter_values(
        rows.clone().map(|row| if fails(row) { 9_999 } else { i128::from(row % 50) * 100 + 5 }),
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from_iter(rows.clone().map(|row| Some(!fails(row))))),
        Arc::new(Int64Array::from_iter(rows.clone().map(big))),
        Arc::new(Int8Array::from_iter_values(rows.clone().map(|row| pick(row, -128, (row % 50) as i8)))),
        Arc::new(Int8Array::from_iter_values(rows.clone().map(|row| pick(row, -1, 1)))),
        Arc::new(money.with_precision_and_scale(4, 2).expect("a decimal")),
        Arc::new(StringArray::from_iter(rows.clone().map(text))),
        Arc::new(Date32Array::from_iter_values(rows.map(|row| if fails(row) { 95_026_000 } else { 0 }))),
    ];
    let field = |(name, _, nullable): &(&str, DataType, bool), column: &ArrayRef| {
        ArrowField::new(*name, column.data_type().clone(), *nullable)
    };
    let schema = Schema::new(FIELDS.iter().zip(&columns).map(|(f, c)| field(f, c)).collect::<Vec<_>>());
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

/// The other side of joins: a key of every number near 0, so that its index is addressed directly.
fn numbers() -> Arc<Table> {
    let schema = Schema::new(vec![ArrowField::new("n", ArrowType::Int64, false)]);
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(-2_000..2_000));
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), vec![column]).expect("a batch")]))
}

fn rows() -> Plan {
    let fields = fields(&FIELDS);
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields })
}

fn other() -> Plan {
    let fields = fields(&[("n", DataType::Int64, false)]);
    Plan::Scan(Scan { source: 1, table: "n".into(), columns: vec![0], fields })
}

fn column(index: usize) -> Expr {
    let (_, data_type, nullable) = FIELDS[index].clone();
    Expr::column(index, data_type, nullable)
}

fn cast(input: Expr, data_type: DataType) -> Expr {
    let nullable = input.nullable;
    Expr { kind: ExprKind::Cast { input: Box::new(input), safe: false }, data_type, nullable }
}

fn call(function: Function, arguments: Vec<Expr>, data_type: DataType) -> Expr {
    let nullable = arguments.iter().any(|argument| argument.nullable);
    Expr { kind: ExprKind::Function(function, arguments), data_type, nullable }
}

fn arithmetic(op: ArithmeticOp, left: Expr, right: Expr) -> Expr {
    let (data_type, nullable) = (left.data_type.clone(), left.nullable || right.nullable);
    Expr { kind: ExprKind::Arithmetic(op, Box::new(left), Box::new(right)), data_type, nullable }
}

fn later(months: i32) -> Expr {
    let interval = Literal::Interval(Interval { months, days: 0, nanoseconds: 0 });
    arithmetic(ArithmeticOp::Add, column(6), Expr::literal(interval, DataType::Interval))
}

/// Expressions that fail for some rows, each with its error.
fn failing() -> Vec<(&'static str, Expr, QueryError)> {
    let number = |value, data_type| Expr::literal(Literal::Int(value), data_type);
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

fn aggregate(input: Plan, keys: Vec<Expr>, aggregates: Vec<Aggregate>) -> Plan {
    let names = vec![String::new(); keys.len() + aggregates.len()];
    Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
}

fn count(argument: Option<Expr>, distinct: bool) -> Aggregate {
    let field = Field { name: "a".into(), data_type: DataType::Int64, nullable: false };
    Aggregate { function: AggregateFunction::Count, argument, distinct, field }
}

fn project(input: Plan, exprs: Vec<Expr>) -> Plan {
    let names = vec![String::new(); exprs.len()];
    Plan::Project { input: Box::new(input), exprs, names }
}

fn first(plan: &Plan) -> Expr {
    let field = plan.fields().swap_remove(0);
    Expr::column(0, field.data_type, field.nullable)
}

fn join(build: Plan, probe: Plan, kind: JoinKind, keys: (Expr, Expr)) -> Plan {
    let (keys, residual) = (vec![keys], None);
    Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal: false, null_aware: false }))
}

/// Plans in which a key's values decide where something lies.
fn plans(input: &Plan, key: &Expr) -> Vec<(&'static str, Plan)> {
    let projected = project(input.clone(), vec![key.clone(), column(2)]);
    let grouped = |plan: Plan| {
        let key = first(&plan);
        aggregate(plan, vec![key], vec![count(None, false)])
    };
    let integer = cast(key.clone(), DataType::Int64);
    let number = Expr::column(0, DataType::Int64, false);
    let united = vec![project(input.clone(), vec![key.clone()]), project(rows(), vec![key.clone()])];
    let fields = united[0].fields();
    let sorted = vec![SortKey { expr: first(&projected), descending: true, nulls_first: false }];
    let text = column(5);
    let mut plans = vec![
        ("group by", aggregate(input.clone(), vec![key.clone()], vec![count(None, false)])),
        ("group by two", aggregate(input.clone(), vec![key.clone(), text], vec![count(None, false)])),
        ("distinct", aggregate(input.clone(), vec![key.clone()], Vec::new())),
        ("group by a projection", grouped(projected.clone())),
        ("count distinct", aggregate(input.clone(), vec![column(3)], vec![count(Some(key.clone()), true)])),
        ("union", grouped(Plan::Union { inputs: united, fields })),
        ("sort", Plan::Sort { input: Box::new(projected), keys: sorted, fetch: Some(5) }),
    ];
    for kind in [JoinKind::Inner, JoinKind::ProbeSemi, JoinKind::ProbeAnti, JoinKind::BuildSemi] {
        plans.push(("probe side", join(other(), input.clone(), kind, (number.clone(), integer.clone()))));
        plans.push(("build side", join(input.clone(), other(), kind, (integer.clone(), number.clone()))));
    }
    plans
}

/// Every device, model and resolution that differ.
fn configurations() -> Vec<QueryOptions> {
    let has_gpu = kelpie_engine::testing::has_cuda(&Engine::new());
    let devices = [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 32), (DeviceChoice::Simt, 1)];
    let mut all = Vec::new();
    for (device, simt_lanes) in devices.into_iter().chain(has_gpu.then_some((DeviceChoice::Cuda, 32))) {
        for micro_model in MicroModel::ALL {
            let options = QueryOptions { device, micro_model, simt_lanes, ..QueryOptions::default() };
            let local = micro_model == MicroModel::Resolution && device != DeviceChoice::Cpu;
            all.push(options.clone());
            all.extend(local.then_some(QueryOptions { resolution: Resolution::WorkEfficient, ..options }));
        }
    }
    all
}

fn run(
    engine: &Engine,
    plan: &Plan,
    rows: &Arc<Table>,
    options: &QueryOptions,
) -> Result<QueryOutput, EngineError> {
    let sources = vec![rows.clone() as Arc<dyn TableSource>, numbers() as _];
    let query = Query { plan: plan.clone(), sources, options: options.clone() };
    engine.execute(&query, &CancelToken::default())
}

fn every_shape_fails(large: i64) {
    let (engine, table, failing) = (Engine::new(), table(large), failing());
    let shapes = plans(&rows(), &failing[0].1).len();
    let cases = (0..failing.len()).flat_map(|name| (0..shapes).map(move |shape| (name, shape)));
    let options = configurations();
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
    let input = Plan::Filter { input: Box::new(rows()), predicate: column(0) };
    let options = configurations();
    let each = failing()
        .into_iter()
        .flat_map(|(name, key, _)| options.iter().map(move |options| (name, key.clone(), options)));
    for (name, key, options) in
        covering("filtered out", each, 50, |(name, _, options)| facets_and(options, &[name]))
    {
        let plan = aggregate(input.clone(), vec![key], vec![count(None, false)]);
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
