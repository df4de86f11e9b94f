//! Values at ranks of sorted groups: medians, percentiles and values at the ends of an order, by kinds of keys and numbers of groups,
//! under every micro model, on the CPU and on interpreters: compared with a plain evaluation.

use std::cmp::Reverse;

use crate::common::*;
use arrow::datatypes::Float32Type;

const DECIMAL: DataType = DataType::Decimal128 { precision: 38, scale: 0 };
/// The greatest decimal of 38 digits: two of them are beyond 128 bits.
const LARGE: i128 = 10i128.pow(38) - 1;

/// A row: its group, its number, and values.
#[derive(Clone)]
struct Row {
    group: usize,
    number: i64,
    integer: Option<i64>,
    decimal: i128,
    float: f64,
    text: String,
    small: Option<i32>,
    single: f32,
}

fn rows(count: usize, groups: usize) -> Vec<Row> {
    let mut next = random(count as u64 * 31 + groups as u64);
    let row = |number: usize| {
        let (pick, value) = (next() as usize, next());
        Row {
            group: pick % groups,
            number: number as i64,
            integer: match value % 9 {
                0 => None,
                1 => Some(i64::MIN),
                2 => Some(i64::MAX),
                _ => Some(value as i64 % 1000 - 500),
            },
            decimal: match value % 7 {
                0 => LARGE,
                3 => -LARGE,
                _ => i128::from(value) - 1_000_000_000,
            },
            float: match value % 23 {
                0 | 1 => f64::NAN,
                2 => -0.0,
                3 => 0.0,
                4 => f64::NEG_INFINITY,
                5 => f64::INFINITY,
                _ => (value % 4096) as f64 / 3.0 - 500.0,
            },
            text: format!("value é {}", value % 300),
            small: (value % 5 > 0).then_some((value % 900) as i32 - 450),
            single: match value % 13 {
                0 => f32::NAN,
                1 => -0.0,
                2 => 0.0,
                3 => f32::NEG_INFINITY,
                _ => (value % 512) as f32 / 7.0 - 40.0,
            },
        }
    };
    (0..count).map(row).collect()
}

/// The keys of a group, each of another kind: dense with a NULL, hashed, long text with a NULL, a float with NaN and both zeros.
const KEYS: [&str; 4] = ["dense", "wide", "text", "float"];

fn table(rows: &[Row]) -> Arc<Table> {
    let wide = |row: &Row| match row.group {
        0 => i64::MIN,
        1 => i64::MAX,
        group => (group as i64).wrapping_mul(0x5851_f42d_4c95_7f2d),
    };
    let float = |row: &Row| match row.group {
        0 => f64::NAN,
        1 if row.number % 2 == 0 => -0.0,
        1 => 0.0,
        group => group as f64,
    };
    let text = |row: &Row| (row.group != 0).then(|| format!("a beginning of many bytes {}", row.group));
    let dense = |row: &Row| (row.group != 0).then_some(row.group as i64);
    let columns: Vec<ArrayRef> = vec![
        maybe_longs(rows.iter().map(dense)),
        longs(rows.iter().map(wide)),
        maybe_texts(rows.iter().map(text)),
        doubles(rows.iter().map(float)),
        longs(rows.iter().map(|row| row.number)),
        maybe_longs(rows.iter().map(|row| row.integer)),
        decimals(rows.iter().map(|row| row.decimal), 38, 0),
        doubles(rows.iter().map(|row| row.float)),
        texts(rows.iter().map(|row| &row.text)),
        maybe_ints(rows.iter().map(|row| row.small)),
        Arc::new(Float32Array::from_iter_values(rows.iter().map(|row| row.single))),
    ];
    table_of(&COLUMNS, columns)
}

const COLUMNS: [Column; 11] = [
    ("dense", DataType::Int64, true),
    ("wide", DataType::Int64, false),
    ("text", DataType::Utf8, true),
    ("float", DataType::Float64, false),
    ("number", DataType::Int64, false),
    ("integer", DataType::Int64, true),
    ("decimal", DECIMAL, false),
    ("value", DataType::Float64, false),
    ("string", DataType::Utf8, false),
    ("small", DataType::Int32, true),
    ("single", DataType::Float32, false),
];

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

/// The integers as floats, as the median of integers has them.
fn as_float() -> Expr {
    cast(column(5), DataType::Float64)
}

fn discrete(value: f64) -> Rank {
    Rank::Discrete(Expr::literal(Literal::Float(value), DataType::Float64))
}

fn share(value: f64) -> Rank {
    Rank::Percentile(Expr::literal(Literal::Float(value), DataType::Float64))
}

/// What is wanted of an order: its keys, and values.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Integers,
    Decimals,
    Floats,
    /// By text, from the last to the first.
    Texts,
    /// By few bits, which are in one word with most keys.
    Small,
    /// The same, from the last to the first.
    Singles,
    /// By few bits: the first and the last rows alone.
    Ends,
}

