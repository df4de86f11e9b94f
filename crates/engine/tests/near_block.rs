//! Near copies of groups that a block finds by their keys: the groups of a plain evaluation in blocks and warps of several sizes, and rows
//! whose group has a copy do not touch the table of all groups.

use crate::common::*;
use kelpie_device::Accessed;

const PACKED: usize = 0;
const WIDE: usize = 1;
const TEXT: usize = 2;
const VALUE: usize = 3;

const COLUMNS: [Column; 4] = [
    ("packed", DataType::Int64, true),
    ("wide", DataType::Int64, true),
    ("text", DataType::Utf8, true),
    ("value", DataType::Int64, true),
];

/// The groups of rows, each with a key of every kind: group 0 has the NULLs.
fn table(groups: &[i64]) -> Arc<Table> {
    let known = |group: i64| group > 0;
    let keys = |factor: i64| {
        Int64Array::from_iter(groups.iter().map(|&group| known(group).then(|| group.wrapping_mul(factor))))
    };
    let texts = groups.iter().map(|&group| known(group).then(|| format!("text {group}")));
    let values = (0..groups.len() as i64).map(|row| (row % 5 > 0).then_some(row % 100 - 20));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(keys(1_000_003)),
        Arc::new(keys(0x5851_f42d_4c95_7f2d)),
        maybe_texts(texts),
        maybe_longs(values),
    ];
    table_of(&COLUMNS, columns)
}

fn plan(keys: &[usize], is_set: bool) -> Plan {
    let column = |index: usize| column_of(&COLUMNS, index);
    let aggregates = vec![
        of_longs(AggregateFunction::Count, None),
        of_longs(AggregateFunction::Sum, Some(column(VALUE))),
        of_longs(AggregateFunction::Max, Some(column(VALUE))),
    ];
    let aggregates = if is_set { Vec::new() } else { aggregates };
    groups_of(scan_of(0, &COLUMNS), keys.iter().copied().map(column).collect(), aggregates)
}

