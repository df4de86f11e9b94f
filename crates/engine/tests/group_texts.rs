//! Texts of groups strung together (`string_agg`): by kinds of keys, orders and texts, under every micro model, on the CPU and on
//! interpreters: compared with a plain evaluation.

use std::cmp::Ordering;

use crate::common::*;

/// A row: its group, where one is a key that is NULL, and texts.
#[derive(Debug, Clone)]
struct Row {
    group: Option<i64>,
    number: i64,
    /// Of few texts, which have codes.
    few: Option<&'static str>,
    /// Of many.
    many: Option<String>,
}

const FEW: [&str; 5] =
    ["", "b", "a ß", "a beginning of many bytes, and b", "a beginning of many bytes, and a"];

/// Rows of groups. Two of three are of one group where they are `skewed`.
fn rows(count: usize, groups: usize, skewed: bool) -> Vec<Row> {
    let mut next = random(count as u64 * 31 + groups as u64);
    let row = |number: usize| {
        let (pick, value) = (next() as usize % groups, next() as usize);
        let group = if skewed && !number.is_multiple_of(3) { 1 } else { pick };
        Row {
            // The texts of a group may all be NULL.
            group: (group > 0).then_some(group as i64),
            number: number as i64,
            few: (value % 7 > 0 && group % 11 != 5).then(|| FEW[value % FEW.len()]),
            many: (value % 5 > 0).then(|| format!("{}é {}", "µ".repeat(value % 9), value % 5000)),
        }
    };
    (0..count).map(row).collect()
}

fn table(rows: &[Row]) -> Arc<Table> {
    let text = |row: &Row| row.group.map(|group| format!("group {} of a long name", group % 1000));
    let columns: Vec<ArrayRef> = vec![
        maybe_longs(rows.iter().map(|row| row.group)),
        longs(rows.iter().map(|row| row.number)),
        maybe_texts(rows.iter().map(|row| row.few)),
        maybe_texts(rows.iter().map(|row| row.many.as_deref())),
        maybe_texts(rows.iter().map(text)),
    ];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 5] = [
    ("group", DataType::Int64, true),
    ("number", DataType::Int64, false),
    ("few", DataType::Utf8, true),
    ("many", DataType::Utf8, true),
    ("text", DataType::Utf8, true),
];

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

/// `number < limit`.
fn below(limit: i64) -> Expr {
    compare_with(CompareOp::Lt, column(1), limit)
}

/// The argument where a row's number is low, as FILTER has it.
fn filtered(argument: Expr, limit: i64) -> Expr {
    value_where(below(limit), argument)
}

/// What texts are strung together by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// From the last number to the first.
    Numbers,
    /// By the texts of which there are few, NULLs first where they descend, then by number.
    Few { descending: bool },
    /// By the texts of which there are many, then by number.
    Many,
    /// None: that of the rows.
    Rows,
    /// Each of few texts once.
    FewOnce,
    /// Each of many texts once, from the last to the first.
    ManyOnce,
}

const ORDERS: [Order; 7] = [
    Order::Numbers,
    Order::Few { descending: false },
    Order::Few { descending: true },
    Order::Many,
    Order::Rows,
    Order::FewOnce,
    Order::ManyOnce,
];

/// Numbers below this are left by the filter.
const LIMIT: i64 = 40;

fn strung(argument: Expr, delimiter: &str, distinct: bool) -> RankedValue {
    let delimiter = text_literal(delimiter);
    let field = Field { name: "v".into(), data_type: DataType::Utf8, nullable: true };
    RankedValue { rank: Rank::Texts { delimiter, distinct }, argument, counted: None, field }
}

/// Behind the keys: the sum of numbers, how many rows there are, and texts.
fn plan(input: Plan, keys: &[usize], order: Order) -> Plan {
    let key = |index, descending| sort_key(column(index), descending, descending);
    let (order, values) = match order {
        Order::FewOnce => (vec![key(2, false)], vec![strung(column(2), ", ", true)]),
        Order::ManyOnce => (vec![key(3, true)], vec![strung(column(3), "", true)]),
        _ => {
            let first = |argument| RankedValue {
                rank: Rank::FromFirst(int(0)),
                field: Field { name: "f".into(), data_type: DataType::Int64, nullable: true },
                argument,
                counted: None,
            };
            let values = vec![
                strung(column(2), "", false),
                strung(column(3), " – ", false),
                strung(filtered(column(3), LIMIT), ",", false),
                strung(column(4), ",", false),
                first(column(1)),
            ];
            let order = match order {
                Order::Numbers => vec![key(1, true)],
                Order::Few { descending } => vec![key(2, descending), key(1, false)],
                Order::Many => vec![key(3, false), key(1, false)],
                _ => Vec::new(),
            };
            (order, values)
        }
    };
    Plan::Ranked(Box::new(Ranked {
        input,
        names: vec!["k".into(); keys.len()],
        keys: keys.iter().copied().map(column).collect(),
        order,
        aggregates: vec![
            of_longs(AggregateFunction::Sum, Some(column(1))),
            of_longs(AggregateFunction::Count, None),
        ],
        values,
    }))
}

