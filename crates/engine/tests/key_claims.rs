//! Keys of groups that are wider than a word: a slot is claimed for them under a latch or word by word, and both give the groups of a
//! plain evaluation, whatever the keys are; and where a table has sums apart from keys.

use crate::common::*;

const ROWS: usize = 3_000;

const COLUMNS: [Column; 9] = [
    ("wide", DataType::Int64, false),
    ("null", DataType::Int64, true),
    ("float", DataType::Float64, true),
    ("decimal", DataType::Decimal128 { precision: 38, scale: 0 }, false),
    ("half", DataType::Float32, false),
    ("small", DataType::Int32, true),
    ("flag", DataType::Boolean, true),
    ("value", DataType::Int64, false),
    ("text", DataType::Utf8, true),
];

/// Values that begin alike, extremes, zeros of both signs, NaN, and NULLs.
fn table() -> Arc<Table> {
    let rows = || 0..ROWS;
    let wide = |row: usize| [i64::MIN, i64::MAX, 0, -1, 1, 1 << 62][row % 6];
    let floats = [0.0, -0.0, f64::NAN, f64::INFINITY, 1.5, -1.5, f64::MIN_POSITIVE];
    let decimal = |row: usize| match row % 5 {
        0 => 10_i128.pow(38) - 1,
        1 => 1 - 10_i128.pow(38),
        2 => 0,
        3 => 1 << 64,
        _ => -1,
    };
    let columns: Vec<ArrayRef> = vec![
        longs(rows().map(wide)),
        maybe_longs(rows().map(|row| (row % 4 > 0).then(|| wide(row / 7)))),
        Arc::new(Float64Array::from_iter(rows().map(|row| (row % 9 > 0).then(|| floats[row / 3 % 7])))),
        decimals(rows().map(|row| decimal(row / 2)), 38, 0),
        Arc::new(Float32Array::from_iter_values(rows().map(|row| floats[row % 7] as f32))),
        maybe_ints(rows().map(|row| (row % 11 > 0).then_some(row as i32 * 1000))),
        Arc::new(BooleanArray::from_iter(rows().map(|row| (row % 3 > 0).then_some(row % 2 == 0)))),
        longs(rows().map(|row| row as i64 * 7919 % 1000)),
        maybe_texts(rows().map(|row| (row % 13 > 0).then(|| format!("t{}", row % 40)))),
    ];
    table_of(&COLUMNS, columns)
}

fn plan(keys: &[usize], is_distinct: bool) -> Plan {
    let column = |index: usize| column_of(&COLUMNS, index);
    let mut aggregates =
        vec![of_longs(AggregateFunction::Count, None), of_longs(AggregateFunction::Sum, Some(column(7)))];
    aggregates.extend(is_distinct.then(|| distinct(of_longs(AggregateFunction::Count, Some(column(1))))));
    groups_of(scan_of(0, &COLUMNS), keys.iter().copied().map(column).collect(), aggregates)
}

/// A key as text: both zeros are one.
fn text(array: &ArrayRef, row: usize) -> String {
    let text = cell(array, row);
    if text == "-0.0" { "0.0".into() } else { text }
}

fn expected(table: &RecordBatch, keys: &[usize], distinct: bool) -> Vec<String> {
    let mut groups: BTreeMap<Vec<String>, (i64, i64, std::collections::BTreeSet<String>)> = BTreeMap::new();
    let values = table.column(7).as_any().downcast_ref::<Int64Array>().expect("integers");
    for row in 0..table.num_rows() {
        let key = keys.iter().map(|key| text(table.column(*key), row)).collect();
        let (count, sum, set) = groups.entry(key).or_default();
        *count += 1;
        *sum += values.value(row);
        if !table.column(1).is_null(row) {
            set.insert(text(table.column(1), row));
        }
    }
    let rows = groups.into_iter().map(|(key, (count, sum, set))| {
        let set = if distinct { format!(" {}", set.len()) } else { String::new() };
        format!("{} {count} {sum}{set}", key.join(" "))
    });
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    rows
}

fn run(
    plan: &Plan,
    source: &Arc<Table>,
    options: &QueryOptions,
) -> (Vec<String>, Vec<(&'static str, &'static str)>) {
    run_on(&Engine::new(), plan, source, options)
}

