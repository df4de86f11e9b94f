//! Keys of groups that are wider than a word: a slot is claimed for them under a latch or word by word, and both give the groups of a
//! plain evaluation, whatever the keys are; and where a table has sums apart from keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Table;
use crate::common::cases::{covering, facets_and};
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, Forced, MicroModel, Query, QueryOptions, ShapeChoices,
};

const ROWS: usize = 3_000;

fn fields() -> Vec<Field> {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    vec![
        field("wide", DataType::Int64, false),
        field("null", DataType::Int64, true),
        field("float", DataType::Float64, true),
        field("decimal", DataType::Decimal128 { precision: 38, scale: 0 }, false),
        field("half", DataType::Float32, false),
        field("small", DataType::Int32, true),
        field("flag", DataType::Boolean, true),
        field("value", DataType::Int64, false),
        field("text", DataType::Utf8, true),
    ]
}

/// Values that begin alike, extremes, zeros of both signs, NaN, and NULLs.
fn table() -> Arc<Table> {
    let types = [
        ArrowType::Int64,
        ArrowType::Int64,
        ArrowType::Float64,
        ArrowType::Decimal128(38, 0),
        ArrowType::Float32,
        ArrowType::Int32,
        ArrowType::Boolean,
        ArrowType::Int64,
        ArrowType::Utf8,
    ];
    let all = fields().into_iter().zip(types);
    let schema: Vec<_> =
        all.map(|(field, data_type)| ArrowField::new(field.name, data_type, field.nullable)).collect();
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
    let decimals = Decimal128Array::from_iter_values(rows().map(|row| decimal(row / 2)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows().map(wide))),
        Arc::new(Int64Array::from_iter(rows().map(|row| (row % 4 > 0).then(|| wide(row / 7))))),
        Arc::new(Float64Array::from_iter(rows().map(|row| (row % 9 > 0).then(|| floats[row / 3 % 7])))),
        Arc::new(decimals.with_precision_and_scale(38, 0).expect("a decimal")),
        Arc::new(Float32Array::from_iter_values(rows().map(|row| floats[row % 7] as f32))),
        Arc::new(Int32Array::from_iter(rows().map(|row| (row % 11 > 0).then_some(row as i32 * 1000)))),
        Arc::new(BooleanArray::from_iter(rows().map(|row| (row % 3 > 0).then_some(row % 2 == 0)))),
        Arc::new(Int64Array::from_iter_values(rows().map(|row| row as i64 * 7919 % 1000))),
        Arc::new(StringArray::from_iter(rows().map(|row| (row % 13 > 0).then(|| format!("t{}", row % 40))))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(Schema::new(schema)), columns).expect("a batch")]))
}

fn plan(keys: &[usize], distinct: bool) -> Plan {
    let fields = fields();
    let column = |index: usize| Expr::column(index, fields[index].data_type.clone(), fields[index].nullable);
    let aggregate = |function, argument: Option<usize>, distinct| Aggregate {
        function,
        argument: argument.map(column),
        distinct,
        field: Field { name: "a".into(), data_type: DataType::Int64, nullable: true },
    };
    let mut aggregates = vec![
        aggregate(AggregateFunction::Count, None, false),
        aggregate(AggregateFunction::Sum, Some(7), false),
    ];
    if distinct {
        aggregates.push(aggregate(AggregateFunction::Count, Some(1), true));
    }
    let scan =
        Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields: fields.clone() };
    let names = vec![String::new(); keys.len() + aggregates.len()];
    let keys = keys.iter().copied().map(column).collect();
    Plan::Aggregate { input: Box::new(Plan::Scan(scan)), keys, aggregates, names }
}

/// A key as text: both zeros are one.
fn text(array: &ArrayRef, row: usize) -> String {
    let text = array_value_to_string(array, row).expect("a value");
    if array.is_null(row) {
        "NULL".into()
    } else if text == "-0.0" {
        "0.0".into()
    } else {
        text
    }
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
    let query = Query { plan: plan.clone(), sources: vec![source.clone() as _], options: options.clone() };
    let output = engine.execute(&query, &CancelToken::default()).expect("an answer");
    let batch = output.batch;
    let row = |row| batch.columns().iter().map(|column| text(column, row)).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    rows.sort_unstable();
    let choices = output.metrics.choices().map(|choice| (choice.axis.name, choice.value));
    (rows, choices.collect())
}