const ORDERS: [Order; 7] = [
    Order::Integers,
    Order::Decimals,
    Order::Floats,
    Order::Texts,
    Order::Small,
    Order::Singles,
    Order::Ends,
];

fn plan(input: Plan, key: Option<usize>, order: Order) -> Plan {
    let sorted = |expr, descending| sort_key(expr, descending, false);
    let value = |rank, argument: Expr, counted| {
        let field = Field { name: "v".into(), data_type: argument.data_type.clone(), nullable: true };
        RankedValue { rank, argument, counted, field }
    };
    let (first, values) = match order {
        Order::Integers => {
            let of = |rank| value(rank, as_float(), Some(as_float()));
            let values = vec![
                of(Rank::Median),
                of(share(0.3)),
                of(discrete(0.3)),
                value(Rank::FromLast(int(0)), column(5), Some(as_float())),
                value(Rank::FromLast(int(0)), column(4), None),
                value(Rank::FromFirst(int(3)), column(8), None),
            ];
            (sorted(as_float(), false), values)
        }
        Order::Decimals => {
            let values = vec![
                value(Rank::Median, column(6), None),
                value(Rank::FromFirst(int(0)), column(4), None),
                value(Rank::FromLast(int(5)), column(6), None),
            ];
            (sorted(column(6), false), values)
        }
        Order::Floats => {
            let of = |rank| value(rank, column(7), None);
            (
                sorted(column(7), false),
                vec![of(Rank::Median), of(share(0.75)), of(share(0.0)), of(share(1.0))],
            )
        }
        Order::Texts => {
            let values = vec![
                value(Rank::FromFirst(int(0)), column(8), None),
                value(Rank::FromFirst(int(1)), column(5), None),
                value(Rank::FromLast(int(0)), column(4), None),
                value(discrete(0.0), column(8), None),
                value(discrete(0.5), column(8), None),
                value(discrete(1.0), column(4), None),
            ];
            (sorted(column(8), true), values)
        }
        Order::Small | Order::Singles | Order::Ends => (sorted(column(4), false), Vec::new()),
    };
    let small = || cast(column(9), DataType::Float64);
    let (first, values) = match order {
        Order::Small => {
            let values = vec![
                value(Rank::Median, small(), Some(small())),
                value(share(0.9), small(), Some(small())),
                value(Rank::FromLast(int(1)), column(9), Some(small())),
                value(Rank::FromFirst(int(2)), column(8), None),
            ];
            (sorted(small(), false), values)
        }
        Order::Singles => {
            let of = |rank| value(rank, column(10), None);
            let values = vec![
                of(Rank::Median),
                of(share(0.6)),
                of(Rank::FromLast(int(0))),
                value(Rank::FromFirst(int(0)), column(4), None),
                value(Rank::FromFirst(int(1)), column(9), None),
            ];
            (sorted(column(10), true), values)
        }
        Order::Ends => {
            let (first, last) = (|| Rank::FromFirst(int(0)), || Rank::FromLast(int(0)));
            let values = vec![
                value(first(), column(4), None),
                value(last(), column(8), None),
                value(first(), column(8), None),
                value(first(), small(), None),
                value(last(), column(6), None),
                value(last(), column(9), None),
            ];
            (sorted(column(9), true), values)
        }
        _ => (first, values),
    };
    let keys: Vec<Expr> = key.map(column).into_iter().collect();
    Plan::Ranked(Box::new(Ranked {
        input,
        names: vec!["k".into(); keys.len()],
        keys,
        order: vec![first, sorted(column(4), false)],
        aggregates: vec![
            of_longs(AggregateFunction::Sum, Some(column(4))),
            of_longs(AggregateFunction::Count, None),
        ],
        values,
    }))
}

/// A value as text: floats by their bits, where they are numbers.
fn float(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.is_nan() => "NaN".into(),
        Some(value) => format!("{:016x}", value.to_bits()),
    }
}

fn other(value: Option<impl ToString>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

fn median(values: &[f64]) -> Option<f64> {
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(if low == high { values[low] } else { (values[low] + values[high]) / 2.0 })
}

/// The first value up to which there is a share of all.
fn reached(values: &[f64], share: f64) -> Option<f64> {
    let reaches = |place: &usize| (place + 1) as f64 >= share * values.len() as f64;
    (0..values.len()).find(reaches).map(|place| values[place])
}

fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let place = share * values.len().checked_sub(1)? as f64;
    let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
    let weight = place - place.floor();
    Some(if place.floor() == place.ceil() { low } else { low.mul_add(1.0 - weight, high * weight) })
}

