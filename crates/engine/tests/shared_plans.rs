//! What a plan has several times is run once: its rows are those of the plan as it is written, on the device and on the host.

use kelpie_compile::plan::AggregateFunction::{Count, Max, Min, Sum};

use crate::common::*;

const COLUMNS: [Column; 4] = [
    ("k", DataType::Int64, true),
    ("g", DataType::Utf8, true),
    ("v", DataType::Int64, false),
    ("w", DataType::Int64, true),
];

fn table(rows: usize) -> Arc<dyn TableSource> {
    let every = |nth: usize, row: usize, value: i64| (!row.is_multiple_of(nth)).then_some(value);
    table_of(
        &COLUMNS,
        vec![
            maybe_longs((0..rows).map(|row| every(7, row, (row * 31 % 40) as i64))),
            maybe_texts((0..rows).map(|row| (row % 5 > 0).then(|| format!("g{}", row % 9)))),
            longs((0..rows).map(|row| (row % 100) as i64)),
            maybe_longs((0..rows).map(|row| every(3, row, row as i64 - 50))),
        ],
    )
}

/// A scan of some columns.
fn scan(source: usize, columns: &[usize]) -> Plan {
    let fields = columns.iter().map(|column| fields_of(&COLUMNS).remove(*column)).collect();
    Plan::Scan(Scan { source, table: "t".into(), columns: columns.to_vec(), fields })
}

fn groups(input: &Plan, keys: &[usize], aggregates: &[(AggregateFunction, usize)]) -> Plan {
    let of =
        |(function, index): &(AggregateFunction, usize)| of_longs(*function, Some(column(input, *index)));
    groups_of(
        input.clone(),
        keys.iter().map(|key| column(input, *key)).collect(),
        aggregates.iter().map(of).collect(),
    )
}

fn joined(build: Plan, probe: Plan) -> Plan {
    let keys = vec![(column(&build, 0), column(&probe, 0))];
    Plan::Join(Box::new(join_of(JoinKind::Inner, build, probe, keys)))
}

/// Plans, and how many of their sub-plans are shared.
fn plans() -> Vec<(&'static str, Plan, usize)> {
    let all = scan(0, &[0, 1, 2, 3]);
    let positive =
        |input: &Plan, index| keep(input.clone(), compare_with(CompareOp::Gt, column(input, index), 10));
    let sums = |source| groups(&scan(source, &[0, 2]), &[0], &[(Sum, 1)]);
    let of_texts = groups(&scan(0, &[1, 3]), &[0], &[(Max, 1), (Count, 1)]);
    let narrow = |source| {
        let input = positive(&scan(source, &[2, 0]), 0);
        groups(&input, &[1], &[(Min, 0)])
    };
    let wide = |source| {
        let input = positive(&scan(source, &[0, 2, 3]), 1);
        groups(&input, &[0], &[(Sum, 2), (Max, 1)])
    };
    let first = limit(
        sorted(
            all.clone(),
            vec![
                sort_key(column(&all, 3), true, false),
                sort_key(column(&all, 2), false, false),
                sort_key(column(&all, 0), false, false),
                sort_key(column(&all, 1), false, false),
            ],
            None,
        ),
        3,
        Some(40),
    );
    let pairs = |inner: &Plan| joined(groups(inner, &[0], &[(Count, 2)]), groups(inner, &[0], &[(Sum, 2)]));
    vec![
        ("of one scan", joined(sums(0), sums(0)), 1),
        ("of two scans of one table", joined(sums(0), sums(1)), 1),
        ("of two tables", joined(sums(0), sums(2)), 0),
        ("of texts", joined(of_texts.clone(), of_texts.clone()), 1),
        ("three times", joined(joined(sums(0), sums(1)), sums(0)), 1),
        ("other columns and aggregates", joined(narrow(0), wide(1)), 1),
        ("two of two", joined(joined(narrow(0), wide(1)), joined(sums(0), sums(0))), 2),
        (
            "one inside another",
            joined(
                groups(&sums(0), &[1], &[(Count, 0)]),
                joined(groups(&sums(1), &[1], &[(Count, 0)]), sums(0)),
            ),
            2,
        ),
        ("first rows", joined(first.clone(), first.clone()), 1),
        ("groups of first rows", pairs(&first), 1),
        ("a union", Plan::Union { fields: sums(0).fields(), inputs: vec![sums(0), sums(1), sums(0)] }, 1),
        ("nothing", joined(sums(0), narrow(0)), 0),
        (
            "groups of groups of joins",
            joined(
                groups(&joined(sums(0), all.clone()), &[0], &[(Count, 1)]),
                groups(&joined(sums(0), all), &[0], &[(Max, 4)]),
            ),
            1,
        ),
    ]
}

