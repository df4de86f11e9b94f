//! DISTINCT inside aggregates: what groups by pairs of group and value give is what a set of the pairs gives, and what a plain
//! evaluation gives, however the groups are found; by keys and values of every kind with NULLs, many rows, one and none.

use crate::common::*;

use AggregateFunction::*;

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 2 };
/// The largest decimal of 38 digits.
const MOST: i128 = 10i128.pow(38) - 1;

/// The columns: keys, then values that may count once, then others.
const DENSE: usize = 0;
const WIDE: usize = 1;
const TEXT: usize = 2;
const FLOAT: usize = 3;
const INT: usize = 4;
const LONG: usize = 5;
const STRING: usize = 6;
const DECIMALS: usize = 7;
const FLAG: usize = 8;
const DAY: usize = 9;
const NUMBER: usize = 10;
const AMOUNT: usize = 11;

const COLUMNS: [Column; 12] = [
    ("dense", DataType::Int32, true),
    ("wide", DataType::Int64, true),
    ("text", DataType::Utf8, true),
    ("float", DataType::Float64, false),
    ("int", DataType::Int32, true),
    ("long", DataType::Int64, false),
    ("string", DataType::Utf8, true),
    ("decimal", DECIMAL, true),
    ("flag", DataType::Boolean, true),
    ("day", DataType::Date32, false),
    ("number", DataType::Int64, true),
    ("amount", DataType::Float64, false),
];

/// How rows are spread over groups and values.
#[derive(Debug, Clone, Copy)]
enum Spread {
    /// A few groups of a few values each.
    Even,
    /// Nine of ten rows in one group with one value.
    Skewed,
    /// One group.
    One,
    /// Every row has a group and a value of its own.
    All,
}

/// Keys and values, of which one of eleven is NULL where it may be. Integers at both ends of their type, texts that are empty or
/// have characters of several bytes, both zeros and NaN among the keys that are floats, decimals whose sums need more than 128 bits.
fn table(rows: usize, spread: Spread, most: i128) -> Arc<Table> {
    let mut next = random(rows as u64 + 5);
    let mut columns = Vec::new();
    for index in 0..COLUMNS.len() {
        let own = (0..rows).map(|row| {
            let (pick, value) = (next() as usize, next() as usize);
            match spread {
                Spread::All if index < NUMBER => row,
                Spread::Skewed if index < NUMBER && pick % 10 > 0 => 3,
                Spread::One if index < INT => 3,
                _ => value % if index < INT { 7 } else { 40 },
            }
        });
        columns.push(own.collect::<Vec<usize>>());
    }
    let some = |index: usize, shift: usize| {
        let own = columns[index].clone().into_iter();
        own.map(move |value| (!(value + shift).is_multiple_of(11)).then_some(value))
    };
    let spread_out = |value: usize| match value {
        1 => i64::MIN,
        2 => i64::MAX,
        value => (value as i64).wrapping_mul(0x5851_f42d_4c95_7f2d),
    };
    let decimal = |value: usize| match value {
        1 => most,
        2 => -most,
        value => value as i128 * 101 - 700,
    };
    let named = |name: &'static str| {
        move |value: usize| if value == 5 { String::new() } else { format!("{name} é {value}") }
    };
    let zeros = |(row, value): (usize, &usize)| match (value, row % 2) {
        (0, _) => f64::NAN,
        (1, 0) => -0.0,
        (1, _) => 0.0,
        (value, _) => *value as f64,
    };
    let map = |index: usize, shift: usize| some(index, shift).map(|value| value.map(|value| value as i32));
    let arrays: Vec<ArrayRef> = vec![
        maybe_ints(map(DENSE, 4)),
        maybe_longs(some(WIDE, 5).map(|value| value.map(spread_out))),
        maybe_texts(some(TEXT, 6).map(|value| value.map(named("key")))),
        doubles(columns[FLOAT].iter().enumerate().map(zeros)),
        maybe_ints(map(INT, 4).map(|value| match value {
            Some(1) => Some(i32::MIN),
            Some(2) => Some(i32::MAX),
            value => value,
        })),
        longs(columns[LONG].iter().map(|value| spread_out(*value))),
        maybe_texts(some(STRING, 7).map(|value| value.map(named("ß")))),
        decimals(some(DECIMALS, 2).map(|value| value.map(decimal)), 38, 2),
        Arc::new(BooleanArray::from_iter(
            some(FLAG, 9).map(|value| value.map(|value| value.is_multiple_of(2))),
        )),
        Arc::new(Date32Array::from_iter_values(columns[DAY].iter().map(|value| *value as i32 - 20))),
        maybe_longs(some(NUMBER, 0).map(|value| value.map(|value| value as i64 - 20))),
        doubles(columns[AMOUNT].iter().map(|value| *value as f64 / 4.0)),
    ];
    table_of(&COLUMNS, arrays)
}

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