fn expected(table: &RecordBatch, keys: &[usize], is_set: bool) -> Vec<String> {
    let mut groups: BTreeMap<Vec<String>, (usize, Vec<i64>)> = BTreeMap::new();
    let values = table.column(VALUE).as_any().downcast_ref::<Int64Array>().expect("integers");
    for row in 0..table.num_rows() {
        let key = keys.iter().map(|key| cell(table.column(*key), row)).collect();
        let (count, some) = groups.entry(key).or_default();
        *count += 1;
        some.extend((!values.is_null(row)).then(|| values.value(row)));
    }
    let or_null = |value: Option<i64>| value.map_or("-".into(), |value| value.to_string());
    let row = |(key, (count, some)): (Vec<String>, (usize, Vec<i64>))| {
        let sum = or_null((!some.is_empty()).then(|| some.iter().sum()));
        let all = format!("{}|{count}|{sum}|{}", key.join("|"), or_null(some.iter().max().copied()));
        if is_set { key.join("|") } else { all }
    };
    let mut rows: Vec<String> = groups.into_iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// So many lanes of a warp, threads of a block, and blocks.
type Shape = (u32, u32, u32);

fn options((lanes, threads, blocks): Shape, search: &str, forced: &[(&str, &str)]) -> QueryOptions {
    let near = [("group_table", "hash"), ("local_preaggregation", "256"), ("preaggregation_search", search)];
    let mut options = in_blocks(lanes, blocks, &[&near, forced].concat());
    options.shape.block_threads = Some(threads);
    options
}

/// Groups of rows: one, few, more than copies, all different, and one of nine of ten rows.
fn spreads(rows: i64) -> [Vec<i64>; 5] {
    let groups = |group: &dyn Fn(i64) -> i64| (0..rows).map(group).collect();
    [
        groups(&|_| 7),
        groups(&|row| row * 7919 % 11),
        groups(&|row| row * 7919 % 700),
        groups(&|row| row),
        groups(&|row| if row % 10 > 0 { 5 } else { row * 7919 % 900 }),
    ]
}

#[test]
fn groups_are_those_of_a_plain_evaluation() {
    let shapes = [(4, 8, 3), (8, 64, 2), (32, 32, 4), (32, 128, 2), (3, 12, 2)];
    let ways: [&[(&str, &str)]; 5] = [
        &[("segments", "off")],
        &[("segments", "warp")],
        &[("segments", "block")],
        &[("run_accumulator", "on"), ("segments", "off"), ("slot_layout", "beside")],
        &[("run_accumulator", "majority"), ("cell_packing", "packed"), ("hash_function", "multiply_shift")],
    ];
    let tables = spreads(1_500).map(|groups| table(&groups));
    let mut cases = Vec::new();
    for number in 0..tables.len() {
        for (turn, keys) in
            [&[PACKED][..], &[WIDE], &[WIDE, PACKED], &[TEXT], &[TEXT, WIDE]].into_iter().enumerate()
        {
            let is_set = (number + turn) % 4 == 3;
            for (way, shape) in ways.iter().zip((0..).map(|way| shapes[(number + turn + way) % 5])) {
                cases.push((number, keys, is_set, options(shape, "key", way)));
            }
        }
    }
    let cases = covering("near copies in blocks", cases, 40, |(number, keys, _, options)| {
        facets_and(options, &[&(number, keys), &options.shape.block_threads])
    });
    for (number, keys, is_set, options) in cases {
        let source = &tables[number];
        let expected = expected(&source.0[0], keys, is_set);
        let output = run(&Engine::new(), plan(keys, is_set), source, &options);
        assert!(rows_of(&output.batch, false) == expected, "{number} {keys:?} {options:?}");
        let mut choices = output.metrics.choices();
        let search = choices.find(|choice| choice.axis.name == "preaggregation_search");
        // Many texts have no codes.
        let search = search.map_or("", |choice| choice.value);
        assert!(search == "key" || keys.contains(&TEXT) && expected.len() > 100, "{keys:?} {options:?}");
    }
}

/// What is accessed of the table of all groups while rows come to them.
fn of_table(keys: &[usize], source: &Arc<Table>, shape: Shape, search: &str) -> Accessed {
    let options =
        QueryOptions { meter: true, ..options(shape, search, &[("segments", "off"), ("group_parts", "1")]) };
    let output = run(&Engine::new(), plan(keys, false), source, &options);
    let fills = output.metrics.pipelines.iter().find(|pipeline| pipeline.name.contains("near copies"));
    fills.and_then(|pipeline| pipeline.traffic).expect("counts").table
}

/// A group of a block costs a look into the table of all, a row none, as long as its group has a copy.
#[test]
fn rows_with_a_copy_do_not_touch_the_table_of_all_groups() {
    const GROUPS: i64 = 20;
    let tables = [2_000, 8_000].map(|rows| {
        let groups: Vec<i64> = (0..rows).map(|row| row * 7919 % GROUPS).collect();
        table(&groups)
    });
    for shape in [(4, 8, 3), (32, 64, 2)] {
        for (keys, words) in [(&[PACKED][..], 1), (&[WIDE], 2), (&[WIDE, PACKED], 2)] {
            // A key is searched for, and put in by one block; cells are added. Who comes first differs.
            let most = u64::from(shape.2) * GROUPS as u64 * 8 * (10 + 2 * words);
            for source in &tables {
                let by_key = of_table(keys, source, shape, "key");
                assert!(by_key.bytes() < most, "{keys:?} {shape:?}: {by_key:?}, {most}");
            }
            let by_slot = of_table(keys, &tables[1], shape, "slot");
            assert!(by_slot.read >= 8 * words * 8_000, "{keys:?} {shape:?}: {by_slot:?}");
        }
    }
}

/// Whatever groups there are, what finds copies by keys accesses no more of the table of all than what finds them by slots: each group
/// that is merged was looked for by one of its rows before.
#[test]
fn no_groups_are_looked_for_more_often() {
    for (number, groups) in spreads(6_000).iter().enumerate() {
        let source = table(groups);
        for (keys, shape) in
            [(&[PACKED][..], (4, 8, 3)), (&[PACKED], (32, 64, 2)), (&[WIDE, PACKED], (32, 64, 2))]
        {
            let [key, slot] = ["key", "slot"].map(|search| of_table(keys, &source, shape, search));
            // Other groups have copies, where not all have, and keys that come in another order lie elsewhere.
            assert!(key.read <= slot.read + slot.read / 20, "{number} {shape:?}: {key:?} {slot:?}");
            assert!(key.written <= slot.written + slot.written / 20, "{number} {shape:?}: {key:?} {slot:?}");
        }
    }
}