fn other(value: Option<impl ToString>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

/// Texts that are not NULL, one after the other.
fn together<'t>(texts: impl Iterator<Item = Option<&'t str>>, delimiter: &str) -> String {
    let texts: Vec<&str> = texts.flatten().collect();
    if texts.is_empty() { "NULL".into() } else { format!("'{}'", texts.join(delimiter)) }
}

/// What a group's values are, which are plainly computed.
fn evaluate(rows: &[&Row], order: Order) -> Vec<String> {
    let mut rows = rows.to_vec();
    let sum = rows.iter().map(|row| row.number).reduce(|a, b| a + b);
    let mut values = vec![other(sum), rows.len().to_string()];
    let last = |text: Option<&str>| (text.is_none(), text.map(String::from));
    match order {
        Order::Numbers => rows.sort_by_key(|row| -row.number),
        Order::Few { descending: false } => rows.sort_by_key(|row| last(row.few)),
        Order::Few { descending: true } => {
            rows.sort_by(|a, b| match (a.few, b.few) {
                (Some(a), Some(b)) => b.cmp(a),
                (None, None) => Ordering::Equal,
                (None, _) => Ordering::Less,
                (_, None) => Ordering::Greater,
            });
        }
        Order::Many => rows.sort_by_key(|row| last(row.many.as_deref())),
        Order::Rows => {}
        Order::FewOnce | Order::ManyOnce => {
            let is_few = order == Order::FewOnce;
            let text = |row: &&Row| if is_few { row.few.map(String::from) } else { row.many.clone() };
            let texts: HashSet<String> = rows.iter().filter_map(text).collect();
            let mut texts: Vec<&String> = texts.iter().collect();
            texts.sort();
            if !is_few {
                texts.reverse();
            }
            let delimiter = if is_few { ", " } else { "" };
            values.push(together(texts.into_iter().map(|text| Some(text.as_str())), delimiter));
            return values;
        }
    }
    let group = |row: &&Row| row.group.map(|group| format!("group {} of a long name", group % 1000));
    let names: Vec<Option<String>> = rows.iter().map(group).collect();
    let left = rows.iter().filter(|row| row.number < LIMIT);
    values.push(together(rows.iter().map(|row| row.few), ""));
    values.push(together(rows.iter().map(|row| row.many.as_deref()), " – "));
    values.push(together(left.map(|row| row.many.as_deref()), ","));
    values.push(together(names.iter().map(Option::as_deref), ","));
    // Any row is the first where there is no order.
    values.push(if order == Order::Rows { "-".into() } else { other(rows.first().map(|row| row.number)) });
    values
}

fn shown(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "NULL".into();
    }
    match array.data_type() {
        ArrowType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        _ => format!("'{}'", arrow::util::display::array_value_to_string(array, row).expect("text")),
    }
}

const CPU: (DeviceChoice, u32) = (DeviceChoice::Cpu, 32);
const SIMT: [(DeviceChoice, u32); 2] = [(DeviceChoice::Simt, 32), (DeviceChoice::Simt, 3)];

/// Keys that tell the groups apart: none, a number with a NULL, a text with a NULL, and both.
const ALL: [&[usize]; 4] = [&[], &[0], &[4], &[4, 0]];

