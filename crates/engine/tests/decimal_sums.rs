//! Sums of decimals whose values and rows do not prove them to be within 128 bits: the sum itself, or an error that names
//! the aggregate, wherever the sum is on the way and whoever adds it up.

use std::sync::Arc;

use crate::common::Table;
use crate::common::cases::{covering, facets, facets_and};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int32Array, Int64Array};
use arrow::datatypes::{DataType as ArrowType, Decimal128Type, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, MicroModel, Query, QueryOptions, Resolution,
};

/// The largest decimal of 38 digits.
const MOST: i128 = 10i128.pow(38) - 1;
/// The type of the values and of their sums.
const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };
const SUM: &str = "sum(t.value)";

/// One row: group, value, and whether a filter lets it pass.
type Row = (i32, i128, bool);

fn field(name: &str, data_type: DataType) -> Field {
    Field { name: name.into(), data_type, nullable: false }
}

fn table(rows: &[Row]) -> Arc<Table> {
    let types = [ArrowType::Int32, ArrowType::Int64, ArrowType::Decimal128(38, 2), ArrowType::Boolean];
    let fields = ["dense", "wide", "value", "passes"].into_iter().zip(types);
    let fields: Vec<_> = fields.map(|(name, data_type)| ArrowField::new(name, data_type, false)).collect();
    let wide = |group: i32| (i64::from(group) - 1).wrapping_mul(4_000_000_000_000_000_000);
    let values = Decimal128Array::from_iter_values(rows.iter().map(|row| row.1));
    let arrays: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| wide(row.0)))),
        Arc::new(values.with_precision_and_scale(38, 2).expect("a decimal")),
        Arc::new(BooleanArray::from_iter(rows.iter().map(|row| Some(row.2)))),
    ];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch");
    Arc::new(Table(vec![batch]))
}

/// Columns of the table.
const COLUMNS: [DataType; 4] = [DataType::Int32, DataType::Int64, DECIMAL, DataType::Boolean];

fn scan() -> Plan {
    let fields: Vec<Field> = COLUMNS.iter().map(|data_type| field("column", data_type.clone())).collect();
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: (0..4).collect(), fields })
}

fn column(index: usize) -> Expr {
    Expr::column(index, COLUMNS[index].clone(), false)
}

/// What is aggregated: the values, each once where `distinct`, and only those that pass where `filtered`.
#[derive(Debug, Clone, Copy)]
struct Form {
    key: Option<usize>,
    distinct: bool,
    filtered: bool,
}

fn plan(form: Form, input: Plan) -> Plan {
    let value = match form.filtered {
        true => Expr {
            kind: ExprKind::Case { branches: vec![(column(3), column(2))], otherwise: None },
            data_type: DECIMAL,
            nullable: true,
        },
        false => column(2),
    };
    let aggregate = |function, name: &str, data_type| Aggregate {
        function,
        argument: Some(value.clone()),
        distinct: form.distinct,
        field: Field { nullable: true, ..field(name, data_type) },
    };
    let aggregates = vec![
        aggregate(AggregateFunction::Count, "count(t.value)", DataType::Int64),
        aggregate(AggregateFunction::Sum, SUM, DECIMAL),
    ];
    let keys: Vec<Expr> = form.key.map(column).into_iter().collect();
    let names = vec![String::new(); keys.len() + aggregates.len()];
    Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
}

/// The sums of the groups in order, or nothing where one of them is beyond its type.
fn expected(rows: &[Row], form: Form) -> Option<Vec<Option<i128>>> {
    let mut groups: Vec<i32> = rows.iter().map(|row| row.0).collect();
    groups.sort_unstable();
    groups.dedup();
    let members: Vec<Vec<&Row>> = match form.key {
        Some(_) => groups.iter().map(|group| rows.iter().filter(|row| row.0 == *group).collect()).collect(),
        None => vec![rows.iter().collect()],
    };
    let sum = |rows: Vec<&Row>| {
        let mut values: Vec<i128> =
            rows.into_iter().filter(|row| !form.filtered || row.2).map(|row| row.1).collect();
        if form.distinct {
            values.sort_unstable();
            values.dedup();
        }
        // In two halves, as the whole may be beyond 128 bits.
        let half = |part: fn(i128) -> i128| values.iter().map(|value| part(*value)).sum::<i128>();
        let (high, low) = (half(|value| value.div_euclid(1 << 64)), half(|value| value.rem_euclid(1 << 64)));
        let whole = high.checked_mul(1 << 64).and_then(|high| high.checked_add(low));
        let fits = whole.filter(|sum| sum.abs() <= MOST)?;
        Some((!values.is_empty()).then_some(fits))
    };
    members.into_iter().map(sum).collect()
}

fn engine() -> &'static Engine {
    static ENGINE: std::sync::OnceLock<Engine> = std::sync::OnceLock::new();
    ENGINE.get_or_init(Engine::new)
}

fn configurations() -> Vec<QueryOptions> {
    let devices = [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];
    let gpu = kelpie_engine::testing::has_cuda(engine()).then_some((DeviceChoice::Cuda, 32));
    let mut all = Vec::new();
    for (device, simt_lanes) in devices.into_iter().chain(gpu) {
        for micro_model in MicroModel::ALL {
            let options = QueryOptions { device, micro_model, simt_lanes, ..QueryOptions::default() };
            let blocks = micro_model == MicroModel::Resolution && device != DeviceChoice::Cpu;
            all.extend(
                blocks.then(|| QueryOptions { resolution: Resolution::WorkEfficient, ..options.clone() }),
            );
            all.push(options);
        }
    }
    all
}

