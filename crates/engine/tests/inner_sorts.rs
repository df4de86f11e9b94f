//! Sorts, limits and offsets inside of a plan: their rows stay on the device, whatever their types are and wherever they stand, and go to
//! the host where memory is short.

use crate::common::*;
use crate::plans;
use crate::plans::{aggregate, filter, join, some_plans};
use arrow::compute::{SortColumn, SortOptions, lexsort_to_indices, take_record_batch};
use kelpie_compile::plan::AggregateFunction::{Count, Max, Sum};
use kelpie_compile::types::TimeUnit;

/// Sorts on the device, however few rows there are.
fn on(device: DeviceChoice) -> QueryOptions {
    QueryOptions { host_sort_rows: Some(0), ..crate::common::on(device, &[]) }
}

fn devices() -> Vec<QueryOptions> {
    crate::common::devices().into_iter().map(on).collect()
}

/// Every third value or so is NULL, and some of the others are `special`.
fn pick<T: Clone>(row: usize, special: &[T], other: impl Fn(usize) -> T) -> Option<T> {
    let mixed = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize) >> 17;
    match mixed % 7 {
        0 | 1 => None,
        2 => Some(special[(mixed >> 8) % special.len()].clone()),
        _ => Some(other(mixed >> 8)),
    }
}

/// A column of every type. The first is the row's number; all others may be NULL but the last, a text.
fn table(rows: usize) -> (Arc<dyn TableSource>, RecordBatch, Plan) {
    macro_rules! column {
        ($array:ty, $special:expr, $other:expr) => {
            Arc::new(<$array>::from_iter((0..rows).map(|row| pick(row, $special, $other)))) as ArrayRef
        };
    }
    let long =
        ["".into(), "é".into(), "a long text, ".repeat(90), "a long text, ".repeat(90) + "ß", "\0".into()];
    let wide = |special: &[i128], scale: i8, by: i128| {
        decimals((0..rows).map(|row| pick(row, special, |mixed| (mixed as i128 - 9000) * by)), 38, scale)
    };
    let most = 10i128.pow(38) - 1;
    let time = DataType::Timestamp { unit: TimeUnit::Millisecond, timezone: None };
    let decimal = |scale| DataType::Decimal128 { precision: 38, scale };
    let columns: Vec<(&'static str, DataType, ArrayRef)> = vec![
        ("id", DataType::Int64, longs(0..rows as i64)),
        ("bool", DataType::Boolean, column!(BooleanArray, &[true], |mixed| mixed % 2 == 0)),
        ("i8", DataType::Int8, column!(Int8Array, &[i8::MIN, i8::MAX], |mixed| mixed as i8)),
        ("i32", DataType::Int32, column!(Int32Array, &[i32::MIN, i32::MAX], |mixed| mixed as i32)),
        ("near", DataType::Int64, column!(Int64Array, &[1 << 50], |mixed| (1 << 50) + mixed as i64 % 200)),
        ("i64", DataType::Int64, column!(Int64Array, &[i64::MIN, i64::MAX], |mixed| mixed as i64)),
        ("u16", DataType::UInt16, column!(UInt16Array, &[u16::MAX], |mixed| mixed as u16)),
        ("u64", DataType::UInt64, column!(UInt64Array, &[u64::MAX, 0], |mixed| mixed as u64)),
        ("f32", DataType::Float32, column!(Float32Array, &[f32::NAN, -0.0, 0.0], |mixed| mixed as f32 / 3.0)),
        (
            "f64",
            DataType::Float64,
            column!(Float64Array, &[-f64::NAN, -0.0, 0.0], |mixed| mixed as f64 / 7.0),
        ),
        ("wide", decimal(0), wide(&[most, -most, 0], 0, 1 << 60)),
        ("money", decimal(2), wide(&[0, -1], 2, 1)),
        ("date", DataType::Date32, column!(Date32Array, &[i32::MIN, i32::MAX], |mixed| mixed as i32 % 9000)),
        ("time", time, column!(TimestampMillisecondArray, &[i64::MIN, -1], |mixed| mixed as i64)),
        ("raw", DataType::Utf8, column!(StringArray, &long, |mixed| format!("text ü {mixed}"))),
        ("few", DataType::Utf8, column!(StringArray, &long[..2], |mixed| format!("few {}", mixed % 9))),
        ("none", DataType::Int32, maybe_ints((0..rows).map(|_| None))),
        ("all", DataType::Utf8, texts((0..rows).map(|row| format!("{row:x}")))),
    ];
    let with_nulls = |(name, data_type, array)| (name, data_type, !["id", "all"].contains(&name), array);
    let (table, scan) = scanned(columns.into_iter().map(with_nulls).collect());
    let batch = table.0[0].clone();
    (table, batch, scan)
}

