//! Every aggregate function over every type, in groups of no valid row, one row, extremes and many rows, on the CPU and
//! on the interpreter, under every micro model: compared with a plain evaluation.

use std::sync::LazyLock;

use crate::common::*;
use arrow::compute::cast;
use arrow::datatypes::TimeUnit;
use kelpie_compile::plan::Few;
use kelpie_compile::types;
use kelpie_compile::types::Range;

use AggregateFunction::*;

/// A value, whatever its type: integers inside, floats, text.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Null,
    Int(i128),
    Float(f64),
    Text(String),
}

impl Value {
    fn int(&self) -> Option<i128> {
        if let Value::Int(value) = self { Some(*value) } else { None }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Value::Int(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            _ => None,
        }
    }

    fn order(&self, other: &Value) -> std::cmp::Ordering {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
            (Value::Text(a), Value::Text(b)) => a.cmp(b),
            _ => std::cmp::Ordering::Equal,
        }
    }

    fn close_to(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Float(a), Value::Float(b)) => {
                a.to_bits() == b.to_bits()
                    || (a.is_nan() && b.is_nan())
                    || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
            }
            _ => self == other,
        }
    }
}

/// A column under test: its types, and what is in the group of extremes.
struct Tested {
    data_type: DataType,
    arrow: ArrowType,
    extremes: Vec<Value>,
}

fn columns() -> Vec<Tested> {
    let ints = |data_type: DataType, arrow: ArrowType| {
        let range = data_type.full_range().expect("integers inside");
        let mut values = vec![range.min, range.max, 0, 1, range.max, range.max - 1];
        values.extend((range.min < 0).then_some(-1));
        Tested { data_type, arrow, extremes: values.into_iter().map(Value::Int).collect() }
    };
    let floats = |data_type, arrow| {
        let values = [f64::INFINITY, -0.0, 0.0, -1.5, f64::NAN, f64::NEG_INFINITY, 1e30];
        Tested { data_type, arrow, extremes: values.into_iter().map(Value::Float).collect() }
    };
    let decimal = |precision, scale| {
        ints(DataType::Decimal128 { precision, scale }, ArrowType::Decimal128(precision, scale))
    };
    // Sums of these are within 38 digits in the end, wherever they are on the way.
    let widest = |precision, scale| {
        let column = decimal(precision, scale);
        let Range { min, max } = column.data_type.full_range().expect("integers inside");
        Tested { extremes: [min, max, 0, 1, 0, min + 1, -1].map(Value::Int).into(), ..column }
    };
    let micros = DataType::Timestamp { unit: types::TimeUnit::Microsecond, timezone: None };
    let text = ["", "a", "ab", "zß", "Z", "日本", "日", "\u{10ffff}", "b"];
    let text = text.into_iter().map(|text| Value::Text(text.into())).collect();
    vec![
        ints(DataType::Int8, ArrowType::Int8),
        ints(DataType::Int16, ArrowType::Int16),
        ints(DataType::Int32, ArrowType::Int32),
        ints(DataType::Int64, ArrowType::Int64),
        ints(DataType::UInt8, ArrowType::UInt8),
        ints(DataType::UInt16, ArrowType::UInt16),
        ints(DataType::UInt32, ArrowType::UInt32),
        ints(DataType::UInt64, ArrowType::UInt64),
        decimal(9, 2),
        decimal(18, 0),
        widest(38, 4),
        ints(DataType::Date32, ArrowType::Date32),
        ints(micros, ArrowType::Timestamp(TimeUnit::Microsecond, None)),
        ints(DataType::Boolean, ArrowType::Boolean),
        floats(DataType::Float32, ArrowType::Float32),
        floats(DataType::Float64, ArrowType::Float64),
        Tested { data_type: DataType::Utf8, arrow: ArrowType::Utf8, extremes: text },
    ]
}

const GROUPS: [&str; 4] = ["only NULLs", "one row", "extremes", "many"];

static COLUMNS: LazyLock<Vec<Tested>> = LazyLock::new(columns);
static ROWS: LazyLock<(Vec<i32>, Vec<Vec<Value>>)> = LazyLock::new(rows);

