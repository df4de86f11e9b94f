//! Every way to group where tables are a thousand times too small, and where memory is short: equal groups, or a clear error.

use crate::common::*;
use kelpie_device::DeviceError;

const COLUMNS: [Column; 6] = [
    ("dense", DataType::Int64, false),
    ("packed", DataType::Int64, true),
    ("wide", DataType::Int64, true),
    ("float", DataType::Float64, false),
    ("text", DataType::Utf8, true),
    ("value", DataType::Int64, true),
];

const DENSE: usize = 0;
const PACKED: usize = 1;
const WIDE: usize = 2;
const FLOAT: usize = 3;
const TEXT: usize = 4;

/// So many rows in so many groups, each with a key of every kind; group 0 has the NULLs.
fn table(rows: i64, groups: i64) -> Arc<Table> {
    let groups = || (0..rows).map(move |row| row * 7919 % groups);
    let known = |group: i64| group > 0;
    let columns: Vec<ArrayRef> = vec![
        longs(groups()),
        maybe_longs(groups().map(|group| known(group).then_some(group * 1_000_003))),
        maybe_longs(groups().map(|group| known(group).then_some(group.wrapping_mul(0x5851_f42d_4c95_7f2d)))),
        doubles(groups().map(|group| group as f64 / 3.0)),
        maybe_texts(groups().map(|group| known(group).then(|| format!("text {group}")))),
        maybe_longs((0..rows).map(|row| (row % 3 > 0).then_some(row % 100 - 20))),
    ];
    table_of(&COLUMNS, columns)
}

fn plan(keys: &[usize], is_distinct: bool) -> Plan {
    let column = |index: usize| column_of(&COLUMNS, index);
    let mut aggregates = vec![
        of_longs(AggregateFunction::Count, None),
        of_longs(AggregateFunction::Sum, Some(column(5))),
        of_longs(AggregateFunction::Max, Some(column(5))),
    ];
    aggregates.extend(is_distinct.then(|| distinct(of_longs(AggregateFunction::Count, Some(column(5))))));
    groups_of(scan_of(0, &COLUMNS), keys.iter().copied().map(column).collect(), aggregates)
}

/// What a plain evaluation gives, and what the engine gave, in one order.
fn expected(table: &RecordBatch, keys: &[usize], distinct: bool) -> Vec<String> {
    let mut groups: BTreeMap<Vec<String>, Vec<Option<i64>>> = BTreeMap::new();
    let values = table.column(5).as_any().downcast_ref::<Int64Array>().expect("integers");
    for row in 0..table.num_rows() {
        let key = keys.iter().map(|key| cell(table.column(*key), row)).collect();
        groups.entry(key).or_default().push((!values.is_null(row)).then(|| values.value(row)));
    }
    let row = |(key, values): (Vec<String>, Vec<Option<i64>>)| {
        let mut some: Vec<i64> = values.iter().flatten().copied().collect();
        let or_null = |value: Option<i64>| value.map_or("-".into(), |value| value.to_string());
        let sum = or_null((!some.is_empty()).then(|| some.iter().sum()));
        let most = or_null(some.iter().max().copied());
        some.sort_unstable();
        some.dedup();
        let set = if distinct { format!("|{}", some.len()) } else { String::new() };
        format!("{}|{}|{sum}|{most}{set}", key.join("|"), values.len())
    };
    let mut rows: Vec<String> = groups.into_iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// A way to group: keys, whether values count once, what is forced, and whether it has a table that may be too small.
struct Way(&'static [usize], bool, &'static [(&'static str, &'static str)], bool);

const HASH: (&str, &str) = ("group_table", "hash");
const ALONE: (&str, &str) = ("local_preaggregation", "0");

const WAYS: &[Way] = &[
    Way(&[PACKED], false, &[HASH, ALONE, ("segments", "off"), ("group_parts", "1")], true),
    Way(&[PACKED], false, &[HASH, ("slot_layout", "apart"), ("slot_fill", "75")], true),
    Way(&[PACKED], false, &[HASH, ("hash_mapping", "modulo"), ("hash_function", "fnv1a")], true),
    Way(&[PACKED], false, &[HASH, ("local_preaggregation", "256"), ("preaggregation_search", "slot")], true),
    Way(&[PACKED], false, &[HASH, ("local_preaggregation", "256"), ("preaggregation_search", "key")], true),
    Way(&[PACKED], false, &[HASH, ("segments", "warp")], true),
    Way(&[PACKED], false, &[HASH, ("segments", "block")], true),
    Way(&[PACKED], false, &[HASH, ("run_accumulator", "majority")], true),
    Way(&[PACKED], false, &[HASH, ("batch_rows", "64")], true),
    Way(&[PACKED], false, &[HASH, ("cell_packing", "packed")], true),
    Way(&[PACKED], false, &[HASH, ("group_parts", "16"), ("part_memory", "global")], true),
    Way(&[PACKED], false, &[HASH, ("group_parts", "16"), ("part_memory", "keys")], true),
    Way(&[PACKED], false, &[HASH, ("group_parts", "16"), ("part_memory", "block")], true),
    Way(&[PACKED], false, &[HASH, ("group_parts", "16"), ("part_memory", "alone")], true),
    Way(&[WIDE, FLOAT], false, &[HASH, ("slot_layout", "apart")], true),
    Way(&[WIDE, FLOAT], false, &[HASH, ("slot_layout", "beside"), ALONE], true),
    Way(&[WIDE, FLOAT], false, &[HASH, ("key_claims", "words")], true),
    Way(&[FLOAT], false, &[HASH, ("key_claims", "words"), ("group_parts", "16")], true),
    Way(
        &[WIDE, FLOAT],
        false,
        &[HASH, ("local_preaggregation", "256"), ("preaggregation_search", "key")],
        true,
    ),
    Way(
        &[FLOAT],
        false,
        &[HASH, ("key_claims", "latch"), ("hash_mapping", "modulo"), ("slot_fill", "75")],
        true,
    ),
    Way(&[TEXT], false, &[HASH, ("text_keys", "texts"), ("batch_rows", "64")], true),
    Way(&[TEXT], false, &[HASH, ("text_keys", "texts")], true),
    Way(&[TEXT, PACKED], false, &[HASH, ("text_keys", "texts"), ("group_parts", "16")], true),
    Way(&[PACKED], true, &[HASH, ("distinct_values", "set")], true),
    Way(&[PACKED], true, &[HASH, ("distinct_values", "groups")], true),
    Way(&[DENSE], true, &[("group_table", "direct"), ("distinct_values", "set")], false),
    Way(&[DENSE], false, &[("group_table", "direct"), ("accumulator_memory", "global")], false),
    Way(&[DENSE], false, &[("group_table", "direct"), ("accumulator_memory", "block")], false),
    Way(
        &[DENSE],
        false,
        &[("group_table", "direct"), ("accumulator_memory", "global"), ("group_parts", "16")],
        false,
    ),
    Way(&[PACKED], false, &[("group_order", "sorted")], false),
    Way(&[PACKED], false, &[("group_order", "strided"), ("stride_rows", "1024")], false),
];

const DEVICES: [(DeviceChoice, u32); 3] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];

