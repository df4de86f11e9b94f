//! Grouped and single aggregation by numbers of groups, skew and kinds of keys, under every micro model and resolution, on the
//! CPU and on interpreters: compared with a plain evaluation.

use crate::common::*;
use crate::grouped_rows::{COLUMNS, DECIMAL, KEYS, Row, rows, table, wide};

use AggregateFunction::*;

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

/// `CASE WHEN number < 5 THEN number END`: an aggregate with a FILTER.
fn filtered() -> Expr {
    value_where(compare_with(CompareOp::Lt, column(4), 5), column(4))
}

/// The plan that groups by key `key`, where there is one. `plain`: no text and no lock among the cells.
fn plan(key: Option<usize>, plain: bool) -> Plan {
    let mut aggregates = vec![
        of_longs(Count, None),
        of_longs(Count, Some(column(4))),
        of_longs(Sum, Some(column(4))),
        of_longs(Min, Some(column(4))),
        of_longs(Max, Some(column(4))),
        of_longs(Sum, Some(filtered())),
        of(Sum, Some(column(5)), DECIMAL),
        of(Sum, Some(column(6)), DataType::Float64),
        of(Max, Some(column(6)), DataType::Float64),
    ];
    if !plain {
        aggregates.extend([
            distinct(of_longs(Count, Some(column(4)))),
            of(Max, Some(column(5)), DECIMAL),
            of(Min, Some(column(7)), DataType::Utf8),
            of(Max, Some(column(7)), DataType::Utf8),
            of(VarPopulation, Some(column(6)), DataType::Float64),
        ]);
    }
    groups_of(scan_of(0, &COLUMNS), key.map(column).into_iter().collect(), aggregates)
}

/// A decimal of scale 2.
fn cents(value: i128) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    format!("{sign}{}.{:02}", value / 100, value % 100)
}

/// What a group's result is: everything that is exact as text, and the floats.
type Expected = (Vec<String>, Vec<f64>);

fn evaluate(rows: &[&Row], plain: bool, grouped: bool) -> Expected {
    let numbers = || rows.iter().filter_map(|row| row.number);
    let text = |value: Option<i64>| value.map_or(String::new(), |value| value.to_string());
    let sum = |values: &mut dyn Iterator<Item = i64>| values.reduce(|a, b| a.wrapping_add(b));
    let mut exact = vec![
        rows.len().to_string(),
        numbers().count().to_string(),
        text(sum(&mut numbers())),
        text(numbers().min()),
        text(numbers().max()),
        text(sum(&mut numbers().filter(|number| *number < 5))),
        cents(rows.iter().map(|row| row.decimal).sum()),
    ];
    let values = || rows.iter().map(|row| row.float);
    let mut floats = vec![values().sum(), values().max_by(f64::total_cmp).unwrap_or_default()];
    if !plain {
        exact.push(numbers().collect::<HashSet<_>>().len().to_string());
        exact.push(cents(rows.iter().map(|row| row.decimal).max().unwrap_or_default()));
        exact.push(rows.iter().map(|row| row.text.as_str()).min().unwrap_or_default().into());
        exact.push(rows.iter().map(|row| row.text.as_str()).max().unwrap_or_default().into());
        let mean = values().sum::<f64>() / rows.len() as f64;
        let squares: f64 = values().map(|value| (value - mean).powi(2)).sum();
        let single = !grouped && rows.len() == 1;
        floats.push(if single { 0.0 } else { squares / rows.len() as f64 });
    }
    (exact, floats)
}

/// The group of a row of the result.
fn group_of(array: &ArrayRef, row: usize, key: usize, groups: &BTreeMap<i64, usize>) -> usize {
    match key {
        0 => array.as_primitive::<arrow::datatypes::Int32Type>().value(row) as usize,
        1 => groups[&array.as_primitive::<Int64Type>().value(row)],
        2 if array.is_null(row) => 0,
        2 => {
            let text = array_value_to_string(array, row).expect("text");
            text.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a group")
        }
        _ => match array.as_primitive::<Float64Type>().value(row) {
            nan if nan.is_nan() => 0,
            0.0 => 1,
            value => value as usize,
        },
    }
}