/// The group of each row, and each column's values.
fn rows() -> (Vec<i32>, Vec<Vec<Value>>) {
    let mut random = random(7);
    let mut groups = Vec::new();
    let mut values: Vec<Vec<Value>> = COLUMNS.iter().map(|_| Vec::new()).collect();
    for row in 0..120 {
        let group = if row == 40 { 1 } else { [0, 2, 3, 3, 3][row % 5] };
        groups.push(group);
        for (column, values) in COLUMNS.iter().zip(&mut values) {
            let low = random();
            let value = match (group, &column.extremes[0]) {
                (0, _) => Value::Null,
                (2, _) if row % 15 == 1 => Value::Null,
                (2, _) => column.extremes[row / 5 % column.extremes.len()].clone(),
                (3, _) if row % 7 == 0 => Value::Null,
                (_, Value::Int(_)) if column.data_type == DataType::Boolean => {
                    Value::Int(i128::from(low % 2))
                }
                (_, Value::Int(_)) => Value::Int(i128::from(low % 100)),
                // A mean that is large against the deviation.
                (_, Value::Float(_)) => Value::Float(1e12 + (low % 64) as f64 / 8.0),
                _ => Value::Text(format!("text {}", low % 40)),
            };
            values.push(value);
        }
    }
    (groups, values)
}

fn array(arrow: &ArrowType, values: &[Value]) -> ArrayRef {
    let ints = || values.iter().map(Value::int);
    match arrow {
        ArrowType::Utf8 => maybe_texts(values.iter().map(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })),
        ArrowType::Float32 | ArrowType::Float64 => {
            cast(&Float64Array::from_iter(values.iter().map(Value::float)), arrow).expect("casts")
        }
        ArrowType::Decimal128(precision, scale) => decimals(ints(), *precision, *scale),
        ArrowType::UInt64 => {
            Arc::new(UInt64Array::from_iter(ints().map(|value| value.map(|value| value as u64))))
        }
        ArrowType::Boolean => {
            Arc::new(BooleanArray::from_iter(ints().map(|value| value.map(|value| value != 0))))
        }
        ArrowType::Date32 => {
            Arc::new(Date32Array::from_iter(ints().map(|value| value.map(|value| value as i32))))
        }
        _ => {
            let array = Int64Array::from_iter(ints().map(|value| value.map(|value| value as i64)));
            cast(&array, arrow).expect("casts")
        }
    }
}

fn value(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        ArrowType::Utf8 | ArrowType::Utf8View => {
            let text = cast(array, &ArrowType::Utf8).expect("casts");
            Value::Text(text.as_string::<i32>().value(row).into())
        }
        ArrowType::Float32 | ArrowType::Float64 => {
            let array = cast(array, &ArrowType::Float64).expect("casts");
            Value::Float(array.as_primitive::<Float64Type>().value(row))
        }
        ArrowType::Decimal128(..) => Value::Int(array.as_primitive::<Decimal128Type>().value(row)),
        ArrowType::UInt64 => {
            Value::Int(array.as_primitive::<arrow::datatypes::UInt64Type>().value(row).into())
        }
        ArrowType::Date32 => {
            Value::Int(array.as_primitive::<arrow::datatypes::Date32Type>().value(row).into())
        }
        ArrowType::Boolean => Value::Int(array.as_boolean().value(row).into()),
        _ => {
            let array = cast(array, &ArrowType::Int64).expect("casts");
            Value::Int(array.as_primitive::<Int64Type>().value(row).into())
        }
    }
}

/// The functions that take a type, with the result's type.
fn functions(column: &Tested, distinct: bool) -> Vec<(AggregateFunction, DataType, bool)> {
    let all = functions_of(column).into_iter().map(|(function, data_type)| (function, data_type, distinct));
    let rows = distinct.then_some((Count, DataType::Int64, false));
    rows.into_iter().chain(all).collect()
}