/// What a group's values are, which are plainly computed.
fn evaluate(rows: &[&Row], order: Order) -> Vec<String> {
    let mut rows = rows.to_vec();
    let sum = rows.iter().map(|row| row.number).reduce(|a, b| a + b);
    let mut values = vec![other(sum), rows.len().to_string()];
    let last = |rows: &[&Row], rank: usize| rows.len().checked_sub(1 + rank);
    match order {
        Order::Integers => {
            // The last of those that are equal as floats is the last by their numbers.
            let key = |row: &Row| row.integer.map(|integer| integer as f64);
            rows.sort_by(|a, b| match (key(a), key(b)) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                (a, b) => a.is_none().cmp(&b.is_none()),
            });
            let some: Vec<f64> = rows.iter().filter_map(|row| key(row)).collect();
            values.extend([float(median(&some)), float(percentile(&some, 0.3)), float(reached(&some, 0.3))]);
            values.push(other(rows.iter().filter_map(|row| row.integer).max()));
            values.push(other(rows.last().map(|row| row.number)));
            values.push(other(rows.get(3).map(|row| &row.text)));
        }
        Order::Decimals => {
            rows.sort_by_key(|row| (row.decimal, row.number));
            let middle = (!rows.is_empty()).then(|| {
                let (low, high) = (rows[(rows.len() - 1) / 2].decimal, rows[rows.len() / 2].decimal);
                // Half of each, and of what is left of both.
                let up = (low % 2 + high % 2) / 2;
                let halves = low / 2 + high / 2 + up;
                low.checked_add(high).map_or(halves, |sum| sum / 2)
            });
            values.push(other(middle));
            values.push(other(rows.first().map(|row| row.number)));
            values.push(other(last(&rows, 5).map(|rank| rows[rank].decimal)));
        }
        Order::Floats => {
            let mut all: Vec<f64> = rows.iter().map(|row| row.float).collect();
            all.sort_by(f64::total_cmp);
            values.push(float(median(&all)));
            values.extend([0.75, 0.0, 1.0].map(|share| float(percentile(&all, share))));
        }
        Order::Texts => {
            rows.sort_by(|a, b| b.text.cmp(&a.text).then(a.number.cmp(&b.number)));
            values.push(other(rows.first().map(|row| &row.text)));
            values.push(other(rows.get(1).and_then(|row| row.integer)));
            values.push(other(rows.last().map(|row| row.number)));
            values.push(other(rows.first().map(|row| &row.text)));
            let middle = rows.len().checked_sub(1).map(|last| rows[last / 2]);
            values.push(other(middle.map(|row| &row.text)));
            values.push(other(rows.last().map(|row| row.number)));
        }
        Order::Small => {
            rows.sort_by_key(|row| (row.small.is_none(), row.small, row.number));
            let some: Vec<f64> = rows.iter().filter_map(|row| row.small.map(f64::from)).collect();
            values.extend([float(median(&some)), float(percentile(&some, 0.9))]);
            values.push(other(last_of(&some, 1)));
            values.push(other(rows.get(2).map(|row| &row.text)));
        }
        Order::Singles => {
            rows.sort_by(|a, b| b.single.total_cmp(&a.single).then(a.number.cmp(&b.number)));
            let all: Vec<f64> = rows.iter().map(|row| f64::from(row.single)).collect();
            let middle = (!rows.is_empty()).then(|| {
                let (low, high) = (rows[(rows.len() - 1) / 2].single, rows[rows.len() / 2].single);
                if rows.len() % 2 == 1 { low } else { (low + high) / 2.0 }
            });
            values.push(single(middle));
            values.push(single(percentile(&all, 0.6).map(|value| value as f32)));
            values.push(single(rows.last().map(|row| row.single)));
            values.push(other(rows.first().map(|row| row.number)));
            values.push(other(rows.get(1).and_then(|row| row.small)));
        }
        Order::Ends => {
            // Descending, and NULLs last.
            rows.sort_by_key(|row| (row.small.is_none(), row.small.map(Reverse), row.number));
            let (first, last) = (rows.first(), rows.last());
            values.push(other(first.map(|row| row.number)));
            values.push(other(last.map(|row| &row.text)));
            values.push(other(first.map(|row| &row.text)));
            values.push(float(first.and_then(|row| row.small).map(f64::from)));
            values.push(other(last.map(|row| row.decimal)));
            values.push(other(last.and_then(|row| row.small)));
        }
    }
    values
}

fn last_of(values: &[f64], before: usize) -> Option<f64> {
    values.len().checked_sub(1 + before).map(|rank| values[rank])
}

fn single(value: Option<f32>) -> String {
    match value {
        Some(value) if !value.is_nan() => format!("{:08x}", value.to_bits()),
        value => float(value.map(f64::from)),
    }
}