/// Compares every form, and every device and model.
fn check(rows: &[Row]) {
    let source = table(rows);
    let mut cases = Vec::new();
    for key in [None, Some(0), Some(1)] {
        for (distinct, filtered) in [(false, false), (true, false), (false, true), (true, true)] {
            let form = Form { key, distinct, filtered };
            cases.extend(configurations().into_iter().map(|options| (form, options)));
        }
    }
    let name = format!("{} rows, the first {:?}", rows.len(), rows[0]);
    for (form, options) in covering(&name, cases, 14, |(form, options)| facets_and(options, &[form])) {
        let query =
            Query { plan: plan(form, scan()), sources: vec![source.clone() as _], options: options.clone() };
        let outcome = engine().execute(&query, &CancelToken::default());
        match (outcome, expected(rows, form)) {
            (Ok(output), Some(sums)) => assert_eq!(sums_of(&output.batch), sums, "{form:?}, {options:?}"),
            (Err(EngineError::SumOverflow { aggregate }), None) => assert_eq!(aggregate, SUM),
            (Ok(output), None) => panic!("{form:?}, {options:?}: {:?}, no error", sums_of(&output.batch)),
            (Err(error), sums) => panic!("{form:?}, {options:?}: {error}, not {sums:?}"),
        }
    }
}

/// The sums by the order of their keys.
fn sums_of(batch: &RecordBatch) -> Vec<Option<i128>> {
    let sums = batch.column(batch.num_columns() - 1).as_primitive::<Decimal128Type>();
    let mut rows: Vec<usize> = (0..batch.num_rows()).collect();
    if batch.num_columns() == 3 {
        let keys = arrow::compute::cast(batch.column(0), &ArrowType::Int64).expect("integers");
        let keys = keys.as_primitive::<arrow::datatypes::Int64Type>().clone();
        rows.sort_by_key(|row| keys.value(*row));
    }
    rows.into_iter().map(|row| sums.is_valid(row).then(|| sums.value(row))).collect()
}

#[test]
fn a_sum_at_the_edge_of_its_type_is_the_sum() {
    check(&[(0, MOST, true), (0, 0, true), (1, -MOST, true), (2, MOST - 1, true), (2, 1, true)]);
    check(&[(0, MOST, true), (0, 1, false), (1, MOST, true), (1, -1, true), (1, 1, true), (1, 0, false)]);
    check(&[(0, -MOST, true), (0, -1, true), (0, 1, true), (2, -7, false)]);
}

#[test]
fn a_sum_beyond_its_type_is_an_error() {
    // Beyond 38 digits within 128 bits, just beyond these, a little and far beyond a whole turn of them.
    for count in [2, 3, 4, 7, 40] {
        for sign in [1, -1] {
            let rows = (0..count).map(|row| (row % 2, sign * (MOST - i128::from(row)), row % 3 > 0));
            check(&rows.collect::<Vec<_>>());
            let one = (0..count).map(|row| (1, sign * MOST, row > 0)).chain([(0, 5, true), (2, -5, true)]);
            check(&one.collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_sum_may_be_beyond_its_type_on_the_way() {
    let mut seed = 5u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i128::from(seed >> 33)
    };
    let mut rows = Vec::new();
    for row in 0..400 {
        let (group, value) = (row % 3, MOST - random() * 10i128.pow(25));
        rows.extend([(group, value, row % 5 == 0), (group, -value + random(), row % 5 == 0)]);
    }
    // First all that is positive.
    rows.sort_by_key(|row| row.1 < 0);
    check(&rows);
}

/// A bound of more rows than 32 bits number, of which few come: the upper bits begin lower then.
#[test]
fn a_sum_of_what_may_be_very_many_rows() {
    // Every key stands twice, so that each of the five joins doubles the rows, and multiplies the bound by 64.
    let rows: Vec<Row> = (0..64).map(|row| (row / 2, [MOST, -MOST + 1][row as usize % 2], true)).collect();
    let source = table(&rows);
    let doubled = |probe: Plan| {
        let pairs = Plan::Join(Box::new(Join {
            build: scan(),
            probe,
            kind: JoinKind::Inner,
            keys: vec![(column(0), column(0))],
            residual: None,
            null_equal: false,
            null_aware: false,
        }));
        let names = vec![String::new(); 4];
        Plan::Project { input: Box::new(pairs), exprs: (0..4).map(column).collect(), names }
    };
    let joined = (0..5).fold(scan(), |plan, _| doubled(plan));
    let beyond = Plan::Filter { input: Box::new(joined.clone()), predicate: positive() };
    // The other models store the rows of each join, and so only differ in what is not under test here.
    let in_registers = |options: &QueryOptions| {
        matches!(options.micro_model, MicroModel::Pipelined | MicroModel::Resolution)
    };
    let options = configurations().into_iter().filter(in_registers);
    for options in covering("very many rows", options, 0, facets) {
        let run = |key, input: &Plan| {
            let plan = plan(Form { key, distinct: false, filtered: false }, input.clone());
            let query = Query { plan, sources: vec![source.clone() as _], options: options.clone() };
            engine().execute(&query, &CancelToken::default())
        };
        let sum = |key| run(key, &joined).map(|output| sums_of(&output.batch)).expect("within its type");
        assert_eq!(sum(None), [Some(1_024)], "{options:?}");
        assert_eq!(sum(Some(0)), vec![Some(32); 32], "{options:?}");
        for key in [None, Some(1)] {
            let outcome = run(key, &beyond);
            assert!(matches!(outcome, Err(EngineError::SumOverflow { .. })), "{options:?}: {outcome:?}");
        }
    }
}

/// Whether the value is above zero.
fn positive() -> Expr {
    let zero = Expr::literal(Literal::Int(0), DECIMAL);
    let kind = ExprKind::Compare(CompareOp::Gt, Box::new(column(2)), Box::new(zero));
    Expr { kind, data_type: DataType::Boolean, nullable: false }
}