fn run(
    engine: &Engine,
    way: &Way,
    source: &Arc<Table>,
    options: &QueryOptions,
) -> Result<QueryOutput, EngineError> {
    try_run(engine, plan(way.0, way.1), source, options)
}

#[test]
fn tables_a_thousand_times_too_small() {
    let (small, large) = (table(6_000, 4_000), table(30_000, 20_000));
    let mut cases = Vec::new();
    for (number, way) in WAYS.iter().enumerate() {
        // The models, and the widths of warps, take turns.
        let model = if number % 3 == 1 { MicroModel::Pipelined } else { MicroModel::Resolution };
        let on_cpu = [(DEVICES[0], MicroModel::Resolution), (DEVICES[0], MicroModel::Pipelined)];
        let all = on_cpu.into_iter().chain([(DEVICES[1 + number % 2], model)]);
        cases.extend(all.map(|((device, lanes), micro_model)| {
            (number, QueryOptions { micro_model, ..on_lanes((device, lanes), way.2) })
        }));
    }
    for (number, options) in
        covering("tables too small", cases, 36, |(number, options)| facets_and(options, &[number]))
    {
        let source = if options.device == DeviceChoice::Cpu { &large } else { &small };
        let way = &WAYS[number];
        let expected = expected(&source.0[0], way.0, way.1);
        let engine = Engine::new();
        let what = format!("{:?} {options:?}", way.0);
        let answer = || run(&engine, way, source, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(rows_of(&answer().batch, false) == expected, "{what}");
        kelpie_engine::testing::shrink_tables(&engine, 1000);
        let second = answer();
        assert!(rows_of(&second.batch, false) == expected, "too small: {what}");
        assert!(!way.3 || fillings(&second) > 2, "{} launches: {what}", fillings(&second));
        assert!(rows_of(&answer().batch, false) == expected, "again: {what}");
    }
}

/// From memory in which nothing fits to memory in which all does: an answer, or the error that says what was wanted, which goes to
/// DataFusion's operators or to who asked.
#[test]
fn memory_is_short_for_every_way() {
    let (small, large) = (table(1_000, 700), table(8_000, 5_000));
    let mut cases = Vec::new();
    for (number, way) in WAYS.iter().enumerate() {
        for (device, lanes) in [DEVICES[0], DEVICES[1 + number % 2]] {
            let limits = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
            cases.extend(limits.map(|limit| {
                let options = QueryOptions { memory_limit: Some(limit), ..on_lanes((device, lanes), way.2) };
                (number, limit, options)
            }));
        }
    }
    let (mut answers, mut errors) = (0, 0);
    for (number, limit, options) in covering("short memory", cases, 40, |(number, limit, options)| {
        facets_and(options, &[number, &(limit, options.device)])
    }) {
        let source = if options.device == DeviceChoice::Cpu { &large } else { &small };
        let way = &WAYS[number];
        match run(&Engine::new(), way, source, &options) {
            Ok(output) => {
                let expected = expected(&source.0[0], way.0, way.1);
                assert!(rows_of(&output.batch, false) == expected, "{:?} {options:?}", way.0);
                answers += 1;
            }
            Err(
                error @ (EngineError::Device(DeviceError::OutOfMemory { .. }) | EngineError::Fallback(_)),
            ) => {
                let text = error.to_string();
                assert!(text.contains("out of memory") && text.contains(&limit.to_string()), "{text}");
                errors += 1;
            }
            Err(error) => panic!("{:?} {options:?}: {error}", way.0),
        }
    }
    assert!(answers >= floor(200) && errors >= floor(20), "{answers} answers, {errors} errors");
}