fn expect(batch: &RecordBatch, row: usize, keys: usize, expected: &Expected, what: &str) {
    let (exact, floats) = expected;
    let (mut next_exact, mut next_float) = (exact.iter(), floats.iter());
    for column in &batch.columns()[keys..] {
        if column.data_type() == &ArrowType::Float64 {
            let (found, wanted) =
                (column.as_primitive::<Float64Type>().value(row), *next_float.next().expect("a float"));
            let scale = found.abs().max(wanted.abs());
            let close = (found - wanted).abs() <= 1e-9 * scale || found == wanted;
            assert!(close || (found.is_nan() && wanted.is_nan()), "{what}: {found} instead of {wanted}");
        } else {
            let found = match column.data_type() {
                _ if column.is_null(row) => String::new(),
                ArrowType::Decimal128(..) => decimal(column, row),
                _ => array_value_to_string(column, row).expect("a value"),
            };
            assert_eq!(Some(&found), next_exact.next(), "{what}");
        }
    }
}

/// Hundredths, as `cents`.
fn decimal(column: &ArrayRef, row: usize) -> String {
    cents(column.as_primitive::<Decimal128Type>().value(row))
}

/// Groups `rows` by each of `keys`, and compares.
fn compare(rows: &[Row], keys: &[usize], devices: &[(DeviceChoice, u32)]) {
    compare_by(rows, keys, &every_model(devices));
}

/// Each key with and without texts, and each facet of the configurations.
fn compare_by(rows: &[Row], keys: &[usize], configurations: &[QueryOptions]) {
    let cases = cases(keys, configurations);
    let picked =
        covering(&name_of(rows), cases, 10, |case| facets_and(case.options, &[&(case.key, case.plain)]));
    compare_cases(rows, picked);
}

/// At most so many of the cases, where rows are many.
fn compare_few(rows: &[Row], keys: &[usize], configurations: &[QueryOptions], most: usize) {
    compare_cases(rows, sample(&name_of(rows), cases(keys, configurations), most));
}

/// One of the cases in which nothing but numbers is added up; of all cases all.
fn compare_counts(rows: &[Row], configurations: &[QueryOptions]) {
    let cases = cases(&[0], configurations).into_iter().filter(|case| case.plain || is_whole());
    compare_cases(rows, sample(&name_of(rows), cases, 1));
}

/// By which key rows are grouped, whether without text and lock, and how.
struct Case<'o> {
    key: usize,
    plain: bool,
    options: &'o QueryOptions,
}

fn cases<'o>(keys: &[usize], configurations: &'o [QueryOptions]) -> Vec<Case<'o>> {
    let each = |plain| keys.iter().map(move |key| (plain, *key));
    let each = [true, false].into_iter().flat_map(each);
    let with = |(plain, key)| configurations.iter().map(move |options| Case { key, plain, options });
    each.flat_map(with).collect()
}

fn name_of(rows: &[Row]) -> String {
    format!("{} rows, the last in group {:?}", rows.len(), rows.last().map(|row| row.group))
}

fn compare_cases(rows: &[Row], cases: Vec<Case<'_>>) {
    let engine = Engine::new();
    let source = table(rows);
    let mut members: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| members.entry(row.group).or_default().push(row));
    let by_wide: BTreeMap<i64, usize> = members.keys().map(|group| (wide(*group), *group)).collect();
    let expected = [true, false].map(|plain| -> BTreeMap<usize, Expected> {
        members.iter().map(|(group, rows)| (*group, evaluate(rows, plain, true))).collect()
    });
    for Case { key, plain, options } in cases {
        let expected = &expected[usize::from(!plain)];
        let output = run(&engine, plan(Some(key), plain), &source, options);
        let what = format!("{} keys, plain {plain}, {options:?}", KEYS[key]);
        assert_eq!(output.batch.num_rows(), expected.len(), "{what}");
        let mut seen = HashSet::new();
        for row in 0..output.batch.num_rows() {
            let group = group_of(output.batch.column(0), row, key, &by_wide);
            assert!(seen.insert(group), "{what}: group {group} twice");
            expect(&output.batch, row, 1, &expected[&group], &what);
        }
    }
}

