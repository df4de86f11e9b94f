//! Groups that nothing is added up of, whose rows come in parts: what a CPU's workers deliver part after part is what the table of all groups
//! has, and what a plain evaluation gives; keys of several kinds with NULLs, empty and long texts, rows that are all equal or all
//! different, parts that have more rows than their places, or than a worker's table has room for.

use crate::common::*;

/// A key of the groups, and a value: a number and a text each, which may be NULL, and a number that is not.
type Row = (Option<i64>, Option<String>, i64);

const NUMBER: usize = 0;
const TEXT: usize = 1;
const OTHER: usize = 2;

const COLUMNS: [Column; 3] =
    [("number", DataType::Int64, true), ("text", DataType::Utf8, true), ("other", DataType::Int64, false)];

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

fn table(rows: &[Row]) -> Arc<Table> {
    let arrays: Vec<ArrayRef> = vec![
        maybe_longs(rows.iter().map(|row| row.0)),
        maybe_texts(rows.iter().map(|row| row.1.as_deref())),
        longs(rows.iter().map(|row| row.2)),
    ];
    table_of(&COLUMNS, arrays)
}

/// The distinct combinations of some columns.
fn distinct(keys: &[usize]) -> Plan {
    groups_of(scan_of(0, &COLUMNS), keys.iter().map(|key| column(*key)).collect(), Vec::new())
}

/// Of each value of the first column, how many distinct values the others have that are not NULL in the last of them, and how many rows
/// these combinations are.
fn counted(keys: &[usize]) -> Plan {
    let key = |place: usize| {
        let (_, data_type, nullable) = COLUMNS[keys[place]].clone();
        Expr::column(place, data_type, nullable)
    };
    let count = |argument| of_longs(AggregateFunction::Count, argument);
    groups_of(distinct(keys), vec![key(0)], vec![count(Some(key(keys.len() - 1))), count(None)])
}

fn cells(row: &Row) -> [Option<String>; 3] {
    [row.0.map(|number| number.to_string()), row.1.clone(), Some(row.2.to_string())]
}

fn told(cells: impl IntoIterator<Item = Option<String>>) -> String {
    cells.into_iter().map(|cell| cell.unwrap_or("-".into())).collect::<Vec<_>>().join("|")
}

/// What [`distinct`] and [`counted`] are to give.
fn expected(rows: &[Row], keys: &[usize]) -> [Vec<String>; 2] {
    let own = |row: &Row| keys.iter().map(|key| cells(row)[*key].clone()).collect::<Vec<_>>();
    let all: BTreeSet<Vec<Option<String>>> = rows.iter().map(own).collect();
    let mut counts: BTreeMap<Option<String>, (u64, u64)> = BTreeMap::new();
    for pair in &all {
        let count = counts.entry(pair[0].clone()).or_default();
        count.0 += u64::from(pair.last().is_some_and(Option::is_some));
        count.1 += 1;
    }
    let counts = counts
        .into_iter()
        .map(|(key, (values, rows))| told([key, Some(values.to_string()), Some(rows.to_string())]));
    let mut found = [all.into_iter().map(told).collect::<Vec<_>>(), counts.collect()];
    found.iter_mut().for_each(|rows| rows.sort());
    found
}

fn options(threads: usize, forced: &[(&str, &str)]) -> QueryOptions {
    let forced = [&[("group_table", "hash")], forced].concat();
    QueryOptions { threads: Some(threads), ..on(DeviceChoice::Cpu, &forced) }
}

fn run(
    engine: &Engine,
    plan: &Plan,
    table: &Arc<Table>,
    options: &QueryOptions,
) -> (Vec<String>, QueryOutput) {
    let output = crate::common::run(engine, plan, table, options);
    (rows_of(&output.batch, false), output)
}

fn delivery(output: &QueryOutput) -> Option<&'static str> {
    chosen(output, "part_delivery").first().copied()
}

/// Rows of `values` numbers and as many texts, every eleventh of which is NULL; of each `heavy` rows all but one are equal.
fn rows(count: usize, values: u64, heavy: u64, length: usize) -> Vec<Row> {
    let mut next = random(count as u64 + values);
    let text = |value: u64| match value {
        3 => String::new(),
        // Words of which the first ones agree, and some that end within a word.
        value => format!("{}é {value}", "long ".repeat(length / 5 * (value as usize % 3))),
    };
    let row = |_| {
        let (pick, number, value) = (next() % heavy, next() % values, next() % values);
        let (number, value) = if pick > 0 { (5, 5) } else { (number, value) };
        let some = |value: u64| !(value + 4).is_multiple_of(11);
        let number_of = |number: u64| (number as i64 - 2).wrapping_mul(0x5851_f42d_4c95_7f2d);
        (
            some(number).then(|| number_of(number)),
            some(value).then(|| text(value)),
            number_of(next() % values.min(20)),
        )
    };
    (0..count).map(row).collect()
}

const KEYS: [&[usize]; 5] =
    [&[NUMBER, TEXT], &[TEXT, NUMBER], &[OTHER, NUMBER, TEXT], &[TEXT], &[OTHER, NUMBER]];