fn run_on(
    engine: &Engine,
    plan: &Plan,
    source: &Arc<Table>,
    options: &QueryOptions,
) -> (Vec<String>, Vec<(&'static str, &'static str)>) {
    let output = crate::common::run(engine, plan, source, options);
    let batch = output.batch;
    let row = |row| batch.columns().iter().map(|column| text(column, row)).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    rows.sort_unstable();
    let choices = output.metrics.choices().map(|choice| (choice.axis.name, choice.value));
    (rows, choices.collect())
}

const DEVICES: [(DeviceChoice, u32); 3] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];

#[test]
fn keys_of_several_words() {
    let table = table();
    let keys: &[&[usize]] =
        &[&[0], &[1], &[2], &[3], &[4], &[0, 1], &[2, 3], &[0, 5, 6], &[5, 2, 6], &[4, 1, 5], &[6, 0, 4]];
    let ways: &[&[(&str, &str)]] = &[
        &[],
        &[("local_preaggregation", "256"), ("preaggregation_search", "slot")],
        &[("local_preaggregation", "256"), ("preaggregation_search", "key")],
        &[("local_preaggregation", "256"), ("preaggregation_search", "key"), ("segments", "warp")],
        &[("batch_rows", "64"), ("local_preaggregation", "0")],
        &[("segments", "warp")],
        &[("run_accumulator", "majority"), ("slot_fill", "75"), ("slot_layout", "apart")],
        &[("group_parts", "16")],
        &[("hash_function", "fnv1a"), ("hash_mapping", "modulo")],
    ];
    let mut cases = Vec::new();
    for number in 0..keys.len() {
        for way in ways {
            for claims in ["latch", "words"] {
                let forced = [("group_table", "hash"), ("distinct_values", "set"), ("key_claims", claims)];
                let forced: Vec<_> = forced.into_iter().chain(way.iter().copied()).collect();
                let all = DEVICES.map(|(device, lanes)| on_lanes((device, lanes), &forced));
                cases.extend(all.map(|options| (number, claims, options)));
            }
        }
    }
    // Each set of keys under each claim.
    let cases = covering("keys of several words", cases, 60, |(number, claims, options)| {
        facets_and(options, &[&(number, claims), &(claims, options.device)])
    });
    for (number, claims, options) in cases {
        let (keys, distinct) = (keys[number], number % 3 == 0);
        let (rows, choices) = run(&plan(keys, distinct), &table, &options);
        assert_eq!(rows, expected(&table.0[0], keys, distinct), "{keys:?} {options:?}");
        let made = choices.iter().find(|(axis, _)| *axis == "key_claims");
        assert!(made.is_none_or(|(_, value)| *value == claims), "{choices:?}");
        // A float by itself has all of a slot's word.
        let is_wide = *keys != [2] && keys.iter().any(|key| *key < 4);
        assert!(made.is_some() || !is_wide, "{keys:?} {choices:?}");
    }
}

/// Texts have no words: they are written under a latch.
#[test]
fn texts_are_latched() {
    let table = table();
    let plan = plan(&[8, 0], false);
    let expected = expected(&table.0[0], &[8, 0], false);
    for (device, lanes) in DEVICES {
        for layout in ["apart", "beside"] {
            let forced = [
                ("group_table", "hash"),
                ("key_claims", "words"),
                ("text_keys", "texts"),
                ("slot_layout", layout),
            ];
            let (rows, _) = run(&plan, &table, &on_lanes((device, lanes), &forced));
            assert_eq!(rows, expected, "{device:?} {lanes}");
        }
    }
}