fn below(index: usize, limit: i128) -> Expr {
    compare_with(CompareOp::Lt, column(index), limit)
}

/// `CASE WHEN number < limit THEN column END`: the argument of an aggregate with a FILTER.
fn filtered(index: usize, limit: i128) -> Expr {
    value_where(below(NUMBER, limit), column(index))
}

fn once(function: AggregateFunction, argument: Expr, data_type: DataType) -> Aggregate {
    distinct(of(function, Some(argument), data_type))
}

fn count() -> Aggregate {
    of_longs(Count, None)
}

/// Lists of aggregates of which those that count once have one argument.
fn lists() -> Vec<Vec<Aggregate>> {
    let int = || DataType::Int64;
    let float = || DataType::Float64;
    let average = DataType::Decimal128 { precision: 38, scale: 6 };
    vec![
        vec![
            once(Sum, cast(column(INT), int()), int()),
            count(),
            once(Count, column(INT), int()),
            of(Sum, Some(column(NUMBER)), int()),
            once(Avg, cast(column(INT), float()), float()),
            of(Min, Some(column(NUMBER)), int()),
            of(Max, Some(column(TEXT)), DataType::Utf8),
            of(Avg, Some(column(AMOUNT)), float()),
            of(StddevSample, Some(column(AMOUNT)), float()),
            once(VarPopulation, cast(column(INT), float()), float()),
        ],
        vec![once(Count, column(LONG), int())],
        vec![
            once(Count, column(STRING), int()),
            once(Min, column(STRING), DataType::Utf8),
            of(Count, Some(column(NUMBER)), int()),
        ],
        vec![
            once(Count, column(DECIMALS), int()),
            of(Sum, Some(column(NUMBER)), int()),
            once(Sum, column(DECIMALS), DECIMAL),
            once(Avg, column(DECIMALS), average),
            of(Max, Some(column(DECIMALS)), DECIMAL),
        ],
        vec![
            once(Count, filtered(INT, 5), int()),
            count(),
            of(Sum, Some(filtered(NUMBER, 9)), int()),
            once(Count, filtered(INT, 5), int()),
        ],
        vec![
            once(Count, filtered(STRING, -100), int()),
            of(Count, Some(filtered(NUMBER, -100)), int()),
            of(BitOr, Some(column(NUMBER)), int()),
        ],
        vec![
            once(BitXor, column(LONG), int()),
            once(Sum, column(LONG), int()),
            once(BitAnd, column(LONG), int()),
            of(BitXor, Some(column(NUMBER)), int()),
            once(Max, column(FLOAT), float()),
        ],
        vec![once(Count, column(FLAG), int()), of(Count, Some(column(FLAG)), int())],
        vec![once(Count, column(DAY), int()), of(Min, Some(column(DAY)), DataType::Date32)],
        vec![once(Count, literal(1, int()), int()), of(Sum, Some(column(AMOUNT)), float())],
        // The value is a key of the groups.
        vec![once(Count, column(DENSE), int()), count(), once(Sum, cast(column(DENSE), int()), int())],
    ]
}

const KEYS: [&[usize]; 7] = [&[], &[DENSE], &[WIDE], &[TEXT], &[FLOAT], &[FLAG, DENSE], &[TEXT, WIDE, FLOAT]];

fn plan(input: Plan, keys: &[usize], aggregates: Vec<Aggregate>) -> Plan {
    groups_of(input, keys.iter().map(|key| column(*key)).collect(), aggregates)
}

