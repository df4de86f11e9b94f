//! Grouping sets: what is made of a finer set's groups is what is made of the rows, on the CPU and on the interpreter, for sets
//! at random, every function, keys of every kind with NULLs, many rows, one and none.

use crate::common::*;
use kelpie_compile::plan::{GroupingSet, GroupingSets};

use AggregateFunction::*;

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };
/// The largest decimal of 38 digits.
const MOST: i128 = 10i128.pow(38) - 1;

const KEYS: usize = 4;

const COLUMNS: [Column; 9] = [
    ("dense", DataType::Int32, true),
    ("text", DataType::Utf8, true),
    ("wide", DataType::Int64, true),
    ("float", DataType::Float64, false),
    ("number", DataType::Int64, true),
    ("decimal", DECIMAL, true),
    ("value", DataType::Float64, false),
    ("string", DataType::Utf8, true),
    ("many", DataType::Utf8, false),
];

/// Keys of a few values each, whose NULLs are no keys that are left out; numbers that wrap around, decimals near their end, floats
/// whose sums are exact, texts with and without a dictionary.
fn table(rows: usize, most: i128) -> Arc<Table> {
    let mut random = Random(rows as u64 + 5);
    let mut pick = |below: usize| -> Vec<usize> { (0..rows).map(|_| random.below(below)).collect() };
    let (dense, text, wide, float) = (pick(4), pick(5), pick(6), pick(3));
    let (number, decimal, value, string) = (pick(50), pick(5), pick(4000), pick(9));
    let number = number.into_iter().map(|number| match number {
        0 => None,
        1 => Some(i64::MAX),
        2 => Some(i64::MIN),
        number => Some(number as i64 - 20),
    });
    let decimal = decimal.into_iter().map(|decimal| match decimal {
        0 => None,
        1 => Some(most),
        2 => Some(-most),
        decimal => Some(decimal as i128),
    });
    let columns: Vec<ArrayRef> = vec![
        maybe_ints(dense.into_iter().map(|key| (key > 0).then_some(key as i32 * 7))),
        maybe_texts(text.into_iter().map(|key| (key > 1).then(|| format!("k é {key}")))),
        maybe_longs(
            wide.into_iter().map(|key| (key > 0).then_some((key as i64).wrapping_mul(0x5851_f42d_4c95_7f2d))),
        ),
        doubles(float.into_iter().map(|key| [0.0, 1.5, f64::NAN][key])),
        maybe_longs(number),
        decimals(decimal, 38, 2),
        doubles(value.iter().map(|value| *value as f64 / 4.0 - 300.0)),
        maybe_texts(string.iter().map(|key| (*key > 0).then(|| format!("s {key}")))),
        texts((0..rows).map(|row| format!("many {}", row * 7919 % 10_007))),
    ];
    table_of(&COLUMNS, columns)
}

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

/// `CASE WHEN number < 5 THEN number END`: an aggregate with a FILTER.
fn filtered() -> Expr {
    value_where(compare_with(CompareOp::Lt, column(4), 5), column(4))
}

/// Every function, in so many lists.
fn aggregates() -> Vec<Vec<Aggregate>> {
    let float = || DataType::Float64;
    let once = distinct(of_longs(Max, Some(column(4))));
    vec![
        vec![
            of(Sum, Some(column(6)), float()),
            of(Count, Some(column(4)), DataType::Int64),
            of(Count, None, DataType::Int64),
            of(Sum, Some(column(4)), DataType::Int64),
            of(Sum, Some(filtered()), DataType::Int64),
            of(Min, Some(column(4)), DataType::Int64),
            once,
            of(Avg, Some(column(6)), float()),
        ],
        vec![of(Sum, Some(column(6)), float()), of(Max, Some(column(3)), float())],
        vec![
            of(BitAnd, Some(column(4)), DataType::Int64),
            of(BitOr, Some(column(4)), DataType::Int64),
            of(BitXor, Some(column(4)), DataType::Int64),
            of(Min, Some(column(5)), DECIMAL),
            of(Min, Some(column(7)), DataType::Utf8),
            of(Max, Some(column(8)), DataType::Utf8),
        ],
        vec![
            of(VarSample, Some(column(6)), float()),
            of(VarPopulation, Some(column(6)), float()),
            of(StddevSample, Some(column(6)), float()),
            of(StddevPopulation, Some(column(6)), float()),
        ],
        Vec::new(),
    ]
}