fn shown(array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "-".into();
    }
    match array.data_type() {
        ArrowType::Float64 => float(Some(array.as_primitive::<Float64Type>().value(row))),
        ArrowType::Float32 => single(Some(array.as_primitive::<Float32Type>().value(row))),
        ArrowType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        ArrowType::Decimal128(..) => array.as_primitive::<Decimal128Type>().value(row).to_string(),
        _ => arrow::util::display::array_value_to_string(array, row).expect("text"),
    }
}

const CPU: (DeviceChoice, u32) = (DeviceChoice::Cpu, 32);
const SIMT: [(DeviceChoice, u32); 2] = [(DeviceChoice::Simt, 32), (DeviceChoice::Simt, 3)];

/// Groups rows by each of `keys`, or not at all, in each order, and compares; of `input` over the table of rows.
fn compare_over(input: &Plan, rows: &[Row], left: &[&Row], keys: &[Option<usize>], options: &[QueryOptions]) {
    let engine = Engine::new();
    let source = table(rows);
    let mut members: BTreeMap<usize, Vec<&Row>> = BTreeMap::new();
    left.iter().for_each(|row| members.entry(row.group).or_default().push(row));
    let each = ORDERS.into_iter().flat_map(|order| keys.iter().map(move |key| (order, *key)));
    let each = each.flat_map(|(order, key)| options.iter().map(move |options| (order, key, options)));
    // Each order by each kind of keys, or each alone where rows are many.
    let is_small = rows.len() < 10_000;
    let cases =
        covering(&format!("{} of {} rows", left.len(), rows.len()), each, 0, |(order, key, options)| {
            let pair = if is_small { format!("{order:?} {key:?}") } else { String::new() };
            facets_and(options, &[order, key, &pair])
        });
    for (order, key, options) in cases {
        let mut expected: Vec<Vec<String>> = match key {
            Some(_) => members.values().map(|rows| evaluate(rows, order)).collect(),
            None => vec![evaluate(left, order)],
        };
        expected.sort();
        let plan = plan(input.clone(), key, order);
        let what = format!("{order:?}, keys {:?}, {options:?}", key.map(|key| KEYS[key]));
        let batch = run(&engine, plan, &source, options).batch;
        let values = &batch.columns()[usize::from(key.is_some())..];
        let row = |row| values.iter().map(|array| shown(array, row)).collect();
        let mut found: Vec<Vec<String>> = (0..batch.num_rows()).map(row).collect();
        found.sort();
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{what}");
        }
    }
}

fn compare(rows: &[Row], keys: &[Option<usize>], devices: &[(DeviceChoice, u32)]) {
    compare_over(&scan(), rows, &rows.iter().collect::<Vec<_>>(), keys, &models(devices));
}

const ALL: [Option<usize>; 5] = [None, Some(0), Some(1), Some(2), Some(3)];

#[test]
fn no_rows_and_few() {
    let devices = [CPU, SIMT[0]];
    for count in [0, 1, 2, 7] {
        compare(&rows(count, 1), &ALL, &devices);
    }
    compare(&rows(9, 4), &ALL, &devices);
}

#[test]
fn rows_of_which_none_is_left() {
    let input = keep(scan(), compare_with(CompareOp::Lt, column(4), 0));
    compare_over(&input, &rows(300, 5), &[], &ALL, &models(&[CPU, SIMT[0]]));
}

#[test]
fn one_group_and_some() {
    compare(&rows(400, 1), &ALL, &[CPU, SIMT[0]]);
    compare(&rows(700, 60), &ALL, &[CPU, SIMT[0], SIMT[1]]);
}

/// More rows than the host would sort, and more groups than the first table of groups has room for.
#[test]
fn many_groups() {
    compare(&rows(150_000, 40_000), &[Some(1), Some(2)], &[CPU]);
    compare(&rows(90_000, 700), &ALL, &[CPU]);
}

/// A plan that would give wrong values is refused.
#[test]
fn plans_that_are_refused() {
    let Plan::Ranked(ranked) = plan(scan(), Some(0), Order::Integers) else { panic!("it is") };
    let of = |change: &dyn Fn(&mut Ranked)| {
        let mut ranked = ranked.as_ref().clone();
        change(&mut ranked);
        let plan = Plan::Ranked(Box::new(ranked));
        let error = try_run(&Engine::new(), plan, &table(&rows(10, 2)), cpu());
        error.expect_err("a plan that is wrong").to_string()
    };
    let last = "not the last of their group";
    assert!(of(&|ranked| ranked.order[0].nulls_first = true).contains(last));
    assert!(of(&|ranked| ranked.order.clear()).contains(last));
    assert!(of(&|ranked| ranked.values[0].argument = column(8)).contains("Utf8"));
    assert!(of(&|ranked| ranked.values[1].rank = Rank::Percentile(int(1))).contains("no number"));
    assert!(of(&|ranked| ranked.values[0].field.data_type = DataType::Float32).contains("at a rank as"));
}