/// Compares all that is asked of rows, by workers and by the table of all groups.
fn compare(engine: &Engine, rows: &[Row], ways: &[(usize, &[(&str, &str)])]) {
    let table = table(rows);
    let mut cases = Vec::new();
    for keys in KEYS {
        for counts in [false, true] {
            for (threads, forced) in ways {
                for delivered in ["worker", "table"] {
                    let own = [("aggregate0.part_delivery", delivered), ("unique_rows", "group")];
                    let forced = [forced, &own[..]].concat();
                    cases.push((keys, counts, delivered, options(*threads, &forced)));
                }
            }
        }
    }
    let name = format!("{} rows", rows.len());
    // Each kind of keys, what is counted of them, and each way; of very many rows one of each way.
    let is_small = rows.len() < 100_000;
    let cases = covering(&name, cases, if is_small { 10 } else { 0 }, |(keys, counts, _, options)| {
        if is_small { facets_and(options, &[keys, counts]) } else { facets(options) }
    });
    for (keys, counts, delivered, options) in cases {
        let plan = if counts { counted(keys) } else { distinct(keys) };
        let (found, output) = run(engine, &plan, &table, &options);
        assert_eq!(delivery(&output), Some(delivered), "{options:?}");
        let expected = &expected(rows, keys)[usize::from(counts)];
        let what = format!("{name} by {keys:?}, {options:?}");
        assert!(found == *expected, "{what}: {} rows for {}", found.len(), expected.len());
    }
}

const WAYS: [(usize, &[(&str, &str)]); 4] = [
    (1, &[("aggregate0.group_parts", "4")]),
    (3, &[("aggregate0.group_parts", "16")]),
    (2, &[("aggregate0.group_parts", "64"), ("hash_mapping", "modulo")]),
    (3, &[("aggregate0.group_parts", "1024"), ("hash_function", "multiply_shift"), ("batch_rows", "64")]),
];

#[test]
fn rows_of_all_spreads() {
    let engine = Engine::new();
    for (count, values, heavy) in [
        (0, 1, 1),
        (1, 1, 1),
        (63, 2, 1),
        (64, 9, 1),
        (65, 9, 1),
        (700, 1, 1),
        (5000, 40, 1),
        (5000, 5000, 1),
    ] {
        compare(&engine, &rows(count, values, heavy, 5), &WAYS);
    }
}

/// One pair has nine of ten rows, or all but few: its part flows over, and others lie beside it.
#[test]
fn rows_of_a_frequent_pair() {
    let engine = Engine::new();
    for heavy in [10, 1000] {
        compare(&engine, &rows(6000, 3000, heavy, 5), &WAYS);
    }
}

/// Texts of more bytes than a part's memory for texts takes at a time.
#[test]
fn long_texts() {
    let engine = Engine::new();
    compare(&engine, &rows(3000, 300, 1, 100), &WAYS[1..3]);
    compare(&engine, &rows(1500, 100, 1, 3000), &WAYS[..2]);
}

/// Parts of more rows than a worker's table has room for come to the table of all groups, and others beside them do not.
#[test]
fn parts_beyond_a_workers_table() {
    let engine = Engine::new();
    let ways: [(usize, &[(&str, &str)]); 2] =
        [(2, &[("aggregate0.group_parts", "4")]), (2, &[("aggregate0.group_parts", "16")])];
    compare(&engine, &rows(300_000, 200_000, 1, 5), &ways);
    compare(&engine, &rows(200_000, 150_000, 3, 5), &ways);
}

/// A result that is cut off, and one that is read in pieces.
#[test]
fn some_of_the_groups() {
    let engine = Engine::new();
    let rows = rows(5000, 4000, 1, 5);
    let (table, keys) = (table(&rows), [NUMBER, TEXT]);
    let [all, _] = expected(&rows, &keys);
    let input = Box::new(distinct(&keys));
    let limited = Plan::Limit { input, skip: 0, fetch: Some(100) };
    let (found, output) = run(&engine, &limited, &table, &options(2, WAYS[1].1));
    assert_eq!((found.len(), delivery(&output)), (100, Some("worker")));
    let all: BTreeSet<String> = all.into_iter().collect();
    assert_eq!(found.iter().filter(|row| all.contains(*row)).collect::<BTreeSet<_>>().len(), 100);
}

/// Who adds something up, or makes coarser groups, has the table of all groups; so does a GPU.
#[test]
fn who_has_the_table_of_all_groups() {
    let engine = Engine::new();
    let rows = rows(500, 40, 1, 5);
    let table = table(&rows);
    let forced = [("aggregate0.group_parts", "16")];
    let (_, output) = run(&engine, &counted(&[NUMBER, TEXT]), &table, &options(2, &forced));
    assert_eq!(delivery(&output), Some("worker"));
    let (_, output) = run(
        &engine,
        &counted(&[NUMBER, TEXT]),
        &table,
        &QueryOptions { device: DeviceChoice::Simt, ..options(2, &forced) },
    );
    assert_eq!(delivery(&output), Some("table"));
}