fn functions_of(column: &Tested) -> Vec<(AggregateFunction, DataType)> {
    let own = column.data_type.clone();
    let mut all = vec![(Count, DataType::Int64), (Min, own.clone()), (Max, own.clone())];
    match &own {
        DataType::Decimal128 { precision, scale } => {
            let wider = DataType::Decimal128 { precision: (*precision + 10).min(38), scale: *scale };
            all.push((Sum, wider));
            if *precision < 34 {
                all.push((Avg, DataType::Decimal128 { precision: *precision + 4, scale: *scale + 4 }));
            }
        }
        integer if integer.is_integer() => {
            let unsigned = integer.full_range().expect("a range").min == 0;
            all.push((Sum, if unsigned { DataType::UInt64 } else { DataType::Int64 }));
            all.extend([(BitAnd, own.clone()), (BitOr, own.clone()), (BitXor, own.clone())]);
        }
        DataType::Float64 => {
            let moments = [Sum, Avg, VarSample, VarPopulation, StddevSample, StddevPopulation];
            all.extend(moments.map(|function| (function, DataType::Float64)));
        }
        _ => {}
    }
    // The last value of a type is taken for none.
    if matches!(own, DataType::Int32 | DataType::Date32 | DataType::Float32 | DataType::Float64) {
        let few = [LeastBound(Few::Two), GreatestBound(Few::Four), LeastBound(Few::Sixteen)];
        all.extend(few.map(|function| (function, own.clone())));
    }
    all
}

/// What a function gives for these values.
fn evaluate(function: AggregateFunction, result: &DataType, values: &[Value], grouped: bool) -> Value {
    let values: Vec<&Value> = values.iter().filter(|value| **value != Value::Null).collect();
    if function == Count {
        return Value::Int(values.len() as i128);
    }
    let Some(first) = values.first() else { return Value::Null };
    let ints = || values.iter().filter_map(|value| value.int());
    let floats: Vec<f64> = values.iter().filter_map(|value| value.float()).collect();
    let count = values.len() as f64;
    let mean = floats.iter().sum::<f64>() / count;
    // Distances from the first value are exact where the values are close together.
    let origin = floats.first().copied().unwrap_or(0.0);
    let center = floats.iter().map(|value| value - origin).sum::<f64>() / count;
    let squares = || floats.iter().map(|value| (value - origin - center).powi(2)).sum::<f64>();
    let variance = |sample: bool| match values.len() {
        1 if sample => Value::Null,
        1 if !grouped => Value::Float(0.0),
        _ => Value::Float(squares() / if sample { count - 1.0 } else { count }),
    };
    let root = |value: Value| value.float().map_or(Value::Null, |value| Value::Float(value.sqrt()));
    match function {
        // Of pairs there are tests through SQL.
        Count | OfPairs(_) => Value::Null,
        Min => (*values.iter().min_by(|a, b| a.order(b)).unwrap()).clone(),
        Max => (*values.iter().max_by(|a, b| a.order(b)).unwrap()).clone(),
        Sum | SumExact => match (result, first) {
            (_, Value::Float(_)) => Value::Float(floats.iter().sum()),
            (DataType::Int64, _) => {
                Value::Int(ints().fold(0i64, |sum, value| sum.wrapping_add(value as i64)).into())
            }
            (DataType::UInt64, _) => {
                Value::Int(ints().fold(0u64, |sum, value| sum.wrapping_add(value as u64)).into())
            }
            _ => Value::Int(ints().fold(0i128, |sum, value| sum.wrapping_add(value))),
        },
        Avg => match first {
            Value::Float(_) => Value::Float(mean),
            _ => Value::Int(ints().sum::<i128>() * 10_000 / values.len() as i128),
        },
        BitAnd => Value::Int(ints().fold(-1, |bits, value| bits & value)),
        BitOr => Value::Int(ints().fold(0, |bits, value| bits | value)),
        BitXor => Value::Int(ints().fold(0, |bits, value| bits ^ value)),
        VarSample => variance(true),
        VarPopulation => variance(false),
        StddevSample => root(variance(true)),
        StddevPopulation => root(variance(false)),
        LeastBound(few) | GreatestBound(few) => {
            let mut ordered = values.clone();
            ordered.sort_by(|a, b| a.order(b));
            if matches!(function, GreatestBound(_)) {
                ordered.reverse();
            }
            ordered.get(few.number() - 1).map_or(Value::Null, |value| (*value).clone())
        }
    }
}

/// One engine: kernels are compiled once.
fn engine() -> &'static Engine {
    static ENGINE: std::sync::OnceLock<Engine> = std::sync::OnceLock::new();
    ENGINE.get_or_init(Engine::new)
}

/// The CPU, the interpreter, and a GPU where there is one.
fn configurations() -> Vec<QueryOptions> {
    every_model(&lanes())
}