fn steps(output: &QueryOutput) -> usize {
    output.metrics.steps.iter().filter(|step| step.contains("are used")).count()
}

#[test]
fn what_is_there_several_times_is_run_once() {
    for rows in [0, 1, 300, 5000] {
        // Two scans of one table, which is known by its identity or because it is the same.
        let (shared, other) = (table(rows), table(rows / 2));
        let sources = vec![Arc::clone(&shared), shared, other];
        for (name, plan, count) in plans() {
            for device in devices() {
                let models = [MacroModel::Auto, MacroModel::Batch];
                for macro_model in models {
                    let options = QueryOptions { macro_model, ..on(device, &[]) };
                    let engine = Engine::new();
                    let plain = QueryOptions { shared_plans: false, ..options.clone() };
                    let expected = run(&engine, &plan, &sources, &plain);
                    let actual = run(&engine, &plan, &sources, &options);
                    assert_eq!(
                        rows_of(&actual.batch, false),
                        rows_of(&expected.batch, false),
                        "{name}, {rows} rows, {options:?}"
                    );
                    assert_eq!((steps(&expected), steps(&actual)), (0, count), "{name}, {rows} rows");
                    let again = run(&engine, &plan, &sources, &options);
                    assert_eq!(rows_of(&again.batch, false), rows_of(&expected.batch, false), "{name} again");
                }
            }
        }
    }
}

#[test]
fn what_waits_for_a_value_is_not_shared() {
    let input = scan(0, &[0, 2]);
    let value = Expr { kind: ExprKind::Scalar(0), data_type: DataType::Int64, nullable: true };
    let above = keep(input.clone(), compare(CompareOp::Gt, column(&input, 1), value));
    let twice = joined(groups(&above, &[0], &[(Sum, 1)]), groups(&above, &[0], &[(Sum, 1)]));
    let subquery = groups(&scan(0, &[2]), &[], &[(Min, 0)]);
    let plan = Plan::Scalars { input: Box::new(twice), subqueries: vec![subquery.clone()] };
    let (engine, sources) = (Engine::new(), vec![table(500)]);
    for device in devices() {
        let plain = QueryOptions { shared_plans: false, ..on(device, &[]) };
        let (expected, actual) =
            (run(&engine, &plan, &sources, &plain), run(&engine, &plan, &sources, on(device, &[])));
        assert_eq!(rows_of(&actual.batch, false), rows_of(&expected.batch, false));
        assert_eq!(steps(&actual), 0);
    }
}

#[test]
fn little_memory_is_enough() {
    let (engine, sources) = (Engine::new(), vec![table(4000), table(4000), table(10)]);
    for (name, plan, _) in plans() {
        let plain = QueryOptions { shared_plans: false, ..on(DeviceChoice::Simt, &[]) };
        let expected = run(&engine, &plan, &sources, &plain);
        for limit in [64 << 10, 128 << 10, 512 << 10] {
            let options = QueryOptions { memory_limit: Some(limit), ..on(DeviceChoice::Simt, &[]) };
            let Ok(actual) = try_run(&engine, &plan, &sources, &options) else { continue };
            assert_eq!(rows_of(&actual.batch, false), rows_of(&expected.batch, false), "{name}, {limit}");
        }
    }
}
