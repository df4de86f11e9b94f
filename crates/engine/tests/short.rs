//! Every way to group where tables are a thousand times too small, and where memory is short: equal groups, or a clear error.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::Table;
use crate::common::cases::{covering, facets_and, is_whole};
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Field};
use kelpie_device::DeviceError;
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, Forced, MicroModel, Query, QueryOptions, QueryOutput,
};

fn fields() -> Vec<Field> {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    vec![
        field("dense", DataType::Int64, false),
        field("packed", DataType::Int64, true),
        field("wide", DataType::Int64, true),
        field("float", DataType::Float64, false),
        field("text", DataType::Utf8, true),
        field("value", DataType::Int64, true),
    ]
}

const DENSE: usize = 0;
const PACKED: usize = 1;
const WIDE: usize = 2;
const FLOAT: usize = 3;
const TEXT: usize = 4;

/// So many rows in so many groups, each with a key of every kind; group 0 has the NULLs.
fn table(rows: i64, groups: i64) -> Arc<Table> {
    let types = [
        ArrowType::Int64,
        ArrowType::Int64,
        ArrowType::Int64,
        ArrowType::Float64,
        ArrowType::Utf8,
        ArrowType::Int64,
    ];
    let schema = fields().into_iter().zip(types);
    let schema: Vec<_> =
        schema.map(|(field, data_type)| ArrowField::new(field.name, data_type, field.nullable)).collect();
    let groups = || (0..rows).map(move |row| row * 7919 % groups);
    let known = |group: i64| group > 0;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(groups())),
        Arc::new(Int64Array::from_iter(groups().map(|group| known(group).then_some(group * 1_000_003)))),
        Arc::new(Int64Array::from_iter(
            groups().map(|group| known(group).then_some(group.wrapping_mul(0x5851_f42d_4c95_7f2d))),
        )),
        Arc::new(Float64Array::from_iter_values(groups().map(|group| group as f64 / 3.0))),
        Arc::new(StringArray::from_iter(groups().map(|group| known(group).then(|| format!("text {group}"))))),
        Arc::new(Int64Array::from_iter((0..rows).map(|row| (row % 3 > 0).then_some(row % 100 - 20)))),
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
        aggregate(AggregateFunction::Sum, Some(5), false),
        aggregate(AggregateFunction::Max, Some(5), false),
    ];
    if distinct {
        aggregates.push(aggregate(AggregateFunction::Count, Some(5), true));
    }
    let columns = (0..fields.len()).collect();
    let scan = Scan { source: 0, table: "t".into(), columns, fields: fields.clone() };
    let names = vec![String::new(); keys.len() + aggregates.len()];
    let keys = keys.iter().copied().map(column).collect();
    Plan::Aggregate { input: Box::new(Plan::Scan(scan)), keys, aggregates, names }
}

fn text(array: &ArrayRef, row: usize) -> String {
    match array.is_null(row) {
        true => "NULL".into(),
        false => array_value_to_string(array, row).expect("a value"),
    }
}

/// What a plain evaluation gives, and what the engine gave, in one order.
fn expected(table: &RecordBatch, keys: &[usize], distinct: bool) -> Vec<String> {
    let mut groups: BTreeMap<Vec<String>, Vec<Option<i64>>> = BTreeMap::new();
    let values = table.column(5).as_any().downcast_ref::<Int64Array>().expect("integers");
    for row in 0..table.num_rows() {
        let key = keys.iter().map(|key| text(table.column(*key), row)).collect();
        groups.entry(key).or_default().push((!values.is_null(row)).then(|| values.value(row)));
    }
    let row = |(key, values): (Vec<String>, Vec<Option<i64>>)| {
        let mut some: Vec<i64> = values.iter().flatten().copied().collect();
        let or_null = |value: Option<i64>| value.map_or("NULL".into(), |value| value.to_string());
        let sum = or_null((!some.is_empty()).then(|| some.iter().sum()));
        let most = or_null(some.iter().max().copied());
        some.sort_unstable();
        some.dedup();
        let set = if distinct { format!(" {}", some.len()) } else { String::new() };
        format!("{} {} {sum} {most}{set}", key.join(" "), values.len())
    };
    let mut rows: Vec<String> = groups.into_iter().map(row).collect();
    rows.sort_unstable();
    rows
}

fn rows_of(output: &QueryOutput) -> Vec<String> {
    let batch = &output.batch;
    let row = |row| batch.columns().iter().map(|column| text(column, row)).collect::<Vec<_>>().join(" ");
    let mut rows: Vec<String> = (0..batch.num_rows()).map(row).collect();
    rows.sort_unstable();
    rows
}

/// A way to group: keys, whether values count once, what is forced, and whether it has a table that may be too small.
struct Way(&'static [usize], bool, &'static [(&'static str, &'static str)], bool);