/// Groups of the input by `keys`, in sets of places among these.
fn plan(input: Plan, keys: &[usize], sets: &[Vec<usize>], aggregates: Vec<Aggregate>) -> GroupingSets {
    let set = |(index, set): (usize, &Vec<usize>)| GroupingSet {
        has: (0..keys.len()).map(|key| set.contains(&key)).collect(),
        identifier: index as i128,
    };
    let sets = sets.iter().enumerate().map(set).collect();
    let mut columns: Vec<Field> =
        keys.iter().map(|key| Field { nullable: true, ..fields_of(&COLUMNS)[*key].clone() }).collect();
    columns.push(Field { name: "set".into(), data_type: DataType::Int64, nullable: false });
    columns.extend(aggregates.iter().map(|aggregate| aggregate.field.clone()));
    let keys = keys.iter().map(|key| column(*key)).collect();
    GroupingSets { input, keys, sets, aggregates, fields: columns }
}

fn some_sets(random: &mut Random, keys: usize) -> Vec<Vec<usize>> {
    match random.below(4) {
        0 => (0..=keys).rev().map(|count| (0..count).collect()).collect(),
        1 => (0..1 << keys).map(|bits| (0..keys).filter(|key| bits >> key & 1 == 1).collect()).collect(),
        _ => {
            let count = 2 + random.below(4);
            (0..count).map(|_| (0..keys).filter(|_| random.below(2) == 0).collect()).collect()
        }
    }
}

fn run(
    engine: &Engine,
    plan: Plan,
    table: &Arc<Table>,
    options: &QueryOptions,
) -> Result<Vec<String>, EngineError> {
    Ok(rounded_rows(&try_run(engine, plan, table, options)?.batch))
}

/// Runs a plan by aggregations of its input alone, and with the node's values of `grouping_levels`; panics where they differ.
fn compare(
    engine: &Engine,
    plan: &GroupingSets,
    table: &Arc<Table>,
    options: &QueryOptions,
    more: &[(&str, &str)],
) {
    let what = || format!("{:?} {:?} {:?}", plan.sets, plan.keys, options);
    let expected = run(engine, plan.united(), table, options).unwrap_or_else(|e| panic!("{}: {e}", what()));
    for levels in ["direct", "upwards", "rule"] {
        let values: Vec<(&str, &str)> = [("grouping_levels", levels)].iter().chain(more).copied().collect();
        let found =
            run(engine, Plan::GroupingSets(Box::new(plan.clone())), table, &forcing(options, &values));
        let found = found.unwrap_or_else(|error| panic!("{levels} {more:?} {}: {error}", what()));
        assert!(found == expected, "{levels} {more:?} {}:\n{found:#?}\n{expected:#?}", what());
    }
}

fn random_sets(device: DeviceChoice, sizes: &[usize], rounds: usize) {
    let engine = Engine::new();
    let mut random = Random(7);
    for rows in sizes {
        // Sums of these are within 38 digits.
        let table = table(*rows, MOST / 20_000);
        // Each list of aggregates.
        let picked = covering(&format!("sets of {rows} rows"), 0..rounds, 6, |round| vec![round % 5]);
        for round in 0..rounds {
            let mut keys: Vec<usize> = (0..KEYS).filter(|_| random.below(3) > 0).collect();
            if keys.is_empty() {
                keys.push(random.below(KEYS));
            }
            let sets = some_sets(&mut random, keys.len());
            let lists = aggregates();
            let mut own = lists[round % lists.len()].clone();
            own.extend((round % 2 == 0).then(|| of(Sum, Some(column(5)), DECIMAL)));
            let average = DataType::Decimal128 { precision: 38, scale: 6 };
            own.extend((round % 4 == 1).then(|| of(Avg, Some(column(5)), average)));
            let models = [
                MicroModel::Resolution,
                MicroModel::Pipelined,
                MicroModel::MultiPass,
                MicroModel::OperatorAtATime,
            ];
            let micro_model = if round % 3 == 2 { models[random.below(4)] } else { MicroModel::Resolution };
            let options = QueryOptions { micro_model, ..on(device, &[]) };
            if picked.contains(&round) {
                compare(&engine, &plan(scan(), &keys, &sets, own), &table, &options, &[]);
            }
        }
    }
}