/// By some column, descending or with NULLs first, and then by the row's number.
fn sort(input: &Plan, (index, descending, nulls_first): (usize, bool, bool), fetch: Option<usize>) -> Plan {
    let first = sort_key(column(input, index), descending, nulls_first);
    let second = sort_key(column(input, 0), false, false);
    sorted(input.clone(), vec![first, second], fetch)
}

/// The rows of a plan, by a stage around it.
fn around(input: Plan) -> Plan {
    filter(input, 0, CompareOp::Ge, 0)
}

fn union(inputs: Vec<Plan>) -> Plan {
    let fields = inputs[0].fields();
    Plan::Union { inputs, fields }
}

/// The rows as text, so that a NaN or zero is told from another.
fn bits_of(batch: &RecordBatch) -> Vec<String> {
    let bits = |array: &ArrayRef| -> ArrayRef {
        if let Some(floats) = array.as_primitive_opt::<arrow::datatypes::Float64Type>() {
            return Arc::new(UInt64Array::from_iter(floats.iter().map(|value| value.map(f64::to_bits))));
        }
        if let Some(floats) = array.as_primitive_opt::<arrow::datatypes::Float32Type>() {
            return Arc::new(UInt32Array::from_iter(floats.iter().map(|value| value.map(f32::to_bits))));
        }
        Arc::clone(array)
    };
    let names = batch.schema();
    let arrays = names.fields().iter().zip(batch.columns()).map(|(field, array)| (field.name(), bits(array)));
    rows_of(
        &RecordBatch::try_from_iter_with_nullable(arrays.map(|(name, array)| (name, array, true))).unwrap(),
        false,
    )
}

/// The same rows by Arrow.
fn expected(batch: &RecordBatch, key: (usize, bool, bool), (skip, fetch): (usize, usize)) -> Vec<String> {
    let by = |(index, descending, nulls_first): (usize, bool, bool)| SortColumn {
        values: Arc::clone(batch.column(index)),
        options: Some(SortOptions { descending, nulls_first }),
    };
    let order = lexsort_to_indices(&[by(key), by((0, false, false))], None).expect("an order");
    let sorted = take_record_batch(batch, &order).expect("rows");
    let start = skip.min(sorted.num_rows());
    bits_of(&sorted.slice(start, fetch.min(sorted.num_rows() - start)))
}

#[test]
fn rows_of_every_type_stay_on_the_device() {
    let (source, batch, scan) = table(700);
    let sources = [source];
    for options in devices() {
        let engine = Engine::new();
        for index in 1..scan.fields().len() {
            let ways = [(false, false, 60), (true, true, 333)];
            let name = format!("column {index} on {:?}", options.device);
            for (descending, nulls_first, fetch) in sample(&name, ways, 1) {
                let key = (index, descending, nulls_first);
                let plan = around(sort(&scan, key, Some(fetch)));
                let output = run(&engine, &plan, &sources, &options);
                let place = format!("{options:?} by {} {key:?}", scan.fields()[index].name);
                assert_eq!(bits_of(&output.batch), expected(&batch, key, (0, fetch)), "{place}");
                assert_eq!(output.metrics.kept_rows, fetch as u64, "{place}: {:?}", output.metrics.steps);
            }
        }
    }
}