/// Strings the texts of `input`, which leaves the rows `left` of the table of `rows`, together by each of `keys`, and compares.
fn compare_over(
    input: &Plan,
    (rows, left): (&[Row], &[&Row]),
    orders: &[Order],
    keys: &[&[usize]],
    options: &[QueryOptions],
) {
    let engine = Engine::new();
    let source = table(rows);
    let mut members: BTreeMap<Option<i64>, Vec<&Row>> = BTreeMap::new();
    left.iter().for_each(|row| members.entry(row.group).or_default().push(row));
    let each = orders.iter().flat_map(|order| keys.iter().map(move |keys| (*order, *keys)));
    let each = each.flat_map(|(order, keys)| options.iter().map(move |options| (order, keys, options)));
    // Each order by each kind of keys, or each alone where rows are many.
    let is_small = rows.len() < 10_000;
    let cases =
        covering(&format!("{} of {} rows", left.len(), rows.len()), each, 0, |(order, keys, options)| {
            let pair = if is_small { format!("{order:?} {keys:?}") } else { String::new() };
            facets_and(options, &[order, keys, &pair])
        });
    for (order, keys, options) in cases {
        let mut expected: Vec<Vec<String>> = match keys {
            [] => vec![evaluate(left, order)],
            _ => members.values().map(|rows| evaluate(rows, order)).collect(),
        };
        expected.sort();
        let plan = plan(input.clone(), keys, order);
        let what = format!("{order:?}, keys {keys:?}, {options:?}");
        let batch = run(&engine, plan, &source, options).batch;
        let values = &batch.columns()[keys.len()..];
        let row = |row| values.iter().map(|array| shown(array, row)).collect();
        let mut found: Vec<Vec<String>> = (0..batch.num_rows()).map(row).collect();
        if order == Order::Rows {
            found.iter_mut().filter_map(|row| row.last_mut()).for_each(|first| *first = "-".into());
        }
        found.sort();
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found == expected, "{what}\n{found:?}\n{expected:?}");
        }
    }
}

fn compare(rows: &[Row], orders: &[Order], keys: &[&[usize]], devices: &[(DeviceChoice, u32)]) {
    let left: Vec<&Row> = rows.iter().collect();
    compare_over(&scan(), (rows, &left), orders, keys, &models(devices));
}

#[test]
fn no_rows_and_few() {
    let devices = [CPU, SIMT[0]];
    for count in [0, 1, 2, 7] {
        compare(&rows(count, 1, false), &ORDERS, &ALL, &devices);
    }
    compare(&rows(12, 4, false), &ORDERS, &ALL, &devices);
}

#[test]
fn rows_of_which_some_are_left() {
    let rows = rows(300, 5, false);
    for limit in [0, 150] {
        let input = keep(scan(), below(limit));
        let left: Vec<&Row> = rows.iter().filter(|row| row.number < limit).collect();
        let options = models(&[CPU, SIMT[0]]);
        compare_over(&input, (&rows, &left), &ORDERS, &ALL, &options);
    }
}

#[test]
fn one_group_and_some() {
    compare(&rows(400, 1, false), &ORDERS, &ALL, &[CPU, SIMT[0]]);
    compare(&rows(700, 60, false), &ORDERS, &ALL, &[CPU, SIMT[1]]);
    compare(&rows(900, 40, true), &ORDERS, &ALL, &[CPU, SIMT[0]]);
}

/// More rows than the host would sort, more groups than the first table of groups has room for, and more text than the first heap.
#[test]
fn many_groups() {
    compare(&rows(150_000, 900, false), &ORDERS, &[&[0]], &[CPU]);
    compare(&rows(100_000, 50_000, true), &[Order::Numbers, Order::Rows], &[&[0]], &[CPU]);
    compare(&rows(90_000, 3, true), &[Order::Many, Order::Rows], &[&[], &[4]], &[CPU]);
}

/// By a thread a group and by all rows at once, also where the rule would take the other way.
#[test]
fn both_ways() {
    for value in ["groups", "rows"] {
        let variants = force([("group_texts", value)]);
        let forced = |options: QueryOptions| QueryOptions { variants: variants.clone(), ..options };
        for (rows, keys, devices) in [
            (rows(0, 1, false), &ALL[..], &[CPU, SIMT[0]][..]),
            (rows(500, 30, true), &ALL, &[CPU, SIMT[1]]),
            (rows(70_000, 90, true), &ALL[..2], &[CPU]),
        ] {
            let left: Vec<&Row> = rows.iter().collect();
            let options: Vec<QueryOptions> = models(devices).into_iter().map(forced).collect();
            compare_over(&scan(), (&rows, &left), &ORDERS[..5], keys, &options);
        }
    }
}

/// Rows that come in blocks keep the order of these, all of them and those that are left by a filter.
#[test]
fn rows_in_blocks() {
    let rows = rows(800, 9, false);
    let input = keep(scan(), below(700));
    let left: Vec<&Row> = rows.iter().filter(|row| row.number < 700).collect();
    for macro_model in [MacroModel::Batch, MacroModel::KernelAtATime] {
        let in_blocks = |options| QueryOptions { macro_model, block_bytes: Some(1 << 10), ..options };
        let options: Vec<QueryOptions> = models(&[CPU, SIMT[0]]).into_iter().map(in_blocks).collect();
        let (orders, keys) = (&[Order::Rows, Order::Few { descending: true }], &ALL[..2]);
        compare_over(&input, (&rows, &left), orders, keys, &options);
        compare_over(&scan(), (&rows, &rows.iter().collect::<Vec<_>>()), orders, keys, &options);
    }
}