fn options(device: DeviceChoice, lanes: u32, forced: &[(&str, &str)]) -> QueryOptions {
    let mut variants = Forced::default();
    for (axis, value) in forced {
        variants.set(axis, value).expect("an axis and its value");
    }
    QueryOptions { device, simt_lanes: lanes, variants, threads: Some(2), ..QueryOptions::default() }
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
        &[("near_groups", "256"), ("near_search", "slot")],
        &[("near_groups", "256"), ("near_search", "key")],
        &[("near_groups", "256"), ("near_search", "key"), ("segments", "warp")],
        &[("batch_rows", "64"), ("near_groups", "0")],
        &[("segments", "warp")],
        &[("last_group", "majority"), ("slot_fill", "75"), ("slot_layout", "apart")],
        &[("group_parts", "16")],
        &[("hash_function", "fnv1a"), ("hash_mapping", "modulo")],
    ];
    let mut cases = Vec::new();
    for number in 0..keys.len() {
        for way in ways {
            for claims in ["latch", "words", "bucket"] {
                let forced = [("group_table", "hash"), ("distinct_values", "set"), ("key_claims", claims)];
                let forced: Vec<_> = forced.into_iter().chain(way.iter().copied()).collect();
                let all = DEVICES.map(|(device, lanes)| options(device, lanes, &forced));
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
        let is_wide = keys.iter().any(|key| *key < 4);
        assert!(made.is_some() || !is_wide, "{keys:?} {choices:?}");
    }
}

/// Texts have no words: they are written under a latch, of a slot or a bucket.
#[test]
fn texts_are_latched() {
    let table = table();
    let plan = plan(&[8, 0], false);
    let expected = expected(&table.0[0], &[8, 0], false);
    for (device, lanes) in DEVICES {
        for claims in ["words", "bucket"] {
            for layout in ["apart", "beside"] {
                let forced = [
                    ("group_table", "hash"),
                    ("key_claims", claims),
                    ("text_keys", "texts"),
                    ("slot_layout", layout),
                ];
                let (rows, choices) = run(&plan, &table, &options(device, lanes, &forced));
                assert_eq!(rows, expected, "{device:?} {lanes}");
                assert_eq!(choices.contains(&("key_claims", "bucket")), claims == "bucket");
            }
        }
    }
}

#[test]
fn sums_beside_keys_of_one_word_or_apart() {
    let table = table();
    let mut cases = Vec::new();
    for keys in [&[5][..], &[6, 5]] {
        for way in [
            &[("near_groups", "0")][..],
            &[("near_groups", "256"), ("near_search", "slot")],
            &[("near_groups", "256"), ("near_search", "key")],
            &[("batch_rows", "64")],
            &[("group_parts", "16")],
        ] {
            for layout in ["apart", "beside"] {
                for (device, lanes) in DEVICES {
                    for micro_model in [MicroModel::Pipelined, MicroModel::Resolution] {
                        let forced = [&[("group_table", "hash"), ("slot_layout", layout)], way].concat();
                        let options = QueryOptions { micro_model, ..options(device, lanes, &forced) };
                        cases.push((keys, layout, options));
                    }
                }
            }
        }
    }
    for (keys, layout, options) in
        covering("sums beside keys", cases, 40, |(keys, _, options)| facets_and(options, &[keys]))
    {
        let (rows, choices) = run(&plan(keys, true), &table, &options);
        assert_eq!(rows, expected(&table.0[0], keys, true), "{keys:?} {options:?}");
        assert!(choices.contains(&("slot_layout", layout)), "{choices:?}");
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

/// Threads of all warps that put the same keys, or keys of the same buckets, into a table at the same time: one group and NULL, each
/// row a group, most rows in one, all in turn. Of a table with a free half, and of one that is a thousand times too small. The interpreter's order
/// of warps is another in each launch.
#[test]
fn threads_meet_in_buckets() {
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
                        ("key_claims", "bucket"),
                        ("distinct_values", "set"),
                        ("near_groups", "0"),
                        ("segments", "off"),
                        ("slot_fill", fill),
                        ("slot_layout", ["beside", "apart"][turn % 2]),
                        ("hash_mapping", ["multiply_high", "mask", "modulo"][turn % 3]),
                    ];
                    let options = QueryOptions { shape, ..options(device, lanes, &forced) };
                    cases.push((number, rows, index % 2 == 0, options));
                }
            }
        }
    }
    // Each pattern of each number of rows.
    let cases = covering("threads in buckets", cases, 60, |(number, rows, _, options)| {
        facets_and(options, &[&(number, rows), &(number, options.device), &options.shape.blocks])
    });
    for (number, rows, distinct, options) in cases {
        let (pattern, group) = patterns[number];
        let table = keys_of(rows, |row| group(row).map(|group| group as f64 / 3.0));
        let (plan, expected) = (plan(&[2], distinct), expected(&table.0[0], &[2], distinct));
        let what = format!("{pattern}, {rows} rows: {options:?}");
        let (rows, choices) = run_on(&engine, &plan, &table, &options);
        assert_eq!(rows, expected, "{what}");
        assert!(choices.contains(&("key_claims", "bucket")), "{what}");
        kelpie_engine::testing::shrink_tables(&engine, 1000);
        assert_eq!(run_on(&engine, &plan, &table, &options).0, expected, "too small: {what}");
    }
}