#[test]
fn any_number_of_rows_may_be_wanted_or_left_out() {
    for rows in [0, 1, 9, 300] {
        let (source, batch, scan) = table(rows);
        let sources = [source];
        for options in devices() {
            let engine = Engine::new();
            let key = (5, true, false);
            for (skip, fetch) in
                [(0, 0), (0, 1), (1, 4), (7, 9), (8, 1000), (299, 5), (1000, 3), (3, usize::MAX)]
            {
                let fetches = (fetch < usize::MAX).then_some(fetch);
                let plan = around(limit(sort(&scan, key, None), skip, fetches));
                let output = run(&engine, &plan, &sources, &options);
                let place = format!("{options:?}: {skip} and {fetch} of {rows}");
                assert_eq!(bits_of(&output.batch), expected(&batch, key, (skip, fetch)), "{place}");
                // Rows without an order: as many, each of them once.
                let plan = around(limit(scan.clone(), skip, fetches));
                let found = bits_of(&run(&engine, &plan, &sources, &options).batch);
                let all = bits_of(&batch);
                assert_eq!(found.len(), rows.saturating_sub(skip).min(fetch), "{place}");
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{place}");
                assert!(found.iter().all(|row| all.binary_search(row).is_ok()), "{place}");
            }
        }
    }
}

/// Plans with sorts and limits in many places, and whether they count rows only.
fn shapes(scan: &Plan) -> Vec<(&'static str, Plan)> {
    let top = |index, fetch| sort(scan, (index, true, false), Some(fetch));
    let narrow = |plan: Plan, columns: &[usize]| {
        let exprs = columns.iter().map(|index| column(&plan, *index)).collect();
        let names = columns.iter().map(|index| plan.fields()[*index].name.clone()).collect();
        Plan::Project { input: Box::new(plan), exprs, names }
    };
    let doubled = {
        let (a, b) = (Box::new(column(scan, 0)), Box::new(column(scan, 0)));
        let kind = ExprKind::Arithmetic(ArithmeticOp::Add, a, b);
        let expr = Expr { kind, data_type: DataType::Int64, nullable: false };
        let key = sort_key(expr, true, false);
        sorted(scan.clone(), vec![key], Some(50))
    };
    let counts = [(Count, None, false), (Sum, Some(0), false), (Max, Some(14), false)];
    vec![
        ("groups by a code", aggregate(top(5, 200), &[15], &counts)),
        ("groups by text", aggregate(top(10, 200), &[14], &counts)),
        ("groups by small numbers", aggregate(top(3, 120), &[2, 1], &counts)),
        ("no keys", aggregate(limit(top(14, 300), 17, Some(150)), &[], &counts)),
        ("a build side", join(JoinKind::Inner, top(4, 40), scan.clone(), &[(0, 0)], false)),
        (
            "a probe side",
            join(
                JoinKind::ProbeOuter,
                filter(scan.clone(), 0, CompareOp::Lt, 90),
                top(12, 70),
                &[(0, 0)],
                false,
            ),
        ),
        (
            "both sides, keys with duplicates",
            join(JoinKind::Inner, top(13, 60), top(11, 80), &[(15, 15), (1, 1)], false),
        ),
        ("text as a key", join(JoinKind::FullOuter, top(6, 30), top(0, 60), &[(14, 14)], false)),
        ("a union", around(union(vec![top(0, 30), limit(top(0, 700), 650, Some(100)), top(14, 10)]))),
        ("groups over a union", aggregate(union(vec![top(7, 90), top(8, 70)]), &[15], &counts)),
        ("twice", aggregate(sort(&around(top(10, 300)), (14, false, true), Some(100)), &[15], &counts)),
        (
            "a sort of a sort",
            around(limit(sort(&limit(top(2, 400), 9, Some(300)), (9, false, true), None), 5, Some(70))),
        ),
        ("a computed key", around(doubled)),
        ("some columns", aggregate(narrow(top(14, 99), &[0, 15, 10]), &[1], &counts[..2])),
        ("a sort on top", sort(&around(top(5, 100)), (15, false, true), Some(20))),
        (
            "groups that are sorted",
            around(limit(
                sort(&aggregate(scan.clone(), &[0, 15, 14], &counts[..1]), (2, true, true), None),
                3,
                Some(40),
            )),
        ),
    ]
}