/// The same program over more rows, and then fewer, than those of which it is known how many bytes their texts have.
#[test]
fn constants_that_change() {
    let rows = rows(600, 7, true);
    let source = table(&rows);
    for options in models(&[CPU, SIMT[0]]) {
        let engine = Engine::new();
        for limit in [60, 60, 600, 600, 5, 300, 0] {
            let input = keep(scan(), below(limit));
            let plan = plan(input, &[0], Order::Many);
            let batch = run(&engine, plan, &source, &options).batch;
            let row = |row| batch.columns()[1..].iter().map(|array| shown(array, row)).collect();
            let mut found: Vec<Vec<String>> = (0..batch.num_rows()).map(row).collect();
            let mut members: BTreeMap<Option<i64>, Vec<&Row>> = BTreeMap::new();
            let left = rows.iter().filter(|row| row.number < limit);
            left.for_each(|row| members.entry(row.group).or_default().push(row));
            let mut expected: Vec<Vec<String>> =
                members.values().map(|rows| evaluate(rows, Order::Many)).collect();
            found.sort();
            expected.sort();
            assert!(found == expected, "{limit}, {options:?}");
        }
    }
}

/// Rows of two tables, one after the other, keep that order.
#[test]
fn a_union_keeps_its_order() {
    let rows = rows(500, 8, false);
    let keep = |predicate| keep(scan(), predicate);
    let kind = ExprKind::Not(Box::new(below(200)));
    let others = Expr { kind, data_type: DataType::Boolean, nullable: false };
    let second = |plan: Plan| match plan {
        Plan::Filter { input, predicate } => match *input {
            Plan::Scan(scan) => {
                let input = Box::new(Plan::Scan(Scan { source: 1, ..scan }));
                Plan::Filter { input, predicate }
            }
            other => other,
        },
        other => other,
    };
    let inputs = vec![keep(others), second(keep(below(200)))];
    let input = Plan::Union { inputs, fields: scan().fields() };
    let (late, early): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.number >= 200);
    let expected = together(late.iter().chain(&early).map(|row| row.many.as_deref()), " – ");
    let source = table(&rows);
    for options in models(&[CPU, SIMT[0]]) {
        let plan = plan(input.clone(), &[], Order::Rows);
        let batch = run(&Engine::new(), plan, &[source.clone(), source.clone()], &options).batch;
        assert!(shown(batch.column(3), 0) == expected, "{options:?}");
    }
}

/// Texts of 100 KB, which are of a group with others, and the delimiter is as long.
#[test]
fn long_texts() {
    let mut rows = rows(60, 3, false);
    for (number, row) in rows.iter_mut().enumerate().filter(|(number, _)| number % 4 == 1) {
        row.many = Some(format!("{number} {}", "lang ß".repeat(15_000 + number)));
    }
    compare(
        &rows,
        &[Order::Numbers, Order::Many, Order::Rows, Order::ManyOnce],
        &[&[], &[0]],
        &[CPU, SIMT[0]],
    );
}

/// A plan that would give wrong values is refused.
#[test]
fn plans_that_are_refused() {
    let Plan::Ranked(ranked) = plan(scan(), &[0], Order::FewOnce) else { panic!("it is") };
    let of = |change: &dyn Fn(&mut Ranked)| {
        let mut ranked = ranked.as_ref().clone();
        change(&mut ranked);
        let (plan, table) = (Plan::Ranked(Box::new(ranked)), table(&rows(10, 2, false)));
        try_run(&Engine::new(), plan, &table, cpu()).expect_err("a plan that is wrong").to_string()
    };
    let texts = |delimiter| Rank::Texts { delimiter, distinct: false };
    assert!(of(&|ranked| ranked.order.clear()).contains("another order"));
    assert!(of(&|ranked| ranked.values[0].argument = column(3)).contains("another order"));
    assert!(of(&|ranked| ranked.values[0].argument = column(1)).contains("Int64"));
    assert!(of(&|ranked| ranked.values[0].rank = texts(column(2))).contains("no text"));
    let null = Expr::literal(Literal::Null, DataType::Utf8);
    assert!(of(&|ranked| ranked.values[0].rank = texts(null.clone())).contains("no text"));
}