/// The first few of the CPU and interpreters of several shapes, and a GPU where there is one.
fn devices(count: usize) -> Vec<(DeviceChoice, u32)> {
    let is_usable = kelpie_engine::testing::has_cuda(&Engine::new());
    let interpreters = [32, 4, 3].map(|lanes| (DeviceChoice::Simt, lanes));
    let all = [(DeviceChoice::Cpu, 32)].into_iter().chain(interpreters).take(count);
    all.chain(is_usable.then_some((DeviceChoice::Cuda, 32))).collect()
}

#[test]
fn one_or_two_groups() {
    compare(&rows(1, 1, false), &[0, 1, 2, 3], &devices(4));
    compare(&rows(300, 1, false), &[0, 1, 2, 3], &devices(4));
    compare(&rows(300, 2, false), &[0, 1, 2, 3], &devices(4));
}

#[test]
fn a_hundred_groups() {
    compare(&rows(700, 100, false), &[0, 1, 2, 3], &devices(4));
}

/// Whoever reduces groups does so in blocks of any size: whole warps, less than one, more threads than there are rows.
#[test]
fn blocks_of_every_size() {
    let devices = devices(2);
    let mut all = Vec::new();
    for threads in [8, 24, 32, 128, 512, 1024] {
        let shape = ShapeChoices { block_threads: Some(threads), ..ShapeChoices::default() };
        for options in every_model(&devices[1..]) {
            let is_local = options.micro_model == MicroModel::Resolution;
            all.extend((is_local || threads == 8).then_some(QueryOptions { shape, ..options }));
        }
    }
    compare_by(&rows(700, 40, true), &[0, 1], &all);
    compare_by(&rows(90, 3, false), &[0, 2], &all);
}

/// A dense table that is too large for shared memory.
#[test]
fn nine_hundred_dense_groups() {
    compare(&rows(2_500, 900, false), &[0], &devices(3));
}

#[test]
fn one_group_has_nine_of_ten_rows() {
    compare(&rows(1_500, 100, true), &[0, 1, 2, 3], &devices(2));
}

#[test]
fn twenty_thousand_groups() {
    let cpu = every_model(&devices(1));
    compare_few(&rows(60_000, 20_000, false), &[0, 1, 2, 3], &cpu, 5);
    compare_few(&rows(60_000, 20_000, true), &[1, 2], &cpu, 2);
    compare_few(&rows(25_000, 20_000, false), &[1], &every_model(&devices(2)[1..2]), 1);
}

/// Blocks keep sums of some groups near: of all of them, of the heavy ones, of the first, of none.
#[test]
fn near_copies_of_groups() {
    let engine = Engine::new();
    let mut all = Vec::new();
    for (copies, table, search) in
        [("256", "hash", "slot"), ("256", "hash", "key"), ("256", "direct", "slot"), ("0", "hash", "slot")]
    {
        let mut variants = kelpie_engine::Forced::default();
        let forms =
            [("local_preaggregation", copies), ("group_table", table), ("accumulator_memory", "global")];
        for (axis, value) in forms.into_iter().chain([("preaggregation_search", search)]) {
            variants.set(axis, value).expect("an axis and its value");
        }
        let with = |options: QueryOptions| QueryOptions { variants: variants.clone(), ..options };
        let resolving = every_model(&devices(2)).into_iter();
        all.extend(resolving.filter(|options| options.micro_model == MicroModel::Resolution).map(with));
    }
    for (count, groups, skew) in [(400, 3, false), (700, 200, true), (1_500, 1_100, false)] {
        compare_by(&rows(count, groups, skew), &[0, 1, 2, 3], &all);
    }
    let source = table(&rows(300, 7, false));
    for options in &all {
        let output = run(&engine, plan(Some(1), true), &source, options);
        let names = names_of(&output);
        let near = format!("{:?}", options.variants).contains("256");
        assert_eq!(names.iter().any(|name| name.contains("near copies")), near, "{names:?}, {options:?}");
    }
}