#[test]
fn sums_beside_keys_of_one_word() {
    let table = table();
    let mut cases = Vec::new();
    for keys in [&[5][..], &[6, 5]] {
        for way in [
            &[("local_preaggregation", "0")][..],
            &[("local_preaggregation", "256"), ("preaggregation_search", "slot")],
            &[("local_preaggregation", "256"), ("preaggregation_search", "key")],
            &[("batch_rows", "64")],
            &[("group_parts", "16")],
        ] {
            for (device, lanes) in DEVICES {
                for micro_model in [MicroModel::Pipelined, MicroModel::Resolution] {
                    let forced = [&[("group_table", "hash")], way].concat();
                    cases.push((keys, QueryOptions { micro_model, ..on_lanes((device, lanes), &forced) }));
                }
            }
        }
    }
    for (keys, options) in
        covering("sums beside keys", cases, 40, |(keys, options)| facets_and(options, &[keys]))
    {
        let (rows, _) = run(&plan(keys, true), &table, &options);
        assert_eq!(rows, expected(&table.0[0], keys, true), "{keys:?} {options:?}");
    }
}

/// So many rows whose keys are NULL, or doubles: 65 bits.
fn keys_of(rows: usize, group: impl Fn(usize) -> Option<f64>) -> Arc<Table> {
    let whole = table();
    let columns = whole.0[0].columns().iter().enumerate().map(|(index, column)| match index {
        2 => Arc::new(Float64Array::from_iter((0..rows).map(&group))) as ArrayRef,
        _ => column.slice(0, rows),
    });
    let schema = whole.0[0].schema();
    Arc::new(Table(vec![RecordBatch::try_new(schema, columns.collect()).expect("a batch")]))
}

/// The group of a row; `None`: NULL.
type Group = fn(usize) -> Option<usize>;

/// Threads of all warps that put the same keys, or keys of neighbouring slots, into a table at the same time: one group and NULL, each
/// row a group, most rows in one, all in turn. Of a table with a free half, and of one that is a thousand times too small. The interpreter's order
/// of warps is another in each launch.
#[test]
fn threads_meet_at_slots() {
    let patterns: [(&str, Group); 6] = [
        ("nothing but NULL", |_| None),
        ("one group", |row| (row % 5 > 0).then_some(7)),
        ("each a group", Some),
        ("most in one", |row| (row % 4 == 0).then_some(row)),
        ("groups in turn", |row| Some(row % 23)),
        ("groups that come together", |row| Some(row / 40)),
    ];
    let engine = Engine::new();
    let mut cases = Vec::new();
    for number in 0..patterns.len() {
        for (index, rows) in [1, 40, 130, 1_000].into_iter().enumerate() {
            for (turn, lanes) in [4, 8, 32, 4, 32].into_iter().enumerate() {
                for (device, fill) in
                    [(DeviceChoice::Simt, "75"), (DeviceChoice::Cpu, "50"), (DeviceChoice::Simt, "25")]
                {
                    let shape = ShapeChoices {
                        blocks: Some(1 + (turn as u32 + number as u32) % 3),
                        ..ShapeChoices::default()
                    };
                    let forced = [
                        ("group_table", "hash"),
                        ("key_claims", ["latch", "words"][turn / 2 % 2]),
                        ("distinct_values", "set"),
                        ("local_preaggregation", "0"),
                        ("segments", "off"),
                        ("slot_fill", fill),
                        ("slot_layout", ["beside", "apart"][turn % 2]),
                        ("hash_mapping", ["multiply_high", "modulo"][turn % 2]),
                    ];
                    let options = QueryOptions { shape, ..on_lanes((device, lanes), &forced) };
                    cases.push((number, rows, index % 2 == 0, options));
                }
            }
        }
    }
    // Each pattern of each number of rows.
    let cases = covering("threads at slots", cases, 60, |(number, rows, _, options)| {
        facets_and(options, &[&(number, rows), &(number, options.device), &options.shape.blocks])
    });
    for (number, rows, distinct, options) in cases {
        let (pattern, group) = patterns[number];
        let table = keys_of(rows, |row| group(row).map(|group| group as f64 / 3.0));
        let (plan, expected) = (plan(&[2], distinct), expected(&table.0[0], &[2], distinct));
        let what = format!("{pattern}, {rows} rows: {options:?}");
        let (rows, _) = run_on(&engine, &plan, &table, &options);
        assert_eq!(rows, expected, "{what}");
        kelpie_engine::testing::shrink_tables(&engine, 1000);
        assert_eq!(run_on(&engine, &plan, &table, &options).0, expected, "too small: {what}");
    }
}