#[test]
fn sorts_and_limits_stand_anywhere() {
    let (source, _, scan) = table(700);
    let sources = [source];
    let host = QueryOptions { macro_model: MacroModel::KernelAtATime, ..on(DeviceChoice::Cpu) };
    for (name, plan) in shapes(&scan) {
        let expected = run(&Engine::new(), &plan, &sources, &host);
        assert_eq!(expected.metrics.kept_rows, 0, "{name}: what streams comes from the host");
        for options in devices() {
            let engine = Engine::new();
            // The later ones may defer their launches.
            for round in 0..4 {
                let output = run(&engine, &plan, &sources, &options);
                assert_eq!(bits_of(&output.batch), bits_of(&expected.batch), "{name}, {round}: {options:?}");
                assert!(output.metrics.kept_rows > 0, "{name}: {:?}", output.metrics.steps);
                let defers = options.device != DeviceChoice::Cpu && round == 3;
                assert!(!defers || output.metrics.deferred > 0, "{name}");
            }
        }
    }
}

#[test]
fn no_row_of_an_inner_sort_comes_to_the_host() {
    let (source, _, scan) = table(5000);
    let sources = [source];
    let counted = |input: Plan| aggregate(input, &[], &[(Count, None, false), (Count, Some(14), false)]);
    let plan = counted(sort(&scan, (5, false, true), Some(4000)));
    for options in devices() {
        let alone = run(&Engine::new(), counted(scan.clone()), &sources, &options).metrics;
        let QueryMetrics { output_bytes, transfer_bytes, kept_rows, .. } =
            run(&Engine::new(), &plan, &sources, &options).metrics;
        assert_eq!(kept_rows, 4000);
        // What comes to the host is the answer, and what goes to the device is the table.
        assert_eq!((output_bytes, transfer_bytes), (alone.output_bytes, alone.transfer_bytes), "{options:?}");
        let streaming = QueryOptions { macro_model: MacroModel::Batch, ..options };
        let by_host = run(&Engine::new(), &plan, &sources, &streaming).metrics;
        assert!(by_host.output_bytes > 4000 * 12 && by_host.transfer_bytes > transfer_bytes);
    }
}

/// What is known of the rows is what would be known of them on the host, and so the code is the same.
#[test]
fn what_is_known_of_rows_is_known_above_them() {
    let (source, _, scan) = table(4000);
    let top = || sort(&scan, (5, false, true), Some(900));
    let counts = [(Count, None, false), (Sum, Some(0), false)];
    for (keys, same) in [(&[2][..], true), (&[4, 1], true), (&[12, 16], true), (&[15], false)] {
        let plan = aggregate(top(), keys, &counts);
        for options in devices() {
            let explain = |macro_model| {
                let options = QueryOptions { macro_model, ..options.clone() };
                let query = Query { plan: plan.clone(), sources: vec![Arc::clone(&source)], options };
                let text = Engine::new().explain(&query, ExplainStage::Kir).expect("it is explained");
                // The last stage: what comes before writes codes.
                let last = text.rfind("-- pipeline 0").expect("a stage");
                text[last..].to_string()
            };
            let (kept, by_host) = (explain(MacroModel::Auto), explain(MacroModel::Batch));
            assert!(!same || kept == by_host, "{options:?}: {kept}");
            // Codes are those of the table: there are entries that no row has.
            let are_codes = kept.contains("codes_") && kept.contains("aggregate (direct");
            assert!(same || are_codes, "{options:?}: {kept}");
        }
    }
}

