//! Plans in memory in which their joins, groups and windows do not fit as a whole: what is cut into parts stands below groups without keys
//! and with some, filters, first rows and other joins. The answers are those of enough memory.

use kelpie_compile::plan::{Frame, Window, WindowCall, WindowFunction};
use kelpie_device::DeviceError;

use crate::common::*;

const COLUMNS: [Column; 5] = [
    ("k", DataType::Int64, true),
    ("g", DataType::Int64, false),
    ("v", DataType::Int64, true),
    ("d", DataType::Float64, false),
    ("t", DataType::Utf8, true),
];
const K: usize = 0;
const G: usize = 1;
const V: usize = 2;
const D: usize = 3;
const T: usize = 4;
const WIDTH: usize = COLUMNS.len();

/// Rows whose keys come in no order, some twice, some not at all, some NULL.
fn table(rows: i64, keys: i64) -> Arc<Table> {
    let key = |row: i64| (row % 13 > 0).then_some(row * 7919 % keys);
    let columns: Vec<ArrayRef> = vec![
        maybe_longs((0..rows).map(key)),
        longs((0..rows).map(|row| row % 7)),
        maybe_longs((0..rows).map(|row| (row % 3 > 0).then_some(row))),
        doubles((0..rows).map(|row| row as f64 / 8.0)),
        maybe_texts((0..rows).map(|row| (row % 5 > 0).then(|| format!("a text of some length, é {row}")))),
    ];
    table_of(&COLUMNS, columns)
}

fn scan(source: usize) -> Plan {
    scan_of(source, &COLUMNS)
}

fn joined(kind: JoinKind, build: Plan, probe: Plan) -> Plan {
    let keys = vec![(column(&build, K), column(&probe, K))];
    Plan::Join(Box::new(join_of(kind, build, probe, keys)))
}

/// Groups with an aggregate of every kind that parts can be brought together of.
fn aggregated(input: Plan, keys: &[usize], first: usize) -> Plan {
    use AggregateFunction::*;
    let argument = |index: usize| Some(column(&input, first + index));
    let count = |argument| {
        let count = of_longs(Count, argument);
        Aggregate { field: Field { nullable: false, ..count.field.clone() }, ..count }
    };
    let aggregates = vec![
        count(None),
        count(argument(V)),
        of_longs(SumExact, argument(V)),
        of(Min, argument(T), DataType::Utf8),
        of(Max, argument(D), DataType::Float64),
        of(Avg, argument(D), DataType::Float64),
    ];
    let keys = keys.iter().map(|key| column(&input, *key)).collect();
    groups_of(input, keys, aggregates)
}

/// The rows, with the sum of a value over those of the same key.
fn windowed(input: Plan) -> Plan {
    let field = Field { name: "w".into(), data_type: DataType::Int64, nullable: true };
    let call = WindowCall::Aggregate { function: AggregateFunction::Sum, argument: Some(column(&input, V)) };
    let function = WindowFunction { call, partition: 1, order: 1, frame: Frame::PARTITION, field };
    let keys = vec![sort_key(column(&input, K), false, false)];
    Plan::Window(Box::new(Window { input, keys, functions: vec![function] }))
}

/// Plans, and whether their rows are in order.
fn plans() -> Vec<(&'static str, Plan, bool)> {
    use JoinKind::*;
    let inner = || joined(Inner, scan(0), scan(1));
    let some = |input: Plan| {
        let predicate = compare_with(CompareOp::Gt, column(&input, WIDTH + G), 3);
        keep(input, predicate)
    };
    let none = |input: Plan| {
        let predicate = compare_with(CompareOp::Lt, column(&input, WIDTH + G), -1);
        keep(input, predicate)
    };
    let narrow = |input: Plan, columns: &[usize]| {
        let exprs = columns.iter().map(|index| column(&input, *index)).collect();
        values_of(input, exprs)
    };
    let first = |input: Plan| {
        let keys = [WIDTH + D, D].map(|index| sort_key(column(&input, index), true, false));
        sorted(input, keys.to_vec(), Some(20))
    };
    let groups = || aggregated(scan(0), &[K], 0);
    let chain = || {
        let below = narrow(joined(Inner, scan(1), scan(0)), &[K, G, V, D, T]);
        joined(ProbeOuter, scan(0), below)
    };
    vec![
        ("all of a join", aggregated(inner(), &[], WIDTH), false),
        ("groups of a join", aggregated(inner(), &[G], 0), false),
        ("groups of a part of a join", aggregated(some(inner()), &[WIDTH + G], 0), false),
        ("many groups of a join", aggregated(inner(), &[V], WIDTH), false),
        ("no row of a join", aggregated(none(inner()), &[], WIDTH), false),
        ("no group of a join", aggregated(none(inner()), &[G], WIDTH), false),
        ("all of an outer join", aggregated(joined(FullOuter, scan(0), scan(1)), &[], 0), false),
        ("build rows", aggregated(joined(BuildAnti, scan(0), scan(1)), &[G], 0), false),
        ("probe rows", aggregated(joined(ProbeSemi, scan(0), scan(1)), &[], 0), false),
        ("two joins", aggregated(chain(), &[G], 0), false),
        ("first rows of a join", first(inner()), true),
        ("first rows of two joins", first(chain()), true),
        ("some rows of a join", narrow(some(inner()), &[D, WIDTH + D]), false),
        ("all of groups", counted(groups(), Some(column(&groups(), 1))), false),
        ("groups of windows", counted(windowed(scan(0)), Some(column(&windowed(scan(0)), WIDTH))), false),
    ]
}