/// Rows come into parts before they come to their groups: of several sizes, under skew, that flow over into the places for any part,
/// and in more groups than the first table has slots for.
#[test]
fn groups_in_parts() {
    let engine = Engine::new();
    let options = |devices: usize, parts: &str, table: &str| {
        let mut variants = kelpie_engine::Forced::default();
        let forms = [("group_parts", parts), ("group_table", table), ("accumulator_memory", "global")];
        for (axis, value) in forms {
            variants.set(axis, value).expect("an axis and its value");
        }
        let with = |options: QueryOptions| QueryOptions { variants: variants.clone(), ..options };
        let resolving = every_model(&self::devices(devices)).into_iter();
        let is_local = |options: &QueryOptions| options.micro_model == MicroModel::Resolution;
        resolving.filter(is_local).map(with).collect::<Vec<_>>()
    };
    for (parts, table, keys) in [
        ("16", "hash", &[0, 1, 2, 3][..]),
        ("64", "direct", &[0]),
        ("256", "hash", &[1]),
        ("4", "direct", &[0]),
        ("1024", "direct", &[0]),
    ] {
        let all = options(4, parts, table);
        // The interpreter is slow with very many parts.
        let most = if matches!(parts, "256" | "1024") { 2 } else { 4 };
        compare_few(&rows(1, 1, false), keys, &all, most);
        compare_few(&rows(700, 1, false), keys, &all, most);
        compare_few(&rows(700, 90, true), keys, &all, 2 * most);
        compare_few(&rows(1_500, 1_400, false), keys, &options(2, parts, table), most);
    }
    compare_few(&rows(60_000, 40_000, false), &[1, 2], &options(1, "64", "hash"), 1);
    for count in sizes(4_000, 30_000) {
        compare_few(&rows(count, 2 * count / 3, true), &[1], &options(2, "16", "hash"), 2);
    }
    let source = self::table(&rows(300, 7, false));
    for options in &options(2, "16", "hash") {
        let output = run(&engine, plan(Some(1), true), &source, options);
        let names = names_of(&output);
        assert!(names.iter().any(|name| name.contains("into 16 parts")), "{names:?}, {options:?}");
    }
    let nothing = run(&engine, plan(Some(1), true), &self::table(&[]), &options(1, "16", "hash")[0]);
    assert_eq!(nothing.batch.num_rows(), 0);
}

/// Blocks have a slice of the groups at a time: fewer groups than slices, slices of which the last is not whole, dead rows, keys that
/// are NULL, sums of digits, and several rows of a thread.
#[test]
fn groups_in_slices() {
    let engine = Engine::new();
    let options = |slices: &str, sums: &str| {
        let mut variants = kelpie_engine::Forced::default();
        // Counts have 2 bytes in every second number of slices.
        let counts = if slices == "4" { "2" } else { "4" };
        for (axis, value) in [
            ("accumulator_memory", "block"),
            ("group_table", "direct"),
            ("table_slices", slices),
            ("block_sums", sums),
            ("count_bytes", counts),
        ] {
            variants.set(axis, value).expect("an axis and its value");
        }
        let devices =
            devices(4).into_iter().filter(|(device, _)| *device != DeviceChoice::Cpu).collect::<Vec<_>>();
        let with = |options: QueryOptions| QueryOptions { variants: variants.clone(), ..options };
        every_model(&devices).into_iter().map(with).collect::<Vec<_>>()
    };
    for (slices, sums) in [("2", "words"), ("4", "digits"), ("8", "words")] {
        let all = options(slices, sums);
        compare_by(&rows(1, 1, false), &[0, 2], &all);
        compare_by(&rows(700, 5, false), &[0, 2], &all);
        compare_by(&rows(700, 90, true), &[0], &all);
    }
    let source = self::table(&rows(300, 7, false));
    for options in options("4", "words") {
        let output = run(&engine, plan(Some(0), true), &source, &options);
        let names = names_of(&output);
        let sorts = matches!(options.micro_model, MicroModel::MultiPass | MicroModel::OperatorAtATime);
        let are_sliced = names.iter().any(|name| name.contains("in slices of blocks"));
        assert!(are_sliced || sorts, "{names:?}, {options:?}");
    }
}