const HASH: (&str, &str) = ("group_table", "hash");
const ALONE: (&str, &str) = ("near_groups", "0");

const WAYS: &[Way] = &[
    Way(&[PACKED], false, &[HASH, ALONE, ("segments", "off"), ("group_parts", "1")], true),
    Way(&[PACKED], false, &[HASH, ("slot_layout", "apart"), ("slot_fill", "75")], true),
    Way(&[PACKED], false, &[HASH, ("hash_mapping", "mask"), ("hash_function", "fnv1a")], true),
    Way(&[PACKED], false, &[HASH, ("near_groups", "256"), ("near_search", "slot")], true),
    Way(&[PACKED], false, &[HASH, ("near_groups", "256"), ("near_search", "key")], true),
    Way(&[PACKED], false, &[HASH, ("segments", "warp")], true),
    Way(&[PACKED], false, &[HASH, ("segments", "block")], true),
    Way(&[PACKED], false, &[HASH, ("last_group", "majority")], true),
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
    Way(&[WIDE, FLOAT], false, &[HASH, ("near_groups", "256"), ("near_search", "key")], true),
    Way(&[WIDE, FLOAT], false, &[HASH, ("key_claims", "bucket"), ALONE], true),
    Way(&[WIDE, FLOAT], false, &[HASH, ("key_claims", "bucket"), ("slot_layout", "apart")], true),
    Way(&[FLOAT], false, &[HASH, ("key_claims", "bucket"), ("group_parts", "16")], true),
    Way(
        &[FLOAT],
        false,
        &[HASH, ("key_claims", "bucket"), ("hash_mapping", "mask"), ("slot_fill", "75")],
        true,
    ),
    Way(
        &[TEXT],
        false,
        &[HASH, ("key_claims", "bucket"), ("text_keys", "texts"), ("batch_rows", "64")],
        true,
    ),
    Way(&[WIDE], true, &[HASH, ("key_claims", "bucket"), ("distinct_values", "set")], true),
    Way(&[TEXT], false, &[HASH, ("text_keys", "texts")], true),
    Way(&[TEXT, PACKED], false, &[HASH, ("text_keys", "texts"), ("group_parts", "16")], true),
    Way(&[PACKED], true, &[HASH, ("distinct_values", "set")], true),
    Way(&[PACKED], true, &[HASH, ("distinct_values", "groups")], true),
    Way(&[DENSE], true, &[("group_table", "direct"), ("distinct_values", "set")], false),
    Way(&[DENSE], false, &[("group_table", "direct"), ("placement", "global")], false),
    Way(&[DENSE], false, &[("group_table", "direct"), ("placement", "block")], false),
    Way(&[DENSE], false, &[("group_table", "direct"), ("placement", "global"), ("group_parts", "16")], false),
    Way(&[PACKED], false, &[("group_order", "sorted")], false),
    Way(&[PACKED], false, &[("group_order", "strided"), ("stride_rows", "1024")], false),
];

const DEVICES: [(DeviceChoice, u32); 3] =
    [(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];

fn options(device: DeviceChoice, lanes: u32, way: &Way) -> QueryOptions {
    let mut variants = Forced::default();
    for (axis, value) in way.2 {
        variants.set(axis, value).expect("an axis and its value");
    }
    QueryOptions { device, simt_lanes: lanes, variants, threads: Some(2), ..QueryOptions::default() }
}

fn run(
    engine: &Engine,
    way: &Way,
    source: &Arc<Table>,
    options: &QueryOptions,
) -> Result<QueryOutput, EngineError> {
    let plan = plan(way.0, way.1);
    let query = Query { plan, sources: vec![source.clone() as _], options: options.clone() };
    engine.execute(&query, &CancelToken::default())
}

/// Launches of the pipelines that bring rows to their groups.
fn launches(output: &QueryOutput) -> u32 {
    let fills = output.metrics.pipelines.iter().filter(|pipeline| pipeline.name.contains("→ aggregate"));
    fills.map(|pipeline| pipeline.launches - pipeline.sketches).sum()
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
            (number, QueryOptions { micro_model, ..options(device, lanes, way) })
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
        assert!(rows_of(&answer()) == expected, "{what}");
        kelpie_engine::testing::shrink_tables(&engine, 1000);
        let second = answer();
        assert!(rows_of(&second) == expected, "too small: {what}");
        assert!(!way.3 || launches(&second) > 2, "{} launches: {what}", launches(&second));
        assert!(rows_of(&answer()) == expected, "again: {what}");
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
                let options = QueryOptions { memory_limit: Some(limit), ..options(device, lanes, way) };
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
                assert!(rows_of(&output) == expected, "{:?} {options:?}", way.0);
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
    let (least, most) = if is_whole() { (200, 20) } else { (0, 0) };
    assert!(answers > least && errors > most, "{answers} answers, {errors} errors");
}