/// The table: three keys (dense, wide, text) of the same groups, then the columns under test.
fn table(keep: impl Fn(i32) -> bool) -> Arc<Table> {
    let (groups, values) = &*ROWS;
    let kept: Vec<usize> = (0..groups.len()).filter(|row| keep(groups[*row])).collect();
    let groups = || kept.iter().map(|row| groups[*row]);
    let wide =
        |group: i32| (i128::from(group) * 4_000_000_000_000_000_000 - 6_000_000_000_000_000_000) as i64;
    let mut arrays: Vec<ArrayRef> =
        vec![ints(groups()), longs(groups().map(wide)), texts(groups().map(|group| GROUPS[group as usize]))];
    for (column, values) in COLUMNS.iter().zip(values) {
        let values: Vec<Value> = kept.iter().map(|row| values[*row].clone()).collect();
        arrays.push(array(&column.arrow, &values));
    }
    table_of(&all_columns(), arrays)
}

fn scan() -> Plan {
    scan_of(0, &all_columns())
}

/// The keys, and the columns under test.
fn all_columns() -> Vec<Column> {
    let keys = [("dense", DataType::Int32), ("wide", DataType::Int64), ("text", DataType::Utf8)];
    let keys = keys.into_iter().map(|(name, data_type)| (name, data_type, false));
    keys.chain(COLUMNS.iter().map(|column| ("value", column.data_type.clone(), true))).collect()
}

fn column(index: usize) -> Expr {
    column_of(&all_columns(), index)
}

/// The columns that one plan takes (some types at a time), and whether it counts equal values once.
type Chunk = (std::ops::Range<usize>, bool);

fn chunks() -> Vec<Chunk> {
    let types = [0..4, 4..8, 8..12, 12..17];
    types.clone().map(|types| (types, false)).into_iter().chain(types.map(|types| (types, true))).collect()
}

fn plan(key: Option<usize>, types: std::ops::Range<usize>, distinct: bool) -> Plan {
    let aggregates = types.flat_map(|index| {
        let make = move |(function, data_type, distinct)| Aggregate {
            distinct,
            ..of(function, Some(column(index + 3)), data_type)
        };
        functions(&COLUMNS[index], distinct).into_iter().map(make).collect::<Vec<_>>()
    });
    let aggregates: Vec<Aggregate> = aggregates.collect();
    let keys: Vec<Expr> = key.map(column).into_iter().collect();
    groups_of(scan(), keys, aggregates)
}

/// The values without those that are there already; floats are equal where their bits are.
fn without_duplicates(values: &[Value]) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    };
    let mut kept: Vec<Value> = Vec::new();
    for value in values {
        if !kept.iter().any(|other| same(other, value)) {
            kept.push(value.clone());
        }
    }
    kept
}

/// Compares a row of results with the evaluation over the rows of a group.
fn expect_group(
    batch: &RecordBatch,
    row: usize,
    keys: usize,
    group: Option<i32>,
    (types, distinct): Chunk,
    what: &str,
) {
    let (groups, values) = &*ROWS;
    let mut result = keys;
    for index in types {
        let values: Vec<Value> = values[index]
            .iter()
            .zip(groups)
            .filter(|(_, other)| group == Some(**other))
            .map(|(value, _)| match (value, &COLUMNS[index].data_type) {
                (Value::Float(value), DataType::Float32) => Value::Float(f64::from(*value as f32)),
                _ => value.clone(),
            })
            .collect();
        for (function, data_type, distinct) in functions(&COLUMNS[index], distinct) {
            let values = if distinct { without_duplicates(&values) } else { values.clone() };
            let expected = evaluate(function, &data_type, &values, keys > 0);
            let found = value(batch.column(result), row);
            assert!(
                expected.close_to(&found),
                "{function:?} (distinct: {distinct}) of {}, group {group:?}, {what}: {found:?} instead of {expected:?}",
                COLUMNS[index].data_type
            );
            result += 1;
        }
    }
}

#[test]
fn without_keys() {
    let groups = [None, Some(0), Some(1), Some(2), Some(3)];
    let tables = groups.map(|group| table(|other| group == Some(other)));
    // Each type in each group.
    for (place, chunk, options) in cases("without keys", groups.len()) {
        let batch = run(engine(), plan(None, chunk.0.clone(), chunk.1), &tables[place], &options).batch;
        assert_eq!(batch.num_rows(), 1);
        expect_group(&batch, 0, 0, groups[place], chunk, &format!("{options:?}"));
    }
}

