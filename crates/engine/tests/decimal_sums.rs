//! Sums of decimals whose values and rows do not prove them to be within 128 bits: the sum itself, or an error that names
//! the aggregate, wherever the sum is on the way and whoever adds it up.

use crate::common::*;

/// The largest decimal of 38 digits.
const MOST: i128 = 10i128.pow(38) - 1;
/// The type of the values and of their sums.
const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };
const SUM: &str = "sum(t.value)";

/// One row: group, value, and whether a filter lets it pass.
type Row = (i32, i128, bool);

const COLUMNS: [Column; 4] = [
    ("dense", DataType::Int32, false),
    ("wide", DataType::Int64, false),
    ("value", DECIMAL, false),
    ("passes", DataType::Boolean, false),
];

fn table(rows: &[Row]) -> Arc<Table> {
    let wide = |group: i32| (i64::from(group) - 1).wrapping_mul(4_000_000_000_000_000_000);
    let arrays = vec![
        ints(rows.iter().map(|row| row.0)),
        longs(rows.iter().map(|row| wide(row.0))),
        decimals(rows.iter().map(|row| row.1), 38, 2),
        Arc::new(BooleanArray::from_iter(rows.iter().map(|row| Some(row.2)))),
    ];
    table_of(&COLUMNS, arrays)
}

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

/// What is aggregated: the values, each once where `distinct`, and only those that pass where `filtered`.
#[derive(Debug, Clone, Copy)]
struct Form {
    key: Option<usize>,
    distinct: bool,
    filtered: bool,
}

fn plan(form: Form, input: Plan) -> Plan {
    let value = if form.filtered { value_where(column(3), column(2)) } else { column(2) };
    let aggregate = |function, name: &str, data_type| {
        let aggregate = of(function, Some(value.clone()), data_type);
        let field = Field { name: name.into(), ..aggregate.field };
        Aggregate { distinct: form.distinct, field, ..aggregate }
    };
    let aggregates = vec![
        aggregate(AggregateFunction::Count, "count(t.value)", DataType::Int64),
        aggregate(AggregateFunction::Sum, SUM, DECIMAL),
    ];
    groups_of(input, form.key.map(column).into_iter().collect(), aggregates)
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
    every_model(&lanes())
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
        let outcome = try_run(engine(), plan(form, scan()), &source, &options);
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
        let keys = keys.as_primitive::<Int64Type>().clone();
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
        let pairs =
            Plan::Join(Box::new(join_of(JoinKind::Inner, scan(), probe, vec![(column(0), column(0))])));
        let names = vec![String::new(); 4];
        Plan::Project { input: Box::new(pairs), exprs: (0..4).map(column).collect(), names }
    };
    let joined = (0..5).fold(scan(), |plan, _| doubled(plan));
    let beyond = keep(joined.clone(), positive());
    // The other models store the rows of each join, and so only differ in what is not under test here.
    let in_registers = |options: &QueryOptions| {
        matches!(options.micro_model, MicroModel::Pipelined | MicroModel::Resolution)
    };
    let options = configurations().into_iter().filter(in_registers);
    for options in covering("very many rows", options, 0, facets) {
        let run = |key, input: &Plan| {
            let plan = plan(Form { key, distinct: false, filtered: false }, input.clone());
            try_run(engine(), plan, &source, &options)
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
    compare_with(CompareOp::Gt, column(2), 0)
}