/// The rows, sorted, and how distinct values were found.
type Outcome = (Vec<String>, Vec<&'static str>);

fn run(
    engine: &Engine,
    plan: &Plan,
    table: &Arc<Table>,
    options: &QueryOptions,
) -> Result<Outcome, EngineError> {
    let output = try_run(engine, plan, table, options)?;
    Ok((rounded_rows(&output.batch), chosen(&output, "distinct_values")))
}

/// Runs an aggregation with a set of distinct values, then by groups under each list of values forced besides; panics where they differ.
fn compare(
    engine: &Engine,
    plan: &Plan,
    table: &Arc<Table>,
    options: &QueryOptions,
    more: &[&[(&str, &str)]],
) {
    let set = forcing(options, &[("distinct_values", "set")]);
    let what = || format!("{plan:?} {options:?}");
    let (expected, chosen) = run(engine, plan, table, &set).unwrap_or_else(|e| panic!("{e}: {}", what()));
    assert!(chosen.iter().all(|value| *value == "set"));
    for more in more {
        let groups = forcing(&forcing(options, &[("distinct_values", "groups")]), more);
        let found = run(engine, plan, table, &groups);
        let (found, chosen) = found.unwrap_or_else(|error| panic!("{error}: {more:?} {}", what()));
        assert!(chosen.iter().all(|value| *value == "groups") && !chosen.is_empty(), "{chosen:?}");
        assert!(found == expected, "{more:?} {}:\n{found:#?}\n{expected:#?}", what());
    }
}

fn everything(device: DeviceChoice, sizes: &[usize]) {
    let engine = Engine::new();
    for rows in sizes {
        // Sums of these are within 38 digits.
        let table = table(*rows, Spread::Even, MOST / 20_000);
        for case in some_of(&format!("{rows} rows"), &KEYS, &[on(device, &[])], 20) {
            compare(&engine, &case.plan(scan()), &table, &case.options, &[&[]]);
        }
    }
}

/// What is asked of rows, and how.
struct Case {
    keys: &'static [usize],
    /// Which of [`lists`].
    list: usize,
    options: QueryOptions,
}

impl Case {
    fn plan(&self, input: Plan) -> Plan {
        plan(input, self.keys, lists().swap_remove(self.list))
    }
}

/// Some of all keys with all lists under all options, so that there are all of each.
fn some_of(name: &str, keys: &[&'static [usize]], options: &[QueryOptions], most: usize) -> Vec<Case> {
    let of_keys = |keys| (0..lists().len()).map(move |list| (keys, list));
    let each = keys.iter().copied().flat_map(of_keys);
    let with =
        |(keys, list)| options.iter().map(move |options| Case { keys, list, options: options.clone() });
    covering(name, each.flat_map(with), most, |case| facets_and(&case.options, &[&case.keys, &case.list]))
}

const FEW_KEYS: [&[usize]; 3] = [&[], &[DENSE], &[TEXT, WIDE]];

#[test]
fn groups_of_pairs_are_as_good_as_a_set_on_cpu() {
    everything(DeviceChoice::Cpu, &[0, 1, 3000]);
}

#[test]
fn groups_of_pairs_are_as_good_as_a_set_on_simt() {
    everything(DeviceChoice::Simt, &[0, 1, 150]);
}

#[test]
fn groups_of_pairs_are_as_good_as_a_set_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        everything(DeviceChoice::Cuda, &[0, 1, 3000]);
    }
}

/// Ways to find the groups of pairs, of which the aggregation is the first.
const WAYS: [&[(&str, &str)]; 11] = [
    &[("aggregate0.group_parts", "16"), ("group_table", "hash")],
    &[("aggregate0.group_parts", "64"), ("aggregate0.groups.group_table", "hash")],
    &[("aggregate0.group_order", "sorted")],
    &[("aggregate0.group_order", "sorted"), ("single_sum", "passes")],
    &[("batch_rows", "64"), ("group_table", "hash"), ("slot_layout", "beside")],
    &[("local_preaggregation", "256"), ("group_table", "hash"), ("preaggregation_search", "key")],
    &[("group_parts", "16"), ("part_memory", "global"), ("accumulator_memory", "global")],
    &[("accumulator_memory", "block"), ("segments", "warp")],
    &[("slot_fill", "75"), ("group_table", "hash"), ("slot_layout", "apart")],
    &[("slot_fill", "cache"), ("group_table", "hash")],
    &[("cell_packing", "packed"), ("key_claims", "words"), ("group_table", "hash")],
];