/// A CPU's workers add up whole parts: without atomics, or with them where rows have flown over; one row after the other, or by batches;
/// with near copies beside, keys in the slots and apart, and tables that are too small at first.
#[test]
fn parts_that_a_worker_has_alone() {
    let engine = Engine::new();
    let mut all = Vec::new();
    for (parts, forced) in [
        ("4", [("part_memory", "alone"), ("batch_rows", "0"), ("local_preaggregation", "0")]),
        ("16", [("part_memory", "alone"), ("batch_rows", "64"), ("local_preaggregation", "0")]),
        ("64", [("part_memory", "alone"), ("batch_rows", "64"), ("local_preaggregation", "256")]),
        ("64", [("part_memory", "global"), ("batch_rows", "0"), ("local_preaggregation", "0")]),
    ] {
        for (threads, slots) in [(1, "beside"), (3, "apart")] {
            let mut variants = kelpie_engine::Forced::default();
            let table = [("group_parts", parts), ("group_table", "hash"), ("slot_layout", slots)];
            for (axis, value) in table.into_iter().chain(forced) {
                variants.set(axis, value).expect("an axis and its value");
            }
            let device = DeviceChoice::Cpu;
            let options = QueryOptions { device, threads: Some(threads), ..QueryOptions::default() };
            all.push(QueryOptions { variants, ..options });
        }
    }
    for (count, groups, skew) in
        [(1, 1, false), (63, 2, false), (700, 1, false), (5_000, 300, false), (5_000, 300, true)]
    {
        compare_by(&rows(count, groups, skew), &[0, 1, 2, 3], &all);
    }
    compare_few(&rows(40_000, 30_000, false), &[0, 1, 2, 3], &all, 2);
    compare_few(&rows(40_000, 30_000, true), &[0, 1, 2, 3], &all, 2);
    let source = table(&rows(300, 7, false));
    for options in &all {
        let output = run(&engine, plan(Some(1), true), &source, options);
        let alone = output.metrics.pipelines.iter().any(|pipeline| pipeline.name.contains("a worker a part"));
        assert_eq!(alone, format!("{:?}", options.variants).contains("alone"), "{options:?}");
    }
}

/// Interpreters, and a GPU where there is one, with counts of so many bytes in blocks.
fn counting(bytes: &str, shapes: &[(&str, &str)]) -> Vec<QueryOptions> {
    let mut all = Vec::new();
    for (slices, threads) in shapes {
        let mut variants = kelpie_engine::Forced::default();
        let forced = [("accumulator_memory", "block"), ("group_table", "direct"), ("count_bytes", bytes)];
        let shape = [("table_slices", *slices), ("block_threads", *threads), ("blocks", "one")];
        for (axis, value) in forced.into_iter().chain(shape) {
            variants.set(axis, value).expect("an axis and its value");
        }
        let devices = devices(4).into_iter().filter(|(device, _)| *device != DeviceChoice::Cpu);
        let with = |(device, lanes)| QueryOptions {
            device,
            simt_lanes: lanes,
            micro_model: MicroModel::Resolution,
            variants: variants.clone(),
            ..QueryOptions::default()
        };
        all.extend(devices.map(with));
    }
    all
}

/// Counts of 2 bytes give what they have no room for to the device's table: more rows than they hold in one group, in two that share
/// four bytes, and in slices; dead rows too, which are in no group.
#[test]
fn counts_of_two_bytes() {
    let all = counting("2", &[("1", "256"), ("2", "32")]);
    // A count is given away at 2^15 rows. More of them only repeat that.
    for count in sizes(37_000, 150_000) {
        compare_counts(&rows(count, 3, true), &all[..1]);
    }
    for count in sizes(67_000, 100_000) {
        compare_counts(&rows(count, 2, false), &all);
    }
    compare_by(&rows(700, 90, false), &[0], &all);
}