#[test]
fn rows_go_to_the_host_where_memory_is_short() {
    let (source, batch, scan) = table(30_000);
    let sources = [source];
    let key = (14, false, true);
    let inner = || sort(&scan, key, Some(9000));
    let groups = aggregate(inner(), &[0, 14, 10], &[(Count, None, false), (Max, Some(15), false)]);
    // Little memory is enough for what stays, and not for the groups beside it.
    let all: Vec<usize> = (0..scan.fields().len()).collect();
    let beside = union(vec![sort(&scan, (5, true, false), Some(200)), aggregate(scan.clone(), &all, &[])]);
    // The rows of one side wait on the device while the other's are made.
    let many = sort(&aggregate(scan.clone(), &all, &[]), (0, false, false), Some(20_000));
    let sides = join(JoinKind::Inner, sort(&scan, (5, true, false), Some(200)), many, &[(0, 0)], false);
    let roomy = on(DeviceChoice::Cpu);
    let plans = [
        (sides.clone(), bits_of(&run(&Engine::new(), &sides, &sources, &roomy).batch)),
        (beside.clone(), bits_of(&run(&Engine::new(), &beside, &sources, &roomy).batch)),
        (around(inner()), expected(&batch, key, (0, 9000))),
        (groups.clone(), bits_of(&run(&Engine::new(), &groups, &sources, &roomy).batch)),
    ];
    let (mut kept, mut moved, mut fell_back) = (0, 0, 0);
    let limits = (1..24).map(|step| step * (3 << 20)).chain([1 << 30]);
    let cases = limits.flat_map(|memory| (0..plans.len()).map(move |plan| (memory, plan)));
    let cases = covering("little memory", cases, 16, |(_, plan)| vec![*plan]);
    for (memory, plan) in cases {
        let options = QueryOptions { memory_limit: Some(memory), ..roomy.clone() };
        let (plan, rows) = &plans[plan];
        let Ok(output) = try_run(&Engine::new(), plan, &sources, &options) else {
            fell_back += 1;
            continue;
        };
        assert_eq!(&bits_of(&output.batch), rows, "{memory}: {:?}", output.metrics.steps);
        kept += u32::from(output.metrics.kept_rows > 0);
        let moves = |step: &&String| step.contains("inner sorts and limits go to the host");
        moved += output.metrics.steps.iter().filter(moves).count();
    }
    assert!(fell_back < 6, "{fell_back}");
    assert!(!is_whole() || kept > 0 && kept < 96 && moved > 2, "{kept} {moved}");
}

/// The rows of all kinds of stages stay.
#[test]
fn whatever_makes_the_rows() {
    let sources = [150, 60].map(plans::table);
    let host = QueryOptions { macro_model: MacroModel::KernelAtATime, ..on(DeviceChoice::Cpu) };
    let engines: Vec<(Engine, QueryOptions)> =
        devices().into_iter().map(|options| (Engine::new(), options)).collect();
    for (name, plan, _) in some_plans("whatever makes rows", 30) {
        // In an order of all columns, so that those that are wanted are the same everywhere.
        let key = |index| sort_key(column(&plan, index), index % 2 == 1, false);
        let keys = (0..plan.fields().len()).map(key).collect();
        let inner = limit(sorted(plan.clone(), keys, Some(40)), 2, None);
        let plan = aggregate(inner, &[0], &[(Count, None, false)]);
        let expected = rows_of(&run(&Engine::new(), &plan, &sources, &host).batch, false);
        for (engine, options) in &engines {
            let output = run(engine, &plan, &sources, options);
            assert_eq!(rows_of(&output.batch, false), expected, "{name}: {options:?}");
        }
    }
}

#[test]
fn errors_and_cancellations_are_those_of_the_query() {
    let (source, _, scan) = table(600);
    let sources = [source];
    let zero = Box::new(int(0));
    let kind = ExprKind::Arithmetic(ArithmeticOp::Divide, Box::new(column(&scan, 0)), zero);
    let exprs = vec![Expr { kind, data_type: DataType::Int64, nullable: false }];
    let quotients = Plan::Project { input: Box::new(scan.clone()), exprs, names: vec!["q".into()] };
    let failing = around(sort(&quotients, (0, false, false), Some(10)));
    let plan = around(sort(&scan, (14, false, false), Some(10)));
    for options in devices() {
        let engine = Engine::new();
        let before = bits_of(&run(&engine, &plan, &sources, &options).batch);
        let error = try_run(&engine, &failing, &sources, &options).expect_err("zero");
        assert!(matches!(error, EngineError::Query(QueryError::DivideByZero)), "{error:?}");
        let cancel = CancelToken::default();
        cancel.cancel();
        let query = Query { plan: plan.clone(), sources: sources.to_vec(), options: options.clone() };
        let error = engine.execute(&query, &cancel).expect_err("it is cancelled");
        assert!(matches!(error, EngineError::Cancelled), "{error:?}");
        assert_eq!(bits_of(&run(&engine, &plan, &sources, &options).batch), before);
    }
}