fn every_way(device: DeviceChoice, rows: usize, spreads: &[Spread]) {
    let engine = Engine::new();
    let tables: Vec<_> = spreads.iter().map(|spread| table(rows, *spread, MOST / 20_000)).collect();
    let mut cases = Vec::new();
    for spread in 0..spreads.len() {
        for keys in FEW_KEYS {
            for list in 0..lists().len() {
                cases.extend(WAYS.map(|way| (spread, Case { keys, list, options: on(device, &[]) }, way)));
            }
        }
    }
    let name = format!("every way on {device:?}");
    for (spread, case, way) in covering(&name, cases, 30, |(spread, case, way)| {
        facets_and(&case.options, &[spread, &case.keys, &case.list, way])
    }) {
        compare(&engine, &case.plan(scan()), &tables[spread], &case.options, &[way]);
    }
}

#[test]
fn every_way_to_find_pairs_on_cpu() {
    every_way(DeviceChoice::Cpu, 2000, &[Spread::Even, Spread::Skewed, Spread::One, Spread::All]);
}

#[test]
fn every_way_to_find_pairs_on_simt() {
    every_way(DeviceChoice::Simt, 120, &[Spread::Skewed, Spread::All]);
}

#[test]
fn every_way_to_find_pairs_on_cuda() {
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        every_way(DeviceChoice::Cuda, 2000, &[Spread::Even, Spread::Skewed, Spread::One, Spread::All]);
    }
}

#[test]
fn under_every_micro_model() {
    let engine = Engine::new();
    let table = table(400, Spread::Even, MOST / 20_000);
    let devices = [DeviceChoice::Cpu, DeviceChoice::Simt];
    let models = MicroModel::ALL.into_iter().flat_map(|model| devices.map(|device| (model, device)));
    let with = |(micro_model, device)| QueryOptions { micro_model, ..on(device, &[]) };
    let all: Vec<QueryOptions> = models.map(with).collect();
    for case in some_of("every micro model", &FEW_KEYS, &all, 24) {
        compare(&engine, &case.plan(scan()), &table, &case.options, &[&[]]);
    }
}

/// Nothing is left of the rows; they are read in blocks; a join makes them.
#[test]
fn rows_of_other_sources() {
    let engine = Engine::new();
    let table = table(2000, Spread::Even, MOST / 20_000);
    let blocks = QueryOptions { macro_model: MacroModel::Batch, block_bytes: Some(16 << 10), ..cpu() };
    let nothing = keep(scan(), below(NUMBER, -1000));
    let few = keep(scan(), below(NUMBER, -15));
    let join = Plan::Join(Box::new(join_of(
        JoinKind::ProbeSemi,
        scan(),
        few,
        vec![(column(STRING), column(STRING))],
    )));
    let on_both = [DeviceChoice::Cpu, DeviceChoice::Simt].map(|device| on(device, &[]));
    for (name, input, options) in
        [("blocks", scan(), &[blocks][..]), ("nothing", nothing, &on_both), ("a join", join, &on_both)]
    {
        for case in some_of(name, &FEW_KEYS, options, 11) {
            compare(&engine, &case.plan(input.clone()), &table, &case.options, &[&[]]);
        }
    }
}

/// More pairs than any first table has room for: tables grow, and groups are found again.
#[test]
fn tables_that_are_too_small_grow() {
    let engine = Engine::new();
    let table = table(120_000, Spread::All, MOST / 200_000);
    let ways = [WAYS[1], WAYS[4], &[("aggregate0.group_table", "hash")]];
    let mut cases = Vec::new();
    for list in [0, 2, 3] {
        for keys in [&[][..], &[TEXT], &[WIDE]] {
            cases.extend(ways.map(|way| (Case { keys, list, options: on(DeviceChoice::Cpu, &[]) }, way)));
        }
    }
    for (case, way) in covering("tables too small", cases, 3, |(case, way)| {
        [format!("{:?} {}", case.keys, case.list), format!("{way:?}")].into()
    }) {
        compare(&engine, &case.plan(scan()), &table, &case.options, &[way]);
    }
}