/// Counts of a byte do so at every 256th row, and undo what carries bring to the bytes above: a group goes round hundreds of times, its
/// neighbours with it or beside it, rows come in turn so that all bytes of a word go round together; in slices of which the last is not
/// whole, with dead rows, a key that is NULL, blocks of few and of many threads, and sums beside.
#[test]
fn counts_of_a_byte() {
    let all = counting("1", &[("1", "1024"), ("4", "64")]);
    for count in sizes(9_000, 60_000) {
        compare_few(&rows(count, 3, true), &[0], &all[..1], 1);
    }
    compare_few(&rows(3_000, 2, false), &[0], &all, 4);
    compare_few(&rows(3_000, 11, true), &[0, 2], &all, 6);
    compare_by(&rows(700, 90, false), &[0, 2], &all);
    let in_turn = |count: usize, groups: usize| {
        let mut all = rows(count, groups, false);
        all.iter_mut().enumerate().for_each(|(row, own)| own.group = row % groups);
        all
    };
    compare_few(&in_turn(2_500, 4), &[0], &all, 4);
    compare_few(&in_turn(2_500, 9), &[0], &all, 4);
    // A CPU's worker adds words.
    let worker = QueryOptions { device: DeviceChoice::Cpu, ..all[0].clone() };
    compare_by(&rows(3_000, 11, true), &[0], std::slice::from_ref(&worker));
    let few = table(&rows(90, 7, false));
    for (options, bytes) in all.iter().map(|options| (options, "1")).chain([(&worker, "4")]) {
        let output = run(&Engine::new(), plan(Some(0), true), &few, options);
        let choices = output.metrics.variants.iter().flat_map(|genome| &genome.0);
        let chosen = choices.filter(|choice| choice.axis.name == "count_bytes").map(|choice| choice.value);
        assert!(chosen.eq([bytes]), "{options:?}");
    }
}

/// Rows of a CPU's worker wait for each other: fewer than a batch, as many, one more, several batches; in one group, in few, all in
/// groups of their own; with keys in the slots and apart, found near and far, in tables that are too small at first.
#[test]
fn rows_that_wait_for_each_other() {
    let engine = Engine::new();
    let mut all = Vec::new();
    for (batch, near, layout) in
        [("64", "0", "beside"), ("64", "256", "apart"), ("256", "256", "beside"), ("0", "0", "beside")]
    {
        let mut variants = kelpie_engine::Forced::default();
        let forced = [("batch_rows", batch), ("local_preaggregation", near), ("slot_layout", layout)];
        for (axis, value) in forced.into_iter().chain([("group_table", "hash")]) {
            variants.set(axis, value).expect("an axis and its value");
        }
        let options = QueryOptions { device: DeviceChoice::Cpu, threads: Some(2), ..QueryOptions::default() };
        all.push(QueryOptions { variants, ..options });
    }
    for (count, groups, skew) in
        [(1, 1, false), (63, 2, false), (64, 64, false), (65, 1, false), (700, 200, true)]
    {
        compare_by(&rows(count, groups, skew), &[0, 1, 2, 3], &all);
    }
    compare_few(&rows(40_000, 30_000, false), &[0, 1, 2, 3], &all, 3);
    let source = table(&rows(300, 7, false));
    for options in &all {
        let output = run(&engine, plan(Some(2), true), &source, options);
        let names = names_of(&output);
        let waits = names.iter().any(|name| name.contains("batches"));
        assert_eq!(waits, forced_batch(options) != "0", "{names:?}, {options:?}");
    }
}

fn forced_batch(options: &QueryOptions) -> &str {
    let forced = options.variants.iter().find(|(axis, _)| *axis == "batch_rows");
    forced.map_or("", |(_, value)| value)
}

/// Blocks of rows stream through the device, or each kernel's rows through the host.
#[test]
fn rows_in_blocks() {
    let engine = Engine::new();
    let rows = rows(6_000, 100, false);
    let source = table(&rows);
    let mut members: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| members.entry(row.group).or_default().push(row));
    let all = evaluate(&rows.iter().collect::<Vec<_>>(), false, false);
    let groups: BTreeMap<usize, Expected> =
        members.iter().map(|(group, rows)| (*group, evaluate(rows, false, true))).collect();
    let models = [MacroModel::Batch, MacroModel::KernelAtATime];
    let cases = every_model(&devices(2)).into_iter().flat_map(|options| {
        let with = |macro_model| QueryOptions { macro_model, block_bytes: Some(16 << 10), ..options.clone() };
        models
            .map(with)
            .into_iter()
            .flat_map(|options| [None, Some(0), Some(2)].map(|key| (key, options.clone())))
    });
    for (key, options) in
        covering("blocks", cases.collect::<Vec<_>>(), 14, |(key, options)| facets_and(options, &[key]))
    {
        let what = format!("{options:?}");
        let output = run(&engine, plan(key, false), &source, &options);
        let Some(key) = key else {
            expect(&output.batch, 0, 0, &all, &what);
            continue;
        };
        let blocks = output.metrics.pipelines.first().map_or(0, |pipeline| pipeline.blocks);
        assert!(blocks > 1, "{what}: {blocks} blocks");
        assert_eq!(output.batch.num_rows(), members.len(), "{what}");
        for row in 0..output.batch.num_rows() {
            let group = group_of(output.batch.column(0), row, key, &BTreeMap::new());
            expect(&output.batch, row, 1, &groups[&group], &what);
        }
    }
}