fn counted(input: Plan, argument: Option<Expr>) -> Plan {
    let aggregates =
        vec![of_longs(AggregateFunction::Count, None), of_longs(AggregateFunction::Sum, argument)];
    groups_of(input, Vec::new(), aggregates)
}

fn answer(output: &QueryOutput, ordered: bool) -> Vec<String> {
    if ordered { rows_of(&output.batch, true) } else { rounded_rows(&output.batch) }
}

#[test]
fn plans_in_parts_give_what_they_give_as_a_whole() {
    let (small, large) = ([table(500, 300), table(800, 500)], [table(4_000, 3_000), table(7_000, 4_000)]);
    let plans = plans();
    let mut cases = Vec::new();
    for number in 0..plans.len() {
        for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
            cases.extend([12, 15, 16, 17, 18, 19, 20].map(|bits| (number, device, 1_u64 << bits)));
        }
    }
    let (mut answers, mut in_parts) = (0, BTreeMap::<(usize, bool), usize>::new());
    for (number, device, limit) in covering("parts", cases, 30, |(number, device, limit)| {
        [format!("{number}"), format!("{device:?}"), format!("{limit}")].to_vec()
    }) {
        let (name, plan, ordered) = &plans[number];
        let sources = if device == DeviceChoice::Cpu { &large } else { &small };
        let expected = answer(&run(&Engine::new(), plan, sources, on(device, &[])), *ordered);
        let engine = Engine::new();
        let options = QueryOptions { memory_limit: Some(limit), ..on(device, &[]) };
        for _ in 0..2 {
            match try_run(&engine, plan, sources, &options) {
                Ok(output) => {
                    assert_eq!(answer(&output, *ordered), expected, "{name} on {device:?} in {limit}");
                    answers += 1;
                    let steps = &output.metrics.steps;
                    let reads_again = steps.iter().any(|step| step.contains("that each read the input"));
                    if reads_again || steps.iter().any(|step| step.contains("parts by keys")) {
                        *in_parts.entry((number, reads_again)).or_default() += 1;
                    }
                }
                Err(EngineError::Device(DeviceError::OutOfMemory { .. }) | EngineError::Fallback(_)) => (),
                Err(error) => panic!("{name} on {device:?} in {limit}: {error}"),
            }
        }
    }
    assert!(answers >= floor(120), "{answers} answers");
    assert!(in_parts.len() >= floor(plans.len()), "{in_parts:?}");
}

/// A sum over a part is beyond its type, where that over all rows is not.
#[test]
fn sums_of_parts_may_be_too_large() {
    let rows = 6_000;
    let value = |row: i64| if row % 2 == 0 { i64::MAX / 10 } else { -(i64::MAX / 10) };
    let columns: Vec<ArrayRef> = vec![
        maybe_longs((0..rows).map(Some)),
        longs((0..rows).map(value)),
        maybe_longs((0..rows).map(|_| None)),
        doubles((0..rows).map(|row| row as f64)),
        maybe_texts((0..rows).map(|row| Some(format!("a text of some length {row}")))),
    ];
    let table = table_of(&COLUMNS, columns);
    let input = joined(JoinKind::Inner, scan(0), scan(1));
    let sum = of_longs(AggregateFunction::SumExact, Some(column(&input, WIDTH + G)));
    let text = of(AggregateFunction::Max, Some(column(&input, T)), DataType::Utf8);
    let plan = groups_of(input, Vec::new(), vec![sum, text]);
    let sources = [table.clone(), table];
    let mut answers = 0;
    for limit in [16, 17, 18, 19, 20].map(|bits| 1_u64 << bits) {
        let options = QueryOptions { memory_limit: Some(limit), ..cpu() };
        match try_run(&Engine::new(), &plan, &sources, &options) {
            Ok(output) => {
                assert_eq!(rows_of(&output.batch, false), ["0|a text of some length 999"], "in {limit}");
                answers += 1;
            }
            Err(EngineError::Device(DeviceError::OutOfMemory { .. }) | EngineError::Fallback(_)) => (),
            // Rows of any order may add up to too much on their way.
            Err(EngineError::Query(QueryError::Overflow) | EngineError::SumOverflow { .. }) => (),
            Err(error) => panic!("in {limit}: {error}"),
        }
    }
    assert!(answers > 0);
}