/// The places of a list of so many, each with all columns, in some configurations.
fn cases(name: &str, places: usize) -> Vec<(usize, Chunk, QueryOptions)> {
    let places = (0..places).flat_map(|place| chunks().into_iter().map(move |chunk| (place, chunk)));
    let configurations = configurations();
    let with = |(place, chunk): (usize, Chunk)| {
        configurations.iter().map(move |options| (place, chunk.clone(), options.clone()))
    };
    covering(name, places.flat_map(with), 40, |(place, chunk, options)| {
        facets_and(options, &[&(place, chunk)])
    })
}

#[test]
fn in_groups() {
    let source = table(|_| true);
    for (key, chunk, options) in cases("in groups", 3) {
        let batch = run(engine(), plan(Some(key), chunk.0.clone(), chunk.1), &source, &options).batch;
        assert_eq!(batch.num_rows(), GROUPS.len(), "{options:?}");
        for row in 0..batch.num_rows() {
            let group = match value(batch.column(0), row) {
                Value::Int(value) if key == 0 => value as i32,
                Value::Int(value) => {
                    ((value + 6_000_000_000_000_000_000_i128) / 4_000_000_000_000_000_000_i128) as i32
                }
                Value::Text(text) => GROUPS.iter().position(|name| *name == text).unwrap() as i32,
                other => panic!("a key {other:?}"),
            };
            expect_group(&batch, row, 1, Some(group), chunk.clone(), &format!("key {key}, {options:?}"));
        }
    }
}

#[test]
fn no_rows_in_no_groups() {
    let source = table(|_| false);
    for key in 0..3 {
        for options in configurations() {
            assert_eq!(run(engine(), plan(Some(key), 0..4, key == 1), &source, &options).batch.num_rows(), 0);
        }
    }
}

/// A filter that leaves no row of a group leaves no group.
#[test]
fn only_groups_with_rows() {
    let source = table(|_| true);
    let predicate = compare_with(CompareOp::Ge, column(0), 2);
    let Plan::Aggregate { keys, aggregates, names, .. } = plan(Some(0), 12..17, false) else {
        panic!("an aggregate")
    };
    let input = Box::new(keep(scan(), predicate));
    let plan = Plan::Aggregate { input, keys, aggregates, names };
    for options in configurations() {
        let batch = run(engine(), &plan, &source, &options).batch;
        assert_eq!(batch.num_rows(), 2, "{options:?}");
        for row in 0..2 {
            let Value::Int(group) = value(batch.column(0), row) else { panic!("a key") };
            expect_group(&batch, row, 1, Some(group as i32), (12..17, false), &format!("{options:?}"));
        }
    }
}

/// The sets of distinct values and the groups outgrow their first tables, one more than the other.
#[test]
fn more_distinct_values_than_expected() {
    let rows = 300_000i64;
    let columns = ["k", "v", "w"].map(|name| (name, DataType::Int64, false));
    // 60,000 groups; every value twice; few values.
    let value = |column: usize, row: i64| match column {
        0 => row % 60_000 * 1_000_000_007,
        1 => row % 150_000 * 1_000_003,
        _ => row % 7,
    };
    let arrays = (0..3).map(|column| longs((0..rows).map(|row| value(column, row))));
    let column = |index| Expr::column(index, DataType::Int64, false);
    let once = |function, index| distinct(of_longs(function, Some(column(index))));
    let aggregates = vec![of_longs(Count, None), once(Count, 1), once(Sum, 2)];
    let groups = groups_of(scan_of(0, &columns), vec![column(0)], aggregates);
    let sums = (1..4).map(|index| of_longs(Sum, Some(Expr::column(index, DataType::Int64, true))));
    let totals = sums.chain([of_longs(Count, None)]);
    let plan = groups_of(groups, Vec::new(), totals.collect());
    let (mut values, mut few) = (HashSet::new(), HashSet::new());
    for row in 0..rows {
        values.insert((value(0, row), value(1, row)));
        few.insert((value(0, row), value(2, row)));
    }
    let sum: i64 = few.iter().map(|(_, value)| value).sum();
    let batch = run(engine(), &plan, &table_of(&columns, arrays.collect()), cpu()).batch;
    let found: Vec<i64> =
        (0..4).map(|column| batch.column(column).as_primitive::<Int64Type>().value(0)).collect();
    assert_eq!(found, [rows, values.len() as i64, sum, 60_000]);
}