/// Parts fill up block by block, and where memory is short at first they have too few places.
#[test]
fn parts_of_blocks_and_with_little_memory() {
    let resolving = |options: &QueryOptions| options.micro_model == MicroModel::Resolution;
    let local: Vec<QueryOptions> = every_model(&devices(2)).into_iter().filter(resolving).collect();
    let mut all = Vec::new();
    for options in local {
        let variants = force([("group_parts", "16")]);
        let options = QueryOptions { variants: variants.clone(), ..options };
        let (macro_model, block_bytes) = (MacroModel::Batch, Some(16 << 10));
        all.push(QueryOptions { macro_model, block_bytes, ..options.clone() });
        for memory_limit in [3 << 20, 800 << 10] {
            all.push(QueryOptions { memory_limit: Some(memory_limit), ..options.clone() });
        }
    }
    compare_by(&rows(6_000, 700, false), &[0, 1], &all);
    compare_by(&rows(6_000, 50, true), &[1], &all);
}

#[test]
fn without_keys() {
    let engine = Engine::new();
    for count in [1, 2, 31, 300, 5_000] {
        let rows = rows(count, 1, false);
        let source = table(&rows);
        let all: Vec<&Row> = rows.iter().collect();
        let expected = [true, false].map(|plain| evaluate(&all, plain, false));
        let each = every_model(&devices(4))
            .into_iter()
            .flat_map(|options| [(true, options.clone()), (false, options)]);
        let name = format!("without keys, {count} rows");
        for (plain, options) in covering(&name, each, 12, |(plain, options)| facets_and(options, &[plain])) {
            let output = run(&engine, plan(None, plain), &source, &options);
            expect(
                &output.batch,
                0,
                0,
                &expected[usize::from(!plain)],
                &format!("{count} rows, {options:?}"),
            );
        }
    }
}

/// The pipelines' names tell which reduction they use.
#[test]
fn pipelines_say_who_reduces() {
    let engine = Engine::new();
    let (few, many) = (table(&rows(300, 100, false)), table(&rows(2_500, 900, false)));
    let name = |source: &Arc<Table>, key: Option<usize>, micro_model, resolution| {
        let device = DeviceChoice::Simt;
        let options = QueryOptions { device, micro_model, resolution, ..QueryOptions::default() };
        let output = run(&engine, plan(key, true), source, &options);
        output.metrics.pipelines.into_iter().map(|pipeline| pipeline.name).collect::<Vec<_>>().join("; ")
    };
    use MicroModel::*;
    let table = [
        (Some(3), MicroModel::Resolution, self::Resolution::Simd, "segments in warps"),
        (Some(3), MicroModel::Resolution, self::Resolution::WorkEfficient, "segments in blocks"),
        (Some(3), MultiPass, self::Resolution::Simd, "sorted rows → aggregate (hash, packed keys, segments)"),
        (Some(0), OperatorAtATime, self::Resolution::Simd, "runs of sorted rows → result"),
        (None, MultiPass, self::Resolution::Simd, "reduce sums of blocks"),
        (None, MicroModel::Resolution, self::Resolution::WorkEfficient, "registers, tree in blocks"),
    ];
    for (key, micro_model, resolution, expected) in table {
        let found = name(&few, key, micro_model, resolution);
        assert!(found.contains(expected), "{micro_model:?} {resolution:?}: {found}");
    }
    assert!(!name(&few, Some(3), Pipelined, self::Resolution::Simd).contains("segments"));
    let found = name(&many, Some(0), MicroModel::Resolution, self::Resolution::Simd);
    assert!(found.contains("direct, 900 slots, segments in warps"), "{found}");
}