#[test]
fn sets_at_random_on_cpu() {
    random_sets(DeviceChoice::Cpu, &[0, 1, 40, 3000], 20);
}

#[test]
fn sets_at_random_on_simt() {
    random_sets(DeviceChoice::Simt, &[0, 1, 300], 10);
}

#[test]
fn sets_at_random_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        random_sets(DeviceChoice::Cuda, &[0, 1, 3000], 20);
    }
}

/// However the finer groups are made: in parts, sorted, in batches, near; and of many texts without a dictionary.
#[test]
fn finer_groups_of_every_kind() {
    let engine = Engine::new();
    let table = table(20_000, MOST / 20_000);
    let rollup = [vec![0, 1, 2], vec![0, 1], vec![0], vec![]];
    let ways: [&[(&str, &str)]; 8] = [
        &[("group_parts", "16"), ("group_table", "hash")],
        &[("group_order", "sorted")],
        &[("batch_rows", "64"), ("group_table", "hash"), ("slot_layout", "beside")],
        &[("local_preaggregation", "256"), ("group_table", "hash"), ("preaggregation_search", "key")],
        &[("accumulator_memory", "global"), ("single_sum", "passes")],
        &[("accumulator_memory", "block")],
        &[("cell_packing", "packed"), ("accumulator_memory", "global")],
        &[("cell_packing", "packed"), ("key_claims", "words"), ("group_table", "hash")],
    ];
    let mut cases = Vec::new();
    for way in ways {
        for keys in [[0, 1, 2], [0, 3, 8]] {
            cases.extend((0..aggregates().len()).map(|list| (way, keys, list)));
        }
    }
    for (way, keys, list) in covering("finer groups", cases, 8, |(way, keys, list)| {
        [format!("{way:?}"), format!("{keys:?}"), format!("list {list}")].into()
    }) {
        let plan = plan(scan(), &keys, &rollup, aggregates().swap_remove(list));
        compare(&engine, &plan, &table, &on(DeviceChoice::Cpu, &[]), way);
    }
}

/// The input is read in blocks, and joins are made again where it is read again.
#[test]
fn rows_in_blocks_and_rows_of_joins() {
    let engine = Engine::new();
    let table = table(2000, MOST / 20_000);
    let sets = [vec![0, 1], vec![1], vec![0], vec![], vec![1]];
    let blocks = QueryOptions { macro_model: MacroModel::Batch, block_bytes: Some(16 << 10), ..cpu() };
    let key = |index: usize| (column(index), column(index));
    let join = Plan::Join(Box::new(join_of(JoinKind::BuildSemi, scan(), scan(), vec![key(8), key(4)])));
    for list in aggregates() {
        compare(&engine, &plan(scan(), &[0, 1], &sets, list.clone()), &table, &blocks, &[]);
        for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
            compare(
                &engine,
                &plan(join.clone(), &[0, 1], &sets, list.clone()),
                &table,
                &on(device, &[]),
                &[],
            );
        }
    }
}

/// Twelve rows whose sums by the first key, and those by the second, are nothing, while those by both are beyond their type.
fn opposite_sums() -> Arc<Table> {
    let rows = table(12, 1);
    let batch = &rows.0[0];
    let mut columns = batch.columns().to_vec();
    columns[0] = ints((0..12).map(|row| row / 6));
    columns[1] = texts((0..12).map(|row| ["a", "b"][row / 3 % 2]));
    let sign = |row: i128| if row / 3 % 3 == 0 { 1 } else { -1 };

    columns[5] = decimals((0..12).map(|row| sign(row) * (MOST / 2)), 38, 2);
    Arc::new(Table(vec![RecordBatch::try_new(batch.schema(), columns).expect("a batch")]))
}