/// Counts, and sums that wrap around, of a plain evaluation.
#[test]
fn counts_and_sums_are_those_of_a_plain_evaluation() {
    let engine = Engine::new();
    for spread in [Spread::Even, Spread::Skewed, Spread::One, Spread::All] {
        let table = table(1000, spread, 1);
        let batch = &table.0[0];
        let (keys, values) = (batch.column(DENSE), batch.column(LONG));
        let mut groups: BTreeMap<Option<i32>, BTreeSet<i64>> = BTreeMap::new();
        for row in 0..batch.num_rows() {
            let key = keys.as_primitive::<arrow::datatypes::Int32Type>();
            let key = key.is_valid(row).then(|| key.value(row));
            let value = values.as_primitive::<arrow::datatypes::Int64Type>().value(row);
            groups.entry(key).or_default().insert(value);
        }
        let mut expected: Vec<String> = groups
            .iter()
            .map(|(key, values)| {
                let key = key.map_or("-".into(), |key| key.to_string());
                let sum = values.iter().fold(0i64, |sum, value| sum.wrapping_add(*value));
                format!("{key}|{}|{sum}", values.len())
            })
            .collect();
        expected.sort();
        let list = [Count, Sum].map(|function| once(function, column(LONG), DataType::Int64));
        let plan = plan(scan(), &[DENSE], list.to_vec());
        for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
            for way in ["set", "groups"] {
                let options = forcing(&on(device, &[]), &[("distinct_values", way)]);
                let found = run(&engine, &plan, &table, &options).expect("it runs");
                assert_eq!(found, (expected.clone(), vec![way]), "{spread:?} {way}");
            }
        }
    }
}

/// A sum beyond its type is the same error; one that is too much only while its values come, none.
#[test]
fn sums_beyond_their_type_are_errors_either_way() {
    let engine = Engine::new();
    let list = vec![count(), once(Sum, column(DECIMALS), DECIMAL), of(Sum, Some(column(DECIMALS)), DECIMAL)];
    let mut failed = 0;
    for (spread, most) in [(Spread::Even, MOST), (Spread::All, MOST), (Spread::Skewed, MOST / 2)] {
        let table = table(500, spread, most);
        for keys in [&[][..], &[DENSE], &[WIDE]] {
            for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
                let outcome = |way| {
                    let options = forcing(&on(device, &[]), &[("distinct_values", way)]);
                    let found = run(&engine, &plan(scan(), keys, list.clone()), &table, &options);
                    found.map(|(rows, _)| rows).map_err(|error| error.to_string())
                };
                let (set, groups) = (outcome("set"), outcome("groups"));
                assert_eq!(groups, set, "{spread:?} {keys:?}");
                failed += usize::from(set.is_err());
            }
        }
    }
    assert!(failed > 0);
}

/// What groups of pairs lack is said, and what is forced everywhere stays with the set.
#[test]
fn values_that_only_a_set_can_count() {
    let engine = Engine::new();
    let table = table(300, Spread::Even, 1);
    let int = || DataType::Int64;
    for (list, lacks) in [
        (vec![once(Count, column(INT), int()), once(Count, column(LONG), int())], "several arguments"),
        (vec![once(Count, column(INT), int()), once(Count, filtered(INT, 5), int())], "several arguments"),
        (vec![once(Count, column(FLOAT), int()), count()], "floats of one group may be two values"),
    ] {
        for keys in [&[][..], &[DENSE], &[TEXT, WIDE]] {
            let plan = plan(scan(), keys, list.clone());
            let set = run(&engine, &plan, &table, &on(DeviceChoice::Cpu, &[])).expect("it runs");
            let groups = forcing(&on(DeviceChoice::Cpu, &[]), &[("distinct_values", "groups")]);
            assert_eq!(run(&engine, &plan, &table, &groups).expect("it runs"), set);
            assert_eq!(set.1, ["set"]);
            let here = forcing(&on(DeviceChoice::Cpu, &[]), &[("aggregate0.distinct_values", "groups")]);
            let error = run(&engine, &plan, &table, &here).expect_err("not possible").to_string();
            assert!(error.contains(lacks), "{error}");
        }
    }
}