/// A set that nobody asked for reports no sum beyond its type, and sums of it are whole: what is too much in some finer group may
/// be none in a coarser one. Where a set that is asked for has such a sum, the query fails as it would of the rows.
#[test]
fn sums_beyond_their_type_are_those_of_sets_that_are_asked_for() {
    let engine = Engine::new();
    let table = opposite_sums();
    let average = DataType::Decimal128 { precision: 38, scale: 6 };
    let sum = || of(Sum, Some(column(5)), DECIMAL);
    for (sets, fails) in [
        (vec![vec![0], vec![1]], false),
        (vec![vec![0], vec![1], vec![]], false),
        (vec![vec![0, 1], vec![0]], true),
        (vec![vec![0], vec![1], vec![0, 1], vec![]], true),
    ] {
        for list in [vec![sum()], vec![sum(), of(Avg, Some(column(5)), average.clone())]] {
            for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
                let plan = plan(scan(), &[0, 1], &sets, list.clone());
                let options = on(device, &[]);
                let text = |error: EngineError| error.to_string();
                let expected = run(&engine, plan.united(), &table, &options).map_err(text);
                let upwards = forcing(&options, &[("grouping_levels", "upwards")]);
                let found = run(&engine, Plan::GroupingSets(Box::new(plan)), &table, &upwards).map_err(text);
                assert_eq!(found, expected, "{sets:?}");
                assert_eq!(found.is_err(), fails, "{sets:?}");
            }
        }
    }
}

/// Where memory is short, one set is made after the other, each in parts.
#[test]
fn sets_of_many_groups_in_little_memory() {
    let engine = Engine::new();
    let table = table(20_000, MOST / 20_000);
    let sets = [vec![0, 1], vec![0], vec![]];
    let options = QueryOptions { memory_limit: Some(2 << 20), ..cpu() };
    let list = vec![of(Count, None, DataType::Int64), of(Sum, Some(column(4)), DataType::Int64)];
    let plan = plan(scan(), &[8, 0], &sets, list);
    compare(&engine, &plan, &table, &options, &[]);
    let plan = Plan::GroupingSets(Box::new(plan));
    let query = Query { plan, sources: vec![Arc::clone(&table) as _], options };
    let steps = engine.execute(&query, &CancelToken::default()).expect("it runs in parts").metrics.steps;
    assert!(steps.iter().any(|step| step.contains("parts by keys")), "{steps:?}");
}

#[test]
fn values_that_count_once_are_counted_of_the_rows() {
    let engine = Engine::new();
    let table = table(300, 1);
    let once = distinct(of_longs(Sum, Some(column(4))));
    let sets = [vec![0, 1], vec![0], vec![]];
    compare(
        &engine,
        &plan(scan(), &[0, 1], &sets, vec![once.clone()]),
        &table,
        &on(DeviceChoice::Cpu, &[]),
        &[],
    );
    let upwards = forcing(&on(DeviceChoice::Cpu, &[]), &[("aggregate0.grouping_levels", "upwards")]);
    let plan = Plan::GroupingSets(Box::new(plan(scan(), &[0, 1], &sets, vec![once])));
    let error = run(&engine, plan, &table, &upwards).expect_err("counts once");
    assert!(error.to_string().ends_with("Sum counts equal values once"), "{error}");
}

/// Workers take places of a build side many at a time, more than it has where several pipelines write to it: whoever reads it stays within.
#[test]
fn several_pipelines_write_to_one_build_side() {
    const ROWS: usize = 100;
    let engine = Engine::new();
    let table = table(ROWS, MOST / 20_000);
    let sets = [vec![0, 1], vec![0], vec![]];
    let most = (sets.len() * ROWS) as u64
        + 1024 * std::thread::available_parallelism().map_or(1, |workers| workers.get() as u64);
    for kind in [JoinKind::BuildOuter, JoinKind::FullOuter, JoinKind::BuildAnti, JoinKind::Inner] {
        let build = Plan::GroupingSets(Box::new(plan(scan(), &[0, 1], &sets, Vec::new())));
        let keys = vec![(column(1), column(1))];
        let join = Plan::Join(Box::new(join_of(kind, build, scan(), keys)));
        let output = crate::common::run(&engine, join, &table, cpu());
        for pipeline in &output.metrics.pipelines {
            assert!(pipeline.rows_in <= most, "{kind:?}: {} reads {}", pipeline.name, pipeline.rows_in);
        }
    }
}
